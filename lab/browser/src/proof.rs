//! Checks whether the preloaded allocator served: calls are counted in a short run of its own, before those that are
//! measured.
//!
//! ```text
//!   LD_PRELOAD=probe:allocator ─► browser, one page ─► counts of each process ─► OUT/checks/LABEL.json
//! ```
//!
//! P1  The counted run is not measured: the probe stands before every call.
//! P2  A preload without effect is a doubt in every output, with what served instead; the runs go on.
//!
//! Not here: counting (`probe-so`), reading the counts (`compare`).

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use skinflint_compare::model::Allocator;
use skinflint_compare::probe::Counter;

use crate::plan::Plan;
use crate::run::{self, Job, write_whole};
use crate::start::Subject;

/// The counts of a subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Proof {
    /// The subject's label.
    pub label: String,
    /// Calls that acquire memory, in all processes.
    pub calls: u64,
    /// Processes in which they were counted.
    pub processes: u64,
    /// The file that served most of them.
    pub served_by: String,
    /// Why the preload had no effect.
    pub in_vain: Option<String>,
}

/// Counts, unless that was done before. Returns `None` for a subject without a preload.
///
/// # Errors
/// If the counts cannot be taken.
pub fn prove(job: &Job, probe: &Path) -> Result<Option<Proof>> {
    let Some((name, library)) = &job.subject.allocator else {
        return Ok(None);
    };
    let file = job.folder.with_extension("json");
    if let Ok(text) = std::fs::read(&file)
        && let Ok(proof) = serde_json::from_slice(&text)
    {
        return Ok(Some(proof));
    }
    std::fs::create_dir_all(job.folder)
        .with_context(|| format!("{}: cannot be made", job.folder.display()))?;
    let counter = Counter::new(job.folder).context("the file of counted calls")?;
    // The loader takes a colon as a separator.
    let both = format!("{}:{}", probe.display(), library.display());
    let subject = Subject {
        allocator: Some((name.clone(), PathBuf::from(both))),
        environment: vec![(
            "SKINFLINT_PROBE".into(),
            counter.path().display().to_string(),
        )],
        ..job.subject.clone()
    };
    let plan = Plan {
        cycles: 1,
        iterations: 1,
        interval_s: 0.0,
        settle_s: 0.0,
        rest_s: 0.0,
        gc: false,
        benchmark: false,
        ..job.plan.clone()
    };
    let short = Job {
        subject: &subject,
        plan: &plan,
        targets: &job.targets[..1],
        octane: None,
        beside: Vec::new(),
        ..*job
    };
    let done = run::run(&short)?;
    let finding = counter.read(0).context("the counted calls")?;
    let allocator = Allocator {
        name: name.clone(),
        version: String::new(),
        library: Some(library.display().to_string()),
        source: String::new(),
        environment: Default::default(),
    };
    let mut in_vain = finding.in_vain(&allocator);
    if !done.complete {
        in_vain = Some(format!("the counted run was not complete: {}", done.ended));
    }
    let proof = Proof {
        label: job.subject.label.clone(),
        calls: finding.check.calls,
        processes: finding.check.processes,
        served_by: finding.check.served_by,
        in_vain,
    };
    write_whole(&file, &serde_json::to_vec_pretty(&proof)?)?;
    Ok(Some(proof))
}
