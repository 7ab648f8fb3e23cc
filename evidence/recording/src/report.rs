//! From a recording to its report: the driver of an analysis.
//!
//! ```text
//!   settle (moments) ─► Analyzer + passes ─► what a fork left ─► events ─► finish with names ─► report, hints
//! ```
//!
//! A1  Every command that reports on one trace goes through here: the same moment has the same figures everywhere.
//!
//! Not here: the figures (`analysis`), what is drawn of them (`view`).

use skinflint_analysis::model::Report;
use skinflint_analysis::pass::Pass;
use skinflint_analysis::{Analyzer, At, Facts, Options, WindowLimits};
use skinflint_symbols::{NameSources, Symbols};

use crate::error::Error;
use crate::names::Names;
use crate::opened::Recording;
use crate::progress::Progress;
use crate::reach;

/// A report, and what its reader should know about the names in it.
pub struct Analysed {
    /// The report.
    pub report: Report,
    /// How to get names for addresses that have none.
    pub hints: Vec<String>,
}

/// What an analysis does in addition.
#[derive(Default)]
pub struct More {
    /// Figures for windows.
    pub windows: bool,
    /// Every stack that pins pages at the report's instant, and not only the largest.
    pub all_pins: bool,
    /// An additional pass.
    pub pass: Option<Box<dyn Pass>>,
}

impl Recording {
    /// Analyses the trace as of the moment that `at` names ([`At::named`]).
    ///
    /// # Errors
    /// If the trace does not have the moment, or names cannot be looked for where `names` says.
    pub fn analyse(
        &self,
        at: &str,
        names: &NameSources,
        more: More,
        progress: &dyn Progress,
    ) -> Result<Analysed, Error> {
        let mut wanted = Options {
            at: At::named(at),
            windows: more.windows.then(WindowLimits::default),
            ..Options::default()
        };
        if more.all_pins {
            wanted.limits.pins = usize::MAX;
        }
        self.settle(&mut wanted);
        let facts = Facts::of(&self.trace);
        let mut analyzer = Analyzer::new(facts, wanted)?;
        if let Some(pass) = more.pass {
            analyzer.add_pass(pass);
        }
        if let Some(found) = reach::of(self, at) {
            analyzer.add_pass(Box::new(found.pass()));
        }
        for missing in self.not_found() {
            analyzer.missing(missing.clone());
        }
        self.bequeath(&mut analyzer);
        let damage = self.read(|event| analyzer.event(event), progress);
        for damage in damage {
            analyzer.damaged(damage.to_string());
        }
        let mut names = Names(self.symbols(names)?);
        let mut report = analyzer.finish(&mut names);
        report.analysed_by = format!("skinflint {}", env!("CARGO_PKG_VERSION"));
        Ok(Analysed {
            report,
            hints: names.0.hints(),
        })
    }

    /// Returns the symbols of the trace, also for addresses that are not code.
    ///
    /// # Errors
    /// If names cannot be looked for where `names` says.
    pub fn symbols(&self, names: &NameSources) -> Result<Symbols, Error> {
        Ok(names.symbols(&self.path, &self.trace.modules)?)
    }
}
