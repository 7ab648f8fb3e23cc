//! Finalizers that use the runtime in the middle of a collection that they are a part of.
//!
//! ```text
//!   collect ─► what the last one left is swept ─► graph, roots, marking ─► swept within the pause, if it is set so
//!                       ▲ finalizers                                                 ▲ finalizers
//! ```
//!
//! Each test is a program that broke memory before what it is named after was so.

use std::cell::RefCell;
use std::rc::Rc;

use skinflint_gc::cc::Anchor;
use skinflint_gc::typed::{Handle, Opaque, Runtime, Tenant};
use skinflint_gc::{Config, Reason};

use super::{config, overwrite, text};

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
