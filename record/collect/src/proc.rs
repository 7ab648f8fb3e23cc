//! What `/proc` reports about a process. Everything may vanish at any time; then less is returned.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use skinflint_trace::{Mapping, MappingKind, RssSample};

/// A line of `maps`, or the head of one of `smaps`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MapLine {
    /// First address.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// `rw-p`
    pub perms: String,
    /// The offset in the file.
    pub offset: u64,
    /// Inode, 0 for none.
    pub inode: u64,
    /// Path or `[name]`.
    pub name: String,
}

impl MapLine {
    /// Parses a line; `None` if it is another kind of line.
    pub fn parse(line: &str) -> Option<MapLine> {
        let mut fields = line.splitn(6, ' ');
        let (start, end) = fields.next()?.split_once('-')?;
        let start = u64::from_str_radix(start, 16).ok()?;
        let end = u64::from_str_radix(end, 16).ok()?;
        let perms = fields.next()?.to_owned();
        let offset = u64::from_str_radix(fields.next()?, 16).ok()?;
        let _device = fields.next()?;
        let inode = fields.next()?.parse().ok()?;
        let name = fields.next().unwrap_or("").trim().to_owned();
        Some(MapLine {
            start,
            end,
            perms,
            offset,
            inode,
            name,
        })
    }
}

/// Returns whether a mapping is one of the recorder's.
pub fn is_recorder(name: &str) -> bool {
    name.starts_with("/memfd:skinflint-") || name.ends_with("/libskinflint_record.so")
}

/// Reads all mappings.
pub fn maps(pid: u32) -> Vec<MapLine> {
    let text = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    String::from_utf8_lossy(&text)
        .lines()
        .filter_map(MapLine::parse)
        .collect()
}

/// Reads a whole file of `/proc`.
fn read_text(file: &mut File) -> Option<String> {
    let mut bytes = Vec::with_capacity(64 << 10);
    file.read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads the arguments of a process.
pub fn arguments(pid: u32) -> Vec<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(&bytes);
    if bytes.is_empty() {
        return Vec::new();
    }
    bytes
        .split(|&byte| byte == 0)
        .map(|a| String::from_utf8_lossy(a).into_owned())
        .collect()
}

/// Reads a link of `/proc/PID`: `exe`, `cwd`.
pub fn link(pid: u32, name: &str) -> String {
    let target = fs::read_link(format!("/proc/{pid}/{name}")).unwrap_or_default();
    target.to_string_lossy().into_owned()
}

/// Reads the name of a process or thread.
pub fn thread_name(pid: u32, tid: u32) -> Option<String> {
    let name = fs::read(format!("/proc/{pid}/task/{tid}/comm")).ok()?;
    Some(String::from_utf8_lossy(name.strip_suffix(b"\n").unwrap_or(&name)).into_owned())
}

/// Returns whether a thread exists.
pub fn thread_exists(pid: u32, tid: u32) -> bool {
    PathBuf::from(format!("/proc/{pid}/task/{tid}")).exists()
}

/// Reads the environment that a process was started with.
pub fn environment(pid: u32) -> Option<Vec<u8>> {
    fs::read(format!("/proc/{pid}/environ")).ok()
}

/// Returns all process ids.
pub fn all_pids() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let names = entries.flatten().map(|entry| entry.file_name());
    names
        .filter_map(|name| name.to_str()?.parse().ok())
        .collect()
}

/// Reads a value of `/proc/PID/status`.
fn status_value(pid: u32, name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let mut lines = text.lines();
    lines.find_map(|line| {
        Some(
            line.strip_prefix(name)?
                .strip_prefix(':')?
                .trim()
                .to_owned(),
        )
    })
}

/// Reads the largest resident memory of a process so far, in bytes.
pub fn high_water_bytes(pid: u32) -> Option<u64> {
    let value = status_value(pid, "VmHWM")?;
    let kib: u64 = value.strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// What `/proc/PID/status` reports about a process, or a thread, and its place among others.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct About {
    /// The id of the process; another one for a thread than its own.
    pub tgid: u32,
    /// The parent's process id.
    pub ppid: u32,
    /// Its ids in its PID namespaces, ours first, its own last.
    pub numbers: Vec<u32>,
}

/// Reads what process or thread an id belongs to; `None` if it is gone. Cost: three system calls.
pub fn about(pid: u32) -> Option<About> {
    let text = fs::read(format!("/proc/{pid}/status")).ok()?;
    Some(parse_about(&String::from_utf8_lossy(&text)))
}

fn parse_about(text: &str) -> About {
    let mut about = About::default();
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
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

/// Reads the ids of a process in its PID namespaces, ours first, its own last; empty if it is gone.
pub fn numbers(pid: u32) -> Vec<u32> {
    about(pid).map_or_else(Vec::new, |about| about.numbers)
}

/// Reads the memory that a process has written and no other has mapped, in bytes. Cost: about 0.1 ms for each 10 MiB
/// that it has resident.
pub fn private_dirty_bytes(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let mut lines = text.lines();
    kib(lines.find_map(|line| line.strip_prefix("Private_Dirty:"))?)
}

/// Returns how long ago a process was started, in steps of 10 ms.
pub fn age(pid: u32) -> Option<std::time::Duration> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let started: u64 = text[text.rfind(')')? + 1..]
        .split_ascii_whitespace()
        .nth(19)?
        .parse()
        .ok()?;
    let up: f64 = fs::read_to_string("/proc/uptime")
        .ok()?
        .split(' ')
        .next()?
        .parse()
        .ok()?;
    std::time::Duration::try_from_secs_f64(up - started as f64 / 100.0).ok()
}

/// The fields of `/proc/PID/stat` that are used here.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stat {
    /// The parent's process id.
    pub ppid: u32,
    /// User and system time of this process alone, nanoseconds, in steps of a clock tick (10 ms).
    pub cpu_ns: u64,
    /// Whether children that it waited for have used time.
    pub had_children: bool,
}

/// Reads `/proc/PID/stat`; works until the process has been waited for.
pub fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse_stat(&text)
}

fn parse_stat(text: &str) -> Option<Stat> {
    // The name is in parentheses and may hold anything.
    let rest = &text[text.rfind(')')? + 1..];
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    const TICK_NS: u64 = 10_000_000;
    Some(Stat {
        ppid: number(1)? as u32,
        cpu_ns: (number(11)? + number(12)?) * TICK_NS,
        had_children: number(13)? + number(14)? > 0,
    })
}

/// Reads the wait status of a process that has ended and was not waited for; `None` if it has not ended,
/// or if we may not read it.
pub fn zombie_status(pid: u32) -> Option<i32> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse_zombie(&text)
}

fn parse_zombie(text: &str) -> Option<i32> {
    const EXIT_CODE: usize = 49;
    let rest = &text[text.rfind(')')? + 1..];
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    (*fields.first()? == "Z").then(|| fields.get(EXIT_CODE)?.parse().ok())?
}

/// `/proc/PID/status`, kept open. Cost of a reading: about 15 µs.
pub struct Status(File);

/// The memory figures of a reading of `status`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Memory {
    /// The resident memory and its parts.
    pub sample: RssSample,
    /// `VmHWM`, bytes.
    pub high_water_bytes: Option<u64>,
}

impl Status {
    /// Opens the file of a process.
    pub fn open(pid: u32) -> Option<Status> {
        File::open(format!("/proc/{pid}/status")).ok().map(Status)
    }

    /// Reads the file; `None` once the process has released its memory.
    pub fn read(&self) -> Option<Memory> {
        let mut buffer = [0u8; 4096];
        let len = self.0.read_at(&mut buffer, 0).ok()?;
        parse_status(&String::from_utf8_lossy(&buffer[..len]))
    }
}

fn kib(line: &str) -> Option<u64> {
    line.trim()
        .strip_suffix("kB")?
        .trim()
        .parse::<u64>()
        .ok()?
        .checked_mul(1024)
}

fn parse_status(text: &str) -> Option<Memory> {
    let mut memory = Memory::default();
    let mut any = false;
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        let field = match key {
            "VmHWM" => {
                memory.high_water_bytes = kib(value);
                continue;
            }
            "RssAnon" => &mut memory.sample.anon_bytes,
            "RssFile" => &mut memory.sample.file_bytes,
            "RssShmem" => &mut memory.sample.shmem_bytes,
            _ => continue,
        };
        *field = kib(value)?;
        any = true;
    }
    let sample = &mut memory.sample;
    sample.rss_bytes = sample.anon_bytes + sample.file_bytes + sample.shmem_bytes;
    any.then_some(memory)
}

/// Reads `Pss` of the whole process from `smaps_rollup`, in bytes.
pub fn pss(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    kib(line)
}

/// Reads all mappings with their resident memory, without runs; `None` if `smaps` cannot be read.
pub fn smaps(pid: u32) -> Option<Vec<Mapping>> {
    let mut file = File::open(format!("/proc/{pid}/smaps")).ok()?;
    let mappings = parse_smaps(&read_text(&mut file)?);
    (!mappings.is_empty()).then_some(mappings)
}

/// Reads all mappings, without figures.
pub fn mappings(pid: u32) -> Vec<Mapping> {
    let text = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    parse_smaps(&String::from_utf8_lossy(&text))
}

/// Returns the process that traces this one, if one does.
pub fn tracer(pid: u32) -> Option<u32> {
    let tracer = status_value(pid, "TracerPid")?.trim().parse().ok()?;
    (tracer != 0).then_some(tracer)
}

fn parse_smaps(text: &str) -> Vec<Mapping> {
    let mut mappings: Vec<Mapping> = Vec::new();
    let mut last_file: Option<(u64, String)> = None;
    for line in text.lines() {
        let first = line.split_once(' ').map_or(line, |(first, _)| first);
        if !first.ends_with(':') {
            if let Some(head) = MapLine::parse(line) {
                mappings.push(begin_mapping(head, &mut last_file));
            }
            continue;
        }
        let (Some(mapping), Some((key, value))) = (mappings.last_mut(), line.split_once(':'))
        else {
            continue;
        };
        let Some(bytes) = kib(value) else { continue };
        match key {
            "Rss" => mapping.rss_bytes = bytes,
            "Pss" => mapping.pss_bytes = bytes,
            "Private_Clean" | "Private_Dirty" => mapping.private_bytes += bytes,
            "Anonymous" => mapping.anon_bytes = bytes,
            "Swap" => mapping.swap_bytes = bytes,
            "AnonHugePages" | "ShmemPmdMapped" | "FilePmdMapped" => {
                *mapping.huge_bytes.get_or_insert(0) += bytes;
            }
            _ => {}
        }
    }
    mappings
}

/// Begins a mapping. `last_file`: the end and path of the last writable mapping of a file, whose zeroed
/// data (bss) follows it as anonymous memory.
fn begin_mapping(head: MapLine, last_file: &mut Option<(u64, String)>) -> Mapping {
    let MapLine {
        start,
        end,
        perms,
        inode,
        name,
        ..
    } = head;
    let shared = perms.ends_with('s');
    let mut kind = match name.as_str() {
        _ if is_recorder(&name) => MappingKind::Recorder,
        "[heap]" => MappingKind::Heap,
        "[stack]" => MappingKind::Stack,
        _ if name.starts_with("/dev/zero") || name.starts_with("/SYSV") => MappingKind::Shared,
        _ if name.starts_with("/memfd:") || name.starts_with("/dev/shm/") => MappingKind::Shared,
        _ if name.starts_with('/') => MappingKind::File,
        "" if shared => MappingKind::Shared,
        "" => MappingKind::Anon,
        _ if name.starts_with("[anon:") => MappingKind::Anon,
        _ if name.starts_with("[anon_shmem:") => MappingKind::Shared,
        _ => MappingKind::Other,
    };
    let mut name = name;
    match last_file {
        Some((file_end, path)) if kind == MappingKind::Anon && *file_end == start => {
            kind = if is_recorder(path) {
                MappingKind::Recorder
            } else {
                MappingKind::File
            };
            name = format!("[bss] {path}");
            *last_file = None;
        }
        _ => {
            // An object's data is private to the process; a shared mapping (a file, /dev/zero for memory that is shared
            // with children) has no bss, whatever lies after it.
            let is_file = inode != 0 && name.starts_with('/') && perms.starts_with("rw");
            let is_data = is_file && !shared && kind != MappingKind::Shared;
            *last_file = is_data.then(|| (end, name.clone()));
        }
    }
    Mapping {
        start,
        end,
        perms,
        name,
        kind,
        ..Mapping::default()
    }
}

/// `/proc/PID/pagemap`, which shows the resident pages.
pub struct PageMap(File);

impl PageMap {
    /// Opens the file of a process. The error is of kind `PermissionDenied` without permission; any other says that the
    /// process, or its memory, is gone.
    pub fn open(pid: u32) -> std::io::Result<PageMap> {
        File::open(format!("/proc/{pid}/pagemap")).map(PageMap)
    }

    /// Reads the resident runs of `start..end` as (address, bytes); `None` if they cannot be read.
    pub fn runs(&self, start: u64, end: u64, page: u64) -> Option<Vec<(u64, u64)>> {
        const PRESENT: u64 = 1 << 63;
        let mut runs: Vec<(u64, u64)> = Vec::new();
        let mut buffer = vec![0u8; 512 << 10];
        let mut at = start;
        while at < end {
            let wanted = (((end - at) / page) as usize * 8).min(buffer.len());
            let len = self.0.read_at(&mut buffer[..wanted], at / page * 8).ok()?;
            if len < 8 {
                return None;
            }
            for entry in buffer[..len].chunks_exact(8) {
                let entry = u64::from_le_bytes(entry.try_into().ok()?);
                if entry & PRESENT != 0 {
                    match runs.last_mut() {
                        Some((first, bytes)) if *first + *bytes == at => *bytes += page,
                        _ => runs.push((at, page)),
                    }
                }
                at += page;
            }
        }
        Some(runs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_and_stat() {
        let text =
            "Name:\tx\nVmHWM:\t  20 kB\nRssAnon:\t 8 kB\nRssFile:\t 4 kB\nRssShmem:\t 1 kB\n";
        let memory = parse_status(text).expect("complete");
        assert_eq!(memory.high_water_bytes, Some(20 << 10));
        assert_eq!(memory.sample.rss_bytes, 13 << 10);
        assert_eq!(parse_status("Name:\tzombie\n"), None);
        let stat =
            parse_stat("12 (a) b) S 7 1 1 0 -1 4 0 0 0 0 31 11 2 3 20 0 1").expect("complete");
        assert_eq!(
            stat,
            Stat {
                ppid: 7,
                cpu_ns: 420_000_000,
                had_children: true
            }
        );
        assert_eq!(parse_stat("12 (a"), None);
        let ended = format!("12 (a) Z {} 768", "0 ".repeat(48).trim());
        assert_eq!(parse_zombie(&ended), Some(768));
        assert_eq!(parse_zombie(&ended.replace(" Z ", " S ")), None);
    }

    #[test]
    fn numbers_in_namespaces_and_the_process_of_a_thread() {
        let text = "Name:\tx\nTgid:\t70\nPid:\t71\nPPid:\t9\nNSpid:\t71\t2\n";
        let expected = About {
            tgid: 70,
            ppid: 9,
            numbers: vec![71, 2],
        };
        assert_eq!(parse_about(text), expected);
        let own = about(std::process::id()).expect("it lives");
        assert_eq!(own.tgid, std::process::id());
        assert_eq!(own.numbers.first(), Some(&own.tgid));
    }

    #[test]
    fn smaps_with_bss_after_data() {
        let text = "\
55d0-55d8 rw-p 00001000 fe:00 77 /bin/x y
Rss: 8 kB
Anonymous: 4 kB
55d8-55e0 rw-p 00000000 00:00 0 
Rss: 4 kB
Private_Clean: 1 kB
Private_Dirty: 3 kB
7000-8000 rw-p 00000000 00:00 0 [heap]
Rss: 4 kB
AnonHugePages:      2048 kB
ShmemPmdMapped:        0 kB
FilePmdMapped:      4 kB
VmFlags: rd wr
9000-a000 rw-s 00000000 00:01 9 /memfd:skinflint-region (deleted)
Rss: 4 kB
";
        let kinds: Vec<_> = parse_smaps(text)
            .into_iter()
            .map(|m| (m.kind, m.name, m.rss_bytes, m.huge_bytes))
            .collect();
        assert_eq!(
            kinds,
            [
                (MappingKind::File, "/bin/x y".into(), 8 << 10, None),
                (MappingKind::File, "[bss] /bin/x y".into(), 4 << 10, None),
                (
                    MappingKind::Heap,
                    "[heap]".into(),
                    4 << 10,
                    Some(2052 << 10)
                ),
                (
                    MappingKind::Recorder,
                    "/memfd:skinflint-region (deleted)".into(),
                    4 << 10,
                    None
                ),
            ]
        );
    }

    #[test]
    fn what_lies_behind_shared_memory_is_no_bss() {
        for (perms, name) in [
            ("rw-s", "/dev/zero (deleted)"),
            ("rw-p", "/dev/zero (deleted)"),
            ("rw-s", "/dev/shm/x"),
            ("rw-s", "/srv/data.bin"),
            ("rw-s", "/SYSV00000000 (deleted)"),
        ] {
            let text = format!(
                "1000-2000 {perms} 00000000 00:01 9 {name}\nRss: 4 kB\n2000-3000 rw-p 00000000 00:00 0 \nRss: 4 kB\n"
            );
            let mappings = parse_smaps(&text);
            assert_eq!(mappings[1].kind, MappingKind::Anon, "{perms} {name}");
            assert_eq!(mappings[1].name, "", "{perms} {name}");
        }
    }

    #[test]
    fn resident_pages_of_this_process() {
        let pid = std::process::id();
        let own = PageMap::open(pid).expect("own pagemap");
        let block = vec![1u8; 64 << 10];
        let start = (block.as_ptr() as u64).next_multiple_of(4096);
        let runs = own.runs(start, start + (32 << 10), 4096).expect("readable");
        assert_eq!(runs, [(start, 32 << 10)]);
        assert!(
            smaps(pid)
                .expect("own smaps")
                .iter()
                .any(|m| m.kind == MappingKind::Stack)
        );
        assert!(Status::open(pid).and_then(|status| status.read()).is_some());
        assert!(pss(pid).is_some_and(|bytes| bytes > 0));
    }
}

#[cfg(test)]
#[path = "proc_tests.rs"]
mod edges;
