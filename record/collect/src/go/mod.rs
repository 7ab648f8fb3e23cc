//! The heap profile of a Go program, read from outside: samples of its blocks, with functions and lines.
//!
//! ```text
//!   /proc/PID/exe ─► version, tables (binary.rs)        runtime.mbuckets ─► counts by stack and size (buckets.rs)
//!   return addresses ─► functions, files, lines (pclntab.rs)
//!   mheap_.allspans ─► arenas, stacks, addresses of samples (spans.rs)
//!   counts less those before ─► so many samples acquired and released ─► Batch ─► the drain, as events
//! ```
//!
//! G1  Go samples one block every 512 KiB by itself, all blocks alike: whatever their size, with the probability that it has by
//!     that law. A trace of them is a sampled trace (trace FORMAT.md).
//! G2  A sample's address is what the spans say (spans.rs). A sample that is not found there gets an address that nothing has:
//!     it counts as live, and lies on no page. No address is two live samples'.
//! G3  Nothing runs in the program for it, and it waits for nothing. What cannot be read is a reason in words.
//! G4  A process that became another program (`exec`) is not read any more.
//!
//! Not here: what lives when a collection has not yet swept it: the profile counts it until it has.

mod binary;
mod buckets;
mod crossing;
mod pclntab;
mod spans;

use std::path::PathBuf;

use rustc_hash::{FxHashMap, FxHashSet};
use skinflint_procfs::process::link;

use crate::remote::Remote;
pub use binary::GoProgram;
pub use binary::RATE;
use binary::Refused;
use buckets::Buckets;
use pclntab::{Pclntab, Place};
use skinflint_trace::{Mapping, MappingKind};
use spans::{ARENA, Seen, Spans};

pub use crate::counted::Change;
use crate::counted::{Addresses, Counted, Counts, changes};
use crate::dividing;
use crate::mappings::mappings;

/// What the kernel adds to the name of a file that was removed or replaced.
const REPLACED: &str = " (deleted)";
/// The names of parts of mappings.
const STACKS: &str = "[go stacks]";
const RUNTIME: &str = "[go runtime]";

/// A frame of a stack.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct GoFrame {
    /// The function, with its package.
    pub function: String,
    /// Its file.
    pub file: String,
    /// The line in it.
    pub line: u32,
    /// The line at which it begins; 0 if that is not known.
    pub first_line: u32,
}

/// What one reading found.
#[derive(Clone, Default, Debug)]
pub struct Batch {
    /// Stacks that are new, outermost frame first; they are numbered from 0 on, in the order of all batches.
    pub stacks: Vec<Vec<GoFrame>>,
    /// What changed.
    pub changes: Vec<Change>,
    /// The ticket of the first change; the others follow.
    pub first_ticket: u64,
    /// When it was read, nanoseconds since the process's start.
    pub time_ns: u64,
}

/// The heap of a process.
pub struct GoHeap {
    program: GoProgram,
    process: Remote,
    exe: PathBuf,
    image: String,
    bias: u64,
    buckets: Buckets,
    functions: Option<Pclntab>,
    stacks: FxHashMap<Vec<u64>, u32>,
    counted: Vec<Counted>,
    spans: Spans,
    seen: Seen,
    arenas: FxHashSet<u64>,
    addresses: Addresses,
    next_ticket: u64,
    /// Why nothing more is read.
    refused: Option<Refused>,
}

impl GoHeap {
    /// Begins to read the heap of a process that this program runs in.
    pub fn new(pid: u32, program: GoProgram) -> GoHeap {
        let process = Remote { pid };
        let image = link(pid, "exe");
        let image = image.strip_suffix(REPLACED).unwrap_or(&image).to_owned();
        let exe = PathBuf::from(format!("/proc/{pid}/exe"));
        let bias = program.bias(pid);
        GoHeap {
            buckets: Buckets::new(process, &program, bias),
            program,
            process,
            exe,
            image,
            bias,
            functions: None,
            stacks: FxHashMap::default(),
            counted: Vec::new(),
            spans: Spans::new(process),
            seen: Seen::default(),
            arenas: FxHashSet::default(),
            addresses: Addresses::default(),
            next_ticket: 1,
            refused: None,
        }
    }

    /// Returns the mean distance of samples, in bytes: 0 if the program takes none.
    pub fn rate(&self) -> u64 {
        self.program.rate(self.process, self.bias)
    }

    /// Returns the version of Go.
    pub fn version(&self) -> &str {
        &self.program.version
    }

    /// Returns why nothing more is read, if so.
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// Reads what has changed since the last time. Cost: a system call for each thousand buckets, twice.
    pub fn read(&mut self, time_ns: u64) -> Batch {
        let mut batch = Batch {
            first_ticket: self.next_ticket,
            time_ns,
            ..Batch::default()
        };
        // A process that is gone, or another program (G4), has nothing more to tell.
        let image = link(self.process.pid, "exe");
        let image = image.strip_suffix(REPLACED).unwrap_or(&image);
        if self.refused.is_some() || image != self.image {
            return batch;
        }
        let Some(counts) = self.buckets.read(&self.program, self.bias) else {
            return batch;
        };
        if let Err(why) = self.place_new(&mut batch) {
            self.refused = Some(why);
            return batch;
        }
        self.see_spans(&mut batch);
        self.change(&counts, &mut batch.changes);
        self.next_ticket += batch.changes.len() as u64;
        batch
    }

    /// Looks at the spans: where the heap lies, and where its samples are.
    fn see_spans(&mut self, batch: &mut Batch) {
        let buckets = self.buckets.addresses();
        let seen = self.spans.read(&self.program, self.bias, buckets);
        self.seen = seen.unwrap_or_default();
        let all = mappings(self.process.pid);
        for arena in arenas_of(&all, &self.seen.arenas) {
            if self.arenas.insert(arena) {
                batch.changes.push(Change::Mapped(arena, ARENA));
            }
        }
    }

    /// Hands on what was counted since the last time.
    fn change(&mut self, counts: &[Counts], to: &mut Vec<Change>) {
        let (known, samples) = (self.buckets.known(), &self.seen.samples);
        let found = |index: usize| {
            let at = known.get(index).map(|bucket| bucket.at);
            at.and_then(|at| samples.get(&at))
                .map_or(&[][..], Vec::as_slice)
        };
        changes(&mut self.counted, counts, found, &mut self.addresses, to);
    }

    /// Gives parts of mappings the names of what Go has them for.
    pub fn name(&self, mappings: Vec<Mapping>) -> Vec<Mapping> {
        if self.arenas.is_empty() {
            return mappings;
        }
        let named = |one: &Mapping| one.kind == MappingKind::Anon && one.runs_known;
        let mut done = Vec::with_capacity(mappings.len());
        for mut mapping in mappings {
            let lies_in = |arena: &u64| *arena < mapping.end && mapping.start < arena + ARENA;
            let is_heap = self.arenas.iter().any(lies_in);
            // With C, it may be that of the C library, or of a thread of its.
            if named(&mapping) && !is_heap && !self.program.calls_c() {
                mapping.name = RUNTIME.into();
            }
            match named(&mapping) && is_heap {
                true => dividing::split_off(
                    mapping,
                    &self.seen.manual,
                    MappingKind::Stack,
                    STACKS,
                    &mut done,
                ),
                false => done.push(mapping),
            }
        }
        done
    }

    /// Returns the bytes of blocks that were made and not swept, as Go itself counts them; 0 if that is not known.
    pub fn in_use(&self) -> u64 {
        self.seen.used
    }

    /// Returns the newest ticket that was given out.
    pub fn newest_ticket(&self) -> u64 {
        self.next_ticket - 1
    }

    /// Finds the functions of buckets that are new.
    fn place_new(&mut self, batch: &mut Batch) -> Result<(), Refused> {
        let known = self.counted.len();
        let fresh = &self.buckets.known()[known..];
        if fresh.is_empty() {
            return Ok(());
        }
        if self.functions.is_none() {
            let table = self.program.functions(&self.exe, self.process, self.bias)?;
            self.functions = Some(table);
        }
        let Some(functions) = &self.functions else {
            return Ok(());
        };
        for bucket in fresh {
            let next = self.stacks.len() as u32;
            let stack = match self.stacks.get(&bucket.frames) {
                Some(stack) => *stack,
                None => {
                    self.stacks.insert(bucket.frames.clone(), next);
                    let inner = bucket.frames.iter().filter_map(|pc| functions.place(*pc));
                    let mut frames: Vec<GoFrame> =
                        inner.filter(is_shown).map(Place::into_frame).collect();
                    frames.reverse();
                    batch.stacks.push(frames);
                    next
                }
            };
            self.counted.push(Counted::new(stack, bucket.size));
        }
        Ok(())
    }
}

/// Returns the arenas of all that lies in one piece with those that spans lie in: an arena in which nothing lives has none.
fn arenas_of(mappings: &[Mapping], with_spans: &[u64]) -> Vec<u64> {
    let mut all = with_spans.to_vec();
    let (mut piece, mut is_heap) = (0..0, false);
    let mut ends = |piece: &std::ops::Range<u64>, is_heap: bool| {
        let arenas = piece.start / ARENA..piece.end.div_ceil(ARENA);
        all.extend(arenas.filter(|_| is_heap).map(|one| one * ARENA));
    };
    for mapping in mappings.iter().filter(|one| one.perms.starts_with("rw")) {
        if mapping.start != piece.end {
            ends(&piece, is_heap);
            (piece.start, is_heap) = (mapping.start, false);
        }
        piece.end = mapping.end;
        let lies_in = |arena: &u64| *arena < mapping.end && mapping.start < arena + ARENA;
        is_heap |= with_spans.iter().any(lies_in);
    }
    ends(&piece, is_heap);
    all.sort_unstable();
    all.dedup();
    all
}

/// Reports whether a frame is one of the program's: Go puts a function of its own on a stack that begins within an inlined one.
fn is_shown(place: &Place) -> bool {
    place.function != "runtime.skipPleaseUseCallersFrames"
}

impl Place {
    fn into_frame(self) -> GoFrame {
        GoFrame {
            function: self.function,
            file: self.file,
            line: self.line,
            first_line: self.first_line,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arena_without_spans_is_the_heaps_if_it_lies_in_one_piece_with_others() {
        let of = |start: u64, end: u64, perms: &str| Mapping {
            start: start * ARENA / 2,
            end: end * ARENA / 2,
            perms: perms.into(),
            ..Mapping::default()
        };
        let all = [
            of(1, 2, "rw-p"),
            of(4, 5, "rw-p"),
            of(5, 9, "rw-p"),
            of(9, 12, "---p"),
            of(14, 16, "rw-p"),
        ];
        let found = arenas_of(&all, &[2 * ARENA]);
        assert_eq!(found, [2, 3, 4].map(|one| one * ARENA));
        assert!(arenas_of(&all, &[]).is_empty());
    }
}
