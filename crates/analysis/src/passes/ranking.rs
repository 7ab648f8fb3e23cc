//! The largest findings of a pass, and the rest in one line.
//!
//! ```text
//!   findings ──► sorted by what they save ──► first TOP, then "N further stacks: together …"
//! ```
//!
//! K1  The bytes and allocations of what is pushed equal those of what went in.
//! K2  Order is by saved bytes now, then saved over the run, then the node: never by chance.
//!
//! Not here: the order between passes (the ledger sorts the report's findings as a whole).

use crate::model::{Finding, FindingKind, Report};
use crate::passes::wording::{bytes, count};

/// Findings a pass may show one by one. Six passes and the ledger
/// share a screen and a half; the rest is folded into one line.
pub(super) const TOP: usize = 8;
/// Stacks that the folded finding names.
const MORE: usize = 50;

/// Adds the findings of one pass and kind to the report.
pub(super) fn push_ranked(report: &mut Report, mut findings: Vec<Finding>) {
    findings.sort_by_key(|f| {
        std::cmp::Reverse((
            f.saved_bytes,
            f.saved_cumulative_bytes,
            f.saved_allocations,
            !f.node.unwrap_or(0),
        ))
    });
    let rest = findings.split_off(findings.len().min(TOP));
    report.findings.append(&mut findings);
    if let Some(folded) = fold(&rest) {
        report.findings.push(folded);
    }
}

fn fold(rest: &[Finding]) -> Option<Finding> {
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
    }
    folded.title = format!(
        "{} with smaller findings of this kind: together {} now",
        count(rest.len() as u64, "further stack"),
        bytes(folded.now_bytes)
    );
    folded.what = format!(
        "Each is smaller than the {TOP} that are listed as '{}'.",
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
        let mut report = Report::default();
        push_ranked(&mut report, findings);
        assert_eq!(report.findings.len(), TOP + 1);
        assert_eq!(report.findings[0].saved_bytes, 30);
        // 1 + … + 30 = 465; the folded 22 are 1 … 22 = 253.
        assert_eq!(
            report.findings.iter().map(|f| f.saved_bytes).sum::<u64>(),
            465
        );
        assert_eq!(report.findings[TOP].saved_bytes, 253);
        assert_eq!(report.findings[TOP].now_bytes, 506);
        assert_eq!(report.findings[TOP].more_nodes.len(), 22);
    }
}
