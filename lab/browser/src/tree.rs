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
//! Not here: when to measure (sampler.rs), ending the processes (family.rs).

use std::collections::{HashMap, HashSet};
use std::fs;

use serde::{Deserialize, Serialize};

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

/// Fields of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stat {
    /// Parent.
    pub parent: u32,
    /// The state; `Z` and `X` are dead.
    pub state: u8,
    user_ticks: u64,
    system_ticks: u64,
    threads: u32,
    /// The start since boot, in ticks: together with the process id it names a process for ever.
    pub started: u64,
    rss_pages: u64,
}

/// A clock tick is 10 ms on every Linux that we build for (`USER_HZ`).
const TICK_MS: u64 = 10;
const PAGE: u64 = 4096;

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
        let mut stats: HashMap<u32, Stat> = HashMap::new();
        for pid in numbers() {
            if let Some(stat) = stat(pid).filter(|stat| !matches!(stat.state, b'Z' | b'X')) {
                stats.insert(pid, stat);
            }
        }
        let mut members: Vec<(u32, Stat)> = stats
            .iter()
            .filter(|(pid, _)| self.belongs(**pid, &stats))
            .map(|(pid, stat)| (*pid, *stat))
            .collect();
        members.sort_by_key(|(pid, _)| (*pid != self.root, *pid));
        self.seen = members
            .iter()
            .map(|(pid, stat)| (*pid, stat.started))
            .collect();
        members
    }

    fn belongs(&self, pid: u32, stats: &HashMap<u32, Stat>) -> bool {
        let mut at = pid;
        // A chain of parents has at most as many links as there are processes.
        for _ in 0..stats.len() {
            if self.strangers.contains(&at) || at <= 1 || at == self.own {
                return false;
            }
            let Some(stat) = stats.get(&at) else {
                return false;
            };
            if at == self.root || self.seen.contains(&(at, stat.started)) {
                return true;
            }
            if stat.parent == self.own {
                return has_environment(at, &self.mark);
            }
            at = stat.parent;
        }
        false
    }

    /// Measures the members. `exact` reads `smaps_rollup`; what could not be read exactly has no `pss`.
    pub fn look(&mut self, exact: bool) -> Vec<Held> {
        let members = self.members();
        let known: HashSet<(u32, u64)> = members.iter().map(|(pid, s)| (*pid, s.started)).collect();
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
            self.role(pid, stat.started)
        };
        let mut held = Held {
            pid,
            role,
            rss: stat.rss_pages * PAGE,
            threads: stat.threads,
            user_ms: stat.user_ticks * TICK_MS,
            system_ms: stat.system_ticks * TICK_MS,
            ..Held::default()
        };
        if exact && let Ok(text) = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")) {
            let at = |key| field(&text, key);
            held.rss = at("Rss:").unwrap_or(held.rss);
            held.pss = at("Pss:");
            held.uss = at("Private_Clean:")
                .zip(at("Private_Dirty:"))
                .map(|(c, d)| c + d);
            held.swap = at("SwapPss:").unwrap_or(0);
        }
        held
    }

    /// Returns a role, which is read once; `zygote` is read again, since a child of a zygote has no role of its own
    /// at first.
    fn role(&mut self, pid: u32, started: u64) -> String {
        if let Some(role) = self.roles.get(&(pid, started)) {
            return role.clone();
        }
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let role = role_of(&command, name.trim());
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

/// Returns all process ids of the machine.
fn numbers() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Reads `/proc/PID/stat`.
pub fn stat(pid: u32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_stat(text: &str) -> Option<Stat> {
    // The name is in parentheses and may contain anything.
    let rest = text.get(text.rfind(')')? + 1..)?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Stat {
        state: *fields.first()?.as_bytes().first()?,
        parent: number(1)? as u32,
        user_ticks: number(11)?,
        system_ticks: number(12)?,
        threads: number(17)? as u32,
        started: number(19)?,
        rss_pages: number(21)?,
    })
}

/// Returns the bytes of a line that counts KiB.
fn field(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kib = line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?;
    kib.checked_mul(1024)
}

fn has_environment(pid: u32, line: &str) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment
        .split(|byte| *byte == 0)
        .any(|one| one == line.as_bytes())
}

/// Returns the processes whose environment has this line, `NAME=VALUE`; for those that escaped the tree.
pub fn with_environment(line: &str) -> Vec<u32> {
    let own = std::process::id();
    let others = numbers().into_iter().filter(|pid| *pid != own);
    others.filter(|pid| has_environment(*pid, line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    #[test]
    fn the_kernels_texts() {
        let text = "7 (a) b) S 3 1 1 0 -1 4 0 0 0 0 31 11 2 3 20 0 9 0 555 1000 42 18";
        let stat = parse_stat(text).expect("complete");
        assert_eq!(
            (stat.parent, stat.user_ticks, stat.system_ticks),
            (3, 31, 11)
        );
        assert_eq!((stat.threads, stat.started, stat.rss_pages), (9, 555, 42));
        assert_eq!(parse_stat("7 (a"), None);
        assert_eq!(field("Rss:   12 kB\nPss:  3 kB\n", "Pss:"), Some(3072));
        assert_eq!(field("Pss:  x kB\n", "Pss:"), None);
    }

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
        assert!(own.rss_pages * PAGE > 1 << 20, "{own:?}");
        for pid in pids.iter().rev() {
            // SAFETY: no memory is involved; both are ours and were seen just now.
            unsafe { libc::kill(*pid as i32, libc::SIGKILL) };
        }
        root.wait().expect("ended");
        beside.kill().expect("ours");
        beside.wait().expect("ended");
    }
}
