//! Tests the whole process on a crate of a few lines in which every mutant's end is known.
//!
//! ```text
//!   a repository in a temporary folder ──► all its points ──► caught, limit, survived, not reached, dropped
//! ```
//!
//! V1  What a mutant's end should be stands beside its line in [`LIB`]; nothing is drawn by chance, since all
//!     points are taken.

use std::path::Path;
use std::process::Command;

use super::*;

const LIB: &str = r#"//! A crate under mutation.

/// A constant is no point, nor is a pattern or what a macro is given.
pub const BASE: u32 = 4 + 3;

pub fn is_small(n: u32) -> bool {
    n < 10
}

pub fn is_large(n: u32) -> bool {
    n >= BASE
}

pub fn never(n: u32) -> u32 {
    n * 3
}

pub fn named(name: &str) -> String {
    "a ".to_owned() + name
}

pub fn counted(to: u32) -> u32 {
    let mut at: u32 = 0;
    while at < to {
        step(&mut at);
    }
    at
}

fn step(at: &mut u32) {
    *at = at.saturating_add(STEP);
}

const STEP: u32 = 1;

pub fn noted(into: &mut Vec<u32>) {
    into.clear();
    match into.len() {
        0 if into.capacity() > 0 => into.push(7),
        _ => {}
    }
}

pub fn elsewhere() -> bool {
    let exe = std::env::current_exe().unwrap();
    let child = ["--exact", "tests::child"];
    std::process::Command::new(exe).args(child).env("CHILD", "x").status().unwrap().success()
}

pub fn in_child() -> i64 {
    -7
}

#[cfg(feature = "absent")]
pub fn absent(n: u32) -> bool {
    n == 1
}

mod below;

#[cfg(test)]
mod tests;
"#;

const BELOW: &str = "//! A module below.
pub fn sum(a: u32, b: u32) -> u32 {
    a + b
}
";

const TESTS: &str = r#"//! What is tested.
use super::*;

#[test]
fn small() {
    assert!(is_small(9) && !is_small(10));
}

#[test]
fn large() {
    // Not at the edge, on purpose.
    assert!(is_large(100) && !is_large(1));
}

#[test]
fn names() {
    assert_eq!(named("b"), "a b");
}

#[test]
fn counts() {
    assert_eq!(counted(1000), 1000);
}

#[test]
fn notes() {
    let mut all = vec![1, 2];
    noted(&mut all);
    assert_eq!(all, [7]);
}

#[test]
fn sums() {
    assert_eq!(below::sum(2, 3), 5);
}

#[test]
fn child() {
    if std::env::var_os("CHILD").is_some() {
        assert_eq!(in_child(), -7);
    }
}

#[test]
fn elsewhere_too() {
    assert!(elsewhere());
}

#[test]
fn fails_always() {
    assert!(BASE == 0);
}
"#;

fn repository(root: &Path) {
    let write = |name: &str, text: &str| {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, text).expect("written");
    };
    let package = "[package]\nname = \"skinflint-tiny\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[features]\nabsent = []\n";
    write(
        "Cargo.toml",
        "[workspace]\nresolver = \"3\"\nmembers = [\"ground/*\"]\n",
    );
    write(
        "Cargo.lock",
        "version = 4\n\n[[package]]\nname = \"skinflint-tiny\"\nversion = \"0.1.0\"\n",
    );
    write("ground/tiny/Cargo.toml", package);
    write("ground/tiny/src/lib.rs", LIB);
    write("ground/tiny/src/below.rs", BELOW);
    write("ground/tiny/src/tests.rs", TESTS);
    write(".gitignore", "/target\n");
    let made = Command::new("git")
        .args(["init", "--quiet"])
        .current_dir(root)
        .status();
    assert!(made.expect("git").success());
}

fn options() -> Options {
    Options {
        krate: Some("tiny".into()),
        named: false,
        count: 1000,
        seed: 1,
        jobs: 2,
        longest: 120,
        limit: 1,
        own: true,
        again: false,
        above: false,
        alone: 60,
    }
}

fn session<'a>(options: &'a Options, root: &Path) -> Session<'a> {
    let folder = root.join("target/mutants");
    let copy = Copy::make(root, &folder).expect("a copy");
    Session {
        options,
        root: root.into(),
        copy,
        folder,
        commit: "none".into(),
    }
}

/// Returns the verdict of the one mutant of this line with this change.
fn verdict<'a>(outcome: &'a Outcome, code: &str, what: &str) -> &'a Row {
    let mut found = outcome
        .mutants
        .iter()
        .filter(|row| row.code == code && row.what.starts_with(what));
    let row = found
        .next()
        .unwrap_or_else(|| panic!("{code}: {what}: {outcome:#?}"));
    assert!(found.next().is_none(), "{code}: {what}: twice");
    row
}

#[test]
fn each_mutant_of_a_small_crate_ends_as_it_must() {
    let folder = tempfile::tempdir().expect("a folder");
    repository(folder.path());
    let mut options = options();
    let outcome = session(&options, folder.path())
        .judge_draw()
        .expect("judged");
    let of = |code: &str, what: &str| verdict(&outcome, code, what).verdict.as_str();
    assert_eq!(of("n < 10", "<"), "caught");
    assert_eq!(of("n < 10", "10"), "caught");
    assert_eq!(of("a + b", "+"), "caught", "a module of a file of its own");
    assert_eq!(of("n * 3", "*"), "not reached");
    assert_eq!(of("into.clear();", "call removed"), "caught");
    assert_eq!(of("-7", "minus"), "caught", "in a child process too");
    let endless = verdict(&outcome, "step(&mut at);", "call removed");
    assert_eq!(endless.verdict, "caught");
    assert!(endless.by.ends_with("(processor time)"), "{}", endless.by);
    assert_eq!(outcome.caught_by_limit, 2, "step does nothing is the other");
    // No test checks the edge: one of the two variants lives, and the seed chooses.
    let edge = verdict(&outcome, "n >= BASE", ">=");
    let expected = if edge.what.ends_with("→ >") {
        "survived"
    } else {
        "caught"
    };
    assert_eq!(edge.verdict, expected, "{}", edge.what);
    // `String - &str` does not compile; constants, tests, patterns and absent features are no points.
    assert!(outcome.dropped >= 1, "{}", outcome.dropped);
    assert!(
        !outcome
            .mutants
            .iter()
            .any(|row| row.code.contains("to_owned") && row.what.starts_with('+'))
    );
    assert!(!outcome.mutants.iter().any(|row| row.code == "n == 1"
        || row.code.contains("STEP:")
        || row.code.contains("BASE:")));
    assert!(
        outcome
            .mutants
            .iter()
            .all(|row| !row.file.ends_with("tests.rs"))
    );
    assert_eq!(
        outcome.tests_failing_without,
        ["tiny/skinflint_tiny: tests::fails_always"]
    );
    let total = outcome.caught + outcome.survived + outcome.not_reached;
    assert_eq!(total, outcome.drawn);

    // A test at the edge is added: what lived is judged again, the draw is the same, nothing else runs anew.
    let tests = folder.path().join("ground/tiny/src/tests.rs");
    let more = "\n#[test]\nfn edge() {\n    assert!(is_large(BASE) && never(2) == 6);\n}\n";
    std::fs::write(&tests, TESTS.to_owned() + more).expect("written");
    options.again = true;
    let again = session(&options, folder.path())
        .judge_draw()
        .expect("judged");
    assert_eq!(again.drawn, outcome.drawn);
    assert_eq!(verdict(&again, "n >= BASE", ">=").verdict, "caught");
    assert_eq!(verdict(&again, "n * 3", "*").verdict, "caught");
    assert!(again.caught > outcome.caught);
}

#[test]
fn asked_together_and_by_halves_each_mutant_ends_as_it_does_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    repository(folder.path());
    let mut options = options();
    let verdicts = |options: &Options| -> Vec<(String, String, String)> {
        let outcome = session(options, folder.path())
            .judge_draw()
            .expect("judged");
        let of = |row: &Row| (row.code.clone(), row.what.clone(), row.verdict.clone());
        outcome.mutants.iter().map(of).collect()
    };
    let alone = verdicts(&options);
    options.alone = 0;
    assert_eq!(verdicts(&options), alone);
}

#[test]
fn the_named_mutants_are_a_list_of_edits_whose_code_stands() {
    let list = named::list(include_str!("named.toml")).expect("a list");
    assert!(list.len() > 15);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for entry in &list {
        let found = entry.find(&root).expect("looked");
        assert!(
            found.is_some(),
            "gone: {} ({})",
            entry.name,
            entry.file.display()
        );
        assert!(entry.old != entry.new, "{}", entry.name);
        assert!(
            crate::floors::crate_of(&entry.file.to_string_lossy()).is_some(),
            "{}",
            entry.name
        );
    }
}

#[test]
fn a_named_mutant_is_found_by_its_text_wherever_that_moved() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir_all(folder.path().join("ground/a/src")).expect("made");
    let file = folder.path().join("ground/a/src/lib.rs");
    let list = named::list(
        "[[mutant]]\nname = \"n\"\nfile = \"ground/a/src/lib.rs\"\nform = \"expression\"\n\
         around = \"f(a < b)\"\nold = \"a < b\"\nnew = \"true\"\n",
    )
    .expect("a list");
    std::fs::write(&file, "x;\n\nf(a < b); a < b;").expect("written");
    let point = list[0].find(folder.path()).expect("found").expect("stands");
    assert_eq!((point.range, point.line), (6..11, 3));
    std::fs::write(&file, "f(a <= b)").expect("written");
    assert!(
        list[0].find(folder.path()).expect("looked").is_none(),
        "gone"
    );
    std::fs::write(&file, "f(a < b); f(a < b);").expect("written");
    assert!(list[0].find(folder.path()).is_err(), "twice");
}
