//! Stacks that only grow, without any marks: their blocks that live at the end were born all along.
//!
//! ```text
//!   acquisitions of the process   |--1--|--2--|--3--|--4--|--5--|--6--|--7--|--8--|
//!   live at the end, a leak         5     6     5     5     6     5     5     5
//!                    a cache        0     0     0     0     0     0    20    22     the old ones are gone
//!                    start-up      42     0     0     0     0     0     0     0     nothing came after
//! ```
//!
//! O1  Births are counted along the acquisitions of the process, not along time: a program that waits is not
//!     a program that keeps.
//! O2  Every slice has at least half and at most twice its share. A program that does nothing else than fill a
//!     table looks the same: so it is said who grows, and no saving is promised.
//! O3  What marks have told of a stack is more exact, and stays alone.
//!
//! Not here: growth between marks (`findings.rs`), rounds (`passes/phases.rs`).

use rustc_hash::{FxHashMap, FxHashSet};

use crate::facts::INHERITED;
use crate::ledger::Ledger;
use crate::model::{Confidence, Finding, FindingKind, Report, Site};
use crate::passes::wording::{bytes, count};

/// Slices of the run.
const SLICES: usize = 8;
/// Fewest blocks of a stack: with fewer a slice has a handful by chance.
const MIN_BLOCKS: u64 = 64;
/// Fewest acquisitions of a run that can be cut into slices.
const MIN_ALLOCATIONS: u64 = 1024;
/// A stack must hold one of so many bytes that live at the end, and this much.
const PART: u64 = 100;
const WORTH_BYTES: u64 = 64 << 10;

/// The stacks of which `told` does not know yet.
pub(crate) fn only_grow(report: &Report, ledger: &Ledger, told: &FxHashSet<u32>) -> Vec<Finding> {
    let allocations = ledger.counts().allocations;
    if !(MIN_ALLOCATIONS..=u64::from(u32::MAX)).contains(&allocations) {
        return Vec::new();
    }
    let sites = ledger.cells().sites();
    let mut births = vec![[0u64; SLICES]; sites.len()];
    for block in ledger.live_blocks() {
        // A block of nobody's has no birth here.
        if !block.is_inherited() {
            let slice = u64::from(block.serial) * SLICES as u64 / allocations;
            births[ledger.cells().site_of(block.cell)][(slice as usize).min(SLICES - 1)] += 1;
        }
    }
    let least = (ledger.live().usable_bytes / PART).max(WORTH_BYTES);
    let even = sites
        .iter()
        .zip(&births)
        .filter(|(_, births)| is_even(births));
    let even: FxHashMap<u32, &[u64; SLICES]> =
        even.map(|(site, births)| (site.node.0, births)).collect();
    let large = report.sites.iter().filter(|row| {
        row.end_usable_bytes >= least && row.node != INHERITED.0 && !told.contains(&row.node)
    });
    large
        .filter_map(|row| Some(finding(row, even.get(&row.node)?)))
        .collect()
}

/// O2.
fn is_even(births: &[u64; SLICES]) -> bool {
    let blocks: u64 = births.iter().sum();
    let share = |one: &u64| *one * SLICES as u64;
    blocks >= MIN_BLOCKS
        && births
            .iter()
            .all(|one| share(one) * 2 >= blocks && share(one) <= blocks * 2)
}

/// `56, 57 and 54`.
fn listed(slices: &[String]) -> String {
    match slices {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => slices.concat(),
    }
}

fn finding(row: &Site, births: &[u64; SLICES]) -> Finding {
    let blocks: u64 = births.iter().sum();
    let slices: Vec<String> = births.iter().map(u64::to_string).collect();
    Finding {
        kind: FindingKind::Leak,
        // Without a count: findings of one function and title are put together.
        title: "Only grows, from the beginning of the run to its end".to_owned(),
        what: format!(
            "{} of this stack live at the end ({}), of {} made, and they were born all along: {} of them in one eighth of the run after the other (by acquisitions). A cache or a queue would have young blocks only, and what is set up once has old ones only.",
            count(blocks, "block"),
            bytes(row.end_usable_bytes),
            count(row.allocations, "block"),
            listed(&slices),
        ),
        change: "Find what keeps these blocks. If they are what the program is there to collect, nothing; else \
                 release them, or give what holds them a limit in bytes."
            .to_owned(),
        now_bytes: row.live_usable_bytes.min(row.end_usable_bytes),
        blocks,
        confidence: Confidence::Likely,
        node: Some(row.node),
        ..Finding::default()
    }
}
