//! `/proc/PID/smaps_rollup`: what all mappings of a process hold together, each page counted once among its holders.
//!
//! ```text
//!   Rss: 1184 kB   Pss: 212 kB   Private_Dirty: 96 kB …  ─► Rollup, absent where the kernel has no such line
//! ```
//!
//! Not here: which figure counts (compare, browser, collect).

use crate::file;

/// The figures that are used. `Pss_Anon` and `Pss_Shmem` came with Linux 5.9.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rollup {
    /// Resident.
    pub rss_bytes: Option<u64>,
    /// Resident, each page divided by the processes that map it.
    pub pss_bytes: Option<u64>,
    /// The anonymous part of that.
    pub pss_anon_bytes: Option<u64>,
    /// The part of that in files.
    pub pss_file_bytes: Option<u64>,
    /// The part of that in shared memory.
    pub pss_shmem_bytes: Option<u64>,
    /// Pages that only this process maps and that are as in their file.
    pub private_clean_bytes: Option<u64>,
    /// Pages that only this process maps and that were written.
    pub private_dirty_bytes: Option<u64>,
    /// Anonymous pages.
    pub anonymous_bytes: Option<u64>,
    /// Swapped out, each page divided by the processes that map it.
    pub swap_pss_bytes: Option<u64>,
}

impl Rollup {
    /// Parses the text.
    pub fn parse(text: &[u8]) -> Rollup {
        let mut rollup = Rollup::default();
        for (key, value) in file::fields(text) {
            let to = match key {
                "Rss" => &mut rollup.rss_bytes,
                "Pss" => &mut rollup.pss_bytes,
                "Pss_Anon" => &mut rollup.pss_anon_bytes,
                "Pss_File" => &mut rollup.pss_file_bytes,
                "Pss_Shmem" => &mut rollup.pss_shmem_bytes,
                "Private_Clean" => &mut rollup.private_clean_bytes,
                "Private_Dirty" => &mut rollup.private_dirty_bytes,
                "Anonymous" => &mut rollup.anonymous_bytes,
                "SwapPss" => &mut rollup.swap_pss_bytes,
                _ => continue,
            };
            *to = file::bytes(value);
        }
        rollup
    }
}

/// Reads the figures of a process; `None` if it has no memory any more, or may not be looked at. Cost: the kernel
/// walks the page tables, about 0.1 ms for each 10 MiB that is resident.
pub fn rollup(pid: u32) -> Option<Rollup> {
    file::parse(format_args!("/proc/{pid}/smaps_rollup"), |text| {
        Some(Rollup::parse(text))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernels_text() {
        let text =
            b"5580c0a7a000-7ffd8a7f9000 ---p 00000000 00:00 0                          [rollup]
Rss:                1184 kB
Pss:                 212 kB
Pss_Dirty:           100 kB
Pss_Anon:             96 kB
Pss_File:            116 kB
Pss_Shmem:             3 kB
Shared_Clean:       1080 kB
Private_Clean:         8 kB
Private_Dirty:        97 kB
Anonymous:            98 kB
Swap:                  6 kB
SwapPss:               5 kB
";
        let expected = Rollup {
            rss_bytes: Some(1184 << 10),
            pss_bytes: Some(212 << 10),
            pss_anon_bytes: Some(96 << 10),
            pss_file_bytes: Some(116 << 10),
            pss_shmem_bytes: Some(3 << 10),
            private_clean_bytes: Some(8 << 10),
            private_dirty_bytes: Some(97 << 10),
            anonymous_bytes: Some(98 << 10),
            swap_pss_bytes: Some(5 << 10),
        };
        assert_eq!(Rollup::parse(text), expected);
        assert_eq!(Rollup::parse(b"Pss:  x kB\n"), Rollup::default());
    }

    #[test]
    fn shares_of_this_process() {
        let own = rollup(std::process::id()).expect("running");
        assert!(
            own.pss_bytes > Some(0) && own.pss_bytes <= own.rss_bytes,
            "{own:?}"
        );
        assert!(own.private_dirty_bytes <= own.rss_bytes, "{own:?}");
        assert!(rollup(0).is_none());
    }
}
