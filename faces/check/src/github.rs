//! The verdict as annotations of GitHub Actions, which it reads from a step's output.
//!
//! ```text
//!   ::error file=src/load.c,line=12,title=peak-live broken::26.3 MiB of 20.0 MiB allowed …%0A…
//! ```
//!
//! H1  What the program chose cannot end a property or a message: `%`, line ends, and in properties `:` and `,` are escaped.

use std::fmt::Write;

use crate::judge::{Checked, Verdict};
use crate::text::{blame, others, summary};

/// Returns a line for each budget: an error if it broke, a warning if it is not decided, else a notice; and one before
/// them if the program failed.
pub fn render(checked: &Checked) -> String {
    let mut out = String::new();
    if let Some(failed) = &checked.failed {
        let _ = writeln!(out, "::error title=the program failed::{}", message(failed));
    }
    for one in &checked.budgets {
        let level = match one.verdict {
            Verdict::Broken => "error",
            Verdict::Undecided => "warning",
            Verdict::Held => "notice",
        };
        let _ = write!(out, "::{level} ");
        let first = one.culprits.largest.first();
        let file = first.and_then(|first| first.file.as_ref());
        // A file outside of the working folder is no file of the repository.
        if let Some(file) = file.filter(|file| !file.starts_with('/')) {
            let _ = write!(out, "file={},", property(file));
            if let Some(line) = first.and_then(|first| first.line) {
                let _ = write!(out, "line={line},");
            }
        }
        let title = format!("{} {}", one.name, one.verdict.shown());
        let mut said = summary(one);
        for culprit in &one.culprits.largest {
            let _ = write!(said, "\n{}", blame(one, culprit));
        }
        if let Some(others) = others(one) {
            let _ = write!(said, "\n{others}");
        }
        if !checked.complete {
            for note in &checked.notes {
                let _ = write!(said, "\nmissing: {note}");
            }
        }
        let _ = writeln!(out, "title={}::{}", property(&title), message(&said));
    }
    out
}

fn message(text: &str) -> String {
    text.replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

fn property(text: &str) -> String {
    message(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::tests::checked;

    #[test]
    fn one_line_a_budget_whatever_names_contain() {
        let text = render(&checked());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[0].starts_with("::notice title=allocations held::17 of 17"));
        assert!(
            lines[1].starts_with("::error file=src/load.c,line=12,title=peak-live broken::"),
            "{text}"
        );
        assert!(lines[1].contains("\"c\"%0A%25"), "{text}");
        assert!(lines[2].starts_with("::warning "));
        assert_eq!(property("a:b,c%\n"), "a%3Ab%2Cc%25%0A");
    }
}
