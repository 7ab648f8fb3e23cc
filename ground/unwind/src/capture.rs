//! The verified previous-stack cache: a capture costs the new frames, not the depth.
//!
//! ```text
//!   remembered frames, outermost first:  [0] [1] [2] … [keep-1] │ changed or gone
//!   walk:    from sp outwards, until a frame looks like a remembered one, which would be keep-1
//!   verify:  every word that led from there to the end still holds? ► it is; else walk on
//!   now:     [0 .. keep) stay, the walked frames follow from `keep` on, innermost last
//! ```
//!
//! Why this is proof: a step outwards is a function of (pc, sp, rbp) and of the words that it
//! reads. If the walk leaves a frame with the same slot, return address, rbp slot and rbp as a
//! remembered plain frame, then pc, sp and rbp outside of it are the same, and all words that were
//! read from there on are found unchanged. Idea and first measurements: the project's prototype
//! (2026-11). Verifying before walking was rejected: its loop ends at an unforeseeable frame, which
//! costs a mispredicted branch in most captures; after the walk its length is known.
//!
//! Whether rbp is the same matters only where the way out depends on it. It does not for a frame whose
//! CFA is taken from rsp, if the caller's rbp is in memory or no frame further out uses it. So most
//! frames of code without frame pointers have one word to verify.
//!
//! The invariants state.V1 to state.V4 are those of state.rs.
//! Not here: what is remembered (state.rs), the step itself for rare frames (step.rs, lazy.rs), foreign stacks
//! (foreign.rs, foreign_walk.rs).

use crate::find::{Finder, LOWEST_CODE};
use crate::foreign_walk::capture_foreign;
use crate::lazy;
use crate::rule::{Rule, RuleCache, kind};
use crate::state::{
    Capture, Frame, Place, Plain, Registers, Sink, StackBounds, StackState, Stats, UNKNOWN, Walked,
};
use crate::step::{End, Link, Own, Stepped, rule_slow, shape, step};

/// Captures the stack of the running thread. `state` then remembers it, and `keep` of the next
/// capture counts from it. For what is rare: `capture_to` takes half the instructions.
///
/// # Safety
/// `start` holds this thread's registers at a call, whose frame is still live; memory from
/// `start.sp` to `bounds.hi` is mapped if `start.sp` lies within `bounds`; `state` is this
/// thread's and, if it was not all zero, was filled by this function.
pub unsafe fn capture<'a>(
    rules: &RuleCache,
    find: &Finder,
    state: &'a mut StackState,
    bounds: StackBounds,
    start: Registers,
) -> Capture<'a> {
    // SAFETY: as the caller promises.
    match unsafe { walk_own(rules, find, state, bounds, start) } {
        Some(walked) if walked.is_common() => state.commit_common(&walked),
        Some(walked) => state.commit(walked),
        None => capture_foreign(rules, find, state, bounds, start),
    }
}

/// Does what `capture` does, and gives the stack to `sink`. Cost: 4 instructions per kept and 80 per fresh frame, 100
/// besides, and for most a branch or two that cannot be predicted (callgrind, 2026-11-25); 0.2 to 2 µs for a pc never
/// seen; on a foreign stack about 1 µs for each 4 KiB.
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
    let captured = match unsafe { walk_own(rules, find, state, bounds, start) } {
        Some(walked) if walked.is_common() && sink.takes(walked.keep, walked.fresh, state.end) => {
            return state.commit_to(walked, sink);
        }
        Some(walked) => state.commit(walked),
        None => capture_foreign(rules, find, state, bounds, start),
    };
    sink.take_whole(captured);
}

/// Begins a capture. `None` if the stack is not the thread's own.
///
/// # Safety
/// As for `capture`.
#[inline(always)]
unsafe fn walk_own(
    rules: &RuleCache,
    find: &Finder,
    state: &mut StackState,
    bounds: StackBounds,
    start: Registers,
) -> Option<Walked> {
    state.stats.captures += 1;
    let own = bounds.lo <= start.sp && start.sp <= bounds.hi.saturating_sub(8);
    if !own {
        return None;
    }
    if state.hi != bounds.hi {
        state.forget();
        state.hi = bounds.hi;
    }
    // SAFETY: `start.sp` is a mapped word of the own stack (the caller, and the test of `own`).
    let ra = unsafe { (start.sp as *const u64).read_unaligned() };
    let first = Plain {
        slot: start.sp,
        ra,
        bp_slot: start.sp,
        bp: start.bp,
    };
    Some(walk(rules, find, state, first, bounds.hi))
}

/// Returns the end of a stack at a return address where no code can lie: 0 is pushed below the
/// outermost frame.
fn no_code(ra: u64) -> End {
    if ra == 0 { End::Complete } else { End::NoInfo }
}

/// Walks outwards from the frame just left until a verified frame is met, or the stack ends.
#[inline(always)]
fn walk(rules: &RuleCache, find: &Finder, state: &mut StackState, first: Plain, hi: u64) -> Walked {
    let mut at = Place {
        left: first,
        keep: state.len,
        fresh: 0,
        good: UNKNOWN,
    };
    let (mut noted, mut met_rare) = (0, false);
    let end = loop {
        // SAFETY: state.V5: `state.hi` is this stack's.
        let stop = unsafe { walk_plain(rules, state, hi - 8, &mut at) };
        match stop {
            // SAFETY: as above; a frame was met.
            Stop::Met if at.good != UNKNOWN || unsafe { state.holds_outside(&mut at) } => {
                break None;
            }
            Stop::Met => continue,
            // No address below has a rule.
            Stop::Full | Stop::Rare if at.left.ra < LOWEST_CODE => {
                break Some(no_code(at.left.ra));
            }
            Stop::Full => break Some(End::TooDeep),
            Stop::Rare => {}
        }
        met_rare = true;
        at.fresh += 1;
        let own = Own { sp: first.slot, hi };
        // Copies: what a call has the address of does not stay in registers, in the loop either.
        let mut counts = (at.fresh, noted);
        let out = rare(rules, find, state, own, &mut counts);
        (at.fresh, noted) = counts;
        match out {
            Ok(out) => at.left = out,
            Err(end) => break Some(end),
        }
    };
    Walked {
        fresh: at.fresh,
        keep: at.keep,
        noted,
        rare: met_rare,
        end,
    }
}

/// Why a walk over plain frames stopped.
enum Stop {
    /// The frame just left looks like a remembered one, and the frames outside of that are not known to have changed.
    Met,
    /// There is no room for the frame just left.
    Full,
    /// The frame just left is the newest in the scratch, though not counted: there is no common rule for its
    /// caller, or none that leads further out.
    Rare,
}

/// Walks over plain frames. All that changes from frame to frame is in locals, and what is remembered is reached
/// by pointers that move: kept in memory they cost 4 ns a frame (2026-11-21), and indices 30 instructions of 115
/// (callgrind, 2026-11-25).
///
/// # Safety
/// state.V5; `place` is on the stack whose last word is at `last`, and was made for this state.
#[inline(always)]
unsafe fn walk_plain(
    rules: &RuleCache,
    state: &mut StackState,
    last: u64,
    place: &mut Place,
) -> Stop {
    let mut left = place.left;
    let (remembered, fresh) = state.halves();
    let scratch = fresh.as_mut_ptr_range();
    // SAFETY: state.V5: the entry of the newest remembered frame, or the sentinel; and `fresh` frames were walked.
    let (mut near, mut to) = unsafe {
        (
            remembered.links.as_ptr().add(place.keep),
            scratch.start.add(place.fresh),
        )
    };
    let stop = loop {
        // SAFETY: state.V5: `near` moves down, and no further than the sentinel.
        let met = unsafe {
            // Two steps that are no branches: how many frames lie further in cannot be foreseen, and every second
            // wrong guess of an event was made here (1.2 of 2.6, callgrind --branch-sim, 2026-11-25).
            near = near.sub(usize::from((*near).slot < left.slot));
            near = near.sub(usize::from((*near).slot < left.slot));
            while (*near).slot < left.slot {
                near = near.sub(1);
            }
            ((*near).slot ^ left.slot) | ((*near).ra ^ left.ra) == 0
        };
        // SAFETY: as above.
        if met && unsafe { remembered.is_met(near, &left, place.good) } {
            break Stop::Met;
        }
        if to == scratch.end {
            break Stop::Full;
        }
        // SAFETY: it is before the scratch's end.
        let frame = unsafe { &mut *to };
        (frame.slot, frame.ra) = (left.slot, left.ra);
        (frame.bp_slot, frame.bp) = (left.bp_slot, left.bp);
        let Some(rule) = rules.common(left.ra) else {
            break Stop::Rare;
        };
        frame.rest = u64::from(rule.bits());
        let Some(out) = plain(rule, left.slot + 8, left.bp, last) else {
            break Stop::Rare;
        };
        left = out;
        // SAFETY: as above.
        to = unsafe { to.add(1) };
    };
    place.left = left;
    // SAFETY: both pointers are within what they began in.
    unsafe {
        place.keep = near.offset_from(remembered.links.as_ptr()) as usize;
        place.fresh = to.offset_from(scratch.start) as usize;
    }
    stop
}

/// Makes the common step, on the own stack: two loads at most. `None` if it does not lead outwards
/// within the stack, whose last word is at `last`.
#[inline(always)]
fn plain(rule: Rule, sp: u64, bp: u64, last: u64) -> Option<Plain> {
    let base = if !rule.is_by_bp() {
        sp
    } else {
        // SAFETY: no instruction at all; it keeps the compiler from selecting instead of jumping,
        // which would make each frame wait for the one before by another cycle or two.
        unsafe { core::arch::asm!("", options(nomem, nostack, preserves_flags)) };
        bp
    };
    let cfa = base.wrapping_add(rule.a());
    let slot = cfa.wrapping_sub(8);
    let saved = rule.b() != 0;
    let bp_slot = if saved {
        cfa.wrapping_sub(rule.b())
    } else {
        slot
    };
    // A `cfa` below 8 or above `hi` puts the slot beyond the last word; a `b` beyond `cfa` puts
    // the other above it.
    if slot > last || bp_slot > slot || bp_slot < sp {
        return None;
    }
    // SAFETY: unwind.U2: sp <= bp_slot <= slot <= last = hi - 8, and sp is at or above the capture's.
    let (ra, word) = unsafe {
        (
            (slot as *const u64).read_unaligned(),
            (bp_slot as *const u64).read_unaligned(),
        )
    };
    Some(Plain {
        slot,
        ra,
        bp_slot,
        bp: if saved { word } else { bp },
    })
}

/// Steps outwards from the newest fresh frame, and over frames that are not plain, to the next plain one.
/// For rules that are still to be made, rare ones, and common ones that led nowhere.
#[cold]
#[inline(never)]
fn rare(
    rules: &RuleCache,
    find: &Finder,
    state: &mut StackState,
    mut own: Own,
    (fresh, noted): &mut (usize, usize),
) -> Result<Plain, End> {
    let memory = &mut own;
    let newest = state.fresh.get_mut(*fresh - 1).ok_or(End::TooDeep)?;
    newest.rest = 0;
    let (mut pc, mut sp, mut bp) = (newest.ra - 1, newest.slot + 8, newest.bp);
    loop {
        // The stack ends here: nothing is beyond the loader's first frame, which has no table.
        if sp >= memory.hi {
            return Err(End::Complete);
        }
        let guessed = |frame: &Frame| frame.rule().kind() == kind::NO_INFO;
        let exact = !state
            .fresh
            .get((*fresh).wrapping_sub(2))
            .is_some_and(guessed);
        let rule = any_rule(rules, find, &mut state.stats, pc, exact);
        if let Some(newest) = state.fresh.get_mut(*fresh - 1) {
            newest.rest = newest.rest >> 32 << 32 | u64::from(rule.bits());
        }
        let out = match step(memory, find, rule, pc, sp, bp) {
            Err(End::Unsupported) => lazy(state, find, memory, *fresh, [pc, sp, bp]),
            out => out,
        }?;
        let link = out.link;
        // step.S2; and the walk stays on this stack, since a handler runs below what it interrupted.
        if out.sp <= link.slot || out.sp > memory.hi || link.slot < sp {
            return Err(End::BadFrame);
        }
        if out.shape == shape::PLAIN {
            return Ok(Plain {
                slot: link.slot,
                ra: link.ra,
                bp_slot: link.bp_slot,
                bp: out.bp,
            });
        }
        if link.ra < LOWEST_CODE {
            return Err(no_code(link.ra));
        }
        let unlisted = out
            .extra
            .map_or(0, |extra| state.note_extra(&extra, noted, sp));
        let to = state.fresh.get_mut(*fresh).ok_or(End::TooDeep)?;
        *to = Frame::left(link, out.bp, out.shape | unlisted, Rule::NONE);
        *fresh += 1;
        let signal = out.shape >> shape::SIGNAL_BIT & 1;
        (pc, sp, bp) = (link.ra - 1 + u64::from(signal), out.sp, out.bp);
    }
}

/// Returns the rule for `pc`, and makes it if there is none.
#[cold]
#[inline(never)]
fn any_rule(rules: &RuleCache, find: &Finder, stats: &mut Stats, pc: u64, exact: bool) -> Rule {
    let rule = rules.get(pc);
    if rule != Rule::NONE {
        return rule;
    }
    stats.rules_made += 1;
    rule_slow(rules, find, pc, exact)
}

/// Leaves a frame whose CFA is in rbx, if plain frames further in say what rbx held.
fn lazy(
    state: &StackState,
    find: &Finder,
    memory: &mut Own,
    fresh: usize,
    [pc, sp, bp]: [u64; 3],
) -> Result<Stepped, End> {
    let frames = state.fresh.get(..fresh).unwrap_or(&[]);
    let pairs = frames.windows(2).rev().map_while(|pair| match pair {
        [inner, outer] if outer.shape() == shape::PLAIN => {
            let signal = inner.shape() >> shape::SIGNAL_BIT & 1;
            Some((inner.ra - 1 + u64::from(signal), outer.slot + 8))
        }
        _ => None,
    });
    let caller = lazy::leave(memory, find, pc, sp, bp, pairs).ok_or(End::Unsupported)?;
    Ok(Stepped {
        link: Link::bare(caller.slot, caller.ra),
        shape: shape::WIDE | shape::UNLISTED,
        sp: caller.slot + 8,
        bp: caller.bp,
        extra: None,
    })
}
