//! The compiler: a recorded trace becomes a script that the replayer can play.
//!
//! ```text
//!   .sft ─► survey (first pass): peak, alignments, pages that were touched, last events of threads
//!        └► second pass: ledger (addresses ─► blocks) ─► slots ─► epochs ─► script
//! ```
//!
//! K1  Memory is bounded by live blocks, threads and snapshots, never by events: about 110 bytes for each block that
//!     lives at the same time as all others (tests/bounded.rs of crate replay). The script is written as it is
//!     produced.
//! K2  What the trace does not hold is counted and reported ([`Compiled::notes`]), never invented: a release of an
//!     unknown block is left out, a realloc of one is an acquisition. Whether the recording is complete is decided
//!     elsewhere (`analysis::completeness`).
//! K3  Order between threads: an operation on a block follows the one before it on the same block; and no thread runs
//!     further ahead than an epoch or two, so that the peak is that of the recording.
//! K4  The same trace gives the same script, byte for byte.
//!
//! Not here: the format (`skinflint_replay::script`), playing (`skinflint-replay`), choosing allocators (`peers`), what
//! is missing from the trace (`analysis::completeness`).

use std::io::Write;

use skinflint_trace::{Event, EventKind, Trace};
use skinflint_view::units;

mod epochs;
mod error;
mod ledger;
mod ordered;
mod slots;
mod survey;
mod touched;

use epochs::Epochs;
pub use error::CompileError;
use ledger::{Act, Ledger};
use ordered::Ordered;
use skinflint_replay::script::{Header, point};
use survey::Survey;

pub use ledger::LeftOut;

/// The approximate number of points of progress in a script.
const PROGRESS_POINTS: u64 = 256;
/// The most marks that become points; further ones are left out and counted.
const MARK_POINTS: u64 = 1000;

/// The content of a script, and what of the trace is not in it.
#[derive(Clone, Debug, Default)]
pub struct Compiled {
    /// Threads with operations.
    pub threads: u32,
    /// Operations on blocks.
    pub ops: u64,
    /// Epochs.
    pub epochs: u64,
    /// Highest number of slots in use, which determines the size of the replayer's table (16 bytes each).
    pub slots: u64,
    /// The most requested bytes that lived at one time.
    pub peak_live_bytes: u64,
    /// Blocks that the program touched only in part, by the recording's snapshots.
    pub partly_touched: u64,
    /// Bytes of the script.
    pub script_bytes: u64,
    /// What was left out.
    pub left_out: LeftOut,
    /// Marks that did not become points.
    pub marks_left_out: u64,
}

impl Compiled {
    /// Returns what the script does not do as the trace has it, one sentence each; empty if there is nothing.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let mut note = |count: u64, one: &str, many: &str| {
            if count > 0 {
                let what = if count == 1 { one } else { many };
                notes.push(format!("{} {what}", units::count(count)));
            }
        };
        let left_out = &self.left_out;
        note(
            left_out.unknown_frees,
            "release of a block that was never seen acquired is left out",
            "releases of blocks that were never seen acquired are left out",
        );
        note(
            left_out.unknown_reallocs,
            "realloc of a block that was never seen acquired is replayed as an acquisition",
            "reallocs of blocks that were never seen acquired are replayed as acquisitions",
        );
        note(
            left_out.lost_frees,
            "block lived at an address that was given out again: its release was lost, and is replayed just before that",
            "blocks lived at an address that was given out again: their release was lost, and is replayed just before that",
        );
        note(
            left_out.lost_reallocs,
            "realloc has no beginning or no end in the trace",
            "reallocs have no beginning or no end in the trace",
        );
        note(
            left_out.damaged_events,
            "event cannot be (address 0, or beyond the address space) and is left out",
            "events cannot be (address 0, or beyond the address space) and are left out",
        );
        note(
            self.marks_left_out,
            "mark is no point of the replay: there are too many",
            "marks are no points of the replay: there are too many",
        );
        notes
    }
}

/// Compiles a trace: two passes over its events.
///
/// Cost: two passes, each with one or two cache misses an event; 110 ns an event (sqlite, 16,000 live blocks) to 590 ns
/// (python, 731,000), user time of `examples/compile`, 2026-11-21. `out` gets the script from its first byte to its last, in pieces of
/// some ten KiB; it may be a pipe.
///
/// # Errors
/// If there is nothing to replay, if the format cannot hold it, or if `out` fails.
pub fn compile(trace: &Trace, out: &mut dyn Write) -> Result<Compiled, CompileError> {
    let survey = Survey::of(trace)?;
    let main = trace
        .threads
        .iter()
        .position(|thread| thread.tid == trace.process.pid);
    let main = main.unwrap_or(0).min(survey.threads.len() - 1) as u32;
    let header = Header {
        threads: survey.threads.len() as u32,
        main,
        ops: survey.ops,
        peak_live_bytes: survey.peak.live_bytes,
        recorded_ns: trace
            .ending
            .as_ref()
            .map_or(survey.last_ns, |ending| ending.time_ns.max(survey.last_ns)),
        uid: uid(&trace.process.uid),
    };
    let mut second = Second {
        ordered: Ordered::new(Epochs::new(out, &header)?, survey.threads.len(), main),
        ledger: Ledger::default(),
        survey: &survey,
        progress_each: (survey.events / PROGRESS_POINTS).max(64),
        since_progress: 0,
        marks: 0,
        error: None,
    };
    trace.events().for_each(|event| {
        if second.error.is_none() {
            second.error = second.event(trace, event).err();
        }
    });
    if let Some(error) = second.error {
        return Err(error);
    }
    second.ordered.epochs.finish(point::END)?;
    let ledger = &second.ledger;
    Ok(Compiled {
        threads: survey
            .threads
            .iter()
            .filter(|thread| thread.events > 0)
            .count() as u32,
        ops: second.ordered.epochs.ops(),
        epochs: second.ordered.epochs.written(),
        slots: second.ordered.slots.most(),
        peak_live_bytes: survey.peak.live_bytes,
        partly_touched: survey.touched.partly(),
        script_bytes: second.ordered.epochs.bytes(),
        left_out: ledger.left_out,
        marks_left_out: second.marks.saturating_sub(MARK_POINTS),
    })
}

fn uid(text: &str) -> [u8; 16] {
    let mut uid = [b'0'; 16];
    for (to, from) in uid.iter_mut().zip(text.bytes()) {
        *to = from;
    }
    uid
}

/// The state of the second pass.
struct Second<'a> {
    ordered: Ordered<'a>,
    ledger: Ledger,
    survey: &'a Survey,
    progress_each: u64,
    since_progress: u64,
    marks: u64,
    error: Option<CompileError>,
}

impl Second<'_> {
    fn event(&mut self, trace: &Trace, event: &Event) -> Result<(), CompileError> {
        let Some(thread) = self.survey.threads.get(event.thread.0 as usize) else {
            self.ledger.left_out.damaged_events += 1;
            return Ok(());
        };
        self.ordered.begin(event)?;
        let mut acts = [None; 3];
        self.ledger
            .apply(event, self.ordered.slots.of(event.thread.0), &mut |act| {
                if let Some(free) = acts.iter_mut().find(|act| act.is_none()) {
                    *free = Some(act);
                }
            });
        for act in acts.into_iter().flatten() {
            self.act(event, &act)?;
        }
        self.touch_due(event)?;
        if event.ticket == thread.last_ticket
            && trace
                .threads
                .get(event.thread.0 as usize)
                .is_some_and(|known| known.ended_ns.is_some())
        {
            self.ordered.end_thread(event.thread.0);
        }
        self.points(event)
    }

    fn act(&mut self, event: &Event, act: &Act) -> Result<(), CompileError> {
        let first = match *act {
            Act::Acquire {
                func,
                node,
                size,
                serial,
                ..
            }
            | Act::Regrow {
                func,
                node,
                size,
                serial,
                ..
            } => {
                let pages = self.survey.touched.first_pages(serial, func, node, size);
                self.ordered.acquire(event, act, pages, self.survey)
            }
            Act::Release { .. } => self.ordered.release(event, act),
        };
        first?;
        if self.ordered.slots.next() == u32::MAX {
            return Err(CompileError::TooMany("blocks live at one time"));
        }
        Ok(())
    }

    /// Appends touches that snapshots saw by now of blocks that grew into their pages. It comes before points: a
    /// snapshot has the ticket of the last event before it.
    fn touch_due(&mut self, event: &Event) -> Result<(), CompileError> {
        while let Some(due) = self.survey.touched.due(self.ordered.touched, event.ticket) {
            self.ordered.touched += 1;
            if let Some(slot) = self.ledger.slot_of(due.addr, due.serial) {
                self.ordered.touch(slot, due.pages)?;
            }
        }
        Ok(())
    }

    /// Ends the epoch if a point is due after this event.
    fn points(&mut self, event: &Event) -> Result<(), CompileError> {
        self.since_progress += 1;
        let mut flags = 0;
        if event.ticket == self.survey.peak.ticket {
            flags |= point::PEAK;
        }
        if event.ticket == self.survey.after_free.ticket {
            flags |= point::AFTER_FREE;
        }
        let mut mark = 0;
        if let EventKind::Mark { mark: index } = event.kind {
            self.marks += 1;
            if self.marks <= MARK_POINTS {
                flags |= point::MARK;
                mark = index;
            }
        }
        if self.since_progress >= self.progress_each {
            flags |= point::PROGRESS;
        }
        if flags != 0 {
            self.since_progress = 0;
            self.ordered.epochs.point(flags | point::PROGRESS, mark)?;
        }
        Ok(())
    }
}
