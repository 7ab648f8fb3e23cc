//! Placebo caches: buffers that are kept for reuse, while the same stack goes on acquiring new ones.
//!
//! ```text
//!   live blocks of one cell     held ─────────────────────────────  (never move)
//!                                     ╱╲╱╲╱╲╱╲  new ones of the same size come and go
//! ```
//!
//! What a trace can show: a pool that works stops acquiring once it is full: its buffers serve the requests. In a
//! pool that does not work, H buffers lie there, and the stack that made them goes on acquiring and releasing buffers
//! of the very same size, for each of which one of the H could have served. So for each cell (one stack, one size) of
//! at least [`MIN_SIZE`] bytes:
//!
//! B1  An epoch begins with H live blocks (the "held") and lasts until [`TURNOVER`] · H further blocks have been
//!     acquired (at least [`MIN_ACQUIRED`]). A released block that is older than the epoch is no longer held.
//! B2  An epoch counts if at its end at least [`MIN_HELD`] and at most [`MAX_HELD`] blocks are still held, they (and
//!     2) are nine tenths of those at its beginning, and no more than a quarter of H (and 2) had been live beside
//!     them at any moment.
//! B3  Cells with two such epochs and none that failed after the first of them are suspected.
//! B4  A pool may turn: each buffer that comes back pushes out the oldest; or it may have all sizes except the
//!     wanted one. Then no cell shows it, but the stack does: it has large buffers ([`MIN_ROTATING_SIZE`]) whose sizes
//!     differ by half at most, from [`MIN_HELD`] to [`MAX_ROTATING`] live, always about equally many, while it goes on
//!     making others. Data of which the latest are kept look the same, so nothing is promised of these.
//! B6  A pool may be larger, and its buffers of all sizes, if it turns in order: nearly each release is that of the
//!     stack's oldest buffer, and all that lived have been replaced [`TURNS`] times. That is a first-in, first-out
//!     store, whose bound is the program's to choose: it is told with that if it holds a sixteenth of live memory.
//!
//! B5  A buffer that comes to a size by growing is live there, but was not made there: the next one of its size is
//!     the same buffer on its way, or another that grows, and no pool is asked for either.
//!
//! What a trace cannot show: whether anything reads the held blocks. Long-lived data whose stack also makes
//! short-lived blocks of the same size looks the same, and so does a pool that is too small for its bursts (all of it
//! was in use whenever a new one was made), which is why it is `Possible`, nothing is promised of the held blocks,
//! and small ones (nodes, strings) are left out; a pool without a bound looks like a leak, and is not found here.
//!
//! Not here: leaks (phases.rs), blocks idle since they were written.

use rustc_hash::FxHashSet;

use crate::model::Claim;
use crate::model::{Confidence, Finding, FindingKind, Report};
use crate::pass::{Act, Block, CellId, CellKey, Context, Pass};
use crate::passes::cells::{Sites, slot};
use crate::passes::ranking::push_ranked;
use crate::passes::wording::{bytes, count};

/// The smallest buffer: programs do not pool smaller ones by hand, and objects of one type all have one size.
pub const MIN_SIZE: u64 = 1024;
/// The acquisitions for each held block that end an epoch.
pub const TURNOVER: u64 = 8;
/// The fewest acquisitions of an epoch.
pub const MIN_ACQUIRED: u64 = 64;
/// The fewest held blocks: one or two are a spare.
pub const MIN_HELD: u64 = 4;
/// The most held blocks: thousands are data.
pub const MAX_HELD: u64 = 1024;

/// The smallest buffer of a pool that rotates: small ones are messages of which the latest are kept.
pub const MIN_ROTATING_SIZE: u64 = 16 << 10;
/// The most buffers of a pool that rotates.
pub const MAX_ROTATING: u64 = 64;

/// How often a store that turns in order has been replaced (B6), and how few of its releases are in order at least:
/// all but one in so many.
pub const TURNS: u64 = 4;
const DISORDER: u32 = 8;
/// The part of live memory from which on it is worth a line (B6).
const STORE_PART: u64 = 16;

/// The pass over placebo caches; see the head of the file.
#[derive(Default)]
pub struct Placebo {
    watches: Watches,
    /// Pools by site of `sites` (B4).
    rotations: Vec<Rotation>,
    sites: Sites,
    frozen: bool,
}

/// The large buffers of one stack (B4).
#[derive(Clone, Copy, Default)]
struct Rotation {
    live: u32,
    live_bytes: u64,
    /// Live blocks and bytes at the instant.
    at_instant: (u32, u64),
    live_at_begin: u32,
    /// The fewest live blocks of the epoch; the most follow.
    least: u32,
    most: u32,
    acquired: u32,
    /// The smallest and the largest request; 0 before the first.
    sizes: (u64, u64),
    good_epochs: u32,
    reusable: u64,
    /// The sizes of the last good epoch.
    seen: (u64, u64),
    queue: Queue,
}

/// The order in which a stack's buffers go (B6).
#[derive(Clone, Copy, Default)]
struct Queue {
    /// The serial of the last one released.
    released: u32,
    releases: u32,
    /// Releases of one younger than the one before.
    in_order: u32,
    acquired: u64,
    /// Live buffers at the most, and the smallest and the largest request.
    most: u32,
    sizes: (u64, u64),
}

impl Queue {
    fn acquire(&mut self, size: u64, live: u32) {
        self.acquired += 1;
        self.most = self.most.max(live);
        let smallest = match self.sizes.0 {
            0 => size,
            known => known.min(size),
        };
        self.sizes = (smallest, self.sizes.1.max(size));
    }

    fn release(&mut self, serial: u32) {
        let younger = self.releases == 0 || serial > self.released;
        self.in_order += u32::from(younger);
        self.releases += 1;
        self.released = serial;
    }

    /// Reports whether the stack has a store that turns, with so many live at the instant.
    fn turns(&self, live: u32) -> bool {
        let live = u64::from(live);
        (MIN_HELD..=MAX_HELD).contains(&live)
            && u64::from(self.most) <= live + live / 4 + 2
            && self.acquired >= live * TURNS
            && self.in_order >= self.releases - self.releases / DISORDER
    }
}

impl Rotation {
    fn came(&mut self, key: &CellKey) {
        self.live += 1;
        self.live_bytes = self.live_bytes.saturating_add(key.usable);
        self.most = self.most.max(self.live);
    }

    fn acquire(&mut self, key: &CellKey) {
        self.came(key);
        self.acquired += 1;
        self.queue.acquire(key.size, self.live);
        let smallest = match self.sizes.0 {
            0 => key.size,
            known => known.min(key.size),
        };
        self.sizes = (smallest, self.sizes.1.max(key.size));
        if u64::from(self.acquired) >= (u64::from(self.live_at_begin) * TURNOVER).max(MIN_ACQUIRED)
        {
            self.end_epoch();
        }
    }

    fn release(&mut self, key: &CellKey, serial: u32) {
        self.queue.release(serial);
        self.live = self.live.saturating_sub(1);
        self.live_bytes = self.live_bytes.saturating_sub(key.usable);
        self.least = self.least.min(self.live);
    }

    fn end_epoch(&mut self) {
        let (least, most) = (u64::from(self.least), u64::from(self.most));
        let (smallest, largest) = self.sizes;
        let few = least >= MIN_HELD && most <= MAX_ROTATING;
        let steady = most - least <= least / 4 + 2;
        if few && steady && largest / 2 <= smallest {
            self.good_epochs += 1;
            self.reusable += u64::from(self.acquired);
            self.seen = self.sizes;
        } else {
            (self.good_epochs, self.reusable) = (0, 0);
        }
        (self.live_at_begin, self.least, self.most) = (self.live, self.live, self.live);
        (self.acquired, self.sizes) = (0, (0, 0));
    }
}

#[derive(Clone, Copy, Default)]
struct Watch {
    live: u32,
    /// Live blocks at the instant, and those of them that were held.
    at_instant: (u32, u32),
    /// Blocks held throughout the last good epoch.
    held_throughout: u32,
    /// The first serial of the epoch.
    from: u32,
    held_at_begin: u32,
    held: u32,
    most_beside: u32,
    acquired: u32,
    good_epochs: u32,
    reusable: u64,
}

impl Watch {
    #[inline]
    fn acquire(&mut self, serial: u32) {
        self.live += 1;
        self.acquired += 1;
        self.most_beside = self.most_beside.max(self.live.saturating_sub(self.held));
        let enough = (u64::from(self.held_at_begin) * TURNOVER).max(MIN_ACQUIRED);
        if u64::from(self.acquired) >= enough {
            self.end_epoch(serial.wrapping_add(1));
        }
    }

    #[inline]
    fn release(&mut self, serial: u32) {
        self.live = self.live.saturating_sub(1);
        // It is older than the epoch, in numbers that wrap.
        if (serial.wrapping_sub(self.from) as i32) < 0 {
            self.held = self.held.saturating_sub(1);
        }
    }

    /// Reports whether a new watch in its place would go on as this one: what is released is older than each epoch.
    #[inline]
    fn is_as_new(&self) -> bool {
        let nothing = self.live | self.held | self.held_at_begin | self.held_throughout;
        (nothing | self.acquired | self.most_beside | self.good_epochs) == 0
    }

    #[cold]
    fn end_epoch(&mut self, next_serial: u32) {
        let held = u64::from(self.held);
        // Two more may have been passing through when the epoch began.
        let kept = (held + 2) * 10 >= u64::from(self.held_at_begin) * 9;
        let few_beside = u64::from(self.most_beside) <= held / 4 + 2;
        if (MIN_HELD..=MAX_HELD).contains(&held) && kept && few_beside {
            self.good_epochs += 1;
            self.held_throughout = self.held;
            self.reusable += u64::from(self.acquired);
        } else {
            (self.good_epochs, self.reusable) = (0, 0);
        }
        self.from = next_serial;
        (self.held_at_begin, self.held) = (self.live, self.live);
        (self.most_beside, self.acquired) = (0, 0);
    }
}

/// The watches of the cells that have any: of those that a growing buffer only passes through none is kept (a buffer
/// that grows by a word has a cell for each step).
#[derive(Default)]
struct Watches {
    /// By cell, the number of its watch + 1; 0 is none.
    at: Vec<u32>,
    all: Vec<(CellId, Watch)>,
    /// Watches without a cell.
    spare: Vec<u32>,
}

impl Watches {
    #[inline]
    fn of(&mut self, cell: CellId) -> &mut Watch {
        let at = slot(&mut self.at, cell);
        if *at == 0 {
            let fresh = (cell, Watch::default());
            let number = self.spare.pop();
            *at = number.unwrap_or(self.all.len() as u32) + 1;
            match number {
                Some(number) => self.all[number as usize] = fresh,
                None => self.all.push(fresh),
            }
        }
        &mut self.all[*at as usize - 1].1
    }

    /// Notes a release; `frozen` watches stay, since they have the counts of the instant.
    #[inline]
    fn release(&mut self, cell: CellId, serial: u32, frozen: bool) {
        let watch = self.of(cell);
        watch.release(serial);
        if watch.is_as_new() && !frozen {
            let number = std::mem::take(slot(&mut self.at, cell)) - 1;
            self.spare.push(number);
        }
    }

    /// Returns the watches by cell.
    fn in_use(&mut self) -> impl Iterator<Item = &mut (CellId, Watch)> {
        let at = &self.at;
        let own = |number: usize, cell: CellId| at[cell.0 as usize] as usize == number + 1;
        let all = self.all.iter_mut().enumerate();
        all.filter(move |(number, (cell, _))| own(*number, *cell))
            .map(|(_, one)| one)
    }
}

impl Placebo {
    /// Creates an empty pass.
    pub fn new() -> Self {
        Self::default()
    }

    #[inline]
    fn acquired(&mut self, context: &Context<'_>, key: &CellKey, block: &Block) {
        if key.size >= MIN_SIZE {
            self.watches.of(block.cell).acquire(block.serial);
            if key.size >= MIN_ROTATING_SIZE {
                self.rotation(context, block.cell).acquire(key);
            }
        }
    }

    /// Notes that a buffer has come to this size by growing (B5).
    fn came(&mut self, context: &Context<'_>, key: &CellKey, block: &Block) {
        if key.size >= MIN_SIZE {
            self.watches.of(block.cell).live += 1;
            if key.size >= MIN_ROTATING_SIZE {
                self.rotation(context, block.cell).came(key);
            }
        }
    }

    #[inline]
    fn released(&mut self, context: &Context<'_>, key: &CellKey, block: &Block) {
        if key.size >= MIN_SIZE {
            self.watches.release(block.cell, block.serial, self.frozen);
            if key.size >= MIN_ROTATING_SIZE {
                self.rotation(context, block.cell)
                    .release(key, block.serial);
            }
        }
    }

    fn rotation(&mut self, context: &Context<'_>, cell: CellId) -> &mut Rotation {
        let site = self.sites.of(context, cell);
        slot(&mut self.rotations, CellId(site as u32))
    }
}

impl Pass for Placebo {
    fn least_bytes(&self) -> u64 {
        MIN_SIZE
    }

    #[inline]
    fn act(&mut self, context: &Context<'_>, act: &Act) {
        match act {
            Act::Acquire { block, .. } => self.acquired(context, &context.key, block),
            Act::Release { block, .. } => self.released(context, &context.key, block),
            Act::Regrow { old, new } => {
                self.released(context, &context.cell(old.cell), old);
                self.came(context, &context.key, new);
            }
            Act::Mark { .. } => {}
        }
    }

    fn at_instant(&mut self, _context: &Context<'_>) {
        for (_, watch) in self.watches.in_use() {
            watch.at_instant = (watch.live, watch.held.min(watch.live));
        }
        for rotation in &mut self.rotations {
            rotation.at_instant = (rotation.live, rotation.live_bytes);
        }
        self.frozen = true;
    }

    fn finish(mut self: Box<Self>, context: &Context<'_>, report: &mut Report) {
        if !self.frozen {
            self.at_instant(context);
        }
        let suspected = self.watches.in_use();
        let mut suspected: Vec<_> = suspected
            .filter(|(_, watch)| watch.good_epochs >= 2)
            .collect();
        suspected.sort_unstable_by_key(|(cell, _)| *cell);
        let mut findings: Vec<_> = suspected
            .into_iter()
            .map(|(cell, watch)| finding(context, *cell, watch))
            .collect();
        let told: FxHashSet<u32> = findings.iter().filter_map(|one| one.node).collect();
        for (site, rotation) in self.rotations.iter().enumerate().take(self.sites.len()) {
            let node = self.sites.node(site).0;
            if told.contains(&node) {
                continue;
            }
            if rotation.good_epochs >= 2 {
                findings.push(rotating(node, rotation));
                continue;
            }
            let (live, held) = rotation.at_instant;
            let of = report.instants.get(report.at);
            let is_much = of.is_some_and(|one| held >= one.live_usable_bytes / STORE_PART);
            if is_much && rotation.queue.turns(live) {
                let (acquired, sizes) = (rotation.queue.acquired, rotation.queue.sizes);
                findings.push(rotating(
                    node,
                    &Rotation {
                        reusable: acquired - u64::from(live),
                        seen: sizes,
                        ..*rotation
                    },
                ));
            }
        }
        push_ranked(report, findings);
    }
}

/// Makes the finding on a pool that rotates, or has other sizes than the wanted ones (B4).
fn rotating(node: u32, rotation: &Rotation) -> Finding {
    let (live, live_bytes) = rotation.at_instant;
    let sizes = match rotation.seen {
        (smallest, largest) if smallest == largest => bytes(largest),
        (smallest, largest) => format!("{} to {}", bytes(smallest), bytes(largest)),
    };
    Finding {
        kind: FindingKind::Placebo,
        title: format!("Buffers of {sizes} are kept while others are made"),
        what: format!(
            "This stack keeps {} of {sizes}, {} in all, always about as many, and went on making others: {}, none of which one of the kept ones served. It looks like a pool that is asked for another size, or not asked; it may also be data of which the latest are kept.",
            count(u64::from(live), "buffer"),
            bytes(live_bytes),
            count(rotation.reusable, "acquisition"),
        ),
        change: "If this is a pool, take any buffer from it that is large enough, and keep no more than are used at a time."
            .to_owned(),
        now_bytes: live_bytes,
        saved_allocations: rotation.reusable,
        blocks: u64::from(live),
        confidence: Confidence::Possible,
        node: Some(node),
        ..Finding::default()
    }
}

fn finding(context: &Context<'_>, cell: CellId, watch: &Watch) -> Finding {
    let key = context.cell(cell);
    // That it is suspected shows by the end, and so does how many lie there: an epoch that is under way at the
    // instant may have begun before the pool was full.
    let (live, held) = watch.at_instant;
    let idle = u64::from(held.max(watch.held_throughout.min(live)));
    let now = idle * key.usable;
    Finding {
        kind: FindingKind::Placebo,
        // The title has no count: findings of one function are merged, which changes the count.
        title: format!(
            "Buffers of {} lie idle while more of that size are made",
            bytes(key.size),
        ),
        what: format!(
            "This stack made {} of {} that were held throughout, and went on making and releasing buffers of the very same size, at most a few at a time: over {} the held ones never served one of them. It looks like a pool that is filled and not asked; it may also be data that lives long, or a pool that was always in use when another was made.",
            count(idle, "buffer"),
            bytes(key.size),
            count(watch.reusable, "acquisition"),
        ),
        change: "If this is a pool, take from it before allocating, or drop it.".to_owned(),
        now_bytes: now,
        saved_allocations: watch.reusable,
        blocks: idle,
        confidence: Confidence::Possible,
        node: Some(key.node.0),
        claims: vec![Claim {
            key,
            blocks: idle,
            bytes: 0,
        }],
        ..Finding::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::driver::{Driver, glibc};
    use std::collections::VecDeque;

    fn driver() -> Driver {
        Driver::new(Placebo::new(), glibc)
    }

    #[test]
    fn a_pool_that_is_filled_and_never_asked() {
        let mut d = driver();
        // A released buffer goes into a pool of 10; the request path always makes a new one.
        let mut pool = Vec::new();
        for _ in 0..2000 {
            let buffer = d.alloc(1, 4096);
            if pool.len() < 10 {
                pool.push(buffer);
            } else {
                d.free(buffer);
            }
        }
        let found = d.finish().findings;
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!(
            (found[0].node, found[0].blocks, found[0].confidence),
            (Some(1), 10, Confidence::Possible)
        );
        // Layers of a picture and a scratch of their size look the same: nothing is promised.
        assert_eq!((found[0].now_bytes, found[0].saved_bytes), (10 * 4104, 0));
        // Nor are they told to be smaller: of a pool that is dropped nothing is left to be.
        assert_eq!(
            (found[0].claims[0].blocks, found[0].claims[0].bytes),
            (10, 0)
        );
        assert!(
            found[0].saved_allocations > 1500,
            "{}",
            found[0].saved_allocations
        );
    }

    #[test]
    fn a_buffer_that_grows_by_steps_needs_one_watch() {
        let mut watches = Watches::default();
        for step in 1..1000u32 {
            watches.of(CellId(step)).live += 1;
            watches.release(CellId(step - 1), step, false);
        }
        assert_eq!((watches.all.len(), watches.in_use().count()), (2, 1));
        // A size of which a block was acquired in this epoch stays, and so does one that was counted at the instant.
        watches.of(CellId(5)).acquire(1001);
        watches.release(CellId(5), 1001, false);
        watches.release(CellId(999), 1002, true);
        let mut cells: Vec<_> = watches.in_use().map(|(cell, _)| cell.0).collect();
        cells.sort_unstable();
        assert_eq!(cells, [5, 999]);
    }

    #[test]
    fn a_pool_that_works_stops_acquiring() {
        let mut d = driver();
        let mut pool = Vec::new();
        for i in 0..2000u32 {
            // Up to 12 in use at a time, all returned to the pool.
            let mut used: Vec<_> = (0..1 + i % 12)
                .map(|_| pool.pop().unwrap_or_else(|| d.alloc(1, 4096)))
                .collect();
            pool.append(&mut used);
        }
        assert_eq!(pool.len(), 12);
        assert!(d.finish().findings.is_empty());
    }

    #[test]
    fn a_cache_that_evicts_is_none() {
        let mut d = driver();
        let mut lru = VecDeque::new();
        for _ in 0..5000 {
            lru.push_back(d.alloc(1, 4096));
            if lru.len() > 50 {
                let oldest = lru.pop_front().expect("51");
                d.free(oldest);
            }
        }
        assert!(d.finish().findings.is_empty());
    }

    /// A pool of so many buffers that rotates; the sizes are drawn from `least` on, `spread` wide.
    fn rotating_pool(many: usize, least: u64, spread: u64) -> Vec<Finding> {
        let (mut d, mut pool) = (driver(), VecDeque::new());
        for i in 0..3000u64 {
            pool.push_back(d.alloc(1, least + i * 7919 % spread));
            if pool.len() > many {
                let oldest = pool.pop_front().expect("one more");
                d.free(oldest);
            }
        }
        d.finish().findings
    }

    #[test]
    fn a_pool_that_turns_is_told_and_nothing_is_promised_of_it() {
        let found = rotating_pool(32, 70_000, 40_000);
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!(
            (found[0].node, found[0].saved_bytes, found[0].blocks),
            (Some(1), 0, 32)
        );
        assert!(
            found[0].saved_allocations > 2500,
            "{}",
            found[0].saved_allocations
        );
        // All of one size, too.
        assert_eq!(rotating_pool(32, 70_000, 1).len(), 1);
        // A spare or two, data, messages, and sizes of which few would fit.
        assert_eq!(rotating_pool(3, 70_000, 40_000).len(), 0);
        assert_eq!(rotating_pool(64, 70_000, 40_000).len(), 0);
        assert_eq!(rotating_pool(32, 10_000, 6000).len(), 0);
        assert_eq!(rotating_pool(32, 20_000, 40_000).len(), 0);
    }

    #[test]
    fn a_pool_of_all_sizes_that_is_never_asked() {
        let (mut d, mut pool) = (driver(), Vec::new());
        for i in 0..3000u64 {
            let buffer = d.alloc(1, 70_000 + i * 7919 % 40_000);
            if pool.len() < 24 {
                pool.push(buffer);
            } else {
                d.free(buffer);
            }
        }
        assert_eq!(d.finish().findings.len(), 1);
        // One whose buffers all are in use in a rush, and none at its end.
        let mut d = driver();
        for rush in 0..200u64 {
            let busy: Vec<_> = (0..8 + rush % 24).map(|_| d.alloc(1, 70_000)).collect();
            busy.into_iter().for_each(|block| d.free(block));
        }
        assert_eq!(d.finish().findings.len(), 0);
    }

    #[test]
    fn a_store_that_turns_in_order_may_have_many_buffers_of_all_sizes() {
        let turns = |places: u32, acquired: u32, order: fn(u32) -> u32| {
            let mut queue = Queue::default();
            for made in 0..acquired {
                queue.acquire(
                    MIN_ROTATING_SIZE + u64::from(made) * 97,
                    (made + 1).min(places),
                );
                if made >= places {
                    queue.release(order(made - places));
                }
            }
            queue.turns(places)
        };
        assert!(turns(300, 1200, |oldest| oldest));
        assert!(!turns(300, 1199, |oldest| oldest), "not yet four times");
        assert!(!turns(3, 1200, |oldest| oldest), "spares");
        // Some go before their time, and all do.
        let some = |at: u32| if at.is_multiple_of(16) { 0 } else { at };
        assert!(turns(300, 1200, some));
        assert!(!turns(300, 1200, |at| if at % 4 == 0 { 0 } else { at }));
        assert!(!turns(300, 1200, |at| at * 7919 % 1200));
    }

    #[test]
    fn a_stock_that_is_used_up_beside_temporaries_is_none() {
        let mut d = driver();
        let mut stock: Vec<_> = (0..200).map(|_| d.alloc(1, 4096)).collect();
        // An epoch of 1,600 acquisitions takes 100 of the 200: they are not held throughout.
        for i in 0..2600 {
            let temporary = d.alloc(1, 4096);
            d.free(temporary);
            if i % 16 == 0
                && let Some(used) = stock.pop()
            {
                d.free(used);
            }
        }
        assert!(d.finish().findings.is_empty());
    }

    #[test]
    fn growing_data_temporaries_and_small_blocks_are_none() {
        let mut d = driver();
        // Data that grows for ever, with a temporary beside each block of it.
        for _ in 0..5000 {
            d.keep(1, 4096);
            let temporary = d.alloc(1, 4096);
            d.free(temporary);
        }
        // Temporaries alone.
        for _ in 0..5000 {
            let temporary = d.alloc(2, 4096);
            d.free(temporary);
        }
        // Nodes: held and temporary, but small.
        (0..20).for_each(|_| d.keep(3, 64));
        for _ in 0..5000 {
            let temporary = d.alloc(3, 64);
            d.free(temporary);
        }
        // Held and temporary, of different sizes.
        (0..20).for_each(|_| d.keep(4, 2048));
        for _ in 0..5000 {
            let temporary = d.alloc(4, 4096);
            d.free(temporary);
        }
        assert!(d.finish().findings.is_empty());
    }

    #[test]
    fn a_pool_that_is_emptied_at_last_is_cleared_of_suspicion_only_now() {
        let mut d = driver();
        let pool: Vec<_> = (0..10).map(|_| d.alloc(1, 4096)).collect();
        for _ in 0..2000 {
            let temporary = d.alloc(1, 4096);
            d.free(temporary);
        }
        d.instant();
        pool.into_iter().for_each(|block| d.free(block));
        let found = d.finish().findings;
        // Suspected over the run, with what it held at the instant.
        assert_eq!((found.len(), found[0].now_bytes), (1, 10 * 4104));
    }

    #[test]
    fn a_pool_that_turns_is_of_large_buffers_and_says_their_sizes() {
        let title = |least, spread| {
            let found = rotating_pool(32, least, spread);
            found.first().map(|one| one.title.clone())
        };
        let told = |sizes: &str| Some(format!("Buffers of {sizes} are kept while others are made"));
        assert_eq!(title(MIN_ROTATING_SIZE, 1), told("16.0 KiB"));
        assert_eq!(title(MIN_ROTATING_SIZE - 1, 1), None);
        assert_eq!(title(20_480, 4097), told("20.0 KiB to 24.0 KiB"));
    }
}
