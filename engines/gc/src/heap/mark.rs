//! Marking: everything that roots lead to, with a stack of its own.
//!
//! ```text
//!   roots ─► edge(object) ─► stack ─► pop, prefetch ─► queue of AHEAD ─► mark bit new? ─► kind.trace ─► edge, edge …
//!                              │ full
//!                              └─► marked, and its arena delayed: all marked cells of it are traced again once the
//!                                  stack is empty
//!   then   pairs (ephemerons): key reached? ─► edge(value), until no round finds one
//!   then   weak cells whose object was not reached are emptied
//! ```
//!
//! M1  An edge leads to the first byte of an object of some heap of the world, and nowhere else; its pointer may be
//!     used for the whole chunk.
//! M2  Only heaps of the set are marked. Objects of other heaps count as reached.
//! M3  The native stack does not grow with the heap: a list of ten million nodes is popped one by one. The mark stack
//!     has a bound, too; beyond it arenas are delayed, which needs only a bit.
//! M4  An object's edges are told after its bit is set, at least once.
//!
//! Not here: the roots (`collect`), the freeing of what was not reached (`sweep`), marking while the program runs
//! (`incremental`).

use core::ptr::NonNull;

use crate::heap::address::{Arena, Chunk};
use crate::heap::bits::each;
use crate::heap::incremental::Note;
use crate::heap::listener::Strength;
use crate::heap::tracer::NONE;
use crate::heap::tracer::Reach;
use crate::heap::tracer::Tracer;
use crate::heap::weak::Pair;
use crate::heap::weak::WeakCell;

/// Number of objects between the stack and being looked at: a load from memory takes as long as some of these.
/// `--example marking 400000`, least of nine, ns an object, several runs on a busy machine (2026-11-22): objects
/// anywhere 310 to 610 with 1, 213 to 422 with 4, 75 to 334 with 8, 153 to 239 with 16; objects in the cache 13 to 25,
/// 19 to 47, 23 to 57, 37 to 60.
const AHEAD: usize = 8;

impl Tracer {
    /// Tells an edge: the first byte of an object (M1), by the pointer that its allocation gave, or one that was made
    /// from that without a reference between: what is known of the object lies beside it, in its chunk. Cost: a
    /// comparison and a store; the object is looked at later, when it is in the cache.
    #[inline]
    pub fn edge(&mut self, object: NonNull<u8>) {
        if self.stack.len() < self.stack.capacity() && self.stack.len() < self.most {
            self.stack.push(object);
        } else {
            self.edge_slow(object);
        }
    }

    /// Tells an edge where edges are only listed, or the stack is full.
    #[cold]
    #[inline(never)]
    fn edge_slow(&mut self, object: NonNull<u8>) {
        if let Some(listed) = &mut self.listed {
            listed.edges.push(object);
            return;
        }
        if self.heard(Strength::Strong, Some(object)) {
            return;
        }
        // Memory may be short at this moment: a refusal is one more reason to delay.
        let room = self.stack.len() < self.most;
        if room && self.stack.try_reserve(self.stack.len().max(256)).is_ok() {
            self.stack.push(object);
            return;
        }
        if self.mark(object) {
            self.overflows += 1;
            let arena = Arena::of(object);
            let chunk = arena.chunk();
            chunk.head().delayed.add(arena.index());
            if !chunk.head().waiting.replace(true) {
                self.delayed.push(chunk);
            }
        }
    }

    /// Marks an object; reports whether it has edges to be told now.
    #[inline]
    fn mark(&mut self, object: NonNull<u8>) -> bool {
        let heap = Chunk::of(object).head().heap.get();
        let reach = if heap == self.only {
            &mut self.here
        } else {
            match self.reach.get_mut(heap as usize).filter(|r| r.collected) {
                Some(reach) => reach,
                None => return false,
            }
        };
        let arena = Arena::of(object);
        let head = arena.head();
        if !head.marks.add(arena.cell_of(object.as_ptr().addr())) {
            return false;
        }
        reach.cells += 1;
        reach.bytes += match head.size.get() {
            0 => arena.object_bytes() as u64,
            size => u64::from(size),
        };
        head.kind.get().trace.is_some()
    }

    /// Tells an edge that keeps nothing alive. The cell is within the object that is traced, or in a root.
    pub fn weak(&mut self, cell: &WeakCell) {
        if let Some(steps) = &mut self.steps {
            steps.note(Note::Weak);
        } else if self.listed.is_none()
            && cell.get().is_some()
            && !self.heard(Strength::Weak, cell.get())
        {
            self.weak.push(NonNull::from(cell));
        }
    }

    /// Tells an ephemeron; the pair is within the object that is traced, or in a root.
    pub fn pair(&mut self, pair: &Pair) {
        if let Some(steps) = &mut self.steps {
            steps.pair(pair.key.get(), pair.value.get());
        } else if let Some(listed) = &mut self.listed {
            listed.pairs.push((pair.key.get(), pair.value.get()));
        } else if self.heard(Strength::Key, pair.key.get()) {
            self.heard(Strength::Value, pair.value.get());
        } else {
            self.pairs.push(NonNull::from(pair));
        }
    }

    /// Reports whether an object is marked, or in no heap of the set (M2).
    pub fn is_reached(&self, object: NonNull<u8>) -> bool {
        let heap = Chunk::of(object).head().heap.get();
        let arena = Arena::of(object);
        let cell = arena.cell_of(object.as_ptr().addr());
        !self.reach(heap).collected || arena.head().marks.has(cell)
    }

    /// Returns the number of objects that were marked. Cost: a load; where several heaps are collected one for each.
    pub(crate) fn cells(&self) -> u64 {
        if self.only != NONE {
            return self.here.cells;
        }
        self.reach.iter().map(|reach| reach.cells).sum()
    }

    /// Adds a heap to be marked, in which nothing was marked so far.
    pub(crate) fn join(&mut self, heap: u32) {
        let only = core::mem::replace(&mut self.only, NONE);
        if let Some(reach) = self.reach.get_mut(only as usize) {
            *reach = core::mem::take(&mut self.here);
        }
        let numbers = self.reach.len().max(heap as usize + 1);
        self.reach.resize(numbers, Reach::default());
        self.reach[heap as usize].collected = true;
    }

    /// Takes an arena that was delayed, with its marked cells.
    pub(crate) fn take_delayed(&mut self) -> Option<(Arena, [u64; 4])> {
        loop {
            let chunk = *self.delayed.last()?;
            let head = chunk.head();
            if let Some(index) = head.delayed.next(0) {
                head.delayed.remove(index);
                let arena = chunk.arena(index);
                return Some((arena, arena.head().marks.words()));
            }
            head.waiting.set(false);
            self.delayed.pop();
        }
    }

    /// Follows everything that was told so far.
    pub(crate) fn drain(&mut self) {
        loop {
            self.drain_stack::<false>(u64::MAX);
            let Some(chunk) = self.delayed.pop() else {
                return;
            };
            let head = chunk.head();
            head.waiting.set(false);
            let arenas = head.delayed.words();
            head.delayed.clear();
            for arena in each(arenas).map(|index| chunk.arena(index)) {
                for cell in each(arena.head().marks.words()) {
                    self.trace(arena.cell(cell));
                    self.drain_stack::<false>(u64::MAX);
                }
            }
        }
    }

    /// Follows at most `most` edges; returns their number. Objects that are popped wait in a queue until they are in
    /// the cache. `STEPS`: what an object tells beside its edges is noted.
    pub(crate) fn drain_stack<const STEPS: bool>(&mut self, most: u64) -> u64 {
        let mut queue = [NonNull::dangling(); AHEAD];
        let (mut first, mut count) = (0, 0);
        let mut popped = 0;
        loop {
            while count < AHEAD
                && popped < most
                && let Some(object) = self.stack.pop()
            {
                prefetch(object);
                queue[(first + count) % AHEAD] = object;
                count += 1;
                popped += 1;
            }
            if count == 0 {
                return popped;
            }
            let object = queue[first];
            first = (first + 1) % AHEAD;
            count -= 1;
            if self.mark(object) {
                if STEPS {
                    self.trace_step(object);
                } else {
                    self.trace(object);
                }
            }
        }
    }

    /// Makes an object tell its edges.
    #[inline]
    pub(crate) fn trace(&mut self, object: NonNull<u8>) {
        if let Some(trace) = Arena::of(object).head().kind.get().trace {
            // SAFETY: M1: the object is of this kind.
            unsafe { trace(object, self) };
        }
    }

    /// Follows values whose keys are reached, until none is left. Each round looks at all pairs, so a chain of n pairs
    /// that are told in the worst order takes n rounds.
    pub(crate) fn drain_pairs(&mut self) {
        loop {
            self.drain();
            let mut followed = false;
            for pair in std::mem::take(&mut self.pairs) {
                // SAFETY: the pair lies in a marked object or in a root, neither of which moves or goes meanwhile.
                let ends = unsafe { pair.as_ref() };
                let Some(key) = ends.key.get() else {
                    continue;
                };
                if self.is_reached(key) {
                    followed = true;
                    if let Some(value) = ends.value.get() {
                        self.edge(value);
                    }
                } else {
                    self.pairs.push(pair);
                }
            }
            if !followed {
                return;
            }
        }
    }

    /// Empties the weak cells and pairs whose objects were not reached. Nothing may be told afterwards.
    pub(crate) fn empty_weak(&mut self) {
        for pair in std::mem::take(&mut self.pairs) {
            // SAFETY: as in `drain_pairs`.
            let ends = unsafe { pair.as_ref() };
            ends.key.set(None);
            ends.value.set(None);
        }
        for cell in std::mem::take(&mut self.weak) {
            // SAFETY: as in `drain_pairs`.
            let cell = unsafe { cell.as_ref() };
            if cell.get().is_some_and(|object| !self.is_reached(object)) {
                cell.set(None);
            }
        }
    }
}

/// Prefetches the lines that marking and tracing an object touch first: its arena's marks and kind, and the object
/// itself.
#[inline(always)]
fn prefetch(object: NonNull<u8>) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let head = Arena::of(object).head_address();
        // SAFETY: a hint touches nothing, whatever the addresses are.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(head.cast());
            _mm_prefetch::<_MM_HINT_T0>(head.wrapping_add(56).cast());
            _mm_prefetch::<_MM_HINT_T0>(object.as_ptr().cast());
        }
    }
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    let _ = object;
}
