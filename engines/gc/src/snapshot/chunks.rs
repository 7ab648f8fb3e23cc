//! Chunks by the arenas in use, and what sits in the last one: why a heap's megabytes do not go back.
//!
//! ```text
//!   chunk │hhhhhh│·····a······│ ─► one arena in use ─► its kind, its objects: a megabyte for so few
//!   chunk │hhhhhh│aaaa·aaaaaaa│ ─► a class of fullness
//! ```
//!
//! V1  Each chunk of a heap is in one class of one row, so classes sum to the heap's chunks ([`CLASSES`]).
//! V2  A chunk that one arena, or one object with pages of its own, keeps is a lone one: it would go back with that.
//!     Chunks of huge objects are theirs, and no lone ones.
//!
//! Mozilla found a third of its chunks kept by one arena each before objects of pages and of the browser were apart
//! (Wagner, 2011).
//!
//! Not here: objects and bytes by kind (`census`).

use core::ptr::NonNull;
use std::collections::BTreeMap;
use std::fmt;

use crate::heap::address::{Arena, Chunk};
use crate::heap::bits::each;
use crate::heap::kind::{Kind, Origin};
use crate::heap::layout::USABLE;
use crate::heap::set::Busy;
use crate::heap::state::Heap;
use crate::snapshot::census::{Class, Sum, quoted};
use crate::snapshot::number::Still;

/// Classes of chunks: a name, and the most arenas in use. The last one is of chunks with one huge object each.
pub const CLASSES: [(&str, usize); 7] = [
    ("none", 0),
    ("1", 1),
    ("2-7", 7),
    ("8-62", 62),
    ("63-249", USABLE - 1),
    ("all", USABLE),
    ("huge", usize::MAX),
];

/// Number of chunks of each of the [`CLASSES`].
pub type ByArenas = [u64; CLASSES.len()];

/// The chunks that one arena of a kind keeps each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lone {
    /// Number of chunks.
    pub chunks: u64,
    /// The objects in these arenas, and their bytes.
    pub objects: Sum,
}

/// The chunks of heaps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunks {
    /// By heap (those of the same name count as one), and whether the chunk is for system objects.
    pub rows: BTreeMap<(String, bool), ByArenas>,
    /// The lone ones (V2), by what keeps them.
    pub lone: BTreeMap<Class, Lone>,
    /// Number of chunks that one arena keeps.
    pub lone_total: u64,
}

impl Chunks {
    /// Counts the chunks of heaps. Everything is swept first.
    ///
    /// # Errors
    /// A closure of one of them is running, or a finalizer or trace function asked.
    pub fn of(heaps: &[&Heap]) -> Result<Chunks, Busy> {
        let _still = Still::new(heaps)?;
        Ok(Chunks::of_settled(heaps))
    }

    /// Counts the chunks of heaps by other names than those of kinds, for clients whose kinds are sizes: `name` is given
    /// each cell in use of a lone chunk; `None`: no object lies there. A chunk counts in the row of each name that it has.
    ///
    /// # Errors
    /// As [`Chunks::of`].
    pub fn of_named(
        heaps: &[&Heap],
        mut name: impl FnMut(NonNull<u8>, &'static Kind) -> Option<String>,
    ) -> Result<Chunks, Busy> {
        let _still = Still::new(heaps)?;
        let mut chunks = Chunks::default();
        for heap in heaps {
            // The list is not borrowed while the client's function runs.
            let all: Vec<Chunk> = heap.chunks.borrow().all().collect();
            for chunk in all {
                if let Some(arena) = chunks.add_row(heap, chunk) {
                    chunks.add_named(heap, arena, &mut name);
                }
            }
        }
        Ok(chunks)
    }

    /// Counts the chunks of heaps that are swept.
    pub(crate) fn of_settled(heaps: &[&Heap]) -> Chunks {
        let mut chunks = Chunks::default();
        for heap in heaps {
            for chunk in heap.chunks.borrow().all() {
                if let Some(arena) = chunks.add_row(heap, chunk) {
                    chunks.lone_total += 1;
                    let (kind, objects) = (
                        arena.head().kind.get(),
                        arena.head().allocated.count() as u64,
                    );
                    chunks.add_lone(heap, arena, (kind.name)().to_owned(), objects);
                }
            }
        }
        chunks
    }

    /// Counts a chunk; returns its arena if that is its only one (V2).
    fn add_row(&mut self, heap: &Heap, chunk: Chunk) -> Option<Arena> {
        let head = chunk.head();
        let system = usize::from(head.origin.get()) == Origin::System.index();
        let huge = head.slots.get() > 1;
        let used = head.used.get() as usize;
        let last = CLASSES.len() - 1;
        let class = CLASSES.iter().position(|&(_, most)| used <= most);
        let class = class.filter(|_| !huge).unwrap_or(last);
        let row = self.rows.entry((heap.name().to_owned(), system));
        row.or_default()[class] += 1;
        let mut arenas = chunk.arenas();
        let first = arenas.next()?;
        (!huge && arenas.next().is_none()).then_some(first)
    }

    fn add_named(
        &mut self,
        heap: &Heap,
        arena: Arena,
        name: &mut impl FnMut(NonNull<u8>, &'static Kind) -> Option<String>,
    ) {
        let mut names: BTreeMap<String, u64> = BTreeMap::new();
        for cell in each(arena.head().allocated.words()) {
            let name = name(arena.cell(cell), arena.head().kind.get());
            let name = name.unwrap_or_else(|| "(free cells)".to_owned());
            *names.entry(name).or_default() += 1;
        }
        self.lone_total += 1;
        for (name, objects) in names {
            self.add_lone(heap, arena, name, objects);
        }
    }

    fn add_lone(&mut self, heap: &Heap, arena: Arena, kind: String, objects: u64) {
        let class = Class {
            heap: heap.name().to_owned(),
            kind,
            system: arena.head().kind.get().origin == Origin::System,
        };
        let lone = self.lone.entry(class).or_default();
        lone.chunks += 1;
        lone.objects.objects += objects;
        lone.objects.bytes += objects * arena.object_bytes() as u64;
    }

    /// Returns the number of chunks of each class, of one origin or of both (`None`).
    pub fn by_arenas(&self, system: Option<bool>) -> ByArenas {
        let of = |row: &(&(String, bool), &ByArenas)| system.is_none_or(|asked| row.0.1 == asked);
        let mut sum = ByArenas::default();
        for (_, row) in self.rows.iter().filter(of) {
            sum.iter_mut()
                .zip(row)
                .for_each(|(sum, count)| *sum += count);
        }
        sum
    }

    /// Returns the number of all chunks.
    pub fn total(&self) -> u64 {
        self.by_arenas(None).iter().sum()
    }

    /// Returns what keeps lone chunks, the most first.
    pub fn by_lone(&self) -> Vec<(&Class, Lone)> {
        let mut rows: Vec<_> = self
            .lone
            .iter()
            .map(|(class, lone)| (class, *lone))
            .collect();
        rows.sort_by(|a, b| b.1.chunks.cmp(&a.1.chunks).then(a.0.cmp(b.0)));
        rows
    }

    /// Returns the counts as JSON: `{"chunks", "lone", "rows": [{"heap", "system", "by_arenas": {CLASS: chunks}}],
    /// "kept_by": [{"heap", "kind", "system", "chunks", "objects", "bytes"}]}`.
    pub fn json(&self) -> String {
        let classes = |row: &ByArenas| -> String {
            let of = CLASSES.iter().zip(row);
            let each: Vec<_> = of.map(|((name, _), n)| format!("\"{name}\":{n}")).collect();
            each.join(",")
        };
        let rows: Vec<String> = self
            .rows
            .iter()
            .map(|((heap, system), row)| {
                let (heap, classes) = (quoted(heap), classes(row));
                format!("{{\"heap\":\"{heap}\",\"system\":{system},\"by_arenas\":{{{classes}}}}}")
            })
            .collect();
        let kept: Vec<String> = self
            .by_lone()
            .into_iter()
            .map(|(class, lone)| {
                let (class, Sum { objects, bytes }) = (class.json(), lone.objects);
                let chunks = lone.chunks;
                format!("{{{class},\"chunks\":{chunks},\"objects\":{objects},\"bytes\":{bytes}}}")
            })
            .collect();
        format!(
            "{{\"chunks\":{},\"lone\":{},\"rows\":[{}],\"kept_by\":[{}]}}",
            self.total(),
            self.lone_total,
            rows.join(","),
            kept.join(",")
        )
    }
}

impl fmt::Display for Chunks {
    /// Writes chunks by arenas in use, of the program and of the runtime, and what keeps lone ones.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<12}", "arenas used")?;
        CLASSES
            .iter()
            .try_for_each(|(name, _)| write!(f, "{name:>8}"))?;
        for (name, system) in [("user", false), ("system", true)] {
            write!(f, "\n{name:<12}")?;
            let row = self.by_arenas(Some(system));
            row.iter().try_for_each(|count| write!(f, "{count:>8}"))?;
        }
        writeln!(f)?;
        for (class, lone) in self.by_lone() {
            let Sum { objects, bytes } = lone.objects;
            writeln!(
                f,
                "{:>5} chunks kept by one arena each: {objects} objects ({bytes} bytes), {} {} ({})",
                lone.chunks,
                class.whose(),
                class.kind,
                class.heap
            )?;
        }
        Ok(())
    }
}
