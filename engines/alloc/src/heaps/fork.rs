//! fork: the child finds every lock free and every heap whole.
//!
//! ```text
//!   prepare   the services' locks, the purge lock last, then every heap's, then the pool's
//!   parent    all given back
//!   child     all made free; the heaps of the threads that are gone wait for new ones
//! ```
//!
//! W1  At the moment of the fork no slow path is under way, so lists and pool are consistent. A fast path
//!     of another thread may be: its block is lost to the child, or its `left` wrong by one (span.S6).
//! W2  `vfork` and `posix_spawn` do not come here: the child shares the parent's memory and thread, and the parent
//!     waits.
//!
//! W3  What a gone thread had in its magazines is put in order by the first user of its heap. Most children never use
//!     it, and every descriptor that is not written to stays shared with the parent.
//!
//! W4  A thread may be about to notify a heap of a span: it has claimed the span's link, and pushes nothing any more. Its
//!     note says so (remote.R5), and the child then looks at every span once, and frees the links that were claimed in
//!     vain. Such a fork is rare; the others look at one word of each heap.
//! W5  The functions are registered as the first thread gets its heap, in the drop-in and in a program that is linked
//!     with the engine alike: no lock of another library's handlers is then taken before ours.
//!
//! W6  A thread may have a run in its hands that is counted as kept, and in no slot (kept.X1). To the child it is lost, as
//!     a block is (W1), and the child counts what is in slots. A process with one thread does not count anew: there it is
//!     a signal handler that forks, and its thread goes on where it was. Where such a thread is one of several, the count
//!     is short of its run: a peak that is too high by it, and some looks at empty slots.
//!
//! Not here: what is not the engine's (`malloc-so`).

use skinflint_base::sync::{AtomicU32, Ordering};

use super::pool::{HEAPS, IDLE, POOL_LOCK, heaps};
use super::retire::THREADS;
use super::{free, hollow, runs, slow, tls};
use crate::mechanism::heap::Heap;
use crate::mechanism::heap::usage;
use crate::mechanism::lock::{FORKER, NOBODY, Who};
use crate::mechanism::range::{at, offset_of};
use crate::mechanism::span::Span;
use crate::mechanism::{publish, remote};

static REGISTERED: AtomicU32 = AtomicU32::new(0);
/// Number of forks from the first process down to this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Returns the number of forks from the first process down to this one.
pub fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed) // ORDER: written when there is one thread
}

/// Has the functions below called at every fork; once in a process. Cost afterwards: one load.
///
/// The C library keeps the first handlers in a table of its own, so nothing is allocated. If there were no room for them,
/// only a program that forks while other threads allocate could notice.
pub fn watch() {
    // ORDER: one thread registers; nothing is passed on.
    if REGISTERED.load(Ordering::Relaxed) != 0 || REGISTERED.swap(1, Ordering::Relaxed) != 0 {
        return;
    }
    // SAFETY: handlers without arguments, which are made for this.
    unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
}

/// Returns the identity as which this thread forks.
pub(crate) fn who() -> Who {
    let who = tls::who();
    if who == NOBODY { FORKER } else { who }
}

/// Prepares for the fork.
///
/// # Safety
/// To be called by `pthread_atfork` only.
pub unsafe extern "C" fn prepare() {
    let who = who();
    (slow::paths().before_fork)(who);
    lock_all(who);
}

/// Takes every heap's lock, and the pool's.
pub(crate) fn lock_all(who: Who) {
    loop {
        let newest = publish::first(&HEAPS);
        for heap in heaps() {
            let _ = heap.lock.lock(who);
        }
        let _ = POOL_LOCK.lock(who);
        // ORDER: the pool's lock is held, so no heap is added now.
        if HEAPS.load(Ordering::Relaxed) == newest {
            return;
        }
        POOL_LOCK.unlock();
        for heap in heaps() {
            if heap.lock.is_held_by(who) {
                heap.lock.unlock();
            }
        }
    }
}

/// Runs after the fork, in the parent.
///
/// # Safety
/// As for [`prepare`].
pub unsafe extern "C" fn parent() {
    let who = who();
    unlock_all(who);
    (slow::paths().after_fork)(who);
}

/// Releases what [`lock_all`] took.
pub(crate) fn unlock_all(who: Who) {
    POOL_LOCK.unlock();
    for heap in heaps() {
        if heap.lock.is_held_by(who) {
            heap.lock.unlock();
        }
    }
}

/// Runs after the fork, in the child.
///
/// # Safety
/// As for [`prepare`].
pub unsafe extern "C" fn child() {
    POOL_LOCK.reset();
    (slow::paths().in_child)();
    FORKS.fetch_add(1, Ordering::Relaxed); // ORDER: the child has one thread
    let mine = tls::get();
    mend_links(mine);
    // ORDER: the child has one thread.
    IDLE.store(0, Ordering::Relaxed);
    let mut alone = true;
    for heap in heaps() {
        heap.lock.reset();
        // ORDER: as above.
        if heap.usage.load(Ordering::Relaxed) >= usage::TENANT || core::ptr::eq(heap, mine) {
            continue;
        }
        // ORDER: as above.
        if heap.usage.swap(usage::IDLE, Ordering::Relaxed) == usage::THREAD {
            heap.orphan.store(1, Ordering::Relaxed); // ORDER: as above
            hollow::leave(heap);
            THREADS.fetch_sub(1, Ordering::Relaxed); // ORDER: as above
            alone = false;
        }
        heap.next_idle
            .store(IDLE.load(Ordering::Relaxed), Ordering::Relaxed); // ORDER: as above
        IDLE.store(offset_of(heap), Ordering::Relaxed); // ORDER: as above
    }
    if !alone {
        runs::recount_kept(heaps().map(|heap| &heap.kept));
    }
}

/// Frees the links of spans that were claimed by threads which are gone (W4). Runs in the child, where no other thread is.
fn mend_links(mine: *const Heap) {
    // ORDER: the child has one thread, throughout.
    let mut any = free::NOTIFYING.swap(0, Ordering::Relaxed) != 0;
    for heap in heaps() {
        if heap.notifying.load(Ordering::Relaxed) != 0 {
            // A signal handler of this very thread forks: it will go on where it was.
            if core::ptr::eq(heap, mine) {
                return;
            }
            heap.notifying.store(0, Ordering::Relaxed); // ORDER: as above
            any = true;
        }
    }
    if !any {
        return;
    }
    for heap in heaps() {
        // SAFETY: a span on the stack is not given away.
        remote::mark(&heap.notified, |offset| unsafe { &*at::<Span>(offset) });
    }
    for heap in heaps() {
        // SAFETY: no other thread could have the lock; the fork found the lists whole (W1).
        unsafe {
            heap.each_span(|span| {
                remote::mend(&span.nlink);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heaps::{events, large, pool, thread};
    use crate::mechanism::class;
    use crate::mechanism::remote::Owned;
    use crate::test_engine::{alone, in_child, new, own};
    use skinflint_pages::PAGE;

    /// Forks; whether `act` held in the child.
    fn held_in_child(act: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child uses the engine only, and ends by `_exit`.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            // SAFETY: as above.
            unsafe { libc::_exit(i32::from(!act())) };
        }
        let mut status = 0;
        // SAFETY: our own child.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        status == 0
    }

    /// A full span of a heap's, and its blocks.
    fn full(heap: &Heap) -> (&'static Span, Vec<*mut u8>) {
        assert!(heap.lock.lock(heap.who()));
        // SAFETY: the lock is held, and no thread has the heap; its spans stay while they have a block.
        let taken = unsafe {
            heap.next_span(class::base_class(64));
            let span = &*heap.current(class::base_class(64));
            let blocks = (0..span.slots).map(|_| heap.take_one(span)).collect();
            heap.next_span(class::base_class(64));
            (span, blocks)
        };
        heap.lock.unlock();
        taken
    }

    /// The fork comes as one thread has claimed a span and another has pushed one: in the child the first can be claimed
    /// again, and both owners find what is freed there.
    #[test]
    fn a_span_that_was_claimed_at_a_fork_is_found_in_the_child() {
        let _alone = alone();
        watch();
        let (owner, freer) = (new(), new());
        let (claimed, blocks) = full(owner);
        let (pushed, others) = full(owner);
        assert!(remote::claim(claimed.link()));
        freer.notifying.store(1, Ordering::Relaxed); // ORDER: one thread
        assert!(remote::notify_locked(pushed));
        let found = held_in_child(|| {
            let given = [blocks[0], others[0]];
            // SAFETY: live blocks of the parent's, freed once each.
            given.iter().for_each(|&block| unsafe { free::free(block) });
            assert!(owner.lock.lock(owner.who()));
            // SAFETY: the lock is held, and no thread has the heap.
            unsafe { events::drain(owner) };
            let found = [claimed, pushed].map(|span| (span.used(), span.has_remote()));
            found.iter().all(|&it| it == (63, false)) && remote::may_go(claimed.link())
        });
        assert!(found, "in the child");
        // As it was, for the next test.
        freer.notifying.store(0, Ordering::Relaxed); // ORDER: one thread
        remote::release(claimed.link());
        assert!(pool::heaps().any(|heap| core::ptr::eq(heap, owner)));
    }

    /// The fork comes as another thread has a kept run in its hands, for the pool: the child counts what is in slots, and what
    /// waits for the pool. With one thread it is a signal handler that forks, and the count stands.
    #[test]
    fn a_run_that_a_gone_thread_had_in_its_hands_is_not_kept_in_the_child() {
        const IN_HAND: u32 = 7;
        let name = "heaps::fork::tests::a_run_that_a_gone_thread_had_in_its_hands_is_not_kept_in_the_child";
        let told = in_child(name, || {
            let _alone = alone();
            // SAFETY: the heap is this thread's.
            let heap = unsafe { &*thread::enter() };
            let kept = || (runs::leaving(), heap.kept.held());
            let of = |pages: u64, runs: u64| pages << 32 | runs;
            // Both are there before one is kept: it would go to the pool as the other is made.
            let blocks = [3, 5].map(|pages| large::malloc(pages * PAGE, 1).0);
            for block in blocks {
                // SAFETY: a live block, freed once.
                unsafe { large::free(block) };
            }
            runs::count_leaving(IN_HAND);
            assert_eq!(kept(), (of(7, 1), of(8, 2)));
            assert!(
                held_in_child(|| kept() == (of(7, 1), of(8, 2))),
                "one thread"
            );
            let _other = own();
            runs::defer(heap.kept.take(5).expect("it is kept").0);
            assert!(
                held_in_child(|| kept() == (of(5, 1), of(3, 1))),
                "two threads"
            );
            assert_eq!(kept(), (of(7, 1), of(3, 1)), "the parent's");
        });
        if let Some((status, said)) = told {
            assert!(status.success(), "{said}");
        }
    }
}
