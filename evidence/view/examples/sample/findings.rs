//! The findings of the made-up report: one of each kind, on its largest sites.
//!
//! ```text
//!   KINDS ─ the n-th of the sites, largest first ─► findings, most saved first
//! ```
//!
//! Not here: the sites (`synthetic`).

use skinflint_analysis::model::*;

use super::{MIB, growth_and_zombies};

/// Kind, title, change, confidence, and the part of the largest site that it saves.
type Sample = (FindingKind, &'static str, &'static str, Confidence, u64);
const KINDS: [Sample; 11] = [
    (
        FindingKind::Retained,
        "malloc keeps free memory after the index is built",
        "Call malloc_trim(0) after the build, or set M_TRIM_THRESHOLD to 8 MiB.",
        Confidence::Certain,
        3,
    ),
    (
        FindingKind::Clownshoes,
        "requests of 4,104 bytes: 2^12 + 8, a header added to a power of two",
        "Ask for 4,096 bytes in all: take the 8-byte header out of the block's payload.",
        Confidence::Certain,
        4,
    ),
    (
        FindingKind::Growth,
        "buffer grows by a fixed 4,096 bytes; 4,103 steps to 16.0 MiB",
        "Double the capacity instead: the same end size takes 13 steps. Where the size is known, reserve it before the loop.",
        Confidence::Likely,
        5,
    ),
    (
        FindingKind::Slop,
        "requests of 13 bytes get 24",
        "Keep short strings in the struct that points to them.",
        Confidence::Certain,
        6,
    ),
    (
        FindingKind::Zombie,
        "blocks of phase “load” outlive it",
        "Release the parsed configuration when loading ends.",
        Confidence::Likely,
        7,
    ),
    (
        FindingKind::Untouched,
        "buffers asked for and never touched",
        "Allocate on first use; 1 of 40 buffers is ever written.",
        Confidence::Possible,
        8,
    ),
    (
        FindingKind::Leak,
        "live bytes grow between all marks",
        "Bound the cache: its blocks are never released once put.",
        Confidence::Possible,
        9,
    ),
    (
        FindingKind::Placebo,
        "free list of 64 KiB buffers is never taken from",
        "Remove the free list, or take from it before allocating.",
        Confidence::Likely,
        10,
    ),
    (
        FindingKind::Slop,
        "requests of 65,552 bytes are rounded up",
        "Ask for 65,536.",
        Confidence::Certain,
        14,
    ),
    (
        FindingKind::Pinned,
        "3,100 blocks of about 64 bytes keep 41.0 MiB of free memory resident",
        "These blocks outlive what lay around them: allocate them from an arena of their own.",
        Confidence::Likely,
        18,
    ),
    (
        FindingKind::Untouched,
        "read-ahead buffer of idle files",
        "Close files after 30 s idle.",
        Confidence::Possible,
        20,
    ),
];

/// Fills in the findings, and from the same stacks what grows and what outlives its phase.
pub fn findings(report: &mut Report) {
    let mut by_live: Vec<&Site> = report.sites.iter().collect();
    by_live.sort_by_key(|site| std::cmp::Reverse(site.live_usable_bytes));
    let mut findings = Vec::new();
    for (index, (kind, title, change, confidence, divisor)) in KINDS.into_iter().enumerate() {
        let site = by_live[index % by_live.len()];
        findings.push(Finding {
            kind,
            title: title.into(),
            what: format!(
                "{} blocks of this stack are live at the peak.",
                site.live_blocks
            ),
            change: change.into(),
            now_bytes: site.live_usable_bytes,
            saved_bytes: by_live[0].live_usable_bytes / divisor,
            blocks: site.live_blocks,
            confidence,
            node: (index > 0).then_some(site.node),
            more_nodes: by_live
                .iter()
                .skip(20)
                .take(index % 3)
                .map(|s| s.node)
                .collect(),
            growth_what_if: (kind == FindingKind::Growth).then_some(GrowthWhatIf {
                policy: GrowthPolicy::Doubling,
                copied_bytes: 32_000 * MIB,
                then_copied_bytes: 16 * MIB,
                held_bytes: 16 * MIB,
                then_held_bytes: 20 * MIB,
            }),
            ..Finding::default()
        });
    }
    findings.push(Finding {
        kind: FindingKind::Churn,
        title: "temporary strings, one for each word".into(),
        what: "Each is released before the next is allocated.".into(),
        change: "Keep one buffer in the tokenizer and clear it.".into(),
        saved_cumulative_bytes: 48 * MIB,
        saved_allocations: 1_204_331,
        blocks: 1_204_331,
        confidence: Confidence::Likely,
        node: Some(by_live[3].node),
        ..Finding::default()
    });
    for (index, site) in by_live.iter().take(5).enumerate() {
        findings.push(Finding {
            kind: FindingKind::Holder,
            title: format!(
                "one stack holds {}",
                ["most", "much", "some", "less", "little"][index]
            ),
            what: "A large share of the live heap comes from here.".into(),
            now_bytes: site.live_usable_bytes,
            blocks: site.live_blocks,
            confidence: Confidence::Certain,
            node: Some(site.node),
            ..Finding::default()
        });
    }
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.saved_bytes));
    let nodes: Vec<u32> = by_live.iter().take(5).map(|site| site.node).collect();
    report.findings = findings;
    growth_and_zombies(report, &nodes);
}
