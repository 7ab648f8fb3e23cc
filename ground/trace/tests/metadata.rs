//! Everything that is not an event comes back field for field, through a real file.
//!
//! Not here: events (roundtrip.rs).

mod program;

use program::*;
use skinflint_trace::*;

fn process(origin: Option<Origin>) -> ProcessInfo {
    ProcessInfo {
        uid: "0123456789abcdef".into(),
        pid: 4242,
        ppid: 1,
        name: "näme".into(),
        exe: "/usr/bin/thing".into(),
        argv: vec!["thing".into(), String::new(), "--x=1".into()],
        cwd: "/".into(),
        started_unix_ns: u64::MAX,
        recorder_version: "0.1.0".into(),
        system: "Linux 6.1 x86_64".into(),
        allocator: "glibc 2.36".into(),
        allocator_path: "/lib/x86_64-linux-gnu/libc.so.6".into(),
        os_page_bytes: 4096,
        origin,
    }
}

fn module(start: u64) -> Module {
    Module {
        start,
        end: start + 0x1000,
        bias: start.wrapping_sub(0x400_000),
        path: format!("/lib/{start:x}.so"),
        build_id: "ab".repeat(20),
        first_node: 17,
    }
}

fn snapshot(cause: SnapshotCause) -> Snapshot {
    let kinds = [
        MappingKind::File,
        MappingKind::Heap,
        MappingKind::Stack,
        MappingKind::Anon,
        MappingKind::Shared,
        MappingKind::Recorder,
        MappingKind::Other,
    ];
    let mapping = |(n, kind): (usize, MappingKind)| {
        let start = 0x1_0000 * (n as u64 + 1);
        Mapping {
            start,
            end: start + 0x8000,
            perms: "rw-p".into(),
            name: format!("[{n}]"),
            kind,
            rss_bytes: 1,
            pss_bytes: 2,
            private_bytes: 3,
            anon_bytes: 4,
            swap_bytes: 5,
            huge_bytes: (n % 3 > 0).then_some(6 * n as u64),
            runs: vec![(start, 4096), (start + 0x3000, 8192)],
            runs_known: n % 2 == 0,
        }
    };
    let mappings = kinds.into_iter().enumerate().map(mapping).collect();
    Snapshot {
        time_ns: 5,
        ticket: 6,
        cause,
        took_ns: 7,
        counted_bytes: Some(-3),
        mappings,
    }
}

fn thread(name: &str, ended_ns: Option<u64>) -> Thread {
    Thread {
        tid: 9,
        name: name.into(),
        started_ns: 3,
        ended_ns,
    }
}

fn mark(thread: Option<ThreadId>) -> Mark {
    Mark {
        name: "load".into(),
        time_ns: 11,
        ticket: 12,
        thread,
    }
}

fn sample(rss_bytes: u64, pss_bytes: Option<u64>) -> RssSample {
    RssSample {
        time_ns: 1,
        ticket: 2,
        rss_bytes,
        anon_bytes: 4,
        file_bytes: 5,
        shmem_bytes: 6,
        pss_bytes,
    }
}

/// Returns an ending with its optional fields present in turn.
fn ending(n: usize, exit: Exit) -> Ending {
    Ending {
        exit,
        time_ns: 1,
        events: 2,
        lost_events: 3,
        truncated_stacks: 4,
        notes: vec!["a note".into(), "another".into()],
        recorder_bytes: 5,
        cpu_ns: n.is_multiple_of(2).then_some(6),
        max_rss_bytes: (n % 2 == 1).then_some(7),
        in_use_bytes: n.is_multiple_of(3).then_some((8, 9)),
    }
}

#[test]
fn every_field_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("meta.sft");
    let how = [OriginKind::Fork, OriginKind::Spawn, OriginKind::Exec];
    let origin = |how| {
        Some(Origin {
            how,
            uid: "fedcba98".into(),
            pid: 7,
            fork_ticket: 1 << 50,
        })
    };
    let exits = [Exit::Unknown, Exit::Exited(-1), Exit::Signal(9), Exit::Exec];
    for (n, origin) in [None].into_iter().chain(how.map(origin)).enumerate() {
        let process = process(origin);
        let modules = vec![
            module(0x40_0000),
            module(0x7fff_f7fc_1000),
            module(0x7000_0000),
        ];
        let nodes: Vec<(u32, u64)> = vec![
            (0, 0xffff_ffff_ffff_f000),
            (1, 5),
            (1, 5),
            (2, 0x7fff_f7e0_0000),
            (0, 0),
            (5, 5),
        ];
        let rss = vec![
            sample(9000, None),
            sample(u64::MAX, Some(3)),
            sample(0, Some(0)),
        ];
        let causes = [
            SnapshotCause::Peak,
            SnapshotCause::Periodic,
            SnapshotCause::Mark(3),
            SnapshotCause::Exit,
        ];
        let snapshots: Vec<Snapshot> = causes.into_iter().map(snapshot).collect();

        let ending = ending(n, exits[n]);
        let mut writer = Writer::create(&path, &process).unwrap();
        writer.modules(&modules[..2]).unwrap();
        writer.modules(&[]).unwrap();
        writer.modules(&modules[2..]).unwrap();
        writer.nodes(1, &nodes[..4]).unwrap();
        writer.nodes(5, &nodes[4..]).unwrap();
        writer.thread(ThreadId(0), &thread("main", None)).unwrap();
        writer
            .thread(ThreadId(2), &thread("worker", Some(44)))
            .unwrap();
        writer
            .thread(ThreadId(0), &thread("renamed", None))
            .unwrap();
        writer.mark(0, &mark(None)).unwrap();
        writer.mark(1, &mark(Some(ThreadId(2)))).unwrap();
        writer.rss(&rss[..1]).unwrap();
        writer.rss(&rss[1..]).unwrap();
        snapshots
            .iter()
            .for_each(|snapshot| writer.snapshot(snapshot).unwrap());
        writer.lost(&lost()[..1]).unwrap();
        writer.lost(&[]).unwrap();
        writer.lost(&lost()[1..]).unwrap();
        writer.ending(&ending).unwrap();

        let trace = Trace::open(&path).unwrap();
        assert_eq!(trace.damage, []);
        assert_eq!(trace.process, process);
        assert_eq!(trace.modules, modules);
        assert_eq!(trace.node_count(), 7);
        assert_eq!(trace.node(NodeId(0)), Some((NodeId(0), 0)));
        for (id, &(parent, pc)) in (1..).zip(&nodes) {
            assert_eq!(trace.node(NodeId(id)), Some((NodeId(parent), pc)));
        }
        assert_eq!(trace.node(NodeId(7)), None);
        let threads = [
            thread("renamed", None),
            Thread::default(),
            thread("worker", Some(44)),
        ];
        assert_eq!(trace.threads, threads);
        assert_eq!(trace.marks, [mark(None), mark(Some(ThreadId(2)))]);
        assert_eq!(trace.rss, rss);
        assert_eq!(trace.snapshots, snapshots);
        assert_eq!(trace.lost, lost());
        assert_eq!(trace.ending, Some(ending));
        assert_eq!(trace.file_bytes(), writer.bytes_written());
        assert_eq!((trace.event_count(), trace.version), (0, (MAJOR, MINOR)));
        assert!(trace.events().next_event().is_none());
    }
}

/// Returns one lost process of each kind and each reason.
fn lost() -> Vec<LostProcess> {
    let kinds = [LostKind::Copy, LostKind::Program, LostKind::Exec];
    let reasons = [
        LostWhy::Unknown,
        LostWhy::Unreachable,
        LostWhy::Static,
        LostWhy::Privileged,
        LostWhy::Environment,
        LostWhy::Root,
        LostWhy::Refused,
        LostWhy::Quiet,
        LostWhy::Unwritten,
        LostWhy::Filter,
    ];
    let of = |(n, why): (usize, LostWhy)| LostProcess {
        what: kinds[n % 3],
        pid: n as u32 * 1_000_000,
        name: "busybox".repeat(n),
        exe: String::new(),
        time_ns: u64::MAX >> n,
        why,
        max_rss_bytes: (n % 2 == 1).then_some(n as u64),
    };
    reasons.into_iter().enumerate().map(of).collect()
}

#[test]
fn many_nodes_are_cut_into_blocks() {
    let mut rng = Random::new(3);
    let nodes: Vec<(u32, u64)> = (1..200_001u32)
        .map(|id| (rng.below(u64::from(id)) as u32, rng.bits() >> 40))
        .collect();
    let mut disk = Disk::new();
    let mut writer = Writer::new(&mut disk, &ProcessInfo::default(), 1).unwrap();
    writer.nodes(1, &nodes).unwrap();
    let trace = Trace::from_bytes(disk.bytes, "nodes.sft").unwrap();
    assert_eq!(trace.node_count(), 200_001);
    for (id, &(parent, pc)) in (1..).zip(&nodes) {
        assert_eq!(trace.node(NodeId(id)), Some((NodeId(parent), pc)));
    }
}

#[test]
fn threads_exist_for_every_event() {
    let mut disk = Disk::new();
    let mut writer = Writer::new(&mut disk, &ProcessInfo::default(), 1).unwrap();
    write_events(
        &mut writer,
        &Program::new(1, Shape::Tree, 5).take(2000),
        100,
    );
    let trace = Trace::from_bytes(disk.bytes, "threads.sft").unwrap();
    assert_eq!(trace.threads, vec![Thread::default(); 5]);
}
