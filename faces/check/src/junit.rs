//! The verdict as a JUnit report, which CI servers show as tests.
//!
//! J1  A budget is a test case; a program that failed is one more, an error. What is not decided is an error there: the
//!     format's "skipped" counts as good (check.K4).
//! J2  What XML 1.0 cannot hold is replaced, the rest is escaped.

use std::fmt::Write;

use crate::judge::{Checked, Judged, Verdict};
use crate::text::{blame, head, others, summary};

/// Returns the report as XML.
pub fn render(checked: &Checked) -> String {
    let number = |verdict| {
        let of = checked.budgets.iter();
        of.filter(|one| one.verdict == verdict).count()
    };
    let failed = usize::from(checked.failed.is_some());
    let counts = format!(
        "tests=\"{}\" failures=\"{}\" errors=\"{}\"",
        checked.budgets.len() + failed,
        number(Verdict::Broken),
        number(Verdict::Undecided) + failed
    );
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(out, "<testsuites {counts}>");
    let _ = writeln!(
        out,
        "  <testsuite name=\"skinflint check: {}\" skipped=\"0\" {counts}>",
        escaped(&checked.program)
    );
    if let Some(failed) = &checked.failed {
        let _ = writeln!(
            out,
            "    <testcase classname=\"memory.{}\" name=\"the program\">\n      <error type=\"failed\" \
             message=\"{}\"/>\n    </testcase>",
            escaped(&checked.program),
            escaped(failed)
        );
    }
    for one in &checked.budgets {
        case(checked, one, &mut out);
    }
    let _ = writeln!(
        out,
        "    <system-out>{}</system-out>",
        escaped(&head(checked))
    );
    out.push_str("  </testsuite>\n</testsuites>\n");
    out
}

fn case(checked: &Checked, one: &Judged, out: &mut String) {
    let _ = write!(
        out,
        "    <testcase classname=\"memory.{}\" name=\"{}\"",
        escaped(&checked.program),
        escaped(&one.name)
    );
    let tag = match one.verdict {
        Verdict::Held => {
            out.push_str("/>\n");
            return;
        }
        Verdict::Broken => "failure",
        Verdict::Undecided => "error",
    };
    let mut body = String::new();
    for culprit in &one.culprits.largest {
        let _ = writeln!(body, "{}", blame(one, culprit));
    }
    if let Some(others) = others(one) {
        let _ = writeln!(body, "{others}");
    }
    for note in &checked.notes {
        let _ = writeln!(body, "missing: {note}");
    }
    let _ = writeln!(
        out,
        ">\n      <{tag} type=\"{}\" message=\"{}\">{}</{tag}>\n    </testcase>",
        one.verdict.shown(),
        escaped(&summary(one)),
        escaped(&body)
    );
}

fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::tests::checked;

    #[test]
    fn budgets_are_cases_and_nothing_undecided_passes() {
        let text = render(&checked());
        assert!(
            text.contains("<testsuites tests=\"3\" failures=\"1\" errors=\"1\">"),
            "{text}"
        );
        assert_eq!(text.matches("<testcase ").count(), 3);
        assert!(text.contains("name=\"allocations\"/>"), "{text}");
        assert!(text.contains("<failure type=\"broken\" message="), "{text}");
        assert!(
            text.contains("<error type=\"not decided\" message="),
            "{text}"
        );
        assert!(
            text.contains("load&lt;a|b&gt; &amp; &quot;c&quot;"),
            "{text}"
        );
        assert!(!text.contains("skipped>"));
        assert_eq!(escaped("a\u{0}\u{1b}\u{ffff}"), "a\u{fffd}\u{fffd}\u{fffd}");
    }
}
