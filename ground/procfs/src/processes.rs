//! All processes of one moment, and which of them belong to a tree.
//!
//! ```text
//!   pid ─► its parent ─► … ─┬─ a member ───────────────────────────► belongs
//!                           ├─ a child of the reaper: an orphan ────► as the caller says
//!                           └─ a stranger, process 1, gone, a circle ► does not
//! ```
//!
//! D1  A climb ends: numbers may be given again while `/proc` is read, so that parents form a circle.
//! D2  A child of the reaper is an orphan of the tree, or was never in it: its parents do not tell.
//! D3  What was not read, or was gone, has no parent: it belongs only if the caller knows it.
//!
//! Not here: which processes are members, which orphans are ours (compare's and browser's tree.rs).

use std::collections::HashMap;

use crate::stat::{Stat, stat};

/// The caller's own knowledge of whether a process is a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Membership {
    /// It is a member.
    Inside,
    /// It is none, and nothing below it is one by way of it.
    Outside,
    /// As its parent.
    AsParent,
}

/// The processes of one moment; of some, or of all, what their `stat` says.
pub struct Processes {
    alive: Vec<u32>,
    stats: HashMap<u32, Stat>,
}

impl Processes {
    /// Reads which processes there are, and `stat` of those that are `wanted`; `None` if `/proc` cannot be read. Cost:
    /// one pass over the names, one small file for each that is wanted.
    pub fn read(mut wanted: impl FnMut(u32) -> bool) -> Option<Processes> {
        let mut alive = pids();
        // This process is always among them.
        if alive.is_empty() {
            return None;
        }
        alive.sort_unstable();
        let read = alive.iter().filter(|pid| wanted(**pid));
        let stats = read.filter_map(|pid| Some((*pid, stat(*pid)?))).collect();
        Some(Processes { alive, stats })
    }

    /// Returns whether a process had not been waited for.
    pub fn has(&self, pid: u32) -> bool {
        self.alive.binary_search(&pid).is_ok()
    }

    /// Returns those that were read, in no order.
    pub fn stats(&self) -> impl Iterator<Item = (u32, &Stat)> {
        self.stats.iter().map(|(pid, stat)| (*pid, stat))
    }

    /// Returns whether a process is below a member, or below an orphan that came to `reaper` and `is_ours`. `place`
    /// is asked first, of each process on the way up, with what was read of it.
    pub fn belongs(
        &self,
        pid: u32,
        reaper: u32,
        place: impl Fn(u32, Option<&Stat>) -> Membership,
        is_ours: impl Fn(u32) -> bool,
    ) -> bool {
        let judge = |at: u32| {
            if at <= 1 || at == reaper {
                return Some(false);
            }
            let stat = self.stats.get(&at);
            match (place(at, stat), stat) {
                (Membership::Inside, _) => Some(true),
                (Membership::Outside, _) | (_, None) => Some(false),
                (_, Some(stat)) if stat.ppid == reaper => Some(is_ours(at)),
                _ => None,
            }
        };
        let parent = |at| self.stats.get(&at).map(|stat| stat.ppid);
        // One more than were read: the last may be a member that was not.
        climb(pid, self.stats.len() + 1, judge, parent).unwrap_or(false)
    }
}

/// Goes from a process to its parent, and on, until `judge` has an answer. `None` after `most` processes (D1), at one
/// without a parent, and at process 1 and the kernel.
pub fn climb<T>(
    from: u32,
    most: usize,
    mut judge: impl FnMut(u32) -> Option<T>,
    mut parent: impl FnMut(u32) -> Option<u32>,
) -> Option<T> {
    let mut at = from;
    for _ in 0..most {
        if let Some(answer) = judge(at) {
            return Some(answer);
        }
        at = parent(at).filter(|parent| *parent > 1)?;
    }
    None
}

/// Returns the parent of a living process, or of one that was not waited for.
pub fn parent(pid: u32) -> Option<u32> {
    stat(pid).map(|stat| stat.ppid)
}

/// Returns all process ids; empty if `/proc` cannot be read.
pub fn pids() -> Vec<u32> {
    numbers_in("/proc")
}

/// Returns the names in a folder that are numbers.
pub(crate) fn numbers_in(folder: &str) -> Vec<u32> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const REAPER: u32 = 50;

    /// Processes by number and parent.
    fn processes(parents: &[(u32, u32)]) -> Processes {
        let stat = |ppid| Stat {
            ppid,
            ..Stat::default()
        };
        Processes {
            alive: parents.iter().map(|(pid, _)| *pid).collect(),
            stats: parents.iter().map(|(pid, p)| (*pid, stat(*p))).collect(),
        }
    }

    /// Returns the processes of the tree below 60, in which 70 is a stranger; of orphans those above 100.
    fn members(parents: &[(u32, u32)]) -> Vec<u32> {
        let now = processes(parents);
        let place = |pid, _: Option<&Stat>| match pid {
            60 => Membership::Inside,
            70 => Membership::Outside,
            _ => Membership::AsParent,
        };
        let belongs = |pid: &u32| now.belongs(*pid, REAPER, place, |orphan| orphan > 100);
        let mut members: Vec<u32> = now.stats().map(|(pid, _)| pid).filter(belongs).collect();
        members.sort_unstable();
        members
    }

    #[test]
    fn below_the_root_or_an_orphan_of_ours() {
        let tree = [(50, 1), (60, 50), (61, 60), (62, 61), (70, 60), (71, 70)];
        assert_eq!(members(&tree), [60, 61, 62]);
        let orphans = [(50, 1), (80, 50), (81, 80), (180, 50), (181, 180)];
        assert_eq!(members(&orphans), [180, 181]);
        // The member itself was not read: what is below it belongs all the same.
        assert_eq!(members(&[(61, 60), (62, 61)]), [61, 62]);
        // Threads of the kernel, children of the first process, one whose parent is gone.
        assert!(members(&[(1, 0), (2, 0), (3, 2), (4, 1), (6, 5)]).is_empty());
    }

    #[test]
    fn in_a_container_the_reaper_may_be_the_first_process() {
        let now = processes(&[(1, 0), (180, 1), (181, 180)]);
        let belongs =
            |pid| now.belongs(pid, 1, |_, _| Membership::AsParent, |orphan| orphan == 180);
        assert!(belongs(180) && belongs(181) && !belongs(1));
    }

    #[test]
    fn a_circle_of_parents_ends() {
        assert!(members(&[(90, 91), (91, 92), (92, 90), (93, 93)]).is_empty());
        let mut steps = 0;
        let judge = |_| {
            steps += 1;
            None::<()>
        };
        assert_eq!(climb(90, 64, judge, |_| Some(90)), None);
        assert_eq!(steps, 64);
    }

    #[test]
    fn a_chain_as_long_as_there_are_processes() {
        let chain: Vec<(u32, u32)> = (61..1061).map(|pid| (pid, pid - 1)).collect();
        let chain: Vec<_> = chain.into_iter().filter(|(pid, _)| *pid != 70).collect();
        assert_eq!(members(&chain[..9]).len(), 9);
        // 70 is not there: 71 has no parent.
        assert_eq!(members(&chain).len(), 9);
        let now = processes(&chain);
        let place = |pid, _: Option<&Stat>| match pid {
            70 => Membership::Inside,
            _ => Membership::AsParent,
        };
        assert!(now.belongs(1060, REAPER, place, |_| false));
    }
}
