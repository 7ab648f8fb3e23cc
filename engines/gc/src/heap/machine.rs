//! The memory that there is for the process: the machine's, or less where a control group limits it.
//!
//! ```text
//!   /proc/meminfo: MemTotal ──────────────────────────────────────────┐
//!   /proc/self/cgroup ─► own group, and those above it ─► memory.max ─┴─► the least ─► a table of growth
//! ```
//!
//! M1  A file that is missing or says what is not understood limits nothing.
//! M2  Both versions of control groups are looked for where they are usually mounted, `/sys/fs/cgroup`. A group whose
//!     folder is not there (a container shows only its own part) is looked for at the mount itself.
//!
//! Not here: memory that is short at a moment (`timer`: pressure).

use std::fs::read_to_string;
use std::path::Path;

use crate::heap::trigger::Growth;

/// The most groups above the own one that are asked.
const DEEP: usize = 32;

/// Limits from here on are none (version 1 writes the largest multiple of a page).
const UNLIMITED: u64 = 1 << 60;

const MIB: usize = 1 << 20;

/// Tables by the memory that there is, each below so many bytes.
const BY_MEMORY: [(u64, Growth); 4] = [
    (
        512 << 20,
        Growth {
            floor_bytes: MIB / 4,
            client_floor_bytes: MIB,
            ..Growth::TIGHT
        },
    ),
    (2 << 30, Growth::TIGHT),
    (8 << 30, Growth::TENANT),
    (
        u64::MAX,
        Growth {
            floor_bytes: 4 * MIB,
            client_floor_bytes: 16 * MIB,
            ..Growth::TENANT
        },
    ),
];

impl Growth {
    /// Returns the table for a machine, or a control group, with so many bytes of memory: [`TIGHT`](Growth::TIGHT) below
    /// two gibibytes, with smaller floors below half of one; [`TENANT`](Growth::TENANT) above, with floors four times
    /// as high from eight gibibytes on.
    pub fn for_memory(bytes: u64) -> Growth {
        let found = BY_MEMORY.iter().find(|(below, _)| bytes < *below);
        found.map_or(BY_MEMORY[BY_MEMORY.len() - 1].1, |(_, growth)| *growth)
    }

    /// Returns the table for the memory that the process may use: the machine's, or the least limit of its control
    /// groups. Where nothing says how much that is, [`TENANT`](Growth::TENANT). Cost: a few files are read.
    pub fn of_machine() -> Growth {
        memory_bytes().map_or(Growth::TENANT, Growth::for_memory)
    }
}

/// Returns the bytes of memory that the process may use; `None`: nothing says so.
fn memory_bytes() -> Option<u64> {
    let text = |path| read_to_string(path).unwrap_or_default();
    let machine = total(&text("/proc/meminfo"));
    let group = limit(&text("/proc/self/cgroup"), Path::new("/sys/fs/cgroup"));
    machine.into_iter().chain(group).min()
}

/// Returns the total of `/proc/meminfo`, in bytes.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Returns the least limit of the groups that `/proc/self/cgroup` names, and of those above them.
fn limit(cgroup: &str, mount: &Path) -> Option<u64> {
    let limits = cgroup.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, group) = (parts.next()?, parts.next()?);
        if controllers.is_empty() {
            return least(mount, group, "memory.max");
        }
        let first = controllers.split(',').any(|one| one == "memory");
        first
            .then(|| least(&mount.join("memory"), group, "memory.limit_in_bytes"))
            .flatten()
    });
    limits.min()
}

fn least(mount: &Path, group: &str, file: &str) -> Option<u64> {
    let own = mount.join(group.trim_start_matches('/'));
    let own = if own.is_dir() { own } else { mount.to_owned() };
    own.ancestors()
        .take_while(|folder| folder.starts_with(mount))
        .take(DEEP)
        .filter_map(|folder| read_to_string(folder.join(file)).ok())
        // "max" is no number, which is right.
        .filter_map(|text| text.trim().parse().ok())
        .filter(|bytes| *bytes < UNLIMITED)
        .min()
}

#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use super::*;

    #[test]
    fn the_machines_memory_is_a_line() {
        let text = "MemFree:  1 kB\nMemTotal:       16384 kB\nSwapTotal: 7 kB\n";
        assert_eq!(total(text), Some(16 << 20));
        for text in [
            "",
            "MemTotal: many kB",
            "MemTotal: 5",
            "MemTotal: 99999999999999999999 kB",
        ] {
            assert_eq!(total(text), None, "{text}");
        }
    }

    #[test]
    fn the_least_limit_from_the_own_group_up_counts() {
        let name = format!("skinflint-gc-machine-{}", std::process::id());
        let mount = std::env::temp_dir().join(name);
        let write = |path: &str, text: &str| {
            let path = mount.join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, text).expect("written");
        };
        write("a/b/memory.max", "max\n");
        write("a/memory.max", "300\n");
        write("memory.max", "400\n");
        write("memory/c/memory.limit_in_bytes", "9223372036854771712\n");
        write("memory/memory.limit_in_bytes", "500\n");
        let of = |text: &str| limit(text, &mount);
        assert_eq!(of("0::/a/b\n"), Some(300));
        assert_eq!(of("0::/\n"), Some(400));
        assert_eq!(of("0::/not/shown/here\n"), Some(400), "M2");
        assert_eq!(of("4:cpu,memory:/c\n0::/a\n"), Some(300));
        assert_eq!(of("4:cpu,memory:/c\n"), Some(500));
        assert_eq!(of("4:cpu:/c\nnonsense\n"), None);
        std::fs::remove_dir_all(&mount).expect("removed");
    }

    #[test]
    fn less_memory_means_less_room() {
        let at = |bytes: u64| {
            let table = Growth::for_memory(bytes);
            (table.floor_bytes, table.factor, table.client_floor_bytes)
        };
        assert_eq!(at(0), (MIB / 4, 1.15, MIB));
        assert_eq!(at((512 << 20) - 1), at(0));
        assert_eq!(at(512 << 20), (MIB, 1.15, 4 * MIB));
        assert_eq!(at((2 << 30) - 1), at(512 << 20));
        assert_eq!(at(2 << 30), (MIB, 1.45, 4 * MIB));
        assert_eq!(at((8 << 30) - 1), at(2 << 30));
        assert_eq!(at(8 << 30), (4 * MIB, 1.45, 16 * MIB));
        assert_eq!(at(u64::MAX), at(8 << 30));
        let limits = BY_MEMORY.map(|(below, _)| below);
        assert!(limits.is_sorted());
    }

    #[test]
    fn there_is_memory_here() {
        assert!(memory_bytes().is_some_and(|bytes| bytes > 16 << 20));
    }
}
