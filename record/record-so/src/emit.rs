//! Writing events into the thread's ring.
//!
//! W1, W2  See `skinflint_base::ring::writer`, which owns the positions: words are written to room that
//!     was made for them, and `tail` is published after each event, behind whole records.
//! W3  Every event takes exactly one ticket; a `TICKET` record stands before it when that is not its
//!     predecessor's plus one.

use core::sync::atomic::{AtomicU32, Ordering};

use skinflint_base::ring::{
    Cursor, FIRST_CAPACITY, MARK_NAME_BYTES, Outside, RECORD_WORDS, RING_WORDS, STACK_CHUNK,
    STACK_TRUNCATED, SessionPage, SlotHeader, WIDE, Writer, long_word, tag, word,
};
use skinflint_base::sys;
use skinflint_unwind::{Capture, End, Registers, StackBounds};

use crate::thread::ThreadState;
use crate::{modules, process, thread};

/// The writer's end of a thread's ring. Its code is in `ring::writer`, where two threads and a model
/// checker test it; change it there.
pub type Ring = Writer<Recorder>;

/// What the writer needs from the recorder.
pub struct Recorder;

/// How long a thread has waited for a sign of life of the collector.
pub struct Patience {
    session: &'static SessionPage,
    tick: u32,
    since: u64,
}

impl Outside for Recorder {
    const FIRST_CAPACITY: u64 = FIRST_CAPACITY;
    const LAST_CAPACITY: u64 = RING_WORDS as u64;
    const RECORD_WORDS: u64 = RECORD_WORDS as u64;
    type Patience = Patience;

    fn wake_reader(&self) {
        if let Some(session) = process::session() {
            process::wake_collector(session);
        }
    }

    fn patience(&self) -> Option<Patience> {
        let session = process::session()?;
        Some(Patience {
            session,
            tick: session.tick.load(Ordering::Relaxed), // ORDER: Relaxed; a heartbeat.
            since: sys::monotonic_ns(),
        })
    }

    fn wait(&self, slot: &SlotHeader, seen: u32, patience: &mut Patience) -> bool {
        // The longest waits without a heartbeat: if the collector is gone, and if it may only be stopped.
        const GONE_NS: u64 = 300_000_000;
        const PATIENCE_NS: u64 = 5_000_000_000;
        let session = patience.session;
        process::ring_the_bell();
        sys::futex_wait(&slot.head.drained, seen, 20_000_000);
        let tick = session.tick.load(Ordering::Relaxed); // ORDER: Relaxed; a heartbeat.
        let now = sys::monotonic_ns();
        if tick != patience.tick {
            patience.tick = tick;
            patience.since = now;
            return true;
        }
        let silent_ns = now - patience.since;
        // ORDER: Relaxed; a constant of the session, and a flag.
        let collector = session.collector_pid.load(Ordering::Relaxed);
        let gone = silent_ns > GONE_NS && !sys::process_exists(collector);
        if gone || silent_ns > PATIENCE_NS || process::OFF.load(Ordering::Relaxed) {
            process::give_up();
            return false;
        }
        true
    }
}

/// The most words that `before_event` writes.
const BEFORE_EVENT: usize = 2;
/// The words of the longest acquisition.
const ACQUISITION: usize = 3;
const _: () = assert!(1 + STACK_CHUNK + BEFORE_EVENT + ACQUISITION <= RECORD_WORDS);

/// The words after which a time stamp is due even if the tick stands still.
const WORDS_PER_STAMP: u64 = 8192;

/// Makes room for an event of `words`, and writes what stands before it.
///
/// # Safety
/// Between `enter` and `leave`, RECORDING.
#[inline(always)]
unsafe fn begin_event(state: *mut ThreadState, words: usize) -> Option<Cursor> {
    // SAFETY: H1.
    unsafe {
        let Some(mut cursor) = (*state).ring.begin(words + BEFORE_EVENT) else {
            count_lost();
            return None;
        };
        before_event(state, &mut cursor);
        Some(cursor)
    }
}

/// Takes the ticket and the time for an event (W3).
///
/// # Safety
/// H1, RECORDING, and room for `BEFORE_EVENT` words.
#[inline(always)]
unsafe fn before_event(state: *mut ThreadState, cursor: &mut Cursor) {
    // SAFETY: H1.
    unsafe {
        let last = (*state).ticket.load(Ordering::Relaxed); // ORDER: Relaxed; own counter.
        // ORDER: Relaxed for MULTI, see G2. Relaxed for the shared counter: the allocator orders a
        // release of an address before its next acquisition, so the tickets, which are taken before
        // the one and after the other and have a single modification order, follow it.
        let ticket = if process::MULTI.load(Ordering::Relaxed) {
            let ticket = process::TICKET.fetch_add(1, Ordering::Relaxed) + 1;
            if ticket != last + 1 {
                cursor.put(long_word(tag::TICKET, ticket));
            }
            ticket
        } else {
            last + 1
        };
        (*state).ticket.store(ticket, Ordering::Relaxed); // ORDER: Relaxed; own counter.
        // ORDER: Relaxed; published with `tail`.
        (*state)
            .ring
            .header()
            .ticket
            .store(ticket, Ordering::Relaxed);
        stamp(state, cursor);
    }
}

/// Writes the time if the collector's tick has moved on.
#[inline(always)]
unsafe fn stamp(state: *mut ThreadState, cursor: &mut Cursor) {
    // ORDER: Relaxed; a clock that may be a little behind.
    let session = process::SESSION.load(Ordering::Relaxed);
    // SAFETY: linked, so the page is mapped; H1.
    unsafe {
        let tick = (*session).tick.load(Ordering::Relaxed); // ORDER: Relaxed; as above.
        if tick == (*state).tick && (*state).ring.pos() < (*state).time_due {
            return;
        }
        stamp_slow(state, cursor, tick);
    }
}

#[cold]
#[inline(never)]
unsafe fn stamp_slow(state: *mut ThreadState, cursor: &mut Cursor, tick: u32) {
    // SAFETY: as for `before_event`.
    unsafe {
        (*state).tick = tick;
        (*state).time_due = (*state).ring.pos() + WORDS_PER_STAMP;
        cursor.put(long_word(tag::TIME, sys::monotonic_ns()));
    }
}

/// Publishes the event.
///
/// # Safety
/// H1; the cursor comes from `begin_event`.
#[inline(always)]
unsafe fn end_event(state: *mut ThreadState, cursor: Cursor) {
    // SAFETY: H1.
    unsafe {
        (*state).ring.end(cursor);
        (*state).ring.publish();
    }
}

#[cold]
fn count_lost() {
    if let Some(header) = process::header() {
        header.lost_events.fetch_add(1, Ordering::Relaxed); // ORDER: Relaxed; a counter.
    }
}

/// Counts an acquisition that is not recorded, because recording is stopped.
///
/// # Safety
/// Between `enter` and `leave`.
#[cold]
#[inline(never)]
pub unsafe fn unseen(state: *mut ThreadState) {
    // SAFETY: H1.
    let count = unsafe { &(*state).ring.header().unseen };
    // ORDER: Relaxed; a counter that only the slot's owner changes.
    count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

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
    // SAFETY: H1; the stack above `caller.sp` belongs to the calls that led here.
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

/// Returns the first word of a `STACK` record of `count` frames after `keep`.
#[inline(always)]
fn stack_word(count: usize, keep: usize, end: End) -> u64 {
    let flags = if end == End::Complete {
        0
    } else {
        STACK_TRUNCATED
    };
    word(tag::STACK, 0, (count as u64) << 24 | keep as u64) | flags
}

/// Captures the stack and writes its new frames.
///
/// # Safety
/// As for `capture`.
pub unsafe fn stack(state: *mut ThreadState, caller: Caller) -> bool {
    // SAFETY: as the caller promises.
    unsafe {
        let captured = capture(state, caller);
        write_stack(state, &captured)
    }
}

/// Writes the new frames of a stack, in pieces if need be, and the modules that it is the first to meet.
///
/// # Safety
/// H1, RECORDING; `captured` is this thread's newest capture.
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
                count_lost();
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

/// Writes an acquisition: `tag::ALLOC` or `tag::REALLOC_ACQUIRE`.
///
/// # Safety
/// As for `stack`.
#[inline(always)]
pub unsafe fn acquired(
    state: *mut ThreadState,
    kind: u8,
    func: u8,
    block: u64,
    size: u64,
    usable: u64,
    caller: Caller,
) {
    // SAFETY: as the caller promises.
    unsafe {
        let captured = capture(state, caller);
        let mut count = captured.fresh.len();
        let mut is_new = count != 0 || captured.total != (*state).depth;
        if count > STACK_CHUNK || (*state).stack.stats.rules_made != (*state).rules_seen {
            if !write_stack(state, &captured) {
                return;
            }
            (count, is_new) = (0, false);
        }
        // One look at the room for both records.
        let words = 1 + count + BEFORE_EVENT + ACQUISITION;
        let Some(mut cursor) = (*state).ring.begin(words) else {
            count_lost();
            return;
        };
        if is_new {
            cursor.put(stack_word(count, captured.keep, captured.end));
            for pc in captured.fresh.iter() {
                cursor.put(pc);
            }
            (*state).depth = captured.total;
        }
        before_event(state, &mut cursor);
        let slop = usable.wrapping_sub(size);
        if (size | slop) >> 32 == 0 {
            cursor.put(word(kind, func, block));
            cursor.put(slop << 32 | size);
        } else {
            cursor.put(word(kind, func | WIDE, block));
            cursor.put(size);
            cursor.put(usable);
        }
        end_event(state, cursor);
    }
}

/// Writes an event of one word.
///
/// # Safety
/// Between `enter` and `leave`, RECORDING.
#[inline(always)]
pub unsafe fn short(state: *mut ThreadState, kind: u8, byte: u8, low: u64) {
    // SAFETY: as the caller promises.
    unsafe {
        if let Some(mut cursor) = begin_event(state, 1) {
            cursor.put(word(kind, byte, low));
            end_event(state, cursor);
        }
    }
}

/// Writes an event of several words.
///
/// # Safety
/// As for `short`; `rest` has fewer than `RECORD_WORDS - BEFORE_EVENT` words.
pub unsafe fn long(state: *mut ThreadState, first: u64, rest: &[u64]) {
    // SAFETY: as the caller promises.
    unsafe {
        if let Some(mut cursor) = begin_event(state, 1 + rest.len()) {
            cursor.put(first);
            for &value in rest {
                cursor.put(value);
            }
            end_event(state, cursor);
        }
    }
}

/// Writes a record that is not an event.
///
/// # Safety
/// As for `long`.
pub unsafe fn note(state: *mut ThreadState, first: u64, rest: &[u64]) {
    // SAFETY: as the caller promises.
    unsafe {
        if let Some(mut cursor) = (*state).ring.begin(1 + rest.len()) {
            cursor.put(first);
            for &value in rest {
                cursor.put(value);
            }
            end_event(state, cursor);
        }
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
/// H1.
pub unsafe fn thread_begins(state: *mut ThreadState) {
    let now = sys::monotonic_ns();
    // SAFETY: H1.
    unsafe {
        // ORDER: Relaxed; read while the thread is stopped.
        let known = &(*state).ring.header().alternate_stack;
        known.store(alternate_stack(), Ordering::Relaxed);
        let (low, high) = (*state).stack_bounds;
        let first = word(tag::THREAD, 0, u64::from(sys::gettid()));
        note(state, first, &[low, high, now]);
        let own = word(tag::OWN, 0, state as u64);
        note(state, own, &[size_of::<ThreadState>() as u64]);
        let rules = modules::rules() as *const _ as u64;
        note(
            state,
            word(tag::OWN, 0, rules),
            &[modules::RULES_BYTES as u64],
        );
    }
}

/// Writes a mark and asks for a snapshot of its moment.
///
/// # Safety
/// Between `enter` and `leave`; `busy` is set by this function.
pub unsafe fn mark(state: *mut ThreadState, name: &[u8]) {
    let Some(header) = process::header() else {
        return;
    };
    let name = &name[..name.len().min(MARK_NAME_BYTES)];
    let mut words = [0u64; MARK_NAME_BYTES / 8];
    for (word, bytes) in words.iter_mut().zip(name.chunks(8)) {
        let mut buffer = [0u8; 8];
        buffer[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_le_bytes(buffer);
    }
    // ORDER: Relaxed; hands out numbers.
    let index = header.next_mark.fetch_add(1, Ordering::Relaxed);
    // SAFETY: as the caller promises.
    unsafe {
        thread::set_busy(state, thread::RECORDING);
        // A mark gets a time stamp of its own.
        (*state).time_due = 0;
        let first = word(tag::MARK, name.len() as u8, u64::from(index));
        long(state, first, &words[..name.len().div_ceil(8)]);
        thread::set_busy(state, thread::INSIDE);
    }
    // To wait for each of very many marks would change what is measured.
    const MARKS_WAITED_FOR: u32 = 256;
    if index < MARKS_WAITED_FOR {
        process::snapshot(index);
    }
}

/// Writes a mark made by a signal: `signal 1`, `signal 2` …
///
/// # Safety
/// As for `mark`.
pub unsafe fn signal_mark(state: *mut ThreadState) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    // ORDER: Relaxed; hands out numbers.
    let mut number = COUNT.fetch_add(1, Ordering::Relaxed) + 1;
    let mut name = *b"signal ..........";
    let mut start = name.len();
    while number > 0 || start == name.len() {
        start -= 1;
        name[start] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    let digits = name.len() - start;
    name.copy_within(start.., 7);
    // SAFETY: as the caller promises.
    unsafe { mark(state, &name[..7 + digits]) };
}

/// Writes marks that a signal asked for while the thread was busy.
///
/// # Safety
/// H1, OUTSIDE.
#[cold]
#[inline(never)]
pub unsafe fn pending_marks(state: *mut ThreadState) {
    // SAFETY: H1.
    unsafe {
        while (*state).pending_marks != 0 {
            (*state).pending_marks -= 1;
            let entered = thread::enter();
            if entered.is_null() {
                return;
            }
            signal_mark(entered);
            thread::set_busy(entered, 0);
        }
    }
}
