//! Marks in the thread's ring: by name, or by a signal.
//!
//! ```text
//!   skinflint_mark("load"), a signal ─► MARK record, with the time ─► a snapshot of this moment
//! ```
//!
//! M1  A thread waits for the snapshots of the first marks only: to wait for each of very many would change what is
//!     measured.
//!
//! Not here: the signal's handler (thread.rs).

use core::sync::atomic::{AtomicU32, Ordering};

use skinflint_base::ring::{MARK_NAME_BYTES, tag, word};

use crate::state::{INSIDE, RECORDING, ThreadState, set_busy};
use crate::{emit, process};

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
        set_busy(state, RECORDING);
        // A mark gets a time stamp of its own.
        (*state).time_due = 0;
        let first = word(tag::MARK, name.len() as u8, u64::from(index));
        emit::long(state, first, &words[..name.len().div_ceil(8)]);
        set_busy(state, INSIDE);
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
