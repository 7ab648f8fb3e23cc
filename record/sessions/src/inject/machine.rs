//! What differs from one processor architecture to another: registers, and how a function is called.
//!
//! ```text
//!   x86_64.rs: Registers, Vectors, a breakpoint                 elsewhere: a refusal (unknown.rs)
//! ```

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub(super) use x86_64::*;

#[cfg(not(target_arch = "x86_64"))]
mod unknown;
#[cfg(not(target_arch = "x86_64"))]
pub(super) use unknown::*;
