//! Lines of a terminal: text in a few inks, cut or wrapped to a width.
//!
//! S1  No line is wider than the width it was made for, in columns.
//! S2  No control character reaches the terminal: a symbol cannot carry an escape sequence.
//! S3  The caller decides about colour; without it there are no escapes at all.
//!
//! Not here: what to say (text.rs).

/// The role of a piece of text, which decides its colour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ink {
    /// Ordinary text.
    Plain,
    /// Headings and sums.
    Strong,
    /// What can be skipped.
    Faint,
    /// Savings, and "complete".
    Good,
    /// What is missing.
    Warn,
    /// Bars.
    Bar,
}

impl Ink {
    fn escape(self) -> &'static str {
        match self {
            Ink::Plain => "",
            Ink::Strong => "\x1b[1m",
            Ink::Faint => "\x1b[2m",
            Ink::Good => "\x1b[32m",
            Ink::Warn => "\x1b[1;33m",
            Ink::Bar => "\x1b[36m",
        }
    }
}

/// A line of text, with its inks.
#[derive(Clone, Default, Debug)]
pub(crate) struct Line {
    spans: Vec<(Ink, String)>,
}

impl Line {
    /// Creates a line of one piece.
    pub(crate) fn of(ink: Ink, text: impl AsRef<str>) -> Line {
        Line::default().with(ink, text)
    }

    /// Adds a further piece to the line.
    pub(crate) fn with(mut self, ink: Ink, text: impl AsRef<str>) -> Line {
        self.spans.push((ink, clean(text.as_ref())));
        self
    }

    /// Writes the line, cut to `width` columns (S1), with a line end.
    pub(crate) fn write(&self, width: usize, color: bool, out: &mut String) {
        let total: usize = self.spans.iter().map(|(_, text)| columns(text)).sum();
        let mut room = if total > width {
            width.saturating_sub(1)
        } else {
            width
        };
        let start = out.len();
        for (ink, text) in &self.spans {
            let (piece, used) = head(text, room);
            room -= used;
            push(out, *ink, piece, color);
            if piece.len() < text.len() {
                break;
            }
        }
        if total > width && width > 0 {
            out.push('…');
        }
        let kept = out[start..].trim_end_matches(' ').len();
        out.truncate(start + kept);
        out.push('\n');
    }
}

fn push(out: &mut String, ink: Ink, piece: &str, color: bool) {
    if color && !ink.escape().is_empty() && !piece.is_empty() {
        out.push_str(ink.escape());
        out.push_str(piece);
        out.push_str("\x1b[0m");
    } else {
        out.push_str(piece);
    }
}

/// Returns the text without control characters (S2), including those that change the direction of writing: what a
/// program chose (names, marks, arguments) goes to a terminal or a page by way of this.
pub fn clean(text: &str) -> String {
    let hostile = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    text.chars()
        .map(|c| {
            if c == '\t' {
                ' '
            } else if hostile(c) {
                '�'
            } else {
                c
            }
        })
        .collect()
}

/// Returns the columns of a character: East Asian wide characters and emoji take two, combining marks none.
fn column(c: char) -> usize {
    match c as u32 {
        0x300..=0x36f | 0xfe00..=0xfe0f | 0xe0100..=0xe01ef => 0,
        0x1100..=0x115f
        | 0x2e80..=0xa4cf
        | 0xac00..=0xd7a3
        | 0xf900..=0xfaff
        | 0xfe30..=0xfe6f
        | 0xff00..=0xff60
        | 0xffe0..=0xffe6
        | 0x1f300..=0x1faff
        | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

/// Returns the columns of a text.
pub(crate) fn columns(text: &str) -> usize {
    text.chars().map(column).sum()
}

/// Returns the longest start of `text` within `room` columns, and its columns.
fn head(text: &str, room: usize) -> (&str, usize) {
    let mut used = 0;
    for (index, c) in text.char_indices() {
        if used + column(c) > room {
            return (&text[..index], used);
        }
        used += column(c);
    }
    (text, used)
}

/// Cuts `text` to `room` columns with an ellipsis in the middle: both ends of a name are informative.
pub(crate) fn cut_middle(text: &str, room: usize) -> String {
    if columns(text) <= room {
        return text.to_owned();
    }
    let keep = room.saturating_sub(1);
    let (start, used) = head(text, keep - keep / 3);
    let mut rest = keep - used;
    let mut tail = Vec::new();
    for c in text.chars().rev() {
        if column(c) > rest {
            break;
        }
        rest -= column(c);
        tail.push(c);
    }
    let tail: String = tail.into_iter().rev().collect();
    if room == 0 {
        String::new()
    } else {
        format!("{start}…{tail}")
    }
}

/// Pads `text` on the right to `room` columns, or cuts it.
pub(crate) fn left(text: &str, room: usize) -> String {
    let text = cut_middle(&clean(text), room);
    let pad = room.saturating_sub(columns(&text));
    text + &" ".repeat(pad)
}

/// Pads `text` on the left to `room` columns.
pub(crate) fn right(text: &str, room: usize) -> String {
    format!("{}{text}", " ".repeat(room.saturating_sub(columns(text))))
}

/// Breaks `text` at blanks into lines of at most `room` columns; a word that is too long is broken.
/// With more than `limit` lines, the last ends in an ellipsis.
pub(crate) fn wrap(text: &str, room: usize, limit: usize) -> Vec<String> {
    let room = room.max(1);
    let text = clean(&text.replace('\n', " "));
    let mut lines = vec![String::new()];
    let mut used = 0;
    for mut word in text.split_whitespace() {
        let gap = usize::from(used > 0);
        if used > 0 && used + gap + columns(word) > room {
            lines.push(String::new());
            used = 0;
        } else if gap == 1 {
            lines.last_mut().expect("never empty").push(' ');
            used += 1;
        }
        while columns(word) > room {
            let (mut piece, _) = head(word, room);
            if piece.is_empty() {
                piece = &word[..word.chars().next().map_or(0, char::len_utf8)];
            }
            lines.last_mut().expect("never empty").push_str(piece);
            lines.push(String::new());
            word = &word[piece.len()..];
        }
        lines.last_mut().expect("never empty").push_str(word);
        used += columns(word);
        if lines.len() > limit {
            break;
        }
    }
    if lines.last().is_some_and(String::is_empty) && lines.len() > 1 {
        lines.pop();
    }
    if lines.len() > limit {
        lines.truncate(limit.max(1));
        let last = lines.last_mut().expect("never empty");
        while columns(last) >= room {
            last.pop();
        }
        last.push('…');
    }
    lines
}

/// Draws a bar for `part` of `whole`, at most `room` columns wide, in eighths of a column.
pub(crate) fn bar(part: u64, whole: u64, room: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    if whole == 0 || part == 0 {
        return String::new();
    }
    let share = (part as f64 / whole as f64).min(1.0);
    let eighths = ((share * room as f64 * 8.0).round() as usize).max(1);
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_do_not_pass() {
        assert_eq!(clean("a\x1b[31mb\u{202e}c\r\n"), "a�[31mb�c��");
    }

    #[test]
    fn wrapping_breaks_at_blanks_and_then_words() {
        assert_eq!(wrap("one two three", 7, 9), ["one two", "three"]);
        assert_eq!(wrap("abcdefghij k", 4, 9), ["abcd", "efgh", "ij k"]);
        assert_eq!(wrap("one two three four", 7, 2), ["one two", "three…"]);
        assert_eq!(wrap("", 7, 2), [""]);
    }

    #[test]
    fn names_keep_both_ends() {
        assert_eq!(cut_middle("abcdefghij", 10), "abcdefghij");
        assert_eq!(cut_middle("abcdefghij", 7), "abcd…ij");
        assert_eq!(cut_middle("abcdefghij", 1), "…");
        assert_eq!(columns("日本"), 4);
        assert_eq!(cut_middle("日本語日本語", 5), "日…語");
    }

    #[test]
    fn bars_are_in_eighths_and_never_vanish() {
        assert_eq!(bar(1, 2, 10), "█████");
        assert_eq!(bar(1, 16, 10), "▋");
        assert_eq!(bar(1, 1_000_000, 10), "▏");
        assert_eq!(bar(0, 10, 10), "");
        assert_eq!(bar(3, 0, 10), "");
    }

    #[test]
    fn a_line_is_cut_to_its_width() {
        let mut out = String::new();
        Line::of(Ink::Strong, "abc")
            .with(Ink::Plain, "defgh")
            .write(5, true, &mut out);
        assert_eq!(out, "\x1b[1mabc\x1b[0md…\n");
    }
}
