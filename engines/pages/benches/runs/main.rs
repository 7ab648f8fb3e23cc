//! Page map, red-black tree, treap: the same requests of real programs, answered by each.
//!
//! ```text
//!   cargo bench -p skinflint-pages                     the table
//!   cargo bench -p skinflint-pages -- slack            what purging before growing costs and saves
//!   … -- one map|redblack|treap|none PROGRAM TIMES     replays and prints nothing: for callgrind
//! ```
//!
//! W1  Every answer of every pool is checked once, untimed, before anything is timed.
//! W2  Time is the thread's CPU time, the median of rounds in which the pools take turns, less that of
//!     the replay alone (pool `none`). Instructions are callgrind's, if valgrind is installed: the
//!     difference of two runs, likewise less the replay's.
//! W3  No pool purges and none touches the pages: only the bookkeeping is compared.
//! W4  Exit 1 if an answer was wrong or a tree was not slower (bars: instructions, or else time).
//!
//! Not here: the requests' origin (`traces/record.py`).

use std::alloc::{GlobalAlloc, Layout, System};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

mod map;
mod replay;
mod requests;
mod trees;

use map::{MapPool, Runs};
use replay::{Seen, checked, replay};
use requests::Requests;
use subms_treap::Treap;
use trees::{RedBlack, TreePool};

const ROUNDS: usize = 9;
/// The least requests of one round.
const ROUND_REQUESTS: usize = 400_000;

/// A pool that answers without looking: the cost of the replay.
struct NoPool;

impl Runs for NoPool {
    fn new() -> NoPool {
        NoPool
    }
    fn take(&mut self, pages: u32) -> u32 {
        std::hint::black_box(pages)
    }
    fn give(&mut self, page: u32, pages: u32) {
        std::hint::black_box((page, pages));
    }
    fn extend(&mut self, end: u32, _more: u32) -> bool {
        std::hint::black_box(end) > 0
    }
    fn touched_max(&self) -> u32 {
        0
    }
    fn heap_pages(&self) -> u32 {
        0
    }
    fn metadata_bytes(&self) -> Option<usize> {
        Some(0)
    }
}

/// Counts live bytes of this program: the trees' nodes.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // ORDER: a count, read by the thread that makes it.
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // ORDER: as above.
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn live_bytes() -> usize {
    // ORDER: see `Counting`.
    LIVE.load(Ordering::Relaxed)
}

fn thread_ns() -> f64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut now) };
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

/// Returns the nanoseconds a request, over as many replays as make a round. The pool is warm.
fn time<P: Runs>(program: &Requests) -> f64 {
    let mut pool = P::new();
    let mut runs = Vec::with_capacity(program.runs);
    replay(&mut pool, program, &mut runs);
    let times = ROUND_REQUESTS.div_ceil(program.requests.len());
    let start = thread_ns();
    for _ in 0..times {
        replay(&mut pool, program, &mut runs);
    }
    (thread_ns() - start) / (times * program.requests.len()) as f64
}

/// What one pool did with one program.
struct Row {
    ns: Vec<f64>,
    instructions: Option<f64>,
    touched_max: u32,
    used_max: u32,
    metadata_bytes: usize,
}

fn check_one<P: Runs>(program: &Requests) -> Result<Row, String> {
    let before = live_bytes();
    let mut pool = P::new();
    // The pool's own bytes only: the replay's table and its list of pages are freed by then.
    let Seen { used_max, fault } = checked(&mut pool, program);
    if let Some(fault) = fault {
        return Err(format!("{}: {fault}", program.name));
    }
    let metadata_bytes = pool
        .metadata_bytes()
        .unwrap_or(live_bytes() - before + size_of::<P>());
    let (ns, instructions) = (Vec::new(), None);
    Ok(Row {
        ns,
        instructions,
        touched_max: pool.touched_max(),
        used_max,
        metadata_bytes,
    })
}

fn one(pool: &str, program: &Requests, times: usize) -> Result<(), String> {
    fn go<P: Runs>(program: &Requests, times: usize) {
        let (mut pool, mut runs) = (P::new(), Vec::with_capacity(program.runs));
        for _ in 0..times {
            replay(&mut pool, program, &mut runs);
        }
    }
    match pool {
        "map" => go::<MapPool>(program, times),
        "redblack" => go::<TreePool<RedBlack>>(program, times),
        "treap" => go::<TreePool<Treap<u64, u32>>>(program, times),
        "none" => go::<NoPool>(program, times),
        other => {
            return Err(format!(
                "no pool `{other}` (there are map, redblack, treap, none)"
            ));
        }
    }
    Ok(())
}

/// Returns the instructions of this many replays; `None` without callgrind.
fn callgrind(pool: &str, program: &Requests, times: usize) -> Option<f64> {
    let me = std::env::current_exe().ok()?;
    let done = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(me)
        .args(["one", pool, &program.name, &times.to_string()])
        .output()
        .ok()?;
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    let line = said.lines().find(|line| line.contains("Collected :"))?;
    line.rsplit(' ').next()?.parse().ok()
}

fn instructions(pool: &str, program: &Requests) -> Option<f64> {
    let (few, many) = (callgrind(pool, program, 1)?, callgrind(pool, program, 2)?);
    Some((many - few) / program.requests.len() as f64)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn geometric_mean(values: &[f64]) -> f64 {
    (values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp()
}

const POOLS: [&str; 3] = ["map", "redblack", "treap"];

fn measure(program: &Requests) -> Result<[Row; 3], String> {
    let mut rows = [
        check_one::<MapPool>(program)?,
        check_one::<TreePool<RedBlack>>(program)?,
        check_one::<TreePool<Treap<u64, u32>>>(program)?,
    ];
    let timers = [
        time::<MapPool>,
        time::<TreePool<RedBlack>>,
        time::<TreePool<Treap<u64, u32>>>,
    ];
    let mut alone = Vec::new();
    for round in 0..ROUNDS {
        alone.push(time::<NoPool>(program));
        for turn in 0..3 {
            let pool = (round + turn) % 3;
            rows[pool].ns.push(timers[pool](program));
        }
    }
    let (alone_ns, alone_instructions) = (median(alone), instructions("none", program));
    for (row, pool) in rows.iter_mut().zip(POOLS) {
        row.ns.iter_mut().for_each(|ns| *ns -= alone_ns);
        row.instructions =
            alone_instructions.and_then(|alone| Some(instructions(pool, program)? - alone));
    }
    Ok(rows)
}

fn table(programs: &[Requests]) -> Result<bool, String> {
    println!(
        "red-black: intrusive-collections 0.10 · treap: subms-treap 0.10 · CPU ns and instructions a request"
    );
    println!(
        "{:9} {:>9} {:9} {:>7} {:>6} {:>7} {:>6} {:>9} {:>9} {:>10}",
        "program", "requests", "pool", "ns", "×", "instr", "×", "pages max", "/ used", "metadata"
    );
    let mut ratios: [[Vec<f64>; 2]; 3] = Default::default();
    for program in programs {
        let rows = measure(program)?;
        let first_ns = median(rows[0].ns.clone());
        let first_instructions = rows[0].instructions;
        for (index, (row, pool)) in rows.iter().zip(POOLS).enumerate() {
            let ns = median(row.ns.clone());
            ratios[index][0].push(ns / first_ns);
            let by_instructions = row
                .instructions
                .zip(first_instructions)
                .map(|(own, first)| own / first);
            ratios[index][1].extend(by_instructions);
            println!(
                "{:9} {:>9} {:9} {:>7.1} {:>6.2} {:>7} {:>6} {:>9} {:>9.4} {:>10}",
                program.name,
                program.requests.len(),
                pool,
                ns,
                ns / first_ns,
                row.instructions
                    .map_or("-".into(), |count| format!("{count:.0}")),
                by_instructions.map_or("-".into(), |ratio| format!("{ratio:.2}")),
                row.touched_max,
                f64::from(row.touched_max) / f64::from(row.used_max),
                row.metadata_bytes,
            );
        }
    }
    let mut held = true;
    for (ratio, pool) in ratios.iter().zip(POOLS).skip(1) {
        let time = geometric_mean(&ratio[0]);
        print!("{pool} against the map, geometric mean: {time:.2} times the time");
        if ratio[1].is_empty() {
            println!(" (no callgrind: instructions not counted)");
            held &= time > 1.0;
        } else {
            let instructions = geometric_mean(&ratio[1]);
            println!(", {instructions:.2} times the instructions");
            held &= instructions > 1.0;
        }
    }
    Ok(held)
}

/// Measures purging before growing, by how many dirty pages may lie unused meanwhile.
fn slack(programs: &[Requests]) {
    println!(
        "{:9} {:>7} {:>9} {:>8} {:>10} {:>8}",
        "program", "slack", "pages max", "/ used", "purged", "/ taken"
    );
    for program in programs {
        for slack in [0, 16, 64, 256, 1024, u32::MAX] {
            let mut pool = MapPool::new();
            pool.0.slack_pages = Some(slack);
            let seen = checked(&mut pool, program);
            let taken = pool.0.used_clean_total + pool.0.reused_dirty_total;
            println!(
                "{:9} {:>7} {:>9} {:>8.4} {:>10} {:>8.4}",
                program.name,
                if slack == u32::MAX {
                    "all".into()
                } else {
                    slack.to_string()
                },
                pool.0.touched_max,
                f64::from(pool.0.touched_max) / f64::from(seen.used_max),
                pool.0.purged_early_total,
                pool.0.purged_early_total as f64 / taken as f64,
            );
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = requests::all().and_then(|programs| match words.as_slice() {
        [] => table(&programs),
        ["slack"] => {
            slack(&programs);
            Ok(true)
        }
        ["one", pool, name, times] => {
            let program = programs.iter().find(|program| program.name == *name);
            let program = program.ok_or(format!("no program `{name}`"))?;
            let times = times
                .parse()
                .map_err(|_| format!("`{times}` is no number of times"))?;
            one(pool, program, times).map(|()| true)
        }
        _ => Err(format!(
            "{words:?}: nothing, `slack`, or `one POOL PROGRAM TIMES`"
        )),
    });
    match done {
        Ok(true) => {}
        Ok(false) => {
            eprintln!("missed: a tree was not slower than the page map");
            std::process::exit(1);
        }
        Err(error) => {
            eprintln!("bench runs: {error}");
            std::process::exit(2);
        }
    }
}
