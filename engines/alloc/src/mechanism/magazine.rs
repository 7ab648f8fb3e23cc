//! The bounds of a magazine: its owner moves them without a lock, and any other thread can take what lies between.
//!
//! ```text
//!   first ─ entries ─ top ─ room ─ end        open      owner: pop, push
//!                                             revoked   bottom above every top, end below: nothing to pop, no room
//!
//!   other   revoke ──► barrier ──► take                 (revoke and take under the heap's lock)
//!   owner                                └──► open      (under the lock, when it next fills the magazine)
//! ```
//!
//! M1  Bounds change by the owner's [`Bounds::pop`] and [`Bounds::push`], which run as restartable sections
//!     (`section`), or under the heap's lock. A section has one store that counts, its last: that of `top`.
//! M2  A section that loads the bounds after they were revoked does nothing. One that loaded them before has stored `top`
//!     when a barrier returns, or begins anew. So whoever has the lock after that barrier has the entries for himself.
//! M3  Only the owner opens a revoked magazine. If a taker did, a section might have loaded `top` before the take and
//!     `bottom` after it: the kernel begins a section anew that it interrupts, but it does not see when the machine
//!     below it stops a processor between two loads.
//!
//! The models run this very file (`tests/models.rs`), with a mutex for what the kernel does.
//!
//! Not here: sections and the barrier (`section`), what becomes of entries (`revoke`).

use core::sync::atomic::compiler_fence;

use skinflint_base::sync::{AtomicPtr, Ordering};

/// The bit in `bottom` that makes it higher than every address.
const REVOKED: usize = 1 << 63;

/// The bounds of a magazine of `E`s (M1). All three are null before its first use, so that it is empty and full.
#[repr(C)]
pub struct Bounds<E> {
    /// One past the newest entry.
    top: AtomicPtr<E>,
    /// The oldest entry; see [`REVOKED`].
    bottom: AtomicPtr<E>,
    /// One past the last entry that there is room for.
    end: AtomicPtr<E>,
}

/// Offsets of the bounds, for assembly.
pub const TOP_AT: usize = core::mem::offset_of!(Bounds<u64>, top);
/// See [`TOP_AT`].
pub const BOTTOM_AT: usize = core::mem::offset_of!(Bounds<u64>, bottom);
/// See [`TOP_AT`].
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
pub const END_AT: usize = core::mem::offset_of!(Bounds<u64>, end);

/// Keeps the stores before it before those behind it, for a signal handler of this thread.
#[inline(always)]
fn in_order() {
    compiler_fence(Ordering::SeqCst); // ORDER: of the compiler only. [reason: compiler]
}

impl<E> Bounds<E> {
    /// Creates the bounds of a magazine without room.
    #[cfg(any(loom, test))]
    #[allow(dead_code)] // by the models
    pub fn new() -> Bounds<E> {
        Bounds {
            top: AtomicPtr::new(core::ptr::null_mut()),
            bottom: AtomicPtr::new(core::ptr::null_mut()),
            end: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// Takes the newest entry; `None`: there is none. The section does just this (M1; `section`).
    ///
    /// # Safety
    /// The caller is the owner; `take` reads the entry, which may be written to from the return on.
    #[cfg(any(loom, test, not(target_arch = "x86_64")))]
    #[allow(dead_code)] // by the models
    #[inline(always)]
    pub unsafe fn pop<R>(&self, take: impl FnOnce(*mut E) -> R) -> Option<R> {
        // ORDER: own, or revoked (M2); the lock orders what others did. [reason: lock]
        let top = self.top.load(Ordering::Relaxed);
        // ORDER: as above.
        if top <= self.bottom.load(Ordering::Relaxed) {
            return None;
        }
        // SAFETY: there is an entry below `top`.
        let entry = unsafe { top.sub(1) };
        let taken = take(entry);
        // ORDER: as above; the barrier orders it for a taker (M2). [reason: kernel]
        self.top.store(entry, Ordering::Relaxed);
        Some(taken)
    }

    /// Adds an entry, which `put` writes; `false`: there is no room. The section does just this (M1; `section`).
    ///
    /// # Safety
    /// The caller is the owner.
    #[cfg(any(loom, test, not(target_arch = "x86_64")))]
    #[allow(dead_code)] // by the models
    #[inline(always)]
    pub unsafe fn push(&self, put: impl FnOnce(*mut E)) -> bool {
        // ORDER: as in `pop`.
        let top = self.top.load(Ordering::Relaxed);
        // ORDER: as in `pop`.
        if top >= self.end.load(Ordering::Relaxed) {
            return false;
        }
        put(top);
        // SAFETY: there is room below `end`.
        let above = unsafe { top.add(1) };
        // ORDER: as in `pop`. [reason: kernel]
        self.top.store(above, Ordering::Relaxed);
        true
    }

    /// Returns the place of the first entry; null if there is no room yet.
    #[inline]
    pub fn first(&self) -> *mut E {
        // ORDER: a look, or the lock is held.
        let bottom = self.bottom.load(Ordering::Relaxed);
        bottom.map_addr(|address| address & !REVOKED)
    }

    /// Returns the number of entries: exact under the lock if it is revoked, else a look.
    #[inline]
    pub fn held(&self) -> usize {
        // ORDER: a look, or the lock is held.
        let bytes = self
            .top
            .load(Ordering::Relaxed)
            .addr()
            .wrapping_sub(self.first().addr());
        // Both may have changed in between.
        if bytes > isize::MAX as usize {
            0
        } else {
            bytes / size_of::<E>().max(1)
        }
    }

    /// Returns a number that changes when `top` does.
    #[inline]
    pub fn position(&self) -> usize {
        // ORDER: a look.
        self.top.load(Ordering::Relaxed).addr()
    }

    /// Reports whether it is revoked. The lock is held.
    pub fn is_revoked(&self) -> bool {
        // ORDER: the lock is held.
        self.bottom.load(Ordering::Relaxed).addr() & REVOKED != 0
    }

    /// Makes it look both empty and full; `false`: it has no room anyway. The lock is held.
    pub fn revoke(&self) -> bool {
        let first = self.first();
        if first.is_null() {
            return false;
        }
        // ORDER: for another thread the barrier that follows orders it (M2); for the owner, the lock. [reason: kernel]
        self.bottom.store(
            first.map_addr(|address| address | REVOKED),
            Ordering::Relaxed,
        );
        self.end.store(core::ptr::null_mut(), Ordering::Relaxed); // ORDER: as above
        in_order();
        true
    }

    /// Takes every entry out of a revoked magazine, the newest first; returns their number. It stays revoked (M3).
    ///
    /// # Safety
    /// The lock is held; the caller is the owner, or a barrier has come after [`Bounds::revoke`], or there is no owner.
    pub unsafe fn take(&self, mut look: impl FnMut(*mut E)) -> usize {
        let (first, held) = (self.first(), self.held());
        for i in (0..held).rev() {
            // SAFETY: entries lie from `first` up to `top`, and stand still (M2).
            look(unsafe { first.add(i) });
        }
        self.top.store(first, Ordering::Relaxed); // ORDER: the lock is held
        held
    }

    /// Gives up its room, so that it is as before its first use. The lock is held, it is empty and has no owner.
    pub fn forget(&self) {
        for bound in [&self.top, &self.bottom, &self.end] {
            bound.store(core::ptr::null_mut(), Ordering::Relaxed); // ORDER: the lock is held
        }
    }

    /// Opens it again if it is revoked and nobody has come to take what is in it; returns the number of its entries, 0 if it
    /// has none or is no revoked one. The lock is held by the owner.
    ///
    /// # Safety
    /// There is as much room.
    pub unsafe fn reopen(&self, room: usize) -> usize {
        let held = if self.is_revoked() { self.held() } else { 0 };
        if held > 0 {
            // SAFETY: as the caller promises; its own entries.
            unsafe { self.open(self.first(), held, room) };
        }
        held
    }

    /// Opens it with `held` entries from `first` on, and room for `room`. The lock is held by the owner, or there is none.
    ///
    /// # Safety
    /// There are as many entries, and as much room.
    pub unsafe fn open(&self, first: *mut E, held: usize, room: usize) {
        // In this order, for a signal handler of the owner's: until there is room it does not push.
        // SAFETY: as the caller promises.
        let (top, end) = unsafe { (first.add(held), first.add(room)) };
        self.top.store(top, Ordering::Relaxed); // ORDER: own (M2)
        in_order();
        self.bottom.store(first, Ordering::Relaxed); // ORDER: as above
        in_order();
        self.end.store(end, Ordering::Relaxed); // ORDER: as above
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn push(bounds: &Bounds<u64>, number: u64) -> bool {
        // SAFETY: one thread.
        unsafe { bounds.push(|entry| entry.write(number)) }
    }

    fn pop(bounds: &Bounds<u64>) -> Option<u64> {
        // SAFETY: one thread.
        unsafe { bounds.pop(|entry| entry.read()) }
    }

    #[test]
    fn what_is_revoked_is_empty_and_full_until_its_owner_opens_it() {
        let mut room = [0u64; 3];
        let bounds = Bounds::new();
        assert!(!push(&bounds, 1) && pop(&bounds).is_none() && !bounds.revoke());
        // SAFETY: `room` is the test's, below too.
        unsafe { bounds.open(room.as_mut_ptr(), 0, 3) };
        assert!(push(&bounds, 1) && push(&bounds, 2) && push(&bounds, 3) && !push(&bounds, 4));
        assert_eq!((pop(&bounds), bounds.held()), (Some(3), 2));
        assert!(bounds.revoke() && bounds.is_revoked());
        assert!(!push(&bounds, 5) && pop(&bounds).is_none());
        assert_eq!(bounds.held(), 2);
        let mut taken = Vec::new();
        // SAFETY: as above.
        let count = unsafe { bounds.take(|entry| taken.push(*entry)) };
        assert_eq!((count, taken, bounds.held()), (2, vec![2, 1], 0));
        assert!(!push(&bounds, 6) && pop(&bounds).is_none() && bounds.is_revoked());
        // SAFETY: as above.
        unsafe { bounds.open(bounds.first(), 0, 3) };
        assert!(push(&bounds, 7) && pop(&bounds) == Some(7) && pop(&bounds).is_none());
    }
}
