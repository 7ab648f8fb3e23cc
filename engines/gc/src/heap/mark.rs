//! Marking: everything that roots lead to, with a stack of its own.
//!
//! ```text
//!   roots ─► edge(object) ─► stack ─► take AHEAD, prefetch ─► those before them: mark bit new? ─► kind.trace ─► edge …
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
//! M5  The mark stack has an entry allocated for each number below `Tracer::room`.
//!
//! Not here: the roots (`collect`), the freeing of what was not reached (`sweep`), marking while the program runs
//! (`incremental`).

use core::ptr::NonNull;

use crate::heap::address::{Arena, Chunk};
use crate::heap::bits::each;
use crate::heap::incremental::Note;
use crate::heap::kind::TraceFn;
use crate::heap::listener::Strength;
use crate::heap::tracer::NONE;
use crate::heap::tracer::Reach;
use crate::heap::tracer::Tracer;
use crate::heap::weak::Pair;
use crate::heap::weak::WeakCell;

/// Number of objects that are taken off the stack together, and looked at when the next ones have been taken: a load from
/// memory takes as long as some of these. Binary trees by the tight table, median and least processor time of 21 in turn
/// on a busy machine (2026-11-26): 130 and 123 ms with a ring of 8 that was refilled one by one, 140 and 110 with 8
/// together, 115 and 106 with 16.
const AHEAD: usize = 16;

impl Tracer {
    /// Tells an edge: the first byte of an object (M1), by the pointer that its allocation gave, or one that was made
    /// from that without a reference between: what is known of the object lies beside it, in its chunk. Cost: a
    /// comparison and a store; the object is looked at later, when it is in the cache.
    #[inline]
    pub fn edge(&mut self, object: NonNull<u8>) {
        if self.stack.len() < self.room {
            // SAFETY: M5: the entry is allocated.
            unsafe {
                self.stack.as_mut_ptr().add(self.stack.len()).write(object);
                self.stack.set_len(self.stack.len() + 1);
            }
        } else {
            self.edge_slow(object);
        }
    }

    /// Tells an edge, if there is one. Cost: as that of [`Tracer::edge`], and without a branch: whether a pointer is
    /// there is what no processor predicts, half of a tree's being null.
    #[inline]
    pub(crate) fn edge_if(&mut self, object: Option<NonNull<u8>>) {
        if self.stack.len() < self.room {
            let raw = object.map_or(core::ptr::null_mut(), NonNull::as_ptr);
            // SAFETY: M5: the entry is allocated; it counts only if what was written is an object.
            unsafe {
                let end = self.stack.as_mut_ptr().add(self.stack.len());
                end.cast::<*mut u8>().write(raw);
                self.stack
                    .set_len(self.stack.len() + usize::from(object.is_some()));
            }
        } else if let Some(object) = object {
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
        let may_grow = self.stack.len() < self.most;
        if may_grow && self.stack.try_reserve(self.stack.len().max(256)).is_ok() {
            self.stack.push(object);
            self.room = self.stack.capacity().min(self.most);
            return;
        }
        if self.mark(object).is_some() {
            self.overflows += 1;
            let arena = Arena::of(object);
            let chunk = arena.chunk();
            chunk.head().delayed.add(arena.index());
            if !chunk.head().waiting.replace(true) {
                self.delayed.push(chunk);
            }
        }
    }

    /// Marks an object; returns what tells its edges, if it has some to be told now. Cost: 35 instructions.
    #[inline(always)]
    fn mark(&mut self, object: NonNull<u8>) -> Option<TraceFn> {
        let chunk = Chunk::of(object);
        let heap = chunk.head().heap.get();
        let reach = if heap == self.only {
            &mut self.here
        } else {
            self.reach.get_mut(heap as usize).filter(|r| r.collected)?
        };
        let arena = Arena::of(object);
        let head = arena.head();
        if !head.marks.add(arena.cell_of(object.as_ptr().addr())) {
            return None;
        }
        reach.cells += 1;
        reach.bytes += match head.size.get() {
            0 => arena.object_bytes() as u64,
            size => u64::from(size),
        };
        head.kind.get().trace
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
            self.drain_stack::<false>(0);
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
                    self.drain_stack::<false>(0);
                }
            }
        }
    }

    /// Follows at most `most` edges; returns their number. Objects that are popped wait in a queue until they are in
    /// the cache. `STEPS`: what an object tells beside its edges is noted; without it all edges are followed, and none is
    /// counted.
    pub(crate) fn drain_stack<const STEPS: bool>(&mut self, most: u64) -> u64 {
        let mut queues = [[NonNull::dangling(); AHEAD]; 2];
        let (mut side, mut count) = (0, 0);
        let mut popped = 0;
        loop {
            side ^= 1;
            let most = if STEPS {
                (most - popped) as usize
            } else {
                AHEAD
            };
            let taken = self.take_last(most, &mut queues[side]);
            if STEPS {
                popped += taken as u64;
            }
            if taken + count == 0 {
                return popped;
            }
            for &object in &queues[side ^ 1][..count] {
                if let Some(trace) = self.mark(object) {
                    if STEPS {
                        self.trace_step(object);
                    } else {
                        // SAFETY: M1: the object is of this kind.
                        unsafe { trace(object, self) };
                    }
                }
            }
            count = taken;
        }
    }

    /// Takes at most `most` entries off the stack, the last first, and prefetches them. Returns their number. The length
    /// of the stack is written once for all of them: written for each, it is what the next one waits for.
    #[inline(always)]
    fn take_last(&mut self, most: usize, into: &mut [NonNull<u8>; AHEAD]) -> usize {
        let taken = self.stack.len().min(most).min(AHEAD);
        let left = self.stack.len() - taken;
        for (object, place) in self.stack[left..].iter().rev().zip(into) {
            prefetch(*object);
            *place = *object;
        }
        self.stack.truncate(left);
        taken
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
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    {
        let head = Arena::of(object).head_address();
        // SAFETY: as above.
        unsafe {
            core::arch::asm!(
                "prfm pldl1keep, [{head}]",
                "prfm pldl1keep, [{head}, #56]",
                "prfm pldl1keep, [{object}]",
                head = in(reg) head,
                object = in(reg) object.as_ptr(),
                options(nostack, readonly, preserves_flags),
            );
        }
    }
    #[cfg(miri)]
    let _ = object;
}
