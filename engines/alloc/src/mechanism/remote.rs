//! Frees by threads that are not the owner: the words that both sides write, and nothing else.
//!
//! ```text
//!   freer   claim (link 0 → 1) ─► push on the owner's stack ─► set the bit in R, and touch nothing more
//!   owner   take_all ─► for each: release (link → 0), then collect (R → F)
//! ```
//!
//! R1  A link is 0 exactly if its span is on no stack, and no thread is about to push it. A span is given back only
//!     with its link at 0 and all of its bits set: until a freer has set its bit the span stays.
//! R2  Stacks are pushed to and taken whole, never popped: there is no ABA.
//! R3  A bit that is set after the owner's collect, for a span whose link was still 1 when the freer looked, waits in R
//!     for the next collect. It is never lost.
//! R4  A span may be handed over to another owner while it is on a stack: the owner that drains that stack finds that
//!     it is not its own, and pushes it on, with its link as it is.
//!
//! R5  A thread says where it stands between the claim of a link and the push ([`Note`]): in the child of a fork, where it
//!     is gone, a link that was claimed and not pushed is found and freed ([`mend`]).
//!
//! These are the very functions of the engine, [`free`] and [`drain`] whole; the models run them under loom
//! (`tests/models.rs`).
//!
//! Not here: the ownership of spans, and what an owner does with a span that changed (`free`).

use core::sync::atomic::compiler_fence;

use skinflint_base::sync::{AtomicU32, AtomicU64, Ordering};

/// An object that is pushed on stacks: a span, as freers and owners see it.
pub trait Owned {
    /// Returns its link (R1).
    fn link(&self) -> &AtomicU32;
    /// Returns the stack of its present owner.
    fn stack(&self) -> &AtomicU32;
    /// Returns the number that stands for it on a stack: even, and not 0.
    fn offset(&self) -> u32;
}

/// Where a thread notes that it is about to claim and push (R5): a word of its own, or one that several threads share.
#[derive(Clone, Copy)]
pub enum Note<'a> {
    /// A word that only this thread writes.
    Own(&'a AtomicU32),
    /// A word that counts the threads.
    Shared(&'a AtomicU32),
}

impl Note<'_> {
    #[inline]
    fn begin(self) {
        match self {
            Note::Own(word) => word.store(1, Ordering::Relaxed), // ORDER: own; see below
            Note::Shared(word) => _ = word.fetch_add(1, Ordering::Relaxed), // ORDER: as above
        }
        // A fork's child has a beginning of what each thread wrote, in the thread's order: the compiler is to keep it.
        compiler_fence(Ordering::SeqCst); // ORDER: of the compiler only. [reason: compiler]
    }

    #[inline]
    fn end(self) {
        compiler_fence(Ordering::SeqCst); // ORDER: as in `begin`. [reason: compiler]
        match self {
            Note::Own(word) => word.store(0, Ordering::Relaxed), // ORDER: own
            Note::Shared(word) => _ = word.fetch_sub(1, Ordering::Relaxed), // ORDER: as above
        }
    }
}

/// Puts a span on its owner's stack, unless it is there. `true`: it is there now, and was not before. Cost if it is
/// there: one load.
#[inline]
pub fn notify(span: &impl Owned, note: Note<'_>) -> bool {
    // ORDER: a look, as in `claim`.
    if span.link().load(Ordering::Relaxed) != 0 {
        return false;
    }
    note.begin();
    let first = notify_locked(span);
    note.end();
    first
}

/// Does what [`notify`] does, for a thread that has the heap's lock: no fork comes meanwhile.
#[inline]
pub fn notify_locked(span: &impl Owned) -> bool {
    let first = claim(span.link());
    if first {
        push(span.stack(), span.link(), span.offset(), 1);
    }
    first
}

/// The mark of a link whose span is on a stack, for [`mend`]. Offsets are multiples of 4.
const ON_STACK: u32 = 2;

/// Marks the links of what is on a stack. The child of a fork calls this for every stack, and then [`mend`] for every
/// span, while it has one thread.
pub fn mark<'a, S: Owned + 'a>(stack: &AtomicU32, at: impl Fn(u32) -> &'a S) {
    // ORDER: one thread, throughout.
    let mut next = stack.load(Ordering::Relaxed);
    while next != 0 {
        let link = at(next).link();
        let value = link.load(Ordering::Relaxed); // ORDER: as above
        link.store(value | ON_STACK, Ordering::Relaxed); // ORDER: as above
        next = value & !1;
    }
}

/// Takes the mark of [`mark`] off a link; one without a mark that is not 0 was claimed by a thread that is gone, and
/// becomes free. Returns whether it did.
pub fn mend(link: &AtomicU32) -> bool {
    // ORDER: one thread, as in `mark`.
    let value = link.load(Ordering::Relaxed);
    let lost = value != 0 && value & ON_STACK == 0;
    if value != 0 {
        let mended = if lost { 0 } else { value & !ON_STACK };
        link.store(mended, Ordering::Relaxed); // ORDER: as above
    }
    lost
}

/// Frees a block of another thread's span: its bit in `word`. `tell` runs unless the span is on a stack, and has to
/// [`notify`]: so what that takes is computed when it is wanted. `false`: the bit was set, so the block was free. Cost if the
/// span is there: one locked instruction.
#[inline]
pub fn free(span: &impl Owned, word: &AtomicU64, bit: u64, tell: impl FnOnce()) -> bool {
    // ORDER: a look, as in `claim`.
    if span.link().load(Ordering::Relaxed) == 0 {
        tell();
    }
    set(word, bit)
}

/// Takes a whole stack; calls `look` for each span of the stack's owner, which is on no stack then. Spans that were
/// handed over meanwhile go to their new owner (R4).
#[inline]
pub fn drain<'a, S: Owned + 'a>(
    stack: &AtomicU32,
    at: impl Fn(u32) -> &'a S,
    look: impl FnMut(&'a S),
) {
    drain_some(stack, 0, u32::MAX, at, look);
}

/// Does what [`drain`] does, for `most` spans, and returns the rest, which is on no stack any more and is to be given to
/// the next call; 0: there is none. Between two calls the heap's lock may be given up: the spans in hand have links that
/// are not 0, so they stay (R1).
#[inline]
pub fn drain_some<'a, S: Owned + 'a>(
    stack: &AtomicU32,
    rest: u32,
    most: u32,
    at: impl Fn(u32) -> &'a S,
    mut look: impl FnMut(&'a S),
) -> u32 {
    let mut next = if rest == 0 { take_all(stack) } else { rest };
    for _ in 0..most {
        if next == 0 {
            break;
        }
        let span = at(next);
        next = below(span.link(), 1);
        let owner = span.stack();
        if !core::ptr::eq(owner, stack) {
            push(owner, span.link(), span.offset(), 1);
            continue;
        }
        release(span.link());
        look(span);
    }
    next
}

/// Takes a whole stack of spans that are all about to go: no owner is notified, and no thread frees any more.
pub fn forget<'a, S: Owned + 'a>(stack: &AtomicU32, at: impl Fn(u32) -> &'a S) {
    let mut next = take_all(stack);
    while next != 0 {
        let span = at(next);
        next = below(span.link(), 1);
        release(span.link());
    }
}

/// Takes a whole list of things that were given up and could not be given back at once; calls `give` for each, whose
/// link is read before that.
#[inline]
pub fn take_deferred<'a>(
    list: &AtomicU32,
    link: impl Fn(u32) -> &'a AtomicU32,
    mut give: impl FnMut(u32),
) {
    let mut next = take_all(list);
    while next != 0 {
        let this = next;
        next = below(link(this), 0);
        give(this);
    }
}

/// Reports whether a span without a live block may go, or become another: it is on no stack (R1).
#[inline]
pub fn may_go(link: &AtomicU32) -> bool {
    // ORDER: with Relaxed too a claim would be seen: a thread that sees all bits set sees what their freers did to the
    // link before, and a drain of another heap's stack came before the hand-over. [reason: spare]
    link.load(Ordering::Acquire) == 0
}

/// Returns the owner of a span.
#[inline]
pub fn owner(owner: &AtomicU32) -> u32 {
    // ORDER: Acquire meets the Release of `hand_over`: a thread that pushes to the new owner finds it made.
    // [model: a_span_is_handed_over]
    owner.load(Ordering::Acquire)
}

/// Gives a span to another owner. The locks of both are held.
pub fn hand_over(owner: &AtomicU32, to: u32) {
    // ORDER: Release meets the Acquire of `owner`. [model: a_span_is_handed_over]
    owner.store(to, Ordering::Release);
}

/// Claims a link: from now on its span is on its way to the stack. `false`: it was there, or on its way, already.
#[inline]
pub fn claim(link: &AtomicU32) -> bool {
    // ORDER: a look; a stale 0 is found out by the exchange, a stale other value misses as R3 says.
    link.load(Ordering::Relaxed) == 0
        // ORDER: Acquire meets the Release of `release`. With Relaxed too one of two claims wins, and comes after the
        // owner has read the link, since all of it is one word. [reason: spare]
        && link
            .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
}

/// Puts the object with this offset on a stack; `mark` is kept beside the link to the next.
pub fn push(stack: &AtomicU32, link: &AtomicU32, offset: u32, mark: u32) {
    // ORDER: a look.
    let mut head = stack.load(Ordering::Relaxed);
    loop {
        // ORDER: published by the exchange below.
        link.store(head | mark, Ordering::Relaxed);
        // ORDER: Release meets the Acquire of `take_all`: the link is seen. A later push goes
        // on the same release sequence. [model: stack_of_two_spans]
        match stack.compare_exchange_weak(head, offset, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => head = now,
        }
    }
}

/// Takes a whole stack; returns its newest offset, or 0.
#[inline]
pub fn take_all(stack: &AtomicU32) -> u32 {
    // ORDER: a look; an owner that misses the newest comes again.
    if stack.load(Ordering::Relaxed) == 0 {
        return 0;
    }
    // ORDER: Acquire meets the Release of `push`. [model: stack_of_two_spans]
    stack.swap(0, Ordering::Acquire)
}

/// Returns what lies below on a stack that was taken.
#[inline]
pub fn below(link: &AtomicU32, mark: u32) -> u32 {
    // ORDER: written before the push that was acquired.
    link.load(Ordering::Relaxed) & !mark
}

/// Releases a link: from now on its span is on no stack. To be called before `collect`.
#[inline]
pub fn release(link: &AtomicU32) {
    // ORDER: AcqRel: Release meets the Acquire of `claim`, Acquire keeps the collect behind it, so that fewer bits are
    // missed; those that are wait (R3). [reason: spare]
    link.swap(0, Ordering::AcqRel);
}

/// Sets a bit of R; `false`: it was set. The freer's last touch of the span (R1).
#[inline]
pub fn set(word: &AtomicU64, bit: u64) -> bool {
    // ORDER: Release meets the Acquire of `collect`: this thread's use of the block, and of the span, comes
    // before what the owner does with them. [model: remote_frees_of_one_span]
    word.fetch_or(bit, Ordering::Release) & bit == 0
}

/// Moves the bits of a word of R to that of F; returns them.
///
/// Only the owner may call this.
#[inline]
pub fn collect(remote: &AtomicU64, free: &AtomicU64) -> u64 {
    // ORDER: a look; the swap orders.
    if remote.load(Ordering::Relaxed) == 0 {
        return 0;
    }
    // ORDER: Acquire meets the Release of `set`. [model: remote_frees_of_one_span]
    let freed = remote.swap(0, Ordering::Acquire);
    // ORDER: the owner's own.
    free.store(free.load(Ordering::Relaxed) | freed, Ordering::Relaxed);
    freed
}
