//! Tenants near their limits: garbage is collected before its room is needed, and live data causes no collections.
//!
//! ```text
//!   cells taken + the client's bytes ─► near the limit ─► due at the end of the closure ─► room again
//!   a refusal                        ─► due: Shortage, unless the last one was just now
//! ```
//!
//! S1  A tenant whose garbage would make room is refused nothing from the next closure on, whatever its limit is.
//! S2  A tenant that is full of live data is collected a bounded number of times, however often it asks for memory.
//!
//! Not here: that refusals are one tenant's alone (`contained`).

use skinflint_gc::typed::{Cx, Gc, Handle, Runtime, Slot, Tenant};
use skinflint_gc::{Collection, Config, Incremental, OutOfMemory, Reason, Shortage, object};

object! {
    struct Node<'gc> { number: u64, next: Slot<Gc<'gc, Node<'gc>>> }
}

object! {
    /// Two of these are a page, and a third of the page is of no use.
    struct Large<'gc> { next: Slot<Gc<'gc, Large<'gc>>>, bytes: [u64; 170] }
}

const KIB: usize = 1 << 10;
const SMALL: bool = cfg!(miri);

fn node<'gc>(
    cx: Cx<'gc>,
    next: Option<Gc<'gc, Node<'gc>>>,
) -> Result<Gc<'gc, Node<'gc>>, OutOfMemory> {
    let number = next.map_or(0, |next| next.number + 1);
    let next = Slot::new(next);
    cx.alloc(Node { number, next })
}

/// So many bytes of objects that stay.
fn keep(tenant: &Tenant, bytes: usize) -> Handle<Node<'static>> {
    tenant.enter(|cx| {
        let mut last = node(cx, None).expect("room");
        for _ in 1..bytes / size_of::<Node<'static>>() {
            last = node(cx, Some(last)).expect("room");
        }
        cx.keep(last, "what stays")
    })
}

/// So many closures that each make garbage; how many objects were refused.
fn garbage(tenant: &Tenant, closures: usize, objects: usize) -> usize {
    let one = |_| {
        let made = |cx: Cx<'_>| (0..objects).filter(|_| node(cx, None).is_err()).count();
        tenant.enter(made)
    };
    (0..closures).map(one).sum()
}

fn tables() -> [Config; 2] {
    let quiet = Config {
        background: false,
        ..Config::default()
    };
    let sliced = Config {
        incremental: Some(Incremental::DEFAULT),
        ..quiet.clone()
    };
    [quiet, sliced]
}

#[test]
fn a_tenant_with_a_quarter_to_spare_is_refused_nothing() {
    for config in tables() {
        let runtime = Runtime::new(config);
        let limit = if SMALL { 256 * KIB } else { 4096 * KIB };
        let tenant = runtime.tenant("three quarters full", limit);
        let kept = keep(&tenant, limit / 4 * 3);
        let closures = if SMALL { 20 } else { 500 };
        assert_eq!(garbage(&tenant, closures, 1000), 0);
        let taken = closures * 1000 * size_of::<Node<'static>>();
        // Each time at least a sixty-fourth of the limit was taken.
        let collections = tenant.heap().collections() as usize;
        assert!(
            (1..=taken / (limit / 64)).contains(&collections),
            "{collections}"
        );
        assert!(tenant.enter(|cx| kept.open(cx).is_ok()));
        tenant.heap().check();
    }
}

#[test]
fn a_tenant_with_a_limit_below_the_floor_of_its_table_is_refused_nothing() {
    for config in tables() {
        let runtime = Runtime::new(config);
        let limit = if SMALL { 96 * KIB } else { 900 * KIB };
        let tenant = runtime.tenant("small", limit);
        assert_eq!(garbage(&tenant, if SMALL { 20 } else { 300 }, 500), 0);
        let log = tenant.heap().log();
        assert!(!log.is_empty());
        assert!(log.iter().all(|one| one.threshold_bytes < limit), "{log:?}");
    }
}

#[test]
fn what_pages_cannot_use_counts_too() {
    // The cells are two thirds of what is held, so no threshold for cells is reached.
    let runtime = Runtime::new(tables()[0].clone());
    let tenant = runtime.tenant("large", 1100 * KIB);
    for _ in 0..2000 {
        tenant.enter(|cx| {
            for _ in 0..20 {
                let (next, bytes) = (Slot::new(None), [1; 170]);
                cx.alloc(Large { next, bytes })
                    .expect("there is garbage only");
            }
        });
    }
    assert!(tenant.heap().collections() > 0);
}

#[test]
fn a_closure_that_is_refused_is_followed_by_a_collection() {
    let runtime = Runtime::new(tables()[0].clone());
    let limit = if SMALL { 96 * KIB } else { 256 * KIB };
    let tenant = runtime.tenant("small", limit);
    // More than fits, in one closure: nothing can be collected meanwhile.
    assert!(garbage(&tenant, 1, 2 * limit / size_of::<Node<'static>>()) > 0);
    assert_eq!(garbage(&tenant, 1, 1000), 0);
    assert_eq!(tenant.heap().collections(), 1);
    // What can never be had is not collected for.
    let refused = tenant.enter(|cx| cx.alloc([0u8; 300 << 10]).map(drop));
    assert_eq!(refused.expect_err("too large").shortage, Shortage::Limit);
    assert_eq!(tenant.heap().collections(), 1);
}

/// S2, of the log: between two collections for a shortage, sixteen times as long as the first of them took.
fn spaced(log: &[Collection]) {
    let short: Vec<&Collection> = log
        .iter()
        .filter(|c| c.reason == Reason::Shortage)
        .collect();
    for pair in short.windows(2) {
        let between = pair[1].started_ns - pair[0].started_ns;
        assert!(between >= 16 * pair[0].pause_ns, "{pair:?}");
    }
}

#[test]
fn a_full_tenant_is_not_collected_at_each_refusal() {
    let runtime = Runtime::new(tables()[0].clone());
    let limit = if SMALL { 96 * KIB } else { 4096 * KIB };
    let tenant = runtime.tenant("full", limit);
    let mut kept: Vec<Handle<Node<'static>>> = Vec::new();
    let mut refused = 0;
    let closures = if SMALL { 200 } else { 3000 };
    // Everything is kept, and more is asked for in each closure, long after it is full.
    while refused < closures {
        refused += tenant.enter(|cx| match node(cx, None) {
            Ok(first) => {
                let mut last = first;
                for _ in 0..100 {
                    last = node(cx, Some(last)).unwrap_or(last);
                }
                kept.push(cx.keep(last, "kept"));
                0
            }
            Err(_) => 1,
        });
    }
    let collections = tenant.heap().collections() as usize;
    assert!(
        collections < refused / 4,
        "{collections} for {refused} refusals"
    );
    spaced(&tenant.heap().log());
    // It is full, not stuck: what is let go is found by the refusals, without anybody asking.
    kept.clear();
    let begun = std::time::Instant::now();
    while tenant.enter(|cx| node(cx, None).is_err()) {
        // CLOCK: a bounded wait, and its bound ends it
        assert!(begun.elapsed().as_secs() < 60, "never collected");
    }
}

#[test]
fn the_clients_bytes_are_within_the_limit() {
    let runtime = Runtime::new(tables()[0].clone());
    let tenant = runtime.tenant("b", 1024 * KIB);
    let kept = keep(&tenant, 64 * KIB);
    // The span that is being filled has room; the tenant has not.
    let (over, error) = tenant.enter(|cx| (cx.client_bytes(1 << 30), node(cx, None).map(drop)));
    assert!(over);
    let error = error.expect_err("over its limit");
    assert_eq!(
        (error.shortage, error.client_bytes),
        (Shortage::Limit, 1 << 30)
    );
    assert!(error.held_bytes >= 64 * KIB);
    let text = error.to_string();
    assert!(text.contains("1073741824 of the client's"), "{text}");
    assert_eq!(
        tenant.heap().collections(),
        1,
        "it was due at the closure's end"
    );
    let below = tenant.enter(|cx| !cx.client_bytes(-(1 << 30)) && node(cx, None).is_ok());
    assert!(below);
    drop(kept);
}

#[test]
fn the_clients_bytes_are_collected_for_before_the_limit() {
    let limit = 16 << 20;
    for config in tables() {
        let runtime = Runtime::new(config);
        let tenant = runtime.tenant("buffers", limit);
        let (mut alive, mut refused) = (0, 0);
        for _ in 0..400 {
            // Buffers of 256 KiB; all are garbage once their closure has ended.
            let ok = tenant.enter(|cx| {
                alive += 1;
                !cx.client_bytes(256 << 10) && node(cx, None).is_ok()
            });
            refused += usize::from(!ok);
            // As their finalizers would.
            if tenant.heap().holds().objects < alive {
                let ended = (alive - tenant.heap().holds().objects) as isize;
                tenant.client_bytes(-ended * (256 << 10));
                alive -= ended as usize;
            }
        }
        assert_eq!(refused, 0);
        // A limit without end, and sums without end, are no panics.
        let other = runtime.tenant("other", usize::MAX);
        other.enter(|cx| (0..3).for_each(|_| assert!(!cx.client_bytes(isize::MAX))));
        other.enter(|cx| assert!(node(cx, None).is_ok()));
    }
}

#[test]
fn a_refusal_says_what_is_held_and_the_clients_bytes_only_where_there_are_some() {
    let error = |client_bytes, shortage| OutOfMemory {
        heap: "tab 3".into(),
        bytes: 64,
        shortage,
        held_bytes: 4096,
        client_bytes,
    };
    assert_eq!(
        error(0, Shortage::Limit).to_string(),
        "heap \"tab 3\": no room for 64 bytes beside the 4096 held: its limit is reached; collect, or raise it"
    );
    assert_eq!(
        error(1, Shortage::System).to_string(),
        "heap \"tab 3\": no room for 64 bytes beside the 4096 held and 1 of the client's: the system has no memory to \
         give"
    );
    let size = error(0, Shortage::Size).to_string();
    assert!(size.ends_with(": no object may be so large"), "{size}");
}
