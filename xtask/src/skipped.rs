//! `cargo xtask skipped`: how many tests were skipped, and why.
//!
//! ```text
//!   tests, where something is missing ─► target/skipped.txt ─► "3 tests skipped: 2 need root (unshare), 1 needs dwz"
//! ```
//!
//! S1  A test that ran twice without what it needs counts once.
//! S2  A line of the file that is not in the form is counted, too, and shown whole: nothing is lost here.
//!
//! Not here: the code that writes the lines (testing/test-support/src/need.rs).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Returns the file of lines: SKINFLINT_SKIPPED, or in cargo's target folder.
fn file(root: &Path) -> PathBuf {
    let folder =
        || std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let named = std::env::var_os("SKINFLINT_SKIPPED").map(PathBuf::from);
    root.join(named.unwrap_or_else(|| folder().join("skipped.txt")))
}

/// Forgets what was skipped before; `make test` begins with it.
///
/// # Errors
/// If the file exists and cannot be removed.
pub fn forget(root: &Path) -> Result<()> {
    let file = file(root);
    match std::fs::remove_file(&file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| file.display().to_string())
        }
        _ => Ok(()),
    }
}

/// Prints each skipped test, and the count as the last line.
///
/// # Errors
/// If the file exists and cannot be read.
pub fn print(root: &Path) -> Result<()> {
    let file = file(root);
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).with_context(|| file.display().to_string()),
    };
    print!("{}", summary(&text));
    Ok(())
}

fn summary(text: &str) -> String {
    let lines: BTreeSet<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    let mut out = String::new();
    let mut needs: BTreeMap<&str, usize> = BTreeMap::new();
    for line in &lines {
        out += &format!("{line}\n");
        let what = line.split_once(" needs ").map_or(*line, |(_, what)| what);
        let what = what.rsplit_once(": ").map_or(what, |(what, _how)| what);
        *needs.entry(what).or_default() += 1;
    }
    let mut reasons: Vec<(usize, &str)> = needs
        .into_iter()
        .map(|(what, count)| (count, what))
        .collect();
    reasons.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    let reasons: Vec<String> = reasons
        .iter()
        .map(|(count, what)| {
            format!(
                "{count} {} {what}",
                if *count == 1 { "needs" } else { "need" }
            )
        })
        .collect();
    let noun = if lines.len() == 1 { "test" } else { "tests" };
    let colon = if reasons.is_empty() { "" } else { ": " };
    out + &format!(
        "{} {noun} skipped{colon}{}\n",
        lines.len(),
        reasons.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::summary;

    #[test]
    fn none_is_said() {
        assert_eq!(summary(""), "0 tests skipped\n");
    }

    #[test]
    fn each_counts_once_and_reasons_are_gathered() {
        let text = "skipped: b::t needs root (unshare): run as root\n\
                    skipped: a::t needs root (unshare): run as root\n\
                    skipped: b::t needs root (unshare): run as root\n\
                    skipped: c::t needs dwz: apt-get install dwz\n\
                    what is this\n";
        let said = summary(text);
        assert_eq!(said.lines().count(), 5, "{said}");
        let last = said.lines().last().expect("the count");
        assert_eq!(
            last,
            "4 tests skipped: 2 need root (unshare), 1 needs dwz, 1 needs what is this"
        );
    }
}
