//! The copy of the repository that is mutated and built.
//!
//! ```text
//!   git ls-files ──► TARGET/mutants/copy/…    one copy for all crates, so that what is the same is built once
//!                    TARGET/mutants/build/    its target folder
//! ```
//!
//! C1  A file is written only if it differs: cargo judges by its time of change.
//! C2  What is in the copy but not in the repository is removed, so that no test of an earlier run stays.
//! C3  The rewritten sources go through [`Copy::put`], and lie over the copied ones.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// A copy of a repository.
pub struct Copy {
    pub root: PathBuf,
    /// The folder where cargo puts what it builds.
    pub target: PathBuf,
}

impl Copy {
    /// Copies the files that git knows of the repository at `from`, and new files that it does not ignore, to
    /// `folder`/copy.
    ///
    /// # Errors
    /// If there is no git, or a file cannot be read or written; the error names it.
    pub fn make(from: &Path, folder: &Path) -> Result<Copy> {
        let listed = Command::new("git")
            .args([
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ])
            .current_dir(from)
            .output()
            .context("git ls-files: is git installed?")?;
        if !listed.status.success() {
            bail!("{}: git ls-files failed", from.display());
        }
        let files: BTreeSet<PathBuf> = listed
            .stdout
            .split(|&byte| byte == 0)
            .filter(|name| !name.is_empty())
            .map(|name| PathBuf::from(String::from_utf8_lossy(name).into_owned()))
            .filter(|file| from.join(file).is_file())
            .collect();
        let copy = Copy {
            root: folder.join("copy"),
            target: folder.join("build"),
        };
        std::fs::create_dir_all(&copy.root)?;
        copy.remove_others(&copy.root, &files)?;
        for file in &files {
            let bytes = std::fs::read(from.join(file))
                .with_context(|| format!("{}: cannot be read", file.display()))?;
            copy.put(file, &bytes)?;
            let rights = std::fs::metadata(from.join(file))?.permissions();
            std::fs::set_permissions(copy.root.join(file), rights)?;
        }
        Ok(copy)
    }

    /// Writes a file of the copy, if it differs.
    ///
    /// # Errors
    /// The system's error, with the file.
    pub fn put(&self, file: &Path, bytes: &[u8]) -> Result<()> {
        let path = self.root.join(file);
        if std::fs::read(&path).is_ok_and(|old| old == bytes) {
            return Ok(());
        }
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(&path, bytes)
            .with_context(|| format!("{}: cannot be written", path.display()))
    }

    fn remove_others(&self, folder: &Path, files: &BTreeSet<PathBuf>) -> Result<()> {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            let relative = path.strip_prefix(&self.root)?;
            if path.is_dir() {
                // Packages that tests install beside themselves are ignored by git, and stay.
                if !path.ends_with("node_modules") {
                    self.remove_others(&path, files)?;
                }
            } else if !files.contains(relative) && path.extension().is_some_and(|end| end == "rs") {
                std::fs::remove_file(&path)?;
            }
        }
        Ok(())
    }
}
