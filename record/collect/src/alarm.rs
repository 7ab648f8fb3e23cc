//! What the kernel says when a control group has no memory left.
//!
//! ```text
//!   first version   memory.oom_control, memory.pressure_level "critical" ─► cgroup.event_control ─► eventfds ─┐
//!   second version  memory.events: oom, oom_kill ─────────────────────────────────────────────────────────────┴─► rang()
//! ```
//!
//! A1  Nothing of the group is changed: its processes are killed as they would be without us.
//! A2  What cannot be set (the group is another user's, or mounted read-only) is left out; the kernel's counts of kills are
//!     read all the same.
//!
//! Not here: what is done then (triggers.rs).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};

use skinflint_procfs::groups::{Group, Version};

/// A group that is listened to.
pub struct Alarm {
    group: Group,
    /// Eventfds of the first version.
    events: Vec<File>,
    /// What the kernel had counted at the last look.
    counted: u64,
}

impl Alarm {
    /// Begins to listen to a group.
    pub fn of(group: Group) -> Alarm {
        let asked: &[(&str, &str)] = match group.version {
            Version::First => &[
                ("memory.oom_control", ""),
                ("memory.pressure_level", "critical"),
            ],
            Version::Second => &[],
        };
        let events = asked.iter();
        let events = events.filter_map(|(file, word)| register(&group, file, word).ok());
        let mut alarm = Alarm {
            events: events.collect(),
            counted: 0,
            group,
        };
        alarm.counted = alarm.count();
        alarm
    }

    /// Returns whether the kernel has said something since the last look. Cost: one small file, and a read for each eventfd.
    pub fn rang(&mut self) -> bool {
        let mut word = [0; 8];
        // All are read: each says it once.
        let events = self.events.iter_mut();
        let rang = events
            .filter_map(|one| one.read_exact(&mut word).ok())
            .count()
            > 0;
        let counted = self.count();
        let rose = counted > self.counted;
        self.counted = counted;
        rang || rose
    }

    /// Returns what the kernel counts of the group: kills, and of the second version the times that memory could not be had.
    fn count(&self) -> u64 {
        let (file, names): (_, &[&str]) = match self.group.version {
            Version::First => ("memory.oom_control", &["oom_kill"]),
            Version::Second => ("memory.events", &["oom", "oom_kill"]),
        };
        let text = fs::read_to_string(self.group.folder.join(file)).unwrap_or_default();
        let count = |line: &str| {
            let (name, number) = line.split_once(' ')?;
            names
                .contains(&name)
                .then(|| number.trim().parse::<u64>().ok())?
        };
        text.lines().filter_map(count).fold(0, u64::saturating_add)
    }
}

/// Returns an eventfd that the kernel writes to when a file of a group of the first version has something to say.
fn register(group: &Group, name: &str, word: &str) -> io::Result<File> {
    let file = File::open(group.folder.join(name))?;
    // SAFETY: no memory of ours is touched.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nothing else owns.
    let event = unsafe { File::from_raw_fd(fd) };
    let text = format!("{} {} {word}", event.as_raw_fd(), file.as_raw_fd());
    let control = group.folder.join("cgroup.event_control");
    let mut control = OpenOptions::new().write(true).open(control)?;
    control.write_all(text.trim_end().as_bytes())?;
    Ok(event)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::process::Command;

    use skinflint_test_support::need;

    use super::*;

    #[test]
    fn of_the_second_version_what_could_not_be_had_rings_and_a_limit_that_was_met_does_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let says = |max: u32, oom: u32, kills: u32| {
            let text = format!("low 0\nhigh 0\nmax {max}\noom {oom}\noom_kill {kills}\n");
            fs::write(folder.path().join("memory.events"), text).expect("written");
        };
        says(3, 1, 1);
        let mut alarm = Alarm::of(Group {
            version: Version::Second,
            folder: folder.path().to_owned(),
            top: PathBuf::from("/"),
        });
        assert!(!alarm.rang(), "from before");
        says(9, 1, 1);
        assert!(!alarm.rang(), "the limit was met, and memory was found");
        says(9, 2, 1);
        assert_eq!([alarm.rang(), alarm.rang()], [true, false]);
        says(9, 2, 2);
        assert!(alarm.rang());
    }

    /// The kernel's own events: a shell in a group of 8 MiB takes more than that.
    #[test]
    fn of_the_first_version_the_kernels_own_word_rings() {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let own = own.lines().find_map(|line| line.split_once(":memory:"));
        let above = PathBuf::from("/sys/fs/cgroup/memory");
        let above = above.join(own.map_or("", |(_, name)| name.trim_start_matches('/')));
        let folder = above.join(format!("skinflint-alarm-{}", std::process::id()));
        let is_made = fs::create_dir(&folder).is_ok();
        if !need::that(
            is_made,
            "a memory control group of the first version",
            "run as root where one is mounted",
        ) {
            return;
        }
        for file in ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"] {
            // Without swap there is no limit of it.
            let _ = fs::write(folder.join(file), "8388608");
        }
        let mut alarm = Alarm::of(Group {
            version: Version::First,
            folder: folder.clone(),
            top: above,
        });
        assert_eq!(alarm.events.len(), 2, "both are listened to");
        assert!(!alarm.rang());
        let mut shell = Command::new("sh");
        let script =
            "echo 0 > \"$0\" && x=$(head -c 67108864 /dev/zero | tr '\\0' x) && echo \"${#x}\"";
        let done = shell.args(["-c", script]).arg(folder.join("cgroup.procs"));
        // Which of its processes is killed is the kernel's to choose.
        let done = done.output().expect("it ran");
        // Told by an eventfd, whatever is counted.
        alarm.counted = u64::MAX;
        let rang = alarm.rang();
        let _ = fs::remove_dir(&folder);
        assert!(rang, "{done:?}");
    }
}
