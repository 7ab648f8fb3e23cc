//! Which blocks are samples: the points that a heap's budget meets, shared by the estimate of slop and the profile.
//!
//! ```text
//!   a point in a request ─► drawn by: an interval ─┬─ the estimate takes it with  p(n, its interval) / p(n, drawn by)
//!                                                  └─ the profile takes it with   p(n, its rate)     / p(n, drawn by), at most 1
//! ```
//!
//! N1  The probability with which a block is met is that of the interval by which the point was drawn, whatever was set
//!     meanwhile (sample.Q6). What takes fewer of them draws, and keeps the probability of both together.
//! N2  Large and aligned blocks take their bytes off the same budget, once the profile is on; they are not in the estimate.
//!
//! Not here: budgets and distances (`sample`), what is kept of a sample (`books`).

use skinflint_base::random;
use skinflint_base::sync::Ordering;

use super::beside;
use super::known::note;
use crate::heaps::requests::{count, set_budget};
use crate::heaps::{slow, tls};
use crate::mechanism::class;
use crate::mechanism::heap::Heap;
use crate::services::sample::{self, probability, uniform};

/// Handles a budget that a request of `n` bytes has used up; returns its block if it is a sample.
#[unsafe(link_section = ".text.skinflint_first")]
pub fn serve(heap: &Heap, n: usize) -> Option<*mut u8> {
    let by = sample::drawn_by(heap);
    if !sample::take(heap) {
        return None;
    }
    if by == sample::interval() && !slow::profiled() {
        return sample::block(n);
    }
    chosen(heap, n, class::of_slice((n - 1) >> 4), by, true)
}

/// Returns the block of a request that a point has met, which was drawn by this interval, if one of the two takes it (sample.Q6).
#[cold]
#[inline(never)]
fn chosen(heap: &Heap, n: usize, class: usize, by: u64, has_slop: bool) -> Option<*mut u8> {
    let met = probability(n, by);
    let for_slop = has_slop && chance(heap, probability(n, sample::interval()) / met);
    let for_profile = profile_takes(heap, n, by);
    if !for_slop && for_profile.is_none() {
        return None;
    }
    let block = sample::block_of(n, class, for_slop)?;
    if let Some(p) = for_profile {
        note(block, n, p, beside::place(heap, class));
    }
    Some(block)
}

/// Returns the probability with which the profile takes a block that a point has met, if it takes this one.
fn profile_takes(heap: &Heap, n: usize, by: u64) -> Option<f64> {
    let rate = u64::from(sample::profile_rate());
    let met = probability(n, by);
    match rate {
        0 => None,
        _ if rate <= by => Some(met),
        _ => {
            let p = probability(n, rate);
            chance(heap, p / met).then_some(p)
        }
    }
}

/// Draws: `true` with this probability.
fn chance(heap: &Heap, p: f64) -> bool {
    p >= 1.0 || uniform(heap) <= p
}

/// Takes a request off the budget that `requests::count` counts beside it; the distance of the point in it, if there is one.
fn met_by(heap: &Heap, n: usize) -> Option<u64> {
    // ORDER: this thread's own, throughout (heap.H1).
    let left = heap.budget.load(Ordering::Relaxed).wrapping_sub(n as i64);
    heap.budget.store(left, Ordering::Relaxed); // ORDER: as above
    let sum = heap.requested.load(Ordering::Relaxed); // ORDER: as above
    heap.requested
        .store(sum.wrapping_sub(n as u64), Ordering::Relaxed); // ORDER: as above (sample.Q3)
    let by = sample::drawn_by(heap);
    (left < 0 && sample::take(heap)).then_some(by)
}

/// Returns the block for a request of `n` bytes that is to have `size`, if it is a sample of the profile. Its slop is unknown.
#[cold]
pub fn aligned(heap: &Heap, n: usize, size: usize) -> Option<*mut u8> {
    let by = met_by(heap, n)?;
    let block = chosen(heap, n.max(1), class::base_class(size), by, false)?;
    count(heap, n);
    Some(block)
}

/// Notes a large block of so many requested bytes if it is a sample of the profile. `true`: it is.
pub fn note_large(heap: &Heap, p: *mut u8, n: usize) -> bool {
    large(heap, n).is_some_and(|probability| note(p, n, probability, 0))
}

/// Returns the probability with which a large block of `n` bytes is a sample of the profile, if this one is. What is as long
/// as the rate always is: a point would lie in most of them, and the figure is exact without.
fn large(heap: &Heap, n: usize) -> Option<f64> {
    let rate = sample::profile_rate() as usize;
    if rate == 0 {
        return None;
    }
    if n >= rate {
        return Some(1.0);
    }
    let by = met_by(heap, n)?;
    profile_takes(heap, n, by)
}

/// Draws the next point of this thread anew, which changes no probability: points do not remember (sample.Q1). `reseed`: by other
/// numbers, in the child of a fork, whose parent would draw the same ones.
pub fn draw_anew(reseed: bool) {
    let heap = tls::get();
    if heap.is_null() || tls::is_ended(heap) || slow::hardening().is_some() {
        return;
    }
    // SAFETY: a thread's heap stays (pool.G4).
    let heap = unsafe { &*heap };
    // ORDER: this thread's own (heap.H1).
    let random = heap.random.load(Ordering::Relaxed);
    if random == 0 {
        return;
    }
    if reseed {
        let other = random::mix(random ^ u64::from(skinflint_base::sys::getpid()) << 32);
        heap.random.store(other.max(1), Ordering::Relaxed); // ORDER: as above
    }
    let left = sample::draw(heap);
    set_budget(heap, left);
}
