//! Which policy, growth and compaction suit a trace, and what each costs.
//!
//! ```text
//!   policies × growths × compactions ─► replays ─► memory, work ─► those that no other beats in both
//!                                                              └─► least memory · balanced · least work
//! ```
//!
//! A1  Memory is pages and descriptors, the mean over the samples of each run. Runs with other growths collect at other
//!     events; samples are by bytes allocated, so means are over the same course of the program.
//! A2  Work is counted, not timed, so that the advice is the same on every machine and at every load: objects marked and
//!     moved, pages swept, refills, each by about what it costs in instructions (`COSTS`). Marking is counted as if each
//!     object were found by an edge, which is what a real collector pays; the replay's own marking is cheaper.
//! A3  "Balanced" is the smallest product of memory and work: there one percent less of the one costs one percent more of
//!     the other. The three pieces of advice are all among the choices that nothing beats in both.
//!
//! Not here: the policies' tables (`tables`).

use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;

use super::options::{Options, word};
use super::source::Source;
use crate::replay::{Run, run};
use crate::space::{Compaction, Settings};
use crate::strategy::Strategy;

/// Policies that are tried: the reference, the study's best for memory and for both, what it shipped, and ours.
const POLICIES: [&str; 5] = [
    "legacy",
    "many-mask",
    "many-origin-mask",
    "more-1k-cached",
    "tight",
];
/// Growths that are tried, in hundredths.
const GROWTHS: [u32; 5] = [125, 150, 200, 300, 400];
const COMPACTIONS: [Compaction; 3] = [Compaction::Never, Compaction::Sparse, Compaction::Always];

/// Instructions, about: for a byte marked (60 for an object of 80 bytes in the typed heap), for a byte moved (its copy,
/// its allocation, its edges), for a page swept (its bitmap and its holes), for a refill.
const COSTS: [f64; 4] = [0.75, 2.0, 12_000.0, 300.0];

/// A choice, and what it costs on a trace.
#[derive(Clone, Debug, Serialize, PartialEq)]
pub struct Choice {
    /// The policy's name.
    pub policy: String,
    /// Collections come each time the objects have grown to this many times what lived.
    pub growth: f64,
    /// Which pages are evacuated.
    pub compaction: &'static str,
    /// Mean bytes of pages and descriptors.
    pub memory_bytes: f64,
    /// The most bytes of pages.
    pub peak_bytes: f64,
    /// Work in instructions, about (A2).
    pub work: f64,
    /// Number of collections.
    pub collections: u64,
    /// Bytes marked.
    pub marked_bytes: u64,
    /// Bytes moved.
    pub moved_bytes: u64,
    /// Refills.
    pub refills: u64,
    /// The longest end of a cycle, in milliseconds of processor time of this run.
    pub latency_max_ms: f64,
}

/// The advice for a trace.
#[derive(Serialize)]
pub struct Advice {
    /// The trace's name.
    pub trace: String,
    /// What is missing, one sentence each.
    pub missing: Vec<String>,
    /// What is compared with: legacy with a growth of 2 and V8's compactor.
    pub reference: Choice,
    /// The least memory.
    pub least_memory: Choice,
    /// The smallest product of memory and work.
    pub balanced: Choice,
    /// The least work.
    pub least_work: Choice,
    /// All choices that no other beats in both memory and work, by memory.
    pub front: Vec<Choice>,
    /// Choices whose pages did not fit into the limit.
    pub refused: u64,
}

fn choice(policy: &str, growth: f64, compaction: Compaction, run: &Run) -> Choice {
    let figures = &run.figures;
    let counted = [
        run.marked_bytes,
        figures.moved_bytes_total,
        figures.swept_pages_total,
        figures.refills_total,
    ];
    Choice {
        policy: policy.to_owned(),
        growth,
        compaction: word(compaction),
        memory_bytes: run.with_tables.mean,
        peak_bytes: run.committed.peak as f64,
        work: counted
            .iter()
            .zip(COSTS)
            .map(|(n, cost)| *n as f64 * cost)
            .sum(),
        collections: run.collections,
        marked_bytes: run.marked_bytes,
        moved_bytes: figures.moved_bytes_total,
        refills: figures.refills_total,
        latency_max_ms: run.latency_max.as_secs_f64() * 1e3,
    }
}

/// Keeps what no other choice beats in both, by memory.
fn front(mut all: Vec<Choice>) -> Vec<Choice> {
    all.sort_by(|a, b| {
        let by_memory = a.memory_bytes.total_cmp(&b.memory_bytes);
        by_memory.then(a.work.total_cmp(&b.work))
    });
    let mut least = f64::INFINITY;
    all.retain(|choice| {
        let better = choice.work < least;
        least = least.min(choice.work);
        better
    });
    all
}

/// Tries all choices on a trace.
///
/// # Errors
/// If the trace cannot be read, has no objects, or does not fit into the limit.
pub fn advise(source: &Source, options: &Options) -> Result<Advice> {
    let read = source.read(options.max_objects(), options.nursery_bytes)?;
    ensure!(
        !read.script.is_empty(),
        "{}: no objects in it; record a run that allocates",
        source.name()
    );
    let mut all = Vec::new();
    let mut refused = 0;
    for policy in POLICIES {
        let strategy = Strategy::by_name(policy).expect("a policy by its name");
        for (growth, compaction) in grid() {
            let mut plan = options.plan();
            plan.growth = growth;
            plan.settings = Settings {
                compaction,
                ..plan.settings
            };
            match run(&read.script, strategy, plan) {
                Ok(run) => all.push(choice(policy, growth, compaction, &run)),
                Err(crate::replay::Fault::Limit) => refused += 1,
                Err(fault) => return Err(fault).context(format!("policy {policy}")),
            }
        }
    }
    let reference = all
        .iter()
        .find(|c| (c.policy.as_str(), c.growth, c.compaction) == ("legacy", 2.0, "sparse"))
        .cloned()
        .with_context(|| format!("{}: legacy does not fit into --heap-limit", source.name()))?;
    let front = front(all);
    let product = |choice: &Choice| choice.memory_bytes * choice.work;
    let (first, last) = (front.first(), front.last());
    let balanced = front
        .iter()
        .min_by(|a, b| product(a).total_cmp(&product(b)));
    let (Some(first), Some(balanced), Some(last)) = (first, balanced, last) else {
        unreachable!("the reference was tried");
    };
    Ok(Advice {
        trace: source.name(),
        missing: read.missing,
        reference,
        least_memory: first.clone(),
        balanced: balanced.clone(),
        least_work: last.clone(),
        front,
        refused,
    })
}

fn grid() -> impl Iterator<Item = (f64, Compaction)> {
    let growths = GROWTHS.iter().map(|growth| f64::from(*growth) / 100.0);
    growths.flat_map(|growth| COMPACTIONS.map(|compaction| (growth, compaction)))
}

const MIB: f64 = 1_048_576.0;

fn line(out: &mut String, title: &str, choice: &Choice, reference: &Choice) {
    let _ = writeln!(
        out,
        "{title:16}{:18}{:>6}  {:8}{:>10.2}{:>8.3}{:>10.2}{:>11.1}{:>8.3}{:>8}{:>10.1}{:>10.1}{:>10}{:>10.2}",
        choice.policy,
        choice.growth,
        choice.compaction,
        choice.memory_bytes / MIB,
        choice.memory_bytes / reference.memory_bytes,
        choice.peak_bytes / MIB,
        choice.work / 1e6,
        choice.work / reference.work,
        choice.collections,
        choice.marked_bytes as f64 / MIB,
        choice.moved_bytes as f64 / MIB,
        choice.refills,
        choice.latency_max_ms,
    );
}

impl Advice {
    /// Renders the advice as text.
    pub fn render(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(
            out,
            "{}: {} choices that no other beats in memory and work, of {}",
            self.trace,
            self.front.len(),
            POLICIES.len() * GROWTHS.len() * COMPACTIONS.len() - self.refused as usize
        );
        if self.refused > 0 {
            let _ = writeln!(out, "{} more do not fit into --heap-limit", self.refused);
        }
        let _ = writeln!(
            out,
            "\n{:16}{:18}{:>6}  {:8}{:>10}{:>8}{:>10}{:>11}{:>8}{:>8}{:>10}{:>10}{:>10}{:>10}",
            "",
            "policy",
            "growth",
            "compact",
            "MiB",
            "×",
            "peak",
            "work, M",
            "×",
            "gcs",
            "marked",
            "moved",
            "refills",
            "end ms"
        );
        let reference = &self.reference;
        line(&mut out, "now", reference, reference);
        line(&mut out, "least memory", &self.least_memory, reference);
        line(&mut out, "balanced", &self.balanced, reference);
        line(&mut out, "least work", &self.least_work, reference);
        out.push('\n');
        for choice in &self.front {
            line(&mut out, "", choice, reference);
        }
        let _ = writeln!(
            out,
            "\nMiB: pages and descriptors in the mean; work: marking, moving, sweeping and refills in instructions, about; \
             end: the longest end of a\ncycle in CPU time. Balanced: one percent less memory would cost more than one \
             percent more work."
        );
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_hand(memory: f64, work: f64) -> Choice {
        Choice {
            policy: format!("{memory}"),
            growth: 2.0,
            compaction: "never",
            memory_bytes: memory,
            peak_bytes: 0.0,
            work,
            collections: 0,
            marked_bytes: 0,
            moved_bytes: 0,
            refills: 0,
            latency_max_ms: 0.0,
        }
    }

    #[test]
    fn what_is_beaten_in_both_is_no_choice() {
        let all = vec![
            by_hand(4.0, 1.0),
            by_hand(1.0, 9.0),
            by_hand(2.0, 3.0),
            by_hand(3.0, 3.0), // more memory for the same work
            by_hand(2.0, 4.0), // more work for the same memory
        ];
        let kept: Vec<f64> = front(all)
            .iter()
            .map(|choice| choice.memory_bytes)
            .collect();
        assert_eq!(kept, [1.0, 2.0, 4.0]);
    }
}
