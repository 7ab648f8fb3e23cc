//! Triggers of collections, as data, and their reasons.
//!
//! ```text
//!   cells taken    > threshold(live after the last one)      ─► Growth
//!   client's bytes > threshold(client's bytes then)          ─► ClientBytes
//!   nothing taken for `idle_ns`, and something since the last ─► Idle          ──► due ──► collect(reason) ─► log
//!   `interval_ns` since the last, and something taken         ─► Interval
//!   the system is short of memory                            ─► Pressure
//!   the tenant is refused memory, and not just after another  ─► Shortage
//!   every nth allocation                                     ─► Stress
//! ```
//!
//! T1  The reason is recorded with each collection, with the figures before and after: [`Collection`].
//! T2  A threshold is at least `factor × live` and at least `floor_bytes`, with a factor above 1: the work of
//!     marking is paid by allocation. Near a tenant's limit it is lower (T5).
//! T3  What is due stays due until a collection, and the first reason is kept.
//! T4  Where marking is incremental it begins before the threshold, so that it is done by then, and is finished at
//!     once at a limit above it (`incremental`).
//! T5  Before a tenant's limit is reached it is collected, whatever the table says: at seven eighths of the limit, or
//!     where it holds nearly that much already, at half of the room that is left ([`Room`]). Cells and the client's
//!     bytes count together. Between two such collections at least a sixty-fourth of the limit is taken.
//! T6  A refusal makes a collection due, unless the last one was so short ago that collections would take more than a
//!     sixteenth of the time ([`PAUSES_APART`]): a tenant that is really full gets the refusal, and goes on.
//!
//! The tables: [`Growth::SPIDERMONKEY`] is what Firefox does (2026): 1.5 while collections are rare, between 3 and 1.5
//! by size while they come within a second. [`Growth::TIGHT`] trades time for memory, [`Growth::ADAPTIVE`] as much time
//! as its share allows (`pace`).
//!
//! Not here: how a collection is done (`collect`).

use core::cell::Cell;
use std::collections::VecDeque;

use crate::heap::incremental::Incremental;
use crate::heap::pace::{Pacer, Share, Spent};
use crate::heap::room::Room;

pub use crate::heap::interval::Interval;

/// Why a collection was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Cells were taken since the last collection.
    Growth,
    /// Bytes outside of the heap that objects hold, as the client says, have grown.
    ClientBytes,
    /// Nothing was allocated for a while.
    Idle,
    /// Something was allocated now and then, and for a while that was too little for any threshold.
    Interval,
    /// The system, or another part of the process, is short of memory.
    Pressure,
    /// The tenant is at its limit, or the kernel refused.
    Shortage,
    /// The client asked.
    Asked,
    /// Each nth allocation, to find missing roots and edges.
    Stress,
    /// The tenant ends.
    End,
}

/// How far a heap may grow before it is collected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    /// Below this many bytes nothing is collected for growth.
    pub floor_bytes: usize,
    /// Threshold over live bytes while collections are rare.
    pub factor: f64,
    /// The same factor while they are frequent, for heaps up to `small_bytes` …
    pub often_small: f64,
    /// … and for heaps from `large_bytes` on; between them it falls evenly.
    pub often_large: f64,
    /// The largest size for `often_small`, in bytes.
    pub small_bytes: usize,
    /// The smallest size for `often_large`, in bytes.
    pub large_bytes: usize,
    /// Two collections within this time are frequent.
    pub often_ns: u64,
    /// Like `floor_bytes`, for the client's bytes. Their factor is `factor`.
    pub client_floor_bytes: usize,
    /// After this time without an allocation the heap is collected, if anything was allocated since the last
    /// collection; later, where such collections freed little before and hardly anything was.
    pub idle_ns: u64,
    /// After this time since the last collection the heap is collected, if anything was allocated since, though it is
    /// not idle; doubled, up to ten minutes, each time that such a collection frees less than a twentieth
    /// ([`Interval`]). `u64::MAX`: never.
    pub interval_ns: u64,
    /// The share from which the factor is computed by what collections cost; it begins with `factor`, and the other two
    /// factors are ignored.
    pub share: Option<Share>,
}

const MIB: usize = 1 << 20;
const SECOND_NS: u64 = 1_000_000_000;

impl Growth {
    /// The table that Firefox has for a zone.
    pub const SPIDERMONKEY: Growth = Growth {
        floor_bytes: 27 * MIB,
        factor: 1.5,
        often_small: 3.0,
        often_large: 1.5,
        small_bytes: 100 * MIB,
        large_bytes: 500 * MIB,
        often_ns: SECOND_NS,
        client_floor_bytes: 38 * MIB,
        idle_ns: 20 * SECOND_NS,
        interval_ns: 20 * SECOND_NS,
        share: None,
    };

    /// For many small heaps: a megabyte to begin with, 0.45 of what lives beyond it later. What is resident is 0.05 to
    /// 0.1 more than that (heads of arenas, arenas that are not full), so a program peaks at 1.5 of what lives; a closure
    /// that takes much adds what it takes beyond. Up to 2026-11-26 the factor was 2.0 for small heaps while collections were
    /// frequent: binary trees took 0.30 of gc-arena's processor time at a peak of 2.05.
    pub const TENANT: Growth = Growth {
        floor_bytes: MIB,
        factor: 1.45,
        often_small: 1.45,
        often_large: 1.45,
        client_floor_bytes: 4 * MIB,
        ..Growth::SPIDERMONKEY
    };

    /// More room while collections are frequent: a megabyte to begin with, half as much again later, up to twice for small
    /// heaps that are collected within a second. What [`TENANT`](Growth::TENANT) was, for runtimes whose time counts.
    pub const ROOMY: Growth = Growth {
        factor: 1.5,
        often_small: 2.0,
        often_large: 1.5,
        small_bytes: 16 * MIB,
        large_bytes: 128 * MIB,
        ..Growth::TENANT
    };

    /// A seventh beyond the live bytes: for hosts that count megabytes and have time.
    pub const TIGHT: Growth = Growth {
        factor: 1.15,
        often_small: 1.15,
        often_large: 1.15,
        ..Growth::TENANT
    };

    /// The table that gives as much room as a tenth of the processor time pays for, between
    /// [`TIGHT`](Growth::TIGHT)'s and [`ROOMY`](Growth::ROOMY)'s: tight for programs that compute, wide for those that
    /// allocate.
    pub const ADAPTIVE: Growth = Growth {
        factor: 1.5,
        share: Some(Share {
            target: 0.1,
            least: 1.15,
            most: 2.0,
        }),
        ..Growth::TENANT
    };

    /// Returns the factor for a heap of `live` bytes, by a table without `share`.
    pub fn factor_for(&self, live: usize, since_last_ns: u64) -> f64 {
        let factor = if since_last_ns > self.often_ns {
            self.factor
        } else if live <= self.small_bytes || self.small_bytes >= self.large_bytes {
            self.often_small
        } else {
            let span = (self.large_bytes - self.small_bytes) as f64;
            let part = ((live - self.small_bytes) as f64 / span).min(1.0);
            self.often_small + (self.often_large - self.often_small) * part
        };
        // T2: a table with a lower factor would collect at each allocation.
        if factor > 1.05 { factor } else { 1.05 }
    }

    /// Returns the bytes at which a heap is collected next, by a table without `share`.
    pub fn threshold(&self, live: usize, since_last_ns: u64) -> usize {
        self.threshold_by(self.factor_for(live, since_last_ns), live)
    }

    fn threshold_by(&self, factor: f64, live: usize) -> usize {
        ((live as f64 * factor) as usize).max(self.floor_bytes)
    }
}

/// A refusal makes a collection due when this many times the length of the last pause has passed since (T6).
const PAUSES_APART: u64 = 16;

/// A collection of one heap.
#[derive(Clone, Copy, Debug)]
pub struct Collection {
    /// The reason.
    pub reason: Reason,
    /// Number of heaps that were collected together.
    pub heaps: usize,
    /// The time at which it began, on the monotonic clock.
    pub started_ns: u64,
    /// How long the mutator stood still in all: one pause, or the sum of `slices`.
    pub pause_ns: u64,
    /// Number of pauses: 1, unless marking was incremental.
    pub slices: u32,
    /// The longest of the pauses.
    pub longest_ns: u64,
    /// Whether marking was incremental and had to be finished at once, since the heap grew faster.
    pub forced: bool,
    /// The part of the pause that finished the sweep of the collection before.
    pub finish_ns: u64,
    /// The part of the pause for roots, marking, weak cells.
    pub mark_ns: u64,
    /// Bytes of cells taken before the collection.
    pub before_bytes: usize,
    /// Bytes that were reached.
    pub live_bytes: usize,
    /// Number of objects that were reached.
    pub live_cells: u64,
    /// The client's bytes at that time.
    pub client_bytes: usize,
    /// Bytes at which the heap is collected next.
    pub threshold_bytes: usize,
    /// The factor of live bytes that the threshold came from; the threshold may be higher, at the table's floor.
    pub factor: f64,
    /// Processor time of all pauses over that of the heaps' thread, since this heap's last collection. `None`: the
    /// table has no [`Share`], or it is the first collection.
    pub share: Option<f64>,
    /// Number of arenas that were delayed because the mark stack was full.
    pub overflows: u64,
}

/// The consequence of a heap's idle time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdleAction {
    /// Nothing: it is not idle, or all was done.
    Nothing,
    /// A collection, for [`Reason::Idle`] or [`Reason::Interval`]: something was taken since the last one.
    Collect(Reason),
    /// Giving back: free memory is kept for allocations that do not come.
    GiveBack,
}

/// The most collections that a heap remembers.
pub const LOG: usize = 256;

/// The state of a heap's triggers.
pub(crate) struct Triggers {
    pub(crate) growth: Cell<Growth>,
    pacer: Pacer,
    pub(crate) used_bytes: Cell<usize>,
    pub(crate) threshold_bytes: Cell<usize>,
    live_bytes: Cell<usize>,
    /// Bytes taken beyond the threshold of the last collection.
    beyond: Cell<usize>,
    pub(crate) client_bytes: Cell<usize>,
    client_threshold_bytes: Cell<usize>,
    /// Where marking begins, and where it may no longer be done in slices; both are the threshold unless the heap is
    /// marked incrementally.
    incremental: Cell<Option<Incremental>>,
    begin_bytes: Cell<usize>,
    limit_bytes: Cell<usize>,
    /// The most that the heap may hold, and what it held after the last collection without the client's bytes.
    room: Cell<Room>,
    begin: Cell<Option<Reason>>,
    due: Cell<Option<Reason>>,
    last_ns: Cell<u64>,
    /// Bytes taken so far; what it was at the last look of the timer, and at the last collection.
    taken_total: Cell<u64>,
    looked: Cell<(u64, u64)>,
    interval: Cell<Interval>,
    collected_total: Cell<u64>,
    given_total: Cell<Option<u64>>,
    pub(crate) log: std::cell::RefCell<VecDeque<Collection>>,
    pub(crate) collections: Cell<u64>,
}

impl Triggers {
    pub(crate) fn new(growth: Growth) -> Triggers {
        Triggers {
            growth: Cell::new(growth),
            pacer: Pacer::new(),
            used_bytes: Cell::new(0),
            threshold_bytes: Cell::new(growth.floor_bytes),
            live_bytes: Cell::new(0),
            beyond: Cell::new(0),
            client_bytes: Cell::new(0),
            client_threshold_bytes: Cell::new(growth.client_floor_bytes),
            incremental: Cell::new(None),
            begin_bytes: Cell::new(usize::MAX),
            limit_bytes: Cell::new(growth.floor_bytes),
            room: Cell::new(Room {
                limit_bytes: usize::MAX,
                base_bytes: 0,
            }),
            begin: Cell::new(None),
            due: Cell::new(None),
            last_ns: Cell::new(0),
            taken_total: Cell::new(0),
            looked: Cell::new((0, 0)),
            interval: Cell::default(),
            collected_total: Cell::new(0),
            given_total: Cell::new(Some(0)),
            log: std::cell::RefCell::default(),
            collections: Cell::new(0),
        }
    }

    #[inline]
    pub(crate) fn due(&self) -> Option<Reason> {
        self.due.get()
    }

    pub(crate) fn raise(&self, reason: Reason) {
        if self.due.get().is_none() {
            self.due.set(Some(reason));
        }
    }

    /// Counts cells that were taken.
    pub(crate) fn took(&self, bytes: usize) {
        let used = self.used_bytes.get() + bytes;
        self.used_bytes.set(used);
        self.taken_total.set(self.taken_total.get() + bytes as u64);
        let all = used.saturating_add(self.client_bytes.get());
        let room = self.room.get();
        if used > self.limit_bytes.get() || all > room.forced() {
            self.raise(Reason::Growth);
        } else if used > self.begin_bytes.get() || all > room.threshold() {
            self.raise_begin(Reason::Growth);
        }
    }

    /// Sets the most that the heap may hold.
    pub(crate) fn set_room(&self, limit_bytes: usize) {
        let room = Room {
            limit_bytes,
            ..self.room.get()
        };
        self.room.set(room);
        self.set_thresholds(self.threshold_bytes.get(), self.live_bytes.get());
    }

    /// Notes pages taken so near to the limit that the next ones will be refused, though the cells in them are fewer.
    /// `held`: all bytes that are held (T5).
    pub(crate) fn held(&self, held: usize) {
        let room = self.room.get();
        let taken = self.used_bytes.get().saturating_sub(self.live_bytes.get());
        if held <= room.limit_bytes - room.limit_bytes / 8 || taken < room.limit_bytes / 64 {
            return;
        }
        if held > room.limit_bytes - room.limit_bytes / 16 {
            self.raise(Reason::Growth);
        } else {
            self.raise_begin(Reason::Growth);
        }
    }

    /// Notes that an allocation was refused (T6).
    pub(crate) fn refused(&self, now_ns: u64) {
        let last = self
            .log
            .borrow()
            .back()
            .map(|last| (last.started_ns, last.pause_ns));
        let rested = last.is_none_or(|(started_ns, pause_ns)| {
            now_ns.saturating_sub(started_ns) >= pause_ns.saturating_mul(PAUSES_APART)
        });
        if rested {
            self.raise(Reason::Shortage);
        }
    }

    /// Makes the begin of marking in slices due; where marking is not done so, a collection.
    pub(crate) fn raise_begin(&self, reason: Reason) {
        if self.incremental.get().is_none() {
            self.raise(reason);
        } else if self.begin.get().is_none() {
            self.begin.set(Some(reason));
        }
    }

    /// Returns why marking in slices should begin, if it should.
    pub(crate) fn begin_due(&self) -> Option<Reason> {
        self.begin.get()
    }

    pub(crate) fn incremental(&self) -> Option<Incremental> {
        self.incremental.get()
    }

    pub(crate) fn set_incremental(&self, incremental: Option<Incremental>) {
        self.incremental.set(incremental);
        if let Some(reason) = self.begin.take().filter(|_| incremental.is_none()) {
            self.raise(reason);
        }
        self.set_thresholds(self.threshold_bytes.get(), self.live_bytes.get());
    }

    /// Sets a new threshold, and what follows from it (T4, T5).
    pub(crate) fn set_thresholds(&self, threshold: usize, live: usize) {
        let room = self.room.get().threshold();
        let threshold = threshold.min(room.saturating_sub(self.client_bytes.get()));
        self.threshold_bytes.set(threshold);
        self.live_bytes.set(live);
        let (begin, limit) = match self.incremental.get() {
            None => (usize::MAX, threshold),
            Some(table) => table.thresholds(threshold, live),
        };
        self.begin_bytes.set(begin);
        self.limit_bytes.set(limit);
    }

    /// Returns the bytes at which the heap is collected in one go, whatever was begun.
    pub(crate) fn limit_bytes(&self) -> usize {
        self.limit_bytes.get()
    }

    /// Returns the bytes taken so far.
    pub(crate) fn taken_total(&self) -> u64 {
        self.taken_total.get()
    }

    /// Counts a cell that was freed.
    pub(crate) fn freed(&self, bytes: usize) {
        let used = self.used_bytes.get();
        self.used_bytes.set(used.saturating_sub(bytes));
    }

    /// Counts cells that were taken and not used.
    pub(crate) fn returned(&self, bytes: usize) {
        self.used_bytes
            .set(self.used_bytes.get().saturating_sub(bytes));
        self.taken_total.set(self.taken_total.get() - bytes as u64);
    }

    pub(crate) fn client(&self, change: isize) {
        let bytes = self.client_bytes.get().saturating_add_signed(change);
        self.client_bytes.set(bytes);
        let mut room = self.room.get();
        // Bytes of garbage go when it is swept, after the collection: the live bytes are known only then.
        let base = self.live_bytes.get().saturating_add(bytes);
        if base < room.base_bytes {
            room.base_bytes = base;
            self.room.set(room);
        }
        let threshold = self.client_threshold_bytes.get();
        let all = self.used_bytes.get().saturating_add(bytes);
        if change > 0 && all > room.threshold() {
            if all > room.forced() {
                self.raise(Reason::ClientBytes);
            } else {
                self.raise_begin(Reason::ClientBytes);
            }
        }
        if bytes <= threshold {
            return;
        }
        let limit = self
            .incremental
            .get()
            .map_or(threshold, |table| table.thresholds(threshold, threshold).1);
        if bytes > limit {
            self.raise(Reason::ClientBytes);
        } else {
            self.raise_begin(Reason::ClientBytes);
        }
    }

    /// Returns what an idle heap requires, one from which nothing was taken between a look at least `idle_ns` ago and now;
    /// of another heap, what the interval since the last collection requires. `unused`: bytes that were taken and hold no
    /// object yet. (By whole spans a program that takes ten small objects a second would rest between two of them.)
    pub(crate) fn idle_action(&self, now_ns: u64, unused: usize) -> IdleAction {
        let growth = self.growth.get();
        let taken = self.used_total(unused);
        let since_last = taken.saturating_sub(self.collected_total.get());
        let anything = since_last > 0;
        let collections = self.collections.get();
        let mut interval = self.interval.get();
        let passed = interval.has_passed(now_ns, growth.interval_ns, collections);
        let amounts = (since_last, self.live_bytes.get() as u64);
        let rest_is_enough = interval.is_rest_enough(now_ns, growth.idle_ns, collections, amounts);
        self.interval.set(interval);
        let restless = if passed && anything {
            IdleAction::Collect(Reason::Interval)
        } else {
            IdleAction::Nothing
        };
        let (since_ns, then) = self.looked.get();
        if since_ns == 0 || then != taken {
            self.looked.set((now_ns.max(1), taken));
            return restless;
        }
        if now_ns.saturating_sub(since_ns) < growth.idle_ns {
            restless
        } else if anything && rest_is_enough {
            IdleAction::Collect(Reason::Idle)
        } else if anything {
            restless
        } else if self.given_total.get() != Some(taken) {
            IdleAction::GiveBack
        } else {
            IdleAction::Nothing
        }
    }

    /// Sets another table, for a heap that holds `live` bytes. `spent`: the times from which a table with a share is
    /// measured.
    pub(crate) fn set_growth(&self, growth: Growth, live: usize, spent: Option<Spent>) {
        self.growth.set(growth);
        let mut factor = growth.factor_for(live, u64::MAX);
        if let Some(share) = &growth.share {
            self.pacer.begin(share, growth.factor, spent);
            factor = self.pacer.factor();
        }
        self.set_thresholds(growth.threshold_by(factor, live), live);
    }

    /// Returns the bytes taken so far, without the `unused` ones.
    fn used_total(&self, unused: usize) -> u64 {
        self.taken_total.get().saturating_sub(unused as u64)
    }

    /// Notes that everything that is free was given back. `unused`: as in [`Triggers::idle_action`].
    pub(crate) fn gave_back(&self, unused: usize) {
        self.given_total.set(Some(self.used_total(unused)));
    }

    /// Returns the bytes that will be taken before the next collection when one that began then leaves `live` bytes; by
    /// the last factor, where the table has a share. What was taken beyond the last threshold is a part of it, up to as much
    /// as until there.
    pub(crate) fn expected(&self, live: usize, started_ns: u64) -> usize {
        let growth = self.growth.get();
        let since = started_ns.saturating_sub(self.last_ns.get());
        let factor = match &growth.share {
            Some(_) => self.pacer.factor(),
            None => growth.factor_for(live, since),
        };
        let room = Room {
            base_bytes: live.saturating_add(self.client_bytes.get()),
            ..self.room.get()
        };
        let threshold = growth.threshold_by(factor, live).min(room.threshold());
        let until = threshold.saturating_sub(live);
        until + self.beyond_bytes().min(until)
    }

    /// Returns the bytes taken beyond the threshold: a collection waits for the end of a closure, and the closures of a
    /// program are much alike. What they took last time they will take again, and it is resident.
    fn beyond_bytes(&self) -> usize {
        let used = self.used_bytes.get();
        used.saturating_sub(self.threshold_bytes.get())
    }

    /// Returns the bytes that will be taken before the next collection. ([`Triggers::expected`] less what was taken.)
    pub(crate) fn wanted_bytes(&self) -> usize {
        let live = self.live_bytes.get();
        let until = self.threshold_bytes.get().saturating_sub(live);
        let wanted = until + self.beyond.get().min(until);
        wanted.saturating_sub(self.used_bytes.get().saturating_sub(live))
    }

    /// Sets new thresholds after a collection; nothing is due. The record gets its threshold, and where that came from.
    pub(crate) fn collected(
        &self,
        mut record: Collection,
        spent: Option<Spent>,
        unused: usize,
    ) -> Collection {
        let growth = self.growth.get();
        let since = record.started_ns.saturating_sub(self.last_ns.get());
        self.last_ns.set(record.started_ns);
        record.factor = growth.factor_for(record.live_bytes, since);
        if let (Some(share), Some(spent)) = (&growth.share, spent) {
            let grown = record.reason == Reason::Growth;
            record.share = self.pacer.collected(share, spent, grown);
            record.factor = self.pacer.factor();
        }
        let room = Room {
            base_bytes: record.live_bytes.saturating_add(self.client_bytes.get()),
            ..self.room.get()
        };
        self.room.set(room);
        self.beyond.set(self.beyond_bytes());
        let threshold = growth.threshold_by(record.factor, record.live_bytes);
        self.set_thresholds(threshold, record.live_bytes);
        record.threshold_bytes = self.threshold_bytes.get();
        self.used_bytes.set(record.live_bytes);
        let client = self.client_bytes.get() as f64 * growth.factor.max(1.05);
        let client = (client as usize).max(growth.client_floor_bytes);
        self.client_threshold_bytes.set(client);
        self.collected_total.set(self.used_total(unused));
        self.due.set(None);
        self.begin.set(None);
        let mut interval = self.interval.get();
        match record.reason {
            Reason::Interval | Reason::Idle => {
                interval.collected(record.before_bytes, record.live_bytes);
            }
            Reason::Growth | Reason::ClientBytes => interval.begin_anew(),
            _ => {}
        }
        self.interval.set(interval);
        self.collections.set(self.collections.get() + 1);
        let mut log = self.log.borrow_mut();
        if log.len() == LOG {
            log.pop_front();
        }
        log.push_back(record);
        record
    }
}

#[cfg(test)]
#[path = "trigger_tests.rs"]
mod tests;
