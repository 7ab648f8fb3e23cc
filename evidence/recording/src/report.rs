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
use skinflint_analysis::{Analyzer, At, Facts, Options, WindowLimits, stacks};
use skinflint_symbols::{NameSources, Symbols};
use skinflint_trace::Event;
use skinflint_view::text;

use crate::error::Error;
use crate::names::Names;
use crate::opened::{Ancestor, Heir, Recording};
use crate::progress::Progress;
use crate::reach;

/// A report, and what its reader should know about the names in it.
pub struct Analysed {
    /// The report.
    pub report: Report,
    /// How to get names for addresses that have none.
    pub hints: Vec<String>,
}

/// The optional parts of an analysis.
#[derive(Default)]
pub struct More {
    /// Figures for windows.
    pub windows: bool,
    /// Every stack that pins pages at the report's instant, and not only the largest.
    pub all_pins: bool,
    /// Figures by stack of the first 2048 marks, and not only of the first 64: windows have an edge at each.
    pub all_marks: bool,
    /// An additional pass.
    pub pass: Option<Box<dyn Pass>>,
}

/// The most marks that have figures by stack, if all are asked for.
const MARKS: usize = 2048;

/// An analysis that inherits, with the stacks of what it inherits and their names.
struct Bequest<'a> {
    analyzer: &'a mut Analyzer,
    names: Names,
    sources: &'a NameSources,
}

impl Heir for Bequest<'_> {
    fn ancestor(&mut self, ancestor: &Ancestor) {
        let from = self.analyzer.inherit_stacks(&stacks(&ancestor.trace));
        if let Some(from) = from {
            self.names.inherit(from, ancestor, self.sources);
        }
    }

    fn inherit(&mut self, event: &Event) {
        self.analyzer.inherit_of_any(event);
    }

    fn forked(&mut self) {
        self.analyzer.inherit_fork();
    }
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
        if more.all_marks {
            wanted.limits.mark_books = MARKS;
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
        let mut bequest = Bequest {
            analyzer: &mut analyzer,
            names: Names::of(self.symbols(names)?, names.frames),
            sources: names,
        };
        self.bequeath(&mut bequest);
        let mut names = bequest.names;
        let damage = self.read_runs(|run| analyzer.run(run), progress);
        for damage in damage {
            analyzer.damaged(damage.to_string());
        }
        let mut report = analyzer.finish(&mut names);
        report.analysed_by = format!("skinflint {}", env!("CARGO_PKG_VERSION"));
        report.verdict = text::said(&report);
        Ok(Analysed {
            report,
            hints: names.own.hints(),
        })
    }

    /// Returns the symbols of the trace, also for addresses that are not code.
    ///
    /// # Errors
    /// If names cannot be looked for where `names` says.
    pub fn symbols(&self, names: &NameSources) -> Result<Symbols, Error> {
        let symbols = names.symbols(&self.path, &self.trace.modules)?;
        Ok(symbols.with_codes(&self.trace.codes))
    }
}
