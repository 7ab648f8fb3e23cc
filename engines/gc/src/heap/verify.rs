//! The second tracer, and the invariants by brute force.
//!
//! ```text
//!   roots ─► a set of addresses ─► each object tells its edges ─► … ─► the same set as the marked ones, or a panic
//! ```
//!
//! The walk comes first, so that an edge that leads nowhere gives a message and not a fault of the marking.
//!
//! V1  It shares nothing with marking except the kinds' own functions: no mark bits, no arenas of pointers, no stack
//!     that may overflow. It finds an edge that leads to no object.
//! V2  It is for tests and stress modes: it costs a set entry for each object, and walks every heap whole.
//!
//! Not here: the reaction to what it finds.

use core::ptr::NonNull;
use std::collections::{HashSet, VecDeque};

use crate::heap::address::{ARENA_BYTES, Arena, Chunk};
use crate::heap::bits::each;
use crate::heap::set::{Roots, tell_roots};
use crate::heap::state::Heap;
use crate::heap::tracer::{ListedEdges, Tracer};

/// Returns what an object tells.
fn listed_by(object: NonNull<u8>) -> ListedEdges {
    let mut tracer = Tracer::listing();
    tracer.trace(object);
    tracer.take_listed()
}

fn heap_of(object: NonNull<u8>) -> u32 {
    Chunk::of(object).head().heap.get()
}

fn is_in(object: NonNull<u8>, collected: &[bool]) -> bool {
    collected.get(heap_of(object) as usize) == Some(&true)
}

/// Panics unless `object` is an object.
fn must_be_object(object: NonNull<u8>) {
    let arena = Arena::of(object);
    let at = object.as_ptr();
    assert!(
        !Chunk::of(object).head().free.has(arena.index()),
        "an edge leads to {at:p}, in an arena that is not in use"
    );
    let cell = arena.cell_of(at.addr());
    let kind = (arena.head().kind.get().name)();
    assert!(
        arena.head().allocated.has(cell) && arena.cell(cell) == object,
        "an edge leads to {at:p}, which is no object of kind {kind}"
    );
}

/// Panics unless there is a chunk at an address that was told as an object's.
fn must_be_ours(set: &[&Heap], object: NonNull<u8>) {
    let at = object.as_ptr();
    let found = set
        .first()
        .and_then(|heap| heap.world.source.find(at.addr()));
    assert!(
        found.is_some(),
        "an edge or root leads to {at:p}, which is in no heap"
    );
}

/// Returns everything that the roots lead to, within the heaps of the set, whose spans are retired.
///
/// # Panics
/// An edge leads to something that is no object.
pub(crate) fn walk(
    set: &[&Heap],
    collected: &[bool],
    roots: &mut dyn Roots,
) -> HashSet<NonNull<u8>> {
    let mut listing = Tracer::listing();
    tell_roots(set, collected, roots, &mut listing);
    let mut listed = listing.take_listed();
    let mut reached = HashSet::new();
    let mut pairs = std::mem::take(&mut listed.pairs);
    let mut queue: VecDeque<NonNull<u8>> = listed.edges.into();
    loop {
        while let Some(object) = queue.pop_front() {
            if reached.contains(&object) {
                continue;
            }
            must_be_ours(set, object);
            if !is_in(object, collected) || !reached.insert(object) {
                continue;
            }
            must_be_object(object);
            let listed = listed_by(object);
            queue.extend(listed.edges);
            pairs.extend(listed.pairs);
        }
        let open = pairs.len();
        pairs.retain(|&(key, value)| {
            let Some(key) = key else { return false };
            must_be_ours(set, key);
            let alive = !is_in(key, collected) || reached.contains(&key);
            queue.extend(value.filter(|_| alive));
            !alive
        });
        if pairs.len() == open {
            return reached;
        }
    }
}

/// Checks, after marking, that the marked objects are those that a walk found. `more`: the client told some that are
/// not among its roots, so that more may be marked.
pub(crate) fn reached(set: &[&Heap], walked: &HashSet<NonNull<u8>>, tracer: &Tracer, more: bool) {
    for &object in walked {
        assert!(
            tracer.is_reached(object),
            "marking missed {:p} of kind {}",
            object.as_ptr(),
            (Arena::of(object).head().kind.get().name)()
        );
    }
    let mut marked = 0;
    for heap in set {
        for chunk in heap.chunks.borrow().all() {
            for arena in chunk.arenas() {
                let head = arena.head();
                let (marks, allocated) = (head.marks.words(), head.allocated.words());
                for (marked, allocated) in marks.iter().zip(allocated) {
                    assert_eq!(marked & !allocated, 0, "a free cell is marked");
                }
                marked += head.marks.count();
            }
        }
    }
    let listed: u64 = set.iter().map(|heap| tracer.reach(heap.id).cells).sum();
    assert_eq!(listed, marked as u64, "marks are counted");
    assert!(
        if more {
            marked >= walked.len()
        } else {
            marked == walked.len()
        },
        "{marked} objects are marked and {} are reached",
        walked.len()
    );
}

impl Heap {
    /// Checks the invariants of lists, bits and counts, by brute force. Everything is swept first.
    ///
    /// # Panics
    /// An invariant does not hold, which the message names; or a finalizer of this heap calls it.
    pub fn check(&self) {
        self.settle_all();
        let mut listed = HashSet::new();
        for space in self.spaces() {
            space.check_slack();
            for arena in space.listed() {
                assert!(listed.insert(arena), "E1: an arena is listed twice");
                assert_eq!(arena.head().space.get(), space.index, "E1");
                assert_eq!(Chunk::of(arena.0).head().heap.get(), self.id);
            }
        }
        let mut held = 0;
        let mut dirty = 0;
        let mut cells = 0;
        for chunk in self.chunks.borrow().all() {
            let head = chunk.head();
            assert_eq!(
                head.used.get() as usize + head.free.count(),
                crate::heap::layout::USABLE,
                "U3"
            );
            let bits = head.dirty.words();
            let free = head.free.words();
            assert!(
                bits.iter().zip(free).all(|(d, f)| d & !f == 0),
                "dirty and in use"
            );
            assert!(self.is_marking() || head.delayed.count() == 0, "M3");
            dirty += head.dirty.count();
            held += crate::heap::layout::HEADS;
            for arena in chunk.arenas() {
                assert!(listed.remove(&arena), "E1: an arena in use is in no list");
                check_arena(arena, head.origin.get(), self.is_marking());
                held += arena.head().pages.get() as usize;
                cells += arena.head().allocated.count() * arena.object_bytes();
            }
        }
        assert!(
            listed.is_empty(),
            "E1: an arena that is not in use is listed"
        );
        let chunks = self.chunks.borrow();
        assert_eq!(chunks.held_bytes(), held * ARENA_BYTES, "U5");
        assert_eq!(chunks.dirty_bytes(), dirty * ARENA_BYTES);
        assert_eq!(
            self.triggers.used_bytes.get(),
            cells,
            "bytes taken are counted"
        );
    }
}

fn check_arena(arena: Arena, origin: u8, marking: bool) {
    let head = arena.head();
    assert_eq!(head.kind.get().origin as u8, origin, "U1");
    assert!(
        marking || head.marks.count() == 0,
        "W2: marked between collections"
    );
    let cells = head.cells.get() as usize;
    assert_eq!(head.live.get() as usize, head.allocated.count(), "W2");
    assert!(head.live.get() > 0, "an empty arena was kept");
    let beyond = each(head.allocated.words()).find(|&cell| cell >= cells);
    assert_eq!(beyond, None, "an allocated cell beyond the last");
}
