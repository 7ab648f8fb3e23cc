//! Collecting: when, how much at a time, and what is logged of it.
//!
//! ```text
//!   slice (each 64 allocations):  queue ─► doomed ─► free cells back ─► due? ─► collection
//! ```
//!
//! Q1  A slice handles a bounded number of objects, however many wait.
//! Q2  Each step that was done in a pause is an [`Event`]; the last [`EVENTS`] are kept.
//!
//! Not here: what is garbage (`examine`), what happens to it (`ending`).

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Instant;

use skinflint_base::sys::{monotonic_ns, thread_cpu_ns};
use skinflint_gc::Reason;

use crate::ending::Doomed;
use crate::examine::{can_be_suspected, garbage_of, take_dead_pairs};
use crate::local::Local;
use crate::object::{Erased, head};
use crate::skinflint::{Event, Step};
use crate::tenant::{Tenant, class_of};
use crate::verify::{check, garbage_by_sets};

/// The number of events that are kept.
pub(crate) const EVENTS: usize = 1 << 10;
/// The number of objects from the queue that a slice ends.
const QUEUE_SLICE: usize = 512;
/// The number of doomed objects that a slice continues with.
const DOOMED_SLICE: usize = 256;
/// The number of free cells that a slice gives back.
const FLUSH_SLICE: usize = 2048;
/// The duration below which a slice is no event.
const NOTED_NS: u64 = 100_000;

/// The log of events and sums.
#[derive(Default)]
pub(crate) struct Log {
    pub(crate) events: VecDeque<Event>,
    pub(crate) totals: crate::skinflint::Stats,
    pub(crate) heard: Option<fn(&Event)>,
    /// The first instant that was asked for.
    pub(crate) start: Option<Instant>,
}

/// Returns the thread's processor time; under Miri, which has no such clock, the wall's.
fn cpu_ns() -> u64 {
    match cfg!(miri) {
        true => monotonic_ns(),
        false => thread_cpu_ns(),
    }
}

/// The beginning of something, by the wall clock and by this thread's processor time.
struct Begun(Instant, u64);

impl Begun {
    fn now() -> Begun {
        Begun(Instant::now(), cpu_ns())
    }

    /// Returns the nanoseconds since then by both clocks.
    fn elapsed(&self) -> (u64, u64) {
        (
            self.0.elapsed().as_nanos() as u64,
            cpu_ns().saturating_sub(self.1),
        )
    }
}

impl Local {
    /// Returns the nanoseconds since this thread's collector first asked.
    pub(crate) fn now_ns(&self) -> u64 {
        let start = *self.log.borrow_mut().start.get_or_insert_with(Instant::now);
        start.elapsed().as_nanos() as u64
    }

    pub(crate) fn note(&self, event: Event) {
        let heard = {
            let mut log = self.log.borrow_mut();
            let totals = &mut log.totals;
            totals.pauses += 1;
            totals.pause_ns += event.pause_ns;
            totals.longest_ns = totals.longest_ns.max(event.pause_ns);
            if log.events.len() == EVENTS {
                log.events.pop_front();
            }
            log.events.push_back(event.clone());
            log.heard
        };
        if let Some(heard) = heard {
            heard(&event);
        }
    }

    /// Does some work within an allocation (Q1).
    pub(crate) fn slice(&self) {
        let tenant = self.current();
        if self.stress.get() > 0 {
            self.collect_now(&[tenant], Reason::Stress);
            return;
        }
        let waits = !self.queue.borrow().is_empty() || !self.doomed.borrow().is_empty();
        if waits && !self.sweep_in_pause.get() {
            self.busy.set(true);
            let begun = Begun::now();
            let before = tenant.live_bytes();
            let queued = self.end_queued(QUEUE_SLICE);
            let doomed = self.end_doomed(DOOMED_SLICE);
            let (pause_ns, cpu_ns) = begun.elapsed();
            {
                let totals = &mut self.log.borrow_mut().totals;
                totals.slice_ns += pause_ns;
                totals.longest_slice_ns = totals.longest_slice_ns.max(pause_ns);
            }
            if pause_ns > NOTED_NS {
                self.note(Event {
                    reason: Reason::Growth,
                    tenant: tenant.name.clone(),
                    step: Step::SweepSlice,
                    pause_ns,
                    cpu_ns,
                    bytes_before: before,
                    bytes_after: tenant.live_bytes(),
                    freed_in_pause: 0,
                    freed_lazily: (queued + doomed) as u64,
                    freed_elsewhere: 0,
                });
            }
            self.busy.set(false);
            self.say_ended();
        }
        self.step(&tenant);
    }

    /// Ends everything that waits for its end, between the program's own work.
    pub(crate) fn end_waiting(&self) {
        if !self.busy.replace(true) {
            self.end_queued(usize::MAX);
            self.end_doomed(usize::MAX);
            self.end_queued(usize::MAX);
            self.busy.set(false);
        }
    }

    /// Does what is due for the tenant that allocates.
    fn step(&self, tenant: &Rc<Tenant>) {
        if tenant.is_marking.get() {
            self.major_slice(tenant);
        } else if tenant.kept_bytes() > tenant.threshold.get() {
            self.begin_marking(tenant, Reason::Growth);
        } else if let Some(client) = self.client.get()
            && client() > self.client_threshold.get()
        {
            self.begin_marking(tenant, Reason::ClientBytes);
        } else if tenant.is_flush() || (tenant.settling.get() && self.doomed.borrow().is_empty()) {
            // If much was freed by counts, the next collection is due earlier, and less is kept for it.
            let shrunk = self.growth.get().threshold(tenant.kept_bytes(), 0);
            tenant.threshold.set(tenant.threshold.get().min(shrunk));
            tenant.settling.set(true);
            tenant.give_back_some(FLUSH_SLICE);
        }
    }

    /// Continues marking; once that is done, examines what was not marked.
    fn major_slice(&self, tenant: &Rc<Tenant>) {
        self.busy.set(true);
        let begun = Begun::now();
        let bytes = tenant.live_bytes();
        let reason = tenant
            .marking
            .borrow()
            .as_ref()
            .map_or(Reason::Growth, |m| m.reason);
        let done = self.mark_some(tenant);
        let mut event = Event {
            reason,
            tenant: tenant.name.clone(),
            step: if done { Step::Final } else { Step::MajorSlice },
            pause_ns: 0,
            cpu_ns: 0,
            bytes_before: bytes,
            bytes_after: bytes,
            freed_in_pause: 0,
            freed_lazily: 0,
            freed_elsewhere: 0,
        };
        if done {
            self.final_step(tenant);
            if self.sweep_in_pause.get() {
                let freed = tenant.freed.get();
                self.end_doomed(usize::MAX);
                self.end_queued(usize::MAX);
                event.freed_in_pause = tenant.freed.get() - freed;
            }
        }
        self.busy.set(false);
        (event.pause_ns, event.cpu_ns) = begun.elapsed();
        event.bytes_after = tenant.live_bytes();
        self.note(event);
    }

    /// Examines what marking did not reach.
    fn final_step(&self, tenant: &Rc<Tenant>) {
        self.check_cells(tenant);
        let mut suspects = Vec::new();
        tenant.take_unmarked(|object| {
            if can_be_suspected(object) {
                suspects.push(object);
            }
        });
        tenant.marking.borrow_mut().take();
        tenant.is_marking.set(false);
        self.watch();
        self.end_trials();
        self.log.borrow_mut().totals.suspects += suspects.len() as u64;
        let garbage = self.examine(suspects, &[&tenant.pairs.borrow()]);
        let emptied = self.doom(std::slice::from_ref(tenant), garbage);
        if emptied > 0 {
            self.tidy_weak_maps();
        }
        self.collected(tenant);
        // Marking in steps is begun for growth only.
        let mut interval = tenant.interval.get();
        interval.begin_anew();
        tenant.interval.set(interval);
        self.client_collected();
    }

    /// Examines the suspects, a second time in another way if results are to be verified.
    fn examine(&self, suspects: Vec<Erased>, pairs: &[&[Erased]]) -> Vec<Erased> {
        if !self.verify.get() {
            return garbage_of(suspects, pairs);
        }
        let by_sets = garbage_by_sets(&suspects, pairs);
        let garbage = garbage_of(suspects, pairs);
        check(&by_sets, &garbage);
        garbage
    }

    /// Checks the cells before all of them are walked over, if that is to be verified.
    fn check_cells(&self, tenant: &Tenant) {
        if self.verify.get() {
            tenant.check_cells();
        }
    }

    /// Collects these tenants together, all of it at once.
    pub(crate) fn collect_now(&self, set: &[Rc<Tenant>], reason: Reason) {
        if self.busy.replace(true) {
            return;
        }
        let begun = Begun::now();
        let before: usize = set.iter().map(|t| t.live_bytes()).sum();
        let freed: u64 = set.iter().map(|t| t.freed.get()).sum();
        self.end_queued(usize::MAX);
        self.end_doomed(usize::MAX);
        let mut suspects = Vec::new();
        for tenant in set {
            self.abandon_marking(tenant);
            self.check_cells(tenant);
            tenant.each(|object| {
                if can_be_suspected(object) {
                    suspects.push(object);
                }
            });
        }
        self.end_trials();
        let pairs: Vec<_> = set.iter().map(|tenant| tenant.pairs.borrow()).collect();
        let lists: Vec<&[Erased]> = pairs.iter().map(|pairs| pairs.as_slice()).collect();
        let garbage = self.examine(suspects, &lists);
        drop(pairs);
        let emptied = self.doom(set, garbage);
        self.end_doomed(usize::MAX);
        self.end_queued(usize::MAX);
        if emptied > 0 {
            self.tidy_weak_maps();
            self.end_queued(usize::MAX);
        }
        for tenant in set {
            tenant.purge_pairs();
            self.collected(tenant);
            tenant.give_back((tenant.threshold.get() - tenant.live_bytes()) / 2);
        }
        self.client_collected();
        self.busy.set(false);
        let after: usize = set.iter().map(|t| t.live_bytes()).sum();
        let (pause_ns, cpu_ns) = begun.elapsed();
        self.note(Event {
            reason,
            tenant: match set {
                [one] => one.name.clone(),
                _ => Rc::from("all"),
            },
            step: Step::Whole,
            pause_ns,
            cpu_ns,
            bytes_before: before,
            bytes_after: after,
            freed_in_pause: set.iter().map(|t| t.freed.get()).sum::<u64>() - freed,
            freed_lazily: 0,
            freed_elsewhere: 0,
        });
        self.say_ended();
    }

    /// Says that objects have ended, when the slice or pause is over.
    fn say_ended(&self) {
        if let Some(heard) = self.ended.get() {
            heard();
        }
    }

    /// Hands garbage over to be ended, and makes ephemerons on it lose their keys. Returns the number of these
    /// ephemerons.
    pub(crate) fn doom(&self, set: &[Rc<Tenant>], garbage: Vec<Erased>) -> usize {
        let mut dead = Vec::new();
        for tenant in set {
            dead.append(&mut take_dead_pairs(&mut tenant.pairs.borrow_mut()));
        }
        let emptied = dead.len();
        if !garbage.is_empty() || emptied > 0 {
            self.log.borrow_mut().totals.by_examination += garbage.len() as u64;
            for &object in &garbage {
                // SAFETY: it was just found, and is whole.
                let bytes = class_of(unsafe { head(object) }.vtable).1;
                let sum = &self.tenant_of(object).doomed_bytes;
                sum.set(sum.get() + bytes);
            }
            self.doomed
                .borrow_mut()
                .push_back(Doomed::new(garbage, dead));
        }
        emptied
    }

    pub(crate) fn tidy_weak_maps(&self) {
        let mut maps = core::mem::take(&mut *self.weak_maps.borrow_mut());
        maps.retain(|map| map.tidy());
        let mut now = self.weak_maps.borrow_mut();
        maps.append(&mut now);
        *now = maps;
    }

    /// Sets the next threshold of a tenant that was collected.
    fn collected(&self, tenant: &Tenant) {
        let now_ns = self.now_ns();
        let since = now_ns.saturating_sub(tenant.collected_ns.replace(now_ns));
        let live = tenant.kept_bytes();
        let since = if tenant.collections.get() == 0 {
            u64::MAX
        } else {
            since
        };
        tenant.survived.set(live);
        tenant
            .threshold
            .set(self.growth.get().threshold(live, since));
        tenant.collections.set(tenant.collections.get() + 1);
        tenant.collected_made.set(tenant.made.get());
        tenant.settling.set(true);
    }

    fn client_collected(&self) {
        if let Some(client) = self.client.get() {
            let growth = self.growth.get();
            let next = (client() as f64 * growth.factor) as usize;
            self.client_threshold
                .set(next.max(growth.client_floor_bytes));
        }
    }

    /// Collects everything, in all heaps.
    pub(crate) fn force_collect(&self) {
        let all = self.all_tenants();
        self.collect_now(&all, Reason::Asked);
        self.give_all_back(&all);
    }

    /// Gives back what is free, and removes tenants that have ended and are empty by now.
    pub(crate) fn give_all_back(&self, all: &[Rc<Tenant>]) {
        for tenant in all {
            tenant.give_back(0);
            self.cycle(tenant, true);
            if tenant.closed.get() && tenant.objects() == 0 {
                self.forget_tenant(tenant);
            }
        }
        self.world.source().shrink();
    }
}
