//! The verdict on completeness, for commands that do not analyse the recording otherwise.
//!
//! ```text
//!   recording ─► analysis without passes ─► Verdict (what its report says)        once for a recording
//! ```
//!
//! V1  The verdict is that of the report: the same events, the same moments, the same rules
//!     (`analysis::completeness`).
//!
//! Cost: one reading of the events, and the books of its moments. Not here: the sentences (`incomplete.rs`).

use skinflint_analysis::completeness::Verdict;
use skinflint_analysis::missing::Missing;
use skinflint_analysis::{Analyzer, Facts, Options};
use skinflint_trace::Event;

use crate::opened::Recording;

impl Recording {
    /// Returns what is missing. Cost: the first call reads the events.
    pub fn verdict(&self) -> &Verdict {
        self.judged.get_or_init(|| self.judge(|_| {}))
    }

    /// Judges the recording, and hands each of its own events to `each` meanwhile.
    pub fn judge(&self, mut each: impl FnMut(&Event)) -> Verdict {
        let mut options = Options::default();
        self.settle(&mut options);
        let facts = Facts::of(&self.trace);
        let mut analyzer = match Analyzer::with_passes(facts, options, Vec::new()) {
            Ok(analyzer) => analyzer,
            // Only a moment that was asked for may not be there.
            Err(error) => {
                let missing = vec![Missing::Damage(error.to_string())];
                return Verdict { missing };
            }
        };
        for missing in self.not_found() {
            analyzer.missing(missing.clone());
        }
        self.bequeath(&mut analyzer);
        let both = |event: &Event| {
            analyzer.event(event);
            each(event);
        };
        for damage in self.events(both, |_| {}) {
            analyzer.damaged(damage.to_string());
        }
        analyzer.judge()
    }
}
