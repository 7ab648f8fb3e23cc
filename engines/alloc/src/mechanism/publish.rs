//! Publishing what one thread made, so that other threads find it: five ways, each one word.
//!
//! ```text
//!   List    made ─► add (under a lock) ─► newest ─► next ─► …      heaps, idle heaps
//!   once    made ─► the first one wins ─► had                      the heap of samples, the emergency range
//!   raise   made ─► one more ─► raised                             size classes
//!   enter   made ─► the page map ─► found, by a block's holder     descriptors
//!   Gate    enter ─► one at a time, no thread waits ─► leave       stacks and stories of the hardening
//! ```
//!
//! P1  A thread that finds something finds it as it was made.
//! P2  A walk from the newest visits everything that was added before it, whatever is added meanwhile.
//! P3  Of several threads that make the same thing at once one wins, and the others get its result.
//! P4  A thread that looks up the page of a block that it has, however it got the block, finds its span: the hand-over
//!     of the block orders it, not the map.
//!
//! The models run this very file (`tests/models.rs`).
//!
//! Not here: locks (`lock`), blocks that other threads free (`remote`).

use skinflint_base::sync::{AtomicU32, AtomicUsize, Ordering};

/// Adds something, given by its offset, to a list. The list's lock is held.
pub fn add(newest: &AtomicU32, link: &AtomicU32, offset: u32) {
    // ORDER: every writer has the lock; published below.
    link.store(newest.load(Ordering::Relaxed), Ordering::Relaxed);
    // ORDER: Release meets the Acquire of `first`: the link, and what was made before, are seen (P1, P2).
    // [model: every_heap_is_found_whole]
    newest.store(offset, Ordering::Release);
}

/// Takes the newest off a list; returns 0 if it is empty. The list's lock is held.
pub fn take<'a>(newest: &AtomicU32, link_of: impl FnOnce(u32) -> &'a AtomicU32) -> u32 {
    // ORDER: every writer has the lock.
    let offset = newest.load(Ordering::Relaxed);
    if offset != 0 {
        let next = link_of(offset).load(Ordering::Relaxed); // ORDER: as above
        // ORDER: Release: a thread that finds the next one here finds it whole, though it was another store that added
        // it.
        // [model: an_idle_heap_is_found_whole]
        newest.store(next, Ordering::Release);
    }
    offset
}

/// Returns the newest of a list; 0 if it is empty. No lock is needed.
#[inline]
pub fn first(newest: &AtomicU32) -> u32 {
    // ORDER: Acquire meets the Release of `add` and `take`. [model: every_heap_is_found_whole]
    newest.load(Ordering::Acquire)
}

/// Returns the next in a list from which nothing is taken.
#[inline]
pub fn next(link: &AtomicU32) -> u32 {
    // ORDER: written before the object with this link was added, which the caller has seen.
    link.load(Ordering::Relaxed)
}

/// Adds to a list that is walked while objects are taken off it: the walk may leave it, and must be bounded.
pub fn add_again(newest: &AtomicU32, link: &AtomicU32, offset: u32) {
    // ORDER: Release meets the Acquire of `next_of_changing`: a walk that stands here finds the next one whole.
    // [model: an_idle_heap_is_found_whole]
    link.store(newest.load(Ordering::Relaxed), Ordering::Release);
    // ORDER: as in `add`. [model: an_idle_heap_is_found_whole]
    newest.store(offset, Ordering::Release);
}

/// Returns the next in a list that changes (see [`add_again`]).
#[inline]
pub fn next_of_changing(link: &AtomicU32) -> u32 {
    // ORDER: Acquire meets the Release of `add_again`. [model: an_idle_heap_is_found_whole]
    link.load(Ordering::Acquire)
}

/// Returns what a list holds from one on, given by its offset, to the oldest. Nothing is taken from the list.
#[inline]
pub fn walk<'a>(first: u32, link: impl Fn(u32) -> &'a AtomicU32) -> impl Iterator<Item = u32> {
    let mut at = first;
    core::iter::from_fn(move || {
        let this = at;
        if this != 0 {
            at = next(link(this));
        }
        (this != 0).then_some(this)
    })
}

/// Does what [`walk`] does from the newest on, for a list that changes ([`add_again`]): it returns at most `most`, and
/// may miss some that the list holds.
#[inline]
pub fn walk_changing<'a>(
    newest: &AtomicU32,
    most: usize,
    link: impl Fn(u32) -> &'a AtomicU32,
) -> impl Iterator<Item = u32> {
    let mut at = first(newest);
    let walk = core::iter::from_fn(move || {
        let this = at;
        if this != 0 {
            at = next_of_changing(link(this));
        }
        (this != 0).then_some(this)
    });
    walk.take(most)
}

/// Returns what was published once, and makes it if it was not. Where another thread is faster, `discard` gets what was
/// made in vain (P3). `None`: it could not be made.
pub fn get_or_make(
    word: &AtomicUsize,
    make: impl FnOnce() -> Option<usize>,
    discard: impl FnOnce(usize),
) -> Option<usize> {
    let have = had(word);
    if have != 0 {
        return Some(have);
    }
    let made = make()?;
    match once(word, made) {
        Ok(()) => Some(made),
        Err(other) => {
            discard(made);
            Some(other)
        }
    }
}

/// Returns what was published once; 0: nothing yet.
#[inline]
pub fn had(word: &AtomicUsize) -> usize {
    // ORDER: Acquire meets the Release of `once` (P1). [model: of_two_that_make_it_one_wins]
    word.load(Ordering::Acquire)
}

/// Publishes what the caller made, unless another thread was first (P3).
///
/// # Errors
/// What the other thread published.
pub fn once(word: &AtomicUsize, made: usize) -> Result<(), usize> {
    // ORDER: Release meets the Acquire of `had`, and of this exchange in the second thread.
    // [model: of_two_that_make_it_one_wins]
    let first = word.compare_exchange(0, made, Ordering::Release, Ordering::Acquire);
    first.map(|_| ())
}

/// Publishes one more complete entry of a table. The table's lock is held.
pub fn raise(count: &AtomicU32, to: u32) {
    // ORDER: Release meets the Acquire of `raised` (P1). [model: entries_below_the_count_are_complete]
    count.store(to, Ordering::Release);
}

/// Returns the number of complete entries of a table.
#[inline]
pub fn raised(count: &AtomicU32) -> u32 {
    // ORDER: Acquire meets the Release of `raise`. [model: entries_below_the_count_are_complete]
    count.load(Ordering::Acquire)
}

/// Makes a page lead to a descriptor that is filled. The pool's lock is held.
#[inline]
pub fn enter(entry: &AtomicU32, offset: u32) {
    // ORDER: Release is for a thread that looks up an address that it was not given: the load of the descriptor depends
    // on that of the entry. A thread that has a block needs none (P4). [reason: dependency]
    entry.store(offset, Ordering::Release);
}

/// Makes a page lead nowhere: no thread may use its addresses any more.
#[inline]
pub fn clear(entry: &AtomicU32) {
    // ORDER: a thread that gets a block here next gets it after another `enter`.
    entry.store(0, Ordering::Relaxed);
}

/// Returns the offset that a page leads to; 0: nowhere.
#[inline(always)]
pub fn found(entry: &AtomicU32) -> u32 {
    // ORDER: a thread that has the block got it, directly or not, after the entry was written (P4).
    // [model: a_block_leads_to_its_span]
    entry.load(Ordering::Relaxed)
}

/// A door for one thread at a time, at which no thread waits.
pub struct Gate(AtomicU32);

impl Gate {
    /// Creates an open gate.
    #[cfg(not(loom))]
    pub const fn new() -> Gate {
        Gate(AtomicU32::new(0))
    }

    /// Creates an open gate.
    #[cfg(loom)]
    pub fn new() -> Gate {
        Gate(AtomicU32::new(0))
    }

    /// Enters, unless a thread is inside; reports whether it did. If so the caller must [`Gate::leave`].
    pub fn enter(&self) -> bool {
        self.0
            // ORDER: Acquire meets the Release of `leave`. [model: one_at_a_time_behind_a_gate]
            .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Leaves.
    pub fn leave(&self) {
        // ORDER: Release meets the Acquire of `enter`. [model: one_at_a_time_behind_a_gate]
        self.0.store(0, Ordering::Release);
    }

    /// Opens the gate whether a thread is inside or not: in the child of a fork, where that thread is gone.
    pub fn reset(&self) {
        // ORDER: the child has one thread.
        self.0.store(0, Ordering::Relaxed);
    }
}
