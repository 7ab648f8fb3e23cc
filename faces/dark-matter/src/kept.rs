//! Keeps the answer of a recorded program's reporters beside its trace.
//!
//! ```text
//!   Taken ─► the trace of its process that has its marks ─► TRACE.memory.json.gz
//! ```
//!
//! Not here: the answer (asker.rs), reading it (reported.rs).

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use flate2::Compression;
use flate2::write::GzEncoder;
use skinflint_collect::Recorded;
use skinflint_trace::Trace;

use crate::asker::Taken;

/// Writes the memory report beside the trace that it belongs to. Returns the trace and the file.
///
/// # Errors
/// If no trace has the moment at which the program answered, or the file cannot be written.
pub fn keep(taken: &Taken, recorded: &[Recorded]) -> Result<(PathBuf, PathBuf)> {
    // A process has one trace for each program that it became.
    let of_pid = recorded.iter().rev();
    let mut of_pid = of_pid.filter(|trace| trace.process.pid == taken.pid);
    let has_mark = |path: &Path| {
        let trace = Trace::open(path);
        trace.is_ok_and(|trace| trace.marks.iter().any(|mark| mark.name == taken.marks[1]))
    };
    let Some(trace) = of_pid.find(|trace| has_mark(&trace.path)) else {
        bail!(
            "process {} answered, and no trace has the moment at which it did",
            taken.pid
        );
    };
    let file = trace.path.with_extension("memory.json.gz");
    let written = File::create(&file).and_then(|opened| {
        let mut packed = GzEncoder::new(opened, Compression::default());
        packed.write_all(&taken.json)?;
        packed.finish()
    });
    written.with_context(|| {
        format!(
            "{}: cannot be written; choose another folder with --dir",
            file.display()
        )
    })?;
    Ok((trace.path.clone(), file))
}
