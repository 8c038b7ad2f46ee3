//! Two texts side by side, in the width of a terminal.

use console::{Style, Term, measure_text_width, pad_str};

use crate::error::printable;

/// Columns where there is no terminal.
const PAGE: usize = 80;
/// A column of text is not wider, for the eye's sake.
const WIDEST: usize = 60;
/// Below this the texts stand one above the other.
const NARROW: usize = 60;
const GAP: &str = " | ";

/// How it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    /// Columns of the terminal.
    pub(super) width: usize,
    pub(super) colour: bool,
}

impl Look {
    /// Of stdout. No colour where it is no terminal, `plain` is asked for, or `NO_COLOR` is set.
    pub(super) fn of_stdout(plain: bool) -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let size = Term::stdout().size_checked();
        Self {
            width: size.map_or(PAGE, |(_, columns)| columns.into()),
            colour: !plain && !refused && console::colors_enabled(),
        }
    }
}

/// A text, parts of which are coloured.
#[derive(Clone, Debug, Default)]
pub(super) struct Painted {
    chars: Vec<(char, bool)>,
}

type Line = Vec<(char, bool)>;

impl Painted {
    /// Adds a part. What a terminal would obey is spelled out, but for the ends of lines.
    pub(super) fn push(&mut self, text: &str, bright: bool) {
        for (i, part) in text.split('\n').enumerate() {
            if i > 0 {
                self.chars.push(('\n', bright));
            }
            let part = printable(part);
            self.chars.extend(part.chars().map(|c| (c, bright)));
        }
    }

    /// Its lines, broken at blanks where one would be wider.
    fn lines(&self, width: usize) -> Vec<Line> {
        let mut lines = Vec::new();
        let mut line = Line::new();
        for &(c, bright) in &self.chars {
            if c == '\n' {
                lines.push(std::mem::take(&mut line));
                continue;
            }
            line.push((c, bright));
            if wide(&line) <= width || c == ' ' {
                continue;
            }
            let blank = line.iter().rposition(|(c, _)| *c == ' ');
            let rest = line.split_off(blank.map_or(line.len() - 1, |blank| blank + 1));
            lines.push(std::mem::replace(&mut line, rest));
        }
        if !line.is_empty() {
            lines.push(line);
        }
        for line in &mut lines {
            while line.last().is_some_and(|(c, _)| *c == ' ') {
                line.pop();
            }
        }
        lines
    }
}

fn wide(line: &[(char, bool)]) -> usize {
    let text: String = line.iter().map(|(c, _)| c).collect();
    measure_text_width(&text)
}

/// A line in colour, as wide as its column.
fn painted(line: &[(char, bool)], width: usize, colour: bool) -> String {
    let bright = Style::new().green().bold().force_styling(colour);
    let mut text = String::new();
    for run in line.chunk_by(|a, b| a.1 == b.1) {
        let part: String = run.iter().map(|(c, _)| c).collect();
        if run[0].1 {
            text += &bright.apply_to(part).to_string();
        } else {
            text += &part;
        }
    }
    let blanks = width.saturating_sub(wide(line));
    text + &" ".repeat(blanks)
}

/// Both texts under their titles.
pub(super) fn side_by_side(titles: [&str; 2], texts: [&Painted; 2], look: Look) -> String {
    let mut out = String::new();
    if look.width < NARROW {
        for (title, text) in titles.iter().zip(texts) {
            out += &format!("{title}\n");
            for line in text.lines(look.width.max(1)) {
                out += &format!("  {}\n", painted(&line, 0, look.colour));
            }
        }
        return out;
    }
    let width = ((look.width - GAP.len()) / 2).min(WIDEST);
    let head = pad_str(titles[0], width, console::Alignment::Left, None);
    out += &format!("{head}{GAP}{}\n", titles[1]);
    let [left, right] = texts.map(|text| text.lines(width));
    for at in 0..left.len().max(right.len()) {
        let cell = |lines: &[Line]| {
            let line = lines.get(at).map_or(&[][..], Vec::as_slice);
            painted(line, width, look.colour)
        };
        out += format!("{}{GAP}{}", cell(&left), cell(&right)).trim_end();
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(parts: &[(&str, bool)]) -> Painted {
        let mut text = Painted::default();
        parts
            .iter()
            .for_each(|(part, bright)| text.push(part, *bright));
        text
    }

    fn shown(text: &Painted, width: usize) -> Vec<String> {
        let lines = text.lines(width);
        lines.iter().map(|line| painted(line, 0, false)).collect()
    }

    #[test]
    fn lines_break_at_blanks_and_within_words_that_are_too_long() {
        let text = of(&[("one two ", false), ("three\n\nabcdefghij", true)]);
        assert_eq!(shown(&text, 8), ["one two", "three", "", "abcdefgh", "ij"]);
        assert_eq!(shown(&text, 7), ["one two", "three", "", "abcdefg", "hij"]);
        assert_eq!(shown(&of(&[("日本語", false)]), 4), ["日本", "語"]);
        assert!(shown(&Painted::default(), 5).is_empty());
    }

    #[test]
    fn columns_are_as_wide_as_the_terminal_allows_and_hold_no_escapes_of_the_text() {
        let (a, b) = (
            of(&[("a\x1b[2Jb", false)]),
            of(&[("some words more", true)]),
        );
        for (width, colour) in [
            (60, false),
            (81, false),
            (300, true),
            (40, true),
            (0, false),
        ] {
            let look = Look { width, colour };
            let text = side_by_side(["plain", "drafts"], [&a, &b], look);
            assert_eq!(text.contains('\x1b'), colour, "{text:?}");
            assert!(!text.contains("\x1b[2J"), "{text:?}");
            let column = if width < NARROW {
                width.max(14)
            } else {
                2 * WIDEST + GAP.len()
            };
            let widest = text.lines().map(measure_text_width).max();
            assert!(widest.is_some_and(|widest| widest <= column), "{text:?}");
        }
    }
}
