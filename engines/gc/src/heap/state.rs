//! The state of a heap, its world and a marking: three types that lead to each other.
//!
//! ```text
//!   Shared ─┬─ source, sweeper, pace     of all heaps of a world
//!           └─ registry ─ ─ ─► Heap ──► Shared
//!                               │ ▲
//!                               ▼ └ ─ ─ members
//!                             Marking, while it is marked in slices      (─ ─ ►: counted weakly)
//! ```
//!
//! P1  A heap belongs to one thread (it is neither Send nor Sync). It does not touch arenas that the sweeper has.
//!
//! Not here: what is done with them: `world`, `alloc`, `sweeping`, `client`, `limit`, `collect`, `incremental`.

use core::cell::{Cell, RefCell};
use std::cell::OnceCell;
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use crate::heap::chunks::Chunks;
use crate::heap::config::Config;
use crate::heap::counts::SweepCounts;
use crate::heap::handover::Handover;
use crate::heap::kind::Kind;
use crate::heap::pace::Pace;
use crate::heap::roots::RootTable;
use crate::heap::source::Source;
use crate::heap::space::Space;
use crate::heap::sweeper::{self, Sweeper};
use crate::heap::tracer::Tracer;
use crate::heap::trigger::{Reason, Triggers};

/// Number of kinds found without hashing.
pub(super) const CACHE: usize = 64;

/// A heap of garbage-collected objects.
pub struct Heap {
    this: Weak<Heap>,
    pub(crate) world: Rc<Shared>,
    pub(crate) id: u32,
    name: String,
    pub(super) cache: [Cell<(*const Kind, *const Space)>; CACHE],
    /// Boxed, since the cache points at them. None is ever removed.
    pub(super) spaces: RefCell<Vec<Rc<Space>>>,
    pub(super) by_kind: RefCell<HashMap<*const Kind, u16>>,
    pub(crate) chunks: RefCell<Chunks>,
    pub(crate) handover: sweeper::Shared,
    pub(crate) sweeping: Cell<bool>,
    /// The bytes up to which arenas are taken rather than swept (alloc.P6).
    pub(super) ahead_bytes: Cell<usize>,
    pub(crate) collecting: Cell<bool>,
    /// Whether a snapshot of it is being written: nothing is allocated or given back until that is over (number.U1).
    pub(crate) still: Cell<bool>,
    pub(super) finalizing: Cell<bool>,
    /// Number of closures of safe code that are running and may have pointers into it.
    pub(crate) entered: Cell<u32>,
    pub(crate) roots: RefCell<RootTable>,
    pub(crate) triggers: Triggers,
    pub(crate) counts: RefCell<SweepCounts>,
    pub(super) stressed: Cell<u64>,
    /// Whether the heap is being marked while the program runs (`incremental`): every barrier reads this.
    pub(crate) marking_on: Cell<bool>,
    pub(crate) marking: RefCell<Option<Rc<RefCell<Marking>>>>,
    /// Bytes taken when the marking last looked.
    pub(crate) taken_seen: Cell<i64>,
    /// Whether allocations may do a slice of marking.
    pub(crate) steps_at_alloc: Cell<bool>,
    /// Whether the heap is never collected alone, so that allocations may not begin to mark it.
    pub(crate) only_with_others: Cell<bool>,
}

pub(crate) struct Shared {
    pub(crate) source: Source,
    pub(crate) config: Config,
    pub(super) sweeper: OnceCell<Option<Sweeper>>,
    /// Number of heaps that are being marked.
    pub(crate) markings: Cell<u32>,
    /// The next world of this thread that has such heaps, while this one has (`incremental::marked`).
    pub(super) next_marked: Cell<*const Shared>,
    /// The cost of pauses.
    pub(crate) pace: Pace,
    /// The number of the counted values that are being collected together with heaps (`counted`).
    pub(crate) counted: Cell<Option<u32>>,
    pub(super) heaps: RefCell<Vec<Option<Weak<Heap>>>>,
}

/// A marking that is on.
pub(crate) struct Marking {
    pub(super) tracer: Tracer,
    pub(super) reason: Reason,
    /// The heaps (marking.K1), and the same by number.
    pub(super) members: Vec<Weak<Heap>>,
    pub(super) set: Vec<bool>,
    /// The root table that is told next, and its next entry.
    pub(super) root: (usize, usize),
    pub(super) pauses: Pauses,
    /// Bytes taken since the last slice, by all members, as far as was looked.
    pub(super) taken: i64,
    pub(super) ready: bool,
}

/// The times for which the mutator stood still for a collection.
#[derive(Default)]
pub(crate) struct Pauses {
    /// The time at which the collection began.
    pub(crate) started_ns: u64,
    /// The part of the last pause that swept what the collection before left.
    pub(crate) finish_ns: u64,
    /// Number of pauses before the last one, if marking was incremental.
    pub(crate) earlier: u32,
    /// Sum of these pauses, and the longest.
    pub(crate) earlier_ns: u64,
    pub(crate) longest_ns: u64,
    /// The time at which the last pause began, if it is not the only one.
    pub(crate) last_ns: Option<u64>,
    pub(crate) forced: bool,
}

impl Heap {
    pub(crate) fn new(
        this: Weak<Heap>,
        world: Rc<Shared>,
        id: u32,
        name: &str,
        limit_bytes: usize,
    ) -> Heap {
        let source = world.source.clone();
        let incremental = world.config.incremental;
        let heap = Heap {
            this,
            id,
            name: name.to_owned(),
            cache: [const { Cell::new((core::ptr::null(), core::ptr::null())) }; CACHE],
            spaces: RefCell::default(),
            by_kind: RefCell::default(),
            chunks: RefCell::new(Chunks::new(source, id, limit_bytes)),
            handover: Arc::new(Handover::new()),
            sweeping: Cell::new(false),
            ahead_bytes: Cell::new(0),
            collecting: Cell::new(false),
            still: Cell::new(false),
            finalizing: Cell::new(false),
            entered: Cell::new(0),
            roots: RefCell::default(),
            triggers: Triggers::new(world.config.growth),
            counts: RefCell::default(),
            stressed: Cell::new(0),
            marking_on: Cell::new(false),
            marking: RefCell::default(),
            taken_seen: Cell::new(0),
            only_with_others: Cell::new(false),
            steps_at_alloc: Cell::new(false),
            world,
        };
        heap.triggers.set_incremental(incremental);
        heap.triggers.set_room(limit_bytes);
        heap.set_growth(heap.world.config.growth);
        heap
    }

    /// Returns the heap's name, for reports.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a counted reference to the heap.
    pub(crate) fn this(&self) -> Rc<Heap> {
        // It is not being dropped: the caller has a count.
        self.this.upgrade().expect("a heap that is alive")
    }

    /// Returns the heap's number among the heaps of its world.
    pub fn id(&self) -> u32 {
        self.id
    }
}
