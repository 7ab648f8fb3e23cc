//! The report: programs, memory, tenants, as the hosts on Boa have them.
//!
//! Not here: what was measured when (`run`).

use std::fmt::Write as _;

use serde::Serialize;
use skinflint_js_options::host::{self, Outcome};

/// Why a program failed.
#[derive(Serialize, Debug)]
pub(crate) struct Failure {
    pub(crate) text: String,
}

/// A program and what became of it.
#[derive(Serialize, Debug)]
pub(crate) struct ProgramRow {
    pub(crate) tab: usize,
    pub(crate) file: String,
    pub(crate) failure: Option<Failure>,
    pub(crate) result: Option<String>,
    pub(crate) cpu_ms: f64,
    pub(crate) output: Option<Vec<String>>,
    pub(crate) output_cut: usize,
}

/// Memory at one instant, after cycles were collected.
#[derive(Serialize, Debug)]
pub(crate) struct Instant {
    pub(crate) at: &'static str,
    pub(crate) tabs: usize,
    pub(crate) rss_bytes: Option<u64>,
    /// What the engine counts in its blocks, over all tabs.
    pub(crate) engine_bytes: u64,
    /// Pages of the tabs' heaps; null on the C library's allocator.
    pub(crate) page_bytes: Option<u64>,
}

/// What a tab holds.
#[derive(Serialize, Debug)]
pub(crate) struct TenantRow {
    pub(crate) name: String,
    pub(crate) engine_bytes: u64,
    pub(crate) blocks: Option<u64>,
    pub(crate) bytes: Option<u64>,
    pub(crate) page_bytes: Option<u64>,
}

/// The report of a run.
#[derive(Serialize, Debug)]
pub(crate) struct Report {
    pub(crate) engine: &'static str,
    pub(crate) quickjs: String,
    pub(crate) malloc: &'static str,
    pub(crate) programs: Vec<ProgramRow>,
    pub(crate) memory: Vec<Instant>,
    pub(crate) tenants: Vec<TenantRow>,
    pub(crate) cpu_ms: f64,
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// Rows shown; the others are summed in one.
const SHOWN: usize = 8;

impl Report {
    /// Returns what became of the programs.
    pub(crate) fn outcomes(&self) -> Vec<Outcome<'_>> {
        let rows = self.programs.iter().map(|row| Outcome {
            tab: row.tab,
            file: &row.file,
            failure: row.failure.as_ref().map(|failure| failure.text.clone()),
            result: row.result.as_deref(),
            cpu_ms: row.cpu_ms,
        });
        rows.collect()
    }

    /// Returns the text for people.
    pub(crate) fn text(&self) -> String {
        let mut text = format!(
            "skinflint js: QuickJS-ng {}, malloc {}; {:.0} ms of processor time\n",
            self.quickjs, self.malloc, self.cpu_ms
        );
        host::write_programs(&mut text, &self.outcomes(), SHOWN);
        let _ = writeln!(
            text,
            "\n{:<22}{:>6}{:>14}{:>14}{:>14}",
            "memory", "tabs", "resident", "engines'", "tabs' pages"
        );
        for instant in &self.memory {
            let maybe = |bytes: Option<u64>| bytes.map_or_else(|| "not told".to_owned(), mib);
            let (rss, pages) = (maybe(instant.rss_bytes), maybe(instant.page_bytes));
            let (at, tabs, own) = (instant.at, instant.tabs, mib(instant.engine_bytes));
            let _ = writeln!(text, "{at:<22}{tabs:>6}{rss:>14}{own:>14}{pages:>14}");
        }
        text
    }
}
