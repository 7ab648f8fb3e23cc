//! The learned figures of a program, and their bytes.
//!
//! ```text
//!   Source… ─► Survey ─► earned ─► Trial ─► spans, spare ─► Learned ─► encode ─► bytes
//! ```
//!
//! Not here: what is said of it (`text.rs`, `json.rs`).

use std::path::PathBuf;

use skinflint_recording::Progress;
use skinflint_sizes::fit::{
    self, FILE_BYTES_MAX, FLAG_INCOMPLETE, FLAG_SHORT, PROGRAM_BYTES_MAX, Profile, SPARE_PAGES_MAX,
};
use skinflint_sizes::spans::PAGE_BYTES;

use crate::error::Error;
use crate::source::{self, Source};
use crate::survey::{Earned, Survey};
use crate::trial::{Span, Trial};

/// With fewer acquisitions than this a program has only started: its classes say little.
pub(crate) const SHORT_ACQUISITIONS: u64 = 1000;
/// A shorter run never has 2 s before and 2 s after a moment, which the retained spare needs.
pub(crate) const SHORT_NS: u64 = 4_000_000_000;

/// The result of learning: everything that goes into the file and onto the screen.
pub struct Learned {
    pub(crate) sources: Vec<Source>,
    pub(crate) earned: Vec<Earned>,
    pub(crate) spans: Vec<Span>,
    pub(crate) spare_bytes: u64,
    pub(crate) flags: u8,
}

/// Learns from all acts of these traces, in two passes.
///
/// # Errors
/// If a trace cannot be read, if they are of several programs, or if nothing was recorded in them.
pub fn learn(traces: &[PathBuf], progress: &dyn Progress) -> Result<Learned, Error> {
    let mut sources = source::open(traces)?;
    let mut survey = Survey::default();
    for source in &mut sources {
        survey.begin_trace();
        source.each_act(|context, act| survey.act(context, act), progress);
    }
    let earned = survey.earned();
    let sizes: Vec<u16> = earned.iter().map(|one| one.size).collect();
    let mut trial = Trial::new(&sizes);
    for source in &mut sources {
        trial.begin_trace();
        source.each_act(|context, act| trial.act(context, act), progress);
        source.outcome = trial.end_trace();
    }
    let is_empty = |source: &Source| source.outcome.acquisitions == 0;
    if let Some(first) = sources.first()
        && sources.iter().all(is_empty)
    {
        return Err(Error::Nothing(first.path.display().to_string()));
    }
    let spare = sources.iter().map(|source| source.outcome.spare_bytes);
    let mut learned = Learned {
        flags: 0,
        spans: trial.spans(),
        spare_bytes: spare.max().unwrap_or(0),
        earned,
        sources,
    };
    learned.flags = learned.judge();
    Ok(learned)
}

impl Learned {
    pub(crate) fn acquisitions(&self) -> u64 {
        self.sources
            .iter()
            .map(|one| one.outcome.acquisitions)
            .sum()
    }

    pub(crate) fn events(&self) -> u64 {
        self.sources
            .iter()
            .map(|one| one.recording.trace.event_count())
            .sum()
    }

    pub(crate) fn longest_ns(&self) -> u64 {
        let longest = self.sources.iter().map(Source::duration_ns).max();
        longest.unwrap_or(0)
    }

    pub(crate) fn started(&self, of: fn(&[Source]) -> Option<&Source>) -> u64 {
        of(&self.sources).map_or(0, |one| one.recording.trace.process.started_unix_ns)
    }

    fn judge(&self) -> u8 {
        let incomplete = self.sources.iter().any(|one| !one.missing().is_empty());
        let short = self.acquisitions() < SHORT_ACQUISITIONS || self.longest_ns() < SHORT_NS;
        (u8::from(incomplete) * FLAG_INCOMPLETE) | (u8::from(short) * FLAG_SHORT)
    }

    /// Returns the bytes of the profile (fit.F5).
    ///
    /// # Errors
    /// If the allocator's own reader refuses them: a defect.
    pub fn encode(&self) -> Result<Vec<u8>, Error> {
        let earned: Vec<u16> = self.earned.iter().map(|one| one.size).collect();
        let spans: Vec<(u16, u8)> = self
            .spans
            .iter()
            .map(|one| (one.class, one.pages))
            .collect();
        let newest = self.sources.last();
        let build_id = newest.map(Source::build_id).unwrap_or_default();
        let program = newest.map_or("", Source::program);
        let profile = Profile {
            earned: &earned,
            spans: &spans,
            spare_pages: spare_pages(self.spare_bytes),
            // No program can be started by a name that is longer than a file name may be.
            program: if program.len() <= PROGRAM_BYTES_MAX {
                program
            } else {
                ""
            },
            build_id: &build_id,
            flags: self.flags,
            traces: self.sources.len() as u32,
            events: self.events(),
            first_unix_ns: self.started(<[Source]>::first),
            last_unix_ns: self.started(<[Source]>::last),
        };
        let mut file = vec![0; FILE_BYTES_MAX];
        let len = fit::encode(&profile, &mut file).map_err(Error::Refused)?;
        file.truncate(len);
        Ok(file)
    }
}

/// Returns the whole pages of the retained spare, as far as the file can hold them.
pub(crate) fn spare_pages(spare_bytes: u64) -> u32 {
    let pages = spare_bytes.div_ceil(u64::from(PAGE_BYTES));
    pages.min(u64::from(SPARE_PAGES_MAX)) as u32
}
