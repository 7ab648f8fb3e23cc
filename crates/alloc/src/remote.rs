//! Frees by threads that are not the owner: the words that both sides write, and nothing else.
//!
//! ```text
//!   freer   claim (link 0 → 1) ─► push on the owner's stack ─► set the bit in R, and touch nothing more
//!   owner   take_all ─► for each: release (link → 0), then collect (R → F)
//! ```
//!
//! R1  A link is 0 exactly if its span is on no stack, and nobody is about to push it. A span is given back
//!     only with its link at 0 and all of its bits set: until a freer has set its bit the span stays.
//! R2  Stacks are pushed to and taken whole, never popped: there is no ABA.
//! R3  A bit that is set after the owner's collect, for a span whose link was still 1 when the freer
//!     looked, waits in R for the next collect. It is never lost.
//!
//! These are the very functions of the engine; the models run them under loom (`tests/models.rs`).
//!
//! Not here: who owns a span, and what an owner does with one that changed (`free`).

use skinflint_base::sync::{AtomicU32, AtomicU64, Ordering};

/// Makes a link say that its span is on its way to the stack. `false`: it is there, or on its way.
#[inline]
pub fn claim(link: &AtomicU32) -> bool {
    // ORDER: a look; a stale 0 is found out by the exchange, a stale other value misses as R3 says.
    link.load(Ordering::Relaxed) == 0
        // ORDER: Acquire meets the Release of `release`: of two claims one wins, and it comes after the
        // owner has read the link (model: stack).
        && link
            .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
}

/// Puts what has this offset on a stack; `mark` is kept beside the link to the next.
pub fn push(stack: &AtomicU32, link: &AtomicU32, offset: u32, mark: u32) {
    // ORDER: a look.
    let mut head = stack.load(Ordering::Relaxed);
    loop {
        // ORDER: published by the exchange below.
        link.store(head | mark, Ordering::Relaxed);
        // ORDER: Release meets the Acquire of `take_all`: the link is seen (model: stack). A later push goes
        // on the same release sequence.
        match stack.compare_exchange_weak(head, offset, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => head = now,
        }
    }
}

/// Takes a whole stack; returns its newest offset, or 0.
#[inline]
pub fn take_all(stack: &AtomicU32) -> u32 {
    // ORDER: a look; whoever misses the newest comes again.
    if stack.load(Ordering::Relaxed) == 0 {
        return 0;
    }
    // ORDER: Acquire meets the Release of `push`.
    stack.swap(0, Ordering::Acquire)
}

/// What lies below on a stack that was taken.
#[inline]
pub fn below(link: &AtomicU32, mark: u32) -> u32 {
    // ORDER: written before the push that was acquired.
    link.load(Ordering::Relaxed) & !mark
}

/// Makes a link say that its span is on no stack; to be called before `collect`.
#[inline]
pub fn release(link: &AtomicU32) {
    // ORDER: AcqRel: Release meets the Acquire of `claim`, Acquire keeps the collect behind it.
    link.swap(0, Ordering::AcqRel);
}

/// Sets a bit of R; `false`: it was set. The freer's last touch of the span (R1).
#[inline]
pub fn set(word: &AtomicU64, bit: u64) -> bool {
    // ORDER: Release meets the Acquire of `collect`: this thread's use of the block, and of the span, comes
    // before what the owner does with them (model: remote).
    word.fetch_or(bit, Ordering::Release) & bit == 0
}

/// Moves a word of R to the same of F; returns its bits.
///
/// Only the owner may call this.
#[inline]
pub fn collect(remote: &AtomicU64, free: &AtomicU64) -> u64 {
    // ORDER: a look; the swap orders.
    if remote.load(Ordering::Relaxed) == 0 {
        return 0;
    }
    // ORDER: Acquire meets the Release of `set` (model: remote).
    let freed = remote.swap(0, Ordering::Acquire);
    // ORDER: the owner's own.
    free.store(free.load(Ordering::Relaxed) | freed, Ordering::Relaxed);
    freed
}
