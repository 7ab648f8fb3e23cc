//! The heap profile that a program serves itself (`/debug/pprof/heap`), as samples that come and go.
//!
//! ```text
//!   GET (fetch.rs) ─► profile.proto, zipped or not (profile.rs) ─► counts by stack and size (heap.rs) ─► Batch ─► the drain
//!     ▲ when: at marks, as memory grows, every few seconds, before the end (session/keeper.rs)
//! ```
//!
//! V1  The program answers on a thread of its own: of our threads only the keeper's waits for it, and that within bounds.
//! V2  A profile says what lives and by which stack, and not where: its samples lie on no page, and the books of such a trace
//!     have the mappings' rows alone.
//! V3  Estimates are the profile's own, taken back to samples by its period and the law that it was scaled by: the trace is a
//!     sampled trace.
//!
//! Not here: Go's own list, read from outside without being served (go/).

use std::sync::mpsc::Sender;

mod fetch;
mod heap;
mod profile;

pub use fetch::ProfileUrl;
pub(crate) use fetch::Trouble;
pub(crate) use heap::ServedHeap;
pub(crate) use profile::Profile;

/// What the thread that fetches profiles is asked for.
pub(crate) enum Errand {
    /// A profile, and then a mark of this name. The sender is dropped when both are there.
    Mark(String, Option<Sender<()>>),
    /// The last profile; then this is called, by which the program goes on that waits for it.
    Last(Box<dyn FnOnce() + Send>),
    /// The last profile of a program that goes on. The sender is dropped when it is there.
    Leave(Sender<()>),
}
