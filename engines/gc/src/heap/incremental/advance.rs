//! Advancing a marking: a tracer goes on from what it remembers between slices.
//!
//! ```text
//!   advance(most) ─► mark stack ─► delayed arenas ─► parts of objects ─► changed objects ─► holders of pairs ─► nothing left
//!        ▲                each of them tells edges, which go back onto the stack                     │
//!        └────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! incremental.I3, incremental.I7 and incremental.I8 are kept here.
//!
//! Not here: when a slice is done, and for which heaps (`marking`); following one edge (`mark`).

use core::ptr::NonNull;

use super::steps::Note;
use crate::heap::address::Arena;
use crate::heap::kind::TracePartFn;
use crate::heap::tracer::Tracer;

impl Tracer {
    /// Notes that a part of the object that is traced is being written: in slices, by a closure that has not ended, so
    /// the object is traced again. Otherwise nothing is needed: what a counted value does not tell counts as held from
    /// outside, and where no closure can be running the guard was leaked, and what it protects is used no more (slot.L2).
    pub(crate) fn locked(&mut self) {
        if let Some(steps) = &mut self.steps {
            steps.note(Note::Locked);
        }
    }

    /// Notes that the object that is traced, or what it owns outside of the heap, has a part into which weak cells or
    /// pairs may be written later: a write outside of the heap does not tell whose part it was (incremental.I3).
    #[inline]
    pub(crate) fn may_get_weak(&mut self) {
        if let Some(steps) = &mut self.steps {
            steps.note(Note::Weak);
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

    /// Traces a part of an object, and remembers the rest (incremental.I8).
    #[inline(never)]
    fn trace_part(&mut self, place: (NonNull<u8>, usize), part: TracePartFn, first: bool) {
        // SAFETY: mark.M1: the object is of this kind.
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

    /// Follows at most `most` edges, whatever they come from; returns their number. Fewer: nothing is left.
    pub(crate) fn advance(&mut self, most: u64) -> u64 {
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
        steps.listed = Some(Vec::new());
        self.trace_whole(holder, false);
        let listed = self.steps.as_mut().and_then(|steps| steps.listed.take());
        for (key, value) in listed.into_iter().flatten() {
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

impl Tracer {
    /// Switches to tracing as in a collection in one go; tells what was remembered.
    pub(crate) fn finish_steps(&mut self) {
        let Some(mut steps) = self.steps.take() else {
            return;
        };
        while let Some(object) = next_cell(&mut steps.arena) {
            self.trace(object);
        }
        // Only a few edges of these are left, or all: the rest is told without the edges that were told before.
        for (object, mut from) in core::mem::take(&mut steps.parts) {
            let part = Arena::of(object).head().kind.get().trace_part;
            // SAFETY: mark.M1: the object is of this kind.
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
