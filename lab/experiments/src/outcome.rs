//! What came of an experiment, as it is kept: one JSON file each.
//!
//! ```text
//!   run ─► Outcome ─► FOLDER/NAME.json ─► agreement, table, page          the same commit and definition: not run again
//! ```
//!
//! O1  A file is whole or not there: it is written beside its name and renamed.
//! O2  Values are those of the runs, in their order; what is concluded is computed anew by every reader.
//! O3  A file of another schema is an error that names it, and is not overwritten unless asked.
//!
//! Not here: conclusions (agreement.rs).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::need::Missing;

/// The version of these files.
const SCHEMA: u32 = 1;

/// What came of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Version of the file.
    pub schema: u32,
    /// The experiment's name.
    pub experiment: String,
    /// A number that changes with its commands and figures.
    pub definition: String,
    /// The commit, with `+` if files differed from it.
    pub commit: String,
    /// When it began, UTC.
    pub date: String,
    /// The machine.
    pub machine: Machine,
    /// Versions of the programs that it needs.
    pub versions: BTreeMap<String, String>,
    /// The commands, as they were run.
    pub commands: Vec<String>,
    /// Seconds that all of it took.
    pub seconds: f64,
    /// Whether it ran.
    pub state: State,
    /// Why it did not, if it did not.
    pub reason: String,
    /// What was missing.
    pub missing: Vec<Missing>,
    /// The figures.
    pub figures: Vec<Figure>,
}

/// Whether an experiment ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// All of it, and every figure is there.
    Ran,
    /// Something has to be installed.
    NotRun,
    /// A command failed, or a figure was not where it should be.
    Failed,
}

/// The machine, and how busy it was.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Name of the processor.
    pub cpu: String,
    /// Processors.
    pub cpus: u64,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// Kernel release.
    pub kernel: String,
    /// The load of the last minute, before and after.
    pub load: [f64; 2],
}

impl Machine {
    /// Reports whether other programs took so much of it that times say little: a load of half the processors before.
    pub fn was_busy(&self) -> bool {
        self.load[0] > self.cpus as f64 / 2.0
    }
}

/// A figure of a row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The row's claim.
    pub claim: String,
    /// Its value in each run.
    pub values: Vec<f64>,
}

impl Outcome {
    /// Returns the figure of a claim.
    pub fn figure(&self, claim: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.claim == claim)
    }

    /// Writes the file (O1). Returns where.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn save(&self, folder: &Path) -> Result<PathBuf> {
        fs::create_dir_all(folder)
            .with_context(|| format!("{}: cannot be made", folder.display()))?;
        let path = file(folder, &self.experiment);
        let beside = path.with_extension("json.part");
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        let done = fs::write(&beside, text).and_then(|()| fs::rename(&beside, &path));
        done.with_context(|| format!("{}: cannot be written", path.display()))?;
        Ok(path)
    }

    /// Reads the file of an experiment; `None` if there is none.
    ///
    /// # Errors
    /// If it cannot be read, or is of another schema.
    pub fn load(folder: &Path, name: &str) -> Result<Option<Outcome>> {
        let path = file(folder, name);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        };
        let outcome: Outcome = serde_json::from_str(&text).with_context(|| {
            format!(
                "{}: no result of an experiment; take it away, or run with --again",
                path.display()
            )
        })?;
        let schema = outcome.schema;
        ensure!(
            schema == SCHEMA,
            "{}: schema {schema}, this program knows {SCHEMA}",
            path.display()
        );
        Ok(Some(outcome))
    }

    /// Reports whether this is what a run now would be about: it ran, of this commit and definition.
    pub fn is_of(&self, commit: &str, definition: &str) -> bool {
        self.state == State::Ran && self.commit == commit && self.definition == definition
    }

    /// Begins an outcome of which nothing is known yet.
    pub fn begun(name: &str, definition: String, commit: String) -> Outcome {
        Outcome {
            schema: SCHEMA,
            experiment: name.to_owned(),
            definition,
            commit,
            date: String::new(),
            machine: Machine::default(),
            versions: BTreeMap::new(),
            commands: Vec::new(),
            seconds: 0.0,
            state: State::NotRun,
            reason: String::new(),
            missing: Vec::new(),
            figures: Vec::new(),
        }
    }
}

fn file(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_comes_back_as_it_was_and_others_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(Outcome::load(folder.path(), "a").expect("none"), None);
        let mut outcome = Outcome::begun("a", "12".into(), "abc".into());
        outcome.state = State::Ran;
        outcome.figures.push(Figure {
            claim: "c".into(),
            values: vec![1.0, 2.5],
        });
        outcome.save(folder.path()).expect("saved");
        let read = Outcome::load(folder.path(), "a").expect("read");
        assert_eq!(read.as_ref(), Some(&outcome));
        assert!(outcome.is_of("abc", "12"));
        assert!(!outcome.is_of("abc+", "12") && !outcome.is_of("abc", "13"));
        outcome.state = State::Failed;
        assert!(!outcome.is_of("abc", "12"), "what failed is run again");
        fs::write(folder.path().join("b.json"), "{}").expect("written");
        let said = format!(
            "{:#}",
            Outcome::load(folder.path(), "b").expect_err("another file")
        );
        assert!(
            said.contains("b.json") && said.contains("--again"),
            "{said}"
        );
    }

    #[test]
    fn busy_is_half_of_the_processors() {
        let machine = |load| Machine {
            cpus: 2,
            load: [load, 9.0],
            ..Machine::default()
        };
        assert!(!machine(0.9).was_busy() && machine(1.1).was_busy());
    }
}
