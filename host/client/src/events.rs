//! Server-sent events out of bytes that may be cut anywhere.

/// Splits a byte stream into the data of its events.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// The bytes of a line without its end.
    line: Vec<u8>,
    /// The data lines of an event without its end.
    data: Option<Vec<u8>>,
}

impl Events {
    /// Takes `bytes` and gives the data of the events that they complete, decoded as a whole, so that a
    /// character that came in pieces is one again.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut whole = Vec::new();
        for &byte in bytes {
            if byte == b'\n' {
                let line = std::mem::take(&mut self.line);
                whole.extend(self.line(line.strip_suffix(b"\r").unwrap_or(&line)));
            } else {
                self.line.push(byte);
            }
        }
        whole
    }

    /// Whether the stream may end here.
    pub(crate) fn at_rest(&self) -> bool {
        self.line.is_empty() && self.data.is_none()
    }

    fn line(&mut self, line: &[u8]) -> Option<String> {
        if line.is_empty() {
            let data = self.data.take()?;
            return Some(String::from_utf8_lossy(&data).into_owned());
        }
        if let Some(value) = line.strip_prefix(b"data:") {
            let value = value.strip_prefix(b" ").unwrap_or(value);
            match &mut self.data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                None => self.data = Some(value.to_vec()),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = ": hello\r\ndata: {\"a\":\"gr\u{fc}n\"}\r\n\r\nevent: x\ndata:one\ndata: two\n\n\ndata: [DONE]\n\n";

    #[test]
    fn events_do_not_depend_on_where_the_bytes_are_cut() {
        let expected = ["{\"a\":\"gr\u{fc}n\"}", "one\ntwo", "[DONE]"];
        for size in 1..=STREAM.len() {
            let mut events = Events::default();
            let all: Vec<String> = STREAM
                .as_bytes()
                .chunks(size)
                .flat_map(|bytes| events.push(bytes))
                .collect();
            assert_eq!(all, expected, "pieces of {size}");
            assert!(events.at_rest());
        }
    }

    #[test]
    fn a_stream_may_not_end_inside_a_line_nor_an_event() {
        for cut in ["dat", "data: {}", "data: {}\n"] {
            let mut events = Events::default();
            assert!(events.push(cut.as_bytes()).is_empty());
            assert!(!events.at_rest(), "{cut:?}");
        }
    }
}
