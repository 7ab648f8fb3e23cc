//! A comparison from beginning to end.
//!
//! ```text
//!   Request ─► reference first ─► subjects (traces compiled) ─► rounds of each ─► cells, means, changes, doubts
//! ```
//!
//! Not here: where allocators are found (peers.rs), options and files (cli).

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};

use crate::model::{Allocator, Comparison, Missing, SCHEMA, Settings};
use crate::rounds::{self, News, Plan, Subject};
use crate::{doubt, machine, run, sum};

/// The inputs of a comparison.
pub struct Request {
    /// The programs and traces that are run.
    pub subjects: Vec<Subject>,
    /// Allocators that were found, in the order of columns.
    pub allocators: Vec<Allocator>,
    /// Allocators that were not found.
    pub missing: Vec<Missing>,
    /// The settings of the runs.
    pub settings: Settings,
    /// The library that counts calls.
    pub probe: PathBuf,
    /// Folder for files of a run; it is not removed.
    pub folder: PathBuf,
    /// Whether output that differs is a failure.
    pub compare_output: bool,
    /// The command line with which Skinflint was called.
    pub command: Vec<String>,
}

/// Runs the whole comparison.
///
/// # Errors
/// Whatever concerns all allocators alike: the reference is missing, the program cannot be started, no room for
/// files.
pub fn compare(request: Request, tell: &mut dyn FnMut(News<'_>)) -> Result<Comparison> {
    let began = SystemTime::now().duration_since(UNIX_EPOCH);
    let Request {
        subjects,
        mut allocators,
        missing,
        settings,
        ..
    } = request;
    let reference = &settings.reference;
    let Some(at) = allocators.iter().position(|a| a.name == *reference) else {
        if let Some(missing) = missing.iter().find(|missing| missing.name == *reference) {
            bail!(
                "the reference {reference} cannot be had: {}; {}",
                missing.why,
                missing.get
            );
        }
        bail!(
            "the reference {reference} is not among the allocators: add it to --with, or choose another by --ref"
        );
    };
    allocators[..=at].rotate_right(1);
    let mut comparison = Comparison {
        schema: SCHEMA,
        skinflint: env!("CARGO_PKG_VERSION").into(),
        began_unix_s: began.map_or(0, |since| since.as_secs()),
        command: request.command,
        machine: machine::machine(),
        settings,
        allocators,
        missing,
        programs: Vec::new(),
        overall: Vec::new(),
        changes: Vec::new(),
        warnings: Vec::new(),
        interrupted: false,
    };
    for subject in &subjects {
        let plan = Plan {
            settings: &comparison.settings,
            allocators: &comparison.allocators,
            probe: &request.probe,
            folder: &request.folder,
            compare_output: request.compare_output,
        };
        let mut program = rounds::rounds(&plan, subject, tell)?;
        sum::cells(
            &mut program,
            comparison.settings.runs,
            comparison.settings.seed,
        );
        comparison.programs.push(program);
    }
    comparison.interrupted = run::is_interrupted();
    comparison.overall = sum::overall(&comparison.programs);
    comparison.changes = sum::changes(&comparison.programs);
    comparison.warnings = doubt::doubts(&comparison);
    Ok(comparison)
}
