//! Finds links of Markdown files that lead nowhere: to no file, or to no heading of one.
//!
//! ```text
//!   [text](target#part) · <img src="target"> · <a href="target">
//!            │      └──► a heading of that file, or an id in it, if the file is Markdown
//!            └─────────► relative to the file's folder; web addresses are left alone
//! ```
//!
//! L1  A link inside a code fence or inside back-ticks is an example, not a link; a heading inside a fence is none.
//! L2  The part of a heading is made as GitHub makes it: small letters, spaces as hyphens, no punctuation, and a number
//!     behind the second of a name.
//!
//! Not here: whether a web page exists (tests do not use the network), or a line of a source file.

use std::collections::BTreeSet;

use super::Fault;

const RULE: &str = "dead-link";

/// What is known of the repository: files by their path from its root.
pub struct Files<'a> {
    /// Whether a file or folder is there.
    pub exists: &'a dyn Fn(&str) -> bool,
    /// The text of a file.
    pub read: &'a dyn Fn(&str) -> Option<String>,
}

/// Checks one file.
pub fn check(file: &str, content: &str, files: &Files<'_>) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (index, line) in outside_of_fences(content) {
        for target in targets(&without_code(line)) {
            if let Some(what) = fault_of(file, content, &target, files) {
                faults.push(Fault::new(file, index + 1, RULE, what));
            }
        }
    }
    faults
}

/// Returns what is wrong with a link.
fn fault_of(file: &str, content: &str, target: &str, files: &Files<'_>) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (address, part) = target.split_once('#').unwrap_or((target, ""));
    let path = address.split('?').next().unwrap_or("");
    let full = match path {
        "" => Some(file.to_owned()),
        path => resolve(file, path),
    };
    let there = full.filter(|full| path.is_empty() || (files.exists)(full));
    let Some(full) = there else {
        return Some(format!("`{target}` does not exist"));
    };
    if part.is_empty() || !full.ends_with(".md") {
        return None;
    }
    let has_part = match path {
        "" => parts(content).contains(part),
        _ => parts(&(files.read)(&full)?).contains(part),
    };
    (!has_part).then(|| format!("`{target}`: {full} has no such heading"))
}

/// Returns the lines that are in no code fence, with their number from 0 (L1).
pub fn outside_of_fences(content: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    content.lines().enumerate().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// Returns what a link to this file may have behind `#` (L2).
fn parts(content: &str) -> BTreeSet<String> {
    let mut parts = BTreeSet::new();
    for (_, line) in outside_of_fences(content) {
        let title = line.trim_start_matches('#');
        let level = line.len() - title.len();
        if (1..=6).contains(&level) && title.starts_with(' ') {
            let name = part_of(title.trim());
            let numbered = (1..).map(|number| format!("{name}-{number}"));
            let free = std::iter::once(name.clone())
                .chain(numbered)
                .find(|name| !parts.contains(name));
            parts.extend(free);
        }
        parts.extend(attributes(line, &["id", "name"]));
    }
    parts
}

fn part_of(title: &str) -> String {
    let mut shown = title.to_owned();
    // `[text](target)` shows its text only.
    while let Some((before, rest)) = shown.split_once("](") {
        let Some((_, after)) = rest.split_once(')') else {
            break;
        };
        shown = format!("{before}{after}");
    }
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    let kept: String = shown.chars().filter(kept).collect();
    kept.to_lowercase().replace(' ', "-")
}

/// Returns the line without what is between back-ticks (L1).
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

/// Returns what is in `](…)`, without a title, and what HTML in the line leads to.
pub fn targets(line: &str) -> Vec<String> {
    let links = line
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .filter_map(|(target, _)| target.split_whitespace().next())
        .map(|target| target.trim_matches(['<', '>']).to_owned());
    links.chain(attributes(line, &["src", "href"])).collect()
}

/// Returns the values of these attributes of HTML.
fn attributes(line: &str, names: &[&str]) -> Vec<String> {
    let values = |name: &&str| -> Vec<String> {
        let opening = format!(" {name}=\"");
        let values = line.split(opening.as_str()).skip(1);
        let values = values.filter_map(|rest| rest.split_once('"'));
        values.map(|(value, _)| value.to_owned()).collect()
    };
    names.iter().flat_map(values).collect()
}

/// Returns the target as a path from the root; `None` if it leaves the repository.
pub fn resolve(file: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = match target.strip_prefix('/') {
        Some(_) => Vec::new(),
        None => file.split('/').collect(),
    };
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &str =
        "# The format\n## `Part` one, and [two](x.md)\n## Part\n## Part\n<a id=\"here\"></a>\n";

    fn lines(file: &str, content: &str) -> Vec<usize> {
        let known =
            |path: &str| ["", "README.md", "docs/FORMAT.md", "docs", "a.rs"].contains(&path);
        let read = |path: &str| (path == "docs/FORMAT.md").then(|| FORMAT.to_owned());
        let files = Files {
            exists: &known,
            read: &read,
        };
        check(file, content, &files)
            .iter()
            .map(|fault| fault.line)
            .collect()
    }

    #[test]
    fn a_dead_link_fires() {
        assert_eq!(lines("README.md", "see\n[a](docs/GONE.md)"), [2]);
        assert_eq!(lines("docs/FORMAT.md", "[a](README.md)"), [1]);
        assert_eq!(lines("README.md", "[a](../outside.md)"), [1]);
        assert_eq!(lines("README.md", "![a](gone.png \"title\")"), [1]);
        assert_eq!(lines("README.md", "<img src=\"gone.png\" alt=\"\">"), [1]);
        assert_eq!(lines("README.md", "<a href=\"gone.html\">x</a>"), [1]);
    }

    #[test]
    fn a_dead_part_fires() {
        assert_eq!(lines("README.md", "[a](docs/FORMAT.md#parts)"), [1]);
        assert_eq!(lines("README.md", "# Here\n[a](#there)"), [2]);
        assert_eq!(lines("README.md", "[a](docs/FORMAT.md#part-2)"), [1]);
        assert_eq!(lines("README.md", "```\n# Here\n```\n[a](#here)"), [4]);
    }

    #[test]
    fn a_good_link_is_silent() {
        let good =
            "# Here\n[a](docs/FORMAT.md#part) [b](#here) [c](https://example.org/x#y) [d](docs/)";
        assert!(lines("README.md", good).is_empty());
        let parts = "[a](docs/FORMAT.md#part-1) [b](docs/FORMAT.md#here) [c](docs/FORMAT.md#part-one-and-two)";
        assert!(lines("README.md", parts).is_empty());
        assert!(lines("docs/FORMAT.md", "[a](../README.md) [b](/README.md)").is_empty());
        assert!(lines("README.md", "[a](a.rs#L12)").is_empty());
    }

    #[test]
    fn an_example_is_no_link() {
        assert!(lines("README.md", "`[a](gone)`\n```\n[a](gone)\n```\n").is_empty());
        assert_eq!(lines("README.md", "```\n```\n[a](gone)"), [3]);
    }
}
