//! The engine's lock-free parts under loom: every order in which a few threads can meet.
//!
//! ```text
//!   remote.rs, lock.rs ──(the very files)──► here, with loom's atomics
//! ```
//!
//! M1  A span's descriptor is a cell that every freer reads while it uses the span, and that the owner
//!     writes when it gives the span away: an access that is not ordered fails.
//! M2  A sleeper sleeps until it is woken: a lost wake is a deadlock, which loom finds.
//! M3  At most `PREEMPTIONS` per run, which bounds the search.
//!
//! Run by `make model-test`. Not here: the fast paths, which are one thread's own.
#![cfg(loom)]
// The engine uses the rest.
#![allow(dead_code)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use loom::thread;

#[path = "../src/lock.rs"]
mod lock;
#[path = "../src/remote.rs"]
mod remote;

use lock::{Lock, Who};

const PREEMPTIONS: usize = 3;

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(model);
}

/// A span of two blocks, and the block's contents.
struct Span {
    link: AtomicU32,
    remote: AtomicU64,
    free: AtomicU64,
    descriptor: UnsafeCell<u32>,
    blocks: [UnsafeCell<u32>; 2],
}

impl Span {
    fn new() -> Span {
        Span {
            link: AtomicU32::new(0),
            remote: AtomicU64::new(0),
            free: AtomicU64::new(0),
            descriptor: UnsafeCell::new(0),
            blocks: [UnsafeCell::new(0), UnsafeCell::new(0)],
        }
    }

    /// As `free::free_remote`.
    fn free(&self, stack: &AtomicU32, offset: u32, block: usize) {
        // SAFETY: the block is this thread's until its bit is set; loom checks.
        self.blocks[block].with_mut(|content| unsafe { *content += 1 });
        // SAFETY: M1.
        self.descriptor
            .with(|descriptor| unsafe { assert_eq!(*descriptor, 0, "given away") });
        if remote::claim(&self.link) {
            remote::push(stack, &self.link, offset, 1);
            // As the hint does, which reads the span's length.
            // SAFETY: M1.
            self.descriptor
                .with(|descriptor| unsafe { assert_eq!(*descriptor, 0, "given away") });
        }
        assert!(remote::set(&self.remote, 1 << block));
    }

    /// As `free::event`, for the owner: collects, uses what was freed, gives the span away once it is empty
    /// and on no stack.
    fn look(&self) -> bool {
        let freed = remote::collect(&self.remote, &self.free);
        for block in (0..2).filter(|block| freed >> block & 1 != 0) {
            // SAFETY: the block is the owner's again; loom checks.
            self.blocks[block].with_mut(|content| unsafe { *content += 1 });
        }
        // ORDER: the owner's own, and as in `Heap::give_or_wait`.
        let empty =
            self.free.load(Ordering::Relaxed) == 3 && self.link.load(Ordering::Acquire) == 0;
        if empty {
            // SAFETY: M1.
            self.descriptor
                .with_mut(|descriptor| unsafe { *descriptor += 1 });
        }
        empty
    }
}

/// Two threads free the two blocks of a span while the owner drains: the span goes once, after both have
/// let go of it, and no block is lost.
#[test]
fn model_remote_frees_of_one_span() {
    check(|| {
        let shared = Arc::new((AtomicU32::new(0), Span::new()));
        let freers: Vec<_> = (0..2)
            .map(|block| {
                let shared = shared.clone();
                thread::spawn(move || shared.1.free(&shared.0, 64, block))
            })
            .collect();
        let (stack, span) = &*shared;
        let mut given = false;
        let drain = |given: &mut bool| {
            if remote::take_all(stack) == 64 {
                assert_eq!(remote::below(&span.link, 1), 0);
                assert!(!*given, "on the stack after it was given away");
                remote::release(&span.link);
                *given = span.look();
            }
        };
        // Without a yield loom never has the first look come second.
        thread::yield_now();
        drain(&mut given);
        drain(&mut given);
        for freer in freers {
            freer.join().expect("ends");
        }
        drain(&mut given);
        // The class's next refill looks whether or not it was told (R3).
        if !given {
            assert!(span.look(), "a block or the link was lost");
        }
    });
}

/// Two spans pushed by two threads: a drain and the last look find both.
#[test]
fn model_stack_of_two_spans() {
    check(|| {
        let shared = Arc::new((AtomicU32::new(0), [Span::new(), Span::new()]));
        let freers: Vec<_> = (0..2)
            .map(|which| {
                let shared = shared.clone();
                thread::spawn(move || {
                    let offset = 64 * (which as u32 + 1);
                    shared.1[which].free(&shared.0, offset, 0);
                    shared.1[which].free(&shared.0, offset, 1);
                })
            })
            .collect();
        let (stack, spans) = &*shared;
        let drain = || {
            let mut next = remote::take_all(stack);
            while next != 0 {
                let span = &spans[next as usize / 64 - 1];
                next = remote::below(&span.link, 1);
                remote::release(&span.link);
                remote::collect(&span.remote, &span.free);
            }
        };
        thread::yield_now();
        drain();
        for freer in freers {
            freer.join().expect("ends");
        }
        drain();
        for span in spans {
            // ORDER: after the joins.
            assert_eq!(
                span.link.load(Ordering::Relaxed),
                0,
                "claimed, and not on the stack"
            );
            remote::collect(&span.remote, &span.free);
            assert_eq!(span.free.load(Ordering::Relaxed), 3, "a bit was lost"); // ORDER: as above
        }
    });
}

/// Large blocks that could not be given back at once: each is found once.
#[test]
fn model_deferred_blocks() {
    check(|| {
        let shared = Arc::new((
            AtomicU32::new(0),
            [const { 0 }; 2].map(AtomicU32::new),
            [0; 2].map(UnsafeCell::new),
        ));
        let freers: Vec<_> = (0..2)
            .map(|which| {
                let shared = shared.clone();
                thread::spawn(move || {
                    let (list, links, blocks) = &*shared;
                    // SAFETY: this thread's until it is pushed; loom checks.
                    blocks[which].with_mut(|block: *mut u32| unsafe { *block += 1 });
                    remote::push(list, &links[which], which as u32 + 1, 0);
                })
            })
            .collect();
        let (list, links, blocks) = &*shared;
        let mut found = 0;
        let mut take = || {
            let mut next = remote::take_all(list);
            while next != 0 {
                let which = next as usize - 1;
                next = remote::below(&links[which], 0);
                // SAFETY: taken; loom checks.
                blocks[which].with_mut(|block| unsafe { *block += 1 });
                found += 1;
            }
        };
        thread::yield_now();
        take();
        for freer in freers {
            freer.join().expect("ends");
        }
        take();
        assert_eq!(found, 2);
    });
}

/// Three threads at one lock: one at a time, each sees what the last one wrote, and all come through.
#[test]
fn model_lock() {
    check(|| {
        let shared = Arc::new((Lock::new(), UnsafeCell::new(0)));
        let work = |shared: &(Lock, UnsafeCell<u32>), who: u32| {
            assert!(shared.0.lock(Who(who)));
            // SAFETY: the lock is held; loom checks.
            shared.1.with_mut(|count| unsafe { *count += 1 });
            shared.0.unlock();
        };
        let others: Vec<_> = (1..3)
            .map(|other| {
                let shared = shared.clone();
                thread::spawn(move || work(&shared, other * 4096))
            })
            .collect();
        work(&shared, 3 * 4096);
        for other in others {
            other.join().expect("ends");
        }
        // SAFETY: after the joins.
        shared.1.with(|count| unsafe { assert_eq!(*count, 3) });
    });
}

/// Nobody is two: threads that go by one of the fixed names wait for each other.
#[test]
fn model_lock_of_nobodies() {
    check(|| {
        let shared = Arc::new((Lock::new(), UnsafeCell::new(0)));
        let other = shared.clone();
        let work = |shared: &(Lock, UnsafeCell<u32>)| {
            assert!(shared.0.lock(lock::FORKER));
            // SAFETY: the lock is held; loom checks.
            shared.1.with_mut(|count| unsafe { *count += 1 });
            shared.0.unlock();
        };
        let thread = thread::spawn(move || work(&other));
        work(&shared);
        thread.join().expect("ends");
    });
}
