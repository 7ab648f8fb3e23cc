//! A Rust file with code, comments and strings separated, line by line.
//!
//! ```text
//!   let s = "unsafe {"; // SAFETY: no      code:    `let s = "        ";       `
//!                                          comment: ` SAFETY: no`
//! ```
//!
//! S1  `code` has as many lines as the file; the contents of strings, characters and comments are
//!     removed from it, so that a rule never fires on a word in a message.
//! S2  Any input is accepted; an unterminated string or comment simply runs to the end.
//!
//! Not here: a parser. Braces and words are enough for the rules, and a parser would be the largest
//! dependency of the whole workspace.

/// A file, split (S1).
pub struct Source {
    /// The code of each line, with strings and comments emptied.
    pub code: Vec<String>,
    /// The text of the comments of each line.
    pub comments: Vec<String>,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Code,
    LineComment,
    /// A block comment, with its depth of nesting.
    BlockComment(u32),
    /// A string with escapes.
    Text,
    /// A raw string that ends with a quote and this many hashes.
    Raw(usize),
}

impl Source {
    /// Splits a file.
    pub fn new(content: &str) -> Self {
        let mut source = Source {
            code: Vec::new(),
            comments: Vec::new(),
        };
        let mut state = State::Code;
        for line in content.lines() {
            let (code, comment, next) = split_line(line, state);
            source.code.push(code);
            source.comments.push(comment);
            state = next;
        }
        source
    }
}

/// Splits one line: its code, its comment, and the state in which the next line begins.
fn split_line(line: &str, mut state: State) -> (String, String, State) {
    let chars: Vec<char> = line.chars().collect();
    let (mut code, mut comment) = (String::new(), String::new());
    let mut at = 0;
    while at < chars.len() {
        let step = match state {
            State::Code => step_code(&chars, at, &mut code, &mut state),
            State::LineComment => {
                comment.push(chars[at]);
                1
            }
            State::BlockComment(depth) => {
                comment.push(chars[at]);
                step_block_comment(&chars, at, depth, &mut state)
            }
            State::Text => step_text(&chars, at, &mut code, &mut state),
            State::Raw(hashes) => step_raw(&chars, at, hashes, &mut code, &mut state),
        };
        at += step;
    }
    if state == State::LineComment {
        state = State::Code;
    }
    (code, comment, state)
}

fn starts(chars: &[char], at: usize, what: &str) -> bool {
    what.chars()
        .enumerate()
        .all(|(i, c)| chars.get(at + i) == Some(&c))
}

fn step_code(chars: &[char], at: usize, code: &mut String, state: &mut State) -> usize {
    if starts(chars, at, "//") {
        *state = State::LineComment;
        return 2;
    }
    if starts(chars, at, "/*") {
        *state = State::BlockComment(1);
        return 2;
    }
    let after_word = at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_');
    if !after_word && let Some((hashes, length)) = raw_string_start(chars, at) {
        *state = State::Raw(hashes);
        code.push('"');
        return length;
    }
    match chars[at] {
        '"' => {
            *state = State::Text;
            code.push('"');
            1
        }
        '\'' => char_literal_length(chars, at).unwrap_or_else(|| {
            code.push('\'');
            1
        }),
        c => {
            code.push(c);
            1
        }
    }
}

fn step_block_comment(chars: &[char], at: usize, depth: u32, state: &mut State) -> usize {
    if starts(chars, at, "/*") {
        *state = State::BlockComment(depth + 1);
        2
    } else if starts(chars, at, "*/") {
        *state = match depth {
            1 => State::Code,
            _ => State::BlockComment(depth - 1),
        };
        2
    } else {
        1
    }
}

fn step_text(chars: &[char], at: usize, code: &mut String, state: &mut State) -> usize {
    match chars[at] {
        '\\' => 2,
        '"' => {
            *state = State::Code;
            code.push('"');
            1
        }
        _ => 1,
    }
}

fn step_raw(
    chars: &[char],
    at: usize,
    hashes: usize,
    code: &mut String,
    state: &mut State,
) -> usize {
    let ends = chars[at] == '"' && (1..=hashes).all(|i| chars.get(at + i) == Some(&'#'));
    if !ends {
        return 1;
    }
    *state = State::Code;
    code.push('"');
    1 + hashes
}

/// Returns the number of hashes and the length of the opening of `r"`, `r#"`, `br##"`, `cr"` …
fn raw_string_start(chars: &[char], at: usize) -> Option<(usize, usize)> {
    let prefix = usize::from(matches!(chars[at], 'b' | 'c'));
    if chars.get(at + prefix) != Some(&'r') {
        return None;
    }
    let open = at + prefix + 1;
    let hashes = chars[open..].iter().take_while(|c| **c == '#').count();
    (chars.get(open + hashes) == Some(&'"')).then_some((hashes, prefix + 2 + hashes))
}

/// Returns the length of a character literal, or `None` for a lifetime.
fn char_literal_length(chars: &[char], at: usize) -> Option<usize> {
    if chars.get(at + 1) == Some(&'\\') {
        let close = chars.iter().skip(at + 3).position(|c| *c == '\'')?;
        return Some(close + 4);
    }
    (chars.get(at + 2) == Some(&'\'')).then_some(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_leave_the_code() {
        let source = Source::new("let a = 1; // SAFETY: S1\n/* one\n/* two */ three */ let b;");
        assert_eq!(source.code, ["let a = 1; ", "", " let b;"]);
        assert_eq!(source.comments[0], " SAFETY: S1");
        assert!(source.comments[1].contains("one"));
    }

    #[test]
    fn strings_are_emptied() {
        let source = Source::new("f(\"unsafe { \\\" // no\", b\"x\", '{', '\\'', '\\u{7d}');");
        assert_eq!(source.code, ["f(\"\", b\"\", , , );"]);
        assert_eq!(source.comments, [""]);
    }

    #[test]
    fn raw_strings_run_over_lines_and_hashes() {
        let source = Source::new("let s = r#\"one \"quoted\"\n// not a comment {\n\"#; g();");
        assert_eq!(source.code, ["let s = \"", "", "\"; g();"]);
        assert_eq!(source.comments, ["", "", ""]);
    }

    #[test]
    fn a_lifetime_is_no_character() {
        let source = Source::new("fn f<'a>(x: &'a str) -> &'a str { x }");
        assert_eq!(source.code, ["fn f<'a>(x: &'a str) -> &'a str { x }"]);
    }

    #[test]
    fn an_open_string_or_comment_ends_with_the_file() {
        assert_eq!(Source::new("let s = \"abc\\").code.len(), 1);
        assert_eq!(Source::new("/* abc\ndef").code, ["", ""]);
        assert_eq!(Source::new("let c = '\\").code.len(), 1);
    }
}
