//! Looking ahead: reads what the next few events will need, so that their cache misses overlap.
//!
//! ```text
//!   64 events ──► round 1: home slot of each address, table slot of each key   (one miss each, all at once)
//!             ──► round 2: the cell and the site behind it                     (one more, all at once)
//!             ──► applied one by one, from the cache
//! ```
//!
//! L1  Nothing is changed, so events that are applied late are applied as if there had been no look.
//! L2  A hint decides nothing: what it points at is compared with what is sought, and if a block was not there yet,
//!     or moved meanwhile, it is looked up.
//! L3  Plain loads are used, no prefetch instruction: the loads of a round do not depend on one another, the
//!     processor has them under way together, and no `unsafe` is needed.
//!
//! Not here: the tables themselves (`blocks.rs`, `cells.rs`).

use std::hint::black_box;

use skinflint_trace::{Event, EventKind};

use crate::block::CellKey;
use crate::ledger::{Ledger, NO_HINT};

/// The number of events looked at together: some four cache lines each, which the first-level cache holds.
pub(crate) const AHEAD: usize = 64;

/// The size below which tables stay in the second-level cache of common machines (1 MiB and more), so that looking
/// twice would only cost.
const WORTH_BYTES: usize = 768 << 10;

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
    /// Reads what these events will need, and notes in `hints` where it was (L2): the slot of a block, or the number
    /// of a cell.
    pub(crate) fn look_ahead(&self, events: &[Event], hints: &mut Vec<u32>) {
        hints.clear();
        hints.resize(events.len(), NO_HINT);
        if self.blocks.table_bytes() + self.cells.hot_bytes() < WORTH_BYTES {
            return;
        }
        let mut seen = 0;
        for event in events {
            seen ^= match need(event) {
                Need::Block(addr) => self.blocks.touch(addr),
                Need::Cell(addr, key) => self.blocks.touch(addr) ^ self.cells.touch(&key),
                Need::Nothing => 0,
            };
        }
        black_box(seen);
        let mut seen = 0;
        for (event, hint) in events.iter().zip(hints) {
            let cell = match need(event) {
                Need::Block(addr) => self.blocks.find(addr).map(|slot| {
                    *hint = slot.min(NO_HINT as usize) as u32;
                    self.blocks.at(slot).cell
                }),
                Need::Cell(_, key) => self.cells.find(&key).inspect(|cell| *hint = cell.0),
                Need::Nothing => None,
            };
            if let Some(cell) = cell {
                seen ^= self.cells.touch_cell(cell);
            }
        }
        black_box(seen);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pass::Act;
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
        let (mut hints, mut hinted) = (Vec::new(), 0);
        for events in events.chunks(AHEAD) {
            if look {
                ledger.look_ahead(events, &mut hints);
                hinted += hints.iter().filter(|hint| **hint != NO_HINT).count();
            }
            for (at, event) in events.iter().enumerate() {
                ledger.hint = if look { hints[at] } else { NO_HINT };
                ledger.apply(event, &mut |_, act| acts.push(*act));
            }
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
