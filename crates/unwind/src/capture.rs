//! The verified previous-stack cache: a capture costs the new frames, not the depth.
//!
//! ```text
//!   remembered links, outermost first:  [0] [1] [2] … [keep-1] │ changed or gone
//!   verify: every word of 0..good still holds ─────────────────┘
//!   walk:   from sp outwards, until a frame equals a verified one   ► that one is keep-1
//!   now:    [0 .. keep) stay, the walked frames follow from `keep` on, innermost last
//! ```
//!
//! Why this is proof: a step outwards is a function of (pc, sp, rbp) and of the words that it
//! reads. If the walk leaves a frame with the same slot, rbp slot and rbp as a remembered plain
//! frame, then pc, sp and rbp outside of it are the same, and all words that were read from there
//! on were just found unchanged. Idea and measurements: the project's own prototype (2026-11).
//!
//! V1  `links[..len]` have falling slots; `extras` list, by rising index, all other words read.
//! V2  A walk joins only at a plain frame on both sides: elsewhere `sp` is not `slot + 8`.
//! V3  A frame whose words could not all be listed is behind `limit`: nothing within it is kept.
//! V4  Own stack use is small; everything large is in the state, touched as deep as stacks go.
//! Not here: the step itself for rare frames (step.rs), reading foreign stacks (foreign.rs).

use crate::find::Finder;
use crate::foreign::Window;
use crate::rule::{Rule, RuleCache, kind};
use crate::step::{Extra, LOWEST_CODE, Link, Memory, Own, Stepped, rule_slow, shape, step};

/// The most frames that are remembered and reported. Deeper: the outermost are missing.
pub const MAX_FRAMES: usize = 8192;
/// What is left of a stack that is too deep: half, so that the next cut is as far away.
const CUT_FRAMES: usize = MAX_FRAMES / 2;
/// Frames with more than a link: signal frames and realigned stacks.
const MAX_EXTRAS: usize = 512;

/// The thread's own stack, `[lo, hi)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackBounds {
    /// The lowest address. May be below what is mapped so far.
    pub lo: u64,
    /// The address after the highest byte; all from the current `sp` to here must be mapped.
    pub hi: u64,
}

/// Registers on entry to the recorder's exported function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// Points at the return address.
    pub sp: u64,
    /// `rbp`.
    pub bp: u64,
}

/// Why the outermost reported frame is the last.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It is the outermost: nothing is missing.
    Complete = 0,
    /// More than `MAX_FRAMES` frames: the outermost are missing.
    TooDeep = 1,
    /// Code without unwind information and without a plausible frame pointer.
    NoInfo = 2,
    /// Unwind information led out of the stack.
    BadFrame = 3,
    /// Unwind information of a form that is not followed.
    Unsupported = 4,
    /// A foreign stack could not be read (any further).
    Unreadable = 5,
}

/// Totals of one thread, for the statistics of a trace.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Captures.
    pub captures: u64,
    /// Frames walked, as opposed to kept.
    pub fresh_frames: u64,
    /// Rules made because the cache had none.
    pub rules_made: u64,
    /// Captures that are not `Complete`.
    pub truncated: u64,
    /// Captures on a stack that is not the thread's own.
    pub foreign: u64,
}

/// What a plain frame's caller has in `rbp`, and how the frame was left.
#[repr(C)]
#[derive(Clone, Copy)]
struct After {
    bp: u64,
    shape: u64,
}

/// The other words that the derivation of frame `index` read.
#[repr(C)]
#[derive(Clone, Copy)]
struct Noted {
    index: usize,
    extra: Extra,
}

/// One thread's remembered stack and scratch. About 800 KB of address space; all-zero memory is
/// a valid, empty state (U4), and pages are touched only as deep as stacks go.
#[repr(C)]
pub struct StackState {
    /// Totals since the start.
    pub stats: Stats,
    len: usize,
    limit: usize,
    noted: usize,
    hi: u64,
    end: u32,
    window: Window,
    extras: [Noted; MAX_EXTRAS],
    fresh_extras: [Noted; MAX_EXTRAS],
    links: [Link; MAX_FRAMES],
    after: [After; MAX_FRAMES],
    fresh_links: [Link; MAX_FRAMES],
    fresh_after: [After; MAX_FRAMES],
}

/// The frames of a capture that are new, outermost first.
#[derive(Clone, Copy)]
pub struct Fresh<'a> {
    links: &'a [Link],
    after: &'a [After],
}

impl<'a> Fresh<'a> {
    /// How many.
    pub fn len(&self) -> usize {
        self.links.len()
    }

    /// True if the stack is the kept frames alone.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// Return addresses, outermost first. An address less one lies in the calling instruction, for
    /// code that a signal interrupted too: there the address is the interrupted pc plus one.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u64> + ExactSizeIterator + 'a {
        self.links.iter().zip(self.after).map(|(link, after)| {
            link.ra
                .wrapping_add(u64::from(after.shape == shape::SIGNAL))
        })
    }
}

/// A captured stack, as a change of the one before.
pub struct Capture<'a> {
    /// How many outermost frames of the previous capture are also the outermost of this one.
    pub keep: usize,
    /// The frames that follow inwards from there.
    pub fresh: Fresh<'a>,
    /// `keep` plus the fresh ones.
    pub total: usize,
    /// Why the outermost frame is the last.
    pub end: End,
    /// On a stack that is not the thread's own (signal stack, fibre): nothing was kept, and the
    /// next capture will keep nothing.
    pub foreign: bool,
}

/// Captures the stack of the running thread. `state` then remembers it, and `keep` of the next
/// capture counts from it. Cost: about 0.5 ns a kept and 4 ns a fresh frame; 0.2 to 2 µs for a pc
/// never seen; on a foreign stack about 1 µs for each 4 KiB.
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
    state.stats.captures += 1;
    let own = bounds.lo <= start.sp && start.sp <= bounds.hi.saturating_sub(8);
    if !own {
        return capture_foreign(rules, find, state, bounds, start);
    }
    if state.hi != bounds.hi {
        state.forget();
        state.hi = bounds.hi;
    }
    let good = state.verify(start.sp);
    let mut memory = Own {
        sp: start.sp,
        hi: bounds.hi,
    };
    // SAFETY: `start.sp` is a mapped word of the own stack (the caller, and the test of `own`).
    let ra = unsafe { (start.sp as *const u64).read_unaligned() };
    let mut walk = Walk {
        sp: start.sp + 8,
        bp: start.bp,
        link: Link::bare(start.sp, ra),
        shape: shape::PLAIN,
        fresh: 0,
        good,
        noted: 0,
        unlisted: None,
    };
    let end = walk.run(rules, find, state, &mut memory);
    state.commit(&walk, end)
}

/// What it means that no code can lie at a return address: 0 is pushed below the outermost frame.
fn no_code(ra: u64) -> End {
    if ra == 0 { End::Complete } else { End::NoInfo }
}

/// A walk outwards: the frame that was just left, and the registers outside of it.
struct Walk {
    sp: u64,
    bp: u64,
    link: Link,
    shape: u64,
    fresh: usize,
    good: usize,
    noted: usize,
    /// The outermost fresh frame whose extra words found no room (V3).
    unlisted: Option<usize>,
}

impl Walk {
    /// Walks until a verified frame is met (`None`), or the stack ends.
    fn run(
        &mut self,
        rules: &RuleCache,
        find: &Finder,
        state: &mut StackState,
        memory: &mut Own,
    ) -> Option<End> {
        loop {
            if self.joins(state) {
                return None;
            }
            if self.link.ra < LOWEST_CODE {
                return Some(no_code(self.link.ra));
            }
            if !self.keep_fresh(state) {
                return Some(End::TooDeep);
            }
            let exact = self.shape == shape::SIGNAL;
            let pc = self.link.ra - u64::from(!exact);
            let rule = match rules.get(pc) {
                Some(rule) => rule,
                None => {
                    state.stats.rules_made += 1;
                    rule_slow(rules, find, pc)
                }
            };
            if rule.kind() <= kind::BP && self.plain(rule, memory.hi) {
                continue;
            }
            match step(memory, find, rule, pc, self.sp, self.bp) {
                Ok(stepped) => {
                    if let Err(end) = self.take(stepped, state, memory.hi) {
                        return Some(end);
                    }
                }
                Err(end) => return Some(end),
            }
        }
    }

    /// Whether the frame just left is a verified one (V2); drops verified frames further in.
    #[inline(always)]
    fn joins(&mut self, state: &StackState) -> bool {
        while let Some(index) = self.good.checked_sub(1)
            && let (Some(link), Some(after)) = (state.links.get(index), state.after.get(index))
        {
            if link.slot >= self.link.slot {
                return link.slot == self.link.slot
                    && link.bp_slot == self.link.bp_slot
                    && after.bp == self.bp
                    && (after.shape | self.shape) == shape::PLAIN;
            }
            self.good = index;
        }
        false
    }

    /// Stores the frame just left; false if there is no room.
    #[inline(always)]
    fn keep_fresh(&mut self, state: &mut StackState) -> bool {
        let (Some(link), Some(after)) = (
            state.fresh_links.get_mut(self.fresh),
            state.fresh_after.get_mut(self.fresh),
        ) else {
            return false;
        };
        *link = self.link;
        *after = After {
            bp: self.bp,
            shape: self.shape,
        };
        self.fresh += 1;
        true
    }

    /// The common step, on the own stack: two loads at most. False, with nothing changed, if it
    /// does not lead outwards within the stack.
    #[inline(always)]
    fn plain(&mut self, rule: Rule, hi: u64) -> bool {
        let base = if rule.kind() == kind::SP {
            self.sp
        } else {
            self.bp
        };
        let cfa = base.wrapping_add(rule.a());
        if cfa.wrapping_sub(8) < self.sp || cfa > hi || cfa < 8 {
            return false;
        }
        let slot = cfa - 8;
        let bp_slot = if rule.b() == 0 {
            slot
        } else {
            cfa.wrapping_sub(rule.b())
        };
        if bp_slot < self.sp || bp_slot > slot {
            return false;
        }
        // SAFETY: U2: sp <= bp_slot <= slot <= hi - 8, and sp is at or above the capture's.
        let (ra, word) = unsafe {
            (
                (slot as *const u64).read_unaligned(),
                (bp_slot as *const u64).read_unaligned(),
            )
        };
        if rule.b() != 0 {
            self.bp = word;
        }
        self.link = Link {
            slot,
            ra,
            bp_slot,
            bp_value: word,
        };
        self.shape = shape::PLAIN;
        self.sp = cfa;
        true
    }

    /// Takes the result of a general step on the own stack.
    fn take(&mut self, stepped: Stepped, state: &mut StackState, hi: u64) -> Result<(), End> {
        // S2, and the walk stays on this stack: a handler runs below what it interrupted.
        if stepped.sp <= stepped.link.slot || stepped.sp > hi || stepped.link.slot < self.sp {
            return Err(End::BadFrame);
        }
        if let Some(extra) = stepped.extra {
            match state.fresh_extras.get_mut(self.noted) {
                Some(noted) => {
                    *noted = Noted {
                        index: self.fresh,
                        extra,
                    };
                    self.noted += 1;
                }
                None => self.unlisted = Some(self.fresh),
            }
        }
        self.link = stepped.link;
        self.shape = stepped.shape;
        self.sp = stepped.sp;
        self.bp = stepped.bp;
        Ok(())
    }
}

impl StackState {
    /// Forgets the remembered stack: the next capture keeps nothing. To be called when modules
    /// have come or gone, after `RuleCache::clear`, since what a pc means may have changed.
    pub fn invalidate(&mut self) {
        self.forget();
    }

    fn forget(&mut self) {
        self.len = 0;
        self.noted = 0;
        self.limit = 0;
    }

    /// How many outermost frames have all their words unchanged and at or above `sp`.
    #[inline(always)]
    fn verify(&self, sp: u64) -> usize {
        let mut good = 0;
        for link in self.links.get(..self.len.min(self.limit)).unwrap_or(&[]) {
            if link.bp_slot < sp {
                break;
            }
            // SAFETY: U2: both words were within the stack when remembered (`hi` is the same), and
            // sp <= bp_slot <= slot.
            let (ra, word) = unsafe {
                (
                    (link.slot as *const u64).read_unaligned(),
                    (link.bp_slot as *const u64).read_unaligned(),
                )
            };
            if (ra ^ link.ra) | (word ^ link.bp_value) != 0 {
                break;
            }
            good += 1;
        }
        if self.noted == 0 {
            good
        } else {
            self.verify_extras(sp, good)
        }
    }

    fn verify_extras(&self, sp: u64, good: usize) -> usize {
        let mut memory = Own { sp, hi: self.hi };
        for noted in self.extras.get(..self.noted).unwrap_or(&[]) {
            if noted.index >= good {
                break;
            }
            let same = |&[at, value]: &[u64; 2]| at == 0 || memory.load(at) == Some(value);
            if !noted.extra.words.iter().all(same) {
                return noted.index;
            }
        }
        good
    }

    /// Makes the walk's frames the remembered stack. `end` is `None` if it joined.
    #[inline(always)]
    fn commit(&mut self, walk: &Walk, end: Option<End>) -> Capture<'_> {
        let mut fresh = walk.fresh;
        let mut keep = if end.is_none() { walk.good } else { 0 };
        self.stats.fresh_frames += fresh as u64;
        if let Some(end) = end {
            self.end = end as u32;
        }
        if keep + fresh > MAX_FRAMES || end == Some(End::TooDeep) {
            (keep, fresh) = self.cut(keep, fresh);
        }
        let total = keep + fresh;
        self.store(keep, fresh);
        self.len = total;
        if self.noted != 0 || walk.noted != 0 || walk.unlisted.is_some() {
            self.note(keep, fresh, walk);
        } else {
            self.limit = MAX_FRAMES;
        }
        self.report(keep, total, false)
    }

    /// Copies the fresh frames, innermost first, behind the kept ones, outermost first.
    #[inline(always)]
    fn store(&mut self, keep: usize, fresh: usize) {
        let total = keep + fresh;
        let to = self.links.get_mut(keep..total).unwrap_or(&mut []);
        let from = self.fresh_links.get(..fresh).unwrap_or(&[]);
        for (to, from) in to.iter_mut().zip(from.iter().rev()) {
            *to = *from;
        }
        let to = self.after.get_mut(keep..total).unwrap_or(&mut []);
        let from = self.fresh_after.get(..fresh).unwrap_or(&[]);
        for (to, from) in to.iter_mut().zip(from.iter().rev()) {
            *to = *from;
        }
    }

    fn report(&mut self, keep: usize, total: usize, foreign: bool) -> Capture<'_> {
        let end = match self.end {
            0 => End::Complete,
            1 => End::TooDeep,
            2 => End::NoInfo,
            3 => End::BadFrame,
            4 => End::Unsupported,
            _ => End::Unreadable,
        };
        self.stats.truncated += u64::from(end != End::Complete);
        self.stats.foreign += u64::from(foreign);
        let fresh = Fresh {
            links: self.links.get(keep..total).unwrap_or(&[]),
            after: self.after.get(keep..total).unwrap_or(&[]),
        };
        Capture {
            keep,
            fresh,
            total,
            end,
            foreign,
        }
    }

    /// Too deep: leaves the innermost `CUT_FRAMES`, all of them as fresh ones, so that a recursion
    /// that goes on pays for a cut once in as many frames.
    #[cold]
    #[inline(never)]
    fn cut(&mut self, keep: usize, fresh: usize) -> (usize, usize) {
        self.end = End::TooDeep as u32;
        let mut have = fresh.min(CUT_FRAMES);
        let mut kept = keep;
        while have < CUT_FRAMES && kept > 0 {
            kept -= 1;
            if let (Some(l), Some(a)) = (self.links.get(kept), self.after.get(kept))
                && let Some(to) = self.fresh_links.get_mut(have)
                && let Some(to_after) = self.fresh_after.get_mut(have)
            {
                (*to, *to_after) = (*l, *a);
            }
            have += 1;
        }
        // Words noted for moved frames have other indices now. Rather than renumber, distrust:
        // `note` sees that kept frames became fresh and puts the limit there.
        (0, have)
    }

    /// Lists the extra words of the new stack (V1), or sets the limit where they do not fit (V3).
    #[cold]
    #[inline(never)]
    fn note(&mut self, keep: usize, fresh: usize, walk: &Walk) {
        let total = keep + fresh;
        // After a cut, frames that had been kept are among the fresh ones; if any frame had extra
        // words, nothing of this stack is trusted next time.
        let moved = walk.good != 0 && keep == 0 && fresh > walk.fresh;
        self.limit = MAX_FRAMES;
        if moved {
            self.noted = 0;
            self.limit = 0;
            return;
        }
        let old = self.extras.get(..self.noted).unwrap_or(&[]);
        self.noted = old.iter().take_while(|n| n.index < keep).count();
        if let Some(index) = walk.unlisted.filter(|&index| index < fresh) {
            self.limit = total - index;
        }
        for i in (0..walk.noted).rev() {
            let Some(&Noted { index, extra }) = self.fresh_extras.get(i) else {
                continue;
            };
            if index >= fresh {
                continue;
            }
            let index = total - 1 - index;
            match self.extras.get_mut(self.noted) {
                Some(noted) => {
                    *noted = Noted { index, extra };
                    self.noted += 1;
                }
                None => {
                    self.limit = self.limit.min(index + 1);
                    return;
                }
            }
        }
    }
}

/// A stack that is not the thread's own: every word through the window, nothing kept, and once a
/// signal frame leads to the own stack, direct loads from there.
#[cold]
#[inline(never)]
fn capture_foreign<'a>(
    rules: &RuleCache,
    find: &Finder,
    state: &'a mut StackState,
    bounds: StackBounds,
    start: Registers,
) -> Capture<'a> {
    state.forget();
    state.window.start();
    let mut at = Foreign {
        sp: start.sp,
        bp: start.bp,
        own: None,
        frames: 0,
    };
    let end = at.run(rules, find, state, bounds);
    state.end = end as u32;
    let total = at.frames;
    state.stats.fresh_frames += total as u64;
    state.store(0, total);
    state.report(0, total, true)
}

struct Foreign {
    sp: u64,
    bp: u64,
    own: Option<Own>,
    frames: usize,
}

impl Foreign {
    fn run(
        &mut self,
        rules: &RuleCache,
        find: &Finder,
        state: &mut StackState,
        bounds: StackBounds,
    ) -> End {
        let Some(ra) = state.window.load(self.sp) else {
            return End::Unreadable;
        };
        let mut link = Link::bare(self.sp, ra);
        let mut exact = 0;
        self.sp = self.sp.wrapping_add(8);
        loop {
            let (Some(to), Some(to_after)) = (
                state.fresh_links.get_mut(self.frames),
                state.fresh_after.get_mut(self.frames),
            ) else {
                self.frames = CUT_FRAMES;
                return End::TooDeep;
            };
            *to = link;
            *to_after = After {
                bp: self.bp,
                shape: exact * shape::SIGNAL,
            };
            self.frames += 1;
            let pc = link.ra - (1 - exact);
            let rule = rules.get(pc).unwrap_or_else(|| {
                state.stats.rules_made += 1;
                rule_slow(rules, find, pc)
            });
            let stepped = match &mut self.own {
                Some(own) => step(own, find, rule, pc, self.sp, self.bp),
                None => {
                    let mut memory = &mut state.window;
                    step(&mut memory, find, rule, pc, self.sp, self.bp).map_err(|e| {
                        if e == End::BadFrame {
                            End::Unreadable
                        } else {
                            e
                        }
                    })
                }
            };
            let stepped = match stepped {
                Ok(stepped) => stepped,
                Err(end) => return end,
            };
            exact = u64::from(stepped.shape == shape::SIGNAL);
            // S2: only a signal frame may change the stack.
            if exact == 0 && stepped.sp <= self.sp {
                return End::BadFrame;
            }
            (link, self.sp, self.bp) = (stepped.link, stepped.sp, stepped.bp);
            if exact == 1 && self.own.is_none() && bounds.lo <= self.sp && self.sp < bounds.hi {
                self.own = Some(Own {
                    sp: self.sp,
                    hi: bounds.hi,
                });
            }
        }
    }
}
