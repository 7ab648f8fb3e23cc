//! Checks that orderings on which threads rely name their proof, and that models prove the code that ships.
//!
//! ```text
//!   src/*.rs          Acquire, Release, AcqRel, SeqCst ─► // ORDER: … [model: NAME]   a test of the crate's models
//!                                                     └► // ORDER: … [reason: WORD]  one of REASONS
//!   tests/*model*.rs  takes its steps from the crate, has no ordering of its own, runs on real threads too
//! ```
//!
//! O1  The tag is in the nearest ORDER comment above the line; "as above" refers to the one before.
//! O2  A model that is named exists, as a `#[test]` of the same crate's models.
//! O3  A models file names no ordering: an atomic step of its own would be a copy of one that ships.
//! O4  A models file is part of a plain `cargo test`: it is not behind `cfg(loom)`, and its threads and cells come from
//!     `skinflint_interleave`.
//!
//! Not here: that each ordering has a comment at all (`rust`); Relaxed, which may have a tag and needs none.

use std::collections::BTreeSet;

use crate::floors::crate_of;

use super::Fault;
use super::rust::{NEAR, names_one_of, words};
use super::source::Source;

/// The crates whose orderings are judged.
const JUDGED: &[&str] = &["alloc", "base", "cache", "gc", "pages"];

const STRONG: &[&str] = &["Acquire", "Release", "AcqRel", "SeqCst"];
const ALL: &[&str] = &["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"];

/// The reasons for which an ordering needs no model; HACKING explains each.
const REASONS: &[&str] = &[
    "compiler",
    "dependency",
    "handed",
    "kernel",
    "lock",
    "look",
    "one thread",
    "spare",
    "unshown",
    "winner",
];

/// Returns the crate whose models a file holds.
pub fn models_of(file: &str) -> Option<&str> {
    let (name, path) = crate_of(file)?;
    let stem = path.strip_prefix("tests/")?.strip_suffix(".rs")?;
    (stem == "models" || stem.starts_with("models/") || stem.ends_with("_model")).then_some(name)
}

/// Returns the tests of a models file.
pub fn tests(content: &str) -> Vec<String> {
    let source = Source::new(content);
    let after_test = source.code.iter().zip(source.code.iter().skip(1));
    after_test
        .filter(|(attribute, _)| attribute.trim() == "#[test]")
        .filter_map(|(_, function)| words(function).skip_while(|word| *word != "fn").nth(1))
        .map(str::to_owned)
        .collect()
}

/// Checks one file; `models` are those of its crate.
pub fn check(file: &str, content: &str, models: &BTreeSet<String>) -> Vec<Fault> {
    let mut faults = Vec::new();
    // A part takes it from the file that it is a part of.
    if models_of(file).is_some() && !file.contains("/tests/models/") {
        models_file(file, &Source::new(content), content, &mut faults);
    }
    let judged = crate_of(file)
        .is_some_and(|(name, path)| JUDGED.contains(&name) && path.starts_with("src/"));
    if !judged {
        return faults;
    }
    let source = Source::new(content);
    for index in 0..source.code.len() {
        if names_one_of(&source, index, STRONG)
            && let Err(what) = proof(&source, index, models)
        {
            faults.push(Fault::new(file, index + 1, "ordering-without-proof", what));
        }
    }
    faults
}

fn models_file(file: &str, source: &Source, content: &str, faults: &mut Vec<Fault>) {
    let mut fault = |line: usize, what: &str| {
        faults.push(Fault::new(file, line, "model-of-a-copy", what));
    };
    let includes = content.contains("#[path = \"../src/");
    if !includes && !source.code.iter().any(|code| imports_the_crate(file, code)) {
        fault(
            1,
            "takes nothing from its crate: include the file that ships by `#[path]`, or import it",
        );
    }
    if !source
        .code
        .iter()
        .any(|code| code.contains("skinflint_interleave::"))
    {
        fault(
            1,
            "threads and cells come from `skinflint_interleave`, so that `cargo test` runs it too",
        );
    }
    for (index, code) in source.code.iter().enumerate() {
        if names_one_of(source, index, ALL) || words(code).any(|word| word == "Ordering") {
            fault(
                index + 1,
                "an atomic step of the model's own: move it to where the engine runs it",
            );
        }
        if code.contains("cfg(loom)") || code.contains("loom::") {
            fault(
                index + 1,
                "loom by name: `skinflint_interleave` has it, and real threads beside it",
            );
        }
    }
}

fn imports_the_crate(file: &str, code: &str) -> bool {
    let Some((name, _)) = crate_of(file) else {
        return false;
    };
    code.trim_start().starts_with("use ")
        && words(code).any(|word| word == format!("skinflint_{}", name.replace('-', "_")))
}

/// Checks that the ORDER comment of a line names an existing model or reason.
fn proof(source: &Source, index: usize, models: &BTreeSet<String>) -> Result<(), String> {
    let lowest = index.saturating_sub(NEAR);
    let orders = (lowest..=index)
        .rev()
        .filter(|line| source.comments[*line].contains("ORDER"));
    for line in orders {
        let text = comment(source, line, index);
        if let Some(name) = tag(&text, "[model:") {
            return match models.contains(name) {
                true => Ok(()),
                false => Err(format!("`{name}` is no test of this crate's models")),
            };
        }
        if let Some(word) = tag(&text, "[reason:") {
            return match REASONS.contains(&word) {
                true => Ok(()),
                false => Err(format!(
                    "`{word}` is no reason: one of {}",
                    REASONS.join(", ")
                )),
            };
        }
        if !text.contains("as above") {
            break;
        }
    }
    Err("its ORDER comment names no `[model: NAME]` and no `[reason: WORD]`: two threads rest on it, so say what proves it".to_owned())
}

/// Returns the comment that begins on a line, with the lines that continue it.
fn comment(source: &Source, line: usize, until: usize) -> String {
    let mut text = source.comments[line].clone();
    if !source.code[line].trim().is_empty() {
        return text;
    }
    for next in line + 1..=until {
        if !source.code[next].trim().is_empty() || source.comments[next].is_empty() {
            break;
        }
        text.push_str(&source.comments[next]);
    }
    text
}

fn tag<'a>(text: &'a str, opening: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(opening)?;
    rest.split_once(']').map(|(word, _)| word.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whats(file: &str, content: &str) -> Vec<String> {
        let models = BTreeSet::from(["meets".to_owned()]);
        let faults = check(file, content, &models);
        faults.into_iter().map(|fault| fault.what).collect()
    }

    fn engine(body: &str) -> usize {
        whats("engines/alloc/src/a.rs", body).len()
    }

    #[test]
    fn a_strong_ordering_names_a_model_or_a_reason() {
        assert_eq!(
            engine("// ORDER: meets the Release.\nx.load(Ordering::Acquire);"),
            1
        );
        assert_eq!(engine("x.load(Acquire);"), 1);
        assert_eq!(
            engine("// ORDER: meets it.\n// [model: meets]\nx.load(Ordering::Acquire);"),
            0
        );
        assert_eq!(
            engine("x.load(Ordering::Acquire); // ORDER: [reason: lock]"),
            0
        );
        assert_eq!(engine("// ORDER: a look.\nx.load(Ordering::Relaxed);"), 0);
    }

    #[test]
    fn what_is_named_exists() {
        let model = whats(
            "engines/gc/src/a.rs",
            "x.load(Acquire); // ORDER: [model: met]",
        );
        assert!(model[0].contains("`met` is no test"), "{model:?}");
        let reason = whats(
            "engines/gc/src/a.rs",
            "x.load(Acquire); // ORDER: [reason: why not]",
        );
        assert!(reason[0].contains("one of compiler"), "{reason:?}");
    }

    #[test]
    fn above_is_the_comment_that_stands_nearest() {
        let both =
            "// ORDER: [model: meets]\nx.load(Acquire);\nx.store(1, Release); // ORDER: as above";
        assert_eq!(engine(both), 0);
        let other =
            "// ORDER: [model: meets]\nx.load(Acquire);\n// ORDER: another\nx.store(1, Release);";
        assert_eq!(engine(other), 1);
        let far = format!(
            "// ORDER: [model: meets]\n{}x.load(Acquire);",
            "f();\n".repeat(NEAR)
        );
        assert_eq!(engine(&far), 1);
    }

    #[test]
    fn other_crates_and_tests_are_not_judged() {
        assert!(whats("evidence/view/src/a.rs", "x.load(Ordering::Acquire);").is_empty());
        assert!(whats("engines/alloc/tests/a.rs", "x.load(Ordering::Acquire);").is_empty());
    }

    const GOOD: &str = "use skinflint_interleave::check;\n#[path = \"../src/a.rs\"]\nmod a;\n#[test]\nfn meets() {}\n";

    #[test]
    fn models_take_their_steps_from_the_crate() {
        let file = "engines/cache/tests/models.rs";
        assert!(whats(file, GOOD).is_empty());
        assert_eq!(tests(GOOD), ["meets"]);
        assert_eq!(
            whats(
                file,
                &format!("{GOOD}fn f() {{ x.load(Ordering::Relaxed); }}")
            )
            .len(),
            1
        );
        assert_eq!(
            whats(file, &format!("{GOOD}use skinflint_base::sync::Ordering;")).len(),
            1
        );
        assert_eq!(whats(file, &format!("#![cfg(loom)]\n{GOOD}")).len(), 1);
        assert_eq!(whats(file, "use skinflint_interleave::check;").len(), 1);
        assert_eq!(whats(file, "use skinflint_cache::store;").len(), 1);
        assert!(
            whats(
                "ground/base/tests/ring_model.rs",
                "use skinflint_base::ring;\nuse skinflint_interleave::check;"
            )
            .is_empty()
        );
        assert!(
            whats(
                "ground/base/tests/ring_threads.rs",
                "x.load(Ordering::Relaxed);"
            )
            .is_empty()
        );
    }

    #[test]
    fn every_reason_is_explained() {
        let hacking = include_str!("../../../HACKING.md");
        for word in REASONS {
            assert!(hacking.contains(&format!("`[reason: {word}]`")), "{word}");
        }
    }
}
