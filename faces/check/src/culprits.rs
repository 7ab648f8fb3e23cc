//! Culprits: the stacks that made a figure what it is.
//!
//! ```text
//!   sites ─► (node, value) ─┬─► largest first
//!                           └─ with a baseline: export::diff ─► largest growth first ─► one row a heading
//! ```
//!
//! U1  A culprit is called by the user's function: the innermost one whose source lies in the program's working folder; if
//!     none does, the innermost one of the executable that has a source line; else what a report heads the stack by.
//! U2  Culprits and `others` add up to the figure of the kind, or to its growth where there is a baseline; of resident
//!     memory to the live bytes. Of a phase's peak they are the bytes acquired in it, which may be more.

use std::collections::BTreeMap;

use skinflint_analysis::model::{
    Frame, InstantKind, Report, Site, WindowCell, WindowEdge, Windows,
};
use skinflint_export::diff::{By, Diff};
use skinflint_view::stack::{heading, is_unnamed, place, short_name};

use crate::budget::{Kind, Within};
use crate::figures::{growth, is_on};
use crate::phase;

/// The most that are listed.
const LISTED: usize = 5;
/// The most functions of a stack that are named.
const FRAMES: usize = 6;

/// A stack, or several that end alike, and what they have of a figure.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Culprit {
    /// The user's function (U1).
    pub function: String,
    /// Its source file, relative to the program's working folder if it lies there.
    pub file: Option<String>,
    /// Its line.
    pub line: Option<u32>,
    /// The stack: functions from the innermost outwards, each with its source line or module.
    pub frames: Vec<String>,
    /// What they have of the figure.
    pub value: u64,
    /// The same in the baseline.
    pub before: Option<u64>,
    /// Stacks.
    pub stacks: u64,
}

impl Culprit {
    /// Returns what counts against it.
    pub fn weight(&self) -> u64 {
        self.value.saturating_sub(self.before.unwrap_or(0))
    }
}

/// The largest culprits, and the rest in figures.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Culprits {
    /// The largest, first the one that counts most.
    pub largest: Vec<Culprit>,
    /// Stacks that are not listed.
    pub other_stacks: u64,
    /// What counts against them.
    pub other_weight: u64,
}

/// Finds them.
pub fn culprits(report: &Report, baseline: Option<&Report>, kind: &Kind) -> Culprits {
    let rows: Vec<(u32, u64, Option<u64>, u64)> = match baseline {
        None => values(report, kind)
            .into_iter()
            .map(|(node, value)| (node, value, None, 1))
            .collect(),
        Some(baseline) => grown(report, baseline, kind),
    };
    // By the user's function: a hundred stacks that end in one function are one thing to change.
    let mut by_heading: BTreeMap<(String, Option<String>), (u64, u32, Culprit)> = BTreeMap::new();
    for (node, value, before, stacks) in rows {
        let weight = value.saturating_sub(before.unwrap_or(0));
        if weight == 0 {
            continue;
        }
        let found = named(report, node);
        let key = (found.function.clone(), found.file.clone());
        let (largest, of, sum) = by_heading.entry(key).or_insert((0, node, found));
        sum.value += value;
        sum.before = before.map(|before| sum.before.unwrap_or(0) + before);
        sum.stacks += stacks;
        if weight > *largest {
            (*largest, *of) = (weight, node);
        }
    }
    let mut all: Vec<Culprit> = by_heading
        .into_values()
        .map(|(_, node, sum)| Culprit {
            value: sum.value,
            before: sum.before,
            stacks: sum.stacks,
            ..named(report, node)
        })
        .collect();
    all.sort_by(|a, b| {
        let names = || (&a.function, &a.frames).cmp(&(&b.function, &b.frames));
        b.weight().cmp(&a.weight()).then_with(names)
    });
    let others = all.split_off(all.len().min(LISTED));
    Culprits {
        largest: all,
        other_stacks: others.iter().map(|one| one.stacks).sum(),
        other_weight: others.iter().map(Culprit::weight).sum(),
    }
}

/// Returns what each stack has of a figure.
fn values(report: &Report, kind: &Kind) -> Vec<(u32, u64)> {
    let of = |value: fn(&Site) -> u64| {
        report
            .sites
            .iter()
            .map(|site| (site.node, value(site)))
            .collect()
    };
    match kind {
        Kind::PeakLive | Kind::PeakRss => of(|site| site.heap_peak_usable_bytes),
        Kind::PeakBlocks => of(|site| site.heap_peak_blocks),
        Kind::PeakSlop => of(|site| {
            site.heap_peak_usable_bytes
                .saturating_sub(site.heap_peak_requested_bytes)
        }),
        Kind::LiveAtEnd => of(|site| site.end_usable_bytes),
        Kind::BlocksAtEnd => of(|site| site.end_blocks),
        Kind::SlopAtEnd => of(|site| {
            site.end_usable_bytes
                .saturating_sub(site.end_requested_bytes)
        }),
        Kind::Allocations => of(|site| site.allocations),
        // Calls of read and write have no stack here.
        Kind::BytesRead | Kind::BytesWritten => Vec::new(),
        Kind::PinnedAtEnd => {
            let end = report
                .instants
                .iter()
                .find(|one| one.kind == InstantKind::End);
            let pages = end.and_then(|one| one.fragments.as_ref());
            let pins = pages.map_or(&[][..], |pages| &pages.pins).iter();
            pins.filter_map(|one| Some((one.node?, one.free_bytes)))
                .collect()
        }
        Kind::Stack(pattern) => report
            .sites
            .iter()
            .filter(|site| is_on(report, site.node, pattern))
            .map(|site| (site.node, site.heap_peak_usable_bytes))
            .collect(),
        Kind::GrowthPer(mark) => growth(report, mark)
            .map(|growth| between(report, growth.between, left))
            .unwrap_or_default(),
        Kind::Phase(name, within) => {
            let weigh = match within {
                Within::Growth => left,
                Within::PeakLive => asked,
                Within::Allocations => made,
            };
            phase::worst(report, name, *within)
                .map(|(round, _)| between(report, (round.begin, round.end), weigh))
                .unwrap_or_default()
        }
    }
}

/// What a change of a cell weighs: of blocks acquired and released.
type Weigh = fn(&WindowCell, i128, i128) -> i128;

fn left(cell: &WindowCell, more: i128, less: i128) -> i128 {
    (more - less) * i128::from(cell.usable)
}

fn asked(cell: &WindowCell, more: i128, _less: i128) -> i128 {
    more * i128::from(cell.usable)
}

fn made(cell: &WindowCell, more: i128, _less: i128) -> i128 {
    more * i128::from(cell.blocks)
}

/// Returns what each stack did between two marks.
fn between(report: &Report, marks: (usize, usize), weigh: Weigh) -> Vec<(u32, u64)> {
    let Some(windows) = &report.windows else {
        return Vec::new();
    };
    let from = edge_of(report, windows, marks.0);
    let to = edge_of(report, windows, marks.1);
    let ends = &windows.bucket_ends;
    let change = |edge: usize| match edge {
        0 => 0,
        _ => ends.get(edge - 1).copied().unwrap_or(0) as usize,
    };
    let mut by_site: BTreeMap<u32, i128> = BTreeMap::new();
    for at in change(from)..change(to) {
        let (Some(cell), Some(more), Some(less)) = (
            windows.changed_cell.get(at),
            windows.acquired.get(at),
            windows.released.get(at),
        ) else {
            break;
        };
        let Some(cell) = windows.cells.get(*cell as usize) else {
            continue;
        };
        if let Some(site) = cell.site {
            *by_site.entry(site).or_default() += weigh(cell, i128::from(*more), i128::from(*less));
        }
    }
    by_site
        .into_iter()
        .filter_map(|(site, weight)| {
            let node = report.sites.get(site as usize)?.node;
            Some((node, u64::try_from(weight).ok()?))
        })
        .collect()
}

/// Returns the edge of windows at a mark; of a mark beyond those that have one, the last edge before it.
fn edge_of(report: &Report, windows: &Windows, mark: usize) -> usize {
    let instants = 0..report.instants.len();
    let mut of_marks = instants.filter(|&one| report.instants[one].kind == InstantKind::Mark);
    let own = of_marks.nth(mark).and_then(|instant| {
        let has = |edge: &WindowEdge| edge.instants.iter().any(|one| *one as usize == instant);
        windows.edges.iter().position(has)
    });
    // Times are coarse: several edges may have the mark's.
    let time_ns = report.marks[mark].time_ns;
    let before = |edge: &WindowEdge| edge.time_ns <= time_ns;
    own.unwrap_or_else(|| windows.edges.partition_point(before).max(1) - 1)
}

/// Returns the stacks whose figure grew: node, figure, that of the baseline, stacks.
fn grown(report: &Report, baseline: &Report, kind: &Kind) -> Vec<(u32, u64, Option<u64>, u64)> {
    let (before, after) = (measured(baseline, kind), measured(report, kind));
    let diff = Diff::new((&before, ""), (&after, ""), By::Bytes);
    diff.rows
        .iter()
        .filter(|row| row.after.usable_bytes > row.before.usable_bytes)
        .filter_map(|row| {
            let node = *row.nodes_after.first()?;
            let stacks = row.nodes_after.len() as u64;
            let before = Some(row.before.usable_bytes);
            Some((node, row.after.usable_bytes, before, stacks))
        })
        .collect()
}

/// Returns the stacks of a report with the figure in the place of live bytes, for the matcher.
fn measured(report: &Report, kind: &Kind) -> Report {
    let sites = values(report, kind).into_iter().map(|(node, value)| Site {
        node,
        live_usable_bytes: value,
        live_blocks: 1,
        ..Site::default()
    });
    Report {
        sites: sites.collect(),
        nodes: report.nodes.clone(),
        frames: report.frames.clone(),
        program: report.program.clone(),
        plumbing: report.plumbing.clone(),
        ..Report::default()
    }
}

/// Names a stack (U1), without figures.
fn named(report: &Report, node: u32) -> Culprit {
    let frames = heading(report, node);
    let cwd = report.program.cwd.trim_end_matches('/');
    let exe = report.program.exe.rsplit('/').next().unwrap_or_default();
    let is_near = |frame: &&&Frame| relative(frame, cwd).is_some();
    let is_own = |frame: &&&Frame| {
        frame.module == exe && frame.file.is_some() && !is_unnamed(&frame.function)
    };
    let user = frames
        .iter()
        .find(is_near)
        .or_else(|| frames.iter().find(is_own))
        .or(frames.first());
    let Some(user) = user else {
        return Culprit {
            function: "(no stack)".into(),
            ..Culprit::default()
        };
    };
    let file = relative(user, cwd).or_else(|| user.file.clone());
    let described = |frame: &&Frame| {
        let place = place(frame);
        let name = short_name(&frame.function);
        match place.is_empty() {
            true => name,
            false => format!("{name} ({place})"),
        }
    };
    Culprit {
        function: short_name(&user.function),
        file,
        line: user.line,
        frames: frames.iter().take(FRAMES).map(described).collect(),
        ..Culprit::default()
    }
}

/// Returns a frame's source file, relative to a folder that it lies in.
fn relative(frame: &Frame, folder: &str) -> Option<String> {
    let file = frame.file.as_deref()?;
    let rest = match folder.is_empty() {
        true => None,
        false => file
            .strip_prefix(folder)
            .and_then(|rest| rest.strip_prefix('/')),
    };
    rest.filter(|rest| !rest.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::tests::report;

    fn told(found: &Culprits) -> Vec<(String, u64, Option<u64>)> {
        let all = found.largest.iter();
        all.map(|one| (one.function.clone(), one.value, one.before))
            .collect()
    }

    #[test]
    fn the_largest_comes_first_under_the_users_function() {
        let report = report();
        let found = culprits(&report, None, &Kind::PeakLive);
        // `parse` has no source: `main`, which calls it, has one in the working folder.
        assert_eq!(
            told(&found),
            [("load".into(), 600, None), ("main".into(), 400, None)]
        );
        assert_eq!(found.largest[0].file.as_deref(), Some("src/load.c"));
        assert_eq!(found.largest[0].line, Some(12));
        assert!(found.largest[1].frames[0].starts_with("parse"), "{found:?}");
        let found = culprits(&report, None, &Kind::PinnedAtEnd);
        assert_eq!(told(&found), [("main".into(), 4000, None)]);
        let found = culprits(&report, None, &Kind::Stack("parse".into()));
        assert_eq!(told(&found), [("main".into(), 400, None)]);
    }

    #[test]
    fn against_a_baseline_only_what_grew_is_listed() {
        let (mut now, mut before) = (report(), report());
        before.sites[0].heap_peak_usable_bytes = 500;
        now.sites[1].heap_peak_usable_bytes = 300;
        // Another build: the executable and its nodes are others, the functions are the same.
        before.program.exe = "/w/old".into();
        before
            .frames
            .iter_mut()
            .for_each(|one| one.module = "old".into());
        let found = culprits(&now, Some(&before), &Kind::PeakLive);
        assert_eq!(told(&found), [("load".into(), 600, Some(500))]);
        assert_eq!(found.largest[0].weight(), 100);
    }

    #[test]
    fn what_is_not_listed_is_summed() {
        let mut report = report();
        report.program.cwd = String::new();
        let (site, node) = (report.sites[0].clone(), report.nodes[2]);
        report.sites.clear();
        for number in 0..8u32 {
            let mut frame = report.frames[1].clone();
            frame.function = format!("f{number}");
            report.frames.push(frame);
            let mut own = node;
            own.frame = report.frames.len() as u32 - 1;
            report.nodes.push(own);
            let mut site = site.clone();
            site.node = report.nodes.len() as u32 - 1;
            site.allocations = 10;
            report.sites.push(site);
        }
        let found = culprits(&report, None, &Kind::Allocations);
        let names: Vec<&str> = found.largest.iter().map(|one| &one.function[..]).collect();
        assert_eq!(names, ["f0", "f1", "f2", "f3", "f4"]);
        assert_eq!((found.other_stacks, found.other_weight), (3, 30));
    }

    #[test]
    fn growth_between_marks_is_told_by_windows() {
        let mut report = report();
        let edge = |time_ns| WindowEdge {
            time_ns,
            ..WindowEdge::default()
        };
        let cell = |site, usable| WindowCell {
            site: Some(site),
            blocks: 1,
            usable,
            ..WindowCell::default()
        };
        // Marks `round` are at 1, 2, 4 and 5: between 2 and 5 lie the second and the third bucket.
        report.windows = Some(Windows {
            edges: vec![edge(0), edge(2), edge(4), edge(5)],
            cells: vec![cell(0, 10), cell(1, 3)],
            bucket_ends: vec![1, 3, 4],
            changed_cell: vec![0, 0, 1, 1],
            acquired: vec![100, 5, 9, 2],
            released: vec![0, 1, 0, 1],
            folded_cells: 0,
        });
        let found = culprits(&report, None, &Kind::GrowthPer("round".into()));
        assert_eq!(
            told(&found),
            [("load".into(), 40, None), ("main".into(), 30, None)]
        );
    }
}
