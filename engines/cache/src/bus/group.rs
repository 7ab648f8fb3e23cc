//! The memory control groups that the process is in, and the room below their limits.
//!
//! ```text
//!   /proc/self/cgroup + mountinfo ─► own folder ─► and those above it ─► the ones with a limit
//!   room = limit − (usage − what reclaim can have: clean file pages)
//! ```
//!
//! C1  Usage counts file pages that the kernel drops by itself. A group at its limit because of them is not short, and
//!     is not called so: they are subtracted, as `memory.stat` counts them.
//! C2  A limit may be any ancestor's: all ancestors are looked at, and the least room counts.
//! C3  Both versions of control groups are supported, and both at once (the memory controller is in one of them,
//!     pressure files in the other).
//! C4  What cannot be read counts as "no limit" and is reported as such, never guessed.
//!
//! Not here: events of these groups (`watch`).

use std::fs;
use std::path::{Path, PathBuf};

use super::level::Level;

/// The version of control groups, which decides the files that a group has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// The first version: `memory.limit_in_bytes` …
    V1,
    /// The second version: `memory.max` …
    V2,
}

/// Limits of this size or more mean "no limit".
const UNLIMITED: u64 = 1 << 46;
/// The most ancestors that are looked at.
const DEEP: usize = 32;

/// The process's groups.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Groups {
    /// The group that counts the process's memory: its version and folder.
    pub memory: Option<(Version, PathBuf)>,
    /// The root of that hierarchy, as far as it is mounted.
    pub root: PathBuf,
    /// The group of the second version, whose pressure file is watched.
    pub unified: Option<PathBuf>,
}

/// The room that a group has below its limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Room {
    /// The group with the limit.
    pub group: PathBuf,
    /// The limit in bytes.
    pub limit: u64,
    /// The bytes that are left, with reclaimable file pages counted as free (C1).
    pub free: u64,
}

impl Room {
    /// Returns the bytes below which room is little: a sixteenth of the limit, 4 MiB at least, half of the limit at
    /// most. The allocator's measure is the same, without the half.
    pub fn margin(&self) -> u64 {
        (self.limit / 16).max(4 << 20).min(self.limit / 2)
    }

    /// Returns how short memory is with this room.
    pub fn level(&self) -> Level {
        let margin = self.margin();
        match self.free {
            free if free < margin / 4 => Level::Critical,
            free if free < margin => Level::High,
            free if free < 2 * margin => Level::Near,
            _ => Level::Calm,
        }
    }

    /// Returns the bytes that would have to come back for the level to be calm for a while.
    pub fn wanted(&self) -> u64 {
        (3 * self.margin()).saturating_sub(self.free)
    }
}

/// A mounted hierarchy: where, which part of it, its type and options.
struct Mount<'a> {
    at: &'a str,
    root: &'a str,
    kind: &'a str,
    options: &'a str,
}

fn mounts(mountinfo: &str) -> impl Iterator<Item = Mount<'_>> {
    mountinfo.lines().filter_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let mut right = right.split(' ');
        Some(Mount {
            root: left.next()?,
            at: left.next()?,
            kind: right.next()?,
            options: right.nth(1)?,
        })
    })
}

/// Returns a group's folder beneath a mount that shows the part of the hierarchy below `root`.
fn folder(mount: &Mount<'_>, group: &str) -> Option<PathBuf> {
    let rest = if mount.root == "/" {
        group
    } else {
        group.strip_prefix(mount.root)?
    };
    Some(Path::new(mount.at).join(rest.trim_start_matches('/')))
}

impl Groups {
    /// Returns the groups of this process.
    pub fn own() -> Groups {
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        Groups::parse(&text("/proc/self/cgroup"), &text("/proc/self/mountinfo"))
    }

    /// Finds the groups from the texts of `/proc/self/cgroup` and `/proc/self/mountinfo`.
    pub fn parse(cgroup: &str, mountinfo: &str) -> Groups {
        let mut groups = Groups::default();
        for line in cgroup.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else {
                continue;
            };
            let first = controllers.split(',').any(|one| one == "memory");
            if !first && !controllers.is_empty() {
                continue;
            }
            let found = mounts(mountinfo).find_map(|mount| {
                let fits = match mount.kind {
                    "cgroup" => first && mount.options.split(',').any(|one| one == "memory"),
                    "cgroup2" => !first,
                    _ => false,
                };
                let folder = folder(&mount, group).filter(|_| fits)?;
                Some((folder, PathBuf::from(mount.at)))
            });
            let Some((folder, root)) = found else {
                continue;
            };
            if first {
                groups.memory = Some((Version::V1, folder));
                groups.root = root;
            } else {
                groups.unified = Some(folder.clone());
                if groups.memory.is_none() {
                    groups.memory = Some((Version::V2, folder));
                    groups.root = root;
                }
            }
        }
        groups
    }

    /// Returns the least room of the process's own group and those above it (C2). `None`: no limit, or none that can be
    /// read.
    pub fn room(&self) -> Option<Room> {
        let (version, folder) = self.memory.as_ref()?;
        folder
            .ancestors()
            .take_while(|dir| dir.starts_with(&self.root))
            .take(DEEP)
            .filter_map(|dir| room_of(*version, dir))
            .min_by_key(|room| room.free)
    }
}

fn number(dir: &Path, name: &str) -> Option<u64> {
    fs::read_to_string(dir.join(name)).ok()?.trim().parse().ok()
}

/// Returns the sum of a file's lines `name number` with these names.
fn sum_of(text: &str, names: &[&str]) -> u64 {
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(name, _)| names.contains(name))
        .filter_map(|(_, value)| value.trim().parse::<u64>().ok())
        .sum()
}

fn room_of(version: Version, dir: &Path) -> Option<Room> {
    let (limit, usage, file): (_, _, &[&str]) = match version {
        Version::V1 => (
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
            &["total_inactive_file", "total_active_file"],
        ),
        Version::V2 => (
            "memory.max",
            "memory.current",
            &["inactive_file", "active_file", "slab_reclaimable"],
        ),
    };
    // "max" is no number, which is right.
    let limit = number(dir, limit).filter(|limit| *limit < UNLIMITED)?;
    let usage = number(dir, usage)?;
    let stat = fs::read_to_string(dir.join("memory.stat")).unwrap_or_default();
    let held = usage.saturating_sub(sum_of(&stat, file));
    Some(Room {
        group: dir.to_owned(),
        limit,
        free: limit.saturating_sub(held),
    })
}

/// Returns the counts of `memory.events` that mean that a limit was met: (high, max, oom and oom_kill).
pub fn events(dir: &Path) -> Option<(u64, u64, u64)> {
    let text = fs::read_to_string(dir.join("memory.events")).ok()?;
    Some((
        sum_of(&text, &["high"]),
        sum_of(&text, &["max"]),
        sum_of(&text, &["oom", "oom_kill"]),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: &str = "\
30 24 0:26 / /sys/fs/cgroup/memory rw,relatime shared:1 - cgroup cgroup rw,memory\n\
31 24 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn the_first_version_goes_before_the_second_where_it_counts_memory() {
        let groups = Groups::parse("9:name=systemd:/\n4:cpu,memory:/a/b\n0::/c\n", BOTH);
        assert_eq!(
            groups.memory,
            Some((Version::V1, "/sys/fs/cgroup/memory/a/b".into()))
        );
        assert_eq!(groups.unified, Some("/sys/fs/cgroup/unified/c".into()));
        let groups = Groups::parse("0::/c\n", BOTH);
        assert_eq!(
            groups.memory,
            Some((Version::V2, "/sys/fs/cgroup/unified/c".into()))
        );
    }

    #[test]
    fn a_container_sees_its_part_of_the_hierarchy() {
        let mountinfo = "31 24 0:27 /docker/7 /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw\n";
        let groups = Groups::parse("0::/docker/7/job\n", mountinfo);
        assert_eq!(groups.unified, Some("/sys/fs/cgroup/job".into()));
        // Outside of what is mounted: nothing is known, and nothing is guessed (C4).
        assert_eq!(Groups::parse("0::/other\n", mountinfo), Groups::default());
        assert_eq!(Groups::parse("nonsense", "more of it"), Groups::default());
    }

    #[test]
    fn file_pages_are_room_and_the_tightest_ancestor_counts() {
        let root = tempfile::tempdir().unwrap();
        let (outer, inner) = (root.path().join("a"), root.path().join("a/b"));
        fs::create_dir_all(&inner).unwrap();
        let write = |dir: &Path, max: &str, current: u64, file: u64| {
            fs::write(dir.join("memory.max"), format!("{max}\n")).unwrap();
            fs::write(dir.join("memory.current"), format!("{current}\n")).unwrap();
            fs::write(
                dir.join("memory.stat"),
                format!("anon 1\ninactive_file {file}\nactive_file 0\n"),
            )
            .unwrap();
        };
        write(&inner, "max", 200 << 20, 0);
        write(&outer, "1073741824", 1 << 30, 900 << 20);
        let groups = Groups {
            memory: Some((Version::V2, inner.clone())),
            root: root.path().to_owned(),
            unified: None,
        };
        let room = groups.room().unwrap();
        assert_eq!((room.group.clone(), room.free >> 20), (outer.clone(), 900));
        assert_eq!(room.level(), Level::Calm);
        write(&outer, "1073741824", 1 << 30, 40 << 20);
        let room = groups.room().unwrap();
        // The margin is 64 MiB. 40 MiB are less than that, and more than a quarter of it.
        assert_eq!((room.level(), room.wanted() >> 20), (Level::High, 152));
        write(&inner, "104857600", 104_857_600, 0);
        let room = groups.room().unwrap();
        assert_eq!((room.group.clone(), room.level()), (inner, Level::Critical));
    }

    #[test]
    fn counts_of_events_are_read_and_a_missing_file_is_none() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(events(dir.path()), None);
        fs::write(
            dir.path().join("memory.events"),
            "low 0\nhigh 3\nmax 4\noom 1\noom_kill 1\n",
        )
        .unwrap();
        assert_eq!(events(dir.path()), Some((3, 4, 2)));
    }
}
