//! The sampler thread: resident memory over time, and snapshots of all mappings.
//!
//! P1  Snapshots that the program waits for come first: marks, its exit, and the greatest live heap
//!     (`record-so/high_water.rs`).
//! P2  Reading takes at most about a tenth of the time, and more only while memory rises fast: the pause after a
//!     snapshot is a multiple of its cost.
//! P3  Of a rising peak only the newest snapshot is held back; it is written once a second, when memory
//!     has fallen, and at the end.
//! P4  Proportional sizes are read in roll calls: all living processes one after another, with one time stamp, so
//!     that their sum is of one moment. A roll call may take a tenth of the time as well.
//! P5  The time of a snapshot at exit is that at which the program asked for it: what the program waits for us, on a
//!     busy machine for long, is not a time in which it rested.
//! P6  A fall of live memory is a reason for a snapshot as a rise of resident memory is (`falls.rs`): resident memory
//!     does not tell it, as most allocators keep what is freed.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use skinflint_base::sys;
use skinflint_procfs::{Memory, Status, rollup, stat, stat::ticks};
use skinflint_trace::{LookCause, Mapping, MappingKind, RssSample, Snapshot, SnapshotCause};

use crate::dividing::{self, part};
use crate::falls::Falls;
use crate::hotspot::HotSpot;
use crate::look;
use crate::mappings::{self, PageMap};
use crate::modules;
use crate::output::{Job, Output};
use crate::process::{Process, lock};
use crate::tops::Arenas;
use crate::v8::V8;

/// How often resident memory is read.
const RSS_INTERVAL: Duration = Duration::from_millis(10);
/// The least time between two readings of the proportional set size of a process that is alone.
const PSS_INTERVAL: Duration = Duration::from_millis(500);
/// The least time between two roll calls of several processes: compilers live for tens of milliseconds.
const ROLL_CALL_INTERVAL: Duration = Duration::from_millis(20);
/// The time after which all mappings are read when nothing else asks for it.
const PERIOD: Duration = Duration::from_secs(2);
/// The pause after a snapshot is this many times its cost (P2).
const PAUSE_FACTOR: u32 = 10;
/// The factor while memory rises by a tenth and more: a peak may be short.
const HASTE_FACTOR: u32 = 3;
/// The largest mapping whose pages are read one by one, in bytes.
const RUNS_LIMIT: u64 = 64 << 30;
/// How long samples are gathered after the first before they are written.
const RSS_BATCH: Duration = Duration::from_millis(500);

/// A request of another thread to the sampler.
pub enum Ask {
    /// A process begins.
    Begin(Arc<Process>),
    /// The program waits for a snapshot: its cause, the number to answer with, and a sender. Another thread that waits
    /// has the receiver, and sees the snapshot's end when the sender is dropped.
    Snapshot(Arc<Process>, SnapshotCause, u32, Option<Sender<()>>),
    /// The live heap of a process is about to fall from its greatest, and it waits: the number to answer with.
    HighWater(Arc<Process>, u32),
    /// The end of a process begins, and it waits: its pointers are looked at, and the number is answered with. Another
    /// thread that waits has the receiver.
    Look(Arc<Process>, u32, Option<Sender<()>>),
    /// A process has ended: the sampler writes what is still held back, then sends.
    End(Arc<Process>, std::sync::mpsc::SyncSender<()>),
}

struct Watched {
    process: Arc<Process>,
    status: Option<Status>,
    samples: Vec<RssSample>,
    peak_bytes: u64,
    held_back: Option<Box<Snapshot>>,
    held_since: Instant,
    next_snapshot: Instant,
    next_hasty: Instant,
    next_period: Instant,
    next_write: Instant,
    /// The number of looks taken so far, and whether one was of the end.
    looks: u32,
    end_seen: bool,
    known: Known,
}

/// Knowledge that snapshots of a process keep from those before.
struct Known {
    /// The ends of the objects of its bss mappings, by path.
    ends: HashMap<String, Option<u64>>,
    arenas: Arenas,
    v8: V8,
    hotspot: HotSpot,
    falls: Falls,
}

impl Watched {
    fn new(process: Arc<Process>) -> Watched {
        let now = Instant::now();
        let status = Status::open(process.pid);
        let known = Known {
            ends: HashMap::new(),
            arenas: Arenas::of(&process.info),
            v8: V8::default(),
            hotspot: HotSpot::default(),
            falls: Falls::new(now),
        };
        Watched {
            process,
            status,
            samples: Vec::new(),
            peak_bytes: 0,
            held_back: None,
            held_since: now,
            next_snapshot: now + Duration::from_millis(5),
            next_hasty: now + Duration::from_millis(5),
            next_period: now + PERIOD,
            next_write: now,
            looks: 0,
            end_seen: false,
            known,
        }
    }

    fn flush(&mut self, output: &Output) {
        if !self.samples.is_empty() {
            let samples = std::mem::take(&mut self.samples);
            output.send(self.process.index, Job::Rss(samples));
        }
        self.let_go(output);
    }

    /// Keeps a sample until enough are gathered to be written.
    fn keep(&mut self, sample: RssSample, output: &Output) {
        self.samples.push(sample);
        let now = Instant::now();
        if now >= self.next_write {
            self.next_write = now + RSS_BATCH;
            let samples = std::mem::take(&mut self.samples);
            output.send(self.process.index, Job::Rss(samples));
        }
    }

    fn let_go(&mut self, output: &Output) {
        if let Some(snapshot) = self.held_back.take() {
            output.send(self.process.index, Job::Snapshot(snapshot));
        }
    }
}

/// Runs until every sender is gone.
pub fn run(asks: &Receiver<Ask>, output: &Output, looks: bool) {
    let mut watched: HashMap<usize, Watched> = HashMap::new();
    let mut next = Instant::now() + RSS_INTERVAL;
    let (mut last_call, mut call_cost) = (Instant::now(), None::<Duration>);
    loop {
        match asks.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(ask) => answer(ask, &mut watched, output, looks),
            Err(RecvTimeoutError::Timeout) => {
                // The first call does not wait for half a second: the program may be over by then.
                let pause = match (watched.len(), call_cost) {
                    (_, None) => ROLL_CALL_INTERVAL,
                    (0 | 1, Some(cost)) => PSS_INTERVAL.max(cost * PAUSE_FACTOR),
                    (_, Some(cost)) => ROLL_CALL_INTERVAL.max(cost * PAUSE_FACTOR),
                };
                if !watched.is_empty() && last_call.elapsed() >= pause {
                    last_call = Instant::now();
                    roll_call(&mut watched, output);
                    call_cost = Some(last_call.elapsed());
                }
                watched
                    .values_mut()
                    .for_each(|watched| tick(watched, output));
                next = Instant::now() + RSS_INTERVAL;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn answer(ask: Ask, watched: &mut HashMap<usize, Watched>, output: &Output, looks: bool) {
    match ask {
        Ask::Begin(process) => {
            watched.insert(process.index, Watched::new(process));
        }
        Ask::Snapshot(process, cause, number, _waiting) => {
            if let Some(watched) = watched.get_mut(&process.index) {
                // Before the snapshot: the program of a mark from outside runs on meanwhile.
                match cause {
                    SnapshotCause::Mark(mark) if looks => {
                        take_look(watched, LookCause::Mark(mark), output);
                    }
                    SnapshotCause::Exit if looks => take_look(watched, LookCause::End, output),
                    _ => {}
                }
                asked_snapshot(watched, cause, output);
            }
            let_go_on(&process.first.header().snapshot_done, number);
        }
        Ask::HighWater(process, number) => {
            if let Some(watched) = watched.get_mut(&process.index) {
                read_high_water(watched, output);
            }
            let_go_on(&process.first.header().high_water_done, number);
        }
        Ask::Look(process, number, _waiting) => {
            if let Some(watched) = watched.get_mut(&process.index).filter(|_| looks) {
                take_look(watched, LookCause::End, output);
            }
            let_go_on(&process.first.header().snapshot_done, number);
        }
        Ask::End(process, done) => {
            if let Some(mut watched) = watched.remove(&process.index) {
                watched.flush(output);
            }
            let _ = done.send(());
        }
    }
}

/// Answers a process that waits for this number.
fn let_go_on(answered: &AtomicU32, number: u32) {
    // ORDER: Release; pairs with the recorder's Acquire, though only the number matters.
    answered.store(number, Ordering::Release);
    sys::futex_wake(answered);
}

/// The most looks at marks of one process; the end has one more.
const MOST_LOOKS: u32 = 64;

/// Looks at a process's pointers; at the end only once, at the first request.
fn take_look(watched: &mut Watched, cause: LookCause, output: &Output) {
    let is_end = cause == LookCause::End;
    if watched.end_seen || (!is_end && watched.looks >= MOST_LOOKS) {
        return;
    }
    watched.end_seen = is_end;
    let (look, pointers) = look::take(&watched.process, watched.looks, cause);
    watched.looks += 1;
    output.send(watched.process.index, Job::Look(Box::new(look), pointers));
}

fn sample(watched: &mut Watched, output: &Output) -> Option<RssSample> {
    let process = &watched.process;
    let ticket = process.newest_ticket();
    let memory = watched.status.as_ref()?.memory()?;
    let sample = rss_sample(&memory, process.now_ns(), ticket);
    note(&mut lock(&process.memory), memory);
    watched.keep(sample, output);
    Some(sample)
}

/// Notes the newest reading of a process's memory. The kernel's high-water mark begins anew with the program that the
/// process becomes (`exec`), which may be read before this one's trace is closed: the largest stays.
fn note(newest: &mut Memory, memory: Memory) {
    let before = newest.high_water_bytes;
    *newest = memory;
    newest.high_water_bytes = newest.high_water_bytes.max(before);
}

fn rss_sample(memory: &Memory, time_ns: u64, ticket: u64) -> RssSample {
    RssSample {
        time_ns,
        ticket,
        rss_bytes: memory.rss_bytes(),
        anon_bytes: memory.anon_bytes,
        file_bytes: memory.file_bytes,
        shmem_bytes: memory.shmem_bytes,
        ..RssSample::default()
    }
}

/// Reads the proportional sizes of all processes (P4).
fn roll_call(watched: &mut HashMap<usize, Watched>, output: &Output) {
    let stamp_ns = sys::monotonic_ns();
    for watched in watched.values_mut() {
        let process = Arc::clone(&watched.process);
        let ticket = process.newest_ticket();
        let status = watched.status.as_ref().and_then(Status::memory);
        let pss_bytes = rollup(process.pid).and_then(|rollup| rollup.pss_bytes);
        let (Some(memory), Some(pss_bytes)) = (status, pss_bytes) else {
            continue;
        };
        let Some(time_ns) = stamp_ns.checked_sub(process.start_ns) else {
            // The process began during the roll call; the next one finds it.
            continue;
        };
        let sample = RssSample {
            pss_bytes: Some(pss_bytes),
            ..rss_sample(&memory, time_ns, ticket)
        };
        watched.keep(sample, output);
    }
}

fn tick(watched: &mut Watched, output: &Output) {
    // ORDER: Relaxed; a flag, `Ask::End` follows.
    if watched.process.ended.load(Ordering::Relaxed) {
        // ORDER (above): Relaxed; a flag, `Ask::End` follows.
        return;
    }
    let Some(sample) = sample(watched, output) else {
        return;
    };
    let now = Instant::now();
    let live = watched.process.counted_bytes();
    let fell = live.is_some_and(|live| watched.known.falls.look(live, now));
    let rss = sample.rss_bytes;
    if rss * 10 < watched.peak_bytes * 9 || watched.held_since + Duration::from_secs(1) < now {
        watched.let_go(output);
    }
    let soaring = rss > watched.peak_bytes + watched.peak_bytes / 10;
    if now
        < (if soaring {
            watched.next_hasty
        } else {
            watched.next_snapshot
        })
    {
        return;
    }
    let rising = rss > watched.peak_bytes + watched.peak_bytes / 100 + (64 << 10);
    let cause = if rising {
        SnapshotCause::Peak
    } else if fell || now >= watched.next_period {
        SnapshotCause::Periodic
    } else {
        return;
    };
    let Some(snapshot) = snapshot(&watched.process, cause.clone(), &mut watched.known) else {
        watched.next_snapshot = now + Duration::from_secs(1);
        return;
    };
    let cost = now.elapsed().max(Duration::from_micros(200));
    watched.next_snapshot = Instant::now() + cost * PAUSE_FACTOR;
    watched.next_hasty = Instant::now() + cost * HASTE_FACTOR;
    watched.next_period = Instant::now() + PERIOD;
    if fell {
        watched.known.falls.pause(Instant::now(), cost);
    }
    if cause == SnapshotCause::Peak {
        let first = watched.peak_bytes == 0;
        watched.peak_bytes = watched.peak_bytes.max(rss);
        if watched.held_back.is_none() {
            watched.held_since = now;
        }
        watched.held_back = Some(Box::new(snapshot));
        if first {
            // If the collector is killed, there is at least one snapshot.
            watched.let_go(output);
        }
    } else {
        watched.let_go(output);
        output.send(watched.process.index, Job::Snapshot(Box::new(snapshot)));
    }
}

fn asked_snapshot(watched: &mut Watched, cause: SnapshotCause, output: &Output) {
    let process = Arc::clone(&watched.process);
    sample(watched, output);
    if cause == SnapshotCause::Exit
        && let Some(stat) = stat(process.pid)
    {
        let cpu_ns = ticks(stat.own_ticks()).as_nanos() as u64;
        // ORDER: Relaxed; read after the process has ended.
        process.cpu_ns.store(cpu_ns, Ordering::Relaxed);
    }
    let is_exit = cause == SnapshotCause::Exit;
    if let Some(mut snapshot) = snapshot(&process, cause, &mut watched.known) {
        if is_exit {
            process.count_in_use();
            // P5. ORDER: Relaxed; the number that was asked for published it.
            let asked_ns = process.first.header().asked_ns.load(Ordering::Relaxed);
            let asked_ns = asked_ns.saturating_sub(process.start_ns);
            snapshot.time_ns = snapshot.time_ns.min(asked_ns.max(1));
        }
        watched.let_go(output);
        output.send(process.index, Job::Snapshot(Box::new(snapshot)));
    }
}

/// Takes a snapshot of the greatest live heap. The one held back shows less of the same rise.
fn read_high_water(watched: &mut Watched, output: &Output) {
    let now = Instant::now();
    let Some(sample) = sample(watched, output) else {
        return;
    };
    let process = Arc::clone(&watched.process);
    if let Some(snapshot) = snapshot(&process, SnapshotCause::Peak, &mut watched.known) {
        watched.let_go(output);
        output.send(process.index, Job::Snapshot(Box::new(snapshot)));
        watched.peak_bytes = watched.peak_bytes.max(sample.rss_bytes);
        watched.next_snapshot = Instant::now() + now.elapsed() * PAUSE_FACTOR;
    }
}

/// The most readings of a process whose memory changes between the reading of sizes and that of pages.
const TRIES: u32 = 3;
/// A reading is of one moment if its pages lack no more than one in this many bytes of its sizes.
const TORN_PART: u64 = 50;

/// Reads all mappings, and the resident pages of those that may hold blocks; reads again if the two are of different
/// moments. If they still are after the last try, the sizes stay as they were read, and the books show the difference.
fn snapshot(process: &Process, cause: SnapshotCause, known: &mut Known) -> Option<Snapshot> {
    let mut tries = 1;
    loop {
        let (snapshot, is_torn) = read_snapshot(process, cause.clone(), known)?;
        if !is_torn || tries >= TRIES {
            if let Some(live) = snapshot.counted_bytes {
                known.falls.read(live);
            }
            return Some(snapshot);
        }
        tries += 1;
    }
}

fn pages_bytes(mapping: &Mapping) -> u64 {
    mapping.runs.iter().map(|&(_, bytes)| bytes).sum()
}

/// Makes sizes and pages agree: if mappings lost little between the two readings, their sizes become those of their
/// pages. Returns false, and changes nothing, if they lost much. More pages than size are not a loss: where a program
/// only reads, the kernel shows a page of zeros that it does not count.
fn agree(mappings: &mut [Mapping]) -> bool {
    let (mut torn, mut resident) = (0, 0);
    for mapping in mappings.iter() {
        resident += mapping.rss_bytes;
        if mapping.runs_known {
            torn += mapping.rss_bytes.saturating_sub(pages_bytes(mapping));
        }
    }
    if torn > resident / TORN_PART {
        return false;
    }
    for mapping in mappings {
        if mapping.runs_known && pages_bytes(mapping) < mapping.rss_bytes {
            *mapping = part(mapping, mapping.start, mapping.end);
        }
    }
    true
}

/// Reads a snapshot. Returns it, and whether its sizes and its pages are of different moments.
fn read_snapshot(
    process: &Process,
    cause: SnapshotCause,
    known: &mut Known,
) -> Option<(Snapshot, bool)> {
    let begun = Instant::now();
    process.read_outside();
    let ticket = process.newest_ticket();
    let time_ns = process.now_ns();
    let counted_bytes = process.counted_bytes();
    let mut mappings = mappings::smaps(process.pid)?;
    let joined = modules::joined_bss(process.pid, &mappings, &mut known.ends);
    let pages = match PageMap::open(process.pid) {
        Err(error) if error.kind() != std::io::ErrorKind::PermissionDenied => return None,
        pages => pages.ok(),
    };
    let page = process.info.os_page_bytes.max(4096);
    let mut own = lock(&process.own).clone();
    own.iter_mut()
        .for_each(|range| range.1 = range.0 + range.1.next_multiple_of(4096));
    let stacks = lock(&process.stacks).clone();
    for (index, mapping) in mappings.iter_mut().enumerate() {
        if mapping.kind == MappingKind::Anon && stacks.contains(&(mapping.start, mapping.end)) {
            mapping.kind = MappingKind::Stack;
        }
        let is_joined = joined.iter().any(|one| one.0 == index);
        let wanted = is_joined || matches!(mapping.kind, MappingKind::Anon | MappingKind::Heap);
        if wanted && mapping.end - mapping.start <= RUNS_LIMIT {
            let runs = match (&pages, mapping.rss_bytes) {
                (_, 0) => Some(Vec::new()),
                (Some(pages), _) => pages.runs(mapping.start, mapping.end, page),
                (None, _) => None,
            };
            if pages.is_some() && runs.is_none() {
                // Its memory went while it was read: the process is exiting, and the sizes are of no moment.
                return None;
            }
            mapping.runs_known = runs.is_some();
            mapping.runs = runs.unwrap_or_default();
        }
    }
    let is_torn = !agree(&mut mappings);
    let mappings = dividing::by_owner(mappings, &joined, stacks, own);
    // What follows says nothing of pages and sizes; their moment is over.
    let took_ns = begun.elapsed().as_nanos() as u64;
    // The pages tell which memory may be read for it.
    let tops = match pages.is_some() {
        true => known.arenas.tops(process.pid, &mappings),
        false => None,
    };
    let mappings = known.v8.name(process.pid, mappings);
    let mappings = known.hotspot.name(process.pid, mappings);
    let mappings = match &process.outside {
        Some(outside) => outside.name(mappings),
        None => mappings,
    };
    let recorder = mappings
        .iter()
        .filter(|mapping| mapping.kind == MappingKind::Recorder);
    let recorder_bytes = recorder.map(|mapping| mapping.rss_bytes).sum();
    // ORDER: Relaxed; a figure for the ending.
    process
        .recorder_bytes
        .store(recorder_bytes, Ordering::Relaxed);
    let snapshot = Snapshot {
        time_ns,
        ticket,
        cause,
        took_ns,
        counted_bytes,
        tops,
        mappings,
    };
    Some((snapshot, is_torn))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_pages_if_little_changed_between() {
        let mapping = |rss_bytes, pages: u64| Mapping {
            start: 0x1000,
            end: 0x100_0000,
            kind: MappingKind::Anon,
            rss_bytes,
            private_bytes: rss_bytes,
            runs: vec![(0x1000, pages)],
            runs_known: true,
            ..Mapping::default()
        };
        // 2 % of 400 KiB are 8 KiB.
        let mut few = [mapping(200 << 10, 192 << 10), mapping(200 << 10, 208 << 10)];
        assert!(agree(&mut few));
        assert_eq!(
            (few[0].rss_bytes, few[0].private_bytes),
            (192 << 10, 192 << 10)
        );
        // Pages of zeros.
        assert_eq!(few[1].rss_bytes, 200 << 10);
        let mut much = [mapping(200 << 10, 188 << 10), mapping(200 << 10, 200 << 10)];
        assert!(!agree(&mut much));
        assert_eq!(much[0].rss_bytes, 200 << 10, "as it was read");
        let mut unread = [Mapping {
            rss_bytes: 4096,
            ..Mapping::default()
        }];
        assert!(agree(&mut unread));
        assert_eq!(unread[0].rss_bytes, 4096);
    }

    #[test]
    fn the_high_water_mark_is_that_of_the_program_before_exec() {
        let memory = |anon_bytes: u64, high_water: u64| Memory {
            anon_bytes,
            high_water_bytes: Some(high_water),
            ..Memory::default()
        };
        let mut newest = Memory::default();
        note(&mut newest, memory(20 << 20, 21 << 20));
        // Another program now.
        note(&mut newest, memory(1 << 20, 1 << 20));
        assert_eq!(newest, memory(1 << 20, 21 << 20));
    }
}
