//! Mutants with a name: faults that once passed all tests, each as an exact edit.
//!
//! H1  `old` is looked for in the whole file, so moved lines do not matter. If it is missing, the code has changed
//!     and the mutant is `gone`; if it occurs more than once, the list is at fault.
//! H2  `form` is `expression` or `statement`: the edit is made as those of a draw are.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::points::{Point, Shape, Variant};

/// One entry of `named.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Named {
    pub name: String,
    pub file: PathBuf,
    pub form: String,
    /// For a short `old`: a text that occurs once, in which `old` occurs once.
    pub around: Option<String>,
    pub old: String,
    pub new: String,
}

#[derive(Debug, Deserialize)]
struct List {
    mutant: Vec<Named>,
}

/// Parses the list.
///
/// # Errors
/// If the text is not TOML, or an entry lacks something.
pub fn list(text: &str) -> Result<Vec<Named>> {
    let list: List = toml::from_str(text).context("named.toml")?;
    Ok(list.mutant)
}

impl Named {
    /// Returns the crate's folder, relative to the repository.
    pub fn dir(&self) -> PathBuf {
        self.file.components().take(2).collect()
    }

    /// Returns the point of the mutant, or `None` if its code no longer exists.
    ///
    /// # Errors
    /// If the text occurs twice, or the form is unknown.
    pub fn find(&self, root: &Path) -> Result<Option<Point>> {
        let Ok(text) = std::fs::read_to_string(root.join(&self.file)) else {
            return Ok(None);
        };
        let around = self.around.as_ref().unwrap_or(&self.old);
        let mut found = text.match_indices(around.as_str());
        let Some((at, _)) = found.next() else {
            return Ok(None);
        };
        let Some(within) = around.find(&self.old) else {
            bail!("named.toml: {}: `around` does not hold `old`", self.name);
        };
        if found.next().is_some() {
            let file = self.file.display();
            bail!(
                "named.toml: {}: its text stands in {file} more than once",
                self.name
            );
        }
        let at = at + within;
        let shape = match self.form.as_str() {
            "expression" => Shape::Expression,
            "statement" => Shape::Statement,
            other => bail!(
                "named.toml: {}: no form {other}; expression or statement",
                self.name
            ),
        };
        Ok(Some(Point {
            file: self.file.clone(),
            range: at..at + self.old.len(),
            line: text[..at].matches('\n').count() + 1,
            shape,
            variants: vec![Variant {
                what: self.name.clone(),
                text: self.new.clone(),
            }],
        }))
    }
}
