//! Steps of a marking that are due: the begin, a slice, the end, or a collection in one go.
//!
//! ```text
//!   allocation that is slow anyway ─┐
//!   end of a closure, or the client ┴─► due? ─────► on, alone: finish it          not on: collect in one go
//!                                        │          on, with others: a slice, until all of them together are past
//!                                        │          the sum of their limits; then finish it
//!                                        ├─ begin due? ─► begin
//!                                        ├─ so many bytes taken since the last slice, by all that are marked? ─► a slice
//!                                        └─ ready? ─► finish
//! ```
//!
//! D1  A heap that passes its limit while it is marked with others does not cause all of them to be finished in one
//!     pause: a slice is done instead whenever it is asked. The set's own limit is the sum of the heaps' limits.
//! D2  A marking that cannot be finished, since a closure of another heap of the set is running, does not keep a heap
//!     from being collected: it is collected alone, and the marking is given up (incremental.I6).
//!
//! Not here: the thresholds (`trigger`), how all of this is done (`marking`, `collect`).

use crate::heap::collect::collect;
use crate::heap::incremental::{Incremental, Progress};
use crate::heap::kind::Kind;
use crate::heap::set::{Busy, Roots};
use crate::heap::shortage::OutOfMemory;
use crate::heap::state::Heap;
use crate::heap::trigger::Reason;
use core::ptr::NonNull;

impl Heap {
    /// Sets how this heap is marked from now on. A marking that is on is given up.
    pub fn set_incremental(&self, table: Option<Incremental>) {
        self.abandon_marking();
        self.triggers.set_incremental(table);
    }

    /// Does what is due, and no more: begins to mark, marks a slice, ends the marking, or collects in one go. For
    /// clients of the core: before each allocation, or wherever their roots are known.
    ///
    /// # Errors
    /// As [`collect`]; what was due stays so.
    ///
    /// # Safety
    /// As [`collect`] of this heap alone; where the heap is marked incrementally, also as [`Heap::begin_marking`]; where
    /// it is marked together with others, also as [`Heap::finish_marking`].
    pub unsafe fn advance(&self, roots: &mut dyn Roots) -> Result<(), Busy> {
        if let Some(reason) = self.due() {
            // SAFETY: as the caller promises.
            if let Ok(true) = unsafe { self.advance_overdue(reason, roots) } {
                return Ok(());
            }
            // D2.
            // SAFETY: as the caller promises.
            return unsafe { collect(&[self], reason, roots) };
        }
        // Without a table, the caller that has begun a marking goes on with it.
        if self.triggers.incremental().is_none() {
            return Ok(());
        }
        if let Some(reason) = self.begin_due() {
            // SAFETY: as the caller promises.
            return unsafe { self.begin_marking(reason, roots) }.map(drop);
        }
        // SAFETY: as the caller promises.
        unsafe { self.advance_marking(roots) }
    }

    /// Collects if that is due, or if there is no room otherwise; then does what [`Heap::alloc`] does.
    ///
    /// # Errors
    /// As [`Heap::alloc`].
    ///
    /// # Safety
    /// As [`Heap::alloc`]; and `roots` tells every object of this heap that is used later and that neither a handle nor
    /// another heap's recorded edge leads to. Where the heap is marked incrementally, also as [`Heap::advance`].
    pub unsafe fn alloc_or_collect(
        &self,
        kind: &'static Kind,
        roots: &mut dyn crate::Roots,
    ) -> Result<NonNull<u8>, OutOfMemory> {
        // A refusal (a finalizer that allocates) leaves it due.
        // SAFETY: as the caller promises.
        let _ = unsafe { self.advance(roots) };
        // SAFETY: as the caller promises.
        match unsafe { self.alloc(kind) } {
            Ok(object) => Ok(object),
            Err(error) => {
                // SAFETY: as the caller promises.
                let collected = unsafe { crate::collect(&[self], Reason::Shortage, roots) };
                if collected.is_err() {
                    return Err(error);
                }
                // SAFETY: as the caller promises.
                unsafe { self.alloc(kind) }
            }
        }
    }

    /// Returns why marking should begin, if it should and is not on.
    pub(crate) fn begin_due(&self) -> Option<Reason> {
        self.triggers.begin_due().filter(|_| !self.is_marking())
    }

    /// Does a slice if one is due, and the end if nothing is left. Where the heap has no table, nothing.
    ///
    /// # Safety
    /// As [`Heap::finish_marking`].
    pub(crate) unsafe fn advance_marking(&self, roots: &mut dyn Roots) -> Result<(), Busy> {
        self.slice_if_wanted();
        if self.progress() == Progress::Ready {
            // SAFETY: as the caller promises.
            unsafe { self.finish_marking(roots) }?;
        }
        Ok(())
    }

    /// Does what is overdue while marking is on (D1). `false`: it is not on, or does not answer that reason.
    ///
    /// # Errors
    /// As [`Heap::finish_marking`].
    ///
    /// # Safety
    /// As [`Heap::finish_marking`].
    pub(crate) unsafe fn advance_overdue(
        &self,
        reason: Reason,
        roots: &mut dyn Roots,
    ) -> Result<bool, Busy> {
        let sliced = matches!(
            reason,
            Reason::Growth | Reason::ClientBytes | Reason::Stress
        );
        if !sliced || !self.is_marking() {
            return Ok(false);
        }
        if !self.is_overtaken() {
            let table = self.triggers.incremental();
            // SAFETY: as the caller promises.
            unsafe { self.mark_step(table.unwrap_or(Incremental::DEFAULT).budget()) };
            if self.progress() == Progress::More {
                return Ok(true);
            }
        }
        // SAFETY: as the caller promises.
        unsafe { self.finish_marking(roots) }
    }

    /// Reports whether the heaps that are marked together hold more than all their limits allow.
    fn is_overtaken(&self) -> bool {
        let heaps = self.marked_with();
        let used = |heap: &std::rc::Rc<Heap>| heap.triggers.used_bytes.get();
        let limit = |heap: &std::rc::Rc<Heap>| heap.triggers.limit_bytes();
        let limits = heaps.iter().map(limit).fold(0, usize::saturating_add);
        heaps.len() < 2 || heaps.iter().map(used).sum::<usize>() > limits
    }

    fn slice_if_wanted(&self) {
        let Some(table) = self.triggers.incremental() else {
            return;
        };
        let wanted = self.marking.borrow().as_ref().is_some_and(|marking| {
            let mut marking = marking.borrow_mut();
            marking.has_taken(self) >= table.slice_bytes as i64 && !marking.is_ready()
        });
        if wanted {
            // SAFETY: as the caller that has begun it promised, or has switched slices at allocations on.
            unsafe { self.mark_step(table.budget()) };
        }
    }

    /// Sets whether an allocation may do a slice of marking, or begin it.
    ///
    /// # Safety
    /// If so, each allocation is a place as [`Heap::begin_marking`] requires it.
    pub unsafe fn set_slices_at_alloc(&self, on: bool) {
        self.steps_at_alloc.set(on);
    }

    /// Does a slice at an allocation that is slow anyway, if it may and one is due.
    #[cold]
    pub(crate) fn slice_at_alloc(&self) {
        if self.is_marking() {
            self.slice_if_wanted();
        } else if !self.only_with_others.get()
            && self.triggers.incremental().is_some()
            && let Some(reason) = self.triggers.begin_due()
        {
            // A refusal leaves it due.
            // SAFETY: as the caller promised that has switched it on.
            let _ = unsafe { self.begin_marking(reason, &mut ()) };
        }
    }
}
