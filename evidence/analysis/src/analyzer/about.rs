//! The report's part about the process and the recording: program, threads, completeness.
//!
//! Not here: blocks, sites, instants (`analyzer`).

use super::Analyzer;
use crate::completeness::{self, Seen, Verdict};
use crate::facts::At;
use crate::missing;
use crate::model::{Completeness, Program, ThreadRow};
use crate::notes;
use crate::passes::wording::bytes;

impl Analyzer {
    pub(super) fn threads(&self) -> Vec<ThreadRow> {
        let did = self.ledger.threads();
        (0..self.facts.threads.len().max(did.len()))
            .map(|index| {
                let known = self.facts.threads.get(index).cloned().unwrap_or_default();
                let did = did.get(index).copied().unwrap_or_default();
                ThreadRow {
                    tid: known.tid,
                    name: known.name,
                    started_ns: known.started_ns,
                    ended_ns: known.ended_ns,
                    allocations: did.allocations,
                    requested_bytes: did.requested_bytes,
                    remote_frees: did.remote_frees,
                }
            })
            .collect()
    }

    pub(super) fn program(&self, end_ns: u64) -> Program {
        let (process, ending) = (&self.facts.process, self.facts.ending.as_ref());
        Program {
            name: process.name.clone(),
            pid: process.pid,
            argv: process.argv.clone(),
            exe: process.exe.clone(),
            cwd: process.cwd.clone(),
            allocator: process.allocator.clone(),
            system: process.system.clone(),
            recorded_by: process.recorder_version.clone(),
            started_unix_ns: process.started_unix_ns,
            duration_ns: end_ns,
            ended: notes::ended(&self.facts),
            origin: notes::origin(&self.facts),
            cpu_ns: ending.and_then(|ending| ending.cpu_ns),
            max_rss_bytes: ending.and_then(|ending| ending.max_rss_bytes),
            read_bytes: ending.and_then(|ending| ending.read_bytes),
            written_bytes: ending.and_then(|ending| ending.written_bytes),
            recorder_bytes: ending.map_or(0, |ending| ending.recorder_bytes),
            trace_bytes: self.facts.trace_bytes,
        }
    }

    /// Ends the recording as [`Analyzer::finish`] does, for a command that wants to know only what is missing.
    pub fn judge(mut self) -> Verdict {
        self.run_out();
        self.verdict()
    }

    /// Judges whether the recording is complete. Everything up to its end must have been applied.
    pub(super) fn verdict(&self) -> Verdict {
        let seen = Seen {
            counts: self.ledger.counts(),
            parked: self.ledger.parked_blocks(),
            live_at_exit: self.at_exit,
            threads: self.facts.threads.len(),
            past_bytes: self.past_bytes,
            break_bytes: self.ledger.intervals().break_bytes(),
            unexplained: self.ledger.unexplained(),
            missing_tickets: self.tickets.missing(),
        };
        completeness::judge(&self.facts.known(seen.counts.events), &seen)
    }

    pub(super) fn completeness(&self) -> Completeness {
        let counts = self.ledger.counts();
        let known = self.facts.known(counts.events);
        let verdict = self.verdict();
        let mut all: Vec<String> = verdict.missing.iter().map(ToString::to_string).collect();
        all.extend(notes::odd(&self.facts, &known, &counts));
        if self.past_bytes > 0 && !known.is_from_birth() {
            all.push(format!(
                "{} of anonymous memory stands in 'other mappings', without a stack: older mappings, or made by system \
                 calls of the program's own.",
                bytes(self.past_bytes)
            ));
        }
        all.extend(self.plan.notes.iter().cloned());
        if self.options.at == Some(At::HeapPeak) && self.options.heap_peak_ticket.is_none() {
            all.push(
                "Live figures by stack and size are as of the largest live heap; the figures that \
                 findings take from the passes are as of the end."
                    .into(),
            );
        }
        Completeness {
            complete: verdict.is_complete(),
            events: counts.events,
            lost_events: self
                .facts
                .ending
                .as_ref()
                .map_or(0, |ending| ending.lost_events),
            unread_events: known.unread(),
            truncated_stacks: self
                .facts
                .ending
                .as_ref()
                .map_or(0, |one| one.truncated_stacks),
            unknown_frees: counts.unknown_frees,
            unrecorded_calls: known.unrecorded_calls(),
            began_late: !known.is_from_birth(),
            lost_children: missing::lost_children(&self.facts.lost),
            notes: all,
        }
    }
}
