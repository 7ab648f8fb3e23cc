//! A small Scheme, whose one machine runs on our typed heap and on `gc-arena`: the example of docs/gc.md.
//!
//! ```text
//!   scheme HEAP FILE.scm [N] ─► what it displays; then a line of JSON: processor time, memory
//! ```
//!
//! B1  N takes the place of the word `SIZE` in the text.
//! B2  One collector in a process, so that its memory is the process's.
//! B3  Both run the same instructions of the same machine ([`ours::machine`] and [`theirs::machine`] are one file).
//!
//! Not here: alternation, medians, expected output (`bench/gc/scheme.py`).

mod code;
mod compile;
mod expand;
mod ours;
mod read;
mod theirs;

use std::time::Duration;

use gc_arena::metrics::Pacing;
use skinflint_gc::{Config, Growth, Incremental};

/// Instructions between two looks at whether to collect.
pub const FUEL: u32 = 10_000;

/// What came of a program.
pub struct Done {
    pub out: String,
    pub collections: u64,
}

/// Kilobytes of a line of `/proc/self/status`.
fn status(field: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(field));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn cpu() -> Duration {
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() }; // SAFETY: plain numbers
    // SAFETY: it is ours to be written.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    let part = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    part(usage.ru_utime) + part(usage.ru_stime)
}

fn run() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, heap, file, size @ ..] = &arguments[..] else {
        return Err("usage: scheme HEAP FILE.scm [N]; heaps: skinflint, skinflint-tight, skinflint-slices, gc-arena, gc-arena-stop".to_owned());
    };
    let text = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    let text = match size.first() {
        Some(size) => text.replace("SIZE", size),
        None => text,
    };
    let program = compile::compile(&text)?;
    let tight = Config {
        growth: Growth::TIGHT,
        ..Config::default()
    };
    let slices = Config {
        incremental: Some(Incremental::DEFAULT),
        ..Config::default()
    };
    let (before_kb, begin) = (status("VmRSS"), cpu());
    let done = match heap.as_str() {
        "skinflint" => ours::run(&program, Config::default())?,
        "skinflint-tight" => ours::run(&program, tight)?,
        "skinflint-slices" => ours::run(&program, slices)?,
        "gc-arena" => theirs::run(&program, Pacing::DEFAULT)?,
        "gc-arena-stop" => theirs::run(&program, Pacing::STOP_THE_WORLD)?,
        other => return Err(format!("no heap {other}")),
    };
    let took = cpu() - begin;
    print!("{}", done.out);
    println!(
        "{{\"cpu_ms\": {:.2}, \"before_kb\": {before_kb}, \"peak_kb\": {}, \"collections\": {}}}",
        took.as_secs_f64() * 1e3,
        status("VmHWM"),
        done.collections,
    );
    Ok(())
}

fn main() {
    if let Err(what) = run() {
        eprintln!("{what}");
        std::process::exit(1);
    }
}
