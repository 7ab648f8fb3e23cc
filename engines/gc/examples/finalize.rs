//! Finalization beside the mutator, by the mutator, and in the pause: one program of strings, buffers and maps.
//!
//! ```text
//!   cargo run --release -p skinflint-gc --example finalize -- beside | lazily | pause   computes | allocates
//!       ─► one line of JSON: objects ended by whom, pauses, processor time of the thread and of all, peak
//! ```
//!
//! F1  The work is the same in all forms: so many records are made, and take random places in a table of records that
//!     live. What they were is printed as a checksum.
//! F2  `computes` does some hundred multiplications for each record, `allocates` none.
//! F3  Each record has a finalizer that any thread may run: its text, buffer and map are malloc's.
//!
//! Not here: alternation, medians, bars (`bench/gc/finalize.py`).

use std::collections::BTreeMap;
use std::hint::black_box;

use skinflint_gc::typed::{Gc, Handle, Locked, Runtime};
use skinflint_gc::{Config, object};

object! {
    struct Record<'gc> {
        text: String,
        buffer: Vec<u8>,
        map: BTreeMap<u32, u32>,
        before: Option<Gc<'gc, u64>>,
    }
}

object! { struct Table<'gc> { records: Locked<Vec<Option<Gc<'gc, Record<'gc>>>>> } }

/// Records that live, and records that are made.
const LIVE: usize = 60_000;
const MADE: u64 = 1_200_000;
/// Records of a closure: the heap is collected between two.
const TURN: u64 = 200;
/// Multiplications for a record, where the program computes.
const WORK: u64 = 1500;

fn cpu_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: C's contract: a clock that Linux has, and room for the answer.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

fn peak_kb() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("/proc/self/status");
    let line = text.lines().find(|line| line.starts_with("VmHWM"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.and_then(|n| n.parse().ok()).expect("VmHWM")
}

fn config(form: &str) -> Config {
    match form {
        "beside" => Config::default(),
        "lazily" => Config {
            background: false,
            ..Config::default()
        },
        "pause" => Config {
            background: false,
            sweep_in_pause: true,
            ..Config::default()
        },
        _ => usage(),
    }
}

fn usage() -> ! {
    eprintln!("usage: finalize beside|lazily|pause computes|allocates");
    std::process::exit(2)
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [form, program] = &words[..] else { usage() };
    let work = match program.as_str() {
        "computes" => WORK,
        "allocates" => 0,
        _ => usage(),
    };
    let runtime = Runtime::new(config(form));
    let tenant = runtime.tenant("tab", usize::MAX);
    let table: Handle<Table<'static>> = tenant.enter(|cx| {
        let records = Locked::new(vec![None; LIVE]);
        cx.keep(cx.alloc(Table { records }).expect("memory"), "table")
    });
    let (mut random, mut sum) = (1u64, 0u64);
    let (thread, all) = (
        libc::CLOCK_THREAD_CPUTIME_ID,
        libc::CLOCK_PROCESS_CPUTIME_ID,
    );
    let began = (cpu_ns(thread), cpu_ns(all));
    for turn in 0..MADE / TURN {
        tenant.enter(|cx| {
            let table = table.open(cx).expect("ours");
            for at in 0..TURN {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(99);
                let place = (random >> 33) as usize % LIVE;
                let number = turn * TURN + at;
                let record = Record {
                    text: "a".repeat(20 + place % 30),
                    buffer: vec![number as u8; 64],
                    map: (0..3).map(|key| (key, place as u32)).collect(),
                    before: None,
                };
                let record = cx.alloc(record).expect("memory");
                let old = table.records.borrow_mut(cx)[place].replace(record);
                if let Some(old) = old {
                    sum += old.text.len() as u64 + old.buffer.len() as u64;
                }
                for step in 0..work {
                    sum = black_box(sum.wrapping_mul(31).wrapping_add(step));
                }
            }
        });
    }
    let spent = (cpu_ns(thread) - began.0, cpu_ns(all) - began.1);
    let log = tenant.heap().log();
    let counts = tenant.heap().sweep_counts();
    let pauses: Vec<f64> = log.iter().map(|c| c.pause_ns as f64 / 1e6).collect();
    println!(
        "{{\"form\": \"{form}\", \"program\": \"{program}\", \"sum\": {sum}, \"collections\": {}, \"background\": {}, \
         \"lazily\": {}, \"in_pauses\": {}, \"pauses_ms\": {:.3}, \"longest_ms\": {:.3}, \"thread_ms\": {:.1}, \
         \"cpu_ms\": {:.1}, \"peak_kb\": {}}}",
        log.len(),
        counts.background_cells,
        counts.lazy_cells,
        counts.pause_cells,
        pauses.iter().sum::<f64>(),
        pauses.iter().copied().fold(0.0, f64::max),
        spent.0 as f64 / 1e6,
        spent.1 as f64 / 1e6,
        peak_kb(),
    );
}
