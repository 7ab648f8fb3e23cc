//! Frames of Go further out than C: where the native walk ends at Go's crossing, it goes on on the goroutine's stack.
//!
//! ```text
//!   native, outermost first      [asmcgocall] [C] [C] [malloc]         keep counts from here
//!   goroutine             [main] [f] [cgocall] ┘                       what is equal to the last one's is kept, too
//! ```
//!
//! Z1  The ring's stack has `GoState::len` frames of a goroutine in front of the native ones. A stack of another goroutine keeps of
//!     them what is equal, and no native frame.
//! Z2  Native frames that are kept are so whatever Go's do: what they were derived from is unchanged, the register at the
//!     crossing included.
//!
//! Not here: the walk (`skinflint_frames::Crossing`).

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use skinflint_frames::{Crossing, MAX_GO};
use skinflint_unwind::{Capture, End};

use crate::frames::Pieces;
use crate::process;
use crate::state::{GoState, ThreadState};

/// It is no Go program that calls C.
const OFF: u8 = 0;
/// Stacks are read with care.
const PROVING: u8 = 1;
/// The layout is proved.
const READING: u8 = 2;
/// The stacks that prove it.
const PROOFS: u32 = 16;

static MODE: AtomicU8 = AtomicU8::new(OFF);
static PROVED: AtomicU32 = AtomicU32::new(0);

struct Here(UnsafeCell<Option<Crossing>>);
// SAFETY: written by `prepare` alone, while no other thread captures stacks, and before MODE says that there is one.
unsafe impl Sync for Here {}
static HERE: Here = Here(UnsafeCell::new(None));

/// Takes what the collector says of the program. The only recording thread calls it.
pub fn prepare() {
    let Some(header) = process::header().filter(|_| cfg!(target_arch = "x86_64")) else {
        return;
    };
    // ORDER: Relaxed for all; the collector's answer, which was read since, ordered them.
    let words = core::array::from_fn(|at| {
        header
            .crossing
            .get(at)
            .map_or(0, |word| word.load(Ordering::Relaxed))
    });
    let found = Crossing::decode(words);
    if found.is_some() {
        // SAFETY: see `Here`.
        unsafe { *HERE.0.get() = found };
        // ORDER: Release; pairs with the Acquire of `write`.
        MODE.store(PROVING, Ordering::Release);
    }
}

/// Returns whether stacks are written here. Cost: a load.
#[inline(always)]
pub fn wants() -> bool {
    MODE.load(Ordering::Relaxed) != OFF // ORDER: Relaxed; it changes before threads begin.
}

/// Writes what is new of a stack, with the frames of the goroutine.
///
/// # Safety
/// state.H1, RECORDING; `captured` is this thread's newest capture.
pub unsafe fn write(state: *mut ThreadState, captured: &Capture<'_>) -> bool {
    let mut found = [0; MAX_GO];
    // SAFETY: as the caller promises; see `Here`.
    unsafe {
        let (count, end) = read(captured, &mut found);
        let own: &mut GoState = &mut (*state).go;
        let before = own.len.min(MAX_GO);
        // Innermost first, as they were found; the ring has the outermost first.
        let fresh = found.get(..count).unwrap_or(&[]);
        let old = own.frames.get(..before).unwrap_or(&[]);
        let same = fresh
            .iter()
            .rev()
            .zip(old)
            .take_while(|(a, b)| a == b)
            .count();
        let is_same = same == count && same == before;
        let (keep, natives) = match is_same {
            true => (count + captured.keep, captured.keep),
            false => (same, 0),
        };
        let total = count + captured.total;
        if is_same && keep == total && total == (*state).depth {
            return true;
        }
        for (to, from) in own.frames.iter_mut().zip(fresh.iter().rev()) {
            *to = *from;
        }
        own.len = count;
        let mut pieces = Pieces::new(state, keep, end);
        let goroutines = fresh.iter().rev().skip(if is_same { count } else { same });
        for pc in goroutines.copied().chain(captured.all.from(natives).iter()) {
            if !pieces.put(pc) {
                own.len = 0;
                return false;
            }
        }
        if !pieces.finish() {
            own.len = 0;
            return false;
        }
        (*state).depth = total;
    }
    true
}

/// Reads the frames of the goroutine, innermost first, if the native ones end where Go passed to C. Returns how many, and how the
/// whole stack ends.
///
/// # Safety
/// As for `write`.
unsafe fn read(captured: &Capture<'_>, to: &mut [u64; MAX_GO]) -> (usize, End) {
    // ORDER: Acquire; pairs with the Release of `prepare`.
    let mode = MODE.load(Ordering::Acquire);
    // SAFETY: see `Here`.
    let Some(crossing) = (unsafe { (*HERE.0.get()).as_ref() }) else {
        return (0, captured.end);
    };
    let outermost = captured.all.pc(0);
    if captured.foreign || captured.end != End::NoInfo || !crossing.has_called(outermost) {
        return (0, captured.end);
    }
    let (sp, bp) = (captured.all.slot(0) + 8, captured.all.outermost_bp());
    // SAFETY: the frame was left by that return address, on this thread's own stack.
    let (count, is_whole) = unsafe { crossing.walk(mode == READING, sp, bp, to) };
    if mode == PROVING && is_whole {
        // ORDER: Relaxed for both; a count, and a flag that guards no other data.
        if PROVED.fetch_add(1, Ordering::Relaxed) + 1 == PROOFS {
            MODE.store(READING, Ordering::Relaxed);
        }
    }
    (count, if is_whole { End::Complete } else { End::NoInfo })
}
