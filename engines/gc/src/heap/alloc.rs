//! Allocation in a heap.
//!
//! ```text
//!   alloc ─► space of the kind ─► span ─► object
//!              │ used up
//!              ▼
//!            next gap ─► fullest swept arena ─┬─► the sweeper has arenas: fresh arena, within bounds (P6)
//!                                             └─► sweep up to LAZY pending ones, until one is empty or has room
//!                                                   ─► a free arena, a resident one first ─► the source
//! ```
//!
//! P2  Nothing is collected by an allocation: it only makes a collection due ([`Heap::due`]). The client collects
//!     where its roots are known, for instance before each allocation ([`Heap::alloc_or_collect`]).
//! P3  An object that was allocated is written before the next allocation or collection. Until a collection does
//!     not reach it, it stays where it is.
//! P5  A shortage in one heap is an error of that heap's allocation, and of no other's.
//! P6  While the sweeper has arenas of a kind with finalizers, its allocations take what is swept, and then new memory
//!     rather than sweep: the heap holds at most [`Config::ahead`](crate::Config::ahead) more than when its last
//!     collection ended, and stays an eighth of its limit away from it. Beyond that they sweep, as where there is no
//!     sweeper. (V8 and SpiderMonkey do the same: allocation beside a background sweep adds arenas. Without a bound a
//!     program that allocates faster than its objects end would double its peak.) A kind without finalizers is always
//!     swept: sixteen loads and eight stores for an arena, where a new page is a fault. On binary trees going ahead for
//!     these made the peak 0.1 of what lives higher, and the time no shorter (2026-11-26).
//!
//! state.P1 is that of `state`, sweeping.P4 that of `sweeping`.
//!
//! Not here: allocation that collects first (`incremental::due`), sweeping (`sweeping`).

use core::ptr::NonNull;
use std::rc::Rc;

use crate::heap::address::{ARENA_BYTES, Arena};
use crate::heap::kind::Kind;
use crate::heap::shortage::{OutOfMemory, Shortage};
use crate::heap::space::Space;
use crate::heap::state::{CACHE, Heap};
use crate::heap::sweep::POISON;
use crate::heap::sweeping::LAZY;
use crate::heap::trigger::Reason;

impl Heap {
    /// Returns room for an object of `kind`, uninitialised (P3). Cost: a hash of the kind's address, two comparisons, a
    /// store.
    ///
    /// # Errors
    /// There is no memory within this heap's limit or at all, even after everything was swept; or a snapshot is being
    /// written.
    ///
    /// # Safety
    /// The caller writes the object before the next allocation or collection (P3): its kind's functions are called with
    /// it.
    #[inline]
    pub unsafe fn alloc(&self, kind: &'static Kind) -> Result<NonNull<u8>, OutOfMemory> {
        let key: *const Kind = kind;
        let hash = (key.addr() >> 4 ^ key.addr() >> 10) % CACHE;
        let (known, space) = self.cache[hash].get();
        if known == key {
            // SAFETY: spaces live as long as the heap, and do not move.
            let space = unsafe { &*space };
            if let Some(object) = space.bump() {
                return Ok(object);
            }
            return self.alloc_slow(space);
        }
        let space = self.space(kind);
        self.cache[hash].set((key, Rc::as_ptr(&space)));
        self.alloc_slow(&space)
    }

    /// Returns room for an object of a kind whose objects differ in size: each has whole pages.
    ///
    /// # Errors
    /// As [`Heap::alloc`].
    ///
    /// # Safety
    /// As [`Heap::alloc`].
    pub unsafe fn alloc_bytes(
        &self,
        kind: &'static Kind,
        bytes: usize,
    ) -> Result<NonNull<u8>, OutOfMemory> {
        let space = self.space(kind);
        if space.shape.is_some() {
            // SAFETY: as the caller promises.
            return unsafe { self.alloc(kind) };
        }
        if self.still.get() {
            return Err(self.out_of_memory(bytes, Shortage::Still));
        }
        self.stress();
        if self.steps_at_alloc.get() {
            self.slice_at_alloc();
        }
        self.alloc_run(&space, bytes)
    }

    /// Returns the space of a kind, which is made when it is first asked for.
    fn space(&self, kind: &'static Kind) -> Rc<Space> {
        let key: *const Kind = kind;
        let mut by_kind = self.by_kind.borrow_mut();
        let mut spaces = self.spaces.borrow_mut();
        let next = spaces.len() as u16;
        let index = *by_kind.entry(key).or_insert(next);
        if index == next {
            spaces.push(Rc::new(Space::new(kind, index)));
        }
        spaces[usize::from(index)].clone()
    }

    pub(crate) fn spaces(&self) -> Vec<Rc<Space>> {
        self.spaces.borrow().clone()
    }

    /// Counts towards the nth allocation, where the heap is under stress.
    fn stress(&self) {
        if let Some(every) = self.world.config.stress_every {
            self.stressed.set(self.stressed.get() + 1);
            if self.stressed.get() >= every.max(1) {
                self.stressed.set(0);
                self.triggers.raise_begin(Reason::Stress);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn alloc_slow(&self, space: &Space) -> Result<NonNull<u8>, OutOfMemory> {
        // No span is left then, so every allocation comes here (number.U1).
        if self.still.get() {
            return Err(self.out_of_memory(space.kind.bytes, Shortage::Still));
        }
        self.stress();
        if self.steps_at_alloc.get() {
            self.slice_at_alloc();
        }
        if space.shape.is_none() {
            return self.alloc_run(space, space.kind.bytes);
        }
        let config = &self.world.config;
        if self.chunks.borrow().is_over() {
            // Arenas that are not swept yet may have finalizers that lower the client's bytes.
            self.finish_sweep();
            if self.chunks.borrow().is_over() {
                return Err(self.out_of_memory(space.kind.bytes, Shortage::Limit));
            }
        }
        // Under stress each allocation comes here.
        let most = config.stress_every.map_or(usize::MAX >> 1, |_| 1);
        loop {
            // space.E4: a space that was pushed out of the cache still has a span, and a finalizer above may have taken one.
            if let Some(object) = space.bump() {
                return Ok(object);
            }
            if let Some(bytes) = space.next_span(most) {
                self.triggers.took(bytes);
                if config.poison {
                    space.check_poison(bytes);
                }
                continue;
            }
            let arena = self.next_arena(space)?;
            // A finalizer may have made another arena current meanwhile.
            self.triggers.returned(space.set_current(arena));
        }
    }

    /// Returns an arena with room for a cell.
    fn next_arena(&self, space: &Space) -> Result<Arena, OutOfMemory> {
        if let Some(arena) = space.take_available() {
            return Ok(arena);
        }
        if self.sweeping.get()
            && let Some(arena) = self.sweep_for(space)
        {
            return Ok(arena);
        }
        // All may be swept, and more may be free than will be needed.
        if self.sweeping.get()
            && self.handover.is_quiet()
            && self.poll()
            && let Some(arena) = space.take_available()
        {
            return Ok(arena);
        }
        match self.fresh_arena(space) {
            Ok(arena) => Ok(arena),
            Err(shortage) => {
                // Arenas that are not swept yet may be free.
                self.finish_sweep();
                let swept = space.take_available();
                let arena = swept.map_or_else(|| self.fresh_arena(space), Ok);
                arena.map_err(|_| self.out_of_memory(space.kind.bytes, shortage))
            }
        }
    }

    fn fresh_arena(&self, space: &Space) -> Result<Arena, Shortage> {
        let shape = space.shape.ok_or(Shortage::Size)?;
        let mut chunks = self.chunks.borrow_mut();
        let arena = chunks.take_arena(space.kind, space.index, shape)?;
        if !self.sweeping.get() {
            self.triggers.held(chunks.all_bytes());
        }
        if self.world.config.poison {
            // SAFETY: the arena was just taken, and holds no object.
            unsafe { arena.0.as_ptr().write_bytes(POISON, ARENA_BYTES) };
        }
        Ok(arena)
    }

    fn alloc_run(&self, space: &Space, bytes: usize) -> Result<NonNull<u8>, OutOfMemory> {
        let pages = bytes.div_ceil(ARENA_BYTES).max(1);
        self.settle_done(space);
        // Room of dead objects of this space is given back first, as much as is needed now.
        let mut freed = 0;
        for _ in 0..LAZY {
            if freed >= pages || self.may_go_ahead(space, pages) {
                break;
            }
            let Some(arena) = self.sweep_one(space) else {
                break;
            };
            freed += self.settle(space, arena);
        }
        let take = || {
            let mut chunks = self.chunks.borrow_mut();
            chunks.take_run(space.kind, space.index, pages)
        };
        let arena = match take() {
            Ok(arena) => arena,
            Err(shortage) => {
                self.finish_sweep();
                take().map_err(|_| self.out_of_memory(bytes, shortage))?
            }
        };
        if !self.sweeping.get() {
            self.triggers.held(self.chunks.borrow().all_bytes());
        }
        arena.head().allocated.add(0);
        arena.head().live.set(1);
        space.add_full(arena);
        self.triggers.took(pages * ARENA_BYTES);
        Ok(arena.0)
    }
}
