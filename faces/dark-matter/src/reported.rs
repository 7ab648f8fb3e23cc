//! The claims of a program's memory report on its heap.
//!
//! ```text
//!   memory-report.json[.gz] ─► report::file ─► lines ─► Reported: processes ─► heap(process): claims
//! ```
//!
//! K1  Claims on the heap are the lines below `explicit/` whose kind is HEAP.
//! K2  `explicit/heap-unclassified` is no claim.
//! K3  A claim has addresses if its line has `blocks` or `ranges` (docs/export.md).
//! K4  Files are read in one place, the crate that writes them (`report::file`): what is refused there is refused here,
//!     in the same words. Only lines that are used here are kept.
//!
//! Not here: JSON and gzip (`report::file`), matching (`dark.rs`).

use std::fmt;
use std::io::Read;

use skinflint_reporters::entry::{ALLOCATED, UNCLASSIFIED, is_explicit};
use skinflint_reporters::file::{ReadError, read_with_blocks};
use skinflint_reporters::{Entry, Kind};

/// A report of one or more processes.
#[derive(Clone, Debug, Default)]
pub struct Reported {
    /// Names of its processes, in order of appearance.
    pub processes: Vec<String>,
    heaps: Vec<Heap>,
}

/// The reason why no process was chosen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReportedError(pub String);

impl fmt::Display for ReportedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ReportedError {}

/// The heap bytes that one reporter says it has measured.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Claim {
    /// Its path.
    pub path: String,
    /// The bytes claimed.
    pub amount_bytes: u64,
    /// Addresses of blocks, as far as the reporter gives them.
    pub blocks: Vec<u64>,
    /// Address and bytes of ranges of memory, as far as the reporter gives them.
    pub ranges: Vec<(u64, u64)>,
}

impl Claim {
    /// Reports whether it gives addresses of what it has measured.
    pub fn has_addresses(&self) -> bool {
        !self.blocks.is_empty() || !self.ranges.is_empty()
    }
}

/// A process's own account of its heap.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Heap {
    /// The name of the process in the report.
    pub process: String,
    /// Claims, in the report's order. Lines of one path stay separate: they may come from two reporters.
    pub claims: Vec<Claim>,
    /// `heap-allocated`, if it is there.
    pub allocated_bytes: Option<u64>,
}

impl Reported {
    /// Reads the file, compressed or not (K4).
    ///
    /// # Errors
    /// Those of [`read_with_blocks`].
    pub fn read(file: impl Read) -> Result<Reported, ReadError> {
        let mut reported = Reported::default();
        let mut last = 0;
        read_with_blocks(file, |entry, _, notes| {
            // Nearly all lines are of the same process as the line before.
            let known = reported
                .processes
                .get(last)
                .is_some_and(|name| name == entry.process);
            if !known {
                last = reported.of(entry.process);
            }
            let heap = &mut reported.heaps[last];
            // A difference of two reports has negative amounts; they claim nothing.
            let amount_bytes = u64::try_from(entry.amount).unwrap_or(0);
            if is_claim(entry) {
                let blocks = notes.iter().filter(|note| note.is_block());
                let ranges = notes.iter().filter(|note| !note.is_block());
                heap.claims.push(Claim {
                    path: entry.path.to_owned(),
                    amount_bytes,
                    blocks: blocks.filter_map(|note| note.addr()).collect(),
                    ranges: ranges
                        .filter_map(|note| Some((note.addr()?, note.bytes())))
                        .collect(),
                });
            } else if entry.path == ALLOCATED {
                heap.allocated_bytes = u64::try_from(entry.amount).ok();
            }
        })?;
        Ok(reported)
    }

    /// Returns the index of a process.
    fn of(&mut self, process: &str) -> usize {
        let found = self.processes.iter().position(|known| known == process);
        found.unwrap_or_else(|| {
            self.processes.push(process.to_owned());
            self.heaps.push(Heap {
                process: process.to_owned(),
                ..Heap::default()
            });
            self.processes.len() - 1
        })
    }

    /// Chooses the process: by name; else the one with this process id; else the only one.
    ///
    /// # Errors
    /// If no process fits, or more than one.
    pub fn choose(&self, name: Option<&str>, pid: u32) -> Result<&str, ReportedError> {
        let list = || {
            let shown: Vec<&str> = self.processes.iter().take(30).map(String::as_str).collect();
            shown.join(", ")
        };
        if let Some(name) = name {
            let found = self.processes.iter().find(|process| *process == name);
            let missing = || {
                ReportedError(format!(
                    "--process {name}: not in the report; there are: {}",
                    list()
                ))
            };
            return found.map(String::as_str).ok_or_else(missing);
        }
        match (self.choose_pid(pid), self.processes.as_slice()) {
            (Some(process), _) => Ok(process),
            (None, [only]) => Ok(only),
            (None, []) => Err(ReportedError("the report has no entries".into())),
            (None, _) => Err(ReportedError(format!(
                "none of its processes has the trace's process id {pid}; choose one with --process: {}",
                list()
            ))),
        }
    }

    /// Returns the process with this process id, if its name has it.
    pub fn choose_pid(&self, pid: u32) -> Option<&str> {
        let found = self.processes.iter().find(|process| is_of(process, pid));
        found.map(String::as_str)
    }

    /// Returns what a process says about its heap (K1, K2); nothing for one that is not in the report.
    pub fn heap(&self, process: &str) -> Heap {
        let found = self.heaps.iter().find(|heap| heap.process == process);
        found.cloned().unwrap_or_else(|| Heap {
            process: process.to_owned(),
            ..Heap::default()
        })
    }
}

/// Reports whether a process's name in a report has this process id.
fn is_of(process: &str, pid: u32) -> bool {
    process.contains(&format!("(pid {pid})")) || process.contains(&format!("pid {pid},"))
}

/// Reports whether an entry is a claim (K1, K2).
fn is_claim(entry: &Entry<'_>) -> bool {
    is_explicit(entry.path) && entry.kind == Kind::Heap && entry.path != UNCLASSIFIED
}
