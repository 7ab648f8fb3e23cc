//! The heaps that programs are known to have inside: by which functions, and how to look into them.
//!
//! ```text
//!   CPython · PHP · Ruby · V8 · GCC · HotSpot · …   runtimes, before   mimalloc · jemalloc · …   the allocators in them
//! ```
//!
//! Not here: how a stack is judged by them (heaps.rs).

/// A known heap.
pub(crate) struct Known {
    pub(crate) name: &'static str,
    /// Whether it takes malloc's place.
    pub(crate) allocator: bool,
    /// The files that it is in, by the beginnings of their names; none means any.
    pub(crate) modules: &'static [&'static str],
    /// Functions that get its memory, with a `*` at the end for all that begin so (heaps.O1).
    pub(crate) chunks: &'static [&'static str],
    /// Functions whose mappings are the heap's, wherever they are on the stack (heaps.O1).
    pub(crate) mapped: &'static [&'static str],
    /// Functions all of whose mappings are the heap's (heaps.O1).
    pub(crate) maps: &'static [&'static str],
    pub(crate) parts: Parts,
    pub(crate) change: &'static str,
}

/// How it is told what a heap's memory is for (heaps.O6).
#[derive(Clone, Copy)]
pub(crate) enum Parts {
    /// It is not.
    Untold,
    /// By names of pages, which begin so.
    ByName(&'static str),
    /// By the innermost function of a stack that is among these.
    ByStack(&'static [(&'static str, &'static [&'static str])]),
}

/// What names of pages tell of Java's memory, too, and better: `[java heap: eden]` stands for a part of the heap.
pub(crate) const NAMED_OF_JAVA: [&str; 2] = ["Java heap", "code cache"];

/// Java's memory. A collector's bitmaps that grow with its heap are got by the same functions, and are with the heap if its pages
/// have no names.
const HOTSPOT: Parts = Parts::ByStack(&[
    ("code cache", &["CodeHeap::*", "CodeCache::*"]),
    (
        "metaspace",
        &["metaspace::*", "Metaspace*", "ClassLoaderMetaspace::*"],
    ),
    (
        "the collector's tables",
        &[
            "G1RegionsSmallerThanCommitSizeMapper::*",
            "G1FromCardCache::*",
            "G1CMMarkStack::*",
            "G1BlockOffset*",
            "CardTable::*",
            "BlockOffset*",
            "ObjectStartArray::*",
            "ParMarkBitMap::*",
            "ParallelCompactData::*",
            "MarkBitMap::*",
        ],
    ),
    (
        "Java heap",
        &[
            "G1RegionsLargerThanCommitSizeMapper::*",
            "HeapRegionManager::*",
            "G1CollectedHeap::*",
            "Generation::*",
            "DefNewGeneration::*",
            "TenuredGeneration::*",
            "CardGeneration::*",
            "GenCollectedHeap::*",
            "SerialHeap::*",
            "PSYoungGen::*",
            "PSOldGen::*",
            "ParallelScavengeHeap::*",
            "ReservedHeapSpace::*",
            "Universe::reserve_heap",
            "ShenandoahHeap::*",
            "ZPhysicalMemory*",
        ],
    ),
]);

/// The part of a heap in which objects are made, if it is got in one piece.
pub(crate) struct Nursery {
    /// The name of the heap.
    pub(crate) heap: &'static str,
    /// Functions that get it, near the call.
    pub(crate) made_by: &'static [&'static str],
    /// Functions through which the program itself sets its size.
    pub(crate) set_by: &'static [&'static str],
    /// What it is called.
    pub(crate) name: &'static str,
    /// What sets its size from outside.
    pub(crate) setting: &'static str,
}

pub(crate) const NURSERIES: [Nursery; 1] = [Nursery {
    heap: "OCaml's heap",
    made_by: &["caml_set_minor_heap*"],
    set_by: &["caml_gc_set"],
    name: "the minor heap",
    setting: "OCAMLRUNPARAM=s=WORDS",
}];

/// Returns how the blocks of an allocator in a library can be seen.
pub(crate) fn change_of_library(file: &str) -> String {
    let built = "To see them, use a build of the library that keeps its symbols (Rust: strip = false), whose functions are hooked \
                 then, on x86-64, or one on the system's malloc.";
    match file.starts_with("libarrow") {
        true => format!(
            "ARROW_DEFAULT_MEMORY_POOL=system in the environment has Arrow ask malloc, whose blocks are seen. {built}"
        ),
        false => built.into(),
    }
}

/// The known heaps; the first that fits is taken, so a runtime comes before the allocator in it.
pub(crate) const KNOWN: &[Known] = &[
    Known {
        name: "CPython's object allocator",
        allocator: false,
        modules: &["python", "libpython"],
        chunks: &[
            "new_arena",
            "_PyObject_Arena*",
            "_PyMem_Arena*",
            "_mi_*",
            "mi_*",
        ],
        mapped: &[],
        maps: &[
            "_PyObject_*",
            "PyObject_*",
            "_PyMem_*",
            "PyMem_*",
            "_PyEval_*",
            "Py*",
            "_Py*",
        ],
        parts: Parts::Untold,
        change: "Record with --python-objects: every object is then a block with its own stack, of functions and lines with Python 3.9 to 3.14. PYTHONMALLOC=malloc in the environment does so, too, and changes how the program allocates.",
    },
    Known {
        name: "PHP's request heap (Zend)",
        allocator: false,
        modules: &[],
        chunks: &[],
        mapped: &[
            "zend_mm_*",
            "_zend_mm_*",
            "start_memory_manager",
            "alloc_globals_ctor",
        ],
        maps: &[
            "_emalloc*",
            "_femalloc*",
            "_safe_emalloc",
            "_safe_femalloc",
            "_erealloc*",
            "_ferealloc*",
            "_ecalloc",
            "_fecalloc",
        ],
        parts: Parts::Untold,
        change: "Record with USE_ZEND_ALLOC=0 in the environment: every value is then a block of malloc with its own stack.",
    },
    Known {
        name: "Ruby's object slots",
        allocator: false,
        modules: &["libruby", "ruby"],
        chunks: &[
            "heap_page_*",
            "heap_assign_page",
            "heap_prepare*",
            "heap_increment*",
            "rb_aligned_malloc",
            "gc_aligned_malloc",
        ],
        mapped: &[],
        maps: &[
            "rb_gc*",
            "newobj_*",
            "rb_newobj*",
            "rb_wb_*",
            "rb_ec_wb_*",
            "objspace_*",
            "Init_heap",
        ],
        parts: Parts::Untold,
        change: "Slots have no stacks of their own: in the program, ObjectSpace.trace_object_allocations_start and ObjectSpace.dump_all tell the lines. Strings, arrays and hashes beyond their slots are blocks of malloc, and in this report.",
    },
    Known {
        name: "V8's heap (JavaScript)",
        allocator: false,
        modules: &[],
        chunks: &[],
        mapped: &[
            "v8::base::OS::*",
            "v8::base::AllocatePages*",
            "v8::internal::MemoryAllocator::*",
            "v8::internal::AllocatePages*",
            "v8::base::PageAllocator::*",
            "v8::internal::VirtualMemory::*",
        ],
        maps: &["v8::*", "node::*"],
        parts: Parts::ByName("[v8 "),
        change: "Take a heap snapshot (node --heapsnapshot-signal=SIGUSR2, or v8.writeHeapSnapshot()) and read it with `skinflint heap`: it tells objects, what holds them, and their constructors.",
    },
    Known {
        name: "GCC's own heap (ggc)",
        allocator: false,
        modules: &[
            "cc1",
            "lto1",
            "f951",
            "gnat1",
            "d21",
            "go1",
            "gm2",
            "rust1",
            "crab1",
            "jit1",
            "libgccjit",
        ],
        chunks: &[],
        mapped: &["alloc_anon*", "alloc_page*", "ggc_*"],
        maps: &[
            "make_node*",
            "build*",
            "gt_pch*",
            "gimple*",
            "c_parse*",
            "cp_*",
        ],
        parts: Parts::Untold,
        change: "GCC collects it by itself: -fmem-report tells what is in it; --param ggc-min-expand=10 and --param ggc-min-heapsize=8192 make it collect earlier and cost time. The stacks tell which pass made it grow.",
    },
    Known {
        name: "Java's heap and metaspace (HotSpot)",
        allocator: false,
        modules: &["libjvm"],
        chunks: &[],
        mapped: &[],
        maps: &["*"],
        parts: HOTSPOT,
        change: "Ask the virtual machine: jcmd PID VM.native_memory (start it with -XX:NativeMemoryTracking=summary), jcmd PID GC.class_histogram.",
    },
    Known {
        name: "Lua's heap (LuaJIT)",
        allocator: false,
        modules: &[],
        chunks: &["lj_alloc_*"],
        mapped: &[],
        maps: &["lj_*"],
        parts: Parts::Untold,
        change: "Build LuaJIT with -DLUAJIT_USE_SYSMALLOC to see its blocks, or ask collectgarbage(\"count\").",
    },
    Known {
        name: "Boehm's collector",
        allocator: false,
        modules: &[],
        chunks: &[
            "GC_unix_*",
            "GC_get_mem",
            "GC_expand_hp*",
            "GC_scratch_alloc",
        ],
        mapped: &[],
        maps: &["GC_*"],
        parts: Parts::Untold,
        change: "GC_FREE_SPACE_DIVISOR=10 in the environment makes it collect earlier, and cost time; GC_PRINT_STATS=1 and GC_DUMP_REGULARLY=1 tell what it holds.",
    },
    Known {
        name: "OCaml's heap",
        allocator: false,
        modules: &[],
        chunks: &[
            "caml_alloc_for_heap",
            "caml_init_major_heap",
            "caml_mem_map",
            "caml_set_minor_heap*",
            "caml_init_gc*",
            "caml_init_domain*",
        ],
        mapped: &[],
        maps: &["caml_*"],
        parts: Parts::Untold,
        change: "OCAMLRUNPARAM=v=0x400 prints what it holds at exit; Memprof and memtrace tell who allocates. A program may set its own parameters, and some do so only where that variable is unset: then setting it changes what is measured, so repeat theirs in it (s= is the size of the minor heap in words).",
    },
    Known {
        name: "Haskell's heap (GHC)",
        allocator: false,
        modules: &[],
        chunks: &[],
        mapped: &[
            "osGetMBlocks*",
            "osReserveHeapMemory*",
            "osTryReserveHeapMemory*",
            "osCommitMemory*",
            "getMBlocks*",
            "getOrCreateFreshMBlocks*",
            "my_mmap*",
        ],
        maps: &[],
        parts: Parts::Untold,
        change: "+RTS -s prints what it held, +RTS -hT profiles what is in it; +RTS -F1.5 or -c keeps less beside the live data, -Fd1 gives unused memory back sooner (link with -rtsopts).",
    },
    Known {
        name: "Go's heap",
        allocator: false,
        modules: &[],
        chunks: &[],
        mapped: &["runtime.sys*", "runtime.mmap*", "x_cgo_mmap*"],
        maps: &["runtime.*"],
        parts: Parts::Untold,
        change: "Go's functions and lines are in the report on its own heap, by the samples that Go takes itself: the trace beside this one, with heap in its name. GOMEMLIMIT and GOGC make it collect earlier.",
    },
    Known {
        name: "Erlang's allocators (BEAM)",
        allocator: false,
        modules: &["beam"],
        chunks: &["erts_alcu_*", "create_carrier*", "erts_mseg_*", "mseg_*"],
        mapped: &["erts_mmap*", "os_mmap*"],
        maps: &["erts_*"],
        parts: Parts::Untold,
        change: "erlang:memory() and instrument:carriers() tell what its carriers hold; +M<S>acul 0 and +M<S>as change how they are shared and filled (erts_alloc).",
    },
    Known {
        name: "Chez Scheme's heap",
        allocator: false,
        modules: &[],
        chunks: &["S_getmem*", "S_find_more_room*", "S_find_segments*"],
        mapped: &[],
        maps: &[],
        parts: Parts::Untold,
        change: "(bytes-allocated) and (object-counts) tell what is in it; (release-minimum-generation 0) gives memory back after each collection. Racket calls them through vm-eval of ffi/unsafe/vm; its own are (current-memory-use) and (collect-garbage).",
    },
    Known {
        name: "Poly/ML's heap",
        allocator: false,
        modules: &["libpolyml", "poly"],
        chunks: &[],
        mapped: &["OSMem::Alloc*"],
        maps: &[],
        parts: Parts::Untold,
        change: "--maxheap MB bounds it, a larger --gcpercent keeps less beside the live data; --debug heapsize logs why it grows, PolyML.objSize tells what a value takes.",
    },
    Known {
        name: "Tcl's object allocator",
        allocator: false,
        modules: &["libtcl", "tclsh", "wish"],
        chunks: &[
            "GetBlocks*",
            "TclThreadAllocObj*",
            "TclAllocateFreeObjects*",
        ],
        mapped: &[],
        maps: &[],
        parts: Parts::Untold,
        change: "Blocks come from pools that each thread keeps to its end; a build of Tcl with -DPURIFY shows each one, one with TCL_MEM_DEBUG lists them (the command memory).",
    },
    Known {
        name: "mimalloc",
        allocator: true,
        modules: &[],
        chunks: &["_mi_*", "mi_*"],
        mapped: &[],
        maps: &[],
        parts: Parts::Untold,
        change: "To see them, keep the program's symbols (Rust: strip = false; or its debug file): its functions are hooked then, on x86-64. Or record a build on the system's malloc (Rust: without #[global_allocator], behind a feature; C and C++: without linking mimalloc). MIMALLOC_SHOW_STATS=1 prints what mimalloc holds.",
    },
    Known {
        name: "jemalloc",
        allocator: true,
        modules: &[],
        chunks: &[
            "_rjem_*",
            "je_*",
            "_rjem_je_*",
            "os_pages_map",
            "pages_map*",
            "extent_alloc_mmap*",
            "base_block_alloc*",
        ],
        mapped: &[],
        maps: &[],
        parts: Parts::Untold,
        change: "To see them, keep the program's symbols (Rust: strip = false; or its debug file): its functions are hooked then, on x86-64. Or record a build on the system's malloc (Rust: without #[global_allocator], behind a feature; C and C++: without linking jemalloc), or one whose jemalloc exports malloc (Rust: the feature unprefixed_malloc_on_supported_platforms). MALLOC_CONF=stats_print:true (with a prefix: _RJEM_MALLOC_CONF) prints what jemalloc holds.",
    },
    Known {
        name: "tcmalloc",
        allocator: true,
        modules: &[],
        chunks: &["tcmalloc::*", "TCMalloc_*", "TCMallocInternal*"],
        mapped: &[],
        maps: &[],
        parts: Parts::Untold,
        change: "To see them, record a build without tcmalloc; its own heap profile (MallocExtension) tells what it holds.",
    },
    Known {
        name: "another allocator",
        allocator: true,
        modules: &[],
        chunks: &[
            "snmalloc::*",
            "rpmalloc*",
            "_rpmalloc*",
            "scudo::*",
            "bmalloc::*",
            "pas_*",
            "partition_alloc::*",
            "dlmalloc::*",
            "hoard*",
            "sn_rust_*",
            "talc::*",
        ],
        mapped: &[],
        maps: &[],
        parts: Parts::Untold,
        change: "To see them, record a build on the system's malloc (Rust: without #[global_allocator], behind a feature); of snmalloc and rpmalloc it is enough to keep the program's symbols, on x86-64.",
    },
];
