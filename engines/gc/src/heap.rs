//! One heap: allocation, lazy sweeping, roots, accounts.
//!
//! ```text
//!   alloc ─► space of the kind ─► span ─► object
//!              │ used up
//!              ▼
//!            next gap ─► fullest swept arena ─► sweep up to LAZY pending ones ─► fresh arena ─► the source
//! ```
//!
//! P1  A heap belongs to one thread (it is neither Send nor Sync). It does not touch arenas that the sweeper has.
//! P2  Nothing is collected by an allocation: it only makes a collection due ([`Heap::due`]). The client collects
//!     where its roots are known, for instance before each allocation ([`Heap::alloc_or_collect`]).
//! P3  An object that was allocated is written before the next allocation or collection. Until a collection does
//!     not reach it, it stays where it is.
//! P4  A finalizer may allocate and remove roots. While one runs nothing else is swept and nothing collected:
//!     allocations take swept or fresh arenas. So finalizers do not nest, however many of them allocate.
//! P5  A shortage in one heap is an error of that heap's allocation, and of no other's.
//!
//! Not here: marking (`mark`), the order of a collection (`collect`), the sweeper's side (`sweeper`).

use core::cell::{Cell, RefCell};
use core::ptr::NonNull;
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use crate::chunks::{Chunks, Shortage};
use crate::handover::Handover;
use crate::incremental::Marking;
use crate::kind::Kind;
use crate::layout::{ARENA_BYTES, Arena};
use crate::limit::OutOfMemory;
use crate::roots::{From, RootId, RootTable};
use crate::space::Space;
use crate::sweep::{Fault, POISON, Tally, sweep};
use crate::sweeper;
use crate::trigger::{Collection, Growth, Reason, Rest, Triggers};
use crate::world::Shared;

/// The most arenas that one slow allocation sweeps before it takes a fresh one: twenty microseconds.
const LAZY: usize = 8;
/// The most arenas that a poll sweeps.
const POLL: usize = 64;
/// Number of kinds found without hashing.
const CACHE: usize = 64;

/// Sweeping that was done outside of pauses and in them, over a heap's life.
#[derive(Clone, Debug, Default)]
pub struct SweepCounts {
    /// Number of objects that ended on the sweeper's thread.
    pub background_cells: u64,
    /// Number of objects that ended when the mutator needed their room, or had nothing to do.
    pub lazy_cells: u64,
    /// Number of objects that ended in a pause, because the next collection came first.
    pub pause_cells: u64,
    /// Number of objects whose finalizers ran, on either thread.
    pub finalized: u64,
    /// Number of finalizers that panicked.
    pub panics: u64,
    /// The first of the panics.
    pub faults: Vec<Fault>,
}

/// What a heap holds, in bytes that add up: `held = heads + cells + free + used_up`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holds {
    /// Bytes of arenas in use, and of heads of chunks.
    pub held_bytes: usize,
    /// Bytes of `held_bytes` in heads.
    pub head_bytes: usize,
    /// Bytes of `held_bytes` in cells and runs that hold an object, or that the mutator is filling.
    pub cell_bytes: usize,
    /// Bytes of `held_bytes` in cells that are free.
    pub free_bytes: usize,
    /// Bytes of `held_bytes` in ends of arenas in which no cell fits.
    pub tail_bytes: usize,
    /// Bytes of free arenas that may be resident; not in `held_bytes`.
    pub dirty_bytes: usize,
    /// Bytes that objects hold outside, as the client says.
    pub client_bytes: usize,
    /// Number of objects.
    pub objects: usize,
}

/// A heap of garbage-collected objects.
pub struct Heap {
    this: Weak<Heap>,
    pub(crate) world: Rc<Shared>,
    pub(crate) id: u32,
    name: String,
    cache: [Cell<(*const Kind, *const Space)>; CACHE],
    /// Boxed, since the cache points at them. None is ever removed.
    spaces: RefCell<Vec<Rc<Space>>>,
    by_kind: RefCell<HashMap<*const Kind, u16>>,
    pub(crate) chunks: RefCell<Chunks>,
    pub(crate) handover: sweeper::Shared,
    pub(crate) sweeping: Cell<bool>,
    pub(crate) collecting: Cell<bool>,
    finalizing: Cell<bool>,
    /// Number of closures of safe code that are running and may have pointers into it.
    pub(crate) entered: Cell<u32>,
    pub(crate) roots: RefCell<RootTable>,
    pub(crate) triggers: Triggers,
    pub(crate) counts: RefCell<SweepCounts>,
    stressed: Cell<u64>,
    /// Whether the heap is being marked while the program runs (`incremental`): every barrier reads this.
    pub(crate) marking_on: Cell<bool>,
    pub(crate) marking: RefCell<Option<Rc<RefCell<Marking>>>>,
    /// Bytes taken when the marking last looked.
    pub(crate) taken_seen: Cell<i64>,
    /// Whether allocations may do a slice of marking.
    pub(crate) steps_at_alloc: Cell<bool>,
    /// Whether the heap is never collected alone, so that allocations may not begin to mark it.
    pub(crate) only_with_others: Cell<bool>,
}

impl Heap {
    pub(crate) fn new(
        this: Weak<Heap>,
        world: Rc<Shared>,
        id: u32,
        name: &str,
        limit_bytes: usize,
    ) -> Heap {
        let source = world.source.clone();
        let incremental = world.config.incremental;
        let heap = Heap {
            this,
            id,
            name: name.to_owned(),
            cache: [const { Cell::new((core::ptr::null(), core::ptr::null())) }; CACHE],
            spaces: RefCell::default(),
            by_kind: RefCell::default(),
            chunks: RefCell::new(Chunks::new(source, id, limit_bytes)),
            handover: Arc::new(Handover::new()),
            sweeping: Cell::new(false),
            collecting: Cell::new(false),
            finalizing: Cell::new(false),
            entered: Cell::new(0),
            roots: RefCell::default(),
            triggers: Triggers::new(world.config.growth),
            counts: RefCell::default(),
            stressed: Cell::new(0),
            marking_on: Cell::new(false),
            marking: RefCell::default(),
            taken_seen: Cell::new(0),
            only_with_others: Cell::new(false),
            steps_at_alloc: Cell::new(false),
            world,
        };
        heap.triggers.set_incremental(incremental);
        heap.triggers.set_room(limit_bytes);
        heap.set_growth(heap.world.config.growth);
        heap
    }

    /// Returns the heap's name, for reports.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a counted reference to the heap.
    pub(crate) fn this(&self) -> Rc<Heap> {
        // It is not being dropped: the caller has a count.
        self.this.upgrade().expect("a heap that is alive")
    }

    /// Returns the heap's number among the heaps of its world.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Returns room for an object of `kind`, uninitialised (P3). Cost: a hash of the kind's address, two comparisons, a
    /// store.
    ///
    /// # Errors
    /// There is no memory within this heap's limit or at all, even after everything was swept.
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
        self.stress();
        if self.steps_at_alloc.get() {
            self.slice_at_alloc();
        }
        self.alloc_run(&space, bytes)
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
            // E4: a space that was pushed out of the cache still has a span, and a finalizer above may have taken one.
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
        // Room of dead objects of this space is given back first, as much as is needed now.
        let mut freed = 0;
        for _ in 0..LAZY {
            if freed >= pages {
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

    /// Returns an arena with room out of those that are not swept yet, if the first few include one. Empty ones are
    /// freed.
    fn sweep_for(&self, space: &Space) -> Option<Arena> {
        for arena in self.handover.take_done(usize::from(space.index)) {
            self.settle(space, arena);
        }
        for _ in 0..LAZY {
            if let Some(arena) = space.take_available() {
                return Some(arena);
            }
            let arena = self.sweep_one(space)?;
            self.settle(space, arena);
        }
        space.take_available()
    }

    /// Sweeps one pending arena of a space on this thread (P4).
    fn sweep_one(&self, space: &Space) -> Option<Arena> {
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
    fn settle(&self, space: &Space, arena: Arena) -> usize {
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
    fn take_sums(&self) {
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
        let threshold = self.triggers.threshold_bytes.get();
        threshold.saturating_sub(self.triggers.used_bytes.get())
    }

    /// Gives back the free arenas that will not be needed before the next collection. Returns their bytes.
    pub fn trim(&self) -> usize {
        let wanted = self.wanted_bytes();
        let slack: usize = self.spaces().iter().map(|space| space.slack_bytes()).sum();
        self.chunks.borrow_mut().trim(wanted.saturating_sub(slack))
    }

    /// Sweeps everything and gives back everything that is free: free arenas, and the source's empty chunks. Returns
    /// the bytes of arenas.
    pub fn shrink(&self) -> usize {
        self.finish_sweep();
        let bytes = self.chunks.borrow_mut().trim(0);
        self.chunks.borrow().source().shrink();
        self.spaces().iter().for_each(|space| space.shrink());
        bytes
    }

    /// Returns why a collection is due, if one is. Cost: a load.
    #[inline]
    pub fn due(&self) -> Option<Reason> {
        self.triggers.due()
    }

    /// Makes a collection due, for a timer, if nothing was allocated for the time in the table, but something since the
    /// last collection. `now_ns` is from any clock that does not go back.
    pub fn tick(&self, now_ns: u64) -> Option<Reason> {
        if self.triggers.rest(now_ns) == Rest::Collect {
            self.triggers.raise(Reason::Idle);
        }
        self.due()
    }

    /// Makes a collection due, whatever the thresholds say, because memory is short.
    pub fn pressure(&self) {
        self.triggers.raise(Reason::Pressure);
    }

    /// Sets another table of thresholds; it holds from the next collection on, its floor at once.
    pub fn set_growth(&self, growth: Growth) {
        let pace = &self.world.pace;
        if growth.share.is_some() {
            pace.measure();
        }
        let live = self.triggers.used_bytes.get();
        self.triggers.set_growth(growth, live, pace.spent());
    }

    /// Returns the last collections, oldest first; at most [`LOG`](crate::trigger::LOG).
    pub fn log(&self) -> Vec<Collection> {
        self.triggers.log.borrow().iter().copied().collect()
    }

    /// Returns the number of collections so far.
    pub fn collections(&self) -> u64 {
        self.triggers.collections.get()
    }

    /// Returns what was swept where, until now, including what the sweeper has done since the last call.
    pub fn sweep_counts(&self) -> SweepCounts {
        self.take_sums();
        self.counts.borrow().clone()
    }

    /// Keeps an object alive until [`Heap::unroot`].
    ///
    /// # Safety
    /// It is an object of this heap, and alive.
    pub unsafe fn root(&self, object: NonNull<u8>, from: From) -> RootId {
        if from != From::Heap(self.id) {
            self.barrier(object);
        }
        self.roots.borrow_mut().add(object, from)
    }

    /// Ends a root; returns its object. `None`: there is none of this number.
    ///
    /// # Safety
    /// The number is of this heap and was not ended before: it may be another root's by now.
    pub unsafe fn unroot(&self, id: RootId) -> Option<NonNull<u8>> {
        self.roots.borrow_mut().remove(id)
    }

    /// Returns the object that a root leads to.
    pub fn rooted(&self, id: RootId) -> Option<NonNull<u8>> {
        self.roots.borrow().get(id)
    }

    /// Returns the number of roots.
    pub fn root_count(&self) -> usize {
        self.roots.borrow().len()
    }

    /// Takes back what is left of all spans (E2), so that the bits show objects.
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

    /// Passes each object, in no order, to `visit` with its kind. Everything is swept first. `visit` may not allocate
    /// in the heap.
    ///
    /// # Panics
    /// A finalizer or a trace function of this heap calls it.
    pub fn each_object(&self, mut visit: impl FnMut(NonNull<u8>, &'static Kind)) {
        self.settle_all();
        // A collection that `visit` asks for is refused, also after it panicked.
        struct Looking<'a>(&'a Cell<bool>);
        impl Drop for Looking<'_> {
            fn drop(&mut self) {
                self.0.set(false);
            }
        }
        self.collecting.set(true);
        let _looking = Looking(&self.collecting);
        for chunk in self.chunks.borrow().all() {
            for arena in chunk.arenas() {
                for cell in crate::bits::each(arena.head().allocated.words()) {
                    visit(arena.cell(cell), arena.head().kind.get());
                }
            }
        }
    }

    /// Returns what the heap holds. Everything is swept first.
    ///
    /// # Panics
    /// A finalizer or a trace function of this heap calls it, or the rows do not add up.
    pub fn holds(&self) -> Holds {
        self.settle_all();
        let chunks = self.chunks.borrow();
        let mut holds = Holds {
            held_bytes: chunks.held_bytes(),
            dirty_bytes: chunks.dirty_bytes(),
            client_bytes: self.triggers.client_bytes.get(),
            ..Holds::default()
        };
        for chunk in chunks.all() {
            holds.head_bytes += crate::layout::HEADS * ARENA_BYTES;
            for arena in chunk.arenas() {
                let objects = arena.head().allocated.count();
                let cells = usize::from(arena.head().cells.get());
                let size = arena.object_bytes();
                holds.objects += objects;
                holds.cell_bytes += objects * size;
                holds.free_bytes += (cells - objects) * size;
                let pages = arena.head().pages.get() as usize;
                holds.tail_bytes += pages * ARENA_BYTES - cells * size;
            }
        }
        let parts = holds.head_bytes + holds.cell_bytes + holds.free_bytes + holds.tail_bytes;
        assert_eq!(parts, holds.held_bytes, "rows add up");
        holds
    }
}

impl SweepCounts {
    fn add(&mut self, tally: Tally) {
        self.finalized += tally.finalized;
        self.panics += tally.panics;
        let room = 16usize.saturating_sub(self.faults.len());
        self.faults.extend(tally.faults.into_iter().take(room));
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

impl Heap {
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
