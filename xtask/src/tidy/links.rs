//! Finds links of Markdown files that lead nowhere.
//!
//! ```text
//!   [text](target#part)   target relative to the file's folder; web addresses are left alone
//! ```
//!
//! L1  A link inside a code fence or inside back-ticks is an example, not a link.
//!
//! Not here: whether a web page exists (tests do not use the network), or a heading.

use super::Fault;

const RULE: &str = "dead-link";

/// Checks one file; `exists` is asked with paths relative to the root of the repository.
pub fn check(file: &str, content: &str, exists: &dyn Fn(&str) -> bool) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut fenced = false;
    for (index, line) in content.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        for target in targets(&without_code(line)) {
            let path = target.split(['#', '?']).next().unwrap_or("");
            if path.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            if !resolve(file, path).is_some_and(|full| exists(&full)) {
                let what = format!("`{target}` does not exist");
                faults.push(Fault::new(file, index + 1, RULE, what));
            }
        }
    }
    faults
}

/// Returns the line without what is between back-ticks (L1).
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

/// Returns what is in `](…)`, without a title.
fn targets(line: &str) -> Vec<String> {
    line.split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .filter_map(|(target, _)| target.split_whitespace().next())
        .map(|target| target.trim_matches(['<', '>']).to_owned())
        .collect()
}

/// Returns the target as a path from the root; `None` if it leaves the repository.
fn resolve(file: &str, target: &str) -> Option<String> {
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

    fn lines(file: &str, content: &str) -> Vec<usize> {
        let exists = |path: &str| ["", "README.md", "docs/FORMAT.md", "docs"].contains(&path);
        check(file, content, &exists)
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
    }

    #[test]
    fn a_good_link_is_silent() {
        let good = "[a](docs/FORMAT.md#part) [b](#here) [c](https://example.org/x) [d](docs/)";
        assert!(lines("README.md", good).is_empty());
        assert!(lines("docs/FORMAT.md", "[a](../README.md) [b](/README.md)").is_empty());
    }

    #[test]
    fn an_example_is_no_link() {
        assert!(lines("README.md", "`[a](gone)`\n```\n[a](gone)\n```\n").is_empty());
        assert_eq!(lines("README.md", "```\n```\n[a](gone)"), [3]);
    }
}
