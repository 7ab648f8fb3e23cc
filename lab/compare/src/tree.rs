//! A process and all that it starts: its members, what they hold, what they used.
//!
//! ```text
//!   /proc (who is new, whose child?) ─► known processes ─► smaps_rollup of each ─► anonymous + shared memory, summed
//!         every 4th sample                                   │ too slow for this heap?
//!                                                            └─► status of each (cheaper; some pages inexact)
//! ```
//!
//! T1  A page that several processes of the tree hold counts once: in a tree with more than one process the
//!     proportional size (PSS) is summed. File pages (code, mapped data) do not count.
//! T2  Skinflint is the reaper of what the program orphans (`PR_SET_CHILD_SUBREAPER`): it stays in the tree, and its
//!     CPU time is counted.
//! T3  Only processes of the tree are signalled, by process id, while they have not been waited for or were just
//!     seen.
//! T4  A child of `vfork` has its parent's memory until it calls `exec`: it is not counted before (`kcmp` tells).
//! T5  Anything may vanish between two looks; then there is less to add up.
//! T6  A process that ends while the sizes are read leaves its part of shared pages to those that are read after it,
//!     so that pages would count twice: then all are read again.
//!
//! Not here: when to look (run.rs); what `/proc` says, and the climb from a process to a member (skinflint-procfs).

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use skinflint_procfs::maps::maps_text;
use skinflint_procfs::process::link;
use skinflint_procfs::stat::ticks;
use skinflint_procfs::status::memory;
use skinflint_procfs::{Membership, Memory, Processes, Rollup, Stat, rollup, stat};

/// The memory that the processes of a tree hold at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Anonymous and shared-memory pages, bytes.
    pub rss_bytes: u64,
    /// Swapped out, bytes.
    pub swap_bytes: u64,
    /// The kernel's high-water mark minus the file pages, for a tree of one process.
    pub high_water_bytes: Option<u64>,
    /// Number of processes that hold anything.
    pub processes: u32,
    /// The largest number of bytes that one process holds, and that process.
    pub largest: Option<(u64, u32)>,
}

impl Held {
    fn add(&mut self, pid: u32, rss_bytes: u64, swap_bytes: u64) {
        self.rss_bytes += rss_bytes;
        self.swap_bytes += swap_bytes;
        if rss_bytes > 0 {
            self.processes += 1;
            self.largest = self.largest.max(Some((rss_bytes, pid)));
        }
    }
}

/// The processes of a tree.
pub struct Tree {
    root: u32,
    own: u32,
    members: Vec<u32>,
    /// Members that may still share their parent's memory, with that parent (T4).
    unsettled: HashMap<u32, u32>,
    strangers: HashSet<u32>,
    /// The cost of the last look at `smaps_rollup` of all members.
    exact_cost: Duration,
    /// Looks since the last exact one, while exact ones are too slow.
    skipped: u32,
}

/// An exact look may take one part in this many of the interval.
const EXACT_SHARE: u32 = 10;

impl Tree {
    /// Creates the tree of a process that this one started.
    pub fn new(root: u32) -> Tree {
        Tree {
            root,
            own: std::process::id(),
            members: vec![root],
            unsettled: HashMap::new(),
            strangers: HashSet::new(),
            exact_cost: Duration::ZERO,
            skipped: 0,
        }
    }

    /// Returns the processes that were seen and may still live.
    pub fn members(&self) -> &[u32] {
        &self.members
    }

    /// Forgets the first process, which has been waited for: its process id may belong to another process from now
    /// on.
    pub fn forget_root(&mut self) {
        let root = self.root;
        self.members.retain(|pid| *pid != root);
        self.root = 0;
    }

    /// Looks for new members. Cost: one pass over the names in `/proc`, one small file for each new process.
    pub fn look(&mut self) {
        let is_new = |pid| !self.strangers.contains(&pid) && !self.members.contains(&pid);
        let Some(now) = Processes::read(is_new) else {
            return;
        };
        let root = self.root;
        self.members.retain(|pid| now.has(*pid) || *pid == root);
        self.unsettled.retain(|pid, _| now.has(*pid));
        self.strangers.retain(|pid| now.has(*pid));
        let place = |pid, _: Option<&Stat>| match self.members.contains(&pid) {
            true => Membership::Inside,
            false => Membership::AsParent,
        };
        // All orphans are ours (T2); of the first process of a container, which gets all, none.
        let belongs = |pid| now.belongs(pid, self.own, place, |_| self.own > 1);
        let (mut born, strange): (Vec<_>, Vec<_>) = now.stats().partition(|(pid, _)| belongs(*pid));
        // Parents before their children.
        born.sort_unstable_by_key(|(pid, stat)| (stat.started_ticks, *pid));
        for (pid, stat) in born {
            self.members.push(pid);
            self.unsettled.insert(pid, stat.ppid);
        }
        self.strangers
            .extend(strange.into_iter().map(|(pid, _)| pid));
    }

    /// Measures the members. `interval` is the time between looks, of which an exact one may take a tenth.
    pub fn held(&mut self, interval: Duration) -> Held {
        let dear = self.exact_cost > interval / EXACT_SHARE;
        // Now and then an expensive look is worth its cost: the heap may have shrunk.
        if dear && self.members.len() == 1 && self.skipped < 50 {
            self.skipped += 1;
            return self.held_by_status();
        }
        self.skipped = 0;
        self.unsettled
            .retain(|child, parent| share_memory(*child, *parent));
        let begun = Instant::now();
        let held = self.held_exactly();
        self.exact_cost = begun.elapsed();
        held
    }

    fn held_exactly(&self) -> Held {
        let settled = |pid: &&u32| !self.unsettled.contains_key(*pid);
        let members: Vec<u32> = self.members.iter().filter(settled).copied().collect();
        let sizes = |pid| Sizes::of(&rollup(pid)?);
        let mut held = held_together(&members, sizes, |pid| memory(pid).is_some());
        if let [pid] = self.members[..] {
            held.high_water_bytes = memory(pid).and_then(|memory| high_water(&memory));
        }
        held
    }

    fn held_by_status(&self) -> Held {
        let mut held = Held::default();
        for pid in &self.members {
            let Some(memory) = memory(*pid) else { continue };
            held.add(*pid, held_bytes(&memory), memory.swap_bytes);
            held.high_water_bytes = high_water(&memory);
        }
        held
    }

    /// Returns what members with a library hold, and what the largest without it holds: bytes, and its program. Cost:
    /// two files for each member.
    pub fn with_and_without(&self, library: &str) -> (u64, Option<(u64, String)>) {
        let (mut with, mut without) = (0, None);
        for pid in &self.members {
            let Some(maps) = maps_text(*pid) else {
                continue;
            };
            if self.unsettled.contains_key(pid) || is_beginning(&maps) {
                continue;
            }
            let bytes = memory(*pid).map_or(0, |memory| held_bytes(&memory));
            if maps.contains(library) {
                with += bytes;
            } else if without.as_ref().is_none_or(|(most, _)| bytes > *most) {
                without = Some((bytes, link(*pid, "exe")));
            }
        }
        (with, without)
    }

    /// Returns the CPU time of the living members and of the children that they waited for, in steps of 10 ms.
    pub fn cpu(&self) -> Duration {
        let stats = self.members.iter().filter_map(|pid| stat(*pid));
        stats
            .map(|stat| ticks(stat.own_ticks() + stat.waited_ticks))
            .sum()
    }

    /// Reports whether a process is a member that still has memory.
    pub fn is_alive(&self, pid: u32) -> bool {
        self.members.contains(&pid) && memory(pid).is_some()
    }

    /// Signals all members (T3).
    pub fn signal(&self, signal: i32) {
        for pid in &self.members {
            let ours = *pid == self.root
                || stat(*pid)
                    .is_some_and(|stat| stat.ppid == self.own || self.members.contains(&stat.ppid));
            if ours && *pid > 1 && *pid != std::process::id() {
                // SAFETY: no memory is involved; the process was a member a moment ago.
                unsafe { libc::kill(*pid as i32, signal) };
            }
        }
    }
}

/// The parts of what one process holds.
#[derive(Clone, Copy)]
struct Sizes {
    rss_bytes: u64,
    swap_bytes: u64,
}

impl Sizes {
    /// Takes what counts of a process's shares (T1). PSS is in whole KiB for each kind; in a tree of one process
    /// nothing is shared and it is the RSS.
    fn of(rollup: &Rollup) -> Option<Sizes> {
        let anon = rollup.pss_anon_bytes.or(rollup.anonymous_bytes)?;
        Some(Sizes {
            rss_bytes: anon + rollup.pss_shmem_bytes.unwrap_or(0),
            swap_bytes: rollup.swap_pss_bytes.unwrap_or(0),
        })
    }
}

/// The most looks at a tree that changes meanwhile.
const MOST_LOOKS: u32 = 4;

/// Returns the sum over members at one moment (T6): the first look during which none of them ended, or the least of
/// [`MOST_LOOKS`].
fn held_together(
    members: &[u32],
    mut read: impl FnMut(u32) -> Option<Sizes>,
    mut lives: impl FnMut(u32) -> bool,
) -> Held {
    let mut least: Option<Held> = None;
    for _ in 0..MOST_LOOKS {
        let there: Vec<u32> = members.iter().copied().filter(|pid| lives(*pid)).collect();
        let mut held = Held::default();
        for pid in &there {
            if let Some(sizes) = read(*pid) {
                held.add(*pid, sizes.rss_bytes, sizes.swap_bytes);
            }
        }
        let torn = !there.into_iter().all(&mut lives);
        if !torn {
            return held;
        }
        if least.is_none_or(|least| held.rss_bytes < least.rss_bytes) {
            least = Some(held);
        }
    }
    least.unwrap_or_default()
}

/// Reports whether two processes have the same memory, not copies of it; false if the kernel does not tell.
fn share_memory(one: u32, other: u32) -> bool {
    const KCMP_VM: i32 = 1;
    // SAFETY: numbers only.
    unsafe { libc::syscall(libc::SYS_kcmp, one as i32, other as i32, KCMP_VM, 0, 0) == 0 }
}

/// Reports whether a process is between exec and the end of the loader's work, when no process has libraries, or has
/// ended. The loader maps preloads before the C library: with the C library and without the preloads, it was not
/// given them. The number of mappings tells nothing: the kernel makes more than a dozen before the loader runs.
fn is_beginning(maps: &str) -> bool {
    let is_mapped = |beginning: &str| {
        let files = maps.lines().filter_map(|line| line.rsplit_once('/'));
        files
            .into_iter()
            .any(|(_, file)| file.starts_with(beginning))
    };
    let has_libc = is_mapped("libc.so") || is_mapped("libc-2.");
    let few = !maps.contains("[heap]") && maps.lines().count() < 12;
    maps.is_empty() || (!has_libc && (few || is_mapped("ld-linux") || is_mapped("ld-2.")))
}

/// Returns what counts of a process's resident memory: all but file pages (T1).
fn held_bytes(memory: &Memory) -> u64 {
    memory.anon_bytes.saturating_add(memory.shmem_bytes)
}

/// Returns the kernel's high-water mark without the file pages of now.
fn high_water(memory: &Memory) -> Option<u64> {
    let high = memory.high_water_bytes?;
    Some(high.saturating_sub(memory.file_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn file_pages_do_not_count() {
        let memory = Memory {
            anon_bytes: 40 << 10,
            file_bytes: 20 << 10,
            shmem_bytes: 4 << 10,
            swap_bytes: 1 << 10,
            high_water_bytes: Some(100 << 10),
        };
        assert_eq!(held_bytes(&memory), 44 << 10);
        assert_eq!(high_water(&memory), Some(80 << 10));
        let before_5_9 = b"Rss: 9 kB\nPss: 8 kB\nAnonymous: 7 kB\nSwapPss: 2 kB\n";
        let sizes =
            |text: &[u8]| Sizes::of(&Rollup::parse(text)).map(|s| (s.rss_bytes, s.swap_bytes));
        assert_eq!(sizes(before_5_9), Some((7 << 10, 2 << 10)));
        let now = b"Pss_Anon: 5 kB\nPss_File: 9 kB\nPss_Shmem: 1 kB\nAnonymous: 7 kB\n";
        assert_eq!(sizes(now), Some((6 << 10, 0)));
        assert_eq!(sizes(b"Pss: 8 kB\n"), None);
    }

    /// Measures three that share 12 KiB and have 1 KiB each; the second ends once some sizes have been read.
    fn three_of_which_one_ends(after: usize) -> u64 {
        let reads = std::cell::Cell::new(0);
        let ended = |reads: usize| reads > after;
        let read = |pid| {
            reads.set(reads.get() + 1);
            let (gone, sharers) = match ended(reads.get()) {
                true => (pid == 2, 2),
                false => (false, 3),
            };
            (!gone).then_some(Sizes {
                rss_bytes: (1 << 10) + (12 << 10) / sharers,
                swap_bytes: 0,
            })
        };
        let lives = |pid| !(pid == 2 && ended(reads.get()));
        held_together(&[1, 2, 3], read, lives).rss_bytes
    }

    #[test]
    fn shared_pages_count_once_though_one_ends_between_two_reads() {
        assert_eq!(three_of_which_one_ends(9), 15 << 10, "after the look");
        for after in 0..3 {
            let held = three_of_which_one_ends(after);
            assert_eq!(held, 14 << 10, "after {after} reads");
        }
    }

    #[test]
    fn of_looks_that_are_all_torn_the_least_counts() {
        let sizes = std::cell::RefCell::new(vec![9, 4, 6, 5, 8, 7, 3, 3]);
        let read = |_| {
            Some(Sizes {
                rss_bytes: sizes.borrow_mut().pop()?,
                swap_bytes: 0,
            })
        };
        // Both are there before each look, and the first is gone after it.
        let mut asked = 0;
        let lives = |_| {
            asked += 1;
            asked % 3 != 0
        };
        // Looks of 3 + 3, 7 + 8, 5 + 6 and 4 + 9.
        assert_eq!(held_together(&[1, 2], read, lives).rss_bytes, 6);
    }

    #[test]
    fn who_is_still_being_loaded_lacks_no_preload() {
        let program = "55d0-55d1 r--p 00000000 00:1f 7 /w/app\n".repeat(5);
        let loader = "7f10-7f11 r--p 00000000 00:1f 8 /lib64/ld-linux-x86-64.so.2\n".repeat(5);
        let libc = "7f00-7f01 r--p 00000000 00:1f 9 /lib/libc.so.6\n";
        let kernel = "7ff0-7ff1 rw-p 0 00:00 0 [stack]\n7ff1-7ff2 r--p 0 00:00 0 [vvar]\n\
                      7ff2-7ff3 r-xp 0 00:00 0 [vdso]\n";
        let heap = "6000-6001 rw-p 0 00:00 0 [heap]\n";
        assert!(is_beginning(""));
        assert!(is_beginning(&format!("{program}{kernel}")));
        assert!(is_beginning(&format!("{program}{loader}{kernel}")));
        assert!(is_beginning(&format!("{program}{heap}{loader}{kernel}")));
        // These were started with an environment of their own, or are statically linked.
        assert!(!is_beginning(&format!("{program}{libc}{loader}{kernel}")));
        assert!(!is_beginning(&format!("{program}{heap}{kernel}")));
    }

    #[test]
    fn a_thread_group_shares_memory_with_itself_and_not_with_a_child() {
        let _alone = crate::alone();
        let own = std::process::id();
        let mut child = Command::new("sleep").arg("30").spawn().expect("sleep");
        assert!(share_memory(own, own));
        assert!(!share_memory(own, child.id()));
        child.kill().expect("ours");
        child.wait().expect("ended");
    }

    #[test]
    fn grandchildren_belong_and_strangers_do_not() {
        let _alone = crate::alone();
        let mut child = Command::new("sh")
            .args(["-c", "sleep 30 & echo; wait"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut stranger = Command::new("sleep").arg("30").spawn().expect("sleep");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("piped");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line)
            .expect("its line");
        let mut tree = Tree::new(child.id());
        // This acts as if this process were another one: its other child is no orphan of the tree.
        tree.own = u32::MAX;
        tree.look();
        assert_eq!(tree.members().len(), 2, "{:?}", tree.members());
        assert!(!tree.members().contains(&stranger.id()));
        let held = tree.held(Duration::from_millis(10));
        assert_eq!(held.processes, 2);
        assert!(held.rss_bytes > 0 && held.high_water_bytes.is_none());
        tree.signal(libc::SIGKILL);
        child.wait().expect("ended");
        stranger.kill().expect("ours");
        stranger.wait().expect("ended");
    }
}
