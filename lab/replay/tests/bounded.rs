//! Memory does not grow with the length of a trace: neither the compiler's nor the player's.
//!
//! ```text
//!   2 million events (SKINFLINT_LONG=1: 100 million) ─► .sft ─► compile ─► pipe ─► skinflint-replay --null
//!                                                          │ VmHWM                    │ own_bytes
//! ```
//!
//! U1  The bounds depend on the live blocks, which are equally many in the long form and in the short one.
//! U2  There is one test in this process: what it measures is its own memory.

use std::io::{BufWriter, Write};
use std::process::{Command, Stdio};

use serde_json::Value;
use skinflint_base::random::Random;
use skinflint_compare::compile::compile;
use skinflint_trace::*;

const LIVE: u64 = 200_000;
const THREADS: u64 = 4;

/// Writes a trace of threads that each replace random blocks of their own, and now and then one of a neighbour's.
fn write_trace(path: &std::path::Path, events: u64) {
    let process = ProcessInfo {
        pid: 7,
        ..ProcessInfo::default()
    };
    let mut writer = Writer::create(path, &process).expect("a trace");
    let mut encoders: Vec<EventEncoder> = (0..THREADS)
        .map(|id| EventEncoder::new(ThreadId(id as u32)))
        .collect();
    for id in 0..THREADS as u32 {
        writer
            .thread(
                ThreadId(id),
                &Thread {
                    tid: 7 + id,
                    ..Thread::default()
                },
            )
            .expect("written");
    }
    let mut random = Random::new(0x1234_5678_9abc_def1);
    for ticket in 0..events {
        let seed = random.bits();
        // The even events of the later part release what the odd ones acquire again.
        let step = ticket.saturating_sub(LIVE);
        let number = match ticket {
            first if first < LIVE => first,
            _ => (step / 2).wrapping_mul(0x9e37_79b9_7f4a_7c15) % LIVE,
        };
        let addr = 0x10_0000 + number * 256;
        let size = 16 + number % 240;
        let kind = match ticket < LIVE || step % 2 == 1 {
            true => EventKind::Alloc {
                func: AllocFn::Malloc,
                node: NodeId(0),
                addr,
                size,
                usable: size,
            },
            false => EventKind::Free {
                func: FreeFn::Free,
                addr,
            },
        };
        let owner = number % THREADS;
        let id = if step % 64 == 0 {
            seed % THREADS
        } else {
            owner
        };
        let encoder = &mut encoders[id as usize];
        encoder.push(&Event {
            ticket,
            time_ns: ticket * 50,
            thread: ThreadId(id as u32),
            kind,
        });
        if encoder.is_full() {
            let block = encoder.take().expect("it has events");
            writer.events(block).expect("written");
        }
    }
    for mut encoder in encoders {
        encoder
            .take()
            .map(|block| writer.events(block))
            .transpose()
            .expect("written");
    }
    writer
        .ending(&Ending {
            events,
            ..Ending::default()
        })
        .expect("written");
}

fn high_water_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .expect("VmHWM");
    let kb: u64 = line
        .split_whitespace()
        .nth(1)
        .and_then(|kb| kb.parse().ok())
        .expect("a number");
    kb * 1024
}

#[test]
fn memory_is_bounded_by_live_blocks() {
    let is_long = std::env::var("SKINFLINT_LONG").is_ok_and(|value| value == "1");
    let events = if is_long { 100_000_000 } else { 2_000_000 };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("long.sft");
    write_trace(&path, events);
    let trace = Trace::open(&path).expect("opens");
    assert_eq!(trace.event_count(), events);

    // Resets the high-water mark of this process (man 5 proc).
    std::fs::write("/proc/self/clear_refs", "5").expect("clear_refs");
    let before = high_water_bytes();
    let report = folder.path().join("report");
    let mut player = Command::new(env!("CARGO_BIN_EXE_skinflint-replay"))
        .args(["-", "--null", "--report"])
        .arg(&report)
        .stdin(Stdio::piped())
        .spawn()
        .expect("the player starts");
    let pipe = player.stdin.take().expect("a pipe");
    let mut pipe = BufWriter::with_capacity(1 << 16, pipe);
    let compiled = compile(&trace, &mut pipe).expect("compiles");
    pipe.flush().expect("the player reads");
    drop(pipe);
    let grown = high_water_bytes() - before;
    assert!(player.wait().expect("it ends").success());
    let report = std::fs::read_to_string(report).expect("a report");
    let end: Value = serde_json::from_str(report.lines().last().expect("lines")).expect("JSON");
    let number = |field: &str| end[field].as_u64().expect("a number");

    println!(
        "{events} events: compiler {} bytes for each live block, player {}, {} ns an operation, {} waits",
        grown / LIVE,
        number("own_bytes") / LIVE,
        number("cpu_ns") / number("ops"),
        number("waits"),
    );
    assert_eq!(
        (compiled.ops, number("ops"), compiled.slots),
        (events, events, LIVE)
    );
    assert_eq!(number("order_violations") + number("double_uses"), 0);
    assert!(
        number("waits") > events / 1000,
        "threads release each other's blocks"
    );
    assert!(
        grown < 120 * LIVE + (32 << 20),
        "the compiler grew by {grown} bytes"
    );
    assert!(
        number("own_bytes") < 24 * LIVE + (1 << 20),
        "the player holds {}",
        number("own_bytes")
    );
}
