//! A program that hardly allocates: when its garbage goes, and what looking for garbage costs where there is none.
//!
//! ```text
//!   cargo run --release -p skinflint-gc --example trickle
//!     ─► seconds until 112 MB of garbage are gone; share of ten minutes that collections take with 300 MB alive
//! ```
//!
//! K1  Ten objects a second, a tick each second, by a clock of the program's own: ten minutes pass in as long as the work
//!     takes. The work is processor time of this process, all threads.
//!
//! Not here: when an interval is doubled (`heap/interval`).

use skinflint_gc::typed::{Gc, Handle, Runtime, Tenant};
use skinflint_gc::{Collection, Config, object};

object! { struct Link<'gc> { next: Option<Gc<'gc, Link<'gc>>>, numbers: [u64; 5] } }

const SECOND: u64 = 1_000_000_000;
const MB: usize = 1_000_000;

/// Returns the processor time of all threads, in nanoseconds.
fn cpu_ns() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("/proc");
    let files = tasks.map(|task| task.expect("a thread").path().join("schedstat"));
    files
        .map(|file| {
            let text = std::fs::read_to_string(file).expect("schedstat");
            let first = text.split_whitespace().next().expect("a number");
            first.parse::<u64>().expect("a number")
        })
        .sum()
}

/// Returns a list of so many bytes.
fn list(tenant: &Tenant, bytes: usize) -> Handle<Link<'static>> {
    tenant.enter(|cx| {
        let mut next = None;
        for number in 0..bytes / size_of::<Link<'_>>() {
            let numbers = [number as u64; 5];
            next = Some(cx.alloc(Link { next, numbers }).expect("memory"));
        }
        cx.keep(next.expect("one at least"), "list")
    })
}

/// Goes on for so many seconds, or until something is collected; returns how many passed.
fn trickle(runtime: &Runtime, tenant: &Tenant, from: u64, seconds: u64, once: bool) -> u64 {
    let collected = tenant.heap().log().len();
    for second in 1..=seconds {
        tenant.enter(|cx| {
            for _ in 0..10 {
                let link = Link {
                    next: None,
                    numbers: [second; 5],
                };
                cx.alloc(link).expect("memory");
            }
        });
        runtime.tick((from + second) * SECOND);
        if once && tenant.heap().log().len() > collected {
            return second;
        }
    }
    seconds
}

fn main() {
    let runtime = Runtime::new(Config::default());
    let tenant = runtime.tenant("garbage", usize::MAX);
    let kept = list(&tenant, 112 * MB);
    tenant.collect().expect("no tenant is busy");
    drop(kept);
    let before = tenant.heap().held_bytes();
    let passed = trickle(&runtime, &tenant, 100, 600, true);
    while !tenant.poll() {}
    let left = tenant.heap().holds();
    println!(
        "garbage of {:.1} MB: gone after {passed} s, {:.1} MB held, {:.1} MB free and resident",
        before as f64 / 1e6,
        left.held_bytes as f64 / 1e6,
        left.dirty_bytes as f64 / 1e6
    );

    let tenant = runtime.tenant("alive", usize::MAX);
    let kept = list(&tenant, 300 * MB);
    tenant.collect().expect("no tenant is busy");
    let already = tenant.heap().log().len();
    let spent = cpu_ns();
    trickle(&runtime, &tenant, 1000, 600, false);
    let spent = cpu_ns() - spent;
    let log: Vec<Collection> = tenant.heap().log().into_iter().skip(already).collect();
    println!(
        "{} MB alive: {} collections in 600 s, {:.0} ms of processor time, {:.3} % of one processor",
        300,
        log.len(),
        spent as f64 / 1e6,
        spent as f64 / 600e9 * 100.0
    );
    drop(kept);
}
