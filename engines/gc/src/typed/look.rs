//! Looking into heaps from safe code: snapshots and sums of a tenant, and of a whole runtime.
//!
//! ```text
//!   tenant.snapshot(out), runtime.snapshot(out) ─► collect, if nothing runs ─► Snapshot ─► a .heapsnapshot
//!   tenant.census(),      runtime.census()                                  ─► Census   ─► text, JSON, a difference
//! ```
//!
//! Z1  Both are made where no closure runs: all live objects are then reached from handles, and no value is half
//!     written.
//!
//! Not here: how they are made (`snapshot`, `census`).

use std::io::Write;
use std::rc::Rc;

use super::tenant::{Runtime, Tenant};
use crate::heap::set::Busy;
use crate::heap::state::Heap;
use crate::heap::trigger::Reason;
use crate::snapshot::census::Census;
use crate::snapshot::chunks::Chunks;
use crate::snapshot::retain::{Path, Retainers, Wanted};
use crate::snapshot::{Snapshot, SnapshotError, Written};

fn refs(heaps: &[Rc<Heap>]) -> Vec<&Heap> {
    heaps.iter().map(Rc::as_ref).collect()
}

impl Tenant {
    /// Collects this tenant and writes its snapshot in Chrome's format. Edges to and from other heaps lead to one node
    /// for each of those heaps.
    ///
    /// # Errors
    /// A closure of the tenant is running, or the stream fails.
    pub fn snapshot(&self, out: &mut dyn Write) -> Result<Written, SnapshotError> {
        self.collect().map_err(SnapshotError::Busy)?;
        Snapshot::of(&[self.own_heap()]).write(out)
    }

    /// Returns the objects and bytes by kind, including garbage that no collection has found.
    ///
    /// # Errors
    /// A closure of the tenant is running.
    pub fn census(&self) -> Result<Census, Busy> {
        Census::of(&[self.own_heap()])
    }

    /// Returns its chunks by the arenas in use, and what keeps those that one arena keeps.
    ///
    /// # Errors
    /// A closure of the tenant is running.
    pub fn chunks(&self) -> Result<Chunks, Busy> {
        Chunks::of(&[self.own_heap()])
    }

    /// Returns the shortest paths from this tenant's roots to the wanted objects.
    ///
    /// # Errors
    /// A closure of the tenant is running.
    pub fn paths(&self, wanted: &[Wanted<'_>]) -> Result<Vec<Option<Path>>, Busy> {
        Retainers::of(&[self.own_heap()]).paths(wanted)
    }
}

impl Runtime {
    /// Collects all heaps together and writes them as one snapshot, each tenant under a node of its own.
    ///
    /// # Errors
    /// A closure of a tenant is running, or the stream fails.
    pub fn snapshot(&self, out: &mut dyn Write) -> Result<Written, SnapshotError> {
        self.collect_all(Reason::Asked)
            .map_err(SnapshotError::Busy)?;
        let heaps = self.shared_heap().world.heaps();
        Snapshot::of(&refs(&heaps)).write(out)
    }

    /// Returns the objects and bytes by heap and kind, including garbage that no collection has found.
    ///
    /// # Errors
    /// A closure of a tenant is running.
    pub fn census(&self) -> Result<Census, Busy> {
        let heaps = self.shared_heap().world.heaps();
        Census::of(&refs(&heaps))
    }

    /// Returns the chunks of all heaps by the arenas in use, and what keeps those that one arena keeps.
    ///
    /// # Errors
    /// A closure of a tenant is running.
    pub fn chunks(&self) -> Result<Chunks, Busy> {
        let heaps = self.shared_heap().world.heaps();
        Chunks::of(&refs(&heaps))
    }

    /// Returns the shortest paths through all heaps to the wanted objects.
    ///
    /// # Errors
    /// A closure of a tenant is running.
    pub fn paths(&self, wanted: &[Wanted<'_>]) -> Result<Vec<Option<Path>>, Busy> {
        let heaps = self.shared_heap().world.heaps();
        Retainers::of(&refs(&heaps)).paths(wanted)
    }
}
