//! Writing events into the thread's ring.
//!
//! W1, W2  See `skinflint_base::ring::writer`, which owns the positions: words are written to room that
//!     was made for them, and `tail` is published after each event, behind whole records.
//! W3  Every event takes exactly one ticket; a `TICKET` record stands before it when that is not its
//!     predecessor's plus one.

use core::sync::atomic::Ordering;

use skinflint_base::ring::{Cursor, STACK_TRUNCATED, long_word, tag, word};
use skinflint_base::sys;
use skinflint_unwind::End;

use crate::process;
use crate::state::ThreadState;

/// The most words that `before_event` writes.
pub const BEFORE_EVENT: usize = 2;
/// The words after which a time stamp is due even if the tick stands still.
const WORDS_PER_STAMP: u64 = 8192;

/// Makes room for an event of `words`, and writes what stands before it.
///
/// # Safety
/// Between `enter` and `leave`, RECORDING.
#[inline(always)]
pub unsafe fn begin_event(state: *mut ThreadState, words: usize) -> Option<Cursor> {
    // SAFETY: state.H1.
    unsafe {
        let Some(cursor) = (*state).ring.begin(words + BEFORE_EVENT) else {
            count_lost();
            return None;
        };
        Some(before_event(state, cursor))
    }
}

/// Takes the ticket and the time for an event (W3). The cursor comes and goes as a value: one that a call has the
/// address of is kept in memory.
///
/// # Safety
/// state.H1, RECORDING, and room for `BEFORE_EVENT` words.
#[inline(always)]
pub unsafe fn before_event(state: *mut ThreadState, mut cursor: Cursor) -> Cursor {
    // SAFETY: state.H1.
    unsafe {
        let last = (*state).ticket.load(Ordering::Relaxed); // ORDER: Relaxed; own counter.
        // ORDER: Relaxed for MULTI, see process.G2. Relaxed for the shared counter: the allocator orders a
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
        stamp(state, cursor)
    }
}

/// Writes the time if the collector's tick has moved on.
#[inline(always)]
unsafe fn stamp(state: *mut ThreadState, cursor: Cursor) -> Cursor {
    // ORDER: Relaxed; a clock that may be a little behind.
    let session = process::SESSION.load(Ordering::Relaxed);
    // SAFETY: linked, so the page is mapped; state.H1.
    unsafe {
        let tick = (*session).tick.load(Ordering::Relaxed); // ORDER: Relaxed; as above.
        if tick == (*state).tick && (*state).ring.pos() < (*state).time_due {
            return cursor;
        }
        stamp_slow(state, cursor, tick)
    }
}

#[cold]
#[inline(never)]
unsafe fn stamp_slow(state: *mut ThreadState, mut cursor: Cursor, tick: u32) -> Cursor {
    // SAFETY: as for `before_event`.
    unsafe {
        (*state).tick = tick;
        (*state).time_due = (*state).ring.pos() + WORDS_PER_STAMP;
        cursor.put(long_word(tag::TIME, sys::monotonic_ns()));
        cursor
    }
}

/// Returns the first word of a `STACK` record of `count` frames after `keep`.
#[inline(always)]
pub fn stack_word(count: usize, keep: usize, end: End) -> u64 {
    let flags = if end == End::Complete {
        0
    } else {
        STACK_TRUNCATED
    };
    word(tag::STACK, 0, (count as u64) << 24 | keep as u64) | flags
}

/// Publishes the event.
///
/// # Safety
/// state.H1; the cursor comes from `begin_event`.
#[inline(always)]
pub unsafe fn end_event(state: *mut ThreadState, cursor: Cursor) {
    // SAFETY: state.H1.
    unsafe {
        (*state).ring.end(cursor);
        (*state).ring.publish();
    }
}

#[cold]
pub fn count_lost() {
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
    // SAFETY: state.H1.
    let count = unsafe { &(*state).ring.header().unseen };
    // ORDER: Relaxed; a counter that only the slot's owner changes.
    count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
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
