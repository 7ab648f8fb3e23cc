//! A thread's heap: for each class the span it allocates from, and lists of the other spans.
//!
//! ```text
//!   malloc ◄── magazine ◄─── Current span      exhausted ──► full ──► (an eighth freed) ──► partial ──┐
//!   free ───►  (LIFO)          ▲                                           │ all freed              │
//!     └─ when it is full: the span's bits     └── partial, then empty, then full again,             │
//!                                                 then another heap's, then new ◄───────────────────┘
//! ```
//!
//! H1  A heap is used by one thread (or by the lock's holder, while it has none). Its lock guards the
//!     lists; the fast paths do without (see span.S2 to span.S5).
//! H2  `current` is never null while somebody has the heap: a class without a span has [`EMPTY_SPAN`], which is never written.
//!     In a hollow heap it is null (hollow.Q1).
//! H3  Every span of the heap is Current, or on exactly one list by its state.
//! H4  `pages` is the sum of the spans' pages; `empty_pages` that of those on the lists of empty ones.
//! H5  A magazine holds blocks whose bit is set in D and not in F, each once. Its owner moves its bounds; another thread
//!     that has the heap's lock may take what is in it (magazine.M2). It is short: a block in it pins its page. It saves
//!     the way from the address to the bit and back, which is one long chain of dependent loads, for blocks that are
//!     freed and soon wanted again.
//! H6  `has_empty` has a bit for each class whose list of empty spans is not empty.
//!
//! Not here: how a magazine is filled and the next span is found (`refill`), frees (`free`), threads (`thread`), where
//! spans come from (`spans`), giving pages back (`holes`).

use core::cell::Cell;

use skinflint_base::sync::{AtomicI64, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use super::class::{self, MAX_CLASSES};
use super::entry::Entry;
use super::grown::Grown;
use super::kept::Kept;
use super::lock::{Lock, Who};
use super::magazine::Bounds;
use super::range::{at, meta, offset_of};
use super::remote::{self, Owned};
use super::section;
use super::span::Span;

/// The span of classes that have none: no free slot, never written (H2).
pub static EMPTY_SPAN: Span = Span::none();

/// The uses of a heap.
pub mod usage {
    /// The heap is unused, and waits for a thread.
    pub const IDLE: u32 = 0;
    /// A thread has the heap.
    pub const THREAD: u32 = 1;
    /// A tenant has the heap, which is used under its lock (`tenant`).
    pub const TENANT: u32 = 2;
    /// The heap was a tenant's, holds nothing, and waits for the next tenant.
    pub const SPARE: u32 = 3;
    /// The heap has the sampled blocks of all threads, and is used under its lock (`sample`).
    pub const SAMPLES: u32 = 4;
}

/// How far a heap is on its way to being hollow (`hollow`).
pub mod hollowness {
    /// Somebody has the heap, or it was never left.
    pub const NO: u32 = 0;
    /// The heap was left.
    pub const LEFT: u32 = 1;
    /// A round has found it empty.
    pub const WAITED: u32 = 2;
    /// The heap's pages have gone, but one.
    pub const HOLLOW: u32 = 3;
}

/// A class's magazine, and the span that fills it (H5).
#[repr(C, align(32))]
pub struct Magazine {
    /// Where its entries are.
    pub bounds: Bounds<Entry>,
    pub current: Cell<*mut Span>,
}

const _: () = assert!(core::mem::offset_of!(Magazine, bounds) == 0);
const _: () = assert!(core::mem::size_of::<Magazine>() == 1 << class::MAGAZINE_SHIFT);
const _: () = assert!(core::mem::offset_of!(Heap, mags) == 0);

/// Offset of the budget in a heap, for assembly.
pub const BUDGET_AT: usize = core::mem::offset_of!(Heap, budget);

/// Returns the number of blocks that a refill brings. A free that finds the magazine full goes to the bits, which costs
/// as much, so no room need be left for it; but half of a short magazine is left, or large blocks would always go that
/// way.
pub fn fill_of(room: u32) -> u32 {
    if room >= 16 { room } else { room.div_ceil(2) }
}

/// Begins a new cache line.
#[repr(align(64))]
struct Line;

/// A heap. What its thread writes at every call, what the lock guards, and what other threads push to are on separate
/// cache lines: on one line, each push made the owner's next malloc wait.
#[repr(C, align(64))]
pub struct Heap {
    /// A magazine for each class.
    pub mags: [Magazine; MAX_CLASSES],
    /// Bytes to request until the next sample (`sample`).
    pub budget: AtomicI64,
    /// Requested bytes up to the last sample, in whole budgets.
    pub requested: AtomicU64,
    /// State of the random numbers of `sample`; 0 before the first.
    pub random: AtomicU64,
    /// Pages that may have become reclaimable and were not reported yet (`holes`).
    pub hinted: AtomicU32,
    /// Number of spans taken by slow paths: by it the purger knows what is in demand.
    pub refills: AtomicU32,
    /// Slice of the last request that came to a slow path: the size for which a class grows (`class::grown`).
    pub asked: AtomicU32,
    /// Number of rounds so far (`holes`).
    pub walks: AtomicU32,
    /// Number of pages at which the heap is searched for holes again (`holes`).
    pub search_at: AtomicU32,
    /// Blocks until the next guarded one (`harden`).
    pub sample_left: AtomicU32,
    /// Rounds of thread destructors seen (`thread`).
    pub exit_rounds: AtomicU32,
    /// Halvings of the sampling rate at the time of the last draw (`sample`).
    pub sample_shift: AtomicU32,
    /// Whether the heap's thread is calling listeners (`reserve`).
    pub calling: AtomicU32,
    /// Whether the heap's thread is about to notify another heap (remote.R5).
    pub notifying: AtomicU32,
    guarded: Line,
    /// Guards the lists (H1).
    pub lock: Lock,
    /// What the heap is used for: a number of [`usage`].
    pub usage: AtomicU32,
    /// Offset of the next heap in the list of all heaps.
    pub next_heap: AtomicU32,
    /// Offset of the next heap in the list of idle heaps.
    pub next_idle: AtomicU32,
    /// Pages of all spans (H4).
    pub pages: AtomicU32,
    /// Pages of empty spans (H4).
    pub empty_pages: AtomicU32,
    /// The value of `refills` when the purger last looked.
    pub refills_seen: AtomicU32,
    /// Number of spans that slow paths took between the purger's last two rounds.
    pub wanted: AtomicU32,
    /// Whether nothing has changed since its pages were meshed (`mesh`).
    pub mesh_done: AtomicU32,
    /// Number of pages that were meshed then.
    pub meshed_pages: AtomicU32,
    /// Number of different ones among them.
    pub meshed_groups: AtomicU32,
    /// Whether a fork left the heap here without its thread, with blocks in its magazines (fork.W3).
    pub orphan: AtomicU32,
    /// Offset of a tenant's newest large block.
    pub large: AtomicU32,
    /// Number of tenants that have had this heap, by which the handle of an earlier one is recognized (`tenant`).
    pub serial: AtomicU32,
    /// Number of walks for which the heap still keeps its magazines although it has no thread (thread.D4).
    pub warm: AtomicU32,
    /// Whether the kernel restarts the sections of its thread (section.E2), so that its magazines may be revoked.
    pub revocable: AtomicU32,
    /// Where it stands between a revocation and the take (`idle`).
    pub revoking: AtomicU32,
    /// Whether its thread is asked to empty the magazines itself (`idle`).
    pub asked_to_empty: AtomicU32,
    /// What the last walk found (`idle`).
    pub seen: AtomicU64,
    /// The time since when walks have found the same (`idle`); 0: that has been seen to.
    pub same_since_ns: AtomicU64,
    /// The time at which the purger last saw that slow paths had taken spans (`mesh`).
    pub wanted_ns: AtomicU64,
    /// Number of times that its magazines were taken from its thread.
    pub takes: AtomicU32,
    /// A number of [`hollowness`].
    pub hollow: AtomicU32,
    /// Number of entries handed out to magazines.
    pub entries_used: AtomicU32,
    /// Room for the magazines ([`ENTRIES`]), mapped when the first of them is filled: tenants never fill one.
    pub entries: AtomicPtr<Entry>,
    pushed: Line,
    /// Offset from META of the newest span on the notified stack.
    pub notified: AtomicU32,
    lists: Line,
    /// Partial spans by class.
    pub partial: [AtomicU32; MAX_CLASSES],
    /// Full spans by class.
    pub full: [AtomicU32; MAX_CLASSES],
    /// Empty spans by class.
    pub empty: [AtomicU32; MAX_CLASSES],
    /// Classes with empty spans: a bit each (H6).
    pub has_empty: [AtomicU64; MAX_CLASSES / 64],
    /// Pages of each class's current span that are not resident yet (fresh.Y1).
    pub fresh: [AtomicU16; MAX_CLASSES],
    /// Spans of each class that the heap went through since it was last idle, at most 255 ([`class::pages_for`]).
    pub turns: [AtomicU8; MAX_CLASSES],
    /// Large blocks that the heap's thread freed, kept for the next requests of their length (`cache`).
    pub kept: Kept,
    /// Blocks that its thread lately moved because they grew.
    pub grown: Grown,
    /// The thread whose stack's bounds follow, by its id; 0: none (`services::profile`).
    pub stack_of: AtomicU32,
    /// The lowest address of the thread's stack, and the end.
    pub stack_bounds: [AtomicU64; 2],
}

/// A tenant costs this much metadata: META holds 1 GiB, of which each heap keeps a part for good.
const _: () = assert!(core::mem::size_of::<Heap>() <= 12 * 1024);

/// Entries of all magazines of a heap together: more than any number of sizes in use needs. Pages of them that no class
/// uses are never touched.
pub const ENTRIES: usize = MAX_CLASSES * 16;

/// Entries begin on a page and fill the last one, so that their pages can be given back without other data.
const _: () = assert!((ENTRIES * core::mem::size_of::<Entry>()).is_multiple_of(4096));

const _: () = {
    let (mut size, mut wanted) = (16, 0);
    while size <= 16 * MAX_CLASSES as u32 {
        wanted += magazine_entries(size) as usize;
        size += 16;
    }
    assert!(wanted <= ENTRIES);
};

/// Returns the number of entries of a class's magazine: the blocks that 16 KiB hold, from 4 to 32. Instructions
/// (callgrind, 2026-11-21) with 8 KiB from 3 on, 16 KiB from 4 on, 32 KiB from 6 on: 74.6, 67.5, 59.6 million for 2,000
/// random blocks of 1 to 31 KiB (`pattern rand2k 200000`), 201, 190, 181 for chains of ten sizes (`pattern glibc-simple
/// 2000`). Blocks in magazines pin their pages: 15 real programs need 0.6 % more at their peak with 32 KiB than with 8,
/// less than half of that with 16.
pub const fn magazine_entries(size: u32) -> u32 {
    match 16_384 / size {
        0..4 => 4,
        hold @ 4..32 => hold,
        _ => 32,
    }
}

/// Returns the frees into a full span of `slots` slots until it is partial. An eighth: with fewer frees a visit yields
/// little, with more, slots stay unused (they are looked for again before the heap grows, see `refreed`).
pub fn event_of(slots: usize) -> u32 {
    (slots as u32 / 8).max(1)
}

// SAFETY: the cells are the current spans, which only the lock's holder changes (H1). Everything else is atomic.
unsafe impl Sync for Heap {}

/// Returns the span that stands for none.
#[inline(always)]
fn no_span() -> *mut Span {
    &raw const EMPTY_SPAN as *mut Span
}

impl Heap {
    /// Makes a heap in zeroed memory.
    ///
    /// # Safety
    /// `heap` is the caller's, of this size and alignment.
    pub unsafe fn init(heap: *mut Heap) {
        // SAFETY: zeroes are valid for every field.
        let this = unsafe { &*heap };
        for magazine in &this.mags {
            magazine.current.set(no_span());
        }
    }

    /// Returns what spans of this heap carry as their owner.
    #[inline(always)]
    pub fn id(&self) -> u32 {
        core::ptr::from_ref(self) as usize as u32
    }

    /// Returns the identity as which its thread takes locks.
    #[inline]
    pub fn who(&self) -> Who {
        Who(self.id())
    }

    /// Returns the identity as which the thread that has this heap's lock takes further ones: the purger and other
    /// holders are not the owner, which may have the pool's lock at the same moment.
    pub fn holder(&self) -> Who {
        self.lock.holder(self.who())
    }

    /// Returns a class's magazine.
    #[inline(always)]
    pub fn magazine(&self, class: usize) -> &Magazine {
        debug_assert!(class < MAX_CLASSES);
        // SAFETY: classes are below MAX_CLASSES (class.C1, class.C2).
        unsafe { self.mags.get_unchecked(class) }
    }

    /// Returns the span that a class allocates from (H2).
    #[inline]
    pub fn current(&self, class: usize) -> *mut Span {
        self.magazine(class).current.get()
    }

    /// Takes a request's bytes off the budget; `true`: it is used up.
    #[cfg(not(target_arch = "x86_64"))]
    #[inline(always)]
    pub fn spend(&self, bytes: usize) -> bool {
        use skinflint_base::sync::Ordering;
        // ORDER: this thread's own (H1), which other threads look at.
        let left = self
            .budget
            .load(Ordering::Relaxed)
            .wrapping_sub(bytes as i64);
        self.budget.store(left, Ordering::Relaxed); // ORDER: as above
        left < 0
    }

    /// Leaves the class without a current span.
    pub fn clear_current(&self, class: usize) {
        self.mags[class].current.set(no_span());
    }

    /// Takes the newest block of a class's magazine; null: it is empty. For slow paths: each copy of a section is a
    /// descriptor more.
    ///
    /// # Safety
    /// The caller owns the heap.
    #[inline(never)]
    #[unsafe(link_section = ".text.skinflint_first")]
    pub unsafe fn pop_block(&self, class: usize) -> *mut u8 {
        // SAFETY: as the caller promises; classes have magazines.
        unsafe {
            section::pop(
                core::ptr::from_ref(self).cast(),
                class::magazine_of(class).into(),
            )
        }
    }

    /// Does what [`Heap::pop_block`] does, for a slice of the class. Cost: nine loads, three stores.
    ///
    /// # Safety
    /// The caller owns the heap; the slice is below `SLICES`.
    #[inline(always)]
    pub unsafe fn pop_slice(heap: *const Heap, slice: usize) -> *mut u8 {
        // SAFETY: TABLE holds offsets of magazines (class.C2), with which a heap begins.
        unsafe { section::pop(heap.cast(), class::magazine_of_slice(slice)) }
    }

    /// Reports whether a span is the one that stands for none; null does in a hollow heap (H2).
    pub fn is_none(span: *mut Span) -> bool {
        span.is_null() || span == no_span()
    }
}

/// Returns the heap that owns a span.
pub fn owner_of(span: &Span) -> &'static Heap {
    let offset = remote::owner(&span.owner).wrapping_sub(meta() as u32);
    // SAFETY: owners are heaps, which stay (pool.G4).
    unsafe { &*at::<Heap>(offset) }
}

impl Owned for Span {
    #[inline(always)]
    fn link(&self) -> &AtomicU32 {
        &self.nlink
    }

    #[inline]
    fn stack(&self) -> &AtomicU32 {
        &owner_of(self).notified
    }

    #[inline(always)]
    fn offset(&self) -> u32 {
        offset_of(self)
    }
}
