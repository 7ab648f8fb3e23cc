//! Pairs of reports whose every row is written down by hand.
//!
//! T1  Each test checks every row, not only the sums: one row with everything in it would have the
//!     right sums.

use super::*;
use skinflint_analysis::model::Node;

/// Builds a report of stacks: innermost first, `module!function`, `~` before what is inlined; blocks of
/// 10 requested bytes, 16 usable.
fn report(exe: &str, stacks: &[(&[&str], u64)]) -> Report {
    let mut report = Report::default();
    report.program.name = exe.into();
    report.program.exe = format!("/opt/{exe}");
    report.completeness.complete = true;
    report.nodes.push(Node::default());
    report.frames.push(Frame::default());
    let mut at = Instant {
        label: "end".into(),
        ..Instant::default()
    };
    for (frames, blocks) in stacks {
        let mut parent = 0;
        for text in frames.iter().rev() {
            let inlined = text.starts_with('~');
            let (module, function) = text.trim_start_matches('~').split_once('!').unwrap();
            report.frames.push(Frame {
                function: function.into(),
                module: module.into(),
                inlined,
                ..Frame::default()
            });
            let frame = report.frames.len() as u32 - 1;
            report.nodes.push(Node { parent, frame });
            parent = report.nodes.len() as u32 - 1;
        }
        report.sites.push(Site {
            node: parent,
            allocations: blocks * 2,
            requested_bytes: blocks * 20,
            live_blocks: *blocks,
            live_requested_bytes: blocks * 10,
            live_usable_bytes: blocks * 16,
            ..Site::default()
        });
        at.live_blocks += blocks;
        at.live_requested_bytes += blocks * 10;
        at.live_usable_bytes += blocks * 16;
        report.totals.allocations += blocks * 2;
        report.totals.requested_bytes += blocks * 20;
    }
    report.instants.push(at);
    report
}

fn compare(a: &Report, b: &Report) -> Diff {
    let diff = Diff::new((a, "a.sft"), (b, "b.sft"), By::Bytes);
    diff.adds_up().unwrap();
    diff
}

/// Returns (innermost function, blocks before, blocks after, change) of each row.
fn rows(diff: &Diff) -> Vec<(&str, u64, u64, Change)> {
    diff.rows
        .iter()
        .map(|row| {
            let frame = row.frames[0].split(' ').next().unwrap();
            (frame, row.before.blocks, row.after.blocks, row.change)
        })
        .collect()
}

#[test]
fn what_grew_shrank_appeared_vanished_and_stayed() {
    let a = report(
        "app",
        &[
            (&["app!grow", "app!main"], 1),
            (&["app!shrink", "app!main"], 9),
            (&["app!vanish", "app!main"], 3),
            (&["app!stay", "app!main"], 5),
        ],
    );
    let b = report(
        "app",
        &[
            (&["app!grow", "app!main"], 8),
            (&["app!shrink", "app!main"], 4),
            (&["app!appear", "app!main"], 4),
            (&["app!stay", "app!main"], 5),
        ],
    );
    let diff = compare(&a, &b);
    let wanted = [
        ("grow", 1, 8, Change::Grew),
        ("shrink", 9, 4, Change::Shrank),
        ("appear", 0, 4, Change::Appeared),
        ("vanish", 3, 0, Change::Vanished),
        ("stay", 5, 5, Change::Same),
    ];
    assert_eq!(rows(&diff), wanted);
    assert_eq!(diff.rows[0].after.slop_bytes(), 8 * 6);
    assert!(diff.doubts.is_empty(), "{:?}", diff.doubts);
}

/// What a fork left is what the parent has; where the parent's trace is missing, nothing else is known of it.
#[test]
fn what_a_fork_left_is_matched_by_the_stack_that_acquired_it() {
    let marker = "![inherited from parent]";
    let parent = report("app", &[(&["app!load", "app!main"], 5)]);
    let copy = report(
        "app",
        &[
            (&["app!load", "app!main", marker], 5),
            (&["app!load", "app!main"], 2),
            (&[marker], 1),
        ],
    );
    let diff = compare(&parent, &copy);
    assert_eq!(
        rows(&diff),
        [
            ("load", 5, 7, Change::Grew),
            ("[inherited", 0, 1, Change::Appeared)
        ]
    );
    assert_eq!(diff.rows[0].frames, ["load (app)", "main (app)"]);
}

#[test]
fn long_names_are_cut_in_the_middle_unless_all_is_asked_for() {
    let long = "app!app::store::Cache<std::pair<long, std::basic_string<char> >, std::less<std::pair<long, long> > >::Index::Shard::fill(int)";
    let report = |blocks| report("app", &[(&[long, "app!main"], blocks)]);
    let diff = compare(&report(1), &report(3));
    let text = |frames| {
        let style = crate::diff_text::Style {
            rows: 9,
            frames,
            by: By::Bytes,
        };
        crate::diff_text::render(&diff, &style)
    };
    let cut = "app::store::Cache<…>::Index::Shard::fill (app) ←";
    assert!(text(1).contains(cut), "{}", text(1));
    assert!(text(0).contains(&long[4..]), "{}", text(0));
}

#[test]
fn versions_builds_and_addresses_do_not_part_stacks() {
    let a = report(
        "app",
        &[
            (&["libfoo.so.1.2!parse.constprop.0", "app!main"], 2),
            (&["libc.so.6!qsort@@GLIBC_2.2.5", "app!main"], 2),
            (&["app!core::run::h0123456789abcdef", "app!main"], 2),
            (&["![jit] 0x7f00", "app!main"], 2),
            (&["libbar.so!draw", "app!main"], 2),
        ],
    );
    // The program has another file name, other versions, other hashes, another address.
    let b = report(
        "app-2",
        &[
            (&["libfoo.so.1.3!parse", "app-2!main"], 3),
            (&["libc.so.6!qsort@GLIBC_2.34", "app-2!main"], 3),
            (&["app-2!core::run::hfedcba9876543210", "app-2!main"], 3),
            (&["![jit] 0x8888", "app-2!main"], 3),
            (&["libbar.so.2!draw", "app-2!main"], 3),
        ],
    );
    let diff = compare(&a, &b);
    assert_eq!(diff.rows.len(), 5);
    assert!(
        diff.rows
            .iter()
            .all(|row| (row.before.blocks, row.after.blocks) == (2, 3))
    );
    assert!(diff.rows.iter().all(|row| row.matched == Matched::Frames));
    // The names of the programs differ, and nothing else raises a doubt.
    assert_eq!(diff.doubts.len(), 1, "{:?}", diff.doubts);
}

#[test]
fn what_one_build_inlined_and_the_other_did_not_see() {
    let a = report(
        "app",
        &[
            (&["~app!tiny", "app!work", "app!main"], 2),
            (&["app!other", "app!main"], 1),
        ],
    );
    let b = report(
        "app",
        &[
            (&["app!work", "app!main"], 7),
            (&["app!other", "app!main"], 1),
        ],
    );
    let diff = compare(&a, &b);
    assert_eq!(rows(&diff)[0], ("work", 2, 7, Change::Grew));
    assert_eq!(diff.rows[0].matched, Matched::NotInlined);
    assert_eq!(diff.rows[1].matched, Matched::Frames);
    assert_eq!(diff.rows.len(), 2);
}

#[test]
fn frames_without_names_are_left_out_last() {
    let a = report(
        "app",
        &[(&["app!work", "libx.so!libx.so+0x10", "app!main"], 2)],
    );
    let b = report(
        "app",
        &[(&["app!work", "libx.so!libx.so+0x99", "app!main"], 3)],
    );
    let diff = compare(&a, &b);
    assert_eq!(rows(&diff), [("work", 2, 3, Change::Grew)]);
    assert_eq!(diff.rows[0].matched, Matched::Named);
}

#[test]
fn stacks_of_nothing_but_unnamed_frames_stay_apart() {
    let a = report("app", &[(&["libx.so!libx.so+0x10"], 2)]);
    let b = report("app", &[(&["libx.so!libx.so+0x99"], 3)]);
    assert_eq!(compare(&a, &b).rows.len(), 2);
}

#[test]
fn a_weaker_key_never_takes_a_partner_away() {
    // Both have `work` as it is; A also has it inlined once more: that joins, and the pair stays a pair.
    let a = report(
        "app",
        &[
            (&["app!work", "app!main"], 5),
            (&["~app!tiny", "app!work", "app!main"], 1),
        ],
    );
    let b = report("app", &[(&["app!work", "app!main"], 5)]);
    let diff = compare(&a, &b);
    assert_eq!(rows(&diff), [("work", 6, 5, Change::Shrank)]);
    // If only one side has anything for a key, its rows stay as they are.
    let b = report("app", &[(&["app!else", "app!main"], 5)]);
    assert_eq!(compare(&a, &b).rows.len(), 3);
}

#[test]
fn unrelated_programs_are_doubted() {
    let a = report("app", &[(&["app!work", "app!main"], 5)]);
    let b = report("tool", &[(&["tool!think", "tool!start"], 5)]);
    let diff = compare(&a, &b);
    assert_eq!(diff.rows.len(), 2);
    assert!(
        diff.doubts[0].starts_with("only 0% of all bytes allocated"),
        "{:?}",
        diff.doubts
    );
}

#[test]
fn sums_that_are_wrong_are_found() {
    let a = report("app", &[(&["app!work", "app!main"], 5)]);
    let mut diff = compare(&a, &a);
    diff.rows[0].after.blocks += 1;
    assert!(diff.adds_up().is_err());
}

/// Adds what each stack pins: (the node's place among the sites, free bytes, sole pages).
fn pinning(mut report: Report, pins: &[(usize, u64, u64)]) -> Report {
    let mut fragments = Fragments::default();
    for &(site, free_bytes, sole_pages) in pins {
        fragments.pinned_bytes += free_bytes;
        fragments.pins.push(Pins {
            node: Some(report.sites[site].node),
            free_bytes,
            sole_pages,
            ..Pins::default()
        });
    }
    report.instants[0].fragments = Some(fragments);
    report
}

#[test]
fn what_blocks_pin_is_a_figure_of_a_row() {
    let stacks: [(&[&str], u64); 2] = [
        (&["app!parse", "app!main"], 4),
        (&["app!load", "app!main"], 2),
    ];
    let a = pinning(report("app", &stacks), &[(0, 3000, 1), (1, 500, 0)]);
    let b = pinning(report("app", &stacks), &[(0, 70_000, 9)]);
    let diff = Diff::new((&a, "a.sft"), (&b, "b.sft"), By::Pinned);
    diff.adds_up().unwrap();
    let rows: Vec<_> = diff
        .rows
        .iter()
        .map(|row| {
            (
                row.before.pinned_bytes,
                row.after.pinned_bytes,
                row.after.sole_pages,
            )
        })
        .collect();
    assert_eq!(rows, [(3000, 70_000, 9), (500, 0, 0)]);
    assert_eq!(diff.before.total.pinned_bytes, 3500);
    assert!(diff.before.pins_known && diff.after.pins_known);
}

#[test]
fn pins_of_one_side_alone_are_no_difference() {
    let stacks: [(&[&str], u64); 1] = [(&["app!parse", "app!main"], 4)];
    let a = pinning(report("app", &stacks), &[(0, 3000, 1)]);
    let b = report("app", &stacks);
    let diff = compare(&a, &b);
    assert!(!diff.before.pins_known && !diff.after.pins_known);
    assert_eq!(diff.rows[0].before.pinned_bytes, 0);
}
