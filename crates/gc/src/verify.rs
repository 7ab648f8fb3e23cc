//! The second tracer, the invariants by brute force, and who keeps an object alive.
//!
//! ```text
//!   roots ─► a set of addresses ─► each object tells its edges ─► … ─► the same set as the marked ones, or a panic
//! ```
//!
//! The walk comes first, so that an edge that leads nowhere is a message and not a fault of the marking.
//!
//! V1  It shares nothing with marking but the kinds' own functions: no mark bits, no arenas of pointers, no stack
//!     that may overflow. An edge that leads to no object is found here.
//! V2  It is for tests and stress modes: a set entry for each object, and every heap walked whole.
//!
//! Not here: what is done about it.

use core::ptr::NonNull;
use std::collections::{HashMap, HashSet, VecDeque};

use crate::bits::each;
use crate::collect::{Roots, tell_roots};
use crate::heap::Heap;
use crate::layout::{ARENA_BYTES, Arena, Chunk};
use crate::mark::{Told, Tracer};
use crate::roots::From;

/// What an object tells.
fn told_by(object: NonNull<u8>) -> Told {
    let mut tracer = Tracer::listing();
    tracer.trace(object);
    tracer.take_told()
}

fn heap_of(object: NonNull<u8>) -> u32 {
    Chunk::of(object).head().heap.get()
}

fn is_in(object: NonNull<u8>, collected: &[bool]) -> bool {
    collected.get(heap_of(object) as usize) == Some(&true)
}

/// Panics unless `object` is one.
fn must_be_object(object: NonNull<u8>) {
    let arena = Arena::of(object);
    let at = object.as_ptr();
    assert!(
        !Chunk::of(object).head().free.has(arena.index()),
        "an edge leads to {at:p}, in an arena that nobody uses"
    );
    let cell = arena.cell_of(at.addr());
    let kind = (arena.head().kind.get().name)();
    assert!(
        arena.head().allocated.has(cell) && arena.cell(cell) == object,
        "an edge leads to {at:p}, which is no object of kind {kind}"
    );
}

/// Panics unless there is a chunk at an address that is said to be an object's.
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

/// Everything that the roots lead to, within the heaps of the set, whose spans are retired.
///
/// # Panics
/// If an edge leads to something that is no object.
pub(crate) fn walk(
    set: &[&Heap],
    collected: &[bool],
    roots: &mut dyn Roots,
) -> HashSet<NonNull<u8>> {
    let mut listing = Tracer::listing();
    tell_roots(set, collected, roots, &mut listing);
    let mut told = listing.take_told();
    let mut reached = HashSet::new();
    let mut pairs = std::mem::take(&mut told.pairs);
    let mut queue: VecDeque<NonNull<u8>> = told.edges.into();
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
            let told = told_by(object);
            queue.extend(told.edges);
            pairs.extend(told.pairs);
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

/// After marking: the marked objects are those that a walk finds. `more`: the client told some that are not among
/// its roots, so that there may be more marked.
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
    let told: u64 = set.iter().map(|heap| tracer.reach(heap.id).cells).sum();
    assert_eq!(told, marked as u64, "marks are counted");
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
    /// The invariants of lists, bits and counts, by brute force. Everything is swept first.
    ///
    /// # Panics
    /// With the invariant that does not hold; if a finalizer of this heap calls it.
    pub fn check(&self) {
        self.settle_all();
        let mut listed = HashSet::new();
        for space in self.spaces() {
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
                crate::layout::USABLE,
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
            held += crate::layout::HEADS;
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

/// One step of a path that keeps an object alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The heap's name.
    pub heap: String,
    /// Kind of the object.
    pub kind: &'static str,
    /// Where it is; good for telling objects apart.
    pub address: usize,
}

/// Why an object is alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// The root.
    pub root: String,
    /// From the root's object to the object that was asked for.
    pub steps: Vec<Step>,
}

impl std::fmt::Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.root)?;
        for step in &self.steps {
            write!(f, " -> {} ({})", step.kind, step.heap)?;
        }
        Ok(())
    }
}

fn step(heaps: &[&Heap], object: NonNull<u8>) -> Step {
    let heap = heaps.iter().find(|heap| heap.id == heap_of(object));
    Step {
        heap: heap.map_or_else(String::new, |heap| heap.name().to_owned()),
        kind: (Arena::of(object).head().kind.get().name)(),
        address: object.as_ptr().addr(),
    }
}

/// The shortest path from a root of these heaps to an object that `wanted` chooses. Edges from other heaps are
/// named after them. Cost: a map entry for each object on the way.
pub(crate) fn path(
    heaps: &[&Heap],
    names: &dyn Fn(u32) -> String,
    wanted: &dyn Fn(NonNull<u8>) -> bool,
) -> Option<Path> {
    let mut parent: HashMap<NonNull<u8>, Option<NonNull<u8>>> = HashMap::new();
    let mut root_of: HashMap<NonNull<u8>, String> = HashMap::new();
    let mut queue = VecDeque::new();
    for heap in heaps {
        for (object, from) in heap.roots.borrow().all() {
            let name = match from {
                From::Host(what) => format!("handle \"{what}\""),
                From::Heap(id) => format!("an edge from heap \"{}\"", names(id)),
            };
            if parent.insert(object, None).is_none() {
                root_of.insert(object, name);
                queue.push_back(object);
            }
        }
    }
    while let Some(object) = queue.pop_front() {
        if wanted(object) {
            let mut steps = vec![step(heaps, object)];
            let mut at = object;
            while let Some(&Some(before)) = parent.get(&at) {
                steps.push(step(heaps, before));
                at = before;
            }
            steps.reverse();
            let root = root_of.remove(&at).unwrap_or_default();
            return Some(Path { root, steps });
        }
        let told = told_by(object);
        let values = told.pairs.into_iter().filter_map(|(_, value)| value);
        for next in told.edges.into_iter().chain(values) {
            let ours = heaps.iter().any(|heap| heap.id == heap_of(next));
            if ours && !parent.contains_key(&next) {
                parent.insert(next, Some(object));
                queue.push_back(next);
            }
        }
    }
    None
}

impl Heap {
    /// Why an object of this heap is alive, as far as its own roots tell: the shortest path from a handle, or from
    /// an edge out of another heap. `None`: nothing of that leads there.
    ///
    /// # Panics
    /// If a finalizer or a trace function of this heap calls it.
    pub fn path_to(&self, object: NonNull<u8>) -> Option<Path> {
        self.settle_all();
        path(&[self], &|id| self.name_of(id), &|at| at == object)
    }

    pub(crate) fn name_of(&self, id: u32) -> String {
        let heaps = self.world.heaps();
        let heap = heaps.iter().find(|heap| heap.id == id);
        heap.map_or_else(|| format!("{id}"), |heap| heap.name().to_owned())
    }
}
