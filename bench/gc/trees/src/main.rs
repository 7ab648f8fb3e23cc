//! Binary trees: a long-lived one with 2^18 leaves, and a hundred with 2^14 that come and go, on one collector.
//!
//! ```text
//!   trees skinflint[-tenant | -adaptive] | gc-arena  ─► one line of JSON: processor time, peak and final resident memory, live bytes
//! ```
//!
//! B1  Both build the same trees in the same order and count the nodes of each; a wrong count is an error.
//! B2  One collector in a process, so that its memory is the process's. What was resident before is subtracted by
//!     the reader (`bench/gc/trees.py`), and printed here.
//!
//! Not here: alternation, medians, bars (`bench/gc/trees.py`).

use std::time::Duration;

const LONG: u32 = 19;
const SHORT: u32 = 15;
const TIMES: u32 = 100;

/// Kilobytes of a line of `/proc/self/status`.
fn status(field: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("/proc/self/status");
    let line = text.lines().find(|line| line.starts_with(field));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.and_then(|number| number.parse().ok()).expect(field)
}

fn cpu() -> Duration {
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() }; // SAFETY: plain numbers
    // SAFETY: B2: it is ours to be written.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    let part = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    part(usage.ru_utime) + part(usage.ru_stime)
}

struct Marks {
    before_kb: u64,
    start: Duration,
}

impl Marks {
    fn begin() -> Marks {
        Marks {
            before_kb: status("VmRSS"),
            start: cpu(),
        }
    }
}

fn report(
    name: &str,
    marks: &Marks,
    built: Duration,
    churned: Duration,
    live: u64,
    freed_kb: u64,
    more: &str,
) {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    println!(
        "{{\"collector\": \"{name}\", \"build_cpu_ms\": {:.2}, \"churn_cpu_ms\": {:.2}, \"before_kb\": {}, \
         \"peak_kb\": {}, \"freed_kb\": {freed_kb}, \"live_bytes\": {live}{more}}}",
        ms(built - marks.start),
        ms(churned - built),
        marks.before_kb,
        status("VmHWM"),
    );
}

mod ours {
    use super::{LONG, Marks, SHORT, TIMES, cpu, report, status};
    use skinflint_gc::typed::{Cx, Gc, Handle, Runtime};
    use skinflint_gc::{Config, Growth, object};

    object! {
        struct Node<'gc> { left: Option<Gc<'gc, Node<'gc>>>, right: Option<Gc<'gc, Node<'gc>>> }
    }

    fn tree<'gc>(cx: Cx<'gc>, depth: u32) -> Gc<'gc, Node<'gc>> {
        let (left, right) = match depth {
            1 => (None, None),
            _ => (Some(tree(cx, depth - 1)), Some(tree(cx, depth - 1))),
        };
        cx.alloc(Node { left, right }).expect("memory")
    }

    fn count(node: Gc<'_, Node<'_>>) -> u64 {
        1 + node.left.map_or(0, count) + node.right.map_or(0, count)
    }

    pub fn run(growth: Growth) {
        let marks = Marks::begin();
        let runtime = Runtime::new(Config {
            growth,
            ..Config::default()
        });
        let tenant = runtime.tenant("trees", usize::MAX);
        let long: Handle<Node<'static>> = tenant.enter(|cx| cx.keep(tree(cx, LONG), "long-lived"));
        let built = cpu();
        for _ in 0..TIMES {
            tenant.enter(|cx| assert_eq!(count(tree(cx, SHORT)), (1 << SHORT) - 1));
        }
        let churned = cpu();
        assert_eq!(
            tenant.enter(|cx| count(long.open(cx).expect("ours"))),
            (1 << LONG) - 1
        );
        let log = tenant.heap().log();
        drop(long);
        tenant.collect().expect("no tenant is busy");
        tenant.shrink();
        let freed = status("VmRSS");
        let pause = |part: fn(&skinflint_gc::Collection) -> u64| {
            log.iter().map(part).max().unwrap_or(0) as f64 / 1e6
        };
        let live = ((1u64 << LONG) + (1 << SHORT) - 2) * size_of::<Node<'_>>() as u64;
        let swept = tenant.heap().sweep_counts();
        let factor = log.last().map_or(0.0, |last| last.factor);
        let more = format!(
            ", \"factor\": {factor:.3}, \"collections\": {}, \"longest_pause_ms\": {:.2}, \"pause_ms\": {:.2}, \"swept_background\": {}, \
             \"swept_lazily\": {}, \"swept_in_pauses\": {}",
            log.len(),
            pause(|c| c.pause_ns),
            log.iter().map(|c| c.pause_ns).sum::<u64>() as f64 / 1e6,
            swept.background_cells,
            swept.lazy_cells,
            swept.pause_cells,
        );
        report("skinflint", &marks, built, churned, live, freed, &more);
    }
}

mod theirs {
    use super::{LONG, Marks, SHORT, TIMES, cpu, report, status};
    use gc_arena::{Arena, Collect, Gc, Mutation, Rootable};

    #[derive(Clone, Copy, Collect)]
    #[collect(no_drop)]
    struct Node<'gc> {
        left: Option<Gc<'gc, Node<'gc>>>,
        right: Option<Gc<'gc, Node<'gc>>>,
    }

    #[derive(Collect)]
    #[collect(no_drop)]
    struct Root<'gc> {
        long: Option<Gc<'gc, Node<'gc>>>,
    }

    fn tree<'gc>(mc: &Mutation<'gc>, depth: u32) -> Gc<'gc, Node<'gc>> {
        let (left, right) = match depth {
            1 => (None, None),
            _ => (Some(tree(mc, depth - 1)), Some(tree(mc, depth - 1))),
        };
        Gc::new(mc, Node { left, right })
    }

    fn count(node: Gc<'_, Node<'_>>) -> u64 {
        1 + node.left.map_or(0, count) + node.right.map_or(0, count)
    }

    pub fn run() {
        let marks = Marks::begin();
        let mut arena = Arena::<Rootable![Root<'_>]>::new(|mc| Root {
            long: Some(tree(mc, LONG)),
        });
        let built = cpu();
        for _ in 0..TIMES {
            arena.mutate(|mc, _| assert_eq!(count(tree(mc, SHORT)), (1 << SHORT) - 1));
            arena.collect_debt();
        }
        let churned = cpu();
        arena.mutate(|_, root| assert_eq!(count(root.long.expect("ours")), (1 << LONG) - 1));
        arena.mutate_root(|_, root| root.long = None);
        arena.finish_cycle();
        arena.finish_cycle();
        let freed = status("VmRSS");
        let live = ((1u64 << LONG) + (1 << SHORT) - 2) * size_of::<Node<'_>>() as u64;
        report("gc-arena", &marks, built, churned, live, freed, "");
    }
}

fn main() {
    use skinflint_gc::Growth;
    match std::env::args().nth(1).as_deref() {
        Some("skinflint") => ours::run(Growth::TIGHT),
        Some("skinflint-tenant") => ours::run(Growth::TENANT),
        Some("skinflint-adaptive") => ours::run(Growth::ADAPTIVE),
        Some("gc-arena") => theirs::run(),
        _ => {
            eprintln!("usage: trees skinflint|skinflint-tenant|skinflint-adaptive|gc-arena");
            std::process::exit(2);
        }
    }
}
