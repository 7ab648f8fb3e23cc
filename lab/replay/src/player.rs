//! The player: performs a chunk's operations, one after the other.
//!
//! ```text
//!   word ─► kind, slot ─► [wait] ─► malloc │ free │ realloc … ─► touch ─► slot
//! ```
//!
//! Cost of its own, for each operation: one or two words read, one jump, one load and two stores of the slot's line,
//! which was asked for some words ago, and a few counts. `--null` measures it.
//!
//! X1  Words are read at most two beyond the chunk, and `AHEAD` for prefetching; buffers have room behind them.
//! X2  An address of a slot is used only while the slot is live and its address not 0: then it is a block that the
//!     allocator gave and that was not released, as long as allocator and script are right.
//! X3  Writes stay within the requested size.
//! X4  An operation that violates the order (a release without a block, a second block in a slot, a wait for what is
//!     past) is counted and not done.
//!
//! Not here: the source of chunks (feed.rs), starting threads (threads.rs).

use core::sync::atomic::Ordering;

use skinflint_replay::script::{COUNT_BITS, op};

use crate::slots::{Slot, State};
use crate::stage::{Posted, Stage};
use crate::system;
use crate::tally::Tally;
use crate::threads;

const PAGE: u64 = 4096;
/// The number of words looked ahead for slots. `--null` on a trace of Python with 731,000 live blocks
/// (bench/compare/replayed.py --keep), ns per operation: 10 without looking ahead, 6.9 with 32 words, 5.9 with 64;
/// 2026-11-21, Xeon, two busy cores.
const AHEAD: usize = 64;
/// The number of operations between two rings while a thread waits.
const RING_EACH: u32 = 32;
/// The memory that `--null` hands out to a thread, over and over; it stays in the cache.
const NULL_BYTES: u64 = 64 << 10;
/// The number of threads that have their own such memory: others share, and would pay for each other's lines.
const NULL_THREADS: u64 = 128;

/// The lateness beyond which a replay in recorded time does not catch up.
const LATE_NS: u64 = 20_000_000;

/// The mode in which the allocator is called.
pub const PLAIN: u8 = 0;
/// The mode in which it is not called.
pub const NULL: u8 = 1;
/// The mode in which it is called, and blocks are marked.
pub const CHECKED: u8 = 2;

/// Returns (the beginning of the schedule, when a recorded moment is due), in monotonic nanoseconds.
pub fn due_ns(stage: &Stage, recorded_ns: u64) -> (u64, u64) {
    // ORDER: Relaxed; a number by itself.
    let schedule_ns = stage.schedule_ns.load(Ordering::Relaxed);
    let passed = u128::from(recorded_ns) * 1000 / u128::from(stage.options.paced_milli.max(1));
    (schedule_ns, schedule_ns + passed as u64)
}

/// Sleeps until a recorded moment, for `--paced`. If a thread is late by more than `LATE_NS`, everything after it is
/// moved by as much: pauses of the program stay as long as they were, and allocators give memory back in pauses.
#[cold]
fn sleep_until_recorded(stage: &Stage, recorded_ns: u64) {
    let (schedule_ns, due_ns) = due_ns(stage, recorded_ns);
    let late_ns = system::now_ns().saturating_sub(due_ns);
    if late_ns == 0 {
        system::sleep_until(due_ns);
    } else if late_ns > LATE_NS {
        // ORDER: Relaxed; the first thread moves it, for all.
        let moved = stage.schedule_ns.compare_exchange(
            schedule_ns,
            schedule_ns + late_ns,
            Ordering::Relaxed, // ORDER: as above
            Ordering::Relaxed, // ORDER: as above
        );
        if moved.is_ok() {
            // ORDER: Relaxed; a count.
            stage.late_ns.fetch_add(late_ns, Ordering::Relaxed);
        }
    }
}

/// Plays the chunks of one thread.
pub struct Player {
    stage: &'static Stage,
    slots: *const Slot,
    slot_mask: u32,
    tally: &'static mut Tally,
    /// Pages that the next acquisition touches.
    touch_next: u64,
    slot_high: u32,
    size_high: u64,
    until_ring: u32,
    null_from: u64,
    null_at: u64,
    recorded_ns: u64,
}

/// The result of a chunk.
pub enum Played {
    /// All of it is done.
    Whole,
    /// All of it is done, and the thread ends.
    Ended,
    /// It is no valid chunk, from this word on.
    Wrong(usize, &'static str),
}

impl Player {
    /// Creates the player of this thread, which counts into this tally; the tally must be its thread's.
    pub fn new(stage: &'static Stage, number: u32, tally: &'static mut Tally) -> Player {
        Player {
            stage,
            slots: stage.slots(),
            slot_mask: stage.memory.slot_mask(),
            tally,
            touch_next: u64::MAX,
            slot_high: 0,
            size_high: 0,
            until_ring: RING_EACH,
            null_from: u64::from(number) % NULL_THREADS * (NULL_BYTES + PAGE),
            null_at: 0,
            recorded_ns: 0,
        }
    }

    /// Plays a chunk and counts its time.
    pub fn play<const MODE: u8>(&mut self, chunk: &Posted) -> Played {
        self.recorded_ns = chunk.time_ns;
        if self.stage.options.paced_milli != 0 {
            sleep_until_recorded(self.stage, self.recorded_ns);
        }
        let waited = self.tally.waited_cpu_ns;
        let begun = system::thread_cpu_ns();
        let played = self.run::<MODE>(chunk);
        let spent = system::thread_cpu_ns() - begun;
        let others = self.tally.waited_cpu_ns - waited + self.stage.clock_ns;
        self.tally.cpu_ns += spent.saturating_sub(others);
        self.ring_if_waited_for(true);
        played
    }

    fn run<const MODE: u8>(&mut self, chunk: &Posted) -> Played {
        let mut at = 0;
        while at < chunk.count {
            // SAFETY: X1.
            let (word, value, ahead) = unsafe {
                (
                    *chunk.words.add(at),
                    *chunk.words.add(at + 1),
                    *chunk.words.add(at + AHEAD),
                )
            };
            prefetch(self.slots.wrapping_add((ahead >> 4) as usize));
            let kind = word & 15;
            let slot_number = (word >> 4 | self.slot_high << 28) & self.slot_mask;
            // SAFETY: slots.S1.
            let slot = unsafe { &*self.slots.add(slot_number as usize) };
            self.tally.ops[kind as usize] += 1;
            match kind {
                op::MALLOC => self.malloc::<MODE>(slot, slot_number, value),
                op::FREE => self.free::<MODE>(slot, slot_number),
                op::REALLOC => self.realloc::<MODE>(slot, slot_number, value),
                op::CALLOC => self.calloc::<MODE>(slot, slot_number, value),
                op::MEMALIGN => {
                    // SAFETY: X1.
                    let log2 = unsafe { *chunk.words.add(at + 2) };
                    self.memalign::<MODE>(slot, slot_number, value, log2);
                }
                op::HIGH => (self.slot_high, self.size_high) = (word >> 4, u64::from(value) << 32),
                op::TOUCH_NEXT => self.touch_next = self.sized(value),
                _ => {
                    if let Err(what) =
                        self.rare(kind, slot, slot_number, value, at + 1 == chunk.count)
                    {
                        return Played::Wrong(at, what);
                    }
                    if kind == op::END {
                        return Played::Ended;
                    }
                }
            }
            if kind != op::HIGH {
                self.slot_high = 0;
            }
            at += op::WORDS[kind as usize] as usize;
        }
        match at == chunk.count {
            true => Played::Whole,
            false => Played::Wrong(at, "an operation reaches beyond its chunk"),
        }
    }

    #[inline(always)]
    fn sized(&mut self, low: u32) -> u64 {
        u64::from(low) | core::mem::take(&mut self.size_high)
    }

    /// Rings if a thread waits for a slot: now and then, and at the end of a chunk.
    #[inline(always)]
    fn ring_if_waited_for(&mut self, at_end: bool) {
        // ORDER: Relaxed; a waiter that is not seen now is seen at the next operation, or looks again by itself
        //       (stage.rs).
        if self.stage.waiting.load(Ordering::Relaxed) != 0 {
            self.until_ring -= 1;
            if at_end || self.until_ring == 0 {
                self.until_ring = RING_EACH;
                self.stage.ring();
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn violated(&mut self, slot_number: u32, double_use: bool) {
        match double_use {
            true => self.tally.double_uses += 1,
            false => self.tally.order_violations += 1,
        }
        let place = (self.recorded_ns / 1_000_000) << 32 | u64::from(slot_number);
        // ORDER: Relaxed; a note for the report, which is written when all is quiet.
        let _ = self.stage.first_violation.compare_exchange(
            u64::MAX,
            place,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }

    /// Returns the next block of `--null`.
    #[inline(always)]
    fn null(&mut self, size: u64) -> *mut u8 {
        let bytes = (size.min(PAGE) + 15) & !15;
        if self.null_at + bytes > NULL_BYTES {
            self.null_at = 0;
        }
        let at = self.null_from + self.null_at;
        self.null_at += bytes;
        // SAFETY: below `NULL_THREADS` such areas, 9 MiB: inside the scratch area, which is free between points.
        unsafe { self.stage.memory.scratch().add(at as usize) }
    }

    /// Writes to the first byte of each page of `from..to`, as a program that fills its block does.
    #[inline(always)]
    fn touch<const MODE: u8>(&mut self, block: *mut u8, from: u64, size: u64) {
        let pages = core::mem::replace(&mut self.touch_next, u64::MAX);
        let limit = match pages {
            u64::MAX => size,
            // Pages are counted from the one that holds the first byte.
            pages => size.min((pages.saturating_mul(PAGE)).saturating_sub(block as u64 % PAGE)),
        };
        let limit = if MODE == NULL { limit.min(PAGE) } else { limit };
        let mut at = from;
        while at < limit {
            // SAFETY: X2, X3: `at < size`.
            unsafe { block.add(at as usize).write_volatile(1) };
            at = ((block as u64 + at) & !(PAGE - 1)) + PAGE - block as u64;
        }
    }

    #[inline(always)]
    fn acquired<const MODE: u8>(
        &mut self,
        slot: &Slot,
        slot_number: u32,
        block: *mut u8,
        size: u64,
    ) {
        let before = slot.state();
        if before.is_live() {
            self.violated(slot_number, true);
        }
        if block.is_null() {
            self.refuse(slot, before);
            return;
        }
        self.touch::<MODE>(block, 0, size);
        slot.set(before, block as u64, size);
        if MODE == CHECKED {
            mark(block, size, slot_number);
        }
        self.tally.top_slot = self.tally.top_slot.max(slot_number);
        self.tally.live_bytes += known(size) as i64;
        self.tally.live_blocks += 1;
        self.ring_if_waited_for(false);
    }

    /// Notes that the allocator returned null: the slot is live without an address.
    #[cold]
    #[inline(never)]
    fn refuse(&mut self, slot: &Slot, before: State) {
        self.tally.refused += 1;
        self.touch_next = u64::MAX;
        slot.set(before, 0, 0);
        self.tally.live_blocks += 1;
        self.ring_if_waited_for(false);
    }

    #[inline(always)]
    fn malloc<const MODE: u8>(&mut self, slot: &Slot, slot_number: u32, low: u32) {
        let size = self.sized(low);
        let block = match MODE {
            NULL => self.null(size),
            // SAFETY: any size may be asked for.
            _ => unsafe { libc::malloc(size as usize) }.cast(),
        };
        self.acquired::<MODE>(slot, slot_number, block, size);
    }

    #[inline(always)]
    fn calloc<const MODE: u8>(&mut self, slot: &Slot, slot_number: u32, low: u32) {
        let size = self.sized(low);
        let block = match MODE {
            NULL => self.null(size),
            // SAFETY: any size may be asked for.
            _ => unsafe { libc::calloc(1, size as usize) }.cast(),
        };
        self.acquired::<MODE>(slot, slot_number, block, size);
    }

    #[inline(always)]
    fn memalign<const MODE: u8>(&mut self, slot: &Slot, slot_number: u32, low: u32, log2: u32) {
        let size = self.sized(low);
        let mut block = core::ptr::null_mut();
        match MODE {
            NULL => block = self.null(size).cast(),
            _ => {
                let alignment = 1_usize << log2.clamp(3, 40);
                // SAFETY: the result goes to a local; the alignment is a power of two, at least a pointer's.
                let error = unsafe { libc::posix_memalign(&mut block, alignment, size as usize) };
                if error != 0 {
                    block = core::ptr::null_mut();
                }
            }
        }
        self.acquired::<MODE>(slot, slot_number, block.cast(), size);
    }

    #[inline(always)]
    fn free<const MODE: u8>(&mut self, slot: &Slot, slot_number: u32) {
        let before = slot.state();
        if !before.is_live() {
            return self.violated(slot_number, false);
        }
        let block = slot.address() as *mut u8;
        if MODE == CHECKED {
            self.look(block, before.size(), slot_number);
        }
        if MODE != NULL {
            // SAFETY: X2; null is allowed.
            unsafe { libc::free(block.cast()) };
        }
        slot.clear(before);
        self.tally.live_bytes -= before.size() as i64;
        self.tally.live_blocks -= 1;
        self.ring_if_waited_for(false);
    }

    #[inline(always)]
    fn realloc<const MODE: u8>(&mut self, slot: &Slot, slot_number: u32, low: u32) {
        let size = self.sized(low);
        let before = slot.state();
        if !before.is_live() {
            self.touch_next = u64::MAX;
            return self.violated(slot_number, false);
        }
        let old = slot.address() as *mut u8;
        if MODE == CHECKED {
            self.look(old, before.size(), slot_number);
        }
        let block = match MODE {
            NULL => self.null(size),
            // A size of 0 would release the block in some allocators: the recorded call did not.
            // SAFETY: X2; null is allowed.
            _ => unsafe { libc::realloc(old.cast(), size.max(1) as usize) }.cast(),
        };
        if block.is_null() {
            self.tally.refused += 1;
            self.touch_next = u64::MAX;
            slot.set(before, old as u64, before.size());
            return;
        }
        let from = if self.touch_next == u64::MAX {
            before.size()
        } else {
            0
        };
        self.touch::<MODE>(block, from, size);
        slot.set(before, block as u64, size);
        if MODE == CHECKED {
            mark(block, size, slot_number);
        }
        self.tally.live_bytes += known(size) as i64 - before.size() as i64;
        self.ring_if_waited_for(false);
    }

    /// Performs the operations that are rare.
    #[inline(never)]
    fn rare(
        &mut self,
        kind: u32,
        slot: &Slot,
        number: u32,
        value: u32,
        last: bool,
    ) -> Result<(), &'static str> {
        match kind {
            op::WAIT => self.wait(slot, number, value),
            op::TOUCH => {
                let pages = self.sized(value);
                let state = slot.state();
                let block = slot.address() as *mut u8;
                if !state.is_live() {
                    self.violated(number, false);
                } else {
                    if !block.is_null() && !self.stage.options.null {
                        let before = core::mem::replace(&mut self.touch_next, pages);
                        self.touch::<PLAIN>(block, 8.min(state.size()), state.size());
                        self.touch_next = before;
                    }
                    // It counts as an operation (slots.S3), so that a release by another thread can wait for
                    // it.
                    slot.set(state, block as u64, state.size());
                    self.ring_if_waited_for(false);
                }
            }
            op::START => {
                if number >= self.stage.header.threads {
                    return Err("a thread is started that there is not");
                }
                threads::start(self.stage, number)?;
            }
            op::END if last => {}
            op::END => return Err("a thread goes on after its end"),
            op::TIME => {
                self.recorded_ns += u64::from(value) * 1000;
                if self.stage.options.paced_milli != 0 {
                    sleep_until_recorded(self.stage, self.recorded_ns);
                }
            }
            _ => return Err("no operation has this number"),
        }
        Ok(())
    }

    /// Waits until the slot's count is this.
    fn wait(&mut self, slot: &Slot, number: u32, count: u32) {
        const MASK: u32 = (1 << COUNT_BITS) - 1;
        let ahead = || slot.state().count().wrapping_sub(count) & MASK;
        // The count is behind as long as the difference is negative.
        let mut is_there = || ahead() <= MASK / 2;
        if !is_there() {
            let begun = system::thread_cpu_ns();
            self.tally.slow_waits += 1;
            self.ring_if_waited_for(true);
            self.stage.wait_for(&mut is_there);
            self.tally.waited_cpu_ns += system::thread_cpu_ns() - begun;
        }
        if ahead() != 0 {
            self.violated(number, false);
        }
    }

    /// Checks whether the mark is still there.
    fn look(&mut self, block: *mut u8, size: u64, slot_number: u32) {
        if size >= 8 && !block.is_null() {
            // SAFETY: X2, X3.
            let found = unsafe { block.cast::<u64>().read_unaligned() };
            if found != value_of(slot_number, size) {
                self.tally.overwritten += 1;
            }
        }
    }
}

/// Returns what a slot holds of a size.
#[inline(always)]
fn known(size: u64) -> u64 {
    size.min((1 << 40) - 1)
}

fn value_of(slot_number: u32, size: u64) -> u64 {
    (u64::from(slot_number) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ size
}

fn mark(block: *mut u8, size: u64, slot_number: u32) {
    // `look` has the size from the slot.
    let size = known(size);
    if size >= 8 {
        // SAFETY: X2, X3.
        unsafe {
            block
                .cast::<u64>()
                .write_unaligned(value_of(slot_number, size))
        };
    }
}
/// Asks the processor for the cache line at an address, and does not wait for it.
#[inline(always)]
fn prefetch<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address has no effect but on the cache.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{at}]", at = in(reg) at, options(nostack, readonly, preserves_flags));
    }
}
