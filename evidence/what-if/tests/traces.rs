//! What-if figures of a trace in a file: its two passes, and what each of them is for.

use skinflint_trace::{
    AllocFn, Ending, Event, EventEncoder, EventKind, Exit, FreeFn, Mapping, MappingKind, NodeId,
    ProcessInfo, Snapshot, SnapshotCause, ThreadId, Trace, Writer,
};
use skinflint_what_if::{self as what_if, Policy};

const MIB: u64 = 1 << 20;
const MAP: u64 = 0x7F_0000_0000;

fn event(ticket: u64, time_ns: u64, kind: EventKind) -> Event {
    Event {
        ticket,
        time_ns,
        thread: ThreadId(0),
        kind,
    }
}

/// The mebibyte, and a release of nothing.
fn alloc() -> Event {
    let kind = EventKind::Alloc {
        func: AllocFn::Malloc,
        node: NodeId(0),
        addr: MAP,
        size: MIB,
        usable: MIB,
    };
    event(1, 1_000_000, kind)
}

fn free(ticket: u64) -> Event {
    let (func, addr) = (FreeFn::Free, 0);
    event(ticket, 1_000_000_000, EventKind::Free { func, addr })
}

/// A mebibyte of one stack, releases of nothing, and an end after a second; `looks` are its snapshots.
fn trace(name: &str, releases: u64, looks: &[Snapshot]) -> Trace {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut writer = Writer::create(&path, &ProcessInfo::default()).expect("a file");
    let mut encoder = EventEncoder::new(ThreadId(0));
    encoder.push(&alloc());
    for ticket in 2..2 + releases {
        encoder.push(&free(ticket));
        if encoder.is_full() {
            let block = encoder.take().expect("it is full");
            writer.events(block).expect("written");
        }
    }
    if let Some(block) = encoder.take() {
        writer.events(block).expect("written");
    }
    for look in looks {
        writer.snapshot(look).expect("written");
    }
    let ending = Ending {
        exit: Exit::Exited(0),
        time_ns: 2_000_000_000,
        events: 1 + releases,
        ..Ending::default()
    };
    writer.ending(&ending).expect("written");
    let trace = Trace::open(&path).expect("a trace");
    std::fs::remove_file(&path).expect("it is there");
    trace
}

/// A quarter of the mebibyte is there.
fn look() -> Snapshot {
    let seen = Mapping {
        start: MAP,
        end: MAP + MIB,
        kind: MappingKind::Anon,
        rss_bytes: MIB / 4,
        runs: vec![(MAP, MIB / 4)],
        runs_known: true,
        ..Mapping::default()
    };
    Snapshot {
        time_ns: 1_000_000_000,
        ticket: 2,
        cause: SnapshotCause::Periodic,
        took_ns: 500,
        counted_bytes: None,
        tops: None,
        mappings: vec![seen],
    }
}

fn policies() -> Vec<Policy> {
    vec![Policy::parse("skinflint").expect("known")]
}

#[test]
fn a_first_pass_sees_what_was_touched_and_both_are_progress() {
    // With the first one 2^19 events are read in each pass.
    let steps = |looks: &[Snapshot], name: &str| {
        let trace = trace(name, (1 << 19) - 1, looks);
        let mut steps = Vec::new();
        let ran = what_if::run(&trace, Vec::new(), 0, |events| steps.push(events));
        assert_eq!((ran.what_if.events, ran.damage.len()), (1 << 19, 0));
        steps
    };
    assert_eq!(steps(&[look()], "two-passes.sft"), [1 << 20]);
    assert_eq!(steps(&[], "one-pass.sft"), []);
}

#[test]
fn what_no_snapshot_saw_resident_was_not_touched() {
    let at_end = |looks: &[Snapshot], name: &str| {
        let trace = trace(name, 10, looks);
        let ran = what_if::run(&trace, policies(), 0, |_| ());
        assert_eq!(ran.what_if.duration_ns, 2_000_000_000);
        assert_eq!(ran.what_if.at_end.requested_bytes, MIB);
        let floor = ran.what_if.policies[0].at_end.floor_bytes;
        let end = ran.what_if.at_end;
        (end.touched_bytes, end.untold_bytes, floor)
    };
    assert_eq!(at_end(&[look()], "touched.sft"), (MIB / 4, 0, MIB / 4));
    assert_eq!(at_end(&[], "whole.sft"), (MIB, MIB, MIB));
    let mut unread = look();
    unread.mappings[0].runs_known = false;
    assert_eq!(at_end(&[unread], "unread.sft"), (MIB, MIB, MIB));
}
