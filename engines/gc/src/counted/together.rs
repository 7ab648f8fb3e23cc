//! Cycles through counted boxes and garbage-collected heaps: found when all of them are collected together.
//!
//! ```text
//!   graph from the boxes that objects hold ─► held by others: alive ─► anchors of live boxes are roots of the marking
//!        ▲                                                                      │
//!        └────────── a marked object holds a box: alive, too ◄──────────────────┘   until nothing is new
//! ```
//!
//! C1  A [`Held`] lies in an object, or in a closure that has not ended, where nothing is collected. `held` counts
//!     them, box by box: a cycle through both sides contains a box that is held. The objects are those of the
//!     collector's own world, so a collection of all its heaps finds each of them. One that is forgotten, or lies in a
//!     guard that was leaked, is told by nothing: its value is destroyed, and its entry in `held` is dropped then.
//! C2  An anchor has an entry in its heap's root table, which is a root in every collection but this one. Here those
//!     that no box of the graph has told are still roots: wherever they lie, they are in no such cycle. An anchor of
//!     another world that a box has told is that world's matter.
//! C3  Heaps are swept before the graph is made, and the verdict is reached when marking ends, so that no finalizer runs
//!     between the graph and the verdict, even if what was found is swept within the pause. The finalizers that run
//!     before and after that can have no slice done ([`Alone`]): the graph is of one collection.
//!
//! Not here: cycles of boxes alone (`cycles`); how safe code makes such pointers (`typed::together`).

use core::ops::Deref;
use core::ptr::NonNull;
use std::collections::HashSet;
use std::rc::Rc;

use super::boxes::{DEAD, Header, Inner, NODE, Phase};
use super::cycles::Cycles;
use super::pointer::Cc;
use crate::heap::collect::collect;
use crate::heap::kind::Finalize;
use crate::heap::roots::{From, RootId};
use crate::heap::set::{Busy, Roots, refuse, swept_world};
use crate::heap::state::{Heap, Shared};
use crate::heap::tracer::{CountedEdges, Tracer};
use crate::heap::trigger::Reason;
use crate::trace::Trace;

/// A counted pointer that lies in an object of a heap (C1).
pub(crate) struct Held<T: Trace + 'static> {
    cc: Cc<T>,
    inner: Rc<Inner>,
}

impl<T: Trace> Held<T> {
    /// Makes one for an object of a heap of `world`; `None`: the value's collector is of none, or of another (C1).
    pub(crate) fn new(cc: Cc<T>, world: &Rc<Shared>) -> Option<Held<T>> {
        let inner = cc.head().inner();
        let (own, _) = inner.world.as_ref()?;
        if !Rc::ptr_eq(own, world) {
            return None;
        }
        *inner.held.borrow_mut().entry(cc.header()).or_default() += 1;
        Some(Held { cc, inner })
    }
}

impl<T: Trace> Deref for Held<T> {
    type Target = Cc<T>;
    fn deref(&self) -> &Cc<T> {
        &self.cc
    }
}

impl<T: Trace> Drop for Held<T> {
    fn drop(&mut self) {
        let mut held = self.inner.held.borrow_mut();
        if let Some(times) = held.get_mut(&self.cc.header()) {
            *times -= 1;
            if *times == 0 {
                held.remove(&self.cc.header());
            }
        }
    }
}

// SAFETY: values.J1: it has no edge to an object, and its counted pointer is told once; counts are its thread's. Its `Drop`
// looks at the counts only.
unsafe impl<T: Trace> Trace for Held<T> {
    const EDGES: bool = true;
    const FINALIZE: Finalize = Finalize::Mutator;
    const WEAK: bool = false;
    fn trace(&self, tracer: &mut Tracer) {
        self.cc.trace(tracer);
    }
}

/// The anchors of living boxes, as roots of a marking.
struct Both<'a> {
    inner: &'a Inner,
    /// Objects of the anchors, by node.
    anchors: Vec<Vec<NonNull<u8>>>,
    outside: Vec<NonNull<u8>>,
    alive: Vec<NonNull<u8>>,
}

impl Both<'_> {
    /// Follows what is alive; returns the anchors that are new. (No value is traced: the graph is complete.)
    fn follow(&mut self) -> Vec<NonNull<u8>> {
        let mut new = Vec::new();
        let mut graph = self.inner.graph.borrow_mut();
        while let Some((node, _)) = graph.follow() {
            new.append(&mut self.anchors[node]);
        }
        new
    }
}

impl Roots for Both<'_> {
    fn trace(&mut self, tracer: &mut Tracer) {
        for &object in self.outside.iter().chain(&self.alive) {
            tracer.edge(object);
        }
        tracer.counted = Some(Box::default());
    }

    fn reached(&mut self, tracer: &mut Tracer) -> bool {
        let edges = tracer.take_counted();
        tracer.counted = Some(Box::default());
        for header in edges.counted {
            // SAFETY: told pointers are counted. A box that nothing in a heap held may be no node.
            let header = unsafe { header.cast::<Header>().as_ref() };
            if header.has(NODE) && header.is_of(self.inner) {
                self.inner.graph.borrow_mut().live(header.index());
            }
        }
        let new = self.follow();
        new.iter().for_each(|&object| tracer.edge(object));
        if new.is_empty() {
            // C3: nothing is told any more, and what sweeps within the pause comes next.
            self.inner.judged();
        }
        !new.is_empty()
    }
}

/// Lives while anchors are no roots by themselves (C2).
struct Aside<'a>(&'a Shared);

impl Drop for Aside<'_> {
    fn drop(&mut self) {
        self.0.counted.set(None);
    }
}

/// Lives while boxes are collected with heaps: what finalizers and destructors ask of the collector is not done.
struct Alone<'a>(&'a Inner);

impl Alone<'_> {
    /// `None`: the collector is at work already.
    fn new(inner: &Inner) -> Option<Alone<'_>> {
        (!inner.stepping.replace(true)).then_some(Alone(inner))
    }
}

impl Drop for Alone<'_> {
    /// Where no verdict was reached (nothing was collected, or a check has panicked) everything lives.
    fn drop(&mut self) {
        if self.0.phase.get() == Phase::Build {
            let mut graph = self.0.graph.borrow_mut();
            for node in 0..graph.nodes.len() {
                graph.live(node);
            }
            drop(graph);
            self.0.judged();
        }
        self.0.stepping.set(false);
    }
}

impl Inner {
    /// Builds the graph of what objects hold and what that leads to, with everything known to be held from outside.
    fn graph_of_held(&self, set: &[&Heap], number: u32) -> Both<'_> {
        self.begin();
        // What holds a value that was dropped waits for its sweep, or was leaked: it reads the value no more. (The box is
        // there as long as what holds it.)
        // SAFETY: pointers that are held are counted (C1).
        let lives = |header: &NonNull<Header>| !unsafe { header.as_ref() }.has(DEAD);
        self.held.borrow_mut().retain(|header, _| lives(header));
        let held: Vec<_> = self.held.borrow().iter().map(|(h, n)| (*h, *n)).collect();
        for (header, times) in held {
            let node = self.node(header);
            // Counted like edges of nodes: being held by objects is not being held from outside.
            self.graph.borrow_mut().nodes[node].inner += times;
        }
        let mut anchors: Vec<Vec<NonNull<u8>>> = Vec::new();
        let mut reported: HashSet<(u32, RootId)> = HashSet::new();
        let own = |heap: &u32| set.iter().any(|own| own.id() == *heap);
        let look = |_: usize, edges: &CountedEdges| {
            let ours = edges.anchors.iter().filter(|(heap, _, _)| own(heap));
            reported.extend(ours.clone().map(|(heap, id, _)| (*heap, *id)));
            anchors.push(ours.map(|(_, _, object)| *object).collect());
        };
        let mut look = look;
        while self.build(&mut look).is_some() {}
        {
            let mut graph = self.graph.borrow_mut();
            for node in 0..graph.nodes.len() {
                let entry = &graph.nodes[node];
                // SAFETY: nodes exist, or are holes.
                let strong = entry.header.map(|h| unsafe { h.as_ref() }.strong());
                if strong != Some(entry.inner) {
                    graph.live(node);
                }
            }
        }
        let mut both = Both {
            inner: self,
            anchors,
            outside: Vec::new(),
            alive: Vec::new(),
        };
        for heap in set {
            let anchored = heap
                .roots
                .borrow()
                .with_ids()
                .filter(|(id, _, from)| {
                    *from == From::Heap(number) && !reported.contains(&(heap.id(), *id))
                })
                .map(|(_, object, _)| object)
                .collect::<Vec<_>>();
            both.outside.extend(anchored);
        }
        both.alive = both.follow();
        both
    }
}

impl Cycles {
    /// Collects all heaps of a world and all counted values together: every cycle that nothing outside holds ends,
    /// whatever it goes through.
    ///
    /// # Errors
    /// As of [`collect`], or the collector is not of this world; nothing was collected.
    ///
    /// # Safety
    /// As of [`collect`] without roots of the client's own.
    pub(crate) unsafe fn collect_with_world(
        &self,
        of: &Rc<Shared>,
        reason: Reason,
    ) -> Result<(), Busy> {
        let Some((world, number)) = &self.0.world else {
            return Err(Busy::Strangers);
        };
        if !Rc::ptr_eq(world, of) {
            return Err(Busy::Strangers);
        }
        let heaps = world.heaps();
        refuse(&heaps.iter().map(Rc::as_ref).collect::<Vec<_>>())?;
        if !self.0.finish() {
            return Err(Busy::Collecting);
        }
        let alone = Alone::new(&self.0).ok_or(Busy::Collecting)?;
        // C3.
        let heaps = swept_world(world)?;
        let set: Vec<&Heap> = heaps.iter().map(Rc::as_ref).collect();
        let mut both = self.0.graph_of_held(&set, *number);
        world.counted.set(Some(*number));
        let aside = Aside(world);
        // SAFETY: as the caller promises; anchors are told, here or by the boxes that hold them.
        let done = unsafe { collect(&set, reason, &mut both) };
        drop(aside);
        drop(alone);
        self.0.finish();
        done
    }
}
