//! The rows of the books: their order, names and definitions.
//!
//! ```text
//!   Row ──► (row, id in the JSON, label, what it means)
//! ```
//!
//! R1  Every row is in the table once, in the order of the report.
//!
//! Not here: which byte goes where (`books.rs`).

/// The rows, in the order of the report.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Row {
    Live,
    Slop,
    Free,
    Metadata,
    Files,
    Stacks,
    ProgramMaps,
    Shared,
    Other,
    Recorder,
    Unclassified,
}

pub(super) const ROWS: [(Row, &str, &str, &str); 11] = [
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
        "Resident bytes of heap mappings ([heap], mapped by the allocator, or seen to hold blocks) that are neither live, slop nor known metadata: released blocks, and pages not given back.",
    ),
    (
        Row::Metadata,
        "allocator-metadata",
        "allocator's own data",
        "",
    ),
    (
        Row::Files,
        "mapped-files",
        "mapped files",
        "Resident bytes of mapped files: code and constants, and the private copies of written pages (data, relocations).",
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
        "Resident anonymous memory that the program mapped itself with mmap and in which no block was ever seen.",
    ),
    (
        Row::Shared,
        "shared",
        "shared memory",
        "Resident shared memory (memfd, /dev/shm, SysV, shared anonymous).",
    ),
    (
        Row::Other,
        "other-mappings",
        "other mappings",
        "Resident memory of mappings that nobody was seen to map and in which no block was ever seen: the loader's, libc's, the kernel's.",
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
pub(super) const GLIBC_METADATA: &str = "Chunk headers of glibc, on resident pages: 8 bytes before each live block, 16 before a block that has a mapping of its own. Arena headers and the headers of free chunks are in allocator-free.";
pub(super) const OTHER_METADATA: &str =
    "Resident bytes of what the allocator mapped and where no block was ever seen.";
