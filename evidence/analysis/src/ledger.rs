//! The ledger: which block lives where, what it cost, and how much lived at the peak.
//!
//! ```text
//!   Event ──► BlockMap (address → block) ──► Act ──► sink (the passes)
//!               ├─► Cells   live, ever, live at the heap peak
//!               ├─► Curve   the heap over time
//!               └─► threads, maps, pages of blocks
//! ```
//!
//! G1  `live` is the sum over the map and the parked blocks, always; cells add up to it.
//! G2  A block whose realloc is under way is parked with its thread: it counts as live, but its address is free for
//!     other blocks (trace::event.E2). It stays live if the trace ends there.
//! G3  An acquisition at the address of a live block means that a release was lost: the old block is
//!     closed first, as a release by the same thread, and counted.
//! G4  Blocks inherited over a fork live, but the process did not acquire them: passes never see them.
//!
//! What most events take is inlined by order: left to the compiler, blocks and keys went from function to function
//! through memory, some 60 of 480 instructions an event (callgrind, sqlite3, 2026-11-23).
//!
//! Not here: instants and books (`schedule.rs`, `books.rs`).

use rustc_hash::FxHashMap;
use skinflint_trace::{AllocFn, BREAK_FLAGS, Event, EventKind, FreeFn, NodeId, ThreadId, is_arena};

use crate::block::{Block, CellId, CellKey, INHERITED, NO_KEY};
use crate::blocks::BlockMap;
use crate::cells::Cells;
use crate::covered::Covered;
use crate::maps::{BlockPages, Intervals, Owner};
use crate::pass::{Act, Context};
pub use crate::sums::{Counts, HeapPeak, Live};
use crate::timeline::Curve;
use crate::unseen::{Looks, Unexplained, Unseen};

/// Stands for no hint.
pub(crate) const NO_HINT: u32 = u32::MAX;
/// The most threads of one process that are distinguished; a damaged trace may name any.
const MAX_THREADS: usize = 1 << 20;
/// No program has sizes or addresses from this limit on: the event is damaged. (x86-64 has 47 bits, aarch64 48.)
const ADDRESS_LIMIT: u64 = 1 << 48;

/// The counts of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ThreadCount {
    /// Blocks acquired.
    pub allocations: u64,
    /// Requested bytes.
    pub requested_bytes: u64,
    /// Blocks released that another thread had acquired.
    pub remote_frees: u64,
    parked: Parked,
}

/// The first half of a realloc (G2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Parked {
    #[default]
    Nothing,
    UnknownBlock,
    Block(Block),
}

/// The live map and its counts.
#[derive(Clone, Debug)]
pub struct Ledger {
    pub(crate) blocks: BlockMap,
    pub(crate) cells: Cells,
    threads: Vec<ThreadCount>,
    live: Live,
    peak: HeapPeak,
    /// The most live bytes since the mark before.
    highest_since_mark: u64,
    counts: Counts,
    pub(crate) curve: Curve,
    intervals: Intervals,
    block_pages: BlockPages,
    /// Snapshots whose pages without a block are followed.
    looks: Looks,
    /// The known pages of a process that was not recorded from its birth.
    covered: Option<Box<Covered>>,
    /// The parent's reallocs under way, while its events are read; `None` after our own events began.
    inheriting: Option<FxHashMap<ThreadId, Parked>>,
    /// Where the stacks of the process that events are inherited from begin; `None` if they are not told apart.
    stacks_from: Option<u32>,
    now_ns: u64,
    /// Where the look ahead found what the event needs (`ahead.rs`).
    pub(crate) hint: u32,
}

impl Ledger {
    /// Creates an empty ledger; the heap curve will have at most this many points.
    pub fn new(timeline_points: usize) -> Ledger {
        Ledger {
            blocks: BlockMap::default(),
            cells: Cells::default(),
            threads: Vec::new(),
            live: Live::default(),
            peak: HeapPeak::default(),
            highest_since_mark: 0,
            counts: Counts::default(),
            curve: Curve::new(timeline_points),
            intervals: Intervals::default(),
            block_pages: BlockPages::default(),
            looks: Looks::default(),
            covered: None,
            inheriting: Some(FxHashMap::default()),
            stacks_from: None,
            now_ns: 0,
            hint: NO_HINT,
        }
    }

    /// Takes an event and hands its acts to `sink`, in order. Cost: some 30 ns if the tables are in cache.
    #[inline]
    pub fn apply(&mut self, event: &Event, sink: &mut impl FnMut(&Context<'_>, &Act)) {
        if self.inheriting.is_some() {
            self.end_inheritance();
        }
        self.counts.events += 1;
        if event.time_ns > self.now_ns {
            self.now_ns = event.time_ns;
            self.curve.advance(event.time_ns, &self.live);
        }
        match event.kind {
            EventKind::Alloc {
                func,
                node,
                addr,
                size,
                usable,
            } => {
                let key = CellKey {
                    node,
                    size,
                    usable: usable.max(size),
                };
                self.acquire(event, addr, key, func, sink);
            }
            EventKind::Free { func, addr } => match self.blocks.remove_at(self.hint as usize, addr)
            {
                Some(block) => self.release(event, block, func, sink),
                None => self.counts.unknown_frees += u64::from(addr != 0),
            },
            _ => self.apply_slow(event, sink),
        }
    }

    /// Takes any event except `Alloc` and `Free`.
    #[inline(never)]
    fn apply_slow(&mut self, event: &Event, sink: &mut impl FnMut(&Context<'_>, &Act)) {
        match event.kind {
            EventKind::ReallocRelease { addr } => self.realloc_release(event, addr, sink),
            EventKind::ReallocAcquire {
                node,
                addr,
                size,
                usable,
            } => {
                let key = CellKey {
                    node,
                    size,
                    usable: usable.max(size),
                };
                self.realloc_acquire(event, addr, key, sink);
            }
            EventKind::ReallocCancel { addr } => self.realloc_cancel(event, addr, sink),
            EventKind::Mark { mark } => {
                let context = Context {
                    cells: self.cells.keys(),
                    blocks: &[],
                    key: NO_KEY,
                    site: 0,
                    time_ns: event.time_ns,
                    ticket: event.ticket,
                };
                sink(&context, &Act::Mark { mark });
            }
            EventKind::Map {
                len,
                by_allocator: false,
                ..
            } => {
                self.counts.maps += 1;
                self.counts.map_bytes = self.counts.map_bytes.saturating_add(len);
                self.map(event, None);
            }
            _ => self.map(event, None),
        }
    }

    #[inline(always)]
    fn acquire(
        &mut self,
        event: &Event,
        addr: u64,
        key: CellKey,
        func: AllocFn,
        sink: &mut impl FnMut(&Context<'_>, &Act),
    ) {
        if addr == 0 || (addr | key.usable) >= ADDRESS_LIMIT {
            self.counts.damaged_events += 1;
            return;
        }
        let block = self.new_block(event, addr, &key);
        if let Some(old) = self.blocks.insert(block) {
            self.lost_free(event, old, sink);
        }
        self.count_acquired(event, &block, &key);
        self.live.add(&key);
        self.curve.acquired(&self.live);
        self.see_peak(event);
        sink(
            &self.context(event, block.cell),
            &Act::Acquire { block, func },
        );
    }

    #[inline]
    fn new_block(&mut self, event: &Event, addr: u64, key: &CellKey) -> Block {
        let cell = self.cells.intern_at(self.hint, *key);
        let serial = self.counts.allocations as u32;
        Block::new(addr, cell, event.thread, event.time_ns / 1000, serial)
    }

    /// Counts what an acquisition and a regrowth have in common; the caller counts the live heap.
    #[inline(always)]
    fn count_acquired(&mut self, event: &Event, block: &Block, key: &CellKey) {
        self.block_pages.touch(block.addr, key.usable);
        if let Some(covered) = &mut self.covered {
            covered.cover(block.addr, key.usable);
        }
        self.cells.acquire(block.cell, block.serial, event.time_ns);
        self.counts.allocations += 1;
        self.counts.requested_bytes = self.counts.requested_bytes.wrapping_add(key.size);
        self.counts.usable_bytes = self.counts.usable_bytes.wrapping_add(key.usable);
        let thread = self.thread(event.thread);
        thread.allocations += 1;
        thread.requested_bytes = thread.requested_bytes.wrapping_add(key.size);
    }

    #[inline]
    fn see_peak(&mut self, event: &Event) {
        self.highest_since_mark = self.highest_since_mark.max(self.live.usable_bytes);
        if self.live.usable_bytes > self.peak.live.usable_bytes {
            self.peak = HeapPeak {
                live: self.live,
                ticket: event.ticket,
                time_ns: event.time_ns,
                events: self.counts.events,
            };
            self.cells.new_peak();
        }
    }

    #[inline(always)]
    fn release(
        &mut self,
        event: &Event,
        block: Block,
        func: FreeFn,
        sink: &mut impl FnMut(&Context<'_>, &Act),
    ) {
        let key = self.cells.key(block.cell);
        self.live.sub(&key);
        self.counts.frees += 1;
        if !block.is_of(event.thread) {
            if block.is_inherited() {
                self.cells.regrown(block.cell);
                return;
            }
            self.thread(event.thread).remote_frees += 1;
        }
        let next = self.counts.allocations as u32;
        self.cells.release(block.cell, block.serial, next);
        sink(
            &self.context(event, block.cell),
            &Act::Release {
                block,
                func,
                by: event.thread,
            },
        );
    }

    /// Closes the old block at an address whose release was lost (G3).
    #[cold]
    fn lost_free(&mut self, event: &Event, old: Block, sink: &mut impl FnMut(&Context<'_>, &Act)) {
        self.counts.lost_frees += 1;
        let by_owner = Event {
            thread: old.thread(),
            ..*event
        };
        self.release(&by_owner, old, FreeFn::Free, sink);
    }

    fn realloc_release(
        &mut self,
        event: &Event,
        addr: u64,
        sink: &mut impl FnMut(&Context<'_>, &Act),
    ) {
        let parked = match self.blocks.remove_at(self.hint as usize, addr) {
            Some(block) => Parked::Block(block),
            None => {
                self.counts.unknown_frees += 1;
                Parked::UnknownBlock
            }
        };
        let before = std::mem::replace(&mut self.thread(event.thread).parked, parked);
        if before != Parked::Nothing {
            // The end of the realloc was lost. Success is the rule, so the old block is gone.
            self.counts.lost_reallocs += 1;
            if let Parked::Block(block) = before {
                self.release(event, block, FreeFn::Realloc, sink);
            }
        }
    }

    fn realloc_acquire(
        &mut self,
        event: &Event,
        addr: u64,
        key: CellKey,
        sink: &mut impl FnMut(&Context<'_>, &Act),
    ) {
        if addr == 0 || (addr | key.usable) >= ADDRESS_LIMIT {
            self.counts.damaged_events += 1;
            return;
        }
        let old = match std::mem::take(&mut self.thread(event.thread).parked) {
            Parked::Block(old) => old,
            parked => {
                self.counts.lost_reallocs += u64::from(parked == Parked::Nothing);
                return self.acquire(event, addr, key, AllocFn::Realloc, sink);
            }
        };
        let new = self.new_block(event, addr, &key);
        if let Some(there) = self.blocks.insert(new) {
            self.lost_free(event, there, sink);
        }
        let old_key = self.cells.key(old.cell);
        self.cells.regrown(old.cell);
        self.live.sub(&old_key);
        self.counts.frees += 1;
        self.counts.reallocs += 1;
        let inherited = old.is_inherited();
        if !old.is_of(event.thread) && !inherited {
            self.thread(event.thread).remote_frees += 1;
        }
        self.count_acquired(event, &new, &key);
        self.live.add(&key);
        self.curve.acquired(&self.live);
        self.see_peak(event);
        let act = match inherited {
            true => Act::Acquire {
                block: new,
                func: AllocFn::Realloc,
            },
            false => Act::Regrow { old, new },
        };
        sink(&self.context(event, new.cell), &act);
    }

    fn realloc_cancel(
        &mut self,
        event: &Event,
        addr: u64,
        sink: &mut impl FnMut(&Context<'_>, &Act),
    ) {
        match std::mem::take(&mut self.thread(event.thread).parked) {
            Parked::Block(old) => {
                if let Some(there) = self.blocks.insert(old) {
                    self.lost_free(event, there, sink);
                }
                // A cancel that names another block than the parked one is a sign of damage.
                self.counts.lost_reallocs += u64::from(old.addr != addr);
            }
            // It was counted as a release of an unknown block, and none took place.
            Parked::UnknownBlock => self.counts.unknown_frees -= 1,
            Parked::Nothing => self.counts.lost_reallocs += 1,
        }
    }

    fn map(&mut self, event: &Event, node_instead: Option<NodeId>) {
        let node_or = |node| node_instead.unwrap_or(node);
        match event.kind {
            EventKind::Map {
                node,
                addr,
                len,
                by_allocator,
                flags,
                ..
            } => {
                self.intervals.map(
                    addr,
                    len,
                    Owner {
                        node: node_or(node),
                        by_allocator,
                        by_break: flags == BREAK_FLAGS,
                        arena: by_allocator && is_arena(flags),
                    },
                );
                if !by_allocator {
                    self.forget_blocks(addr, len);
                }
            }
            EventKind::Unmap { addr, len, .. } => {
                self.intervals.unmap(addr, len);
                self.forget_blocks(addr, len);
            }
            EventKind::Remap {
                node,
                old_addr,
                old_len,
                new_addr,
                new_len,
            } => {
                let owner = self.intervals.unmap(old_addr, old_len);
                let own = Owner {
                    node: node_or(node),
                    by_allocator: false,
                    by_break: false,
                    arena: false,
                };
                self.intervals.map(new_addr, new_len, owner.unwrap_or(own));
            }
            _ => {}
        }
    }

    #[inline]
    fn thread(&mut self, id: ThreadId) -> &mut ThreadCount {
        let index = (id.0 as usize).min(MAX_THREADS);
        if index >= self.threads.len() {
            self.threads.resize(index + 1, ThreadCount::default());
        }
        &mut self.threads[index]
    }

    #[inline]
    fn context(&self, event: &Event, cell: CellId) -> Context<'_> {
        Context {
            cells: self.cells.keys(),
            blocks: &[],
            key: self.cells.key(cell),
            site: self.cells.site_of(cell) as u32,
            time_ns: event.time_ns,
            ticket: event.ticket,
        }
    }

    /// Takes an event of the parent before the fork, or of a process that the parent was copied from (G4). Ignored
    /// after events of our own came.
    pub fn inherit(&mut self, event: &Event) {
        let Some(mut parked) = self.inheriting.take() else {
            return;
        };
        match event.kind {
            EventKind::Alloc {
                node,
                addr,
                size,
                usable,
                ..
            } => self.inherit_block(node, addr, (size, usable)),
            EventKind::Free { addr, .. } => _ = self.disinherit(addr),
            EventKind::ReallocRelease { addr } => {
                if let Some(block) = self.disinherit(addr) {
                    parked.insert(event.thread, Parked::Block(block));
                }
            }
            EventKind::ReallocAcquire {
                node,
                addr,
                size,
                usable,
                ..
            } => {
                parked.remove(&event.thread);
                self.inherit_block(node, addr, (size, usable));
            }
            EventKind::ReallocCancel { .. } => {
                if let Some(Parked::Block(block)) = parked.remove(&event.thread) {
                    self.inherit_again(block);
                }
            }
            EventKind::Map { node, .. } | EventKind::Remap { node, .. } => {
                let node = self.inherited(node);
                self.map(event, Some(node));
            }
            _ => self.map(event, Some(INHERITED)),
        }
        self.inheriting = Some(parked);
    }

    /// Notes where the stacks of the process that comes next begin among those of the report; `None` if they are not
    /// told apart.
    pub fn inherit_stacks(&mut self, from: Option<u32>) {
        self.stacks_from = from;
    }

    /// Returns what a stack of the process that events are inherited from is here.
    fn inherited(&self, node: NodeId) -> NodeId {
        let own = self.stacks_from.and_then(|from| from.checked_add(node.0));
        own.map_or(INHERITED, NodeId)
    }

    fn inherit_block(&mut self, node: NodeId, addr: u64, (size, usable): (u64, u64)) {
        let key = CellKey {
            node: self.inherited(node),
            size,
            usable: usable.max(size),
        };
        if addr == 0 || (addr | key.usable) >= ADDRESS_LIMIT {
            return;
        }
        self.disinherit(addr);
        let cell = self.cells.intern(key);
        self.inherit_again(Block::inherited(addr, cell));
    }

    fn inherit_again(&mut self, block: Block) {
        let key = self.cells.key(block.cell);
        if self.blocks.insert(block).is_none() {
            self.block_pages.touch(block.addr, key.usable);
            self.cells.inherit(block.cell);
            self.live.add(&key);
        }
    }

    fn disinherit(&mut self, addr: u64) -> Option<Block> {
        let block = self.blocks.remove(addr)?;
        self.cells.regrown(block.cell);
        self.live.sub(&self.cells.key(block.cell));
        Some(block)
    }

    /// Notes that the ancestor whose events came forked, and that the copy's own come next: threads are numbered
    /// anew.
    pub fn inherit_fork(&mut self) {
        if let Some(parked) = self.inheriting.as_mut() {
            let parked = std::mem::take(parked);
            self.keep_parked(parked);
        }
    }

    /// Keeps the blocks of reallocs of other threads, which a copy does not have.
    fn keep_parked(&mut self, parked: FxHashMap<ThreadId, Parked>) {
        for state in parked.into_values() {
            if let Parked::Block(block) = state
                && self.blocks.get(block.addr).is_none()
            {
                self.inherit_again(block);
            }
        }
    }

    /// Begins our own run: what the parent left is the level at the start.
    #[cold]
    pub(crate) fn end_inheritance(&mut self) {
        let Some(parked) = self.inheriting.take() else {
            return;
        };
        self.keep_parked(parked);
        self.peak.live = self.live;
        self.highest_since_mark = self.live.usable_bytes;
        self.cells.new_peak();
        self.curve.start(&self.live);
    }

    /// Returns how much lives now.
    pub fn live(&self) -> Live {
        self.live
    }

    /// Returns the largest live heap so far.
    pub fn heap_peak(&self) -> HeapPeak {
        self.peak
    }

    /// Returns the most live bytes since it was last asked, or since the start.
    pub(crate) fn take_highest(&mut self) -> u64 {
        std::mem::replace(&mut self.highest_since_mark, self.live.usable_bytes)
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the cells and sites.
    pub fn cells(&self) -> &Cells {
        &self.cells
    }

    /// Returns the threads that did anything, by id.
    pub fn threads(&self) -> &[ThreadCount] {
        &self.threads
    }

    /// Returns what the program mapped.
    pub fn intervals(&self) -> &Intervals {
        &self.intervals
    }

    /// Watches pages from now on, for a process that was not recorded from its birth.
    pub(crate) fn watch(&mut self, covered: Covered) {
        self.covered = Some(Box::new(covered));
    }

    /// Returns which pages are known from end to end; `None` if all are.
    pub(crate) fn covered(&self) -> Option<&Covered> {
        self.covered.as_deref()
    }

    fn forget_blocks(&mut self, addr: u64, len: u64) {
        if !self.looks.is_empty() {
            self.looks.forget(addr, len, &self.block_pages);
        }
        self.block_pages.forget(addr, len);
        if let Some(covered) = &mut self.covered {
            covered.forget(addr, len);
        }
    }

    /// Returns the pages on which blocks have been.
    pub fn block_pages(&self) -> &BlockPages {
        &self.block_pages
    }

    /// Follows the pages without a recorded block of a snapshot whose reading ended at `read_ns`.
    pub(crate) fn follow(&mut self, unseen: Unseen, read_ns: u64) {
        self.looks.follow(unseen, read_ns);
    }

    /// Judges the snapshots that were followed for long enough by now; returns when the next one will be.
    pub(crate) fn settle_looks(&mut self, now_ns: u64) -> u64 {
        self.looks.settle(now_ns, &self.block_pages);
        self.looks.until_ns()
    }

    /// Returns the most heap memory that stayed unexplained at a snapshot.
    pub(crate) fn unexplained(&self) -> Unexplained {
        self.looks.most(&self.block_pages)
    }

    /// Returns the latest time seen, nanoseconds since the start.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Returns the number of reallocs under way.
    pub fn parked_blocks(&self) -> u64 {
        self.threads
            .iter()
            .filter(|thread| thread.parked != Parked::Nothing)
            .count() as u64
    }

    /// Returns all live blocks, including the parked ones (G2), in no particular order.
    pub fn live_blocks(&self) -> impl Iterator<Item = &Block> {
        self.live_at().map(|(_, block)| block)
    }

    /// Returns all live blocks, each with a number below [`Ledger::slots`]: it stays the same until the next event.
    pub(crate) fn live_at(&self) -> impl Iterator<Item = (u32, &Block)> {
        let behind = self.blocks.slots() as u32;
        let parked = self.threads.iter().zip(behind..);
        let parked = parked.filter_map(|(thread, slot)| match &thread.parked {
            Parked::Block(block) => Some((slot, block)),
            _ => None,
        });
        self.blocks.iter_at().chain(parked)
    }

    /// Returns a bound that every number of [`Ledger::live_at`] is below.
    pub(crate) fn slots(&self) -> usize {
        self.blocks.slots() + self.threads.len()
    }

    /// Returns the bytes that the live map holds.
    pub fn map_table_bytes(&self) -> usize {
        self.blocks.table_bytes()
    }
}
