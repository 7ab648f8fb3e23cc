//! The allocator's engine: thread-owned spans with bitmaps outside the blocks.
//!
//! ```text
//!   services    purger, holes, trim, reserve, samples, hardening, figures, fit, options
//!      ▲ through one table of slow paths, and never by name          │ by name
//!   heaps       malloc, free, large blocks, threads, private heaps, tenants, fork, the pool of page runs ─► pages ─► the OS
//!      │ by name                                                     ▼
//!   mechanism   range and page map, classes, bits, spans, heaps' records and lists, locks, frees by other threads
//! ```
//!
//! Hardening, stacks in its reports, fit profiles and heap profiles are features, `harden`, `stacks`, `fit` and `profile`, all
//! of them on by default: a program that reads the environment ([`options::begin`]) then understands what `libskinflint.so`
//! understands, and they cost no instruction while they are off. Without one of them the code is smaller, and a setting
//! that asks for it is answered by a line on stderr.
//!
//! Not here: the C symbols (`malloc-so`), page runs (`pages`).
// What only the assembly of the fast paths names (`branch`, offsets) is unused where they are the compiler's.
#![cfg_attr(not(target_arch = "x86_64"), allow(unused_imports, unused_macros))]
#![cfg_attr(not(test), no_std)]
// The models include the files that they test (`tests/models.rs`): statics and assembly do not work under loom.
#![cfg(not(loom))]
// What a feature that is absent would have used is dead then, and only then.
#![cfg_attr(
    not(all(
        feature = "harden",
        feature = "stacks",
        feature = "fit",
        feature = "profile"
    )),
    allow(dead_code)
)]

mod heaps;
mod mechanism;
mod services;
#[cfg(test)]
mod test_engine;

pub use heaps::fault::{Line, Policy, set_policy};
pub use heaps::free::free;
pub use heaps::global::Skinflint;
pub use heaps::malloc::{calloc, malloc, memalign, realloc, usable_size};
pub use heaps::private::PrivateHeap;
pub use heaps::tenant::{Holds, Tenant};
#[doc(hidden)]
pub use heaps::whole;
pub use heaps::{fork, neighbour};
pub use services::cold;
#[cfg(feature = "fit")]
pub use services::fit;
#[cfg(feature = "profile")]
pub use services::profile;
pub use services::purger::{allow as allow_purger, come_back, leave};
pub use services::reserve::{LISTENERS, Level, Listener, off_pressure, on_pressure, set_reserve};
pub use services::rights::{Punished, filtered, filtering, has_no_more_than_the_first_thread};
pub use services::sample::{Estimate, reseed};
pub use services::stats_text::{to_buffer, write_json};
pub use services::trim::{trim, trim_hidden};
pub use services::{forms, hidden, last_look, options, stats, tell_untouched};
pub use skinflint_pages::cold::Advice;

/// The invariants, checked on demand, and handles for tests.
pub mod check {
    pub use crate::services::check::*;
    pub use crate::services::handles::*;
}
