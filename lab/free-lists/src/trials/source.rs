//! Sources of objects: an object trace, a malloc trace, a seed.
//!
//! ```text
//!   .sfo ─► objects::Reader ─┐
//!   .sft ─► trace::Events ───┼─► Step, Step, … ─► Script
//!   seed ─► Synthetic ───────┘                └─► --output
//! ```
//!
//! C1  The first bytes of a file say what it is, not its name.
//! C2  A malloc trace has no origins: all blocks are the runtime's. A realloc is a death and an allocation (one that
//!     failed ends the block here, which is rare). Blocks from before the recording are unknown, and their deaths are
//!     skipped.
//!
//! C3  With a nursery the trace's origins count for what is too large for it only (nursery).
//!
//! Not here: what is done with the steps (`replay`).

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use skinflint_objects::synthetic::{KINDS, PROMOTED_PERCENT, Shape};
use skinflint_objects::{Event, Info, Law, OpenError, Reader, Synthetic, Totals, Writer};
use skinflint_recording::Recording;
use skinflint_trace::{EventKind, Events, Trace};

use crate::list::Origin;
use crate::nursery::{self, Nursery};
use crate::replay::{Script, Step};

/// A trace that was asked for.
pub enum Source {
    /// A file, by name.
    File(PathBuf),
    /// A made-up trace, by law and seed.
    Synthetic(Law),
}

/// A trace, ready to run.
pub struct Ready {
    /// The trace's steps.
    pub script: Script,
    /// How it was made.
    pub source: String,
    /// What is missing, one sentence each.
    pub missing: Vec<String>,
}

/// Reports whether an error is of a trace, and not of the command line.
pub fn is_of_trace(error: &anyhow::Error) -> bool {
    error.downcast_ref::<OpenError>().is_some()
}

impl Source {
    /// Returns the synthetic trace of a text: `steady`, `phases:7`, `steady:1:50`.
    pub fn synthetic(text: &str) -> Option<Source> {
        law(text).map(Source::Synthetic)
    }

    /// Returns the name for headings and errors.
    pub fn name(&self) -> String {
        match self {
            Source::File(path) => shown(path),
            Source::Synthetic(law) if law.promoted_percent == PROMOTED_PERCENT => {
                format!("{}:{}", law.shape.name(), law.seed)
            }
            Source::Synthetic(law) => {
                let percent = law.promoted_percent;
                format!("{}:{}:{percent}", law.shape.name(), law.seed)
            }
        }
    }

    /// Adds the arguments with which this program reads the same trace.
    pub fn as_arguments(&self, command: &mut Command) {
        match self {
            Source::File(path) => command.arg("--").arg(path),
            Source::Synthetic(..) => command.arg("--synthetic").arg(self.name()),
        };
    }

    /// Reads the whole trace, or as many objects as are wanted.
    ///
    /// # Errors
    /// If the trace cannot be read.
    pub fn read(&self, most: u64, nursery_bytes: Option<u64>) -> Result<Ready> {
        let mut promoted = None;
        let mut script = |steps: &mut dyn Iterator<Item = Step>| match nursery_bytes {
            None => Script::new(steps, most),
            Some(bytes) => {
                let mut nursery = Nursery::new(steps, bytes);
                let script = Script::new(nursery.by_ref(), most);
                promoted = Some(said(nursery.figures()));
                script
            }
        };
        let mut ready = match self {
            Source::Synthetic(law) => Ready {
                script: script(&mut Synthetic::new(*law).filter_map(step)),
                source: format!("synthetic {}", self.name()),
                missing: Vec::new(),
            },
            Source::File(path) if is_object_trace(path) => {
                let mut reader = Reader::open(path)?;
                let script = script(&mut reader.by_ref().filter_map(step));
                let info = reader.info();
                let said = [&info.program, &info.source].map(String::as_str);
                let said: Vec<&str> = said.into_iter().filter(|one| !one.is_empty()).collect();
                let source = said.join(", ");
                Ready {
                    missing: missing(&reader, &script, most),
                    script,
                    source,
                }
            }
            Source::File(path) => {
                let trace = Recording::open(path)?.trace;
                let mut blocks = Blocks::new(&trace);
                let script = script(&mut blocks.by_ref());
                let mut missing: Vec<String> = Vec::new();
                if trace.ending.is_none() {
                    missing.push("cut: what came after is not in it".into());
                }
                if blocks.unknown > 0 {
                    missing.push(format!(
                        "{} releases of blocks from before the recording are left out",
                        blocks.unknown
                    ));
                }
                Ready {
                    script,
                    source: format!("{}, malloc trace", trace.process.name),
                    missing,
                }
            }
        };
        if let Some(promoted) = promoted {
            ready.source = format!("{}, {promoted}", ready.source);
        }
        Ok(ready)
    }

    /// Writes the trace as an object trace, up to the allocation after `most`.
    ///
    /// # Errors
    /// If the trace cannot be read, or the file cannot be written.
    pub fn write(&self, path: &Path, most: u64) -> Result<Totals> {
        let info = |program: String, source: String| Info { program, source };
        let create =
            |info: Info| Writer::create(path, &info).context("name another file with --output");
        let writer = match self {
            Source::Synthetic(law) => {
                let mut writer = create(info("none".into(), format!("synthetic {}", self.name())))?;
                let kind = writer.kind(KINDS[0]);
                let mut left = most;
                for event in Synthetic::new(*law) {
                    match event {
                        Event::Alloc { .. } if left == 0 => break,
                        Event::Alloc { bytes, origin, .. } => {
                            left -= 1;
                            writer.alloc(bytes, kind, origin);
                        }
                        Event::Death { id } => writer.death(id),
                        Event::Collection => writer.collection(),
                    }
                }
                writer
            }
            Source::File(from) => {
                let trace = Recording::open(from)?.trace;
                let mut writer = create(info(
                    trace.process.name.clone(),
                    format!("imported from {}", shown(from)),
                ))?;
                let kind = writer.kind("block");
                // Ids of the trace's blocks are dense too, and in the same order.
                let mut left = most;
                for step in Blocks::new(&trace) {
                    match step {
                        Step::Alloc { .. } if left == 0 => break,
                        Step::Alloc { bytes, .. } => {
                            left -= 1;
                            writer.alloc(bytes, kind, skinflint_objects::Origin::Runtime);
                        }
                        Step::Death { id } => writer.death(id),
                    }
                }
                writer
            }
        };
        let (_, totals) = writer
            .finish()
            .with_context(|| format!("{}: cannot be written to its end", shown(path)))?;
        Ok(totals)
    }
}

/// Says what a nursery did.
fn said(nursery: nursery::Figures) -> String {
    let share = |part: u64, whole: u64| part as f64 * 100.0 / whole.max(1) as f64;
    format!(
        "behind a nursery: {} objects, {:.1} % of them and {:.1} % of their bytes promoted, {} scavenges that kept {:.1} \
         MiB; {} objects too large for it",
        nursery.objects,
        share(nursery.promoted_objects, nursery.objects),
        share(nursery.promoted_bytes, nursery.bytes),
        nursery.scavenges,
        nursery.kept_bytes as f64 / 1_048_576.0,
        nursery.direct_objects,
    )
}

/// Parses `steady`, `phases:7`, `steady:1:50`.
fn law(text: &str) -> Option<Law> {
    let mut parts = text.split(':');
    let name = parts.next()?;
    let shape = Shape::ALL.into_iter().find(|shape| shape.name() == name)?;
    let mut law = Law::new(shape, 1);
    if let Some(seed) = parts.next() {
        law.seed = seed.parse().ok()?;
    }
    if let Some(percent) = parts.next() {
        law.promoted_percent = percent.parse().ok().filter(|p| (1..=99).contains(p))?;
    }
    parts.next().is_none().then_some(law)
}

/// Formats a path for a heading or an error.
pub(crate) fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// Reports whether a file is an object trace (C1).
fn is_object_trace(path: &Path) -> bool {
    let mut first = [0; 4];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut first));
    read.is_ok() && first == *b"\x89SFO" || path.extension().is_some_and(|ending| ending == "sfo")
}

fn step(event: Event) -> Option<Step> {
    match event {
        Event::Alloc {
            id, bytes, origin, ..
        } => {
            let origin = match origin {
                skinflint_objects::Origin::GeneratedCode => Origin::GeneratedCode,
                skinflint_objects::Origin::Runtime => Origin::Runtime,
                skinflint_objects::Origin::Gc => Origin::Gc,
            };
            Some(Step::Alloc { id, bytes, origin })
        }
        Event::Death { id } => Some(Step::Death { id }),
        // The replay collects when its plan says so.
        Event::Collection => None,
    }
}

fn missing(reader: &Reader, script: &Script, most: u64) -> Vec<String> {
    let mut missing = Vec::new();
    for damage in reader.damage() {
        missing.push(format!(
            "{damage}; passed over ({} bytes, {} objects known to be lost)",
            damage.bytes, damage.objects
        ));
    }
    match reader.ending() {
        None if script.objects >= most => {}
        None => missing.push("cut: it has no ending; what is there was run".into()),
        Some(totals) if totals.lost > 0 => missing.push(format!(
            "{} events were lost when it was written",
            totals.lost
        )),
        Some(_) => {}
    }
    if script.objects >= most {
        missing.push(format!(
            "only its first {most} objects were run (--max-objects)"
        ));
    }
    missing
}

/// The steps of a malloc trace (C2).
struct Blocks {
    events: Events,
    live: std::collections::HashMap<u64, u64>,
    next: u64,
    /// A step that comes after the one that was returned.
    then: Option<Step>,
    unknown: u64,
}

impl Blocks {
    fn new(trace: &Trace) -> Blocks {
        Blocks {
            events: trace.events(),
            live: std::collections::HashMap::new(),
            next: 0,
            then: None,
            unknown: 0,
        }
    }

    fn alloc(&mut self, addr: u64, bytes: u64) -> Step {
        let id = self.next;
        self.next += 1;
        self.live.insert(addr, id);
        Step::Alloc {
            id,
            bytes,
            origin: Origin::Runtime,
        }
    }

    fn death(&mut self, addr: u64) -> Option<Step> {
        let id = self.live.remove(&addr);
        self.unknown += u64::from(id.is_none() && addr != 0);
        id.map(|id| Step::Death { id })
    }
}

impl Iterator for Blocks {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        if let Some(step) = self.then.take() {
            return Some(step);
        }
        loop {
            let event = self.events.next_event()?;
            let step = match event.kind {
                EventKind::Alloc { addr, size, .. }
                | EventKind::ReallocAcquire { addr, size, .. } => {
                    let missed = self.live.remove(&addr).map(|id| Step::Death { id });
                    let alloc = self.alloc(addr, size);
                    match missed {
                        Some(death) => {
                            self.then = Some(alloc);
                            Some(death)
                        }
                        None => Some(alloc),
                    }
                }
                EventKind::Free { addr, .. } | EventKind::ReallocRelease { addr } => {
                    self.death(addr)
                }
                _ => None,
            };
            if step.is_some() {
                return step;
            }
        }
    }
}
