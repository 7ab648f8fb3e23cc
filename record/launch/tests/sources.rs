//! The build script watches the sources of all that it builds, so that no change of theirs is left out of a program.
//!
//! ```text
//!   PARTS of build.rs ─► [dependencies] of each, again and again ─► folders ⊆ SOURCES of build.rs
//! ```
//!
//! Not here: what is carried (`carried`'s own tests).

use std::collections::BTreeSet;
use std::path::Path;

const SCRIPT: &str = include_str!("../build.rs");

/// Returns the quoted words of a list of the build script.
fn list(name: &str) -> Vec<&'static str> {
    let from = SCRIPT.find(name).expect("the list is there");
    let text = &SCRIPT[from..];
    let text = &text[..text.find("];").expect("its end")];
    text.split('"').skip(1).step_by(2).collect()
}

/// Returns the names of our crates among the dependencies of a manifest, and the path of each crate of the workspace.
fn named(manifest: &str, section: &str) -> Vec<(String, String)> {
    let lines = manifest.lines().skip_while(|line| *line != section).skip(1);
    let own = lines.take_while(|line| !line.starts_with('['));
    let name = |line: &str| {
        let end = line.find(['.', ' ', '='])?;
        let path = line
            .split_once("path = \"")
            .and_then(|(_, rest)| rest.split('"').next());
        Some((line[..end].to_owned(), path.unwrap_or_default().to_owned()))
    };
    own.filter(|line| line.starts_with("skinflint-"))
        .filter_map(name)
        .collect()
}

#[test]
fn every_crate_that_is_carried_is_watched() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| std::fs::read_to_string(root.join(path)).expect("a manifest");
    let folders = named(&read("Cargo.toml"), "[workspace.dependencies]");
    // Crates that nothing depends on are in no table: they are named by their folder.
    let folder_of = |name: &str| {
        let found = folders.iter().find(|(one, _)| one == name);
        let short = name.trim_start_matches("skinflint-");
        let candidates = ["record", "engines", "lab"].map(|floor| format!("{floor}/{short}"));
        let is_there = |folder: &String| root.join(folder).join("Cargo.toml").exists();
        match found {
            Some((_, path)) => path.clone(),
            None => candidates.into_iter().find(is_there).expect("its folder"),
        }
    };
    let watched = list("const SOURCES");
    // Package, file, package, file …
    let parts = list("const PARTS").into_iter().step_by(2);
    let mut open: Vec<String> = parts.map(str::to_owned).collect();
    let mut seen = BTreeSet::new();
    while let Some(name) = open.pop() {
        if !seen.insert(name.clone()) {
            continue;
        }
        let folder = folder_of(&name);
        assert!(
            watched.contains(&folder.as_str()),
            "{folder} is carried, and is not among SOURCES of build.rs"
        );
        let manifest = read(&format!("{folder}/Cargo.toml"));
        open.extend(
            named(&manifest, "[dependencies]")
                .into_iter()
                .map(|(name, _)| name),
        );
    }
    assert!(seen.len() >= 10, "{seen:?}");
}
