//! The one reader of `/proc`, for every part that watches processes from outside.
//!
//! ```text
//!   /proc/PID/stat ─► Stat           status ─► About, Memory       smaps_rollup ─► Rollup
//!             maps, smaps ─► MapLine, its figures     environ, cmdline, exe, comm ─► bytes and names
//!             io ─► Moved
//!   cgroup, /sys/fs/cgroup/… ─► Group ─► Figures
//!   /proc ─► Processes: which live, whose child each is ─► belongs: below a member, or an orphan that came to the reaper
//! ```
//!
//! N1  Everything may vanish between two looks, or be forbidden: then less is returned. Nothing panics.
//! N2  A name is any bytes: `a) b`, `(sd-pam)`, no UTF-8. No process is taken for gone because of its name.
//! N3  Units come last: `_bytes` (the kernel's `kB` are KiB), `_ticks` (10 ms, [`stat::ticks`]), `_pages`.
//! N4  `stat`, `status` and `smaps_rollup` cost three system calls (open, read, close) and no allocation, `maps` and
//!     `smaps` one more for each 4 KiB of text.
//!
//! Rejected: the crate `procfs`. Version 0.18 takes eight or nine system calls where three do (November 2026, strace:
//! it opens the process's folder first, and asks for the file's size), puts every field of `status` into a map on the
//! heap, and refuses all of it for a name that is no UTF-8. The collector reads these files up to a hundred times a
//! second beside the program that it measures. The crate's breadth (`/proc/net`, `/sys`) is not needed.
//! `base::sys` reads files without the standard library, inside malloc; so does `reporters::process`, inside a program
//! that reports its own memory. What watches from outside may allocate, and comes here.
//!
//! Not here: policy. Which processes are members, what of them is counted, and what is signalled is said by
//! `compare`, `browser` and `collect`.

mod file;
pub mod groups;
pub mod maps;
pub mod moved;
pub mod process;
pub mod processes;
pub mod rollup;
pub mod stat;
pub mod status;

pub use maps::{MapLine, maps};
pub use moved::{Moved, moved};
pub use processes::{Membership, Processes, climb, pids};
pub use rollup::{Rollup, rollup};
pub use stat::{Stat, stat};
pub use status::{About, Memory, Status, about};

/// Returns the bytes of a page of the kernel's: what `/proc` counts in. 4 KiB on x86-64; 4, 16 or 64 KiB on aarch64.
pub fn os_page_bytes() -> u64 {
    const AT_PAGESZ: u64 = 6;
    static BYTES: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    *BYTES.get_or_init(|| {
        let vector = std::fs::read("/proc/self/auxv").unwrap_or_default();
        let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
        let entries = vector.chunks_exact(16).map(|pair| pair.split_at(8));
        let found = entries.map(|(key, value)| (word(key), word(value)));
        let found = found.into_iter().find(|(key, _)| *key == AT_PAGESZ);
        found.map_or(4096, |(_, bytes)| bytes.max(4096))
    })
}
