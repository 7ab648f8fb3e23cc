//! The state of a tracer between slices of marking.
//!
//! ```text
//!   advance(most) ─► mark stack ─► delayed arenas ─► parts of objects ─► changed objects ─► holders of pairs ─► nothing left
//!        ▲                each of them tells edges, which go back onto the stack                     │
//!        └────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! incremental.I3, incremental.I7 and incremental.I8 are kept here.
//!
//! Not here: when a slice is done, and for which heaps (`marking`); following one edge (`mark`).

use core::ptr::NonNull;
use std::collections::{HashMap, HashSet};

use crate::heap::address::Arena;
use crate::heap::weak::PairTargets;

/// The most times that an object that is changed repeatedly is traced again in slices (incremental.I7).
const AGAIN: u32 = 4;

/// A fact that an object tells beside its edges.
#[derive(Clone, Copy)]
pub(crate) enum Note {
    /// It holds weak cells or pairs.
    Weak = 1,
    /// It holds pairs.
    Pair = 2,
    /// A part of it is being written.
    Locked = 4,
}

/// The state that a tracer keeps between slices: objects (incremental.I3).
#[derive(Default)]
pub(crate) struct Steps {
    pub(super) noted: u8,
    pub(super) holders: Vec<NonNull<u8>>,
    pub(super) pair_holders: Vec<NonNull<u8>>,
    /// Objects of both lists that were noted when they were traced again.
    late: HashSet<NonNull<u8>>,
    /// Objects to be traced again (incremental.I7), and how often each was, or waits to be.
    pub(super) again: Vec<NonNull<u8>>,
    pub(super) changed: HashMap<NonNull<u8>, Changed>,
    /// Objects that are traced in parts, and where to go on (incremental.I8).
    pub(super) parts: Vec<(NonNull<u8>, usize)>,
    /// A delayed arena, and its cells that are still to be traced.
    pub(super) arena: Option<(Arena, [u64; 4])>,
    /// Pairs of the holder that is being looked at; `None`: there is none.
    pub(super) listed: Option<Vec<PairTargets>>,
    /// The next holder of pairs, the number of cells marked when the round began, and that when the last whole round
    /// found nothing.
    pub(super) pair_at: usize,
    pub(super) round_cells: u64,
    pub(super) done_cells: Option<u64>,
}

/// An object that was changed after it was marked.
#[derive(Default)]
pub(super) struct Changed {
    times: u32,
    pub(super) waits: bool,
}

impl Steps {
    pub(crate) fn note(&mut self, note: Note) {
        self.noted |= note as u8;
    }

    pub(crate) fn pair(&mut self, key: Option<NonNull<u8>>, value: Option<NonNull<u8>>) {
        self.noted |= Note::Weak as u8 | Note::Pair as u8;
        if let Some(listed) = &mut self.listed {
            listed.push((key, value));
        }
    }

    /// Forgets what was noted outside of objects.
    pub(crate) fn forget_notes(&mut self) {
        self.noted = 0;
    }

    pub(crate) fn trace_again(&mut self, object: NonNull<u8>) {
        let changed = self.changed.entry(object).or_default();
        if !changed.waits {
            changed.waits = true;
            changed.times += 1;
            if changed.times <= AGAIN {
                self.again.push(object);
            }
        }
    }

    /// Remembers what an object told; `first`: when it was marked.
    #[cold]
    pub(super) fn keep(&mut self, object: NonNull<u8>, first: bool) {
        let noted = core::mem::take(&mut self.noted);
        if noted & Note::Locked as u8 != 0 {
            self.trace_again(object);
        }
        if noted & Note::Weak as u8 != 0 && (first || self.late.insert(object)) {
            self.holders.push(object);
            if noted & Note::Pair as u8 != 0 {
                self.pair_holders.push(object);
            }
        }
    }
}
