//! What was requested: exactly, over all time; and by samples, for what is live.
//!
//! Not here: the totals (`stats`).

use skinflint_base::sync::Ordering;

use crate::heap::{Heap, SAMPLE_BYTES};

/// The budget is used up: count it, and look at this request.
pub fn take(heap: &Heap, _n: usize) {
    refill(heap);
}

/// A large request.
pub fn large(heap: &Heap, n: usize) {
    // ORDER: this thread's own (H1).
    let budget = heap
        .budget
        .load(Ordering::Relaxed)
        .saturating_sub_unsigned(n as u64);
    heap.budget.store(budget, Ordering::Relaxed); // ORDER: as above
    if budget < 0 {
        refill(heap);
    }
}

fn refill(heap: &Heap) {
    // ORDER: this thread's own (H1).
    let budget = heap.budget.load(Ordering::Relaxed);
    let missing = budget.min(0).unsigned_abs();
    let rounds = missing / SAMPLE_BYTES as u64 + 1;
    let bytes = rounds * SAMPLE_BYTES as u64;
    heap.budget
        .store(budget.saturating_add_unsigned(bytes), Ordering::Relaxed); // ORDER: as above
    heap.requested.fetch_add(bytes, Ordering::Relaxed); // ORDER: a statistic
}
