//! The source checkout that experiments run in, and its commit.
//!
//! ```text
//!   --root, or upwards from the current folder, or from this program ─► a folder with bench/ and our table
//! ```
//!
//! C1  Experiments call `bench/`, cargo and sources: without a checkout nothing is run, and that is said.
//!
//! Not here: what is built there (need.rs).

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// What only a checkout of this repository has.
const MARK: &str = "lab/experiments/table/needs.toml";

/// A source checkout.
#[derive(Clone, Debug)]
pub struct Checkout {
    /// Its root.
    pub root: PathBuf,
    /// Cargo's target folder.
    pub target: PathBuf,
}

impl Checkout {
    /// Finds the checkout: the one that is named, else the one around the current folder, else the one that this program
    /// was built in.
    ///
    /// # Errors
    /// If there is none: what to do (C1).
    pub fn find(named: Option<&Path>) -> Result<Checkout> {
        if let Some(named) = named {
            let root = named
                .canonicalize()
                .with_context(|| named.display().to_string())?;
            let shown = named.display();
            ensure!(
                is_root(&root),
                "{shown}: no checkout of Skinflint: {MARK} is not there"
            );
            return Ok(Checkout::of(root));
        }
        let own = std::env::current_exe().and_then(|path| path.canonicalize());
        let places = [std::env::current_dir().ok(), own.ok()];
        let around = |place: &PathBuf| place.ancestors().find(|at| is_root(at)).map(Path::to_owned);
        match places.iter().flatten().find_map(around) {
            Some(root) => Ok(Checkout::of(root)),
            None => bail!(
                "skinflint lab works in a source checkout only, since its experiments call bench/ and cargo there: clone \
                 the repository and run it inside, or name the checkout with --root FOLDER"
            ),
        }
    }

    fn of(root: PathBuf) -> Checkout {
        let target = std::env::var_os("CARGO_TARGET_DIR");
        let target = target.map_or_else(|| root.join("target"), |folder| root.join(folder));
        Checkout { root, target }
    }

    /// Returns the commit, with `+` behind it if files differ from it, other than results of experiments; empty without git.
    pub fn commit(&self) -> String {
        let git = |words: &[&str]| {
            let done = Command::new("git")
                .arg("-C")
                .arg(&self.root)
                .args(words)
                .output();
            let done = done.ok().filter(|done| done.status.success())?;
            String::from_utf8(done.stdout).ok()
        };
        let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else {
            return String::new();
        };
        let changed = git(&["status", "--porcelain", "-uno", "--", ".", ":!docs"]);
        let is_changed = changed.is_none_or(|files| !files.trim().is_empty());
        format!("{}{}", commit.trim(), if is_changed { "+" } else { "" })
    }
}

fn is_root(folder: &Path) -> bool {
    folder.join(MARK).is_file() && folder.join("bench").is_dir()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_a_checkout_or_says_why_not() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let found = Checkout::find(Some(&here.join("../.."))).expect("this one");
        assert_eq!(found.root, here.ancestors().nth(2).expect("a root"));
        let said = format!(
            "{:#}",
            Checkout::find(Some(here)).expect_err("a crate of it")
        );
        assert!(said.contains("no checkout"), "{said}");
        let found = Checkout::find(None).expect("tests run in it");
        assert!(found.root.join("bench").is_dir());
    }
}
