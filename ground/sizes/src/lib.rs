//! Size-class schemes as data: what an allocator gives for a request.
//!
//! ```text
//!   requested ──► Scheme::usable ──► usable          slop = usable - requested
//!      1,025          jemalloc5        1,280                  255
//! ```
//!
//! Z1  `usable(n) >= n`, `usable` never falls as `n` rises, and `usable(usable(n)) == usable(n)`,
//!     for every scheme and every `n` (walked in the tests). One exception, which the real glibc has
//!     too: a block that glibc maps reports 8 bytes more than its page count was chosen for, so
//!     asking for its whole usable size maps one page more.
//! Z2  A size that no rounding can represent is returned as it is: nothing here overflows or panics.
//! Z3  A scheme answers "what would this allocator give", never "what was given": a trace holds the
//!     recorded usable sizes, and those win wherever both exist.
//!
//! Beside the schemes: the spans whose blocks are of one class (`spans`), and what is kept of a
//! program's sizes from one run to the next (`fit`).
//!
//! Not here: alignment requests (`memalign` may cost more), headers kept outside the block, caches,
//! whose cost is retained memory and not slop.

#![cfg_attr(not(test), no_std)]

pub mod fit;
mod named;
mod scheme;
mod schemes;
pub mod spans;

pub use named::UnknownScheme;
pub use scheme::{ClassKind, Scheme};
