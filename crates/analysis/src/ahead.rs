//! Looking ahead: reads what the next few events will need, so that their cache misses overlap.
//!
//! ```text
//!   64 events ──► round 1: home slot of each address, table slot of each key   (one miss each, all at once)
//!             ──► round 2: the cell and the site behind it                     (one more, all at once)
//!             ──► applied one by one, from the cache
//! ```
//!
//! L1  Nothing is changed, so events that are applied late are applied as if there had been no look.
//! L2  A hint decides nothing: what it points at is compared with what is sought, and if a block was
//!     not there yet, or moved meanwhile, it is looked up.
//! L3  Plain loads, no prefetch instruction: the loads of a round do not depend on one another, the
//!     processor has them under way together, and no `unsafe` is needed.
//!
//! Not here: the tables themselves (`blocks.rs`, `cells.rs`).

use std::hint::black_box;

use skinflint_trace::{Event, EventKind};

use crate::ledger::Ledger;
use crate::pass::CellKey;

/// Events looked at together: some four cache lines each, which the first-level cache holds.
pub(crate) const AHEAD: usize = 64;

/// No hint.
pub(crate) const NO_HINT: u32 = u32::MAX;
/// Tables smaller than this stay in the second-level cache of common machines (1 MiB and more), and
/// looking twice would only cost.
const WORTH_BYTES: usize = 768 << 10;

/// What an event will look up.
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
    /// Reads what these events will need, and notes in `hints` where it was (L2): the slot of a block,
    /// or the number of a cell.
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
