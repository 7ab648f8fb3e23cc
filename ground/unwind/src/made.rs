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

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::step::shape;

    struct Words(HashMap<u64, u64>);

    impl Memory for Words {
        fn load(&mut self, addr: u64) -> Option<u64> {
            self.0.get(&addr).copied()
        }
    }

    /// Code at 0x7000 to 0x7fff has frames of 48 bytes, at 0x8000 to 0x8fff it is the interpreter's.
    fn known(pc: u64) -> Option<Made> {
        match pc >> 12 {
            7 => Some(Made::Sized(48)),
            8 => Some(Made::Interpreted),
            _ => None,
        }
    }

    fn left(made: Made, words: &[(u64, u64)], sp: u64, bp: u64) -> Option<[u64; 5]> {
        // SAFETY: no function at all.
        let find = unsafe { Finder::new(None) }.knowing(known);
        let mut words = Words(words.iter().copied().collect());
        let out = made.leave(&mut words, &find, sp, bp).ok()?;
        let shape = u64::from(out.shape);
        Some([out.link.slot, out.link.ra, out.sp, out.bp, shape])
    }

    #[test]
    fn each_kind_is_left_by_its_own_words() {
        let plain = u64::from(shape::PLAIN);
        let wide = u64::from(shape::WIDE);
        let words = [(0x128, 0x8123), (0x120, 0x500)];
        let sized = left(Made::Sized(48), &words, 0x100, 0x110);
        assert_eq!(sized, Some([0x128, 0x8123, 0x130, 0x500, plain]));
        let pointed = left(Made::Pointed, &words, 0x100, 0x120);
        assert_eq!(pointed, Some([0x128, 0x8123, 0x130, 0x500, plain]));
        // The caller is the interpreter's, which finds all by rbp.
        let words = [(0x128, 0x8123), (0x120, 0x500), (0x118, 0x150)];
        let inner = left(Made::Interpreted, &words, 0x100, 0x120);
        assert_eq!(inner, Some([0x128, 0x8123, 0x130, 0x500, plain]));
        // It is compiled: what it had as its stack pointer counts.
        let words = [(0x128, 0x7123), (0x120, 0x500), (0x118, 0x150)];
        let inner = left(Made::Interpreted, &words, 0x100, 0x120);
        assert_eq!(inner, Some([0x128, 0x7123, 0x150, 0x500, wide]));
        // No variables are between them.
        let words = [(0x128, 0x7123), (0x120, 0x500), (0x118, 0x130)];
        let inner = left(Made::Interpreted, &words, 0x100, 0x120);
        assert_eq!(inner, Some([0x128, 0x7123, 0x130, 0x500, plain]));
    }

    #[test]
    fn what_leads_inwards_or_nowhere_is_no_frame() {
        let words = [(0x128, 0x7123), (0x120, 0x500), (0x118, 0x90)];
        assert_eq!(
            left(Made::Interpreted, &words, 0x100, 0x120),
            None,
            "the caller further in"
        );
        assert_eq!(
            left(Made::Pointed, &words, 0x130, 0x120),
            None,
            "rbp below the stack pointer"
        );
        assert_eq!(
            left(Made::Sized(96), &words, 0x100, 0x120),
            None,
            "not to be read"
        );
        assert_eq!(
            left(Made::Sized(8), &words, u64::MAX - 7, 0),
            None,
            "beyond all addresses"
        );
        assert_eq!(
            left(Made::Pointed, &words, 0, u64::MAX),
            None,
            "beyond all addresses"
        );
    }
}
