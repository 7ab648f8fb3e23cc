//! The collector of cycles: a graph of what candidates lead to, judged and destroyed in slices.
//!
//! ```text
//!   Idle ─ begin ─► Build ─────────────► Scan ──────────────► Destroy ─────────► Idle
//!                    nodes and edges,     count != edges,       values of the rest,
//!                    one value traced     or touched: alive,    one by one
//!                    at a time            and all it leads to
//! ```
//!
//! V1  A node that is not touched has the holders that it had when it became a node: a pointer that is cloned, dropped
//!     or made from a weak one touches the node (`Header`), and so does the cell that the pointer leaves or enters
//!     ([`super::moved`]). So each holder is counted at most once, and if the node's count equals the number of edges
//!     to it, all its holders are nodes.
//! V2  The verdict: alive are nodes that are touched or have holders that are not nodes, and what these lead to.
//!     Between the last look at what is touched and the verdict nothing else runs. From outside, only weak pointers
//!     lead to the other nodes, and those give no pointer to what is condemned.
//! V3  A slice does a number of units of work, one for each node looked at and each edge, and reads the clock after
//!     each unit; it takes as long as its budget, and the time of tracing or dropping one value.
//! V4  A box that ends while it is a node leaves a hole in the graph.
//! V5  No list is borrowed while a value is traced or dropped.
//!
//! Not here: counts (`boxes`), cycles through garbage-collected heaps (`together`).

use core::cell::{Cell, RefCell};
use core::ptr::NonNull;
use std::rc::Rc;

use skinflint_base::sys::monotonic_ns;

use super::boxes::{
    BUFFERED, CycleCounts, DEAD, Header, Inner, NODE, Phase, SUSPECT, TOUCHED, make,
};
use super::graph::{Graph, Node};
use super::moved;
use super::pointer::Cc;
use crate::heap::incremental::Budget;
use crate::heap::state::Shared;
use crate::heap::tracer::{CountedEdges, Tracer};
use crate::trace::Trace;

/// The least number of candidates that makes a collection due.
const FLOOR: usize = 1024;
/// Nodes that the last collection looked at for each candidate that the next needs: one fall of a count pays for this
/// many.
const NODES_PER_CANDIDATE: usize = 16;
/// Boxes made between two slices of a collection that is due. Each slice has 24 units for each of these boxes.
const EVERY: u32 = 64;
const UNITS: u64 = 1536;

impl Inner {
    /// Adds a node, if it is none yet; returns its number.
    pub(super) fn node(&self, this: NonNull<Header>) -> usize {
        // SAFETY: boxes of told pointers and candidates exist.
        let header = unsafe { this.as_ref() };
        debug_assert!(!header.has(DEAD), "boxes.Y2");
        if header.has(NODE) {
            return header.index();
        }
        if header.has(BUFFERED) {
            self.unbuffer(header);
        }
        let mut graph = self.graph.borrow_mut();
        let index = graph.nodes.len();
        graph.nodes.push(Node {
            header: Some(this),
            inner: 0,
            end: 0,
        });
        graph.alive.push(false);
        header.set_index(index);
        header.set(NODE);
        index
    }

    pub(super) fn begin(&self) {
        debug_assert_eq!(self.phase.get(), Phase::Idle);
        self.phase.set(Phase::Build);
        moved::begun();
        loop {
            let candidate = self.candidates.borrow().last().copied();
            let Some(candidate) = candidate else { break };
            self.node(candidate);
        }
    }

    /// Traces the next node; returns the units of work. `None`: there is none.
    pub(super) fn build(&self, mut look: impl FnMut(usize, &CountedEdges)) -> Option<u64> {
        let (number, header) = {
            let graph = self.graph.borrow();
            (graph.next, graph.nodes.get(graph.next)?.header)
        };
        let spare = self.tracer.borrow_mut().take();
        let mut tracer = spare.unwrap_or_else(Tracer::listing_counted);
        if let Some(this) = header {
            // SAFETY: V4: it is there.
            if let Some(trace) = unsafe { this.as_ref() }.vtable.trace {
                // SAFETY: it is a value of this type that was not dropped.
                unsafe { trace(this, &mut tracer) };
            }
        }
        let mut edges = tracer.take_counted();
        look(number, &edges);
        let mut units = 1;
        for &to in &edges.counted {
            units += 1;
            let to = to.cast::<Header>();
            // SAFETY: told pointers are counted.
            let header = unsafe { to.as_ref() };
            // Values without pointers are in no cycle, nor are those that were dropped (boxes.Y2); another collector's
            // boxes are not collected here.
            if header.vtable.trace.is_none() || header.has(DEAD) || !header.is_of(self) {
                continue;
            }
            let node = self.node(to);
            let mut graph = self.graph.borrow_mut();
            // Edges beyond four billion are not counted: what they lead to then seems to be held from outside.
            if graph.edges.len() < u32::MAX as usize {
                graph.nodes[node].inner += 1;
                graph.edges.push(node as u32);
            }
        }
        edges.counted.clear();
        edges.anchors.clear();
        tracer.counted = Some(edges);
        tracer.forget_listed();
        *self.tracer.borrow_mut() = Some(tracer);
        let mut graph = self.graph.borrow_mut();
        let end = graph.edges.len() as u32;
        graph.nodes[number].end = end;
        graph.next += 1;
        Some(units)
    }

    /// Makes nodes that were touched alive; returns the units of work.
    pub(super) fn revive_touched(&self) -> u64 {
        let touched = std::mem::take(&mut *self.touched.borrow_mut());
        let mut graph = self.graph.borrow_mut();
        for &node in &touched {
            graph.live(node as usize);
        }
        touched.len() as u64
    }

    /// Looks at the next node's count, or at what a live one leads to; returns the units of work. `None`: the verdict
    /// is reached (V2).
    fn scan(&self) -> Option<u64> {
        let revived = self.revive_touched();
        if revived > 0 {
            return Some(revived);
        }
        let mut graph = self.graph.borrow_mut();
        if let Some((_, units)) = graph.follow() {
            return Some(units);
        }
        let node = graph.nodes.get(graph.next)?;
        // SAFETY: V4: it is there.
        let strong = node.header.map(|h| unsafe { h.as_ref() }.strong());
        if strong.is_some_and(|strong| strong != node.inner) {
            let next = graph.next;
            graph.live(next);
        }
        graph.next += 1;
        Some(1)
    }

    /// Ends the scan with the verdict: what is not alive will be destroyed.
    pub(super) fn judged(&self) {
        self.phase.set(Phase::Destroy);
        moved::judged();
        self.touched.borrow_mut().clear();
        let mut graph = self.graph.borrow_mut();
        graph.next = 0;
        let nodes = graph.nodes.len();
        let mut counts = self.counts.borrow_mut();
        counts.collections += 1;
        counts.nodes += nodes as u64;
        self.threshold.set(FLOOR.max(nodes / NODES_PER_CANDIDATE));
    }

    /// Handles the next node: one that is alive is released, any other destroyed. `false`: there is none.
    fn destroy(&self) -> bool {
        let (this, alive) = {
            let mut graph = self.graph.borrow_mut();
            let next = graph.next;
            let Some(node) = graph.nodes.get(next) else {
                return false;
            };
            let found = (node.header, graph.alive[next]);
            graph.next += 1;
            found
        };
        let Some(this) = this else { return true };
        // SAFETY: V4: it is there.
        let header = unsafe { this.as_ref() };
        if alive {
            let suspect = header.has(SUSPECT);
            header.clear(NODE | TOUCHED | SUSPECT);
            if suspect {
                self.buffer(this, header);
            }
            return true;
        }
        header.clear(TOUCHED | SUSPECT);
        self.counts.borrow_mut().destroyed += 1;
        // Its pointers to condemned boxes only lower their counts, since these have their own turn; the others are
        // dropped as usual. It stays a node, so that weak pointers and falling counts see that it is condemned, and is
        // dead before it stops being a node.
        // SAFETY: only condemned values lead to it (V2), and its turn comes once.
        let ended = unsafe { self.end_condemned(this) };
        debug_assert!(ended);
        true
    }

    unsafe fn end_condemned(&self, this: NonNull<Header>) -> bool {
        // SAFETY: as the caller promises.
        let header = unsafe { this.as_ref() };
        // One pointer more, so that it is not freed while it is a node.
        header.add_strong();
        // SAFETY: as the caller promises.
        unsafe { self.end(this) };
        header.clear(NODE | TOUCHED | SUSPECT);
        let dead = header.has(DEAD);
        // SAFETY: the pointer of above.
        unsafe { Header::remove_strong(this) };
        dead
    }

    pub(super) fn become_idle(&self) {
        *self.graph.borrow_mut() = Graph::default();
        self.phase.set(Phase::Idle);
    }

    /// Does one unit or a few; `None`: idle.
    fn unit(&self) -> Option<u64> {
        match self.phase.get() {
            Phase::Idle => None,
            Phase::Build => Some(self.build(|_, _| ()).unwrap_or_else(|| {
                self.graph.borrow_mut().next = 0;
                self.phase.set(Phase::Scan);
                1
            })),
            Phase::Scan => Some(self.scan().unwrap_or_else(|| {
                self.judged();
                1
            })),
            Phase::Destroy => {
                if self.destroy() {
                    return Some(1);
                }
                self.become_idle();
                None
            }
        }
    }

    /// Does a slice; reports whether nothing is left to do. Within a destructor that a slice has called nothing is
    /// done.
    pub(super) fn slice(&self, budget: Budget) -> bool {
        if self.stepping.replace(true) {
            return false;
        }
        let began_ns = monotonic_ns();
        let mut left = budget.edges.max(1);
        let done = loop {
            let Some(units) = self.unit() else { break true };
            left = left.saturating_sub(units);
            if left == 0 || (budget.ns != u64::MAX && monotonic_ns() - began_ns >= budget.ns) {
                break self.phase.get() == Phase::Idle;
            }
        };
        self.stepping.set(false);
        let mut counts = self.counts.borrow_mut();
        counts.slices += 1;
        if budget.edges != u64::MAX {
            counts.longest_ns = counts.longest_ns.max(monotonic_ns() - began_ns);
        }
        done
    }

    /// Finishes the collection in progress, if there is one; reports whether nothing is left to do.
    pub(super) fn finish(&self) -> bool {
        self.phase.get() == Phase::Idle
            || self.slice(Budget {
                edges: u64::MAX,
                ns: u64::MAX,
            })
    }
}

/// The number of a collector in root tables, which is its own while this lives (world.N1).
pub(crate) struct Number {
    _of: Rc<Inner>,
}

impl Number {
    /// Returns that of a collector; `None`: it is of no world, or of another.
    pub(crate) fn in_world(cycles: &Cycles, world: &Rc<Shared>) -> Option<(Number, u32)> {
        let (own, number) = cycles.0.world.as_ref()?;
        Rc::ptr_eq(own, world).then(|| {
            let of = cycles.0.clone();
            (Number { _of: of }, *number)
        })
    }
}

/// A collector of cycles. Its boxes belong to one thread. When it is dropped, cycles that nothing outside holds are
/// destroyed; the remaining boxes live by their counts alone.
pub struct Cycles(pub(super) Rc<Inner>);

impl Default for Cycles {
    fn default() -> Cycles {
        Cycles::new()
    }
}

impl Cycles {
    /// Creates a collector without boxes, for values that have no edges to garbage-collected heaps. For values with
    /// such edges: [`Runtime::cycles`](crate::typed::Runtime::cycles).
    pub fn new() -> Cycles {
        Cycles::with(None)
    }

    /// Creates a collector that has this number in the tables of a world's heaps.
    pub(crate) fn of(world: &Rc<Shared>, number: u32) -> Cycles {
        Cycles::with(Some((world.clone(), number)))
    }

    fn with(world: Option<(Rc<Shared>, u32)>) -> Cycles {
        Cycles(Rc::new(Inner {
            phase: Cell::new(Phase::Idle),
            candidates: RefCell::default(),
            graph: RefCell::default(),
            tracer: RefCell::default(),
            touched: RefCell::default(),
            falling: RefCell::default(),
            dropping: Cell::new(false),
            stepping: Cell::new(false),
            made: Cell::new(0),
            threshold: Cell::new(FLOOR),
            held: RefCell::default(),
            counts: RefCell::default(),
            world,
        }))
    }

    /// Puts a value into a counted box. Each 64th call does a slice of a collection, if one is due.
    pub fn cc<T: Trace>(&self, value: T) -> Cc<T> {
        let made = self.0.made.get() + 1;
        self.0.made.set(made % EVERY);
        if made == EVERY && (self.is_due() || self.0.phase.get() != Phase::Idle) {
            let _ = self.step(Budget {
                edges: UNITS,
                ns: u64::MAX,
            });
        }
        let mut counts = self.0.counts.borrow_mut();
        counts.boxes += 1;
        counts.values += 1;
        drop(counts);
        Cc::made(make(&self.0, value))
    }

    /// Reports whether enough counts have fallen to make a collection worth its work.
    pub fn is_due(&self) -> bool {
        self.0.candidates.borrow().len() >= self.0.threshold.get()
    }

    /// Begins a collection if none is in progress and there are candidates, and does a part of it (V3). Reports whether
    /// nothing is left to do. Within a destructor that it has called nothing is done, nor within a finalizer that
    /// [`Cycles::collect_with`] has.
    pub fn step(&self, budget: Budget) -> bool {
        if self.0.phase.get() == Phase::Idle && !self.0.stepping.get() {
            if self.0.candidates.borrow().is_empty() {
                return true;
            }
            self.0.begin();
        }
        self.0.slice(budget)
    }

    /// Destroys every cycle that nothing outside holds. Within a destructor that a slice has called, or a finalizer
    /// that [`Cycles::collect_with`] has, nothing is done. Returns the number of values destroyed.
    pub fn collect(&self) -> u64 {
        let before = self.0.counts.borrow().destroyed;
        // The collection in progress has not seen what fell since. Destructors may let more counts fall, which the next
        // round sees.
        if self.0.finish() {
            let unbounded = Budget {
                edges: u64::MAX,
                ns: u64::MAX,
            };
            self.step(unbounded);
        }
        self.0.counts.borrow().destroyed - before
    }

    /// Returns what it has done so far, and what it holds.
    pub fn counts(&self) -> CycleCounts {
        CycleCounts {
            candidates: self.0.candidates.borrow().len(),
            ..self.0.counts.borrow().clone()
        }
    }
}

impl Drop for Cycles {
    fn drop(&mut self) {
        self.collect();
        self.0.finish();
    }
}
