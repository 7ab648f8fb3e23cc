//! The invariants of each file: defined once, and cited so that a reader finds them.
//!
//! ```text
//!   //! S5  A slot changes hands when …                 the definition, at the head of span.rs
//!   // SAFETY: S5                                       a citation in span.rs
//!   // ORDER: the lock is held (span.S5)                one in another file of the crate
//! ```
//!
//! B1  A label that another file of the crate defines is cited as `file.S5`; for `mod.rs` the file is its folder, for
//!     `lib.rs` and `main.rs` the crate.
//! B2  A citation of what no file defines is a fault, so a definition does not go away unseen.
//! B3  A label is defined once in a file, and once among the files of one name in `src`, `tests` and the like.
//! B4  What looks like a label and is none ([`WORDS`]), pictures, and labels of another crate (`sizes::fit.F3`) are left
//!     alone.
//!
//! Not here: whether code keeps what a label says.

use std::collections::{BTreeMap, BTreeSet};

use super::Fault;
use super::source::Source;

const RULE: &str = "label";
/// Names of other things that look like labels.
const WORDS: &[&str] = &["V8", "C99", "C11", "C17", "C23"];
/// The folders of a crate that have sources: files of one name in two of them are told apart by where they are cited.
const REALMS: &[&str] = &["src", "tests", "examples", "benches", "fuzz_targets"];

/// A file as this rule sees it.
struct File<'a> {
    path: &'a str,
    /// The folder of the crate that it lies in.
    realm: String,
    stem: String,
    defined: Vec<(String, usize)>,
    source: Source,
}

/// Checks the files of all crates; `read` gives a file's text.
pub fn check(files: &[String], read: &dyn Fn(&str) -> Option<String>) -> Vec<Fault> {
    let mut crates: BTreeMap<String, Vec<File<'_>>> = BTreeMap::new();
    for path in files.iter().filter(|file| file.ends_with(".rs")) {
        let parts: Vec<&str> = path.split('/').collect();
        let Some(at) = parts
            .iter()
            .position(|part| REALMS.contains(part))
            .filter(|at| *at > 0)
        else {
            continue;
        };
        let (name, realm) = (parts[at - 1], parts[at]);
        let Some(content) = read(path) else { continue };
        crates.entry(parts[..at].join("/")).or_default().push(File {
            path,
            realm: realm.to_owned(),
            stem: stem(&parts, name),
            defined: definitions(&content),
            source: Source::new(&content),
        });
    }
    let mut faults = Vec::new();
    for files in crates.values() {
        faults.extend(defined_twice(files));
        faults.extend(files.iter().flat_map(|file| judge(file, files)));
    }
    faults
}

/// Returns the name by which other files cite this one (B1).
fn stem(parts: &[&str], crate_name: &str) -> String {
    let stem_of = |part: &str| part.trim_end_matches(".rs").to_owned();
    let (file, folder) = (parts[parts.len() - 1], parts[parts.len() - 2]);
    match file {
        "lib.rs" | "main.rs" if folder == "src" => crate_name.replace('-', "_"),
        "mod.rs" | "main.rs" | "lib.rs" => folder.to_owned(),
        file => stem_of(file),
    }
}

/// Returns the labels that a file's head defines, with their lines.
fn definitions(content: &str) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for (index, line) in content.lines().enumerate() {
        let Some(text) = line.strip_prefix("//! ") else {
            continue;
        };
        let Some((labels, said)) = text.split_once("  ") else {
            continue;
        };
        let all: Vec<&str> = labels.split(", ").collect();
        if all.iter().all(|label| is_label(label)) && !said.starts_with(' ') {
            found.extend(all.into_iter().map(|label| (label.to_owned(), index + 1)));
        }
    }
    found
}

/// Tells whether a word is one or two capital letters with a number of one or two digits.
fn is_label(word: &str) -> bool {
    let letters = word.chars().take_while(char::is_ascii_uppercase).count();
    let digits = word
        .chars()
        .skip(letters)
        .take_while(char::is_ascii_digit)
        .count();
    (1..=2).contains(&letters) && (1..=2).contains(&digits) && letters + digits == word.len()
}

fn defined_twice(files: &[File<'_>]) -> Vec<Fault> {
    let mut seen: BTreeSet<(&str, &str, &str)> = BTreeSet::new();
    let mut faults = Vec::new();
    for file in files {
        for (label, line) in &file.defined {
            if !seen.insert((&file.realm, &file.stem, label)) {
                let what = format!("`{}.{label}` is defined twice", file.stem);
                faults.push(Fault::new(file.path, *line, RULE, what));
            }
        }
    }
    faults
}

fn judge(file: &File<'_>, files: &[File<'_>]) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut in_picture = false;
    for (index, comment) in file.source.comments.iter().enumerate() {
        if comment.contains("```") {
            in_picture = !in_picture;
        }
        if in_picture {
            continue;
        }
        for (of, label) in citations(comment) {
            if let Some(what) = wrong(file, files, of, label) {
                faults.push(Fault::new(file.path, index + 1, RULE, what));
            }
        }
    }
    faults
}

/// Says what is wrong with a citation.
fn wrong(file: &File<'_>, files: &[File<'_>], of: Option<&str>, label: &str) -> Option<String> {
    let defines = |one: &File<'_>| one.defined.iter().any(|(known, _)| known == label);
    if let Some(of) = of {
        let mut named = files.iter().filter(|one| one.stem == of);
        return (!named.any(defines))
            .then(|| format!("no file `{of}` of this crate defines {label}"));
    }
    if defines(file) || WORDS.contains(&label) {
        return None;
    }
    let elsewhere: Vec<String> = files
        .iter()
        .filter(|one| defines(one))
        .map(|one| format!("{}.{label}", one.stem))
        .collect();
    Some(match elsewhere.is_empty() {
        true => format!("no file of this crate defines {label}"),
        false => format!(
            "{label} is not of this file: say `{}`",
            elsewhere.join("` or `")
        ),
    })
}

/// Returns the labels that a comment cites, each with the file that it names before it.
fn citations(comment: &str) -> Vec<(Option<&str>, &str)> {
    let is_part =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | ':' | '/' | '-' | '`');
    let mut found = Vec::new();
    for word in comment.split(|c: char| !is_part(c)) {
        let word = word.trim_end_matches(['.', ':', '-', '`', '/']);
        // A name in code, a path, or a label of another crate.
        if word.starts_with('`') || word.contains("::") || word.contains('/') {
            continue;
        }
        match word.rsplit_once('.') {
            Some((of, label)) if is_label(label) && is_name(of) => {
                found.push((Some(of), label));
            }
            None if is_label(word) => found.push((None, word)),
            _ => {}
        }
    }
    found
}

/// Tells whether a word may be the name of a file of Rust.
fn is_name(word: &str) -> bool {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    word.starts_with(|c: char| c.is_ascii_lowercase()) && word.chars().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(files: &[(&str, &str)]) -> Vec<String> {
        let name = |path: &str| format!("ground/a/{path}");
        let listed: Vec<String> = files.iter().map(|(path, _)| name(path)).collect();
        let read = |wanted: &str| {
            let found = files.iter().find(|(path, _)| name(path) == wanted);
            found.map(|(_, text)| (*text).to_owned())
        };
        check(&listed, &read)
            .into_iter()
            .map(|fault| fault.what)
            .collect()
    }

    const SPAN: (&str, &str) = (
        "src/span.rs",
        "//! S5  A slot changes hands.\n//! S6, S7  Others do.\n// SAFETY: S5, S7.\n",
    );

    #[test]
    fn a_citation_that_can_be_followed_is_silent() {
        assert_eq!(
            faults(&[
                SPAN,
                (
                    "src/heap.rs",
                    "// ORDER: held (span.S5, span.S6)\n//! see span.S7.\n"
                )
            ]),
            [""; 0]
        );
        assert_eq!(
            faults(&[
                ("src/lib.rs", "//! P1  All is well.\n"),
                ("src/b.rs", "// SAFETY: a.P1\n")
            ]),
            [""; 0]
        );
        assert_eq!(
            faults(&[
                ("src/bus/mod.rs", "//! P1  All is well.\n"),
                ("src/b.rs", "// bus.P1\n")
            ]),
            [""; 0]
        );
        assert_eq!(
            faults(&[(
                "src/b.rs",
                "// V8 and C23, UTF8, sizes::fit.F3, `X5`, a-B2, 10.R5\nlet s = \"S5\";\n"
            )]),
            [""; 0]
        );
        assert_eq!(
            faults(&[("src/b.rs", "//! ```text\n//!   [ F0 R0 ]\n//! ```\n")]),
            [""; 0]
        );
    }

    #[test]
    fn a_citation_without_its_file_fires() {
        let said = faults(&[SPAN, ("src/heap.rs", "// SAFETY: the lock is held (S5).\n")]);
        assert_eq!(said, ["S5 is not of this file: say `span.S5`"]);
    }

    #[test]
    fn a_citation_of_nothing_fires() {
        assert_eq!(
            faults(&[SPAN, ("src/heap.rs", "// (S8)\n")]),
            ["no file of this crate defines S8"]
        );
        assert_eq!(
            faults(&[SPAN, ("src/heap.rs", "// (span.S8)\n")]),
            ["no file `span` of this crate defines S8"]
        );
    }

    #[test]
    fn a_label_that_is_defined_twice_fires() {
        let twice = ("src/b.rs", "//! S5  This.\n//! S5  That.\n");
        assert_eq!(faults(&[twice]), ["`b.S5` is defined twice"]);
        assert_eq!(
            faults(&[SPAN, ("src/deep/span.rs", "//! S5  Another.\n")]),
            ["`span.S5` is defined twice"]
        );
    }
}
