//! The seam between the ledger, which knows which block an address is, and the passes, which draw
//! conclusions.
//!
//! ```text
//!   trace::Event ──► Ledger (live map) ──► Act ──► Pass, Pass, Pass … ──► Report
//! ```
//!
//! A1  A pass never sees an address that it has to look up: a release carries the block that it
//!     released.
//! A2  Every pass that wants acts gets every act, in ticket order, on one thread; except for acquisitions and releases of
//!     blocks that are smaller than it cares for.
//! A3  Memory of a pass is bounded by live blocks, stacks and (stack, size) cells, never by events.

use skinflint_trace::{AllocFn, FreeFn, ThreadId};

pub use crate::block::{Block, CellId, CellKey};
use crate::model::Report;

/// Something that happened to blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// A block was acquired.
    Acquire {
        /// The block.
        block: Block,
        /// The function that acquired it.
        func: AllocFn,
    },
    /// A block was released.
    Release {
        /// The block.
        block: Block,
        /// The function that released it.
        func: FreeFn,
        /// The thread that released it.
        by: ThreadId,
    },
    /// A block became another one, perhaps at the same address. Counts as one release and one
    /// acquisition; passes that only count treat it as both.
    Regrow {
        /// The old block.
        old: Block,
        /// The new block, with its own birth and serial.
        new: Block,
    },
    /// A mark was reached.
    Mark {
        /// Index into the trace's marks.
        mark: u32,
    },
}

/// Counts of one cell's blocks, by the ledger.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CellBlocks {
    /// Blocks that live at the report's instant.
    pub at_instant: u64,
    /// Blocks acquired over the run.
    pub total: u64,
    /// Bytes that blocks of a smaller class would not have, and that are not resident anyway: at the instant's
    /// snapshot, and 0 if there is none.
    pub absent_tail_bytes: u64,
}

/// The data that a pass may use while it looks at an act.
pub struct Context<'a> {
    /// Cells by [`CellId`].
    pub cells: &'a [CellKey],
    /// Counts by [`CellId`]; only at [`Pass::finish`], before that it is empty.
    pub blocks: &'a [CellBlocks],
    /// The cell of the act's block; of the new block of a regrow. The ledger has it at hand, while `cells` would be a
    /// cache miss.
    pub key: CellKey,
    /// The number of its stack: dense, and the same for all cells of the stack.
    pub site: u32,
    /// Nanoseconds since the start.
    pub time_ns: u64,
    /// Ticket of the event.
    pub ticket: u64,
}

impl Context<'_> {
    /// Returns what a cell stands for.
    pub fn cell(&self, id: CellId) -> CellKey {
        self.cells[id.0 as usize]
    }
}

/// A part of the analysis. It is `Send`, so that passes may run beside each other.
pub trait Pass: Send {
    /// Reports whether [`Pass::act`] is to be called. Asked once, before the first act.
    fn sees_acts(&self) -> bool {
        true
    }

    /// Returns the requested bytes from which acquisitions and releases of blocks are shown; others may be shown too.
    /// Most blocks are small, and a call that ends in a comparison costs as much as a tenth of all else that an event
    /// does. Asked once, before the first act.
    fn least_bytes(&self) -> u64 {
        0
    }

    /// Takes an act; acts come in order.
    fn act(&mut self, context: &Context<'_>, act: &Act);

    /// Notes that the instant that the report is about has come: every act before it has been seen.
    fn at_instant(&mut self, _context: &Context<'_>) {}

    /// Adds rows and findings after everything has been seen. `report.sites`, `report.sizes`, `report.instants`,
    /// `report.totals` are already filled; nodes are the trace's own ids.
    fn finish(self: Box<Self>, context: &Context<'_>, report: &mut Report);
}
