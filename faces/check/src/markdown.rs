//! The verdict as Markdown: a table of budgets, and the stacks of those that broke.
//!
//! N1  What the program chose cannot end a cell or begin markup: it is escaped.

use std::fmt::Write;

use crate::judge::Checked;
use crate::text::{blame, head, others, plain, summary, unasked};

/// Returns the verdict as Markdown, as GitHub and GitLab show it.
pub fn render(checked: &Checked) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "### Memory: {}\n", checked.answer());
    let _ = writeln!(out, "{}\n", escaped(&head(checked)));
    if let Some(failed) = &checked.failed {
        let _ = writeln!(out, "{}\n", escaped(failed));
    }
    for note in &checked.notes {
        let _ = writeln!(out, "- missing: {}", escaped(note));
    }
    if !checked.notes.is_empty() {
        out.push('\n');
    }
    if checked.budgets.is_empty() {
        out.push_str("| figure | |\n|---|---|\n");
        for (name, figure) in unasked(checked) {
            let _ = writeln!(out, "| {name} | {figure} |");
        }
        return out;
    }
    out.push_str("| budget | verdict | figure |\n|---|---|---|\n");
    for one in &checked.budgets {
        let _ = writeln!(
            out,
            "| {} | **{}** | {} |",
            escaped(&one.name),
            one.verdict.shown(),
            escaped(&summary(one))
        );
    }
    for one in &checked.budgets {
        if one.culprits.largest.is_empty() {
            continue;
        }
        let _ = writeln!(out, "\n**{}**, by stack:\n", escaped(&one.name));
        for culprit in &one.culprits.largest {
            let _ = writeln!(out, "- {}", escaped(&blame(one, culprit)));
        }
        if let Some(others) = others(one) {
            let _ = writeln!(out, "- {others}");
        }
    }
    out
}

fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in plain(text).chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '|' | '*' | '_' | '`' | '[' | ']' | '\\' | '#' | '~' => {
                out.push('\\');
                out.push(c);
            }
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::tests::checked;

    #[test]
    fn every_budget_is_a_row_and_names_are_escaped() {
        let text = render(&checked());
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| ")).collect();
        assert_eq!(rows.len(), 4, "{text}");
        for row in rows {
            assert_eq!(row.replace("\\|", "").matches('|').count(), 4, "{row}");
        }
        assert!(text.contains("| peak-live | **broken** |"), "{text}");
        let said = text
            .lines()
            .find(|line| line.starts_with("- 600 B"))
            .unwrap();
        assert!(said.contains("load&lt;a\\|b&gt; &amp;"), "{said}");
    }
}
