//! Rest and pressure: what is collected, what goes back to the OS, and the log of both.
//!
//! ```text
//!   allocate ─► nothing for 20 s of a clock that the test turns ─► tick ─► log: Idle, resident memory
//! ```
//!
//! R1  Memory is what the source has from the OS, and what heaps keep beyond what they use.
//!
//! Not here: other reasons for a collection (`typed/pacing`).

use std::sync::mpsc;
use std::time::Duration;

use skinflint_gc::typed::{Handle, Runtime, Slot, Tenant};
use skinflint_gc::{
    Asker, Busy, Config, Growth, Incremental, Pressure, Reason, Relief, World, object,
};

object! {
    struct Link<'gc> { next: Slot<skinflint_gc::typed::Gc<'gc, Link<'gc>>>, numbers: [u64; 12] }
}

const SECOND: u64 = 1_000_000_000;
const MANY: u64 = if cfg!(miri) { 300 } else { 100_000 };

/// Allocates so many that nothing keeps, and returns a handle to one more.
fn fill(tenant: &Tenant, many: u64) -> Handle<Link<'static>> {
    tenant.enter(|cx| {
        let make = |number| {
            let link = Link {
                next: Slot::new(None),
                numbers: [number; 12],
            };
            cx.alloc(link).expect("memory")
        };
        for number in 0..many {
            make(number);
        }
        cx.keep(make(many), "kept")
    })
}

fn config(incremental: Option<Incremental>) -> Config {
    Config {
        // Nothing is due for growth.
        growth: Growth {
            floor_bytes: 1 << 30,
            interval_ns: u64::MAX,
            ..Growth::TENANT
        },
        incremental,
        ..Config::default()
    }
}

fn reasons(tenant: &Tenant) -> Vec<Reason> {
    tenant.heap().log().iter().map(|c| c.reason).collect()
}

fn names(relief: &Relief) -> Vec<&str> {
    relief.collected.iter().map(String::as_str).collect()
}

#[test]
fn a_heap_at_rest_is_collected_once_and_shrinks() {
    for incremental in [None, Some(Incremental::DEFAULT)] {
        let runtime = Runtime::new(config(incremental));
        let (quiet, busy) = (
            runtime.tenant("quiet", usize::MAX),
            runtime.tenant("busy", usize::MAX),
        );
        let kept = fill(&quiet, MANY);
        let taken = runtime.source().counts().taken;
        assert!(cfg!(miri) || taken > 8, "{taken}");
        let mut now = 100 * SECOND;
        assert!(runtime.tick(now).collected.is_empty());
        for _ in 0..19 {
            now += SECOND;
            drop(fill(&busy, 100));
            assert!(
                runtime.tick(now).collected.is_empty(),
                "19 seconds are no rest"
            );
        }
        now += SECOND;
        drop(fill(&busy, 100));
        let relief = runtime.tick(now);
        assert_eq!(names(&relief), ["quiet"]);
        assert_eq!(reasons(&quiet), [Reason::Idle]);
        assert!(reasons(&busy).is_empty());
        if !cfg!(miri) {
            // timer.T3: chunks went back, and it says how many bytes.
            assert!(relief.returned_bytes > 8 << 20, "{relief:?}");
        }
        assert!(runtime.source().counts().taken <= 3);
        assert_eq!(quiet.heap().holds().dirty_bytes, 0);
        for _ in 0..100 {
            now += SECOND;
            drop(fill(&busy, 100));
            assert!(runtime.tick(now).collected.is_empty(), "once is enough");
        }
        drop(kept);
    }
}

/// Returns the first of so many that hold each other.
fn chain(tenant: &Tenant, many: u64) -> Handle<Link<'static>> {
    tenant.enter(|cx| {
        let mut first = None;
        for number in 0..many {
            let link = Link {
                next: Slot::new(first),
                numbers: [number; 12],
            };
            first = Some(cx.alloc(link).expect("memory"));
        }
        cx.keep(first.expect("the last"), "chain")
    })
}

/// A tenant whose live objects became garbage after a collection, and that takes a little ten times a second, never
/// rests, and is far from its threshold.
#[test]
fn a_trickle_does_not_keep_garbage() {
    let runtime = Runtime::new(Config::default());
    let tenant = runtime.tenant("a", usize::MAX);
    let chain = chain(&tenant, MANY);
    tenant.collect().expect("at rest");
    while !runtime.poll() {}
    let held = tenant.heap().holds().held_bytes;
    drop(chain);
    let before = reasons(&tenant).len();
    let mut now = 100 * SECOND;
    for tenth in 0..250 {
        now += SECOND / 10;
        drop(fill(&tenant, 9));
        if tenth % 10 == 0 {
            let collected = runtime.tick(now).collected;
            assert_eq!(collected.is_empty(), tenth != 200, "after {tenth} tenths");
        }
    }
    assert_eq!(reasons(&tenant)[before..], [Reason::Interval]);
    while !runtime.poll() {}
    let holds = tenant.heap().holds();
    assert!(holds.objects <= 50 * 10, "{holds:?}");
    let kept = holds.held_bytes + holds.dirty_bytes;
    assert!(cfg!(miri) || kept * 4 < held, "{held} before, {holds:?}");
}

/// A tenant that holds much and takes so little that a span outlasts the idle time: `objects` numbers of eight bytes
/// every `seconds`. Returns the seconds of its collections, with their reasons.
fn drips(seconds: u64, objects: u64, until: u64) -> Vec<(u64, Reason)> {
    let runtime = Runtime::new(Config::default());
    let tenant = runtime.tenant("a", usize::MAX);
    let kept = chain(&tenant, 40_000);
    tenant.collect().expect("at rest");
    let mut when = Vec::new();
    for now in 100..until {
        if now % seconds == 0 {
            tenant.enter(|cx| (0..objects).for_each(|number| drop(cx.alloc(number))));
        }
        let before = reasons(&tenant).len();
        runtime.tick(now * SECOND);
        let after = reasons(&tenant);
        when.extend(after[before..].iter().map(|reason| (now, *reason)));
    }
    drop(kept);
    when
}

#[test]
fn a_few_small_objects_are_no_rest_and_no_reason_to_collect_ever_again() {
    if cfg!(miri) {
        return; // forty thousand objects, twenty minutes
    }
    // Ten a second: a span of theirs lasts 25 s. One in 30 s: longer than the idle time. Both live on, and free nothing.
    let rarer = [120, 161, 242, 403, 724, 1325, 1926].map(|now| (now, Reason::Interval));
    assert_eq!(drips(1, 10, 2_000), rarer);
    assert_eq!(drips(30, 1, 2_000), rarer);
}

#[test]
fn what_the_last_collection_left_is_given_back_after_a_rest_too() {
    let runtime = Runtime::new(config(None));
    let tenant = runtime.tenant("a", usize::MAX);
    let kept = fill(&tenant, MANY);
    tenant.collect().expect("at rest");
    while !runtime.poll() {}
    // The floor says that it will be wanted again.
    let dirty = tenant.heap().holds().dirty_bytes;
    assert!(cfg!(miri) || dirty > 8 << 20, "{dirty}");
    runtime.tick(SECOND);
    assert_eq!(runtime.tick(20 * SECOND).returned_bytes, 0);
    let relief = runtime.tick(21 * SECOND);
    assert!(relief.collected.is_empty());
    assert!(relief.returned_bytes >= dirty, "{relief:?}");
    assert_eq!(tenant.heap().holds().dirty_bytes, 0);
    assert_eq!(reasons(&tenant), [Reason::Asked]);
    assert_eq!(runtime.tick(50 * SECOND).returned_bytes, 0);
    drop(kept);
}

#[test]
fn pressure_gives_back_what_is_free_and_collects_if_it_is_critical() {
    let runtime = Runtime::new(config(None));
    let tenant = runtime.tenant("a", usize::MAX);
    let kept = fill(&tenant, MANY);
    let relief = runtime.pressure(Pressure::Moderate);
    assert!(relief.collected.is_empty() && reasons(&tenant).is_empty());
    let relief = runtime.pressure(Pressure::Critical);
    assert_eq!(names(&relief), ["shared", "a"]);
    assert_eq!(relief.refused, None);
    assert_eq!(reasons(&tenant), [Reason::Pressure]);
    assert!(cfg!(miri) || relief.returned_bytes > 8 << 20, "{relief:?}");
    assert_eq!(tenant.heap().holds().objects, 1);
    assert_eq!(tenant.heap().holds().dirty_bytes, 0);
    assert_eq!(runtime.source().counts().ready, 0);
    drop(kept);
}

#[test]
fn under_pressure_those_who_are_busy_are_collected_later() {
    let runtime = Runtime::new(config(None));
    let (a, b) = (
        runtime.tenant("a", usize::MAX),
        runtime.tenant("b", usize::MAX),
    );
    let kept = (fill(&a, MANY / 100), fill(&b, MANY / 100));
    a.enter(|_| {
        let relief = runtime.pressure(Pressure::Critical);
        assert_eq!(names(&relief), ["b"]);
        assert_eq!(relief.refused, Some(Busy::Entered));
        assert!(reasons(&a).is_empty());
    });
    // Alone, and then with the shared heap, which needs all at rest.
    assert_eq!(reasons(&a), [Reason::Pressure; 2]);
    assert_eq!(reasons(&b), [Reason::Pressure; 2]);
    assert_eq!(runtime.shared().log().len(), 1);
    drop(kept);
}

#[test]
fn a_client_of_the_core_is_told_which_heaps_are_due() {
    let world = World::new(config(None));
    let (heap, other) = (world.heap("a", usize::MAX), world.heap("b", usize::MAX));
    static BYTES: skinflint_gc::Kind = skinflint_gc::Kind {
        name: || "bytes",
        bytes: 64,
        align: 8,
        trace: None,
        trace_part: None,
        finalize: None,
        finalize_on: skinflint_gc::Finalize::Nothing,
        origin: skinflint_gc::Origin::User,
    };
    // SAFETY: its kind has no function that would look at it.
    unsafe { heap.alloc(&BYTES) }.expect("memory");
    assert!(world.tick(SECOND).is_empty());
    let due = world.tick(21 * SECOND);
    assert!(due.len() == 1 && due[0].name() == "a" && due[0].due() == Some(Reason::Idle));
    // SAFETY: nothing is used later.
    unsafe { heap.advance(&mut ()) }.expect("at rest");
    assert!(world.tick(22 * SECOND).is_empty());
    assert_eq!(heap.log()[0].reason, Reason::Idle);
    world.pressure(Pressure::Critical);
    assert_eq!(
        (heap.due(), other.due()),
        (Some(Reason::Pressure), Some(Reason::Pressure))
    );
}

#[test]
fn the_asker_asks_until_it_is_dropped() {
    let (asks, asked) = mpsc::channel();
    let asker = Asker::start(Duration::from_millis(2), move || {
        // Nothing listens any more when the test ends.
        let _ = asks.send(std::thread::current().id());
    })
    .expect("a thread");
    for _ in 0..3 {
        let id = asked
            .recv_timeout(Duration::from_secs(60))
            .expect("it asks");
        assert_ne!(id, std::thread::current().id());
    }
    drop(asker);
    // What was asked before; then the other end is gone.
    while asked.try_recv().is_ok() {}
    assert_eq!(asked.try_recv(), Err(mpsc::TryRecvError::Disconnected));
    // It does not wait for its period.
    let asker = Asker::start(Duration::from_secs(3600), || ()).expect("a thread");
    drop(asker);
}
