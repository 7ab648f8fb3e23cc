//! Calls of an interpreter that leave nothing on the C stack: known by the native frames of the function that runs them.
//!
//! ```text
//!   native:   main … execute_ex … array_map … execute_ex …      as many frames in the function as the chain has parts
//! ```
//!
//! N1  Parts and native frames belong together in order if they are as many; else nothing is known of any. They are not
//!     while a part's call begins or ends, or calls from code that the compiler has moved out of the function.
//!
//! Not here: what a part is (chain.rs, php.rs).

use skinflint_base::loader::Extent;

use crate::chain::Link;
use crate::natives::Natives;

/// Returns the number of native frames in a function.
pub(crate) fn calls(natives: &impl Natives, run: Extent) -> usize {
    (0..natives.total())
        .filter(|index| is_in(natives, run, *index))
        .count()
}

/// Gives frames, innermost first, the records of their calls; until now a record says how many of the `parts` lie further in.
/// Returns whether the parts are as many as the `calls` (N1).
pub(crate) fn pair(
    links: &mut [Link],
    parts: u64,
    natives: &impl Natives,
    (run, calls): (Extent, usize),
) -> bool {
    if parts != calls as u64 {
        return false;
    }
    let all = (0..natives.total()).rev();
    let mut inwards = all.filter(|index| is_in(natives, run, *index));
    let (mut part, mut record) = (u64::MAX, 0);
    for link in links {
        if link.record != part {
            part = link.record;
            // What is above the return address into a frame is in that frame.
            record = inwards.next().map_or(0, |index| natives.slot(index) + 8);
        }
        link.record = record;
    }
    true
}

#[inline(always)]
fn is_in(natives: &impl Natives, run: Extent, index: usize) -> bool {
    run.holds(natives.pc(index).wrapping_sub(1))
}
