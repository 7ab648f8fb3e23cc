//! The state of a thread: the tenant that is entered, the queue of what is to end, and the counter to the next slice.
//!
//! ```text
//!   Gc::new ─► ticks −1 ─► 0? slice(): queue, doomed, collection ─► tenant.take ─► cell
//!   Gc drops its last handle ─► unreferenced(): queue
//! ```
//!
//! V1  An object is in the queue at most once ([`QUEUED`]).
//! V2  While `busy` no slice begins: finalizers and drops may allocate, and do not nest.
//! V3  When the thread ends, everything is collected. Objects that handles outside still lead to stay where they are,
//!     unended: the handles may be dropped later than this.
//!
//! Not here: the work of a slice (`ending`, `collect`).

use core::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::panic_any;
use std::rc::Rc;

use skinflint_gc::{Config, Growth, Reason, World};

use crate::collect::Log;
use crate::ending::Doomed;
use crate::marking::FEW;
use crate::object::{DOOMED, ENDED, Erased, LISTED, QUEUED, SYSTEM, VTable, WEAKLY, head};
use crate::placed::{Placement, number_of};
use crate::skinflint::{Observer, OutOfMemory};
use crate::tenant::Tenant;
use crate::weak_map::AnyWeakMap;

/// The number of allocations between two slices.
pub(crate) const TICKS: u32 = 64;

thread_local! {
    static LOCAL: Cell<*const Local> = const { Cell::new(core::ptr::null()) };
    static DROPPING: Cell<bool> = const { Cell::new(false) };
    static OWNER: Owner = const { Owner };
}

/// The state of a thread.
pub(crate) struct Local {
    ticks: Cell<u32>,
    /// The tenant that is entered; `tenants` keeps it alive.
    pub(crate) current: Cell<*const Tenant>,
    pub(crate) system: Cell<bool>,
    pub(crate) separate: Cell<bool>,
    pub(crate) busy: Cell<bool>,
    pub(crate) queue: RefCell<Vec<Erased>>,
    pub(crate) doomed: RefCell<VecDeque<Doomed>>,
    pub(crate) world: World,
    /// The tenants, by number of heap.
    tenants: RefCell<Vec<Option<Rc<Tenant>>>>,
    default: Cell<*const Tenant>,
    pub(crate) growth: Cell<Growth>,
    pub(crate) weak_maps: RefCell<Vec<Box<dyn AnyWeakMap>>>,
    pub(crate) stress: Cell<u32>,
    pub(crate) verify: Cell<bool>,
    /// Whether a tenant has a limit (outside.W2).
    pub(crate) limits_outside: Cell<bool>,
    /// The bytes that the client counted at the last look.
    pub(crate) outside_seen: Cell<usize>,
    /// Whether garbage is ended where a collection finds it, for comparison.
    pub(crate) sweep_in_pause: Cell<bool>,
    /// The number of unmarked objects that are examined at once.
    pub(crate) few: Cell<usize>,
    pub(crate) client: Cell<Option<fn() -> usize>>,
    pub(crate) client_threshold: Cell<usize>,
    pub(crate) observer: Cell<Option<Observer>>,
    /// Whether new objects are to be reported: to an observer, or to marking.
    watched: Cell<bool>,
    pub(crate) log: RefCell<Log>,
    /// Called when objects have ended.
    pub(crate) ended: Cell<Option<fn()>>,
    /// How objects of future tenants are placed; `None` means in their heaps.
    pub(crate) placement: Cell<Option<Placement>>,
}

/// Ends the thread's state with the thread.
struct Owner;

impl Drop for Owner {
    fn drop(&mut self) {
        let local = LOCAL.replace(core::ptr::null());
        if local.is_null() {
            return;
        }
        LOCAL.set(local);
        // SAFETY: it was leaked by `start`, and ends here; no code has a reference beyond a call.
        unsafe { (*local).force_collect() };
        LOCAL.set(core::ptr::null());
        // SAFETY: the same.
        let local = unsafe { Box::from_raw(local.cast_mut()) };
        if local
            .all_tenants()
            .iter()
            .any(|tenant| tenant.objects() > 0)
        {
            // Handles outside still lead to objects of this thread (V3).
            core::mem::forget(local);
        }
    }
}

/// Returns the thread's state.
#[inline]
pub(crate) fn get<'a>() -> &'a Local {
    let local = LOCAL.get();
    if local.is_null() {
        return start();
    }
    // SAFETY: it lives until the thread ends, and no code keeps it beyond a call.
    unsafe { &*local }
}

#[cold]
fn start<'a>() -> &'a Local {
    // Not by a reference: `Owner` makes a box of this very pointer, which one of a reference may not become.
    let made = Box::into_raw(Box::new(Local::new()));
    LOCAL.set(made);
    // SAFETY: it lives until the thread ends, and no code keeps it beyond a call.
    let local = unsafe { &*made };
    // After the end of the thread's owner nothing can end it: then it stays.
    let _ = OWNER.try_with(|_| ());
    let default = local.add_tenant("default", usize::MAX);
    local.default.set(Rc::as_ptr(&default));
    local.current.set(Rc::as_ptr(&default));
    local
}

/// Reports whether [`Finalize::finalize`](crate::Finalize::finalize) may look at other objects: not while values are
/// dropped.
#[must_use]
#[inline]
pub fn finalizer_safe() -> bool {
    !DROPPING.get()
}

/// Drops something whose finalizers have run.
pub(crate) fn dropping(act: impl FnOnce()) {
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            DROPPING.set(self.0);
        }
    }
    let _before = Before(DROPPING.replace(true));
    act();
}

/// Reports whether any [`WeakMap`](crate::WeakMap) of this thread was not collected yet.
#[must_use]
pub fn has_weak_maps() -> bool {
    !get().weak_maps.borrow().is_empty()
}

/// Remembers a map, to be tidied after collections.
pub(crate) fn add_weak_map(map: Box<dyn AnyWeakMap>) {
    get().weak_maps.borrow_mut().push(map);
}

/// Returns a cell for an object of this vtable, and the first state of its head.
#[inline]
pub(crate) fn allocate(vtable: &'static VTable) -> (Erased, u32) {
    let local = get();
    let ticks = local.ticks.get() - 1;
    local.ticks.set(ticks);
    if ticks == 0 {
        local.tick();
    }
    // SAFETY: `tenants` keeps it.
    let tenant = unsafe { &*local.current.get() };
    let system = local.system.get();
    let (cell, lies) = match tenant.take(vtable, system) {
        Ok(taken) => taken,
        Err(_) => local.take_at_last(vtable, system),
    };
    (cell.cast(), if system { lies | SYSTEM } else { lies })
}

/// Notes that an object was written.
#[inline]
pub(crate) fn allocated(object: Erased) {
    let local = get();
    if local.watched.get() {
        local.observe(object);
    }
}

/// Notes that the last handle of an object is gone. Cost: a load, a branch, three stores.
#[inline]
pub(crate) fn unreferenced(object: Erased) {
    // SAFETY: the cell is not free: it had a handle just now.
    let head = unsafe { head(object) };
    if head.has(QUEUED) || (head.has(WEAKLY | DOOMED) && !head.has(ENDED)) {
        // The collector is to find it, or it is already on its way.
        return;
    }
    let local = LOCAL.get();
    if local.is_null() {
        // The thread has ended (V3).
        return;
    }
    head.set(QUEUED);
    // SAFETY: as in `get`.
    unsafe { (*local).queue.borrow_mut().push(object) };
}

/// Notes that `pair` has a key from now on.
pub(crate) fn refer_weakly(key: Erased, pair: Erased) {
    // SAFETY: both are alive: the caller has handles.
    unsafe { head(key) }.set(WEAKLY);
    get().tenant_of(key).add_pair(pair);
}

impl Local {
    fn new() -> Local {
        let config = Config {
            background: false,
            poison: cfg!(debug_assertions),
            ..Config::default()
        };
        Local {
            ticks: Cell::new(TICKS),
            current: Cell::new(core::ptr::null()),
            system: Cell::new(false),
            separate: Cell::new(true),
            busy: Cell::new(false),
            queue: RefCell::default(),
            doomed: RefCell::default(),
            world: World::new(config),
            tenants: RefCell::default(),
            default: Cell::new(core::ptr::null()),
            growth: Cell::new(Growth::ROOMY),
            weak_maps: RefCell::default(),
            stress: Cell::new(0),
            verify: Cell::new(false),
            limits_outside: Cell::new(false),
            outside_seen: Cell::new(0),
            sweep_in_pause: Cell::new(false),
            few: Cell::new(FEW),
            client: Cell::new(None),
            client_threshold: Cell::new(Growth::ROOMY.client_floor_bytes),
            observer: Cell::new(None),
            watched: Cell::new(false),
            log: RefCell::default(),
            ended: Cell::new(None),
            placement: Cell::new(None),
        }
    }

    /// Creates a tenant with a heap of its own.
    pub(crate) fn add_tenant(&self, name: &str, limit_bytes: usize) -> Rc<Tenant> {
        if limit_bytes != usize::MAX && !self.limits_outside.replace(true) {
            self.begin_outside();
        }
        let heap = self.world.heap(name, limit_bytes);
        let number = heap.id() as usize;
        let placed = self.placement.get().and_then(|placement| {
            // Without address space for pages, objects lie in the heap as usual, and `placement` shows that.
            placement.space(heap.id(), limit_bytes, self.verify.get())
        });
        let growth = self.growth.get();
        let tenant = Rc::new(Tenant::new(name, heap, limit_bytes, &growth, placed));
        let mut tenants = self.tenants.borrow_mut();
        let len = tenants.len().max(number + 1);
        tenants.resize_with(len, || None);
        tenants[number] = Some(tenant.clone());
        tenant
    }

    /// Forgets a tenant without objects.
    pub(crate) fn forget_tenant(&self, tenant: &Rc<Tenant>) {
        // Pointers into its memory may be waiting elsewhere (marking.M3).
        self.abandon_marking(tenant);
        tenant.give_back(0);
        let slot = &mut self.tenants.borrow_mut()[tenant.heap.id() as usize];
        *slot = None;
    }

    /// Returns the tenant that an object belongs to.
    pub(crate) fn tenant_of(&self, object: Erased) -> Rc<Tenant> {
        // SAFETY: it is an object of a heap of ours.
        let number = unsafe { number_of(object) };
        let tenants = self.tenants.borrow();
        let tenant = tenants.get(number as usize).and_then(Option::as_ref);
        tenant.expect("an object's heap outlives it").clone()
    }

    /// Returns all tenants.
    pub(crate) fn all_tenants(&self) -> Vec<Rc<Tenant>> {
        self.tenants.borrow().iter().flatten().cloned().collect()
    }

    /// Returns the tenant that is entered.
    pub(crate) fn current(&self) -> Rc<Tenant> {
        // SAFETY: `tenants` keeps it, and it was made by an `Rc`.
        unsafe {
            Rc::increment_strong_count(self.current.get());
            Rc::from_raw(self.current.get())
        }
    }

    /// Enters another tenant, which `tenants` must have.
    pub(crate) fn enter(&self, tenant: *const Tenant) {
        self.settle_outside();
        self.current.set(tenant);
    }

    /// Returns the default tenant.
    pub(crate) fn default_tenant(&self) -> *const Tenant {
        self.default.get()
    }

    /// Sets the number of allocations until the next slice.
    pub(crate) fn set_ticks(&self, ticks: u32) {
        self.ticks.set(ticks.max(1));
    }

    #[cold]
    #[inline(never)]
    fn tick(&self) {
        let stress = self.stress.get();
        self.ticks.set(if stress > 0 { stress } else { TICKS });
        if !self.busy.get() {
            self.slice();
            self.cycle(&self.current(), stress > 0);
            if let Err(error) = self.keep_within() {
                panic_any(error);
            }
        }
    }

    /// Takes a cell after everything was collected, or panics, which the host may catch.
    #[cold]
    #[inline(never)]
    fn take_at_last(&self, vtable: &'static VTable, system: bool) -> (core::ptr::NonNull<u8>, u32) {
        let tenant = self.current();
        if !self.busy.get() {
            self.collect_now(std::slice::from_ref(&tenant), Reason::Shortage);
            self.cycle(&tenant, true);
        }
        match tenant.take(vtable, system) {
            Ok(taken) => taken,
            Err(error) => panic_any(OutOfMemory::new(&error)),
        }
    }

    /// Updates whether new objects are to be reported.
    pub(crate) fn watch(&self) {
        let marking = self
            .tenants
            .borrow()
            .iter()
            .flatten()
            .any(|t| t.is_marking.get());
        self.watched.set(marking || self.observer.get().is_some());
    }

    #[cold]
    fn observe(&self, object: Erased) {
        // SAFETY: `tenants` keeps it.
        let tenant = unsafe { &*self.current.get() };
        if tenant.is_marking.get() {
            tenant.tell_new(object);
        }
        if let Some(observer) = self.observer.get() {
            // SAFETY: it was just written.
            let vtable = unsafe { head(object) }.vtable;
            (observer.alloc)(object.addr().get(), vtable.bytes, (vtable.name)());
        }
    }

    /// Frees the cell of an object that has ended and has no handles. If a list knows the object, freeing it is left
    /// to the list.
    pub(crate) fn free(&self, object: Erased) {
        // SAFETY: the caller has it from a queue or list, which keep cells from being freed.
        if unsafe { head(object) }.has(LISTED) {
            return;
        }
        if let Some(observer) = self.observer.get() {
            (observer.free)(object.addr().get());
        }
        let tenant = self.tenant_of(object);
        // SAFETY: as above.
        unsafe { tenant.give(object) };
    }
}
