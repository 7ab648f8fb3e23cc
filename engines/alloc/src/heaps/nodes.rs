//! Memory nodes: how many the machine has, and on which one a thread runs.
//!
//! ```text
//!   start ─► /sys/devices/system/node/node1 there? ── no ─► one: no later call asks
//!   a span, a large block ─► getcpu ─► the pool serves this node (pages::nodes)
//! ```
//!
//! N1  The kernel is asked once how many there are, by the names in /sys alone: nothing is opened. With one node, that is
//!     one system call. It comes before the program's `main` where the environment is read (`options::begin`), and not at
//!     the program's first block: a filter of system calls may stand before that one.
//! N2  A thread that the kernel moves takes new runs from its new node; what its heap holds stays where it is. So does
//!     what a heap takes over from a thread that ended.
//!
//! Not here: the lists of each node (`pages`); on which node a page lies, which the kernel decides by the first touch.

use skinflint_base::sync::{AtomicU32, Ordering};
use skinflint_base::sys;
use skinflint_pages::{NODES_MAX, Pool};

/// The number of nodes; 0: not asked yet.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// Returns the number of nodes, 1 where the kernel does not say.
#[unsafe(link_section = ".text.skinflint_first")]
pub fn count() -> u32 {
    // ORDER: all threads that ask get the same answer.
    let known = COUNT.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let count = asked();
    COUNT.store(count, Ordering::Relaxed); // ORDER: as above
    count
}

#[unsafe(link_section = ".text.skinflint_first")]
fn asked() -> u32 {
    let there = |node: &usize| {
        let mut path = *b"/sys/devices/system/node/node0\0";
        path[PLACE] = b'0' + *node as u8;
        // SAFETY: a C string that outlives the call.
        let found = unsafe {
            sys::syscall(
                libc::SYS_faccessat,
                [libc::AT_FDCWD as u64, path.as_ptr() as u64, 0, 0, 0, 0],
            )
        };
        found == 0
    };
    1 + (1..NODES_MAX).take_while(there).count() as u32
}

/// Where the digit is.
const PLACE: usize = b"/sys/devices/system/node/node".len();

/// Has the pool serve the node of the calling thread. Cost with one node: a load and a comparison.
#[inline]
pub fn serve(pool: &mut Pool) {
    if pool.node_count() > 1 {
        serve_slow(pool);
    }
}

#[cold]
fn serve_slow(pool: &mut Pool) {
    let mut node = 0u32;
    // SAFETY: the kernel writes a number to a place of ours.
    let result = unsafe {
        let at = (&raw mut node) as u64;
        sys::syscall(libc::SYS_getcpu, [0, at, 0, 0, 0, 0])
    };
    pool.serve(if sys::is_error(result) { 0 } else { node });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_nodes_as_the_kernel_lists() {
        let listed = (0..NODES_MAX)
            .take_while(|node| {
                std::path::Path::new(&format!("/sys/devices/system/node/node{node}")).exists()
            })
            .count();
        assert_eq!(count() as usize, listed.max(1));
    }
}
