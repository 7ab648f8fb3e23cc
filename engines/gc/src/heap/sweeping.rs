//! Sweeping in a heap: on demand, when idle, to the end; and where swept arenas go.
//!
//! ```text
//!   pending, or done by the sweeper ─► sweep_one ─► settle ─┬─ objects left: on its space's list
//!                                                           └─ none: free, and back to the source in time
//! ```
//!
//! P4  A finalizer may allocate and remove roots. While one runs nothing else is swept and nothing collected:
//!     allocations take swept or fresh arenas. So finalizers do not nest, however many of them allocate.
//!
//! Not here: sweeping one arena (`sweep`), the sweeper's side (`sweeper`).

use crate::heap::address::{ARENA_BYTES, Arena};
use crate::heap::space::Space;
use crate::heap::state::Heap;
use crate::heap::sweep::{Tally, sweep};

/// The most arenas that one slow allocation sweeps before it takes a fresh one: twenty microseconds.
pub(super) const LAZY: usize = 8;

/// The same where no object has a finalizer: a few microseconds, as a new page takes. Between short-lived objects lie the arenas
/// of what stays, all of them full: where the sweeper gets no processor, a fresh arena for each eight of those made the peak of
/// binary trees 0.12 of what lives higher.
const LAZY_PLAIN: usize = 64;

/// The most arenas that a poll sweeps.
const POLL: usize = 64;

impl Heap {
    /// Returns an arena with room out of those that are not swept yet, if the first few include one. Empty ones are
    /// freed.
    pub(super) fn sweep_for(&self, space: &Space) -> Option<Arena> {
        self.settle_done(space);
        let most = match space.kind.finalize {
            Some(_) => LAZY,
            None => LAZY_PLAIN,
        };
        for _ in 0..most {
            if let Some(arena) = space.take_available() {
                return Some(arena);
            }
            if self.may_go_ahead(space, 1) {
                return None;
            }
            let arena = self.sweep_one(space)?;
            if self.settle(space, arena) > 0 {
                // What was just freed is resident, and the next to be taken.
                return None;
            }
        }
        space.take_available()
    }

    /// Takes over the arenas of a space that the sweeper has done.
    pub(super) fn settle_done(&self, space: &Space) {
        if self.sweeping.get() {
            for arena in self.handover.take_done(usize::from(space.index)) {
                self.settle(space, arena);
            }
        }
    }

    /// Reports whether an allocation takes `pages` new pages and leaves its space's arenas to the sweeper (alloc.P6).
    pub(super) fn may_go_ahead(&self, space: &Space, pages: usize) -> bool {
        let fits = || {
            let held = self.chunks.borrow().held_bytes();
            held + pages * ARENA_BYTES <= self.ahead_bytes.get()
        };
        // An arena without finalizers is swept in less than a tenth of the time that the kernel takes for a new page.
        let ends = space.kind.finalize.is_some() && space.elsewhere();
        if !self.sweeping.get() || !ends || self.ahead_bytes.get() == 0 {
            return false;
        }
        if !fits() {
            // What was swept in other spaces may have nothing left in it.
            self.absorb();
        }
        fits()
    }

    /// Sets how far allocations may go ahead of the sweeper, which is about to have arenas (alloc.P6). `unfilled`: free
    /// bytes of arenas in use that the program did not fill since the last collection, which are a part of it: what it
    /// went ahead each time would add up otherwise, where survivors keep all arenas.
    pub(super) fn set_ahead(&self, unfilled: usize) {
        let config = &self.world.config;
        if !config.background || config.ahead <= 0.0 {
            return;
        }
        let chunks = self.chunks.borrow();
        let (held, limit) = (chunks.held_bytes(), chunks.limit_bytes());
        let more = (held as f64 * config.ahead) as usize;
        let outside = chunks.all_bytes() - held;
        let most = (limit - limit / 8).saturating_sub(outside);
        let ahead = held.saturating_add(more) - unfilled;
        self.ahead_bytes.set(ahead.min(most));
    }

    /// Sweeps one pending arena of a space on this thread (P4).
    pub(super) fn sweep_one(&self, space: &Space) -> Option<Arena> {
        if !self.sweeping.get() || self.finalizing.get() {
            return None;
        }
        let lane = usize::from(space.index);
        let arena = space.take_own().or_else(|| self.handover.claim(lane))?;
        let mut tally = Tally::default();
        self.finalizing.set(true);
        sweep(arena, self.world.config.poison, &mut tally);
        self.finalizing.set(false);
        let mut counts = self.counts.borrow_mut();
        let cells = if self.collecting.get() {
            &mut counts.pause_cells
        } else {
            &mut counts.lazy_cells
        };
        *cells += tally.cells;
        counts.add(tally);
        Some(arena)
    }

    /// Puts a swept arena on the list where it belongs; frees it if nothing is left in it. Returns the pages freed.
    pub(super) fn settle(&self, space: &Space, arena: Arena) -> usize {
        if arena.head().live.get() > 0 {
            space.place(arena);
            return 0;
        }
        let pages = arena.head().pages.get() as usize;
        self.chunks.borrow_mut().free(arena);
        pages
    }

    /// Sweeps everything that is pending, on this thread, and waits for what the sweeper has. Does nothing within a
    /// finalizer (P4).
    pub(crate) fn finish_sweep(&self) {
        if !self.sweeping.get() || self.finalizing.get() {
            return;
        }
        for space in self.spaces() {
            while let Some(arena) = self.sweep_one(&space) {
                self.settle(&space, arena);
            }
        }
        self.handover.wait_quiet();
        self.absorb();
        // Finalizers that allocated meanwhile have offered nothing: all is swept.
        self.sweeping.set(false);
        debug_assert!(self.handover.is_quiet());
    }

    /// Takes over the arenas that the sweeper has done.
    pub(crate) fn absorb(&self) {
        let spaces = self.spaces();
        for (space, arenas) in spaces.iter().zip(self.handover.take_all_done()) {
            for arena in arenas {
                self.settle(space, arena);
            }
        }
        self.take_sums();
    }

    /// Adds up the sums of what the sweeper has done.
    pub(super) fn take_sums(&self) {
        let mut purged = 0;
        let mut counts = self.counts.borrow_mut();
        for tally in self.handover.take_sums() {
            counts.background_cells += tally.cells;
            purged += tally.purged_bytes;
            counts.add(tally);
        }
        if purged > 0 {
            self.world.source.count_purged(purged);
        }
    }

    /// Does waiting work, for an event loop that has nothing better to do: takes over what was swept meanwhile, sweeps
    /// some of the arenas that only this thread may sweep, and once all is swept gives back what will not be needed
    /// before the next collection. Returns whether all is swept. Bounded to some hundred microseconds, without
    /// finalizers.
    pub fn poll(&self) -> bool {
        if self.collecting.get() || self.finalizing.get() {
            return false;
        }
        self.absorb();
        let spaces = self.spaces();
        let elsewhere = self.world.sweeper().is_some();
        let mut swept = 0;
        for space in spaces.iter().filter(|s| !elsewhere || !s.elsewhere()) {
            while swept < POLL
                && let Some(arena) = self.sweep_one(space)
            {
                self.settle(space, arena);
                swept += 1;
            }
        }
        let own = spaces.iter().any(|space| space.has_own());
        if self.sweeping.get() && !own && self.handover.is_quiet() {
            self.finish_sweep();
            self.trim();
        }
        !self.sweeping.get()
    }

    /// Returns the bytes that may still be taken before the next collection.
    pub(crate) fn wanted_bytes(&self) -> usize {
        self.triggers.wanted_bytes()
    }

    /// Gives back the free arenas that will not be needed before the next collection. Returns their bytes.
    pub fn trim(&self) -> usize {
        if self.still.get() {
            return 0;
        }
        let wanted = self.wanted_bytes();
        let slack = self.slack_bytes();
        self.chunks.borrow_mut().trim(wanted.saturating_sub(slack))
    }

    /// Returns the free bytes of swept arenas that nothing fills at the moment.
    pub(super) fn slack_bytes(&self) -> usize {
        self.spaces().iter().map(|space| space.slack_bytes()).sum()
    }

    /// Returns the bytes of the spans that are being filled, as far as they hold no object yet.
    pub(super) fn unused_bytes(&self) -> usize {
        self.spaces().iter().map(|space| space.unused_bytes()).sum()
    }

    /// Sweeps everything and gives back everything that is free: free arenas, and the source's empty chunks. Returns
    /// the bytes of arenas.
    pub fn shrink(&self) -> usize {
        if self.still.get() {
            return 0;
        }
        self.finish_sweep();
        let bytes = self.chunks.borrow_mut().trim(0);
        self.chunks.borrow().source().shrink();
        self.spaces().iter().for_each(|space| space.shrink());
        bytes
    }

    /// Takes back what is left of all spans (space.E2), so that the bits show objects.
    pub(crate) fn retire(&self) {
        for space in self.spaces() {
            self.triggers.returned(space.retire());
        }
    }

    /// Reports whether a finalizer of this heap is running on this thread.
    pub(crate) fn is_finalizing(&self) -> bool {
        self.finalizing.get()
    }

    /// Sweeps everything and takes back all spans: the bits show objects.
    pub(crate) fn settle_all(&self) {
        assert!(
            !self.finalizing.get() && !self.collecting.get(),
            "a finalizer or tracer may not look at all of its heap"
        );
        self.finish_sweep();
        self.retire();
    }

    /// Ends everything as unreached: finalizers run, arenas are freed. Objects that finalizers allocate end with the
    /// rest.
    pub(crate) fn end_all(&self) {
        // Objects that finalizers make have finalizers in turn: this has a bound, beyond which they end without.
        for _ in 0..LAZY {
            let mut ended = false;
            for space in self.spaces().iter().filter(|s| s.kind.finalize.is_some()) {
                self.triggers.returned(space.retire());
                let arenas = space.take_all();
                ended |= !arenas.is_empty();
                space.set_own(arenas);
                self.sweeping.set(true);
                while let Some(arena) = self.sweep_one(space) {
                    self.settle(space, arena);
                }
                self.sweeping.set(false);
            }
            if !ended {
                break;
            }
        }
        for space in self.spaces() {
            space.retire();
            space.take_all();
        }
        self.triggers.used_bytes.set(0);
        self.chunks.borrow_mut().release();
    }
}

impl Drop for Heap {
    /// Ends every object and gives everything back.
    fn drop(&mut self) {
        self.abandon_marking();
        self.finish_sweep();
        self.retire();
        self.end_all();
        self.world.forget(self.id);
    }
}
