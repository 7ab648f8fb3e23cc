//! After frames have names: one finding for one cause, and which functions hold most.
//!
//! ```text
//!   finding  kind, stack ──► function that names the stack (plumbing.rs) ──► same kind and function
//!                                                                           (and title): one finding
//! ```
//!
//! U1  Findings of one kind, function and cause become one (`merging.rs`).
//! U2  At most `Limits::findings_per_kind` of a kind stay; the rest is summed up in one more.
//! U3  Order: by what is saved now, then over the run, then by what is held; sums of the rest come last.
//! U4  Advice is for readers who can follow it: a runtime that is known to grow its buffers well is not told to
//!     double, what a library of the system allocates for itself is not called churn, and sizes that a library or
//!     runtime chose (`owner.rs`) are not told to be smaller. A script's objects are not told to be put elsewhere, or
//!     to be kept, either.
//! U5  A holder that another finding would shrink by half or more is not reported twice.
//! U7  No trace shows a copy. Growth by allocating and releasing is certain only where a function is known to move the
//!     content of a container; a text that is made anew each time, a little longer, looks the same.
//! U6  What pins free memory in the program's exit stays a row, and gives no advice: all of it goes a moment later.
//!
//! Not here: what makes a finding (`findings.rs`, the passes).

use rustc_hash::{FxHashMap, FxHashSet};

use crate::books::{has_names, largest_parts};
use crate::claims;
use crate::facts::Limits;
use crate::fragments;
use crate::fragments::functions::Pinned;
use crate::frames::Renamed;
use crate::heaps;
use crate::known::{copies_to_grow, known_growth};
use crate::makers;
use crate::mappers::{self, WORTH_BYTES};
use crate::merging::{merge, more_nodes};
use crate::model::{BookPart, Confidence, Finding, FindingKind, Growth, HOLDER_CHANGE, Report};
use crate::owner;
use crate::passes::clownshoes::MIN_BASE;
use crate::passes::ranking::ranked;
use crate::passes::wording::{bytes, count, percent};
use crate::plumbing::{Naming, inner_frames};
use crate::{through, together};

/// Merges findings and parts, adds the holders, and ranks all of it.
pub(crate) fn settle(report: &mut Report, limits: &Limits, pinned: Option<Pinned<'_>>) {
    let naming = Naming::of(report);
    let plumbing = naming.plumbing.iter().enumerate();
    report.plumbing = plumbing
        .filter(|(_, is)| **is)
        .map(|(frame, _)| frame as u32)
        .collect();
    let mapped = mappers::findings(report, &naming);
    report.through = through::of(report, &naming);
    report.own_heaps = heaps::found(report, &naming);
    heaps::say_unseen(report);
    name_parts(report, &naming, limits.parts);
    let mut found = std::mem::take(&mut report.findings);
    found.retain(|one| !is_out_of_reach(report, &naming, one));
    if let Some(pinned) = &pinned {
        found.retain_mut(|one| leave_to_libraries(report, &naming, pinned.renamed, one));
    }
    claims::settle(&mut found, &std::mem::take(&mut report.in_growth));
    claims::settle_calls(report, &mut found);
    for one in &mut found {
        match one.kind {
            FindingKind::Growth => {
                doubt_copies(report, &naming, one);
                leave_to_runtime(report, &naming, one);
            }
            FindingKind::Churn => leave_churn_to_interpreter(report, &naming, one),
            _ => {}
        }
    }
    let found = merge(report, &naming, found);
    report.findings = together::put_together(report, &naming, found);
    if let Some(pinned) = &pinned {
        let found = fragments::functions::add(report, &naming, pinned);
        // In the exit it gives no advice (U6).
        let found = found.into_iter().filter(|_| !pinned.in_exit);
        let found: Vec<Finding> = found
            .map(|one| leave_to_interpreter(report, &naming, one))
            .collect();
        report.findings.extend(found);
    }
    drop_shoes_of_growth(report, &naming);
    let mut held = holders(report, &naming);
    held.extend(mapped);
    report.findings.extend(held);
    let mut by_kind: Vec<(FindingKind, Vec<Finding>)> = Vec::new();
    for finding in std::mem::take(&mut report.findings) {
        match by_kind.iter_mut().find(|(kind, _)| *kind == finding.kind) {
            Some((_, same)) => same.push(finding),
            None => by_kind.push((finding.kind, vec![finding])),
        }
    }
    for (_, same) in by_kind {
        report
            .findings
            .extend(ranked(same, limits.findings_per_kind.max(1)));
    }
    report.findings.sort_by_key(|finding| {
        let size = (
            finding.saved_bytes,
            finding.saved_cumulative_bytes,
            finding.saved_allocations,
            finding.now_bytes,
        );
        (finding.is_rest(), std::cmp::Reverse(size))
    });
}

/// Libraries of every system: a program cannot change their own short-lived blocks.
const SYSTEM: [&str; 8] = [
    "libc.so",
    "libc-2.",
    "ld-linux",
    "ld-2.",
    "libstdc++.so",
    "libpthread",
    "libdl.so",
    "libresolv",
];

/// Returns how the runtime that grows a buffer at a node is known to do it.
fn known_at(report: &Report, naming: &Naming, node: Option<u32>) -> Option<&'static str> {
    inner_frames(report, naming, node?)
        .find_map(|frame| known_growth(&frame.function, &frame.module))
}

/// Reports whether a finding is churn of a library, or of buffers whose room is a runtime's own (U4).
fn is_out_of_reach(report: &Report, naming: &Naming, finding: &Finding) -> bool {
    match finding.kind {
        FindingKind::Churn => {
            let named = finding
                .node
                .and_then(|node| inner_frames(report, naming, node).last());
            named.is_some_and(|frame| SYSTEM.iter().any(|of| frame.module.starts_with(of)))
        }
        FindingKind::Slop | FindingKind::Clownshoes => {
            // Short ones are judged as slop is: no capacity is rounded there.
            let short = finding.claims.iter().all(|one| one.key.size < MIN_BASE);
            let kind = if short {
                FindingKind::Slop
            } else {
                finding.kind
            };
            let elsewhere = |node| is_sized_elsewhere(report, naming, kind, node);
            finding.node.is_some_and(elsewhere)
        }
        FindingKind::Growth if finding.now_bytes > 0 => {
            known_at(report, naming, finding.node).is_some()
        }
        _ => false,
    }
}

/// Reports whether a library chose what a node asks for: the sizes of its own types are not the program's.
fn is_sized_elsewhere(report: &Report, naming: &Naming, kind: FindingKind, node: u32) -> bool {
    let inner = || inner_frames(report, naming, node);
    let named = inner().last();
    named.is_some_and(|frame| SYSTEM.iter().any(|of| frame.module.starts_with(of)))
        || owner::is_not_the_owners(kind, inner())
}

/// Removes from a finding of one size from many stacks what libraries request; returns whether it is still a finding.
fn leave_to_libraries(
    report: &Report,
    naming: &Naming,
    renamed: &Renamed,
    finding: &mut Finding,
) -> bool {
    if finding.kind != FindingKind::Slop || finding.more_nodes.is_empty() {
        return true;
    }
    let before = finding.blocks;
    let elsewhere =
        |node: u32| is_sized_elsewhere(report, naming, FindingKind::Slop, renamed.of(node));
    finding.claims.retain(|claim| {
        let stays = !elsewhere(claim.key.node.0);
        if !stays {
            finding.saved_bytes = finding.saved_bytes.saturating_sub(claim.bytes);
            finding.blocks = finding.blocks.saturating_sub(claim.blocks);
        }
        stays
    });
    finding.blocks * 2 >= before
}

/// Leaves to a runtime what it does well (U4).
fn leave_to_runtime(report: &Report, naming: &Naming, growth: &mut Finding) {
    if let Some(words) = known_at(report, naming, growth.node) {
        growth.change = format!(
            "{words}, and no program can change that. Where the final length is known, ask for it at once."
        );
        growth.confidence = Confidence::Possible;
        (growth.saved_cumulative_bytes, growth.saved_allocations) = (0, 0);
        growth.growth_what_if = None;
    }
}

/// Doubts that a buffer which grows by hand is copied, unless a frame is a container's that copies (U7).
fn doubt_copies(report: &Report, naming: &Naming, growth: &mut Finding) {
    let is_own =
        |row: &Growth| row.by_hand && Some(row.node) == growth.node && row.steps == growth.blocks;
    let by_hand = report.growth.iter().any(is_own);
    let copies = |node| inner_frames(report, naming, node).any(|one| copies_to_grow(&one.function));
    if by_hand && !growth.node.is_some_and(copies) {
        growth.confidence = growth.confidence.max(Confidence::Likely);
    }
}

/// Removes the advice to keep blocks that an interpreter makes and drops by itself: no script can (U4).
fn leave_churn_to_interpreter(report: &Report, naming: &Naming, churn: &mut Finding) {
    if owner::is_interpreters(report, naming, churn) {
        churn.change = "Nothing to keep: the interpreter makes and drops these by itself. In the script, move what makes \
                        them out of the loop that runs most often."
            .into();
        churn.confidence = Confidence::Possible;
        (churn.saved_cumulative_bytes, churn.saved_allocations) = (0, 0);
    }
}

/// Removes the advice about where an interpreter's objects lie, which no script decides (U4).
fn leave_to_interpreter(report: &Report, naming: &Naming, mut pinned: Finding) -> Finding {
    if owner::is_interpreters(report, naming, &pinned) {
        pinned.saved_bytes = 0;
        pinned.confidence = Confidence::Possible;
        pinned.change = "Nothing to move: the interpreter decides where its objects lie. Make what is to stay before what \
                         is soon gone, or keep it in few large objects."
            .into();
    }
    pinned
}

/// The figures of the live blocks of one function.
#[derive(Default)]
struct Held {
    nodes: Vec<(u64, u32)>,
    resident: u64,
    usable: u64,
    blocks: u64,
    /// The smallest and the largest block; `None` if that of a stack is not known.
    sizes: Option<(u64, u64)>,
    /// What it is made of, if a script made it.
    made: makers::Sums,
}

/// Removes findings on odd sizes of growing buffers. A buffer that grows passes through every size, and so through a
/// few that are a little too large: that is one cause, reported as growth, unless its blocks waste memory at the
/// instant.
fn drop_shoes_of_growth(report: &mut Report, naming: &Naming) {
    let function = |one: &Finding| one.node.and_then(|node| naming.function_of(report, node));
    let grows: FxHashSet<u32> = report
        .findings
        .iter()
        .filter(|one| one.kind == FindingKind::Growth)
        .filter_map(function)
        .collect();
    let keep: Vec<bool> = report
        .findings
        .iter()
        .map(|one| {
            one.kind != FindingKind::Clownshoes
                || one.saved_bytes > 0
                || function(one).is_none_or(|function| !grows.contains(&function))
        })
        .collect();
    let mut keep = keep.into_iter();
    report.findings.retain(|_| keep.next().unwrap_or(true));
}

/// Returns functions with a twentieth of the live heap or more, over all of their stacks.
fn holders(report: &Report, naming: &Naming) -> Vec<Finding> {
    let mut by_function: FxHashMap<u32, Held> = FxHashMap::default();
    let (mut total, mut lines) = (0u64, makers::Lines::default());
    for site in report.sites.iter().filter(|site| site.live_blocks > 0) {
        let Some(function) = naming
            .function_of(report, site.node)
            .filter(|_| site.node != 0)
        else {
            continue;
        };
        let resident = site.live_resident_bytes.unwrap_or(site.live_usable_bytes);
        let held = by_function.entry(function).or_default();
        held.sizes = match (held.blocks, held.sizes, site.live_sizes) {
            (0, _, sizes) => sizes,
            (_, Some(one), Some(other)) => Some((one.0.min(other.0), one.1.max(other.1))),
            _ => None,
        };
        held.nodes.push((resident, site.node));
        held.made.add(report, site, resident, &mut lines);
        held.resident = held.resident.saturating_add(resident);
        held.usable = held.usable.saturating_add(site.live_usable_bytes);
        held.blocks += site.live_blocks;
        total = total.saturating_add(resident);
    }
    let books = report
        .instants
        .get(report.at)
        .and_then(|one| one.books.as_ref());
    let least = WORTH_BYTES.max(books.map_or(0, |books| books.resident_bytes / 100));
    let large = |held: &Held| held.resident >= least && held.resident >= total / 20;
    let saved = saved_by_function(report, naming);
    let mut found: Vec<Finding> = by_function
        .into_iter()
        .filter(|(function, held)| {
            large(held) && saved.get(function).copied().unwrap_or(0) < held.resident / 2
        })
        .map(|(_, held)| holder(held, total, &lines))
        .collect();
    found.sort_by_key(|finding| (std::cmp::Reverse(finding.now_bytes), finding.node));
    found
}

/// Returns by function the most that one finding would save of it.
fn saved_by_function(report: &Report, naming: &Naming) -> FxHashMap<u32, u64> {
    let mut saved: FxHashMap<u32, u64> = FxHashMap::default();
    for finding in &report.findings {
        let function = finding
            .node
            .and_then(|node| naming.function_of(report, node));
        let beside = matches!(finding.kind, FindingKind::Retained | FindingKind::Pinned);
        if let Some(function) = function.filter(|_| !beside) {
            let most = saved.entry(function).or_default();
            *most = (*most).max(finding.saved_bytes);
        }
    }
    saved
}

fn holder(mut held: Held, total: u64, lines: &makers::Lines) -> Finding {
    let made = held.made.said(held.resident, lines);
    held.nodes
        .sort_unstable_by_key(|&(bytes, node)| (std::cmp::Reverse(bytes), node));
    let stacks = held.nodes.len() as u64;
    let blocks = match (held.blocks, held.sizes) {
        (1, _) => format!("one block of {}", bytes(held.usable)),
        (many, Some((least, most))) if least == most => {
            format!("{} of {}", count(many, "block"), bytes(most))
        }
        // An average of sizes that differ by more than a quarter is the size of no block.
        (many, Some((least, most))) if most > least.saturating_add(least / 4) => {
            let blocks = count(many, "block");
            format!("{blocks} of {} to {}", bytes(least), bytes(most))
        }
        (many, _) => {
            let size = held.usable / many.max(1);
            format!("{} of about {}", count(many, "block"), bytes(size))
        }
    };
    Finding {
        kind: FindingKind::Holder,
        title: format!(
            "{} % of resident live blocks: {blocks}{}",
            percent(held.resident, total),
            made.as_ref().map_or("", |made| &made.short)
        ),
        what: format!(
            "{} given to the blocks of this function, from {}; {} of it resident.{}",
            bytes(held.usable),
            count(stacks, "stack"),
            bytes(held.resident),
            made.as_ref().map_or("", |made| &made.long)
        ),
        change: format!(
            "{HOLDER_CHANGE} {}",
            made.as_ref().map_or("", |made| made.change)
        )
        .trim_end()
        .into(),
        now_bytes: held.resident,
        blocks: held.blocks,
        confidence: Confidence::Certain,
        node: held.nodes.first().map(|(_, node)| *node),
        more_nodes: more_nodes(&held.nodes),
        stacks,
        ..Finding::default()
    }
}

/// Names parts of the books that are stacks by their function; parts with the same name become one.
fn name_parts(report: &mut Report, naming: &Naming, limit: usize) {
    let mut instants = std::mem::take(&mut report.instants);
    for row in instants
        .iter_mut()
        .filter_map(|one| one.books.as_mut())
        .flat_map(|books| &mut books.rows)
    {
        let mut at: FxHashMap<String, usize> = FxHashMap::default();
        let mut parts: Vec<BookPart> = Vec::with_capacity(row.parts.len());
        for mut part in std::mem::take(&mut row.parts) {
            let by_stack = part.node.filter(|_| !has_names(&row.id));
            if let Some(node) = by_stack.filter(|node| *node != 0) {
                let named = naming
                    .named
                    .get(node as usize)
                    .and_then(|named| report.nodes.get(*named as usize));
                if let Some(frame) = named.and_then(|named| report.frames.get(named.frame as usize))
                {
                    part.name.clone_from(&frame.function);
                }
            }
            match at.get(&part.name).filter(|_| part.node.is_some()) {
                Some(&index) => parts[index].bytes += part.bytes,
                None => {
                    at.insert(part.name.clone(), parts.len());
                    parts.push(part);
                }
            }
        }
        row.parts = largest_parts(parts, limit);
    }
    report.instants = instants;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Frame, Node, Site};

    /// Two stacks of `parse` (nodes 2, 3) and one of `load` (node 5), below `main` (nodes 1, 4).
    fn report() -> Report {
        let frame = |function: &str, line| Frame {
            function: function.into(),
            line: Some(line),
            ..Frame::default()
        };
        let node = |parent, frame| Node { parent, frame };
        Report {
            frames: vec![
                Frame::default(),
                frame("main", 1),
                frame("parse", 7),
                frame("parse", 9),
                frame("load", 3),
            ],
            nodes: vec![
                node(0, 0),
                node(0, 1),
                node(1, 2),
                node(1, 3),
                node(0, 1),
                node(4, 4),
            ],
            ..Report::default()
        }
    }

    fn finding(kind: FindingKind, node: u32, saved_bytes: u64, title: &str) -> Finding {
        Finding {
            kind,
            node: Some(node),
            saved_bytes,
            blocks: 1,
            title: title.into(),
            what: "Seen.".into(),
            ..Finding::default()
        }
    }

    #[test]
    fn one_cause_at_two_stacks_of_a_function_is_one_finding() {
        let mut one = report();
        one.findings = vec![
            finding(FindingKind::Slop, 2, 10, "64"),
            finding(FindingKind::Slop, 3, 30, "64"),
            finding(FindingKind::Slop, 5, 20, "64"),
            // Another size is another change to make.
            finding(FindingKind::Slop, 2, 15, "48"),
            finding(FindingKind::Clownshoes, 2, 1, "1,025"),
            finding(FindingKind::Clownshoes, 3, 2, "2,049"),
        ];
        settle(&mut one, &Limits::default(), None);
        let got: Vec<_> = one
            .findings
            .iter()
            .map(|f| (f.title.as_str(), f.saved_bytes, f.blocks, f.stacks))
            .collect();
        assert_eq!(
            got,
            [
                ("64", 40, 2, 2),
                ("64", 20, 1, 1),
                ("48", 15, 1, 1),
                ("2,049", 2, 1, 1),
                ("1,025", 1, 1, 1)
            ]
        );
        assert_eq!(
            (one.findings[0].node, one.findings[0].more_nodes.as_slice()),
            (Some(3), &[2][..])
        );
        assert_eq!(
            one.findings[0].what,
            "From 2 stacks together; of the largest: Seen."
        );
    }

    #[test]
    fn the_least_sure_part_that_matters_decides() {
        let of = |kind, second: u64, confidence| {
            let mut one = report();
            let part = |node, saved, confidence| Finding {
                confidence,
                ..finding(kind, node, saved, "64")
            };
            one.findings = vec![
                part(2, 800, Confidence::Certain),
                part(3, second, confidence),
            ];
            settle(&mut one, &Limits::default(), None);
            one.findings[0].confidence
        };
        let (sure, possible) = (Confidence::Certain, Confidence::Possible);
        assert_eq!(of(FindingKind::Slop, 100, possible), sure);
        assert_eq!(of(FindingKind::Slop, 101, possible), possible);
        assert_eq!(of(FindingKind::Slop, 101, sure), sure);
        // Which temporaries of a function can be spared is not known.
        assert_eq!(of(FindingKind::Churn, 100, sure), sure);
        assert_eq!(of(FindingKind::Churn, 101, sure), Confidence::Likely);
    }

    #[test]
    fn what_a_runtime_grows_is_not_promised() {
        let mut one = report();
        one.frames[2].module = "it".into();
        let mut grown = finding(FindingKind::Growth, 2, 0, "grows");
        (grown.saved_cumulative_bytes, grown.saved_allocations) = (1 << 20, 100);
        let mut script = one.clone();
        script.frames[2].function = "PyByteArray_Resize".into();
        script.frames[2].module = "python3.11".into();
        let saved = |mut one: Report| {
            one.findings = vec![grown.clone()];
            settle(&mut one, &Limits::default(), None);
            let found = &one.findings[0];
            (found.saved_cumulative_bytes, found.saved_allocations)
        };
        assert_eq!(saved(one), (1 << 20, 100));
        assert_eq!(saved(script), (0, 0));
    }

    #[test]
    fn a_script_cannot_keep_what_its_interpreter_drops() {
        let mut one = report();
        let mut churn = finding(FindingKind::Churn, 2, 0, "churns");
        (churn.saved_cumulative_bytes, churn.saved_allocations) = (1 << 20, 100_000);
        churn.confidence = Confidence::Certain;
        churn.change = "Keep released blocks in a list.".into();
        let settled = |mut one: Report| {
            one.findings = vec![churn.clone()];
            settle(&mut one, &Limits::default(), None);
            let found = &one.findings[0];
            assert_eq!(
                found.change.contains("in a list"),
                found.saved_allocations > 0
            );
            (found.confidence, found.saved_allocations)
        };
        assert_eq!(settled(one.clone()), (Confidence::Certain, 100_000));
        for module in ["python3.13", "libpython3.13.so.1.0", "[python]", "libR.so"] {
            one.frames[2].module = module.into();
            assert_eq!(settled(one.clone()), (Confidence::Possible, 0), "{module}");
        }
    }

    #[test]
    fn a_script_cannot_move_its_objects() {
        let mut one = report();
        let naming = Naming::of(&one);
        let pinned = finding(FindingKind::Pinned, 2, 1000, "pins");
        assert_eq!(
            leave_to_interpreter(&one, &naming, pinned.clone()).saved_bytes,
            1000
        );
        one.frames[2].module = "python3.11".into();
        assert_eq!(leave_to_interpreter(&one, &naming, pinned).saved_bytes, 0);
    }

    #[test]
    fn a_growing_buffer_is_no_clownshoe_unless_it_wastes_now() {
        let mut one = report();
        let mut shoe = finding(FindingKind::Clownshoes, 3, 0, "57,346");
        shoe.saved_cumulative_bytes = 1 << 30;
        one.findings = vec![
            finding(FindingKind::Growth, 2, 0, "grows"),
            shoe.clone(),
            finding(FindingKind::Clownshoes, 3, 7, "1,025"),
            Finding {
                node: Some(5),
                ..shoe
            },
        ];
        settle(&mut one, &Limits::default(), None);
        let got: Vec<_> = one
            .findings
            .iter()
            .map(|f| (f.title.as_str(), f.node))
            .collect();
        assert_eq!(
            got,
            [("1,025", Some(3)), ("57,346", Some(5)), ("grows", Some(2))]
        );
    }

    #[test]
    fn a_holder_is_a_function_with_all_its_stacks_and_only_what_is_resident() {
        let mut one = report();
        let site = |node, live_usable_bytes, resident| Site {
            node,
            live_blocks: 2,
            live_usable_bytes,
            live_resident_bytes: Some(resident),
            ..Site::default()
        };
        one.sites = vec![
            site(2, 200_000, 100_000),
            site(3, 50_000, 50_000),
            site(5, 9_000_000, 0),
        ];
        settle(&mut one, &Limits::default(), None);
        assert_eq!(one.findings.len(), 1, "{:#?}", one.findings);
        let held = &one.findings[0];
        assert_eq!(
            (
                held.kind,
                held.node,
                held.now_bytes,
                held.blocks,
                held.stacks
            ),
            (FindingKind::Holder, Some(2), 150_000, 4, 2)
        );
        assert_eq!(
            held.title,
            "100 % of resident live blocks: 4 blocks of about 61.0 KiB"
        );
        // The sizes are known: all the same, or an average that no block has.
        let title = |sizes: [(u64, u64); 2]| {
            one.findings.clear();
            let own = one.sites.iter_mut().zip(sizes);
            own.for_each(|(site, sizes)| site.live_sizes = Some(sizes));
            settle(&mut one, &Limits::default(), None);
            one.findings[0].title.clone()
        };
        let mut title = title;
        let of = |text: &str| format!("100 % of resident live blocks: 4 blocks of {text}");
        assert_eq!(title([(61_440, 61_440); 2]), of("60.0 KiB"));
        assert_eq!(
            title([(61_440, 61_440), (50_000, 61_440)]),
            of("about 61.0 KiB")
        );
        assert_eq!(
            title([(1000, 190_000), (8, 50_000)]),
            of("8 bytes to 186 KiB")
        );
    }

    #[test]
    fn what_another_finding_would_give_back_is_not_told_twice() {
        let mut one = report();
        one.sites = vec![Site {
            node: 5,
            live_blocks: 1,
            live_usable_bytes: 100_000,
            ..Site::default()
        }];
        one.findings = vec![finding(FindingKind::Zombie, 5, 50_000, "outlives")];
        settle(&mut one, &Limits::default(), None);
        assert_eq!(one.findings.len(), 1);
        one.findings[0].saved_bytes = 49_999;
        settle(&mut one, &Limits::default(), None);
        assert_eq!(one.findings.len(), 2);
    }
}
