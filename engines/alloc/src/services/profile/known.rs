//! The samples that are known now: the books behind their lock.
//!
//! ```text
//!   note ─► stack ─► LOCK: books ─► probe          freed, taken ─► LOCK: books ─► probe          put_back
//! ```
//!
//! Not here: which blocks are samples (`points`), the books themselves (`books`).

use skinflint_base::sync::{AtomicU32, AtomicU64, Ordering};
use skinflint_base::sys;

use super::books::Books;
use super::probes;
use super::stack::Frames;
use crate::heaps::slow::Sample;
use crate::heaps::tls;
use crate::mechanism::guarded::Guarded;
use crate::mechanism::lock::{Lock, Who};
use crate::services::sample;

/// Guards the books (profile.P4).
pub static LOCK: Lock = Lock::new();
static BOOKS: Guarded<Books> = Guarded::new(Books::none());
/// Samples and deaths that signal handlers brought in the middle of another one, and which are not in the books.
pub static LOST: AtomicU64 = AtomicU64::new(0);

/// The time that a test gives samples; 0: it is the machine's.
static GIVEN_S: AtomicU32 = AtomicU32::new(0);

/// Sets the time of samples, for tests of hours.
#[doc(hidden)]
pub fn set_seconds(seconds: u32) {
    GIVEN_S.store(seconds, Ordering::Relaxed); // ORDER: a number by itself
}

/// Returns the time in seconds, by the monotonic clock. Cost: some 25 ns.
pub fn seconds() -> u32 {
    // ORDER: as above.
    match GIVEN_S.load(Ordering::Relaxed) {
        0 => (sys::monotonic_ns() / 1_000_000_000) as u32,
        given => given,
    }
}

/// Runs `work` with the books. `None`: a signal handler that interrupted it asks.
pub fn with_books<R>(work: impl FnOnce(&mut Books) -> R) -> Option<R> {
    with_books_as(tls::who(), work)
}

/// Does what [`with_books`] does, in the name of a thread that may have no thread-local storage.
pub fn with_books_as<R>(who: Who, work: impl FnOnce(&mut Books) -> R) -> Option<R> {
    if !LOCK.lock(who) {
        LOST.fetch_add(1, Ordering::Relaxed); // ORDER: a statistic
        return None;
    }
    // SAFETY: the lock is held (profile.P4).
    let books = unsafe { &mut *BOOKS.get() };
    let result = work(books);
    let rate = sample::profile_rate();
    if rate != 0 && rate < books.rate {
        // There was no room for more samples (profile.P5).
        sample::set_profile_rate(books.rate);
    }
    LOCK.unlock();
    Some(result)
}

/// Notes a block of so many requested bytes that is a sample with this probability and would lie at `place` if it were none.
/// `true`: it is in the books.
pub fn note(p: *mut u8, requested: usize, probability: f64, place: usize) -> bool {
    let mut frames = Frames::new();
    frames.capture();
    let sample = Sample {
        address: p as usize,
        requested,
        probability,
        stack: 0,
        born_s: seconds(),
        place,
    };
    let there = with_books(|books| books.add_of(sample, &frames)).unwrap_or(false);
    if there {
        probes::alloc(&sample);
    }
    there
}

/// Handles a block that is about to be freed, if it is a sample.
pub fn freed(p: *mut u8) {
    taken(p);
}

/// Takes a sample out. `None`: there is none at this address.
pub fn taken(p: *mut u8) -> Option<Sample> {
    let taken = with_books(|books| books.take(p as usize)).flatten();
    taken.inspect(probes::free)
}

/// Puts a sample back. `true`: it is in the books.
pub fn put_back(sample: Sample) -> bool {
    let there = with_books(|books| books.put(sample)).unwrap_or(false);
    if there {
        probes::alloc(&sample);
    }
    there
}
