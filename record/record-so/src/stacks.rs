//! Stacks, and the events that have one, in the thread's ring.
//!
//! ```text
//!   acquired ─► capture ─┬─ the frames are the last ones ─► the event
//!                        └─ new frames ─► STACK records, modules that are met for the first time ─► the event
//! ```
//!
//! K1  An event's stack is the stack that the ring has when the event is written: it is captured, and its new frames are
//!     written, before the event.
//!
//! Not here: events without a stack (emit.rs), unwinding (`skinflint_unwind`).

use core::sync::atomic::Ordering;

use skinflint_base::ring::{Cursor, RECORD_WORDS, STACK_CHUNK, WIDE, tag, word};
use skinflint_base::sys;
use skinflint_unwind::{Capture, End, Registers, Sink, StackBounds};

use crate::emit::{self, BEFORE_EVENT, before_event, end_event, stack_word};
use crate::state::ThreadState;
use crate::{frames, go, modules, process, sites};

/// The words of the longest acquisition.
const ACQUISITION: usize = 3;
const _: () = assert!(1 + STACK_CHUNK + BEFORE_EVENT + ACQUISITION <= RECORD_WORDS);

/// The origin of a call: the registers at the entry of the exported function.
#[derive(Clone, Copy)]
pub struct Caller {
    /// The stack pointer, which points at the return address.
    pub sp: u64,
    /// The frame pointer register.
    pub bp: u64,
}

/// Captures the stack.
///
/// # Safety
/// Between `enter` and `leave`, RECORDING; `caller` is that of a call that has not returned.
#[inline(always)]
unsafe fn capture<'a>(state: *mut ThreadState, caller: Caller) -> Capture<'a> {
    // SAFETY: state.H1; the stack above `caller.sp` belongs to the calls that led here.
    unsafe {
        let (lo, hi) = (*state).stack_bounds;
        skinflint_unwind::capture(
            modules::rules(),
            modules::finder(),
            &mut (*state).stack,
            StackBounds { lo, hi },
            Registers {
                sp: caller.sp,
                bp: caller.bp,
            },
        )
    }
}

/// Captures the stack and writes its new frames.
///
/// # Safety
/// As for `capture`.
#[inline(never)]
pub unsafe fn stack(state: *mut ThreadState, caller: Caller) -> bool {
    // SAFETY: as the caller promises.
    unsafe {
        let captured = capture(state, caller);
        if go::wants() || frames::wants(state) {
            return write_merged(state, &captured, caller);
        }
        write_stack(state, &captured)
    }
}

/// Writes what is new of a stack that may have frames of an interpreter, and the modules that it is the first to meet.
///
/// # Safety
/// As for `write_stack`.
#[inline(never)]
unsafe fn write_merged(state: *mut ThreadState, captured: &Capture<'_>, caller: Caller) -> bool {
    // SAFETY: as the caller promises.
    unsafe {
        let written = match go::wants() {
            true => go::write(state, captured),
            false => frames::write(state, captured, caller.sp),
        };
        if written && (*state).stack.stats.rules_made != (*state).rules_seen {
            modules::notice(state, captured.fresh.iter());
        }
        written
    }
}

/// Captures the stack and writes what is new of it, with the frames of an interpreter. Returns where the event that
/// follows goes.
///
/// # Safety
/// As for `capture`.
#[inline(never)]
unsafe fn merged(state: *mut ThreadState, caller: Caller) -> Option<Cursor> {
    // SAFETY: as the caller promises.
    unsafe {
        let captured = capture(state, caller);
        if !write_merged(state, &captured, caller) {
            return None;
        }
        let cursor = (*state).ring.begin(BEFORE_EVENT + ACQUISITION);
        if cursor.is_none() {
            emit::count_lost();
        }
        cursor
    }
}

/// Writes the new frames of a stack, in pieces if need be, and the modules that it is the first to meet.
///
/// # Safety
/// state.H1, RECORDING; `captured` is this thread's newest capture.
#[cold]
#[inline(never)]
unsafe fn write_stack(state: *mut ThreadState, captured: &Capture<'_>) -> bool {
    let mut left = captured.fresh.len();
    // SAFETY: as the caller promises.
    unsafe {
        if left == 0 && captured.total == (*state).depth {
            return true;
        }
        let mut frames = captured.fresh.iter();
        let mut keep = captured.keep;
        loop {
            let count = left.min(STACK_CHUNK);
            let Some(mut cursor) = (*state).ring.begin(1 + count) else {
                emit::count_lost();
                return false;
            };
            cursor.put(stack_word(count, keep, captured.end));
            for pc in frames.by_ref().take(count) {
                cursor.put(pc);
            }
            (*state).ring.end(cursor);
            keep += count;
            left -= count;
            if left == 0 {
                break;
            }
        }
        (*state).depth = captured.total;
        if (*state).stack.stats.rules_made != (*state).rules_seen {
            modules::notice(state, captured.fresh.iter());
        }
    }
    true
}

/// Writes an acquisition, whose first word is that of `tag::ALLOC` or `tag::REALLOC_ACQUIRE`. One copy for all hooks, with
/// the capture in it: a program that calls several of them has this code in its caches once.
///
/// # Safety
/// As for `stack`.
#[inline(never)]
pub unsafe fn acquired(
    state: *mut ThreadState,
    first: u64,
    size: u64,
    usable: u64,
    caller: Caller,
) {
    // SAFETY: as the caller promises; state.H1.
    unsafe {
        if go::wants() || frames::wants(state) {
            if let Some(cursor) = merged(state, caller) {
                write_acquisition(state, cursor, first, [size, usable]);
            }
            return;
        }
        let mut sink = RingSink {
            state,
            cursor: None,
        };
        let (lo, hi) = (*state).stack_bounds;
        skinflint_unwind::capture_to(
            modules::rules(),
            modules::finder(),
            &mut (*state).stack,
            StackBounds { lo, hi },
            Registers {
                sp: caller.sp,
                bp: caller.bp,
            },
            &mut sink,
        );
        if let Some(cursor) = sink.cursor {
            write_acquisition(state, cursor, first, [size, usable]);
        }
    }
}

/// Writes an acquisition behind its stack.
///
/// # Safety
/// As for `stack`; there is room for it.
#[inline(always)]
unsafe fn write_acquisition(
    state: *mut ThreadState,
    cursor: Cursor,
    first: u64,
    [size, usable]: [u64; 2],
) {
    // SAFETY: as the caller promises.
    unsafe {
        let mut cursor = before_event(state, cursor);
        let slop = usable.wrapping_sub(size);
        if (size | slop) >> 32 == 0 {
            cursor.put(first);
            cursor.put(slop << 32 | size);
        } else {
            cursor.put(first | word(0, WIDE, 0));
            cursor.put(size);
            cursor.put(usable);
        }
        end_event(state, cursor);
    }
}

/// The ring, for the new frames of a stack. For most stacks there is one look at the room for them and for the event
/// that follows.
struct RingSink {
    state: *mut ThreadState,
    cursor: Option<Cursor>,
}

impl Sink for RingSink {
    #[inline(always)]
    fn takes(&mut self, keep: usize, fresh: usize, end: End) -> bool {
        // SAFETY: state.H1, RECORDING. What the unwinder holds of the state is not touched.
        unsafe {
            if fresh > STACK_CHUNK {
                return false;
            }
            let words = 1 + fresh + BEFORE_EVENT + ACQUISITION;
            let Some(mut cursor) = (*self.state).ring.begin(words) else {
                return false;
            };
            let total = keep + fresh;
            if fresh != 0 || total != (*self.state).depth {
                cursor.put(stack_word(fresh, keep, end));
                (*self.state).depth = total;
            }
            self.cursor = Some(cursor);
        }
        true
    }

    #[inline(always)]
    unsafe fn put(&mut self, ra: u64) {
        if let Some(cursor) = &mut self.cursor {
            // SAFETY: the caller keeps to the number that `takes` made room for.
            unsafe { cursor.put(ra) };
        }
    }

    #[inline(always)]
    fn take_whole(&mut self, captured: Capture<'_>) {
        // SAFETY: state.H1, RECORDING; it is the newest capture.
        self.cursor = unsafe { after_stack(self.state, captured) };
    }
}

/// Writes a stack that is not as most are. Returns where the event that follows goes.
///
/// # Safety
/// As for `write_stack`.
#[cold]
#[inline(never)]
unsafe fn after_stack(state: *mut ThreadState, captured: Capture<'_>) -> Option<Cursor> {
    // SAFETY: as the caller promises.
    unsafe {
        if !write_stack(state, &captured) {
            return None;
        }
        let cursor = (*state).ring.begin(BEFORE_EVENT + ACQUISITION);
        if cursor.is_none() {
            emit::count_lost();
        }
        cursor
    }
}

/// Returns the start of this thread's alternate signal stack, if it has one and pointers are looked at; else 0.
fn alternate_stack() -> u64 {
    // ORDER: Relaxed; set before the program began.
    if process::session().is_none_or(|page| page.looks.load(Ordering::Relaxed) == 0) {
        return 0;
    }
    // SAFETY: the kernel writes the present setting to `now`, and changes nothing.
    unsafe {
        let mut now: libc::stack_t = core::mem::zeroed();
        let none = core::ptr::null::<libc::stack_t>();
        let answer = libc::syscall(libc::SYS_sigaltstack, none, &raw mut now);
        let is_on = answer == 0 && now.ss_flags & libc::SS_DISABLE == 0;
        if is_on { now.ss_sp as u64 } else { 0 }
    }
}

/// Writes which thread writes to this ring from here on.
///
/// # Safety
/// state.H1.
pub unsafe fn thread_begins(state: *mut ThreadState) {
    let now = sys::monotonic_ns();
    // SAFETY: state.H1.
    unsafe {
        // ORDER: Relaxed; read while the thread is stopped.
        let known = &(*state).ring.header().alternate_stack;
        known.store(alternate_stack(), Ordering::Relaxed);
        let (low, high) = (*state).stack_bounds;
        let first = word(tag::THREAD, 0, u64::from(sys::gettid()));
        emit::note(state, first, &[low, high, now]);
        let own = word(tag::OWN, 0, state as u64);
        emit::note(state, own, &[size_of::<ThreadState>() as u64]);
        let rules = modules::rules() as *const _ as u64;
        emit::note(
            state,
            word(tag::OWN, 0, rules),
            &[modules::RULES_BYTES as u64],
        );
        for (near, bytes) in sites::own_memory() {
            emit::note(state, word(tag::OWN, 0, near), &[bytes]);
        }
    }
}
