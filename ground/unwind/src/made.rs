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
//! Not here: which code it is (the caller), how its frames are left (step.rs).

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
