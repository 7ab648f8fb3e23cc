//! The functions of allocators that programs are linked with, and how each is called.
//!
//! ```text
//!   _rjem_ sdallocx      je_ sdallocx      jemalloc: the names are the library's, behind a prefix that its builder chose
//!   mi_ heap_ malloc     mi_ theap_ malloc mimalloc: the same functions, with a heap before their arguments
//! ```
//!
//! F1  Arguments are counted from 0, as the headers of each library have them (mimalloc 2 and 3, jemalloc 5, snmalloc
//!     0.7, rpmalloc 1.4).
//! F2  A function that may throw is not among the hooked: nothing can be thrown through the recorder. Its blocks, and those
//!     of functions that end many blocks in one step, are not seen: their calls are counted.
//! F3  Every hooked function calls the C library in some case, so no compiler keeps a value of its caller in a register that
//!     calls may change. What only returns a size does not: it is never hooked.
//!
//! Not here: where they are in a program (`mod.rs`).

use skinflint_base::plan::{Call, NONE, scheme, what};

/// Codes of functions in events (`skinflint_trace::AllocFn`, `FreeFn`).
mod func {
    pub const MALLOC: u8 = 0;
    pub const CALLOC: u8 = 1;
    pub const REALLOC: u8 = 2;
    pub const MEMALIGN: u8 = 3;
    pub const FREE: u8 = 0;
    pub const FREE_SIZED: u8 = 1;
}

/// An allocator.
pub(super) struct Family {
    pub name: &'static str,
    /// What its functions' names begin with; the first whose functions are found is the program's.
    pub prefixes: &'static [&'static str],
    pub functions: &'static [(&'static str, Call)],
    /// Functions whose effects are not seen (F2).
    pub unseen: &'static [&'static str],
}

const fn call(what: u8, func: u8, block: u8, size: u8, count: u8) -> Call {
    Call {
        what,
        block,
        size,
        count,
        align: NONE,
        scheme: scheme::UNKNOWN,
        func,
    }
}

/// A function of jemalloc's, which rounds the size up by its classes; `align`: the argument that is an alignment.
const fn classed(call: Call, align: u8) -> Call {
    Call {
        align,
        scheme: scheme::JEMALLOC,
        ..call
    }
}

/// As [`classed`], with the alignment in an argument of flags.
const fn flagged(call: Call, align: u8) -> Call {
    Call {
        align,
        scheme: scheme::JEMALLOC_FLAGS,
        ..call
    }
}

const fn gets(func: u8, size: u8) -> Call {
    call(what::ACQUIRE, func, NONE, size, NONE)
}

const fn gets_array(count: u8, size: u8) -> Call {
    call(what::ACQUIRE, func::CALLOC, NONE, size, count)
}

const fn gets_into(block: u8, size: u8) -> Call {
    call(what::ACQUIRE_INTO, func::MEMALIGN, block, size, NONE)
}

const fn ends(func: u8, block: u8) -> Call {
    call(what::RELEASE, func, block, NONE, NONE)
}

const fn changes(block: u8, size: u8) -> Call {
    call(what::CHANGE, func::REALLOC, block, size, NONE)
}

const fn changes_array(block: u8, count: u8, size: u8) -> Call {
    call(what::CHANGE, func::REALLOC, block, size, count)
}

const fn changes_or_ends(block: u8, size: u8) -> Call {
    call(what::CHANGE_OR_RELEASE, func::REALLOC, block, size, NONE)
}

const fn changes_in_place(block: u8, size: u8) -> Call {
    call(what::CHANGE_IN_PLACE, func::REALLOC, block, size, NONE)
}

const fn measures(block: u8) -> Call {
    call(what::MEASURE, 0, block, NONE, NONE)
}

/// The call of a function whose effects are not seen (F2).
pub(super) const COUNTED: Call = call(what::COUNT, 0, NONE, NONE, NONE);

/// The allocators.
pub(super) const FAMILIES: &[Family] = &[MIMALLOC, JEMALLOC, SNMALLOC, RPMALLOC];

const MIMALLOC: Family = Family {
    name: "mimalloc",
    prefixes: &["mi_"],
    functions: &[
        ("usable_size", measures(0)),
        ("malloc_usable_size", measures(0)),
        ("malloc_size", measures(0)),
        ("malloc", gets(func::MALLOC, 0)),
        ("malloc_small", gets(func::MALLOC, 0)),
        ("umalloc", gets(func::MALLOC, 0)),
        ("umalloc_small", gets(func::MALLOC, 0)),
        ("new_nothrow", gets(func::MALLOC, 0)),
        ("zalloc", gets(func::CALLOC, 0)),
        ("zalloc_small", gets(func::CALLOC, 0)),
        ("uzalloc_small", gets(func::CALLOC, 0)),
        ("valloc", gets(func::MEMALIGN, 0)),
        ("pvalloc", gets(func::MEMALIGN, 0)),
        ("malloc_aligned", gets(func::MEMALIGN, 0)),
        ("malloc_aligned_at", gets(func::MEMALIGN, 0)),
        ("umalloc_aligned", gets(func::MEMALIGN, 0)),
        ("new_aligned_nothrow", gets(func::MEMALIGN, 0)),
        ("zalloc_aligned", gets(func::CALLOC, 0)),
        ("zalloc_aligned_at", gets(func::CALLOC, 0)),
        ("uzalloc_aligned", gets(func::CALLOC, 0)),
        ("memalign", gets(func::MEMALIGN, 1)),
        ("aligned_alloc", gets(func::MEMALIGN, 1)),
        ("posix_memalign", gets_into(0, 2)),
        ("calloc", gets_array(0, 1)),
        ("ucalloc", gets_array(0, 1)),
        ("mallocn", gets_array(0, 1)),
        ("calloc_aligned", gets_array(0, 1)),
        ("calloc_aligned_at", gets_array(0, 1)),
        ("strdup", gets(func::MALLOC, NONE)),
        ("strndup", gets(func::MALLOC, NONE)),
        ("wcsdup", gets(func::MALLOC, NONE)),
        ("mbsdup", gets(func::MALLOC, NONE)),
        ("realloc", changes(0, 1)),
        ("urealloc", changes(0, 1)),
        ("rezalloc", changes(0, 1)),
        ("expand", changes(0, 1)),
        ("_expand", changes(0, 1)),
        ("realloc_aligned", changes(0, 1)),
        ("realloc_aligned_at", changes(0, 1)),
        ("rezalloc_aligned", changes(0, 1)),
        ("rezalloc_aligned_at", changes(0, 1)),
        ("reallocn", changes_array(0, 1, 2)),
        ("reallocarray", changes_array(0, 1, 2)),
        ("recalloc", changes_array(0, 1, 2)),
        ("recalloc_aligned", changes_array(0, 1, 2)),
        ("recalloc_aligned_at", changes_array(0, 1, 2)),
        ("aligned_recalloc", changes_array(0, 1, 2)),
        ("aligned_offset_recalloc", changes_array(0, 1, 2)),
        ("reallocf", changes_or_ends(0, 1)),
        ("free", ends(func::FREE, 0)),
        ("free_small", ends(func::FREE, 0)),
        ("ufree", ends(func::FREE, 0)),
        ("cfree", ends(func::FREE, 0)),
        ("free_aligned", ends(func::FREE, 0)),
        ("free_size", ends(func::FREE_SIZED, 0)),
        ("free_size_aligned", ends(func::FREE_SIZED, 0)),
        ("heap_malloc", gets(func::MALLOC, 1)),
        ("heap_malloc_small", gets(func::MALLOC, 1)),
        ("heap_zalloc", gets(func::CALLOC, 1)),
        ("heap_zalloc_small", gets(func::CALLOC, 1)),
        ("heap_malloc_aligned", gets(func::MEMALIGN, 1)),
        ("heap_malloc_aligned_at", gets(func::MEMALIGN, 1)),
        ("heap_zalloc_aligned", gets(func::CALLOC, 1)),
        ("heap_zalloc_aligned_at", gets(func::CALLOC, 1)),
        ("heap_calloc", gets_array(1, 2)),
        ("heap_mallocn", gets_array(1, 2)),
        ("heap_calloc_aligned", gets_array(1, 2)),
        ("heap_calloc_aligned_at", gets_array(1, 2)),
        ("heap_strdup", gets(func::MALLOC, NONE)),
        ("heap_strndup", gets(func::MALLOC, NONE)),
        ("heap_realloc", changes(1, 2)),
        ("heap_rezalloc", changes(1, 2)),
        ("heap_realloc_aligned", changes(1, 2)),
        ("heap_realloc_aligned_at", changes(1, 2)),
        ("heap_rezalloc_aligned", changes(1, 2)),
        ("heap_rezalloc_aligned_at", changes(1, 2)),
        ("heap_reallocn", changes_array(1, 2, 3)),
        ("heap_recalloc", changes_array(1, 2, 3)),
        ("heap_recalloc_aligned", changes_array(1, 2, 3)),
        ("heap_recalloc_aligned_at", changes_array(1, 2, 3)),
        ("heap_reallocf", changes_or_ends(1, 2)),
        ("theap_malloc", gets(func::MALLOC, 1)),
        ("theap_malloc_small", gets(func::MALLOC, 1)),
        ("theap_zalloc", gets(func::CALLOC, 1)),
        ("theap_zalloc_small", gets(func::CALLOC, 1)),
        ("theap_malloc_aligned", gets(func::MEMALIGN, 1)),
        ("theap_malloc_aligned_at", gets(func::MEMALIGN, 1)),
        ("theap_zalloc_aligned", gets(func::CALLOC, 1)),
        ("theap_zalloc_aligned_at", gets(func::CALLOC, 1)),
        ("theap_calloc", gets_array(1, 2)),
        ("theap_mallocn", gets_array(1, 2)),
        ("theap_realloc", changes(1, 2)),
        ("theap_rezalloc", changes(1, 2)),
        ("theap_realloc_aligned", changes(1, 2)),
        ("theap_realloc_aligned_at", changes(1, 2)),
        ("theap_reallocn", changes_array(1, 2, 3)),
        ("theap_recalloc", changes_array(1, 2, 3)),
        ("theap_reallocf", changes_or_ends(1, 2)),
    ],
    unseen: &[
        "new",
        "new_n",
        "new_aligned",
        "new_realloc",
        "new_reallocn",
        "heap_alloc_new",
        "heap_alloc_new_n",
        "heap_destroy",
        "heap_unsafe_destroy_all",
        "subproc_destroy",
        "realpath",
        "reallocarr",
        "dupenv_s",
        "wdupenv_s",
    ],
};

const JEMALLOC: Family = Family {
    name: "jemalloc",
    prefixes: &["_rjem_", "je_", "je_arrow_", "duckdb_je_"],
    functions: &[
        ("malloc_usable_size", measures(0)),
        ("sallocx", measures(0)),
        ("malloc", classed(gets(func::MALLOC, 0), NONE)),
        ("mallocx", flagged(gets(func::MALLOC, 0), 1)),
        ("valloc", gets(func::MEMALIGN, 0)),
        ("pvalloc", gets(func::MEMALIGN, 0)),
        ("memalign", classed(gets(func::MEMALIGN, 1), 0)),
        ("aligned_alloc", classed(gets(func::MEMALIGN, 1), 0)),
        ("posix_memalign", classed(gets_into(0, 2), 1)),
        ("calloc", classed(gets_array(0, 1), NONE)),
        ("realloc", classed(changes(0, 1), NONE)),
        ("rallocx", flagged(changes(0, 1), 2)),
        ("xallocx", changes_in_place(0, 1)),
        ("free", ends(func::FREE, 0)),
        ("dallocx", ends(func::FREE, 0)),
        ("sdallocx", ends(func::FREE_SIZED, 0)),
        ("free_sized", ends(func::FREE_SIZED, 0)),
        ("free_aligned_sized", ends(func::FREE_SIZED, 0)),
    ],
    unseen: &["batch_alloc"],
};

const SNMALLOC: Family = Family {
    name: "snmalloc",
    prefixes: &["sn_"],
    functions: &[
        ("rust_usable_size", measures(0)),
        ("malloc_usable_size", measures(0)),
        ("rust_alloc", gets(func::MEMALIGN, 1)),
        ("rust_alloc_zeroed", gets(func::CALLOC, 1)),
        ("rust_realloc", changes(0, 3)),
        ("rust_dealloc", ends(func::FREE_SIZED, 0)),
        ("malloc", gets(func::MALLOC, 0)),
        ("calloc", gets_array(0, 1)),
        ("realloc", changes(0, 1)),
        ("free", ends(func::FREE, 0)),
    ],
    unseen: &[],
};

const RPMALLOC: Family = Family {
    name: "rpmalloc",
    prefixes: &["rp"],
    functions: &[
        ("malloc_usable_size", measures(0)),
        ("malloc", gets(func::MALLOC, 0)),
        ("zalloc", gets(func::CALLOC, 0)),
        ("calloc", gets_array(0, 1)),
        ("realloc", changes(0, 1)),
        ("aligned_alloc", gets(func::MEMALIGN, 1)),
        ("aligned_zalloc", gets(func::CALLOC, 1)),
        ("aligned_calloc", gets_array(1, 2)),
        ("aligned_realloc", changes(0, 2)),
        ("memalign", gets(func::MEMALIGN, 1)),
        ("posix_memalign", gets_into(0, 2)),
        ("free", ends(func::FREE, 0)),
    ],
    unseen: &["malloc_heap_free_all"],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_allocator_gets_and_ends_and_no_name_is_twice() {
        for family in FAMILIES {
            let mut names: Vec<&str> = family.functions.iter().map(|one| one.0).collect();
            names.extend(family.unseen);
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "{}", family.name);
            for what in [what::ACQUIRE, what::RELEASE, what::CHANGE, what::MEASURE] {
                assert!(family.functions.iter().any(|one| one.1.what == what));
            }
        }
    }
}
