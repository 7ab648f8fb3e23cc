//! Merging findings, so that one cause has one: those of the same kind and function become one.
//!
//! ```text
//!   finding  kind, function (plumbing.rs), cause ──► first of them: its words    later ones: absorbed, sums
//! ```
//!
//! V1  Bytes, blocks and allocations of merged findings are the sums; `stacks` is their number. The words are those
//!     of the largest.
//! V2  The result is as sure as the least sure part that is an eighth of it.
//! V3  A figure in the change is the sum, too: the headline and the sentence name one figure.
//!
//! Not here: which findings stay (`grouping.rs`), leaks of several functions (`together.rs`).

use rustc_hash::FxHashMap;

use crate::model::{Confidence, Finding, FindingKind, Report};
use crate::passes::phases_rounds::leaving_title;
use crate::passes::ranking::ranked;
use crate::passes::wording::{bytes, count};
use crate::plumbing::Naming;

/// The number of stacks that a finding lists.
const MORE_NODES: usize = 50;

/// Returns the stacks that a finding lists beside the first, of those that it is about, largest first.
pub(crate) fn more_nodes(nodes: &[(u64, u32)]) -> Vec<u32> {
    let more = nodes.iter().skip(1).take(MORE_NODES);
    more.map(|(_, node)| *node).collect()
}

/// Reports whether findings of this kind are distinguished by their title: it names the cause.
fn title_is_cause(kind: FindingKind) -> bool {
    matches!(
        kind,
        FindingKind::Clownshoes
            | FindingKind::Slop
            | FindingKind::Zombie
            | FindingKind::Leak
            | FindingKind::Retained
    )
}

/// Merges findings into one for each kind, function and cause (V1).
pub(crate) fn merge(report: &Report, naming: &Naming, findings: Vec<Finding>) -> Vec<Finding> {
    let mut at: FxHashMap<(String, u32, String), usize> = FxHashMap::default();
    let mut merged: Vec<Finding> = Vec::new();
    // Largest findings come first, so that the words are those of the largest.
    for mut finding in ranked(findings, usize::MAX) {
        finding.stacks = finding
            .stacks
            .max(u64::from(finding.node.is_some()) + finding.more_nodes.len() as u64);
        let function = finding
            .node
            .and_then(|node| naming.function_of(report, node));
        let alone = finding.node.is_none() || !finding.more_nodes.is_empty();
        let Some(function) = function.filter(|_| !alone) else {
            merged.push(finding);
            continue;
        };
        let title = match (finding.kind, &finding.leaving) {
            // These are the same rounds, however many blocks each stack leaves in them.
            (_, Some(leaving)) => leaving.of.clone(),
            (kind, None) if title_is_cause(kind) => finding.title.clone(),
            // Steps that are too small are one cause, room that was left is another.
            (FindingKind::Growth, None) => (finding.now_bytes > 0).to_string(),
            _ => String::new(),
        };
        match at.entry((format!("{:?}", finding.kind), function, title)) {
            std::collections::hash_map::Entry::Occupied(entry) => {
                absorb(&mut merged[*entry.get()], &finding);
            }
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(merged.len());
                merged.push(finding);
            }
        }
    }
    for finding in merged
        .iter_mut()
        .filter(|one| one.stacks > 1 && !one.what.is_empty())
    {
        // The figures of its title are of the largest stack alone.
        if finding.kind == FindingKind::Untouched {
            finding.title = format!(
                "Asked for and mostly not resident, from {}",
                count(finding.stacks, "stack")
            );
        }
        if finding.kind != FindingKind::Leak || finding.saved_bytes > 0 {
            finding.what = format!(
                "From {} together; of the largest: {}",
                count(finding.stacks, "stack"),
                finding.what
            );
        }
    }
    merged
}

/// Adds a finding of the same cause. The result is as sure as the least sure part that is an eighth of it.
pub(crate) fn absorb(into: &mut Finding, other: &Finding) {
    let sizes = |one: &Finding| {
        let saved = [
            one.saved_bytes,
            one.saved_cumulative_bytes,
            one.saved_allocations,
        ];
        match saved {
            [0, 0, 0] => [one.now_bytes, 0, 0],
            saved => saved,
        }
    };
    let parts = sizes(into).into_iter().zip(sizes(other));
    if parts.into_iter().any(|(into, other)| other > into / 8) {
        // No trace shows which of a function's temporaries can be spared.
        let least = match into.kind {
            FindingKind::Churn => Confidence::Likely,
            _ => other.confidence,
        };
        into.confidence = into.confidence.max(other.confidence).max(least);
    }
    let would = into.would_bytes.saturating_add(other.would_bytes);
    if into.would_bytes > 0 {
        let said = |saved| format!("{} are saved", bytes(saved));
        into.change = into.change.replace(&said(into.would_bytes), &said(would));
    }
    into.would_bytes = would;
    into.now_bytes = into.now_bytes.saturating_add(other.now_bytes);
    into.saved_bytes = into.saved_bytes.saturating_add(other.saved_bytes);
    into.saved_cumulative_bytes = into
        .saved_cumulative_bytes
        .saturating_add(other.saved_cumulative_bytes);
    into.saved_allocations = into
        .saved_allocations
        .saturating_add(other.saved_allocations);
    into.blocks = into.blocks.saturating_add(other.blocks);
    if let (Some(into), Some(other)) = (&mut into.growth_what_if, &other.growth_what_if) {
        into.add(other);
    }
    if let (Some(into), Some(other)) = (&mut into.leaving, &other.leaving) {
        into.add(other);
    }
    if let Some(leaving) = &into.leaving {
        into.title = leaving_title(leaving);
    }
    into.stacks += other.stacks.max(1);
    if into.more_nodes.len() < MORE_NODES {
        into.more_nodes.extend(other.node);
    }
}
