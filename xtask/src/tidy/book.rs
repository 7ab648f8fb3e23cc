//! The documents as a book: its table of contents and its chapters agree, and its cover is short.
//!
//! ```text
//!   docs/SUMMARY.md: - [title](path) ─┐
//!   docs/**/*.md ─────────────────────┴─► one for one        README.md ─► at most WORDS words
//! ```
//!
//! K1  Each Markdown file below `docs/` but the table of contents is in it once; what it names is there.
//! K2  The README is what a stranger reads before deciding: what is longer belongs into a chapter.
//!
//! Not here: whether links of chapters lead somewhere (`links`), what chapters say.

use std::collections::BTreeSet;

use super::Fault;
use super::links::{outside_of_fences, resolve, targets};

const SUMMARY: &str = "docs/SUMMARY.md";
const COVER: &str = "README.md";
const RULE: &str = "book";

/// The most words of the README, as `wc -w` counts them.
const WORDS: usize = 1_500;

/// Checks the book; `files` are all files, by their path from the root.
pub fn check(files: &[String], read: &dyn Fn(&str) -> Option<String>) -> Vec<Fault> {
    let mut faults = Vec::new();
    if let Some(cover) = read(COVER) {
        let words = cover.split_whitespace().count();
        if words > WORDS {
            let what =
                format!("{words} words, limit {WORDS}: move what is longer to a chapter of docs/");
            faults.push(Fault::new(COVER, 0, RULE, what));
        }
    }
    let Some(summary) = read(SUMMARY) else {
        return faults;
    };
    let mut chapters = BTreeSet::new();
    for (index, line) in outside_of_fences(&summary) {
        for chapter in targets(line).iter().filter_map(|to| resolve(SUMMARY, to)) {
            let what = if !files.contains(&chapter) {
                format!("{chapter} is not there: write the chapter, or take the line away")
            } else if chapters.insert(chapter.clone()) {
                continue;
            } else {
                format!("{chapter} is a chapter already: a chapter has one place")
            };
            faults.push(Fault::new(SUMMARY, index + 1, RULE, what));
        }
    }
    let is_chapter = |file: &&String| {
        file.starts_with("docs/") && file.ends_with(".md") && file.as_str() != SUMMARY
    };
    for file in files.iter().filter(is_chapter) {
        if !chapters.contains(file) {
            let what = format!("no line of {SUMMARY} leads to this chapter: no reader finds it");
            faults.push(Fault::new(file, 0, RULE, what));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(summary: &str, words: usize, files: &[&str]) -> Vec<(String, usize)> {
        let files: Vec<String> = files.iter().map(|&file| file.to_owned()).collect();
        let read = |file: &str| match file {
            SUMMARY => Some(summary.to_owned()),
            COVER => Some("word ".repeat(words)),
            _ => None,
        };
        let faults = check(&files, &read);
        faults.into_iter().map(|at| (at.file, at.line)).collect()
    }

    const FILES: &[&str] = &[
        "README.md",
        "docs/SUMMARY.md",
        "docs/a.md",
        "docs/b/c.md",
        "docs/x.png",
    ];

    #[test]
    fn a_whole_book_is_silent() {
        let summary = "# Summary\n\n[A](a.md)\n\n# Part\n\n- [C](b/c.md)\n";
        assert_eq!(faults(summary, WORDS, FILES), []);
    }

    #[test]
    fn a_chapter_that_is_missing_fires() {
        let summary = "[A](a.md)\n- [C](b/c.md)\n- [D](d.md)\n";
        assert_eq!(faults(summary, 1, FILES), [(SUMMARY.to_owned(), 3)]);
    }

    #[test]
    fn a_chapter_without_a_line_or_with_two_fires() {
        assert_eq!(
            faults("[A](a.md)\n", 1, FILES),
            [("docs/b/c.md".to_owned(), 0)]
        );
        let twice = "[A](a.md)\n- [C](b/c.md)\n- [C](./b/c.md)\n";
        assert_eq!(faults(twice, 1, FILES), [(SUMMARY.to_owned(), 3)]);
    }

    #[test]
    fn a_long_cover_fires() {
        let summary = "[A](a.md)\n- [C](b/c.md)\n";
        assert_eq!(faults(summary, WORDS + 1, FILES), [(COVER.to_owned(), 0)]);
    }
}
