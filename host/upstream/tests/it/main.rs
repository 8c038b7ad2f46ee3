//! mistral.rs as published: the requests that Eyrie's pipeline must pass there pass here too, and its
//! defects, one test each, are still there.

mod requests;
