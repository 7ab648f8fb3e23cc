//! Rounding: one tally of blocks by cell, from which slop and clownshoes are drawn.
//!
//! ```text
//!   ledger's cells ──► Tally (at the instant, total) ──► clownshoes.rs   (what is really wasted there …
//!                                                   └──► slop.rs          … is not counted here)
//! ```
//!
//! Q1  No act is looked at: the ledger counts the same by cell, and a table of our own cost a cache
//!     miss per act.
//!
//! Not here: the definitions of a clownshoe and of slop.

use crate::model::Report;
use crate::pass::{Act, Context, Pass};
use crate::passes::cells::Tally;
use crate::passes::classes::Classes;
use crate::passes::{clownshoes, slop};

/// The pass over rounding; see the head of the file.
pub struct Rounding {
    allocator: String,
}

impl Rounding {
    /// Creates the pass. `allocator` is its recorded name: [`skinflint_trace::ProcessInfo::allocator`].
    pub fn new(allocator: &str) -> Self {
        Self {
            allocator: allocator.to_owned(),
        }
    }
}

impl Pass for Rounding {
    fn sees_acts(&self) -> bool {
        false
    }

    fn act(&mut self, _context: &Context<'_>, _act: &Act) {}

    fn finish(self: Box<Self>, context: &Context<'_>, report: &mut Report) {
        let classes = Classes::learn(&self.allocator, context.cells.iter().map(|key| key.usable));
        let tally = Tally(context.blocks);
        let shoes = clownshoes::shoes(&tally, &classes, context);
        clownshoes::finish(&tally, &shoes, &classes, context, report);
        slop::finish(&tally, &shoes, &classes, context, report);
    }
}
