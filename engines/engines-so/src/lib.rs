//! `libskinflint_engines`: caches, buffers, arenas and counted values for C, and for all languages that can call C.
//!
//! ```text
//!   skinflint_cache_get(cache, …) ─► guarded ─► Table: is this number a cache? ─► skinflint_cache ─► a hold's number
//!                                       │                 └─ no: -2, and words of what it is instead
//!                                       └─ a panic ends here: -6
//! ```
//!
//! A1  What C gets as an object is a number, not an address, and never the same number again ([`table`]): of what has
//!     ended, of another sort or of another thread a call says so, and nothing is read there.
//! A2  A call that fails changes nothing, and what was passed to it stays the caller's. Its code is below 0 (or a null),
//!     and [`skinflint_engines_error`] has the words, for the calling thread.
//! A3  Nothing unwinds into C: a panic is a code (`guarded`), or ends the program where it was built to abort.
//! A4  No lock and no borrow of ours is held while a function of the caller's runs, so it may call us; what would wait for
//!     itself is told (`BUSY`).
//! A5  Addresses that the caller passes are read for as long as the call lasts, and no longer; texts and keys are copied.
//!
//! Declared in include/skinflint_engines.h, where the rules for callers are. Not here: what caches, arenas and counted
//! values do (`cache`, `gc`); the allocator (`malloc-so`); reporters (`reporters-so`).

mod arena;
mod buffer;
mod cache;
mod counted;
mod discard;
mod fault;
mod input;
mod owner;
mod pressure;
mod table;
#[cfg(test)]
mod tests;

use std::ffi::c_char;

/// See skinflint_engines.h.
#[unsafe(no_mangle)]
pub extern "C" fn skinflint_engines_error() -> *const c_char {
    fault::text()
}
