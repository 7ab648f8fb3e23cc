//! Several processes as one report: which started which, what each held, and what all held together.
//!
//! ```text
//!   trace ─► Member ─┐                                  ┌─► a row for each process (its images in order)
//!   trace ─► Member ─┼─► peak: sum of PSS over time ─►──┤
//!   trace ─► Member ─┘    events ─► Counter ─► Counted ─┴─► totals: the rows, added up
//! ```
//!
//! P1  Memory of all is the sum of proportional sizes (PSS): a page that n processes hold counts 1/n in each of them,
//!     so once in the sum. The collector reads all processes of a session in one roll call, with one time stamp; a
//!     process that does not answer at that stamp no longer holds anything. Processes of different sessions count
//!     with their newest reading.
//! P2  [`Peak::pss_bytes`] is the sum of [`ProcessRow::pss_at_peak_bytes`] over all rows, exactly; totals of
//!     events, blocks and CPU time are sums over rows as well.
//! P3  A block counts in the process that acquired it, even while children of `fork` share it: live bytes of several
//!     processes can be added up.
//! P4  A process that became another program (`exec`) is one row with several images.
//! P5  Nothing is called whole that is not: what a member misses is what its own report says (completeness.V1), and
//!     the processes that have no trace.
//!
//! Not here: reading traces (cli), words and tables (view).

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};
use skinflint_trace::{
    Ending, Event, EventKind, Exit, LostProcess, OriginKind, ProcessInfo, RssSample,
};

use crate::completeness::Verdict;
use crate::ledger::Ledger;
use crate::missing::{self, Known};

#[cfg(test)]
mod tests;

/// Version of this schema.
pub const SCHEMA: u32 = 1;
/// The most points of the timeline.
const POINTS: usize = 400;

/// The facts that a trace states about itself, known before its events are read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Member {
    /// The trace's file, as the user gave it; empty if it was dropped, since the process was small.
    #[serde(skip)]
    pub trace: String,
    /// The process that was recorded.
    pub process: ProcessInfo,
    /// How it ended; `None` if the trace was cut.
    pub ending: Option<Ending>,
    /// The readings of its memory.
    pub rss: Vec<RssSample>,
    /// The number of threads that recorded.
    pub threads: u64,
    /// What could not be read.
    pub damage: Vec<String>,
    /// Processes that came out of it and have no trace.
    pub lost: Vec<LostProcess>,
}

impl Member {
    /// Returns the absolute time of a moment of this trace, nanoseconds since 1970.
    fn unix_ns(&self, time_ns: u64) -> u64 {
        self.process.started_unix_ns.saturating_add(time_ns)
    }

    fn end_unix_ns(&self) -> u64 {
        let last = self.rss.iter().map(|sample| sample.time_ns).max();
        let end = self.ending.as_ref().map(|ending| ending.time_ns).or(last);
        self.unix_ns(end.unwrap_or(0))
    }

    /// Returns the high-water mark of its resident memory, as far as it is known.
    pub fn max_rss_bytes(&self) -> Option<u64> {
        let sampled = self.rss.iter().map(|sample| sample.rss_bytes).max();
        let said = self.ending.as_ref().and_then(|ending| ending.max_rss_bytes);
        sampled.max(said)
    }
}

/// The sums of the events of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counted {
    /// Number of events read.
    pub events: u64,
    /// Number of blocks acquired.
    pub blocks: u64,
    /// Usable bytes of all blocks acquired.
    pub acquired_bytes: u64,
    /// The most usable bytes that lived at one moment (P3).
    pub peak_live_bytes: u64,
    /// Usable bytes that lived at the instant that was asked for.
    pub live_at_bytes: u64,
    /// Process ids of children of `fork`.
    pub children: Vec<u32>,
    /// What is missing, as its own report says it; the caller sets it ([`crate::Analyzer::judge`]).
    #[serde(skip)]
    pub verdict: Verdict,
}

/// Adds up the events of one trace. Memory: the live blocks.
pub struct Counter {
    ledger: Ledger,
    at_ns: Option<u64>,
    live_at_bytes: Option<u64>,
    children: Vec<u32>,
}

impl Counter {
    /// Creates a counter. `at_ns` is the instant, in nanoseconds since this trace began, for which live bytes are
    /// wanted.
    pub fn new(at_ns: Option<u64>) -> Counter {
        Counter {
            ledger: Ledger::new(2),
            at_ns,
            live_at_bytes: None,
            children: Vec::new(),
        }
    }

    /// Takes the next event, in the order of tickets.
    pub fn event(&mut self, event: &Event) {
        if self.live_at_bytes.is_none() && self.at_ns.is_some_and(|at| event.time_ns > at) {
            self.live_at_bytes = Some(self.ledger.live().usable_bytes);
        }
        if let EventKind::Fork { child } = event.kind {
            self.children.push(child);
        }
        self.ledger.apply(event, &mut |_, _| {});
    }

    /// Returns the sums. `ended_ns` is when the process ended, after which nothing of it lives.
    pub fn finish(self, ended_ns: u64) -> Counted {
        let counts = self.ledger.counts();
        let live = self.ledger.live().usable_bytes;
        let at_end = self.at_ns.filter(|at| *at <= ended_ns).map_or(0, |_| live);
        Counted {
            events: counts.events,
            blocks: counts.allocations,
            acquired_bytes: counts.usable_bytes,
            peak_live_bytes: self.ledger.heap_peak().live.usable_bytes,
            live_at_bytes: self.live_at_bytes.unwrap_or(at_end),
            children: self.children,
            verdict: Verdict::default(),
        }
    }
}

/// Several processes as one report: what `skinflint report --json FOLDER` prints.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Processes {
    /// [`SCHEMA`].
    pub schema: u32,
    /// What is missing, one sentence each; empty exactly when every trace is whole (P5).
    pub missing: Vec<String>,
    /// What the reader should know although nothing is missing.
    pub notes: Vec<String>,
    /// The start of the first process, nanoseconds since 1970.
    pub began_unix_ns: u64,
    /// From there to the end of the last process, nanoseconds.
    pub duration_ns: u64,
    /// Sums over all rows.
    pub totals: Totals,
    /// The instant at which all together held most; `None` if no proportional size was ever read.
    pub peak: Option<Peak>,
    /// Each process, parents before children, by start.
    pub processes: Vec<ProcessRow>,
    /// The same processes by the largest program that each was, largest sum of CPU time first; sums equal the totals.
    pub programs: Vec<ProgramRow>,
    /// Memory of all together over time, the largest reading of each stretch.
    pub timeline: Vec<Point>,
}

/// Sums over all processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Number of processes.
    pub processes: u64,
    /// Number of traces: more than processes if some became another program.
    pub traces: u64,
    /// Events in the traces.
    pub events: u64,
    /// Events that happened and could not be recorded.
    pub lost_events: u64,
    /// Calls that went by while recording was off, or from inside the allocator: they are in no figure.
    #[serde(default)]
    pub unrecorded_calls: u64,
    /// Blocks acquired, cumulative.
    pub blocks: u64,
    /// Usable bytes of these blocks, cumulative.
    pub acquired_bytes: u64,
    /// CPU time, nanoseconds, of processes whose figure the kernel gave.
    pub cpu_ns: u64,
}

/// The instant at which all processes together held most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peak {
    /// Nanoseconds since the first process began.
    pub time_ns: u64,
    /// Sum of proportional sizes, bytes (P1, P2).
    pub pss_bytes: u64,
    /// Sum of the resident sizes of the same readings, bytes: counts a shared page in each process.
    pub rss_bytes: u64,
    /// Sum of live usable bytes at that instant (P3).
    pub live_bytes: u64,
    /// Number of processes that were read.
    pub processes: u64,
    /// Age of the oldest reading in the sum, nanoseconds; 0 within one roll call.
    pub skew_ns: u64,
}

/// A process, in the report of several.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ProcessRow {
    /// Kernel id.
    pub pid: u32,
    /// Kernel id of its parent.
    pub ppid: u32,
    /// Index of the parent's row, if it was recorded too.
    pub parent: Option<usize>,
    /// Number of parents above it in this report.
    pub depth: u32,
    /// `fork`, `spawn`, or `first` if no recorded process made it.
    pub made_by: String,
    /// Name of the program that it was last.
    pub name: String,
    /// Arguments of that program, joined by blanks.
    pub command: String,
    /// Name of the program with the most resident memory of those that it was; the last of several.
    pub largest: String,
    /// The programs that it was, one after the other (P4). Never empty.
    pub images: Vec<Image>,
    /// Nanoseconds from the start of the first process to its own.
    pub began_ns: u64,
    /// Nanoseconds from the start of the first process to its own end.
    pub ended_ns: u64,
    /// `exit 0`, `signal 9`, `unknown`, or `cut` if the trace has no end mark.
    pub ended: String,
    /// Events of all images.
    pub events: u64,
    /// Events that could not be recorded.
    pub lost_events: u64,
    /// Blocks acquired, cumulative.
    pub blocks: u64,
    /// Usable bytes of these, cumulative.
    pub acquired_bytes: u64,
    /// The most usable bytes that lived at one moment (P3).
    pub peak_live_bytes: u64,
    /// Live usable bytes at [`Processes::peak`].
    pub live_at_peak_bytes: u64,
    /// Kernel's high-water mark of resident memory, bytes; shared pages count whole.
    pub peak_rss_bytes: Option<u64>,
    /// Proportional size at [`Processes::peak`]; 0 if it did not live or was not read.
    pub pss_at_peak_bytes: u64,
    /// CPU time, nanoseconds.
    pub cpu_ns: Option<u64>,
    /// Whether its memory was read at least once with shared pages distinguished.
    pub was_read: bool,
}

/// A program in the life of a process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Image {
    /// Its trace; empty if it was dropped, since the process was small.
    pub trace: String,
    /// Its own HTML report, if one was written.
    pub page: Option<String>,
    /// Its name.
    pub name: String,
    /// Events read.
    pub events: u64,
}

/// All processes that were largest as the same program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramRow {
    /// Its name.
    pub name: String,
    /// Number of these processes.
    pub processes: u64,
    /// Their events.
    pub events: u64,
    /// Blocks acquired, cumulative.
    pub blocks: u64,
    /// CPU time, nanoseconds.
    pub cpu_ns: u64,
    /// The largest of their peaks of live bytes.
    pub largest_live_bytes: u64,
    /// The largest of their high-water marks.
    pub largest_rss_bytes: u64,
    /// Sum of their proportional sizes at [`Processes::peak`].
    pub pss_at_peak_bytes: u64,
}

/// Memory of all processes at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// Nanoseconds since the first process began.
    pub time_ns: u64,
    /// Sum of proportional sizes, bytes.
    pub pss_bytes: u64,
    /// Number of processes in it.
    pub processes: u64,
}

/// A change: a reading, or the end of a process.
#[derive(Clone, Copy)]
enum Change {
    End,
    Read { pss: u64, rss: u64 },
}

/// The peak, with what each member had in it: what is known before events are read.
#[derive(Clone, Debug, Default)]
pub struct Together {
    /// The time of the peak, nanoseconds since 1970.
    pub peak_unix_ns: Option<u64>,
    began_unix_ns: u64,
    peak: Option<Peak>,
    shares: Vec<u64>,
    points: Vec<Point>,
}

impl Together {
    /// Returns the instant of the peak in a member's own time; `None` if it had not begun by then.
    pub fn peak_ns_in(&self, member: &Member) -> Option<u64> {
        self.peak_unix_ns?
            .checked_sub(member.process.started_unix_ns)
    }
}

/// Lays the readings of all members over each other (P1).
pub fn together(members: &[Member]) -> Together {
    let begun = members.iter().map(|member| member.process.started_unix_ns);
    let began_unix_ns = begun.min().unwrap_or(0);
    let mut changes: Vec<(u64, usize, Change)> = Vec::new();
    for (index, member) in members.iter().enumerate() {
        let end = member.end_unix_ns();
        for sample in &member.rss {
            let at = member.unix_ns(sample.time_ns);
            if let (Some(pss), true) = (sample.pss_bytes, at <= end) {
                let rss = sample.rss_bytes;
                changes.push((at, index, Change::Read { pss, rss }));
            }
        }
        // What was read at the very end still counts at that instant.
        changes.push((end.saturating_add(1), index, Change::End));
    }
    changes.sort_by_key(|&(at, index, change)| (at, matches!(change, Change::Read { .. }), index));
    let mut newest: Vec<Option<(u64, u64, u64)>> = vec![None; members.len()];
    let sessions = sessions(members);
    // The members of each session that have a reading.
    let mut answered: Vec<Vec<usize>> = vec![Vec::new(); members.len()];
    let mut called: Vec<usize> = Vec::new();
    let (mut pss_sum, mut alive) = (0u64, 0u64);
    let mut result = Together {
        began_unix_ns,
        ..Together::default()
    };
    let mut at_change = changes.iter().peekable();
    while let Some(&(at, index, change)) = at_change.next() {
        if let Some((_, pss, _)) = newest[index].take() {
            pss_sum -= pss;
            alive -= 1;
        }
        let Change::Read { pss, rss } = change else {
            continue;
        };
        newest[index] = Some((at, pss, rss));
        pss_sum += pss;
        alive += 1;
        called.push(sessions[index]);
        answered[sessions[index]].push(index);
        let more_now = at_change.peek().is_some_and(|next| next.0 == at);
        if more_now {
            continue;
        }
        called.sort_unstable();
        called.dedup();
        for session in called.drain(..) {
            answered[session].retain(|&member| {
                let stale = newest[member].filter(|(then, ..)| *then < at);
                if let Some((_, pss, _)) = stale {
                    newest[member] = None;
                    pss_sum -= pss;
                    alive -= 1;
                }
                newest[member].is_some()
            });
            answered[session].sort_unstable();
            answered[session].dedup();
        }
        let time_ns = at - began_unix_ns;
        result.points.push(Point {
            time_ns,
            pss_bytes: pss_sum,
            processes: alive,
        });
        if result.peak.is_none_or(|peak| pss_sum > peak.pss_bytes) {
            let read = newest.iter().flatten();
            result.peak_unix_ns = Some(at);
            result.peak = Some(Peak {
                time_ns,
                pss_bytes: pss_sum,
                rss_bytes: read.clone().map(|(_, _, rss)| rss).sum(),
                live_bytes: 0,
                processes: alive,
                skew_ns: read.map(|(then, ..)| at - then).max().unwrap_or(0),
            });
            result.shares = newest.iter().map(|n| n.map_or(0, |n| n.1)).collect();
        }
    }
    result.points = thinned(result.points);
    result
}

/// Returns the session of each member, as the index of the member that all of it came from.
fn sessions(members: &[Member]) -> Vec<usize> {
    let uids = members.iter().enumerate();
    let by_uid: HashMap<&str, usize> = uids.map(|(i, m)| (m.process.uid.as_str(), i)).collect();
    let from = |index: usize| {
        let origin = members[index].process.origin.as_ref()?;
        by_uid.get(origin.uid.as_str()).copied()
    };
    let root = |index: usize| {
        let mut at = index;
        // Damaged traces may contain a cycle.
        for _ in 0..members.len() {
            match from(at) {
                Some(before) if before != at => at = before,
                _ => break,
            }
        }
        at
    };
    (0..members.len()).map(root).collect()
}

/// Returns at most [`POINTS`] points: the largest of each stretch of time.
fn thinned(points: Vec<Point>) -> Vec<Point> {
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return points;
    };
    if points.len() <= POINTS {
        return points;
    }
    let (from, width) = (
        first.time_ns,
        (last.time_ns - first.time_ns) / POINTS as u64 + 1,
    );
    let mut kept: Vec<Point> = Vec::with_capacity(POINTS);
    for point in points {
        let stretch = |point: &Point| (point.time_ns - from) / width;
        match kept.last_mut() {
            Some(last) if stretch(last) == stretch(&point) => {
                if point.pss_bytes > last.pss_bytes {
                    *last = point;
                }
            }
            _ => kept.push(point),
        }
    }
    kept
}

/// Makes the report. `counted` corresponds to `members`, one for one.
///
/// # Panics
/// If the lengths differ.
pub fn report(members: &[Member], counted: &[Counted], together: Together) -> Processes {
    assert_eq!(members.len(), counted.len(), "one count for each trace");
    let mut report = Processes {
        schema: SCHEMA,
        began_unix_ns: together.began_unix_ns,
        peak: together.peak,
        timeline: together.points,
        ..Processes::default()
    };
    let shares = &together.shares;
    let order = Families::of(members);
    for family in &order.families {
        let mut row = order.row(members, family, together.began_unix_ns);
        for &index in &family.images {
            let (member, count) = (&members[index], &counted[index]);
            row.add(member, count, shares.get(index).copied().unwrap_or(0));
        }
        report.processes.push(row);
    }
    sum_up(&mut report, members.len() as u64);
    let end = members.iter().map(Member::end_unix_ns).max().unwrap_or(0);
    report.duration_ns = end.saturating_sub(report.began_unix_ns);
    let known = members.iter().zip(counted).map(known);
    report.totals.unrecorded_calls = known.map(|known| known.unrecorded_calls()).sum();
    report.missing = missing(members, counted);
    report.notes = notes(members, counted, &report);
    report
}

impl ProcessRow {
    fn add(&mut self, member: &Member, counted: &Counted, pss_at_peak: u64) {
        self.events += counted.events;
        self.blocks += counted.blocks;
        self.acquired_bytes += counted.acquired_bytes;
        self.peak_live_bytes = self.peak_live_bytes.max(counted.peak_live_bytes);
        self.live_at_peak_bytes += counted.live_at_bytes;
        if member.max_rss_bytes() >= self.peak_rss_bytes {
            self.largest.clone_from(&member.process.name);
        }
        self.peak_rss_bytes = self.peak_rss_bytes.max(member.max_rss_bytes());
        self.pss_at_peak_bytes += pss_at_peak;
        self.was_read |= member.rss.iter().any(|sample| sample.pss_bytes.is_some());
        if let Some(ending) = &member.ending {
            self.lost_events += ending.lost_events;
            // The kernel counts for the process, so the last image's figure is that of all.
            self.cpu_ns = ending.cpu_ns.max(self.cpu_ns);
        }
        self.images.push(Image {
            trace: member.trace.clone(),
            page: None,
            name: member.process.name.clone(),
            events: counted.events,
        });
    }
}

fn sum_up(report: &mut Processes, traces: u64) {
    let mut totals = Totals {
        traces,
        ..Totals::default()
    };
    let mut programs: HashMap<&str, ProgramRow> = HashMap::new();
    for row in &report.processes {
        totals.processes += 1;
        totals.events += row.events;
        totals.lost_events += row.lost_events;
        totals.blocks += row.blocks;
        totals.acquired_bytes += row.acquired_bytes;
        totals.cpu_ns += row.cpu_ns.unwrap_or(0);
        let program = programs.entry(&row.largest).or_default();
        program.name.clone_from(&row.largest);
        program.processes += 1;
        program.events += row.events;
        program.blocks += row.blocks;
        program.cpu_ns += row.cpu_ns.unwrap_or(0);
        program.largest_live_bytes = program.largest_live_bytes.max(row.peak_live_bytes);
        let rss = row.peak_rss_bytes.unwrap_or(0);
        program.largest_rss_bytes = program.largest_rss_bytes.max(rss);
        program.pss_at_peak_bytes += row.pss_at_peak_bytes;
    }
    let mut programs: Vec<ProgramRow> = programs.into_values().collect();
    programs.sort_by(|a, b| b.cpu_ns.cmp(&a.cpu_ns).then_with(|| a.name.cmp(&b.name)));
    let live = report.processes.iter().map(|row| row.live_at_peak_bytes);
    let live_bytes = live.sum();
    if let Some(peak) = &mut report.peak {
        peak.live_bytes = live_bytes;
    }
    report.totals = totals;
    report.programs = programs;
}

/// A process with its images, in the order in which it was them.
#[derive(Default)]
struct Family {
    images: Vec<usize>,
    parent: Option<usize>,
    depth: u32,
}

/// The relations between processes.
struct Families {
    families: Vec<Family>,
}

impl Families {
    fn of(members: &[Member]) -> Families {
        let by_uid: HashMap<&str, usize> = members
            .iter()
            .enumerate()
            .map(|(index, member)| (member.process.uid.as_str(), index))
            .collect();
        let origin = |index: usize| {
            let origin = members[index].process.origin.as_ref()?;
            let from = *by_uid.get(origin.uid.as_str())?;
            (from != index).then_some((origin.how, from))
        };
        // Returns the first image of the process that a trace belongs to. Damaged traces may contain a cycle.
        let first_of = |index: usize| {
            let mut at = index;
            for _ in 0..members.len() {
                match origin(at) {
                    Some((OriginKind::Exec, before)) => at = before,
                    _ => break,
                }
            }
            at
        };
        let mut images: HashMap<usize, Vec<usize>> = HashMap::new();
        for index in 0..members.len() {
            images.entry(first_of(index)).or_default().push(index);
        }
        let mut children: HashMap<usize, Vec<usize>> = HashMap::new();
        let mut roots = Vec::new();
        for first in images.keys().copied() {
            match origin(first).map(|(_, from)| first_of(from)) {
                Some(parent) if parent != first => {
                    children.entry(parent).or_default().push(first);
                }
                _ => roots.push(first),
            }
        }
        let start = |index: &usize| {
            let process = &members[*index].process;
            (process.started_unix_ns, process.pid, *index)
        };
        roots.sort_by_key(start);
        roots.reverse();
        let mut families: Vec<Family> = Vec::new();
        let mut todo: Vec<(usize, Option<usize>, u32)> =
            roots.into_iter().map(|root| (root, None, 0)).collect();
        while let Some((first, parent, depth)) = todo.pop() {
            let mut images = images.remove(&first).unwrap_or_default();
            images.sort_by_key(start);
            let own = families.len();
            families.push(Family {
                images,
                parent,
                depth,
            });
            let mut born = children.remove(&first).unwrap_or_default();
            born.sort_by_key(start);
            todo.extend(born.into_iter().rev().map(|c| (c, Some(own), depth + 1)));
        }
        // Processes that a cycle of origins kept from being reached stand alone.
        let mut rest: Vec<_> = images.into_iter().collect();
        rest.sort_unstable();
        families.extend(rest.into_iter().map(|(_, images)| Family {
            images,
            ..Family::default()
        }));
        Families { families }
    }

    fn row(&self, members: &[Member], family: &Family, began_unix_ns: u64) -> ProcessRow {
        let first = &members[family.images[0]];
        let last = &members[family.images[family.images.len() - 1]];
        let made_by = match first.process.origin.as_ref().map(|origin| origin.how) {
            Some(OriginKind::Fork) => "fork",
            Some(OriginKind::Spawn) => "spawn",
            Some(OriginKind::Exec) | None => "first",
        };
        ProcessRow {
            pid: last.process.pid,
            ppid: first.process.ppid,
            parent: family.parent,
            depth: family.depth,
            made_by: made_by.into(),
            name: last.process.name.clone(),
            command: last.process.argv.join(" "),
            began_ns: first.unix_ns(0).saturating_sub(began_unix_ns),
            ended_ns: last.end_unix_ns().saturating_sub(began_unix_ns),
            ended: ended(last.ending.as_ref()),
            ..ProcessRow::default()
        }
    }
}

fn ended(ending: Option<&Ending>) -> String {
    match ending.map(|ending| ending.exit) {
        None => "cut".into(),
        Some(Exit::Exited(status)) => format!("exit {status}"),
        Some(Exit::Signal(signal)) => format!("signal {signal}"),
        Some(Exit::Exec) => "exec".into(),
        Some(Exit::Detached) => "detached".into(),
        Some(Exit::Unknown) => "unknown".into(),
    }
}

/// Returns the facts that a trace states about itself.
fn known<'a>((member, counted): (&'a Member, &Counted)) -> Known<'a> {
    Known {
        process: &member.process,
        ending: member.ending.as_ref(),
        damage: member.damage.clone(),
        lost: &member.lost,
        missing: &[],
        events: counted.events,
    }
}

/// Why traces are not whole, a sentence each (P5).
fn missing(members: &[Member], counted: &[Counted]) -> Vec<String> {
    let mut all = Vec::new();
    for (member, count) in members.iter().zip(counted) {
        let mut say = |what: String| all.push(format!("{}: {what}", member.trace));
        count
            .verdict
            .missing
            .iter()
            .for_each(|one| say(one.to_string()));
        missing::much(&member.lost).into_iter().for_each(&mut say);
    }
    all
}

fn notes(members: &[Member], counted: &[Counted], report: &Processes) -> Vec<String> {
    let mut notes = Vec::new();
    let unread = report.processes.iter().filter(|row| !row.was_read).count();
    if unread > 0 {
        let of = report.processes.len();
        notes.push(match unread {
            1 => format!(
                "1 of {of} processes was never read with shared pages told apart: it ended before that, or may not be \
                 read; it is not in the sum over time."
            ),
            _ => format!(
                "{unread} of {of} processes were never read with shared pages told apart: they ended before that, or \
                 may not be read; they are not in the sum over time."
            ),
        });
    }
    let dropped = members.iter().filter(|member| member.trace.is_empty());
    match dropped.count() {
        0 => {}
        1 => notes.push("1 small process has a row and no trace (--all keeps them).".into()),
        n => notes.push(format!(
            "{n} small processes have rows and no traces (--all keeps them)."
        )),
    }
    for member in members {
        let said = missing::little(&member.lost);
        notes.extend(said.iter().map(|said| format!("{}: {said}", member.trace)));
    }
    let known = members.iter().map(|member| member.process.pid);
    let lost = members.iter().flat_map(|member| &member.lost);
    let known: HashSet<u32> = known.chain(lost.map(|lost| lost.pid)).collect();
    let children = counted.iter().flat_map(|count| &count.children);
    let silent = children.filter(|child| !known.contains(child)).count();
    if silent > 0 {
        notes.push(match silent {
            1 => "1 child of fork has no trace: it ended, or became a program that cannot be recorded, before it \
                  touched the heap."
                .to_owned(),
            _ => format!(
                "{silent} children of fork have no trace: they ended, or became a program that cannot be \
                 recorded, before they touched the heap."
            ),
        });
    }
    let alone = report
        .processes
        .iter()
        .filter_map(|row| Some((row.peak_rss_bytes?, row)));
    if let (Some(peak), Some((most, row))) = (report.peak, alone.max_by_key(|(rss, _)| *rss))
        && most > peak.pss_bytes
    {
        notes.push(format!(
            "{} ({}) alone had up to {} resident at a moment between readings, or with pages that it shared: all \
             together may have held more than was read.",
            row.largest,
            row.pid,
            crate::passes::wording::bytes(most)
        ));
    }
    let is_copy = |member: &&Member| {
        let origin = member.process.origin.as_ref();
        origin.is_some_and(|origin| origin.how == OriginKind::Fork)
    };
    let copies = members.iter().filter(is_copy).count();
    if copies > 0 {
        notes.push(match copies {
            1 => "One began as a copy (fork): blocks that it began with count where they were acquired; its own report \
                  has them."
                .to_owned(),
            _ => format!(
                "{copies} began as copies (fork): blocks that they began with count where they were acquired; each \
                 one's own report has them."
            ),
        });
    }
    let uids: Vec<&str> = members.iter().map(|m| m.process.uid.as_str()).collect();
    let origins = members.iter().filter_map(|m| m.process.origin.as_ref());
    let strangers = origins.filter(|origin| !uids.contains(&origin.uid.as_str()));
    let strangers = strangers.count();
    if strangers > 0 {
        notes.push(match strangers {
            1 => "The trace that one of these came from is not among them.".to_owned(),
            _ => format!("The traces that {strangers} of these came from are not among them."),
        });
    }
    notes
}
