//! A memory report that a program wrote of itself: Firefox's `memory-report.json`, version 1, read.
//!
//! ```text
//!   {"version":1, …, "reports":[{"process","path","kind","units","amount","description"
//!                                [, "blocks":["0x…", …]] [, "ranges":[["0x…", bytes], …]]}, …]}
//! ```
//!
//! K1  What is claimed of the heap: entries below `explicit/` whose kind is HEAP. Their unit is bytes; a file
//!     in which it is not is refused, as Firefox refuses it.
//! K2  `explicit/heap-unclassified` is nobody's claim.
//! K3  `blocks` (addresses of blocks) and `ranges` (address, bytes) are an extension: what the entry has
//!     measured. Readers that do not know it pass over it.
//!
//! The format: nsIMemoryReporter.idl and aboutMemory.js of Firefox. Not here: gzip, matching (`dark.rs`).

use std::fmt;

use serde::Deserialize;
use serde_json::Value;

const HEAP: u64 = 1;
const BYTES: u64 = 0;

/// A report of one or more processes.
#[derive(Clone, Debug, Default)]
pub struct Reported {
    /// Names of its processes, in order of appearance.
    pub processes: Vec<String>,
    entries: Vec<Entry>,
}

/// What keeps a report from being read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReportedError(pub String);

impl fmt::Display for ReportedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ReportedError {}

#[derive(Clone, Debug, Deserialize)]
struct File {
    version: Option<u64>,
    reports: Option<Vec<Entry>>,
    /// A crash dump wraps the report.
    memory_report: Option<Box<File>>,
}

#[derive(Clone, Debug, Deserialize)]
struct Entry {
    process: String,
    path: String,
    kind: u64,
    units: u64,
    amount: i64,
    #[serde(default)]
    blocks: Vec<Value>,
    #[serde(default)]
    ranges: Vec<(Value, u64)>,
}

/// What one reporter says that it has measured on the heap.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Claim {
    /// Its path.
    pub path: String,
    /// Bytes.
    pub amount_bytes: u64,
    /// Addresses of blocks, as far as it says.
    pub blocks: Vec<u64>,
    /// Address and bytes of parts of memory, as far as it says.
    pub ranges: Vec<(u64, u64)>,
}

impl Claim {
    /// Whether it says what it has measured.
    pub fn has_addresses(&self) -> bool {
        !self.blocks.is_empty() || !self.ranges.is_empty()
    }
}

/// What a process says of its heap.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Heap {
    /// The process, as the report names it.
    pub process: String,
    /// Claims, in the report's order.
    pub claims: Vec<Claim>,
    /// `heap-allocated`, if it is there.
    pub allocated_bytes: Option<u64>,
}

impl Reported {
    /// Reads the JSON.
    ///
    /// # Errors
    /// Where it is not JSON (line and column), or not a memory report (which field of which entry).
    pub fn read(json: &[u8]) -> Result<Reported, ReportedError> {
        let no = |what: String| {
            ReportedError(format!(
                "{what}; a memory-report.json of about:memory is wanted"
            ))
        };
        let mut file: File = serde_json::from_slice(json).map_err(|error| no(error.to_string()))?;
        if let Some(inner) = file.memory_report.take() {
            file = *inner;
        }
        match file.version {
            Some(1) => {}
            Some(other) => return Err(no(format!("\"version\" is {other}, and only 1 is known"))),
            None => return Err(no("there is no \"version\"".into())),
        }
        let entries = file
            .reports
            .ok_or_else(|| no("there are no \"reports\"".into()))?;
        let mut processes: Vec<String> = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            let bad = |what: &str| {
                ReportedError(format!("\"reports\"[{index}] ({}): {what}", entry.path))
            };
            if entry.path.starts_with("explicit/") {
                if entry.units != BYTES {
                    return Err(bad(
                        "its \"units\" are not bytes (0), as below explicit/ they must be",
                    ));
                }
                if entry.kind > HEAP {
                    return Err(bad("its \"kind\" is neither heap (1) nor non-heap (0)"));
                }
            }
            // Checked once, here, so that nothing fails later.
            claim(entry).map_err(|what| bad(&what))?;
            if !processes.contains(&entry.process) {
                processes.push(entry.process.clone());
            }
        }
        Ok(Reported { processes, entries })
    }

    /// The process that is meant: by name; else the one with this process id; else the only one.
    ///
    /// # Errors
    /// If that is none, or not one.
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
        let (ends, within) = (format!("(pid {pid})"), format!("pid {pid},"));
        let is_it = |process: &&String| process.contains(&ends) || process.contains(&within);
        match (self.processes.iter().find(is_it), self.processes.as_slice()) {
            (Some(process), _) => Ok(process),
            (None, [only]) => Ok(only),
            (None, []) => Err(ReportedError("the report has no entries".into())),
            (None, _) => Err(ReportedError(format!(
                "none of its processes has the trace's process id {pid}; choose one with --process: {}",
                list()
            ))),
        }
    }

    /// What a process says of its heap (K1, K2). Entries of one path stay apart: they may be two reporters.
    pub fn heap(&self, process: &str) -> Heap {
        let mut heap = Heap {
            process: process.to_owned(),
            ..Heap::default()
        };
        for entry in self.entries.iter().filter(|entry| entry.process == process) {
            let claimed = entry.path.starts_with("explicit/")
                && entry.kind == HEAP
                && entry.path != "explicit/heap-unclassified";
            if claimed {
                heap.claims.extend(claim(entry));
            } else if entry.path == "heap-allocated" {
                heap.allocated_bytes = u64::try_from(entry.amount).ok();
            }
        }
        heap
    }
}

fn claim(entry: &Entry) -> Result<Claim, String> {
    let blocks: Result<Vec<u64>, String> = entry.blocks.iter().map(address).collect();
    let ranges = entry
        .ranges
        .iter()
        .map(|(at, bytes)| Ok((address(at)?, *bytes)));
    let ranges: Result<Vec<(u64, u64)>, String> = ranges.collect();
    Ok(Claim {
        path: entry.path.clone(),
        // A difference of two reports has negative amounts; nothing is claimed by them.
        amount_bytes: u64::try_from(entry.amount).unwrap_or(0),
        blocks: blocks?,
        ranges: ranges?,
    })
}

/// `"0x7f…"`, or a number.
fn address(value: &Value) -> Result<u64, String> {
    let parsed = match value {
        Value::String(text) => u64::from_str_radix(text.trim_start_matches("0x"), 16).ok(),
        value => value.as_u64(),
    };
    parsed.ok_or_else(|| {
        format!("{value} is no address; addresses are hexadecimal texts: \"0x7f0012345670\"")
    })
}
