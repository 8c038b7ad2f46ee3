//! Mixed requests to an OpenAI server, and a client that says exactly what came back.
//!
//! ```no_run
//! # async fn show() -> Result<(), eyrie_host_client::Error> {
//! use eyrie_host_client::{Client, mixed};
//!
//! let client = Client::new(([127, 0, 0, 1], 8080).into())?;
//! for request in mixed()? {
//!     let outcome = client.send("default", &request).await;
//!     assert_eq!(outcome.check(&request), Ok(()), "{}: {outcome:?}", request.name);
//! }
//! # Ok(())
//! # }
//! ```

mod client;
mod error;
mod events;
mod outcome;
mod request;

pub use client::Client;
pub use error::Error;
pub use outcome::{Choice, Outcome, TokenLogprob};
pub use request::{Behaviour, Expect, Request, Tag, mixed, parse};

#[cfg(test)]
mod tests;
