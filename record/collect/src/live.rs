//! What lives in a recorded process: what a new segment of its trace begins with.
//!
//! ```text
//!   pass n: events of all threads ─► waiting ─ pass n + 1 was read ─► by tickets ─► blocks, mappings, reallocs under way
//!   segment: mappings (ticket 0), blocks (1), reallocs under way (2) │ what still waits, as it came
//! ```
//!
//! A1  An event at an address is published before a later one there takes its ticket: releases are recorded before the real
//!     call, acquisitions after it. So when all rings were read once more after a pass, whatever came before its events at
//!     their addresses is here, and what it met is applied in the order of tickets.
//! A2  What still waits begins the segment as it came: an event that is read later fits in by its ticket.
//! A3  The first part shares three tickets, lower than any that can still come: no order among its blocks is claimed.
//! A4  Memory: 24 bytes a block in a table that is filled to between 3/8 and 3/4; events of two passes.
//!
//! Not here: when a segment begins (drain/turning.rs), its file (segments.rs).

mod blocks;
mod mapped;

use std::collections::BTreeMap;

use skinflint_trace::{AllocFn, Event, EventEncoder, EventKind, NodeId, RawBlock, ThreadId};

use blocks::{Block, Blocks};
use mapped::Mapped;

/// What lives, and what is not yet in order.
pub struct Live {
    blocks: Blocks,
    mapped: Mapped,
    /// By thread, the old blocks of reallocs under way; `None` if the block is not known.
    parked: BTreeMap<u32, Option<Block>>,
    /// Events that are not applied yet; the first `older` were here before the last pass.
    waiting: Vec<Event>,
    older: usize,
    acquired: u64,
    acquired_bytes: u64,
}

/// The events that a segment begins with.
pub struct Beginning {
    /// As blocks of a trace, each of one thread.
    pub blocks: Vec<RawBlock>,
    /// Their number.
    pub events: u64,
    /// The blocks that live, those of what still waits included.
    pub live: u64,
    /// Their requested bytes.
    pub live_bytes: u64,
    /// The acquisitions so far.
    pub acquired: u64,
    /// Their requested bytes.
    pub acquired_bytes: u64,
}

/// Reports whether an event changes what lives.
#[inline]
pub fn is_of_memory(kind: &EventKind) -> bool {
    !matches!(
        kind,
        EventKind::Mark { .. }
            | EventKind::Fork { .. }
            | EventKind::Brk { .. }
            | EventKind::Advise { .. }
    )
}

impl Live {
    /// Creates a list of nothing.
    pub fn new() -> Live {
        Live {
            blocks: Blocks::new(),
            mapped: Mapped::default(),
            parked: BTreeMap::new(),
            waiting: Vec::new(),
            older: 0,
            acquired: 0,
            acquired_bytes: 0,
        }
    }

    /// Takes events of a thread, in their order, out of a list.
    pub fn take(&mut self, events: &mut Vec<Event>) {
        self.waiting.append(events);
    }

    /// Notes that all rings were read: what was there before is applied (A1). Cost: a merge of the threads' events, and a
    /// cache miss for each.
    pub fn pass(&mut self) {
        if let Some(bound) = self.waiting[..self.older].iter().map(|e| e.ticket).max() {
            // Few runs, one or two of a thread: the sort finds and merges them.
            self.waiting.sort_by_key(|event| event.ticket);
            let count = self.waiting.partition_point(|event| event.ticket <= bound);
            let mut waiting = std::mem::take(&mut self.waiting);
            waiting.drain(..count).for_each(|event| self.apply(&event));
            self.waiting = waiting;
        }
        self.older = self.waiting.len();
        if self.waiting.is_empty() && self.waiting.capacity() > 1 << 16 {
            self.waiting = Vec::new();
        }
    }

    fn apply(&mut self, event: &Event) {
        let thread = event.thread.0;
        match event.kind {
            EventKind::Alloc {
                func,
                node,
                addr,
                size,
                usable,
            } => self.acquire(thread, func, node, [addr, size, usable]),
            EventKind::Free { addr, .. } => drop(self.blocks.remove(addr)),
            EventKind::ReallocRelease { addr } => {
                let old = self.blocks.remove(addr);
                self.parked.insert(thread, old);
            }
            EventKind::ReallocAcquire {
                node,
                addr,
                size,
                usable,
            } => {
                self.parked.remove(&thread);
                self.acquire(thread, AllocFn::Realloc, node, [addr, size, usable]);
            }
            EventKind::ReallocCancel { .. } => {
                if let Some(Some(old)) = self.parked.remove(&thread) {
                    self.blocks.insert(&old);
                }
            }
            ref other => self.mapped.apply(thread, other),
        }
    }

    fn acquire(
        &mut self,
        thread: u32,
        func: AllocFn,
        node: NodeId,
        [addr, size, usable]: [u64; 3],
    ) {
        self.acquired += 1;
        self.acquired_bytes = self.acquired_bytes.saturating_add(size);
        self.blocks.insert(&Block {
            addr,
            thread,
            func,
            size,
            usable,
            node: node.0,
        });
    }

    /// Returns what a segment begins with that begins now. Cost: a sort of the blocks, 100 to 200 ns for each.
    pub fn beginning(&self, now_ns: u64) -> Beginning {
        let mut out = Beginner {
            encoder: None,
            time_ns: now_ns,
            blocks: Vec::new(),
            events: 0,
        };
        let mut maps = self.mapped.events();
        maps.sort_by_key(|(thread, _)| *thread);
        let mut late: Vec<&Event> = self.waiting.iter().collect();
        late.sort_by_key(|event| (event.thread, event.ticket));
        let all = self.blocks.sorted();
        let (mut maps, mut all, mut late) = (
            maps.into_iter().peekable(),
            all.into_iter().peekable(),
            late.into_iter().peekable(),
        );
        let mut parked = self.parked.iter().peekable();
        loop {
            let next = [
                maps.peek().map(|(thread, _)| *thread),
                all.peek().map(|block| block.thread),
                parked.peek().map(|(thread, _)| **thread),
                late.peek().map(|event| event.thread.0),
            ];
            let Some(thread) = next.into_iter().flatten().min() else {
                break;
            };
            while let Some((_, kind)) = maps.next_if(|(of, _)| *of == thread) {
                out.push(thread, 0, kind);
            }
            while let Some(block) = all.next_if(|block| block.thread == thread) {
                out.push(thread, 1, acquisition(&block));
            }
            if let Some((_, old)) = parked.next_if(|(of, _)| **of == thread) {
                if let Some(old) = old {
                    out.push(thread, 1, acquisition(old));
                }
                let addr = old.map_or(0, |old| old.addr);
                out.push(thread, 2, EventKind::ReallocRelease { addr });
            }
            while let Some(event) = late.next_if(|event| event.thread.0 == thread) {
                out.push(thread, event.ticket, event.kind);
            }
        }
        out.flush();
        self.sums(out)
    }

    /// Counts what lives once all that waits has been applied; the old block of a realloc under way does.
    fn sums(&self, out: Beginner) -> Beginning {
        let mut waiting: Vec<&Event> = self.waiting.iter().collect();
        waiting.sort_by_key(|event| event.ticket);
        let mut after = After {
            blocks: &self.blocks,
            at: BTreeMap::new(),
            parked: BTreeMap::new(),
            live: self.blocks.sums(),
            acquired: (self.acquired, self.acquired_bytes),
        };
        for (&thread, old) in &self.parked {
            if let Some(old) = old {
                after.live.0 += 1;
                after.live.1 += old.size;
                after.parked.insert(thread, old.size);
            }
        }
        waiting.into_iter().for_each(|event| after.apply(event));
        Beginning {
            blocks: out.blocks,
            events: out.events,
            live: after.live.0,
            live_bytes: after.live.1,
            acquired: after.acquired.0,
            acquired_bytes: after.acquired.1,
        }
    }
}

/// The sums of what lives, after more events than were applied.
struct After<'a> {
    blocks: &'a Blocks,
    /// Where it is another than in `blocks`: requested bytes.
    at: BTreeMap<u64, Option<u64>>,
    parked: BTreeMap<u32, u64>,
    live: (u64, u64),
    acquired: (u64, u64),
}

impl After<'_> {
    fn apply(&mut self, event: &Event) {
        match event.kind {
            EventKind::Alloc { addr, size, .. } => self.acquire(addr, size),
            EventKind::ReallocAcquire { addr, size, .. } => {
                let old = self.parked.remove(&event.thread.0);
                self.gone(old);
                self.acquire(addr, size);
            }
            EventKind::Free { addr, .. } => {
                let old = self.put(addr, None);
                self.gone(old);
            }
            EventKind::ReallocRelease { addr } => {
                if let Some(size) = self.put(addr, None) {
                    self.parked.insert(event.thread.0, size);
                }
            }
            EventKind::ReallocCancel { addr } => {
                if let Some(size) = self.parked.remove(&event.thread.0) {
                    self.put(addr, Some(size));
                }
            }
            _ => {}
        }
    }

    /// Puts a block, or none, to an address; returns what was there.
    fn put(&mut self, addr: u64, size: Option<u64>) -> Option<u64> {
        match self.at.insert(addr, size) {
            Some(there) => there,
            None => self.blocks.size(addr),
        }
    }

    fn acquire(&mut self, addr: u64, size: u64) {
        self.acquired.0 += 1;
        self.acquired.1 = self.acquired.1.saturating_add(size);
        self.live.0 += 1;
        self.live.1 += size;
        let old = self.put(addr, Some(size));
        self.gone(old);
    }

    fn gone(&mut self, size: Option<u64>) {
        if let Some(size) = size {
            self.live.0 -= 1;
            self.live.1 -= size;
        }
    }
}

fn acquisition(block: &Block) -> EventKind {
    EventKind::Alloc {
        func: block.func,
        node: NodeId(block.node),
        addr: block.addr,
        size: block.size,
        usable: block.usable,
    }
}

/// Encodes the events of one thread after the other.
struct Beginner {
    encoder: Option<EventEncoder>,
    time_ns: u64,
    blocks: Vec<RawBlock>,
    events: u64,
}

impl Beginner {
    fn push(&mut self, thread: u32, ticket: u64, kind: EventKind) {
        let thread = ThreadId(thread);
        let is_other = self
            .encoder
            .as_ref()
            .is_none_or(|one| one.thread() != thread);
        if is_other {
            self.flush();
            self.encoder = Some(EventEncoder::new(thread));
        }
        let Some(encoder) = &mut self.encoder else {
            return;
        };
        encoder.push(&Event {
            ticket,
            time_ns: self.time_ns,
            thread,
            kind,
        });
        self.events += 1;
        if encoder.is_full() {
            self.blocks.extend(encoder.take());
        }
    }

    fn flush(&mut self) {
        let rest = self.encoder.as_mut().and_then(EventEncoder::take);
        self.blocks.extend(rest);
    }
}

#[cfg(test)]
#[path = "live_tests.rs"]
mod tests;
