//! Memory that goes back to the OS, as the kernel counts it: resident pages, not counters.
//!
//! ```text
//!   fill ─► let go ─► collect, poll ─► /proc/self/smaps_rollup
//! ```
//!
//! H1  The tests of this file share a lock: one at a time looks at the process.
//! H2  A bound applies to what the process gained since the test began.
//!
//! Not here: which chunk goes when (`source`'s own tests).
#![cfg(not(miri))]

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use skinflint_gc::typed::{Gc, Handle, Runtime, Slot, Tenant};
use skinflint_gc::{Config, Growth, object};
use skinflint_pages::os::faults;

static ALONE: Mutex<()> = Mutex::new(());

object! {
    struct Cell<'gc> { next: Slot<Gc<'gc, Cell<'gc>>>, payload: [u64; 12] }
}

const CELL: usize = size_of::<Cell<'static>>();

/// Anonymous resident bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").expect("smaps_rollup");
    let line = text.lines().find(|line| line.starts_with("Anonymous:"));
    let kb = line.and_then(|line| line.split_whitespace().nth(1));
    kb.and_then(|kb| kb.parse::<usize>().ok())
        .expect("Anonymous")
        << 10
}

fn gained(before: usize) -> usize {
    resident().saturating_sub(before)
}

/// A list of so many bytes, kept.
fn list(tenant: &Tenant, bytes: usize) -> Handle<Cell<'static>> {
    tenant.enter(|cx| {
        let make = || {
            cx.alloc(Cell {
                next: Slot::new(None),
                payload: [7; 12],
            })
            .expect("memory")
        };
        let first = make();
        let mut last = first;
        for _ in 1..bytes / CELL {
            let next = make();
            last.next.set(cx, Some(next));
            last = next;
        }
        cx.keep(first, "list")
    })
}

/// Until all is swept, however long the sweeper has to wait for a processor.
fn settle(runtime: &Runtime) {
    let until = Instant::now() + Duration::from_secs(30);
    while !runtime.poll() {
        assert!(Instant::now() < until, "the sweep does not end");
        std::thread::yield_now();
    }
}

#[test]
fn all_of_it_goes_back() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = Runtime::default();
    let tenant = runtime.tenant("a", usize::MAX);
    drop(list(&tenant, 1 << 20));
    let before = resident();
    let kept = list(&tenant, 64 << 20);
    assert!(gained(before) > 60 << 20);
    drop(kept);
    tenant.collect().expect("no tenant is busy");
    settle(&runtime);
    let left = gained(before);
    assert!(
        left < 2 << 20,
        "{left} bytes left without having been asked for"
    );
    runtime.shrink();
    let left = gained(before);
    assert!(left < 256 << 10, "{left} bytes left after a shrink");
}

#[test]
fn what_the_sweeper_empties_goes_back_while_the_program_does_something_else() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = Runtime::default();
    let tenant = runtime.tenant("a", usize::MAX);
    drop(list(&tenant, 1 << 20));
    let before = resident();
    let kept = list(&tenant, 64 << 20);
    let cells = tenant.heap().holds().objects;
    assert!(gained(before) > 60 << 20);
    drop(kept);
    tenant.collect().expect("no tenant is busy");
    // Nothing polls, and nothing allocates: the counts are asked, and change nothing.
    let until = Instant::now() + Duration::from_secs(60);
    while tenant.heap().sweep_counts().background_cells < cells as u64 {
        assert!(Instant::now() < until, "the counts do not come to an end");
        std::thread::yield_now();
    }
    // What will be wanted again stays (a megabyte), and the heads of 65 chunks.
    let left = gained(before);
    assert!(left < 4 << 20, "{left} bytes left before anybody polled");
    let purged = runtime.source().counts().purged_bytes_total;
    assert!(purged > 60 << 20, "{purged}");
    settle(&runtime);
    let left = gained(before);
    assert!(left < 2 << 20, "{left} bytes left when all was taken over");
    // Purged pages are pages like others.
    let again = list(&tenant, 64 << 20);
    assert_eq!(tenant.heap().holds().objects, cells);
    tenant.heap().check();
    drop(again);
}

#[test]
fn free_arenas_go_back_beside_survivors() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = Runtime::default();
    let tenant = runtime.tenant("a", usize::MAX);
    drop(list(&tenant, 1 << 20));
    let before = resident();
    let kept = list(&tenant, 32 << 20);
    // Two or so survive in each chunk.
    tenant.enter(|cx| {
        let mut from = kept.open(cx).expect("its own");
        let mut at = from.next.get();
        let mut number = 0;
        while let Some(cell) = at {
            at = cell.next.get();
            number += 1;
            if number % 4000 == 0 {
                from.next.set(cx, Some(cell));
                from = cell;
            }
        }
        from.next.set(cx, None);
    });
    tenant.collect().expect("no tenant is busy");
    settle(&runtime);
    let taken = runtime.source().counts().taken;
    assert!(taken > 25, "every chunk has survivors: {taken}");
    let left = gained(before);
    // A head of which four pages were touched, and the survivors' arenas; and what the next collection will want.
    let bound = taken * 12 * 4096 + (2 << 20);
    assert!(left < bound, "{left} bytes left, {bound} is the bound");
    tenant.shrink();
    let left = gained(before);
    assert!(left < taken * 12 * 4096, "{left} bytes left after a shrink");
    tenant.heap().check();
    drop(kept);
}

#[test]
fn every_second_tenant_gives_half_back() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = Runtime::default();
    let before = resident();
    let mut tenants: Vec<(Tenant, Handle<Cell<'static>>)> = Vec::new();
    for number in 0..20 {
        let tenant = runtime.tenant(&format!("tab {number}"), usize::MAX);
        let kept = list(&tenant, 2 << 20);
        tenants.push((tenant, kept));
    }
    // They grow in turns, which is what mixes their objects in a heap that all share.
    for _ in 0..4 {
        for (tenant, kept) in &tenants {
            let more = list(tenant, 256 << 10);
            tenant.enter(|cx| {
                let (first, more) = (kept.open(cx).unwrap(), more.open(cx).unwrap());
                let mut last = first;
                while let Some(next) = last.next.get() {
                    last = next;
                }
                last.next.set(cx, Some(more));
            });
        }
    }
    let open = gained(before);
    let mut number = 0;
    tenants.retain(|_| {
        number += 1;
        number % 2 == 0
    });
    settle(&runtime);
    let half = gained(before);
    assert!(
        half * 100 <= open * 55,
        "{half} of {open} bytes with every second one closed"
    );
    tenants.truncate(1);
    settle(&runtime);
    let one = gained(before);
    assert!(one < 5 << 20, "{one} bytes with one of twenty");
}

#[test]
fn what_the_next_collection_will_want_is_kept() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = Runtime::new(Config {
        growth: Growth::TENANT,
        background: false,
        ..Config::default()
    });
    let tenant = runtime.tenant("a", usize::MAX);
    let kept = list(&tenant, 16 << 20);
    let churn = || {
        for _ in 0..40 {
            drop(list(&tenant, 2 << 20));
        }
        tenant.collect().expect("no tenant is busy");
        settle(&runtime);
        runtime.source().counts()
    };
    let first = churn();
    let second = churn();
    // 80 MiB came and went; of them, what is given back and taken again is the cost of having no hysteresis.
    let moved = (second.released_total - first.released_total) << 20;
    let purged = second.purged_bytes_total - first.purged_bytes_total;
    assert!(
        moved + purged <= 24 << 20,
        "{moved} + {purged} bytes went back and forth"
    );
    drop(kept);
}

#[test]
fn an_unreachable_half_of_each_arena_is_reused_before_anything_is_mapped() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = Runtime::new(Config {
        background: false,
        ..Config::default()
    });
    let tenant = runtime.tenant("a", usize::MAX);
    let kept = list(&tenant, 8 << 20);
    // Every second one goes.
    tenant.enter(|cx| {
        let mut at = kept.open(cx).ok();
        while let Some(cell) = at {
            let after = cell.next.get().and_then(|next| next.next.get());
            cell.next.set(cx, after);
            at = after;
        }
    });
    tenant.collect().expect("no tenant is busy");
    let held = tenant.heap().holds().held_bytes;
    let more = list(&tenant, 3 << 20);
    assert_eq!(
        tenant.heap().holds().held_bytes,
        held,
        "free cells were there"
    );
    tenant.heap().check();
    drop((kept, more));
}

#[test]
fn the_kernels_refusals_are_errors_and_pass() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for granted in 0..40 {
        let runtime = Runtime::new(Config {
            background: false,
            ..Config::default()
        });
        let tenant = runtime.tenant("a", usize::MAX);
        faults::arm(granted, faults::FOR_EVER);
        let made = tenant.enter(|cx| {
            let mut made = 0;
            while made < 400_000 {
                let cell = cx.alloc(Cell {
                    next: Slot::new(None),
                    payload: [1; 12],
                });
                if let Err(error) = cell {
                    assert!(error.to_string().contains("no memory to give"), "{error}");
                    return made;
                }
                made += 1;
            }
            made
        });
        let asked = faults::disarm();
        assert!(
            made < 400_000 || asked <= granted,
            "refusal {granted} had no effect"
        );
        tenant.heap().check();
        let again = tenant.enter(|cx| cx.alloc(1u64).map(|one| *one));
        assert_eq!(
            again,
            Ok(1),
            "after {granted} requests: memory is there again"
        );
        tenant.collect().expect("no tenant is busy");
        tenant.shrink();
        assert_eq!(tenant.heap().holds().held_bytes, 0);
    }
}
