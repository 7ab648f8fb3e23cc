//! Rules for Rust files.
//!
//! ```text
//!   no-header · unsafe-without-safety · ordering-without-order · long-function · vague-module
//!   ignored-test · unfinished · debugging
//! ```
//!
//! R1  Rules examine code with strings and comments emptied (`source::Source`), so a message that
//!     mentions `unsafe` is no fault.
//! R2  A comment counts if it is on the line or on one of the [`NEAR`] lines above it: near enough
//!     that a person who edits the line sees it.
//!
//! Not here: what clippy denies better, such as an `unsafe` operation inside an `unsafe fn`.

use super::Fault;
use super::source::Source;

/// The number of lines above a line on which its comment may be.
pub(super) const NEAR: usize = 8;

/// The longest function that is still readable; the style asks for about seventy lines.
const FUNCTION_LINES: usize = 100;

const VAGUE: &[&str] = &["utils", "util", "common", "helpers", "helper", "misc"];
const ORDERINGS: &[&str] = &["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"];
const ATOMIC_CALLS: &[&str] = &[
    ".load(",
    ".store(",
    ".swap(",
    ".fetch_",
    ".compare_exchange",
    "fence(",
];

/// What must not be in code at all: text, rule, what to do.
const FORBIDDEN: &[(&str, &str, &str)] = &[
    (
        "#[ignore",
        "ignored-test",
        "a test that does not run: make it run, or delete it",
    ),
    ("todo!", "unfinished", "finish it before it is committed"),
    (
        "unimplemented!",
        "unfinished",
        "finish it before it is committed",
    ),
    ("dbg!", "debugging", "remove it"),
];

/// Checks one file.
pub fn check(file: &str, content: &str) -> Vec<Fault> {
    let source = Source::new(content);
    let mut faults = Vec::new();
    if !content.starts_with("//!") {
        let what = "opens with no `//!`: say what the file is for";
        faults.push(Fault::new(file, 1, "no-header", what));
    }
    vague_modules(file, &source, &mut faults);
    for (index, code) in source.code.iter().enumerate() {
        forbidden(file, index, code, &mut faults);
        if is_unsafe(code) && !comment_near(&source, index, "SAFETY") {
            let what = "`unsafe` with no `// SAFETY:` near: name the invariant that makes it sound";
            faults.push(Fault::new(file, index + 1, "unsafe-without-safety", what));
        }
        if names_ordering(&source, index) && !comment_near(&source, index, "ORDER") {
            let what = "ordering with no `// ORDER:` near: name its partner";
            faults.push(Fault::new(file, index + 1, "ordering-without-order", what));
        }
    }
    long_functions(file, &source, &mut faults);
    faults
}

fn vague_modules(file: &str, source: &Source, faults: &mut Vec<Fault>) {
    let what = |name: &str| format!("module `{name}` says nothing: name it by what it does");
    let stem = file.trim_end_matches(".rs").trim_end_matches("/mod");
    let stem = stem.rsplit('/').next().unwrap_or(stem);
    if VAGUE.contains(&stem) {
        faults.push(Fault::new(file, 1, "vague-module", what(stem)));
    }
    for (index, code) in source.code.iter().enumerate() {
        let mut words = words(code).skip_while(|word| *word != "mod").skip(1);
        if let Some(name) = words.next().filter(|name| VAGUE.contains(name)) {
            faults.push(Fault::new(file, index + 1, "vague-module", what(name)));
        }
    }
}

fn forbidden(file: &str, index: usize, code: &str, faults: &mut Vec<Fault>) {
    for (text, rule, advice) in FORBIDDEN {
        let whole_word = |at: usize| {
            let before = code[..at].chars().next_back();
            !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
        };
        if code.match_indices(text).any(|(at, _)| whole_word(at)) {
            let what = format!("`{text}`: {advice}");
            faults.push(Fault::new(file, index + 1, rule, what));
        }
    }
}

pub(super) fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .filter(|word| !word.is_empty())
}

/// Reports whether a line has an `unsafe` block or impl. `unsafe fn` and `unsafe extern` only
/// declare; an attribute (`#[unsafe(no_mangle)]`) is judged with the function that it is on.
fn is_unsafe(code: &str) -> bool {
    code.match_indices("unsafe").any(|(at, word)| {
        let before = code[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
            return false;
        }
        let rest = code[at + word.len()..].trim_start();
        rest.starts_with('{') || words(rest).next() == Some("impl") || rest.is_empty()
    })
}

/// Reports whether a line gives an ordering to an atomic operation.
fn names_ordering(source: &Source, index: usize) -> bool {
    names_one_of(source, index, ORDERINGS)
}

/// Reports whether a line gives one of these orderings to an atomic operation, written in full or by its bare name.
pub(super) fn names_one_of(source: &Source, index: usize, orderings: &[&str]) -> bool {
    let code = &source.code[index];
    if code.trim_start().starts_with("use ") || code.contains("pub use ") {
        return false;
    }
    let in_full = orderings
        .iter()
        .any(|name| code.contains(&format!("Ordering::{name}")));
    let call = ATOMIC_CALLS.iter().any(|call| code.contains(call));
    in_full || (call && words(code).any(|word| orderings.contains(&word)))
}

fn comment_near(source: &Source, index: usize, word: &str) -> bool {
    (index.saturating_sub(NEAR)..=index).any(|line| source.comments[line].contains(word))
}

fn long_functions(file: &str, source: &Source, faults: &mut Vec<Fault>) {
    for (index, code) in source.code.iter().enumerate() {
        let Some(at) = function_starts(code) else {
            continue;
        };
        let Some(end) = body_end(source, index, at) else {
            continue;
        };
        let lines = end - index + 1;
        if lines > FUNCTION_LINES {
            let what = format!("function of {lines} lines, limit {FUNCTION_LINES}");
            faults.push(Fault::new(file, index + 1, "long-function", what));
        }
    }
}

/// Returns where in the line the word `fn`, followed by a name, is.
fn function_starts(code: &str) -> Option<usize> {
    code.match_indices("fn ").map(|(at, _)| at).find(|at| {
        let before = code[..*at].chars().next_back();
        let named = code[at + 3..].starts_with(|c: char| c.is_alphabetic() || c == '_');
        named && before.is_none_or(|c| c == ' ')
    })
}

/// Returns the line of the brace that closes the body, or `None` if there is no body.
fn body_end(source: &Source, first: usize, from: usize) -> Option<usize> {
    let (mut depth, mut brackets) = (0_i32, 0_i32);
    for (index, code) in source.code.iter().enumerate().skip(first) {
        let start = if index == first { from } else { 0 };
        for c in code[start..].chars() {
            match c {
                '(' | '[' => brackets += 1,
                ')' | ']' => brackets -= 1,
                ';' if depth == 0 && brackets == 0 => return None,
                '{' => depth += 1,
                '}' => {
                    depth -= 1;
                    if depth <= 0 {
                        return Some(index);
                    }
                }
                _ => {}
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the rules broken by a file with a header and this body.
    fn rules(body: &str) -> Vec<&'static str> {
        let faults = check("ground/x/src/a.rs", &format!("//! A.\n{body}\n"));
        faults.iter().map(|fault| fault.rule).collect()
    }

    #[test]
    fn a_file_with_no_header_fires() {
        assert_eq!(check("a.rs", "fn main() {}\n")[0].rule, "no-header");
        assert!(rules("fn main() {}").is_empty());
    }

    #[test]
    fn unsafe_wants_its_reason() {
        assert_eq!(
            rules("fn f() { unsafe { g() } }"),
            ["unsafe-without-safety"]
        );
        assert_eq!(
            rules("unsafe impl Send for X {}"),
            ["unsafe-without-safety"]
        );
        assert_eq!(rules("let x = unsafe\n{ g() };"), ["unsafe-without-safety"]);
        assert!(rules("// SAFETY: P1\nunsafe impl Send for X {}").is_empty());
        assert!(rules("let x = unsafe { g() }; // SAFETY: P2").is_empty());
    }

    #[test]
    fn a_reason_too_far_above_does_not_count() {
        let far = format!("// SAFETY: P1\n{}unsafe {{ g() }}", "f();\n".repeat(NEAR));
        assert_eq!(rules(&far), ["unsafe-without-safety"]);
        let near = format!(
            "// SAFETY: P1\n{}unsafe {{ g() }}",
            "f();\n".repeat(NEAR - 1)
        );
        assert!(rules(&near).is_empty());
    }

    #[test]
    fn what_only_declares_or_speaks_is_silent() {
        assert!(rules("unsafe fn f() {}\nunsafe extern \"C\" { fn g(); }").is_empty());
        assert!(rules("#[unsafe(no_mangle)]\nextern \"C\" fn h() {}").is_empty());
        assert!(rules("const S: &str = \"unsafe { todo!() dbg!()\"; // dbg!").is_empty());
    }

    #[test]
    fn orderings_want_their_partner() {
        assert_eq!(
            rules("x.load(Ordering::Relaxed);"),
            ["ordering-without-order"]
        );
        assert_eq!(rules("x.store(1, Release);"), ["ordering-without-order"]);
        assert!(rules("// ORDER: alone\nx.load(Ordering::Relaxed);").is_empty());
        assert!(rules("use std::sync::atomic::Ordering::Relaxed;").is_empty());
        assert!(rules("let o = a.cmp(&b) == Ordering::Less; let k = Act::Release;").is_empty());
    }

    #[test]
    fn the_limit_of_a_function_is_exact() {
        let body = |lines: usize| format!("fn f() {{\n{}}}", "    g();\n".repeat(lines - 2));
        assert!(rules(&body(FUNCTION_LINES)).is_empty());
        assert_eq!(rules(&body(FUNCTION_LINES + 1)), ["long-function"]);
        let declared = format!(
            "trait T {{\nfn f(x: [u8; 4]);\n{}}}",
            "\n".repeat(FUNCTION_LINES)
        );
        assert!(rules(&declared).is_empty());
    }

    #[test]
    fn vague_names_fire() {
        assert_eq!(rules("mod utils;"), ["vague-module"]);
        assert_eq!(check("src/helpers.rs", "//! H.\n")[0].rule, "vague-module");
        assert_eq!(
            check("src/common/mod.rs", "//! H.\n")[0].rule,
            "vague-module"
        );
        assert!(rules("mod common_prefix; use crate::util_bits;").is_empty());
    }

    #[test]
    fn what_is_not_finished_fires() {
        assert_eq!(rules("#[test]\n#[ignore]\nfn f() {}"), ["ignored-test"]);
        assert_eq!(rules("fn f() { todo!() }"), ["unfinished"]);
        assert_eq!(rules("fn f() { unimplemented!() }"), ["unfinished"]);
        assert_eq!(rules("fn f() { dbg!(1); }"), ["debugging"]);
        assert!(rules("fn f() { my_dbg!(1); }").is_empty());
    }
}
