//! Chains of forks, built by hand: what a process began with, and where its peak is.
//!
//! ```text
//!   a  +1000 +2000        fork at 10        -1000 (after the fork: the copy still has it)
//!   b        (has both)   +300 -2000        fork at 5
//!   c                     (1000 and 300)    +50
//! ```
//!
//! C1  Every figure is worked out from the picture.

use std::path::{Path, PathBuf};

use skinflint_analysis::ledger::Live;
use skinflint_analysis::missing::Missing;
use skinflint_analysis::{Analyzer, Facts, Options};
use skinflint_recording::{Kin, Recording};
use skinflint_trace::{
    AllocFn, Ending, Event, EventEncoder, EventKind, FreeFn, LostKind, LostProcess, Mapping,
    NodeId, Origin, OriginKind, ProcessInfo, RssSample, Snapshot, SnapshotCause, ThreadId, Writer,
};

fn at(ticket: u64, kind: EventKind) -> Event {
    Event {
        ticket,
        time_ns: ticket * 1000,
        thread: ThreadId(0),
        kind,
    }
}

fn alloc(ticket: u64, addr: u64, size: u64) -> Event {
    let kind = EventKind::Alloc {
        func: AllocFn::Malloc,
        node: NodeId(0),
        addr,
        size,
        usable: size,
    };
    at(ticket, kind)
}

fn free(ticket: u64, addr: u64) -> Event {
    let func = FreeFn::Free;
    at(ticket, EventKind::Free { func, addr })
}

fn origin(how: OriginKind, uid: &str, fork_ticket: u64) -> Option<Origin> {
    Some(Origin {
        how,
        uid: uid.into(),
        pid: 7,
        fork_ticket,
    })
}

/// Returns a snapshot with this ticket and these resident bytes.
fn snapshot((ticket, rss_bytes): (u64, u64)) -> Snapshot {
    Snapshot {
        time_ns: ticket * 1000,
        ticket,
        cause: SnapshotCause::Periodic,
        took_ns: 0,
        counted_bytes: None,
        tops: None,
        mappings: vec![Mapping {
            rss_bytes,
            ..Mapping::default()
        }],
    }
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(format!("{name}.sft"))
    }

    fn write(&self, uid: &str, origin: Option<Origin>, events: &[Event]) -> PathBuf {
        self.write_with(uid, origin, events, |_| {})
    }

    fn write_with(
        &self,
        uid: &str,
        origin: Option<Origin>,
        events: &[Event],
        more: impl FnOnce(&mut Writer),
    ) -> PathBuf {
        let path = self.path(uid);
        let process = ProcessInfo {
            uid: uid.into(),
            pid: 9,
            origin,
            ..ProcessInfo::default()
        };
        let mut writer = Writer::create(&path, &process).expect("a trace");
        let mut encoder = EventEncoder::new(ThreadId(0));
        events.iter().for_each(|event| encoder.push(event));
        if let Some(block) = encoder.take() {
            writer.events(block).expect("events");
        }
        more(&mut writer);
        let ending = Ending {
            events: events.len() as u64,
            ..Ending::default()
        };
        writer.ending(&ending).expect("the end");
        path
    }

    /// Writes the traces of the picture above, and returns the path of c.
    fn picture(&self) -> PathBuf {
        let a = [
            alloc(1, 0x1000, 1000),
            alloc(2, 0x2000, 2000),
            free(11, 0x1000),
        ];
        self.write("a", None, &a);
        let b = [alloc(1, 0x3000, 300), free(2, 0x2000)];
        self.write("b", origin(OriginKind::Fork, "a", 10), &b);
        let c = [alloc(1, 0x4000, 50), free(2, 0x1000)];
        self.write("c", origin(OriginKind::Fork, "b", 5), &c)
    }
}

fn live(blocks: u64, bytes: u64) -> Live {
    Live {
        blocks,
        requested_bytes: bytes,
        usable_bytes: bytes,
    }
}

fn open(path: &Path) -> Recording {
    Recording::open(path).expect("a trace")
}

#[test]
fn a_grandchild_began_with_what_its_grandparent_had() {
    let folder = Folder::new();
    let c = open(&folder.picture());
    assert_eq!(c.not_found(), []);
    assert_eq!(c.inherited(), live(2, 1300));
    assert_eq!(open(&folder.path("b")).inherited(), live(2, 3000));
    assert_eq!(open(&folder.path("a")).inherited(), live(0, 0));
    // In its own run one block came, and one of the grandparent's went.
    let mut ledger = c.ledger(2);
    c.events(|event| ledger.apply(event, &mut |_, _| {}), |_| {});
    assert_eq!(ledger.live(), live(2, 350));
    assert_eq!(ledger.counts().unknown_frees, 0);
    assert_eq!(ledger.heap_peak().live, live(3, 1350));
    assert_eq!(c.verdict().missing, []);
}

#[test]
fn an_analysis_inherits_the_same() {
    struct Nameless;
    impl skinflint_analysis::Symbolizer for Nameless {
        fn frames(&mut self, _pc: u64, _node: u32) -> Vec<skinflint_analysis::model::Frame> {
            Vec::new()
        }
    }
    let folder = Folder::new();
    let c = open(&folder.picture());
    let mut analyzer = Analyzer::new(Facts::of(&c.trace), Options::default()).expect("a plan");
    c.bequeath(&mut analyzer);
    c.events(|event| analyzer.event(event), |_| {});
    let report = analyzer.finish(&mut Nameless);
    let end = &report.instants[report.at];
    assert_eq!((end.live_blocks, end.live_usable_bytes), (2, 350));
    assert!(report.completeness.complete, "{:?}", report.completeness);
    assert_eq!(report.completeness.unknown_frees, 0);
}

/// A block of the grandparent's and one of the parent's have stacks in the trees of these, and not one for all.
#[test]
fn counts_know_the_stacks_of_what_was_inherited() {
    let folder = Folder::new();
    folder.picture();
    let b = open(&folder.path("b"));
    let (cells, _) = b
        .count_cells("heap-peak", &skinflint_recording::Silent)
        .expect("a moment");
    let sources = skinflint_symbols::NameSources {
        debug_dirs: vec![],
        sysroot: None,
        debuginfod: vec![],
        perf_maps: vec![],
        frames: skinflint_symbols::Frames::Both,
        trouble: |_| {},
    };
    let (facts, _) = b.named_stacks(&sources).expect("sources");
    let [of_a] = facts.ancestors[..] else {
        panic!("{:?}", facts.ancestors);
    };
    let mut stacks: Vec<_> = cells
        .iter()
        .filter(|(_, blocks)| *blocks > 0)
        .map(|(key, _)| (key.size, key.node.0))
        .collect();
    stacks.sort_unstable();
    assert_eq!(stacks, [(300, 0), (1000, of_a), (2000, of_a)]);
    // The root of the parent's tree, and no number of its own.
    assert!((of_a as usize) < facts.nodes.len());
}

#[test]
fn a_link_that_is_not_there_is_said() {
    let folder = Folder::new();
    let path = folder.picture();
    std::fs::remove_file(folder.path("a")).expect("it is there");
    let c = open(&path);
    let gone = |generations| {
        [Missing::Ancestor {
            pid: 7,
            generations,
        }]
    };
    assert_eq!(c.not_found(), gone(1));
    assert_eq!(c.inherited(), live(1, 300));
    std::fs::remove_file(folder.path("b")).expect("it is there");
    assert_eq!(open(&path).not_found(), gone(0));
}

#[test]
fn a_new_program_began_with_nothing() {
    let folder = Folder::new();
    folder.write("a", None, &[alloc(1, 0x1000, 1000)]);
    for how in [OriginKind::Exec, OriginKind::Spawn] {
        let path = folder.write("b", origin(how, "a", 10), &[]);
        let b = open(&path);
        assert_eq!((b.inherited(), b.not_found()), (live(0, 0), &[][..]));
        assert!(!b.is_copy());
        // The same holds for its copy, as far as that program goes.
        let path = folder.write("c", origin(OriginKind::Fork, "b", 10), &[]);
        assert_eq!(open(&path).inherited(), live(0, 0));
    }
}

#[test]
fn a_circle_of_origins_ends() {
    let folder = Folder::new();
    folder.write(
        "a",
        origin(OriginKind::Fork, "b", 9),
        &[alloc(1, 0x1000, 1)],
    );
    let path = folder.write("b", origin(OriginKind::Fork, "a", 9), &[]);
    let b = open(&path);
    let circle = Missing::Ancestor {
        pid: 7,
        generations: 1,
    };
    assert_eq!(b.not_found(), [circle]);
    assert_eq!(b.inherited(), live(1, 1));
}

/// Checks a realloc of another thread: the copy does not have that thread, and keeps the block.
#[test]
fn a_realloc_under_way_at_each_fork_ends_in_none_of_the_copies() {
    let folder = Folder::new();
    let release = |ticket, addr| at(ticket, EventKind::ReallocRelease { addr });
    folder.write("a", None, &[alloc(1, 0x1000, 1000), release(2, 0x1000)]);
    // The same thread number reallocates in the copy.
    let b = [alloc(1, 0x3000, 300), release(2, 0x3000)];
    folder.write("b", origin(OriginKind::Fork, "a", 10), &b);
    let path = folder.write("c", origin(OriginKind::Fork, "b", 10), &[]);
    let mut ledger = open(&path).ledger(2);
    // What is parked is settled when the process's own first event comes.
    ledger.apply(&alloc(1, 0x4000, 50), &mut |_, _| {});
    assert_eq!(ledger.live(), live(3, 1350));
}

#[test]
fn the_peak_counts_what_was_inherited() {
    let folder = Folder::new();
    folder.write("a", None, &[alloc(1, 0x1000, 1000)]);
    // 1,000 and 50 live at ticket 1, then 50 and 900, and finally 50: 100 are resident all the time.
    let own = [
        alloc(1, 0x4000, 50),
        free(2, 0x1000),
        alloc(3, 0x5000, 900),
        free(4, 0x5000),
    ];
    let fork = || origin(OriginKind::Fork, "a", 10);
    let peaks = [(1, 99), (3, 100), (4, 100)];
    let path = folder.write_with("b", fork(), &own, |writer| {
        for one in peaks {
            writer.snapshot(&snapshot(one)).expect("a snapshot");
        }
    });
    let b = open(&path);
    assert_eq!(b.peak_snapshot(), Some(0));
    assert_eq!(b.peak_ticket(), Some(Some(1)));
    let none = folder.write("n", None, &own);
    assert_eq!(open(&none).peak_ticket(), None);
}

#[test]
fn what_the_process_became_is_left_out() {
    let folder = Folder::new();
    let path = folder.write_with("a", None, &[alloc(1, 0x1000, 100)], |writer| {
        for one in [(1, 100), (9, 900)] {
            writer.snapshot(&snapshot(one)).expect("a snapshot");
        }
        let sample = |time_ns| RssSample {
            time_ns,
            ..RssSample::default()
        };
        writer.rss(&[sample(1000), sample(9000)]).expect("samples");
        let became = LostProcess {
            what: LostKind::Exec,
            time_ns: 5000,
            ..LostProcess::default()
        };
        writer.lost(&[became]).expect("what it became");
    });
    let a = open(&path);
    assert_eq!((a.trace.snapshots.len(), a.trace.rss.len()), (1, 1));
    assert_eq!(a.trace.snapshots[0].ticket, 1);
    let missing = &a.verdict().missing;
    assert!(matches!(&missing[..], [Missing::Program(_)]), "{missing:?}");
}

#[test]
fn traces_that_were_told_are_not_looked_for() {
    let (here, there) = (Folder::new(), Folder::new());
    let path = here.picture();
    let elsewhere = there.path("elsewhere");
    std::fs::rename(here.path("b"), &elsewhere).expect("it is there");
    let mut kin = Kin::beside(&path);
    assert!(
        Recording::open_among(&path, &mut kin)
            .expect("c")
            .not_found()
            .len()
            == 1
    );
    kin.tell("b", &elsewhere);
    let c = Recording::open_among(&path, &mut kin).expect("c");
    assert_eq!((c.not_found(), c.inherited()), (&[][..], live(2, 1300)));
}

#[test]
fn pages_read_beyond_the_last_event_of_a_cut_trace_are_no_evidence() {
    let folder = Folder::new();
    let kept = |is_whole: bool| {
        let path = folder.path(if is_whole { "whole" } else { "cut" });
        let mut writer = Writer::create(&path, &ProcessInfo::default()).expect("a trace");
        let mut encoder = EventEncoder::new(ThreadId(0));
        for event in [alloc(1, 0x1000, 1000), alloc(5, 0x2000, 2000)] {
            encoder.push(&event);
        }
        writer
            .events(encoder.take().expect("a block"))
            .expect("events");
        // At the last event; then the fullest one, whose blocks were not written any more.
        for one in [(5, 100), (6, 900)] {
            writer.snapshot(&snapshot(one)).expect("a snapshot");
        }
        if is_whole {
            writer.ending(&Ending::default()).expect("the end");
        }
        drop(writer);
        let recording = open(&path);
        let tickets = recording.trace.snapshots.iter().map(|one| one.ticket);
        let peak = recording.peak_snapshot().expect("a snapshot");
        let peak = recording.trace.snapshots[peak].ticket;
        (
            tickets.collect::<Vec<_>>(),
            peak,
            recording.not_found().to_vec(),
        )
    };
    assert_eq!(kept(true), (vec![5, 6], 6, vec![]));
    let (tickets, peak, missing) = kept(false);
    assert_eq!((tickets, peak), (vec![5], 5));
    assert!(
        matches!(&missing[..], [Missing::Damage(text)] if text.starts_with("1 reading of pages lies beyond")),
        "{missing:?}"
    );
}
