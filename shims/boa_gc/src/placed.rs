//! Objects under a free-list policy, in place of a tenant's heap: the policies' own pages under a running program.
//!
//! ```text
//!   take ─► Placed::alloc ─► │ words, tenant ║ handles, state (PLACED), vtable, value │     give ─► its bit goes
//!   tick ─► cycle: due, and not being marked? ─► stacks forget it ─► collect ─► holes ─► the policy
//! ```
//!
//! X1  Objects above [`MAX_OBJECT`] bytes, or aligned to more than a word, lie in the heap as usual, and are counted.
//! X2  A freed object's head has [`ENDED`](crate::object::ENDED) and [`PLACED`] without handles, and stays until the
//!     next cycle: pointers that are out of date (marking.M3) find it as they would find a freed cell. A cycle
//!     corresponds to giving memory back elsewhere: it does not run while the tenant is marked, and runs after
//!     others' stacks have forgotten it.
//! X3  A cycle frees nothing that was not freed by counts or by an examination before: it only makes that into room.
//!     So a program does the same under every policy.
//!
//! Not here: the choice of a hole (`skinflint_free_lists`).

use core::cell::{Cell, RefCell};
use core::ptr::NonNull;
use std::rc::Rc;

use skinflint_free_lists::Strategy;
use skinflint_free_lists::live::{ALIGN, MAX_OBJECT, Outcome, Placed, client_of};
use skinflint_free_lists::replay::Plan;
use skinflint_gc::{OutOfMemory, Shortage};

use crate::local::Local;
use crate::object::{Erased, PLACED, VTable, head};
use crate::tenant::Tenant;

/// The address space for the pages of a tenant without a limit of its own.
const LIMIT_BYTES: usize = 4 << 30;

/// How objects are placed.
#[derive(Clone, Copy)]
pub(crate) struct Placement {
    pub(crate) strategy: Strategy,
    pub(crate) growth: f64,
}

/// The placed objects of a tenant.
pub(crate) struct Objects {
    placed: RefCell<Placed>,
    /// Number of objects that lie in the heap, and their bytes (X1).
    outside: [Cell<u64>; 2],
}

/// Returns the number of the tenant's heap.
///
/// # Safety
/// The object must be a cell of a tenant, with a head.
#[inline]
pub(crate) unsafe fn number_of(object: Erased) -> u32 {
    // SAFETY: as the caller promises; X2.
    unsafe {
        match head(object).has(PLACED) {
            true => client_of(object.cast()),
            false => skinflint_gc::heap_number(object.cast()),
        }
    }
}

impl Placement {
    /// Creates an empty space for a tenant. Returns `None` if the kernel refused the address space.
    pub(crate) fn space(&self, heap: u32, limit_bytes: usize, check: bool) -> Option<Box<Objects>> {
        let mut plan = Plan {
            growth: self.growth,
            check,
            ..Plan::default()
        };
        plan.settings.limit_bytes = limit_bytes.min(LIMIT_BYTES);
        Some(Box::new(Objects {
            placed: RefCell::new(Placed::new(self.strategy, plan, heap)?),
            outside: [Cell::new(0), Cell::new(0)],
        }))
    }
}

impl Objects {
    /// Reports whether objects of this type are placed (X1).
    #[inline]
    pub(crate) fn places(vtable: &VTable) -> bool {
        vtable.bytes <= MAX_OBJECT && vtable.align <= ALIGN
    }

    /// Takes room for an object that it [`places`](Objects::places).
    pub(crate) fn take(&self, vtable: &VTable, name: &str) -> Result<NonNull<u8>, OutOfMemory> {
        let mut placed = self.placed.borrow_mut();
        placed.alloc(vtable.bytes).ok_or_else(|| OutOfMemory {
            heap: name.to_owned(),
            bytes: vtable.bytes,
            shortage: Shortage::Limit,
            client_bytes: 0,
            held_bytes: placed.committed_bytes(),
        })
    }

    /// Counts an object that it does not place and that was allocated elsewhere.
    pub(crate) fn count_outside(&self, bytes: usize) {
        for (sum, more) in self.outside.iter().zip([1, bytes as u64]) {
            sum.set(sum.get() + more);
        }
    }

    /// Frees an object (X2).
    ///
    /// # Safety
    /// The object must lie here, have ended, and not have been freed before.
    pub(crate) unsafe fn free(&self, object: Erased) {
        // SAFETY: as the caller promises.
        unsafe { self.placed.borrow_mut().free(object.cast()) };
    }

    pub(crate) fn mark(&self, object: Erased) -> bool {
        self.placed.borrow_mut().mark(object.cast())
    }

    pub(crate) fn is_marked(&self, object: Erased) -> bool {
        self.placed.borrow().is_marked(object.cast())
    }

    /// Returns the bytes of pages.
    pub(crate) fn committed_bytes(&self) -> usize {
        self.placed.borrow().committed_bytes()
    }

    pub(crate) fn clear_marks(&self) {
        self.placed.borrow_mut().clear_marks();
    }

    /// Visits every object that was not freed.
    pub(crate) fn each(&self, mut visit: impl FnMut(Erased)) {
        let placed = self.placed.borrow();
        placed.each(|object| visit(object.cast()));
    }

    /// Visits the objects that were not freed and are not marked.
    pub(crate) fn each_unmarked(&self, mut visit: impl FnMut(Erased)) {
        let placed = self.placed.borrow();
        placed.each_unmarked(|object| visit(object.cast()));
    }

    /// Returns the strategy, what it did, and the objects and bytes of X1.
    fn outcome(&self) -> (&'static str, Outcome, [u64; 2]) {
        let mut placed = self.placed.borrow_mut();
        let outside = self.outside.each_ref().map(Cell::get);
        (placed.strategy(), placed.finish(), outside)
    }
}

impl Local {
    /// Runs a cycle of a tenant's pages, if one is due or `now` is asked for, and the tenant is not being marked
    /// (X2).
    pub(crate) fn cycle(&self, tenant: &Tenant, now: bool) {
        let Some(objects) = &tenant.placed else {
            return;
        };
        let due = now || objects.placed.borrow().is_due();
        if due && !tenant.is_marking.get() {
            self.forget_foreign(tenant);
            objects.placed.borrow_mut().collect();
        }
    }

    /// Returns what a policy did in a tenant, after a last cycle.
    pub(crate) fn outcome_of(
        &self,
        tenant: &Rc<Tenant>,
    ) -> Option<(&'static str, Outcome, [u64; 2])> {
        let objects = tenant.placed.as_ref()?;
        self.abandon_marking(tenant);
        self.forget_foreign(tenant);
        Some(objects.outcome())
    }
}
