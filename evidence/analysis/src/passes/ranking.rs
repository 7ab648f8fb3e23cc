//! The largest findings of a pass, and the rest in one line.
//!
//! ```text
//!   findings ──► sorted by what they save ──► the first, then "N further stacks: together …"
//! ```
//!
//! K1  The bytes and allocations of the findings that are pushed equal those that came in.
//! K2  Order is by saved bytes now, then saved over the run, then the node: never by chance.
//!
//! Not here: the order between passes (the ledger sorts the report's findings as a whole).

use crate::model::{Finding, FindingKind, Report};
use crate::passes::wording::count;

/// The number of findings that a pass hands on. Findings of one function are merged afterwards, when
/// frames have names, and only then cut to a screenful: cut here, a hundred stacks of one function
/// would not be merged.
pub(super) const TOP: usize = 2000;
/// The number of stacks that the folded finding names.
const MORE: usize = 50;

/// Adds the findings of one pass and kind to the report.
pub(super) fn push_ranked(report: &mut Report, findings: Vec<Finding>) {
    report.findings.extend(ranked(findings, TOP));
}

/// Returns the first `top` findings in order, and one more for the rest (K1).
pub(crate) fn ranked(mut findings: Vec<Finding>, top: usize) -> Vec<Finding> {
    findings.sort_by_key(|f| {
        std::cmp::Reverse((
            f.saved_bytes,
            f.saved_cumulative_bytes,
            f.saved_allocations,
            f.now_bytes,
            !f.node.unwrap_or(0),
        ))
    });
    let rest = findings.split_off(findings.len().min(top));
    findings.extend(fold(&rest, top));
    findings
}

fn fold(rest: &[Finding], top: usize) -> Option<Finding> {
    let first = rest.first()?;
    let mut folded = Finding {
        kind: first.kind,
        ..Finding::default()
    };
    folded.confidence = rest.iter().map(|f| f.confidence).max().unwrap_or_default();
    for finding in rest {
        folded.now_bytes += finding.now_bytes;
        folded.saved_bytes += finding.saved_bytes;
        folded.saved_cumulative_bytes += finding.saved_cumulative_bytes;
        folded.saved_allocations += finding.saved_allocations;
        folded.blocks += finding.blocks;
        folded.claims.extend(&finding.claims);
    }
    folded.stacks = rest.iter().map(|f| f.stacks.max(1)).sum();
    folded.title = format!(
        "{} of {}, from {}",
        count(rest.len() as u64, "smaller finding"),
        kind_name(first.kind),
        count(folded.stacks, "stack")
    );
    folded.what = format!(
        "Each is smaller than the {top} largest of '{}'.",
        kind_name(first.kind)
    );
    folded.change = "See to the larger ones first.".to_owned();
    folded.more_nodes = rest.iter().filter_map(|f| f.node).take(MORE).collect();
    Some(folded)
}

fn kind_name(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::Clownshoes => "clownshoes",
        FindingKind::Slop => "slop",
        FindingKind::Growth => "growth",
        FindingKind::Churn => "churn",
        FindingKind::Placebo => "placebo",
        FindingKind::Leak => "leak",
        FindingKind::Zombie => "zombie",
        FindingKind::Retained => "retained",
        FindingKind::Pinned => "pinned",
        FindingKind::Untouched => "untouched",
        FindingKind::Holder => "holder",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_folded_keeps_its_sums() {
        let findings: Vec<Finding> = (1..=30)
            .map(|i| Finding {
                saved_bytes: i,
                now_bytes: 2 * i,
                node: Some(i as u32),
                ..Finding::default()
            })
            .collect();
        let findings = ranked(findings, 8);
        assert_eq!(findings.len(), 9);
        assert_eq!(findings[0].saved_bytes, 30);
        // 1 + … + 30 = 465; the folded 22 are 1 … 22 = 253.
        assert_eq!(findings.iter().map(|f| f.saved_bytes).sum::<u64>(), 465);
        assert_eq!(findings[8].saved_bytes, 253);
        assert_eq!(findings[8].now_bytes, 506);
        assert_eq!(findings[8].more_nodes.len(), 22);
    }
}
