//! Each byte is promised once: which finding a live block's bytes belong to, if several findings are about it.
//!
//! ```text
//!   blocks of one cell     ████████████████████████      live at the report's instant
//!   leak, zombie, placebo  ██████████                    released whole: first
//!   growth                           ██████              their size is a buffer's of the moment
//!   clownshoes, slop                       ████████      what is left can be asked for smaller
//! ```
//!
//! C1  No more blocks of a cell are promised than live at the instant; no more bytes of a block than it has with its
//!     header. So what findings together save of live blocks is never more than what these hold: by stack, and for
//!     the process.
//! C2  Which blocks of a cell a finding means is known only by number. If two findings would have blocks released,
//!     the second is taken to mean those of the first as far as there are enough; a finding that makes blocks smaller
//!     has only those that no other one has. Either way too little is promised rather than a byte twice.
//! C3  Among findings of one sort the surer comes first, then the one that saves more.
//! C4  A finding names the other one that has what it lost. One that makes blocks smaller and has too little left is
//!     removed.
//! C5  Calls of the allocator are also promised once: together at most as many as a stack made.
//!
//! Free memory is separate by its pages: without a live byte (`giveback.rs`), or with some
//! (`fragments/functions.rs`), where findings of several functions have only pages that no single one would free.
//! What is free is in no block. Not here: which pass finds what (the passes, `findings.rs`, `reach/rows.rs`).

use rustc_hash::FxHashMap;

use crate::block::CellKey;
use crate::model::{Claim, Finding, FindingKind, Report};
use crate::passes::wording::{bytes as size, count};

/// The least that must be left of a finding that lost something, so that it is worth a line.
const WORTH_BYTES: u64 = 64 << 10;

/// The effect of following a finding on the blocks that it is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Effect {
    Released,
    Regrown,
    Smaller,
}

fn effect(kind: FindingKind) -> Effect {
    match kind {
        FindingKind::Growth => Effect::Regrown,
        FindingKind::Clownshoes | FindingKind::Slop => Effect::Smaller,
        _ => Effect::Released,
    }
}

/// Blocks of a cell that a finding already has.
#[derive(Clone, Copy, Default)]
struct Claimed {
    released: u64,
    regrown: u64,
    smaller: u64,
    /// The finding that had them first; none for buffers that no finding is about.
    by: Option<usize>,
}

impl Claimed {
    /// Returns how many of a claim's blocks are already claimed; the others are from now on (C2).
    fn take(&mut self, blocks: u64, effect: Effect) -> u64 {
        let before = match effect {
            Effect::Released | Effect::Regrown => self.released,
            Effect::Smaller => self.released + self.regrown + self.smaller,
        };
        let twice = blocks.min(before);
        match effect {
            Effect::Released => self.released = self.released.max(blocks),
            Effect::Regrown => self.regrown = self.regrown.saturating_add(blocks),
            Effect::Smaller => self.smaller += blocks - twice,
        }
        twice
    }
}

/// The blocks and bytes that a finding lost to others.
#[derive(Default)]
struct Lost {
    bytes: u64,
    blocks: u64,
    /// The most that one other finding has of it; none for buffers that no finding is about.
    to: FxHashMap<Option<usize>, u64>,
}

/// Removes from findings what others have already promised. `in_growth`: blocks of buffers that no finding is about.
pub(crate) fn settle(findings: &mut Vec<Finding>, in_growth: &[Claim]) {
    let mut order: Vec<usize> = (0..findings.len()).collect();
    order.retain(|&one| !findings[one].claims.is_empty());
    order.sort_by_key(|&one| {
        let finding = &findings[one];
        let rank = (
            effect(finding.kind),
            finding.confidence,
            std::cmp::Reverse(finding.saved_bytes),
        );
        (rank, finding.node, finding.title.clone())
    });
    let mut claimed: FxHashMap<CellKey, Claimed> = FxHashMap::default();
    let smaller = |&one: &usize| effect(findings[one].kind) == Effect::Smaller;
    let (last, first): (Vec<usize>, Vec<usize>) = order.into_iter().partition(smaller);
    let mut lost: Vec<(usize, Lost)> = Vec::new();
    for one in first {
        lost.push((one, lose(one, &findings[one], &mut claimed)));
    }
    for claim in in_growth {
        let cell = claimed.entry(claim.key).or_default();
        cell.take(claim.blocks, Effect::Regrown);
    }
    for one in last {
        lost.push((one, lose(one, &findings[one], &mut claimed)));
    }
    let titles: Vec<String> = findings.iter().map(|one| one.title.clone()).collect();
    let mut gone = vec![false; findings.len()];
    for (one, lost) in lost.iter().filter(|(_, lost)| lost.blocks > 0) {
        gone[*one] = !keep(&mut findings[*one], lost, &titles);
    }
    let mut gone = gone.into_iter();
    findings.retain(|_| !gone.next().unwrap_or(false));
    findings.iter_mut().for_each(|one| one.claims = Vec::new());
}

fn lose(number: usize, finding: &Finding, claimed: &mut FxHashMap<CellKey, Claimed>) -> Lost {
    let mut lost = Lost::default();
    for claim in &finding.claims {
        let cell = claimed.entry(claim.key).or_default();
        let twice = cell.take(claim.blocks, effect(finding.kind));
        if twice > 0 {
            let part = u128::from(claim.bytes) * u128::from(twice) / u128::from(claim.blocks);
            lost.bytes = lost.bytes.saturating_add(part as u64);
            lost.blocks = lost.blocks.saturating_add(twice);
            *lost.to.entry(cell.by).or_default() += twice;
        } else if cell.by.is_none() && claim.blocks > 0 {
            cell.by = Some(number);
        }
    }
    lost
}

/// Removes from a finding what it lost, and adds that to its text; returns whether it is still a finding (C4).
fn keep(finding: &mut Finding, lost: &Lost, titles: &[String]) -> bool {
    let promised = finding.saved_bytes;
    finding.saved_bytes = promised.saturating_sub(lost.bytes);
    let most = lost.to.iter().max_by_key(|(by, blocks)| (**blocks, **by));
    let elsewhere = match most.and_then(|(by, _)| by.and_then(|by| titles.get(by))) {
        Some(title) => format!("are also in “{title}”"),
        None => "are buffers that grow, and will have another size".to_owned(),
    };
    if finding.kind == FindingKind::Growth && finding.saved_bytes < WORTH_BYTES {
        finding.saved_bytes = 0;
    }
    if effect(finding.kind) == Effect::Smaller {
        if finding.saved_bytes < WORTH_BYTES {
            return false;
        }
        let left = |all: u64| {
            let left = u128::from(all) * u128::from(finding.saved_bytes);
            (left / u128::from(promised.max(1))) as u64
        };
        finding.saved_cumulative_bytes = left(finding.saved_cumulative_bytes);
        finding.now_bytes = left(finding.now_bytes).max(finding.saved_bytes);
        finding.blocks = finding.blocks.saturating_sub(lost.blocks);
    }
    if lost.bytes > 0 {
        finding.what += &format!(
            " Of these, {} {elsewhere}: {} that would be saved there {} not counted here.",
            count(lost.blocks, "block"),
            size(lost.bytes),
            if lost.bytes == 1 { "is" } else { "are" },
        );
    }
    true
}

/// Lets findings of one stack promise no more calls than it made (C5).
pub(crate) fn settle_calls(report: &Report, findings: &mut [Finding]) {
    let mut left: FxHashMap<u32, u64> = FxHashMap::default();
    for site in &report.sites {
        *left.entry(site.node).or_default() += site.allocations;
    }
    let mut order: Vec<usize> = (0..findings.len()).collect();
    order.retain(|&one| findings[one].saved_allocations > 0 && findings[one].more_nodes.is_empty());
    order.sort_by_key(|&one| {
        let finding = &findings[one];
        let most = std::cmp::Reverse(finding.saved_allocations);
        (
            finding.confidence,
            most,
            finding.node,
            finding.title.clone(),
        )
    });
    for one in order {
        let finding = &mut findings[one];
        if let Some(left) = finding.node.and_then(|node| left.get_mut(&node)) {
            finding.saved_allocations = finding.saved_allocations.min(*left);
            *left -= finding.saved_allocations;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Confidence;
    use skinflint_base::random::Random;
    use skinflint_trace::NodeId;

    fn key(size: u64, usable: u64) -> CellKey {
        CellKey {
            node: NodeId(1),
            size,
            usable,
        }
    }

    fn claim(key: CellKey, blocks: u64, each: u64) -> Claim {
        Claim {
            key,
            blocks,
            bytes: blocks * each,
        }
    }

    fn finding(kind: FindingKind, claims: Vec<Claim>) -> Finding {
        let saved_bytes = claims.iter().map(|one| one.bytes).sum();
        Finding {
            kind,
            title: format!("{kind:?}"),
            confidence: Confidence::Likely,
            saved_bytes,
            now_bytes: saved_bytes,
            blocks: claims.iter().map(|one| one.blocks).sum(),
            claims,
            ..Finding::default()
        }
    }

    #[test]
    fn what_is_left_of_a_growth_must_be_worth_a_line() {
        let cell = key(1000, 1000);
        let of = |each| {
            let leak = finding(FindingKind::Leak, vec![claim(cell, 50, 1000)]);
            let growth = finding(FindingKind::Growth, vec![claim(cell, 100, each)]);
            settled(vec![leak, growth], &[])[1].1
        };
        assert_eq!(
            of(2 * WORTH_BYTES / 100),
            0,
            "a little less than half is left"
        );
        assert_eq!(of(4 * WORTH_BYTES / 100), 50 * (4 * WORTH_BYTES / 100));
    }

    fn settled(mut findings: Vec<Finding>, in_growth: &[Claim]) -> Vec<(FindingKind, u64, u64)> {
        settle(&mut findings, in_growth);
        assert!(findings.iter().all(|one| one.claims.is_empty()));
        let of = |one: &Finding| (one.kind, one.saved_bytes, one.blocks);
        findings.iter().map(of).collect()
    }

    #[test]
    fn what_is_released_whole_comes_first_and_what_is_left_can_be_smaller() {
        use FindingKind::{Leak, Slop, Zombie};
        let cell = key(1040, 1280);
        // Of 1,000 blocks 600 leak; 700 outlive a phase, of which 600 are taken to be the same.
        let found = settled(
            vec![
                finding(Slop, vec![claim(cell, 1000, 256)]),
                finding(Zombie, vec![claim(cell, 600, 1280)]),
                finding(Leak, vec![claim(cell, 700, 1280)]),
            ],
            &[],
        );
        // As sure as each other: the larger has its bytes, the other none, and 300 blocks are left to be smaller.
        assert_eq!(
            found,
            [
                (Slop, 300 * 256, 300),
                (Zombie, 0, 600),
                (Leak, 700 * 1280, 700)
            ]
        );
    }

    #[test]
    fn blocks_of_buffers_that_grow_are_not_made_smaller_and_too_little_is_no_finding() {
        use FindingKind::{Growth, Slop};
        let cell = key(1032, 1280);
        let slop = || finding(Slop, vec![claim(cell, 1000, 256)]);
        // 744 of 1,000 grow: 256 · 256 are 64 KiB, and one block less is too little.
        assert_eq!(
            settled(vec![slop()], &[claim(cell, 744, 0)]),
            [(Slop, 65_536, 256)]
        );
        assert_eq!(settled(vec![slop()], &[claim(cell, 745, 0)]), []);
        let growth = finding(Growth, vec![claim(cell, 744, 100)]);
        assert_eq!(
            settled(vec![slop(), growth], &[]),
            [(Slop, 65_536, 256), (Growth, 74_400, 744)]
        );
        // Of another size nothing is said.
        let other = [claim(key(1033, 1280), 1000, 0)];
        assert_eq!(settled(vec![slop()], &other), [(Slop, 256_000, 1000)]);
    }

    #[test]
    fn drawn_findings_never_promise_more_than_lives() {
        use FindingKind::{Clownshoes, Growth, Leak, Placebo, Slop, Zombie};
        let mut random = Random::new(1u64);
        let mut below = |bound: u64| random.below(bound);
        let mut too_much = 0;
        for _ in 0..2000 {
            let cells: Vec<(CellKey, u64)> = (0..4)
                .map(|at| (key(1000 + at, 1280 + at), 1 + below(2000)))
                .collect();
            let live: u64 = cells.iter().map(|(key, blocks)| key.usable * blocks).sum();
            let mut all = Vec::new();
            for kind in [Leak, Zombie, Placebo, Growth, Clownshoes, Slop] {
                let mut claims = Vec::new();
                for (key, blocks) in &cells {
                    let (some, each) = match effect(kind) {
                        Effect::Released => (below(blocks + 1), key.usable),
                        Effect::Regrown => (below(blocks + 1), below(key.usable)),
                        Effect::Smaller => (*blocks, below(key.usable)),
                    };
                    claims.push(claim(*key, some, each));
                }
                all.push(finding(kind, claims));
            }
            let promised = |all: &[Finding]| all.iter().map(|one| one.saved_bytes).sum::<u64>();
            too_much += u64::from(promised(&all) > live);
            settle(&mut all, &[]);
            assert!(
                promised(&all) <= live,
                "{} of {live}: {all:#?}",
                promised(&all)
            );
        }
        assert!(too_much > 1000, "{too_much}");
    }

    #[test]
    fn calls_are_promised_once() {
        let report = Report {
            sites: vec![crate::model::Site {
                node: 1,
                allocations: 100,
                ..Default::default()
            }],
            ..Report::default()
        };
        let calls = |kind, saved_allocations, confidence| Finding {
            kind,
            saved_allocations,
            confidence,
            node: Some(1),
            ..Finding::default()
        };
        let mut found = vec![
            calls(FindingKind::Placebo, 90, Confidence::Possible),
            calls(FindingKind::Churn, 70, Confidence::Likely),
        ];
        settle_calls(&report, &mut found);
        let left: Vec<u64> = found.iter().map(|one| one.saved_allocations).collect();
        assert_eq!(left, [30, 70]);
    }

    #[test]
    fn calls_of_several_stacks_are_not_bound_by_what_one_of_them_made() {
        let site = |node, allocations| crate::model::Site {
            node,
            allocations,
            ..Default::default()
        };
        let report = Report {
            sites: vec![site(1, 10), site(2, 90)],
            ..Report::default()
        };
        let saving = |more_nodes| Finding {
            node: Some(1),
            more_nodes,
            saved_allocations: 40,
            ..Finding::default()
        };
        let mut findings = [saving(vec![2]), saving(Vec::new())];
        settle_calls(&report, &mut findings);
        assert_eq!(findings.map(|one| one.saved_allocations), [40, 10]);
    }
}
