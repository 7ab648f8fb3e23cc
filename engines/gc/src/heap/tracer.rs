//! The tracer: what kinds and roots tell their edges to.
//!
//! ```text
//!   kind.trace, roots.trace ─► Tracer ─┬─ marks (`mark`), at once or in slices (`incremental`)
//!                                      ├─ lists what it is told (`verify`, counted values)
//!                                      └─ tells a listener each edge, by name (`listen`)
//! ```
//!
//! Its fields are those of all four, since a kind's function is one and the same for all; what is done with an edge is
//! told by which of them are set.
//!
//! Not here: what each of them does.

use core::ptr::NonNull;

use crate::heap::address::Chunk;
use crate::heap::incremental::Steps;
use crate::heap::listener::Listener;
use crate::heap::roots::RootId;
use crate::heap::weak::{Pair, PairTargets, WeakCell};

/// The most entries of the mark stack: one megabyte of pointers. A deep list needs one, a wide array as many as it has.
const STACK_MOST: usize = 1 << 17;

/// A number that no heap has.
pub(super) const NONE: u32 = u32::MAX;

/// The objects reached in one heap, as sums.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Reach {
    pub(crate) collected: bool,
    pub(crate) cells: u64,
    pub(crate) bytes: u64,
}

/// Follows edges. Kinds and roots tell it their edges.
pub struct Tracer {
    pub(super) stack: Vec<NonNull<u8>>,
    pub(super) most: usize,
    /// The entries of `stack` that are allocated and may be used (mark.M5).
    pub(super) room: usize,
    /// The heap that is collected, if it is one; [`NONE`] if there are several, or if edges are only listed.
    pub(super) only: u32,
    /// What was reached in `only`.
    pub(super) here: Reach,
    /// What was reached in each heap, by number; that of `only` is in `here`.
    pub(super) reach: Vec<Reach>,
    pub(super) delayed: Vec<Chunk>,
    /// Number of times that an arena was delayed.
    pub(crate) overflows: u64,
    pub(super) weak: Vec<NonNull<WeakCell>>,
    pub(super) pairs: Vec<NonNull<Pair>>,
    /// What was told, where edges are only listed, for the second tracer (`verify`).
    pub(super) listed: Option<ListedEdges>,
    /// The memory between slices, where the program runs between them (`incremental`).
    pub(crate) steps: Option<Box<Steps>>,
    /// The list that counted pointers are told to (`counted`).
    pub(crate) counted: Option<Box<CountedEdges>>,
    /// The listener that each edge is told to at once, with its name (`listen`).
    pub(crate) listener: Option<NonNull<dyn Listener>>,
}

/// The edges that an object reported, none of them followed.
#[derive(Default)]
pub(crate) struct ListedEdges {
    pub(crate) edges: Vec<NonNull<u8>>,
    pub(crate) pairs: Vec<PairTargets>,
}

/// Counted values and anchors that were told, for the collector of counted values, which is not in this folder.
#[derive(Default)]
pub(crate) struct CountedEdges {
    /// The headers of the counted values.
    pub(crate) counted: Vec<NonNull<u8>>,
    /// The heap, the entry of its root table, and the object of each anchor.
    pub(crate) anchors: Vec<(u32, RootId, NonNull<u8>)>,
}

impl Tracer {
    /// Creates a tracer that marks the heaps that `collected` names. `most`: entries of its stack.
    pub(crate) fn marking(collected: Vec<bool>, most: Option<usize>) -> Tracer {
        let reach = |collected| Reach {
            collected,
            ..Reach::default()
        };
        let mut numbers = (0..).zip(&collected).filter(|(_, set)| **set);
        let only = match (numbers.next(), numbers.next()) {
            (Some((only, _)), None) => only,
            _ => NONE,
        };
        Tracer {
            stack: Vec::new(),
            most: most.unwrap_or(STACK_MOST),
            room: 0,
            only,
            here: reach(only != NONE),
            reach: collected.into_iter().map(reach).collect(),
            delayed: Vec::new(),
            overflows: 0,
            weak: Vec::new(),
            pairs: Vec::new(),
            listed: None,
            steps: None,
            counted: None,
            listener: None,
        }
    }

    /// Creates a tracer that only lists what it is told.
    pub(crate) fn listing() -> Tracer {
        let mut tracer = Tracer::marking(Vec::new(), None);
        tracer.listed = Some(ListedEdges::default());
        tracer
    }

    pub(crate) fn take_listed(&mut self) -> ListedEdges {
        self.listed.as_mut().map(std::mem::take).unwrap_or_default()
    }

    #[inline]
    pub(crate) fn reach(&self, heap: u32) -> Reach {
        if heap == self.only {
            return self.here;
        }
        self.reach.get(heap as usize).copied().unwrap_or_default()
    }

    /// Creates a tracer that lists counted pointers and anchors.
    pub(crate) fn listing_counted() -> Tracer {
        let mut tracer = Tracer::listing();
        tracer.counted = Some(Box::default());
        tracer
    }

    /// Tells a counted pointer, by the header of its value.
    #[inline]
    pub(crate) fn counted(&mut self, header: NonNull<u8>) {
        if let Some(edges) = &mut self.counted {
            edges.counted.push(header);
        }
    }

    /// Tells an anchor: its entry in a heap's root table, and its object.
    pub(crate) fn anchor(&mut self, heap: u32, id: RootId, object: NonNull<u8>) {
        if let Some(edges) = &mut self.counted {
            edges.anchors.push((heap, id, object));
        }
    }

    /// Forgets other edges, which do not matter here.
    pub(crate) fn forget_listed(&mut self) {
        drop(self.take_listed());
    }

    /// Takes what was told since the last time.
    pub(crate) fn take_counted(&mut self) -> Box<CountedEdges> {
        self.counted.take().unwrap_or_default()
    }
}
