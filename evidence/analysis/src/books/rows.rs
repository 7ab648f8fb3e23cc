//! The rows of the books: their order, names and definitions.
//!
//! ```text
//!   Row ──► (row, id in the JSON, label, what it means)
//! ```
//!
//! R1  Every row is in the table once, in the order of the report.
//! R2  What is beside the rows is in none of their sums: swapped memory is not resident, and huge pages hold bytes
//!     that other rows count by their owner; so do pages that are mapped more than once.
//!
//! Not here: which byte goes where (`closing.rs`).

use skinflint_trace::{Mapping, MappingKind};

use super::parts::largest_parts;
use crate::model::{BookPart, BookRow, Books};

/// Rows of the heap's mappings: blocks, and what the allocator has beside them.
pub(crate) const HEAP_ROWS: [&str; 6] = [
    "live",
    "slop",
    "allocator-free",
    "arena-free",
    "allocator-metadata",
    "heap-unseen",
];

/// How names of pages begin that are of a space of a runtime's heap.
const V8: &str = "[v8 ";
const JAVA: &str = "[java ";

/// Reports whether pages of this name are of a space of a runtime's heap.
pub(super) fn is_space(name: &str) -> bool {
    name.starts_with(V8) || name.starts_with(JAVA)
}

/// Returns the name of a mapping.
pub(super) fn mapping_name(mapping: &Mapping) -> &str {
    match mapping.name.as_str() {
        "" => "[anonymous]",
        name => name,
    }
}

/// Returns the rows beside the books (R2), by mapping; a row that was not read is absent.
pub(super) fn beside(mappings: &[&Mapping], limit: usize) -> Vec<BookRow> {
    let row = |id: &str, label: &str, meaning: &str, of: &dyn Fn(&Mapping) -> u64| {
        let mut all: Vec<BookPart> = Vec::new();
        for mapping in mappings {
            let (name, bytes) = (mapping_name(mapping), of(mapping));
            match all.iter_mut().find(|part| part.name == name) {
                Some(part) => part.bytes += bytes,
                None if bytes > 0 => all.push(BookPart {
                    name: name.into(),
                    bytes,
                    node: None,
                }),
                None => {}
            }
        }
        BookRow {
            id: id.into(),
            label: label.into(),
            bytes: all.iter().map(|part| part.bytes).sum(),
            meaning: meaning.into(),
            parts: largest_parts(all, limit),
        }
    };
    let mut rows = vec![row(
        "swapped",
        "swapped out",
        "Bytes of the process that the kernel has swapped out; they are not resident and in no row.",
        &|mapping| mapping.swap_bytes,
    )];
    if mappings.iter().any(|mapping| mapping.huge_bytes.is_some()) {
        rows.push(row(
            "huge-pages",
            "of it in huge pages",
            "Resident bytes that lie in huge pages: they come and go two mebibytes at a time. Other rows have them by their owner.",
            &|mapping| mapping.huge_bytes.unwrap_or(0),
        ));
    }
    let merged = row(
        "merged",
        "of it counted more than once",
        "Anonymous bytes that RSS, and so these rows, count at each address, but PSS and control groups once: of pages that the \
         kernel merged (KSM), or that parent and child share. Other rows have them by their owner.",
        &more_than_once,
    );
    let spaces = row(
        "heap-spaces",
        "of it in V8's spaces",
        "Resident bytes of pages of V8's heap (JavaScript) that belong to a space, by the space's name. Other rows have them by their owner.",
        &|mapping| match mapping.name.starts_with(V8) {
            true => mapping.rss_bytes,
            false => 0,
        },
    );
    let java = row(
        "java-spaces",
        "of it Java's heap and code",
        "Resident bytes of pages of Java's heap (HotSpot), by the kind of region or space, and of its code cache. Other rows have them by their owner.",
        &|mapping| match mapping.name.starts_with(JAVA) {
            true => mapping.rss_bytes,
            false => 0,
        },
    );
    let found = [merged, spaces, java].into_iter();
    let found = found.filter(|row| row.bytes > 0);
    rows.extend(found);
    rows
}

/// Returns by how much the anonymous memory of a mapping is resident beyond its proportional share. No share: it was not read.
fn more_than_once(mapping: &Mapping) -> u64 {
    match mapping.kind {
        MappingKind::Heap | MappingKind::Stack | MappingKind::Anon if mapping.pss_bytes > 0 => {
            mapping.rss_bytes.saturating_sub(mapping.pss_bytes)
        }
        _ => 0,
    }
}

/// The rows, in the order of the report.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Row {
    Live,
    Slop,
    Free,
    Arenas,
    Metadata,
    Unseen,
    Files,
    Stacks,
    ProgramMaps,
    ProgramFiles,
    Shared,
    Other,
    Recorder,
    Unclassified,
}

pub(super) const ROWS: [(Row, &str, &str, &str); 14] = [
    (
        Row::Live,
        "live",
        "live blocks",
        "Bytes that the program asked for and has not released, on resident pages.",
    ),
    (
        Row::Slop,
        "slop",
        "slop",
        "Bytes of live blocks beyond what was asked for (usable size minus requested size), on resident pages.",
    ),
    (
        Row::Free,
        "allocator-free",
        "free, kept by the allocator",
        "Resident bytes of heap mappings ([heap], mapped by the allocator, or seen to hold blocks) that are neither live, slop nor known metadata, on pages that recorded blocks were on: released blocks, and pages not given back.",
    ),
    (
        Row::Arenas,
        "arena-free",
        "free, kept by Python",
        "Resident bytes of arenas of Python's object allocator in which no recorded object lives: released objects, pools that wait for their first object, headers of pools. Python gives an arena back when no object is left in it.",
    ),
    (
        Row::Metadata,
        "allocator-metadata",
        "allocator's own data",
        "",
    ),
    (
        Row::Unseen,
        "heap-unseen",
        "touched, no block ever seen",
        "Resident pages of heap mappings on which no recorded block ever was: tables and lists of the allocator, blocks that it made and never handed out, and whatever was got past the recorder. Nothing shows that they are free.",
    ),
    (
        Row::Files,
        "mapped-files",
        "mapped files",
        "Resident bytes of mapped files that the program did not map itself: code and constants of the program and its libraries, private copies of written pages (data, relocations), and what was mapped before the recording.",
    ),
    (
        Row::Stacks,
        "stacks",
        "thread stacks",
        "Resident bytes of thread stacks.",
    ),
    (
        Row::ProgramMaps,
        "program-maps",
        "mapped by the program",
        "Resident anonymous memory that the program mapped itself, with mmap, brk or sbrk, and in which no block was ever seen.",
    ),
    (
        Row::ProgramFiles,
        "program-files",
        "files the program mapped",
        "Resident bytes of files that the program mapped itself, with mmap: its data. The kernel takes back pages that were not written when memory is short; it first writes the others to the file, or to swap space if they are private copies.",
    ),
    (
        Row::Shared,
        "shared",
        "shared memory",
        "Resident shared memory (memfd, /dev/shm, SysV, shared anonymous). Other processes may have the same pages.",
    ),
    (
        Row::Other,
        "other-mappings",
        "other mappings",
        "Resident memory of mappings that no event reported and in which no block was ever seen: the loader's, libc's, the kernel's, and what was mapped before the recording.",
    ),
    (
        Row::Recorder,
        "recorder",
        "the recorder",
        "Resident memory of Skinflint's own recorder in the program.",
    ),
    (
        Row::Unclassified,
        "unclassified",
        "unclassified",
        "Resident by the kernel's count, but not among the pages that it listed a moment earlier or later.",
    ),
];
/// Label and meaning of the free row if the recording does not begin with the process.
pub(super) const FREE_OR_BEFORE: (&str, &str) = (
    "free, or not recorded",
    "Resident bytes of heap mappings ([heap], mapped by the allocator, or seen to hold blocks) in which no recorded block lives. The recording does not have all of the process's life: blocks that it does not know are in here, beside free memory.",
);
/// The meaning of other mappings if most of them are anonymous memory that no event reported.
pub(super) const PAST: &str = "Resident memory of mappings that no event reported and in which no block was ever seen: here for the most part anonymous memory that the program mapped by system calls of its own, or before the recording.";
pub(super) const GLIBC_METADATA: &str = "Chunk headers of glibc, on resident pages: 8 bytes before each live block, 16 before a block that has a mapping of its own. Arena headers and the headers of free chunks are in allocator-free.";
pub(super) const OTHER_METADATA: &str =
    "Resident bytes of what the allocator mapped and where no block was ever seen.";

/// Reports whether the parts of a row are files and the like, which have names of their own whoever mapped them.
pub(crate) fn has_names(id: &str) -> bool {
    matches!(id, "mapped-files" | "program-files" | "shared")
}

/// The least anonymous memory mapped past the recorder, and the part of resident memory, that make a difference.
const MUCH_PAST: (u64, u64) = (8 << 20, 10);

/// Returns the anonymous memory that no event reported, if it is much: the row then says what it is.
pub(crate) fn mapped_past(books: &mut Books) -> u64 {
    let resident = books.resident_bytes;
    let other = books.rows.iter_mut().find(|row| row.id == "other-mappings");
    let Some(row) = other else { return 0 };
    let anonymous = |part: &&BookPart| part.name.starts_with("[anon");
    let past: u64 = row
        .parts
        .iter()
        .filter(anonymous)
        .map(|part| part.bytes)
        .sum();
    if past < MUCH_PAST.0 || past < resident / MUCH_PAST.1 {
        return 0;
    }
    row.meaning = PAST.into();
    past
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_rss_counts_more_than_once_is_anonymous_memory_beyond_its_share() {
        let of = |kind, rss_bytes, pss_bytes| Mapping {
            kind,
            rss_bytes,
            pss_bytes,
            ..Mapping::default()
        };
        let merged = |mappings: &[&Mapping]| {
            let rows = beside(mappings, 9);
            rows.into_iter()
                .find(|row| row.id == "merged")
                .map(|row| row.bytes)
        };
        let heap = of(MappingKind::Heap, 40_960, 8_192);
        let anonymous = of(MappingKind::Anon, 8_192, 4_096);
        let file = of(MappingKind::File, 8_192, 100);
        let unread = of(MappingKind::Anon, 8_192, 0);
        let whole = of(MappingKind::Stack, 8_192, 8_192);
        assert_eq!(
            merged(&[&heap, &file, &unread, &whole, &anonymous]),
            Some(36_864)
        );
        assert_eq!(merged(&[&file, &unread, &whole]), None);
    }
}
