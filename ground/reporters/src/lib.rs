//! Memory reports of a program about itself: reporters, the tree of about:memory, and the ways to read it.
//!
//! ```text
//!   reporters (gc, caches, SQLite, C, Python) ─┐
//!   process (/proc) ───────────────────────────┼─► registry ─► Measurement ─► tree ─► text, difference
//!   heap (the allocator that is there) ────────┘                         └─► file (about:memory), OpenMetrics
//!   group (a control group: kernel, processes) ─► lines as well
//! ```
//!
//! P1  Sums are computed from lines and never typed; what no reporter covers is a row of its own.
//! P2  A reporter that panics, hangs or reports nonsense is named and left out; all others are shown.
//! P3  A measurement does not report what it allocates itself.
//! P4  Which blocks a line has measured is noted only if a measurement asks for it; else it costs one load (`named`).
//!
//! The tree, its names and its file are those of Firefox's about:memory (Njn's memory reporters, 2011).
//! Not here: recorded traces (`analysis`), caches, the sources of memory pressure.

mod act;
#[cfg(feature = "files")]
mod asker;
mod busy;
mod clock;
#[cfg(feature = "files")]
pub mod diff;
#[cfg(feature = "files")]
pub mod endpoint;
pub mod entry;
#[cfg(feature = "files")]
pub mod file;
#[cfg(feature = "gather")]
pub mod gathered;
#[cfg(feature = "gather")]
pub mod group;
mod grown;
pub mod heap;
mod image;
#[cfg(feature = "files")]
pub mod json;
#[cfg(feature = "page")]
pub mod live_page;
#[cfg(feature = "page")]
pub mod metrics_page;
pub mod named;
#[cfg(feature = "files")]
pub mod openmetrics;
pub mod process;
pub mod published;
mod quiet;
pub mod registry;
mod round;
mod short;
pub mod size;
pub mod sqlite;
pub mod store;
pub mod text;
pub mod tree;
mod usable;

pub use clock::Clock;
pub use entry::{Entry, Kind, Owner, Units, component};
pub use registry::{Action, Measurement, Registration, Registry, global};
pub use round::{Fault, Reporter, Sink};
