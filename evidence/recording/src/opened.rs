//! An opened trace: what it began with, its events, and where its moments are.
//!
//! ```text
//!   open ─► ancestors, oldest first ─► bequeath ─► heir          read ─► events ─► each
//! ```
//!
//! Not here: figures of a moment (`counted.rs`, `report.rs`), several traces together (`together.rs`).

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use skinflint_analysis::completeness::Verdict;
use skinflint_analysis::falls::FallSearch;
use skinflint_analysis::ledger::{Ledger, Live};
use skinflint_analysis::missing::Missing;
use skinflint_analysis::peak::PeakSearch;
use skinflint_analysis::waste::WasteSearch;
use skinflint_analysis::{Analyzer, At, Options};
use skinflint_trace::{Damage, Event, LostKind, OpenError, OriginKind, SnapshotCause, Trace};

use crate::kin::Kin;
use crate::progress::Progress;

/// The most generations that are followed: a damaged folder may contain a cycle.
const MOST_GENERATIONS: usize = 1000;
/// The number of events between two calls of `step`, for a progress bar.
pub const STEP_EVENTS: u64 = 1 << 20;

/// A process that this one is a copy of.
pub struct Ancestor {
    /// The path of its trace.
    pub path: PathBuf,
    /// Its trace.
    pub trace: Trace,
    /// Events below this ticket came before the fork.
    until: u64,
}

/// An opened recording.
pub struct Recording {
    /// The path of its trace.
    pub path: PathBuf,
    /// The trace, without what belongs to another program (recording.R3).
    pub trace: Trace,
    /// The ancestors, oldest first.
    ancestors: Vec<Ancestor>,
    missing: Vec<Missing>,
    /// What is missing of it in all, once that was asked.
    pub(crate) judged: OnceLock<Verdict>,
}

/// A receiver of the events of ancestors, before it gets any other.
pub trait Heir {
    /// Notes that events of this ancestor come next.
    fn ancestor(&mut self, _ancestor: &Ancestor) {}
    /// Takes an event of an ancestor from before the fork; the events come in order.
    fn inherit(&mut self, event: &Event);
    /// Notes that the ancestor forked; what comes next is of the copy.
    fn forked(&mut self);
}

impl Heir for Ledger {
    fn inherit(&mut self, event: &Event) {
        Ledger::inherit(self, event);
    }

    fn forked(&mut self) {
        self.inherit_fork();
    }
}

impl Heir for Analyzer {
    fn inherit(&mut self, event: &Event) {
        self.inherit_of_any(event);
    }

    fn forked(&mut self) {
        self.inherit_fork();
    }
}

impl Recording {
    /// Opens a trace of all events, and the traces in its folder that it came out of.
    ///
    /// # Errors
    /// If the trace itself cannot be read, or is sampled; the error says what to do next.
    pub fn open(path: &Path) -> Result<Recording, OpenError> {
        Recording::open_among(path, &mut Kin::beside(path))
    }

    /// Opens a trace as [`Recording::open`] does, with the traces that `kin` knows of.
    ///
    /// # Errors
    /// Those of [`Recording::open`].
    pub fn open_among(path: &Path, kin: &mut Kin) -> Result<Recording, OpenError> {
        let recording = Recording::open_any(path, kin)?;
        match recording.trace.process.sample_bytes {
            0 => Ok(recording),
            sample_bytes => Err(OpenError::Sampled {
                path: path.to_owned(),
                sample_bytes,
            }),
        }
    }

    /// Opens a trace that may be sampled (sampled.D1): what is done with it has to know.
    ///
    /// # Errors
    /// If the trace itself cannot be read.
    pub fn open_any(path: &Path, kin: &mut Kin) -> Result<Recording, OpenError> {
        let mut trace = Trace::open(path)?;
        leave_out_others(&mut trace);
        let unread = leave_out_unread(&mut trace);
        let mut recording = Recording {
            path: path.to_owned(),
            trace,
            ancestors: Vec::new(),
            missing: unread.into_iter().collect(),
            judged: OnceLock::new(),
        };
        recording.find_ancestors(kin);
        Ok(recording)
    }

    fn find_ancestors(&mut self, kin: &mut Kin) {
        let mut heir = self.trace.process.clone();
        // A segment says what lived when it began: nothing before it is needed, or known.
        while heir.segment.is_none()
            && let Some(origin) = heir.origin.take()
            && origin.how == OriginKind::Fork
        {
            let generations = self.ancestors.len();
            let seen = self.ancestors.iter().map(|one| &one.trace.process.uid);
            let is_circle = seen
                .chain([&self.trace.process.uid])
                .any(|uid| *uid == origin.uid);
            let found = if is_circle || generations >= MOST_GENERATIONS {
                None
            } else {
                kin.find(&origin.uid, origin.pid)
            };
            // What it dropped may have been inherited.
            let reaches = |trace: &Trace| match &trace.process.segment {
                Some(segment) => segment.ticket <= origin.fork_ticket,
                None => true,
            };
            let found = found.filter(reaches);
            let Some(trace) = found else {
                self.missing.push(Missing::Ancestor {
                    pid: origin.pid,
                    generations: generations as u32,
                });
                break;
            };
            heir = trace.process.clone();
            let path = kin.path(&origin.uid).unwrap_or(Path::new("")).to_owned();
            self.ancestors.push(Ancestor {
                path,
                trace,
                until: origin.fork_ticket,
            });
        }
        self.ancestors.reverse();
    }

    /// Hands on what happened before the process began, in its parents and theirs (recording.R1). Cost: one reading of each of
    /// their traces up to the fork.
    pub fn bequeath(&self, heir: &mut dyn Heir) {
        for ancestor in &self.ancestors {
            heir.ancestor(ancestor);
            let mut events = ancestor.trace.events();
            while let Some(event) = events.next_event() {
                if event.ticket >= ancestor.until {
                    break;
                }
                heir.inherit(&event);
            }
            heir.forked();
        }
    }

    /// Returns the ancestors, oldest first.
    pub(crate) fn ancestors(&self) -> &[Ancestor] {
        &self.ancestors
    }

    /// Reports whether the process began as a copy of another (`fork`).
    pub fn is_copy(&self) -> bool {
        let origin = self.trace.process.origin.as_ref();
        origin.is_some_and(|origin| origin.how == OriginKind::Fork)
    }

    /// Returns a ledger as of the birth of the process, before its first event.
    pub fn ledger(&self, timeline_points: usize) -> Ledger {
        let mut ledger = Ledger::new(timeline_points);
        self.bequeath(&mut ledger);
        ledger
    }

    /// Returns what was live when the process began. Cost: that of [`Recording::bequeath`].
    pub fn inherited(&self) -> Live {
        self.ledger(2).live()
    }

    /// Reads the process's own events, in order; `step` is called after every [`STEP_EVENTS`]. Returns the damage:
    /// what could not be read.
    pub fn events(&self, mut each: impl FnMut(&Event), step: impl FnMut(u64)) -> Vec<Damage> {
        self.runs(|run| run.iter().for_each(&mut each), step)
    }

    /// Reads them as [`Recording::events`] does, a few at a time; `each` may take the events and leave other memory in
    /// their place.
    fn runs(
        &self,
        mut each: impl FnMut(&mut Vec<Event>),
        mut step: impl FnMut(u64),
    ) -> Vec<Damage> {
        let mut events = self.trace.events();
        let mut seen = 0u64;
        events.for_each_run(|run| {
            seen += run.len() as u64;
            each(run);
            if seen >= STEP_EVENTS {
                seen -= STEP_EVENTS;
                step(STEP_EVENTS);
            }
        });
        events.damage().to_vec()
    }

    /// Reads the process's own events as [`Recording::events`] does, and shows how far that is.
    pub fn read(&self, mut each: impl FnMut(&Event), progress: &dyn Progress) -> Vec<Damage> {
        self.read_runs(|run| run.iter().for_each(&mut each), progress)
    }

    /// Reads them as [`Recording::read`] does, a few at a time; `each` may take the events and leave other memory in
    /// their place.
    pub fn read_runs(
        &self,
        each: impl FnMut(&mut Vec<Event>),
        progress: &dyn Progress,
    ) -> Vec<Damage> {
        progress.begin(self.trace.event_count());
        let damage = self.runs(each, |events| progress.step(events));
        progress.end();
        damage
    }

    /// Reads all events once more, for what only a ledger can tell: it inherits what a fork left, then `each` gets
    /// the events of the trace.
    pub fn events_again(&self, ledger: &mut Ledger, each: &mut dyn FnMut(&mut Ledger, &Event)) {
        self.bequeath(ledger);
        self.events(|event| each(ledger, event), |_| {});
    }

    /// Returns the index of the snapshot that is the peak (recording.R4). Cost: if several snapshots may be the peak, one
    /// reading up to the last of them.
    pub fn peak_snapshot(&self) -> Option<usize> {
        let mut search = PeakSearch::new(&self.trace.snapshots);
        if !search.is_open() {
            return search.finish(&Ledger::new(2));
        }
        let mut ledger = self.ledger(2);
        let mut events = self.trace.events();
        while let Some(event) = events.next_event() {
            if !search.before(event.ticket, &ledger) {
                break;
            }
            ledger.apply(&event, &mut |_, _| {});
        }
        search.finish(&ledger)
    }

    /// Finds the moments that an analysis with these options needs to know beforehand.
    pub fn settle(&self, options: &mut Options) {
        options.peak_snapshot = self.peak_snapshot();
        match options.at {
            Some(At::HeapPeak) => options.heap_peak_ticket = Some(self.heap_peak_ticket()),
            Some(At::AfterFree) => options.after_free_ticket = self.after_free_ticket(),
            Some(At::MostKept) => options.most_kept_ticket = self.most_kept_ticket(),
            _ => {}
        }
    }

    /// Returns the last ticket of the peak. The outer `None` means that resident memory was never sampled, the inner
    /// one means the end.
    pub fn peak_ticket(&self) -> Option<Option<u64>> {
        let peak = &self.trace.snapshots[self.peak_snapshot()?];
        Some((peak.cause != SnapshotCause::Exit).then_some(peak.ticket))
    }

    /// Returns the ticket at which the live heap is largest: known only after all events were read once.
    fn heap_peak_ticket(&self) -> u64 {
        let mut ledger = self.ledger(2);
        self.events(|event| ledger.apply(event, &mut |_, _| {}), |_| {});
        ledger.heap_peak().ticket
    }

    /// Returns the ticket of the snapshot after the largest fall of live memory, which also takes a reading of its
    /// own.
    fn after_free_ticket(&self) -> Option<u64> {
        let mut ledger = self.ledger(2);
        let mut search = FallSearch::new(&self.trace.snapshots);
        let each = |event: &Event| {
            search.before(event.ticket, &ledger);
            ledger.apply(event, &mut |_, _| {});
        };
        self.events(each, |_| {});
        search.finish(&ledger)
    }

    /// Returns the ticket of the snapshot at which the allocator keeps most, which also takes a reading of its own.
    fn most_kept_ticket(&self) -> Option<u64> {
        let mut ledger = self.ledger(2);
        let mut search = WasteSearch::new(&self.trace.snapshots);
        let each = |event: &Event| {
            search.before(event.ticket, &ledger);
            ledger.apply(event, &mut |_, _| {});
        };
        self.events(each, |_| {});
        search.finish(&ledger)
    }

    /// Returns what is missing beside events: traces that were not found.
    pub fn not_found(&self) -> &[Missing] {
        &self.missing
    }
}

/// Leaves out what belongs to another program (recording.R3).
fn leave_out_others(trace: &mut Trace) {
    let became = trace.lost.iter().filter(|lost| lost.what == LostKind::Exec);
    if let Some(until_ns) = became.map(|lost| lost.time_ns).min() {
        trace.rss.retain(|one| one.time_ns < until_ns);
        trace
            .snapshots
            .retain(|one| one.time_ns.saturating_add(one.took_ns) < until_ns);
    }
}

/// Leaves out readings of pages beyond the last event of a trace that was cut (recording.R6); says how many.
fn leave_out_unread(trace: &mut Trace) -> Option<Missing> {
    let last = trace.last_ticket().filter(|_| trace.ending.is_none())?;
    let before = trace.snapshots.len();
    trace.snapshots.retain(|one| one.ticket <= last);
    let readings = match before - trace.snapshots.len() {
        0 => return None,
        1 => "1 reading of pages lies".to_owned(),
        n => format!("{n} readings of pages lie"),
    };
    Some(Missing::Damage(format!(
        "{readings} beyond the last event of this cut trace: which blocks lived then is not known, so no figure is of them."
    )))
}
