//! Rounding: one tally of blocks by cell, from which slop and clownshoes are drawn.
//!
//! ```text
//!   act ──► Tally (live, total by cell) ──► clownshoes.rs      (what is really wasted there …
//!                                      └──► slop.rs             … is not counted here)
//! ```
//!
//! Q1  One pass and not two: they need the same counts, and a table by cell is a cache miss an act.
//!
//! Not here: what is a clownshoe, what is slop.

use crate::model::Report;
use crate::pass::{Act, Context, Pass};
use crate::passes::cells::Tally;
use crate::passes::classes::Classes;
use crate::passes::{clownshoes, slop};

/// See the head of the file.
pub struct Rounding {
    allocator: String,
    tally: Tally,
}

impl Rounding {
    /// `allocator` as recorded: [`skinflint_trace::ProcessInfo::allocator`].
    pub fn new(allocator: &str) -> Self {
        Self {
            allocator: allocator.to_owned(),
            tally: Tally::default(),
        }
    }
}

impl Pass for Rounding {
    #[inline]
    fn act(&mut self, _context: &Context<'_>, act: &Act) {
        self.tally.act(act);
    }

    fn at_instant(&mut self, _context: &Context<'_>) {
        self.tally.freeze();
    }

    fn finish(self: Box<Self>, context: &Context<'_>, report: &mut Report) {
        let classes = Classes::learn(&self.allocator, context.cells.iter().map(|key| key.usable));
        clownshoes::finish(&self.tally, &classes, context, report);
        slop::finish(&self.tally, &classes, context, report);
    }
}
