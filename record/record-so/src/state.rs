//! The state of a thread of the program inside the recorder.
//!
//! ```text
//!   busy:  OUTSIDE ─ enter ─► INSIDE (the real function runs) ⇄ RECORDING (the ring is written) ─ leave ─► OUTSIDE
//! ```
//!
//! H1  A state is used only by the thread whose pointer (tls) leads to it, which is the slot's owner.
//! H2  `busy` is 0 outside, INSIDE while the real function runs, RECORDING while the ring is written; a call that finds
//!     it set passes through (record_so.O4), except that mapping calls INSIDE are the allocator's own and are recorded as such.
//!
//! Not here: which thread has which state (slots.rs), when a call enters (thread.rs).

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering, compiler_fence};

use skinflint_base::random::Random;
use skinflint_frames::{MAX_GO, State as FrameState};
use skinflint_unwind::StackState;

use crate::ring::Ring;

/// The thread is outside of the recorder and of the allocator (H2).
pub const OUTSIDE: u8 = 0;

/// The real function runs (H2).
pub const INSIDE: u8 = 1;

/// The ring is being written (H2).
pub const RECORDING: u8 = 2;

/// The thread is not recorded.
pub const NEVER: u8 = 3;

/// A thread's state (H1), in zeroed memory; mapped lazily, so that only the pages in use cost memory.
#[repr(C)]
pub struct ThreadState {
    /// OUTSIDE, INSIDE, RECORDING or NEVER (H2).
    pub busy: AtomicU8,
    /// The epoch that the caches below belong to.
    pub epoch: u64,
    /// The writer's end of the thread's ring.
    pub ring: Ring,
    /// The newest ticket of this thread.
    pub ticket: AtomicU64,
    /// The session's tick at the last time stamp.
    pub tick: u32,
    /// The position in the ring at which the next time stamp is due at the latest.
    pub time_due: u64,
    /// The thread's own stack: lowest and one past the highest address.
    pub stack_bounds: (u64, u64),
    /// The number of rules that had been made when modules were last looked at.
    pub rules_seen: u64,
    /// The number of frames of the stack as the ring has it.
    pub depth: usize,
    /// The bytes gained since they were last added to the sum of all threads (`high_water`).
    pub gained: i64,
    /// The mean distance of samples in requested bytes; 0 if every acquisition is recorded (samples.rs).
    pub rate: u64,
    /// The numbers that the distances of samples are drawn by.
    pub random: Random,
    /// The number of marks asked for by signals that came while the thread was busy.
    pub pending_marks: u32,
    /// Whether an `operator new` or `delete` of the allocator runs, which may call others of its functions: part of the
    /// same call.
    pub in_operator: bool,
    /// The attach that it belongs to (`process::GENERATION`).
    pub generation: usize,
    /// One more than the place of the outermost frame that a signal interrupted; 0 if there is none (frames.rs).
    pub first_signal: usize,
    /// Whether an arena of Python's objects is being mapped (objects.rs).
    pub maps_arena: bool,
    /// What the unwinder remembers.
    pub stack: StackState,
    /// What is remembered of frames of an interpreter.
    pub frames: FrameState,
    /// What is remembered of a goroutine's.
    pub go: GoState,
}

/// What is remembered of a goroutine's stack (go.rs); all-zero memory is valid.
#[repr(C)]
pub struct GoState {
    /// The frames that the ring has in front of the native ones.
    pub len: usize,
    /// Their return addresses, outermost first.
    pub frames: [u64; MAX_GO],
}

impl GoState {
    /// Forgets the stack: the ring is another one.
    pub fn forget(&mut self) {
        self.len = 0;
    }
}

/// Switches between INSIDE and RECORDING.
///
/// # Safety
/// Between `enter` and `leave`.
#[inline(always)]
pub unsafe fn set_busy(state: *mut ThreadState, busy: u8) {
    // ORDER: SeqCst for the compiler alone: it must not move the ring's stores across `busy`.
    compiler_fence(Ordering::SeqCst);
    // SAFETY: H1. ORDER: Relaxed, as in `enter`.
    unsafe { (*state).busy.store(busy, Ordering::Relaxed) };
    compiler_fence(Ordering::SeqCst);
}
