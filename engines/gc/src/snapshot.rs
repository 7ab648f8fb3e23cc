//! Heap snapshots in Chrome's format, streamed; and the paths that keep an object alive.
//!
//! ```text
//!   heaps ─► Still: swept, nothing moves ─► Numbering: a number for each object, from bits
//!                                              │
//!      pass 1 count edges ── pass 2 a line for each node ── pass 3 a line for each edge ── strings
//!                                              └──────────► the client's stream
//!   root ""  ─┬─► "(GC roots)" ─┬─► "(client roots)" ─► objects
//!             │                 └─► "(edges from tab 7)", a heap that is not in the snapshot ─► objects
//!             ├─► tenant "tab 1" ── its handles, by name ─► objects ─► objects …
//!             └─► tenant "tab 2"                                 └─► "(outside: shared)"
//! ```
//!
//! H1  The graph is never in memory: a number follows from an object's address (`number`), and the objects tell their
//!     edges anew in each pass. Only four bytes for each arena, names within a budget (`names`), and a buffer are
//!     kept.
//! H2  Every allocated object is a node, whether a root leads to it or not; the sizes of nodes sum to the bytes of
//!     cells that the heaps hold ([`Holds::cell_bytes`](crate::Holds)) and the bytes outside that the client told.
//! H3  Objects tell the same edges in each pass; a client that does not is noticed ([`SnapshotError::Changed`]).
//! H4  A number (`id`) is an object's place: it stays the same from snapshot to snapshot for as long as the object
//!     lives, and another object may have it afterwards. Two objects have two numbers, in heaps within 32 GiB of
//!     addresses.
//! H5  While a snapshot is written no collection is done: it is refused
//!     ([`Busy::Collecting`](crate::Busy::Collecting)). The client's stream may call everything; allocations in the
//!     heaps that are written are refused, too ([`Shortage::Still`](crate::Shortage::Still)).
//!
//! The format is that of V8's heap profiler (node 20, Chromium): DevTools, Memory, Load.
//!
//! Not here: reading such files (`skinflint heap`), sums by kind ([`census`]).

pub mod census;
pub mod chunks;
mod describe;
mod names;
mod number;
mod out;
mod outcome;
mod request;
pub(crate) mod retain;
mod trail;
mod write;

pub use describe::{Describe, Node, NodeType};
pub use outcome::{SnapshotError, Written};
pub use request::Snapshot;
