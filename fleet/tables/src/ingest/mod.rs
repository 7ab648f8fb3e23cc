//! What is read in: reports of recordings, heap profiles, pprof.
//!
//! ```text
//!   skinflint report --json ─► report.rs ─┐
//!   skinflint.PID.heap ─► heap_text.rs ───┼─► Seen: one process, one level ─► rows of each hour that it stands for
//!   pprof, gzipped or not ─► pprof.rs ────┘
//! ```
//!
//! N1  A file is known by its content, not by its name. What is none of the three is an error that says so.
//! N2  A file has one level for each stack: that of its moment. It stands for all minutes of the file, so the rows are as
//!     right as the moment is typical; a report is of the peak unless it was asked for another (`--at end`).
//! N3  The rows are named by the file's content and by what the caller says of it: read in twice, it counts once.
//! N4  Stacks that differ only by lines are one stack, and their figures are added.
//!
//! Not here: symbols of addresses: the text profile's frames are `module` and offset.

mod heap_text;
mod pprof;
mod protobuf;
mod report;
mod seen;

use std::collections::HashSet;
use std::io::Read;

use anyhow::{Context, Result, bail};

use crate::clock;
use crate::files::{Locked, as_folder, files_below, read_file};
use crate::id;
use crate::rows::{Book, Build, Finding, Frame, Machine, Process, Profile, Stack};

use self::seen::{Found, Held, Seen};

/// What the caller says of a file; what it does not say is taken from the file.
#[derive(Clone, Debug, Default)]
pub struct Said {
    /// The service; else the program's name.
    pub service: Option<String>,
    /// The build; else `unknown`.
    pub build: Option<String>,
    /// The machine; else `unknown`.
    pub host: Option<String>,
    /// When it begins, seconds since 1970; else the file's own time, or that of its last change.
    pub t: Option<i64>,
    /// How many minutes it stands for; else the recording's length, and 1 for a profile.
    pub minutes: Option<i64>,
}

/// The longest time that one file may stand for, minutes: a year.
const LONGEST: i64 = 366 * 24 * 60;
/// The largest file, unpacked.
const LARGEST: u64 = 2 << 30;

/// What one file gave.
#[derive(Debug, PartialEq, Eq)]
pub struct Taken {
    /// The service that it was added to.
    pub service: String,
    /// Bytes in use, of all its stacks.
    pub live_bytes: i64,
    /// Its stacks.
    pub stacks: usize,
    /// The day of its first minute.
    pub day: String,
}

/// Reads one file in.
///
/// # Errors
/// If it is none of the forms that are known, or a table cannot be written.
pub fn ingest(root: &Locked, bytes: &[u8], changed: i64, said: &Said) -> Result<Taken> {
    let mut seen = read(bytes)?;
    let service = as_folder(said.service.as_deref().unwrap_or(&seen.program));
    let host = said.host.clone().unwrap_or_else(|| "unknown".to_owned());
    let build = said.build.clone().unwrap_or_else(|| "unknown".to_owned());
    seen.minutes = said
        .minutes
        .unwrap_or(seen.minutes.max(1))
        .clamp(1, LONGEST);
    let t = said
        .t
        .or((seen.t != 0).then_some(seen.t))
        .unwrap_or(changed - seen.minutes * 60);
    let label = format!("{service} {host} {build} {t} {}", seen.minutes);
    let name = format!("{:016x}", id::content(&[bytes, label.as_bytes()].concat()));
    let taken = Taken {
        service: service.clone(),
        live_bytes: seen.stacks.values().map(|held| held.live_bytes).sum(),
        stacks: seen.stacks.len(),
        day: clock::day(t),
    };
    let of = Of {
        host: host.clone(),
        build: build.clone(),
        process: id::process(&host, seen.pid, seen.started),
        t,
    };
    root.add(&service, &name, of.profiles(&seen))?;
    root.add(&service, &name, of.processes(&seen))?;
    root.add(&service, &name, of.books(&seen))?;
    root.add(&service, &name, of.findings(&seen))?;
    add_names(root, &service, &name, &seen)?;
    let machine = Machine {
        host: host.clone(),
        system: seen.system,
        ..Machine::default()
    };
    root.add_lasting("", &as_folder(&host), &[machine])?;
    let first_t = t;
    root.add_lasting(&service, &as_folder(&build), &[Build { build, first_t }])?;
    Ok(taken)
}

/// Adds the stacks and frames that the service does not have yet.
fn add_names(root: &Locked, service: &str, name: &str, seen: &Seen) -> Result<()> {
    let of_service = |table: &str| root.table(table).join(format!("service={service}"));
    let (mut stacks, mut frames) = (HashSet::new(), HashSet::new());
    for file in files_below(&of_service("stacks"))? {
        stacks.extend(read_file::<Stack>(&file)?.into_iter().map(|row| row.stack));
    }
    for file in files_below(&of_service("frames"))? {
        frames.extend(read_file::<Frame>(&file)?.into_iter().map(|row| row.frame));
    }
    let new = seen
        .stacks
        .iter()
        .filter(|(stack, _)| !stacks.contains(*stack));
    let new: Vec<Stack> = new
        .map(|(&stack, held)| Stack {
            stack,
            leaf: held.leaf,
            frames: held.frames.clone(),
        })
        .collect();
    let unknown = seen
        .frames
        .values()
        .filter(|frame| !frames.contains(&frame.frame));
    let unknown: Vec<Frame> = unknown.cloned().collect();
    root.add_lasting(service, name, &new)?;
    root.add_lasting(service, name, &unknown)
}

/// Reads a file of any known form (N1).
fn read(bytes: &[u8]) -> Result<Seen> {
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut plain = Vec::new();
        let mut unpacked = flate2::read::GzDecoder::new(bytes).take(LARGEST);
        unpacked
            .read_to_end(&mut plain)
            .context("a gzipped file that is damaged")?;
        return read_plain(&plain);
    }
    read_plain(bytes)
}

fn read_plain(bytes: &[u8]) -> Result<Seen> {
    if bytes.starts_with(b"heap profile:") {
        return heap_text::read(&String::from_utf8_lossy(bytes));
    }
    if bytes.trim_ascii_start().starts_with(b"{") {
        return report::read(bytes);
    }
    match pprof::read(bytes) {
        Ok(seen) => Ok(seen),
        Err(error) => bail!(
            "neither a report (skinflint report --json), nor a heap profile (skinflint exec --profile), nor a pprof \
             file: {error:#}"
        ),
    }
}

/// What all rows of a file have in common.
struct Of {
    host: String,
    build: String,
    process: i64,
    t: i64,
}

impl Of {
    /// Makes a row for each piece of the file's time.
    fn each<R>(&self, seen: &Seen, mut row: impl FnMut(i64, i64, bool) -> R) -> Vec<R> {
        let pieces = clock::pieces(self.t, seen.minutes);
        let first = pieces.first().map_or(0, |(t, _)| *t);
        pieces
            .into_iter()
            .map(|(t, minutes)| row(t, minutes, t == first))
            .collect()
    }

    fn profiles(&self, seen: &Seen) -> Vec<Profile> {
        let of_stack = |(stack, held): (&i64, &Held)| {
            self.each(seen, |t, minutes, first| {
                // What flowed is the first piece's alone: it adds up.
                let flow = |bytes: i64| if first { bytes } else { 0 };
                Profile {
                    t,
                    minutes,
                    host: self.host.clone(),
                    process: self.process,
                    build: self.build.clone(),
                    stack: *stack,
                    samples: flow(held.samples),
                    alloc_bytes: flow(held.alloc_bytes),
                    alloc_blocks: flow(held.alloc_blocks),
                    born_bytes: flow(held.live_bytes),
                    died_bytes: 0,
                    change_var: flow(held.variance),
                    live_bytes: held.live_bytes,
                    live_blocks: held.live_blocks,
                    live_max_bytes: held.live_bytes,
                    live_byte_min: held.live_bytes.saturating_mul(minutes),
                    live_var_min: held.variance.saturating_mul(minutes),
                    slop_byte_min: held.slop.saturating_mul(minutes),
                    pinned_byte_min: held.pinned.saturating_mul(minutes),
                }
            })
        };
        seen.stacks.iter().flat_map(of_stack).collect()
    }

    fn processes(&self, seen: &Seen) -> Vec<Process> {
        self.each(seen, |t, minutes, first| Process {
            t,
            minutes,
            host: self.host.clone(),
            process: self.process,
            build: self.build.clone(),
            program: seen.program.clone(),
            resident_bytes: seen.resident,
            resident_max_bytes: seen.resident,
            resident_byte_min: seen.resident.saturating_mul(minutes),
            sample_bytes: seen.sample_bytes,
            lost: if first { seen.lost } else { 0 },
        })
    }

    fn books(&self, seen: &Seen) -> Vec<Book> {
        let of_part = |(part, bytes): &(String, i64)| {
            self.each(seen, |t, minutes, _| Book {
                t,
                minutes,
                host: self.host.clone(),
                process: self.process,
                build: self.build.clone(),
                part: part.clone(),
                bytes: *bytes,
                byte_min: bytes.saturating_mul(minutes),
            })
        };
        seen.books.iter().flat_map(of_part).collect()
    }

    fn findings(&self, seen: &Seen) -> Vec<Finding> {
        let of_found = |found: &Found| {
            self.each(seen, |t, minutes, _| Finding {
                t,
                minutes,
                host: self.host.clone(),
                process: self.process,
                build: self.build.clone(),
                kind: found.kind.clone(),
                stack: found.stack,
                title: found.title.clone(),
                change: found.change.clone(),
                confidence: found.confidence.clone(),
                now_byte_min: found.now.saturating_mul(minutes),
                saved_byte_min: found.saved.saturating_mul(minutes),
            })
        };
        seen.findings.iter().flat_map(of_found).collect()
    }
}
