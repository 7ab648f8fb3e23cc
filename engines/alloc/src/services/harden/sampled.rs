//! Sampled blocks: one in some thousands stands alone on its own pages, between pages without access.
//!
//! ```text
//!   pool   [guard| slot 0: 8 pages |guard| slot 1 … |guard| … slot 63 |guard]     all without access
//!   slot   [ no access …    | .. block ]guard      or      guard[ block .. |   … no access ]
//!   free ──► no access, no pages; the slot is used again after all others
//! ```
//!
//! S1  A slot's `phase` is FREE, LIVE or DYING; the one thread that makes it DYING frees the block.
//! S2  The queue of free slots, and access to pages, change under [`LOCK`]. The rest of a slot is written by the thread
//!     that has it, and read by the thread that reports a fault, which may be too late: then the report is wrong, never
//!     the heap.
//! S3  A slot that was freed is used again as late as possible, so that a late use is a fault.
//! S4  The number of blocks between two samples is random, so that no pattern of the program's is in step.
//!
//! Not here: stacks (`stacks`), the signal (`handler`).

use skinflint_base::sync::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use skinflint_base::sys;
use skinflint_pages::PAGE;

use super::stacks::{self, Stack};
use super::story::{self, Story};
use super::{guard, handler, trailer};
use crate::heaps::fault::{self, Fault, Policy};
use crate::heaps::tls;
use crate::mechanism::class::SMALL_MAX;
use crate::mechanism::guarded::Guarded;
use crate::mechanism::heap::Heap;
use crate::mechanism::lock::Lock;

pub const SLOTS: usize = 64;
/// Pages of a slot: those of the largest small block.
const SLOT_PAGES: usize = 8;
const STRIDE: usize = (SLOT_PAGES + 1) * PAGE;
const POOL_BYTES: usize = SLOTS * STRIDE + PAGE;

const FREE: u32 = 0;
const LIVE: u32 = 1;
const DYING: u32 = 2;

/// A slot's block, or the last one that it had.
pub struct Slot {
    phase: AtomicU32,
    start: AtomicUsize,
    pub bytes: AtomicUsize,
    /// When it got its block, and when it was asked about (`untouched`); 0: it was not.
    pub born_ns: AtomicU64,
    pub asked_ns: AtomicU64,
    /// Pages with access: first address and bytes.
    open: AtomicUsize,
    open_bytes: AtomicUsize,
    pub born: Stack,
    died: Stack,
}

/// A slot with a live block, and its pages.
pub struct Live {
    pub slot: &'static Slot,
    pub pages: usize,
    pub bytes: usize,
}

/// Free slots, oldest first.
struct Queue {
    slots: [u8; SLOTS],
    first: usize,
    count: usize,
}

static TABLE: [Slot; SLOTS] = [const {
    Slot {
        phase: AtomicU32::new(FREE),
        start: AtomicUsize::new(0),
        bytes: AtomicUsize::new(0),
        born_ns: AtomicU64::new(0),
        asked_ns: AtomicU64::new(0),
        open: AtomicUsize::new(0),
        open_bytes: AtomicUsize::new(0),
        born: Stack::new(),
        died: Stack::new(),
    }
}; SLOTS];
/// Reached only under LOCK (S2).
static WAITING: Guarded<Queue> = Guarded::new(Queue {
    slots: [0; SLOTS],
    first: 0,
    count: 0,
});
/// Guards queue and access (S2).
pub static LOCK: Lock = Lock::new();
/// Address of the pool; 0 while there is none.
static POOL: AtomicUsize = AtomicUsize::new(0);
static EVERY: AtomicU32 = AtomicU32::new(0);

/// Makes the pool. `false`: the OS refuses.
pub fn begin(every: u32) -> bool {
    // Slots and the pages between them are of 4 KiB.
    if skinflint_base::page::is_larger() {
        return false;
    }
    // SAFETY: a fresh mapping without access, at an address of the kernel's choice.
    let pool = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        sys::syscall(
            libc::SYS_mmap,
            [0, POOL_BYTES as u64, 0, flags as u64, u64::MAX, 0],
        )
    };
    if sys::is_error(pool) || !stacks::begin() {
        return false;
    }
    // SAFETY: one thread (harden.Y2).
    let queue = unsafe { &mut *WAITING.get() };
    for (i, slot) in queue.slots.iter_mut().enumerate() {
        *slot = i as u8;
    }
    queue.count = SLOTS;
    EVERY.store(every, Ordering::Relaxed); // ORDER: one thread
    POOL.store(pool as usize, Ordering::Relaxed); // ORDER: one thread
    true
}

/// Reports whether an address lies in the pool. Cost: one load where there is none.
#[inline]
pub fn is_ours(address: usize) -> bool {
    // ORDER: set at start.
    let pool = POOL.load(Ordering::Relaxed);
    pool != 0 && address.wrapping_sub(pool) < POOL_BYTES
}

/// Returns the number of blocks of which one is a sample.
pub fn every() -> u32 {
    // ORDER: set at start.
    EVERY.load(Ordering::Relaxed)
}

/// Reports whether this thread's next block is to be a sample. Cost: one load, one store.
#[inline]
pub fn is_due(heap: &Heap) -> bool {
    // ORDER: this thread's own (heap.H1).
    let left = heap.sample_left.load(Ordering::Relaxed);
    if left > 1 {
        heap.sample_left.store(left - 1, Ordering::Relaxed); // ORDER: as above
        return false;
    }
    heap.sample_left.store(draw(heap), Ordering::Relaxed); // ORDER: as above
    // 0 means a heap that was made just now: its count begins here, else every thread's first block would be a sample.
    left == 1 || EVERY.load(Ordering::Relaxed) == 1 // ORDER: set at start
}

/// Returns a random number from 1 to twice the chosen one, less one (S4).
fn draw(heap: &Heap) -> u32 {
    // ORDER: set at start.
    let every = u64::from(EVERY.load(Ordering::Relaxed));
    let mut x = sys::monotonic_ns() ^ u64::from(heap.id()) << 20;
    x = (x ^ x >> 31).wrapping_mul(0x9fb2_1c65_1e98_df25);
    x ^= x >> 28;
    (1 + x % (2 * every - 1)) as u32
}

/// Allocates a sampled block. `None`: it does not fit, or no slot is free.
#[cold]
#[inline(never)]
pub fn malloc(n: usize, align: usize) -> Option<*mut u8> {
    if n > SLOT_PAGES * PAGE || align > PAGE || !LOCK.lock(tls::who()) {
        return None;
    }
    let made = open(n, align);
    LOCK.unlock();
    let (slot, p) = made?;
    let this = &TABLE[slot];
    this.start.store(p, Ordering::Relaxed); // ORDER: all published by `phase`
    this.bytes.store(n, Ordering::Relaxed); // ORDER: as above
    let (from, bytes) = opened(this);
    // SAFETY: the slot's open pages, which are this thread's.
    unsafe {
        core::ptr::write_bytes(from as *mut u8, trailer::fill(), p - from);
        core::ptr::write_bytes((p + n) as *mut u8, trailer::fill(), from + bytes - p - n);
    }
    this.born_ns.store(sys::monotonic_ns(), Ordering::Relaxed); // ORDER: as above
    this.asked_ns.store(0, Ordering::Relaxed); // ORDER: as above
    this.died.clear();
    this.born.capture();
    // ORDER: Release meets the AcqRel of `free`, though the block came from here to there already. [reason: handed]
    this.phase.store(LIVE, Ordering::Release);
    Some(p as *mut u8)
}

/// Calls `each` for each block that seems to be live: it may be freed meanwhile.
pub fn each_live(mut each: impl FnMut(Live)) {
    for slot in &TABLE {
        // ORDER: Acquire meets the Release of `malloc`. [reason: handed]
        if slot.phase.load(Ordering::Acquire) == LIVE {
            let (pages, bytes) = opened(slot);
            each(Live { slot, pages, bytes });
        }
    }
}

/// Returns the slot whose pages begin at an address.
pub fn slot_of_pages(from: usize) -> Option<usize> {
    if !is_ours(from) {
        return None;
    }
    // ORDER: a look.
    TABLE
        .iter()
        .position(|slot| slot.open.load(Ordering::Relaxed) == from)
}

fn opened(slot: &Slot) -> (usize, usize) {
    // ORDER: the slot's holder looks.
    let from = slot.open.load(Ordering::Relaxed);
    (from, slot.open_bytes.load(Ordering::Relaxed)) // ORDER: as above
}

/// Takes the slot that waited longest, and opens its pages. Runs under the lock.
fn open(n: usize, align: usize) -> Option<(usize, usize)> {
    handler::stay();
    // SAFETY: the lock is held.
    let queue = unsafe { &mut *WAITING.get() };
    if queue.count == 0 {
        return None;
    }
    let slot = usize::from(queue.slots[queue.first % SLOTS]);
    let start = slot_start(slot);
    let bytes = n.next_multiple_of(PAGE);
    let end = start + SLOT_PAGES * PAGE;
    // Alternately at the right end, where an overrun is found, and at the left.
    let (from, p) = if queue.first.is_multiple_of(2) {
        (end - bytes, (end - n) & !(align - 1))
    } else {
        (start, start)
    };
    if !guard::protect(from, bytes, true) {
        return None;
    }
    queue.first += 1;
    queue.count -= 1;
    TABLE[slot].open.store(from, Ordering::Relaxed); // ORDER: the lock is held
    TABLE[slot].open_bytes.store(bytes, Ordering::Relaxed); // ORDER: as above
    Some((slot, p))
}

fn slot_start(slot: usize) -> usize {
    // ORDER: set at start.
    POOL.load(Ordering::Relaxed) + PAGE + slot * STRIDE
}

/// Returns the slot of an address of the pool: the one it lies in, or, in a guard page or in a slot that never had a
/// block, the one whose block is nearer.
fn slot_at(address: usize) -> usize {
    // ORDER: set at start.
    let distance = address - POOL.load(Ordering::Relaxed);
    let right = (distance / STRIDE).min(SLOTS - 1);
    let left = (distance / STRIDE).saturating_sub(1);
    let far = |slot: usize| {
        // ORDER: a look.
        let start = TABLE[slot].start.load(Ordering::Relaxed);
        let bytes = TABLE[slot].bytes.load(Ordering::Relaxed); // ORDER: as above
        match start {
            0 => usize::MAX,
            _ if address < start => start - address,
            _ => address.saturating_sub(start + bytes),
        }
    };
    let is_guard = distance % STRIDE < PAGE;
    if (is_guard || far(right) == usize::MAX) && far(left) <= far(right) {
        left
    } else {
        right
    }
}

/// Returns the usable bytes of a sampled block.
pub fn usable(p: *const u8) -> Option<usize> {
    let slot = &TABLE[slot_at(p as usize)];
    // ORDER: a thread that has the block got it after these were written.
    (slot.start.load(Ordering::Relaxed) == p as usize).then(|| slot.bytes.load(Ordering::Relaxed)) // ORDER: as above
}

/// Returns what is wrong with resizing what is at an address of the pool; `None`: a live block begins there.
pub fn resize_fault(p: *const u8) -> Option<Fault> {
    let slot = &TABLE[slot_at(p as usize)];
    // ORDER: as in `usable`.
    if slot.start.load(Ordering::Relaxed) != p as usize {
        return Some(Fault::ResizeInside);
    }
    // ORDER: a look; no thread writes it while the block is live.
    (slot.phase.load(Ordering::Relaxed) != LIVE).then_some(Fault::ResizeFree)
}

/// Frees a sampled block.
#[cold]
#[inline(never)]
pub fn free(p: *mut u8) {
    let index = slot_at(p as usize);
    let slot = &TABLE[index];
    // ORDER: as in `usable`.
    if slot.start.load(Ordering::Relaxed) != p as usize {
        return tell(fault::words(Fault::Misaligned), p as usize);
    }
    // ORDER: AcqRel: one of two threads that free the block wins (S1); what `malloc` wrote came with the block.
    // [reason: winner]
    let claimed = slot
        .phase
        .compare_exchange(LIVE, DYING, Ordering::AcqRel, Ordering::Relaxed);
    if claimed.is_err() {
        return tell(fault::words(Fault::Double), p as usize);
    }
    let (from, bytes) = opened(slot);
    let end = p as usize + slot.bytes.load(Ordering::Relaxed); // ORDER: the block is ours
    let fill = trailer::fill();
    let before = trailer::is_filled(from, p as usize - from, fill);
    slot.died.capture();
    if !before || !trailer::is_filled(end, from + bytes - end, fill) {
        tell(fault::words(Fault::Overrun), p as usize);
    }
    // A signal handler that interrupts the same thread in here leaves the slot closed for good.
    if !guard::protect(from, bytes, false) || !LOCK.lock(tls::who()) {
        return;
    }
    guard::drop_pages(from, bytes);
    slot.phase.store(FREE, Ordering::Release); // ORDER: LOCK publishes it. [reason: lock]
    // SAFETY: the lock is held.
    let queue = unsafe { &mut *WAITING.get() };
    queue.slots[(queue.first + queue.count) % SLOTS] = index as u8;
    queue.count += 1;
    LOCK.unlock();
}

/// Reports a fault in the pool, with both stacks, and reacts as chosen.
fn tell(what: &[u8], address: usize) {
    if fault::policy() == Policy::Ignore {
        return;
    }
    story::tell(|story| {
        story.add(b"skinflint: ");
        story.add(what);
        story.add_hex(address);
        story.add(b"\n");
        describe(story, address);
    });
    fault::stop_if_chosen();
}

/// Returns the name of what an access at an address of the pool is.
pub fn name_of(address: usize) -> &'static [u8] {
    let slot = &TABLE[slot_at(address)];
    // ORDER: a look, by a thread that is about to end.
    let start = slot.start.load(Ordering::Relaxed);
    let end = start + slot.bytes.load(Ordering::Relaxed); // ORDER: as above
    if start != 0 && slot.phase.load(Ordering::Relaxed) != LIVE {
        // ORDER: as above
        b"use after free"
    } else if start != 0 && address >= end {
        b"access behind the end of a block"
    } else if start != 0 && address < start {
        b"access before the start of a block"
    } else {
        b"wild access"
    }
}

/// Adds where an address lies in its block, and the block's stacks.
pub fn describe(story: &mut Story, address: usize) {
    let slot = &TABLE[slot_at(address)];
    // ORDER: as in `name_of`.
    let start = slot.start.load(Ordering::Relaxed);
    let bytes = slot.bytes.load(Ordering::Relaxed); // ORDER: as above
    if start == 0 {
        return story.add(b"  no block was ever there\n");
    }
    story::place(story, address, start, bytes);
    slot.born.tell(story, b"  allocated by thread ");
    slot.died.tell(story, b"  freed by thread ");
}

/// Allows access to the slot of a fault, so that the program can go on.
pub fn allow(address: usize) {
    guard::protect(address & !(PAGE - 1), PAGE, true);
}

const _: () = assert!(SLOT_PAGES * PAGE >= SMALL_MAX);
