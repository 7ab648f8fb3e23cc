//! The cells of one kind in one heap: the span that the mutator fills, and the arenas behind it.
//!
//! ```text
//!   cur ──► end            a gap of the current arena: taken whole, filled by adding
//!   available[0] … [7]     swept arenas with free cells, the fullest first
//!   full                   swept arenas without
//!   own                    not swept yet, for the mutator alone (the others are in the hand-over)
//! ```
//!
//! E1  An arena of a space is in one place: current, one of these lists, pending, in flight or done (`handover`).
//! E2  The cells of the current span are marked as allocated when it is taken, not one by one; [`Space::retire`] takes
//!     back what is left of it before the bits are read. So an allocation is a load, an addition, a comparison and a
//!     store.
//! E3  Arenas are filled fullest first, among those that are swept: an arena with one object left has time to lose it.
//! E4  The next span is taken when this one is used up, or was taken back: the rest of a span that is forgotten is
//!     marked as allocated and never written, and code that ends objects by these bits would reach it.
//! E5  `slack_bytes` is what available arenas have beyond their objects, kept as a sum: a pause asks for it, and a walk
//!     over the heads of 50,000 arenas took half a millisecond of it (`--example marking`, 2026-11-26).
//!
//! The seam for a variable-size space: it is one more shape, with its own `next_span` and `sweep`, over the runs of
//! `chunks`; a free-list policy decides what `next_span` takes.
//!
//! Not here: sweeping (`sweeping`), fresh arenas (`alloc`), thresholds (`trigger`).

use core::cell::{Cell, RefCell};
use core::ptr::NonNull;

use crate::heap::address::{ARENA_BYTES, Arena};
use crate::heap::kind::{Finalize, Kind};
use crate::heap::layout::{Shape, cell_bytes};
use crate::heap::sweep::POISON;

/// Number of classes of fullness.
const BUCKETS: usize = 8;

#[derive(Default)]
struct Lists {
    available: [Vec<Arena>; BUCKETS],
    full: Vec<Arena>,
    own: Vec<Arena>,
}

pub(crate) struct Space {
    pub(crate) kind: &'static Kind,
    pub(crate) index: u16,
    /// The division of its arenas; `None`: each object is a run.
    pub(crate) shape: Option<Shape>,
    cur: Cell<*mut u8>,
    end: Cell<*mut u8>,
    size: usize,
    arena: Cell<Option<Arena>>,
    lists: RefCell<Lists>,
    /// Bytes of E5.
    slack_bytes: Cell<usize>,
}

impl Space {
    pub(crate) fn new(kind: &'static Kind, index: u16) -> Space {
        let size = match kind.bytes {
            0 => None,
            bytes => cell_bytes(bytes, kind.align),
        };
        Space {
            kind,
            index,
            shape: size.map(Shape::cells),
            cur: Cell::new(core::ptr::null_mut()),
            end: Cell::new(core::ptr::null_mut()),
            size: size.unwrap_or(usize::MAX),
            arena: Cell::new(None),
            lists: RefCell::default(),
            slack_bytes: Cell::new(0),
        }
    }

    /// Reports whether the sweeper may have its arenas.
    pub(crate) fn elsewhere(&self) -> bool {
        self.kind.swept_on() != Finalize::Mutator
    }

    /// Returns the next cell of the span. Cost: E2.
    #[inline(always)]
    pub(crate) fn bump(&self) -> Option<NonNull<u8>> {
        let cur = self.cur.get();
        if self.end.get().addr() - cur.addr() < self.size {
            return None;
        }
        // SAFETY: E2: the span holds at least one more cell, and is not at address 0.
        unsafe {
            self.cur.set(cur.add(self.size));
            Some(NonNull::new_unchecked(cur))
        }
    }

    /// Takes the next gap of the current arena, of at most `most` cells, as the span. Returns its bytes; `None`: there
    /// is no gap left, and the arena is full.
    pub(crate) fn next_span(&self, most: usize) -> Option<usize> {
        let arena = self.arena.get()?;
        debug_assert_eq!(self.cur.get(), self.end.get(), "E4");
        let head = arena.head();
        let cells = head.cells.get() as usize;
        let Some((first, end)) = head.allocated.gap(head.scan.get() as usize, cells) else {
            head.live.set(head.cells.get());
            self.lists.borrow_mut().full.push(arena);
            self.clear_span();
            return None;
        };
        let end = end.min(first + most);
        head.allocated.add_range(first, end);
        head.scan.set(end as u16);
        let start = arena.cell(first).as_ptr();
        let bytes = (end - first) * self.size;
        self.cur.set(start);
        // SAFETY: the gap lies in the arena.
        self.end.set(unsafe { start.add(bytes) });
        Some(bytes)
    }

    fn clear_span(&self) {
        self.arena.set(None);
        self.cur.set(core::ptr::null_mut());
        self.end.set(core::ptr::null_mut());
    }

    /// Checks that the cells of the span were not written to since they were freed.
    #[cold]
    pub(crate) fn check_poison(&self, bytes: usize) {
        let start = self.cur.get();
        for offset in 0..bytes {
            // SAFETY: the span is this thread's, and was filled with the pattern.
            let byte = unsafe { start.add(offset).read() };
            let (kind, at) = ((self.kind.name)(), start.wrapping_add(offset));
            assert_eq!(
                byte, POISON,
                "a free cell of kind {kind} was written to at {at:p}: an edge or root was not told, or was kept"
            );
        }
    }

    /// Sets the arena to fill from now on; the current one is retired. Returns the bytes taken and not used.
    pub(crate) fn set_current(&self, arena: Arena) -> usize {
        let unused = self.retire();
        self.arena.set(Some(arena));
        unused
    }

    /// Returns the bytes of the rest of the span.
    pub(crate) fn unused_bytes(&self) -> usize {
        self.end.get().addr() - self.cur.get().addr()
    }

    /// Takes back the rest of the span and puts the arena into its list. Returns the bytes of the rest.
    pub(crate) fn retire(&self) -> usize {
        let Some(arena) = self.arena.get() else {
            return 0;
        };
        let unused = self.unused_bytes();
        let head = arena.head();
        if unused > 0 {
            let first = arena.cell_of(self.cur.get().addr());
            head.allocated
                .remove_range(first, first + unused / self.size);
        }
        head.scan.set(0);
        head.live.set(head.allocated.count() as u16);
        self.clear_span();
        self.place(arena);
        unused
    }

    /// Puts a swept arena with objects in it on the list where it belongs.
    pub(crate) fn place(&self, arena: Arena) {
        let head = arena.head();
        let (live, cells) = (head.live.get() as usize, head.cells.get() as usize);
        let mut lists = self.lists.borrow_mut();
        if live >= cells {
            lists.full.push(arena);
        } else {
            // Nearly full arenas are in bucket 0.
            let bucket = (cells - live) * BUCKETS / (cells + 1);
            lists.available[bucket.min(BUCKETS - 1)].push(arena);
            self.slack_bytes
                .set(self.slack_bytes.get() + self.slack_of(arena));
        }
    }

    /// Returns the bytes of an available arena that hold no object.
    fn slack_of(&self, arena: Arena) -> usize {
        ARENA_BYTES - arena.head().live.get() as usize * self.size
    }

    /// Returns the fullest arena with room.
    pub(crate) fn take_available(&self) -> Option<Arena> {
        let mut lists = self.lists.borrow_mut();
        let arena = lists.available.iter_mut().find_map(Vec::pop)?;
        self.slack_bytes
            .set(self.slack_bytes.get() - self.slack_of(arena));
        Some(arena)
    }

    /// Adds a run that was just taken.
    pub(crate) fn add_full(&self, arena: Arena) {
        self.lists.borrow_mut().full.push(arena);
    }

    /// Takes all arenas, none of which counts as swept from now on. No arena is current (E2).
    pub(crate) fn take_all(&self) -> Vec<Arena> {
        debug_assert!(self.arena.get().is_none(), "E2");
        let mut lists = self.lists.borrow_mut();
        let mut all = std::mem::take(&mut lists.full);
        for available in &mut lists.available {
            all.append(available);
        }
        self.slack_bytes.set(0);
        all
    }

    /// Sets the arenas that only this thread may sweep.
    pub(crate) fn set_own(&self, arenas: Vec<Arena>) {
        self.lists.borrow_mut().own = arenas;
    }

    pub(crate) fn take_own(&self) -> Option<Arena> {
        self.lists.borrow_mut().own.pop()
    }

    pub(crate) fn has_own(&self) -> bool {
        !self.lists.borrow().own.is_empty()
    }

    /// Gives back what the lists do not need.
    pub(crate) fn shrink(&self) {
        let mut lists = self.lists.borrow_mut();
        lists.available.iter_mut().for_each(Vec::shrink_to_fit);
        lists.full.shrink_to_fit();
        lists.own.shrink_to_fit();
    }

    /// Returns the arenas in lists and the current one, for checks.
    pub(crate) fn listed(&self) -> Vec<Arena> {
        let lists = self.lists.borrow();
        let available = lists.available.iter().flatten();
        available
            .chain(&lists.full)
            .chain(&lists.own)
            .copied()
            .chain(self.arena.get())
            .collect()
    }

    /// Returns the free bytes of arenas that are swept, and those that no cell can use (E5).
    pub(crate) fn slack_bytes(&self) -> usize {
        self.slack_bytes.get()
    }

    /// Checks the sum of E5.
    pub(crate) fn check_slack(&self) {
        let lists = self.lists.borrow();
        let arenas = lists.available.iter().flatten();
        let sum: usize = arenas.map(|arena| self.slack_of(*arena)).sum();
        assert_eq!(sum, self.slack_bytes.get(), "E5 {}", (self.kind.name)());
    }
}
