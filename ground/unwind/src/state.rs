//! The remembered stack of a thread: what it holds, how it is verified, and how a walk becomes the next one.
//!
//! ```text
//!   frames, outermost first:  [0] [1] [2] … [keep-1] │ changed or gone        fresh: of the walk, innermost first
//!   words:  all that the frames were derived from, beside the return addresses
//! ```
//!
//! V1  `frames[..len]` have falling slots. `words` lists all words that the frames further out were
//!     derived from, frame by frame, each word above the slots of all frames further in.
//! V2  A walk joins only at a plain frame on both sides: elsewhere `sp` is not `slot + 8`.
//! V3  A frame whose words could not all be listed is not within `len`, nor is any frame further in.
//! V4  The stack use of a capture is small; everything large is in the state, touched as deep as stacks go.
//!
//! Not here: the walk (capture.rs).

use crate::foreign::Window;
use crate::rule::Rule;
use crate::step::{End, Extra, Link, shape};

/// The most frames that are remembered and reported. Of deeper stacks the outermost are missing.
pub const MAX_FRAMES: usize = 8192;

/// The frames that are left of a stack that is too deep: half, so that the next cut is as far away.
pub(crate) const CUT_FRAMES: usize = MAX_FRAMES / 2;

/// The most frames with more than a link (signal frames, realigned stacks) that one walk can note.
const MAX_EXTRAS: usize = 512;

/// The most words remembered beside the return addresses: one for each frame, and two more for rare ones.
const MAX_WORDS: usize = MAX_FRAMES + 2 * MAX_EXTRAS;

/// The thread's own stack, `[lo, hi)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackBounds {
    /// The lowest address. May be below what is mapped so far.
    pub lo: u64,
    /// The address after the highest byte; everything from the current `sp` to here must be mapped.
    pub hi: u64,
}

/// The registers on entry to the recorder's exported function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// The stack pointer, which points at the return address.
    pub sp: u64,
    /// `rbp`.
    pub bp: u64,
}

/// The totals of one thread, for the statistics of a trace.
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

/// A word of the stack that a derivation read.
#[repr(C)]
#[derive(Clone, Copy)]
struct Word {
    pub(crate) at: u64,
    pub(crate) value: u64,
}

impl Word {
    /// Compares the word with what it was: the result is 0 if it is unchanged.
    ///
    /// # Safety
    /// `at` must be readable.
    #[inline(always)]
    unsafe fn changed(&self) -> u64 {
        // SAFETY: as the caller promises.
        unsafe { (self.at as *const u64).read_unaligned() ^ self.value }
    }
}

/// A remembered frame, or one that the walk has just left. Five words, each stored and loaded as a
/// whole: a load that spans two fresh stores waits for both to reach the cache (22 % of a capture).
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Frame {
    pub(crate) slot: u64,
    pub(crate) ra: u64,
    pub(crate) bp_slot: u64,
    /// The value of the caller's `rbp`; if it was loaded, from `bp_slot`.
    pub(crate) bp: u64,
    /// For a remembered frame its `needs_bp`, shape and words, for one just left its shape and rule.
    pub(crate) rest: u64,
}

impl Frame {
    #[inline(always)]
    pub(crate) fn left(link: Link, bp: u64, shape: u32, rule: Rule) -> Frame {
        let Link {
            slot, ra, bp_slot, ..
        } = link;
        let rest = u64::from(shape) << 32 | u64::from(rule.bits());
        Frame {
            slot,
            ra,
            bp_slot,
            bp,
            rest,
        }
    }

    /// Returns the shape, which is in the upper half in either case.
    #[inline(always)]
    pub(crate) fn shape(&self) -> u32 {
        (self.rest >> 32) as u32 & shape::ALL
    }

    /// Returns the rule that leads further out, of a frame just left.
    #[inline(always)]
    pub(crate) fn rule(&self) -> Rule {
        Rule::from_bits(self.rest as u32)
    }

    /// Returns whether frames further out depend on `bp`, of a remembered frame.
    #[inline(always)]
    pub(crate) fn needs_bp(&self) -> bool {
        self.rest >> 63 != 0
    }

    /// Returns where its words end in `words`, of a remembered frame.
    #[inline(always)]
    pub(crate) fn words(&self) -> usize {
        self.rest as u32 as usize
    }
}

/// A thread's remembered stack and scratch. About 1 MB of address space; all-zero memory is
/// a valid, empty state (unwind.U4), and pages are touched only as deep as stacks go.
#[repr(C)]
pub struct StackState {
    /// Totals since the start.
    pub stats: Stats,
    pub(crate) len: usize,
    pub(crate) hi: u64,
    pub(crate) end: u32,
    pub(crate) frames: [Frame; MAX_FRAMES],
    words: [Word; MAX_WORDS],
    pub(crate) fresh: [Frame; MAX_FRAMES],
    pub(crate) fresh_extras: [Extra; MAX_EXTRAS],
    pub(crate) window: Window,
}

/// The frames of a capture that are new, outermost first.
#[derive(Clone, Copy)]
pub struct Fresh<'a> {
    frames: &'a [Frame],
}

impl<'a> Fresh<'a> {
    /// Returns the number of frames.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Returns true if the stack is the kept frames alone.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Returns the return addresses, outermost first. An address less one lies in the calling
    /// instruction; for code that a signal interrupted, the address is the interrupted pc plus one.
    #[inline(always)]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u64> + ExactSizeIterator + 'a {
        self.frames.iter().map(|frame| {
            let signal = frame.shape() >> shape::SIGNAL_BIT & 1;
            frame.ra.wrapping_add(u64::from(signal))
        })
    }
}

/// A captured stack, as a change to the one before.
pub struct Capture<'a> {
    /// The number of outermost frames of the previous capture that are also the outermost of this one.
    pub keep: usize,
    /// The frames that follow inwards from there.
    pub fresh: Fresh<'a>,
    /// The number of all frames: `keep` and the fresh ones.
    pub total: usize,
    /// Why the outermost frame is the last.
    pub end: End,
    /// Whether the stack is not the thread's own (signal stack, fibre): nothing was kept, and the
    /// next capture will keep nothing.
    pub foreign: bool,
}

/// The result of a walk: `fresh` frames in the scratch, which follow `keep` kept ones.
pub(crate) struct Walked {
    pub(crate) fresh: usize,
    pub(crate) keep: usize,
    pub(crate) noted: usize,
    /// Whether frames that are not plain may be among them.
    pub(crate) rare: bool,
    /// `None` if it met a verified frame.
    pub(crate) end: Option<End>,
}

/// A frame left by its link alone: the caller's `sp` is `slot + 8`.
#[derive(Clone, Copy)]
pub(crate) struct Plain {
    pub(crate) slot: u64,
    pub(crate) ra: u64,
    pub(crate) bp_slot: u64,
    pub(crate) bp: u64,
}

/// The known state of the remembered frames: the words of the first `good` hold; a word of the frame at
/// `bad` does not.
pub(crate) struct Trusted {
    pub(crate) good: usize,
    pub(crate) bad: usize,
}

/// Returns whether no return address has changed. Compares eight at a time, the last eight partly for
/// the second time, so that the number of branches seldom changes from capture to capture.
///
/// # Safety
/// All slots must be readable.
#[inline(always)]
unsafe fn all_hold(frames: &[Frame]) -> bool {
    let mut changed = 0;
    // SAFETY: as the caller promises.
    let mut look = |f: &Frame| changed |= unsafe { (f.slot as *const u64).read_unaligned() } ^ f.ra;
    match frames.last_chunk::<8>() {
        Some(last) => {
            let (blocks, _) = frames.as_chunks::<8>();
            blocks.iter().flatten().for_each(&mut look);
            last.iter().for_each(look);
        }
        None => frames.iter().for_each(look),
    }
    changed == 0
}

impl StackState {
    /// Forgets the remembered stack: the next capture keeps nothing. To be called when modules
    /// have come or gone, after `RuleCache::clear`, since what a pc means may have changed.
    pub fn invalidate(&mut self) {
        self.forget();
    }

    pub(crate) fn forget(&mut self) {
        self.len = 0;
    }

    /// Returns whether the frame just left looks like a remembered one (V2), which is then `keep - 1`;
    /// skips remembered frames further in.
    #[inline(always)]
    pub(crate) fn joins(&self, left: &Plain, keep: &mut usize) -> bool {
        while let Some(frame) = self.frames.get(keep.wrapping_sub(1)) {
            if frame.slot >= left.slot {
                let bp_differs = (frame.bp_slot ^ left.bp_slot) | (frame.bp ^ left.bp);
                let needed = ((frame.rest as i64) >> 63) as u64;
                let differs = (frame.slot ^ left.slot)
                    | (frame.ra ^ left.ra)
                    | (bp_differs & needed)
                    | u64::from(frame.shape());
                return differs == 0;
            }
            *keep -= 1;
        }
        false
    }

    /// Returns whether all words outside of frame `keep - 1` are unchanged. Its own were just read.
    #[inline(always)]
    pub(crate) fn holds_outside(&self, keep: usize, trusted: &mut Trusted) -> bool {
        let end = keep - 1;
        if end <= trusted.good {
            return true;
        }
        let frames = self.frames.get(trusted.good..end).unwrap_or(&[]);
        let words = self.words_of(trusted.good, end);
        // SAFETY: V1: the words lie above the slot that the walk has come to, hence above the
        // capture's sp, and below `hi`, which is the same (unwind.U2).
        let changed = |word: &Word| unsafe { word.changed() } != 0;
        // SAFETY: as above.
        if end <= trusted.bad && unsafe { all_hold(frames) } && !words.iter().any(changed) {
            trusted.good = end;
            return true;
        }
        self.distrust(end, trusted);
        false
    }

    /// Returns the words of frames `from..end` beside their return addresses.
    #[inline(always)]
    fn words_of(&self, from: usize, end: usize) -> &[Word] {
        let before = |index: usize| {
            self.frames
                .get(index.wrapping_sub(1))
                .map_or(0, Frame::words)
        };
        self.words.get(before(from)..before(end)).unwrap_or(&[])
    }

    /// Finds the outermost frame below `end` that has changed.
    #[cold]
    #[inline(never)]
    fn distrust(&self, end: usize, trusted: &mut Trusted) {
        while trusted.good < end.min(trusted.bad) {
            let good = trusted.good;
            let frame = self.frames.get(good..good + 1).unwrap_or(&[]);
            let mut words = self.words_of(good, good + 1).iter();
            // SAFETY: as in `holds_outside`.
            if unsafe { !all_hold(frame) || words.any(|word| word.changed() != 0) } {
                trusted.bad = good;
            } else {
                trusted.good += 1;
            }
        }
    }

    /// Notes the further words that a step from `sp` read. Returns the shape bit for words that it could
    /// not note, else 0.
    #[cold]
    #[inline(never)]
    pub(crate) fn note_extra(&mut self, extra: &Extra, noted: &mut usize, sp: u64) -> u32 {
        // V1: a word further in than this frame cannot be listed with it.
        let inside = |&[at, _]: &[u64; 2]| at == 0 || at >= sp;
        match self.fresh_extras.get_mut(*noted) {
            Some(to) if extra.words.iter().all(inside) => {
                *to = *extra;
                *noted += 1;
                0
            }
            _ => shape::UNLISTED,
        }
    }

    /// Makes the walk's frames the remembered stack.
    #[inline(always)]
    pub(crate) fn commit(&mut self, walked: Walked) -> Capture<'_> {
        let (mut fresh, mut keep) = (walked.fresh, walked.keep);
        self.stats.fresh_frames += fresh as u64;
        if let Some(end) = walked.end {
            self.end = end as u32;
            keep = 0;
        }
        let mut rare = walked.rare;
        if keep + fresh > MAX_FRAMES || walked.end == Some(End::TooDeep) {
            (keep, fresh) = self.cut(keep, fresh);
            rare = true;
        }
        if !rare {
            self.store::<false>(keep, fresh, 0);
        } else {
            self.store_noted(keep, fresh, walked.noted);
        }
        self.report(keep, keep + fresh, false)
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn store_noted(&mut self, keep: usize, fresh: usize, noted: usize) {
        self.store::<true>(keep, fresh, noted);
    }

    /// Copies the fresh frames, which come innermost first, after the kept ones, which are outermost first,
    /// and lists their words after those of the kept ones. Words that cannot be listed end what is
    /// remembered.
    #[inline(always)]
    fn store<const NOTED: bool>(&mut self, keep: usize, fresh: usize, mut noted: usize) {
        let total = keep + fresh;
        let (mut count, mut needs_bp) = match self.frames.get(keep.wrapping_sub(1)) {
            Some(frame) => (frame.words(), frame.needs_bp()),
            None => (0, self.end != End::Complete as u32),
        };
        let mut listed = total;
        let to = self.frames.get_mut(keep..total).unwrap_or(&mut []);
        let from = self.fresh.get(..fresh).unwrap_or(&[]);
        for (index, (to, from)) in to.iter_mut().zip(from.iter().rev()).enumerate() {
            let (slot, bp_slot, bp) = (from.slot, from.bp_slot, from.bp);
            needs_bp = from.rule().needs_bp(needs_bp);
            if needs_bp && bp_slot != slot {
                match self.words.get_mut(count) {
                    Some(word) => {
                        (word.at, word.value) = (bp_slot, bp);
                        count += 1;
                    }
                    None => listed = listed.min(keep + index),
                }
            }
            let shape = if NOTED { from.shape() } else { shape::PLAIN };
            if NOTED && shape != shape::PLAIN {
                let extra = match shape & shape::UNLISTED {
                    0 => {
                        noted -= 1;
                        self.fresh_extras.get(noted)
                    }
                    _ => None,
                };
                match (extra, self.words.get_mut(count..count + 2)) {
                    (Some(extra), Some(words)) => {
                        for (word, [at, value]) in words.iter_mut().zip(extra.words) {
                            // A word that was not read: the return address once more.
                            (word.at, word.value) = if at == 0 {
                                (slot, from.ra)
                            } else {
                                (at, value)
                            };
                        }
                        count += 2;
                    }
                    _ => listed = listed.min(keep + index),
                }
            }
            (to.slot, to.ra, to.bp_slot, to.bp) = (slot, from.ra, bp_slot, bp);
            to.rest = u64::from(needs_bp) << 63 | u64::from(shape) << 32 | count as u64;
        }
        self.len = listed;
    }

    #[inline(always)]
    pub(crate) fn report(&mut self, keep: usize, total: usize, foreign: bool) -> Capture<'_> {
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
            frames: self.frames.get(keep..total).unwrap_or(&[]),
        };
        Capture {
            keep,
            fresh,
            total,
            end,
            foreign,
        }
    }

    /// Cuts a stack that is too deep to the innermost `CUT_FRAMES`, all of them fresh ones, so that a
    /// recursion that goes on pays for one cut in this many frames.
    #[cold]
    #[inline(never)]
    fn cut(&mut self, keep: usize, fresh: usize) -> (usize, usize) {
        self.end = End::TooDeep as u32;
        let mut have = fresh.min(CUT_FRAMES);
        let mut kept = keep;
        while have < CUT_FRAMES && kept > 0 {
            kept -= 1;
            if let (Some(frame), Some(to)) = (self.frames.get(kept), self.fresh.get_mut(have)) {
                let rule = Rule::that_needs_bp(frame.needs_bp());
                *to = *frame;
                to.rest = u64::from(frame.shape()) << 32 | u64::from(rule.bits());
            }
            have += 1;
        }
        // Further words would have to be noted anew: their frames are distrusted instead.
        for left in self.fresh.get_mut(..have).unwrap_or(&mut []) {
            if left.shape() != shape::PLAIN {
                left.rest |= u64::from(shape::UNLISTED) << 32;
            }
        }
        (0, have)
    }
}
