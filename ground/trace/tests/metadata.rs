//! Everything that is not an event comes back field for field, through a real file.
//!
//! Not here: events (roundtrip.rs).

mod program;

use program::*;
use skinflint_trace::*;

/// The most that FORMAT.md allows.
const MOST_BYTES: u64 = 1 << 57;
const MOST_NS: u64 = 1 << 62;

fn process(origin: Option<Origin>) -> ProcessInfo {
    ProcessInfo {
        uid: "0123456789abcdef".into(),
        pid: 4242,
        ppid: 1,
        name: "näme".into(),
        exe: "/usr/bin/thing".into(),
        argv: vec!["thing".into(), String::new(), "--x=1".into()],
        cwd: "/".into(),
        started_unix_ns: MOST_NS,
        recorder_version: "0.1.0".into(),
        system: "Linux 6.1 x86_64".into(),
        allocator: "glibc 2.36".into(),
        allocator_path: "/lib/x86_64-linux-gnu/libc.so.6".into(),
        os_page_bytes: 4096,
        origin,
        sample_bytes: 512 << 10,
        segment: Some(Segment {
            number: 3,
            follows: true,
            events: 5,
            blocks: 6,
            bytes: MOST_BYTES,
            acquired: 1 << 60,
            acquired_bytes: 1 << 61,
            marks: 7,
            ..Segment::default()
        }),
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
        tops: Some(vec![
            (0x1_1230, 0x10),
            (0x1_1240, 0),
            (0x7f00_0000_0000, 0x2_1000),
        ]),
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
        read_bytes: n.is_multiple_of(2).then_some(10),
        written_bytes: n.is_multiple_of(3).then_some(11),
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
    let exits = [
        Exit::Unknown,
        Exit::Exited(-1),
        Exit::Signal(9),
        Exit::Exec,
        Exit::Detached,
    ];
    for (n, origin) in [None, None].into_iter().chain(how.map(origin)).enumerate() {
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
            sample(MOST_BYTES, Some(3)),
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

/// Reports whether what was written is damage to its reader.
fn is_damage(write: impl FnOnce(&mut Writer<&mut Disk>) -> std::io::Result<()>) -> bool {
    let mut disk = Disk::new();
    let mut writer = Writer::new(&mut disk, &ProcessInfo::default(), 1).unwrap();
    write(&mut writer).unwrap();
    drop(writer);
    let trace = Trace::from_bytes(disk.bytes, "beyond.sft").unwrap();
    let said: Vec<String> = trace.damage.iter().map(ToString::to_string).collect();
    let reasons = ["more memory than", "a century after", "ends before it"];
    assert!(
        said.iter()
            .all(|one| reasons.iter().any(|why| one.contains(why))),
        "{said:?}"
    );
    !said.is_empty()
}

#[test]
fn samples_and_mappings_that_no_machine_reaches_are_damage() {
    let samples: [fn(&mut RssSample, u64); 5] = [
        |of, n| of.rss_bytes = n,
        |of, n| of.anon_bytes = n,
        |of, n| of.file_bytes = n,
        |of, n| of.shmem_bytes = n,
        |of, n| of.pss_bytes = Some(n),
    ];
    let edges = [MOST_BYTES, MOST_BYTES + 1, u64::MAX];
    for set in samples {
        let at = |n| {
            let mut one = sample(3, None);
            set(&mut one, n);
            is_damage(|to| to.rss(&[one]))
        };
        assert_eq!(edges.map(at), [false, true, true]);
    }
    let mappings: [fn(&mut Mapping, u64); 6] = [
        |of, n| of.rss_bytes = n,
        |of, n| of.pss_bytes = n,
        |of, n| of.private_bytes = n,
        |of, n| of.anon_bytes = n,
        |of, n| of.swap_bytes = n,
        |of, n| of.huge_bytes = Some(n),
    ];
    let of_mapping = |set: &dyn Fn(&mut Mapping)| {
        let mut one = snapshot(SnapshotCause::Exit);
        set(&mut one.mappings[2]);
        is_damage(|to| to.snapshot(&one))
    };
    for set in mappings {
        let at = |n| of_mapping(&|of| set(of, n));
        assert_eq!(edges.map(at), [false, true, true]);
    }
    assert!(of_mapping(&|of| of.end = of.start - 1));
    assert!(of_mapping(&|of| of.runs[1] = (u64::MAX - 4095, 8192)));
}

#[test]
fn snapshots_and_endings_that_no_machine_reaches_are_damage() {
    let (bytes, ns) = (MOST_BYTES, MOST_NS);
    let counted = |n| {
        let mut one = snapshot(SnapshotCause::Exit);
        one.counted_bytes = Some(n);
        is_damage(|to| to.snapshot(&one))
    };
    assert!(!counted(-(1 << 57)) && counted(i64::MIN) && counted(1 << 58));
    let tops = |tops: &[(u64, u64)]| {
        let mut one = snapshot(SnapshotCause::Exit);
        one.tops = Some(tops.to_vec());
        is_damage(|to| to.snapshot(&one))
    };
    assert!(!tops(&[]) && !tops(&[(4096, bytes)]) && tops(&[(4096, bytes + 1)]));
    assert!(
        tops(&[(u64::MAX - 15, 32)]) && tops(&[(8192, 32), (4096, 32)]),
        "in order"
    );
    let times: [fn(&mut Snapshot, u64); 2] = [|of, n| of.time_ns = n, |of, n| of.took_ns = n];
    for set in times {
        let at = |n| {
            let mut one = snapshot(SnapshotCause::Peak);
            set(&mut one, n);
            is_damage(|to| to.snapshot(&one))
        };
        assert_eq!([ns, ns + 1].map(at), [false, true]);
    }
    type Set = fn(&mut Ending, u64);
    let endings: [(Set, u64); 4] = [
        (|of, n| of.time_ns = n, ns),
        (|of, n| of.cpu_ns = Some(n), ns),
        (|of, n| of.recorder_bytes = n, bytes),
        (|of, n| of.max_rss_bytes = Some(n), bytes),
    ];
    for (set, most) in endings {
        let at = |n| {
            let mut one = ending(1, Exit::Unknown);
            set(&mut one, n);
            is_damage(|to| to.ending(&one))
        };
        assert_eq!([most, most + 1].map(at), [false, true]);
    }
}

#[test]
fn threads_marks_and_modules_that_no_machine_reaches_are_damage() {
    let (bytes, ns) = (MOST_BYTES, MOST_NS);
    let ended = |n| {
        is_damage(|to| {
            to.thread(ThreadId(0), &thread("late", Some(n)))?;
            to.ending(&Ending::default())
        })
    };
    assert!(!ended(ns) && ended(ns + 1));
    let marked = |time_ns| {
        is_damage(|to| {
            to.mark(
                0,
                &Mark {
                    time_ns,
                    ..mark(None)
                },
            )
        })
    };
    assert!(!marked(ns) && marked(ns + 1));
    let lost = |time_ns, most| {
        let one = LostProcess {
            time_ns,
            max_rss_bytes: Some(most),
            ..LostProcess::default()
        };
        is_damage(|to| to.lost(&[one]))
    };
    assert!(!lost(ns, bytes) && lost(ns + 1, 0) && lost(0, bytes + 1));
    let range = Module {
        start: u64::MAX - 8,
        end: 8,
        ..module(0)
    };
    assert!(is_damage(|to| to.modules(&[range])));
}

/// An allocator's own totals are words of the program, which may have written over them: they are left out alone.
#[test]
fn nonsense_of_an_allocator_costs_nothing_else() {
    let mut one = ending(0, Exit::Exited(3));
    one.in_use_bytes = Some((5, u64::MAX));
    let mut disk = Disk::new();
    let mut writer = Writer::new(&mut disk, &ProcessInfo::default(), 1).unwrap();
    writer.ending(&one).unwrap();
    drop(writer);
    let trace = Trace::from_bytes(disk.bytes, "nonsense.sft").unwrap();
    let expected = Ending {
        in_use_bytes: None,
        ..one
    };
    assert_eq!((trace.damage.len(), trace.ending), (0, Some(expected)));
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
        LostWhy::Unreadable,
    ];
    let of = |(n, why): (usize, LostWhy)| LostProcess {
        what: kinds[n % 3],
        pid: n as u32 * 1_000_000,
        name: "busybox".repeat(n),
        exe: String::new(),
        time_ns: MOST_NS >> n,
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
