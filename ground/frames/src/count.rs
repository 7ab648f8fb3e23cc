//! Calls of an interpreter that leave nothing on the C stack: known by the native frames of the function that runs them.
//!
//! ```text
//!   native:   main … execute_ex … array_map … execute_ex …      as many frames in the function as the chain has parts
//! ```
//!
//! N1  Parts and native frames belong together in order if they are as many; else nothing is known of any. They are not
//!     while a part's call begins or ends, or calls from code that the compiler has moved out of the function.
//! N2  A native frame that is as it was is in the function if it was.
//!
//! Not here: what a part is (chain.rs, php.rs).

use skinflint_base::loader::Extent;

use crate::chain::Link;
use crate::natives::Natives;

/// The most calls that are remembered.
const MOST: usize = 1024;

/// The native frames in a function, by their places, outermost first.
#[repr(C)]
pub(crate) struct Calls {
    count: usize,
    places: [u32; MOST],
}

impl Calls {
    /// Finds the calls of a capture: only among new native frames if these are of the capture before (`is_next`). Returns
    /// their places; `None` if they are too many.
    #[inline(always)]
    pub(crate) fn find(
        &mut self,
        natives: &impl Natives,
        run: Extent,
        is_next: bool,
    ) -> Option<&[u32]> {
        let (keep, total) = (natives.keep(), natives.total());
        let from = if is_next { keep } else { 0 };
        let mut count = if is_next { self.count } else { 0 };
        while count > 0 && *self.places.get(count - 1)? as usize >= from {
            count -= 1;
        }
        for index in from..total {
            if run.holds(natives.pc(index).wrapping_sub(1)) {
                *self.places.get_mut(count)? = index as u32;
                count += 1;
            }
        }
        self.count = count;
        self.places.get(..count)
    }
}

/// Gives frames, innermost first, the records of their calls; until now a record says how many of the `parts` lie further in.
/// Returns whether the parts are as many as the calls (N1).
pub(crate) fn pair(links: &mut [Link], parts: u64, natives: &impl Natives, calls: &[u32]) -> bool {
    if parts != calls.len() as u64 {
        return false;
    }
    let mut inwards = calls.iter().rev();
    let (mut part, mut record) = (u64::MAX, 0);
    for link in links {
        if link.record != part {
            part = link.record;
            // What is above the return address into a frame is in that frame.
            let call = inwards.next();
            record = call.map_or(0, |index| natives.slot(*index as usize) + 8);
        }
        link.record = record;
    }
    true
}
