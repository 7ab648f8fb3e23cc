//! From everything in a trace that is not an event to bytes, and back.
//!
//! ```text
//!   list   = count, record*            record = length, field*
//!   fields = number | signed | string (length, bytes) | option (0, or 1 and the value) | list
//! ```
//!
//! T1  A record carries its length, so that a later minor version may add fields at its end; a field
//!     that is missing there takes its default where FORMAT.md says so.
//! T2  Counts are checked against the bytes that are left before anything is allocated.
//! T3  Bytes that are not UTF-8 are replaced, not refused: paths are what the kernel reports.
//! T4  Amounts of memory and times are below bounds that no machine reaches, and no range ends before it begins: what is
//!     beyond is damage, and readers may add a few of them without a thought.
//!
//! Not here: stack nodes (nodes.rs), blocks (block.rs).

use crate::event::ThreadId;
use crate::info::*;
use skinflint_framing::varint::{Cursor, Malformed, put, put_bytes, put_signed, unzigzag, zigzag};

type Read<T> = Result<T, Malformed>;

/// The most bytes that a figure may state (T4): all that 57 bits of virtual address reach.
const MOST_BYTES: u64 = 1 << 57;
/// The most nanoseconds that a time may be (T4): 146 years.
const MOST_NS: u64 = 1 << 62;

fn amount(bytes: u64) -> Read<u64> {
    if bytes > MOST_BYTES {
        return Err(Malformed("more memory than any machine can have"));
    }
    Ok(bytes)
}

fn time(ns: u64) -> Read<u64> {
    if ns > MOST_NS {
        return Err(Malformed("a time more than a century after the beginning"));
    }
    Ok(ns)
}

pub(crate) fn get_amount(from: &mut Cursor<'_>) -> Read<u64> {
    amount(from.get()?)
}

pub(crate) fn get_time(from: &mut Cursor<'_>) -> Read<u64> {
    time(from.get()?)
}

fn get_optional_amount(from: &mut Cursor<'_>) -> Read<Option<u64>> {
    get_option(from)?.map(amount).transpose()
}

fn get_optional_time(from: &mut Cursor<'_>) -> Read<Option<u64>> {
    get_option(from)?.map(time).transpose()
}

/// Returns the end of a range, which does not wrap around (T4).
pub(crate) fn end_of(start: u64, bytes: u64) -> Read<u64> {
    start
        .checked_add(bytes)
        .ok_or(Malformed("a range that ends before it begins"))
}

pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_bytes(out, text.as_bytes());
}

pub(crate) fn get_text(from: &mut Cursor<'_>) -> Read<String> {
    Ok(String::from_utf8_lossy(from.get_bytes()?).into_owned())
}

fn put_option(out: &mut Vec<u8>, value: Option<u64>) {
    put(out, u64::from(value.is_some()));
    if let Some(value) = value {
        put(out, value);
    }
}

fn get_option(from: &mut Cursor<'_>) -> Read<Option<u64>> {
    match from.get()? {
        0 => Ok(None),
        1 => Ok(Some(from.get()?)),
        _ => Err(Malformed("an option that is neither there nor not")),
    }
}

/// Writes a record: what `fields` writes, with its length in front.
pub(crate) fn put_record(out: &mut Vec<u8>, fields: impl FnOnce(&mut Vec<u8>)) {
    let mut record = Vec::new();
    fields(&mut record);
    put_bytes(out, &record);
}

pub(crate) fn get_record<'a>(from: &mut Cursor<'a>) -> Read<Cursor<'a>> {
    Ok(Cursor::new(from.get_bytes()?))
}

fn get_i32(from: &mut Cursor<'_>) -> Read<i32> {
    i32::try_from(from.get_signed()?)
        .map_err(|_| Malformed("a 32-bit field holds more than 32 bits"))
}

pub(crate) fn put_process(out: &mut Vec<u8>, info: &ProcessInfo) {
    put_record(out, |out| {
        put_text(out, &info.uid);
        put(out, u64::from(info.pid));
        put(out, u64::from(info.ppid));
        put_text(out, &info.name);
        put_text(out, &info.exe);
        put(out, info.argv.len() as u64);
        for arg in &info.argv {
            put_text(out, arg);
        }
        put_text(out, &info.cwd);
        put(out, info.started_unix_ns);
        put_text(out, &info.recorder_version);
        put_text(out, &info.system);
        put_text(out, &info.allocator);
        put_text(out, &info.allocator_path);
        put(out, info.os_page_bytes);
        match &info.origin {
            None => put(out, 0),
            Some(origin) => {
                put(
                    out,
                    match origin.how {
                        OriginKind::Fork => 1,
                        OriginKind::Spawn => 2,
                        OriginKind::Exec => 3,
                    },
                );
                put_text(out, &origin.uid);
                put(out, u64::from(origin.pid));
                put(out, origin.fork_ticket);
            }
        }
        put(out, info.sample_bytes);
        put_segment(out, info.segment.as_ref());
    });
}

pub(crate) fn get_process(from: &mut Cursor<'_>) -> Read<ProcessInfo> {
    let mut from = get_record(from)?;
    let from = &mut from;
    let mut info = ProcessInfo {
        uid: get_text(from)?,
        pid: from.get_u32()?,
        ppid: from.get_u32()?,
        name: get_text(from)?,
        exe: get_text(from)?,
        ..ProcessInfo::default()
    };
    for _ in 0..from.get_count(1)? {
        info.argv.push(get_text(from)?);
    }
    info.cwd = get_text(from)?;
    info.started_unix_ns = get_time(from)?;
    info.recorder_version = get_text(from)?;
    info.system = get_text(from)?;
    info.allocator = get_text(from)?;
    info.allocator_path = get_text(from)?;
    info.os_page_bytes = get_amount(from)?;
    let how = match from.get()? {
        0 => None,
        1 => Some(OriginKind::Fork),
        2 => Some(OriginKind::Spawn),
        3 => Some(OriginKind::Exec),
        _ => return Err(Malformed("an unknown kind of origin")),
    };
    if let Some(how) = how {
        info.origin = Some(Origin {
            how,
            uid: get_text(from)?,
            pid: from.get_u32()?,
            fork_ticket: from.get()?,
        });
    }
    if !from.is_empty() {
        info.sample_bytes = get_amount(from)?;
    }
    if !from.is_empty() && from.get()? != 0 {
        info.segment = Some(get_segment(from)?);
    }
    Ok(info)
}

fn put_segment(out: &mut Vec<u8>, segment: Option<&Segment>) {
    put(out, u64::from(segment.is_some()));
    let Some(segment) = segment else { return };
    let fields = [
        segment.number,
        u64::from(segment.follows),
        segment.since_ns,
        segment.ticket,
        segment.events,
        segment.blocks,
        segment.bytes,
        segment.acquired,
        segment.acquired_bytes,
        u64::from(segment.marks),
    ];
    put_record(out, |out| fields.iter().for_each(|field| put(out, *field)));
}

fn get_segment(from: &mut Cursor<'_>) -> Read<Segment> {
    let mut from = get_record(from)?;
    let from = &mut from;
    Ok(Segment {
        number: from.get()?,
        follows: from.get()? != 0,
        since_ns: get_time(from)?,
        ticket: from.get()?,
        events: from.get()?,
        blocks: from.get()?,
        bytes: from.get()?,
        acquired: from.get()?,
        acquired_bytes: from.get()?,
        marks: from.get_u32()?,
    })
}

pub(crate) fn put_modules(out: &mut Vec<u8>, modules: &[Module]) {
    put(out, modules.len() as u64);
    for module in modules {
        put_record(out, |out| {
            put(out, module.start);
            put(out, module.end.wrapping_sub(module.start));
            put_signed(out, module.start.wrapping_sub(module.bias) as i64);
            put_text(out, &module.path);
            put_text(out, &module.build_id);
            put(out, u64::from(module.first_node));
        });
    }
}

pub(crate) fn get_modules(from: &mut Cursor<'_>) -> Read<Vec<Module>> {
    let mut modules = Vec::new();
    for _ in 0..from.get_count(1)? {
        let mut record = get_record(from)?;
        let start = record.get()?;
        modules.push(Module {
            start,
            end: end_of(start, record.get()?)?,
            bias: start.wrapping_sub(record.get_signed()? as u64),
            path: get_text(&mut record)?,
            build_id: get_text(&mut record)?,
            first_node: record.get_u32()?,
        });
    }
    Ok(modules)
}

/// Writes one record of a threads block, which has no count: records follow up to its end.
pub(crate) fn put_thread(out: &mut Vec<u8>, id: ThreadId, thread: &Thread) {
    put_record(out, |out| {
        put(out, u64::from(id.0));
        put(out, u64::from(thread.tid));
        put_text(out, &thread.name);
        put(out, thread.started_ns);
        put_option(out, thread.ended_ns);
    });
}

pub(crate) fn get_thread(from: &mut Cursor<'_>) -> Read<(ThreadId, Thread)> {
    let mut record = get_record(from)?;
    let id = ThreadId(record.get_u32()?);
    let thread = Thread {
        tid: record.get_u32()?,
        name: get_text(&mut record)?,
        started_ns: get_time(&mut record)?,
        ended_ns: get_optional_time(&mut record)?,
    };
    Ok((id, thread))
}

pub(crate) fn put_mark(out: &mut Vec<u8>, index: u32, mark: &Mark) {
    put_record(out, |out| {
        put(out, u64::from(index));
        put_text(out, &mark.name);
        put(out, mark.time_ns);
        put(out, mark.ticket);
        put_option(out, mark.thread.map(|thread| u64::from(thread.0)));
    });
}

pub(crate) fn get_mark(from: &mut Cursor<'_>) -> Read<(u32, Mark)> {
    let mut record = get_record(from)?;
    let index = record.get_u32()?;
    let (name, time_ns) = (get_text(&mut record)?, get_time(&mut record)?);
    let ticket = record.get()?;
    let thread = match get_option(&mut record)? {
        None => None,
        Some(id) => Some(ThreadId(
            u32::try_from(id).map_err(|_| Malformed("a thread beyond 32 bits"))?,
        )),
    };
    Ok((
        index,
        Mark {
            name,
            time_ns,
            ticket,
            thread,
        },
    ))
}

fn put_delta(out: &mut Vec<u8>, value: u64, last: &mut u64) {
    put_signed(out, value.wrapping_sub(*last) as i64);
    *last = value;
}

fn get_delta(from: &mut Cursor<'_>, last: &mut u64) -> Read<u64> {
    *last = last.wrapping_add(from.get_signed()? as u64);
    Ok(*last)
}

/// Writes samples as differences from the sample before, without record lengths: there are many.
pub(crate) fn put_rss(out: &mut Vec<u8>, samples: &[RssSample]) {
    put(out, samples.len() as u64);
    let mut last = [0; 7];
    for sample in samples {
        put_delta(out, sample.time_ns, &mut last[0]);
        put_delta(out, sample.ticket, &mut last[1]);
        put_delta(out, sample.rss_bytes, &mut last[2]);
        put_delta(out, sample.anon_bytes, &mut last[3]);
        put_delta(out, sample.file_bytes, &mut last[4]);
        put_delta(out, sample.shmem_bytes, &mut last[5]);
        put(out, u64::from(sample.pss_bytes.is_some()));
        if let Some(pss) = sample.pss_bytes {
            put_delta(out, pss, &mut last[6]);
        }
    }
}

pub(crate) fn get_rss(from: &mut Cursor<'_>) -> Read<Vec<RssSample>> {
    let mut samples = Vec::new();
    let mut last = [0; 7];
    for _ in 0..from.get_count(7)? {
        let mut sample = RssSample {
            time_ns: time(get_delta(from, &mut last[0])?)?,
            ticket: get_delta(from, &mut last[1])?,
            rss_bytes: amount(get_delta(from, &mut last[2])?)?,
            anon_bytes: amount(get_delta(from, &mut last[3])?)?,
            file_bytes: amount(get_delta(from, &mut last[4])?)?,
            shmem_bytes: amount(get_delta(from, &mut last[5])?)?,
            pss_bytes: None,
        };
        if from.get()? != 0 {
            sample.pss_bytes = Some(amount(get_delta(from, &mut last[6])?)?);
        }
        samples.push(sample);
    }
    Ok(samples)
}

fn kind_number(kind: MappingKind) -> u64 {
    match kind {
        MappingKind::Other => 0,
        MappingKind::File => 1,
        MappingKind::Heap => 2,
        MappingKind::Stack => 3,
        MappingKind::Anon => 4,
        MappingKind::Shared => 5,
        MappingKind::Recorder => 6,
    }
}

fn kind_of(number: u64) -> MappingKind {
    match number {
        1 => MappingKind::File,
        2 => MappingKind::Heap,
        3 => MappingKind::Stack,
        4 => MappingKind::Anon,
        5 => MappingKind::Shared,
        6 => MappingKind::Recorder,
        _ => MappingKind::Other,
    }
}

/// Writes a snapshot. `with_runs: false` leaves the resident runs out, for a process too large for them to fit.
pub(crate) fn put_snapshot(out: &mut Vec<u8>, snapshot: &Snapshot, with_runs: bool) {
    put_record(out, |out| {
        put(out, snapshot.time_ns);
        put(out, snapshot.ticket);
        match snapshot.cause {
            SnapshotCause::Peak => put(out, 0),
            SnapshotCause::Periodic => put(out, 1),
            SnapshotCause::Mark(mark) => {
                put(out, 2);
                put(out, u64::from(mark));
            }
            SnapshotCause::Exit => put(out, 3),
        }
        put(out, snapshot.took_ns);
        put_option(out, snapshot.counted_bytes.map(zigzag));
        put_tops(out, snapshot.tops.as_deref());
    });
    put(out, snapshot.mappings.len() as u64);
    let mut last = 0;
    for mapping in &snapshot.mappings {
        put_record(out, |out| put_mapping(out, mapping, &mut last, with_runs));
    }
}

/// Writes ranges by address, each as its distance from the end of the one before and its length.
fn put_tops(out: &mut Vec<u8>, tops: Option<&[(u64, u64)]>) {
    put(out, u64::from(tops.is_some()));
    let Some(tops) = tops else { return };
    put(out, tops.len() as u64);
    let mut end = 0u64;
    for &(start, bytes) in tops {
        put(out, start.wrapping_sub(end));
        put(out, bytes);
        end = start.wrapping_add(bytes);
    }
}

fn get_tops(from: &mut Cursor<'_>) -> Read<Option<Vec<(u64, u64)>>> {
    match from.get()? {
        0 => return Ok(None),
        1 => {}
        _ => return Err(Malformed("an option that is neither there nor not")),
    }
    let mut tops = Vec::new();
    let mut end = 0;
    for _ in 0..from.get_count(2)? {
        let start = end_of(end, from.get()?)?;
        let bytes = get_amount(from)?;
        end = end_of(start, bytes)?;
        tops.push((start, bytes));
    }
    Ok(Some(tops))
}

fn put_mapping(out: &mut Vec<u8>, mapping: &Mapping, last: &mut u64, with_runs: bool) {
    put_delta(out, mapping.start, last);
    put_delta(out, mapping.end, last);
    put_text(out, &mapping.perms);
    put_text(out, &mapping.name);
    put(out, kind_number(mapping.kind));
    put(out, mapping.rss_bytes);
    put(out, mapping.pss_bytes);
    put(out, mapping.private_bytes);
    put(out, mapping.anon_bytes);
    put(out, mapping.swap_bytes);
    let known = with_runs && mapping.runs_known;
    put(out, u64::from(known));
    let runs: &[(u64, u64)] = if with_runs { &mapping.runs } else { &[] };
    put(out, runs.len() as u64);
    let mut end = mapping.start;
    for &(start, bytes) in runs {
        put_delta(out, start, &mut end);
        put(out, bytes);
        end = end.wrapping_add(bytes);
    }
    put_option(out, mapping.huge_bytes);
}

fn get_mapping(from: &mut Cursor<'_>, last: &mut u64) -> Read<Mapping> {
    let mut mapping = Mapping {
        start: get_delta(from, last)?,
        end: get_delta(from, last)?,
        perms: get_text(from)?,
        name: get_text(from)?,
        kind: kind_of(from.get()?),
        rss_bytes: get_amount(from)?,
        pss_bytes: get_amount(from)?,
        private_bytes: get_amount(from)?,
        anon_bytes: get_amount(from)?,
        swap_bytes: get_amount(from)?,
        huge_bytes: None,
        runs: Vec::new(),
        runs_known: from.get()? != 0,
    };
    if mapping.end < mapping.start {
        return Err(Malformed("a mapping that ends before it begins"));
    }
    let mut end = mapping.start;
    for _ in 0..from.get_count(2)? {
        let start = get_delta(from, &mut end)?;
        let bytes = get_amount(from)?;
        end = end_of(start, bytes)?;
        mapping.runs.push((start, bytes));
    }
    if !from.is_empty() {
        mapping.huge_bytes = get_optional_amount(from)?;
    }
    Ok(mapping)
}

pub(crate) fn get_snapshot(from: &mut Cursor<'_>) -> Read<Snapshot> {
    let mut record = get_record(from)?;
    let (time_ns, ticket) = (get_time(&mut record)?, record.get()?);
    let cause = match record.get()? {
        0 => SnapshotCause::Peak,
        2 => SnapshotCause::Mark(record.get_u32()?),
        3 => SnapshotCause::Exit,
        _ => SnapshotCause::Periodic,
    };
    let took_ns = get_time(&mut record)?;
    let counted_bytes = if record.is_empty() {
        None
    } else {
        let counted = get_option(&mut record)?.map(unzigzag);
        counted.map_or(Ok(0), |counted| amount(counted.unsigned_abs()))?;
        counted
    };
    // Since 1.4.
    let tops = match record.is_empty() {
        true => None,
        false => get_tops(&mut record)?,
    };
    let mut mappings = Vec::new();
    let mut last = 0;
    for _ in 0..from.get_count(1)? {
        mappings.push(get_mapping(&mut get_record(from)?, &mut last)?);
    }
    Ok(Snapshot {
        time_ns,
        ticket,
        cause,
        took_ns,
        counted_bytes,
        tops,
        mappings,
    })
}

pub(crate) fn put_ending(out: &mut Vec<u8>, ending: &Ending) {
    put_record(out, |out| {
        let (how, value) = match ending.exit {
            Exit::Unknown => (0, 0),
            Exit::Exited(status) => (1, status),
            Exit::Signal(signal) => (2, signal),
            Exit::Exec => (3, 0),
            Exit::Detached => (4, 0),
        };
        put(out, how);
        put_signed(out, i64::from(value));
        put(out, ending.time_ns);
        put(out, ending.events);
        put(out, ending.lost_events);
        put(out, ending.truncated_stacks);
        put(out, ending.notes.len() as u64);
        for note in &ending.notes {
            put_text(out, note);
        }
        put(out, ending.recorder_bytes);
        put_option(out, ending.cpu_ns);
        put_option(out, ending.max_rss_bytes);
        let (before, after) = ending.in_use_bytes.unzip();
        put_option(out, before);
        put_option(out, after);
        put_option(out, ending.read_bytes);
        put_option(out, ending.written_bytes);
    });
}

pub(crate) fn get_ending(from: &mut Cursor<'_>) -> Read<Ending> {
    let mut record = get_record(from)?;
    let from = &mut record;
    let (how, value) = (from.get()?, get_i32(from)?);
    let mut ending = Ending {
        exit: match how {
            1 => Exit::Exited(value),
            2 => Exit::Signal(value),
            3 => Exit::Exec,
            4 => Exit::Detached,
            _ => Exit::Unknown,
        },
        time_ns: get_time(from)?,
        events: from.get()?,
        lost_events: from.get()?,
        truncated_stacks: from.get()?,
        ..Ending::default()
    };
    for _ in 0..from.get_count(1)? {
        ending.notes.push(get_text(from)?);
    }
    ending.recorder_bytes = get_amount(from)?;
    ending.cpu_ns = get_optional_time(from)?;
    ending.max_rss_bytes = get_optional_amount(from)?;
    // Since 1.3.
    if !from.is_empty() {
        let counts = get_option(from)?.zip(get_option(from)?);
        // The allocator's own words: a program that wrote over its heap makes them nonsense, and only them.
        let is_sound = |count: u64| amount(count).is_ok();
        ending.in_use_bytes = counts.filter(|&(before, after)| is_sound(before) && is_sound(after));
    }
    // Since 1.6.
    if !from.is_empty() {
        ending.read_bytes = get_optional_amount(from)?;
        ending.written_bytes = get_optional_amount(from)?;
    }
    Ok(ending)
}

/// Writes one record of a block of lost processes, which has no count: records follow up to its end.
pub(crate) fn put_lost(out: &mut Vec<u8>, lost: &LostProcess) {
    put_record(out, |out| {
        let what = match lost.what {
            LostKind::Copy => 0,
            LostKind::Program => 1,
            LostKind::Exec => 2,
        };
        put(out, what);
        put(out, u64::from(lost.pid));
        put_text(out, &lost.name);
        put_text(out, &lost.exe);
        put(out, lost.time_ns);
        let why = match lost.why {
            LostWhy::Unknown => 0,
            LostWhy::Unreachable => 1,
            LostWhy::Static => 2,
            LostWhy::Privileged => 3,
            LostWhy::Environment => 4,
            LostWhy::Root => 5,
            LostWhy::Refused => 6,
            LostWhy::Quiet => 7,
            LostWhy::Unwritten => 8,
            LostWhy::Filter => 9,
            LostWhy::Unreadable => 10,
        };
        put(out, why);
        put_option(out, lost.max_rss_bytes);
    });
}

pub(crate) fn get_lost(from: &mut Cursor<'_>) -> Read<LostProcess> {
    let mut record = get_record(from)?;
    let from = &mut record;
    Ok(LostProcess {
        what: match from.get()? {
            0 => LostKind::Copy,
            2 => LostKind::Exec,
            _ => LostKind::Program,
        },
        pid: from.get_u32()?,
        name: get_text(from)?,
        exe: get_text(from)?,
        time_ns: get_time(from)?,
        why: match from.get()? {
            1 => LostWhy::Unreachable,
            2 => LostWhy::Static,
            3 => LostWhy::Privileged,
            4 => LostWhy::Environment,
            5 => LostWhy::Root,
            6 => LostWhy::Refused,
            7 => LostWhy::Quiet,
            8 => LostWhy::Unwritten,
            9 => LostWhy::Filter,
            10 => LostWhy::Unreadable,
            _ => LostWhy::Unknown,
        },
        max_rss_bytes: get_optional_amount(from)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mapping as an older version wrote it ends before the bytes in huge pages: they are not known.
    #[test]
    fn a_mapping_of_an_older_version_does_not_know_huge_pages() {
        let mapping = Mapping {
            start: 4096,
            end: 8192,
            rss_bytes: 4096,
            huge_bytes: Some(77),
            ..Mapping::default()
        };
        let mut out = Vec::new();
        put_mapping(&mut out, &mapping, &mut 0, true);
        let read = |bytes: &[u8]| get_mapping(&mut Cursor::new(bytes), &mut 0).ok();
        assert_eq!(read(&out), Some(mapping.clone()));
        let older = Mapping {
            huge_bytes: None,
            ..mapping
        };
        // An option that is there takes two bytes here.
        assert_eq!(read(&out[..out.len() - 2]), Some(older));
        assert_eq!(read(&out[..out.len() - 1]), None, "cut within it");
    }

    /// A snapshot of 1.3 ends before the topmost chunks: they are not known, which is not that there are none.
    #[test]
    fn a_snapshot_of_an_older_version_does_not_know_topmost_chunks() {
        let snapshot = |tops| Snapshot {
            time_ns: 1,
            ticket: 2,
            cause: SnapshotCause::Exit,
            took_ns: 3,
            counted_bytes: Some(4),
            tops,
            mappings: Vec::new(),
        };
        let written = |tops| {
            let mut out = Vec::new();
            put_snapshot(&mut out, &snapshot(tops), true);
            out
        };
        let read = |bytes: &[u8]| get_snapshot(&mut Cursor::new(bytes)).ok();
        for tops in [None, Some(Vec::new()), Some(vec![(16, 32), (64, 128)])] {
            assert_eq!(read(&written(tops.clone())), Some(snapshot(tops)));
        }
        // The record's length is the first byte; the last byte is the number of mappings. That there are no topmost chunks
        // takes two bytes, which 1.3 did not write.
        let new = written(Some(Vec::new()));
        let fields = &new[1..new.len() - 3];
        let older = [&[fields.len() as u8], fields, &[0]].concat();
        assert_eq!(new[0], older[0] + 2);
        assert_eq!(read(&older), Some(snapshot(None)));
        // A range without its length.
        let mut cut = written(Some(vec![(16, 32)]));
        cut.remove(cut.len() - 2);
        cut[0] -= 1;
        assert_eq!(read(&cut), None);
    }
}
