//! Blocks by cell, at a moment or over the run.
//!
//! ```text
//!   --at ─► last ticket ─► ledger up to there ─► (stack, size, usable size) ─► blocks
//! ```
//!
//! O1  Blocks that a fork left have the stacks of the process that acquired them, as in a report: the stack trees of the
//!     ancestors follow the trace's own, in one order for cells and for names.
//!
//! Not here: the lines that are made of them (`analysis::counts`).

use skinflint_analysis::cells::CellCount;
use skinflint_analysis::ledger::Ledger;
use skinflint_analysis::pass::CellKey;
use skinflint_analysis::{Facts, stacks};
use skinflint_symbols::NameSources;
use skinflint_trace::Event;

use crate::error::Error;
use crate::names::Names;
use crate::opened::{Ancestor, Heir, Recording};
use crate::progress::Progress;

/// Blocks by cell.
pub type Counted = Vec<(CellKey, u64)>;

/// A ledger that inherits blocks with their stacks.
struct Counting {
    facts: Facts,
    ledger: Ledger,
}

impl Heir for Counting {
    fn ancestor(&mut self, ancestor: &Ancestor) {
        let from = self.facts.add_ancestor(&stacks(&ancestor.trace));
        self.ledger.inherit_stacks(from);
    }

    fn inherit(&mut self, event: &Event) {
        self.ledger.inherit(event);
    }

    fn forked(&mut self) {
        self.ledger.inherit_fork();
    }
}

impl Recording {
    /// Returns the last ticket of a moment, for counts; `None` for the end.
    ///
    /// # Errors
    /// If there is no such mark, or there are no snapshots.
    pub fn ticket_of(&self, when: &str) -> Result<Option<u64>, Error> {
        let trace = &self.trace;
        match when {
            "cumulative" | "live" | "end" | "heap-peak" => Ok(None),
            "peak" => self.peak_ticket().ok_or_else(|| {
                Error::Asked(
                    "the trace has no snapshot of resident memory; use --at heap-peak".into(),
                )
            }),
            name => {
                let known: Vec<&str> = trace.marks.iter().map(|mark| mark.name.as_str()).collect();
                let mark = trace.marks.iter().rev().find(|mark| mark.name == name);
                let mark = mark.ok_or_else(|| {
                    let names = if known.is_empty() { "none".into() } else { known.join(", ") };
                    Error::Asked(format!(
                        "--at {name}: no such moment; use cumulative, live, peak, heap-peak, or a mark \
                         (this trace has: {names})"
                    ))
                })?;
                Ok(Some(mark.ticket))
            }
        }
    }

    /// Counts blocks by cell at a moment, or over the run; also returns what the reader must know is missing.
    ///
    /// # Errors
    /// Those of [`Recording::ticket_of`].
    pub fn count_cells(
        &self,
        when: &str,
        progress: &dyn Progress,
    ) -> Result<(Counted, Vec<String>), Error> {
        let last = self.ticket_of(when)?.unwrap_or(u64::MAX);
        // Copies (`fork`) begin with the blocks of the process that they were copied from.
        let mut heir = Counting {
            facts: Facts::of(&self.trace),
            ledger: Ledger::new(16),
        };
        self.bequeath(&mut heir);
        let mut ledger = heir.ledger;
        let each = |event: &Event| {
            if event.ticket <= last {
                ledger.apply(event, &mut |_, _| {});
            }
        };
        self.read(each, progress);
        let missing = self.incomplete(ledger.counts().allocations > 0);
        let cells = ledger.cells();
        let count = |(index, count): (usize, &CellCount)| match when {
            "cumulative" => count.ever,
            "heap-peak" => u64::from(cells.live_at_heap_peak(index)),
            _ => u64::from(count.live),
        };
        let counted = cells.counts().enumerate().map(count);
        Ok((cells.keys().iter().copied().zip(counted).collect(), missing))
    }

    /// Returns the stacks that cells refer to, the ancestors' among them, and their names (O1).
    ///
    /// # Errors
    /// If names cannot be looked for where `names` says.
    pub fn named_stacks(&self, names: &NameSources) -> Result<(Facts, Names), Error> {
        let mut facts = Facts::of(&self.trace);
        let mut named = Names::of(self.symbols(names)?, names.frames);
        for ancestor in self.ancestors() {
            if let Some(from) = facts.add_ancestor(&stacks(&ancestor.trace)) {
                named.inherit(from, ancestor, names);
            }
        }
        Ok((facts, named))
    }
}
