//! Recordings of a real program that keep their last part, against a whole one.
//!
//! ```text
//!   kept.c ─┬─ whole ───────────────────────────────► what lives at the end, by stack ─┐
//!           └─ bounded ─► newest segment, by itself ─► the same ───────────────────────┤
//!                     └─► all that is left, as one  ─► the same ───────────────────────┘
//! ```
//!
//! B1  Bytes are compared with a whole recording: by stack the requested ones with that of another run, and the usable ones, which glibc
//!     decides by what lies free, with all segments of the same run. What lives is worked out by a plain reading of events here, and by hand in the head of kept.c.
//! B2  The program goes on until segments have begun: no clock decides.
//! B3  Of a day the clock is simulated: it is moved on by a segment's time whenever the segment before has its number. The process
//!     that does it does nothing else, since the clock is that of all its recordings.

use std::collections::{BTreeMap, HashMap};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use skinflint_collect::{Bounds, ChildEnd, Options, Recorded, Sample, Session, move_on};
use skinflint_test_support::artifact;
use skinflint_trace::{EventKind, NodeId, SnapshotCause, Trace, older_segments, segment_path};

/// Returns the program.
fn program() -> &'static Path {
    static BUILT: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let build = || {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("kept");
        let root = artifact::root();
        let built = Command::new("gcc")
            .args(["-O2", "-g", "-pthread", "-o"])
            .arg(&program)
            .arg(root.join("tests/programs/kept.c"))
            .status();
        assert!(built.expect("gcc").success(), "kept.c is built");
        (folder, program)
    };
    &BUILT.get_or_init(build).1
}

/// Records kept.c to its end; with bounds it goes on until a segment has begun in each of its four phases.
fn record(
    folder: &Path,
    sample: Option<Sample>,
    bounds: Option<Bounds>,
    meanwhile: impl Fn(),
) -> Recorded {
    record_segments(folder, sample, bounds, 1, meanwhile)
}

/// Does what `record` does, with so many segments in each phase.
fn record_segments(
    folder: &Path,
    sample: Option<Sample>,
    bounds: Option<Bounds>,
    segments: u32,
    meanwhile: impl Fn(),
) -> Recorded {
    let recorder = artifact::released("skinflint-record-so");
    let trace = folder.join("main.sft");
    let is_bounded = bounds.is_some();
    let session = Session::start(Options {
        folder: folder.to_owned(),
        apart: None,
        file: Some(trace.clone()),
        level: 1,
        mark_signal: None,
        paused: false,
        attached: false,
        watched: None,
        looks: false,
        objects: false,
        sample,
        bounds,
        served: false,
    });
    let session = session.expect("a session");
    let mut command = Command::new(program());
    command.args(is_bounded.then_some(&trace));
    command.args(is_bounded.then(|| segments.to_string()));
    command
        .env("LD_PRELOAD", recorder)
        .envs(session.environment());
    let mut child = command.stdout(Stdio::null()).spawn().expect("kept");
    session.child_started(child.id());
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child") {
            break status;
        }
        // CLOCK: a bounded wait, and its bound ends it
        assert!(
            begun.elapsed() < Duration::from_secs(600),
            "kept does not end"
        );
        meanwhile();
        // CLOCK: as above; the condition is asked again and again
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(status.success(), "{status}");
    session.child_ended(ChildEnd {
        pid: child.id(),
        status: status.into_raw(),
        cpu_ns: None,
        max_rss_bytes: None,
        moved: None,
    });
    while session.living() > 0 {
        // CLOCK: as above
        assert!(
            begun.elapsed() < Duration::from_secs(600),
            "the trace does not end"
        );
        // CLOCK: as above
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut recorded = session.finish();
    assert_eq!(recorded.len(), 1);
    let recorded = recorded.remove(0);
    assert_eq!(recorded.error, None);
    recorded
}

/// What lives at the end, by stack: blocks, requested and usable bytes; and bytes that the program has mapped.
#[derive(Default, Debug, PartialEq, Eq)]
struct Lives {
    blocks: BTreeMap<String, (u64, u64, u64)>,
    mapped: BTreeMap<String, u64>,
    by_size: BTreeMap<u64, u64>,
    unknown_frees: u64,
}

/// Returns a stack as places in files, which are the same in each run.
fn stack(trace: &Trace, mut node: NodeId) -> String {
    let mut text = String::new();
    while let Some((parent, pc)) = trace.node(node)
        && node != NodeId(0)
    {
        let module = trace
            .modules
            .iter()
            .rfind(|one| (one.start..one.end).contains(&pc));
        let (path, bias) = module.map_or(("?", 0), |one| (&one.path, one.bias));
        text += &format!("{path}+{:x} < ", pc.wrapping_sub(bias));
        node = parent;
    }
    text
}

fn lives(trace: &Trace) -> Lives {
    let mut blocks: HashMap<u64, (u64, u64, NodeId)> = HashMap::new();
    let mut parked = HashMap::new();
    let mut pages: BTreeMap<u64, NodeId> = BTreeMap::new();
    let mut lives = Lives::default();
    let mut events = trace.events();
    while let Some(event) = events.next_event() {
        let found = match event.kind {
            EventKind::Alloc {
                node,
                addr,
                size,
                usable,
                ..
            }
            | EventKind::ReallocAcquire {
                node,
                addr,
                size,
                usable,
            } => {
                parked.remove(&event.thread);
                let before = blocks.insert(addr, (size, usable, node));
                assert_eq!(before, None, "{event:?}: acquired twice");
                true
            }
            EventKind::Free { addr, .. } => addr == 0 || blocks.remove(&addr).is_some(),
            EventKind::ReallocRelease { addr } => {
                let old = blocks.remove(&addr);
                old.is_some_and(|old| parked.insert(event.thread, old).is_none())
            }
            EventKind::ReallocCancel { addr } => {
                let old = parked.remove(&event.thread);
                old.is_some_and(|old| blocks.insert(addr, old).is_none())
            }
            EventKind::Map {
                node,
                addr,
                len,
                by_allocator: false,
                ..
            } => {
                pages.extend((addr / 4096..(addr + len).div_ceil(4096)).map(|page| (page, node)));
                true
            }
            EventKind::Unmap { addr, len, .. } => {
                (addr / 4096..(addr + len).div_ceil(4096)).for_each(|page| _ = pages.remove(&page));
                true
            }
            _ => true,
        };
        lives.unknown_frees += u64::from(!found);
    }
    assert_eq!(events.damage(), []);
    assert!(parked.is_empty());
    for (size, usable, node) in blocks.into_values() {
        let row = lives.blocks.entry(stack(trace, node)).or_default();
        *row = (row.0 + 1, row.1 + size, row.2 + usable);
        *lives.by_size.entry(size).or_default() += 1;
    }
    for node in pages.into_values() {
        *lives.mapped.entry(stack(trace, node)).or_default() += 4096;
    }
    lives
}

fn open(path: &Path) -> Trace {
    let trace = Trace::open(path).expect("a trace");
    assert_eq!(trace.damage, [], "{}", path.display());
    trace
}

/// Returns the newest segment by itself.
fn alone(recorded: &Recorded) -> Trace {
    let path = recorded.path.with_extension("alone");
    std::fs::copy(&recorded.path, &path).expect("copied");
    open(&path)
}

fn whole() -> &'static Lives {
    static WHOLE: OnceLock<Lives> = OnceLock::new();
    WHOLE.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let recorded = record(folder.path(), None, None, || {});
        let lives = lives(&open(&recorded.path));
        assert_eq!(lives.unknown_frees, 0);
        // By hand (kept.c).
        let of = |size| lives.by_size.get(&size).copied();
        let sizes = [
            (100, Some(200)),
            (50, None),
            (70, Some(100)),
            (24, Some(300)),
            (1000, Some(10)),
        ];
        assert_eq!(sizes.map(|(size, _)| (size, of(size))), sizes);
        assert!(
            lives.mapped.values().any(|bytes| *bytes == 14 * 4096),
            "{:?}",
            lives.mapped
        );
        lives
    })
}

/// Returns blocks and requested bytes by stack.
fn requested(lives: &Lives) -> BTreeMap<&str, (u64, u64)> {
    let rows = lives.blocks.iter();
    rows.map(|(stack, row)| (&**stack, (row.0, row.1)))
        .collect()
}

fn is_the_same(found: &Lives, what: &str) {
    assert_eq!(requested(found), requested(whole()), "{what}");
    assert_eq!(found.by_size, whole().by_size, "{what}");
    let of_program = |lives: &Lives| {
        lives
            .mapped
            .values()
            .filter(|bytes| **bytes == 14 * 4096)
            .count()
    };
    assert_eq!(of_program(found), 1, "{what}: {:?}", found.mapped);
}

/// At most these milliseconds are kept, in segments of a quarter.
fn for_ms(ms: u64) -> Bounds {
    Bounds {
        keep: Some(Duration::from_millis(ms)),
        ..Bounds::default()
    }
}

#[test]
fn what_lives_at_the_end_is_what_a_whole_recording_has() {
    let folder = tempfile::tempdir().expect("a folder");
    let copied = std::cell::Cell::new(0u32);
    let path = folder.path().join("main.sft");
    let copy = folder.path().join("copy");
    // Whenever the collector is killed, what lies there is complete by itself, but for its end.
    let all = folder.path().join("all.sft");
    let next = std::cell::Cell::new(0);
    let link = || {
        while std::fs::hard_link(
            segment_path(&path, next.get()),
            segment_path(&all, next.get()),
        )
        .is_ok()
        {
            next.set(next.get() + 1);
        }
    };
    let recorded = record(folder.path(), None, Some(for_ms(4000)), || {
        link();
        if std::fs::copy(&path, &copy).is_ok_and(|bytes| bytes > 0) {
            let trace = Trace::open(&copy).expect("a trace");
            assert!(trace.ending.is_none() || trace.damage.is_empty());
            assert_eq!(trace.process.name, "kept");
            if let Some(segment) = &trace.process.segment {
                assert!(trace.event_count() >= segment.events);
                assert!(early(&trace) >= 200, "{segment:?}");
                copied.set(copied.get() + 1);
            }
        }
    });
    assert!(copied.get() > 0);
    let alone = alone(&recorded);
    let segment = alone.process.segment.as_ref().expect("a segment");
    assert!(segment.number >= 4, "a segment for each phase");
    let newest = lives(&alone);
    is_the_same(&newest, "the newest segment");
    link();
    // All segments of this run, those that were dropped included.
    std::fs::copy(&path, &all).expect("copied");
    let whole = open(&all);
    assert_eq!(whole.process.segment, None);
    let expected = lives(&whole);
    assert_eq!((expected.unknown_frees, newest.unknown_frees), (0, 0));
    assert_eq!(
        (&newest.blocks, &newest.mapped),
        (&expected.blocks, &expected.mapped)
    );
    assert_eq!(newest.by_size, expected.by_size);
    let ending = alone.ending.as_ref().expect("its end");
    assert_eq!(
        (ending.events, ending.lost_events),
        (alone.event_count(), 0)
    );
    let first = alone.rss.first().map(|one| one.time_ns);
    assert!(first.is_none_or(|time_ns| time_ns >= segment.since_ns));

    let older = older_segments(&recorded.path);
    assert!(!older.is_empty());
    let joined = open(&recorded.path);
    is_the_same(&lives(&joined), "all that is left");
    let ending = joined.ending.as_ref().expect("its end");
    assert_eq!(ending.events, joined.event_count());
    // What was dropped is gone, and nothing else lies there.
    let gone = segment.number as usize - older.len();
    assert!(gone == 0 || !segment_path(&recorded.path, 0).exists());
    assert!(!folder.path().join("main.sft.new").exists());
    // Each older segment is a trace by itself, and says as much as lived.
    for path in older {
        let trace = open(&path);
        let lives = lives(&trace);
        assert_eq!(
            trace.ending.as_ref().map(|end| end.events),
            Some(trace.event_count())
        );
        assert!(lives.by_size[&100] >= 200);
    }
}

/// Returns the number of live blocks of `early`, of a trace that may be cut: at least half of them live always.
fn early(trace: &Trace) -> usize {
    let mut live = std::collections::HashSet::new();
    trace.events().for_each(|event| match event.kind {
        EventKind::Alloc {
            addr, size: 100, ..
        } => drop(live.insert(addr)),
        EventKind::Free { addr, .. } => drop(live.remove(&addr)),
        _ => {}
    });
    live.len()
}

#[test]
fn files_stay_within_their_bound() {
    const MOST: u64 = 1 << 20;
    let folder = tempfile::tempdir().expect("a folder");
    let bounds = Bounds {
        max_bytes: Some(MOST),
        ..Bounds::default()
    };
    let recorded = record(folder.path(), None, Some(bounds), || {});
    let older = older_segments(&recorded.path);
    let files = older.iter().chain([&recorded.path]);
    let bytes: u64 = files
        .map(|path| path.metadata().expect("a file").len())
        .sum();
    assert!(bytes > MOST / 2 && bytes <= MOST, "{bytes} bytes");
    assert_eq!(recorded.bytes, bytes);
    is_the_same(&lives(&alone(&recorded)), "the newest segment");
    is_the_same(&lives(&open(&recorded.path)), "all that is left");
}

/// What is kept of the simulated day.
const KEPT: Duration = Duration::from_secs(600);
/// Set where a test is to be done by a process of its own: its folder, and its segments for each phase.
const DAY: &str = "SKINFLINT_TEST_DAY";

/// Returns the segments for each of the four phases: 24 hours of quarters of ten minutes, or two hours.
fn of_a_day() -> u32 {
    match std::env::var_os("SKINFLINT_LONG") {
        Some(_) => 144,
        None => 12,
    }
}

/// Returns a command that does a test in a process and a process group of its own.
fn apart(test: &str, folder: &Path, segments: u32) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(DAY, format!("{} {segments}", folder.display()))
        .process_group(0);
    command
}

/// Records as the process that `apart` began, and looks at the files after each segment.
fn day_of(given: &str) {
    let (folder, segments) = given.rsplit_once(' ').expect("two words");
    let trace = Path::new(folder).join("main.sft");
    let bounds = Bounds {
        keep: Some(KEPT),
        ..Bounds::default()
    };
    let next = std::cell::Cell::new(0);
    let segments = segments.parse().expect("a number");
    let recorded = record_segments(Path::new(folder), None, Some(bounds), segments, || {
        // A segment has its number once the next one has begun; the first has begun once events are in it.
        let has_begun = match next.get() {
            0 => trace.metadata().is_ok_and(|about| about.len() > 256 << 10),
            number => segment_path(&trace, number - 1).exists(),
        };
        if !has_begun {
            return;
        }
        move_on(KEPT / 4);
        next.set(next.get() + 1);
        let older = older_segments(&trace).len();
        // Four quarters, and those that end while the folder is read.
        assert!(older <= 6, "{older} older segments");
    });
    let newest = alone(&recorded);
    let number = newest.process.segment.as_ref().map(|one| one.number);
    assert!(number >= Some(u64::from(4 * segments)), "{number:?}");
    is_the_same(&lives(&newest), "the newest segment");
    is_the_same(&lives(&open(&recorded.path)), "all that is left");
    let older = older_segments(&recorded.path).len();
    assert!(
        (4..=5).contains(&older),
        "{older} older segments: ten minutes are kept"
    );
}

/// By a clock that is simulated: ten minutes of a day are kept all the time, and each segment is complete by itself.
#[test]
fn a_day_keeps_its_last_ten_minutes() {
    if let Ok(given) = std::env::var(DAY) {
        return day_of(&given);
    }
    whole();
    let folder = tempfile::tempdir().expect("a folder");
    let child = apart(
        "a_day_keeps_its_last_ten_minutes",
        folder.path(),
        of_a_day(),
    )
    .output();
    let child = child.expect("runs");
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(
        child.status.success(),
        "{said}\n{}",
        String::from_utf8_lossy(&child.stderr)
    );
    assert!(said.contains("1 passed"), "{said}");
}

/// Killed with its program after any of the day's segments, a collector leaves what it had: the newest segment is complete by itself, but
/// for its end, and those before it follow each other.
#[test]
fn a_day_that_is_killed_leaves_what_it_had() {
    if let Ok(given) = std::env::var(DAY) {
        return day_of(&given);
    }
    let moments = if std::env::var_os("SKINFLINT_LONG").is_some() {
        100
    } else {
        4
    };
    let mut random = skinflint_base::random::Random::new(24);
    for moment in 0..moments {
        let folder = tempfile::tempdir().expect("a folder");
        let trace = folder.path().join("main.sft");
        let wanted = random.below(20);
        let mut day = apart("a_day_that_is_killed_leaves_what_it_had", folder.path(), 12);
        let mut day = day
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("runs");
        let begun = Instant::now();
        // Ten minutes are kept, so a segment that was missed is seen by a later one.
        while !(wanted..wanted + 4).any(|number| segment_path(&trace, number).exists()) {
            assert_eq!(
                day.try_wait().expect("a child"),
                None,
                "moment {moment}: the day ended"
            );
            // CLOCK: a bounded wait, and its bound ends it
            assert!(
                begun.elapsed() < Duration::from_secs(600),
                "no segment {wanted}"
            );
            // CLOCK: as above; the condition is asked again and again
            std::thread::sleep(Duration::from_micros(200 + random.below(9_000)));
        }
        // SAFETY: a system call on the group that was begun here: the collector and its program.
        assert_eq!(unsafe { libc::kill(-(day.id() as i32), libc::SIGKILL) }, 0);
        day.wait().expect("killed");
        let older = older_segments(&trace);
        assert!(
            (1..=6).contains(&older.len()),
            "moment {moment}: {} older segments",
            older.len()
        );
        for path in &older {
            let whole = open(path);
            assert_eq!(
                whole.ending.as_ref().map(|end| end.events),
                Some(whole.event_count()),
                "moment {moment}"
            );
        }
        let newest = folder.path().join("newest");
        std::fs::copy(&trace, &newest).expect("copied");
        let newest = Trace::open(&newest).expect("a trace");
        let segment = newest.process.segment.as_ref().expect("a segment");
        assert!(
            segment.number >= wanted && newest.event_count() >= segment.events,
            "moment {moment}: {segment:?}"
        );
        assert!(early(&newest) >= 200, "moment {moment}: {segment:?}");
        let joined = Trace::open(&trace).expect("a trace");
        let first = joined.process.segment.as_ref().map_or(0, |one| one.number);
        assert_eq!(
            segment.number - first,
            older.len() as u64,
            "moment {moment}: all that is left is one recording"
        );
    }
}

#[test]
fn of_a_sample_each_segment_is_complete_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let sample = Sample {
        bytes: 1024,
        seed: 7,
    };
    let recorded = record(folder.path(), Some(sample), Some(for_ms(4000)), || {});
    let (alone, joined) = (lives(&alone(&recorded)), lives(&open(&recorded.path)));
    assert_eq!(alone.blocks, joined.blocks);
    assert_eq!(alone.mapped, joined.mapped);
    assert_eq!((alone.unknown_frees, joined.unknown_frees), (0, 0));
    assert!(alone.by_size.len() >= 4, "{:?}", alone.by_size);
}

#[test]
fn what_is_left_is_put_aside_when_a_condition_comes_true() {
    let folder = tempfile::tempdir().expect("a folder");
    let bounds = Bounds {
        when: vec!["rss>1M".parse().expect("a condition")],
        ..for_ms(4000)
    };
    let recorded = record(folder.path(), None, Some(bounds), || {});
    let kept = folder.path().join("main.kept-1.sft");
    assert_eq!(recorded.kept, std::slice::from_ref(&kept));
    let aside = open(&kept);
    let ending = aside.ending.as_ref().expect("its end");
    assert_eq!(ending.notes, ["put aside when rss>1M came true"]);
    let mark = aside
        .marks
        .iter()
        .position(|mark| mark.name == "when rss>1M")
        .expect("a mark");
    let cause = SnapshotCause::Mark(mark as u32);
    let snapshot = aside
        .snapshots
        .iter()
        .find(|one| one.cause == cause)
        .expect("books");
    let resident: u64 = snapshot.mappings.iter().map(|one| one.rss_bytes).sum();
    assert!(resident > 1 << 20);
    is_the_same(&lives(&open(&recorded.path)), "the recording went on");
}
