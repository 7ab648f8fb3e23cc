//! What this machine allows: which of our parts can do their work here, and what to change where one cannot.
//!
//! ```text
//!   /proc, /sys, libc ─► Machine ─► a Finding for each: yes, in part, no; what it means; what to change
//! ```
//!
//! K1  Each finding is about something that a command of ours needs; whatever is not as it should be comes with a line
//!     that can be typed, or with the reason why nothing can be done.
//! K2  Nothing is changed, and nothing is read but small files of the kernel's.
//!
//! Not here: judging a program (preflight.rs).

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::glibc::{self, numbers};

/// How much of what is asked for this machine allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// All of it.
    Yes,
    /// What few need is missing.
    InPart,
    /// A command cannot do its work.
    No,
}

/// What this machine says to one need.
#[derive(Debug)]
pub struct Finding {
    /// What it is about, in one word.
    pub name: &'static str,
    /// How much is allowed.
    pub allowed: Allowed,
    /// What was found, and what it means.
    pub said: String,
    /// What to do, if anything can be done.
    pub change: Option<String>,
}

fn yes(name: &'static str, said: impl Into<String>) -> Finding {
    Finding {
        name,
        allowed: Allowed::Yes,
        said: said.into(),
        change: None,
    }
}

fn in_part(name: &'static str, said: impl Into<String>, change: impl Into<String>) -> Finding {
    Finding {
        name,
        allowed: Allowed::InPart,
        said: said.into(),
        change: Some(change.into()),
    }
}

fn no(name: &'static str, said: impl Into<String>, change: impl Into<String>) -> Finding {
    Finding {
        name,
        allowed: Allowed::No,
        said: said.into(),
        change: Some(change.into()),
    }
}

/// Where to look; tests have a machine of their own.
#[derive(Debug)]
pub struct Machine {
    /// The folder that `proc`, `sys` and `usr` are in.
    pub root: PathBuf,
    /// What this process may do, as the kernel numbers it (`CapEff`): root of a container is not all-powerful.
    pub capabilities: u64,
    /// Release of the kernel, as `uname -r` has it.
    pub kernel: String,
    /// Version of glibc; `None` where there is none.
    pub glibc: Option<String>,
    /// Whether the C library has registered this thread's restartable sequences.
    pub has_rseq: bool,
}

impl Machine {
    /// Returns the machine that we run on.
    #[must_use]
    pub fn this() -> Self {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            root: "/".into(),
            capabilities: capabilities(),
            kernel: kernel.trim().to_owned(),
            glibc: glibc::version(),
            has_rseq: glibc::has_rseq(),
        }
    }

    /// Returns what it says, in the order in which one asks: recording first.
    #[must_use]
    pub fn findings(&self) -> Vec<Finding> {
        vec![
            self.kernel(),
            self.glibc(),
            self.rseq(),
            self.ptrace(),
            self.pagemap(),
            self.pressure(),
            self.groups(),
            self.merging(),
            self.perf(),
            self.debug_files(),
        ]
    }

    fn may(&self, capability: u32) -> bool {
        self.capabilities >> capability & 1 == 1
    }

    fn text(&self, file: &str) -> Option<String> {
        let text = fs::read_to_string(self.root.join(file)).ok()?;
        Some(text.trim().to_owned())
    }

    fn kernel(&self) -> Finding {
        let said = format!("Linux {}", self.kernel);
        match numbers(&self.kernel) {
            Some(version) if version >= (5, 10) => yes("kernel", said),
            _ => in_part(
                "kernel",
                format!("{said}: idle threads' memory is given back only when they allocate again"),
                "Linux 5.10 or later",
            ),
        }
    }

    fn glibc(&self) -> Finding {
        let Some(version) = &self.glibc else {
            return no(
                "libc",
                "no glibc, for which recorder and allocator are built: run, exec, attach and compare can start nothing \
                 here; recordings are read, compared and checked, and memory shows running programs",
                "record in a container with glibc",
            );
        };
        yes("libc", format!("glibc {version}"))
    }

    fn rseq(&self) -> Finding {
        if self.has_rseq {
            return yes(
                "rseq",
                "restartable sequences are registered: idle threads' memory goes back by itself",
            );
        }
        let old = self
            .glibc
            .as_deref()
            .and_then(numbers)
            .is_none_or(|version| version < (2, 35));
        let change = match old {
            true => "glibc 2.35 or later",
            false => "take glibc.pthread.rseq=0 out of GLIBC_TUNABLES",
        };
        in_part(
            "rseq",
            "not registered: idle threads' memory is given back only when they allocate again",
            change,
        )
    }

    fn ptrace(&self) -> Finding {
        let scope = self.text("proc/sys/kernel/yama/ptrace_scope");
        match (scope.as_deref(), self.may(SYS_PTRACE)) {
            (None | Some("0"), false) => yes("ptrace", "attach reaches every process of this user"),
            (None | Some("0"), true) => yes("ptrace", "attach reaches every process"),
            (Some("3"), _) => no(
                "ptrace",
                "ptrace_scope is 3: no user, not even root, can attach to anything until the next boot",
                "boot with kernel.yama.ptrace_scope=1 in /etc/sysctl.d; record from the start meanwhile",
            ),
            (Some(scope), true) => yes(
                "ptrace",
                format!(
                    "ptrace_scope is {scope}, but this user may trace: attach reaches every process"
                ),
            ),
            (Some(scope), false) => no(
                "ptrace",
                format!("ptrace_scope is {scope}: attach reaches no process that runs already"),
                "sudo sysctl kernel.yama.ptrace_scope=0, or sudo skinflint attach PID; a container has to be started \
                 with --cap-add SYS_PTRACE",
            ),
        }
    }

    /// Reads our own entry: a kernel without `CONFIG_PROC_PAGE_MONITOR` has no file, some sandboxes have an empty one.
    fn pagemap(&self) -> Finding {
        let on_stack = 0u8;
        let at = (&raw const on_stack).addr() as u64 / page_bytes() * 8;
        let mut entry = [0u8; 8];
        let read = fs::File::open(self.root.join("proc/self/pagemap"))
            .and_then(|file| file.read_exact_at(&mut entry, at));
        let is_present = u64::from_le_bytes(entry) >> 63 == 1;
        if read.is_ok() && is_present {
            return yes("pagemap", "resident pages are read one by one");
        }
        no(
            "pagemap",
            "/proc/self/pagemap says nothing: resident memory is known by mapping only, and pinned pages not at all",
            "a kernel with CONFIG_PROC_PAGE_MONITOR, or leave the sandbox (gVisor has none)",
        )
    }

    fn pressure(&self) -> Finding {
        match self.text("proc/pressure/memory") {
            Some(_) => yes("pressure", "/proc/pressure/memory is there"),
            None => in_part(
                "pressure",
                "no /proc/pressure/memory: caches hear of pressure by their limits only",
                "boot with psi=1 (CONFIG_PSI)",
            ),
        }
    }

    fn groups(&self) -> Finding {
        let second = self.text("sys/fs/cgroup/cgroup.controllers");
        let has_memory = |list: &str| {
            list.split_whitespace()
                .any(|controller| controller == "memory")
        };
        match second {
            Some(list) if has_memory(&list) => yes("cgroup", "control groups 2, with memory"),
            _ if self
                .root
                .join("sys/fs/cgroup/memory/memory.limit_in_bytes")
                .exists() =>
            {
                yes("cgroup", "control groups 1, with memory")
            }
            Some(_) => in_part(
                "cgroup",
                "control groups 2 without memory: a limit is not seen",
                "echo +memory > /sys/fs/cgroup/cgroup.subtree_control, as root of the machine",
            ),
            None => in_part(
                "cgroup",
                "no control groups at /sys/fs/cgroup: a limit is not seen",
                "mount -t cgroup2 none /sys/fs/cgroup",
            ),
        }
    }

    fn merging(&self) -> Finding {
        match self.text("sys/kernel/mm/ksm/run").as_deref() {
            None => in_part(
                "ksm",
                "this kernel merges no equal pages",
                "a kernel with CONFIG_KSM, if programs ask for it (madvise MADV_MERGEABLE)",
            ),
            Some("1") => yes(
                "ksm",
                "equal pages are merged; the report has a row for them",
            ),
            Some(_) => in_part(
                "ksm",
                "off: equal pages are not merged, whatever programs ask for",
                "echo 1 > /sys/kernel/mm/ksm/run, as root",
            ),
        }
    }

    fn perf(&self) -> Finding {
        let paranoid = self.text("proc/sys/kernel/perf_event_paranoid");
        let level = paranoid.as_deref().map(str::parse::<i32>);
        match level {
            _ if level.is_some() && (self.may(PERFMON) || self.may(SYS_ADMIN)) => yes(
                "perf",
                "open to this user by its capabilities (skinflint itself does not need it)",
            ),
            Some(Ok(level)) if level <= 2 => yes(
                "perf",
                format!("perf_event_paranoid is {level} (skinflint itself does not need it)"),
            ),
            Some(_) => in_part(
                "perf",
                "closed to this user (skinflint itself does not need it)",
                "sudo sysctl kernel.perf_event_paranoid=2",
            ),
            None => in_part(
                "perf",
                "not in this kernel (skinflint itself does not need it)",
                "a kernel with CONFIG_PERF_EVENTS",
            ),
        }
    }

    fn debug_files(&self) -> Finding {
        let folder = self.root.join("usr/lib/debug/.build-id");
        if is_filled(&folder) {
            return yes(
                "names",
                "debug files of system libraries lie in /usr/lib/debug",
            );
        }
        in_part(
            "names",
            "no debug files in /usr/lib/debug: system libraries have names, but no lines",
            "apt-get install libc6-dbg, or report --debuginfod env with DEBUGINFOD_URLS set",
        )
    }
}

/// Capabilities by the kernel's numbers (capability.h).
const SYS_PTRACE: u32 = 19;
const SYS_ADMIN: u32 = 21;
const PERFMON: u32 = 38;

/// Returns what this process may do.
fn capabilities() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    effective.unwrap_or(0)
}

fn is_filled(folder: &Path) -> bool {
    fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some())
}

fn page_bytes() -> u64 {
    // SAFETY: K2: it only reads.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine on which nothing is as it should be.
    fn poor(root: &Path) -> Machine {
        Machine {
            root: root.to_owned(),
            capabilities: 0,
            kernel: "4.18.0-553.el8_10.x86_64".into(),
            glibc: Some("2.28".into()),
            has_rseq: false,
        }
    }

    fn plant(root: &Path, file: &str, text: &str) {
        let file = root.join(file);
        fs::create_dir_all(file.parent().expect("a folder")).expect("ours");
        fs::write(file, text).expect("ours");
    }

    fn found(machine: &Machine, name: &str) -> Finding {
        let mut all = machine.findings().into_iter();
        all.find(|finding| finding.name == name).expect(name)
    }

    #[test]
    fn whatever_is_missing_comes_with_what_to_do() {
        let root = tempfile::tempdir().expect("a folder");
        plant(root.path(), "proc/sys/kernel/yama/ptrace_scope", "1\n");
        let machine = poor(root.path());
        for finding in machine.findings() {
            let is_fine = finding.allowed == Allowed::Yes;
            assert_eq!(is_fine, finding.change.is_none(), "{finding:?}");
            assert_eq!(is_fine, finding.name == "libc", "{finding:?}");
        }
        let denied: Vec<_> = machine
            .findings()
            .into_iter()
            .filter(|finding| finding.allowed == Allowed::No)
            .collect();
        let names: Vec<_> = denied.iter().map(|finding| finding.name).collect();
        assert_eq!(names, ["ptrace", "pagemap"]);
    }

    #[test]
    fn ptrace_is_judged_by_scope_and_capability() {
        let root = tempfile::tempdir().expect("a folder");
        let mut machine = poor(root.path());
        assert_eq!(
            found(&machine, "ptrace").allowed,
            Allowed::Yes,
            "a kernel without Yama"
        );
        for (scope, user, superuser) in [
            ("0", Allowed::Yes, Allowed::Yes),
            ("1", Allowed::No, Allowed::Yes),
            ("2", Allowed::No, Allowed::Yes),
            ("3", Allowed::No, Allowed::No),
        ] {
            plant(root.path(), "proc/sys/kernel/yama/ptrace_scope", scope);
            machine.capabilities = !(1 << SYS_PTRACE);
            assert_eq!(found(&machine, "ptrace").allowed, user, "{scope}");
            machine.capabilities = 1 << SYS_PTRACE;
            assert_eq!(found(&machine, "ptrace").allowed, superuser, "{scope}");
        }
    }

    /// Root of a container has none of the two, and root's number says nothing.
    #[test]
    fn perf_is_judged_by_level_and_capability() {
        let root = tempfile::tempdir().expect("a folder");
        plant(root.path(), "proc/sys/kernel/perf_event_paranoid", "3\n");
        let mut machine = poor(root.path());
        for (capabilities, allowed) in [
            (0, Allowed::InPart),
            (1 << SYS_PTRACE, Allowed::InPart),
            (1 << PERFMON, Allowed::Yes),
            (1 << SYS_ADMIN, Allowed::Yes),
        ] {
            machine.capabilities = capabilities;
            assert_eq!(found(&machine, "perf").allowed, allowed, "{capabilities:x}");
        }
    }

    #[test]
    fn what_is_said_is_one_line_of_single_spaces() {
        let root = tempfile::tempdir().expect("a folder");
        let mut machine = poor(root.path());
        machine.glibc = None;
        for finding in machine.findings() {
            let change = finding.change.iter();
            for text in change.chain([&finding.said]) {
                assert!(!text.contains("  ") && !text.contains('\n'), "{text}");
            }
        }
    }

    #[test]
    fn both_versions_of_control_groups_count() {
        let root = tempfile::tempdir().expect("a folder");
        let machine = poor(root.path());
        assert_eq!(found(&machine, "cgroup").allowed, Allowed::InPart);
        plant(
            root.path(),
            "sys/fs/cgroup/cgroup.controllers",
            "cpu io pids\n",
        );
        assert!(found(&machine, "cgroup").said.contains("without memory"));
        plant(
            root.path(),
            "sys/fs/cgroup/memory/memory.limit_in_bytes",
            "1\n",
        );
        assert!(found(&machine, "cgroup").said.contains("groups 1"));
        plant(
            root.path(),
            "sys/fs/cgroup/cgroup.controllers",
            "cpu memory\n",
        );
        assert!(
            found(&machine, "cgroup")
                .said
                .contains("groups 2, with memory")
        );
    }

    #[test]
    fn rseq_that_is_turned_off_is_not_an_old_libc() {
        let root = tempfile::tempdir().expect("a folder");
        let mut machine = poor(root.path());
        let change = |machine: &Machine| found(machine, "rseq").change.unwrap_or_default();
        assert_eq!(change(&machine), "glibc 2.35 or later");
        machine.glibc = Some("2.36".into());
        assert!(change(&machine).contains("GLIBC_TUNABLES"));
    }

    #[test]
    fn this_machine_has_pages() {
        let machine = Machine::this();
        assert!(numbers(&machine.kernel).is_some(), "{machine:?}");
        assert_eq!(found(&machine, "pagemap").allowed, Allowed::Yes);
    }
}
