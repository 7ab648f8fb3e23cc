//! When a heap is collected, for which reason, and where its cells lie.
//!
//! ```text
//!   growth, bytes outside, pressure, idle, asked ─► collection ─► arenas: the fullest first
//! ```
//!
//! Not here: what is kept and what ends (`main`).

use skinflint_gc::typed::{Handle, Locked, Runtime, Slot, Tenant};
use skinflint_gc::{Config, Growth, Reason};

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
    tenant.heap().pressure();
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
    tenant.heap().shrink();
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

/// A program that computes so much for each round of garbage, until the factor is `wanted` or there were so many rounds:
/// factors and shares of its collections for growth.
#[cfg(not(miri))]
fn adaptive(fills: u32, rounds: u32, wanted: f64) -> Vec<(f64, f64)> {
    let runtime = Runtime::new(Config {
        growth: Growth::ADAPTIVE,
        background: false,
        ..Config::default()
    });
    let tenant = runtime.tenant("a", usize::MAX);
    let kept: Handle<Link> = tenant.enter(|cx| {
        let mut head = None;
        for number in 0..50_000 {
            head = cx.alloc(Link { next: head, number }).ok();
        }
        cx.keep(head.unwrap(), "live")
    });
    let mut buffer = vec![1u8; 8 << 20];
    for _ in 0..rounds {
        tenant.enter(|cx| {
            for number in 0..20_000 {
                cx.alloc(Link { next: None, number }).unwrap();
            }
        });
        if tenant
            .heap()
            .log()
            .last()
            .is_some_and(|last| last.factor == wanted)
        {
            break;
        }
        for fill in 0..fills {
            std::hint::black_box(&mut buffer).fill(fill as u8);
        }
    }
    drop(kept);
    let log = tenant.heap().log();
    let grown = log.iter().filter(|one| one.reason == Reason::Growth);
    for one in grown.clone() {
        let by_factor = (one.live_bytes as f64 * one.factor) as usize;
        assert_eq!(
            one.threshold_bytes,
            by_factor.max(Growth::ADAPTIVE.floor_bytes)
        );
    }
    let of = |one: &skinflint_gc::Collection| Some((one.factor, one.share?));
    grown.filter_map(of).collect()
}

#[test]
#[cfg(not(miri))]
fn the_factor_follows_what_collections_cost() {
    let busy = adaptive(0, 60, 2.0);
    let last = busy.last().expect("collected");
    assert!(last.0 == 2.0 && last.1 > 0.1, "allocates only: {busy:?}");
    let calm = adaptive(400, 40, 1.15);
    let last = calm.last().expect("collected");
    assert!(last.0 == 1.15 && last.1 < 0.1, "computes: {calm:?}");
    assert!(
        calm.iter()
            .chain(&busy)
            .all(|(_, share)| (0.0..=1.0).contains(share))
    );
}
