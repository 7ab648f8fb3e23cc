//! The figures of a snapshot that was written, or why there is none.
//!
//! Not here: the writing (`write`).

use std::io;

use crate::heap::set::Busy;

/// The figures of a snapshot that was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Number of nodes that are objects.
    pub objects: u64,
    /// Number of all nodes.
    pub nodes: u64,
    /// Number of all edges.
    pub edges: u64,
    /// Bytes of the objects' cells, which is what the heaps hold in objects (snapshot.H2).
    pub cell_bytes: u64,
    /// Bytes outside that the client told. The sizes of all nodes sum to both together.
    pub outside_bytes: u64,
    /// Number of strings, including those that are there twice because there was no room to remember them.
    pub strings: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// Why there is no snapshot, or only a part of one.
#[derive(Debug)]
pub enum SnapshotError {
    /// A snapshot cannot be made now. Nothing was written.
    Busy(Busy),
    /// The stream failed; what was written is cut off.
    Out(io::Error),
    /// There are more than 2^32 objects. Nothing was written.
    TooMany,
    /// Objects or tables of handles told other edges than a moment before (snapshot.H3): trace functions depend on more
    /// than their object, or the stream changed the heaps. The written text is not a snapshot.
    Changed,
}

impl std::fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SnapshotError::Busy(busy) => write!(f, "no snapshot can be made now: {busy}"),
            SnapshotError::Out(error) => write!(f, "the snapshot is cut off: {error}"),
            SnapshotError::TooMany => f.write_str(
                "the heaps hold more than 4,294,967,295 objects; make a snapshot of each tenant",
            ),
            SnapshotError::Changed => f.write_str(
                "the snapshot is not to be used: an object or a table of handles told other edges than a moment \
                 before; trace functions may not depend on anything but their object, and the stream may not \
                 change the heaps that are written",
            ),
        }
    }
}

impl std::error::Error for SnapshotError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            SnapshotError::Busy(busy) => Some(busy),
            SnapshotError::Out(error) => Some(error),
            SnapshotError::TooMany | SnapshotError::Changed => None,
        }
    }
}
