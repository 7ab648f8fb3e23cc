//! The files of a recording that is bounded: the newest segment has the trace's name, older ones a number behind it.
//!
//! ```text
//!   app.sft.new ─ all that lives is written ─► app.sft is also app.sft.7, ends ─► app.sft.new becomes app.sft ─► oldest go
//! ```
//!
//! N1  At each moment the trace's name leads to a segment that is complete by itself: however the collector ends, the last
//!     part can be read.
//! N2  A segment that cannot be begun leaves the one before as it is, which goes on; what was begun is removed.
//! N3  Older segments go when they end before what is kept, and when all together exceed the bound.
//!
//! Not here: what a segment begins with (live.rs), reading several as one (trace's segments.rs).

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use skinflint_trace::{
    Code, Ending, Kind, LostProcess, Module, ProcessInfo, RawBlock, Thread, ThreadId, Writer,
    older_segments, segment_path,
};

use crate::bounds::{Bounds, Progress, now};

/// A segment that begins, and how the one before ends.
pub struct Turn {
    /// The end of the segment before.
    pub ending: Ending,
    /// The process, and what the segment begins with.
    pub process: ProcessInfo,
    /// All codes of an interpreter, from id 1 on.
    pub codes: Vec<Code>,
    /// What stacks of a script made so far.
    pub kinds: Vec<Kind>,
    /// All nodes, from id 1 on.
    pub nodes: Vec<(u32, u64)>,
    /// All modules.
    pub modules: Vec<Module>,
    /// All threads.
    pub threads: Vec<Thread>,
    /// What lives.
    pub blocks: Vec<RawBlock>,
    /// What the segments so far are put aside as, by a part of the file's name.
    pub kept: Option<String>,
}

/// An older segment.
struct Older {
    number: u64,
    bytes: u64,
    ended: Instant,
}

/// The segments of a trace.
pub struct Segments {
    bounds: Bounds,
    progress: Arc<Progress>,
    level: i32,
    older: VecDeque<Older>,
    /// What was put aside.
    kept: Vec<PathBuf>,
}

/// Removes a file that may be gone.
fn remove(path: &Path) {
    // What cannot be removed stays, and is no part of a recording without its name in a newer segment.
    let _ = std::fs::remove_file(path);
}

/// Gives a file a second name, by a copy where there are no links.
fn link(from: &Path, to: &Path) -> io::Result<()> {
    remove(to);
    match std::fs::hard_link(from, to) {
        Ok(()) => Ok(()),
        Err(_) => std::fs::copy(from, to).map(|_| ()),
    }
}

/// Returns the name of what is kept of a trace: `app.sft`, `rss-1` become `app.rss-1.sft`.
pub fn kept_path(trace: &Path, name: &str) -> PathBuf {
    trace.with_extension(format!("{name}.sft"))
}

impl Segments {
    /// Creates the state of a trace that has one segment.
    pub fn new(bounds: Bounds, progress: Arc<Progress>, level: i32) -> Segments {
        Segments {
            bounds,
            progress,
            level,
            older: VecDeque::new(),
            kept: Vec::new(),
        }
    }

    /// Returns the bytes of the older segments.
    pub fn older_bytes(&self) -> u64 {
        self.older.iter().map(|one| one.bytes).sum()
    }

    /// Notes the bytes of the newest segment, and drops older ones if all exceed the bound (N3).
    pub fn wrote(&mut self, trace: &Path, bytes: u64) {
        self.progress.wrote(bytes);
        let Some(max) = self.bounds.max_bytes else {
            return;
        };
        while self.older_bytes() + bytes > max && self.drop_oldest(trace) {}
    }

    /// Gives the older segments their names beside another name of the trace.
    pub fn renamed(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.older.iter().try_for_each(|one| {
            let (from, to) = (segment_path(from, one.number), segment_path(to, one.number));
            std::fs::rename(&from, &to).or_else(|_| {
                std::fs::copy(&from, &to)?;
                std::fs::remove_file(&from)
            })
        })
    }

    /// Begins a new segment. Returns its writer, and what became of the names; the segment before is ended.
    ///
    /// # Errors
    /// If it cannot be begun: `writer` goes on then (N2).
    pub fn turn(
        &mut self,
        trace: &Path,
        writer: &mut Writer,
        mut turn: Turn,
        lost: &[LostProcess],
    ) -> io::Result<(Writer, io::Result<()>)> {
        if let Some(segment) = &mut turn.process.segment {
            segment.follows = !writer.is_full() && writer.events_lost() == 0;
        }
        let fresh = fresh_path(trace);
        let begun = loop {
            match self.begin(&fresh, &turn, lost) {
                Ok(begun) => break begun,
                // The disk may be full: what is oldest makes room.
                Err(error) if !self.drop_oldest(trace) => {
                    self.progress.turned(writer.bytes_written());
                    return Err(error);
                }
                Err(_) => {}
            }
        };
        let ended = writer.ending(&turn.ending);
        let is_whole = ended.is_ok() && writer.events_lost() == 0;
        let number = turn.process.segment.map_or(0, |one| one.number);
        let bytes = writer.bytes_written();
        let placed = self.place(trace, &fresh, is_whole.then_some((number - 1, bytes)));
        let kept = match (&turn.kept, &placed) {
            (Some(name), Ok(())) => self.keep(trace, &kept_path(trace, name)),
            _ => Ok(()),
        };
        self.progress.turned(begun.bytes_written());
        self.drop_old(trace);
        self.wrote(trace, begun.bytes_written());
        Ok((begun, placed.and(kept)))
    }

    /// Writes what a segment begins with.
    fn begin(&self, fresh: &Path, turn: &Turn, lost: &[LostProcess]) -> io::Result<Writer> {
        let mut writer = Writer::create_with(fresh, &turn.process, self.level)?;
        let written = (|| {
            writer.repeats(true)?;
            writer.codes(1, &turn.codes)?;
            writer.nodes(1, &turn.nodes)?;
            writer.kinds(&turn.kinds)?;
            writer.modules(&turn.modules)?;
            for (id, thread) in (0..).zip(&turn.threads) {
                writer.thread(ThreadId(id), thread)?;
            }
            writer.lost(lost)?;
            for block in &turn.blocks {
                writer.events(block.clone())?;
            }
            writer.repeats(false)
        })();
        match written {
            Ok(()) => Ok(writer),
            Err(error) => {
                remove(fresh);
                Err(error)
            }
        }
    }

    /// Gives the ended segment its number, if it is whole, and the new one the name (N1).
    fn place(&mut self, trace: &Path, fresh: &Path, ended: Option<(u64, u64)>) -> io::Result<()> {
        let linked = match ended {
            Some((number, bytes)) => link(trace, &segment_path(trace, number)).map(|()| {
                self.older.push_back(Older {
                    number,
                    bytes,
                    ended: now(),
                });
            }),
            None => Ok(()),
        };
        if ended.is_none() || linked.is_err() {
            // Nothing joins what lies before a gap.
            while self.drop_oldest(trace) {}
        }
        std::fs::rename(fresh, trace).and(linked)
    }

    /// Returns what was put aside.
    pub fn kept(&self) -> &[PathBuf] {
        &self.kept
    }

    /// Keeps the older segments under a name of their own, in the place of what had it.
    fn keep(&mut self, trace: &Path, kept: &Path) -> io::Result<()> {
        let Some(newest) = self.older.back() else {
            return Ok(());
        };
        older_segments(kept).iter().for_each(|path| remove(path));
        self.kept.retain(|path| path != kept);
        self.kept.push(kept.to_owned());
        for one in self.older.range(..self.older.len() - 1) {
            link(
                &segment_path(trace, one.number),
                &segment_path(kept, one.number),
            )?;
        }
        link(&segment_path(trace, newest.number), kept)
    }

    /// Drops the oldest segment; returns whether there was one.
    fn drop_oldest(&mut self, trace: &Path) -> bool {
        let oldest = self.older.pop_front();
        if let Some(one) = &oldest {
            remove(&segment_path(trace, one.number));
        }
        oldest.is_some()
    }

    /// Drops the segments that ended before what is kept (N3).
    fn drop_old(&mut self, trace: &Path) {
        let Some(keep) = self.bounds.keep else {
            return;
        };
        while self
            .older
            .front()
            .is_some_and(|one| now().saturating_duration_since(one.ended) > keep)
        {
            self.drop_oldest(trace);
        }
    }
}

/// Returns the name of a segment that is being begun.
fn fresh_path(trace: &Path) -> PathBuf {
    let mut name = trace.as_os_str().to_owned();
    name.push(".new");
    name.into()
}
