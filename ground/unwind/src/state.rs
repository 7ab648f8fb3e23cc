//! The remembered stack of a thread: what it holds, how it is verified, and how a walk becomes the next one.
//!
//! ```text
//!   frames, outermost first:  [0] [1] [2] … [keep-1] │ changed or gone        fresh: of the walk, innermost first
//!   words:  all that the frames were derived from, beside the return addresses
//! ```
//!
//! V1  Frames 0 to `len` have falling slots. `words` lists all words that the frames further out were
//!     derived from, frame by frame, each word above the slots of all frames further in.
//! V2  A walk joins only at a plain frame on both sides: elsewhere `sp` is not `slot + 8`.
//! V3  A frame whose words could not all be listed is not within `len`, nor is any frame further in.
//! V4  The stack use of a capture is small; everything large is in the state, touched as deep as stacks go.
//! V5  Frame `i` is `links[i + 1]` and `rests[i + 1]`, so `keep` frames end with the entries at `keep`. Before them is a
//!     sentinel: its slot is above every frame's once `forget` was called, which a capture on another stack than the
//!     last does first, and its rest is zero. `len` is at most `MAX_FRAMES`, a frame's `words()` at most `MAX_WORDS`.
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

/// What is compared of every remembered frame at every capture, close together: of a deep stack this is most of what a
/// capture reads.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Edge {
    pub(crate) slot: u64,
    pub(crate) ra: u64,
}

/// The bit of `Rest::bits` that says that frames further out depend on `bp`.
const NEEDS_BP: u64 = 1 << 63;

/// What else is remembered of a frame. `bp_slot` and `bp` are of no meaning if nothing depends on `bp`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Rest {
    bp_slot: u64,
    /// The value of the caller's `rbp`; if it was loaded, from `bp_slot`.
    bp: u64,
    /// Whether frames further out depend on `bp` (1 bit), 28 bits with the shape, where its words end in `words` (32).
    bits: u64,
}

impl Rest {
    /// Returns the shape.
    #[inline(always)]
    fn shape(&self) -> u32 {
        (self.bits >> 32) as u32 & shape::ALL
    }

    /// Returns whether frames further out depend on `bp`.
    #[inline(always)]
    fn needs_bp(&self) -> bool {
        self.bits & NEEDS_BP != 0
    }

    /// Returns where its words end in `words`.
    #[inline(always)]
    fn words(&self) -> usize {
        self.bits as u32 as usize
    }
}

/// A frame that the walk has just left. Five words, each stored and loaded as a whole: a load that spans two
/// fresh stores waits for both to reach the cache (22 % of a capture).
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Frame {
    pub(crate) slot: u64,
    pub(crate) ra: u64,
    pub(crate) bp_slot: u64,
    /// The value of the caller's `rbp`; if it was loaded, from `bp_slot`.
    pub(crate) bp: u64,
    /// Its shape and the rule that leads further out, 32 bits each.
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

    /// Returns the shape.
    #[inline(always)]
    pub(crate) fn shape(&self) -> u32 {
        (self.rest >> 32) as u32 & shape::ALL
    }

    /// Returns the rule that leads further out.
    #[inline(always)]
    pub(crate) fn rule(&self) -> Rule {
        Rule::from_bits(self.rest as u32)
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
    pub(crate) end: End,
    links: [Edge; MAX_FRAMES + 1],
    rests: [Rest; MAX_FRAMES + 1],
    words: [Word; MAX_WORDS],
    pub(crate) fresh: [Frame; MAX_FRAMES],
    pub(crate) fresh_extras: [Extra; MAX_EXTRAS],
    pub(crate) window: Window,
}

/// Frames of a capture, outermost first.
#[derive(Clone, Copy)]
pub struct Fresh<'a> {
    links: &'a [Edge],
    rests: &'a [Rest],
}

impl<'a> Fresh<'a> {
    /// Returns the number of frames.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.links.len()
    }

    /// Returns true if the stack is the kept frames alone.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// Returns the return addresses, outermost first. An address less one lies in the calling
    /// instruction; for code that a signal interrupted, the address is the interrupted pc plus one.
    #[inline(always)]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u64> + ExactSizeIterator + 'a {
        self.links.iter().zip(self.rests).map(|(edge, rest)| {
            let signal = rest.shape() >> shape::SIGNAL_BIT & 1;
            edge.ra.wrapping_add(u64::from(signal))
        })
    }

    /// Returns a frame's return address, as `iter` does; 0 for a frame that there is not.
    #[inline(always)]
    pub fn pc(&self, index: usize) -> u64 {
        let signal = self
            .rests
            .get(index)
            .map_or(0, |rest| rest.shape() >> shape::SIGNAL_BIT & 1);
        let edge = self.links.get(index);
        edge.map_or(0, |edge| edge.ra.wrapping_add(u64::from(signal)))
    }

    /// Returns the address at which the return address of a frame lies; 0 for a frame that there is not.
    #[inline(always)]
    pub fn slot(&self, index: usize) -> u64 {
        self.links.get(index).map_or(0, |edge| edge.slot)
    }

    /// Returns `rbp` as the caller of the outermost frame has it, if more frames follow further out than could be walked: it is
    /// verified then, as all that frames depend on.
    pub fn outermost_bp(&self) -> u64 {
        self.rests.first().map_or(0, |rest| rest.bp)
    }

    /// Returns the outermost frame that a signal interrupted.
    pub fn first_signal(&self) -> Option<usize> {
        let mut all = self.rests.iter();
        all.position(|rest| rest.shape() & shape::SIGNAL != 0)
    }

    /// Returns the frames from the one at `index` on.
    pub fn from(&self, index: usize) -> Fresh<'a> {
        Fresh {
            links: self.links.get(index..).unwrap_or(&[]),
            rests: self.rests.get(index..).unwrap_or(&[]),
        }
    }
}

/// A captured stack, as a change to the one before.
pub struct Capture<'a> {
    /// The number of outermost frames of the previous capture that are also the outermost of this one.
    pub keep: usize,
    /// The frames that follow inwards from there.
    pub fresh: Fresh<'a>,
    /// All frames, the kept ones included.
    pub all: Fresh<'a>,
    /// The number of all frames: `keep` and the fresh ones.
    pub total: usize,
    /// Why the outermost frame is the last.
    pub end: End,
    /// Whether the stack is not the thread's own (signal stack, fibre): nothing was kept, and the
    /// next capture will keep nothing.
    pub foreign: bool,
}

/// Takes a captured stack. If it is as most are (the thread's own; it meets a remembered frame by common steps), its new
/// frames come one by one while they are remembered: one loop for both.
pub trait Sink {
    /// Returns whether there is a place for `fresh` return addresses that follow `keep` frames of the last stack.
    fn takes(&mut self, keep: usize, fresh: usize, end: End) -> bool;

    /// Takes the next return address; the outermost comes first.
    ///
    /// # Safety
    /// `takes` returned true, and no more come than it was told.
    unsafe fn put(&mut self, ra: u64);

    /// Takes any other stack, and what `takes` refused.
    fn take_whole(&mut self, captured: Capture<'_>);
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

impl Walked {
    /// Returns whether all frames are plain and follow a verified one, and there is room for them.
    #[inline(always)]
    pub(crate) fn is_common(&self) -> bool {
        self.end.is_none() && !self.rare && self.keep + self.fresh <= MAX_FRAMES
    }
}

/// A frame left by its link alone: the caller's `sp` is `slot + 8`.
#[derive(Clone, Copy)]
pub(crate) struct Plain {
    pub(crate) slot: u64,
    pub(crate) ra: u64,
    pub(crate) bp_slot: u64,
    pub(crate) bp: u64,
}

/// The position of a walk.
pub(crate) struct Place {
    /// The frame just left.
    pub(crate) left: Plain,
    /// The number of remembered frames that are not further in than that.
    pub(crate) keep: usize,
    /// The number of frames in the scratch.
    pub(crate) fresh: usize,
    /// The number of outermost remembered frames that hold with all their words, or `UNKNOWN`.
    pub(crate) good: usize,
}

/// The remembered frames (V5).
#[derive(Clone, Copy)]
pub(crate) struct Remembered<'a> {
    pub(crate) links: &'a [Edge; MAX_FRAMES + 1],
    rests: &'a [Rest; MAX_FRAMES + 1],
}

impl Remembered<'_> {
    /// Returns whether the frame just left, whose slot and return address are those of the frame at `near`, looks like it
    /// (V2), and the frames outside may hold: all but the outermost `good` are known to have changed.
    ///
    /// # Safety
    /// V5; `near` points at the entry of a frame.
    #[inline(always)]
    pub(crate) unsafe fn is_met(self, near: *const Edge, left: &Plain, good: usize) -> bool {
        // SAFETY: as the caller promises; the index is above 0.
        let (keep, rest) = unsafe {
            let keep = near.offset_from(self.links.as_ptr()) as usize;
            (keep, self.rests.get_unchecked(keep))
        };
        // Most frames are plain, and nothing outside of them depends on rbp.
        let is_same = rest.bits >> 32 == 0
            || rest.shape() == shape::PLAIN
                && (rest.bp_slot ^ left.bp_slot) | (rest.bp ^ left.bp) == 0;
        is_same && keep - 1 <= good
    }
}

/// The number of outermost frames that hold, as long as it is not known.
pub(crate) const UNKNOWN: usize = usize::MAX;

/// Returns whether no return address has changed. Compares eight at a time, the last eight partly for
/// the second time, so that the number of branches seldom changes from capture to capture.
///
/// # Safety
/// All slots must be readable.
#[inline(always)]
unsafe fn all_hold(links: &[Edge]) -> bool {
    let mut changed = 0;
    // SAFETY: as the caller promises.
    let mut look = |e: &Edge| changed |= unsafe { (e.slot as *const u64).read_unaligned() } ^ e.ra;
    if let Some(last) = links.last_chunk::<8>() {
        let mut left = links;
        while let Some((block, further)) = left.split_first_chunk::<8>()
            && !further.is_empty()
        {
            block.iter().for_each(&mut look);
            left = further;
        }
        last.iter().for_each(look);
    } else if let (Some(first), Some(last)) = (links.first_chunk::<4>(), links.last_chunk::<4>()) {
        first.iter().chain(last).for_each(look);
    } else {
        links.iter().for_each(look);
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
        self.links[0].slot = u64::MAX;
    }

    /// Returns what a walk compares with, and the scratch that it writes to.
    #[inline(always)]
    pub(crate) fn halves(&mut self) -> (Remembered<'_>, &mut [Frame; MAX_FRAMES]) {
        let remembered = Remembered {
            links: &self.links,
            rests: &self.rests,
        };
        (remembered, &mut self.fresh)
    }

    /// Returns whether all words outside of frame `keep - 1` are unchanged, and if not, how many frames hold. Its own
    /// words were just read.
    ///
    /// # Safety
    /// `is_met` returned true for the frame.
    #[inline(always)]
    pub(crate) unsafe fn holds_outside(&self, place: &mut Place) -> bool {
        // SAFETY: V5: 0 < keep <= len, since the sentinel is no frame.
        let (links, words) = unsafe {
            let words = self.rests.get_unchecked(place.keep - 1).words();
            (
                self.links.get_unchecked(1..place.keep),
                self.words.get_unchecked(..words),
            )
        };
        // SAFETY: V1: the words lie above the slot that the walk has come to, hence above the
        // capture's sp, and below `hi`, which is the same (unwind.U2).
        let hold = unsafe { all_hold(links) && words.iter().all(|word| word.changed() == 0) };
        if !hold {
            let rests = self.rests.get(1..place.keep).unwrap_or(&[]);
            place.good = holding(links, words, rests);
        }
        hold
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

    /// Makes the frames of a common walk the remembered stack, and gives their return addresses to `sink`, which takes them.
    #[inline(always)]
    pub(crate) fn commit_to(&mut self, walked: Walked, sink: &mut impl Sink) {
        self.stats.fresh_frames += walked.fresh as u64;
        self.stats.truncated += u64::from(self.end != End::Complete);
        // SAFETY: V5; the walk is common, so that there is room.
        unsafe { self.store_plain(walked.keep, walked.fresh, sink) };
    }

    /// Does what `commit_to` does, and returns the frames.
    #[inline(always)]
    pub(crate) fn commit_common(&mut self, walked: &Walked) -> Capture<'_> {
        /// Takes frames that are read from what is remembered.
        struct Nothing;
        impl Sink for Nothing {
            fn takes(&mut self, _: usize, _: usize, _: End) -> bool {
                true
            }
            #[inline(always)]
            unsafe fn put(&mut self, _: u64) {}
            fn take_whole(&mut self, _: Capture<'_>) {}
        }
        self.stats.fresh_frames += walked.fresh as u64;
        // SAFETY: as in `commit_to`.
        unsafe { self.store_plain(walked.keep, walked.fresh, &mut Nothing) };
        self.report(walked.keep, walked.keep + walked.fresh, false)
    }

    /// Makes the walk's frames the remembered stack.
    #[cold]
    #[inline(never)]
    pub(crate) fn commit(&mut self, walked: Walked) -> Capture<'_> {
        let (mut fresh, mut keep) = (walked.fresh, walked.keep);
        self.stats.fresh_frames += fresh as u64;
        if let Some(end) = walked.end {
            self.end = end;
            keep = 0;
        }
        if keep + fresh > MAX_FRAMES || walked.end == Some(End::TooDeep) {
            (keep, fresh) = self.cut(keep, fresh);
        }
        self.store_noted(keep, fresh, walked.noted);
        self.report(keep, keep + fresh, false)
    }

    /// Copies the fresh frames, which come innermost first, after the kept ones, which are outermost first, and lists
    /// their words after those of the kept ones. All are plain, and one is kept.
    ///
    /// # Safety
    /// V5; `keep + fresh` is at most `MAX_FRAMES`; `sink` takes `fresh` return addresses.
    #[inline(always)]
    unsafe fn store_plain(&mut self, keep: usize, fresh: usize, sink: &mut impl Sink) {
        // SAFETY: V5, and as the caller promises: the kept frame furthest in, and the room behind it.
        let (mut edge, mut rest, mut from, scratch) = unsafe {
            let edge = self.links.as_mut_ptr().add(keep + 1);
            let rest = self.rests.as_mut_ptr().add(keep + 1);
            let scratch = self.fresh.as_ptr();
            (edge, rest, scratch.add(fresh), scratch)
        };
        let (first, mut listed) = (edge, keep + fresh);
        // SAFETY: as above.
        let newest = unsafe { &*rest.sub(1) };
        let (mut needs_bp, mut count) = (newest.bits & NEEDS_BP, newest.words());
        while from != scratch {
            // SAFETY: as above: as many frames as were walked, from the outermost to the innermost.
            unsafe {
                from = from.sub(1);
                let left = &*from;
                needs_bp = left.rule().common_needs_bp(needs_bp);
                if needs_bp != 0 {
                    ((*rest).bp_slot, (*rest).bp) = (left.bp_slot, left.bp);
                    if left.bp_slot != left.slot {
                        if let Some(word) = self.words.get_mut(count) {
                            (word.at, word.value) = (left.bp_slot, left.bp);
                            count += 1;
                        } else {
                            // V3: what is remembered ends before that frame.
                            listed = listed.min(keep + edge.offset_from(first) as usize);
                        }
                    }
                }
                // Volatile: two loads of what two stores wrote. One of both would wait for them (see `Frame`).
                let (slot, ra) = (
                    (&raw const left.slot).read_volatile(),
                    (&raw const left.ra).read_volatile(),
                );
                sink.put(ra);
                ((*edge).slot, (*edge).ra) = (slot, ra);
                (*rest).bits = needs_bp | count as u64;
                (edge, rest) = (edge.add(1), rest.add(1));
            }
        }
        self.len = listed;
    }

    /// Does what `store_plain` does, for all frames. Words that cannot be listed end what is remembered.
    #[cold]
    #[inline(never)]
    pub(crate) fn store_noted(&mut self, keep: usize, fresh: usize, mut noted: usize) {
        let total = keep + fresh;
        let (mut count, mut needs_bp) = match self.rests.get(keep) {
            Some(rest) if keep > 0 => (rest.words(), rest.needs_bp()),
            _ => (0, self.end != End::Complete),
        };
        let mut listed = total;
        let links = self.links.get_mut(keep + 1..=total).unwrap_or(&mut []);
        let rests = self.rests.get_mut(keep + 1..=total).unwrap_or(&mut []);
        let mut left = self.fresh.get(..fresh).unwrap_or(&[]);
        for (index, (edge, rest)) in links.iter_mut().zip(rests).enumerate() {
            let Some((from, further)) = left.split_last() else {
                break;
            };
            left = further;
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
            let shape = from.shape();
            if shape != shape::PLAIN {
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
            (edge.slot, edge.ra, rest.bp_slot, rest.bp) = (slot, from.ra, bp_slot, bp);
            rest.bits = u64::from(needs_bp) << 63 | u64::from(shape) << 32 | count as u64;
        }
        self.len = listed;
    }

    /// Makes the `total` frames of the scratch, a whole stack, the remembered stack. Those that it shares with the one
    /// before, from the outermost on, are kept (whole.H1).
    #[cfg(target_arch = "aarch64")]
    pub(crate) fn store_whole(&mut self, total: usize, end: End) -> Capture<'_> {
        let walked = self.fresh.get(..total).unwrap_or(&[]).iter().rev();
        let remembered = if self.end == end && end != End::TooDeep {
            self.len
        } else {
            0
        };
        let known = self.links.iter().zip(&self.rests).skip(1).take(remembered);
        let is_same = |(from, (edge, rest)): &(&Frame, (&Edge, &Rest))| {
            edge.slot == from.slot && edge.ra == from.ra && rest.shape() == from.shape()
        };
        let keep = walked.clone().zip(known).take_while(is_same).count();
        let places = self.links.iter_mut().zip(&mut self.rests).skip(1);
        for (from, (edge, rest)) in walked.zip(places).skip(keep) {
            (edge.slot, edge.ra) = (from.slot, from.ra);
            (rest.bp_slot, rest.bp) = (from.bp_slot, from.bp);
            rest.bits = u64::from(from.shape()) << 32;
        }
        (self.end, self.len) = (end, total);
        self.stats.fresh_frames += (total - keep) as u64;
        self.report(keep, total, false)
    }

    /// Returns the frames from `keep` to `total` as a capture; `keep <= total <= MAX_FRAMES`.
    #[inline(always)]
    pub(crate) fn report(&mut self, keep: usize, total: usize, foreign: bool) -> Capture<'_> {
        self.stats.truncated += u64::from(self.end != End::Complete);
        self.stats.foreign += u64::from(foreign);
        // SAFETY: V5: keep <= total <= MAX_FRAMES.
        let frames = |from: usize| unsafe {
            Fresh {
                links: self.links.get_unchecked(from + 1..total + 1),
                rests: self.rests.get_unchecked(from + 1..total + 1),
            }
        };
        Capture {
            keep,
            fresh: frames(keep),
            all: frames(0),
            total,
            end: self.end,
            foreign,
        }
    }

    /// Cuts a stack that is too deep to the innermost `CUT_FRAMES`, all of them fresh ones, so that a
    /// recursion that goes on pays for one cut in this many frames.
    #[cold]
    #[inline(never)]
    fn cut(&mut self, keep: usize, fresh: usize) -> (usize, usize) {
        self.end = End::TooDeep;
        let mut have = fresh.min(CUT_FRAMES);
        let mut kept = keep;
        while have < CUT_FRAMES && kept > 0 {
            let remembered = (self.links.get(kept), self.rests.get(kept));
            if let ((Some(edge), Some(rest)), Some(to)) = (remembered, self.fresh.get_mut(have)) {
                let rule = Rule::that_needs_bp(rest.needs_bp());
                (to.slot, to.ra) = (edge.slot, edge.ra);
                (to.bp_slot, to.bp) = (rest.bp_slot, rest.bp);
                to.rest = u64::from(rest.shape()) << 32 | u64::from(rule.bits());
            }
            kept -= 1;
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

/// Returns how many of the outermost frames hold with all their words; `links` and `rests` are of the same frames,
/// and `words` are all of theirs.
#[cold]
#[inline(never)]
fn holding(links: &[Edge], words: &[Word], rests: &[Rest]) -> usize {
    // SAFETY: as in `holds_outside`.
    let edge = |e: &Edge| unsafe { (e.slot as *const u64).read_unaligned() } != e.ra;
    // SAFETY: as in `holds_outside`.
    let word = |word: &Word| unsafe { word.changed() != 0 };
    let frames = links.iter().position(edge).unwrap_or(links.len());
    match words.iter().position(word) {
        Some(index) => {
            let rests = rests.get(..frames).unwrap_or(&[]);
            rests.partition_point(|rest| rest.words() <= index)
        }
        None => frames,
    }
}
