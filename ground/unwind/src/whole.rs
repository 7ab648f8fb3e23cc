//! Captures where the return address lies anywhere in a frame (aarch64): the whole stack is walked, and then compared.
//!
//! ```text
//!   walk:     from sp outwards to the end, each frame by its rule
//!   compare:  remembered, outermost first  [0] [1] … [keep-1] │ differs
//!             walked                       [0] [1] … [keep-1] │ new frames, innermost last
//! ```
//!
//! The verified cache of x86-64 (capture.rs) joins a remembered stack at a frame from which slot and return address tell
//! where its caller's frame begins. Here they do not. So a capture costs the depth of the stack; what it reports is the
//! same, and just as much is written to the ring.
//!
//! H1  A frame is kept if it and all frames outside of it have the same slots and return addresses as before
//!     (unwind.U5): they were just read.
//!
//! Not here: the walk (foreign_walk.rs), the steps (step.rs).

use crate::find::Finder;
use crate::foreign_walk::{Foreign, capture_foreign};
use crate::rule::RuleCache;
use crate::state::{Capture, Registers, Sink, StackBounds, StackState};
use crate::step::Own;

/// Captures the stack of the running thread. `state` then remembers it, and `keep` of the next
/// capture counts from it.
///
/// # Safety
/// `start` holds this thread's registers at a call: `start.sp` points at a word with its return address, and eight bytes
/// above it the caller's frame begins. Memory from `start.sp` to `bounds.hi` is mapped if `start.sp` lies within `bounds`;
/// `state` is this thread's and, if it was not all zero, was filled by this function.
pub unsafe fn capture<'a>(
    rules: &RuleCache,
    find: &Finder,
    state: &'a mut StackState,
    bounds: StackBounds,
    start: Registers,
) -> Capture<'a> {
    state.stats.captures += 1;
    let own = bounds.lo <= start.sp && start.sp <= bounds.hi.saturating_sub(8);
    if !own {
        return capture_foreign(rules, find, state, bounds, start);
    }
    if state.hi != bounds.hi {
        state.forget();
        state.hi = bounds.hi;
    }
    let mut at = Foreign {
        sp: start.sp,
        bp: start.bp,
        own: Some(Own {
            sp: start.sp,
            hi: bounds.hi,
        }),
        frames: 0,
        lr: None,
    };
    let end = at.run(rules, find, state, bounds);
    state.store_whole(at.frames, end)
}

/// Does what `capture` does, and gives the stack to `sink`.
///
/// # Safety
/// As for `capture`.
#[inline(always)]
pub unsafe fn capture_to(
    rules: &RuleCache,
    find: &Finder,
    state: &mut StackState,
    bounds: StackBounds,
    start: Registers,
    sink: &mut impl Sink,
) {
    // SAFETY: as the caller promises.
    sink.take_whole(unsafe { capture(rules, find, state, bounds, start) });
}
