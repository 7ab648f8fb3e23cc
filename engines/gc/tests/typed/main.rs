//! The safe side: tenants, handles, weak pointers, shortage, reasons.
//!
//! ```text
//!   Runtime ─ Tenant ─ enter ─ Cx ─ Gc … ─► what lives, what ends, on which thread, and what the log says
//! ```
//!
//! S1  Every test ends with the invariants checked by brute force.
//!
//! Not here: when heaps are collected and where cells lie (`pacing`), what must not compile (documentation of
//! `typed`), random graphs (`graph`), ends of objects (`finalizers`).

mod pacing;
mod parameters;

use std::thread;

use skinflint_gc::typed::{
    CrossEdge, Cx, Ended, Gc, Handle, Locked, Runtime, Slot, Sys, Tenant, Weak,
};
use skinflint_gc::{Busy, Config, Growth, Reason, Shortage, object};

object! {
    /// An object like those of a language.
    pub struct Node<'gc> {
        next: Slot<Gc<'gc, Node<'gc>>>,
        other: Locked<Vec<Gc<'gc, Node<'gc>>>>,
        weak: Option<Weak<'gc, Node<'gc>>>,
        name: Option<Sys<'gc, String>>,
        number: u64,
    }
}

object! {
    struct Link<'gc> {
        next: Option<Gc<'gc, Link<'gc>>>,
        number: u64,
    }
}

object! {
    struct Outside<'gc> {
        cross: CrossEdge<'gc, Node<'static>>,
        own: Slot<Gc<'gc, Outside<'gc>>>,
    }
}

fn node<'gc>(cx: Cx<'gc>, number: u64) -> Gc<'gc, Node<'gc>> {
    cx.alloc(Node {
        next: Slot::new(None),
        other: Locked::default(),
        weak: None,
        name: None,
        number,
    })
    .expect("memory")
}

/// Allocates nodes that nothing keeps.
fn nodes(cx: Cx<'_>, number: u64) {
    node(cx, number);
}

fn checked(runtime: &Runtime) {
    runtime
        .collect_all(Reason::Asked)
        .expect("no tenant is busy");
    for row in runtime.rows() {
        assert!(row.holds.held_bytes >= row.holds.cell_bytes, "{row:?}");
    }
    runtime.shared().check();
}

fn quiet() -> Config {
    Config {
        background: false,
        verify: true,
        poison: true,
        ..Config::default()
    }
}

fn objects(tenant: &Tenant) -> usize {
    tenant.heap().check();
    tenant.heap().holds().objects
}

#[test]
fn handles_keep_and_their_ends_let_go() {
    let runtime = Runtime::new(quiet());
    let tenant = runtime.tenant("a", usize::MAX);
    let handle: Handle<Node<'static>> = tenant.enter(|cx| {
        let (first, second) = (node(cx, 1), node(cx, 2));
        first.next.set(cx, Some(second));
        second.next.set(cx, Some(first));
        second.other.borrow_mut(cx).push(node(cx, 3));
        node(cx, 4);
        cx.keep(first, "test")
    });
    tenant.collect().unwrap();
    assert_eq!(objects(&tenant), 3);
    tenant.enter(|cx| {
        let second = handle.open(cx).unwrap().next.get().unwrap();
        assert_eq!(second.other.borrow()[0].number, 3);
        assert!(second.next.get().unwrap().is(handle.open(cx).unwrap()));
    });
    let again = handle.clone();
    drop(handle);
    tenant.collect().unwrap();
    assert_eq!(objects(&tenant), 3);
    drop(again);
    tenant.collect().unwrap();
    assert_eq!(objects(&tenant), 0);
    checked(&runtime);
}

#[test]
fn a_collection_within_a_closure_is_refused() {
    let runtime = Runtime::new(quiet());
    let (a, b) = (
        runtime.tenant("a", usize::MAX),
        runtime.tenant("b", usize::MAX),
    );
    a.enter(|cx| {
        let one = node(cx, 1);
        assert_eq!(a.collect(), Err(Busy::Entered));
        assert_eq!(runtime.collect_all(Reason::Asked), Err(Busy::Entered));
        b.collect().expect("b is not entered");
        a.enter(|_| ());
        assert_eq!(a.collect(), Err(Busy::Entered), "still in the outer one");
        assert_eq!(one.number, 1);
    });
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        a.enter(|_| panic!("in a closure"));
    }));
    assert!(caught.is_err());
    a.collect().expect("a closure that panicked has ended");
    checked(&runtime);
}

#[test]
fn weak_pointers_are_emptied_by_the_collection_that_does_not_reach() {
    let runtime = Runtime::new(quiet());
    let tenant = runtime.tenant("a", usize::MAX);
    let (holder, target) = tenant.enter(|cx| {
        let target = node(cx, 7);
        let holder = cx
            .alloc(Node {
                next: Slot::new(None),
                other: Locked::default(),
                weak: Some(Weak::to(target)),
                name: None,
                number: 0,
            })
            .unwrap();
        (
            cx.keep::<Node>(holder, "holder"),
            cx.keep::<Node>(target, "target"),
        )
    });
    let led = |tenant: &Tenant| {
        tenant.enter(|cx| {
            let holder = holder.open(cx).unwrap();
            holder.weak.as_ref().unwrap().get().map(|gc| gc.number)
        })
    };
    tenant.collect().unwrap();
    assert_eq!(led(&tenant), Some(7));
    drop(target);
    assert_eq!(led(&tenant), Some(7), "nothing was collected yet");
    tenant.collect().unwrap();
    assert_eq!(led(&tenant), None);
    assert_eq!(objects(&tenant), 1);
}

#[test]
fn ten_million_nodes_in_a_row() {
    let count: u64 = if cfg!(miri) { 400 } else { 10_000_000 };
    let runtime = Runtime::new(Config {
        growth: Growth::SPIDERMONKEY,
        ..Config::default()
    });
    let tenant = runtime.tenant("list", usize::MAX);
    let handle: Handle<Link<'static>> = tenant.enter(|cx| {
        let mut head = cx
            .alloc(Link {
                next: None,
                number: 0,
            })
            .unwrap();
        for number in 1..count {
            head = cx
                .alloc(Link {
                    next: Some(head),
                    number,
                })
                .unwrap();
        }
        cx.keep(head, "list")
    });
    // A stack that a recursive marking would overflow at once.
    tenant.collect().unwrap();
    let last = *tenant.heap().log().last().unwrap();
    assert_eq!(last.live_cells, count);
    assert_eq!(last.overflows, 0);
    let length = tenant.enter(|cx| {
        let mut sum = 0;
        let mut at = Some(handle.open(cx).unwrap());
        while let Some(link) = at {
            sum += link.number;
            at = link.next;
        }
        sum
    });
    assert_eq!(length, count * (count - 1) / 2);
    drop(handle);
    tenant.collect().unwrap();
    assert_eq!(objects(&tenant), 0);
    tenant.shrink();
    assert_eq!(tenant.heap().holds().held_bytes, 0);
}

#[test]
fn an_array_of_a_million_overflows_the_mark_stack_and_is_marked() {
    let count = if cfg!(miri) { 300 } else { 1_000_000 };
    let runtime = Runtime::new(Config {
        mark_stack: Some(100),
        ..Config::default()
    });
    let tenant = runtime.tenant("array", usize::MAX);
    let handle: Handle<Node<'static>> = tenant.enter(|cx| {
        let array = node(cx, 0);
        let more = (0..count).map(|number| node(cx, number));
        let more: Vec<_> = more.collect();
        array.other.borrow_mut(cx).extend(more);
        cx.keep(array, "array")
    });
    tenant.collect().unwrap();
    let last = *tenant.heap().log().last().unwrap();
    assert_eq!(last.live_cells, count + 1);
    assert!(last.overflows > 0);
    tenant.enter(|cx| {
        let array = handle.open(cx).unwrap();
        let numbers = array.other.borrow();
        assert!(
            numbers
                .iter()
                .zip(0..)
                .all(|(node, number)| node.number == number)
        );
    });
}

#[test]
#[cfg(not(miri))]
fn shortage_is_the_error_of_one_tenant() {
    let runtime = Runtime::new(quiet());
    let small = runtime.tenant("small", 2 << 20);
    let other = runtime.tenant("other", usize::MAX);
    let mut made = 0;
    let error = small.enter(|cx| {
        let mut last = None;
        loop {
            match cx.alloc(Link {
                next: last,
                number: made,
            }) {
                Ok(link) => last = Some(link),
                Err(error) => return error,
            }
            made += 1;
        }
    });
    assert_eq!(
        (error.heap.as_str(), error.shortage),
        ("small", Shortage::Limit)
    );
    assert!(error.held_bytes <= 2 << 20 && made > 100_000, "{error}");
    assert!(
        error.to_string().contains("its limit is reached"),
        "{error}"
    );
    other.enter(|cx| nodes(cx, 1));
    small.collect().unwrap();
    small.enter(|cx| {
        for number in 0..made {
            cx.alloc(Link { next: None, number })
                .expect("there is room again");
        }
    });
    checked(&runtime);
}

#[test]
fn an_object_larger_than_the_limit_is_refused() {
    const BYTES: usize = 3 << 20;
    let body = || {
        let runtime = Runtime::new(quiet());
        let small = runtime.tenant("small", 2 << 20);
        let error = small.enter(|cx| cx.alloc([0u8; BYTES]).err());
        let error = error.expect("too large");
        assert_eq!((error.shortage, error.bytes), (Shortage::Limit, BYTES));
        small.set_limit(BYTES);
        assert!(
            small.enter(|cx| cx.alloc([0u8; BYTES]).is_err()),
            "its head is held, too"
        );
        small.set_limit(BYTES + (64 << 10));
        let value = small.enter(|cx| cx.alloc([7u8; BYTES]).map(|object| object[BYTES - 1]));
        assert_eq!(value, Ok(7));
        small.collect().unwrap();
        assert_eq!(objects(&small), 0);
        small.shrink();
        assert_eq!(runtime.source().counts().taken, 0);
    };
    // The value passes over the stack.
    let thread = thread::Builder::new().stack_size(64 << 20).spawn(body);
    thread.unwrap().join().unwrap();
}

#[test]
fn tenants_share_system_objects_and_nothing_else() {
    let runtime = Runtime::new(quiet());
    let (a, b) = (
        runtime.tenant("a", usize::MAX),
        runtime.tenant("b", usize::MAX),
    );
    let word: Handle<String> =
        a.enter(|cx| cx.keep_shared(cx.alloc_shared("length".to_owned()).unwrap(), "atoms"));
    let holds = |tenant: &Tenant| {
        tenant.enter(|cx| {
            let one = cx
                .alloc(Node {
                    next: Slot::new(None),
                    other: Locked::default(),
                    weak: None,
                    name: word.open_shared(cx).ok(),
                    number: 1,
                })
                .unwrap();
            assert!(word.open(cx).is_err(), "it is not the tenant's");
            cx.keep::<Node>(one, "holds a word")
        })
    };
    let (in_a, in_b) = (holds(&a), holds(&b));
    assert!(b.enter(|cx| in_a.open(cx).is_err()), "a's handle in b");
    drop(word);
    a.collect().unwrap();
    runtime.collect_all(Reason::Asked).unwrap();
    assert_eq!(
        runtime.shared().holds().objects,
        1,
        "held by objects of both"
    );
    drop(in_a);
    runtime.collect_all(Reason::Asked).unwrap();
    b.enter(|cx| {
        let name = in_b.open(cx).unwrap().name.unwrap();
        assert_eq!(*name, "length");
    });
    drop(in_b);
    runtime.collect_all(Reason::Asked).unwrap();
    assert_eq!(runtime.shared().holds().objects, 0);
    checked(&runtime);
}

fn outside<'gc>(cx: Cx<'gc>, to: &Handle<Node<'static>>) -> Gc<'gc, Outside<'gc>> {
    cx.alloc(Outside {
        cross: cx.cross_edge(to).expect("of this runtime"),
        own: Slot::new(None),
    })
    .unwrap()
}

#[test]
fn an_edge_between_tenants_keeps_alive_until_its_object_ends() {
    let runtime = Runtime::new(quiet());
    let (a, b) = (
        runtime.tenant("a", usize::MAX),
        runtime.tenant("b", usize::MAX),
    );
    let target: Handle<Node> = b.enter(|cx| cx.keep(node(cx, 42), "target"));
    let from = a.enter(|cx| cx.keep::<Outside>(outside(cx, &target), "from"));
    drop(target);
    b.collect().unwrap();
    assert_eq!(objects(&b), 1, "an object of a leads to it");
    a.enter(|in_a| {
        b.enter(|in_b| {
            let object = from.open(in_a).unwrap();
            assert_eq!(object.cross.open(in_b).unwrap().number, 42);
            assert!(object.cross.open(in_a).is_err());
        });
    });
    drop(from);
    b.collect().unwrap();
    assert_eq!(objects(&b), 1, "a was not collected yet");
    a.collect().unwrap();
    assert_eq!(objects(&a), 0);
    b.collect().unwrap();
    assert_eq!(objects(&b), 0);
    checked(&runtime);
}

object! {
    struct Knot<'gc> { cross: Slot2<'gc>, number: u64 }
}

/// A cross edge that is set later, for cycles.
type Slot2<'gc> = Locked<Option<CrossEdge<'gc, Knot<'static>>>>;

#[test]
fn a_cycle_through_two_tenants_goes_when_both_are_collected() {
    let runtime = Runtime::new(quiet());
    let (a, b) = (
        runtime.tenant("a", usize::MAX),
        runtime.tenant("b", usize::MAX),
    );
    let knot = |tenant: &Tenant| -> Handle<Knot<'static>> {
        tenant.enter(|cx| {
            let knot = Knot {
                cross: Locked::default(),
                number: 1,
            };
            cx.keep(cx.alloc(knot).unwrap(), "knot")
        })
    };
    let (in_a, in_b) = (knot(&a), knot(&b));
    a.enter(|cx| {
        *in_a.open(cx).unwrap().cross.borrow_mut(cx) =
            Some(cx.cross_edge(&in_b).expect("of this runtime"))
    });
    b.enter(|cx| {
        *in_b.open(cx).unwrap().cross.borrow_mut(cx) =
            Some(cx.cross_edge(&in_a).expect("of this runtime"))
    });
    assert_eq!(a.enter(|cx| in_a.open(cx).unwrap().number), 1);
    drop((in_a, in_b));
    a.collect().unwrap();
    b.collect().unwrap();
    assert_eq!((objects(&a), objects(&b)), (1, 1), "each holds the other");
    runtime.collect_all(Reason::Asked).unwrap();
    assert_eq!((objects(&a), objects(&b)), (0, 0));
    assert_eq!((a.heap().root_count(), b.heap().root_count()), (0, 0));
    checked(&runtime);
}

#[test]
fn a_tenants_end_is_clean_or_says_what_holds_it() {
    let runtime = Runtime::new(quiet());
    let (a, b) = (
        runtime.tenant("a", usize::MAX),
        runtime.tenant("b", usize::MAX),
    );
    let clean = runtime.tenant("clean", usize::MAX);
    clean.enter(|cx| (0..if cfg!(miri) { 50 } else { 1000 }).for_each(|number| nodes(cx, number)));
    assert!(matches!(clean.end(), Ok(Ended::Clean)));

    let target: Handle<Node> = b.enter(|cx| {
        let (first, second) = (node(cx, 1), node(cx, 2));
        first.next.set(cx, Some(second));
        cx.keep(first, "listener")
    });
    let holder = a.enter(|cx| cx.keep::<Outside>(outside(cx, &target), "holder"));
    let Ok(Ended::Zombie(left)) = b.end() else {
        panic!("two objects are held");
    };
    assert_eq!(left.len(), 1);
    assert_eq!((left[0].objects, left[0].kind.contains("Node")), (2, true));
    let path = left[0].path.as_ref().unwrap();
    assert_eq!(path.root, "handle \"listener\"");
    assert_eq!(path.steps.len(), 1);
    let names = |runtime: &Runtime| {
        runtime
            .rows()
            .into_iter()
            .map(|row| row.name)
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&runtime), ["shared", "a", "b"], "a zombie has a row");
    drop(target);
    runtime.collect_all(Reason::Asked).unwrap();
    assert_eq!(
        runtime.rows()[2].holds.objects,
        2,
        "an object of a holds it"
    );
    drop(holder);
    a.collect().unwrap();
    assert_eq!(objects(&a), 0);
    assert_eq!(names(&runtime), ["shared", "a"]);
    checked(&runtime);
}
