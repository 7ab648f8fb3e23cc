//! Marking in slices, without a barrier: it finds most of what is alive, and need not find all.
//!
//! ```text
//!   new objects ─► stack ─► slice: pop, mark, tell edges ─► … ─► empty ─► final: unmarked objects are examined
//! ```
//!
//! M1  What is marked is taken to be alive until the next cycle. What is not marked is only suspected: `examine` asks its
//!     counts at one moment. So whatever the program changes while marking goes on, nothing alive is lost; what was missed
//!     only makes the last step longer.
//! M2  It begins with nothing: objects that are allocated meanwhile are alive, and lead to the rest of what the program
//!     uses, its shapes, prototypes and scopes.
//! M3  Pointers on the stack may be out of date: their cells may be free, or hold another object. As long as a tenant is
//!     being marked its cells keep their sizes and heads (no [`Tenant::give_back`]), so each is a cell of ours. Marking
//!     an object that nobody told keeps it until the next cycle. Before another tenant gives memory back, pointers to it
//!     are taken off the stack.
//! M4  A slice pops a bounded number of objects. (One object may tell many edges.)
//!
//! Not here: the last step (`collect`), what is garbage (`examine`).

use std::rc::Rc;

use skinflint_gc::Reason;

use crate::local::Local;
use crate::object::{DOOMED, ENDED, Erased, QUEUED, head};
use crate::tenant::Tenant;
use crate::trace::Tracer;

/// Objects popped for each one allocated, at least.
const LEAST: usize = 4;
/// Rounds over open pairs in one slice.
const ROUNDS: usize = 4;

/// A cycle that goes on.
pub(crate) struct Marking {
    pub(crate) reason: Reason,
    tracer: Tracer,
    /// Alive, and their keys are not marked yet.
    pairs: Vec<Erased>,
    /// Objects popped for each tick.
    pub(crate) budget: usize,
    /// Whether anything was told so far.
    begun: bool,
}

impl Local {
    /// Begins a cycle of a tenant.
    pub(crate) fn begin_marking(&self, tenant: &Tenant, reason: Reason) {
        let threshold = tenant.threshold.get().max(1);
        // All of it is to be marked while the heap grows by a quarter of what it grew since the last time.
        let grown = tenant.live_bytes().saturating_sub(tenant.survived.get());
        let room = (grown.max(threshold / 8) / 4).max(1);
        let ratio = (tenant.live_bytes() / room).clamp(LEAST, 64);
        *tenant.marking.borrow_mut() = Some(Box::new(Marking {
            reason,
            tracer: Tracer::new(),
            pairs: Vec::new(),
            budget: ratio * crate::local::TICKS as usize,
            begun: false,
        }));
        tenant.is_marking.set(true);
        self.watch();
    }

    /// Gives a cycle up: no marks are left.
    pub(crate) fn abandon_marking(&self, tenant: &Tenant) {
        if tenant.is_marking.replace(false) {
            tenant.marking.borrow_mut().take();
            tenant.heap.take_unmarked(|_| ());
            self.watch();
        }
    }

    /// Memory of a tenant is about to be given back: who is marking elsewhere must not look at it (M3).
    pub(crate) fn forget_foreign(&self, tenant: &Tenant) {
        for other in self.all_tenants() {
            if let Some(marking) = other.marking.borrow_mut().as_mut() {
                let gone = tenant.heap.id();
                // SAFETY: what is on the stack lies in memory that is still there (M3).
                let stays =
                    |&object: &Erased| unsafe { skinflint_gc::heap_number(object.cast()) } != gone;
                marking.tracer.stack.retain(stays);
            }
        }
    }

    /// Goes on for a slice; whether nothing is left to be followed.
    pub(crate) fn mark_some(&self, tenant: &Rc<Tenant>) -> bool {
        let mut marking = tenant.marking.borrow_mut();
        let Some(marking) = marking.as_mut() else {
            return false;
        };
        let heap = tenant.heap.id();
        let mut left = marking.budget;
        for _ in 0..ROUNDS {
            marking.follow(heap, &mut left);
            if left == 0 {
                return false;
            }
            marking.open_pairs(heap);
            if marking.tracer.stack.is_empty() {
                return marking.begun;
            }
        }
        false
    }
}

impl Tenant {
    /// An object was allocated while marking goes on (M2).
    pub(crate) fn tell_new(&self, object: Erased) {
        if let Some(marking) = self.marking.borrow_mut().as_mut() {
            marking.begun = true;
            marking.tracer.tell(object);
        }
    }
}

impl Marking {
    /// Pops until nothing is left, or the budget is used up.
    fn follow(&mut self, heap: u32, left: &mut usize) {
        while *left > 0 {
            let Some(object) = self.tracer.stack.pop() else {
                return;
            };
            *left -= 1;
            // SAFETY: M3: a cell of some heap of ours, with a head.
            let head = unsafe { head(object) };
            // SAFETY: M3.
            let number = unsafe { skinflint_gc::heap_number(object.cast()) };
            if number != heap || head.has(ENDED | QUEUED | DOOMED) {
                continue;
            }
            // SAFETY: it lies in this heap, which is used by single cells.
            if !unsafe { skinflint_gc::mark(object.cast()) } {
                continue;
            }
            if head.vtable.pair.is_some() {
                self.pairs.push(object);
            } else {
                // SAFETY: it has not ended; H3.
                unsafe { (head.vtable.trace)(object, &mut self.tracer) };
            }
        }
    }

    /// Follows the values of pairs whose keys are marked, or not of this heap.
    fn open_pairs(&mut self, heap: u32) {
        let tracer = &mut self.tracer;
        self.pairs.retain(|&pair| {
            // SAFETY: M3.
            let head = unsafe { head(pair) };
            let Some(fns) = head.vtable_if_alive().and_then(|vtable| vtable.pair) else {
                return false;
            };
            // SAFETY: it has not ended.
            let Some(key) = (unsafe { (fns.key)(pair) }) else {
                return false;
            };
            // SAFETY: W1: the key's cell is not free.
            let open = unsafe {
                skinflint_gc::heap_number(key.cast()) != heap || skinflint_gc::is_marked(key.cast())
            };
            if open {
                // SAFETY: it has not ended.
                unsafe { (fns.trace_value)(pair, tracer) };
            }
            !open
        });
    }
}
