//! Heaps inside a program: allocators that it brings without exporting malloc, and pools of runtimes.
//!
//! ```text
//!   stack of a mapping   mmap · _mi_prim_alloc · mi_arena… · main ──► mimalloc: blocks are not seen
//!   stack of a block     malloc · new_arena · … (python3)         ──► CPython's objects: --python-objects
//! ```
//!
//! O1  A heap is identified by a function on the stack that got its memory, innermost first; in `chunks` for mappings
//!     and blocks of malloc alike, in `mapped` for mappings only, in `maps` for mappings only and near the call, in
//!     the file that made it: blocks of such stacks, and what another library maps, may be the user's own. A runtime
//!     that also calls malloc for what is seen (HotSpot's `os::malloc`) has no `chunks`.
//! O4  A stripped runtime maps in functions without a name. One that maps for a known heap on some stack is that
//!     heap's on all, if both are of one file; how much was judged so is said.
//! O7  A stripped program has no names at all. GHC asks for a tebibyte at one address, where nothing else would be put:
//!     the nameless function that has it there maps for its heap, and the report says that the place told so.
//! O2  A heap is reported if it holds a twentieth of what is resident, or more than all live blocks together.
//! O3  If no function is known, but next to nothing was requested from malloc and half of the program's memory was
//!     mapped by one function, that is reported with what it may be. Shared memory is not of it: what has to be shared is
//!     data, and no allocator's.
//! O6  What a heap's memory is for is told by names that the pages have (V8's spaces, `collect/v8.rs`; Java's heap,
//!     `collect/hotspot.rs`), or by a function on the stack that got it. The parts add up to the heap.
//! O5  An allocator that is recorded maps some memory of its own outside of its functions, when the program is loaded: it is no
//!     heap that cannot be looked into. Of a library's allocator the trace's notes say whether it is recorded; one that is
//!     not, and has no names, is known by the library that maps.
//!
//! Not here: how much a stack mapped (`books.rs`), findings (`grouping.rs`).

mod known;
mod parts;

use rustc_hash::FxHashMap;

use crate::maps::Owner;
use crate::missing::{NO_CALL_SEEN, NO_HEAP_CALL};
use crate::model::{Books, Frame, OwnHeap, Report};
use crate::passes::wording::{bytes, percent};
use crate::plumbing::{Naming, is_unnamed};
use crate::qualified::own_name;
use known::{KNOWN, Known, NURSERIES, Parts};

/// The bytes below which no heap is worth a line.
const WORTH_BYTES: u64 = 64 << 10;
/// A heap is worth a line from one part in this many of what is resident (O2).
const WORTH: u64 = 20;

/// The number of frames from the mapping call outwards in which `maps` is looked for (O1).
const NEAR: u32 = 8;

/// The number of frames, from the call inwards, in which a function that gets a nursery is looked for.
const NURSERY_NEAR: usize = 3;

/// The place that a runtime asks for its heap, and a far one within (O7): `osReserveHeapMemory` of GHC 8.2 and later.
const PLACES: [(u64, u64, &str); 1] = [(
    0x42_0000_0000,
    0x42_0000_0000 + (1 << 39),
    "Haskell's heap (GHC)",
)];

/// Returns, for each place at which a runtime's heap lies if a process has one, the stack that mapped it (O7).
pub(crate) fn places(owner: impl Fn(u64) -> Option<Owner>) -> Vec<(&'static str, u32)> {
    let own = |at: u64| owner(at).filter(|owner| !owner.by_allocator);
    let of = |(begin, within, name): &(u64, u64, &'static str)| {
        own(*within)?;
        Some((*name, own(*begin)?.node.0))
    };
    PLACES.iter().filter_map(of).collect()
}

fn fits(names: &[&str], name: &str) -> bool {
    names.iter().any(|known| match known.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == *known,
    })
}

/// The heap that a stack got memory for.
#[derive(Clone, Copy)]
pub(crate) struct Recognised<'a> {
    /// The heap.
    pub known: &'static Known,
    /// The file of the function that tells.
    module: &'a str,
    /// The same, if it is a library whose allocator is not recorded.
    library: Option<&'a str>,
    /// What tells so.
    told: Told,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    /// A function on the stack (O1), or the library that maps (O5).
    Name,
    /// Other stacks of the function that mapped the memory (O4).
    Others,
    /// The place that the function mapped (O7).
    Place,
}

/// Looks up heaps by stack; each frame's name is examined once.
pub(crate) struct Heaps<'a> {
    report: &'a Report,
    /// By frame: indices into [`KNOWN`] for any stack, for those of mappings, and for those of mappings near the call.
    frames: FxHashMap<u32, [Option<usize>; 3]>,
    /// Functions without a name that map for a heap (O4, O7), by what stands for their names.
    nameless: FxHashMap<&'a str, (usize, Told)>,
    /// Allocators of libraries whose blocks are not recorded (O5): the library, and the allocator's index.
    unrecorded: Vec<(&'a str, usize)>,
}

impl<'a> Heaps<'a> {
    pub(crate) fn of(report: &'a Report) -> Heaps<'a> {
        let mut heaps = Heaps {
            report,
            frames: FxHashMap::default(),
            nameless: FxHashMap::default(),
            unrecorded: Vec::new(),
        };
        let of_libraries = libraries(report).filter(|one| !one.is_recorded);
        for one in of_libraries {
            let known = KNOWN.iter().position(|known| known.name == one.allocator);
            heaps
                .unrecorded
                .extend(known.map(|known| (one.file, known)));
        }
        for mapper in &report.mappers {
            heaps.learn(mapper.node);
        }
        for (name, node) in &report.places {
            let found = KNOWN.iter().position(|known| known.name == *name);
            let mapper = heaps.mapper(*node).filter(|one| is_unnamed(&one.function));
            if let (Some(found), Some(mapper)) = (found, mapper) {
                let entry = heaps.nameless.entry(&mapper.function);
                entry.or_insert((found, Told::Place));
            }
        }
        heaps
    }

    /// Learns from a mapping's stack what its function maps for, if that has no name (O4).
    fn learn(&mut self, node: u32) {
        let Some(mapper) = self.mapper(node).filter(|one| is_unnamed(&one.function)) else {
            return;
        };
        if let Some((found, module)) = self.named_at(node, true)
            && module == mapper.module
            && !KNOWN[found].allocator
        {
            self.nameless
                .insert(&mapper.function, (found, Told::Others));
        }
    }

    /// Returns the function that called the C library on a stack.
    fn mapper(&self, node: u32) -> Option<&'a Frame> {
        let mut at = node;
        loop {
            let entry = self.report.nodes.get(at as usize).filter(|_| at != 0)?;
            let frame = self.report.frames.get(entry.frame as usize)?;
            if !is_c_library(&frame.module) {
                return Some(frame);
            }
            at = (entry.parent < at).then_some(entry.parent)?;
        }
    }

    fn frame(&mut self, index: u32) -> [Option<usize>; 3] {
        let report = self.report;
        *self.frames.entry(index).or_insert_with(|| {
            let Some(frame) = report.frames.get(index as usize) else {
                return [None; 3];
            };
            let name = own_name(&frame.function);
            let here = |known: &Known| {
                let of = known.modules;
                of.is_empty() || of.iter().any(|start| frame.module.starts_with(start))
            };
            let first = |names: &dyn Fn(&Known) -> bool| {
                KNOWN.iter().position(|known| here(known) && names(known))
            };
            let chunk = first(&|known| fits(known.chunks, &name));
            let mapped = first(&|known| fits(known.chunks, &name) || fits(known.mapped, &name));
            let near = mapped.or_else(|| first(&|known| fits(known.maps, &name)));
            [chunk, mapped, near]
        })
    }

    /// Returns the heap that a stack got memory for; `mapping` means that it mapped the memory, and called no malloc.
    pub(crate) fn at(&mut self, node: u32, mapping: bool) -> Option<Recognised<'a>> {
        if let Some((found, module)) = self.named_at(node, mapping) {
            return self.recognised(found, module, Told::Name);
        }
        let mapper = self.mapper(node).filter(|_| mapping)?;
        let module = mapper.module.as_str();
        let of_library = || {
            let nameless = is_unnamed(&mapper.function);
            let mut all = self.unrecorded.iter();
            let found = all.find(|(file, _)| nameless && *file == module)?;
            Some((found.1, Told::Name))
        };
        let by_function = self.nameless.get(mapper.function.as_str()).copied();
        let (found, told) = by_function.or_else(of_library)?;
        self.recognised(found, module, told)
    }

    fn recognised(&self, found: usize, module: &'a str, told: Told) -> Option<Recognised<'a>> {
        let library = self.unrecorded.contains(&(module, found)).then_some(module);
        Some(Recognised {
            known: KNOWN.get(found)?,
            module,
            library,
            told,
        })
    }

    /// Returns the functions of a stack, innermost first, by their own names.
    fn functions(&self, node: u32) -> impl Iterator<Item = String> {
        let parent = |at: &u32| {
            let next = self.report.nodes.get(*at as usize)?.parent;
            (next != 0 && next < *at).then_some(next)
        };
        std::iter::successors(Some(node), parent).filter_map(|at| {
            let entry = self.report.nodes.get(at as usize)?;
            let frame = self.report.frames.get(entry.frame as usize)?;
            Some(own_name(&frame.function))
        })
    }

    /// Returns what a stack got a heap's memory for (O6).
    fn part(&self, node: u32, known: &Known) -> Option<&'static str> {
        let Parts::ByStack(parts) = known.parts else {
            return None;
        };
        let of = |name: &str| parts.iter().find(|(_, functions)| fits(functions, name));
        let found = self.functions(node).find_map(|name| of(&name))?;
        Some(found.0)
    }

    /// Reports whether a stack got a heap's nursery, and if so, whether the program itself set its size.
    fn makes_nursery(&self, node: u32, known: &Known) -> Option<bool> {
        let one = NURSERIES.iter().find(|one| one.heap == known.name)?;
        let mut names = self.functions(node).take(NEAR as usize);
        // What is further out is done by the collector on the way.
        let is_made = names
            .by_ref()
            .take(NURSERY_NEAR)
            .any(|name| fits(one.made_by, &name));
        is_made.then(|| names.any(|name| fits(one.set_by, &name)))
    }

    /// Returns the heap that the functions of a stack tell (O1), as an index into [`KNOWN`], and the file of the one
    /// that does.
    fn named_at(&mut self, node: u32, mapping: bool) -> Option<(usize, &'a str)> {
        let report = self.report;
        let (mut at, mut outer, mut near) = (node, None, 0);
        // The file of the code that called the C library.
        let mut asked: Option<&str> = None;
        while let Some(entry) = report.nodes.get(at as usize).filter(|_| at != 0) {
            let [chunk, mapped, map] = self.frame(entry.frame);
            let frame = report.frames.get(entry.frame as usize);
            let module = frame.map_or("", |frame| frame.module.as_str());
            if let Some(found) = if mapping { mapped } else { chunk } {
                return Some((found, module));
            }
            asked = asked.or((!is_c_library(module)).then_some(module));
            near += 1;
            if mapping && near <= NEAR && asked == Some(module) {
                outer = outer.or(map.map(|found| (found, module)));
            }
            if entry.parent >= at {
                break;
            }
            at = entry.parent;
        }
        outer
    }
}

/// What the trace's notes say of an allocator in a library: the collector writes them (collect/linked).
struct OfLibrary<'a> {
    allocator: &'a str,
    file: &'a str,
    is_recorded: bool,
}

fn libraries(report: &Report) -> impl Iterator<Item = OfLibrary<'_>> {
    let notes = report.completeness.notes.iter();
    let said = notes.filter_map(|note| {
        let (allocators, rest) = note.strip_prefix("blocks of ")?.split_once(" in ")?;
        Some(match rest.split_once(" are not recorded: ") {
            Some((file, _)) => (allocators, file, false),
            None => (allocators, rest.strip_suffix(" are recorded, too")?, true),
        })
    });
    said.flat_map(|(allocators, file, is_recorded)| {
        allocators.split(" and ").map(move |allocator| OfLibrary {
            allocator,
            file,
            is_recorded,
        })
    })
}

/// Reports whether a file is the C library's, or its loader.
fn is_c_library(module: &str) -> bool {
    module.starts_with("libc.") || module.starts_with("ld-")
}

/// Says in the list of what is missing which allocator took the place of the one that is recorded, if no block was
/// seen and one was found: the general sentence leaves that open.
pub(crate) fn say_unseen(report: &mut Report) {
    // Memory of an allocator that is not known by name may be buffers that the program maps by itself.
    let known = |heap: &&OwnHeap| heap.allocator && !heap.name.is_empty();
    let Some(heap) = report.own_heaps.iter().find(known) else {
        return;
    };
    if report.totals.allocations > 0 {
        return;
    }
    let text = format!(
        "No block was recorded: the program's own malloc ({}) goes past the recorder. What lives and what is free in \
         its {} ('mapped by the program') is not known.",
        heap.name,
        bytes(heap.bytes)
    );
    let notes = report.completeness.notes.iter_mut();
    let begins = [NO_CALL_SEEN, NO_HEAP_CALL];
    let mut general = notes.filter(|note| begins.iter().any(|begin| note.starts_with(begin)));
    if let Some(note) = general.next() {
        *note = text;
    }
}

/// Returns the program's own heaps at the report's instant, largest first (O2, O3).
pub(crate) fn found(report: &Report, naming: &Naming) -> Vec<OwnHeap> {
    let books = report
        .instants
        .get(report.at)
        .and_then(|one| one.books.as_ref());
    let Some(books) = books else {
        return Vec::new();
    };
    let mut heaps = Heaps::of(report);
    let mut by_name: Vec<Sum<'_>> = Vec::new();
    let (mut live, mut unknown) = (0u64, FxHashMap::<u32, OwnHeap>::default());
    for one in report.held() {
        live = live.saturating_add(one.live_bytes);
        // A file is no heap; shared memory is one if its function says so (a virtual machine's in a memfd).
        let (node, mapping) = (one.node, one.mapped_bytes > one.file_bytes);
        let mut held = one.heap_bytes();
        let into = match heaps.at(node, mapping) {
            Some(recognised) if is_recorded(report, &recognised) => continue,
            Some(recognised) => {
                let at = by_name.iter().position(|sum| sum.is_of(&recognised));
                let at = at.unwrap_or_else(|| {
                    by_name.push(Sum::of(&recognised));
                    by_name.len() - 1
                });
                let sum = &mut by_name[at];
                if held > sum.most {
                    (sum.most, sum.heap.node) = (held, Some(node));
                }
                if let Some(is_set) = heaps.makes_nursery(node, recognised.known) {
                    sum.nursery = sum.nursery.saturating_add(held);
                    sum.is_set |= is_set;
                }
                if let Some(part) = heaps.part(node, recognised.known) {
                    let bytes = sum.parts.entry(part).or_default();
                    *bytes = bytes.saturating_add(held);
                }
                match recognised.told {
                    Told::Name => {}
                    Told::Others => sum.by_others = sum.by_others.saturating_add(held),
                    Told::Place => sum.by_place = true,
                }
                &mut sum.heap
            }
            None if one.anonymous_bytes() > 0 => {
                let Some(function) = naming.mapper_of(report, node) else {
                    continue;
                };
                held -= one.shared_bytes;
                let heap = unknown.entry(function).or_default();
                heap.node = heap.node.or(Some(node));
                heap
            }
            None => continue,
        };
        into.bytes = into.bytes.saturating_add(held);
        into.stacks += 1;
    }
    let least = WORTH_BYTES.max((books.resident_bytes / WORTH).min(live));
    let mut all: Vec<OwnHeap> = by_name
        .into_iter()
        .filter(|sum| sum.heap.bytes >= least)
        .map(|sum| said(sum, books))
        .collect();
    if !all.iter().any(|heap| heap.allocator) {
        all.extend(unnamed(report, naming, unknown, live));
    }
    all.sort_by_key(|heap| (std::cmp::Reverse(heap.bytes), heap.node));
    all
}

/// Reports whether the blocks of an allocator are recorded (O5).
fn is_recorded(report: &Report, found: &Recognised<'_>) -> bool {
    let name = found.known.name;
    let of_program = report.program.allocator.starts_with(name);
    let mut of_libraries = libraries(report);
    found.known.allocator
        && (of_program
            || of_libraries
                .any(|one| one.is_recorded && one.allocator == name && one.file == found.module))
}

/// The bytes that a known heap holds.
struct Sum<'a> {
    known: &'static Known,
    /// The library whose heap it is, if its allocator is not recorded: two may have one each.
    library: Option<&'a str>,
    heap: OwnHeap,
    /// The most that one stack of it holds.
    most: u64,
    /// The bytes that only other stacks tell to be its (O4).
    by_others: u64,
    /// Whether its place tells that it is one (O7).
    by_place: bool,
    /// The bytes of its nursery, and whether the program itself sets its size.
    nursery: u64,
    is_set: bool,
    /// The bytes by what they are for, as far as stacks tell (O6).
    parts: FxHashMap<&'static str, u64>,
}

impl<'a> Sum<'a> {
    fn is_of(&self, found: &Recognised<'a>) -> bool {
        self.known.name == found.known.name && self.library == found.library
    }

    fn of(found: &Recognised<'a>) -> Sum<'a> {
        Sum {
            known: found.known,
            library: found.library,
            heap: OwnHeap::default(),
            most: 0,
            by_others: 0,
            by_place: false,
            nursery: 0,
            is_set: false,
            parts: FxHashMap::default(),
        }
    }
}

fn said(sum: Sum<'_>, books: &Books) -> OwnHeap {
    let nursery = nursery(&sum);
    let (parts, resident) = (
        parts::parts(sum.known, &sum.parts, sum.heap.bytes, books),
        books.resident_bytes,
    );
    let Sum {
        known,
        library,
        heap,
        by_others,
        by_place,
        ..
    } = sum;
    let share = format!(
        "{} ({} % of resident memory)",
        bytes(heap.bytes),
        percent(heap.bytes, resident)
    );
    let doubt = match by_others {
        0 if by_place => {
            " The functions that mapped it have no names here; it lies where that runtime asks for its heap.".into()
        }
        0 => String::new(),
        some => format!(
            " The function that mapped {} of it has no name here; it is taken for the heap's because it maps for the heap on other stacks.",
            bytes(some)
        ),
    };
    OwnHeap {
        name: known.name.into(),
        allocator: known.allocator,
        what: match known.allocator {
            true => format!(
                "{} brings an allocator of its own ({}): the blocks in it are not seen, only its mappings, which hold {share}.",
                library.unwrap_or("The program"),
                known.name
            ),
            false => format!(
                "{}: {share}{}.{doubt}",
                known.name,
                parts::told(known, &parts)
            ),
        },
        change: match library {
            Some(file) => known::change_of_library(file),
            None => format!(
                "{nursery}{}{}",
                parts::free_regions(&parts, heap.bytes),
                known.change
            ),
        },
        parts,
        ..heap
    }
}

/// Returns what sets the size of a heap's nursery, if it is a quarter of the heap or more.
fn nursery(sum: &Sum<'_>) -> String {
    let found = NURSERIES.iter().find(|one| one.heap == sum.known.name);
    let Some(one) = found.filter(|_| sum.nursery > 0 && sum.nursery >= sum.heap.bytes / 4) else {
        return String::new();
    };
    let by = match sum.is_set {
        true => ", made that large by the program itself",
        false => "",
    };
    let (name, setting) = (one.name, one.setting);
    format!(
        "{} of it are {name}{by}: {setting} sets its size. ",
        bytes(sum.nursery)
    )
}

/// Returns a mapper that seems to take malloc's place (O3).
fn unnamed(
    report: &Report,
    naming: &Naming,
    mappers: FxHashMap<u32, OwnHeap>,
    live: u64,
) -> Option<OwnHeap> {
    let whole: u64 = mappers.values().map(|heap| heap.bytes).sum();
    let heap = mappers
        .into_values()
        .max_by_key(|heap| (heap.bytes, heap.node))?;
    let alone = heap.bytes >= whole / 2 && live <= heap.bytes / 20 && heap.bytes >= 1 << 20;
    let node = heap.node.filter(|_| alone)?;
    Some(OwnHeap {
        allocator: true,
        what: format!(
            "Nearly nothing is asked of malloc, and {} maps {} by itself: an allocator that the program brings (the blocks in it are not seen), or large buffers.",
            naming.mapper_name(report, node),
            bytes(heap.bytes)
        ),
        change: "If it is an allocator, record a build without it: Rust without #[global_allocator], C and C++ without linking it. If it is a language's runtime (GHC, BEAM, SBCL …), ask the runtime for its heap.".into(),
        ..heap
    })
}

#[cfg(test)]
#[path = "heaps_tests.rs"]
mod tests;
