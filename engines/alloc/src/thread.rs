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

use core::cell::UnsafeCell;

use skinflint_base::sync::{AtomicU32, Ordering};

use crate::heap::{Heap, usage};
use crate::lock::NOBODY;
use crate::state::{self, IDLE, at, new_heap, offset_of, with_pool};
use crate::{free, holes, publish, tls};

/// Rounds of destructors to wait for. The C library runs several (`PTHREAD_DESTRUCTOR_ITERATIONS` is 4); ours counts
/// from its first call, and must not miss its last.
const ROUNDS: u32 = 3;

/// The most warm heaps.
const WARM_MAX: u32 = 4;
/// Number of the purger's walks for which a heap stays warm.
const WARM_WALKS: u32 = 2;
static WARM: AtomicU32 = AtomicU32::new(0);

static KEY: AtomicU32 = AtomicU32::new(u32::MAX);

/// Words up to the end of a heap's `budget`: malloc reads and writes it before any check of the heap.
const MARKER_WORDS: usize = core::mem::offset_of!(Heap, budget) / 8 + 1;

struct Marker(UnsafeCell<[u64; MARKER_WORDS]>);
// SAFETY: only its address and its `budget`, an atomic, are used.
unsafe impl Sync for Marker {}

/// Stands for the heap of a thread whose destructors have run. All zero: its budget is used up, so every
/// call goes the slow way, and no span has it as its owner.
static ENDED: Marker = Marker(UnsafeCell::new([0; MARKER_WORDS]));

/// Reports whether a heap stands for a thread that is ending.
pub fn is_ended(heap: *const Heap) -> bool {
    core::ptr::eq(heap.cast(), ENDED.0.get())
}

/// The functions that reporters in the same program may call.
static GIVER: skinflint_base::hook::Giver = skinflint_base::hook::Giver {
    usable: crate::usable_size,
    figures: crate::stats_text::to_buffer,
    trim: crate::trim,
};

/// Gives this thread a heap; returns null if there is no memory for one.
#[cold]
#[inline(never)]
pub fn enter() -> *mut Heap {
    if !state::start(NOBODY) {
        return core::ptr::null_mut();
    }
    let heap = adopt();
    if heap.is_null() {
        return heap;
    }
    tls::set(heap);
    watch_exit(heap);
    // SAFETY: `usable_size` returns 0 for addresses that are not ours, and needs no heap of the thread's.
    unsafe { skinflint_base::hook::say(&GIVER) };
    heap
}

/// Returns an idle heap, else a new one. It is the caller's until [`leave`].
pub fn adopt() -> *mut Heap {
    let idle = with_pool(NOBODY, |_| {
        // SAFETY: heaps stay (state.G4).
        publish::take(&IDLE, |first| unsafe { &(*at::<Heap>(first)).next_idle })
    });
    let heap = match idle {
        Some(first) if first != 0 => at::<Heap>(first),
        _ => new_heap(NOBODY),
    };
    if heap.is_null() {
        return heap;
    }
    // SAFETY: heaps stay (state.G4).
    let this = unsafe { &*heap };
    // The lock: no thread is in the middle of acting as the owner.
    if this.lock.lock(this.who()) {
        // SAFETY: the heap has no thread yet, and its lock is held.
        unsafe { crate::fork::settle(this) };
        warm_no_more(this);
        this.usage.store(usage::THREAD, Ordering::Relaxed); // ORDER: the lock is held
        this.exit_rounds.store(0, Ordering::Relaxed); // ORDER: as above
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
    // SAFETY: heaps stay (state.G4).
    let this = unsafe { &*heap };
    if this.lock.lock(this.who()) {
        // SAFETY: this thread owns the heap, and has its lock.
        unsafe {
            free::drain(this);
            // ORDER: the lock is held. Not a thread's any more: empty spans go back at once.
            this.usage.store(usage::IDLE, Ordering::Relaxed);
            // ORDER: a bound that two threads may pass together.
            if warm && WARM.load(Ordering::Relaxed) < WARM_MAX {
                WARM.fetch_add(1, Ordering::Relaxed); // ORDER: as above
                this.warm.store(WARM_WALKS, Ordering::Relaxed); // ORDER: the lock is held
            } else {
                holes::release_current(this);
                this.flush_empty();
                if !warm {
                    this.purge_entries();
                }
            }
        }
        // ORDER: a hint.
        holes::hint(this.pages.load(Ordering::Relaxed) / 8);
        this.lock.unlock();
    }
    with_pool(NOBODY, |_| {
        publish::add_again(&IDLE, &this.next_idle, offset_of(heap));
    });
}

/// Empties the magazines and current spans of a heap without a thread, if they have waited long enough or `now`.
/// Returns 1 if they still wait.
///
/// # Safety
/// The heap's lock is held, and it has no thread.
pub unsafe fn cool(heap: &Heap, now: bool) -> u32 {
    // ORDER: the lock is held.
    let walks = heap.warm.load(Ordering::Relaxed);
    if walks == 0 {
        return 0;
    }
    if walks > 1 && !now {
        heap.warm.store(walks - 1, Ordering::Relaxed); // ORDER: as above
        return 1;
    }
    warm_no_more(heap);
    // SAFETY: as the caller promises.
    unsafe {
        holes::release_current(heap);
        heap.flush_empty();
    }
    0
}

/// Ends the heap's time as a warm one. The heap's lock is held.
fn warm_no_more(heap: &Heap) {
    // ORDER: the lock is held.
    if heap.warm.swap(0, Ordering::Relaxed) != 0 {
        WARM.fetch_sub(1, Ordering::Relaxed); // ORDER: a bound
    }
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
    // SAFETY: heaps stay (state.G4).
    let this = unsafe { &*heap };
    // ORDER: the thread's own.
    let rounds = this.exit_rounds.fetch_add(1, Ordering::Relaxed) + 1;
    if rounds < ROUNDS {
        watch_exit(heap);
        return;
    }
    let last = tls::get();
    tls::set(ENDED.0.get().cast());
    // The last heap may be another one: a place that is entered for ever (place.L4). After a fork, perhaps, this one is
    // then no thread's (place.L3).
    leave(if last.is_null() { heap } else { last });
}

/// Allocates for a thread that has ended, with a heap borrowed for the one call (D2).
pub fn with_borrowed(work: impl FnOnce(&Heap) -> *mut u8) -> *mut u8 {
    let heap = adopt();
    if heap.is_null() {
        return core::ptr::null_mut();
    }
    // SAFETY: heaps stay (state.G4).
    let block = work(unsafe { &*heap });
    leave(heap);
    block
}
