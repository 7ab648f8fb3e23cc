//! Allocation beside the sweeper: new memory while it has arenas, within bounds, and then sweeping.
//!
//! ```text
//!   garbage ─► collect ─► the sweeper ends the first object and is held up there ─► allocations: fresh, then swept
//! ```
//!
//! A1  The sweeper is held up by the first object that ends on its thread, until the test lets it go: what allocations do
//!     then depends on no clock.
//!
//! Not here: the protocol between the threads (`models`), shares and times (`bench/gc`).
#![cfg(not(miri))]

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use skinflint_gc::typed::{Cx, Gc, Handle, OpaqueSend, Runtime, Tenant};
use skinflint_gc::{Config, Growth, object};

/// Longer than any test: what is waited for comes at once.
const LONG: Duration = Duration::from_secs(100);

/// What holds the sweeper up.
struct Gate {
    heap: ThreadId,
    /// Whether somebody is held up, and whether they may go on.
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl Gate {
    fn new() -> Arc<Gate> {
        Arc::new(Gate {
            heap: thread::current().id(),
            state: Mutex::new((false, false)),
            changed: Condvar::new(),
        })
    }

    fn pass(&self) {
        if thread::current().id() == self.heap {
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = true;
        self.changed.notify_all();
        while !state.1 {
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until somebody is held up, who goes on when the result is dropped.
    fn until_held_up(self: &Arc<Self>) -> Open {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .changed
            .wait_timeout_while(state, LONG, |state| !state.0);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        assert!(state.0, "nobody was held up");
        drop(state);
        Open(self.clone())
    }

    fn open(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).1 = true;
        self.changed.notify_all();
    }
}

impl Gate {
    fn close(&self) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = (false, false);
    }
}

/// Opens the gate when it is dropped, also where an assertion fails: the runtime waits for its sweeper.
struct Open(Arc<Gate>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open();
    }
}

struct Ends(Arc<Gate>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.pass();
    }
}

object! { struct Item<'gc> { same: Option<Gc<'gc, Item<'gc>>>, number: u64, ends: OpaqueSend<Ends> } }

/// Bytes of garbage: 512 arenas.
const GARBAGE: usize = 2 << 20;
const ITEM: usize = size_of::<Item<'static>>();
/// Large objects' pages.
const PAGES: usize = 8;

object! { struct Large<'gc> { same: Option<Gc<'gc, Large<'gc>>>, words: [u64; PAGES * 512 - 8], ends: OpaqueSend<Ends> } }

fn tenant(ahead: f64, limit: usize) -> (Runtime, Tenant) {
    let runtime = Runtime::new(Config {
        ahead,
        growth: Growth {
            floor_bytes: usize::MAX,
            ..Growth::TENANT
        },
        ..Config::default()
    });
    let tenant = runtime.tenant("tab", limit);
    (runtime, tenant)
}

/// One place that allocates: at two the kind might be two constants (kind.K1), which are swept apart.
#[inline(never)]
fn item<'gc>(cx: Cx<'gc>, number: u64, gate: &Arc<Gate>) -> Gc<'gc, Item<'gc>> {
    let ends = OpaqueSend(Ends(gate.clone()));
    let same = None;
    cx.alloc(Item { same, number, ends }).expect("memory")
}

fn items(tenant: &Tenant, count: usize, gate: &Arc<Gate>) {
    tenant.enter(|cx| {
        for number in 0..count as u64 {
            item(cx, number, gate);
        }
    });
}

/// Makes garbage, collects it, and returns when the sweeper is held up.
#[must_use]
fn held_up(tenant: &Tenant, gate: &Arc<Gate>) -> Open {
    items(tenant, GARBAGE / ITEM, gate);
    tenant.collect().expect("no tenant is busy");
    gate.until_held_up()
}

#[test]
fn allocations_take_new_memory_while_the_sweeper_has_arenas() {
    let gate = Gate::new();
    let (_runtime, tenant) = tenant(0.25, usize::MAX);
    let _open = held_up(&tenant, &gate);
    let before = tenant.heap().held_bytes();
    // A quarter more is allowed; this is an eighth.
    items(&tenant, before / 8 / ITEM, &gate);
    let counts = tenant.heap().sweep_counts();
    assert_eq!(counts.lazy_cells, 0, "the sweeper has the arenas");
    let held = tenant.heap().held_bytes();
    assert!(held > before, "{before} and then {held}");
}

#[test]
fn beyond_the_bound_they_sweep_and_hold_no_more() {
    let gate = Gate::new();
    let (_runtime, tenant) = tenant(0.25, usize::MAX);
    let _open = held_up(&tenant, &gate);
    let before = tenant.heap().held_bytes();
    let mut most = before;
    for _ in 0..16 {
        items(&tenant, before / 16 / ITEM, &gate);
        most = most.max(tenant.heap().held_bytes());
    }
    let counts = tenant.heap().sweep_counts();
    assert!(counts.lazy_cells > 0, "it is not waited for");
    assert!(most <= before + before / 4, "{before} and then {most}");
    assert!(most >= before + before / 5, "{before} and then {most}");
}

#[test]
fn without_the_setting_they_sweep_at_once() {
    let gate = Gate::new();
    let (_runtime, tenant) = tenant(0.0, usize::MAX);
    let _open = held_up(&tenant, &gate);
    let before = tenant.heap().held_bytes();
    items(&tenant, before / 8 / ITEM, &gate);
    assert!(tenant.heap().sweep_counts().lazy_cells > 0);
    assert!(tenant.heap().held_bytes() <= before);
}

#[test]
fn a_tenant_near_its_limit_sweeps() {
    let gate = Gate::new();
    // Seven eighths of this are a little more than it will hold.
    let limit = 2_500_000;
    let (_runtime, tenant) = tenant(0.25, limit);
    let _open = held_up(&tenant, &gate);
    let before = tenant.heap().held_bytes();
    items(&tenant, before / 8 / ITEM, &gate);
    assert!(tenant.heap().sweep_counts().lazy_cells > 0);
    assert!(tenant.heap().held_bytes() <= limit - limit / 8);
}

#[test]
fn large_objects_go_ahead_by_the_same_bound() {
    let gate = Gate::new();
    let (_runtime, tenant) = tenant(0.25, usize::MAX);
    let large = |count: usize| {
        tenant.enter(|cx| {
            for _ in 0..count {
                let (words, ends) = ([7; PAGES * 512 - 8], OpaqueSend(Ends(gate.clone())));
                assert!(
                    cx.alloc(Large {
                        same: None,
                        words,
                        ends
                    })
                    .is_ok()
                );
            }
        });
    };
    large(GARBAGE / (PAGES << 12));
    tenant.collect().expect("no tenant is busy");
    let _open = gate.until_held_up();
    let before = tenant.heap().held_bytes();
    large(before / 16 / (PAGES << 12));
    assert_eq!(tenant.heap().sweep_counts().lazy_cells, 0);
    // Fewer than wait to be swept, beside those that the sweeper has in its hands.
    large(before / 2 / (PAGES << 12));
    assert!(tenant.heap().sweep_counts().lazy_cells > 0);
    let held = tenant.heap().held_bytes();
    assert!(held <= before + before / 4, "{before} and then {held}");
}

#[test]
fn where_it_is_asked_for_everything_ends_in_the_pause() {
    let gate = Gate::new();
    let runtime = Runtime::new(Config {
        sweep_in_pause: true,
        ..Config::default()
    });
    let tenant = runtime.tenant("tab", usize::MAX);
    items(&tenant, 1000, &gate);
    tenant.collect().expect("no tenant is busy");
    let counts = tenant.heap().sweep_counts();
    assert_eq!(counts.pause_cells, 1000);
    assert_eq!((counts.lazy_cells, counts.background_cells), (0, 0));
}

#[test]
fn going_ahead_again_and_again_does_not_add_up() {
    let gate = Gate::new();
    let (_runtime, tenant) = tenant(0.25, usize::MAX);
    // A survivor in each arena keeps it, however much goes.
    let kept: Vec<Handle<Item<'static>>> = tenant.enter(|cx| {
        let made = (0..GARBAGE / ITEM).map(|number| item(cx, number as u64, &gate));
        let some = made.step_by(60);
        some.map(|item| cx.keep(item, "survivor")).collect()
    });
    let mut first = None;
    for round in 0..6 {
        tenant.collect().expect("no tenant is busy");
        let open = gate.until_held_up();
        let before = *first.get_or_insert(tenant.heap().held_bytes());
        items(&tenant, GARBAGE / ITEM, &gate);
        let held = tenant.heap().held_bytes();
        assert!(
            held <= before + before / 2,
            "round {round}: {before} and then {held}"
        );
        drop(open);
        while !tenant.poll() {}
        gate.close();
    }
    assert!(kept.len() > 100);
}

object! { struct Plain<'gc> { same: Option<Gc<'gc, Plain<'gc>>>, number: u64 } }

/// Bytes in cells of `Plain`.
const PLAIN: usize = size_of::<Plain<'static>>();

fn plains(tenant: &Tenant, count: usize) {
    tenant.enter(|cx| {
        for number in 0..count as u64 {
            cx.alloc(Plain { same: None, number }).expect("memory");
        }
    });
}

#[test]
fn what_has_no_end_to_wait_for_is_swept_at_once() {
    let gate = Gate::new();
    let (_runtime, tenant) = tenant(0.25, usize::MAX);
    // This kind first: the sweeper is held up in it, and has none of the other's arenas.
    items(&tenant, 1, &gate);
    plains(&tenant, GARBAGE / PLAIN);
    let _open = held_up(&tenant, &gate);
    let before = tenant.heap().held_bytes();
    plains(&tenant, before / 8 / PLAIN);
    assert!(tenant.heap().sweep_counts().lazy_cells > 0);
    let held = tenant.heap().held_bytes();
    assert!(held <= before, "{before} and then {held}");
}

#[test]
fn no_new_page_is_taken_while_a_free_one_is_resident() {
    let runtime = Runtime::new(Config {
        background: false,
        growth: Growth {
            floor_bytes: usize::MAX,
            ..Growth::TENANT
        },
        ..Config::default()
    });
    let tenant = runtime.tenant("tab", usize::MAX);
    // One chunk is filled, and a part of the next, where one object stays.
    let kept: Handle<Plain<'static>> = tenant.enter(|cx| {
        for number in 0..(5 << 18) / PLAIN as u64 {
            cx.alloc(Plain { same: None, number }).expect("memory");
        }
        cx.keep(
            cx.alloc(Plain {
                same: None,
                number: 0,
            })
            .expect("memory"),
            "last",
        )
    });
    tenant.collect().expect("no tenant is busy");
    while !tenant.poll() {}
    let (held, dirty) = (
        tenant.heap().held_bytes(),
        tenant.heap().holds().dirty_bytes,
    );
    assert!(dirty > 1 << 20, "{dirty} kept for what will be taken");
    plains(&tenant, (1 << 20) / PLAIN);
    let taken = tenant.heap().held_bytes() - held;
    assert!(taken >= (1 << 20) - (64 << 10), "{taken} taken");
    assert_eq!(tenant.heap().holds().dirty_bytes, dirty - taken);
    drop(kept);
}

/// One place that allocates, as `item`.
#[inline(never)]
fn list<'gc>(cx: Cx<'gc>, many: usize) -> Option<Gc<'gc, Plain<'gc>>> {
    (0..many as u64).fold(None, |same, number| {
        Some(cx.alloc(Plain { same, number }).expect("memory"))
    })
}

/// Where the sweeper does not come to them, a heap finds the free arenas behind a thousand full ones, and takes few new ones
/// meanwhile. See it fail: with `LAZY` for all kinds it takes one for each eight full ones.
#[test]
fn full_arenas_hide_no_free_ones() {
    const LASTING: usize = 1_000 * 4_096 / PLAIN;
    let gate = Gate::new();
    let (_runtime, tenant) = tenant(0.25, usize::MAX);
    // This kind first, as above.
    items(&tenant, 1, &gate);
    // On both sides, whichever the heap begins with.
    tenant.enter(|cx| _ = list(cx, LASTING / 4));
    let _kept: Handle<Plain<'static>> =
        tenant.enter(|cx| cx.keep(list(cx, LASTING).expect("some"), "lasting"));
    tenant.enter(|cx| _ = list(cx, LASTING / 4));
    let _open = held_up(&tenant, &gate);
    let before = tenant.heap().held_bytes();
    // All that is free, but for what does not fill an arena.
    tenant.enter(|cx| _ = list(cx, LASTING / 2 - LASTING / 50));
    let grown = tenant.heap().held_bytes().saturating_sub(before) / 4_096;
    assert!(
        grown < 40,
        "{grown} new arenas while there were as many free ones"
    );
}
