//! When a heap is collected: after how much growth, after how many of the client's bytes, after how long without work.
//!
//! ```text
//!   cargo run --release -p skinflint-gc --example triggers
//!       ─► frequent, rare: bytes before over what lived │ client: bytes │ idle: seconds, bytes that went; as JSON
//! ```
//!
//! P1  The table is Firefox's (`Growth::SPIDERMONKEY`), the clock is moved by hand, and no thread runs beside: the figures
//!     are the same in each run.
//! P2  A heap grows by garbage of a quarter of a megabyte a closure, since heaps are collected between closures only.
//!
//! Not here: other tables, and what they cost (`bench/gc/trees.py`).

use skinflint_gc::typed::{Gc, Handle, Runtime, Tenant};
use skinflint_gc::{Clock, Config, Growth, Reason, object};

object! { struct Node<'gc> { next: Option<Gc<'gc, Node<'gc>>>, words: [u64; 11] } }

const STEP_BYTES: usize = 256 << 10;
const LIVE_BYTES: usize = 40 << 20;
const SECOND_NS: u64 = 1_000_000_000;
/// The most steps of a loop that waits for a collection.
const PATIENCE: u64 = 100_000;

/// Allocates so many bytes of nodes in a list.
fn list(tenant: &Tenant, bytes: usize) -> Handle<Node<'static>> {
    tenant.enter(|cx| {
        let words = [7; 11];
        let mut last = cx.alloc(Node { next: None, words }).expect("memory");
        for _ in 1..bytes / size_of::<Node<'static>>() {
            let next = Some(last);
            last = cx.alloc(Node { next, words }).expect("memory");
        }
        cx.keep(last, "list")
    })
}

/// Makes garbage until the heap is collected. Returns the bytes before over the bytes that lived, and the reason.
fn until_collected(tenant: &Tenant) -> (f64, Reason) {
    let heap = tenant.heap();
    let lived = heap.log().last().expect("a collection").live_bytes;
    let so_far = heap.collections();
    for _ in 0..PATIENCE {
        drop(list(tenant, STEP_BYTES));
        if heap.collections() > so_far {
            let last = *heap.log().last().expect("a collection");
            return (last.before_bytes as f64 / lived as f64, last.reason);
        }
    }
    panic!("never collected");
}

fn main() {
    let clock = Clock::by_hand();
    let runtime = Runtime::new(Config {
        growth: Growth::SPIDERMONKEY,
        background: false,
        clock: clock.clone(),
        ..Config::default()
    });
    let tenant = runtime.tenant("tab", usize::MAX);
    let kept = list(&tenant, LIVE_BYTES);
    tenant.collect().expect("no call is under way");
    tenant.collect().expect("no call is under way");
    let (frequent, why) = until_collected(&tenant);
    assert_eq!(why, Reason::Growth);
    clock.advance(2 * SECOND_NS);
    tenant.collect().expect("no call is under way");
    let (rare, why) = until_collected(&tenant);
    assert_eq!(why, Reason::Growth);

    let mut client = 0;
    let so_far = tenant.heap().collections();
    while tenant.heap().collections() == so_far && client < PATIENCE {
        tenant.client_bytes(1 << 20);
        tenant.enter(|_| ());
        client += 1;
    }

    // Much was taken, and then the program stands still.
    tenant.collect().expect("no call is under way");
    drop(list(&tenant, LIVE_BYTES / 2));
    let full = tenant.heap().holds().cell_bytes;
    let mut seconds = 0;
    let mut reason = None;
    while reason.is_none() && seconds < PATIENCE {
        seconds += 1;
        reason = tenant.tick(seconds * SECOND_NS);
    }
    let left = tenant.heap().holds().cell_bytes;
    tenant.enter(|cx| assert!(kept.open(cx).is_ok(), "what is kept stays"));
    println!(
        "{{\"frequent\": {frequent:.4}, \"rare\": {rare:.4}, \"client_mib\": {client}, \"idle_s\": {seconds}, \"idle_reason\": \
         \"{reason:?}\", \"full_bytes\": {full}, \"left_bytes\": {left}}}"
    );
}
