//! Measures slices of incremental marking: heaps of a million objects in all, and a program that continues to allocate.
//!
//! ```text
//!   cargo run --release -p skinflint-gc --example slices [OBJECTS [SLICE_US [TENANTS]]]
//!       ─► slices, the longest, beside a collection of the same heaps in one pause
//! ```
//!
//! P1  Slices are measured in processor time of the thread: on a busy machine the wall clock measures other programs.
//! P2  The objects lie in random order in a graph, so that marking waits for memory as it does in real heaps.
//! P3  Several tenants lead to each other in a ring and are collected together, with the heap that they share.
//!
//! Not here: bars (`bench/gc`).

use skinflint_gc::typed::{CrossEdge, Cx, Gc, Handle, Runtime, Slot, Tenant};
use skinflint_gc::{Budget, Busy, Config, Progress, Reason, object};

object! {
    struct Node<'gc> { left: Slot<Gc<'gc, Node<'gc>>>, right: Slot<Gc<'gc, Node<'gc>>>, number: u64 }
}

object! {
    struct Tab<'gc> { tree: Gc<'gc, Node<'gc>>, next: Option<CrossEdge<'gc, Tab<'static>>> }
}

type Kept = (Tenant, Handle<Tab<'static>>);

fn main() {
    let mut numbers = std::env::args()
        .skip(1)
        .map(|a| a.parse().expect("a number"));
    let objects: u64 = numbers.next().unwrap_or(1_000_000);
    let slice_us: u64 = numbers.next().unwrap_or(1000);
    let tenants: u64 = numbers.next().unwrap_or(1).max(1);
    let runtime = Runtime::new(Config::default());
    let mut kept: Vec<Kept> = Vec::new();
    for number in 0..tenants {
        let tenant = runtime.tenant(&format!("tenant {number}"), usize::MAX);
        let before = kept.last().map(|(_, handle)| handle);
        let handle = tenant.enter(|cx| {
            let tree = tree(cx, (objects / tenants).max(1), number);
            let next = before.map(|handle| cx.cross_edge(handle).expect("of this runtime"));
            cx.keep(cx.alloc(Tab { tree, next }).expect("memory"), "example")
        });
        kept.push((tenant, handle));
    }
    for _ in 0..5 {
        while !runtime.poll() {}
        in_slices(&runtime, &kept, slice_us);
    }
    while !runtime.poll() {}
    let began = cpu_us();
    match &kept[..] {
        [(only, _)] => only.collect(),
        _ => runtime.collect_all(Reason::Asked),
    }
    .expect("at rest");
    println!("in one pause: processor time {} µs", cpu_us() - began);
}

/// Builds a tree in which each node is below a random earlier one that has room.
fn tree<'gc>(cx: Cx<'gc>, objects: u64, seed: u64) -> Gc<'gc, Node<'gc>> {
    let mut state = 1 + seed;
    let mut all: Vec<Gc<'gc, Node<'gc>>> = Vec::new();
    for number in 0..objects {
        let node = node(cx, number, None);
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
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
    all[0]
}

fn node<'gc>(cx: Cx<'gc>, number: u64, left: Option<Gc<'gc, Node<'gc>>>) -> Gc<'gc, Node<'gc>> {
    let node = Node {
        left: Slot::new(left),
        right: Slot::new(None),
        number,
    };
    cx.alloc(node).expect("memory")
}

fn begin(runtime: &Runtime, kept: &[Kept]) -> Result<bool, Busy> {
    match kept {
        // SAFETY: typed objects, which are written with barriers.
        [(only, _)] => unsafe { only.raw_heap().begin_marking(Reason::Asked, &mut ()) },
        _ => runtime.begin_all(Reason::Asked),
    }
}

/// Runs one collection, with a thousand new objects between slices.
fn in_slices(runtime: &Runtime, kept: &[Kept], slice_us: u64) {
    let budget = Budget {
        edges: u64::MAX,
        ns: slice_us * 1000,
    };
    let began = cpu_us();
    let begun = begin(runtime, kept);
    assert_eq!(begun, Ok(true), "everything was swept in the rest");
    let mut slices = vec![cpu_us() - began];
    for (tenant, handle) in kept.iter().cycle() {
        tenant.enter(|cx| {
            let tab = handle.open(cx).expect("its own");
            for number in 0..1000 {
                node(cx, number, tab.tree.left.get());
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
    let last = |(tenant, _): &Kept| *tenant.heap().log().last().expect("ended");
    let cycles: Vec<_> = kept.iter().map(last).collect();
    println!(
        "{} objects of {} tenants in {} slices of {slice_us} µs: processor time {all} µs, median {}, longest {} µs (by the clock {:.0})",
        cycles.iter().map(|cycle| cycle.live_cells).sum::<u64>(),
        kept.len(),
        slices.len(),
        slices[slices.len() / 2],
        slices[slices.len() - 1],
        cycles[0].longest_ns as f64 / 1e3,
    );
}

/// Returns the processor time of this thread, in microseconds: other programs do not count.
fn cpu_us() -> u64 {
    // SAFETY: plain numbers.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: it is ours to be written.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
}
