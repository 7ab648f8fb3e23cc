//! Logs of a few lines whose every event is written down by hand.
//!
//! T1  Errors are compared by line and column, and to the letter if the sentence is ours.

use std::cell::RefCell;
use std::io::Write;
use std::rc::Rc;

use super::*;
use skinflint_trace::{ProcessInfo, Trace};

#[derive(Clone, Default)]
struct Bytes(Rc<RefCell<Vec<u8>>>);

impl Write for Bytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink for Bytes {
    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.0.borrow_mut().truncate(len as usize);
        Ok(())
    }
}

fn read(log: &str, pid: Option<u64>) -> Result<(Imported, Vec<Event>), LogError> {
    let pid = choose(&processes(&mut log.as_bytes())?, pid)?;
    let bytes = Bytes::default();
    let writer = Writer::new(bytes.clone(), &ProcessInfo::default(), 1).unwrap();
    let done = import(&mut log.as_bytes(), pid, writer)?;
    let trace = Trace::from_bytes(bytes.0.borrow().clone(), "log").unwrap();
    assert_eq!(trace.ending.as_ref().unwrap().events, done.events);
    let mut events = Vec::new();
    trace.events().for_each(|event| events.push(*event));
    assert_eq!(events.len() as u64, done.events);
    Ok((done, events))
}

#[track_caller]
fn fails(log: &str, wanted: &str) {
    let said = read(log, None).unwrap_err().to_string();
    assert_eq!(said, wanted, "{log:?}");
}

/// The example of the format's own documentation.
const RAW: &str = "\
18545 18545 malloc(32)=0x7f90495120e0
18545 18545 calloc(1,148)=0x7f9049537480
18545 18545 realloc(0x7f90495120e0,64)=0x7f9049536680
18545 18545 posix_memalign(256,240)=0x7f9049583300
18545 18545 jemalloc_stats()
18545 18545 free(0x7f9049536680)
";

/// The same example, munged.
const MUNGED: &str = "\
1 1 malloc(32)=#1
1 1 calloc(1,148)=#2
1 1 realloc(#1,64)=#1
1 1 posix_memalign(256,240)=#3
1 1 jemalloc_stats()
1 1 free(#1)
";

#[test]
fn the_example_of_its_document() {
    let (done, events) = read(RAW, None).unwrap();
    let node = NodeId(0);
    let wanted = [
        EventKind::Alloc {
            func: AllocFn::Malloc,
            node,
            addr: 0x7f90_4951_20e0,
            size: 32,
            usable: 32,
        },
        EventKind::Alloc {
            func: AllocFn::Calloc,
            node,
            addr: 0x7f90_4953_7480,
            size: 148,
            usable: 148,
        },
        EventKind::ReallocRelease {
            addr: 0x7f90_4951_20e0,
        },
        EventKind::ReallocAcquire {
            node,
            addr: 0x7f90_4953_6680,
            size: 64,
            usable: 64,
        },
        EventKind::Alloc {
            func: AllocFn::Memalign,
            node,
            addr: 0x7f90_4958_3300,
            size: 240,
            usable: 240,
        },
        EventKind::Mark { mark: 0 },
        EventKind::Free {
            func: FreeFn::Free,
            addr: 0x7f90_4953_6680,
        },
    ];
    let kinds: Vec<EventKind> = events.iter().map(|event| event.kind).collect();
    assert_eq!(kinds, wanted);
    let imported = Imported {
        pid: 18545,
        lines: 6,
        events: 7,
        threads: 1,
        cut: false,
    };
    assert_eq!(done, imported);
    assert_eq!(events[3].time_ns, 3000);
}

#[test]
fn slots_get_addresses_that_do_not_overlap() {
    let (_, events) = read(MUNGED, None).unwrap();
    assert_eq!(events.len(), 7);
    let mut log = String::new();
    // A thousand slots of changing sizes and alignments, each live block at another address.
    for round in 0..4u64 {
        for slot in 1..=1000u64 {
            let size = slot * 37 % 400 + round;
            let call = match slot % 3 {
                0 => format!("memalign({},{size})=#{slot}", 16 << (slot % 5)),
                _ => format!("malloc({size})=#{slot}"),
            };
            log += &format!("1 {} {call}\n", slot % 7);
        }
        for slot in (1..=1000u64).filter(|slot| slot % 2 == 0 || round < 3) {
            log += &format!("1 1 free(#{slot})\n");
        }
    }
    let (done, events) = read(&log, None).unwrap();
    assert_eq!(done.threads, 7);
    let mut live = std::collections::BTreeMap::new();
    for event in events {
        match event.kind {
            EventKind::Alloc { addr, size, .. } => {
                let before = live.range(..=addr).next_back();
                assert!(before.is_none_or(|(at, room)| at + room <= addr));
                let after = live.range(addr..).next();
                assert!(after.is_none_or(|(at, _)| addr + size <= *at));
                live.insert(addr, size.max(1));
            }
            EventKind::Free { addr, .. } => assert!(live.remove(&addr).is_some()),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(live.len(), 500);
}

#[test]
fn an_alignment_is_kept() {
    let (_, events) = read(
        "1 1 malloc(1)=#1\n1 1 memalign(4096,10)=#2\n1 1 valloc(5)=#3\n",
        None,
    )
    .unwrap();
    let at = |index: usize| match events[index].kind {
        EventKind::Alloc { addr, .. } => addr,
        other => panic!("{other:?}"),
    };
    assert_eq!((at(1) % 4096, at(2) % 4096), (0, 0));
}

#[test]
fn calls_that_did_nothing_are_no_events() {
    let log = "1 1 malloc(99)=(nil)\n1 1 free((nil))\n1 1 free(0x0)\n1 1 realloc(#0,8)=#1\n\
               1 1 realloc(#1,9000)=(nil)\n1 1 realloc(#1,0)=(nil)\n";
    let (done, events) = read(log, None).unwrap();
    assert_eq!(done.lines, 6);
    let funcs: Vec<bool> = events
        .iter()
        .map(|event| {
            matches!(
                event.kind,
                EventKind::Alloc {
                    func: AllocFn::Realloc,
                    ..
                }
            )
        })
        .collect();
    assert_eq!(funcs, [true, false]);
    assert!(matches!(
        events[1].kind,
        EventKind::Free {
            func: FreeFn::Realloc,
            ..
        }
    ));
}

#[test]
fn logs_without_threads_and_with_other_line_ends() {
    let (done, events) = read(
        "13663 malloc(42)=0x7f0c33502040\r\n13663 free(0x7f0c33502040)\r\n",
        None,
    )
    .unwrap();
    assert_eq!((done.threads, events.len()), (1, 2));
}

#[test]
fn errors_name_line_and_column() {
    fails(
        "1 1 malloc(32)=#1\n1 1 maloc(32)=#1\n",
        "line 2, column 5: expected malloc, calloc, realloc, free, memalign, posix_memalign, aligned_alloc, valloc or jemalloc_stats, there is \"maloc(32)=#1\"",
    );
    fails(
        "hello\n",
        "line 1, column 1: expected a process id, there is \"hello\"",
    );
    fails(
        "1 1 malloc(x)=#1\n",
        "line 1, column 12: expected a number, there is \"x)=#1\"",
    );
    fails(
        "1 1 malloc(3)=\n",
        "line 1, column 15: expected an address (0x\u{2026}), a slot (#\u{2026}) or (nil), the line ends",
    );
    fails(
        "1 1 malloc(3)=#1 \n",
        "line 1, column 17: expected the end of the line, there is \" \"",
    );
    fails(
        "1 1 malloc(99999999999999999999)=#1\n",
        "line 1, column 12: expected a number below 2^64, there is \"99999999999999999999)=#1\"",
    );
    fails(
        "1 1 calloc(4294967296,4294967296)=#1\n",
        "line 1, column 12: expected a product below 2^64, there is \"4294967296,4294967296)=#\"",
    );
    fails(
        "1 1 free(0xffffffffffffffff)\n",
        "line 1, column 12: expected an address below 2^47, there is \"ffffffffffffffff)\"",
    );
    fails(
        "",
        "there is no whole line of a logalloc log in it; was MALLOC_LOG set?",
    );
    let long = format!("1 1 malloc({})=#1\n", "1".repeat(5000));
    fails(
        &long,
        "line 1, column 1: a line of more than 4096 bytes: this is not a log of logalloc",
    );
    fails(
        "1 1 malloc(8)=#1\n2 1 malloc(8)=#1\n",
        "several processes in one log; choose one with --pid: 1 (1 lines), 2 (1 lines)",
    );
    let said = read("1 1 malloc(8)=#1\n", Some(3)).unwrap_err().to_string();
    assert_eq!(
        said,
        "--pid 3: no line of this process; there are: 1 (1 lines)"
    );
    assert_eq!(
        read("1 1 malloc(8)=#1\n2 1 malloc(8)=#1\n", Some(2))
            .unwrap()
            .1
            .len(),
        1
    );
}

#[test]
fn a_log_that_is_cut_anywhere() {
    let whole = read(RAW, None).unwrap().1;
    for len in 1..RAW.len() {
        let lines = RAW[..len].matches('\n').count();
        match read(&RAW[..len], None) {
            Ok((done, events)) => {
                assert_eq!(done.lines, lines as u64);
                assert_eq!(done.cut, !RAW[..len].ends_with('\n'), "{len}");
                assert_eq!(events[..], whole[..events.len()], "{len}");
            }
            // Within the first line nothing is known.
            Err(error) => assert_eq!(lines, 0, "{len}: {error}"),
        }
    }
}

#[test]
fn damaged_logs_never_panic() {
    let mut seed = 0x9E37_79B9_7F4A_7C15u64;
    for _ in 0..3000 {
        let mut log = MUNGED.as_bytes().to_vec();
        for _ in 0..3 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (seed >> 33) as usize % log.len();
            log[at] = b"0123456789(),=#x\n \xff"[(seed >> 20) as usize % 19];
        }
        let log = String::from_utf8_lossy(&log).into_owned();
        let _ = read(&log, None);
    }
}
