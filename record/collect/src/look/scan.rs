//! Reads a stopped process's memory: which memory is read, and which words are kept.
//!
//! ```text
//!   mapping ─► private, or shared and writable? ─► less: ours, stacks below sp, stacks of threads that ended
//!           ─► its pages that are there ─► words ─► into anonymous memory? ─► kept
//! ```
//!
//! M1  A stack counts from its thread's stack pointer on, less the red zone; the stack of the thread that waits for us
//!     counts from where the program's frames begin (`ProcessHeader::look_stack`).
//! M2  Of a stack whose thread has ended only the last [`CONTROL_BYTES`] are kept: the C library's record of the
//!     thread, which may hold a result that was not asked for yet.
//! M3  A word is kept by its lower 48 bits: bits that programs put into the upper 16 do not hide a pointer. The end of
//!     a mapping counts: a block's end may be there.
//! M4  Where memory of the heap lies below 4 GiB, either half of a word may be a pointer: such a half is kept with bit
//!     48 set, as a pointer with a tag.
//!
//! Not here: what the words mean.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::time::Instant;

use skinflint_base::ring::{SLOTS, SlotHeader};
use skinflint_trace::{
    Look, LookRegion, LookRegister, Mapping, MappingKind, PointerEncoder, RegionKind,
};

use super::stop::{Stopped, StoppedThread};
use crate::mappings;
use crate::modules;
use crate::process::{Process, lock};

/// The most bytes of pointers, before they are compressed.
const MOST_BYTES: usize = 1 << 30;

/// The bytes that a leaf function may use below the stack pointer.
const RED_ZONE: u64 = 128;
/// The bytes below `look_stack` within which the recorder's frames lie.
const OWN_FRAMES: u64 = 256 << 10;
/// The bytes of the C library's record of a thread, at the end of its stack.
const CONTROL_BYTES: u64 = 2304;
/// The bytes that are read at a time.
const CHUNK: usize = 1 << 20;
const ADDRESS_BITS: u64 = (1 << 48) - 1;
/// The largest half of a word, and the tag of halves that are kept (M4).
const HALF: u64 = u32::MAX as u64;
const HALF_TAG: u64 = 1 << 48;
/// The number of the alternate signal stack among the registers.
const ALTERNATE_STACK: u32 = 16;

/// Reads everything that may hold pointers.
pub(super) fn read(
    process: &Process,
    stopped: &Stopped,
    until: Instant,
    look: &mut Look,
    encoder: &mut PointerEncoder,
) -> Result<(), String> {
    let pid = process.pid;
    let mut mappings = mappings::mappings(pid);
    mappings.sort_by_key(|mapping| mapping.start);
    if mappings.is_empty() {
        return Err(format!("the mappings of process {pid} cannot be read"));
    }
    modules::split_bss(pid, &mut mappings, &mut HashMap::new());
    let plan = Plan::new(process, stopped, &mappings);
    look.registers = plan.registers;
    look.regions = plan.regions;
    look.regions
        .extend(tls_regions(pid, stopped, &mappings, &look.regions));
    look.regions
        .sort_by_key(|region| (region.start, region.end));
    let memory = Memory::open(pid)?;
    let page = process.info.os_page_bytes.max(4096);
    let mut words = Words {
        targets: targets(&mappings),
        encoder,
        read: 0,
    };
    let regions = look
        .regions
        .iter()
        .filter(|one| one.kind != RegionKind::Tls);
    for region in regions {
        let own_only = region.kind != RegionKind::Shared;
        for (start, bytes) in memory.pages(region, page, own_only)? {
            memory.each_chunk(start, bytes, &mut words)?;
            if Instant::now() > until {
                return Err("reading its memory took too long; it went on meanwhile".into());
            }
            if words.encoder.bytes() > MOST_BYTES {
                return Err("it holds more pointers than a look keeps".into());
            }
        }
    }
    look.scanned_bytes = words.read;
    Ok(())
}

/// Returns the anonymous memory, in which blocks can lie, as ranges by address.
fn targets(mappings: &[Mapping]) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for one in mappings {
        if !matches!(one.kind, MappingKind::Anon | MappingKind::Heap) {
            continue;
        }
        match ranges.last_mut() {
            Some((_, end)) if *end == one.start => *end = one.end,
            _ => ranges.push((one.start, one.end)),
        }
    }
    ranges
}

struct Words<'a> {
    targets: Vec<(u64, u64)>,
    encoder: &'a mut PointerEncoder,
    read: u64,
}

impl Words<'_> {
    /// Keeps the words that may be pointers. Cost: two comparisons for most words, a binary search among ranges for
    /// those that may be addresses; as much again for each half, if memory lies below 4 GiB.
    fn take(&mut self, start: u64, bytes: &[u8]) {
        let lowest = self.targets.first().map_or(u64::MAX, |range| range.0);
        let highest = self.targets.last().map_or(0, |range| range.1);
        let has_halves = lowest <= HALF;
        for (index, word) in bytes.as_chunks::<8>().0.iter().enumerate() {
            let value = u64::from_le_bytes(*word);
            let at = start + index as u64 * 8;
            let address = value & ADDRESS_BITS;
            if (lowest..=highest).contains(&address) && self.is_target(address) {
                self.encoder.push(at, value);
            } else if has_halves && value > HALF {
                for half in [value & HALF, value >> 32] {
                    if half >= lowest && self.is_target(half) {
                        self.encoder.push(at, half | HALF_TAG);
                    }
                }
            }
        }
        self.read += bytes.len() as u64;
    }

    /// Reports whether an address is in anonymous memory, or at its end (M3).
    fn is_target(&self, address: u64) -> bool {
        let next = self.targets.partition_point(|range| range.0 <= address);
        next.checked_sub(1)
            .is_some_and(|last| address <= self.targets[last].1)
    }
}

/// The memory to read: the mappings, less what is left out.
struct Plan {
    regions: Vec<LookRegion>,
    registers: Vec<LookRegister>,
}

impl Plan {
    fn new(process: &Process, stopped: &Stopped, mappings: &[Mapping]) -> Plan {
        let mut out: Vec<(u64, u64)> = lock(&process.own).clone();
        out.iter_mut().for_each(|range| {
            range.1 = range.0.saturating_add(range.1.next_multiple_of(4096));
        });
        let mut registers = Vec::new();
        // (its begin, the end of its mapping or known stack, its thread)
        let mut stacks: Vec<(u64, u64, u32)> = Vec::new();
        let known = lock(&process.stacks).clone();
        let waits = look_stack(process);
        for thread in &stopped.threads {
            let sp = thread.registers.stack;
            let ours = waits.filter(|from| (sp..sp + OWN_FRAMES).contains(from));
            let begins = ours.unwrap_or(sp.saturating_sub(RED_ZONE)) & !7;
            if ours.is_none() {
                registers.extend(thread.registers.told(thread.tid));
            }
            registers.extend(alternate_stack(process, thread.tid));
            let mapping = mappings
                .iter()
                .find(|one| (one.start..one.end).contains(&sp));
            let Some(mapping) = mapping else { continue };
            let bounds = known.iter().find(|(low, high)| (*low..*high).contains(&sp));
            let low = match bounds {
                Some((low, _)) => (*low).max(mapping.start),
                None if mapping.kind == MappingKind::Stack => mapping.start,
                // An unknown stack: the memory below may be anything.
                None => continue,
            };
            let high = bounds.map_or(mapping.end, |(_, high)| (*high).min(mapping.end));
            out.push((low, begins));
            stacks.push((begins, high, thread.tid));
        }
        out.extend(ended_stacks(&known, stopped, mappings));
        out.sort_unstable();
        let mut regions = Vec::new();
        for mapping in mappings {
            let Some(kind) = kind_of(mapping) else {
                continue;
            };
            cut(mapping, kind, &out, &stacks, &mut regions);
        }
        Plan { regions, registers }
    }
}

/// Returns where the program's frames begin on the stack of the thread that waits for a snapshot, if one does.
fn look_stack(process: &Process) -> Option<u64> {
    let header = process.first.header();
    // ORDER: Relaxed; its thread is stopped, and wrote it before it asked.
    let from = header.look_stack.load(Ordering::Relaxed);
    (from != 0).then_some(from)
}

/// Returns the pointer to a thread's alternate signal stack, which the kernel keeps.
fn alternate_stack(process: &Process, tid: u32) -> Option<LookRegister> {
    let regions = lock(&process.regions);
    let mut slots = regions
        .iter()
        .flat_map(|region| (0..SLOTS).map(move |index| region.slot(index)));
    // ORDER: Relaxed for both; their thread is stopped.
    let is_its = |slot: &&SlotHeader| slot.owner.load(Ordering::Relaxed) as u32 == tid;
    let start = slots.find(is_its)?.alternate_stack.load(Ordering::Relaxed);
    (start != 0).then_some(LookRegister {
        tid,
        number: ALTERNATE_STACK,
        value: start,
    })
}

/// Returns the stacks whose threads have ended, less their ends (M2). Memory in other use has no guard below it.
fn ended_stacks(known: &[(u64, u64)], stopped: &Stopped, mappings: &[Mapping]) -> Vec<(u64, u64)> {
    let is_guard = |one: &Mapping, low: u64| one.end == low && one.perms.starts_with("---");
    let ended = known.iter().filter(|(low, high)| {
        let lives = |thread: &StoppedThread| (*low..*high).contains(&thread.registers.stack);
        let is_there = mappings
            .iter()
            .any(|one| one.start <= *low && *high <= one.end && one.kind == MappingKind::Anon);
        is_there
            && mappings.iter().any(|one| is_guard(one, *low))
            && !stopped.threads.iter().any(lives)
    });
    ended
        .map(|(low, high)| (*low, high.saturating_sub(CONTROL_BYTES).max(*low)))
        .collect()
}

/// Returns the kind as which a mapping is read; `None` if it is not read.
fn kind_of(mapping: &Mapping) -> Option<RegionKind> {
    let shared = mapping.perms.ends_with('s');
    let writable = mapping.perms.as_bytes().get(1) == Some(&b'w');
    if !mapping.perms.starts_with('r') {
        return None;
    }
    match mapping.kind {
        MappingKind::Recorder | MappingKind::Other => None,
        MappingKind::Heap => Some(RegionKind::Heap),
        MappingKind::Stack => Some(RegionKind::Stack),
        // Devices may have side effects, and cannot be read this way.
        _ if shared && mapping.name.starts_with("/dev/") && mapping.kind != MappingKind::Shared => {
            None
        }
        _ if shared => writable.then_some(RegionKind::Shared),
        MappingKind::Anon => Some(RegionKind::Anon),
        MappingKind::Shared => Some(RegionKind::Shared),
        // Read-only data may have been written before it became read-only.
        MappingKind::File => Some(RegionKind::Data),
    }
}

/// Splits a mapping into regions: without what is left out (by address), and with its stacks apart.
fn cut(
    mapping: &Mapping,
    kind: RegionKind,
    out: &[(u64, u64)],
    stacks: &[(u64, u64, u32)],
    regions: &mut Vec<LookRegion>,
) {
    let mut at = mapping.start;
    let mut edges: Vec<(u64, u64, Option<u32>)> = out
        .iter()
        .map(|&(start, end)| (start, end, None))
        .chain(
            stacks
                .iter()
                .map(|&(start, end, tid)| (start, end, Some(tid))),
        )
        .filter(|&(start, end, _)| start < mapping.end && end > mapping.start && start < end)
        .collect();
    edges.sort_unstable();
    let mut push = |start: u64, end: u64, kind: RegionKind, tid: u32| {
        if start < end {
            regions.push(LookRegion {
                start,
                end,
                kind,
                tid,
                name: mapping.name.trim_start_matches("[bss] ").to_owned(),
            });
        }
    };
    for (start, end, stack) in edges {
        let (start, end) = (start.max(at), end.min(mapping.end));
        if end <= at {
            continue;
        }
        push(at, start, kind, 0);
        if let Some(tid) = stack {
            push(start, end, RegionKind::Stack, tid);
        }
        at = end;
    }
    push(at, mapping.end, kind, 0);
}

/// Returns the thread-local storage outside of stacks: that of the first thread, which the loader has made.
fn tls_regions(
    pid: u32,
    stopped: &Stopped,
    mappings: &[Mapping],
    regions: &[LookRegion],
) -> Vec<LookRegion> {
    let Ok(memory) = Memory::open(pid) else {
        return Vec::new();
    };
    let bytes = memory.tls_bytes(mappings);
    let tls = |thread: &StoppedThread| {
        let base = thread.registers.thread;
        let inside = |one: &&LookRegion| (one.start..one.end).contains(&base);
        let region = regions.iter().find(inside)?;
        (region.kind != RegionKind::Stack).then(|| LookRegion {
            start: (base.saturating_sub(bytes) & !7).max(region.start),
            end: (base + CONTROL_BYTES).min(region.end),
            kind: RegionKind::Tls,
            tid: thread.tid,
            name: String::new(),
        })
    };
    stopped.threads.iter().filter_map(tls).collect()
}

/// The memory of another process.
struct Memory {
    pid: u32,
    pages: File,
}

impl Memory {
    fn open(pid: u32) -> Result<Memory, String> {
        let pages = File::open(format!("/proc/{pid}/pagemap"));
        let pages =
            pages.map_err(|error| format!("/proc/{pid}/pagemap cannot be read: {error}"))?;
        Ok(Memory { pid, pages })
    }

    /// Returns the existing pages of a region, as runs (look.O3); `own_only`: without those of a file.
    fn pages(
        &self,
        region: &LookRegion,
        page: u64,
        own_only: bool,
    ) -> Result<Vec<(u64, u64)>, String> {
        const THERE: u64 = 0b11 << 62;
        const OF_FILE: u64 = 1 << 61;
        let mut runs: Vec<(u64, u64)> = Vec::new();
        let mut buffer = vec![0u8; 64 << 10];
        let mut at = region.start & !(page - 1);
        while at < region.end {
            let left = (region.end - at).div_ceil(page) as usize * 8;
            let wanted = left.min(buffer.len());
            let len = self.pages.read_at(&mut buffer[..wanted], at / page * 8);
            let len = len.map_err(|error| format!("its page map cannot be read: {error}"))?;
            if len < 8 {
                return Err("its page map ends early".into());
            }
            for entry in buffer[..len].as_chunks::<8>().0 {
                let entry = u64::from_le_bytes(*entry);
                if entry & THERE != 0 && (!own_only || entry & OF_FILE == 0) {
                    let (start, end) = (at.max(region.start), (at + page).min(region.end));
                    match runs.last_mut() {
                        Some((first, bytes)) if *first + *bytes == start => *bytes += end - start,
                        _ => runs.push((start, end - start)),
                    }
                }
                at += page;
            }
        }
        Ok(runs)
    }

    fn read_at(&self, buffer: &mut [u8], address: u64) -> std::io::Result<usize> {
        let local = libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        };
        let remote = libc::iovec {
            iov_base: address as *mut libc::c_void,
            iov_len: buffer.len(),
        };
        // SAFETY: the local vector is the buffer, whole; the remote one is only read, in another process.
        let got = unsafe { libc::process_vm_readv(self.pid as i32, &local, 1, &remote, 1, 0) };
        usize::try_from(got).map_err(|_| std::io::Error::last_os_error())
    }

    fn each_chunk(&self, start: u64, bytes: u64, words: &mut Words<'_>) -> Result<(), String> {
        let mut buffer = vec![0u8; CHUNK.min(bytes as usize)];
        let (mut at, end) = (start, start + bytes);
        while at < end {
            let wanted = buffer.len().min((end - at) as usize);
            match self.read_at(&mut buffer[..wanted], at) {
                Ok(got) if got > 0 => {
                    words.take(at, &buffer[..got & !7]);
                    at += (got & !7).max(8) as u64;
                }
                // Memory of a device, or a page that the kernel has poisoned: none of the program's pointers is in it.
                Err(error) if error.raw_os_error() == Some(libc::EFAULT) => return Ok(()),
                Ok(_) => return Ok(()),
                Err(error) => return Err(format!("its memory cannot be read: {error}")),
            }
        }
        Ok(())
    }

    /// Returns an upper bound for the thread-local storage of the mapped modules, in bytes.
    fn tls_bytes(&self, mappings: &[Mapping]) -> u64 {
        const PT_TLS: u32 = 7;
        const SURPLUS: u64 = 4096;
        let mut sum = SURPLUS;
        let mut head = vec![0u8; 4096];
        for module in mappings.iter().filter(|one| one.kind == MappingKind::File) {
            let read = self.read_at(&mut head, module.start).unwrap_or(0);
            if read < 4096 || !head.starts_with(b"\x7fELF\x02") {
                continue;
            }
            let at = |offset: usize| head.get(offset..offset + 8).and_then(|b| b.try_into().ok());
            let word = |offset: usize| at(offset).map_or(0, u64::from_le_bytes);
            let (headers, count) = (word(0x20) as usize, word(0x38) as u16 as usize);
            for header in (0..count.min(64)).map(|index| headers.saturating_add(index * 56)) {
                if word(header) as u32 == PT_TLS {
                    sum += word(header + 40).min(1 << 30) + word(header + 48).clamp(1, 4096);
                }
            }
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, end: u64, kind: MappingKind, perms: &str) -> Mapping {
        Mapping {
            start,
            end,
            kind,
            perms: perms.into(),
            ..Mapping::default()
        }
    }

    #[test]
    fn a_stack_is_cut_out_of_its_mapping_with_what_is_below_it_left_out() {
        let one = mapping(0x1000, 0x9000, MappingKind::Anon, "rw-p");
        let mut regions = Vec::new();
        let (out, stacks) = ([(0x2000, 0x3f80)], [(0x3f80, 0x5000, 7)]);
        cut(&one, RegionKind::Anon, &out, &stacks, &mut regions);
        let seen: Vec<_> = regions
            .iter()
            .map(|r| (r.start, r.end, r.kind, r.tid))
            .collect();
        let expected = [
            (0x1000, 0x2000, RegionKind::Anon, 0),
            (0x3f80, 0x5000, RegionKind::Stack, 7),
            (0x5000, 0x9000, RegionKind::Anon, 0),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn words_are_kept_that_point_into_anonymous_memory_tags_or_not() {
        let mappings = [
            mapping(0x10_0000, 0x11_0000, MappingKind::Heap, "rw-p"),
            mapping(0x20_0000, 0x21_0000, MappingKind::File, "rw-p"),
            mapping(0x30_0000, 0x31_0000, MappingKind::Anon, "rw-p"),
        ];
        let mut encoder = PointerEncoder::new(0);
        let mut words = Words {
            targets: targets(&mappings),
            encoder: &mut encoder,
            read: 0,
        };
        let values = [
            0,
            0x10_0000,
            0x10_ffff,
            0x11_0000,
            0x20_8000,
            0x30_8000,
            0xabcd_0000_0030_0001,
            u64::MAX,
            // Two pointers of 32 bits.
            0x0030_8000_0010_0008,
        ];
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value: &u64| value.to_le_bytes())
            .collect();
        words.take(0x5000, &bytes);
        assert_eq!(words.read, 72);
        let kept: u32 = encoder.finish().iter().map(|one| one.words).sum();
        assert_eq!(kept, 5 + 2);
    }

    /// A module's data, and directly behind it a block that only a plain global holds.
    #[test]
    fn memory_behind_a_modules_data_is_a_target_and_its_bss_is_not() {
        let mut mappings = vec![
            mapping(0x10_0000, 0x10_2000, MappingKind::File, "rw-p"),
            mapping(0x10_2000, 0x11_0000, MappingKind::File, "rw-p"),
            mapping(0x20_0000, 0x20_1000, MappingKind::Recorder, "rw-p"),
            mapping(0x20_1000, 0x21_0000, MappingKind::Recorder, "rw-p"),
        ];
        let names = ["/a", "[bss] /a", "/r", "[bss] /r"];
        for (mapping, name) in mappings.iter_mut().zip(names) {
            mapping.name = name.into();
        }
        let spans = [("/a", 0x3000), ("/r", 0x1000)];
        let mut ends = spans
            .map(|(path, span)| (path.to_owned(), Some(span)))
            .into();
        modules::split_bss(0, &mut mappings, &mut ends);
        let expected = [(0x10_3000, 0x11_0000), (0x20_1000, 0x21_0000)];
        assert_eq!(targets(&mappings), expected);
        let bss = mappings.iter().find(|one| one.name == "[bss] /a");
        assert_eq!(
            bss.map(|one| (one.start, one.end)),
            Some((0x10_2000, 0x10_3000))
        );
        assert_eq!(kind_of(&mappings[1]), Some(RegionKind::Data));
        assert_eq!(kind_of(&mappings[2]), Some(RegionKind::Anon));
    }

    #[test]
    fn own_words_are_read_in_place() {
        let boxed = Box::new([0x1234_5678_9abc_def0u64; 64]);
        let memory = Memory::open(std::process::id()).expect("our own");
        let mut buffer = [0u8; 512];
        let at = boxed.as_ptr() as u64;
        assert_eq!(memory.read_at(&mut buffer, at).expect("readable"), 512);
        assert_eq!(buffer[504..], 0x1234_5678_9abc_def0u64.to_le_bytes());
        let region = LookRegion {
            start: at & !4095,
            end: (at & !4095) + 4096,
            ..LookRegion::default()
        };
        let pages = memory.pages(&region, 4096, true).expect("readable");
        assert_eq!(pages, [(at & !4095, 4096)]);
    }
}
