//! The seam between the ledger, which knows which block an address is, and the passes, which draw
//! conclusions.
//!
//! ```text
//!   trace::Event ──► Ledger (live map) ──► Act ──► Pass, Pass, Pass … ──► Report
//! ```
//!
//! A1  A pass never sees an address that it has to look up: a release carries the block that it
//!     released.
//! A2  Every pass that wants acts gets every act, in ticket order, on one thread.
//! A3  Memory of a pass is bounded by live blocks, stacks and (stack, size) cells, never by events.

use skinflint_trace::{AllocFn, FreeFn, NodeId, ThreadId};

use crate::model::Report;

/// Index of a cell: one stack asking for one size and being given one usable size.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, PartialOrd, Ord)]
pub struct CellId(pub u32);

/// The key of no cell: of a mark, and at the end.
pub(crate) const NO_KEY: CellKey = CellKey {
    node: NodeId(0),
    size: 0,
    usable: 0,
};

/// A block, as long as it lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// Where it is.
    pub addr: u64,
    /// Its cell: stack, size, usable size ([`Context::cell`]).
    pub cell: CellId,
    /// The thread that acquired it.
    pub thread: ThreadId,
    /// When it was acquired, microseconds since the start (saturating; 71 minutes are 2^32).
    pub born_us: u32,
    /// How many acquisitions the process had made before it, modulo 2^32.
    pub serial: u32,
}

/// What a cell stands for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CellKey {
    /// The stack.
    pub node: NodeId,
    /// Bytes asked for.
    pub size: u64,
    /// Bytes given.
    pub usable: u64,
}

/// Something that happened to blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// A block was acquired.
    Acquire {
        /// The block.
        block: Block,
        /// Through which function.
        func: AllocFn,
    },
    /// A block was released.
    Release {
        /// The block.
        block: Block,
        /// Through which function.
        func: FreeFn,
        /// The thread that released it.
        by: ThreadId,
    },
    /// A block became another one, perhaps at the same address. Counts as one release and one
    /// acquisition; passes that only count treat it as both.
    Regrow {
        /// What it was.
        old: Block,
        /// What it is; `born_us` and `serial` are those of the new one.
        new: Block,
    },
    /// A mark was reached; index into the trace's marks.
    Mark {
        /// Index.
        mark: u32,
    },
}

/// Blocks of one cell, as the ledger counted them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CellBlocks {
    /// Live at the report's instant.
    pub at_instant: u64,
    /// Acquired over the run.
    pub total: u64,
}

/// What a pass may ask while it looks at an act.
pub struct Context<'a> {
    /// Cells by [`CellId`].
    pub cells: &'a [CellKey],
    /// Counts by [`CellId`]; at [`Pass::finish`] only, before it is empty.
    pub blocks: &'a [CellBlocks],
    /// The cell of the act's block; of the new block of a regrow. The ledger has it at hand, while
    /// `cells` would be a cache miss.
    pub key: CellKey,
    /// Number of its stack: dense, and the same for all cells of the stack.
    pub site: u32,
    /// Nanoseconds since the start.
    pub time_ns: u64,
    /// Ticket of the event.
    pub ticket: u64,
}

impl Context<'_> {
    /// What a cell stands for.
    pub fn cell(&self, id: CellId) -> CellKey {
        self.cells[id.0 as usize]
    }
}

/// One analysis. `Send`, so that passes may run beside each other.
pub trait Pass: Send {
    /// Whether [`Pass::act`] is to be called. Asked once, before the first act.
    fn sees_acts(&self) -> bool {
        true
    }

    /// An act, in order.
    fn act(&mut self, context: &Context<'_>, act: &Act);

    /// The instant that the report is about has come: every act before it has been seen.
    fn at_instant(&mut self, _context: &Context<'_>) {}

    /// Everything has been seen: adds rows and findings. `report.sites`, `report.sizes`,
    /// `report.instants`, `report.totals` are already filled; nodes are the trace's own ids.
    fn finish(self: Box<Self>, context: &Context<'_>, report: &mut Report);
}
