//! Traces under policies.
//!
//! ```text
//!   Script ─┬─► reference  ─► Run ─┐
//!           ├─► many       ─► Run ─┼─► a row each
//!           └─► … × rounds ─► Run ─┘
//! ```
//!
//! G1  Ratios refer to the first policy, the reference: legacy, if no other is asked for. Times are medians over rounds, whose order rotates; memory is the
//!     same in every round (asserted), since all collect at the same events.
//!
//! Not here: programs that run themselves (`live`).

use anyhow::{Context as _, Result, ensure};

use super::figures::{Figures, Row, median};
use super::instructions::instructions;
use super::options::Options;
use super::source::Source;
use crate::replay::{Run, run};
use crate::strategy::Strategy;

/// Runs a trace under every policy.
///
/// # Errors
/// The trace cannot be read, has no objects, or does not fit into the limit; or instructions cannot be counted.
pub fn measure(source: &Source, policies: &[Strategy], options: &Options) -> Result<Figures> {
    let read = source.read(options.max_objects(), options.nursery_bytes)?;
    let script = &read.script;
    ensure!(
        !script.is_empty(),
        "{}: no objects in it; record a run that allocates",
        source.name()
    );
    let mut runs: Vec<Vec<Run>> = vec![Vec::new(); policies.len()];
    for round in 0..options.rounds as usize {
        for turn in 0..policies.len() {
            let index = (turn + round) % policies.len();
            let strategy = policies[index];
            let ran = run(script, strategy, options.plan())
                .with_context(|| format!("{}: policy {}", source.name(), strategy.name))?;
            runs[index].push(ran);
        }
    }
    let mut rows = Vec::new();
    for (strategy, runs) in policies.iter().zip(&runs) {
        let mut row = row(strategy.name, runs);
        if options.instructions {
            row.instructions = Some(instructions(source, strategy.name, options)?);
        }
        rows.push(row);
    }
    Ok(Figures {
        trace: source.name(),
        source: read.source,
        settings: options.words(),
        live: false,
        objects: script.objects,
        bytes: script.bytes,
        peak_live_bytes: script.peak_live_bytes,
        large_objects: script.large_objects,
        missing: read.missing,
        rows,
    })
}

fn row(policy: &str, runs: &[Run]) -> Row {
    let Some(first) = runs.first() else {
        return Row::default();
    };
    for run in runs {
        assert_eq!(
            run.committed, first.committed,
            "G1: memory differs between rounds of {policy}"
        );
    }
    let ms = |time: fn(&Run) -> std::time::Duration| {
        median(runs.iter().map(|run| time(run).as_secs_f64() * 1e3))
    };
    Row {
        policy: policy.to_owned(),
        mutator_ms: ms(|run| run.mutator),
        promotion_ms: ms(|run| run.promotion),
        total_ms: ms(Run::total),
        instructions: None,
        committed_mean: first.committed.mean,
        committed_peak: first.committed.peak as f64,
        committed_after: first.committed.after,
        with_tables_mean: first.with_tables.mean,
        resident_mean: first.resident.mean,
        needed_mean: first.needed.mean,
        wasted_mean: first.wasted.mean,
        sweeping_ms: ms(|run| run.sweeping),
        latency_mean_ms: ms(|run| run.finishing + run.ending) / first.collections.max(1) as f64,
        latency_max_ms: ms(|run| run.latency_max),
        collections: first.collections,
        refills: first.figures.refills_total,
        moved_bytes: first.figures.moved_bytes_total,
        purged_bytes: first.figures.purged_bytes_total,
        marked_bytes: first.marked_bytes,
        swept_pages: first.figures.swept_pages_total,
    }
}
