//! Code outside of modules whose frames the caller knows: what a virtual machine has generated.
//!
//! ```text
//!   Sized        sp ─► │ frame … │ rbp │ return address │        so many bytes in all
//!   Pointed      rbp ─► │ rbp │ return address │
//!   Interpreted  rbp − 8 ─► the caller's sp, which lies further out than the return address if the callee's variables
//!                are between them
//! ```
//!
//! M1  Rules of such code are not kept: at the same address may be other code by the next walk, so it is asked for at each step
//!     (`kind::WIDE`).
//! M2  The caller answers from what is loaded, as fast as a signal handler has to (unwind.U1).
//!
//! Not here: which code it is (the caller).

use crate::find::Finder;
use crate::step::{End, Memory, Stepped, leave_wide, plain};

/// Returns how the frame of the code at an address lies; `None` if it is not known.
pub type MadeFn = fn(u64) -> Option<Made>;

/// How a frame of generated code lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Made {
    /// It has so many bytes; its uppermost words are the caller's `rbp` and the return address.
    Sized(u64),
    /// `rbp` points at the caller's `rbp`, and the return address is above that.
    Pointed,
    /// As `Pointed`, and the word below has the caller's stack pointer.
    Interpreted,
}

impl Made {
    /// Leaves the frame.
    pub(crate) fn leave<M: Memory>(
        self,
        memory: &mut M,
        find: &Finder,
        sp: u64,
        bp: u64,
    ) -> Result<Stepped, End> {
        let by_pointer = bp.checked_add(16).ok_or(End::BadFrame)?;
        match self {
            Made::Sized(bytes) => {
                let cfa = sp.checked_add(bytes).ok_or(End::BadFrame)?;
                plain(memory, cfa, cfa.checked_sub(16), sp, bp)
            }
            Made::Pointed => plain(memory, by_pointer, Some(bp), sp, bp),
            Made::Interpreted => {
                let slot = by_pointer - 8;
                let ra = memory.load(slot).ok_or(End::BadFrame)?;
                let at = bp.wrapping_sub(8);
                let caller_sp = memory.load(at).ok_or(End::BadFrame)?;
                // Only the way out of a frame of known size begins at its stack pointer.
                let matters = || matches!(find.made(ra.wrapping_sub(1)), Some(Made::Sized(_)));
                if caller_sp == by_pointer || !matters() {
                    return plain(memory, by_pointer, Some(bp), sp, bp);
                }
                let out = memory.load(bp).ok_or(End::BadFrame)?;
                let down = slot.wrapping_sub(caller_sp).cast_signed();
                if bp < sp || caller_sp < by_pointer {
                    return Err(End::BadFrame);
                }
                leave_wide(
                    memory,
                    caller_sp,
                    down,
                    out,
                    sp,
                    [[bp, out], [at, caller_sp]],
                )
            }
        }
    }
}
