//! Cycles through counted boxes and objects of tenants.
//!
//! ```text
//!   handle ─► object 1 ─► native 1 ─► native 2 ─► object 2 ─► object 1        cut anywhere, held anywhere
//! ```
//!
//! Not here: boxes alone (`main`).

use std::cell::RefCell;
use std::rc::Rc;

use skinflint_gc::cc::{Anchor, Cc, Counted, Cycles, Field, Weak};
use skinflint_gc::typed::{Gc, Handle, Locked, Opaque, Runtime, Slot};
use skinflint_gc::{Busy, Reason, counted, object};

use super::{Told, config, edges};

counted! {
    struct Native { to: Field<Vec<Anchor<Object<'static>>>>, next: Field<Option<Cc<Native>>>, told: Opaque<Told> }
}

object! {
    struct Object<'gc> {
        native: Locked<Vec<Counted<'gc, Native>>>,
        next: Slot<Gc<'gc, Object<'gc>>>,
        number: u64,
    }
}

/// Object 1 ─► native 1 ─► native 2 ─► object 2 ─► object 1; a handle to object 1, and pointers to the natives.
struct Loop {
    runtime: Runtime,
    cycles: Cycles,
    tenants: [skinflint_gc::typed::Tenant; 2],
    dropped: Rc<RefCell<Vec<u64>>>,
}

impl Loop {
    fn new() -> Loop {
        let runtime = Runtime::new(config());
        let cycles = runtime.cycles();
        let tenants = [("a", usize::MAX), ("b", usize::MAX)].map(|(n, l)| runtime.tenant(n, l));
        Loop {
            runtime,
            cycles,
            tenants,
            dropped: Rc::default(),
        }
    }

    fn native(&self, id: u64) -> Cc<Native> {
        self.cycles.cc(Native {
            to: Field::default(),
            next: Field::new(None),
            told: Opaque(Told {
                id,
                to: self.dropped.clone(),
            }),
        })
    }

    fn make(&self) -> (Handle<Object<'static>>, Cc<Native>) {
        let (first, second) = (self.native(1), self.native(2));
        *first.next.borrow_mut() = Some(second.clone());
        let handle = self.tenants[0].enter(|cx| {
            let object = |number| Object {
                native: Locked::default(),
                next: Slot::new(None),
                number,
            };
            let one = cx.alloc(object(1)).expect("memory");
            let two = cx.alloc(object(2)).expect("memory");
            one.native
                .borrow_mut(cx)
                .push(cx.hold(first).expect("of this runtime"));
            two.next.set(cx, Some(one));
            let anchor = cx.anchor(&self.cycles, two).expect("of this runtime");
            second.to.borrow_mut().push(anchor);
            cx.keep(one, "test")
        });
        (handle, second)
    }

    fn all(&self) -> (usize, u64, usize) {
        let objects = self
            .tenants
            .iter()
            .map(|tenant| tenant.heap().holds().objects);
        (
            objects.sum(),
            self.cycles.counts().boxes,
            self.dropped.borrow().len(),
        )
    }

    fn alone(&self) {
        self.runtime.collect_all(Reason::Asked).expect("at rest");
        self.cycles.collect();
        self.all();
    }

    fn together(&self) {
        self.cycles
            .collect_with(&self.runtime, Reason::Asked)
            .expect("at rest");
        self.all();
    }
}

#[test]
fn a_cycle_through_both_sides_ends_when_they_are_collected_together() {
    let it = Loop::new();
    let (handle, native) = it.make();
    it.together();
    assert_eq!(it.all(), (2, 2, 0), "held by both");
    drop(native);
    it.together();
    assert_eq!(it.all(), (2, 2, 0), "held by a handle");
    it.tenants[0].enter(|cx| {
        let one = handle.open(cx).expect("its own");
        let natives = one.native.borrow();
        let second = natives[0].next.borrow().clone().expect("linked");
        let anchors = second.to.borrow();
        assert_eq!(anchors[0].open(cx).expect("its own").number, 2);
    });
    drop(handle);
    it.alone();
    assert_eq!(it.all(), (2, 2, 0), "each side is held by the other");
    it.together();
    assert_eq!(it.all(), (0, 0, 2));
}

#[test]
fn a_box_that_is_held_twice_and_let_go_once_is_held_still() {
    let it = Loop::new();
    let (handle, native) = it.make();
    drop(native);
    it.tenants[0].enter(|cx| {
        let one = handle.open(cx).expect("its own");
        let again = cx
            .hold(Cc::clone(&one.native.borrow()[0]))
            .expect("of this runtime");
        one.native.borrow_mut(cx).push(again);
        drop(one.native.borrow_mut(cx).pop());
    });
    it.together();
    assert_eq!(it.all(), (2, 2, 0), "held by a handle");
    drop(handle);
    it.together();
    assert_eq!(
        it.all(),
        (0, 0, 2),
        "the cycle is found by the pointer that is left"
    );
}

#[test]
fn whoever_holds_any_part_of_the_cycle_holds_all_of_it() {
    let it = Loop::new();
    let (handle, native) = it.make();
    drop(handle);
    it.together();
    assert_eq!(it.all(), (2, 2, 0), "a native is held");
    // From the object that only the anchor leads to.
    let anchor = native.to.borrow_mut().pop().expect("one");
    drop(native);
    it.together();
    assert_eq!(it.all(), (2, 2, 0), "an anchor on the stack is a root");
    it.tenants[0].enter(|cx| {
        let two = anchor.open(cx).expect("its own");
        assert_eq!((two.number, two.next.get().expect("linked").number), (2, 1));
    });
    it.tenants[1].enter(|cx| assert!(anchor.open(cx).is_err()));
    drop(anchor);
    it.together();
    assert_eq!(it.all(), (0, 0, 2));
}

#[test]
fn an_object_that_lives_keeps_natives_that_lead_to_further_objects() {
    let it = Loop::new();
    let mut keep = Vec::new();
    // A chain across the border: object, native, object, native …
    let mut last: Option<Handle<Object<'static>>> = None;
    for id in 0..20 {
        let native = it.native(id);
        let tenant = &it.tenants[id as usize % 2];
        let next = tenant.enter(|cx| {
            let object = Object {
                native: Locked::default(),
                next: Slot::new(None),
                number: id,
            };
            let object = cx.alloc(object).expect("memory");
            object
                .native
                .borrow_mut(cx)
                .push(cx.hold(native.clone()).expect("of this runtime"));
            cx.keep(object, "test")
        });
        if let Some(last) = last.take() {
            let tenant = &it.tenants[(id as usize + 1) % 2];
            tenant.enter(|cx| {
                let before = last.open(cx).expect("its own");
                let anchor = cx.anchor(&it.cycles, before).expect("ours");
                native.to.borrow_mut().push(anchor);
            });
        }
        last = Some(next);
    }
    keep.extend(last);
    it.together();
    assert_eq!(it.all(), (20, 20, 0));
    keep.clear();
    it.together();
    assert_eq!(it.all(), (0, 0, 20));
}

#[test]
fn a_marking_in_slices_takes_anchors_as_roots() {
    let it = Loop::new();
    let (handle, native) = it.make();
    drop((handle, native));
    // SAFETY: typed objects, written with barriers; it is not used in any other way.
    let heap = unsafe { it.tenants[0].raw_heap() };
    // SAFETY: as above.
    unsafe { heap.begin_marking(Reason::Asked, &mut ()) }.expect("idle");
    it.tenants[0].mark_step(edges(1));
    it.together();
    assert_eq!(it.all(), (0, 0, 2), "the marking was given up");
    let (handle, native) = it.make();
    drop((handle, native));
    // SAFETY: as above.
    unsafe { heap.begin_marking(Reason::Asked, &mut ()) }.expect("idle");
    while it.tenants[0].mark_step(edges(1)) != skinflint_gc::Progress::Off {}
    assert_eq!(it.all(), (2, 2, 2));
    it.together();
    assert_eq!(it.all(), (0, 0, 4));
}

#[test]
fn what_does_not_belong_together_is_refused() {
    let it = Loop::new();
    let other = Loop::new();
    let (handle, native) = it.make();
    let refused = it.cycles.collect_with(&other.runtime, Reason::Asked);
    assert_eq!(refused, Err(Busy::Strangers));
    let refused = Cycles::new().collect_with(&it.runtime, Reason::Asked);
    assert_eq!(refused, Err(Busy::Strangers));
    it.tenants[0].enter(|cx| {
        let refused = it.cycles.collect_with(&it.runtime, Reason::Asked);
        assert_eq!(refused, Err(Busy::Entered));
        let object = handle.open(cx).expect("its own");
        assert!(cx.anchor::<Object<'static>>(&other.cycles, object).is_err());
        assert!(
            cx.anchor::<Object<'static>>(&Cycles::new(), object)
                .is_err()
        );
    });
    drop((handle, native));
    it.together();
    assert_eq!(it.all(), (0, 0, 2));
}

/// Holds a native on at its own end.
struct Late {
    weak: Weak<Native>,
    held: Rc<RefCell<Option<Cc<Native>>>>,
}

impl Drop for Late {
    fn drop(&mut self) {
        *self.held.borrow_mut() = self.weak.upgrade();
    }
}

#[test]
fn a_finalizer_that_is_still_to_run_may_hold_a_cycle_on() {
    let it = Loop::new();
    let (first, second) = (it.native(1), it.native(2));
    *first.next.borrow_mut() = Some(second.clone());
    *second.next.borrow_mut() = Some(first.clone());
    let held = Rc::new(RefCell::new(None));
    it.tenants[0].enter(|cx| {
        let (weak, held) = (first.downgrade(), held.clone());
        cx.alloc(Opaque(Late { weak, held })).expect("memory");
    });
    // Found to be garbage, and not swept yet.
    it.tenants[0].collect().expect("at rest");
    assert!(held.borrow().is_none());
    drop((first, second));
    it.together();
    assert_eq!(it.all(), (0, 2, 0), "held again");
    let one = held.take().expect("its finalizer has run");
    assert_eq!(one.told.0.id, 1);
    drop(one);
    it.together();
    assert_eq!(it.all(), (0, 0, 2));
}
