//! A control group's memory as lines of a report: what is charged, by kind and by process, to the byte.
//!
//! ```text
//!   procfs::groups ─► memory/{anonymous, file-cache, shared-memory, kernel, sockets}/…   + not-explained = usage
//!   smaps_rollup of its processes ─► memory/anonymous/NAME (pid N)      + not-explained = what is charged
//!   groups below ─► groups/a/b/{anonymous, …}                           = usage
//!   beside them: working-set, limit, swap, out-of-memory-kills, pressure
//! ```
//!
//! U1  The tree `memory` adds up to the usage, and so does `groups`: what is left over is `not-explained`, with its
//!     sign. The kernel charges in batches and reads its counters one after the other, so a little always is.
//! U2  Anonymous memory is by process by `Pss_Anon`: a page that n processes share counts as one n-th of each. A page
//!     may be charged to another group than its process's (it came in by a fork, the process has moved, or another group
//!     read the file first). Where processes hold more than is charged here, the difference is a row below zero,
//!     `charged-elsewhere`; where they hold less, `not-explained` has it. What is charged to this group and held by none of
//!     its processes and what is charged elsewhere cannot be told apart: only their difference is known.
//! U3  The number of rows has a bound, however many processes and groups there are: the largest are shown, and a row
//!     `(others)` has the sum of the rest.
//! U4  A process that may not be looked at is in `not-explained`; a note counts them.
//! U5  Pressure of the first version is not told: no row, and a note.
//!
//! Not here: the kernel's files (`procfs::groups`), how rows look (`text`).

use anyhow::{Context as _, Result};
use skinflint_procfs::groups::{Figures, Group, Version};
use skinflint_procfs::{Rollup, rollup, status};

use crate::entry::{CHARGED_ELSEWHERE, Entry, Kind, NOT_EXPLAINED, Units, component};
use crate::process::{self, NoFigures};
use crate::store::Store;

/// The most processes that have rows of their own in a tree, and the most groups (U3).
const MOST_PROCESSES: usize = 40;
const MOST_GROUPS: usize = 60;

/// A figure of a group.
type Amount = fn(&Figures) -> u64;

/// A process in the group, and what it maps.
struct Member {
    title: String,
    rollup: Rollup,
}

/// Gathers the lines of a control group, and what the user should know beside them.
///
/// # Errors
/// If it is gone.
pub fn gather(group: &Group) -> Result<(Store, Vec<String>)> {
    let all = group.whole();
    let (members, unseen) = members(&all);
    // After the processes: reading them takes longest, and the usage is to be as of the statistics.
    let figures = group.figures().ok_or(NoFigures::NoGroup);
    let figures = figures.with_context(|| group.folder.display().to_string())?;
    let mut out = Out {
        process: format!("control group {}", group.name()),
        lines: Store::new(),
        notes: Vec::new(),
    };
    out.memory(&figures, &members);
    out.mapped(&figures, &members);
    out.swap(&figures, &members);
    out.groups(group, &figures, &all);
    out.single(&figures, members.len() + unseen);
    out.notes(group.version, &figures, unseen);
    Ok((out.lines, out.notes))
}

/// Returns the processes of these groups that can be read, and the number of those that cannot.
fn members(groups: &[Group]) -> (Vec<Member>, usize) {
    let (mut members, mut unseen) = (Vec::new(), 0);
    for pid in groups.iter().flat_map(Group::pids) {
        match process::title(pid).ok().zip(rollup(pid)) {
            Some((title, rollup)) => members.push(Member { title, rollup }),
            // A thread of the kernel has no memory; nor has a process that has ended, by now.
            None => unseen += usize::from(status::memory(pid).is_some()),
        }
    }
    (members, unseen)
}

/// Returns a difference of two amounts of bytes, with its sign.
fn less(whole: u64, parts: u64) -> i64 {
    let bound = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    bound(whole).saturating_sub(bound(parts))
}

struct Out {
    process: String,
    lines: Store,
    notes: Vec<String>,
}

impl Out {
    fn line(&mut self, path: &str, units: Units, amount: i64, description: &str) {
        // If memory runs out, the line is missing, as in every other report.
        let _ = self.lines.push(&Entry {
            process: &self.process,
            path,
            kind: Kind::Other,
            units,
            amount,
            description,
        });
    }

    fn bytes(&mut self, path: &str, bytes: u64, description: &str) {
        self.line(path, Units::Bytes, less(bytes, 0), description);
    }

    /// Adds what is charged, by kind (U1).
    fn memory(&mut self, figures: &Figures, members: &[Member]) {
        let said = "Anonymous memory by process; of pages that several share, each has its part.";
        self.divided(
            "memory/anonymous",
            figures.anonymous_bytes,
            members,
            said,
            |it| it.pss_anon_bytes,
        );
        let lists = [
            (
                "active",
                figures.active_file_bytes,
                "Pages of files that are in use.",
            ),
            (
                "inactive",
                figures.inactive_file_bytes,
                "Pages of files that reclaim takes first; not in the working set.",
            ),
        ];
        for (name, bytes, said) in lists {
            self.bytes(&format!("memory/file-cache/{name}"), bytes, said);
        }
        let rest = less(
            figures.file_bytes,
            figures
                .active_file_bytes
                .saturating_add(figures.inactive_file_bytes),
        );
        let said = "Pages of files that are on neither list: locked, or on their way to one.";
        self.line("memory/file-cache/other", Units::Bytes, rest, said);
        self.bytes(
            "memory/shared-memory",
            figures.shared_bytes,
            "Shared memory and tmpfs.",
        );
        self.kernel(figures);
        if let Some(bytes) = figures.socket_bytes {
            let (path, said) = match figures.has_sockets {
                true => ("memory/sockets", "Buffers of sockets."),
                false => (
                    "sockets-tcp",
                    "Buffers of TCP, which the first version counts beside the memory.",
                ),
            };
            self.bytes(path, bytes, said);
        }
        if let Some(bytes) = figures.huge_bytes {
            self.bytes("memory/huge-pages", bytes, "Huge pages of hugetlbfs.");
        }
        let said = "What is charged, less what the kernel's statistics divide: it charges in batches for each processor, \
                    and reads its counters one after the other.";
        let rest = less(figures.usage_bytes, figures.explained_bytes());
        self.line(&format!("memory/{NOT_EXPLAINED}"), Units::Bytes, rest, said);
    }

    fn kernel(&mut self, figures: &Figures) {
        let Some(whole) = figures.kernel_bytes.filter(|_| figures.has_kernel) else {
            return;
        };
        if figures.kernel_parts.is_empty() {
            let said = "The kernel's memory for the group: slab, stacks, page tables. The first version does not divide it.";
            return self.bytes("memory/kernel", whole, said);
        }
        let mut sum = 0u64;
        for part in &figures.kernel_parts {
            sum = sum.saturating_add(part.bytes);
            self.bytes(
                &format!("memory/kernel/{}", part.name),
                part.bytes,
                "The kernel's memory for the group.",
            );
        }
        let said = "The kernel's memory for the group that is none of its named parts.";
        self.line("memory/kernel/other", Units::Bytes, less(whole, sum), said);
    }

    /// Adds a total by process: the largest, the others, and what they do not explain (U2, U3).
    fn divided(
        &mut self,
        path: &str,
        total: u64,
        members: &[Member],
        said: &str,
        part: impl Fn(&Rollup) -> Option<u64>,
    ) {
        let parts = members
            .iter()
            .map(|member| (part(&member.rollup).unwrap_or(0), member.title.as_str()));
        let mut parts: Vec<(u64, &str)> = parts.filter(|(bytes, _)| *bytes > 0).collect();
        parts.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
        let sum = parts
            .iter()
            .fold(0u64, |sum, (bytes, _)| sum.saturating_add(*bytes));
        let shown = parts.len().min(MOST_PROCESSES);
        for (bytes, title) in &parts[..shown] {
            self.bytes(&format!("{path}/{}", component(title)), *bytes, said);
        }
        if let rest @ [_, ..] = &parts[shown..] {
            let bytes = rest
                .iter()
                .fold(0u64, |sum, (bytes, _)| sum.saturating_add(*bytes));
            self.bytes(
                &format!("{path}/(others)"),
                bytes,
                "Processes that hold less.",
            );
        }
        let rest = "What its processes do not explain: pages that are charged to the group, and are of none of them.";
        self.bytes(
            &format!("{path}/{NOT_EXPLAINED}"),
            total.saturating_sub(sum),
            rest,
        );
        let over = less(total, sum).min(0);
        if over < 0 {
            let said = "Pages of its processes that are charged to other groups: libraries that another one read first, \
                        what came in by a fork. Below zero, as this group is not charged for them.";
            let path = format!("{path}/{CHARGED_ELSEWHERE}");
            self.line(&path, Units::Bytes, over, said);
        }
    }

    /// Adds the pages of files and of shared memory that are mapped, by process.
    fn mapped(&mut self, figures: &Figures, members: &[Member]) {
        let said = "Pages of files and shared memory that a process maps; of pages that several map, each has its part.";
        self.divided("mapped-files", figures.mapped_bytes, members, said, |it| {
            Some(
                it.pss_file_bytes?
                    .saturating_add(it.pss_shmem_bytes.unwrap_or(0)),
            )
        });
    }

    fn swap(&mut self, figures: &Figures, members: &[Member]) {
        let Some(bytes) = figures.swap_bytes else {
            return;
        };
        let said = "Memory in swap space, by process.";
        match bytes {
            0 => self.bytes("swap", 0, said),
            bytes => self.divided("swap", bytes, members, said, |it| it.swap_pss_bytes),
        }
    }

    /// Adds the groups below it, each by kind (U1, U3).
    fn groups(&mut self, group: &Group, figures: &Figures, all: &[Group]) {
        if all.len() < 2 {
            return;
        }
        let below = all[1..]
            .iter()
            .filter_map(|one| Some((one, one.figures()?)));
        let mut below: Vec<(&Group, Figures)> = below.collect();
        // One above another has at least as much, and comes first by its shorter name if both have the same.
        below.sort_by(|(a, x), (b, y)| {
            let depth = |one: &Group| one.folder.components().count();
            (y.usage_bytes.cmp(&x.usage_bytes))
                .then(depth(a).cmp(&depth(b)))
                .then(a.folder.cmp(&b.folder))
        });
        below.truncate(MOST_GROUPS);
        let mut shown: Vec<(&Group, &Figures)> = vec![(group, figures)];
        for (one, figures) in &below {
            // A group whose parent has no row is in what that parent's parent has by itself.
            if shown
                .iter()
                .any(|(above, _)| one.folder.parent() == Some(above.folder.as_path()))
            {
                shown.push((one, figures));
            }
        }
        for (one, figures) in &shown {
            let is_kid = |kid: &Group| kid.folder.parent() == Some(one.folder.as_path());
            let kids = shown.iter().filter(|(kid, _)| is_kid(kid));
            let kids: Vec<&Figures> = kids.map(|(_, figures)| *figures).collect();
            let below = one
                .folder
                .strip_prefix(&group.folder)
                .unwrap_or(&one.folder);
            let mut path = String::from("groups");
            for part in below.components() {
                path = format!("{path}/{}", component(&part.as_os_str().to_string_lossy()));
            }
            if !kids.is_empty() {
                path += "/(itself)";
            }
            self.group(&path, figures, &kids);
        }
    }

    /// Adds what a group has beyond those below it that have rows.
    fn group(&mut self, path: &str, figures: &Figures, kids: &[&Figures]) {
        let kinds: [(&str, Amount); 7] = [
            ("anonymous", |it| it.anonymous_bytes),
            ("file-cache", |it| it.file_bytes),
            ("shared-memory", |it| it.shared_bytes),
            ("kernel", |it| {
                it.kernel_bytes.filter(|_| it.has_kernel).unwrap_or(0)
            }),
            ("sockets", |it| {
                it.socket_bytes.filter(|_| it.has_sockets).unwrap_or(0)
            }),
            ("huge-pages", |it| it.huge_bytes.unwrap_or(0)),
            ("(all)", |it| it.usage_bytes),
        ];
        let mut explained = 0i64;
        for (name, of) in kinds {
            let below = kids
                .iter()
                .fold(0u64, |sum, kid| sum.saturating_add(of(kid)));
            let own = match name {
                // The first version charges nothing of the kernel's to the top, but to the groups below.
                "kernel" if !figures.has_kernel => 0,
                _ => less(of(figures), below),
            };
            let (name, amount) = match name {
                "(all)" => (NOT_EXPLAINED, own.saturating_sub(explained)),
                name => (name, own),
            };
            explained = explained.saturating_add(own);
            if amount != 0 {
                self.line(
                    &format!("{path}/{name}"),
                    Units::Bytes,
                    amount,
                    "What the group has by itself.",
                );
            }
        }
    }

    /// Adds what has no parts.
    fn single(&mut self, figures: &Figures, processes: usize) {
        let working_set = figures.working_set_bytes();
        let said = "Memory less inactive pages of files: what Kubernetes counts, and evicts by.";
        self.bytes("working-set", working_set, said);
        let bytes = [
            (
                "limit",
                figures.limit_bytes,
                "The least limit of the group and of those above it.",
            ),
            (
                "limit-high",
                figures.high_bytes,
                "The least memory.high of them: beyond it the group is slowed down.",
            ),
            (
                "limit-swap",
                figures.swap_limit_bytes,
                "The limit of swap; in the first version of memory and swap together.",
            ),
            (
                "peak",
                figures.peak_bytes,
                "The most memory that was charged at a time.",
            ),
            (
                "swap-cache",
                figures.swap_cached_bytes,
                "Pages in memory that also have a place in swap.",
            ),
        ];
        for (name, amount, said) in bytes {
            if let Some(amount) = amount {
                self.bytes(name, amount, said);
            }
        }
        if let Some(limit) = figures.limit_bytes.filter(|limit| *limit > 0) {
            let hundredths = u128::from(working_set) * 10_000 / u128::from(limit);
            let hundredths = i64::try_from(hundredths).unwrap_or(i64::MAX);
            self.line(
                "working-set-of-limit",
                Units::Percent,
                hundredths,
                "The working set as a part of the limit.",
            );
        }
        let events = [
            (
                "out-of-memory-kills",
                figures.kills,
                "Processes that the kernel killed for want of memory.",
            ),
            (
                "limit-met",
                figures.limit_met,
                "How often the limit was met.",
            ),
        ];
        for (name, count, said) in events {
            if let Some(count) = count {
                self.line(name, Units::Cumulative, less(count, 0), said);
            }
        }
        self.line(
            "processes",
            Units::Count,
            processes as i64,
            "Processes in it and in the groups below.",
        );
        self.pressure(figures);
    }

    fn pressure(&mut self, figures: &Figures) {
        let said =
            "The part of the time that some task (full: all tasks) stood still for want of memory.";
        for (stall, name) in figures.stalls.iter().flatten().zip(["some", "full"]) {
            for (hundredths, seconds) in stall.percent_hundredths.into_iter().zip([10, 60, 300]) {
                self.line(
                    &format!("pressure-{name}-{seconds}s"),
                    Units::Percent,
                    less(hundredths, 0),
                    said,
                );
            }
            let said = "Microseconds since the group was made.";
            self.line(
                &format!("pressure-{name}-us"),
                Units::Cumulative,
                less(stall.total_us, 0),
                said,
            );
        }
    }

    fn notes(&mut self, version: Version, figures: &Figures, unseen: usize) {
        let notes = &mut self.notes;
        if unseen > 0 {
            notes.push(format!(
                "processes of it that cannot be looked at: {unseen}; what they hold is in anonymous/{NOT_EXPLAINED}. \
                 Their users can see it, and root with CAP_SYS_PTRACE over them"
            ));
        }
        if figures.limit_bytes.is_none() {
            notes.push("neither the group nor one above it has a limit".into());
        }
        if version == Version::First {
            notes.push("the first version of control groups tells neither pressure nor the parts of the kernel's memory".into());
        }
        if figures.is_top {
            notes.push("the top of a hierarchy has no charge of its own: it is the whole machine's, as far as it is counted".into());
        }
    }
}

#[cfg(test)]
#[path = "group_tests.rs"]
mod tests;
