//! The report of several processes in less than 64 KiB of JSON.
//!
//! ```text
//!   Processes ──► sums, peak, what is missing · the largest processes and programs · a coarse timeline
//!             └─► too long? half as many of each, until it fits
//! ```
//!
//! D1  It is never longer than [`MOST_BYTES`], whatever the number of processes and their arguments.
//! D2  What is left out is counted; sums are those of all processes.
//! D3  Processes stay in the whole report's order, and name their parents by their place in this one.
//!
//! Not here: the brief report of one process (`brief.rs`).

use std::cmp::Reverse;

use serde::Serialize;
use skinflint_analysis::processes::{Image, Point, ProcessRow, Processes};

use crate::brief::{MOST_BYTES, cut};

/// The most processes and programs, sentences, and points of the timeline.
const MOST: usize = 64;
/// The most characters of an argument list, a path, a sentence.
const TEXT: usize = 400;

/// The output of `skinflint report FOLDER --json --brief`: the fields of the whole report, with fewer rows.
#[derive(Clone, Debug, Serialize)]
pub struct BriefProcesses {
    /// The report, with the rows that are left.
    #[serde(flatten)]
    pub processes: Processes,
    /// What only the whole report has.
    pub left_out: LeftOutProcesses,
}

/// Numbers of rows that are in the whole report of several processes and not in the brief one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LeftOutProcesses {
    /// Processes; those with the largest resident memory stay.
    pub processes: u64,
    /// Programs; those with most CPU time stay.
    pub programs: u64,
    /// Sentences about what is missing.
    pub missing: u64,
    /// Notes.
    pub notes: u64,
}

/// Renders the brief report as indented JSON (D1), without a final line end.
///
/// # Errors
/// Those of `serde_json::to_string_pretty`.
pub fn render(report: &Processes) -> Result<String, serde_json::Error> {
    let mut most = MOST;
    loop {
        let text = serde_json::to_string_pretty(&brief(report, most, TEXT * most / MOST))?;
        if text.len() <= MOST_BYTES || most == 0 {
            return Ok(text);
        }
        most /= 2;
    }
}

/// Builds a report with `most` elements of each list, and texts of at most `room` characters.
fn brief(whole: &Processes, most: usize, room: usize) -> BriefProcesses {
    let past = |all: usize| all.saturating_sub(most) as u64;
    let sentences = |all: &[String]| all.iter().take(most).map(|one| cut(one, room)).collect();
    BriefProcesses {
        left_out: LeftOutProcesses {
            processes: past(whole.processes.len()),
            programs: past(whole.programs.len()),
            missing: past(whole.missing.len()),
            notes: past(whole.notes.len()),
        },
        processes: Processes {
            schema: whole.schema,
            missing: sentences(&whole.missing),
            notes: sentences(&whole.notes),
            began_unix_ns: whole.began_unix_ns,
            duration_ns: whole.duration_ns,
            totals: whole.totals,
            peak: whole.peak,
            processes: largest(&whole.processes, most, room),
            programs: whole.programs.iter().take(most).cloned().collect(),
            timeline: coarse(&whole.timeline, most),
        },
    }
}

/// Returns the largest processes, in their order (D3).
fn largest(all: &[ProcessRow], most: usize, room: usize) -> Vec<ProcessRow> {
    let mut kept: Vec<usize> = (0..all.len()).collect();
    kept.sort_by_key(|&index| Reverse(all[index].peak_rss_bytes));
    kept.truncate(most);
    kept.sort_unstable();
    let image = |image: &Image| Image {
        trace: cut(&image.trace, room),
        page: image.page.as_ref().map(|page| cut(page, room)),
        name: cut(&image.name, room),
        events: image.events,
    };
    let row = |&index: &usize| {
        let row = &all[index];
        ProcessRow {
            parent: row
                .parent
                .and_then(|parent| kept.binary_search(&parent).ok()),
            name: cut(&row.name, room),
            largest: cut(&row.largest, room),
            command: cut(&row.command, room),
            // What it was before matters less than what other processes are.
            images: row.images.iter().rev().take(4).rev().map(image).collect(),
            ..row.clone()
        }
    };
    kept.iter().map(row).collect()
}

/// Returns at most `most` points: the largest of each stretch.
fn coarse(points: &[Point], most: usize) -> Vec<Point> {
    let Some(stretch) = points.len().checked_div(most) else {
        return Vec::new();
    };
    let stretches = points.chunks(stretch + 1);
    let largest = stretches.filter_map(|some| some.iter().max_by_key(|point| point.pss_bytes));
    largest.copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(processes: usize, command: usize) -> Processes {
        let row = |index: usize| ProcessRow {
            pid: index as u32 + 1,
            parent: index.checked_sub(1),
            name: "cc".into(),
            command: "x".repeat(command),
            peak_rss_bytes: Some((index as u64 * 7919) % 1000),
            images: vec![Image::default(); 9],
            ..ProcessRow::default()
        };
        let point = |index: usize| Point {
            time_ns: index as u64,
            pss_bytes: index as u64 % 10,
            processes: 1,
        };
        Processes {
            missing: vec!["missing".into(); processes],
            processes: (0..processes).map(row).collect(),
            timeline: (0..processes * 10).map(point).collect(),
            ..Processes::default()
        }
    }

    #[test]
    fn it_is_short_whatever_there_is() {
        for (processes, command) in [(0, 0), (3, 10), (1000, 30), (300, 100_000)] {
            let whole = report(processes, command);
            let text = render(&whole).expect("writes");
            assert!(text.len() <= MOST_BYTES, "{processes}: {}", text.len());
            let read: Processes =
                serde_json::from_str(&text).expect("the fields of the whole report");
            let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            let left = value["left_out"]["processes"].as_u64().expect("a number");
            assert_eq!(read.processes.len() as u64 + left, processes as u64);
            assert_eq!(left == 0, processes <= 3, "few are all there");
        }
    }

    #[test]
    fn the_largest_stay_with_their_parents_places() {
        let whole = report(1000, 3);
        let short = brief(&whole, 10, 100).processes;
        let mut sizes: Vec<_> = whole
            .processes
            .iter()
            .map(|row| row.peak_rss_bytes)
            .collect();
        sizes.sort_by_key(|size| Reverse(*size));
        assert!(
            short
                .processes
                .iter()
                .all(|row| row.peak_rss_bytes >= sizes[9])
        );
        for row in &short.processes {
            let parent = row.parent.map(|parent| short.processes[parent].pid);
            assert!(parent.is_none_or(|pid| pid + 1 == row.pid), "{row:?}");
        }
        assert!(short.timeline.len() <= 10);
        assert!(short.timeline.iter().all(|point| point.pss_bytes == 9));
    }
}
