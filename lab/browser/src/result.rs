//! The result of a series: its runs, a row of figures for each browser, and ratios between them.
//!
//! ```text
//!   series.rs ─► Series { rows, versus, proofs, runs } ─► result.json, report_page.rs
//! ```
//!
//! U1  These types are the file `result.json`: a field that is renamed there is one of another version.
//!
//! Not here: how figures are computed (series.rs), how they are drawn (report_page.rs).

use serde::{Deserialize, Serialize};

use crate::plan::Plan;
use crate::proof::Proof;
use crate::run::Run;

/// The median and range of complete runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Median.
    pub median: f64,
    /// Least.
    pub low: f64,
    /// Most.
    pub high: f64,
    /// The number of these runs.
    pub runs: u32,
}

/// The row of a browser.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Name.
    pub label: String,
    /// Version, of the first run.
    pub version: String,
    /// The number of complete runs.
    pub complete: u32,
    /// The number of all runs.
    pub runs: u32,
    /// The number of loads of all runs.
    pub loads: u32,
    /// The number of loads that failed.
    pub failed_loads: u32,
    /// Figures by name, in the order of the table.
    pub figures: Vec<(String, Spread)>,
}

impl Row {
    /// Returns a figure by name.
    pub fn figure(&self, name: &str) -> Option<&Spread> {
        self.figures
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, spread)| spread)
    }
}

/// A ratio between two rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Versus {
    /// The label of the row whose figure is divided.
    pub label: String,
    /// The label of the row that it is divided by.
    pub reference: String,
    /// The name of the figure.
    pub figure: String,
    /// The ratio of the medians.
    pub ratio: f64,
    /// Its interval of 95 % (bootstrap over repetitions), if there are enough repetitions.
    pub interval: Option<(f64, f64)>,
}

/// The result of all runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The command.
    pub command: Vec<String>,
    /// The plan.
    pub plan: Plan,
    /// The machine.
    pub machine: String,
    /// Names of the pages.
    pub pages: Vec<String>,
    /// One row for each browser.
    pub rows: Vec<Row>,
    /// Each allocator against the best of the others after the close.
    pub versus: Vec<Versus>,
    /// Whether preloaded allocators served.
    pub proofs: Vec<Proof>,
    /// All runs.
    pub runs: Vec<Run>,
    /// Whether it was ended by a signal.
    pub interrupted: bool,
}
