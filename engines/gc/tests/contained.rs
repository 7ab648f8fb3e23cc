//! A failure in one tenant is an error of that tenant: the others go on.
//!
//! ```text
//!   small: at its limit ─► OutOfMemory, again and again ─┬─ other: allocates, collects, reads what it had
//!          the kernel refuses ─► OutOfMemory             ├─ the shared heap, edges between the two
//!          a finalizer panics ─► counted                 └─ small itself, when there is room again
//! ```
//!
//! S1  Every test ends with the invariants of all heaps checked by brute force.
//!
//! Not here: one refusal after the other (`shrinking`), what finalizers may do (`finalizers`).

use std::time::{Duration, Instant};

use skinflint_gc::typed::{
    CrossEdge, Cx, Ended, Gc, Handle, Locked, OpaqueSend, Runtime, Slot, Tenant,
};
use skinflint_gc::{Config, OutOfMemory, Reason, Shortage, object};

object! {
    struct Node<'gc> { number: u64, next: Slot<Gc<'gc, Node<'gc>>> }
}

object! {
    struct Outside<'gc> { cross: Locked<Option<CrossEdge<'gc, Node<'static>>>> }
}

const LIMIT: usize = if cfg!(miri) { 64 << 10 } else { 1 << 20 };

fn node<'gc>(cx: Cx<'gc>, number: u64) -> Result<Gc<'gc, Node<'gc>>, OutOfMemory> {
    let next = Slot::new(None);
    cx.alloc(Node { number, next })
}

/// Objects in a list, until there is no room.
fn fill(tenant: &Tenant) -> (u64, Handle<Node<'static>>, OutOfMemory) {
    tenant.enter(|cx| {
        let mut last = node(cx, 0).expect("the first");
        for number in 1.. {
            match node(cx, number) {
                Ok(new) => {
                    new.next.set(cx, Some(last));
                    last = new;
                }
                Err(error) => return (number, cx.keep(last, "all"), error),
            }
        }
        unreachable!("the limit is reached before")
    })
}

fn length(tenant: &Tenant, list: &Handle<Node<'static>>) -> u64 {
    tenant.enter(|cx| {
        let mut at = Some(list.open(cx).expect("its own"));
        let mut expected = at.map_or(0, |first| first.number + 1);
        let all = expected;
        while let Some(node) = at {
            expected -= 1;
            assert_eq!(node.number, expected);
            at = node.next.get();
        }
        assert_eq!(expected, 0);
        all
    })
}

fn checked(runtime: &Runtime, tenants: &[&Tenant]) {
    tenants.iter().for_each(|tenant| tenant.heap().check());
    runtime.shared().check();
}

fn config() -> Config {
    Config {
        verify: true,
        poison: true,
        background: false,
        ..Config::default()
    }
}

#[test]
fn a_tenant_at_its_limit_is_alone_with_that() {
    let runtime = Runtime::new(config());
    let small = runtime.tenant("small", LIMIT);
    let other = runtime.tenant("other", usize::MAX);
    let (made, list, error) = fill(&small);
    assert_eq!(
        (error.heap.as_str(), error.shortage),
        ("small", Shortage::Limit)
    );
    assert!(error.held_bytes <= LIMIT);
    let outside: Handle<Outside<'static>> = other.enter(|cx| {
        let outside = cx
            .alloc(Outside {
                cross: Locked::default(),
            })
            .expect("room");
        *outside.cross.borrow_mut(cx) = Some(cx.cross_edge(&list).expect("of this runtime"));
        cx.keep(outside, "outside")
    });
    let mut kept: Vec<Handle<Node<'static>>> = Vec::new();
    for round in 0..if cfg!(miri) { 3 } else { 50 } {
        let refused = small.enter(|cx| node(cx, round).map(|_| ()));
        assert_eq!(refused.expect_err("still full").heap, "small");
        kept.push(other.enter(|cx| cx.keep(node(cx, round).expect("its own room"), "kept")));
        runtime_goes_on(&runtime, &other, round);
    }
    // Full as it is, it can be collected, alone and with the others, and loses nothing.
    small.collect().expect("at rest");
    runtime.collect_all(Reason::Asked).expect("at rest");
    assert_eq!(length(&small, &list), made);
    let numbers = other.enter(|cx| {
        let numbers = kept
            .iter()
            .map(|handle| handle.open(cx).expect("its own").number);
        numbers.eq(0..kept.len() as u64)
    });
    assert!(numbers);
    // What was held goes: there is room again.
    drop((list, outside));
    runtime.collect_all(Reason::Asked).expect("at rest");
    let (again, list, _) = fill(&small);
    assert_eq!(again, made);
    drop(list);
    checked(&runtime, &[&small, &other]);
    assert!(matches!(small.end(), Ok(Ended::Clean)));
    checked(&runtime, &[&other]);
}

fn runtime_goes_on(runtime: &Runtime, other: &Tenant, round: u64) {
    other.enter(|cx| assert_eq!(*cx.alloc_shared(round).expect("shared room"), round));
    if round.is_multiple_of(10) {
        other.collect().expect("at rest");
    }
    runtime.poll();
}

#[test]
#[cfg(not(miri))]
fn a_tenant_that_the_kernel_refuses_is_alone_with_that() {
    use skinflint_pages::os::faults;
    let runtime = Runtime::new(config());
    let (a, b) = (
        runtime.tenant("a", usize::MAX),
        runtime.tenant("b", usize::MAX),
    );
    // Both have a chunk of their own, with room in b's.
    let mut kept = vec![b.enter(|cx| cx.keep(node(cx, 0).expect("memory"), "kept"))];
    faults::arm(1, faults::FOR_EVER);
    let (made, list, error) = fill(&a);
    assert_eq!(
        (error.heap.as_str(), error.shortage),
        ("a", Shortage::System)
    );
    for number in 1..200 {
        kept.push(b.enter(|cx| cx.keep(node(cx, number).expect("room of its own"), "kept")));
    }
    b.collect().expect("at rest");
    a.collect().expect("at rest");
    assert_eq!(length(&a, &list), made);
    assert!(faults::disarm() > 1, "somebody was refused");
    let more = a.enter(|cx| node(cx, 1).map(|node| node.number));
    assert_eq!(more, Ok(1), "memory is there again");
    let number = |cx: Cx<'_>, handle: &Handle<Node<'static>>| handle.open(cx).expect("b's").number;
    let sum: u64 = b.enter(|cx| kept.iter().map(|handle| number(cx, handle)).sum());
    assert_eq!(sum, 199 * 200 / 2);
    checked(&runtime, &[&a, &b]);
}

struct Panics(u32);

impl Drop for Panics {
    fn drop(&mut self) {
        assert!(self.0 % 10 != 3, "this one does not end well: {}", self.0);
    }
}

#[test]
fn a_panic_on_the_sweepers_thread_is_that_tenants_and_the_sweeper_goes_on() {
    let runtime = Runtime::default();
    let (a, b) = (
        runtime.tenant("a", usize::MAX),
        runtime.tenant("b", usize::MAX),
    );
    std::panic::set_hook(Box::new(|_| ()));
    let count = if cfg!(miri) { 50 } else { 5000 };
    for tenant in [&a, &b] {
        tenant.enter(|cx| {
            for number in 0..count {
                let number = if std::ptr::eq(tenant, &a) { number } else { 0 };
                cx.alloc(OpaqueSend(Panics(number))).expect("memory");
            }
        });
        tenant.collect().expect("at rest");
        // The sweeper gets the time to have some.
        let until = Instant::now() + Duration::from_secs(20);
        while !tenant.poll() && Instant::now() < until {
            if tenant.heap().sweep_counts().background_cells > 0 {
                break;
            }
            std::thread::yield_now();
        }
        checked(&runtime, &[&a, &b]);
    }
    let _ = std::panic::take_hook();
    let (of_a, of_b) = (a.heap().sweep_counts(), b.heap().sweep_counts());
    assert!(
        of_a.background_cells > 0 && of_b.background_cells > 0,
        "{of_a:?}, {of_b:?}"
    );
    let expected = (u64::from(count), u64::from(count / 10));
    assert_eq!((of_a.finalized, of_a.panics), expected);
    assert_eq!((of_b.finalized, of_b.panics), (u64::from(count), 0));
    assert!(of_a.faults[0].message.contains("does not end well"));
}

/// An ended tenant `a` of which an object of `b` holds the last of two, and whether `b` holds that one.
fn held_by_another(runtime: &Runtime, kept: bool) -> (Tenant, Option<Handle<Outside<'static>>>) {
    let (a, b) = (
        runtime.tenant("a", usize::MAX),
        runtime.tenant("b", usize::MAX),
    );
    let first = a.enter(|cx| {
        let (first, second) = (node(cx, 1).expect("room"), node(cx, 2).expect("room"));
        first.next.set(cx, Some(second));
        cx.keep(first, "for a moment")
    });
    let holder: Handle<Outside<'static>> = b.enter(|cx| {
        let cross = Locked::new(Some(cx.cross_edge(&first).expect("of this runtime")));
        // Of the kind that is left in `a`, and nearer to a root.
        let decoy: Handle<Node<'static>> = cx.keep(node(cx, 3).expect("room"), "another");
        std::mem::forget(decoy);
        cx.keep(cx.alloc(Outside { cross }).expect("room"), "b's holder")
    });
    drop(first);
    let holder = Some(holder).filter(|_| kept);
    let Ok(Ended::Zombie(left)) = a.end() else {
        panic!("b holds it");
    };
    assert_eq!((left.len(), left[0].objects), (1, 2));
    let path = left[0].path.as_ref().expect("found");
    let heaps: Vec<&str> = path.steps.iter().map(|step| step.heap.as_str()).collect();
    if kept {
        assert_eq!(path.root, "handle \"b's holder\"", "{path}");
        assert_eq!(heaps, ["b", "a"], "{path}");
        assert_eq!(path.steps[1].edge, "cross");
    } else {
        // Garbage of b's holds it: no root leads there, so the edge is all that can be said.
        assert_eq!(
            (path.root.as_str(), heaps),
            ("an edge from heap \"b\"", vec!["a"])
        );
    }
    (b, holder)
}

#[test]
fn a_zombies_path_begins_where_the_program_holds_it() {
    let runtime = Runtime::new(config());
    let (_b, holder) = held_by_another(&runtime, true);
    drop(holder);
    let runtime = Runtime::new(config());
    let (b, _) = held_by_another(&runtime, false);
    // While a closure of another tenant runs, its heap cannot be walked: the edge again.
    let a = runtime.tenant("a", usize::MAX);
    let handle = a.enter(|cx| cx.keep::<Node<'static>>(node(cx, 1).expect("room"), "held"));
    b.enter(|_| assert!(matches!(a.end(), Ok(Ended::Zombie(left)) if left[0].path.is_some())));
    drop(handle);
}
