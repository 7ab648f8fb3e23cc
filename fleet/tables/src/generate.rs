//! A simulated fleet as tables, and its events for whoever counts again.
//!
//! ```text
//!   law ─► events of a process ─┬─► rows: between two events and the ends of hours ─► files of some processes each
//!                               └─► told to the caller, as they were
//! ```
//!
//! G1  A row of `profiles` stands from an event of its stack to the next one, or to the end of the hour: rows tile the life
//!     of a process.
//! G2  The books of a process are closed: live + slop + allocator-free + mapped-files = resident, in each minute.
//!
//! Not here: what happens (law.rs), who counts again (the tests of `skinflint-fleet`).

use std::collections::HashSet;

use anyhow::Result;

use crate::clock::HOUR;
use crate::files::Locked;
use crate::law::{BUILDS, Event, Law, ProcessLaw, Random, Service};
use crate::rows::{Book, Build, Finding, Frame, Machine, Process, Profile, Stack};
use crate::{id, law};

/// Minutes of a row of `processes` and `books`.
const BOOKS_EVERY: i64 = 10;
/// Rows of profiles that are held before they are written.
const HELD: usize = 400_000;

/// What was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// Processes.
    pub processes: u64,
    /// Rows of profiles.
    pub profiles: u64,
    /// Events.
    pub events: u64,
}

/// Hears of a process and its events.
pub type Tell<'a> = dyn FnMut(&Service, &ProcessLaw, &[Event]) -> Result<()> + 'a;

/// Makes the tables of a law. `tell` hears of each process with its events.
///
/// # Errors
/// If a file cannot be written.
pub fn generate(law: &Law, root: &Locked, tell: &mut Tell<'_>) -> Result<Made> {
    let mut made = Made::default();
    for service in law.services() {
        name_all(law, root, &service)?;
        let mut rows = Rows::default();
        let mut part = 0;
        for process in &service.processes {
            let events = law.events(&service, process);
            tell(&service, process, &events)?;
            made.processes += 1;
            made.events += events.len() as u64;
            rows.add(law, &service, process, &events);
            if rows.profiles.len() > HELD {
                made.profiles += rows.profiles.len() as u64;
                std::mem::take(&mut rows).write(root, &service.name, part)?;
                part += 1;
            }
        }
        made.profiles += rows.profiles.len() as u64;
        rows.write(root, &service.name, part)?;
    }
    root.add_lasting("", "simulated", &machines(law))?;
    Ok(made)
}

/// Writes stacks, frames and builds of a service.
fn name_all(law: &Law, root: &Locked, service: &Service) -> Result<()> {
    let name = &service.name;
    let (mut stacks, mut frames, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
    for stack in &service.stacks {
        let ids: Vec<i64> = stack
            .functions
            .iter()
            .map(|function| id::frame(name, function))
            .collect();
        for (&frame, function) in ids.iter().zip(&stack.functions) {
            if seen.insert(frame) {
                frames.push(Frame {
                    frame,
                    function: function.clone(),
                    module: name.clone(),
                    file: "src/service.rs".to_owned(),
                    line: frames.len() as i64 + 1,
                });
            }
        }
        stacks.push(Stack {
            stack: stack.stack,
            leaf: ids[0],
            frames: ids,
        });
    }
    let first = |at: usize| law.start - if at == 0 { 7 * 86_400 } else { 0 };
    let builds: Vec<Build> = BUILDS
        .iter()
        .enumerate()
        .map(|(at, build)| Build {
            build: (*build).to_owned(),
            first_t: first(at),
        })
        .collect();
    root.add_lasting(name, "simulated", &stacks)?;
    root.add_lasting(name, "simulated", &frames)?;
    root.add_lasting(name, "simulated", &builds)
}

fn machines(law: &Law) -> Vec<Machine> {
    (0..u64::from(law.machines))
        .map(|number| {
            let mut random = Random::new(&[law.seed, 4, number]);
            let cores = 8 << random.below(4);
            Machine {
                host: law.host(number),
                cores,
                memory_bytes: cores << 32,
                system: "simulated".to_owned(),
            }
        })
        .collect()
}

#[derive(Default)]
struct Rows {
    profiles: Vec<Profile>,
    processes: Vec<Process>,
    books: Vec<Book>,
    findings: Vec<Finding>,
}

/// Levels of a process, minute by minute.
struct Levels {
    live: Vec<i64>,
    slop: Vec<i64>,
    pinned: Vec<i64>,
}

impl Rows {
    fn write(self, root: &Locked, service: &str, part: u32) -> Result<()> {
        let name = format!("simulated{part}");
        root.add(service, &name, self.profiles)?;
        root.add(service, &name, self.processes)?;
        root.add(service, &name, self.books)?;
        root.add(service, &name, self.findings)
    }

    fn add(&mut self, law: &Law, service: &Service, process: &ProcessLaw, events: &[Event]) {
        let minutes = (process.end - process.begin) as usize;
        let mut levels = Levels {
            live: vec![0; minutes],
            slop: vec![0; minutes],
            pinned: vec![0; minutes],
        };
        for of_stack in events.chunk_by(|a, b| a.stack == b.stack) {
            self.add_stack(law, service, process, of_stack, &mut levels);
        }
        self.add_books(law, service, process, &levels);
    }

    /// Adds the rows of one stack (G1).
    fn add_stack(
        &mut self,
        law: &Law,
        service: &Service,
        process: &ProcessLaw,
        events: &[Event],
        levels: &mut Levels,
    ) {
        let mut live = 0;
        for (at, event) in events.iter().enumerate() {
            let stack = &service.stacks[event.stack];
            let until = events.get(at + 1).map_or(process.end, |next| next.minute);
            live += event.born - event.died;
            let flow = Profile {
                samples: event.born + event.passing,
                alloc_bytes: (event.born + event.passing) * stack.weight,
                alloc_blocks: (event.born + event.passing) * stack.blocks,
                born_bytes: event.born * stack.weight,
                died_bytes: event.died * stack.weight,
                change_var: (event.born + event.died) * stack.variance,
                ..Profile::default()
            };
            let mut flow = Some(flow);
            for (begin, length) in hours(event.minute, until) {
                self.profiles.push(Profile {
                    t: law.start + begin * 60,
                    minutes: length,
                    host: process.host.clone(),
                    process: process.process,
                    build: BUILDS[process.build].to_owned(),
                    stack: stack.stack,
                    live_bytes: live * stack.weight,
                    live_blocks: live * stack.blocks,
                    live_max_bytes: live * stack.weight,
                    live_byte_min: live * stack.weight * length,
                    live_var_min: live * stack.variance * length,
                    slop_byte_min: live * stack.slop * length,
                    pinned_byte_min: event.pinned * length,
                    // What flowed is the first piece's alone.
                    ..flow.take().unwrap_or_default()
                });
                self.add_findings(law, service, process, event, (begin, length));
            }
            for minute in event.minute..until {
                let minute = (minute - process.begin) as usize;
                levels.live[minute] += live * stack.weight;
                levels.slop[minute] += live * stack.slop;
                levels.pinned[minute] += event.pinned;
            }
        }
    }

    /// Adds what a report would find: the leak once it is larger than noise, and pins beyond the same bound.
    fn add_findings(
        &mut self,
        law: &Law,
        service: &Service,
        process: &ProcessLaw,
        event: &Event,
        (begin, minutes): (i64, i64),
    ) {
        for (kind, bytes) in [("leak", event.leaked), ("pinned", event.pinned)] {
            if bytes < law::RATE as i64 * 8 {
                continue;
            }
            let stack = &service.stacks[event.stack];
            self.findings.push(Finding {
                t: law.start + begin * 60,
                minutes,
                host: process.host.clone(),
                process: process.process,
                build: BUILDS[process.build].to_owned(),
                kind: kind.to_owned(),
                stack: stack.stack,
                title: match kind {
                    "leak" => format!("{} only grows", stack.functions[0]),
                    _ => format!("blocks of {} keep free memory resident", stack.functions[0]),
                },
                change: match kind {
                    "leak" => "release what is no longer used".to_owned(),
                    _ => "keep blocks that live long apart from others".to_owned(),
                },
                confidence: "likely".to_owned(),
                now_byte_min: bytes * minutes,
                saved_byte_min: bytes * 3 / 4 * minutes,
            });
        }
    }

    /// Adds the rows of the process and its books (G2).
    fn add_books(&mut self, law: &Law, service: &Service, process: &ProcessLaw, levels: &Levels) {
        let mapped = 6_000_000 + process.process.rem_euclid(4_000_000);
        let mut begin = process.begin;
        while begin < process.end {
            let end = (begin - begin.rem_euclid(BOOKS_EVERY) + BOOKS_EVERY).min(process.end);
            let range = (begin - process.begin) as usize..(end - process.begin) as usize;
            let parts = [
                ("live", &levels.live[range.clone()]),
                ("slop", &levels.slop[range.clone()]),
                ("allocator-free", &levels.pinned[range.clone()]),
            ];
            let t = law.start + begin * 60;
            let (host, build) = (process.host.clone(), BUILDS[process.build].to_owned());
            let minutes = end - begin;
            let book = |part: &str, bytes: i64, byte_min: i64| Book {
                t,
                minutes,
                host: host.clone(),
                process: process.process,
                build: build.clone(),
                part: part.to_owned(),
                bytes,
                byte_min,
            };
            let last = |level: &[i64]| level.last().copied().unwrap_or(0);
            self.books
                .extend(parts.map(|(part, level)| book(part, last(level), level.iter().sum())));
            self.books
                .push(book("mapped-files", mapped, mapped * minutes));
            let at =
                |minute: usize| mapped + parts.iter().map(|(_, level)| level[minute]).sum::<i64>();
            let resident: Vec<i64> = (0..minutes as usize).map(at).collect();
            self.processes.push(Process {
                t,
                minutes,
                host: host.clone(),
                process: process.process,
                build: build.clone(),
                program: service.name.clone(),
                resident_bytes: last(&resident),
                resident_max_bytes: resident.iter().copied().max().unwrap_or(0),
                resident_byte_min: resident.iter().sum(),
                sample_bytes: law::RATE as i64,
                lost: 0,
            });
            begin = end;
        }
    }
}

/// Cuts minutes at the ends of hours: begin and number of each piece.
fn hours(begin: i64, end: i64) -> impl Iterator<Item = (i64, i64)> {
    let hour = HOUR / 60;
    let mut at = begin;
    std::iter::from_fn(move || {
        (at < end).then(|| {
            let from = at;
            at = end.min(from - from.rem_euclid(hour) + hour);
            (from, at - from)
        })
    })
}
