//! Finalizers that use the runtime in the middle of a collection that they are a part of.
//!
//! ```text
//!   collect ─► what the last one left is swept ─► graph, roots, marking ─► swept within the pause, if it is set so
//!                       ▲ finalizers                                                 ▲ finalizers
//! ```
//!
//! Each test is a program that broke memory before what it is named after was so.
//!
//! Not here: finalizers that call at random (`calling`).

use std::cell::RefCell;
use std::rc::Rc;

use skinflint_gc::cc::{Anchor, Cc, Counted, Cycles, Field};
use skinflint_gc::typed::{Handle, Locked, Opaque, Runtime, Slot, Sys, Tenant};
use skinflint_gc::{Budget, Config, Progress, Reason, counted, object};

use super::{ALL, config, overwrite, text};

/// Runs a closure when it is dropped.
struct Last<F: FnMut()>(F);

impl<F: FnMut()> Drop for Last<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Makes garbage of the tenant that runs `act` when it is swept.
fn at_its_end(tenant: &Tenant, act: impl FnMut() + 'static) {
    tenant.enter(|cx| {
        cx.alloc(Opaque(Last(act))).expect("memory");
    });
}

fn in_the_pause() -> Config {
    Config {
        sweep_in_pause: true,
        ..config()
    }
}

fn tenant(runtime: &Runtime, name: &str) -> Rc<Tenant> {
    Rc::new(runtime.tenant(name, usize::MAX))
}

/// Handles that a finalizer makes.
type Kept<T> = Rc<RefCell<Vec<T>>>;

/// The second heap had its marks, and its arenas were not handed over yet: what was allocated in them had no mark, and
/// was swept.
#[test]
fn what_a_finalizer_allocates_within_the_pause_is_kept() {
    let runtime = Runtime::new(in_the_pause());
    let (a, b) = (tenant(&runtime, "a"), tenant(&runtime, "b"));
    let kept: Kept<Handle<String>> = Kept::default();
    b.enter(|cx| {
        let old = cx.alloc(text(0)).expect("memory");
        kept.borrow_mut().push(cx.keep(old, "old"));
    });
    let (own, others) = (kept.clone(), b.clone());
    at_its_end(&a, move || {
        others.enter(|cx| {
            for number in 1..300 {
                let new = cx.alloc(text(number)).expect("memory");
                own.borrow_mut().push(cx.keep(new, "new"));
            }
        });
    });
    runtime.collect_all(Reason::Asked).expect("at rest");
    assert_eq!(kept.borrow().len(), 300);
    overwrite(&b);
    b.heap().check();
    b.enter(|cx| {
        for (number, handle) in (0..).zip(kept.borrow().iter()) {
            assert_eq!(**handle.open(cx).expect("its own"), text(number));
        }
    });
}

object! { struct Named<'gc> { name: Slot<Sys<'gc, String>> } }

type New = (Tenant, Handle<Named<'static>>);

/// What is swept first may make a tenant, whose edges into the shared heap have no entries: it was not of the set.
#[test]
fn a_tenant_that_a_finalizer_makes_is_collected_with_the_shared_heap() {
    let ways: [fn(&Runtime, &Cycles); 4] = [
        |runtime, _| runtime.collect_all(Reason::Asked).expect("at rest"),
        |runtime, cycles| {
            cycles
                .collect_with(runtime, Reason::Asked)
                .expect("at rest")
        },
        |runtime, _| {
            while !runtime.begin_all(Reason::Asked).expect("at rest") {}
            while runtime.mark_step(ALL) != Progress::Off {}
        },
        |runtime, _| drop(runtime.pressure(skinflint_gc::Pressure::Critical)),
    ];
    for collect in ways {
        let runtime = Rc::new(Runtime::new(config()));
        let cycles = runtime.cycles();
        let a = tenant(&runtime, "a");
        let new: Kept<New> = Kept::default();
        let (own, makes) = (new.clone(), runtime.clone());
        at_its_end(&a, move || {
            let tenant = makes.tenant("new", usize::MAX);
            let named = tenant.enter(|cx| {
                let name = cx.alloc_shared(text(1)).expect("memory");
                let name = Slot::new(Some(name));
                cx.keep(cx.alloc(Named { name }).expect("memory"), "named")
            });
            own.borrow_mut().push((tenant, named));
        });
        a.collect().expect("at rest");
        collect(&runtime, &cycles);
        let new = new.borrow();
        let (tenant, named) = &new[0];
        runtime.shrink();
        tenant.enter(|cx| {
            for number in 0..300 {
                let _ = cx.alloc_shared(text(number + 1000)).expect("memory");
            }
            let named = named.open(cx).expect("its own");
            assert_eq!(**named.name.get().expect("it has one"), text(1));
        });
    }
}

/// A finalizer that makes a tenant each time, with another such in it, has the collection refused: it would not end.
#[test]
#[cfg_attr(miri, ignore = "each tenant has megabytes of its own")]
fn finalizers_that_always_make_another_tenant_do_not_keep_a_collection_for_ever() {
    const MOST: usize = 100;
    fn again(runtime: &Rc<Runtime>, kept: &Kept<Tenant>) {
        let tenant = runtime.tenant("another", usize::MAX);
        let (next, all) = (runtime.clone(), kept.clone());
        at_its_end(&tenant, move || {
            if all.borrow().len() < MOST {
                again(&next, &all);
            }
        });
        tenant.collect().expect("it is new");
        kept.borrow_mut().push(tenant);
    }
    let runtime = Rc::new(Runtime::new(config()));
    let kept = Kept::default();
    again(&runtime, &kept);
    assert!(runtime.collect_all(Reason::Asked).is_err());
    while runtime.collect_all(Reason::Asked).is_err() {}
    assert_eq!(kept.borrow().len(), MOST);
    runtime.rows();
}

counted! { struct Node { next: Field<Vec<Cc<Node>>>, to: Field<Vec<Anchor<String>>> } }

object! { struct Holder<'gc> { nodes: Locked<Vec<Counted<'gc, Node>>> } }

fn node(cycles: &Cycles) -> Cc<Node> {
    cycles.cc(Node {
        next: Field::default(),
        to: Field::default(),
    })
}

fn ring(cycles: &Cycles) {
    let node = node(cycles);
    node.next.borrow_mut().push(node.clone());
}

/// The finalizer's slice made nodes of its own, and the anchors of the graph were those of other nodes.
#[test]
fn a_finalizer_has_no_slice_of_cycles_done_while_they_are_collected_with_heaps() {
    let calls: [fn(&Cycles); 3] = [
        |cycles| {
            let budget = Budget {
                edges: 1,
                ns: u64::MAX,
            };
            assert!(!cycles.step(budget), "it is collected");
        },
        |cycles| assert_eq!(cycles.collect(), 0),
        |cycles| (0..200).for_each(|_| ring(cycles)),
    ];
    for config in [config(), in_the_pause()] {
        for call in calls {
            let runtime = Runtime::new(config.clone());
            let a = tenant(&runtime, "a");
            let cycles = Rc::new(runtime.cycles());
            let first = node(&cycles);
            let holder: Handle<Holder<'static>> = a.enter(|cx| {
                let told = cx.alloc(text(1)).expect("memory");
                let told = cx.anchor(&cycles, told).expect("its own");
                first.to.borrow_mut().push(told);
                let nodes = vec![cx.hold(first.clone()).expect("its own")];
                let nodes = Locked::new(nodes);
                cx.keep(cx.alloc(Holder { nodes }).expect("memory"), "holder")
            });
            let (own, mut first) = (cycles.clone(), Some(first));
            at_its_end(&a, move || {
                (0..8).for_each(|_| ring(&own));
                call(&own);
                (0..30).for_each(|_| ring(&own));
                first.take();
            });
            if !config.sweep_in_pause {
                a.collect().expect("at rest");
            }
            cycles
                .collect_with(&runtime, Reason::Asked)
                .expect("at rest");
            overwrite(&a);
            a.enter(|cx| {
                let holder = holder.open(cx).expect("its own");
                let nodes = holder.nodes.borrow();
                let to = nodes[0].to.borrow();
                assert_eq!(**to[0].open(cx).expect("its own"), text(1));
            });
            drop(holder);
            for _ in 0..2 {
                cycles
                    .collect_with(&runtime, Reason::Asked)
                    .expect("at rest");
            }
            assert_eq!(cycles.counts().boxes, 0);
        }
    }
}

/// Anchors were no roots until the pause was over: an object of a heap that was made within it ended.
#[test]
fn an_anchor_that_a_finalizer_makes_within_the_pause_is_a_root() {
    let runtime = Rc::new(Runtime::new(in_the_pause()));
    let a = tenant(&runtime, "a");
    let cycles = Rc::new(runtime.cycles());
    let new: Kept<(Tenant, Anchor<String>)> = Kept::default();
    let (own, makes, counted) = (new.clone(), runtime.clone(), cycles.clone());
    at_its_end(&a, move || {
        let tenant = makes.tenant("new", usize::MAX);
        let anchor = tenant.enter(|cx| {
            let text = cx.alloc(text(1)).expect("memory");
            cx.anchor(&counted, text).expect("its own")
        });
        tenant.collect().expect("it is new");
        own.borrow_mut().push((tenant, anchor));
    });
    cycles
        .collect_with(&runtime, Reason::Asked)
        .expect("at rest");
    let new = new.borrow();
    let (tenant, anchor) = &new[0];
    overwrite(tenant);
    tenant.enter(|cx| assert_eq!(**anchor.open(cx).expect("its own"), text(1)));
}
