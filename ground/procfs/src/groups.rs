//! The memory of control groups, both versions: where a group is, what the kernel charges to it, which processes are in it.
//!
//! ```text
//!   /proc/PID/cgroup + mountinfo ─► Group ─┬─ first version:  memory.usage_in_bytes, memory.stat (total_…) ─┐
//!   a folder, or `/name` ──────────────────┴─ second version: memory.current, memory.stat ──────────────────┴─► Figures
//! ```
//!
//! R1  All figures include sub-groups, as the kernel's limit does: of the first version the `total_` lines are read.
//! R2  What a version does not tell is `None`, or no part; it is never 0.
//! R3  The kernel's `file` counts shared memory and the swap cache as well. Here the file cache is without both: shared
//!     memory has a row of its own, and a page of the swap cache that is mapped is counted as anonymous already.
//! R4  The top of a hierarchy has no charge of its own: its usage is the sum of its statistics, and `is_top` says so.
//!
//! Not here: whose the anonymous memory is, and what is left over (reporters' group.rs).

use std::fs;
use std::path::{Path, PathBuf};

/// A limit of this size or more means "no limit": the first version writes the largest number of pages.
const UNLIMITED: u64 = 1 << 60;
/// The most levels of sub-groups, and the most sub-groups, that are looked at.
const DEEP: usize = 32;
const MANY: usize = 10_000;

/// The version of control groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// `memory.usage_in_bytes` …
    First,
    /// `memory.current` …
    Second,
}

/// A control group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// Its version.
    pub version: Version,
    /// Its folder.
    pub folder: PathBuf,
    /// The top of its hierarchy, as far as it is mounted here.
    pub top: PathBuf,
}

/// A part of the kernel's own memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KernelPart {
    /// What it is.
    pub name: &'static str,
    /// The bytes.
    pub bytes: u64,
}

/// Pressure: the part of the time that tasks stood still for want of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stall {
    /// Over 10, 60 and 300 seconds, in hundredths of a percent.
    pub percent_hundredths: [u64; 3],
    /// Since the group was made.
    pub total_us: u64,
}

/// What the kernel says of a group's memory, sub-groups included (R1).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    /// Whether it is the top of the hierarchy (R4).
    pub is_top: bool,
    /// Whether the usage has the kernel's memory in it: not at the top of the first version.
    pub has_kernel: bool,
    /// Whether the usage has sockets' buffers in it: in the second version.
    pub has_sockets: bool,
    /// All that is charged.
    pub usage_bytes: u64,
    /// The most that was charged at a time.
    pub peak_bytes: Option<u64>,
    /// Anonymous pages that are mapped.
    pub anonymous_bytes: u64,
    /// Pages of files, without shared memory and the swap cache (R3).
    pub file_bytes: u64,
    /// Those of them on the list of pages that are in use.
    pub active_file_bytes: u64,
    /// Those of them that reclaim takes first.
    pub inactive_file_bytes: u64,
    /// Pages of files and of shared memory that some process maps.
    pub mapped_bytes: u64,
    /// Shared memory and tmpfs.
    pub shared_bytes: u64,
    /// Anonymous and shared pages that also have a place in swap.
    pub swap_cached_bytes: Option<u64>,
    /// The kernel's own memory for the group.
    pub kernel_bytes: Option<u64>,
    /// Its parts, as far as the version tells them.
    pub kernel_parts: Vec<KernelPart>,
    /// Buffers of sockets. The first version counts them beside the usage, and only TCP's.
    pub socket_bytes: Option<u64>,
    /// Huge pages of hugetlbfs, where they are charged as memory.
    pub huge_bytes: Option<u64>,
    /// Swapped out.
    pub swap_bytes: Option<u64>,
    /// The least limit of the group and those above it.
    pub limit_bytes: Option<u64>,
    /// The least `memory.high` of them: beyond it the group is slowed down.
    pub high_bytes: Option<u64>,
    /// The least limit of swap (second version) or of memory and swap together (first).
    pub swap_limit_bytes: Option<u64>,
    /// Processes killed for want of memory.
    pub kills: Option<u64>,
    /// How often the limit was met.
    pub limit_met: Option<u64>,
    /// Pressure: some task stood still; all did.
    pub stalls: Option<[Stall; 2]>,
}

impl Figures {
    /// Returns the working set as Kubernetes counts it: usage less the file pages that reclaim takes first.
    pub fn working_set_bytes(&self) -> u64 {
        self.usage_bytes.saturating_sub(self.inactive_file_bytes)
    }

    /// Returns the sum of the statistics: usage less this is what the kernel does not divide.
    pub fn explained_bytes(&self) -> u64 {
        let kernel = self.kernel_bytes.filter(|_| self.has_kernel);
        let sockets = self.socket_bytes.filter(|_| self.has_sockets);
        let known = [
            kernel,
            sockets,
            self.huge_bytes,
            Some(self.file_bytes),
            Some(self.shared_bytes),
        ];
        let known = known.into_iter().flatten();
        known.fold(self.anonymous_bytes, u64::saturating_add)
    }
}

/// A line of `mountinfo`: where a hierarchy is mounted, and which part of it.
struct Mount {
    at: PathBuf,
    root: String,
    version: Version,
}

fn mounts(mountinfo: &str) -> Vec<Mount> {
    let one = |line: &str| {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let mut right = right.split(' ');
        let (root, at) = (left.next()?.to_owned(), left.next()?);
        let version = match right.next()? {
            "cgroup2" => Version::Second,
            "cgroup" if right.nth(1)?.split(',').any(|one| one == "memory") => Version::First,
            _ => return None,
        };
        Some(Mount {
            // The kernel writes a blank as \040.
            at: PathBuf::from(at.replace("\\040", " ")),
            root,
            version,
        })
    };
    mountinfo.lines().filter_map(one).collect()
}

impl Mount {
    /// Returns the folder of a group by its name in `/proc/PID/cgroup`, if this mount shows it.
    fn folder(&self, name: &str) -> Option<PathBuf> {
        let rest = match self.root.as_str() {
            "/" => name,
            root => name.strip_prefix(root)?,
        };
        let is_below = rest.is_empty() || rest.starts_with('/');
        (is_below && !rest.split('/').any(|part| part == ".."))
            .then(|| self.at.join(rest.trim_start_matches('/')))
    }
}

fn of_texts(cgroup: &str, mountinfo: &str, tells: impl Fn(&Group) -> bool) -> Option<Group> {
    let mounts = mounts(mountinfo);
    // The first version goes before: where it is mounted, the second does not count memory.
    [Version::First, Version::Second]
        .into_iter()
        .find_map(|version| {
            let name = cgroup.lines().find_map(|line| {
                let mut parts = line.splitn(3, ':').skip(1);
                let (controllers, name) = (parts.next()?, parts.next()?);
                let fits = match version {
                    Version::First => controllers.split(',').any(|one| one == "memory"),
                    Version::Second => controllers.is_empty(),
                };
                fits.then_some(name)
            })?;
            let mut here = mounts.iter().filter(|mount| mount.version == version);
            here.find_map(|mount| {
                let group = Group {
                    version,
                    folder: mount.folder(name)?,
                    top: mount.at.clone(),
                };
                tells(&group).then_some(group)
            })
        })
}

impl Group {
    /// Returns the group that a process's memory is charged to; `None` if it is not shown here.
    pub fn of_process(pid: u32) -> Option<Group> {
        let cgroup = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        of_texts(
            &cgroup,
            &fs::read_to_string("/proc/self/mountinfo").ok()?,
            Group::tells,
        )
    }

    /// Returns the group of a folder, or of a name as in `/proc/PID/cgroup`.
    pub fn named(name: &Path) -> Option<Group> {
        let mounts = mounts(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default());
        if let Some(group) = Group::at(name, &mounts) {
            return Some(group);
        }
        let name = name.to_str()?;
        let folders = mounts.iter().filter_map(|mount| mount.folder(name));
        let mut found = folders.filter_map(|folder| Group::at(&folder, &mounts));
        found.next()
    }

    fn at(folder: &Path, mounts: &[Mount]) -> Option<Group> {
        // Folders are compared by their real names: a relative path, or one through a link, lies below no mount.
        let folder = folder.canonicalize().ok()?;
        let version = match folder.join("memory.usage_in_bytes").exists() {
            true => Version::First,
            false => Version::Second,
        };
        let above = mounts.iter().filter(|mount| folder.starts_with(&mount.at));
        let top = above.max_by_key(|mount| mount.at.as_os_str().len());
        // A copy of a group's files lies below no mount: its name is its path.
        let top = top.map_or_else(|| PathBuf::from("/"), |mount| mount.at.clone());
        let group = Group {
            version,
            folder,
            top,
        };
        group.tells().then_some(group)
    }

    /// Reports whether the group's memory is told.
    fn tells(&self) -> bool {
        self.folder.join("memory.stat").exists()
    }

    /// Returns its name below the top of the hierarchy: `/a/b`.
    pub fn name(&self) -> String {
        let below = self.folder.strip_prefix(&self.top).unwrap_or(&self.folder);
        format!("/{}", below.to_string_lossy().trim_start_matches('/'))
    }

    /// Returns the groups directly below it, by name.
    pub fn kids(&self) -> Vec<Group> {
        let inside = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let folders = inside.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let groups = folders.map(|entry| Group {
            folder: entry.path(),
            ..self.clone()
        });
        let mut kids: Vec<Group> = groups.filter(Group::tells).collect();
        kids.sort_by(|a, b| a.folder.cmp(&b.folder));
        kids
    }

    /// Returns it and all groups below it, those above before those below; at most [`MANY`].
    pub fn whole(&self) -> Vec<Group> {
        let mut all = vec![self.clone()];
        let (mut from, mut deep) = (0, 0);
        while from < all.len() && deep < DEEP {
            let level = from..all.len();
            from = all.len();
            deep += 1;
            for at in level {
                let room = MANY.saturating_sub(all.len());
                let kids = all[at].kids();
                all.extend(kids.into_iter().take(room));
            }
        }
        all
    }

    /// Returns the processes that are in the group itself.
    pub fn pids(&self) -> Vec<u32> {
        let text = fs::read_to_string(self.folder.join("cgroup.procs")).unwrap_or_default();
        let mut pids: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
        pids.retain(|pid| *pid != 0);
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    /// Returns the folders from the group's own up to the top.
    fn upwards(&self) -> impl Iterator<Item = &Path> {
        let all = self.folder.ancestors();
        all.take_while(|folder| folder.starts_with(&self.top))
            .take(DEEP)
    }

    fn least(&self, file: &str) -> Option<u64> {
        // "max" is no number, which is right.
        let limits = self.upwards().filter_map(|folder| number(folder, file));
        limits.filter(|limit| *limit < UNLIMITED).min()
    }

    /// Returns what the kernel says of it; `None` if it is gone. Cost: about ten small files.
    pub fn figures(&self) -> Option<Figures> {
        // The usage is read next to the statistics: what changes in between is not explained.
        let usage = number(
            &self.folder,
            match self.version {
                Version::First => "memory.usage_in_bytes",
                Version::Second => "memory.current",
            },
        );
        let text = fs::read_to_string(self.folder.join("memory.stat")).ok()?;
        let mut figures = match self.version {
            Version::First => self.of_first(&text),
            Version::Second => self.of_second(&text),
        };
        figures.usage_bytes = match usage {
            Some(usage) => usage,
            None => figures.explained_bytes(),
        };
        Some(figures)
    }

    fn of_first(&self, text: &str) -> Figures {
        let stat = |name: &str| line(text, &format!("total_{name}")).or_else(|| line(text, name));
        let folder = self.folder.as_path();
        let some = |name: &str| stat(name).unwrap_or(0);
        let limit = |name: &str| line(text, name).filter(|limit| *limit < UNLIMITED);
        let is_top = folder.join("cgroup.sane_behavior").exists();
        let kills = |group: &Group| line(&read(&group.folder, "memory.oom_control"), "oom_kill");
        Figures {
            is_top,
            has_kernel: !is_top,
            has_sockets: false,
            peak_bytes: number(folder, "memory.max_usage_in_bytes"),
            anonymous_bytes: some("rss"),
            file_bytes: some("cache")
                .saturating_sub(some("shmem"))
                .saturating_sub(some("swapcached")),
            active_file_bytes: some("active_file"),
            inactive_file_bytes: some("inactive_file"),
            mapped_bytes: some("mapped_file"),
            shared_bytes: some("shmem"),
            swap_cached_bytes: stat("swapcached"),
            kernel_bytes: number(folder, "memory.kmem.usage_in_bytes"),
            socket_bytes: number(folder, "memory.kmem.tcp.usage_in_bytes"),
            swap_bytes: stat("swap"),
            limit_bytes: limit("hierarchical_memory_limit"),
            swap_limit_bytes: limit("hierarchical_memsw_limit"),
            // The first version counts a kill in the group alone in which it happened.
            kills: kills(self).map(|own| {
                self.whole()
                    .iter()
                    .skip(1)
                    .filter_map(kills)
                    .fold(own, u64::saturating_add)
            }),
            limit_met: number(folder, "memory.failcnt"),
            ..Figures::default()
        }
    }

    fn of_second(&self, text: &str) -> Figures {
        let some = |name: &str| line(text, name).unwrap_or(0);
        let folder = self.folder.as_path();
        let parts = [
            ("stacks", "kernel_stack"),
            ("page-tables", "pagetables"),
            ("page-tables-of-guests", "sec_pagetables"),
            ("slab-reclaimable", "slab_reclaimable"),
            ("slab-unreclaimable", "slab_unreclaimable"),
            ("per-cpu", "percpu"),
            ("vmalloc", "vmalloc"),
            ("zswap", "zswap"),
        ];
        let parts = parts.into_iter().filter_map(|(name, field)| {
            Some(KernelPart {
                name,
                bytes: line(text, field)?,
            })
        });
        let parts: Vec<KernelPart> = parts.collect();
        let sum = parts
            .iter()
            .fold(0u64, |sum, part| sum.saturating_add(part.bytes));
        let events = read(folder, "memory.events");
        Figures {
            is_top: !folder.join("memory.current").exists(),
            has_kernel: true,
            has_sockets: true,
            peak_bytes: number(folder, "memory.peak"),
            anonymous_bytes: some("anon"),
            file_bytes: some("file")
                .saturating_sub(some("shmem"))
                .saturating_sub(some("swapcached")),
            active_file_bytes: some("active_file"),
            inactive_file_bytes: some("inactive_file"),
            mapped_bytes: some("file_mapped"),
            shared_bytes: some("shmem"),
            swap_cached_bytes: line(text, "swapcached"),
            // Linux before 5.18 has the parts only.
            kernel_bytes: line(text, "kernel").or(Some(sum)),
            kernel_parts: parts,
            socket_bytes: line(text, "sock"),
            huge_bytes: line(text, "hugetlb"),
            swap_bytes: number(folder, "memory.swap.current"),
            limit_bytes: self.least("memory.max"),
            high_bytes: self.least("memory.high"),
            swap_limit_bytes: self.least("memory.swap.max"),
            kills: line(&events, "oom_kill"),
            limit_met: line(&events, "max"),
            stalls: stalls(&read(folder, "memory.pressure")),
            ..Figures::default()
        }
    }
}

fn read(folder: &Path, file: &str) -> String {
    fs::read_to_string(folder.join(file)).unwrap_or_default()
}

fn number(folder: &Path, file: &str) -> Option<u64> {
    read(folder, file).trim().parse().ok()
}

/// Returns the number behind a name, in lines `name number`.
fn line(text: &str, name: &str) -> Option<u64> {
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    value.trim().parse().ok()
}

/// Parses `some avg10=0.29 avg60=0.50 avg300=0.61 total=169853080`, and `full` likewise.
fn stalls(text: &str) -> Option<[Stall; 2]> {
    let of = |kind: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(kind)?.strip_prefix(' '))?;
        let field = |name: &str| {
            line.split(' ')
                .find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
        };
        let percent = |name| {
            // The kernel writes two digits.
            let (whole, part) = field(name)?.split_once('.')?;
            Some(
                whole.parse::<u64>().ok()?.checked_mul(100)?
                    + part.parse::<u64>().ok().filter(|part| *part < 100)?,
            )
        };
        Some(Stall {
            percent_hundredths: [percent("avg10")?, percent("avg60")?, percent("avg300")?],
            total_us: field("total")?.parse().ok()?,
        })
    };
    Some([of("some")?, of("full")?])
}

#[cfg(test)]
#[path = "groups_tests.rs"]
mod tests;
