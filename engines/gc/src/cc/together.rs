//! Cycles through counted boxes and garbage-collected heaps: found when all of them are collected together.
//!
//! ```text
//!   object ── Counted ──► box ── Cc ──► box ── Anchor ──► object ── … back to the first
//!
//!   graph from the boxes that objects hold ─► held by others: alive ─► anchors of live boxes are roots of the marking
//!        ▲                                                                      │
//!        └────────── a marked object holds a box: alive, too ◄──────────────────┘   until nothing is new
//! ```
//!
//! C1  A [`Counted`] is branded, so it lies in an object, or in a closure that has not ended, where nothing is
//!     collected. `held` counts them, box by box: a cycle through both sides contains a box that is held.
//! C2  An [`Anchor`] has an entry in its heap's root table, which is a root in every collection but this one. Here
//!     those that no box of the graph has told are still roots: wherever they lie, they are in no such cycle.
//! C3  Heaps are swept before the graph is made, so that no finalizer runs between the graph and the verdict.
//!
//! Not here: cycles of boxes alone (`cycles`).

use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;
use std::collections::HashSet;
use std::rc::Rc;

use super::cycles::Inner;
use super::{Cc, Cycles};
use crate::collect::{Busy, Roots, collect};
use crate::heap::Heap;
use crate::kind::Finalize;
use crate::mark::Tracer;
use crate::roots::{From, RootId};
use crate::trigger::Reason;
use crate::typed::{Cx, Family, Foreign, Gc, Runtime, Trace};

/// A pointer of an object to a counted value.
pub struct Counted<'gc, T: Trace + 'static> {
    cc: Cc<T>,
    inner: Rc<Inner>,
    brand: PhantomData<fn(&'gc ()) -> &'gc ()>,
}

impl<T: Trace> Deref for Counted<'_, T> {
    type Target = Cc<T>;
    fn deref(&self) -> &Cc<T> {
        &self.cc
    }
}

impl<T: Trace> Drop for Counted<'_, T> {
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

// SAFETY: J1: it has no edge to an object, and its counted pointer is told once; counts are its thread's. Its `Drop`
// looks at the counts only.
unsafe impl<T: Trace> Trace for Counted<'_, T> {
    const EDGES: bool = true;
    const FINALIZE: Finalize = Finalize::Mutator;
    fn trace(&self, tracer: &mut Tracer) {
        tracer.counted(self.cc.header());
    }
}

/// A pointer of a counted value to an object. Anywhere else it acts like a handle.
pub struct Anchor<F: Family> {
    heap: Rc<Heap>,
    id: RootId,
    object: NonNull<u8>,
    to: PhantomData<F>,
}

impl<F: Family> Anchor<F> {
    /// Returns the object.
    ///
    /// # Errors
    /// It is in another tenant's heap.
    pub fn open<'gc>(&self, cx: Cx<'gc>) -> Result<Gc<'gc, F::At<'gc>>, Foreign> {
        if !cx.is_of(&self.heap) {
            return Err(Foreign);
        }
        Ok(Gc::made(self.object.cast()))
    }
}

impl<F: Family> Drop for Anchor<F> {
    fn drop(&mut self) {
        // SAFETY: from `root` of this heap, and ended only here.
        unsafe { self.heap.unroot(self.id) };
    }
}

// SAFETY: J1: its entry is told; its object is kept alive by that. The table is its thread's.
unsafe impl<F: Family> Trace for Anchor<F> {
    const EDGES: bool = true;
    const FINALIZE: Finalize = Finalize::Mutator;
    fn trace(&self, tracer: &mut Tracer) {
        if let Some(natives) = &mut tracer.natives {
            natives.anchors.push((self.heap.id(), self.id, self.object));
        }
    }
}

impl<'gc> Cx<'gc> {
    /// Makes a pointer to a counted value, to be put into an object.
    pub fn hold<T: Trace>(self, cc: Cc<T>) -> Counted<'gc, T> {
        let inner = cc.head().inner();
        let held = &inner.held;
        *held.borrow_mut().entry(cc.header()).or_default() += 1;
        Counted {
            cc,
            inner,
            brand: PhantomData,
        }
    }

    /// Makes a pointer to an object of the tenant, to be put into a counted value of [`Runtime::cycles`].
    ///
    /// # Errors
    /// The collector of cycles is not of this runtime.
    pub fn anchor<F: Family>(
        self,
        cycles: &Cycles,
        gc: Gc<'gc, F::At<'gc>>,
    ) -> Result<Anchor<F>, Foreign> {
        let heap = self.own();
        let number = match &cycles.0.world {
            Some((world, number)) if Rc::ptr_eq(world, &heap.world) => *number,
            _ => return Err(Foreign),
        };
        // SAFETY: Q1: it is alive, and of this heap.
        let id = unsafe { heap.root(gc.raw(), From::Heap(number)) };
        Ok(Anchor {
            heap: heap.this(),
            id,
            object: gc.raw(),
            to: PhantomData,
        })
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
        tracer.natives = Some(Box::default());
    }

    fn reached(&mut self, tracer: &mut Tracer) -> bool {
        let told = tracer.take_natives();
        tracer.natives = Some(Box::default());
        for header in told.counted {
            // SAFETY: told pointers are counted. A box that nothing in a heap held may be no node.
            let header = unsafe { header.as_ref() };
            if header.has(super::boxes::NODE) && header.is_of(self.inner) {
                self.inner.graph.borrow_mut().live(header.index());
            }
        }
        let new = self.follow();
        new.iter().for_each(|&object| tracer.edge(object));
        !new.is_empty()
    }
}

/// Lives while anchors are no roots by themselves (C2).
struct Aside<'a>(&'a crate::world::Shared);

impl Drop for Aside<'_> {
    fn drop(&mut self) {
        self.0.natives.set(None);
    }
}

impl Cycles {
    /// Collects all heaps of the runtime and all counted values together: every cycle that nothing outside holds ends,
    /// whatever it goes through. Stops the program for as long as marking everything takes.
    ///
    /// # Errors
    /// A closure of a tenant is running, or the collector is not of this runtime; nothing was collected.
    pub fn collect_with(&self, runtime: &Runtime, reason: Reason) -> Result<(), Busy> {
        let heaps = runtime.heaps();
        let Some((world, number)) = &self.0.world else {
            return Err(Busy::Strangers);
        };
        if heaps.iter().any(|heap| !Rc::ptr_eq(world, &heap.world)) {
            return Err(Busy::Strangers);
        }
        let set: Vec<&Heap> = heaps.iter().map(Rc::as_ref).collect();
        crate::collect::refuse(&set)?;
        if !self.0.finish() {
            return Err(Busy::Collecting);
        }
        // C3.
        set.iter().for_each(|heap| heap.finish_sweep());
        let mut both = self.0.graph_of_held(&set, *number);
        world.natives.set(Some(*number));
        let aside = Aside(world);
        // SAFETY: as for all heaps of a runtime; anchors are told, here or by the boxes that hold them.
        let done = unsafe { collect(&set, reason, &mut both) };
        drop(aside);
        if done.is_err() {
            let mut graph = self.0.graph.borrow_mut();
            for node in 0..graph.nodes.len() {
                graph.live(node);
            }
        }
        self.0.judged();
        self.0.finish();
        done
    }
}

impl Inner {
    /// Builds the graph of what objects hold and what that leads to, with everything known to be held from outside.
    fn graph_of_held(&self, set: &[&Heap], number: u32) -> Both<'_> {
        self.begin();
        let held: Vec<_> = self.held.borrow().iter().map(|(h, n)| (*h, *n)).collect();
        for (header, times) in held {
            let node = self.node(header);
            // Counted like edges of nodes: being held by objects is not being held from outside.
            self.graph.borrow_mut().nodes[node].inner += times;
        }
        let mut anchors: Vec<Vec<NonNull<u8>>> = Vec::new();
        let mut told: HashSet<(u32, RootId)> = HashSet::new();
        let look = |_: usize, natives: &super::Natives| {
            told.extend(natives.anchors.iter().map(|(heap, id, _)| (*heap, *id)));
            anchors.push(
                natives
                    .anchors
                    .iter()
                    .map(|(_, _, object)| *object)
                    .collect(),
            );
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
                    *from == From::Heap(number) && !told.contains(&(heap.id(), *id))
                })
                .map(|(_, object, _)| object)
                .collect::<Vec<_>>();
            both.outside.extend(anchored);
        }
        both.alive = both.follow();
        both
    }
}
