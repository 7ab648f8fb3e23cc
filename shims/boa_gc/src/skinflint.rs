//! What is beside Boa's interface: tenants, limits, triggers, pauses.
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
//! I1  All of it is this thread's alone, as the handles are.
//! I2  What an object was allocated in stays its tenant, whoever refers to it. References between tenants are handles as any
//!     others: they keep alive, and cycles across tenants go when all are collected together ([`crate::force_collect`]).
//!
//! Not here: anything that Boa itself calls.

use std::fmt;
use std::rc::Rc;

pub use skinflint_gc::policy::Strategy;
pub use skinflint_gc::policy::live::Told;
pub use skinflint_gc::policy::replay::Size;
pub use skinflint_gc::{Growth, Reason};

use crate::local::{self, Local};
use crate::tenant::Tenant as Heap;

/// A heap of its own, for a tab, a request, an isolate.
pub struct Tenant {
    heap: Rc<Heap>,
}

/// While it lives, [`Gc::new`](crate::Gc::new) allocates in the tenant that was entered.
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

/// What a tenant holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// As it was given.
    pub name: String,
    /// Bytes of objects that were allocated within [`system`].
    pub system_bytes: usize,
    /// Bytes of all others.
    pub user_bytes: usize,
    /// Objects, those that wait for their end included.
    pub objects: u64,
    /// Megabytes of address space that its objects lie in.
    pub chunks: usize,
    /// Bytes outside that [`set_client_bytes`] tells; the process's.
    pub client_bytes: usize,
    /// Whole collections of it, and those that were done in steps.
    pub collections: u64,
}

/// What a tenant left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Objects that are still referred to from outside.
    pub objects_left: u64,
    /// Their bytes.
    pub bytes_left: usize,
    /// Who keeps one of them.
    pub path: Option<String>,
}

/// How a policy placed a tenant's objects.
#[derive(Clone, Debug)]
pub struct Placement {
    /// Its name.
    pub policy: &'static str,
    /// What it did and held.
    pub told: Told,
    /// Objects that it does not place: larger than half a page, or aligned to more than a word.
    pub outside_objects: u64,
    /// Their bytes.
    pub outside_bytes: u64,
}

/// The payload of the panic with which [`Gc::new`](crate::Gc::new) answers when a tenant's memory is used up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// The tenant's name.
    pub tenant: String,
    /// What was asked for.
    pub bytes: usize,
    /// What it holds.
    pub held_bytes: usize,
    /// Why there is no more, in words.
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

/// What was done in a pause.
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
    /// Objects were ended whose last handle went, or that were found to be garbage before.
    SweepSlice,
}

/// One pause.
#[derive(Clone, Debug)]
pub struct Event {
    /// Why the collection that it belongs to was begun.
    pub reason: Reason,
    /// Whose it is; `all` if several are collected together.
    pub tenant: Rc<str>,
    /// What was done.
    pub step: Step,
    /// How long the program stood still.
    pub pause_ns: u64,
    /// Processor time of the thread in it: the same without what other programs took.
    pub cpu_ns: u64,
    /// Bytes of objects before.
    pub bytes_before: usize,
    /// The same afterwards.
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
    /// Events.
    pub pauses: u64,
    /// Their time.
    pub pause_ns: u64,
    /// The longest.
    pub longest_ns: u64,
    /// Time of slices that end objects, those that are no events included.
    pub slice_ns: u64,
    /// The longest of these.
    pub longest_slice_ns: u64,
    /// Objects that ended because their last handle went.
    pub by_count: u64,
    /// Objects that were found to be garbage.
    pub by_examination: u64,
    /// Objects that marking had not reached, garbage or not.
    pub suspects: u64,
    /// Objects allocated.
    pub made: u64,
    /// Objects there are.
    pub objects: u64,
    /// Bytes of them.
    pub live_bytes: usize,
    /// Finalizers and drops that panicked, in all threads.
    pub panics: u64,
}

/// Who is told of allocations and frees, for traces of objects.
#[derive(Clone, Copy)]
pub struct Observer {
    /// Address, bytes and type of an object that was written.
    pub alloc: fn(usize, usize, &'static str),
    /// Address of an object whose cell was freed.
    pub free: fn(usize),
}

impl Tenant {
    /// A tenant that may hold `limit_bytes`: free cells included, and, as far as it can be seen in time
    /// ([`Tenant::within_limit`]), what its objects hold outside by [`set_client_bytes`].
    pub fn new(name: &str, limit_bytes: usize) -> Tenant {
        Tenant {
            heap: local::get().add_tenant(name, limit_bytes),
        }
    }

    /// Allocates here until the guard is dropped. Guards end in the order opposite to that in which they began; one whose
    /// tenant ended meanwhile leads back to the default tenant.
    pub fn enter(&self) -> Guard {
        let local = local::get();
        let before = local.current();
        local.enter(Rc::as_ptr(&self.heap));
        Guard { before }
    }

    /// Collects it alone, at once.
    pub fn collect(&self) {
        local::get().collect_now(std::slice::from_ref(&self.heap), Reason::Asked);
    }

    /// Whether it, and what it holds outside, is within its limit; collects it if not. This is asked at each 64th
    /// allocation of an object, too; a client asks where its program can be ended.
    ///
    /// # Errors
    /// It holds more even so. To be asked while it is entered.
    pub fn within_limit(&self) -> Result<(), OutOfMemory> {
        let local = local::get();
        if core::ptr::eq(local.current.get(), Rc::as_ptr(&self.heap)) {
            local.keep_within()?;
        }
        Ok(())
    }

    /// Bytes that it holds outside by [`set_client_bytes`]; 0 if no tenant has a limit.
    pub fn outside_bytes(&self) -> usize {
        local::get().settle_outside();
        self.heap.outside_bytes()
    }

    /// What it holds.
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

    /// What the policy did that places its objects ([`place_by`]), after a last cycle; `None`: its heap does that. Do not
    /// ask within a finalizer.
    pub fn placement(&self) -> Option<Placement> {
        let (policy, told, [outside_objects, outside_bytes]) = local::get().told_of(&self.heap)?;
        Some(Placement {
            policy,
            told,
            outside_objects,
            outside_bytes,
        })
    }

    /// Ends it: everything that nothing outside refers to goes, and its memory. What is left is told, and goes when its last
    /// handle does.
    pub fn end(self) -> Ended {
        let local = local::get();
        local.leave(&self.heap);
        local.collect_now(std::slice::from_ref(&self.heap), Reason::End);
        if self.heap.objects() > 0 {
            // Cycles through other tenants.
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
    /// A tenant that ends is not allocated in any more.
    fn leave(&self, heap: &Rc<Heap>) {
        let current = self.current();
        if Rc::ptr_eq(&current, heap) {
            self.enter(self.default_tenant());
        }
    }
}

/// Runs `act`; what it allocates is the runtime's own, and lies apart from the program's objects.
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

/// Whether [`system`] has an effect; for measuring what it brings.
pub fn separate_system(on: bool) {
    local::get().separate.set(on);
}

/// The last events, oldest first.
pub fn collections() -> Vec<Event> {
    local::get().log.borrow().events.iter().cloned().collect()
}

/// Forgets the events so far.
pub fn clear_collections() {
    local::get().log.borrow_mut().events.clear();
}

/// Whom to tell each event, at its end. `None`: nobody.
pub fn on_event(heard: Option<fn(&Event)>) {
    local::get().log.borrow_mut().heard = heard;
}

/// How objects of tenants that are made from now on are placed: by a free-list policy, with room made of freed objects
/// each time that `growth` − 1 times what lived was allocated; or, as ever, in cells of the heap (`None`). The thread's own
/// first tenant keeps its heap. A program does the same under every policy; what differs is memory, and time.
pub fn place_by(policy: Option<(Strategy, f64)>) {
    let placement = policy.map(|(strategy, growth)| crate::placed::Placement { strategy, growth });
    local::get().placement.set(placement);
}

/// Bytes that objects hold outside of the heaps, as far as somebody knows: their growth makes collections due, too.
pub fn set_client_bytes(client: Option<fn() -> usize>) {
    let local = local::get();
    local.client.set(client);
    local.begin_outside();
}

/// When heaps are collected; holds from the next collection of each on.
pub fn set_growth(growth: Growth) {
    local::get().growth.set(growth);
}

/// How many unmarked objects are examined in one pause; more are sifted in slices first. Fewer make the last step of a
/// cycle shorter, and the cycle longer. 4096 at first.
pub fn examine_at_most(objects: usize) {
    local::get().few.set(objects);
}

/// For an event loop that has nothing to do, with any clock that does not go back: ends what waits for it, and collects
/// tenants in which nothing was allocated for as long as the table says. Returns the tenants collected.
pub fn tick(now_ns: u64) -> usize {
    let local = local::get();
    let idle_ns = local.growth.get().idle_ns;
    let mut collected = 0;
    local.rest();
    for tenant in local.all_tenants() {
        if tenant.closed.get() && tenant.objects() == 0 {
            local.forget_tenant(&tenant);
        }
        let made = tenant.made.get();
        let (seen, since) = tenant.looked.get();
        if made != seen {
            tenant.looked.set((made, now_ns));
        } else if made != tenant.collected_made.get() && now_ns.saturating_sub(since) >= idle_ns {
            local.collect_now(std::slice::from_ref(&tenant), Reason::Idle);
            tenant.give_back(0);
            collected += 1;
        }
    }
    if collected > 0 {
        local.world.source().shrink();
    }
    collected
}

/// Memory is short: everything is collected, and all that is free goes back.
pub fn pressure() {
    let local = local::get();
    let all = local.all_tenants();
    local.collect_now(&all, Reason::Pressure);
    local.give_all_back(&all);
}

/// Whom to tell of each object.
pub fn set_observer(observer: Option<Observer>) {
    let local = local::get();
    local.observer.set(observer);
    local.watch();
}

/// Sums of this thread.
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

/// The rows of all tenants that have objects or may get some.
pub fn rows() -> Vec<Row> {
    let all = local::get().all_tenants();
    all.into_iter().map(|heap| Tenant { heap }.row()).collect()
}

/// Collects at each `every`th allocation; 0: no more. For finding handles and edges that are not told.
pub fn stress(every: u32) {
    let local = local::get();
    local.stress.set(every);
    local.set_ticks(every);
}

/// After each examination a second one, by other means, has to come to the same garbage.
pub fn verify(on: bool) {
    local::get().verify.set(on);
}

/// Ends garbage in the pause that finds it, and what counts found with it, instead of a little at each allocation: what
/// most collectors did once. For comparison; pauses are longer.
pub fn sweep_in_pause(on: bool) {
    local::get().sweep_in_pause.set(on);
}
