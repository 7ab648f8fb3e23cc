//! Tenants: their accounts, limits, ends, and their relations to each other.
//!
//! ```text
//!   tab 1 ─► enter ─► objects ─► row ─► end          tab 2 keeps one of them: told with a path
//! ```
//!
//! Not here: what is garbage within one heap (`objects`, `weak`).

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use boa_gc::skinflint::{
    self, Growth, Observer, OutOfMemory, Reason, Step, Tenant, rows, stats, system,
};
use boa_gc::{Finalize, Gc, GcRefCell, Trace, force_collect};

#[derive(Trace, Finalize)]
struct Node {
    payload: [u64; 8],
    next: GcRefCell<Option<Gc<Node>>>,
}

fn node(next: Option<Gc<Node>>) -> Gc<Node> {
    Gc::new(Node {
        payload: [7; 8],
        next: GcRefCell::new(next),
    })
}

/// Creates this many objects in a ring: never garbage by counts.
fn ring(many: usize) -> Gc<Node> {
    let first = node(None);
    let mut at = first.clone();
    for _ in 1..many {
        at = node(Some(at));
    }
    *first.next.borrow_mut() = Some(at);
    first
}

fn alone(test: impl FnOnce() + Send + 'static) {
    std::thread::spawn(test).join().expect("the test's thread");
}

#[test]
fn what_is_allocated_within_a_guard_is_the_tenants() {
    alone(|| {
        let (one, two) = (
            Tenant::new("one", usize::MAX),
            Tenant::new("two", usize::MAX),
        );
        let outer = one.enter();
        let a = ring(10);
        let b = {
            let _inner = two.enter();
            ring(20)
        };
        let c = ring(5);
        drop(outer);
        let d = ring(1);
        let counts = |tenant: &Tenant| tenant.row().objects;
        assert_eq!((counts(&one), counts(&two)), (15, 20));
        assert_eq!(rows().iter().map(|row| row.objects).sum::<u64>(), 36);
        assert!(a.payload == b.payload && c.payload == d.payload);
    });
}

#[test]
fn a_tenant_is_collected_alone() {
    alone(|| {
        let (one, two) = (
            Tenant::new("one", usize::MAX),
            Tenant::new("two", usize::MAX),
        );
        for tenant in [&one, &two] {
            let _in = tenant.enter();
            drop(ring(100));
        }
        one.collect();
        assert_eq!((one.row().objects, two.row().objects), (0, 100));
        let events = skinflint::collections();
        let last = events.last().expect("an event");
        assert_eq!(
            (&*last.tenant, last.reason, last.step),
            ("one", Reason::Asked, Step::Whole)
        );
        assert_eq!((last.freed_in_pause, last.bytes_after), (100, 0));
    });
}

#[test]
fn the_end_of_a_tenant_gives_its_chunks_back() {
    alone(|| {
        let stays = ring(10);
        let tab = Tenant::new("tab", usize::MAX);
        let ring = {
            let _in = tab.enter();
            ring(if cfg!(miri) { 100 } else { 100_000 })
        };
        assert!(tab.row().chunks >= 1 && tab.row().user_bytes >= 100 * 88);
        drop(ring);
        let ended = tab.end();
        assert_eq!(
            (ended.objects_left, ended.bytes_left, ended.path),
            (0, 0, None)
        );
        assert_eq!(rows().len(), 1, "the default one");
        assert_eq!(stays.payload[0], 7);
    });
}

#[test]
fn what_another_tenant_keeps_is_told_and_goes_with_its_last_handle() {
    #[derive(Trace, Finalize)]
    struct Keeper(Gc<Node>);
    alone(|| {
        let (one, two) = (
            Tenant::new("one", usize::MAX),
            Tenant::new("two", usize::MAX),
        );
        let kept = {
            let _in = one.enter();
            ring(50)
        };
        let keeper = {
            let _in = two.enter();
            Gc::new(Keeper(kept.clone()))
        };
        drop(kept);
        let ended = one.end();
        assert_eq!(ended.objects_left, 50);
        let path = ended.path.expect("a path");
        assert!(
            path.starts_with("tenant \"two\": ") && path.contains("Keeper -> "),
            "{path}"
        );
        assert!(path.ends_with("Node (50 objects)"), "{path}");
        assert_eq!(keeper.0.payload[0], 7, "it is still there");
        drop(keeper);
        force_collect();
        assert_eq!(rows().len(), 2);
        assert_eq!(two.end().objects_left, 0);
    });
}

#[test]
fn a_handle_on_a_stack_is_told_as_such() {
    alone(|| {
        let tab = Tenant::new("tab", usize::MAX);
        let kept = {
            let _in = tab.enter();
            ring(3)
        };
        let path = tab.end().path.expect("a path");
        assert!(
            path.starts_with("1 handles from outside of all heaps -> "),
            "{path}"
        );
        drop(kept);
    });
}

#[test]
fn cycles_through_two_tenants_go_when_one_ends() {
    alone(|| {
        let (one, two) = (
            Tenant::new("one", usize::MAX),
            Tenant::new("two", usize::MAX),
        );
        let a = {
            let _in = one.enter();
            node(None)
        };
        let b = {
            let _in = two.enter();
            node(Some(a.clone()))
        };
        *a.next.borrow_mut() = Some(b);
        drop(a);
        one.collect();
        two.collect();
        assert_eq!((one.row().objects, two.row().objects), (1, 1));
        assert_eq!(one.end().objects_left, 0);
        assert_eq!(two.row().objects, 0);
    });
}

#[test]
fn a_tenant_at_its_limit_is_collected_and_then_told() {
    alone(|| {
        let tab = Tenant::new("small", 2 << 20);
        let other = Tenant::new("other", usize::MAX);
        // These are cycles, which only a collection finds. They exceed the limit many times over.
        for _ in 0..if cfg!(miri) { 10 } else { 2_000 } {
            let _in = tab.enter();
            drop(ring(100));
        }
        let kept = GcRefCell::new(Vec::new());
        let full = catch_unwind(AssertUnwindSafe(|| {
            let _in = tab.enter();
            loop {
                let new = node(None);
                kept.borrow_mut().push(new);
            }
        }));
        let payload = full.expect_err("the limit");
        let error = payload.downcast::<OutOfMemory>().expect("its own payload");
        assert_eq!((error.tenant.as_str(), error.bytes), ("small", 96));
        assert!(
            error.held_bytes <= 2 << 20 && error.to_string().contains("limit"),
            "{error}"
        );
        assert!(tab.row().user_bytes > 1 << 20);
        // No other tenant is short of memory, and this one is no longer when it lets go.
        {
            let _in = other.enter();
            assert_eq!(ring(1000).payload[0], 7);
        }
        kept.borrow_mut().clear();
        let _in = tab.enter();
        assert_eq!(ring(1000).payload[0], 7);
    });
}

#[test]
fn system_objects_lie_in_chunks_of_their_own() {
    alone(|| {
        let address = |gc: &Gc<Node>| (&raw const **gc).addr() >> 20;
        let tab = Tenant::new("tab", usize::MAX);
        let _in = tab.enter();
        let (user, intrinsic) = (node(None), system(|| node(None)));
        assert_ne!(address(&user), address(&intrinsic));
        let row = tab.row();
        assert_eq!((row.user_bytes, row.system_bytes), (96, 96));
        skinflint::separate_system(false);
        let mixed = system(|| node(None));
        assert_eq!(address(&user), address(&mixed));
    });
}

#[test]
fn heaps_that_rest_are_collected_and_memory_can_be_asked_back() {
    alone(|| {
        let tab = Tenant::new("tab", usize::MAX);
        {
            let _in = tab.enter();
            drop(ring(1000));
        }
        let idle = Growth::TENANT.idle_ns;
        assert_eq!(skinflint::tick(1), 0);
        assert_eq!(skinflint::tick(idle), 0, "not long enough");
        assert_eq!(skinflint::tick(idle + 1), 1);
        assert_eq!((tab.row().objects, tab.row().chunks), (0, 0));
        assert_eq!(skinflint::tick(3 * idle), 0, "nothing new");
        {
            let _in = tab.enter();
            drop(ring(1000));
        }
        skinflint::pressure();
        assert_eq!((tab.row().objects, tab.row().chunks), (0, 0));
    });
}

#[test]
fn a_tenant_that_only_trickles_is_collected_after_the_interval() {
    alone(|| {
        let tab = Tenant::new("tab", usize::MAX);
        let second = 1_000_000_000;
        let mut when = Vec::new();
        // Live to the first collection of its own, and garbage from then on.
        let _in = tab.enter();
        let kept = ring(1000);
        skinflint::pressure();
        drop(kept);
        for now in 100..400 {
            drop(ring(2));
            if skinflint::tick(now * second) > 0 {
                when.push(now);
                let left = tab.row().objects;
                assert!(left <= 4, "{left} objects at {now}");
            }
        }
        // Each frees the little that there is, which is nearly all.
        assert_eq!(when[..3], [120, 141, 162]);
        let reasons = skinflint::collections();
        assert!(reasons.iter().any(|event| event.reason == Reason::Interval));
        assert!(!reasons.iter().any(|event| event.reason == Reason::Idle));
    });
}

#[test]
fn bytes_outside_make_collections_due() {
    thread_local!(static OUTSIDE: Cell<usize> = const { Cell::new(0) });
    alone(|| {
        skinflint::set_client_bytes(Some(|| OUTSIDE.get()));
        drop(ring(100));
        OUTSIDE.set(1 << 30);
        for _ in 0..20_000 {
            drop(node(None));
        }
        assert!(stats().objects < 200, "{:?}", stats());
        let events = skinflint::collections();
        assert!(
            events
                .iter()
                .any(|event| event.reason == Reason::ClientBytes)
        );
    });
}

thread_local! {
    /// Events by step: the log keeps only the last, and on a busy machine there are many.
    static SEEN: RefCell<HashMap<Step, u64>> = RefCell::default();
}

fn count_events() {
    skinflint::on_event(Some(|event| {
        // At the thread's end everything is collected a last time, and nothing counts any more.
        let _ = SEEN.try_with(|seen| *seen.borrow_mut().entry(event.step).or_default() += 1);
    }));
}

fn seen(step: Step) -> u64 {
    SEEN.with_borrow(|seen| seen.get(&step).copied().unwrap_or(0))
}

#[test]
fn growth_is_collected_in_steps_and_cycles_go() {
    alone(|| {
        count_events();
        let many = if cfg!(miri) { 300 } else { 20_000 };
        let lasting = ring(1000);
        let mut most = 0;
        for _ in 0..many {
            drop(ring(10));
            most = most.max(stats().objects);
        }
        let made = stats().made;
        if !cfg!(miri) {
            assert!(most < made / 4, "{most} of {made}");
            assert!(seen(Step::Final) > 2 && seen(Step::MajorSlice) > seen(Step::Final));
            assert_eq!(seen(Step::Whole), 0);
        }
        assert_eq!(lasting.payload[0], 7);
    });
}

#[test]
fn every_object_that_ended_is_counted_once() {
    alone(|| {
        let many = if cfg!(miri) { 100 } else { 5_000 };
        for _ in 0..many {
            // This is garbage by counts, and in cycles whose parts hold each other when they are dropped.
            drop(node(Some(node(None))));
            drop(ring(2));
            drop(ring(5));
        }
        force_collect();
        let now = stats();
        assert_eq!(
            now.by_count + now.by_examination,
            now.made - now.objects,
            "{now:?}"
        );
        assert_eq!((now.by_count, now.by_examination), (many * 2, many * 7));
    });
}

#[test]
fn what_marking_cannot_find_goes_through_trial_deletion_and_is_not_examined_in_the_pause() {
    alone(|| {
        if cfg!(miri) {
            return;
        }
        count_events();
        // No new object leads here.
        let lasting = ring(30_000);
        for _ in 0..20_000 {
            drop(ring(10));
        }
        let now = stats();
        let finals = seen(Step::Final);
        assert!(finals >= 2, "{now:?}");
        let missed = now.suspects - now.by_examination;
        assert!(
            missed <= finals * 4096,
            "{missed} alive in {finals} last steps: {now:?}"
        );
        assert_eq!(lasting.payload[0], 7);
    });
}

#[test]
fn objects_end_in_the_pause_if_that_is_asked_for() {
    for in_pause in [false, true] {
        alone(move || {
            if cfg!(miri) {
                return;
            }
            skinflint::sweep_in_pause(in_pause);
            for _ in 0..20_000 {
                drop(ring(10));
            }
            let events = skinflint::collections();
            let freed = |of: fn(&skinflint::Event) -> u64| events.iter().map(of).sum::<u64>();
            let (paused, slices) = (freed(|e| e.freed_in_pause), freed(|e| e.freed_lazily));
            assert_eq!(paused > 100_000, in_pause, "{paused} in pauses");
            assert!(!in_pause || slices == 0, "{slices} in slices");
            assert!(stats().objects < 50_000, "{:?}", stats());
        });
    }
}

thread_local! {
    /// The bytes outside, as a client counts them.
    static OUTSIDE: Cell<usize> = const { Cell::new(0) };
}

/// A megabyte outside.
struct Megabyte;

impl Megabyte {
    const BYTES: usize = 1 << 20;
}

impl Drop for Megabyte {
    fn drop(&mut self) {
        OUTSIDE.set(OUTSIDE.get() - Megabyte::BYTES);
    }
}

#[derive(Trace, Finalize)]
struct Buffer {
    #[unsafe_ignore_trace]
    _bytes: Megabyte,
}

impl Buffer {
    fn make() -> Gc<Buffer> {
        OUTSIDE.set(OUTSIDE.get() + Megabyte::BYTES);
        Gc::new(Buffer { _bytes: Megabyte })
    }
}

#[test]
fn what_objects_hold_outside_is_part_of_their_tenants_limit() {
    alone(|| {
        skinflint::set_client_bytes(Some(|| OUTSIDE.get()));
        let (one, two) = (Tenant::new("one", 16 << 20), Tenant::new("two", 16 << 20));
        let kept: Vec<_> = {
            let _inside = two.enter();
            (0..10).map(|_| Buffer::make()).collect()
        };
        let buffers = std::cell::RefCell::new(Vec::new());
        let greedy = catch_unwind(AssertUnwindSafe(|| {
            let _inside = one.enter();
            for _ in 0..10_000 {
                buffers.borrow_mut().push(Buffer::make());
            }
        }));
        let payload = greedy.expect_err("ten thousand megabytes");
        let error = payload.downcast_ref::<OutOfMemory>().expect("its limit");
        assert_eq!(error.tenant, "one");
        assert!(error.why.contains("outside"), "{error}");
        let many = buffers.borrow().len();
        assert!((16..16 + 128).contains(&many), "{many} buffers");
        // The other tenant is unharmed, and what it drops while another tenant is entered is its own.
        assert_eq!(two.outside_bytes(), 10 << 20);
        {
            let _inside = one.enter();
            drop(kept);
            buffers.borrow_mut().clear();
            force_collect();
        }
        assert_eq!((one.outside_bytes(), two.outside_bytes()), (0, 0));
        let _inside = two.enter();
        assert_eq!(two.within_limit(), Ok(()));
        // Garbage alone never reaches the limit.
        for _ in 0..if cfg!(miri) { 100 } else { 10_000 } {
            drop(Buffer::make());
        }
        assert_eq!(two.within_limit(), Ok(()));
    });
}

#[test]
fn a_whole_collection_meets_garbage_that_is_half_ended() {
    alone(|| {
        let kept = ring(10);
        // A cycle begins at some eleven hundred rings, and takes some hundreds.
        for round in 0..if cfg!(miri) { 1 } else { 40 } {
            for _ in 0..if cfg!(miri) { 20 } else { 1100 + round * 37 } {
                drop(ring(10));
            }
            force_collect();
            assert_eq!((stats().objects, stats().panics), (10, 0), "round {round}");
        }
        assert_eq!(kept.payload[0], 7);
    });
}

#[test]
fn what_is_freed_by_counts_goes_back_without_a_collection() {
    alone(|| {
        if cfg!(miri) {
            return;
        }
        // No collection is due, so none gives it back; half of what may grow before the next one is kept.
        skinflint::set_growth(Growth {
            floor_bytes: 12 << 20,
            ..Growth::TENANT
        });
        let tab = Tenant::new("tab", usize::MAX);
        let _in = tab.enter();
        let mut list = node(None);
        for _ in 0..100_000 {
            list = node(Some(list));
        }
        let full = tab.row();
        drop(list);
        for _ in 0..60_000 {
            drop(node(None));
        }
        let row = tab.row();
        assert!(full.chunks >= 10 && row.chunks <= 7, "{full:?} {row:?}");
        assert!(
            skinflint::collections()
                .iter()
                .all(|event| event.step != Step::Whole)
        );
    });
}

#[test]
fn a_guard_does_not_lead_back_to_a_tenant_that_has_ended() {
    alone(|| {
        let (one, two) = (
            Tenant::new("one", usize::MAX),
            Tenant::new("two", usize::MAX),
        );
        let outer = one.enter();
        let inner = two.enter();
        assert_eq!(one.end().objects_left, 0);
        drop(inner);
        let kept = ring(10);
        drop(outer);
        assert_eq!(rows()[0].objects, 10, "in the default one");
        assert_eq!(kept.payload[0], 7);
    });
}

#[test]
fn an_observer_is_told_of_every_object_once() {
    thread_local!(static ALIVE: Cell<i64> = const { Cell::new(0) });
    alone(|| {
        skinflint::set_observer(Some(Observer {
            alloc: |_, bytes, name| {
                assert!(bytes == 96 && name.ends_with("Node"), "{name} {bytes}");
                ALIVE.set(ALIVE.get() + 1);
            },
            free: |_| ALIVE.set(ALIVE.get() - 1),
        }));
        let kept = ring(500);
        for _ in 0..1000 {
            drop(node(None));
        }
        force_collect();
        assert_eq!(ALIVE.get(), 500);
        drop(kept);
        force_collect();
        assert_eq!(ALIVE.get(), 0);
    });
}
