//! Requested bytes, to the byte: what is counted in a heap beside its budget, and where no heap counts.
//!
//! ```text
//!   requested from a heap = requested - budget          elsewhere: threads that have ended, tenants that are gone
//! ```
//!
//! Not here: which requests are samples (`sample`).

use skinflint_base::sync::{AtomicU64, Ordering};

use crate::mechanism::heap::Heap;

/// Bytes requested where no heap counts them: by threads that have ended, and from tenants that are gone.
static ELSEWHERE: AtomicU64 = AtomicU64::new(0);

/// Counts a request that no heap counts.
pub fn elsewhere(n: u64) {
    // ORDER: a statistic.
    ELSEWHERE.fetch_add(n, Ordering::Relaxed);
}

/// Returns the bytes requested from a heap (sample.Q3).
pub fn requested_from(heap: &Heap) -> u64 {
    // ORDER: statistics; exact while its thread does not allocate.
    let given = heap.requested.load(Ordering::Relaxed);
    given.wrapping_sub(heap.budget.load(Ordering::Relaxed) as u64) // ORDER: as above
}

/// Returns the bytes requested where no heap counts them.
pub fn requested_elsewhere() -> u64 {
    // ORDER: a statistic.
    ELSEWHERE.load(Ordering::Relaxed)
}

/// Counts a request that is no sample: a large one, whose descriptor has the requested bytes, or an aligned one.
///
/// It leaves the distance to the next sample alone, whose points lie in the requests that can be samples: a draw costs
/// 140 instructions, and a 5 MiB block would cross two or three points (pair5m: 1,106 to 958 a pair).
pub fn count(heap: &Heap, n: usize) {
    // ORDER: this thread's own (heap.H1).
    let sum = heap.requested.load(Ordering::Relaxed);
    heap.requested
        .store(sum.wrapping_add(n as u64), Ordering::Relaxed); // ORDER: as above
}

/// Sets the bytes to the next sample (sample.Q3).
pub fn set_budget(heap: &Heap, left: i64) {
    // ORDER: this thread's own (heap.H1).
    let before = heap.budget.swap(left, Ordering::Relaxed);
    let given = left.wrapping_sub(before) as u64;
    heap.requested.fetch_add(given, Ordering::Relaxed); // ORDER: as above
}

/// Keeps the budget below 0, and the sum of requested bytes (`requested` less `budget`) as it is.
pub fn hold(heap: &Heap) {
    // ORDER: this thread's own (heap.H1).
    let budget = heap.budget.load(Ordering::Relaxed);
    let used = (-1i64).wrapping_sub(budget) as u64;
    heap.requested.fetch_add(used, Ordering::Relaxed); // ORDER: a statistic
    heap.budget.store(-1, Ordering::Relaxed); // ORDER: as above
}
