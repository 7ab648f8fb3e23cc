//! The caller's request for a series.
//!
//! ```text
//!   skinflint tabs ─► Request ─► series.rs, and what each run needs of it: pages.rs, run.rs
//! ```
//!
//! Q1  A request is only read: nothing that a run learns is written to it.
//!
//! Not here: what is done with it (series.rs).

use std::path::PathBuf;
use std::time::Duration;

use crate::plan::Plan;
use crate::start::Subject;

/// The caller's request.
pub struct Request<'a> {
    /// The plan.
    pub plan: Plan,
    /// Browsers, in order.
    pub subjects: Vec<Subject>,
    /// The number of runs of each.
    pub repeat: u32,
    /// The folder for results.
    pub out: PathBuf,
    /// The folder for packages.
    pub cache: PathBuf,
    /// The library that counts calls; without it nothing is counted, and every output says so.
    pub probe: Option<PathBuf>,
    /// Recordings that take the place of the plan's pages.
    pub replay: Vec<PathBuf>,
    /// Whether windows are shown on a display instead of headless.
    pub headful: bool,
    /// The interval between samples.
    pub interval: Duration,
    /// Skinflint's version and the command line.
    pub command: Vec<String>,
    /// Whether all browsers of a repetition run at the same time.
    pub parallel: bool,
    /// Reports progress.
    pub progress: &'a (dyn Fn(&str) + Sync),
}
