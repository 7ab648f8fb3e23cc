//! The loaded objects, as the recorder reports them, completed from `/proc/PID/maps`.
//!
//! J1  `current` is sorted by address and its ranges do not overlap.
//! J2  A module's `first_node` is 0 unless its range was used by another one before: then nodes
//!     below it belong to the earlier one.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use skinflint_procfs::{MapLine, maps};
use skinflint_trace::{Mapping, MappingKind, Module};

use crate::mappings::is_recorder;

/// The least time between two readings of `maps` for unreported code; doubles when one finds nothing new.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The modules of one process.
pub struct Modules {
    current: Vec<(u64, u64)>,
    /// The ranges that were unloaded, and the first node after that.
    gone: Vec<(u64, u64, u32)>,
    fresh: Vec<Module>,
    /// The modules that the writer has.
    sent: Vec<Module>,
    seen: HashSet<(u64, String)>,
    unknown: bool,
    next_look: Instant,
    pause: Duration,
}

impl Modules {
    /// Creates an empty list of modules.
    pub fn new() -> Modules {
        Modules {
            current: Vec::new(),
            gone: Vec::new(),
            fresh: Vec::new(),
            sent: Vec::new(),
            seen: HashSet::new(),
            unknown: false,
            next_look: Instant::now(),
            pause: FIRST_PAUSE,
        }
    }

    /// Returns whether code at this address belongs to a known module. Cost: one binary search.
    pub fn knows(&self, pc: u64) -> bool {
        let after = self.current.partition_point(|&(start, _)| start <= pc);
        after > 0 && pc < self.current[after - 1].1
    }

    /// Adds a module; one that is known already stays as it is.
    pub fn add(&mut self, mut module: Module) {
        if module.start >= module.end || !self.seen.insert((module.start, module.path.clone())) {
            return;
        }
        self.current
            .retain(|&(start, end)| end <= module.start || module.end <= start);
        let at = self
            .current
            .partition_point(|&(start, _)| start < module.start);
        self.current.insert(at, (module.start, module.end));
        module.first_node = self
            .gone
            .iter()
            .filter(|(start, end, _)| *start < module.end && module.start < *end)
            .map(|&(_, _, node)| node)
            .max()
            .unwrap_or(0);
        self.fresh.push(module);
    }

    /// Removes the module that began here and was unloaded; `next_node` is the next node's id. Returns its range.
    pub fn remove(&mut self, start: u64, next_node: u32) -> Option<(u64, u64)> {
        let at = self.current.iter().position(|&(first, _)| first == start)?;
        let (start, end) = self.current.remove(at);
        self.seen.retain(|(first, _)| *first != start);
        self.gone
            .retain(|&(first, last, _)| (first, last) != (start, end));
        self.gone.push((start, end, next_node));
        Some((start, end))
    }

    /// Notes that a frame lies in no known module.
    pub fn note_unknown(&mut self) {
        self.unknown = true;
    }

    /// Reads `/proc/PID/maps` if there is unreported code, and either it is time to or `now_or_never` is
    /// set.
    pub fn complete(&mut self, pid: u32, now_or_never: bool) {
        if !self.unknown || (!now_or_never && Instant::now() < self.next_look) {
            return;
        }
        self.unknown = false;
        let before = self.fresh.len();
        for module in modules_of(pid) {
            if !self.knows(module.start) {
                self.add(module);
            }
        }
        self.pause = if self.fresh.len() > before {
            FIRST_PAUSE
        } else {
            (self.pause * 2).min(LONGEST_PAUSE)
        };
        self.next_look = Instant::now() + self.pause;
    }

    /// Returns all modules that were sent, in their order.
    pub fn sent(&self) -> &[Module] {
        &self.sent
    }

    /// Returns the modules that are new since the last call.
    pub fn take_fresh(&mut self) -> Vec<Module> {
        self.sent.extend_from_slice(&self.fresh);
        std::mem::take(&mut self.fresh)
    }
}

/// Returns the objects that `maps` shows, with the facts in their files.
fn modules_of(pid: u32) -> Vec<Module> {
    let mut modules: Vec<Module> = Vec::new();
    for line in maps(pid) {
        let is_object = line.name.starts_with('/') && !is_recorder(&line.name);
        if line.name != "[vdso]" && !is_object {
            continue;
        }
        match modules.last_mut() {
            Some(last) if last.path == line.name && line.offset != 0 => last.end = line.end,
            _ if line.offset == 0 => modules.push(begin(pid, &line)),
            _ => {}
        }
    }
    modules.retain(|module| !module.build_id.is_empty() || module.bias != u64::MAX);
    modules
}

fn begin(pid: u32, line: &MapLine) -> Module {
    let mut module = Module {
        start: line.start,
        end: line.end,
        bias: line.start,
        path: line.name.clone(),
        build_id: String::new(),
        first_node: 0,
    };
    if line.name == "[vdso]" {
        return module;
    }
    let inside = format!("/proc/{pid}/root{}", line.name);
    match ElfFacts::read(Path::new(&inside)) {
        Some(facts) => {
            module.bias = line.start.wrapping_sub(facts.first_vaddr);
            module.build_id = facts.build_id;
        }
        None => module.bias = u64::MAX,
    }
    module
}

/// Returns the mappings that were taken for bss and go on behind their object, by index, and where the object ends.
/// Anonymous memory after a file's data is its bss only as far as its headers say; the kernel merges what was mapped
/// after it, such as an allocator's heap, or a program's table behind the recorder's own data.
pub fn joined_bss(
    pid: u32,
    mappings: &[Mapping],
    ends: &mut HashMap<String, Option<u64>>,
) -> Vec<(usize, u64)> {
    let joined = (0..mappings.len()).filter_map(|index| {
        let end = bss_end(pid, mappings, index, ends)?;
        (end < mappings[index].end).then_some((index, end))
    });
    joined.collect()
}

/// Splits mappings that were taken for bss where their object ends: what lies behind is plain anonymous memory, in
/// which blocks can lie. For mappings without figures, which need not be divided; behind the recorder's own data, too.
pub fn split_bss(pid: u32, mappings: &mut Vec<Mapping>, ends: &mut HashMap<String, Option<u64>>) {
    let mut behind = Vec::new();
    for index in 0..mappings.len() {
        let Some(end) = bss_end(pid, mappings, index, ends) else {
            continue;
        };
        let mapping = &mut mappings[index];
        if end < mapping.end {
            behind.push(Mapping {
                start: end,
                kind: MappingKind::Anon,
                name: String::new(),
                ..mapping.clone()
            });
            mapping.end = end;
        }
    }
    mappings.extend(behind);
    mappings.retain(|mapping| mapping.start < mapping.end);
    mappings.sort_by_key(|mapping| mapping.start);
}

/// Returns where the object of a mapping that was taken for bss ends, within the mapping; `None` for other mappings,
/// and if it is not known. `ends`: the bytes that objects take, by path.
fn bss_end(
    pid: u32,
    mappings: &[Mapping],
    index: usize,
    ends: &mut HashMap<String, Option<u64>>,
) -> Option<u64> {
    let mapping = &mappings[index];
    let path = mapping.name.strip_prefix("[bss] ")?;
    let mut before = mappings[..index].iter();
    let first = before.find(|one| one.name == path)?.start;
    let span = *ends.entry(path.to_owned()).or_insert_with(|| {
        let file = format!("/proc/{pid}/root{path}");
        let file = Path::new(&file);
        // A file that exists and is not an object has no bss.
        let none = file.is_file().then_some(0);
        ElfFacts::read(file).map(|facts| facts.span).or(none)
    });
    Some(
        first
            .saturating_add(span?)
            .clamp(mapping.start, mapping.end),
    )
}

/// The facts that are needed from an ELF file's headers.
struct ElfFacts {
    first_vaddr: u64,
    /// The bytes from the first loaded address to one past the last, in whole pages.
    span: u64,
    build_id: String,
}

impl ElfFacts {
    fn read(path: &Path) -> Option<ElfFacts> {
        let mut head = vec![0u8; 16 << 10];
        let mut file = File::open(path).ok()?;
        let mut len = 0;
        while len < head.len() {
            match file.read(&mut head[len..]).ok()? {
                0 => break,
                n => len += n,
            }
        }
        head.truncate(len);
        ElfFacts::parse(&head)
    }

    fn parse(head: &[u8]) -> Option<ElfFacts> {
        let half = |at: usize| Some(u16::from_le_bytes(head.get(at..at + 2)?.try_into().ok()?));
        let word = |at: usize| Some(u32::from_le_bytes(head.get(at..at + 4)?.try_into().ok()?));
        let long = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
        if head.get(..6)? != b"\x7fELF\x02\x01" {
            return None;
        }
        let table = usize::try_from(long(32)?).ok()?;
        let (size, count) = (usize::from(half(54)?), usize::from(half(56)?));
        let (mut first_vaddr, mut last, mut build_id) = (None, 0, String::new());
        for index in 0..count {
            let at = table.checked_add(index * size)?;
            match word(at)? {
                1 => {
                    let start = long(at + 16)?;
                    first_vaddr.get_or_insert(start & !0xfff);
                    last = last.max(
                        start
                            .checked_add(long(at + 40)?)?
                            .checked_next_multiple_of(4096)?,
                    );
                }
                4 => {
                    let from = usize::try_from(long(at + 8)?).ok()?;
                    let bytes = usize::try_from(long(at + 32)?).ok()?;
                    if let Some(notes) = head.get(from..from.checked_add(bytes)?) {
                        build_id = build_id_in(notes).unwrap_or(build_id);
                    }
                }
                _ => {}
            }
        }
        Some(ElfFacts {
            first_vaddr: first_vaddr?,
            span: last.checked_sub(first_vaddr?)?,
            build_id,
        })
    }
}

fn build_id_in(mut notes: &[u8]) -> Option<String> {
    const NT_GNU_BUILD_ID: u32 = 3;
    loop {
        let number =
            |at: usize| Some(u32::from_le_bytes(notes.get(at..at + 4)?.try_into().ok()?) as usize);
        let (name, text, kind) = (number(0)?, number(4)?, number(8)?);
        let from = 12 + name.checked_next_multiple_of(4)?;
        let found = notes.get(from..from.checked_add(text)?)?;
        if kind == NT_GNU_BUILD_ID as usize && notes.get(12..16)? == b"GNU\0" {
            return Some(found.iter().map(|byte| format!("{byte:02x}")).collect());
        }
        notes = notes.get(from + text.checked_next_multiple_of(4)?..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(start: u64, end: u64, path: &str) -> Module {
        Module {
            start,
            end,
            bias: start,
            path: path.into(),
            build_id: String::new(),
            first_node: 0,
        }
    }

    #[test]
    fn a_range_used_again_divides_its_nodes() {
        let mut modules = Modules::new();
        modules.add(module(0x1000, 0x3000, "/a"));
        modules.add(module(0x1000, 0x3000, "/a"));
        assert!(modules.knows(0x1000) && modules.knows(0x2fff) && !modules.knows(0x3000));
        assert_eq!(modules.remove(0x1000, 17), Some((0x1000, 0x3000)));
        assert!(!modules.knows(0x1000));
        modules.add(module(0x2000, 0x5000, "/b"));
        let fresh = modules.take_fresh();
        let nodes: Vec<u32> = fresh.iter().map(|module| module.first_node).collect();
        assert_eq!(nodes, [0, 17]);
    }

    #[test]
    fn this_process_has_a_libc_with_a_build_id() {
        let modules = modules_of(std::process::id());
        let libc = modules
            .iter()
            .find(|module| module.path.ends_with("/libc.so.6"));
        assert_eq!(libc.expect("libc is mapped").build_id.len(), 40);
    }
}

#[cfg(test)]
#[path = "modules_tests.rs"]
mod edges;
