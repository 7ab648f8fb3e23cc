//! Two runtimes on one thread, and writes where the marking does not look: safe code cannot join what does not belong
//! together, nor hide an edge from the collector.
//!
//! ```text
//!   runtime 1 ─ tenant a ─ object ─ box ─ Locked ◄── borrow_mut(cx of tenant z) ── tenant z ─ runtime 2
//! ```
//!
//! Each test is a program that broke memory before the check that it is named after existed.
//!
//! Not here: random graphs of the same (`random`), what does not compile (the head of `typed`).

mod calling;
mod finalizing;
mod random;

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use skinflint_gc::cc::{Anchor, Cc, Counted, Cycles, Field};
use skinflint_gc::typed::{
    CrossEdge, Cx, Ephemeron, Family, Foreign, Gc, Handle, Locked, Opaque, Runtime, Tenant, Weak,
};
use skinflint_gc::{Budget, Config, Progress, Reason, Wanted, counted, object};

object! {
    struct Holder<'gc> {
        list: Locked<Vec<Gc<'gc, String>>>,
        boxed: Box<Locked<Vec<Gc<'gc, String>>>>,
        cross: Locked<Option<CrossEdge<'gc, String>>>,
    }
}

object! {
    /// A type of its own: an object with weak parts is looked at again as a whole when marking ends.
    struct WeakHolder<'gc> {
        weak: Box<Locked<Option<Weak<'gc, String>>>>,
        pairs: Box<Locked<HashMap<u32, Ephemeron<'gc, String, String>>>>,
        nested: Vec<Locked<Option<Box<Locked<Option<Weak<'gc, String>>>>>>>,
        key: Gc<'gc, String>,
    }
}

counted! { struct Native { to: Field<Vec<Anchor<String>>>, next: Field<Option<Cc<Native>>>, name: String } }

object! { struct Holds<'gc> { native: Counted<'gc, Native> } }

fn config() -> Config {
    Config {
        poison: true,
        verify: true,
        background: false,
        ..Config::default()
    }
}

const ALL: Budget = Budget {
    edges: 1000,
    ns: u64::MAX,
};

fn text(number: u32) -> String {
    format!("{number}: a text that is long enough to have bytes of its own")
}

fn holder(cx: Cx<'_>) -> Handle<Holder<'static>> {
    let holder = cx.alloc(Holder {
        list: Locked::default(),
        boxed: Box::default(),
        cross: Locked::default(),
    });
    cx.keep(holder.expect("memory"), "holder")
}

fn weak_holder(cx: Cx<'_>) -> Handle<WeakHolder<'static>> {
    let holder = cx.alloc(WeakHolder {
        weak: Box::default(),
        pairs: Box::default(),
        nested: vec![Locked::new(None)],
        key: cx.alloc(text(5)).expect("memory"),
    });
    cx.keep(holder.expect("memory"), "weak holder")
}

/// Uses cells that were freed again.
fn overwrite(tenant: &Tenant) {
    tenant.poll();
    tenant.enter(|cx| {
        for number in 0..if cfg!(miri) { 40 } else { 1000 } {
            cx.alloc(text(1_000_000 + number)).expect("memory");
        }
    });
}

/// A holder that is marked and traced before `act` runs in the same closure; then marking ends, and what is free is
/// used again.
fn after_marking<F: Family>(
    make: impl FnOnce(Cx<'_>) -> Handle<F>,
    act: impl for<'gc> FnOnce(Cx<'gc>, Gc<'gc, F::At<'gc>>),
) -> (Runtime, Tenant, Handle<F>) {
    let runtime = Runtime::new(config());
    let tenant = runtime.tenant("a", usize::MAX);
    let kept = tenant.enter(make);
    assert_eq!(runtime.begin_all(Reason::Asked), Ok(true));
    tenant.enter(|cx| {
        while runtime.mark_step(ALL) == Progress::More {}
        assert_eq!(tenant.heap().progress(), Progress::Ready);
        act(cx, kept.open(cx).expect("its own"));
    });
    while runtime.mark_step(ALL) != Progress::Off {}
    overwrite(&tenant);
    (runtime, tenant, kept)
}

#[test]
fn a_guard_has_the_barrier_whatever_closure_it_was_taken_in() {
    let others = Runtime::new(config());
    let other = others.tenant("z", usize::MAX);
    let (_runtime, tenant, kept) = after_marking(holder, |cx, holder| {
        other.enter(|z| {
            let new = |number| cx.alloc(text(number)).expect("memory");
            holder.list.borrow_mut(z).push(new(1));
            holder.boxed.borrow_mut(z).push(new(2));
        });
    });
    tenant.enter(|cx| {
        let holder = kept.open(cx).expect("its own");
        assert_eq!(**holder.list.borrow()[0], text(1));
        assert_eq!(**holder.boxed.borrow()[0], text(2));
    });
    // And where the other one is marked, too, whichever began first.
    assert_eq!(others.begin_all(Reason::Asked), Ok(true));
    let (runtime, tenant, kept) = after_marking(holder, |cx, holder| {
        other.enter(|z| {
            let list: Locked<Vec<Gc<'_, String>>> = Locked::default();
            list.borrow_mut(z).push(cx.alloc(text(3)).expect("memory"));
            let first = list.borrow()[0];
            holder.boxed.borrow_mut(z).push(first);
        });
    });
    while others.mark_step(ALL) != Progress::Off {}
    tenant.enter(|cx| {
        let holder = kept.open(cx).expect("its own");
        assert_eq!(**holder.boxed.borrow()[0], text(3));
    });
    // No list of worlds leads to one that is gone.
    assert_eq!(others.begin_all(Reason::Asked), Ok(true));
    assert_eq!(runtime.begin_all(Reason::Asked), Ok(true));
    drop((others, other));
    tenant.enter(|cx| kept.open(cx).expect("its own").list.borrow_mut(cx).clear());
}

#[test]
fn weak_pointers_and_pairs_in_boxes_are_emptied() {
    let (_runtime, tenant, kept) = after_marking(weak_holder, |cx, holder| {
        let new = |number| cx.alloc(text(number)).expect("memory");
        *holder.weak.borrow_mut(cx) = Some(Weak::to(new(1)));
        let pair = Ephemeron::new(new(2), new(3));
        holder.pairs.borrow_mut(cx).insert(1, pair);
        let inner = Box::new(Locked::new(None));
        *inner.borrow_mut(cx) = Some(Weak::to(new(4)));
        *holder.nested[0].borrow_mut(cx) = Some(inner);
        // This lives.
        let pair = Ephemeron::new(holder.key, new(6));
        holder.pairs.borrow_mut(cx).insert(2, pair);
    });
    tenant.enter(|cx| {
        let holder = kept.open(cx).expect("its own");
        assert!(
            holder
                .weak
                .borrow()
                .as_ref()
                .expect("a cell")
                .get()
                .is_none()
        );
        let pairs = holder.pairs.borrow();
        assert!(pairs[&1].key().is_none() && pairs[&1].value().is_none());
        assert_eq!(**pairs[&2].value().expect("its key lives"), text(6));
        let nested = holder.nested[0].borrow();
        let inner = nested.as_ref().expect("a box").borrow();
        assert!(inner.as_ref().expect("a cell").get().is_none());
    });
}

#[test]
fn edges_into_another_runtime_are_refused() {
    let (one, two) = (Runtime::new(config()), Runtime::new(config()));
    let (a, b) = (one.tenant("a", usize::MAX), one.tenant("b", usize::MAX));
    let z = two.tenant("z", usize::MAX);
    let text_of = |tenant: &Tenant| -> Handle<String> {
        tenant.enter(|cx| cx.keep(cx.alloc(text(1)).expect("memory"), "text"))
    };
    let (in_b, in_z) = (text_of(&b), text_of(&z));
    a.enter(|cx| {
        assert!(matches!(cx.cross_edge(&in_z), Err(Foreign)));
        assert!(cx.cross_edge(&in_b).is_ok());
    });
    let (own, theirs, nobodys) = (one.cycles(), two.cycles(), Cycles::new());
    let native = |cycles: &Cycles| {
        cycles.cc(Native {
            to: Field::default(),
            next: Field::new(None),
            name: text(2),
        })
    };
    a.enter(|cx| {
        assert!(matches!(cx.hold(native(&theirs)), Err(Foreign)));
        assert!(matches!(cx.hold(native(&nobodys)), Err(Foreign)));
        assert!(cx.hold(native(&own)).is_ok());
        let gc = cx.alloc(text(3)).expect("memory");
        assert!(matches!(cx.anchor::<String>(&theirs, gc), Err(Foreign)));
        assert!(matches!(in_z.open(cx), Err(Foreign)));
    });
    assert_eq!(
        theirs.counts().boxes + nobodys.counts().boxes + own.counts().boxes,
        0
    );
    // What is held lives in its own runtime's collection.
    let held: Handle<Holds<'static>> = a.enter(|cx| {
        let native = cx.hold(native(&own)).expect("its own");
        cx.keep(cx.alloc(Holds { native }).expect("memory"), "holds")
    });
    own.collect_with(&one, Reason::Asked).expect("at rest");
    a.enter(|cx| assert_eq!(held.open(cx).expect("its own").native.name, text(2)));
}

/// Both anchors had the same numbers, of heap and entry, each in its own runtime.
#[test]
fn an_anchor_of_another_runtime_is_no_excuse_for_an_entry() {
    let (one, two) = (Runtime::new(config()), Runtime::new(config()));
    let (cycles, others) = (one.cycles(), two.cycles());
    let (a, z) = (one.tenant("a", usize::MAX), two.tenant("z", usize::MAX));
    let anchor = |tenant: &Tenant, cycles: &Cycles, number| -> Anchor<String> {
        tenant.enter(|cx| {
            let gc = cx.alloc(text(number)).expect("memory");
            cx.anchor(cycles, gc).expect("its own")
        })
    };
    let (kept, theirs) = (anchor(&a, &cycles, 1), anchor(&z, &others, 2));
    let native = cycles.cc(Native {
        to: Field::new(vec![theirs]),
        next: Field::new(None),
        name: text(3),
    });
    *native.next.borrow_mut() = Some(native.clone());
    drop(native);
    cycles.collect_with(&one, Reason::Asked).expect("at rest");
    overwrite(&a);
    a.enter(|cx| assert_eq!(**kept.open(cx).expect("its own"), text(1)));
    // The cycle is gone, and with it the other runtime's entry.
    assert_eq!((cycles.counts().boxes, z.heap().root_count()), (0, 0));
}

/// The number of its collector went to the next tenant, whose edges its entry then seemed to be.
#[test]
fn an_anchor_is_a_root_longer_than_its_collector_lives() {
    let runtime = Runtime::new(config());
    let a = runtime.tenant("a", usize::MAX);
    let cycles = runtime.cycles();
    let anchor: Anchor<String> = a.enter(|cx| {
        let text = cx.alloc(text(1)).expect("memory");
        cx.anchor(&cycles, text).expect("its own")
    });
    drop(cycles);
    // Some number of these would be the old one.
    let new: Vec<Tenant> = (0..4).map(|_| runtime.tenant("new", usize::MAX)).collect();
    let others = runtime.cycles();
    runtime.collect_all(Reason::Asked).expect("at rest");
    others
        .collect_with(&runtime, Reason::Asked)
        .expect("at rest");
    overwrite(&a);
    a.enter(|cx| assert_eq!(**anchor.open(cx).expect("its own"), text(1)));
    drop((new, anchor));
    assert_eq!(a.heap().root_count(), 0);
}

/// A counted value that an object holds, and that nothing can read any more, is destroyed by the first collection; the
/// second one looked for its pointers.
#[test]
fn a_counted_value_that_is_forgotten_is_dropped_once() {
    object! { struct Holders<'gc> { natives: Locked<Vec<Counted<'gc, Native>>> } }
    type Forget = fn(&Tenant, Cc<Native>) -> Option<Handle<Holders<'static>>>;
    let ways: [Forget; 2] = [
        |tenant, native| {
            tenant.enter(|cx| std::mem::forget(cx.hold(native).expect("its own")));
            None
        },
        |tenant, native| {
            tenant.enter(|cx| {
                let natives = vec![cx.hold(native).expect("its own")];
                let natives = Locked::new(natives);
                let holders = cx.alloc(Holders { natives }).expect("memory");
                std::mem::forget(holders.natives.borrow_mut(cx));
                Some(cx.keep(holders, "holders"))
            })
        },
    ];
    // The first leaves a value for good, which Miri calls a leak.
    for forget in ways.into_iter().skip(usize::from(cfg!(miri))) {
        let runtime = Runtime::new(config());
        let a = runtime.tenant("a", usize::MAX);
        let cycles = runtime.cycles();
        let native = |next, number| {
            cycles.cc(Native {
                to: Field::default(),
                next: Field::new(next),
                name: text(number),
            })
        };
        let kept = forget(&a, native(Some(native(None, 2)), 1));
        for _ in 0..3 {
            cycles
                .collect_with(&runtime, Reason::Asked)
                .expect("at rest");
            // The bytes of what was dropped are others' now.
            std::hint::black_box([0x41u8; 200].map(|byte| vec![byte; 64]));
        }
        assert_eq!((cycles.counts().values, cycles.counts().panics), (0, 0));
        let left = u64::from(kept.is_none());
        drop(kept);
        a.collect().expect("at rest");
        a.shrink();
        assert_eq!(cycles.counts().boxes, left, "one, if no object holds it");
    }
}

#[test]
fn a_guard_that_was_leaked_is_harmless() {
    let leak = |tenant: &Tenant, kept: &Handle<Holder<'static>>| {
        tenant.enter(|cx| {
            let holder = kept.open(cx).expect("its own");
            let new = |number| cx.alloc(text(number)).expect("memory");
            for (list, number) in [(&holder.list, 1), (&*holder.boxed, 2)] {
                let mut guard = list.borrow_mut(cx);
                guard.push(new(number));
                std::mem::forget(guard);
            }
        });
    };
    let harmless = |runtime: &Runtime, tenant: &Tenant, kept: &Handle<Holder<'static>>| {
        tenant.collect().expect("at rest");
        runtime.collect_all(Reason::Asked).expect("at rest");
        tenant.snapshot(&mut std::io::sink()).expect("written");
        let kind = std::any::type_name::<Holder>();
        let paths = tenant.paths(&[Wanted::Nth(kind, 0)]).expect("at rest");
        assert!(paths[0].is_some());
        overwrite(tenant);
        // It stays locked; what only it led to has ended.
        tenant.enter(|cx| {
            let holder = kept.open(cx).expect("its own");
            let read = || drop(holder.list.borrow());
            let read = std::panic::AssertUnwindSafe(read);
            std::panic::catch_unwind(read).expect_err("locked for ever");
            assert!(holder.cross.borrow().is_none());
        });
        tenant.collect().expect("at rest");
        assert_eq!(tenant.heap().holds().objects, 1);
    };
    let runtime = Runtime::new(config());
    let tenant = runtime.tenant("a", usize::MAX);
    let kept = tenant.enter(holder);
    leak(&tenant, &kept);
    harmless(&runtime, &tenant, &kept);
    // During a marking, before and after the holder was traced.
    for traced in [false, true] {
        let kept = tenant.enter(holder);
        assert_eq!(runtime.begin_all(Reason::Asked), Ok(true));
        tenant.enter(|_| while traced && runtime.mark_step(ALL) == Progress::More {});
        leak(&tenant, &kept);
        while runtime.mark_step(ALL) != Progress::Off {}
        drop(kept);
        tenant.collect().expect("at rest");
        assert_eq!(tenant.heap().holds().objects, 1);
    }
}

/// What an object owns outside of its heap is dropped with it, the handle of another runtime's object, too.
#[test]
fn a_handle_dies_in_another_runtimes_finalizer() {
    object! { struct Owner<'gc> { handle: Opaque<Handle<String>>, next: Locked<Option<Gc<'gc, u64>>> } }
    let (one, two) = (Runtime::new(config()), Runtime::new(config()));
    let (a, z) = (one.tenant("a", usize::MAX), two.tenant("z", usize::MAX));
    let text: Handle<String> = z.enter(|cx| cx.keep(cx.alloc(text(1)).expect("memory"), "text"));
    let owner: Handle<Owner<'static>> = a.enter(|cx| {
        let owner = Owner {
            handle: Opaque(text),
            next: Locked::new(None),
        };
        cx.keep(cx.alloc(owner).expect("memory"), "owner")
    });
    z.collect().expect("at rest");
    assert_eq!(z.heap().holds().objects, 1);
    // Its tenant's own handle is gone before its heap is: the finalizer ends the last of it.
    drop(z);
    drop(owner);
    a.collect().expect("at rest");
    a.shrink();
    assert_eq!(two.rows().len(), 1, "the shared heap");
}

/// The spans of the first heap were taken back when the second one's last sweep ran its finalizers: a span that one of
/// these took was in no list when the sweep began, and kept its marks.
#[test]
fn a_finalizer_may_allocate_in_a_heap_that_is_collected_with_its_own() {
    struct Allocates(Rc<Tenant>);
    impl Drop for Allocates {
        fn drop(&mut self) {
            self.0.enter(|cx| drop(holder(cx)));
        }
    }
    let runtime = Runtime::new(config());
    let (a, b) = (
        runtime.tenant("a", usize::MAX),
        runtime.tenant("b", usize::MAX),
    );
    let a = Rc::new(a);
    let kept = a.enter(|cx| {
        let kept = holder(cx);
        let new = cx.alloc(text(1)).expect("memory");
        kept.open(cx)
            .expect("its own")
            .list
            .borrow_mut(cx)
            .push(new);
        kept
    });
    b.enter(|cx| {
        cx.alloc(Opaque(Allocates(a.clone()))).expect("memory");
    });
    // The first finds it, the second sweeps what the first has left, and the third relies on what the second left.
    for _ in 0..3 {
        runtime.collect_all(Reason::Asked).expect("at rest");
    }
    overwrite(&a);
    a.heap().check();
    a.enter(|cx| {
        let holder = kept.open(cx).expect("its own");
        assert_eq!(**holder.list.borrow()[0], text(1));
    });
}

/// What was left to be swept when the graph of counted values was made ran its finalizers before the verdict: a pointer
/// that one of these made was not seen.
#[test]
fn no_finalizer_runs_between_the_graph_of_counted_values_and_the_verdict() {
    between_graph_and_verdict(&config());
    between_graph_and_verdict(&Config {
        sweep_in_pause: true,
        ..config()
    });
}

fn between_graph_and_verdict(config: &Config) {
    thread_local!(static FOUND: RefCell<Option<Cc<Native>>> = const { RefCell::new(None) });
    /// Makes a pointer of a weak one.
    struct Finds(skinflint_gc::cc::Weak<Native>);
    impl Drop for Finds {
        fn drop(&mut self) {
            FOUND.set(self.0.upgrade());
        }
    }
    /// Has another tenant collected, which may leave something to be swept.
    struct Collects(Rc<Tenant>);
    impl Drop for Collects {
        fn drop(&mut self) {
            let _ = self.0.collect();
        }
    }
    let runtime = Runtime::new(config.clone());
    let cycles = runtime.cycles();
    let (a, b) = (
        runtime.tenant("a", usize::MAX),
        runtime.tenant("b", usize::MAX),
    );
    let a = Rc::new(a);
    let native = cycles.cc(Native {
        to: Field::default(),
        next: Field::new(None),
        name: text(2),
    });
    // A native that holds itself, and that an object holds that nothing holds.
    *native.next.borrow_mut() = Some(native.clone());
    let held: Handle<Holds<'static>> = a.enter(|cx| {
        let native = cx.hold(native.clone()).expect("its own");
        cx.keep(cx.alloc(Holds { native }).expect("memory"), "holds")
    });
    let weak = native.downgrade();
    drop(native);
    // The first tenant's garbage is found by a collection that the second one's finalizer asks for.
    b.enter(|cx| {
        cx.alloc(Opaque(Collects(a.clone()))).expect("memory");
    });
    b.collect().expect("at rest");
    a.enter(|cx| {
        cx.alloc(Opaque(Finds(weak))).expect("memory");
    });
    drop(held);
    cycles
        .collect_with(&runtime, Reason::Asked)
        .expect("at rest");
    runtime.shrink();
    if let Some(found) = FOUND.take() {
        assert_eq!(found.name, text(2));
        found.next.borrow_mut().take();
    }
    assert_eq!(cycles.counts().panics, 0);
}
