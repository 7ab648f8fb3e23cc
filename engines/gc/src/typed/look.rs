//! Looking into heaps from safe code: snapshots and sums of a tenant, and of a whole runtime.
//!
//! ```text
//!   tenant.snapshot(out), runtime.snapshot(out) ─► collect, if nothing runs ─► Snapshot ─► a .heapsnapshot
//!   tenant.census(),      runtime.census()                                  ─► Census   ─► text, JSON, a difference
//! ```
//!
//! Z1  Both are made where no closure runs: all that lives is in handles then, and no value is half written.
//!
//! Not here: how (`snapshot`, `census`).

use std::io::Write;
use std::rc::Rc;

use super::tenant::{Runtime, Tenant};
use crate::census::Census;
use crate::collect::Busy;
use crate::heap::Heap;
use crate::snapshot::retain::{Path, Retainers, Wanted};
use crate::snapshot::{Snapshot, SnapshotError, Written};
use crate::trigger::Reason;

fn refs(heaps: &[Rc<Heap>]) -> Vec<&Heap> {
    heaps.iter().map(Rc::as_ref).collect()
}

impl Tenant {
    /// Collects this tenant and writes its snapshot in Chrome's format. Edges to and from other heaps lead to one node
    /// for each of those.
    ///
    /// # Errors
    /// A closure of the tenant runs, or the stream fails.
    pub fn snapshot(&self, out: &mut dyn Write) -> Result<Written, SnapshotError> {
        self.collect().map_err(SnapshotError::Busy)?;
        Snapshot::of(&[self.heap()]).write(out)
    }

    /// Objects and bytes by kind, garbage included that no collection has found.
    ///
    /// # Errors
    /// A closure of the tenant runs.
    pub fn census(&self) -> Result<Census, Busy> {
        Census::of(&[self.heap()])
    }

    /// Shortest paths from this tenant's roots to what is asked for.
    ///
    /// # Errors
    /// A closure of the tenant runs.
    pub fn paths(&self, wanted: &[Wanted<'_>]) -> Result<Vec<Option<Path>>, Busy> {
        Retainers::of(&[self.heap()]).paths(wanted)
    }
}

impl Runtime {
    /// Collects all heaps together and writes them as one snapshot, each tenant under a node of its own.
    ///
    /// # Errors
    /// A closure of some tenant runs, or the stream fails.
    pub fn snapshot(&self, out: &mut dyn Write) -> Result<Written, SnapshotError> {
        self.collect_all(Reason::Asked)
            .map_err(SnapshotError::Busy)?;
        let heaps = self.shared().world.heaps();
        Snapshot::of(&refs(&heaps)).write(out)
    }

    /// Objects and bytes by heap and kind, garbage included that no collection has found.
    ///
    /// # Errors
    /// A closure of some tenant runs.
    pub fn census(&self) -> Result<Census, Busy> {
        let heaps = self.shared().world.heaps();
        Census::of(&refs(&heaps))
    }

    /// Shortest paths through all heaps to what is asked for.
    ///
    /// # Errors
    /// A closure of some tenant runs.
    pub fn paths(&self, wanted: &[Wanted<'_>]) -> Result<Vec<Option<Path>>, Busy> {
        let heaps = self.shared().world.heaps();
        Retainers::of(&refs(&heaps)).paths(wanted)
    }
}
