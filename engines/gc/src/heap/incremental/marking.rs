//! The marking that is on: of one heap, or of several that are collected together.
//!
//! ```text
//!                    ┌─ heap 0 (shared) ── marking ─┐
//!   begin_marking ──►├─ heap 1 ─────────── marking ─┼─► one Marking: tracer, what is left of the root tables, pauses
//!                    └─ heap 2 ─────────── marking ─┘
//!   slice:  root tables, one after the other, some entries at a time ─► then what they lead to
//! ```
//!
//! K1  All heaps of a set have the same marking, and no other heap has it; `Shared::markings` is their number.
//! K2  It ends for all of them at once: when it is finished, or is given up with the first heap that is collected
//!     otherwise or dropped.
//! K3  While a slice is done, or roots are told, none of them can be collected, nor can its marking be given up: a
//!     trace function that asks for it is refused, or ends the process.
//! K4  An entry of a root table that comes from a heap of the set is no root (roots.O2). The barrier tells one that is added
//!     meanwhile, in any of the tables.
//!
//! Not here: what a slice follows (`steps`), when a slice is done (`due`).

use core::cell::RefCell;
use core::ptr::NonNull;
use std::rc::{Rc, Weak};

use super::{Budget, CLOCK, Progress};
use crate::heap::clock::Clock;
use crate::heap::collect::{conclude, mark_all};
use crate::heap::roots::From;
use crate::heap::set::Collecting;
use crate::heap::set::{Busy, NoUnwind, Refused, Roots, lacks_heaps, refuse};
use crate::heap::state::Marking;
use crate::heap::state::{Heap, Pauses};
use crate::heap::tracer::Tracer;
use crate::heap::trigger::Reason;
use crate::heap::verify;

/// The longest that one attempt to begin sweeps what is left before it asks to be called again; one heap's poll may be
/// added.
const SWEEP_NS: u64 = 500_000;

impl Marking {
    fn heaps(&self) -> Vec<Rc<Heap>> {
        self.members.iter().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.ready
    }

    /// Returns the bytes taken since the last slice; those of `heap` are brought up to date.
    pub(crate) fn has_taken(&mut self, heap: &Heap) -> i64 {
        let taken = heap.triggers.taken_total() as i64;
        self.taken += taken - heap.taken_seen.replace(taken);
        self.taken
    }

    pub(crate) fn shade(&mut self, target: NonNull<u8>) {
        if !self.tracer.is_reached(target) {
            self.tracer.edge(target);
            self.ready = false;
        }
    }

    pub(crate) fn trace_again(&mut self, object: NonNull<u8>) {
        if self.tracer.is_reached(object)
            && let Some(steps) = &mut self.tracer.steps
        {
            steps.trace_again(object);
            self.ready = false;
        }
    }

    fn pause(&mut self, ns: u64) {
        self.pauses.earlier += 1;
        self.pauses.earlier_ns += ns;
        self.pauses.longest_ns = self.pauses.longest_ns.max(ns);
    }

    /// Tells the next entries of the root tables; returns their number, an empty table counted as one. 0: all were
    /// told.
    fn tell_roots(&mut self, heaps: &[Rc<Heap>], most: u64) -> u64 {
        let (member, from) = self.root;
        let Some(heap) = heaps.get(member) else {
            return 0;
        };
        let roots = heap.roots.borrow();
        let end = roots.end().min(from + most.min(CLOCK) as usize);
        for number in from..end {
            if let Some((object, from)) = roots.nth(number)
                && !self.is_told(from)
            {
                self.tracer.edge(object);
            }
        }
        let last = member + 1 == heaps.len();
        self.root = (member, end);
        if end == roots.end() {
            self.root = (member + 1, 0);
        }
        ((end - from) as u64).max(u64::from(!last))
    }

    /// Reports whether an entry comes from a heap of the set, which tells it itself (K4).
    fn is_told(&self, from: From) -> bool {
        matches!(from, From::Heap(id) if self.set.get(id as usize) == Some(&true))
    }

    fn slice(&mut self, heaps: &[Rc<Heap>], clock: &Clock, budget: Budget) {
        let began_ns = clock.wall_ns();
        let mut left = budget.edges.max(1);
        while left > 0 {
            let done = self.tell_roots(heaps, left);
            if done > 0 {
                left -= done;
            } else {
                let most = left.min(CLOCK);
                let done = self.tracer.advance(most);
                left -= done.min(left);
                if done < most {
                    self.ready = true;
                    break;
                }
            }
            if budget.ns != u64::MAX && clock.wall_ns() - began_ns >= budget.ns {
                break;
            }
        }
        for heap in heaps {
            self.has_taken(heap);
        }
        self.taken = 0;
        self.pause(clock.wall_ns() - began_ns);
    }
}

/// Sweeps some of what is left of the last collections. Reports whether all is swept (incremental.I5).
fn swept(set: &[&Heap], clock: &Clock, began_ns: u64) -> bool {
    for heap in set.iter().filter(|heap| heap.sweeping.get()) {
        heap.poll();
        if clock.wall_ns() - began_ns > SWEEP_NS {
            break;
        }
    }
    // A finalizer of one heap may have had another collected.
    !set.iter().any(|heap| heap.sweeping.get())
}

/// Begins to mark the heaps of `set`, which are then collected together: [`Heap::mark_step`] and
/// [`Heap::finish_marking`] of any of them concern all. `false`: they are not swept yet, and a part of that was done
/// instead; the caller asks again. If they are being marked together already, nothing is done; another marking of one
/// of them is given up. Cost: two stores for each heap, and the spans that allocation has.
///
/// # Errors
/// A finalizer or trace function of one of them asked, or they are of different worlds.
///
/// # Safety
/// Every object of these heaps that was allocated is written, and no exclusive reference into one exists that its trace
/// function would meet. From now on until the end of marking, edges are written with [`Heap::barrier`] or
/// [`Heap::changed`] of the heap whose object they are written into, and edges from other heaps, including those that
/// are made meanwhile, have entries ([`From::Heap`]). `roots` may tell less than all: the rest is told at the end.
pub unsafe fn begin_marking(
    set: &[&Heap],
    reason: Reason,
    roots: &mut dyn Roots,
) -> Result<bool, Busy> {
    let Some(first) = set.first() else {
        return Ok(false);
    };
    if are_marked_together(set) {
        return Ok(true);
    }
    for heap in set {
        if !Rc::ptr_eq(&heap.world, &first.world) {
            return Err(Busy::Strangers);
        }
        if heap.collecting.get() || heap.is_finalizing() {
            return Err(Busy::Collecting);
        }
    }
    let clock = &first.world.config.clock;
    let began_ns = clock.wall_ns();
    let _pause = first.world.pace.pause();
    if !swept(set, clock, began_ns) {
        return Ok(false);
    }
    let mut flags = vec![false; first.world.numbers()];
    let mut members = Vec::new();
    for heap in set {
        // A heap that is named twice counts once.
        if !core::mem::replace(&mut flags[heap.id as usize], true) {
            members.push(Rc::downgrade(&heap.this()));
        }
    }
    // A finalizer has just made a heap (collect.L7): the caller asks again, with that one.
    if lacks_heaps(set, &flags) {
        return Ok(false);
    }
    for heap in set {
        heap.abandon_marking();
        heap.retire();
    }
    let mut tracer = Tracer::marking(flags.clone(), first.world.config.mark_stack);
    tracer.steps = Some(Box::default());
    {
        let _collecting = Collecting::new(set);
        let guard = NoUnwind;
        roots.trace(&mut tracer);
        core::mem::forget(guard);
    }
    // What the client told of weak cells is told again at the end.
    if let Some(steps) = &mut tracer.steps {
        steps.forget_notes();
    }
    let marking = Rc::new(RefCell::new(Marking {
        tracer,
        reason,
        members,
        set: flags,
        root: (0, 0),
        pauses: Pauses {
            started_ns: began_ns,
            ..Pauses::default()
        },
        taken: 0,
        ready: false,
    }));
    let heaps = marking.borrow().heaps();
    heaps.iter().for_each(|heap| heap.is_marked_by(&marking));
    marking.borrow_mut().pause(clock.wall_ns() - began_ns);
    Ok(true)
}

/// Reports whether one marking is on for all of them; for one heap alone, whether any is.
fn are_marked_together(set: &[&Heap]) -> bool {
    let of = |heap: &&Heap| heap.marking.borrow().clone();
    let Some(first) = set.first().and_then(of) else {
        return false;
    };
    let same = |heap: &&Heap| of(heap).is_some_and(|other| Rc::ptr_eq(&first, &other));
    set.iter().all(same)
}

impl Heap {
    /// Reports whether marking is on, so that edges need barriers.
    #[inline]
    pub fn is_marking(&self) -> bool {
        self.marking_on.get()
    }

    /// Returns the state of the marking.
    pub fn progress(&self) -> Progress {
        match self.marking.borrow().as_ref() {
            None => Progress::Off,
            Some(marking) if marking.borrow().ready => Progress::Ready,
            Some(_) => Progress::More,
        }
    }

    /// Returns the heaps that are marked together with this one, itself included; none if it is not marked.
    pub(crate) fn marked_with(&self) -> Vec<Rc<Heap>> {
        let marking = self.marking.borrow();
        marking.as_ref().map_or(Vec::new(), |m| m.borrow().heaps())
    }

    fn is_marked_by(&self, marking: &Rc<RefCell<Marking>>) {
        self.taken_seen.set(self.triggers.taken_total() as i64);
        *self.marking.borrow_mut() = Some(marking.clone());
        self.marking_on.set(true);
        self.world.marks_one_more();
    }

    /// Adds a new heap, in which nothing is allocated yet, to the heaps that are marked and collected with this one, if
    /// it is marked: its edges into them need no entries.
    pub(crate) fn is_joined_by(&self, new: &Heap) {
        let Some(marking) = self.marking.borrow().clone() else {
            return;
        };
        {
            let mut marking = marking.borrow_mut();
            let numbers = marking.set.len().max(new.id as usize + 1);
            marking.set.resize(numbers, false);
            marking.set[new.id as usize] = true;
            marking.members.push(Rc::downgrade(&new.this()));
            marking.tracer.join(new.id);
        }
        new.is_marked_by(&marking);
    }

    /// Does what [`begin_marking`] does, for this heap alone.
    ///
    /// # Errors
    /// As [`begin_marking`]; if it is being marked already, alone or with others, nothing is done.
    ///
    /// # Safety
    /// As [`begin_marking`].
    pub unsafe fn begin_marking(
        &self,
        reason: Reason,
        roots: &mut dyn Roots,
    ) -> Result<bool, Busy> {
        // SAFETY: as the caller promises.
        unsafe { begin_marking(&[self], reason, roots) }
    }

    /// Marks a part (incremental.I4). Within a finalizer of a heap that is marked, and while its objects are looked at
    /// ([`Heap::each_object`]), nothing is done.
    ///
    /// # Panics
    /// If a trace function asks, of a heap that is marked: the process ends then (K3).
    ///
    /// # Safety
    /// As [`begin_marking`].
    pub unsafe fn mark_step(&self, budget: Budget) -> Progress {
        let Some(marking) = self.marking.borrow().clone() else {
            return Progress::Off;
        };
        let heaps = self.marked_with();
        let busy = |heap: &Rc<Heap>| heap.collecting.get() || heap.is_finalizing();
        if heaps.iter().any(busy) {
            return self.progress();
        }
        let set: Vec<&Heap> = heaps.iter().map(Rc::as_ref).collect();
        let collecting = Collecting::new(&set);
        let pause = self.world.pace.pause();
        let guard = NoUnwind;
        let clock = &self.world.config.clock;
        marking.borrow_mut().slice(&heaps, clock, budget);
        core::mem::forget(guard);
        drop((pause, collecting));
        self.progress()
    }

    /// Ends the marking of all heaps that are marked together: marks what is left, empties weak cells, and hands
    /// everything over to be swept. `false`: no marking was on.
    ///
    /// # Errors
    /// As [`collect`](crate::collect).
    ///
    /// # Safety
    /// As [`collect`](crate::collect) of all of them.
    pub unsafe fn finish_marking(&self, roots: &mut dyn Roots) -> Result<bool, Busy> {
        let heaps = self.marked_with();
        let set: Vec<&Heap> = heaps.iter().map(Rc::as_ref).collect();
        refuse(&set)?;
        let began_ns = self.world.config.clock.wall_ns();
        let pause = self.world.pace.pause();
        let Some(mut marking) = self.take_marking() else {
            return Ok(false);
        };
        for heap in &set {
            heap.collecting.set(true);
            heap.retire();
        }
        let verified = self.world.config.verify.then(|| {
            let refused = Refused(&set);
            let walked = verify::walk(&set, &marking.set, roots);
            core::mem::forget(refused);
            walked
        });
        let guard = NoUnwind;
        while marking.tell_roots(&heaps, u64::MAX) > 0 {}
        let tracer = &mut marking.tracer;
        tracer.finish_steps();
        roots.trace(tracer);
        mark_all(tracer, roots);
        core::mem::forget(guard);
        if let Some(walked) = verified {
            // Objects that were cut off meanwhile may be marked.
            verify::reached(&set, &walked, tracer, true);
        }
        let mut pauses = marking.pauses;
        pauses.last_ns = Some(began_ns);
        pauses.forced = !marking.ready;
        let wake = conclude(&set, marking.tracer, marking.reason, pauses);
        drop(pause);
        wake.sweeper();
        Ok(true)
    }

    /// Takes the marking from all heaps that have it (K2).
    fn take_marking(&self) -> Option<Marking> {
        let marking = self.marking.take()?;
        self.marking_on.set(false);
        for heap in marking.borrow().heaps() {
            heap.marking.take();
            heap.marking_on.set(false);
        }
        // K3: only the caller that does a slice could still have it.
        let marking = Rc::into_inner(marking).expect("no slice is being done");
        let marking = marking.into_inner();
        self.world.marks_fewer(marking.members.len() as u32);
        Some(marking)
    }

    /// Gives up the marking of all heaps that are marked together, if it is on: nothing was collected. Cost: two stores
    /// for each of their arenas.
    ///
    /// # Panics
    /// A trace function of a heap that is marked calls it: the process ends then.
    pub fn abandon_marking(&self) {
        let Some(marking) = self.take_marking() else {
            return;
        };
        // A heap that is being dropped is none of them any more.
        self.clear_marks();
        marking.heaps().iter().for_each(|heap| heap.clear_marks());
    }

    fn clear_marks(&self) {
        for chunk in self.chunks.borrow().all() {
            let head = chunk.head();
            head.delayed.clear();
            head.waiting.set(false);
            chunk.arenas().for_each(|arena| arena.head().marks.clear());
        }
    }
}
