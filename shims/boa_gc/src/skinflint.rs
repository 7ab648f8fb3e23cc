//! The functions beside Boa's interface: tenants, limits, triggers, pauses.
//!
//! ```
//! use boa_gc::{Gc, skinflint::Tenant};
//!
//! let tab = Tenant::new("tab 1", 64 << 20);
//! let page = { let _in = tab.enter(); Gc::new(String::from("a page")) };
//! assert_eq!(tab.row().objects, 1);
//! drop(page);
//! assert_eq!(tab.end().objects_left, 0);
//! ```
//!
//! ```text
//!   Tenant::new ─► enter() … Gc::new goes there … drop(Guard) ─► collect() · row() ─► end(): what is left, and why
//! ```
//!
//! I1  All of it belongs to this thread, as the handles do.
//! I2  An object stays in the tenant in which it was allocated, whatever refers to it. References between tenants are
//!     handles like any others: they keep objects alive, and cycles across tenants go when all are collected together
//!     ([`crate::force_collect`]).
//!
//! Not here: anything that Boa itself calls.

use std::fmt;
use std::rc::Rc;

pub use skinflint_free_lists::Strategy;
pub use skinflint_free_lists::live::Outcome;
pub use skinflint_free_lists::replay::Size;
pub use skinflint_gc::chunks::Chunks;
pub use skinflint_gc::{Busy, Growth, Reason};

use crate::local::{self, Local};
use crate::tenant::{self, Tenant as Heap};

/// A tenant with a heap of its own, for a tab, a request, an isolate.
pub struct Tenant {
    heap: Rc<Heap>,
}

/// A guard: while it lives, [`Gc::new`](crate::Gc::new) allocates in the tenant that was entered.
#[must_use]
pub struct Guard {
    before: Rc<Heap>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let local = local::get();
        let ended = self.before.closed.get();
        local.enter(if ended {
            local.default_tenant()
        } else {
            Rc::as_ptr(&self.before)
        });
    }
}

/// The figures of what a tenant holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The name that it was given.
    pub name: String,
    /// Bytes of objects that were allocated within [`system`].
    pub system_bytes: usize,
    /// Bytes of all others.
    pub user_bytes: usize,
    /// Number of objects, including those that wait for their end.
    pub objects: u64,
    /// Megabytes of address space that its objects lie in.
    pub chunks: usize,
    /// Bytes outside, of all tenants together, by [`set_client_bytes`].
    pub client_bytes: usize,
    /// Number of whole collections of it, and of those that were done in steps.
    pub collections: u64,
}

/// The objects that a tenant left at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Number of objects that are still referred to from outside.
    pub objects_left: u64,
    /// Bytes of these objects.
    pub bytes_left: usize,
    /// What keeps one of them alive.
    pub path: Option<String>,
}

/// How a policy placed a tenant's objects.
#[derive(Clone, Debug)]
pub struct Placement {
    /// The policy's name.
    pub policy: &'static str,
    /// The figures of what it did and held.
    pub outcome: Outcome,
    /// Number of objects that it does not place: larger than half a page, or aligned to more than a word.
    pub outside_objects: u64,
    /// Bytes of these objects.
    pub outside_bytes: u64,
}

/// The payload of the panic with which [`Gc::new`](crate::Gc::new) answers when a tenant's memory is used up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// The tenant's name.
    pub tenant: String,
    /// The bytes that were asked for.
    pub bytes: usize,
    /// The bytes that the tenant holds.
    pub held_bytes: usize,
    /// Why there is no more memory, in words.
    pub why: String,
}

impl OutOfMemory {
    pub(crate) fn new(error: &skinflint_gc::OutOfMemory) -> OutOfMemory {
        OutOfMemory {
            tenant: error.heap.clone(),
            bytes: error.bytes,
            held_bytes: error.held_bytes,
            why: error.to_string(),
        }
    }
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for OutOfMemory {}

/// The work that was done in a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A whole collection at once.
    Whole,
    /// Objects since the last collection were examined.
    Young,
    /// Marking went on.
    MajorSlice,
    /// What marking had not reached was examined.
    Final,
    /// Objects were ended that had lost their last handle, or that were found to be garbage before.
    SweepSlice,
}

/// A pause.
#[derive(Clone, Debug)]
pub struct Event {
    /// Why the collection that it belongs to was begun.
    pub reason: Reason,
    /// The tenant's name; `all` if several are collected together.
    pub tenant: Rc<str>,
    /// What was done.
    pub step: Step,
    /// How long the program stood still.
    pub pause_ns: u64,
    /// Processor time of the thread in the pause: without the time that other programs took.
    pub cpu_ns: u64,
    /// Bytes of objects before.
    pub bytes_before: usize,
    /// Bytes of objects afterwards.
    pub bytes_after: usize,
    /// Objects that ended in it.
    pub freed_in_pause: u64,
    /// Objects that ended in it, if it is a slice of what was found before.
    pub freed_lazily: u64,
    /// Objects that ended on another thread: none, since Boa's may not.
    pub freed_elsewhere: u64,
}

/// Sums since the thread began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Number of pauses that are events.
    pub pauses: u64,
    /// Time of these pauses.
    pub pause_ns: u64,
    /// The longest of these pauses.
    pub longest_ns: u64,
    /// Time of slices that end objects, including those that are no events.
    pub slice_ns: u64,
    /// The longest of these slices.
    pub longest_slice_ns: u64,
    /// Number of objects that ended because their last handle went.
    pub by_count: u64,
    /// Number of objects that were found to be garbage.
    pub by_examination: u64,
    /// Number of objects that marking had not reached, garbage or not.
    pub suspects: u64,
    /// Number of objects allocated.
    pub made: u64,
    /// Number of objects that exist.
    pub objects: u64,
    /// Bytes of these objects.
    pub live_bytes: usize,
    /// Number of finalizers and drops that panicked, in all threads.
    pub panics: u64,
}

/// Functions that are told of allocations and frees, for traces of objects.
#[derive(Clone, Copy)]
pub struct Observer {
    /// Is called with the address, bytes and type of an object that was written.
    pub alloc: fn(usize, usize, &'static str),
    /// Is called with the address of an object whose cell was freed.
    pub free: fn(usize),
}

impl Tenant {
    /// Creates a tenant that may hold `limit_bytes`: including free cells, and, as far as it can be seen in time
    /// ([`Tenant::within_limit`]), what its objects hold outside by [`set_client_bytes`].
    pub fn new(name: &str, limit_bytes: usize) -> Tenant {
        Tenant {
            heap: local::get().add_tenant(name, limit_bytes),
        }
    }

    /// Allocates in this tenant until the guard is dropped. Guards end in the order opposite to that in which they
    /// began; one whose tenant ended meanwhile leads back to the default tenant.
    pub fn enter(&self) -> Guard {
        let local = local::get();
        let before = local.current();
        local.enter(Rc::as_ptr(&self.heap));
        Guard { before }
    }

    /// Collects only this tenant, at once.
    pub fn collect(&self) {
        local::get().collect_now(std::slice::from_ref(&self.heap), Reason::Asked);
    }

    /// Checks whether the tenant, with what it holds outside, is within its limit; collects it if not. This is also
    /// checked at each 64th allocation of an object; a client checks at points where its program can be ended.
    ///
    /// # Errors
    /// If it holds more even then. Call it while the tenant is entered.
    pub fn within_limit(&self) -> Result<(), OutOfMemory> {
        let local = local::get();
        if core::ptr::eq(local.current.get(), Rc::as_ptr(&self.heap)) {
            local.keep_within()?;
        }
        Ok(())
    }

    /// Returns the bytes that it holds outside by [`set_client_bytes`]; 0 if no tenant has a limit.
    pub fn outside_bytes(&self) -> usize {
        local::get().settle_outside();
        self.heap.outside_bytes()
    }

    /// Returns what it holds.
    pub fn row(&self) -> Row {
        let client = local::get().client.get();
        Row {
            name: self.heap.name.to_string(),
            system_bytes: self.heap.bytes[1].get(),
            user_bytes: self.heap.bytes[0].get(),
            objects: self.heap.objects(),
            chunks: self.heap.heap.chunk_count() + self.heap.placed_chunks(),
            client_bytes: client.map_or(0, |client| client()),
            collections: self.heap.collections.get(),
        }
    }

    /// Returns what the policy that places its objects did ([`place_by`]), after a last cycle; `None` if its heap
    /// places them. Do not call it within a finalizer.
    pub fn placement(&self) -> Option<Placement> {
        let (policy, outcome, [outside_objects, outside_bytes]) =
            local::get().outcome_of(&self.heap)?;
        Some(Placement {
            policy,
            outcome,
            outside_objects,
            outside_bytes,
        })
    }

    /// Ends the tenant: everything that nothing outside refers to goes, and its memory. What is left is returned, and
    /// goes when its last handle does.
    pub fn end(self) -> Ended {
        let local = local::get();
        local.leave(&self.heap);
        local.collect_now(std::slice::from_ref(&self.heap), Reason::End);
        if self.heap.objects() > 0 {
            // This collects cycles through other tenants.
            local.collect_now(&local.all_tenants(), Reason::End);
        }
        self.heap.closed.set(true);
        self.heap.give_back(0);
        local.cycle(&self.heap, true);
        local.world.source().shrink();
        let left = Ended {
            objects_left: self.heap.objects(),
            bytes_left: self.heap.live_bytes(),
            path: local.retaining_path(&self.heap),
        };
        if left.objects_left == 0 {
            local.forget_tenant(&self.heap);
        }
        left
    }
}

impl Local {
    /// Leaves a tenant that ends: nothing is allocated in it any more.
    fn leave(&self, heap: &Rc<Heap>) {
        let current = self.current();
        if Rc::ptr_eq(&current, heap) {
            self.enter(self.default_tenant());
        }
    }
}

/// Runs `act`; what it allocates belongs to the runtime, and lies apart from the program's objects.
pub fn system<T>(act: impl FnOnce() -> T) -> T {
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            local::get().system.set(self.0);
        }
    }
    let local = local::get();
    let _before = Before(local.system.replace(local.separate.get()));
    act()
}

/// Sets whether [`system`] has an effect; for measuring its benefit.
pub fn separate_system(on: bool) {
    local::get().separate.set(on);
}

/// Returns the last events, oldest first.
pub fn collections() -> Vec<Event> {
    local::get().log.borrow().events.iter().cloned().collect()
}

/// Forgets the events so far.
pub fn clear_collections() {
    local::get().log.borrow_mut().events.clear();
}

/// Sets the function that is told each event, at its end; `None` for no function.
pub fn on_event(heard: Option<fn(&Event)>) {
    local::get().log.borrow_mut().heard = heard;
}

/// Sets how objects of tenants that are made from now on are placed: by a free-list policy, which makes room of freed
/// objects each time that `growth` − 1 times what lived was allocated; or, as usual, in cells of the heap (`None`).
/// The thread's own first tenant keeps its heap. A program does the same under every policy; what differs is memory,
/// and time.
pub fn place_by(policy: Option<(Strategy, f64)>) {
    let placement = policy.map(|(strategy, growth)| crate::placed::Placement { strategy, growth });
    local::get().placement.set(placement);
}

/// Sets the function that counts the bytes that objects hold outside of the heaps: their growth makes collections
/// due, too.
pub fn set_client_bytes(client: Option<fn() -> usize>) {
    let local = local::get();
    local.client.set(client);
    local.begin_outside();
}

/// Sets when heaps are collected; it holds from the next collection of each on.
pub fn set_growth(growth: Growth) {
    local::get().growth.set(growth);
}

/// Sets how many unmarked objects are examined in one pause; more go through trial deletion in slices first. A smaller
/// number makes the last step of a cycle shorter, and the cycle longer. The default is 4096.
pub fn examine_at_most(objects: usize) {
    local::get().few.set(objects);
}

/// Does the work of an event loop that has nothing else to do, with any clock that does not go back: ends what waits
/// for its end, and collects tenants in which nothing was allocated for as long as the table says, or a little for as
/// long as its interval ([`Reason::Interval`]). Returns the number of tenants collected.
pub fn tick(now_ns: u64) -> usize {
    let local = local::get();
    let growth = local.growth.get();
    let mut collected = 0;
    local.end_waiting();
    for tenant in local.all_tenants() {
        if tenant.closed.get() && tenant.objects() == 0 {
            local.forget_tenant(&tenant);
        }
        let made = tenant.made.get();
        let (seen, since) = tenant.looked.get();
        let mut interval = tenant.interval.get();
        let passed = interval.has_passed(now_ns, growth.interval_ns, tenant.collections.get());
        if made != seen {
            tenant.looked.set((made, now_ns));
        }
        let amounts = (made - tenant.collected_made.get(), tenant.objects());
        let enough =
            interval.is_rest_enough(now_ns, growth.idle_ns, tenant.collections.get(), amounts);
        let rested = made == seen && now_ns.saturating_sub(since) >= growth.idle_ns && enough;
        if made != tenant.collected_made.get() && (rested || passed) {
            let before = tenant.live_bytes();
            let reason = if rested {
                Reason::Idle
            } else {
                Reason::Interval
            };
            local.collect_now(std::slice::from_ref(&tenant), reason);
            if rested {
                tenant.give_back(0);
            }
            interval.collected(before, tenant.live_bytes());
            collected += 1;
        }
        tenant.interval.set(interval);
    }
    if collected > 0 {
        local.world.source().shrink();
    }
    collected
}

/// Responds to a shortage of memory: everything is collected, and all that is free is given back.
pub fn pressure() {
    let local = local::get();
    let all = local.all_tenants();
    local.collect_now(&all, Reason::Pressure);
    local.give_all_back(&all);
}

/// Sets the observer that is told of each object.
pub fn set_observer(observer: Option<Observer>) {
    let local = local::get();
    local.observer.set(observer);
    local.watch();
}

/// Returns the sums of this thread.
pub fn stats() -> Stats {
    use core::sync::atomic::Ordering;
    let local = local::get();
    let all = local.all_tenants();
    let totals = local.log.borrow().totals;
    Stats {
        made: all.iter().map(|tenant| tenant.made.get()).sum(),
        objects: all.iter().map(|tenant| tenant.objects()).sum(),
        live_bytes: all.iter().map(|tenant| tenant.live_bytes()).sum(),
        // ORDER: Relaxed: a count.
        panics: crate::ending::PANICS.load(Ordering::Relaxed),
        ..totals
    }
}

/// Sets a function to be called on this thread when objects have ended, in a slice or a pause, and that is over: for
/// what their drops left for another thread. It may not touch the heap.
pub fn on_ended(heard: Option<fn()>) {
    local::get().ended.set(heard);
}

/// Returns the chunks of all tenants by the arenas in use, and what keeps those that one arena keeps, by type.
///
/// # Errors
/// A drop or a finalizer of this thread asked.
pub fn chunks() -> Result<Chunks, Busy> {
    let all = local::get().all_tenants();
    let heaps: Vec<_> = all.iter().map(|tenant| &*tenant.heap).collect();
    Chunks::of_named(&heaps, |cell, _| tenant::name_of(cell))
}

/// Returns the rows of all tenants that have objects or may get some.
pub fn rows() -> Vec<Row> {
    let all = local::get().all_tenants();
    all.into_iter().map(|heap| Tenant { heap }.row()).collect()
}

/// Collects at each `every`th allocation; 0 switches that off. For finding handles and edges that are not reported.
pub fn stress(every: u32) {
    let local = local::get();
    local.stress.set(every);
    local.set_ticks(every);
}

/// Makes a second examination, by other means, follow each examination; it must find the same garbage.
pub fn verify(on: bool) {
    local::get().verify.set(on);
}

/// Ends garbage in the pause that finds it, and what counts found with it, instead of a little at each allocation, as
/// most collectors once did. For comparison; pauses are longer.
pub fn sweep_in_pause(on: bool) {
    local::get().sweep_in_pause.set(on);
}
