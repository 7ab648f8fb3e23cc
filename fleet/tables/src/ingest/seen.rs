//! What was seen in one file: one process at one level.
//!
//! ```text
//!   report.rs, heap_text.rs, pprof.rs ─► Seen: stacks with what they hold, frames, books, findings ─► mod.rs: rows
//! ```
//!
//! Not here: how a file says it, what becomes of it.

use std::collections::BTreeMap;

use crate::id;
use crate::rows::Frame;

/// One process at one level: that of the file's moment.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) program: String,
    pub(super) pid: u64,
    /// Start of the process, seconds since 1970; 0 if the file does not say it.
    pub(super) started: i64,
    /// Begin of what the file stands for; 0 if it does not say it.
    pub(super) t: i64,
    pub(super) minutes: i64,
    pub(super) system: String,
    pub(super) sample_bytes: i64,
    pub(super) lost: i64,
    pub(super) resident: i64,
    pub(super) books: Vec<(String, i64)>,
    pub(super) stacks: BTreeMap<i64, Held>,
    pub(super) frames: BTreeMap<i64, Frame>,
    pub(super) findings: Vec<Found>,
}

/// What one stack holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) leaf: i64,
    pub(super) frames: Vec<i64>,
    pub(super) samples: i64,
    pub(super) alloc_bytes: i64,
    pub(super) alloc_blocks: i64,
    pub(super) live_bytes: i64,
    pub(super) live_blocks: i64,
    pub(super) variance: i64,
    pub(super) slop: i64,
    pub(super) pinned: i64,
}

#[derive(Debug)]
pub(super) struct Found {
    pub(super) kind: String,
    pub(super) stack: i64,
    pub(super) title: String,
    pub(super) change: String,
    pub(super) confidence: String,
    pub(super) now: i64,
    pub(super) saved: i64,
}

impl Seen {
    /// Notes a frame, and returns its id.
    pub(super) fn frame(&mut self, module: &str, function: &str, file: &str, line: i64) -> i64 {
        let frame = id::frame(module, function);
        self.frames.entry(frame).or_insert_with(|| Frame {
            frame,
            function: function.to_owned(),
            module: module.to_owned(),
            file: file.to_owned(),
            line,
        });
        frame
    }

    /// Returns the entry of a stack of frames, innermost first; `leaf` names it, or the first that is no allocator's.
    pub(super) fn stack(&mut self, frames: &[i64], leaf: Option<i64>) -> &mut Held {
        let passes_on = |frame: &&i64| {
            let name = self
                .frames
                .get(*frame)
                .map_or("", |frame| frame.function.as_str());
            PASSING
                .iter()
                .any(|known| name.trim_start_matches('_').starts_with(known))
        };
        let leaf = leaf.or_else(|| frames.iter().find(|frame| !passes_on(frame)).copied());
        let leaf = leaf.or(frames.first().copied()).unwrap_or(0);
        self.stacks
            .entry(id::stack(frames))
            .or_insert_with(|| Held {
                leaf,
                frames: frames.to_vec(),
                ..Held::default()
            })
    }
}

/// Beginnings of the names of functions that only pass an allocation on.
const PASSING: &[&str] = &[
    "malloc",
    "calloc",
    "realloc",
    "aligned_alloc",
    "posix_memalign",
    "memalign",
    "operator new",
    "Znwm",
    "Znam",
    "alloc::alloc::",
    "rust_alloc",
    "rustc::",
    "std::allocator",
    "std::__new_allocator",
];
