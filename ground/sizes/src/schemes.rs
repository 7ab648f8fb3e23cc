//! The schemes themselves.
//!
//! ```text
//!   linear ──► round up to a quantum          geometric ──► round up to 1/4 or 1/8 of the power below
//!   tables ──► next entry                     pages     ──► round up to a page, a slice, a chunk
//! ```
//!
//! S1  Each function keeps sizes.Z1 and sizes.Z2 of the crate.
//! S2  A scheme's source says whether it was measured: each size from 0 to 300,000 and the edges to
//!     5 MiB were asked of the named Debian 12 package with `malloc_usable_size` (2026-11-21); the rest
//!     is read from the named source.
//!
//! Not here: anything that depends on what was allocated before (caches, dynamic thresholds).

use crate::scheme::Scheme;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const OS_PAGE: u64 = 4 * KIB;

pub(crate) const ALL: &[Scheme] = &[
    Scheme {
        name: "mozjemalloc-2011",
        about: "Firefox 4 to 8: 2, 4, 8; 16 to 512 by 16; 1024, 2048; then 4 KiB pages to 1 MiB, \
                then whole 1 MiB chunks (counted as address space: not all of a chunk need be \
                resident).",
        source: "Nethercote, 'Clownshoes available in sizes 2^10+1 and up!' (2011-08-05)",
        usable: mozjemalloc_2011,
        small_max: 2 * KIB,
        large_max: MIB - OS_PAGE,
    },
    Scheme {
        name: "mozjemalloc",
        about: "Firefox today on 64-bit Linux: 8; 16 to 496 by 16; 512 to 3840 by 256; then 4 KiB \
                pages. Above 1 MiB the address space is a multiple of 1 MiB, but the block is \
                counted in pages, as Firefox counts it.",
        source: "gecko-dev memory/build/mozjemalloc.cpp and Constants.h",
        usable: mozjemalloc,
        small_max: 4 * KIB - 256,
        large_max: MIB - OS_PAGE,
    },
    Scheme {
        name: "jemalloc5",
        about: "jemalloc 5: 8; 16 to 128 by 16; then 4 classes per doubling, at any size.",
        source: "jemalloc 5.3.0, measured on Debian's libjemalloc2 5.3.0-1",
        usable: jemalloc5,
        small_max: 14 * KIB,
        large_max: 7 * MIB / 4,
    },
    Scheme {
        name: "mimalloc",
        about: "mimalloc 2: 8; 16 to 128 by 16; 4 classes per doubling to 128 KiB; then 64 KiB \
                slices to 512 KiB, then steps of 512 KiB to 8 MiB, 1 MiB to 32 MiB, 4 MiB above.",
        source: "mimalloc 2.0.9, measured on Debian's libmimalloc2.0 2.0.9+ds-2",
        usable: mimalloc,
        small_max: 128 * KIB,
        large_max: 16 * MIB,
    },
    Scheme {
        name: "tcmalloc",
        about: "gperftools' tcmalloc 2.10 (not Google's later one): its generated table to 32 KiB, \
                then 8 KiB pages.",
        source: "gperftools 2.10, measured on Debian's libtcmalloc-minimal4 2.10-1",
        usable: tcmalloc,
        small_max: 256 * KIB,
        large_max: MIB,
    },
    Scheme {
        name: "go",
        about: "Go's runtime: its table to 32 KiB, then 8 KiB pages. Simplified: the 8-byte header \
                of objects over 512 bytes that hold pointers is left out.",
        source: "Go 1.26, internal/runtime/gc/sizeclasses.go",
        usable: go,
        small_max: 32 * KIB,
        large_max: u64::MAX,
    },
    Scheme {
        name: "glibc",
        about: "glibc's ptmalloc on 64 bits: chunks of 16 bytes, 8 of them header, at least 32; \
                mmap from a chunk of 128 KiB. Simplified: the mmap threshold is fixed (it rises \
                as mapped blocks are freed), and a split remainder below 32 bytes is not given \
                with the block.",
        source: "glibc 2.36 malloc/malloc.c; compared with the running libc in the tests",
        usable: glibc,
        small_max: 1000,
        large_max: 128 * KIB - 24,
    },
    Scheme {
        name: "skinflint",
        about: "Skinflint's own allocator without earned classes: 16 to 256 by 16, 8 classes per \
                doubling to 32 KiB, then 4 KiB pages.",
        source: "this project",
        usable: skinflint,
        small_max: 32 * KIB,
        large_max: MIB,
    },
];

/// Returns the next multiple of `step` (a power of two), or `size` itself if there is none (sizes.Z2).
fn round_up(size: u64, step: u64) -> u64 {
    size.checked_add(step - 1)
        .map_or(size, |sum| sum & !(step - 1))
}

/// Rounds up to one of `2^steps_log2` classes between a power of two and the next. `size` must be above
/// 1.
fn geometric(size: u64, steps_log2: u32) -> u64 {
    let below = 1u64 << (size - 1).ilog2();
    round_up(size, (below >> steps_log2).max(1))
}

/// Returns the first entry of a rising table that is not below `size`; `None` above its last.
fn from_table(size: u64, table: &[u16]) -> Option<u64> {
    let at = table.partition_point(|class| u64::from(*class) < size);
    table.get(at).map(|class| u64::from(*class))
}

fn mozjemalloc_2011(size: u64) -> u64 {
    match size {
        0..=2 => 2,
        3..=8 => size.next_power_of_two(),
        9..=512 => round_up(size, 16),
        513..=2048 => size.next_power_of_two(),
        2049..=MIB => round_up(size, OS_PAGE),
        _ => round_up(size, MIB),
    }
}

fn mozjemalloc(size: u64) -> u64 {
    match size {
        0..=8 => 8,
        9..=512 => round_up(size, 16),
        513..=3840 => round_up(size, 256),
        _ => round_up(size, OS_PAGE),
    }
}

fn jemalloc5(size: u64) -> u64 {
    match size {
        0..=8 => 8,
        9..=128 => round_up(size, 16),
        _ => geometric(size, 2),
    }
}

fn mimalloc(size: u64) -> u64 {
    const SLICE: u64 = 64 * KIB;
    const MEDIUM_PAGE: u64 = 512 * KIB;
    match size {
        0..=131_072 => jemalloc5(size),
        131_073..=MEDIUM_PAGE => round_up(size, SLICE),
        524_289..=8_388_608 => round_up(size, MEDIUM_PAGE),
        8_388_609..=33_554_432 => round_up(size, MIB),
        _ => round_up(size, 4 * MIB),
    }
}

fn tcmalloc(size: u64) -> u64 {
    const TABLE: &[u16] = &[
        8, 16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256, 288, 320, 352,
        384, 416, 448, 480, 512, 576, 640, 704, 768, 896, 1024, 1152, 1280, 1408, 1536, 1792, 2048,
        2304, 2560, 2816, 3072, 3328, 4096, 4608, 5120, 6144, 6656, 8192, 9216, 10240, 12288,
        13312, 16384, 20480, 24576, 26624, 32768,
    ];
    from_table(size, TABLE).unwrap_or_else(|| round_up(size, 8 * KIB))
}

fn go(size: u64) -> u64 {
    const TABLE: &[u16] = &[
        8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256, 288, 320,
        352, 384, 416, 448, 480, 512, 576, 640, 704, 768, 896, 1024, 1152, 1280, 1408, 1536, 1792,
        2048, 2304, 2688, 3072, 3200, 3456, 4096, 4864, 5376, 6144, 6528, 6784, 6912, 8192, 9472,
        9728, 10240, 10880, 12288, 13568, 14336, 16384, 18432, 19072, 20480, 21760, 24576, 27264,
        28672, 32768,
    ];
    from_table(size, TABLE).unwrap_or_else(|| round_up(size, 8 * KIB))
}

fn glibc(size: u64) -> u64 {
    const HEADER: u64 = 8;
    const MIN_CHUNK: u64 = 32;
    const MMAP_CHUNK: u64 = 128 * KIB;
    let Some(with_header) = size.checked_add(HEADER) else {
        return size;
    };
    let chunk = round_up(with_header, 16).max(MIN_CHUNK);
    if chunk < MMAP_CHUNK {
        return chunk - HEADER;
    }
    // A mapped chunk has no successor whose first word it could borrow: 16 bytes of header.
    match chunk.checked_add(HEADER) {
        Some(mapped) => round_up(mapped, OS_PAGE)
            .saturating_sub(2 * HEADER)
            .max(size),
        None => size,
    }
}

pub(crate) fn skinflint(size: u64) -> u64 {
    match size {
        0..=16 => 16,
        17..=256 => round_up(size, 16),
        257..=32_768 => geometric(size, 3),
        _ => round_up(size, OS_PAGE),
    }
}
