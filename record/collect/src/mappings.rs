//! The mappings of a recorded process as a snapshot has them: whose memory each is, what of it is resident.
//!
//! ```text
//!   smaps ─► a file's data ─► [bss] right behind it ─► heap, stack, recorder's, shared, anonymous
//!   pagemap ─► runs of resident pages
//! ```
//!
//! Not here: reading text (skinflint-procfs); what a file's headers say of its bss (modules.rs).

use std::fs::File;
use std::os::unix::fs::FileExt;

use skinflint_procfs::MapLine;
use skinflint_procfs::maps::{SmapsLine, maps_text, smaps_lines, smaps_text};
use skinflint_trace::{Mapping, MappingKind};

/// Returns whether a mapping is one of the recorder's.
pub fn is_recorder(name: &str) -> bool {
    // Installed anew meanwhile, or never a file: the program carries it and laid it out in memory.
    let name = name.strip_suffix(" (deleted)").unwrap_or(name);
    name.starts_with("/memfd:skinflint-") || name.ends_with("/libskinflint_record.so")
}

/// Reads all mappings with their resident memory, without runs; `None` if `smaps` cannot be read.
pub fn smaps(pid: u32) -> Option<Vec<Mapping>> {
    let mappings = parse_smaps(&smaps_text(pid)?);
    (!mappings.is_empty()).then_some(mappings)
}

/// Reads all mappings, without figures.
pub fn mappings(pid: u32) -> Vec<Mapping> {
    parse_smaps(&maps_text(pid).unwrap_or_default())
}

fn parse_smaps(text: &str) -> Vec<Mapping> {
    let mut mappings: Vec<Mapping> = Vec::new();
    let mut last_file: Option<(u64, String)> = None;
    for line in smaps_lines(text) {
        let (key, bytes) = match line {
            SmapsLine::Head(head) => {
                mappings.push(begin_mapping(head, &mut last_file));
                continue;
            }
            SmapsLine::Bytes(key, bytes) => (key, bytes),
        };
        let Some(mapping) = mappings.last_mut() else {
            continue;
        };
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
    }
}

#[cfg(test)]
#[path = "mappings_tests.rs"]
mod edges;
