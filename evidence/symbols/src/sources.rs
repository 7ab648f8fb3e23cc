//! Sources of names, as a user gives them, and the names that come of them.
//!
//! ```text
//!   folders, sysroot, debuginfod, perf maps ─► do they exist? ─► SymbolOptions ─► Symbols
//! ```
//!
//! N1  What was named and is not there is an error: otherwise names would be missing without a word.
//!
//! Not here: fetching (`debuginfod.rs`), the order in which places are looked into (`locate.rs`).

use std::path::{Path, PathBuf};

use skinflint_trace::Module;

use crate::debuginfod;
use crate::error::SourceError;
use crate::symbols::{SymbolOptions, Symbols};

/// The frames of a stack that a report shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Frames {
    /// Those of the script, and what it called last.
    User,
    /// Those of the program's own code.
    Native,
    /// All.
    #[default]
    Both,
}

/// Where names of functions are looked for.
#[derive(Clone, Debug)]
pub struct NameSources {
    /// Folders with separate debug files.
    pub debug_dirs: Vec<PathBuf>,
    /// A copy of the recorded machine's root.
    pub sysroot: Option<PathBuf>,
    /// Folders of debuginfod clients, URLs of servers, or `env` for the variable's.
    pub debuginfod: Vec<String>,
    /// Perf maps of the process; if none is named, the one that was kept beside the trace.
    pub perf_maps: Vec<PathBuf>,
    /// Which frames are shown where a script has frames of its own.
    pub frames: Frames,
    /// Told of a server that does not answer, in a sentence without its full stop.
    pub trouble: fn(&str),
}

impl NameSources {
    /// Returns the symbols of a trace, also for addresses that are not code. Fetches what servers have and is missing
    /// here.
    ///
    /// # Errors
    /// If a file or folder that was named cannot be read (N1).
    pub fn symbols(&self, trace: &Path, modules: &[Module]) -> Result<Symbols, SourceError> {
        must_be_folders("--debug-dir", &self.debug_dirs)?;
        must_be_folders("--sysroot", self.sysroot.as_slice())?;
        let fetched = debuginfod::folders(&self.debuginfod, modules, self.trouble)?;
        let options = SymbolOptions {
            debug_dirs: [&self.debug_dirs[..], &fetched].concat(),
            sysroot: self.sysroot.clone(),
            perf_maps: self.perf_maps(trace)?,
        };
        Ok(Symbols::new(modules, options))
    }

    /// Returns the perf maps that were named, or the one that was kept beside the trace.
    fn perf_maps(&self, trace: &Path) -> Result<Vec<PathBuf>, SourceError> {
        for path in &self.perf_maps {
            std::fs::File::open(path).map_err(SourceError::of(format!(
                "--perf-map {}: cannot be read; give the file that the program wrote",
                path.display()
            )))?;
        }
        let kept = trace.with_extension("perf.map");
        Ok(match &self.perf_maps[..] {
            [] if kept.exists() => vec![kept],
            named => named.to_vec(),
        })
    }
}

/// Checks that an option names folders (N1).
///
/// # Errors
/// If one of them is none.
pub fn must_be_folders(option: &str, named: &[PathBuf]) -> Result<(), SourceError> {
    match named.iter().find(|path| !path.is_dir()) {
        Some(path) => Err(SourceError::new(format!(
            "{option} {}: no such folder; check the name and that you may read it",
            path.display()
        ))),
        None => Ok(()),
    }
}
