//! Inheritance from the processes that a process is a copy of: their events come before its own.
//!
//! ```text
//!   inherit_stacks ─► inherit_of_any* ─► inherit_fork ─► … (the next ancestor) … ─► event*
//! ```
//!
//! Not here: what the ledger makes of them (`ledger.rs`).

use skinflint_trace::{Event, OriginKind};

use super::Analyzer;
use crate::facts::StackNode;

impl Analyzer {
    /// Takes an event of the parent, in order, for a process that was forked (analyzer.N1). Events after the fork are ignored,
    /// and so are all events if the process is not a copy.
    pub fn inherit(&mut self, event: &Event) {
        let before_fork =
            self.facts.process.origin.as_ref().is_some_and(|from| {
                from.how == OriginKind::Fork && event.ticket < from.fork_ticket
            });
        if before_fork {
            self.ledger.inherit(event);
        }
    }

    /// Takes an event of any process that this one is a copy of, the oldest first, as [`Analyzer::inherit`] does,
    /// except for the cut at the fork: that is the caller's task, and [`Analyzer::inherit_fork`] comes after each of
    /// them.
    pub fn inherit_of_any(&mut self, event: &Event) {
        self.ledger.inherit(event);
    }

    /// Notes that events of another ancestor come next ([`Analyzer::inherit_of_any`]), whose stack tree this is: what
    /// lives of its blocks keeps its stacks. Their nodes follow the trace's own ([`Facts::ancestors`]); returns where
    /// they begin, or `None` if there are too many.
    pub fn inherit_stacks(&mut self, stacks: &[StackNode]) -> Option<u32> {
        let from = self.facts.add_ancestor(stacks);
        self.ledger.inherit_stacks(from);
        from
    }

    /// Notes that the process whose events were inherited forked.
    pub fn inherit_fork(&mut self) {
        self.ledger.inherit_fork();
    }
}
