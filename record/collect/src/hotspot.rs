//! Java's memory: which part of HotSpot's heap, or its code cache, a page belongs to, read from outside.
//!
//! ```text
//!   libjvm.so: gHotSpotVMStructs ─► type, field, offset or address │ …        (hotspot/tables.rs)
//!     Universe::_collectedHeap ─► from, words            [ ··············· java heap ··············· ]
//!       G1: regions ─► each begins, is of a kind         [ eden │ old │ old │ humongous │ free │ eden ]
//!       Parallel, Serial: spaces ─► from, to             [ old ·········· │ eden ······ │ survivor ·· ]
//!     CodeCache::_heaps ─► from, to                      [ code cache ]
//! ```
//!
//! H1  Offsets are those that HotSpot exports for its debuggers; no version is asked for. What lacks a field is not told: a heap
//!     whose parts are not told is `[java heap]` as a whole, and one that is not found has no name.
//! H2  Nothing is stopped, so nothing is believed: a region counts if it says itself that it begins where it lies, a space if it
//!     lies in the heap. What changes meanwhile is of one moment or of another.
//! H3  The work is bounded: [`MOST_REGIONS`] regions and [`MOST_CODE_HEAPS`] heaps of code a snapshot.
//!
//! Not here: metaspace and the collector's tables, which no exported field leads to (stacks tell them, in the analysis); ZGC's heap,
//! which is shared memory with a name of its own.

mod tables;

use skinflint_trace::{Mapping, MappingKind};

use crate::dividing::split_names;
use crate::remote::Remote;
use tables::Tables;

/// The file that has the machine in it.
const LIBRARY: &str = "/libjvm.so";
/// The anonymous memory below which nothing is looked for.
const LEAST_ANONYMOUS: u64 = 2 << 20;
/// How often the machine's description is looked for.
const SEARCHES: u32 = 4;
const MOST_REGIONS: u64 = 1 << 16;
const MOST_CODE_HEAPS: u32 = 16;
const WORD_BYTES: u64 = 8;

const HEAP: &str = "[java heap]";
const EDEN: &str = "[java heap: eden]";
const SURVIVOR: &str = "[java heap: survivor]";
const OLD: &str = "[java heap: old]";
const HUMONGOUS: &str = "[java heap: humongous]";
/// Regions of the Garbage-First collector in which nothing lives.
const FREE: &str = "[java heap: free regions]";
const CODE: &str = "[java code cache]";

/// A range of memory: from, to, its name.
type Range = (u64, u64, &'static str);

/// The HotSpot of one process, as far as it is known from snapshot to snapshot.
#[derive(Debug, Default)]
pub(crate) struct HotSpot {
    tables: Option<Tables>,
    searches: u32,
}

impl HotSpot {
    /// Gives the parts of anonymous mappings that are Java's heap or code the names of what they are: `[java heap: eden]`.
    pub(crate) fn name(&mut self, pid: u32, mappings: Vec<Mapping>) -> Vec<Mapping> {
        let anonymous = mappings.iter().filter(|one| is_read(one));
        if anonymous.map(|one| one.rss_bytes).sum::<u64>() < LEAST_ANONYMOUS {
            return mappings;
        }
        let remote = Remote { pid };
        if self.tables.is_none() && self.searches < SEARCHES {
            let is_it =
                |one: &&Mapping| one.kind == MappingKind::File && one.name.ends_with(LIBRARY);
            if let Some(library) = mappings.iter().find(is_it) {
                self.searches += 1;
                self.tables = Tables::read(remote, &library.name, library.start);
            }
        }
        match &self.tables {
            Some(tables) => divide(mappings, ranges(tables, remote)),
            None => mappings,
        }
    }
}

fn is_read(mapping: &Mapping) -> bool {
    mapping.kind == MappingKind::Anon && mapping.runs_known
}

/// Divides anonymous mappings by ranges.
fn divide(mappings: Vec<Mapping>, mut ranges: Vec<Range>) -> Vec<Mapping> {
    ranges.retain(|range| range.0 < range.1);
    ranges.sort_unstable();
    let mut done = Vec::with_capacity(mappings.len());
    for mapping in mappings {
        if !is_read(&mapping) {
            done.push(mapping);
            continue;
        }
        // Ranges that reach into another are of different moments: what comes later begins where the one before it ends.
        let mut from = mapping.start;
        let first = ranges.partition_point(|range| range.1 <= mapping.start);
        let inside = ranges.get(first..).unwrap_or(&[]).iter();
        let inside: Vec<Range> = inside
            .take_while(|range| range.0 < mapping.end)
            .filter_map(|&(start, end, name)| {
                let (start, end) = (start.max(from), end.min(mapping.end));
                from = from.max(end);
                (start < end).then_some((start, end, name))
            })
            .collect();
        split_names(mapping, &inside, &mut done);
    }
    done
}

/// Returns where the heap's parts and the code heaps lie at this moment.
fn ranges(tables: &Tables, remote: Remote) -> Vec<Range> {
    let mut all = code(tables, remote).unwrap_or_default();
    if let Some((heap, from, to)) = reserved(tables, remote) {
        let parts = regions(tables, remote, heap, (from, to));
        let parts = parts.or_else(|| spaces(tables, remote, heap, (from, to)));
        all.extend(filled(from, to, parts.unwrap_or_default()));
    }
    all
}

/// Returns parts, and what of the heap lies between them.
fn filled(from: u64, to: u64, mut parts: Vec<Range>) -> Vec<Range> {
    parts.sort_unstable();
    let mut all = Vec::with_capacity(parts.len());
    let mut at = from;
    for (start, end, name) in parts {
        let start = start.max(at);
        if start >= end {
            continue;
        }
        all.extend((at < start).then_some((at, start, HEAP)));
        all.push((start, end, name));
        at = end;
    }
    all.extend((at < to).then_some((at, to, HEAP)));
    all
}

/// Returns the heap's object, and the addresses that are reserved for what is in it.
fn reserved(tables: &Tables, remote: Remote) -> Option<(u64, u64, u64)> {
    let heap = remote.word(tables.variable("Universe", "_collectedHeap")?)?;
    let at = heap.checked_add(tables.field("CollectedHeap", "_reserved")?)?;
    let from = remote.word(at.checked_add(tables.field("MemRegion", "_start")?)?)?;
    let words = remote.word(at.checked_add(tables.field("MemRegion", "_word_size")?)?)?;
    let to = from.checked_add(words.checked_mul(WORD_BYTES)?)?;
    (heap != 0 && from < to).then_some((heap, from, to))
}

/// Returns the regions of a Garbage-First heap, neighbours of one kind joined; `None` if the heap is another's.
fn regions(
    tables: &Tables,
    remote: Remote,
    heap: u64,
    (from, to): (u64, u64),
) -> Option<Vec<Range>> {
    let [region, manager, kind] = match tables.field("G1HeapRegion", "_bottom") {
        Some(_) => ["G1HeapRegion", "G1HeapRegionManager", "G1HeapRegionType"],
        None => ["HeapRegion", "HeapRegionManager", "HeapRegionType"],
    };
    // Another collector's machine has never set it.
    let bytes = remote.word(tables.variable(region, "GrainBytes")?)?;
    let whole = (to - from).checked_div(bytes)?;
    let at = heap
        .checked_add(tables.field("G1CollectedHeap", "_hrm")?)?
        .checked_add(tables.field(manager, "_regions")?)?;
    let field = |name| at.checked_add(tables.field("G1HeapRegionTable", name)?);
    let (table, count) = (
        remote.word(field("_base")?)?,
        remote.word(field("_length")?)?,
    );
    if count != whole || count > MOST_REGIONS {
        return None;
    }
    // Regions that were never used have no object.
    let objects = remote.words(table, usize::try_from(count).ok()?)?;
    let known: Vec<(u64, u64)> = (0u64..)
        .zip(objects)
        .filter(|(_, object)| *object != 0)
        .map(|(index, object)| (from + index * bytes, object))
        .collect();
    let offset = tables.field(region, "_bottom")?;
    let begins = read_each::<8>(remote, &known, offset);
    let offset = tables.field(region, "_type")? + tables.field(kind, "_tag")?;
    let tags = read_each::<4>(remote, &known, offset);
    let mut found: Vec<Range> = Vec::new();
    for ((&(at, _), begins), tag) in known.iter().zip(begins).zip(tags) {
        if u64::from_le_bytes(begins) != at {
            continue;
        }
        let Some(name) = kind_of(tables, kind, u32::from_le_bytes(tag)) else {
            continue;
        };
        match found.last_mut() {
            Some(last) if last.1 == at && last.2 == name => last.1 = at + bytes,
            _ => found.push((at, at + bytes, name)),
        }
    }
    Some(found)
}

/// Reads bytes of each object, up to one that is not there.
fn read_each<const N: usize>(remote: Remote, objects: &[(u64, u64)], offset: u64) -> Vec<[u8; N]> {
    let at: Vec<u64> = objects
        .iter()
        .map(|(_, object)| object.wrapping_add(offset))
        .collect();
    let mut bytes = vec![0; at.len() * N];
    let done = remote.read_all(&at, N, &mut bytes);
    let (each, _) = bytes.as_chunks::<N>();
    each.get(..done).unwrap_or(&[]).to_vec()
}

/// Returns what a region is for, by its tag.
fn kind_of(tables: &Tables, kind: &str, tag: u32) -> Option<&'static str> {
    let of = |name: &str| tables.constant(&format!("{kind}::{name}"));
    let has = |mask: Option<u32>| mask.is_some_and(|mask| tag & mask != 0);
    let is = |value: Option<u32>| value == Some(tag);
    match () {
        () if is(of("FreeTag")) => Some(FREE),
        () if is(of("EdenTag")) => Some(EDEN),
        () if is(of("SurvTag")) => Some(SURVIVOR),
        () if has(of("HumongousMask")) => Some(HUMONGOUS),
        () if has(of("OldMask")) || has(of("ArchiveMask")) => Some(OLD),
        () => None,
    }
}

/// A generation's spaces: the fields that lead to them, and what they are for.
type Spaces = &'static [(&'static str, &'static str)];
const YOUNG: Spaces = &[
    ("_eden_space", EDEN),
    ("_from_space", SURVIVOR),
    ("_to_space", SURVIVOR),
];

/// Returns the spaces of the heap of the collectors that have some.
fn spaces(tables: &Tables, remote: Remote, heap: u64, bounds: (u64, u64)) -> Option<Vec<Range>> {
    let parallel = |name| {
        let at = tables.variable("ParallelScavengeHeap", name)?;
        remote.word(at).filter(|generation| *generation != 0)
    };
    let of = |generation, spaces| in_generation(tables, remote, generation, spaces, bounds);
    if let (Some(young), Some(old)) = (parallel("_young_gen"), parallel("_old_gen")) {
        let mut all = of(("PSYoungGen", young), YOUNG)?;
        all.extend(of(("PSOldGen", old), &[("_object_space", OLD)])?);
        return Some(all);
    }
    // Since 23 the heap is of a type of its own; another collector's has something else there (H2).
    let serial = |name| {
        let own = tables.field("SerialHeap", name);
        let offset = own.or_else(|| tables.field("GenCollectedHeap", name))?;
        remote.word(heap.checked_add(offset)?)
    };
    let (young, old) = (serial("_young_gen")?, serial("_old_gen")?);
    let mut all = of(("DefNewGeneration", young), YOUNG)?;
    all.extend(of(("TenuredGeneration", old), &[("_the_space", OLD)])?);
    Some(all)
}

/// Returns the spaces of a generation; `None` if one is not in the heap.
fn in_generation(
    tables: &Tables,
    remote: Remote,
    (kind, generation): (&str, u64),
    spaces: Spaces,
    (from, to): (u64, u64),
) -> Option<Vec<Range>> {
    let types: &[&str] = match kind.starts_with("PS") {
        true => &["MutableSpace"],
        false => &["ContiguousSpace", "Space"],
    };
    let field = |name| types.iter().find_map(|of| tables.field(of, name));
    let (bottom, end) = (field("_bottom")?, field("_end")?);
    let each = spaces.iter().map(|&(space, name)| {
        let at = generation.checked_add(tables.field(kind, space)?)?;
        let space = remote.word(at)?;
        let start = remote.word(space.checked_add(bottom)?)?;
        let end = remote.word(space.checked_add(end)?)?;
        (from <= start && start <= end && end <= to).then_some((start, end, name))
    });
    each.collect()
}

/// Returns the memory of the code cache: code, and the maps of what is where in it.
fn code(tables: &Tables, remote: Remote) -> Option<Vec<Range>> {
    let array = remote.word(tables.variable("CodeCache", "_heaps")?)?;
    let count = remote.word(array.checked_add(tables.field("GrowableArrayBase", "_len")?)?)? as u32;
    let data = remote.word(array.checked_add(tables.field("GrowableArray<int>", "_data")?)?)?;
    let heaps = remote.words(data, count.min(MOST_CODE_HEAPS) as usize)?;
    let space = |heap: u64, name| {
        let at = heap.checked_add(tables.field("CodeHeap", name)?)?;
        let word = |name| remote.word(at.checked_add(tables.field("VirtualSpace", name)?)?);
        Some((word("_low")?, word("_high")?, CODE))
    };
    let each = heaps.into_iter().flat_map(|heap| {
        ["_memory", "_segmap"]
            .into_iter()
            .filter_map(move |name| space(heap, name))
    });
    Some(each.collect())
}

#[cfg(test)]
#[path = "hotspot_tests.rs"]
mod tests;
