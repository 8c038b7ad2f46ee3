//! The Jinja environment that chat templates are written for.

use std::{io, thread};

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State, Value};
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

/// The longest template that is parsed; real ones have up to 30,000 bytes.
pub(super) const MAX_SOURCE: usize = 1 << 17;
/// The longest prompt that a template may write.
pub(super) const MAX_PROMPT: usize = 1 << 26;
/// Instructions that a template may take; a turn takes about a hundred.
pub(super) const FUEL: u64 = 1_000_000;
/// The engine recurses over expressions and over values: enough for what [`MAX_SOURCE`] and
/// [`FUEL`] let a template build. Pages that are not touched take no memory.
const STACK: usize = 1 << 29;

/// What a template has written, up to [`MAX_PROMPT`].
#[derive(Debug, Default)]
pub(super) struct Bounded {
    pub(super) bytes: Vec<u8>,
    /// It wanted to write more.
    pub(super) overflowed: bool,
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > MAX_PROMPT - self.bytes.len() {
            self.overflowed = true;
            return Err(io::Error::other("the prompt is too long"));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs `work` on a stack of [`STACK`] bytes.
///
/// # Errors
/// If there is no thread for it, or it panics.
pub(super) fn with_deep_stack<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let builder = thread::Builder::new().stack_size(STACK);
        let running = builder.spawn_scoped(scope, work)?;
        let done = running.join();
        done.map_err(|_| io::Error::other("the template engine broke down"))
    })
}

/// Blocks trimmed, Python's methods, `raise_exception`, Python's `tojson` and spelling of `None`,
/// `True` and `False`. There is no `strftime_now`: a template that tests for it takes its default.
pub(super) fn environment() -> Environment<'static> {
    let mut env = Environment::new();
    env.set_fuel(Some(FUEL));
    env.set_trim_blocks(true);
    env.set_lstrip_blocks(true);
    // The default goes by the template's name: a `.json` would be escaped.
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    env.set_formatter(format);
    env.add_function("raise_exception", raise_exception);
    env.add_filter("tojson", tojson);
    env
}

fn format(out: &mut Output<'_>, _: &State<'_, '_>, value: &Value) -> Result<(), Error> {
    match value.kind() {
        ValueKind::Undefined => Ok(()),
        ValueKind::None => out.write_str("None"),
        ValueKind::Bool if value.is_true() => out.write_str("True"),
        ValueKind::Bool => out.write_str("False"),
        _ => write!(out, "{value}"),
    }
    .map_err(Error::from)
}

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

/// `json.dumps` with `ensure_ascii=False`: a space behind `:` and, on one line, behind `,`.
#[expect(
    clippy::needless_pass_by_value,
    reason = "a filter takes its keywords by value"
)]
fn tojson(value: &Value, options: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let _ensure_ascii: Option<bool> = options.get("ensure_ascii")?;
    options.assert_all_used()?;
    let mut bytes = Vec::new();
    let written = match indent {
        None => value.serialize(&mut Serializer::with_formatter(&mut bytes, OneLine)),
        Some(width) => {
            let width = " ".repeat(width.min(16));
            let pretty = PrettyFormatter::with_indent(width.as_bytes());
            value.serialize(&mut Serializer::with_formatter(&mut bytes, pretty))
        }
    };
    let bad =
        |e: &dyn std::error::Error| Error::new(ErrorKind::BadSerialization, format!("tojson: {e}"));
    written.map_err(|e| bad(&e))?;
    String::from_utf8(bytes).map_err(|e| bad(&e))
}

/// Python's separators on one line.
struct OneLine;

impl Formatter for OneLine {
    fn begin_array_value<W>(&mut self, writer: &mut W, first: bool) -> io::Result<()>
    where
        W: ?Sized + io::Write,
    {
        separate(writer, first)
    }

    fn begin_object_key<W>(&mut self, writer: &mut W, first: bool) -> io::Result<()>
    where
        W: ?Sized + io::Write,
    {
        separate(writer, first)
    }

    fn begin_object_value<W>(&mut self, writer: &mut W) -> io::Result<()>
    where
        W: ?Sized + io::Write,
    {
        writer.write_all(b": ")
    }
}

fn separate<W: ?Sized + io::Write>(writer: &mut W, first: bool) -> io::Result<()> {
    if first {
        return Ok(());
    }
    writer.write_all(b", ")
}
