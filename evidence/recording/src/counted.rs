//! Blocks by cell, at a moment or over the run.
//!
//! ```text
//!   --when ─► last ticket ─► ledger up to there ─► (stack, size, usable size) ─► blocks
//! ```
//!
//! Not here: the lines that are made of them (`analysis::counts`).

use skinflint_analysis::cells::CellCount;
use skinflint_analysis::pass::CellKey;
use skinflint_trace::Event;

use crate::error::Error;
use crate::opened::Recording;
use crate::progress::Progress;

/// Blocks by cell.
pub type Counted = Vec<(CellKey, u64)>;

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
                    "the trace has no snapshot of resident memory; use --when heap-peak".into(),
                )
            }),
            name => {
                let known: Vec<&str> = trace.marks.iter().map(|mark| mark.name.as_str()).collect();
                let mark = trace.marks.iter().rev().find(|mark| mark.name == name);
                let mark = mark.ok_or_else(|| {
                    let names = if known.is_empty() { "none".into() } else { known.join(", ") };
                    Error::Asked(format!(
                        "--when {name}: no such moment; use cumulative, live, peak, heap-peak, or a mark \
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
        let mut ledger = self.ledger(16);
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
}
