//! Reads heap snapshots in Chrome's format: those of Chromium, of node, and of our own garbage-collected heap.
//!
//! ```text
//!   FILE.heapsnapshot ─► read: a stream of numbers ─┬─► Census: sums by class          (nothing kept for a node)
//!                                                   └─► Graph: 25 bytes a node, 9 an edge
//!                                                         ├─► distances: shortest paths from the root
//!                                                         └─► dominators: what each object alone retains
//!   two of them ─► diff: by class, and by object          all of it ─► tables: text, JSON
//! ```
//!
//! S1  The file is read once, from its beginning to its end, and never as a whole: text is turned into numbers as it
//!     arrives. Strings longer than [`read::KEPT_BYTES`] are cut.
//! S2  What a file says about itself (fields and their order, counts, numbers of strings and nodes) is checked; what
//!     does not hold is an error with its place, never a panic.
//! S3  Sums of rows are the sums of nodes.
//! S4  An edge retains if it is neither weak, nor a shortcut that does not begin at the root: as in DevTools.
//!     (DevTools leaves out some more edges, from the browser's objects to a page's; its retained sizes may be larger
//!     there.)
//!
//! Not here: writing snapshots (`gc`), the command line (`cli`).

pub mod census;
pub mod dominators;
pub mod graph;
pub mod leaks;
pub mod read;
pub mod tables;
