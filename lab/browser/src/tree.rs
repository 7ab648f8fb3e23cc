//! The processes of a browser, and what each holds.
//!
//! ```text
//!   /proc/*/stat ─► parents ─► below the root, or orphans that came to us ─► members
//!                                   │ exact: smaps_rollup (dear: the kernel walks the page tables)
//!                                   └ cheap: stat only (CPU time, threads, RSS)
//! ```
//!
//! T1  A member is below the root, or an orphan that has come to this process, the reaper: one that was seen as a
//!     member before, or that has the run's mark in its environment and is no driver (`strangers`).
//! T2  PSS and USS count a page once, and give each process its share; the sum of RSS over-counts and is labelled so.
//! T3  Only members are signalled, and only while they are seen to be members.
//! T4  Anything may vanish between two looks; then there is less to add up.
//!
//! `compare`'s tree counts only anonymous memory and takes every child as a member; here drivers and a display server
//! run beside, and file pages are part of what a browser costs.
//!
//! Not here: when to measure (sampler.rs), ending the processes (family.rs); what `/proc` says, and the climb from a
//! process to a member (skinflint-procfs).

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};
use skinflint_procfs::process::{command_line, has_environment, thread_name};
use skinflint_procfs::stat::{Stat, ticks};
use skinflint_procfs::{Membership, Processes, os_page_bytes, pids, rollup};

/// The name of the mark.
pub const MARK: &str = "SKINFLINT_TABS";

/// The memory that one process held.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Held {
    /// Its process id.
    pub pid: u32,
    /// Its purpose: `main`, or what the browser says (`renderer`, `tab`, `WebKitWebProcess`).
    pub role: String,
    /// Resident pages, bytes.
    pub rss: u64,
    /// Each page divided by the processes that map it, bytes; absent in a cheap look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pss: Option<u64>,
    /// Pages that no other process maps, bytes; absent in a cheap look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uss: Option<u64>,
    /// Swapped-out memory, proportional, bytes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub swap: u64,
    /// Number of threads.
    pub threads: u32,
    /// User CPU time since its start, ms.
    pub user_ms: u64,
    /// System CPU time since its start, ms.
    pub system_ms: u64,
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// A browser's processes.
pub struct Tree {
    root: u32,
    own: u32,
    mark: String,
    strangers: HashSet<u32>,
    /// Members that were seen, by process id and start.
    seen: HashSet<(u32, u64)>,
    roles: HashMap<(u32, u64), String>,
}

impl Tree {
    /// Creates the tree below `root`, whose environment has the token as its mark; `strangers` have it too and do not
    /// belong.
    pub fn new(root: u32, token: &str, strangers: &[u32]) -> Tree {
        Tree {
            root,
            own: std::process::id(),
            mark: format!("{}={token}", MARK),
            strangers: strangers.iter().copied().collect(),
            seen: HashSet::new(),
            roles: HashMap::new(),
        }
    }

    /// Returns the first process.
    pub fn root(&self) -> u32 {
        self.root
    }

    /// Returns the processes that belong now, the root first. Cost: one small file for each process of the machine.
    pub fn members(&mut self) -> Vec<(u32, Stat)> {
        let mut members: Vec<(u32, Stat)> = Vec::new();
        if let Some(now) = Processes::read(|_| true) {
            let belongs = |pid: u32| {
                let place = |at, stat: Option<&Stat>| self.place(at, stat);
                now.belongs(pid, self.own, place, |at| has_environment(at, &self.mark))
            };
            let of_ours = now.stats().filter(|(pid, _)| belongs(*pid));
            members.extend(of_ours.map(|(pid, stat)| (pid, *stat)));
        }
        members.sort_by_key(|(pid, _)| (*pid != self.root, *pid));
        self.seen = members
            .iter()
            .map(|(pid, stat)| (*pid, stat.started_ticks))
            .collect();
        members
    }

    fn place(&self, pid: u32, stat: Option<&Stat>) -> Membership {
        match stat {
            _ if self.strangers.contains(&pid) => Membership::Outside,
            Some(stat) if stat.is_dead() => Membership::Outside,
            Some(_) if pid == self.root => Membership::Inside,
            Some(stat) if self.seen.contains(&(pid, stat.started_ticks)) => Membership::Inside,
            _ => Membership::AsParent,
        }
    }

    /// Measures the members. `exact` reads `smaps_rollup`; what could not be read exactly has no `pss`.
    pub fn look(&mut self, exact: bool) -> Vec<Held> {
        let members = self.members();
        let known: HashSet<(u32, u64)> = members
            .iter()
            .map(|(pid, s)| (*pid, s.started_ticks))
            .collect();
        self.roles.retain(|key, _| known.contains(key));
        members
            .into_iter()
            .map(|(pid, stat)| self.one(pid, stat, exact))
            .collect()
    }

    fn one(&mut self, pid: u32, stat: Stat, exact: bool) -> Held {
        let role = if pid == self.root {
            "main".to_owned()
        } else {
            self.role(pid, stat.started_ticks)
        };
        let mut held = Held {
            pid,
            role,
            rss: stat.rss_pages * os_page_bytes(),
            threads: stat.threads,
            user_ms: ticks(stat.user_ticks).as_millis() as u64,
            system_ms: ticks(stat.system_ticks).as_millis() as u64,
            ..Held::default()
        };
        if exact && let Some(shares) = rollup(pid) {
            held.rss = shares.rss_bytes.unwrap_or(held.rss);
            held.pss = shares.pss_bytes;
            let private = shares.private_clean_bytes.zip(shares.private_dirty_bytes);
            held.uss = private.map(|(clean, dirty)| clean + dirty);
            held.swap = shares.swap_pss_bytes.unwrap_or(0);
        }
        held
    }

    /// Returns a role, which is read once; `zygote` is read again, since a child of a zygote has no role of its own
    /// at first.
    fn role(&mut self, pid: u32, started: u64) -> String {
        if let Some(role) = self.roles.get(&(pid, started)) {
            return role.clone();
        }
        let name = thread_name(pid, pid).unwrap_or_default();
        let role = role_of(&command_line(pid), name.trim());
        if role != "zygote" {
            self.roles.insert((pid, started), role.clone());
        }
        role
    }
}

/// Returns what a command line says about a process's purpose. Chromium's has `--type=`, Firefox's ends in the kind
/// of process.
fn role_of(command: &[u8], name: &str) -> String {
    let text = String::from_utf8_lossy(command).replace('\0', " ");
    if let Some((_, rest)) = text.split_once("--type=") {
        let role = rest.split(' ').next().unwrap_or("");
        let sub = text
            .split_once("--utility-sub-type=")
            .map(|(_, sub)| sub.split(' ').next());
        return match sub.flatten() {
            Some(sub) => format!("{role}:{sub}"),
            None => role.to_owned(),
        };
    }
    if text.contains("-contentproc") {
        let last = text.split_whitespace().next_back().unwrap_or("content");
        return last.to_owned();
    }
    name.to_owned()
}

/// Returns the processes whose environment has this line, `NAME=VALUE`; for those that escaped the tree.
pub fn with_environment(line: &str) -> Vec<u32> {
    let own = std::process::id();
    let others = pids().into_iter().filter(|pid| *pid != own);
    others.filter(|pid| has_environment(*pid, line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use skinflint_procfs::stat;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    #[test]
    fn roles_by_command_line() {
        assert_eq!(
            role_of(b"chromium\0--type=renderer\0--x", "chromium"),
            "renderer"
        );
        let utility =
            b"chromium --type=utility --utility-sub-type=network.mojom.NetworkService --x";
        assert_eq!(
            role_of(utility, "c"),
            "utility:network.mojom.NetworkService"
        );
        assert_eq!(
            role_of(b"firefox\0-contentproc\0-x\x0012\0tab\0", "Web Content"),
            "tab"
        );
        assert_eq!(role_of(b"", "WebKitWebProces"), "WebKitWebProces");
    }

    #[test]
    fn below_the_root_counts_and_beside_it_does_not() {
        let mut root = Command::new("sh")
            .args(["-c", "sleep 60 & echo; wait"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut beside = Command::new("sleep").arg("60").spawn().expect("sleep");
        let mut line = String::new();
        let mut out = BufReader::new(root.stdout.take().expect("piped"));
        out.read_line(&mut line).expect("its line");
        let mut tree = Tree::new(root.id(), "none", &[]);
        let held = tree.look(true);
        let pids: Vec<u32> = held.iter().map(|held| held.pid).collect();
        assert_eq!(held.len(), 2, "{held:?}");
        assert_eq!((held[0].pid, held[0].role.as_str()), (root.id(), "main"));
        assert!(!pids.contains(&beside.id()));
        for one in &held {
            let (pss, uss) = (one.pss.expect("exact"), one.uss.expect("exact"));
            assert!(0 < uss && uss <= pss && pss <= one.rss, "{one:?}");
        }
        // The kernel's quick count lags by some pages for each processor: a shell's may read 0, this program's not.
        assert!(tree.look(false).iter().all(|one| one.pss.is_none()));
        let own = stat(std::process::id()).expect("running");
        assert!(own.rss_pages * os_page_bytes() > 1 << 20, "{own:?}");
        for pid in pids.iter().rev() {
            // SAFETY: no memory is involved; both are ours and were seen just now.
            unsafe { libc::kill(*pid as i32, libc::SIGKILL) };
        }
        root.wait().expect("ended");
        beside.kill().expect("ours");
        beside.wait().expect("ended");
    }
}
