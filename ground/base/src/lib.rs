//! Code that may run while `malloc` is running.
//!
//! ```text
//!   arch  what a processor's own instructions are needed for
//!   sys   raw system calls: never touch errno, never allocate
//!   ring  the shared memory between a recorded program and the collector
//!   sync  its atomics, which the model checker can swap
//!   env   every environment variable that Skinflint reads, in one table
//!   page  how large the kernel's pages are
//!   probe the page of counted calls
//!   filter  what a filter of system calls answers
//!   hints  what the processor and the kernel are told of memory beforehand
//!   hook  the allocator that can tell how large a block is
//!   random  numbers by seed
//!   samples  the addresses of sampled blocks
//!   loader  names and tables of loaded objects, without dlsym
//!   plan  what to hook of an allocator that a program is linked with
//! ```
//!
//! B1  Nothing here allocates, panics, formats, takes a lock of the standard library, or touches a
//!     thread-local with a destructor.
//! B2  Nothing here changes `errno`: system calls are made by hand.
//! B3  Preloaded libraries name libc.so.6 themselves, so that their calls are bound to versions of symbols: the link
//!     below.
//!
//! Not here: anything that a program outside of `malloc` could get from the standard library.
#![cfg_attr(not(any(test, loom)), no_std)]

// The crate `libc` leaves the linking to `std` when its `std` feature is on, as it is when another package of the same
// build asks for it; libraries without `std` were then not linked with libc (faces/cli/tests/dropin/symbols.rs).
#[link(name = "c")]
unsafe extern "C" {}

pub mod arch;
pub mod env;
pub mod filter;
pub mod hints;
pub mod hook;
pub mod loader;
pub mod page;
pub mod plan;
pub mod probe;
pub mod random;
pub mod ring;
pub mod samples;
pub mod stack;
pub mod sync;
pub mod sys;
