//! The moments and reasons of collections, and the places of cells.
//!
//! ```text
//!   growth, bytes outside, pressure, idle, asked ─► collection ─► arenas: the fullest first
//! ```
//!
//! Not here: what is kept and what ends (`main`).

use skinflint_gc::typed::{Cx, Gc, Handle, Locked, Runtime, Slot, Tenant, Trace};
use skinflint_gc::{Clock, Collection, Config, Finalize, Growth, Reason, Tracer, object};

use super::{Link, Node, checked, nodes, objects, quiet};

#[test]
#[cfg(not(miri))]
fn reasons_are_recorded() {
    let runtime = Runtime::new(quiet());
    let tenant = runtime.tenant("a", usize::MAX);
    let reasons =
        |tenant: &Tenant| -> Vec<Reason> { tenant.heap().log().iter().map(|c| c.reason).collect() };
    tenant.enter(|cx| (0..60_000).for_each(|number| nodes(cx, number)));
    assert_eq!(reasons(&tenant), [Reason::Growth]);
    tenant.enter(|cx| cx.client_bytes(5 << 20));
    tenant.enter(|cx| cx.client_bytes(-(5 << 20)));
    tenant.pressure();
    tenant.enter(|_| ());
    let second = 1_000_000_000;
    tenant.enter(|cx| nodes(cx, 1));
    assert_eq!(tenant.tick(100 * second), None);
    assert_eq!(tenant.tick(121 * second), Some(Reason::Idle));
    assert_eq!(
        tenant.tick(150 * second),
        None,
        "nothing was allocated since"
    );
    tenant.collect().unwrap();
    assert_eq!(
        reasons(&tenant),
        [
            Reason::Growth,
            Reason::ClientBytes,
            Reason::Pressure,
            Reason::Idle,
            Reason::Asked
        ]
    );
    assert_eq!(objects(&tenant), 0);
    for collection in tenant.heap().log() {
        assert!(collection.pause_ns >= collection.mark_ns + collection.finish_ns);
        assert!(collection.threshold_bytes >= 1 << 20);
        assert_eq!(collection.live_cells, 0);
    }
}

#[test]
#[cfg(not(miri))]
fn the_shared_heap_is_collected_when_all_are_at_rest() {
    let runtime = Runtime::new(quiet());
    let (a, b) = (
        runtime.tenant("a", usize::MAX),
        runtime.tenant("b", usize::MAX),
    );
    let kept: Handle<u64> = a.enter(|cx| cx.keep_shared(cx.alloc_shared(7).unwrap(), "kept"));
    b.enter(|_| {
        a.enter(|cx| {
            for number in 0..100_000u64 {
                cx.alloc_shared(number).unwrap();
            }
            assert_eq!(cx.due(), None, "it is not the tenant's");
        });
        assert_eq!(runtime.shared().due(), Some(Reason::Growth));
        assert_eq!(runtime.shared().collections(), 0, "b is not at rest");
    });
    assert_eq!(runtime.shared().collections(), 1);
    assert_eq!(runtime.shared().log()[0].heaps, 3);
    assert_eq!(runtime.shared().holds().objects, 1);
    assert_eq!(a.enter(|cx| *kept.open_shared(cx).unwrap()), 7);
    checked(&runtime);
}

#[test]
fn the_fullest_arena_is_filled_first() {
    const ARENA: usize = 4096;
    const CELLS: usize = ARENA / 128;
    let runtime = Runtime::new(quiet());
    let tenant = runtime.tenant("a", usize::MAX);
    let arena = |address: usize| address / ARENA;
    let mut kept: Vec<Handle<[u64; 16]>> = Vec::new();
    let mut arenas = Vec::new();
    // Of three full arenas, so many survive.
    for survivors in [5, CELLS - 3, 20] {
        let made: Vec<_> = tenant.enter(|cx| {
            let made = (0..CELLS).map(|_| cx.alloc([7u64; 16]).unwrap());
            let made: Vec<_> = made.collect();
            arenas.push(arena(made[0].address()));
            assert!(
                made.iter()
                    .all(|cell| arena(cell.address()) == arenas[arenas.len() - 1])
            );
            made.iter()
                .take(survivors)
                .map(|cell| cx.keep(*cell, "survivor"))
                .collect()
        });
        kept.extend(made);
    }
    tenant.collect().unwrap();
    assert_eq!(objects(&tenant), 5 + CELLS - 3 + 20);
    let filled: Vec<usize> = tenant.enter(|cx| {
        let cells = (0..3 + CELLS - 20 + 1).map(|_| cx.alloc([8u64; 16]).unwrap());
        cells.map(|cell| arena(cell.address())).collect()
    });
    let (first, rest) = filled.split_at(3);
    let (second, third) = rest.split_at(CELLS - 20);
    assert!(
        first.iter().all(|&at| at == arenas[1]),
        "{filled:?} of {arenas:?}"
    );
    assert!(
        second.iter().all(|&at| at == arenas[2]),
        "{filled:?} of {arenas:?}"
    );
    assert_eq!(third, [arenas[0]]);
}

#[test]
#[cfg(not(miri))]
fn system_objects_hold_up_none_of_the_users_chunks() {
    let runtime = Runtime::new(quiet());
    let tenant = runtime.tenant("a", usize::MAX);
    let mut kept: Vec<Handle<Node<'static>>> = Vec::new();
    for number in 0..200 {
        let handle = tenant.enter(|cx| {
            (0..500).for_each(|number| nodes(cx, number));
            let system = Node {
                next: Slot::new(None),
                other: Locked::default(),
                weak: None,
                name: None,
                number,
            };
            cx.keep(cx.alloc_system(system).unwrap(), "system")
        });
        kept.push(handle);
    }
    tenant.collect().unwrap();
    tenant.shrink();
    assert_eq!(objects(&tenant), 200);
    // Among the user's, one in each 40 KB would have held every chunk.
    assert_eq!(runtime.source().counts().taken, 1);
    let numbers = tenant.enter(|cx| {
        let numbers = kept.iter().map(|handle| handle.open(cx).unwrap().number);
        numbers.eq(0..200)
    });
    assert!(numbers);
}

#[test]
#[cfg(not(miri))]
fn growth_has_its_bound() {
    let runtime = Runtime::new(Config {
        growth: Growth::TIGHT,
        ..Config::default()
    });
    let tenant = runtime.tenant("a", usize::MAX);
    let live = 200_000;
    let handle: Handle<Link> = tenant.enter(|cx| {
        let mut head = None;
        for number in 0..live {
            head = cx.alloc(Link { next: head, number }).ok();
        }
        cx.keep(head.unwrap(), "live")
    });
    tenant.collect().unwrap();
    let live_bytes = tenant.heap().log().last().unwrap().live_bytes;
    let mut most = 0;
    for round in 0..200 {
        tenant.enter(|cx| {
            for number in 0..1000 {
                cx.alloc(Link {
                    next: None,
                    number: number + round,
                })
                .unwrap();
            }
        });
        most = most.max(tenant.heap().holds().held_bytes);
    }
    // A fifth more, a closure's worth, one arena for each of the two, and heads.
    let bound = (live_bytes as f64 * 1.2) as usize + (1 << 20) + 24_000;
    assert!(most <= bound + bound / 40 + (24 << 10), "{most} of {bound}");
    drop(handle);
}

#[cfg(not(miri))]
thread_local! {
    /// Moved by what the program does: by marking, a cell at a time, and by what it computes.
    static NOW: Clock = Clock::by_hand();
}

/// What marking of one cell takes, nanoseconds of `NOW`.
#[cfg(not(miri))]
const MARK_NS: u64 = 20;

#[cfg(not(miri))]
struct Costs;

// SAFETY: it has no edges; the clock is moved without a panic.
#[cfg(not(miri))]
unsafe impl Trace for Costs {
    const EDGES: bool = true;
    const FINALIZE: Finalize = Finalize::Nothing;

    fn trace(&self, _: &mut Tracer) {
        NOW.with(|now| now.advance(MARK_NS));
    }
}

#[cfg(not(miri))]
object! {
    struct Dear<'gc> {
        next: Option<Gc<'gc, Dear<'gc>>>,
        costs: Costs,
        number: u64,
    }
}

#[cfg(not(miri))]
fn dear<'gc>(cx: Cx<'gc>, next: Option<Gc<'gc, Dear<'gc>>>, number: u64) -> Gc<'gc, Dear<'gc>> {
    let costs = Costs;
    cx.alloc(Dear {
        next,
        costs,
        number,
    })
    .expect("memory")
}

/// A program of which 100,000 cells live, and that computes for so long for each cell that it throws away: factors and
/// shares of so many of its collections for growth.
#[cfg(not(miri))]
fn adaptive(compute_ns: u64, collections: usize) -> Vec<(f64, f64)> {
    const LIVE: u64 = 100_000;
    let runtime = Runtime::new(Config {
        growth: Growth::ADAPTIVE,
        background: false,
        clock: NOW.with(Clock::clone),
        ..Config::default()
    });
    let tenant = runtime.tenant("a", usize::MAX);
    let kept: Handle<Dear> = tenant.enter(|cx| {
        let first = dear(cx, None, 0);
        let head = (1..LIVE).fold(first, |head, number| dear(cx, Some(head), number));
        cx.keep(head, "live")
    });
    let grown = || -> Vec<Collection> {
        let log = tenant.heap().log();
        log.into_iter()
            .filter(|one| one.reason == Reason::Growth)
            .collect()
    };
    // Each round is a hundredth of what lives: no more than 200 of them to a collection.
    for _ in 0..collections * 200 {
        tenant.enter(|cx| {
            for number in 0..LIVE / 100 {
                dear(cx, None, number);
            }
        });
        NOW.with(|now| now.advance(compute_ns * LIVE / 100));
        if grown().len() == collections {
            break;
        }
    }
    drop(kept);
    let grown = grown();
    assert_eq!(grown.len(), collections);
    for one in &grown {
        let by_factor = (one.live_bytes as f64 * one.factor) as usize;
        assert_eq!(
            one.threshold_bytes,
            by_factor.max(Growth::ADAPTIVE.floor_bytes)
        );
    }
    let last = grown[collections - 1];
    assert_eq!((last.live_cells, last.pause_ns), (LIVE, LIVE * MARK_NS));
    let of = |one: &Collection| Some((one.factor, one.share?));
    grown.iter().filter_map(of).collect()
}

/// Time is what is marked and what is computed: nothing here depends on the machine, nor on what else it does.
#[test]
#[cfg(not(miri))]
fn the_factor_follows_what_collections_cost() {
    let busy = adaptive(0, 6);
    assert_eq!(busy[5].0, 2.0, "allocates only: {busy:?}");
    assert!(busy[5].1 > 0.99, "{busy:?}");
    let calm = adaptive(100_000, 6);
    assert_eq!(calm[5].0, 1.15, "computes: {calm:?}");
    assert!(calm[5].1 < 0.01, "{calm:?}");
    // Nine parts of computing to one of marking, at half of what lives: 0.5 * 360 ns = 9 * 20 ns.
    let even = adaptive(360, 20);
    let (factor, share) = even[19];
    assert!((factor - 1.5).abs() < 0.03, "{even:?}");
    assert!((share - 0.1).abs() < 0.005, "{even:?}");
    assert_eq!(even, adaptive(360, 20));
}
