//! `/proc/PID/status`: the place of a process or thread among others, and its memory to the page.
//!
//! ```text
//!   Tgid, PPid, NSpid ─► About        RssAnon, RssFile, RssShmem, VmSwap, VmHWM ─► Memory (none: it has released it)
//! ```
//!
//! Not here: proportional sizes (rollup.rs).

use std::fs::File;

use crate::file;

/// The ids of a process or thread, and its parent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct About {
    /// The id of the process; another one for a thread than its own.
    pub tgid: u32,
    /// The parent's process id.
    pub ppid: u32,
    /// Its ids in its PID namespaces, ours first, its own last.
    pub numbers: Vec<u32>,
}

impl About {
    fn parse(text: &[u8]) -> About {
        let mut about = About::default();
        for (key, value) in file::fields(text) {
            let mut numbers = value
                .split_ascii_whitespace()
                .map_while(|one| one.parse().ok());
            match key {
                "Tgid" => about.tgid = numbers.next().unwrap_or(0),
                "PPid" => about.ppid = numbers.next().unwrap_or(0),
                "NSpid" => about.numbers = numbers.collect(),
                _ => {}
            }
        }
        about
    }
}

/// Reads what process or thread an id belongs to; `None` if it is gone. Cost: three system calls.
pub fn about(pid: u32) -> Option<About> {
    file::parse(format_args!("/proc/{pid}/status"), |text| {
        Some(About::parse(text))
    })
}

/// Reads the ids of a process in its PID namespaces, ours first, its own last; empty if it is gone.
pub fn numbers(pid: u32) -> Vec<u32> {
    about(pid).map_or_else(Vec::new, |about| about.numbers)
}

/// Returns the thread that traces this process, if one does.
pub fn tracer(pid: u32) -> Option<u32> {
    let tracer = file::parse(format_args!("/proc/{pid}/status"), |text| {
        let mut fields = file::fields(text);
        let (_, value) = fields.find(|(key, _)| *key == "TracerPid")?;
        value.parse().ok()
    })?;
    (tracer != 0).then_some(tracer)
}

/// What to do where the kernel lets a process neither be read nor traced. Debuggers need the same rights.
pub const WHO_MAY: &str =
    "be its user, or root; root of a container needs CAP_SYS_PTRACE (--cap-add SYS_PTRACE)";

/// Returns the effective user of a process; `None` if it is gone.
pub fn user(pid: u32) -> Option<u32> {
    file::parse(format_args!("/proc/{pid}/status"), effective_user)
}

/// Of the real, effective, saved and file system's users, the second.
fn effective_user(text: &[u8]) -> Option<u32> {
    let (_, users) = file::fields(text).find(|(key, _)| *key == "Uid")?;
    users.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// The memory of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Memory {
    /// Resident anonymous pages.
    pub anon_bytes: u64,
    /// Resident pages of files.
    pub file_bytes: u64,
    /// Resident pages of shared memory.
    pub shmem_bytes: u64,
    /// Swapped out.
    pub swap_bytes: u64,
    /// The most that was resident at a time, of all three kinds.
    pub high_water_bytes: Option<u64>,
}

impl Memory {
    /// Parses the text; `None` if the process has released its memory, or has none, as kernel threads.
    fn parse(text: &[u8]) -> Option<Memory> {
        let (mut anon, mut file, mut shmem) = (None, None, None);
        let (mut swap, mut high_water) = (None, None);
        for (key, value) in file::fields(text) {
            let to = match key {
                "VmHWM" => &mut high_water,
                "RssAnon" => &mut anon,
                "RssFile" => &mut file,
                "RssShmem" => &mut shmem,
                "VmSwap" => &mut swap,
                _ => continue,
            };
            *to = file::bytes(value);
        }
        Some(Memory {
            anon_bytes: anon?,
            file_bytes: file?,
            shmem_bytes: shmem?,
            swap_bytes: swap.unwrap_or(0),
            high_water_bytes: high_water,
        })
    }

    /// Returns all that is resident.
    pub fn rss_bytes(&self) -> u64 {
        let held = self.anon_bytes.saturating_add(self.shmem_bytes);
        held.saturating_add(self.file_bytes)
    }
}

/// Reads the memory of a process; `None` once it has released it.
pub fn memory(pid: u32) -> Option<Memory> {
    file::parse(format_args!("/proc/{pid}/status"), Memory::parse)
}

/// The file, kept open: it stays that of its process, whatever becomes of the number. Cost of a reading: one system
/// call, about 15 µs.
pub struct Status(File);

impl Status {
    /// Opens the file of a process.
    pub fn open(pid: u32) -> Option<Status> {
        file::open(format_args!("/proc/{pid}/status"))
            .ok()
            .map(Status)
    }

    /// Reads the memory; `None` once the process has released it.
    pub fn memory(&self) -> Option<Memory> {
        file::parse_open(&self.0, Memory::parse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Linux 6.1 writes it, without what lies between.
    const TEXT: &str = "Name:\tWeb Content\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t70\nNgid:\t0\nPid:\t71\n\
        PPid:\t9\nTracerPid:\t0\nUid:\t0\t0\t0\t0\nGroups:\t0 \nNStgid:\t70\t1\nNSpid:\t71\t2\n\
        VmPeak:\t    2796 kB\nVmHWM:\t     100 kB\nVmRSS:\t      64 kB\nRssAnon:\t      40 kB\n\
        RssFile:\t      20 kB\nRssShmem:\t       4 kB\nVmSwap:\t       1 kB\nThreads:\t1\n";

    #[test]
    fn memory_by_kinds() {
        let expected = Memory {
            anon_bytes: 40 << 10,
            file_bytes: 20 << 10,
            shmem_bytes: 4 << 10,
            swap_bytes: 1 << 10,
            high_water_bytes: Some(100 << 10),
        };
        assert_eq!(Memory::parse(TEXT.as_bytes()), Some(expected));
        assert_eq!(expected.rss_bytes(), 64 << 10);
        let zombie = &TEXT[..TEXT.find("VmPeak").expect("there")];
        assert_eq!(Memory::parse(zombie.as_bytes()), None);
        for wrong in ["40 kB", "20 kB", "4 kB\nVmS"] {
            let text = TEXT.replace(wrong, "x kB\nVmS");
            assert_eq!(Memory::parse(text.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn the_effective_user_is_the_second() {
        let text = TEXT.replace("Uid:\t0\t0", "Uid:\t1000\t33");
        assert_eq!(effective_user(text.as_bytes()), Some(33));
        assert_eq!(effective_user(b"Uid:\t1000\n"), None);
    }

    #[test]
    fn numbers_in_namespaces_and_the_process_of_a_thread() {
        let expected = About {
            tgid: 70,
            ppid: 9,
            numbers: vec![71, 2],
        };
        assert_eq!(About::parse(TEXT.as_bytes()), expected);
        let own = about(std::process::id()).expect("it lives");
        assert_eq!(own.tgid, std::process::id());
        assert_eq!(own.numbers.first(), Some(&own.tgid));
        assert!(numbers(0).is_empty());
        assert_eq!(tracer(std::process::id()), None);
    }

    #[test]
    fn the_file_follows_its_process() {
        let file = Status::open(std::process::id()).expect("running");
        let before = file.memory().expect("running");
        let held = vec![1u8; 32 << 20];
        let grown = file.memory().expect("running").anon_bytes;
        assert!(
            grown >= before.anon_bytes + (16 << 20),
            "{before:?} {grown}"
        );
        assert_eq!(
            held.iter().map(|&one| one as usize).sum::<usize>(),
            32 << 20
        );
        assert!(memory(std::process::id()).is_some_and(|memory| memory.high_water_bytes.is_some()));
        assert!(Status::open(0).is_none() && memory(0).is_none());
    }
}
