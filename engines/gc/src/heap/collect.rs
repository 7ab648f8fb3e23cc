//! A collection: one heap, or several together.
//!
//! ```text
//!   finish the last sweep ─► retire spans ─► roots ─► mark ─► pairs ─► the client's look ─► verify ─► weak cells
//!                                                                                              │
//!        log, threshold ◄── hand everything over to be swept (by the mutator, or by both)  ◄───┘
//! ```
//!
//! L1  When marking begins no mark bit of the set is set, no span is taken, and the sweeper has nothing of the set:
//!     finalizers of the last sweeps have all run by then (`set::settle`).
//! L2  Roots are the entries of the heaps' tables (except those that come from a heap of the set, which tells them
//!     itself), and what the client tells. Edges out of heaps that are not in the set are roots only if they have
//!     entries.
//! L3  The pause sweeps only what the last collection left, unless [`Config::sweep_in_pause`](crate::Config::sweep_in_pause)
//!     is set. Then, too, no finalizer runs before all heaps of the set were handed over, each of which has its own
//!     marks until then, and before every root is one again ([`empty_roots`]): what a finalizer allocates, in any heap,
//!     is in no arena that is still to be swept.
//! L4  While a closure of safe code may have pointers into a heap of the set, or a finalizer runs, nothing is done.
//! L5  An object that ends in this collection is no root of a later one, however long its sweep takes
//!     ([`empty_roots`]).
//! L6  The sweeper is woken when the pause is over ([`Wake`]): the system call, and the sweeper's taking the processor
//!     from this thread where there is no other, are in no pause.
//! L7  A heap that has edges without entries from all heaps of its world is collected with all of them, also with those
//!     that finalizers make when the set is swept first ([`lacks_heaps`]).
//!
//! Not here: following edges (`mark`), what a set of heaps is asked first (`set`), sweeping (`sweeping`, `sweeper`).

use crate::heap::address::ARENA_BYTES;
use crate::heap::set::Busy;
use crate::heap::set::NoUnwind;
use crate::heap::set::Refused;
use crate::heap::set::Roots;
use crate::heap::set::lacks_heaps;
use crate::heap::set::refuse;
use crate::heap::set::settle;
use crate::heap::set::tell_roots;
use crate::heap::state::Heap;
use crate::heap::state::Pauses;
use crate::heap::tracer::Tracer;
use crate::heap::trigger::{Collection, Reason};
use crate::heap::verify;

/// Collects the heaps of `set` together.
///
/// # Errors
/// Nothing was done, for the reason given (L4).
///
/// # Safety
/// `roots` tells every object of the set that is used later and that no entry of a root table leads to, and each kind
/// tells all edges of a reached object. Edges from heaps that are not in the set have entries
/// ([`From::Heap`](crate::From::Heap)).
pub unsafe fn collect(set: &[&Heap], reason: Reason, roots: &mut dyn Roots) -> Result<(), Busy> {
    // SAFETY: as the caller promises.
    match unsafe { try_collect(set, reason, roots) }? {
        true => Ok(()),
        false => Err(Busy::Collecting),
    }
}

/// Does what [`collect`] does. `false`: nothing was collected, since the set lacks a heap that a finalizer has just made
/// (L7).
///
/// # Errors
/// As [`collect`].
///
/// # Safety
/// As [`collect`].
pub(crate) unsafe fn try_collect(
    set: &[&Heap],
    reason: Reason,
    roots: &mut dyn Roots,
) -> Result<bool, Busy> {
    let Some(first) = set.first() else {
        return Ok(true);
    };
    refuse(set)?;
    let clock = &first.world.config.clock;
    let started_ns = clock.wall_ns();
    let pause = first.world.pace.pause();
    for heap in set {
        heap.abandon_marking();
        heap.collecting.set(true);
    }
    settle(set);
    let finished_ns = clock.wall_ns();
    let mut collected = vec![false; first.world.numbers()];
    for heap in set {
        if let Some(flag) = collected.get_mut(heap.id as usize) {
            *flag = true;
        }
    }
    let verify = first.world.config.verify;
    let refused = Refused(set);
    if lacks_heaps(set, &collected) {
        return Ok(false);
    }
    let walked = verify.then(|| verify::walk(set, &collected, roots));
    std::mem::forget(refused);
    let guard = NoUnwind;
    let mut tracer = Tracer::marking(collected.clone(), first.world.config.mark_stack);
    tell_roots(set, &collected, roots, &mut tracer);
    let looked = mark_all(&mut tracer, roots);
    std::mem::forget(guard);
    if let Some(walked) = walked {
        // What the client told while it looked is not among its roots.
        verify::reached(set, &walked, &tracer, looked);
    }
    let pauses = Pauses {
        started_ns,
        finish_ns: finished_ns - started_ns,
        ..Pauses::default()
    };
    let wake = conclude(set, tracer, reason, pauses);
    drop(pause);
    wake.sweeper();
    Ok(true)
}

/// Marks everything that was told, and what the client tells when it looks. Returns whether it told anything then.
pub(crate) fn mark_all(tracer: &mut Tracer, roots: &mut dyn Roots) -> bool {
    tracer.drain_pairs();
    let mut looked = false;
    while roots.reached(tracer) {
        looked = true;
        tracer.drain_pairs();
    }
    // Edges that it told when it asked for no more marking.
    tracer.drain_pairs();
    looked
}

/// Concludes a collection when everything that is reached is marked: empties weak cells, hands everything over to be
/// swept, and records the collection. The caller ends the pause and then wakes the sweeper.
pub(crate) fn conclude<'a>(
    set: &'a [&'a Heap],
    mut tracer: Tracer,
    reason: Reason,
    pauses: Pauses,
) -> Wake<'a> {
    tracer.empty_weak();
    empty_roots(set, &tracer);
    let now_ns = || {
        set.first()
            .map_or(0, |heap| heap.world.config.clock.wall_ns())
    };
    let marked_ns = now_ns();
    let before: Vec<usize> = set.iter().map(|h| h.triggers.used_bytes.get()).collect();
    let mut wake = Wake(Vec::new());
    for heap in set {
        let live_bytes = tracer.reach(heap.id).bytes as usize;
        let expected = heap.triggers.expected(live_bytes, pauses.started_ns);
        let unfilled = heap.slack_bytes();
        if begin_sweep(heap, expected) && !heap.world.config.sweep_in_pause {
            heap.set_ahead(unfilled);
            wake.0.push(heap);
        }
    }
    // L3.
    for heap in set.iter().filter(|h| h.world.config.sweep_in_pause) {
        heap.finish_sweep();
    }
    set.iter().for_each(|heap| heap.collecting.set(false));
    let now_ns = now_ns();
    let last_began_ns = pauses.last_ns.unwrap_or(pauses.started_ns);
    let last_ns = now_ns - last_began_ns;
    let spent = set.first().and_then(|heap| heap.world.pace.spent());
    for (heap, before_bytes) in set.iter().zip(before) {
        let reach = tracer.reach(heap.id);
        let record = Collection {
            reason,
            heaps: set.len(),
            started_ns: pauses.started_ns,
            pause_ns: pauses.earlier_ns + last_ns,
            slices: pauses.earlier + 1,
            longest_ns: pauses.longest_ns.max(last_ns),
            forced: pauses.forced,
            finish_ns: pauses.finish_ns,
            mark_ns: pauses.earlier_ns + (marked_ns - last_began_ns) - pauses.finish_ns,
            before_bytes,
            live_bytes: reach.bytes as usize,
            live_cells: reach.cells,
            client_bytes: heap.triggers.client_bytes.get(),
            // The triggers fill these three.
            threshold_bytes: 0,
            factor: 0.0,
            share: None,
            overflows: tracer.overflows,
        };
        // What finalizers took within the pause (L3).
        let taken = heap.triggers.used_bytes.get().saturating_sub(before_bytes);
        heap.triggers.collected(record, spent, heap.unused_bytes());
        heap.triggers.used_bytes.set(reach.bytes as usize + taken);
        let wanted = heap.wanted_bytes();
        heap.chunks.borrow_mut().set_reserve(wanted);
    }
    wake
}

/// The heaps that have something for the sweeper (L6).
#[must_use = "the sweeper does not know of the arenas that were offered"]
pub(crate) struct Wake<'a>(Vec<&'a Heap>);

impl Wake<'_> {
    /// Wakes the sweeper, if there is anything for it.
    pub(crate) fn sweeper(self) {
        for heap in self.0 {
            debug_assert!(!heap.world.pace.is_in_pause(), "L6");
            if let Some(sweeper) = heap.world.sweeper() {
                sweeper.request(heap.handover.clone(), heap.world.config.poison);
            }
        }
    }
}

/// Empties entries of objects that were not reached (roots.O3): the other objects are reached, since they are
/// roots, or told by an object that is. Cost: a look at each entry of the set's tables, where the set is more than one
/// heap; those of a heap alone are swept before its next collection.
fn empty_roots(set: &[&Heap], tracer: &Tracer) {
    // Taken: from here on anchors are roots again.
    let counted = set.first().and_then(|heap| heap.world.counted.take());
    if set.len() < 2 && counted.is_none() {
        return;
    }
    for heap in set {
        let mut roots = heap.roots.borrow_mut();
        roots.empty(|object| !tracer.is_reached(object));
    }
}

/// Begins to sweep a heap; reports whether there is anything for the sweeper. `expected`: bytes that will be taken
/// before the next collection; free pages that are already resident are a part of these.
fn begin_sweep(heap: &Heap, expected: usize) -> bool {
    let mut offered = false;
    let resident = heap.chunks.borrow().dirty_bytes();
    let keep = expected.saturating_sub(resident) / ARENA_BYTES;
    // Before anything is offered, since the sweeper may still be awake.
    heap.handover.set_keep(keep);
    for space in heap.spaces() {
        let arenas = space.take_all();
        if arenas.is_empty() {
            continue;
        }
        heap.sweeping.set(true);
        if space.elsewhere() {
            heap.handover.offer(usize::from(space.index), arenas);
            offered = true;
        } else {
            space.set_own(arenas);
        }
    }
    offered
}
