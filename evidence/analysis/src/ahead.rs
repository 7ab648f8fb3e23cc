//! Looking ahead: has the processor fetch what events will need, while events before them are applied.
//!
//! ```text
//!   batch n      coming     home slot of each address, table slot of each key      fetched
//!   batch n - 1  placed     slot of the block, number of the cell; cell            found, fetched
//!   batch n - 2  ready      its sites, if there are many; then applied one by one, from the cache
//! ```
//!
//! L1  Nothing is changed, so events that are applied late are applied as if there had been no look.
//! L2  A hint decides nothing: what it points at is compared with what is sought, and if a block was not there yet,
//!     or moved meanwhile, it is looked up.
//! L3  Prefetches are used, not loads: behind a load that misses the processor has room for one or two events, and a
//!     table slot that is out of all caches takes as long as applying three. With loads, 64 events ahead, applying took 48 % of all time,
//!     four fifths of it waiting in the two rounds (churn of 27 million events, 200,000 live blocks, 2026-11-25).
//!
//! Not here: the tables themselves (`blocks.rs`, `cells.rs`).

use skinflint_trace::{Event, EventKind};

use crate::block::CellKey;
use crate::ledger::{Ledger, NO_HINT};

/// The number of events of a batch. A batch takes some microseconds to apply, ten times what memory takes to answer;
/// what three of them need, some four cache lines an event, the first-level cache holds. Events come from the reader in
/// batches as large.
pub(crate) const AHEAD: usize = skinflint_trace::RUN;

/// The size below which tables stay in the second-level cache of common machines (1 MiB and more), so that looking
/// twice would only cost.
const WORTH_BYTES: usize = 768 << 10;

/// The size from which the sites are not taken to be in the second-level cache whatever else is.
const WORTH_SITES: usize = 256 << 10;

/// Events that are looked at and applied together.
#[derive(Default)]
pub(crate) struct Batch {
    pub events: Vec<Event>,
    /// Where the look found what each event needs (L2): the slot of a block, or the number of a cell. Empty if there
    /// was no look.
    pub hints: Vec<u32>,
}

/// The events that were taken and not yet applied: fewer than three batches.
#[derive(Default)]
pub(crate) struct Ahead {
    coming: Batch,
    placed: Batch,
    ready: Batch,
}

impl Ahead {
    /// Adds an event; returns whether the batch is full and must be moved on.
    #[inline]
    pub fn push(&mut self, event: &Event) -> bool {
        self.coming.events.push(*event);
        self.coming.events.len() >= AHEAD
    }

    /// Takes a whole batch without moving it; returns whether it did.
    #[inline]
    pub fn take(&mut self, events: &mut Vec<Event>) -> bool {
        let is_batch = self.coming.events.is_empty() && events.len() == AHEAD;
        if is_batch {
            std::mem::swap(&mut self.coming.events, events);
        }
        is_batch
    }

    /// Reports whether every event was applied.
    pub fn is_empty(&self) -> bool {
        let batches = [&self.coming, &self.placed, &self.ready];
        batches.iter().all(|batch| batch.events.is_empty())
    }

    /// Moves each batch on by one step, and returns the one that is to be applied; give it back by [`Ahead::done`].
    pub fn step(&mut self, ledger: &Ledger) -> Batch {
        ledger.fetch(&mut self.coming);
        ledger.find(&mut self.placed);
        ledger.fetch_sites(&self.ready);
        let ready = std::mem::take(&mut self.ready);
        self.ready = std::mem::take(&mut self.placed);
        self.placed = std::mem::take(&mut self.coming);
        ready
    }

    /// Takes back a batch that was applied, for its memory.
    pub fn done(&mut self, mut batch: Batch) {
        batch.events.clear();
        batch.hints.clear();
        self.coming = batch;
    }
}

/// The lookups that an event will make.
enum Need {
    Block(u64),
    Cell(u64, CellKey),
    Nothing,
}

#[inline]
fn need(event: &Event) -> Need {
    match event.kind {
        EventKind::Free { addr, .. } | EventKind::ReallocRelease { addr } => Need::Block(addr),
        EventKind::Alloc {
            node,
            addr,
            size,
            usable,
            ..
        }
        | EventKind::ReallocAcquire {
            node,
            addr,
            size,
            usable,
        } => {
            let usable = usable.max(size);
            Need::Cell(addr, CellKey { node, size, usable })
        }
        _ => Need::Nothing,
    }
}

impl Ledger {
    /// Fetches where blocks and keys would be, if the tables are so large that it is worth it: then there are hints.
    fn fetch(&self, batch: &mut Batch) {
        if self.blocks.table_bytes() + self.cells.hot_bytes() < WORTH_BYTES {
            return;
        }
        batch.hints.resize(batch.events.len(), NO_HINT);
        for event in &batch.events {
            match need(event) {
                Need::Block(addr) => self.blocks.fetch(addr),
                Need::Cell(addr, key) => {
                    self.blocks.fetch(addr);
                    self.cells.fetch(&key);
                }
                Need::Nothing => {}
            }
        }
    }

    /// Finds blocks and cells, and fetches the cells.
    fn find(&self, batch: &mut Batch) {
        for (event, hint) in batch.events.iter().zip(&mut batch.hints) {
            let cell = match need(event) {
                Need::Block(addr) => self.blocks.find(addr).map(|slot| {
                    *hint = slot.min(NO_HINT as usize) as u32;
                    self.blocks.at(slot).cell
                }),
                Need::Cell(_, key) => self.cells.guess(&key).inspect(|cell| *hint = cell.0),
                Need::Nothing => None,
            };
            if let Some(cell) = cell {
                self.cells.fetch_cell(cell);
            }
        }
    }

    /// Fetches the sites of cells, if they are many.
    fn fetch_sites(&self, batch: &Batch) {
        if self.cells.site_bytes() < WORTH_SITES {
            return;
        }
        for (event, hint) in batch.events.iter().zip(&batch.hints) {
            let cell = match need(event) {
                Need::Block(addr) => {
                    let block = self.blocks.at_hint(*hint).filter(|one| one.addr == addr);
                    block.map(|block| block.cell)
                }
                Need::Cell(..) if *hint != NO_HINT => Some(crate::block::CellId(*hint)),
                _ => None,
            };
            if let Some(cell) = cell {
                self.cells.fetch_site(cell);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pass::{Act, Context};
    use skinflint_base::random::Random;
    use skinflint_trace::{AllocFn, FreeFn, NodeId, ThreadId};

    /// 60,000 blocks that stay, so that there is a look; between them, eight addresses that come and
    /// go within one run of events, so that hints are missing, stale, or of another block's slot.
    fn events(seed: u64) -> Vec<Event> {
        let mut random = Random::new(seed);
        let mut next = |bound: u64| random.below(bound);
        let alloc = |addr, size: u64, node| EventKind::Alloc {
            func: AllocFn::Malloc,
            node: NodeId(node),
            addr,
            size,
            usable: size + 8,
        };
        let func = FreeFn::Free;
        let mut kinds = Vec::new();
        for stays in 0..60_000u64 {
            kinds.push(alloc(0x10_0000 + stays * 48, 1 + next(500), next(9) as u32));
            let addr = 0x8000 + next(8) * 16;
            kinds.push(match next(4) {
                0 | 1 => alloc(addr, 1 + next(500), next(9) as u32),
                2 => EventKind::Free { func, addr },
                _ => EventKind::ReallocRelease { addr },
            });
            if let Some(EventKind::ReallocRelease { addr }) = kinds.last().copied() {
                kinds.push(EventKind::ReallocAcquire {
                    node: NodeId(10),
                    addr,
                    size: 1 + next(500),
                    usable: 600,
                });
            }
        }
        // Every one of those that stayed goes again, in another order than it came.
        kinds.extend((0..60_000u64).map(|n| EventKind::Free {
            func,
            addr: 0x10_0000 + (n * 7919) % 60_000 * 48,
        }));
        let event = |(ticket, kind)| Event {
            ticket,
            time_ns: ticket * 100,
            thread: ThreadId(0),
            kind,
        };
        (0..).zip(kinds).map(event).collect()
    }

    fn run(events: &[Event], look: bool) -> (Vec<Act>, Ledger, usize) {
        let (mut ledger, mut acts) = (Ledger::new(16), Vec::new());
        let mut sink = |_: &Context<'_>, act: &Act| acts.push(*act);
        let (mut ahead, mut hinted) = (Ahead::default(), 0);
        let mut apply = |ahead: &mut Ahead| {
            let batch = ahead.step(&ledger);
            for (at, event) in batch.events.iter().enumerate() {
                ledger.hint = batch.hints.get(at).copied().unwrap_or(NO_HINT);
                hinted += usize::from(ledger.hint != NO_HINT);
                ledger.apply(event, &mut sink);
            }
            ahead.done(batch);
        };
        for event in events {
            if ahead.push(event) {
                apply(&mut ahead);
            }
        }
        while !ahead.is_empty() {
            apply(&mut ahead);
        }
        if !look {
            ledger = Ledger::new(16);
            acts.clear();
            let mut sink = |_: &Context<'_>, act: &Act| acts.push(*act);
            events
                .iter()
                .for_each(|event| ledger.apply(event, &mut sink));
        }
        (acts, ledger, hinted)
    }

    #[test]
    fn a_look_ahead_changes_nothing() {
        for seed in 1..=3 {
            let events = events(seed);
            let (plain, without, _) = run(&events, false);
            let (acts, with, hinted) = run(&events, true);
            assert!(hinted > 60_000, "seed {seed}: {hinted} hints");
            assert!(acts == plain, "seed {seed}: the acts differ");
            assert_eq!(with.counts(), without.counts(), "seed {seed}");
            assert_eq!(with.live(), without.live(), "seed {seed}");
            assert_eq!(with.cells().keys(), without.cells().keys(), "seed {seed}");
        }
    }
}
