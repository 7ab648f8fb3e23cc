//! Leaks that rounds leave together: an object and what it refers to are one cause, whatever functions made them.
//!
//! ```text
//!   round      1   2   3   4
//!   node       6   9   7  12      as many of the one as of the other in each round,
//!   label      6   9   7  12      and another number each time: one finding
//!   audit      1   1   1   1      always one: that proves nothing
//! ```
//!
//! T1  Stacks of the same rounds belong together if what they left is in proportion round by round, and differs from
//!     round to round. Sums over rounds with weights that are as good as random show that ([`Print`]): a chance hit
//!     is one in 2^64.
//! T2  An interpreter makes an object of several blocks, in functions of its own: what it leaves in the same rounds is one
//!     finding.
//! T3  The finding is named by the function that makes objects, that is, blocks of one size, and if there are several
//!     by the one with most bytes: an object of one size refers to texts of any length, not the other way round. What
//!     the others left is stated.
//! T4  A leak is certain only if it is what live memory rose by from the first round's end to the last one's, to an
//!     eighth: anything else that came may be part of it (the table that holds it), and what went may be its price.
//!
//! Not here: one function's stacks (`grouping.rs`), what is a leak (`passes/phases_rounds.rs`).

use crate::merging::absorb;
use crate::model::{Confidence, Finding, FindingKind, Report};
use crate::model::{Leaving, Print};
use crate::owner::is_interpreters;
use crate::passes::wording::{bytes, count};
use crate::plumbing::Naming;

/// The number of leaks that are compared, the largest first: the others are small.
const COMPARED: usize = 64;
/// The number of parts that are named.
const NAMED: usize = 4;

/// Merges leaks that belong together, and removes the certainty from those that may be part of another.
pub(crate) fn put_together(
    report: &Report,
    naming: &Naming,
    findings: Vec<Finding>,
) -> Vec<Finding> {
    let is_left = |one: &Finding| one.kind == FindingKind::Leak && one.leaving.is_some();
    let (mut left, mut all): (Vec<Finding>, Vec<Finding>) = findings.into_iter().partition(is_left);
    left.sort_by_key(|one| (std::cmp::Reverse(one.saved_bytes), one.node));
    let interpreted: Vec<bool> = left
        .iter()
        .map(|one| is_interpreters(report, naming, one))
        .collect();
    for group in groups(&left, &interpreted) {
        let parts: Vec<Finding> = group.iter().map(|&at| left[at].clone()).collect();
        all.push(one_of(report, naming, parts));
    }
    for one in all.iter_mut() {
        if one.leaving.as_ref().is_some_and(|of| !is_the_rise(of)) {
            one.confidence = one.confidence.max(Confidence::Likely);
        }
    }
    all
}

/// Reports whether a leak is what live memory rose by (T4).
fn is_the_rise(leaving: &Leaving) -> bool {
    leaving.left_bytes.abs_diff(leaving.rise_bytes) <= leaving.rise_bytes / 8
}

fn rounds_of(finding: &Finding) -> Option<&str> {
    finding.leaving.as_ref().map(|one| one.of.as_str())
}

/// Returns the leaks that belong together, by place; each is in one group.
fn groups(left: &[Finding], interpreted: &[bool]) -> Vec<Vec<usize>> {
    let mut group_of: Vec<usize> = (0..left.len()).collect();
    for one in 0..left.len().min(COMPARED) {
        for other in one + 1..left.len().min(COMPARED) {
            let same = rounds_of(&left[one]) == rounds_of(&left[other]);
            let linked = interpreted[one] && interpreted[other]
                || in_proportion(left[one].leaving.as_ref(), left[other].leaving.as_ref());
            if same && linked && group_of[one] != group_of[other] {
                let (into, from) = (group_of[one], group_of[other]);
                group_of
                    .iter_mut()
                    .filter(|at| **at == from)
                    .for_each(|at| *at = into);
            }
        }
    }
    let mut groups: Vec<Vec<usize>> = vec![Vec::new(); left.len()];
    for (at, group) in group_of.into_iter().enumerate() {
        groups[group].push(at);
    }
    groups.retain(|group| !group.is_empty());
    groups
}

/// Reports whether two leaks are in proportion (T1).
fn in_proportion(one: Option<&Leaving>, other: Option<&Leaving>) -> bool {
    let prints = |of: Option<&Leaving>| of.map_or(Vec::new(), |of| of.prints.clone());
    let others = prints(other);
    let alike = |one: &Print, other: &Print| {
        let each = one.sum.wrapping_mul(other.blocks) == other.sum.wrapping_mul(one.blocks);
        each && !one.steady && !other.steady && one.blocks > 0 && other.blocks > 0
    };
    prints(one)
        .iter()
        .any(|one| others.iter().any(|other| alike(one, other)))
}

/// Makes one finding of several that belong together (T3).
fn one_of(report: &Report, naming: &Naming, mut parts: Vec<Finding>) -> Finding {
    let is_object = |one: &Finding| {
        let of = one.leaving.as_ref();
        of.is_some_and(|of| of.live > 0 && of.alike * 4 >= of.live * 3)
    };
    let named = parts.iter().position(is_object).unwrap_or(0);
    let mut whole = parts.remove(named);
    if parts.is_empty() {
        return whole;
    }
    let name = |one: &Finding| {
        let node = one.node.unwrap_or(0);
        format!(
            "{} ({})",
            naming.function_name(report, node),
            bytes(one.saved_bytes)
        )
    };
    let mut names: Vec<String> = parts.iter().take(NAMED).map(name).collect();
    if parts.len() > NAMED {
        names.push(count((parts.len() - NAMED) as u64, "more"));
    }
    whole.what += &format!(
        " The same rounds leave with them, in proportion or as parts of the same objects, blocks of {}: {} are this \
         function's own.",
        names.join(", "),
        bytes(whole.saved_bytes),
    );
    parts.iter().for_each(|part| absorb(&mut whole, part));
    whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Frame, Node};

    /// Stacks 1 to 6, of functions `f1` to `f6`; 5 and 6 are an interpreter's.
    fn report() -> Report {
        let frame = |number: u32| Frame {
            function: format!("f{number}"),
            module: if number > 4 { "python3.11" } else { "it" }.into(),
            ..Frame::default()
        };
        Report {
            frames: (0..7).map(frame).collect(),
            nodes: (0..7).map(|frame| Node { parent: 0, frame }).collect(),
            ..Report::default()
        }
    }

    /// A leak that left so many in each of three rounds; `alike` of ten live ones are of one size.
    fn leak(node: u32, saved_bytes: u64, left: [u64; 3], alike: u64) -> Finding {
        let weights = [
            0x1234_5678_9abc_def1,
            0x0fed_cba9_8765_4321,
            0x0f0f_1e1e_2d2d_3c3d_u64,
        ];
        let sums = left
            .iter()
            .zip(weights)
            .map(|(left, own)| own.wrapping_mul(*left));
        let print = Print {
            sum: sums.fold(0, u64::wrapping_add),
            blocks: left.iter().sum(),
            steady: left[0] == left[1] && left[1] == left[2],
        };
        Finding {
            kind: FindingKind::Leak,
            node: Some(node),
            saved_bytes,
            confidence: Confidence::Certain,
            leaving: Some(Leaving {
                rounds: 3,
                of: "3 rounds of 'r'".into(),
                blocks: print.blocks,
                left_bytes: saved_bytes,
                rise_bytes: 0,
                live: 10,
                alike,
                prints: vec![print],
            }),
            ..Finding::default()
        }
    }

    /// Of rounds in which live memory rose by so much.
    fn together(rise_bytes: u64, mut leaks: Vec<Finding>) -> Vec<(Option<u32>, u64, Confidence)> {
        for leaving in leaks.iter_mut().filter_map(|one| one.leaving.as_mut()) {
            leaving.rise_bytes = rise_bytes;
        }
        let report = report();
        let mut found = put_together(&report, &Naming::of(&report), leaks);
        found.sort_by_key(|one| one.node);
        found
            .iter()
            .map(|one| (one.node, one.saved_bytes, one.confidence))
            .collect()
    }

    #[test]
    fn an_object_and_its_texts_are_one_leak() {
        let (object, text) = (leak(1, 4000, [6, 9, 7], 10), leak(2, 9000, [12, 18, 14], 1));
        let one = together(14_000, vec![object.clone(), text.clone()]);
        assert_eq!(one, [(Some(1), 13_000, Confidence::Certain)]);
        // As many, in other rounds: two, of which none is nearly all.
        let other = leak(2, 9000, [18, 12, 14], 1);
        let two = [
            (Some(1), 4000, Confidence::Likely),
            (Some(2), 9000, Confidence::Likely),
        ];
        assert_eq!(together(14_000, vec![object, other]), two);
        // Always as many proves nothing.
        let steady = |node, saved| leak(node, saved, [3, 3, 3], 10);
        let apart = together(16_000, vec![steady(1, 14_000), steady(2, 2000)]);
        assert_eq!(
            apart[0],
            (Some(1), 14_000, Confidence::Certain),
            "seven eighths"
        );
        assert_eq!(apart[1], (Some(2), 2000, Confidence::Likely));
    }

    #[test]
    fn a_leak_is_certain_if_it_is_what_live_memory_rose_by() {
        let of = |rise| together(rise, vec![leak(1, 8000, [6, 9, 7], 10)])[0].2;
        let rises = [7111, 7112, 9142, 9143].map(of);
        let (sure, not) = (Confidence::Certain, Confidence::Likely);
        assert_eq!(
            rises,
            [not, sure, sure, not],
            "7,112 and its eighth; 9,142 less its eighth"
        );
    }

    #[test]
    fn an_interpreters_functions_say_nothing_of_a_leak() {
        let python = together(
            400,
            vec![leak(5, 100, [1, 1, 1], 1), leak(6, 300, [2, 2, 2], 1)],
        );
        assert_eq!(python, [(Some(6), 400, Confidence::Certain)]);
        let mixed = together(
            400,
            vec![leak(4, 100, [1, 1, 1], 1), leak(6, 300, [2, 2, 2], 1)],
        );
        assert_eq!(mixed.len(), 2);
    }

    #[test]
    fn what_others_left_is_said() {
        let report = report();
        let leaks = vec![leak(1, 40_960, [6, 9, 7], 10), leak(2, 90, [12, 18, 14], 1)];
        let found = put_together(&report, &Naming::of(&report), leaks);
        let told = "blocks of f2 (90 bytes): 40.0 KiB are this function's own.";
        assert!(found[0].what.ends_with(told), "{}", found[0].what);
        assert_eq!(
            found[0].title,
            "Leaves 22 blocks a round, in 3 rounds of 'r'"
        );
    }
}
