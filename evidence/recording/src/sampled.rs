//! The report of a sampled recording.
//!
//! ```text
//!   Recording ─ at ─► moment ─► what a fork gave, own events ─► analysis::sampled ─► Sampled, with names
//! ```
//!
//! D1  Only what is made here reads a sampled trace: [`Recording::open`] refuses it, for all that needs every event.
//!
//! Not here: estimates (`analysis::sampled`), how they look (`view`).

use skinflint_analysis::sampled::{Moment, Reading, Sampled};
use skinflint_analysis::{Facts, stacks};
use skinflint_symbols::NameSources;
use skinflint_trace::{Event, SnapshotCause};

use crate::error::Error;
use crate::names::Names;
use crate::opened::{Ancestor, Heir, Recording};
use crate::progress::Progress;

/// A reading that inherits blocks with their stacks, and their names.
struct Heiress<'a> {
    reading: Reading,
    names: Names,
    sources: &'a NameSources,
}

impl Heir for Heiress<'_> {
    fn ancestor(&mut self, ancestor: &Ancestor) {
        let (ledger, facts) = self.reading.inherits();
        let from = facts.add_ancestor(&stacks(&ancestor.trace));
        ledger.inherit_stacks(from);
        if let Some(from) = from {
            self.names.inherit(from, ancestor, self.sources);
        }
    }

    fn inherit(&mut self, event: &Event) {
        self.reading.inherits().0.inherit(event);
    }

    fn forked(&mut self) {
        self.reading.inherits().0.inherit_fork();
    }
}

impl Recording {
    /// Reports whether it has samples of the acquisitions instead of all.
    pub fn is_sampled(&self) -> bool {
        self.trace.process.sample_bytes > 0
    }

    /// Returns what the samples tell as of the moment that `at` names: `peak`, `end`, or a mark.
    ///
    /// # Errors
    /// If there is no such moment, or names cannot be looked for where `names` says.
    pub fn sampled(
        &self,
        at: &str,
        names: &NameSources,
        progress: &dyn Progress,
    ) -> Result<Sampled, Error> {
        let moment = self.moment(at)?;
        let last = self.trace.rss.last().map_or(0, |one| one.time_ns);
        let end = self.trace.ending.as_ref().map_or(last, |end| end.time_ns);
        let end_ns = moment.snapshot.as_ref().map_or(end, |one| one.time_ns);
        let mut heir = Heiress {
            reading: Reading::new(Facts::of(&self.trace), moment, end_ns),
            names: Names::of(self.symbols(names)?, names.frames),
            sources: names,
        };
        self.bequeath(&mut heir);
        let Heiress {
            mut reading,
            mut names,
            ..
        } = heir;
        let damage = self.read(|event| reading.event(event), progress);
        let mut damage: Vec<String> = damage.iter().map(ToString::to_string).collect();
        damage.extend(self.not_found().iter().map(ToString::to_string));
        Ok(reading.finish(damage, &mut names))
    }

    /// Finds a moment.
    fn moment(&self, at: &str) -> Result<Moment, Error> {
        let trace = &self.trace;
        let of = |snapshot: &skinflint_trace::Snapshot| Moment {
            label: at.to_owned(),
            ticket: (snapshot.cause != SnapshotCause::Exit).then_some(snapshot.ticket),
            snapshot: Some(snapshot.clone()),
        };
        if at == "peak"
            && let Some(index) = self.peak_snapshot()
        {
            return Ok(of(&trace.snapshots[index]));
        }
        if matches!(at, "peak" | "end") {
            // Another reading may have been begun before it and be written after it.
            let mut newest = trace.snapshots.iter().rev();
            let exit = newest.find(|one| one.cause == SnapshotCause::Exit);
            return Ok(exit.map_or_else(
                || Moment {
                    label: "end".into(),
                    ..Moment::default()
                },
                of,
            ));
        }
        let Some(index) = trace.marks.iter().rposition(|mark| mark.name == at) else {
            let known: Vec<&str> = trace.marks.iter().map(|mark| mark.name.as_str()).collect();
            let known = if known.is_empty() {
                "none".into()
            } else {
                known.join(", ")
            };
            return Err(Error::Asked(format!(
                "--at {at}: a sampled recording is reported at peak, end or a mark (this trace has: {known}); other moments \
                 need every event"
            )));
        };
        let cause = SnapshotCause::Mark(index as u32);
        let snapshot = trace.snapshots.iter().find(|one| one.cause == cause);
        Ok(Moment {
            label: at.to_owned(),
            ticket: Some(trace.marks[index].ticket),
            snapshot: snapshot.cloned(),
        })
    }
}
