//! Measures slices of incremental marking: a heap of a million objects, and a program that goes on allocating.
//!
//! ```text
//!   cargo run --release -p skinflint-gc --example slices [OBJECTS [SLICE_US]]
//!       ─► slices, the longest, beside a collection of the same heap in one pause
//! ```
//!
//! P1  Slices are measured in processor time of the thread: on a busy machine the clock measures others.
//! P2  The objects lie in random order in a graph, so that marking waits for memory as it does in real heaps.
//!
//! Not here: bars (`bench/gc`).

use skinflint_gc::typed::{Gc, Handle, Runtime, Slot};
use skinflint_gc::{Budget, Config, Progress, Reason, object};

object! {
    struct Node<'gc> { left: Slot<Gc<'gc, Node<'gc>>>, right: Slot<Gc<'gc, Node<'gc>>>, number: u64 }
}

fn main() {
    let mut numbers = std::env::args()
        .skip(1)
        .map(|a| a.parse().expect("a number"));
    let objects: u64 = numbers.next().unwrap_or(1_000_000);
    let slice_us: u64 = numbers.next().unwrap_or(1000);
    let runtime = Runtime::new(Config::default());
    let tenant = runtime.tenant("example", usize::MAX);
    let kept: Handle<Node<'static>> = tenant.enter(|cx| {
        let mut state = 1u64;
        let mut all: Vec<Gc<'_, Node<'_>>> = Vec::new();
        for number in 0..objects {
            let node = Node {
                left: Slot::new(None),
                right: Slot::new(None),
                number,
            };
            let node = cx.alloc(node).expect("memory");
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            // Below a random one before it that has room.
            if number > 0 {
                let mut above = all[(state >> 33) as usize % all.len()];
                while let (Some(left), Some(right)) = (above.left.get(), above.right.get()) {
                    state = state.rotate_left(1);
                    above = if state & 1 == 0 { left } else { right };
                }
                let slot = if above.left.get().is_none() {
                    &above.left
                } else {
                    &above.right
                };
                slot.set(cx, Some(node));
            }
            all.push(node);
        }
        cx.keep(all[0], "example")
    });
    let budget = Budget {
        edges: u64::MAX,
        ns: slice_us * 1000,
    };
    for _ in 0..5 {
        let began = cpu_us();
        // SAFETY: typed objects, which are written with barriers.
        let begun = unsafe { tenant.heap().begin_marking(Reason::Asked, &mut ()) };
        assert_eq!(begun, Ok(true), "everything was swept in the rest");
        let mut slices = vec![cpu_us() - began];
        loop {
            tenant.enter(|cx| {
                let root = kept.open(cx).expect("its own");
                for number in 0..1000 {
                    let node = Node {
                        left: Slot::new(root.left.get()),
                        right: Slot::new(None),
                        number,
                    };
                    cx.alloc(node).expect("memory");
                }
            });
            let began = cpu_us();
            let progress = tenant.mark_step(budget);
            slices.push(cpu_us() - began);
            if progress == Progress::Off {
                break;
            }
        }
        let all: u64 = slices.iter().sum();
        slices.sort_unstable();
        let log = tenant.heap().log();
        let cycle = log.last().expect("ended");
        println!(
            "{} objects in {} slices of {slice_us} µs: processor time {all} µs, median {}, longest {} µs (by the clock {:.0})",
            cycle.live_cells,
            slices.len(),
            slices[slices.len() / 2],
            slices[slices.len() - 1],
            cycle.longest_ns as f64 / 1e3,
        );
        while !runtime.poll() {}
    }
    let began = cpu_us();
    tenant.collect().expect("at rest");
    println!("in one pause: processor time {} µs", cpu_us() - began);
}

/// Processor time of this thread, in microseconds: other programs do not count.
fn cpu_us() -> u64 {
    // SAFETY: plain numbers.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: it is ours to be written.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
}
