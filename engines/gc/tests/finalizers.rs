//! Ends of objects: the thread that runs finalizers, finalizers that panic, and finalizers that use their heap.
//!
//! ```text
//!   Opaque ─► the mutator        OpaqueSend ─► the mutator or the sweeper        drop ─► once
//! ```
//!
//! S1  Every test ends with the invariants checked by brute force.
//!
//! Not here: contents and counts of random graphs (`graph`).

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, ThreadId};

use skinflint_gc::typed::{Opaque, OpaqueSend, Runtime, Tenant};
use skinflint_gc::{Busy, Config, Finalize, Heap, Kind, Origin, World};

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

/// Says where and how often it ended.
struct Ends(Arc<AtomicU32>, Arc<std::sync::Mutex<Vec<ThreadId>>>);

impl Drop for Ends {
    fn drop(&mut self) {
        // ORDER: counts; the threads that count have ended or handed over by a lock when it is read.
        self.0.fetch_add(1, Ordering::Relaxed);
        self.1.lock().unwrap().push(thread::current().id());
    }
}

#[test]
fn each_ends_once_and_on_a_thread_that_may() {
    let runtime = Runtime::default();
    let tenant = runtime.tenant("a", usize::MAX);
    let (any, own) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let threads = Arc::new(std::sync::Mutex::new(Vec::new()));
    let here = Arc::new(std::sync::Mutex::new(Vec::new()));
    let count = if cfg!(miri) { 100 } else { 20_000 };
    tenant.enter(|cx| {
        for _ in 0..count {
            cx.alloc(OpaqueSend(Ends(any.clone(), threads.clone())))
                .unwrap();
            cx.alloc(Opaque(Ends(own.clone(), here.clone()))).unwrap();
        }
    });
    tenant.collect().unwrap();
    // The sweeper gets the time to have some.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !tenant.poll() && std::time::Instant::now() < until {
        // ORDER: as above.
        if any.load(Ordering::Relaxed) == count as u32 {
            break;
        }
        thread::yield_now();
    }
    assert_eq!(objects(&tenant), 0);
    // ORDER: as above; everything was swept, under the hand-over's lock.
    assert_eq!(any.load(Ordering::Relaxed), count as u32);
    // ORDER: as above.
    assert_eq!(own.load(Ordering::Relaxed), count as u32);
    let me = thread::current().id();
    assert!(
        here.lock().unwrap().iter().all(|&id| id == me),
        "the mutator's"
    );
    let elsewhere = threads
        .lock()
        .unwrap()
        .iter()
        .filter(|&&id| id != me)
        .count();
    assert!(elsewhere > 0, "the sweeper has ended none");
    let counts = tenant.heap().sweep_counts();
    assert_eq!(counts.finalized, 2 * count as u64);
    assert_eq!(counts.background_cells as usize, elsewhere);
}

struct Panics(u32);

impl Drop for Panics {
    fn drop(&mut self) {
        assert!(self.0 % 10 != 3, "this one does not end well: {}", self.0);
    }
}

#[test]
fn a_panic_of_a_finalizer_is_contained_and_reported() {
    let runtime = Runtime::new(quiet());
    let tenant = runtime.tenant("a", usize::MAX);
    std::panic::set_hook(Box::new(|_| ()));
    tenant.enter(|cx| {
        for number in 0..100 {
            cx.alloc(Opaque(Panics(number))).unwrap();
            cx.alloc(OpaqueSend(Panics(number))).unwrap();
        }
    });
    tenant.collect().unwrap();
    assert_eq!(objects(&tenant), 0);
    let _ = std::panic::take_hook();
    let counts = tenant.heap().sweep_counts();
    assert_eq!((counts.finalized, counts.panics), (200, 20));
    assert!(counts.faults[0].message.contains("does not end well"));
    assert!(counts.faults[0].kind.contains("Panics"));
}

/// A finalizer that uses its heap: it allocates, enters, and asks for what it may not have.
struct Reenters {
    tenant: Rc<RefCell<Option<Tenant>>>,
    made: Rc<Cell<u32>>,
    depth: u32,
}

impl Drop for Reenters {
    fn drop(&mut self) {
        let guard = self.tenant.borrow();
        let Some(tenant) = guard.as_ref() else { return };
        assert!(matches!(
            tenant.collect(),
            Err(Busy::Collecting | Busy::Entered)
        ));
        tenant.enter(|cx| {
            for _ in 0..20 {
                cx.alloc(1u64).unwrap();
            }
            if self.depth > 0 {
                let next = Reenters {
                    tenant: self.tenant.clone(),
                    made: self.made.clone(),
                    depth: self.depth - 1,
                };
                cx.alloc(Opaque(next)).unwrap();
            }
        });
        self.made.set(self.made.get() + 1);
    }
}

#[test]
fn finalizers_may_enter_their_own_tenant() {
    let runtime = Runtime::new(quiet());
    let place = Rc::new(RefCell::new(Some(runtime.tenant("a", usize::MAX))));
    let made = Rc::new(Cell::new(0));
    {
        let guard = place.borrow();
        let tenant = guard.as_ref().unwrap();
        tenant.enter(|cx| {
            for _ in 0..50 {
                let first = Reenters {
                    tenant: place.clone(),
                    made: made.clone(),
                    depth: 3,
                };
                cx.alloc(Opaque(first)).unwrap();
            }
        });
        for generation in 1..=4 {
            tenant.collect().unwrap();
            tenant.heap().check();
            assert_eq!(made.get(), 50 * generation);
        }
        tenant.collect().unwrap();
        assert_eq!(objects(tenant), 0);
        assert_eq!(tenant.heap().sweep_counts().panics, 0);
    }
    drop(place.borrow_mut().take());
}

#[test]
fn what_is_not_swept_when_its_tenant_goes_ends_then() {
    let runtime = Runtime::new(quiet());
    let tenant = runtime.tenant("a", usize::MAX);
    let (any, own) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let threads = Arc::new(std::sync::Mutex::new(Vec::new()));
    tenant.enter(|cx| {
        for _ in 0..10 {
            cx.alloc(OpaqueSend(Ends(any.clone(), threads.clone())))
                .unwrap();
            cx.alloc(Opaque(Ends(own.clone(), threads.clone())))
                .unwrap();
        }
    });
    tenant.collect().unwrap();
    // ORDER: counts of this thread, as there is no other.
    let ended = || (any.load(Ordering::Relaxed), own.load(Ordering::Relaxed));
    assert_eq!(ended(), (0, 0), "nobody has asked for their room");
    drop(tenant);
    assert_eq!(ended(), (10, 10));
}

thread_local! {
    static GOING: Cell<*const Heap> = const { Cell::new(std::ptr::null()) };
    static ENDED: RefCell<Vec<u64>> = RefCell::default();
}

/// The end of a number makes the next smaller one, in the heap that is going.
unsafe fn end_of_number(object: NonNull<u8>) {
    // SAFETY: objects of the kind are numbers, and the heap is there until all have ended.
    unsafe {
        let number = object.cast::<u64>().read();
        ENDED.with_borrow_mut(|ended| ended.push(number));
        if number > 0 {
            let next = (*GOING.get()).alloc(&NUMBER).expect("memory");
            next.cast::<u64>().write(number - 1);
        }
    }
}

static NUMBER: Kind = Kind {
    name: || "number",
    bytes: 16,
    align: 8,
    trace: None,
    trace_part: None,
    finalize: Some(end_of_number),
    finalize_on: Finalize::Mutator,
    origin: Origin::User,
};

/// Under Miri not: the heap is its `drop`'s alone then, by the rules for references.
#[test]
#[cfg_attr(miri, ignore)]
fn what_finalizers_make_while_their_heap_goes_ends_with_it() {
    let world = World::new(quiet());
    let heap = world.heap("going", usize::MAX);
    GOING.set(Rc::as_ptr(&heap));
    // SAFETY: it is written at once.
    unsafe {
        let number = heap.alloc(&NUMBER).expect("memory");
        number.cast::<u64>().write(3);
    }
    drop(heap);
    assert_eq!(ENDED.take(), [3, 2, 1, 0]);
    assert_eq!(world.source().counts().taken, 0);
}
