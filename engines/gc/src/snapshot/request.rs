//! A snapshot about to be written: of which heaps, with which roots, described by what.
//!
//! Not here: the passes that write it (`write`).

use std::io::Write;

use super::describe::Describe;
use super::outcome::{SnapshotError, Written};
use super::write::write;
use crate::heap::set::Roots;
use crate::heap::state::Heap;

/// A snapshot about to be written.
///
/// Cost: three walks over the objects and their edges; about a second for a million objects with three edges each.
/// Memory: a thousandth of the heaps, and at most `max(256 KiB, heap / 32)` for names (snapshot.H1). Threads: the heaps' own.
///
/// It shows everything that is allocated: collect before, if garbage is not wanted
/// ([`Tenant::snapshot`](crate::typed::Tenant) does).
pub struct Snapshot<'a> {
    heaps: &'a [&'a Heap],
    roots: Option<&'a mut dyn Roots>,
    describe: Option<&'a mut dyn Describe>,
}

impl<'a> Snapshot<'a> {
    /// Prepares a snapshot of one heap, or of several of one world.
    pub fn of(heaps: &'a [&'a Heap]) -> Snapshot<'a> {
        Snapshot {
            heaps,
            roots: None,
            describe: None,
        }
    }

    /// Adds roots of the client's own, under "(client roots)".
    ///
    /// # Safety
    /// They are first bytes of live objects of the same world, the same each time, and `roots` keeps the tracer where
    /// it is.
    pub unsafe fn roots(self, roots: &'a mut dyn Roots) -> Snapshot<'a> {
        Snapshot {
            roots: Some(roots),
            ..self
        }
    }

    /// Adds what the client knows of its objects.
    pub fn describe(self, describe: &'a mut dyn Describe) -> Snapshot<'a> {
        Snapshot {
            describe: Some(describe),
            ..self
        }
    }

    /// Writes the snapshot, buffered. The stream may use the heaps, but an allocation in them is refused
    /// ([`Shortage::Still`](crate::Shortage::Still)), and a change of edges or handles spoils the snapshot.
    ///
    /// # Errors
    /// A closure or finalizer of these heaps is running, they are of different worlds, or the stream fails.
    pub fn write(self, out: &mut dyn Write) -> Result<Written, SnapshotError> {
        write(self.heaps, self.roots, self.describe, out)
    }
}
