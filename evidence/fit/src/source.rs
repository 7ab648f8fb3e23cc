//! A trace that is learned from: which program it is of, its acts, what is missing from it.
//!
//! ```text
//!   TRACE… ─► open: of one program? ─► Source, oldest first ─► each_act ─► Survey, then Trial
//! ```
//!
//! Not here: what is learned (`learned.rs`).

use std::path::PathBuf;

use skinflint_analysis::ledger::Counts;
use skinflint_analysis::pass::{Act, Context};
use skinflint_recording::{Progress, Recording};
use skinflint_sizes::fit::BUILD_ID_BYTES_MAX;
use skinflint_trace::Event;

use crate::error::Error;
use crate::trial::Outcome;

/// A trace and the figures read from it.
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) recording: Recording,
    counts: Counts,
    pub(crate) outcome: Outcome,
}

impl Source {
    /// Returns the last part of the executable's path; the process's name if the path is not known.
    pub(crate) fn program(&self) -> &str {
        let process = &self.recording.trace.process;
        let exe = process.exe.trim_end_matches(" (deleted)");
        match exe.rsplit('/').next() {
            None | Some("") => &process.name,
            Some(name) => name,
        }
    }

    /// Returns the raw build id of the executable; empty if it is not known.
    pub(crate) fn build_id(&self) -> Vec<u8> {
        let exe = &self.recording.trace.process.exe;
        let mut modules = self.recording.trace.modules.iter();
        let hex = modules
            .find(|module| module.path == *exe)
            .map_or("", |module| module.build_id.as_str());
        let byte = |at: usize| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
        let raw: Option<Vec<u8>> = (0..hex.len()).step_by(2).map(byte).collect();
        raw.filter(|raw| raw.len() <= BUILD_ID_BYTES_MAX)
            .unwrap_or_default()
    }

    pub(crate) fn duration_ns(&self) -> u64 {
        let last = self
            .recording
            .trace
            .rss
            .last()
            .map_or(0, |sample| sample.time_ns);
        self.recording
            .trace
            .ending
            .as_ref()
            .map_or(last, |end| end.time_ns)
    }

    pub(crate) fn missing(&self) -> Vec<String> {
        let mut all = self.recording.incomplete(self.counts.allocations > 0);
        all.extend(self.recording.left_out());
        all
    }

    /// Reads all acts of the trace in order.
    pub(crate) fn each_act(
        &mut self,
        mut act: impl FnMut(&Context<'_>, &Act),
        progress: &dyn Progress,
    ) {
        // What a copy (`fork`) began with has no acts here: its sizes are counted where they were acquired.
        let mut ledger = self.recording.ledger(16);
        let each = |event: &Event| ledger.apply(event, &mut act);
        self.recording.read(each, progress);
        self.counts = ledger.counts();
    }
}

/// Opens all traces, oldest first: they must be of one program.
pub(crate) fn open(traces: &[PathBuf]) -> Result<Vec<Source>, Error> {
    let mut sources: Vec<Source> = Vec::new();
    for path in traces {
        let source = Source {
            path: path.clone(),
            recording: Recording::open(path)?,
            counts: Counts::default(),
            outcome: Outcome::default(),
        };
        if let Some(first) = sources.first()
            && first.program() != source.program()
        {
            return Err(Error::Differ(format!(
                "{} is of {} and {} of {}: a profile is for one program; fit each by itself",
                first.path.display(),
                first.program(),
                path.display(),
                source.program()
            )));
        }
        sources.push(source);
    }
    // The newest comes last: the profile has its build id.
    sources.sort_by_key(|source| source.recording.trace.process.started_unix_ns);
    Ok(sources)
}
