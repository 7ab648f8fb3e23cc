//! Checks beyond those that are always there; off unless asked for.
//!
//! ```text
//!   malloc ── budget below 0 ──► malloc ──┬─ one in N ──► sampled: a block between guard pages
//!                                         ├─ large ─────► guard: ends flush at a guard page
//!                                         └─ small ─────► trailer behind what was requested
//!   free ──── LIMIT is 0 ──────► before_free ──► trailer whole? ──► quarantine ──► unchanged? ──► zero ──► free
//! ```
//!
//! Y1  No code here is reached while everything is off: the budgets of heaps and LIMIT, which the fast paths read
//!     anyway, lead here. So it costs nothing.
//! Y2  The checks are chosen once, while there is only one thread. Small blocks from before that ([`Early`]) and those
//!     of tenants have no trailer, and are accepted as they are.
//! Y3  With `poison` or `zero` every free slot is zero: what is freed is filled with zero, and pages that
//!     come from the kernel are zero. So a slot that is not zero when it is handed out was written to.
//! Y4  `canary` claims a block by changing its trailer in one step: of two threads that free it, one finds it freed.
//! Y5  Locks here are taken before any other, and none of them while holding another.
//!
//! Not here: the checks that are always made (free.F1), the table by which the engine comes here (`slow`).

mod checks;
mod fill;
pub mod forms;
mod guard;
mod handler;
mod last;
mod points;
mod quarantine;
mod report;
mod sampled;
#[cfg(feature = "stacks")]
mod stacks;
#[cfg(feature = "profile")]
pub use stacks::own_code;
#[cfg(not(feature = "stacks"))]
#[path = "no_stacks.rs"]
mod stacks;
mod story;
mod trailer;
mod untouched;
mod waiting;

pub use checks::{PATHS, after_fork, before_fork, begin, in_child};
pub use last::{last_look, tell_untouched};
