//! Marking while the program runs on, in slices with a bound.
//!
//! ```text
//!   used > begin ─► begin ─► slice ─► slice ─► … ─► Ready ─► finish: client's roots, weak cells ─► sweep as always
//!                              ▲ after so many bytes taken, or when asked
//!                              └── barrier: an edge that is written is told; so is each new root
//!        used > limit ────────────────────────────────────► finish at once, whatever is left (`forced`)
//! ```
//!
//! I1  Insertion barrier (Dijkstra): while marking is on, an edge that is written into an object is told
//!     ([`Heap::barrier`]), or the object is traced again ([`Heap::changed`]). So no marked and traced object has
//!     an edge to one that is neither marked nor waiting, when the last slice ends.
//! I2  Objects are allocated unmarked: what is made and dropped while marking is on goes with this collection, and
//!     the first edges of an object need no barrier. What only the stack leads to is not marked, so marking is
//!     finished where the stack has no pointers, or where the client tells them.
//! I3  Between slices nothing is remembered of an object but its address: what it owns outside may move. Objects
//!     that hold weak cells or pairs are noted, and looked at again at the end.
//! I4  A slice follows at most so many edges, and asks the clock after each [`CLOCK`] of them: it is as long as its
//!     budget, and the time of tracing [`CLOCK`] objects more, or parts of objects where their kind tells its edges
//!     in parts (I8). How long one of these takes is the client's.
//! I5  Marking begins when everything is swept, and ends before anything is: no object ends while it is on.
//! I6  At most one marking of a heap; a collection of the heap, alone or with others, gives it up first.
//! I7  An object that is changed after it was marked is traced again, [`AGAIN`] times; from then on it waits for the
//!     end. A list of a million edges that grows at each turn would be all that is ever marked otherwise.
//! I8  An object that is traced in parts is remembered with the place to go on from. The next part comes when
//!     nothing else is left to follow, so the mark stack holds one part of it and not the whole.
//!
//! The source of the idea is Dijkstra, Lamport and others, "On-the-fly garbage collection" (1978). Rejected: a
//! snapshot at the beginning (Yuasa), whose barrier is on what is overwritten: all garbage of the meantime stays
//! for a whole cycle, and each new object is marked; and objects born marked, whose first edges need a barrier.
//!
//! Not here: what is common to all collections (`collect`), following edges (`mark`).

use core::cell::Cell;
use core::ptr::NonNull;
use std::collections::{HashMap, HashSet};

use skinflint_base::sys::monotonic_ns;

use crate::collect::{NoUnwind, Pauses, Refused, collect, conclude, mark_all, refuse};
use crate::heap::Heap;
use crate::kind::TracePartFn;
use crate::layout::{Arena, Chunk};
use crate::mark::{ToldPair, Tracer};
use crate::roots::From;
use crate::trigger::Reason;
use crate::typed::Trace;
use crate::world::Shared;
use crate::{Busy, Roots, verify};

/// Edges between two looks at the clock: some microseconds.
const CLOCK: u64 = 64;
/// Edges that a part of an object's tracing tells, where its kind has [`Kind::trace_part`](crate::Kind::trace_part) and
/// nothing better: less than a microsecond, and few parts beside the marking of what they lead to.
pub const PART_EDGES: usize = 256;
/// How often an object that is changed again and again is traced again in slices (I7).
const AGAIN: u32 = 4;
/// Nanoseconds that marking a byte of objects takes, for saying when to begin: 100 ns for an object of 48 bytes that
/// is not in the cache (`--example marking`, see `mark`).
const NS_PER_BYTE: f64 = 2.0;

/// How a heap is marked incrementally.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Incremental {
    /// The longest that a slice may take. `u64::MAX`: the clock is not asked.
    pub slice_ns: u64,
    /// The most edges that a slice may follow.
    pub slice_edges: u64,
    /// A slice is due when so many bytes were taken since the last.
    pub slice_bytes: usize,
    /// Marking begins as early as it is expected to need, but not before so much of the room between live bytes and
    /// the threshold is taken; from 0 to 1.
    pub earliest: f64,
    /// It is finished in one go when the heap passes the threshold times this.
    pub limit: f64,
}

impl Incremental {
    /// Slices of a millisecond for every 64 KiB: at twenty nanoseconds for an object, marking is ten times as fast as
    /// allocation at its fastest.
    pub const DEFAULT: Incremental = Incremental {
        slice_ns: 1_000_000,
        slice_edges: u64::MAX,
        slice_bytes: 64 << 10,
        earliest: 0.5,
        limit: 1.25,
    };

    /// One edge at each allocation, for finding barriers that are missing: with
    /// [`Config::stress`](crate::Config::stress), where each nth allocation begins.
    pub const STRESS: Incremental = Incremental {
        slice_ns: u64::MAX,
        slice_edges: 1,
        slice_bytes: 0,
        earliest: 0.5,
        limit: 4.0,
    };

    /// Bytes at which marking begins, and at which it is finished in one go.
    pub(crate) fn thresholds(&self, threshold: usize, live: usize) -> (usize, usize) {
        let room = threshold.saturating_sub(live);
        let slices = (live as f64 * NS_PER_BYTE / self.slice_ns.max(1) as f64).ceil();
        let wanted = slices * self.slice_bytes as f64;
        let most = room as f64 * (1.0 - self.earliest.clamp(0.0, 1.0));
        let ahead = wanted.min(most) as usize;
        let limit = threshold as f64 * self.limit.max(1.0);
        (threshold - ahead.min(threshold), limit as usize)
    }

    fn budget(&self) -> Budget {
        Budget {
            edges: self.slice_edges,
            ns: self.slice_ns,
        }
    }
}

/// How much a slice may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Edges followed. At least one is.
    pub edges: u64,
    /// Nanoseconds; `u64::MAX`: the clock is not asked.
    pub ns: u64,
}

/// Where marking stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is not on.
    Off,
    /// There is more to follow.
    More,
    /// Nothing is left that is known: it may be finished.
    Ready,
}

/// What an object has said beside its edges.
#[derive(Clone, Copy)]
pub(crate) enum Note {
    /// It holds weak cells or pairs.
    Weak = 1,
    /// It holds pairs.
    Pair = 2,
    /// A part of it is being written.
    Locked = 4,
}

/// What a tracer remembers between slices: objects (I3).
#[derive(Default)]
pub(crate) struct Steps {
    noted: u8,
    holders: Vec<NonNull<u8>>,
    pair_holders: Vec<NonNull<u8>>,
    /// Those among both that were noted when they were traced again.
    late: HashSet<NonNull<u8>>,
    /// To be traced again (I7), and how often each was, or waits to be.
    again: Vec<NonNull<u8>>,
    changed: HashMap<NonNull<u8>, Changed>,
    /// Traced in parts, and where to go on (I8).
    parts: Vec<(NonNull<u8>, usize)>,
    /// A delayed arena, and the cells of it that are still to be traced.
    arena: Option<(Arena, [u64; 4])>,
    /// Pairs of the holder that is looked at; `None`: none is.
    told: Option<Vec<ToldPair>>,
    /// The next holder of pairs, cells marked when the round began, and when the last whole round found nothing.
    pair_at: usize,
    round_cells: u64,
    done_cells: Option<u64>,
}

/// An object that was changed after it was marked.
#[derive(Default)]
struct Changed {
    times: u32,
    waits: bool,
}

impl Steps {
    pub(crate) fn note(&mut self, note: Note) {
        self.noted |= note as u8;
    }

    pub(crate) fn pair(&mut self, key: Option<NonNull<u8>>, value: Option<NonNull<u8>>) {
        self.noted |= Note::Weak as u8 | Note::Pair as u8;
        if let Some(told) = &mut self.told {
            told.push((key, value));
        }
    }

    fn trace_again(&mut self, object: NonNull<u8>) {
        let changed = self.changed.entry(object).or_default();
        if !changed.waits {
            changed.waits = true;
            changed.times += 1;
            if changed.times <= AGAIN {
                self.again.push(object);
            }
        }
    }

    /// Remembers what an object said; `first`: when it was marked.
    #[cold]
    fn keep(&mut self, object: NonNull<u8>, first: bool) {
        let noted = core::mem::take(&mut self.noted);
        if noted & Note::Locked as u8 != 0 {
            self.trace_again(object);
        }
        if noted & Note::Weak as u8 != 0 && (first || self.late.insert(object)) {
            self.holders.push(object);
            if noted & Note::Pair as u8 != 0 {
                self.pair_holders.push(object);
            }
        }
    }
}

impl Tracer {
    /// Something of the object that is traced is being written by a closure that has not ended: it is traced again.
    ///
    /// # Panics
    /// Where no closure can be running: a guard was leaked, and nobody can tell what is behind it.
    pub(crate) fn locked(&mut self) {
        let lists_natives = self.lists_natives();
        match &mut self.steps {
            Some(steps) => steps.note(Note::Locked),
            // Of counted values nothing more is asked: what is not told counts as held from outside.
            None if lists_natives => {}
            None => {
                panic!("a part of an object is locked for writing, for ever: its edges are unknown")
            }
        }
    }

    /// Traces an object that was just marked.
    #[inline]
    pub(crate) fn trace_step(&mut self, object: NonNull<u8>) {
        self.trace_noting(object, true);
    }

    #[inline]
    fn trace_noting(&mut self, object: NonNull<u8>, first: bool) {
        if let Some(part) = Arena::of(object).head().kind.get().trace_part {
            self.trace_part((object, 0), part, first);
        } else {
            self.trace_whole(object, first);
        }
    }

    fn trace_whole(&mut self, object: NonNull<u8>, first: bool) {
        self.trace(object);
        if let Some(steps) = &mut self.steps
            && steps.noted != 0
        {
            steps.keep(object, first);
        }
    }

    /// Traces a part of an object, and remembers the rest (I8).
    #[inline(never)]
    fn trace_part(&mut self, place: (NonNull<u8>, usize), part: TracePartFn, first: bool) {
        // SAFETY: M1: the object is of this kind.
        let next = unsafe { part(place.0, place.1, self) };
        if let Some(steps) = &mut self.steps {
            if steps.noted != 0 {
                // Each part may note it: the holder is looked at once.
                steps.keep(place.0, first && next.is_none());
            }
            steps.parts.extend(next.map(|next| (place.0, next)));
        }
    }

    fn next_part(&mut self) -> bool {
        let Some(place) = self.steps.as_mut().and_then(|steps| steps.parts.pop()) else {
            return false;
        };
        if let Some(part) = Arena::of(place.0).head().kind.get().trace_part {
            self.trace_part(place, part, false);
        }
        true
    }

    /// Follows at most so many edges, whatever they come from; returns how many. Fewer: nothing is left.
    fn advance(&mut self, most: u64) -> u64 {
        let mut done = 0;
        loop {
            done += self.drain_stack::<true>(most - done);
            if done >= most {
                return done;
            }
            let Some(steps) = &mut self.steps else {
                return done;
            };
            if let Some(object) = next_cell(&mut steps.arena) {
                self.trace_noting(object, true);
            } else if let Some(delayed) = self.take_delayed() {
                self.set_arena(delayed);
            } else if self.next_part() {
            } else if let Some(object) = self.next_again() {
                self.trace_noting(object, false);
            } else if !self.next_holder() {
                return done;
            }
            done += 1;
        }
    }

    fn set_arena(&mut self, delayed: (Arena, [u64; 4])) {
        if let Some(steps) = &mut self.steps {
            steps.arena = Some(delayed);
        }
    }

    fn next_again(&mut self) -> Option<NonNull<u8>> {
        let steps = self.steps.as_mut()?;
        let object = steps.again.pop()?;
        steps.changed.entry(object).or_default().waits = false;
        Some(object)
    }

    /// Looks at the next holder of pairs, and follows the values of keys that are reached. `false`: nothing was
    /// marked since the last look at all of them.
    fn next_holder(&mut self) -> bool {
        let cells = self.cells();
        let Some(steps) = &mut self.steps else {
            return false;
        };
        if steps.pair_at == steps.pair_holders.len() {
            if steps.round_cells == cells {
                steps.done_cells = Some(cells);
            }
            steps.pair_at = 0;
        }
        if steps.pair_holders.is_empty() || steps.done_cells == Some(cells) {
            return false;
        }
        if steps.pair_at == 0 {
            steps.round_cells = cells;
        }
        let holder = steps.pair_holders[steps.pair_at];
        steps.pair_at += 1;
        steps.told = Some(Vec::new());
        self.trace_whole(holder, false);
        let told = self.steps.as_mut().and_then(|steps| steps.told.take());
        for (key, value) in told.into_iter().flatten() {
            if let (Some(key), Some(value)) = (key, value)
                && self.is_reached(key)
            {
                self.edge(value);
            }
        }
        true
    }
}

/// Takes the next cell of an arena that was delayed.
fn next_cell(left: &mut Option<(Arena, [u64; 4])>) -> Option<NonNull<u8>> {
    let (arena, words) = left.as_mut()?;
    for (number, word) in words.iter_mut().enumerate() {
        if *word != 0 {
            let cell = number * 64 + word.trailing_zeros() as usize;
            *word &= *word - 1;
            return Some(arena.cell(cell));
        }
    }
    *left = None;
    None
}

/// A marking that is on.
pub(crate) struct Marking {
    tracer: Tracer,
    reason: Reason,
    /// The next entry of the root table.
    root: usize,
    pauses: Pauses,
    /// Bytes taken at the last slice.
    taken: u64,
    ready: bool,
}

impl Marking {
    fn pause(&mut self, began_ns: u64) {
        let ns = monotonic_ns() - began_ns;
        self.pauses.earlier += 1;
        self.pauses.earlier_ns += ns;
        self.pauses.longest_ns = self.pauses.longest_ns.max(ns);
    }

    /// Tells the next entries of the root table. Those that are added later are told by the barrier.
    fn tell_roots(&mut self, heap: &Heap, most: u64) -> u64 {
        let roots = heap.roots.borrow();
        let end = roots.end().min(self.root + most.min(CLOCK) as usize);
        for number in self.root..end {
            if let Some((object, from)) = roots.nth(number)
                && from != From::Heap(heap.id)
            {
                self.tracer.edge(object);
            }
        }
        let told = end - core::mem::replace(&mut self.root, end);
        told as u64
    }

    fn slice(&mut self, heap: &Heap, budget: Budget) {
        let began_ns = monotonic_ns();
        let mut left = budget.edges.max(1);
        while left > 0 {
            let told = self.tell_roots(heap, left);
            if told > 0 {
                left -= told;
            } else {
                let most = left.min(CLOCK);
                let done = self.tracer.advance(most);
                left -= done.min(left);
                if done < most {
                    self.ready = true;
                    break;
                }
            }
            if budget.ns != u64::MAX && monotonic_ns() - began_ns >= budget.ns {
                break;
            }
        }
        self.taken = heap.triggers.taken_total();
        self.pause(began_ns);
    }
}

impl Shared {
    /// A part of an object, or of something that objects own, was written (typed cells): what it holds now is told to
    /// the heaps that are marked.
    #[cold]
    pub(crate) fn written<T: Trace>(&self, part: &T) {
        let addr = core::ptr::from_ref(part).addr();
        if let Some(object) = self.object_at(addr) {
            // The barrier of its own heap, whoever has written.
            if let Some(heap) = self.heap(heap_of(object)) {
                heap.changed(object);
            }
            return;
        }
        let mut listing = Tracer::listing();
        part.trace(&mut listing);
        for edge in listing.take_told().edges {
            if let Some(heap) = self.heap(heap_of(edge)) {
                heap.barrier(edge);
            }
        }
    }
}

fn heap_of(object: NonNull<u8>) -> u32 {
    Chunk::of(object).head().heap.get()
}

/// Held while a heap is looked at, so that nothing that is called asks for a collection.
struct Collecting<'a>(&'a Cell<bool>);

impl<'a> Collecting<'a> {
    fn new(heap: &'a Heap) -> Collecting<'a> {
        heap.collecting.set(true);
        Collecting(&heap.collecting)
    }
}

impl Drop for Collecting<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl Heap {
    /// How this heap is marked from now on. A marking that is on is given up.
    pub fn set_incremental(&self, table: Option<Incremental>) {
        self.abandon_marking();
        self.triggers.set_incremental(table);
    }

    /// Whether marking is on, so that edges need barriers.
    #[inline]
    pub fn is_marking(&self) -> bool {
        self.marking_on.get()
    }

    /// Where marking stands.
    pub fn progress(&self) -> Progress {
        match self.marking.borrow().as_ref() {
            None => Progress::Off,
            Some(marking) if marking.ready => Progress::Ready,
            Some(_) => Progress::More,
        }
    }

    /// The write barrier (I1): an edge to `target` was or is about to be written into an object of this heap. Cost while
    /// marking is off: a load and a branch.
    #[inline]
    pub fn barrier(&self, target: NonNull<u8>) {
        if self.marking_on.get() {
            self.shade(target);
        }
    }

    #[cold]
    fn shade(&self, target: NonNull<u8>) {
        if let Some(marking) = self.marking.borrow_mut().as_mut()
            && !marking.tracer.is_reached(target)
        {
            marking.tracer.edge(target);
            marking.ready = false;
        }
    }

    /// The other barrier (I1), for objects of many edges: `object`, of this heap, may have any others than before.
    #[inline]
    pub fn changed(&self, object: NonNull<u8>) {
        if self.marking_on.get() {
            self.trace_again(object);
        }
    }

    #[cold]
    fn trace_again(&self, object: NonNull<u8>) {
        if let Some(marking) = self.marking.borrow_mut().as_mut()
            && marking.tracer.is_reached(object)
            && let Some(steps) = &mut marking.tracer.steps
        {
            steps.trace_again(object);
            marking.ready = false;
        }
    }

    /// Begins to mark this heap alone. `false`: it is not swept yet, and a part of that was done instead; ask again.
    /// If it is being marked already, nothing is done.
    ///
    /// # Errors
    /// A finalizer or trace function of this heap asked.
    ///
    /// # Safety
    /// Every object of this heap that was allocated is written, and no exclusive reference into one exists that its trace
    /// function would meet. From now on until the end of marking, edges are written with [`Heap::barrier`] or
    /// [`Heap::changed`]. `roots` may tell less than all: the rest is told at the end.
    pub unsafe fn begin_marking(
        &self,
        reason: Reason,
        roots: &mut dyn Roots,
    ) -> Result<bool, Busy> {
        if self.is_marking() {
            return Ok(true);
        }
        if self.collecting.get() || self.is_finalizing() {
            return Err(Busy::Collecting);
        }
        let began_ns = monotonic_ns();
        let _pause = self.world.pace.pause();
        // I5.
        if self.sweeping.get() && !self.poll() {
            return Ok(false);
        }
        self.retire();
        let mut set = vec![false; self.id as usize + 1];
        set[self.id as usize] = true;
        let mut tracer = Tracer::marking(set, self.world.config.mark_stack);
        tracer.steps = Some(Box::default());
        {
            let _collecting = Collecting::new(self);
            let guard = NoUnwind;
            roots.trace(&mut tracer);
            core::mem::forget(guard);
        }
        // What the client told of weak cells is told again at the end.
        if let Some(steps) = &mut tracer.steps {
            steps.noted = 0;
        }
        let mut marking = Box::new(Marking {
            tracer,
            reason,
            root: 0,
            pauses: Pauses {
                started_ns: began_ns,
                ..Pauses::default()
            },
            taken: self.triggers.taken_total(),
            ready: false,
        });
        marking.pause(began_ns);
        *self.marking.borrow_mut() = Some(marking);
        self.marking_on.set(true);
        let on = &self.world.markings;
        on.set(on.get() + 1);
        Ok(true)
    }

    /// Marks a part (I4). Within a finalizer or trace function of this heap nothing is done.
    ///
    /// # Safety
    /// As [`Heap::begin_marking`].
    pub unsafe fn mark_step(&self, budget: Budget) -> Progress {
        if self.collecting.get() || self.is_finalizing() {
            return self.progress();
        }
        if let Some(marking) = self.marking.borrow_mut().as_mut() {
            let _collecting = Collecting::new(self);
            let _pause = self.world.pace.pause();
            let guard = NoUnwind;
            marking.slice(self, budget);
            core::mem::forget(guard);
        }
        self.progress()
    }

    /// Ends the marking: what is left is marked, weak cells are emptied, and everything is handed over to be swept.
    /// `false`: it was not on.
    ///
    /// # Errors
    /// As [`collect`].
    ///
    /// # Safety
    /// As [`collect`] of this heap alone.
    pub unsafe fn finish_marking(&self, roots: &mut dyn Roots) -> Result<bool, Busy> {
        if !self.is_marking() {
            return Ok(false);
        }
        refuse(&[self])?;
        let began_ns = monotonic_ns();
        let _pause = self.world.pace.pause();
        self.collecting.set(true);
        self.retire();
        let Some(mut marking) = self.take_marking() else {
            return Ok(false);
        };
        let mut set = vec![false; self.id as usize + 1];
        set[self.id as usize] = true;
        let verified = self.world.config.verify.then(|| {
            let refused = Refused(&[self]);
            let walked = verify::walk(&[self], &set, roots);
            core::mem::forget(refused);
            walked
        });
        let guard = NoUnwind;
        while marking.root < self.roots.borrow().end() {
            marking.tell_roots(self, u64::MAX);
        }
        let tracer = &mut marking.tracer;
        tracer.finish_steps();
        roots.trace(tracer);
        mark_all(tracer, roots);
        core::mem::forget(guard);
        if let Some(walked) = verified {
            // What was cut off meanwhile may be marked.
            verify::reached(&[self], &walked, tracer, true);
        }
        let mut pauses = marking.pauses;
        pauses.last_ns = Some(began_ns);
        pauses.forced = !marking.ready;
        conclude(&[self], marking.tracer, marking.reason, pauses);
        Ok(true)
    }

    fn take_marking(&self) -> Option<Box<Marking>> {
        let marking = self.marking.borrow_mut().take()?;
        self.marking_on.set(false);
        let on = &self.world.markings;
        on.set(on.get() - 1);
        Some(marking)
    }

    /// Gives the marking up, if it is on: nothing was collected. Cost: two stores for each arena.
    pub fn abandon_marking(&self) {
        if self.take_marking().is_none() {
            return;
        }
        for chunk in self.chunks.borrow().all() {
            let head = chunk.head();
            head.delayed.clear();
            head.waiting.set(false);
            chunk.arenas().for_each(|arena| arena.head().marks.clear());
        }
    }

    /// Does what is due, and no more: begins to mark, marks a slice, ends the marking, or collects in one go. For
    /// clients of the core: before each allocation, or wherever their roots are known.
    ///
    /// # Errors
    /// As [`collect`]; what was due stays so.
    ///
    /// # Safety
    /// As [`collect`] of this heap alone; where the heap is marked incrementally, also as [`Heap::begin_marking`].
    pub unsafe fn advance(&self, roots: &mut dyn Roots) -> Result<(), Busy> {
        if let Some(reason) = self.due() {
            let sliced = matches!(
                reason,
                Reason::Growth | Reason::ClientBytes | Reason::Stress
            );
            // SAFETY: as the caller promises.
            if sliced && unsafe { self.finish_marking(roots) }? {
                return Ok(());
            }
            // SAFETY: as the caller promises.
            return unsafe { collect(&[self], reason, roots) };
        }
        let Some(table) = self.triggers.incremental() else {
            return Ok(());
        };
        if let Some(reason) = self.triggers.begin_due().filter(|_| !self.is_marking()) {
            // SAFETY: as the caller promises.
            return unsafe { self.begin_marking(reason, roots) }.map(drop);
        }
        if self.wants_slice(&table) {
            // SAFETY: as the caller promises.
            unsafe { self.mark_step(table.budget()) };
        }
        if self.progress() == Progress::Ready {
            // SAFETY: as the caller promises.
            unsafe { self.finish_marking(roots) }?;
        }
        Ok(())
    }

    fn wants_slice(&self, table: &Incremental) -> bool {
        let taken = self.triggers.taken_total();
        let marking = self.marking.borrow();
        marking.as_ref().is_some_and(|marking| {
            !marking.ready && taken - marking.taken >= table.slice_bytes as u64
        })
    }

    /// Whether an allocation may do a slice of marking, or begin it.
    ///
    /// # Safety
    /// If so, each allocation is a place as [`Heap::begin_marking`] wants it.
    pub unsafe fn set_slices_at_alloc(&self, on: bool) {
        self.steps_at_alloc.set(on);
    }

    /// Called by allocations that are slow anyway.
    #[cold]
    pub(crate) fn slice_at_alloc(&self) {
        let Some(table) = self.triggers.incremental() else {
            return;
        };
        if self.is_marking() {
            if self.wants_slice(&table) {
                // SAFETY: as who has switched it on promised.
                unsafe { self.mark_step(table.budget()) };
            }
        } else if let Some(reason) = self.triggers.begin_due() {
            // A refusal leaves it due.
            // SAFETY: as above.
            let _ = unsafe { self.begin_marking(reason, &mut ()) };
        }
    }
}

impl Tracer {
    /// From now on as in a collection in one go; what was remembered is told.
    fn finish_steps(&mut self) {
        let Some(mut steps) = self.steps.take() else {
            return;
        };
        while let Some(object) = next_cell(&mut steps.arena) {
            self.trace(object);
        }
        // Only a few edges of these are left, or all: the rest is told without the first of them.
        for (object, mut from) in core::mem::take(&mut steps.parts) {
            let part = Arena::of(object).head().kind.get().trace_part;
            // SAFETY: M1: the object is of this kind.
            while let Some(next) = part.and_then(|part| unsafe { part(object, from, self) }) {
                from = next;
            }
        }
        let waiting = steps.changed.iter().filter(|(_, changed)| changed.waits);
        for object in waiting.map(|(object, _)| object).chain(&steps.holders) {
            self.trace(*object);
        }
    }
}
