//! Drops the traces of small processes after a run, and says so: a shell's pipeline leaves dozens of them.
//!
//! ```text
//!   Outcome ─► Several ─► table, page (run)      ─► small ones: rows written, traces removed; one line on stderr
//! ```
//!
//! D1  Nothing is dropped that the user named, that the report is about, or whose row could not be written.
//!
//! Not here: which are small, and their rows (`recording`).

use std::path::{Path, PathBuf};

use skinflint_collect::{Recorded, plain_name};
use skinflint_recording::{Rows, Several, rows_file_for};
use skinflint_sessions::Outcome;
use skinflint_view::units::plural;

use crate::options::RecordOptions;

/// Opens the traces of a run of several processes; `None` if there is one, or if none can be read. Sampled ones are small, and
/// all of them stay.
pub fn open(outcome: &Outcome) -> Option<Several> {
    let is_exact = |trace: &&Recorded| trace.process.sample_bytes == 0;
    // Programs of Go have estimates, among others or beside their own trace.
    let own = outcome.recorded.iter().filter(is_exact);
    if own.clone().count() < 2 {
        return None;
    }
    let made = own.filter(|trace| !trace.is_unmade());
    let mut traces: Vec<_> = made.map(|trace| trace.path.clone()).collect();
    traces.sort();
    traces.dedup();
    Several::of_run(&traces).ok()
}

/// Notes which traces tell most, and drops those of small processes unless the options say not to; those `wanted`
/// stay. Returns the files that are gone.
pub fn drop_small(
    outcome: &Outcome,
    all: Option<Several>,
    options: &RecordOptions,
    wanted: &[&Path],
) -> Vec<PathBuf> {
    let Some(mut all) = all else {
        return Vec::new();
    };
    let own = outcome
        .recorded
        .iter()
        .rfind(|trace| trace.process.pid == outcome.pid && !trace.beside);
    let shown = outcome.most_interesting();
    let (Some(own), Some(shown)) = (own.or(shown), shown) else {
        return Vec::new();
    };
    let rows = Rows::of(&own.path, &shown.path);
    let folder = folder_of_others(outcome, &own.path);
    let name = Path::new(&options.command[0])
        .file_name()
        .unwrap_or_default();
    let name = plain_name(&name.to_string_lossy());
    let file = rows_file_for(folder, &name, outcome.pid);
    let done = if options.all {
        let written = rows.write(&file).map_err(anyhow::Error::from);
        written.map(|()| Vec::new())
    } else {
        // What could not be written whole says why, and stays.
        let unwritten = outcome.unwritten().map(|trace| trace.path.clone());
        let keep = [own.path.clone(), shown.path.clone()]
            .into_iter()
            .chain(unwritten)
            .chain(wanted.iter().map(|path| path.to_path_buf()));
        all.drop_small(&keep.collect::<Vec<_>>(), rows, &file)
            .map_err(anyhow::Error::from)
    };
    match done {
        Ok(gone) => {
            if !gone.is_empty() && !options.quiet {
                say!(
                    "skinflint: dropped {} of small processes, whose rows are in {} (--all keeps them)",
                    plural(gone.len() as u64, "trace"),
                    folder.display()
                );
            }
            gone
        }
        // A full disk has been complained of.
        Err(_) if outcome.unwritten().next().is_some() => Vec::new(),
        Err(error) => {
            say!("skinflint: {}: {error:#}; all traces stay", file.display());
            Vec::new()
        }
    }
}

/// Returns the folder in which the traces of other processes than the program lie.
fn folder_of_others<'a>(outcome: &'a Outcome, own: &'a Path) -> &'a Path {
    let beside = own.parent().unwrap_or(Path::new(""));
    let mut folders = outcome
        .recorded
        .iter()
        .filter_map(|trace| trace.path.parent());
    folders.find(|folder| *folder != beside).unwrap_or(beside)
}
