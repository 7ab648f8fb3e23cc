//! Figures of a report that budgets are about.
//!
//! ```text
//!   Report (as of its end), Kind ─► Range { low, high }, or why it is not known
//! ```
//!
//! G1  The report is as of the end: what pins pages is known there by stack.
//! G2  Resident memory is between the largest exact reading less the recorder's part, and the kernel's high-water mark and
//!     the error of its counter more: the recorder's memory is in the mark, and how much of it was there then is unknown.
//! G3  A pattern that no stack of the run matches, and a mark that is not there, have no figure: a misspelt budget is not
//!     held for ever.

use skinflint_analysis::model::{InstantKind, Report};
use skinflint_view::stack::path;

use crate::budget::Kind;
use crate::pattern::matches;
use crate::phase;

/// A figure: somewhere from `low` to `high`; exact if they are the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Range {
    /// The least that it can be.
    pub low: u64,
    /// The most.
    pub high: u64,
}

impl Range {
    /// Returns a figure that is known exactly.
    pub fn exact(value: u64) -> Range {
        Range {
            low: value,
            high: value,
        }
    }

    /// Reports whether it is known exactly.
    pub fn is_exact(self) -> bool {
        self.low == self.high
    }
}

/// The error of the kernel's counters of resident pages, bytes. There are three (anonymous, files, shared memory), and each
/// is read without what processors have counted by themselves: less than `percpu_counter_batch` on each, which is 32 pages
/// on machines of up to 16 processors (Linux 6.2 and later; before, a thread keeps back 64 pages in all). A thread is taken to
/// have counted on two processors. On larger machines it can be more.
const COUNTER_ERROR_BYTES: u64 = 3 * 2 * 32 * 4096;
/// The most threads that count in it.
const MOST_THREADS: u64 = 64;

/// Returns a figure.
///
/// # Errors
/// Why it is not known: a sentence without its full stop.
pub fn figure(report: &Report, kind: &Kind) -> Result<Range, String> {
    let instant = |wanted| report.instants.iter().find(|one| one.kind == wanted);
    let heap = || {
        instant(InstantKind::HeapPeak)
            .ok_or("the recording has no event that made a block".to_owned())
    };
    let end = || instant(InstantKind::End).ok_or("the recording has no end".to_owned());
    let value = match kind {
        Kind::PeakLive => heap()?.live_usable_bytes,
        Kind::PeakBlocks => heap()?.live_blocks,
        Kind::PeakSlop => {
            let at = heap()?;
            at.live_usable_bytes.saturating_sub(at.live_requested_bytes)
        }
        Kind::PeakRss => return resident(report),
        Kind::LiveAtEnd => end()?.live_usable_bytes,
        Kind::BlocksAtEnd => end()?.live_blocks,
        Kind::SlopAtEnd => {
            let at = end()?;
            at.live_usable_bytes.saturating_sub(at.live_requested_bytes)
        }
        Kind::PinnedAtEnd => {
            let pages = end()?.fragments.as_ref();
            let pages = pages.ok_or("no pages were read at the program's end")?;
            pages.pinned_bytes
        }
        Kind::Allocations => report.totals.allocations,
        Kind::BytesRead => moved(report.program.read_bytes)?,
        Kind::BytesWritten => moved(report.program.written_bytes)?,
        Kind::Stack(pattern) => stacks(report, pattern)?,
        Kind::GrowthPer(mark) => growth(report, mark)?.per_interval(),
        Kind::Phase(name, within) => phase::worst(report, name, *within)?.1,
    };
    Ok(Range::exact(value))
}

/// Returns what calls moved, if the recording has it.
fn moved(bytes: Option<u64>) -> Result<u64, String> {
    bytes.ok_or_else(|| {
        "what it read and wrote is known only of a program that the recording started and saw end, where the kernel counts it \
         (/proc/PID/io)"
            .to_owned()
    })
}

/// Returns the largest resident memory (G2).
fn resident(report: &Report) -> Result<Range, String> {
    let books = report.instants.iter().filter_map(|one| one.books.as_ref());
    let own = books.map(|books| {
        let recorder = books.rows.iter().find(|row| row.id == "recorder");
        books
            .resident_bytes
            .saturating_sub(recorder.map_or(0, |row| row.bytes))
    });
    let low = own
        .max()
        .ok_or("resident memory was never read while the program ran")?;
    let seen = report.timeline.rss_bytes.iter().copied().max();
    let mark = report.program.max_rss_bytes.max(seen).unwrap_or(0);
    let threads = (report.threads.len() as u64).clamp(1, MOST_THREADS);
    let error = COUNTER_ERROR_BYTES * threads;
    Ok(Range {
        low,
        high: mark.max(low).saturating_add(error),
    })
}

/// Returns the bytes of matching stacks at the largest live heap.
fn stacks(report: &Report, pattern: &str) -> Result<u64, String> {
    let mut sites = report
        .sites
        .iter()
        .filter(|site| is_on(report, site.node, pattern))
        .peekable();
    if sites.peek().is_none() {
        return Err(format!(
            "no stack of the run has a function that matches {pattern:?}; `skinflint report` shows their names"
        ));
    }
    Ok(sites.map(|site| site.heap_peak_usable_bytes).sum())
}

/// Reports whether a function of a stack matches.
pub(crate) fn is_on(report: &Report, node: u32, pattern: &str) -> bool {
    path(report, node)
        .iter()
        .any(|frame| matches(pattern, &frame.function))
}

/// The growth between the second and the last mark of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Growth {
    /// Live bytes at the second of them.
    pub before: u64,
    /// Live bytes at the last.
    pub after: u64,
    /// Intervals between.
    pub intervals: u64,
    /// The two, as indices into [`Report::marks`].
    pub between: (usize, usize),
}

impl Growth {
    /// Returns the bytes that an interval adds, rounded up; 0 if they shrink.
    pub fn per_interval(self) -> u64 {
        self.after
            .saturating_sub(self.before)
            .div_ceil(self.intervals.max(1))
    }
}

/// Returns the growth between marks that are called `name`, or `name` and a number.
pub(crate) fn growth(report: &Report, name: &str) -> Result<Growth, String> {
    let is_one = |mark: &str| {
        mark == name
            || mark
                .strip_prefix(name)
                .and_then(|rest| rest.strip_prefix(' '))
                .is_some_and(|number| {
                    !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
                })
    };
    let marks: Vec<usize> = (0..report.marks.len())
        .filter(|&index| is_one(&report.marks[index].name))
        .collect();
    let [_, second, .., last] = marks[..] else {
        let known: Vec<&str> = report.marks.iter().map(|mark| mark.name.as_str()).collect();
        let known = match known.is_empty() {
            true => "none".to_owned(),
            false => {
                let mut names = known;
                names.dedup();
                names.truncate(8);
                names.join(", ")
            }
        };
        return Err(format!(
            "{} called {name:?}: at least 3 are needed, as the first interval warms up and is left out (this \
             recording has: {known})",
            skinflint_view::units::plural(marks.len() as u64, "mark")
        ));
    };
    Ok(Growth {
        before: report.marks[second].live_usable_bytes,
        after: report.marks[last].live_usable_bytes,
        intervals: marks.len() as u64 - 2,
        between: (second, last),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use skinflint_analysis::model::{
        BookRow, Books, Completeness, Fragments, Frame, Instant, MarkRow, Node, Pins, Site,
    };

    /// A report as of the end: `load` holds 600 at the peak and 100 at the end, `parse` 400 and 50; both are called by
    /// `main`. Whole.
    pub(crate) fn report() -> Report {
        let frame = |function: &str, file: Option<&str>| Frame {
            function: function.into(),
            module: "app".into(),
            file: file.map(str::to_owned),
            line: file.map(|_| 12),
            inlined: false,
        };
        let node = |parent, frame| Node { parent, frame };
        let instant = |label: &str, kind, blocks, requested, usable| Instant {
            label: label.into(),
            kind,
            live_blocks: blocks,
            live_requested_bytes: requested,
            live_usable_bytes: usable,
            ..Instant::default()
        };
        let mut report = Report {
            frames: vec![
                frame("main", Some("/w/src/main.c")),
                frame("load", Some("/w/src/load.c")),
                frame("parse", None),
            ],
            nodes: vec![node(0, 0), node(0, 0), node(1, 1), node(1, 2)],
            completeness: Completeness {
                complete: true,
                events: 30,
                ..Completeness::default()
            },
            ..Report::default()
        };
        report.program.name = "app".into();
        report.program.exe = "/w/app".into();
        report.program.cwd = "/w".into();
        report.program.ended = "exit 0".into();
        report.program.max_rss_bytes = Some(10 << 20);
        report.program.read_bytes = Some(7000);
        report.program.written_bytes = Some(12);
        report.totals.allocations = 17;
        report.instants = vec![
            instant("end", InstantKind::End, 3, 140, 150),
            instant("peak", InstantKind::Peak, 8, 900, 1000),
            instant("heap-peak", InstantKind::HeapPeak, 9, 950, 1000),
        ];
        report.instants[0].fragments = Some(Fragments {
            pinned_bytes: 4000,
            pins: vec![Pins {
                node: Some(3),
                free_bytes: 4000,
                stacks: 1,
                ..Pins::default()
            }],
            ..Fragments::default()
        });
        report.instants[1].books = Some(Books {
            resident_bytes: 9 << 20,
            rows: vec![BookRow {
                id: "recorder".into(),
                bytes: 1 << 20,
                ..BookRow::default()
            }],
            ..Books::default()
        });
        let site = |node, allocations, peak, end| Site {
            node,
            allocations,
            heap_peak_blocks: 4,
            heap_peak_usable_bytes: peak,
            heap_peak_requested_bytes: peak - 25,
            end_blocks: 1,
            end_usable_bytes: end,
            end_requested_bytes: end - 5,
            ..Site::default()
        };
        report.sites = vec![site(2, 10, 600, 100), site(3, 7, 400, 50)];
        let mark = |name: &str, time_ns, live_usable_bytes| MarkRow {
            name: name.into(),
            time_ns,
            live_usable_bytes,
            ..MarkRow::default()
        };
        report.marks = vec![
            mark("round", 1, 50),
            mark("round", 2, 100),
            mark("other", 3, 900),
            mark("round", 4, 120),
            mark("round", 5, 151),
        ];
        report
    }

    #[test]
    fn figures_are_the_reports() {
        let report = report();
        let value = |kind| figure(&report, &kind).unwrap();
        assert_eq!(value(Kind::PeakLive), Range::exact(1000));
        assert_eq!(value(Kind::PeakBlocks), Range::exact(9));
        assert_eq!(value(Kind::PeakSlop), Range::exact(50));
        assert_eq!(value(Kind::LiveAtEnd), Range::exact(150));
        assert_eq!(value(Kind::BlocksAtEnd), Range::exact(3));
        assert_eq!(value(Kind::SlopAtEnd), Range::exact(10));
        assert_eq!(value(Kind::PinnedAtEnd), Range::exact(4000));
        assert_eq!(value(Kind::Allocations), Range::exact(17));
        assert_eq!(value(Kind::BytesRead), Range::exact(7000));
        assert_eq!(value(Kind::BytesWritten), Range::exact(12));
        assert_eq!(value(Kind::Stack("load".into())), Range::exact(600));
        assert_eq!(value(Kind::Stack("ma*n".into())), Range::exact(1000));
        // 51 bytes in two intervals, rounded up.
        assert_eq!(value(Kind::GrowthPer("round".into())), Range::exact(26));
    }

    #[test]
    fn resident_memory_is_an_interval_and_the_recorder_is_not_the_programs() {
        let mut report = report();
        let range = figure(&report, &Kind::PeakRss).unwrap();
        assert_eq!(range.low, 8 << 20);
        assert_eq!(range.high, (10 << 20) + COUNTER_ERROR_BYTES);
        report.instants[1].books = None;
        assert!(
            figure(&report, &Kind::PeakRss)
                .unwrap_err()
                .contains("never read")
        );
    }

    #[test]
    fn what_is_not_there_has_no_figure() {
        let mut report = report();
        let why = |report: &Report, kind: Kind| figure(report, &kind).unwrap_err();
        assert!(why(&report, Kind::Stack("lood".into())).contains("\"lood\""));
        let said = why(&report, Kind::GrowthPer("rounds".into()));
        assert!(
            said.starts_with("0 marks") && said.contains("round, other"),
            "{said}"
        );
        assert!(why(&report, Kind::GrowthPer("other".into())).starts_with("1 mark called"));
        report.instants.truncate(1);
        report.instants[0].fragments = None;
        assert!(why(&report, Kind::PinnedAtEnd).contains("no pages"));
        assert!(why(&report, Kind::PeakLive).contains("no event"));
        report.program.read_bytes = None;
        assert!(why(&report, Kind::BytesRead).contains("/proc/PID/io"));
    }

    #[test]
    fn numbered_marks_are_marks_of_their_name() {
        let mut report = report();
        for (number, mark) in report.marks.iter_mut().enumerate() {
            mark.name = format!("signal {number}");
        }
        assert_eq!(growth(&report, "signal").unwrap().intervals, 3);
        report.marks[2].name = "signal x".into();
        assert_eq!(growth(&report, "signal").unwrap().intervals, 2);
    }

    #[test]
    fn shrinking_is_no_growth() {
        let mut report = report();
        report.marks[4].live_usable_bytes = 7;
        assert_eq!(growth(&report, "round").unwrap().per_interval(), 0);
    }

    #[test]
    fn patterns() {
        assert!(matches("load", "app::load_user"));
        assert!(!matches("load", "app::lad"));
        assert!(matches("load*", "load_user") && !matches("load*", "app::load"));
        assert!(matches("*load", "app::load") && !matches("*load", "app::load_user"));
        assert!(matches("a*b*c", "a1b2c") && !matches("a*b*c", "acb"));
        assert!(matches("*", "") && matches("", "x"));
        assert!(!matches("ab*ba", "aba"));
    }
}
