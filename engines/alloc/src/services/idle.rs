//! What idle threads hold goes back: who is idle, and how its magazines are emptied without it.
//!
//! ```text
//!   pass   each heap of a thread: the same for two ticks? ─► revoke ─┐
//!          (a trim: each)                                            one barrier for all of them
//!          each heap that was revoked: take ◄────────────────────────┘      └─► spans noted for the round under way
//! ```
//!
//! J1  A thread is idle if it has requested nothing, and its magazines stand where they stood, for two ticks. One that
//!     works is let alone by the purger; a trim takes from all. What is taken from a thread that wakes costs it the
//!     refills.
//! J2  Revocation needs restartable sections and a kernel with the barrier (Linux 5.10). Without them, and for a thread
//!     that the C library did not register, its heap is asked instead: its magazines are revoked and never taken, for
//!     which no barrier is needed, and at its next malloc the thread empties them itself. Which of the two serves is told
//!     in the figures ([`way`]).
//! J3  Only the purger, and a trim, call the kernel for it, so a program without a purger (SKINFLINT_PURGE=off, or a
//!     filter of system calls) never meets that call: there heaps are asked.
//! J4  The purger does not end while threads hold more in magazines than would begin it: they may be idle tomorrow.
//!
//! Not here: magazines (`magazine`), sections (`section`), what becomes of the blocks (`heaps::revoke`), current spans,
//! whose free pages a walk finds by itself (`holes`), kept runs (`heaps::cache`).

use skinflint_base::sync::{AtomicU32, AtomicU64, Ordering};
use skinflint_base::sys;
use skinflint_pages::PAGE;
use skinflint_pages::purge::Batch;

use super::rights;
use crate::heaps::pool::{HEAPS, heaps, with_pool};
use crate::heaps::requests::requested_from;
use crate::heaps::{revoke, tls};
use crate::mechanism::class;
use crate::mechanism::heap::{Heap, usage};
use crate::mechanism::lock::Who;
use crate::mechanism::range::offset_of;
use crate::mechanism::section;

/// Ticks of the purger for which a heap must be the same.
const SAME_TICKS: u64 = 2;

/// The states of `Heap::revoking`: its magazines are as its thread wants them.
const NOT: u32 = 0;
/// They are revoked, and a barrier is to come.
const REVOKED: u32 = 1;

impl Way {
    /// Returns the way in one word.
    pub fn word(self) -> &'static str {
        match self {
            Way::Taken => "taken",
            Way::Asked => "asked",
        }
    }
}

/// Whether the kernel may be called for it (J3).
static ALLOWED: AtomicU32 = AtomicU32::new(1);

/// Sets whether the kernel may be called for it (J3).
pub fn allow(allowed: bool) {
    // ORDER: set at start.
    ALLOWED.store(u32::from(allowed), Ordering::Relaxed);
}

/// Number of blocks taken so far.
pub static TAKEN_BLOCKS: AtomicU64 = AtomicU64::new(0);

/// How what idle threads hold comes back (J2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// It is taken.
    Taken,
    /// Threads are asked for it.
    Asked,
}

/// How a variable of the C library's is found by its name: its address, null if there is none.
pub type Find = fn(&core::ffi::CStr) -> *mut core::ffi::c_void;

/// Looks for what sections need (section.E1), once at the start of the process. Without this call heaps are asked.
#[unsafe(link_section = ".text.skinflint_first")]
pub fn begin(find: Option<Find>) {
    let find = find.unwrap_or(by_dlsym);
    let (offset, bytes) = (find(c"__rseq_offset"), find(c"__rseq_size"));
    if offset.is_null() || bytes.is_null() {
        return;
    }
    // SAFETY: found under their names, they are variables of these types, set before any constructor.
    let (offset, bytes) = unsafe { (*offset.cast::<isize>(), *bytes.cast::<u32>()) };
    let mine = tls::get();
    with_pool(tls::who(), |_| {
        // ORDER: the pool's lock is held.
        let newest = HEAPS.load(Ordering::Relaxed);
        let mine = if tls::is_ended(mine) {
            core::ptr::null_mut()
        } else {
            mine
        };
        // SAFETY: heaps stay (pool.G4).
        let alone = newest == 0
            || !mine.is_null()
                && newest == offset_of(mine)
                && unsafe { &*mine }.next_heap.load(Ordering::Relaxed) == 0; // ORDER: as above
        // SAFETY: heaps are made under the pool's lock, which is held, and there is none but this thread's.
        if alone && unsafe { section::begin(offset, bytes) } && !mine.is_null() {
            // SAFETY: as above.
            unsafe { &*mine }.revocable.store(1, Ordering::Relaxed); // ORDER: one thread
        }
    });
}

/// Asks the loader for a variable.
fn by_dlsym(name: &core::ffi::CStr) -> *mut core::ffi::c_void {
    // SAFETY: the name is closed by a zero.
    unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
        if found.is_null() {
            // Not the program's error: its next dlerror is not to tell of it.
            libc::dlerror();
        }
        found
    }
}

/// Returns how what idle threads hold comes back, in threads that the C library registers.
pub fn way() -> Way {
    // ORDER: set at start.
    if section::serve() && ALLOWED.load(Ordering::Relaxed) != 0 && !rights::filtered() {
        Way::Taken
    } else {
        Way::Asked
    }
}

/// Asks the kernel what it needs to be asked before anything is revoked.
fn may_revoke() -> bool {
    way() == Way::Taken && section::prepare()
}

/// Looks at every heap that has a thread, and takes what idle ones hold (J1); returns how many pages' worth of blocks lie
/// in all magazines. PURGE_LOCK is held.
pub fn pass(who: Who, tick_ns: u64, batch: &mut Batch) -> u32 {
    let mut bytes = 0;
    let mut any = false;
    let now_ns = sys::monotonic_ns();
    for heap in heaps() {
        // ORDER: a look; the lock decides.
        if heap.usage.load(Ordering::Relaxed) != usage::THREAD {
            continue;
        }
        let (held, now) = measure(heap);
        bytes += held;
        // ORDER: only the holder of PURGE_LOCK uses these.
        if heap.seen.swap(now, Ordering::Relaxed) != now {
            heap.same_since_ns.store(now_ns, Ordering::Relaxed); // ORDER: as above
            continue;
        }
        let since_ns = heap.same_since_ns.load(Ordering::Relaxed); // ORDER: as above
        if since_ns != 0 && now_ns - since_ns >= SAME_TICKS * tick_ns {
            heap.same_since_ns.store(0, Ordering::Relaxed); // ORDER: as above
            any |= held > 0 && begin_with(heap, who);
        }
    }
    if any {
        take_all(who, batch);
    }
    (bytes / PAGE) as u32
}

/// Reports whether a heap's thread was idle at the last pass (J1): what lies free there has been free for as long.
/// PURGE_LOCK is held, by the purger.
pub fn rests(heap: &Heap) -> bool {
    // ORDER: only the holder of PURGE_LOCK uses these; the usage is a look.
    heap.usage.load(Ordering::Relaxed) == usage::THREAD
        && heap.seen.load(Ordering::Relaxed) != 0 // ORDER: as above
        && heap.same_since_ns.load(Ordering::Relaxed) == 0 // ORDER: as above
}

/// Takes what every thread but the caller holds, whose heap is `mine`. PURGE_LOCK is held.
pub fn of_all(who: Who, mine: *const Heap, batch: &mut Batch) {
    let mut any = false;
    for heap in heaps() {
        // ORDER: as in `pass`.
        if heap.usage.load(Ordering::Relaxed) == usage::THREAD && !core::ptr::eq(heap, mine) {
            any |= begin_with(heap, who);
        }
    }
    if any {
        take_all(who, batch);
    }
}

/// Returns the bytes of the blocks in a heap's magazines, and a number that changes when its thread allocates or frees.
fn measure(heap: &Heap) -> (usize, u64) {
    // ORDER: statistics.
    let mut now =
        requested_from(heap) ^ u64::from(heap.refills.load(Ordering::Relaxed)).rotate_left(40);
    let mut bytes = 0;
    for class in 0..class::count() {
        let bounds = &heap.magazine(class).bounds;
        bytes += bounds.held() * class::get(class).size as usize;
        now = now.wrapping_add(bounds.position() as u64).rotate_left(7);
    }
    (bytes, now)
}

/// Revokes a heap's magazines; `true`: they may be taken after a barrier. Otherwise its thread is asked (J2): as its
/// magazines look empty, its next malloc comes to a slow path.
fn begin_with(heap: &Heap, who: Who) -> bool {
    let may = may_revoke();
    if !heap.lock.lock(who) {
        return false;
    }
    // ORDER: the lock is held.
    let has_thread = heap.usage.load(Ordering::Relaxed) == usage::THREAD;
    // SAFETY: the lock is held; PURGE_LOCK too (revoke.V1).
    let revoked = has_thread && unsafe { revoke::revoke(heap) };
    let may = may && heap.revocable.load(Ordering::Relaxed) != 0; // ORDER: as above
    if revoked && may {
        heap.revoking.store(REVOKED, Ordering::Relaxed); // ORDER: only the holder of PURGE_LOCK uses it
    } else if revoked {
        heap.asked_to_empty.store(1, Ordering::Relaxed); // ORDER: the lock is held
    }
    heap.lock.unlock();
    revoked && may
}

/// Takes the blocks of every heap whose magazines are revoked: one barrier for all of them.
fn take_all(who: Who, batch: &mut Batch) {
    if !section::barrier() {
        // Their owners open them again. No kernel that has registered the process refuses.
        return;
    }
    for heap in heaps() {
        // ORDER: only the holder of PURGE_LOCK uses it.
        if heap.revoking.load(Ordering::Relaxed) != REVOKED || !heap.lock.lock(who) {
            continue;
        }
        // SAFETY: the lock is held until the batch is flushed, and the barrier has come (revoke.V1).
        let taken = unsafe { revoke::take(heap, batch) };
        batch.flush();
        heap.lock.unlock();
        heap.revoking.store(NOT, Ordering::Relaxed); // ORDER: as above
        heap.takes.fetch_add(1, Ordering::Relaxed); // ORDER: a statistic
        heap.seen.store(measure(heap).1, Ordering::Relaxed); // ORDER: as above
        TAKEN_BLOCKS.fetch_add(taken as u64, Ordering::Relaxed); // ORDER: a statistic
    }
}

#[cfg(test)]
mod tests;
