//! A thread's heap from its first block to its end, and what becomes of it then.
//!
//! ```text
//!   first malloc ──► an idle heap, else a new one ──► … ──► destructors ──► idle ──► the next thread
//! ```
//!
//! D1  A heap becomes idle in the last round of the thread's destructors, so that what they free goes the fast way;
//!     later frees go through the bits for other threads' frees.
//! D2  A thread that allocates after that borrows a heap for each call.
//! D3  Nothing here allocates before the thread has its heap.
//! D4  The heap of a thread that has ended stays *warm* for a while: its magazines and current spans wait for the next
//!     thread, which would otherwise fill them anew. There are few warm heaps at a time, and the purger's walks cool
//!     them, so that a program that makes no more threads keeps nothing. Spans are stolen only from a heap that was
//!     cooled: a magazine holds blocks of its own heap's spans.
//!
//! Not here: fork (`fork`).

use skinflint_base::sync::{AtomicU32, Ordering};

use super::pool::{self, IDLE, new_heap, with_pool};
use super::retire::{self, THREADS, WARM, WARM_MAX, WARM_WALKS, warm_no_more};
use super::{cache, events, fork, hints, hollow, slow, tls};
use crate::mechanism::heap::{Heap, usage};
use crate::mechanism::lock::{NOBODY, Who};
use crate::mechanism::publish;
use crate::mechanism::range::{at, offset_of};
use crate::mechanism::section;

/// Rounds of destructors to wait for. The C library runs several (`PTHREAD_DESTRUCTOR_ITERATIONS` is 4); ours counts
/// from its first call, and must not miss its last.
const ROUNDS: u32 = 3;

static KEY: AtomicU32 = AtomicU32::new(u32::MAX);

/// Gives this thread a heap; returns null if there is no memory for one.
#[cold]
#[inline(never)]
#[unsafe(link_section = ".text.skinflint_first")]
pub fn enter() -> *mut Heap {
    if !pool::start(NOBODY) {
        return core::ptr::null_mut();
    }
    let heap = adopt();
    if heap.is_null() {
        return heap;
    }
    tls::set(heap);
    fork::watch();
    watch_exit(heap);
    // SAFETY: `usable_size` returns 0 for addresses that are not ours, and needs no heap of the thread's.
    unsafe { skinflint_base::hook::set(slow::paths().hook) };
    heap
}

/// Returns an idle heap, else a new one. It is the caller's until [`leave`].
#[unsafe(link_section = ".text.skinflint_first")]
pub fn adopt() -> *mut Heap {
    let idle = with_pool(NOBODY, |_| {
        // SAFETY: heaps stay (pool.G4).
        publish::take(&IDLE, |first| unsafe { &(*at::<Heap>(first)).next_idle })
    });
    let heap = match idle {
        Some(first) if first != 0 => at::<Heap>(first),
        _ => new_heap(NOBODY),
    };
    if heap.is_null() {
        return heap;
    }
    // SAFETY: heaps stay (pool.G4).
    let this = unsafe { &*heap };
    // The lock: no thread is in the middle of acting as the owner.
    if this.lock.lock(this.who()) {
        // SAFETY: the heap has no thread yet, and its lock is held.
        unsafe { retire::settle(this) };
        warm_no_more(this);
        hollow::fill(this);
        this.usage.store(usage::THREAD, Ordering::Relaxed); // ORDER: the lock is held
        THREADS.fetch_add(1, Ordering::Relaxed); // ORDER: a hint
        this.exit_rounds.store(0, Ordering::Relaxed); // ORDER: as above
        let revocable = u32::from(section::serves_this_thread());
        this.revocable.store(revocable, Ordering::Relaxed); // ORDER: as above
        this.asked_to_empty.store(0, Ordering::Relaxed); // ORDER: a wish to the thread before
        this.lock.unlock();
    }
    heap
}

/// Makes a heap idle: nothing is allocated from it until a thread takes it.
pub fn leave(heap: *mut Heap) {
    leave_as(heap, true);
}

/// Makes a heap idle for good: no thread is expected to go on where this one ended, so nothing is kept for it (D4).
pub fn leave_cold(heap: *mut Heap) {
    leave_as(heap, false);
}

fn leave_as(heap: *mut Heap, warm: bool) {
    // SAFETY: heaps stay (pool.G4).
    let this = unsafe { &*heap };
    if this.lock.lock(this.who()) {
        cache::age(this, this.holder(), true);
        // SAFETY: this thread owns the heap, and has its lock.
        unsafe {
            events::drain(this);
            // ORDER: the lock is held. Not a thread's any more: empty spans go back at once.
            this.usage.store(usage::IDLE, Ordering::Relaxed);
            THREADS.fetch_sub(1, Ordering::Relaxed); // ORDER: a hint
            hollow::leave(this);
            // ORDER: a bound that two threads may pass together.
            if warm && WARM.load(Ordering::Relaxed) < WARM_MAX {
                WARM.fetch_add(1, Ordering::Relaxed); // ORDER: as above
                this.warm.store(WARM_WALKS, Ordering::Relaxed); // ORDER: the lock is held
            } else {
                retire::release_current(this);
                this.flush_empty();
                if !warm {
                    this.purge_entries();
                }
            }
        }
        // ORDER: a hint.
        hints::hint(this.pages.load(Ordering::Relaxed) / 8);
        this.lock.unlock();
    }
    with_pool(NOBODY, |_| {
        publish::add_again(&IDLE, &this.next_idle, offset_of(heap));
    });
}

/// Makes the C library call [`ended`] when the thread ends.
fn watch_exit(heap: *mut Heap) {
    // ORDER: the key is a number.
    let mut key = KEY.load(Ordering::Relaxed);
    if key == u32::MAX {
        let mut made = 0;
        // SAFETY: `made` is ours; the function allocates nothing.
        if unsafe { libc::pthread_key_create(&mut made, Some(ended)) } != 0 {
            return;
        }
        // ORDER: as above. A thread that lost the race uses the winner's key.
        key = match KEY.compare_exchange(u32::MAX, made, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => made,
            Err(other) => {
                // SAFETY: no thread has used it.
                unsafe { libc::pthread_key_delete(made) };
                other
            }
        };
    }
    // SAFETY: the key exists. It may allocate, which this thread now can (D3).
    unsafe { libc::pthread_setspecific(key, heap.cast()) };
}

/// Runs among the thread's destructors.
unsafe extern "C" fn ended(value: *mut libc::c_void) {
    let heap: *mut Heap = value.cast();
    // SAFETY: heaps stay (pool.G4).
    let this = unsafe { &*heap };
    // ORDER: the thread's own.
    let rounds = this.exit_rounds.fetch_add(1, Ordering::Relaxed) + 1;
    if rounds < ROUNDS {
        watch_exit(heap);
        return;
    }
    let last = tls::end();
    // The last heap may be another one: a private heap in which the thread ends (private.L4). After a fork, perhaps, this one is
    // then no thread's (private.L3).
    leave(if last.is_null() { heap } else { last });
}

/// Allocates for a thread that has ended, with a heap borrowed for the one call (D2).
pub fn with_borrowed(work: impl FnOnce(&Heap) -> *mut u8) -> *mut u8 {
    let heap = adopt();
    if heap.is_null() {
        return core::ptr::null_mut();
    }
    // SAFETY: heaps stay (pool.G4).
    let block = work(unsafe { &*heap });
    leave(heap);
    block
}

/// Does what [`tls::who`] does, for a call that is not part of `malloc`: the thread gets a heap first, and so an identity.
pub fn who_named() -> Who {
    if tls::get().is_null() {
        enter();
    }
    tls::who()
}
