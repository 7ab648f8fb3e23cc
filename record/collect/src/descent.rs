//! Whose descendant a process is: what a caller has to show for itself.
//!
//! ```text
//!   caller ─► parent ─► parent ─► … ─► a process of this recording, or we ourselves
//! ```
//!
//! Not here: who is served (`session`), children without a trace (`kin`).

use skinflint_procfs::climb;
use skinflint_procfs::processes::parent;

/// The most processes from a caller up to the first one with a known descent.
const MOST_GENERATIONS: usize = 64;

/// Returns whether a user's processes are served whatever they descend from: ours and root.
pub fn is_known_user(uid: u32) -> bool {
    // SAFETY: no memory is involved.
    let own = unsafe { libc::geteuid() };
    uid == own || uid == 0
}

/// Returns whether a process, or one of its ancestors, is one of ours.
pub fn is_from(pid: u32, is_ours: impl Fn(u32) -> bool) -> bool {
    let ours = |pid| is_ours(pid).then_some(());
    climb(pid, MOST_GENERATIONS, ours, parent).is_some()
}

/// Returns the process among the ancestors of this one, itself included, that we started.
pub fn started_by_us(pid: u32) -> Option<u32> {
    let is_ours = |pid| (parent(pid) == Some(std::process::id())).then_some(pid);
    climb(pid, MOST_GENERATIONS, is_ours, parent)
}
