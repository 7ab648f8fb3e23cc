//! Heaps that are told by stacks made by hand, and what their memory is for.

use super::*;
use crate::made::push_stack;
use crate::model::{BookPart, BookRow, Instant, Mapper, Node, Site};

/// A report of stacks in a module, outermost first, with what each mapped and what of its blocks lives.
fn report(module: &str, stacks: &[(&[&str], u64, u64)]) -> Report {
    let mut report = Report {
        nodes: vec![Node::default()],
        frames: vec![Frame::default()],
        instants: vec![Instant {
            books: Some(Books {
                resident_bytes: 100 << 20,
                ..Books::default()
            }),
            ..Instant::default()
        }],
        ..Report::default()
    };
    for (stack, mapped, live) in stacks {
        let frames = stack.iter().map(|name| {
            let is_c = matches!(*name, "mmap" | "mmap64" | "malloc");
            Frame {
                function: (*name).to_owned(),
                module: if is_c { "libc.so.6" } else { module }.into(),
                ..Frame::default()
            }
        });
        let node = push_stack(&mut report, frames);
        report.sites.push(Site {
            node,
            live_blocks: u64::from(*live > 0),
            live_usable_bytes: *live,
            live_resident_bytes: Some(*live),
            ..Site::default()
        });
        report.mappers.push(Mapper {
            node,
            mapped_bytes: *mapped,
            resident_bytes: Some(*mapped),
            ..Mapper::default()
        });
    }
    report
}

fn recognised(report: &Report) -> Vec<(String, bool, u64, u64)> {
    let heaps = found(report, &Naming::of(report));
    let row = |heap: OwnHeap| (heap.name, heap.allocator, heap.bytes >> 20, heap.stacks);
    heaps.into_iter().map(row).collect()
}

#[test]
fn an_allocator_in_the_program_is_told_by_who_maps() {
    for (mapper, name) in [
        ("_mi_prim_alloc", "mimalloc"),
        ("_rjem_je_pages_map", "jemalloc"),
        ("tcmalloc::SystemAlloc(unsigned long)", "tcmalloc"),
        (
            "snmalloc::PALLinux::reserve(unsigned long)",
            "another allocator",
        ),
    ] {
        let one = report(
            "app",
            &[
                (
                    &["main", "load", "alloc::vec::Vec<T>::push", mapper, "mmap"],
                    60 << 20,
                    0,
                ),
                (&["main", "draw", mapper, "mmap64"], 10 << 20, 0),
            ],
        );
        assert_eq!(
            recognised(&one),
            [(name.to_owned(), true, 70, 2)],
            "{mapper}"
        );
    }
}

/// coqc: its own parameters are set only where the variable is not.
#[test]
fn the_setting_of_a_nursery_is_named_and_what_setting_it_may_change() {
    let made: &[&str] = &[
        "main",
        "caml_gc_set",
        "caml_set_minor_heap_size",
        "caml_stat_alloc_aligned_noexc",
    ];
    // What is promoted on the way is of the major heap.
    let promoted: &[&str] = &[
        "caml_gc_set",
        "caml_set_minor_heap_size",
        "caml_empty_minor_heap",
        "caml_alloc_shr_for_minor_gc",
        "caml_alloc_for_heap",
    ];
    let own: &[&str] = &[
        "main",
        "caml_init_gc",
        "caml_set_minor_heap_wsz",
        "caml_stat_alloc_aligned_noexc",
    ];
    let said = |stack: &[&str], nursery: u64| {
        let report = report("coqc", &[(stack, 0, nursery), (promoted, 0, 40 << 20)]);
        let heaps = found(&report, &Naming::of(&report));
        heaps[0].change.clone()
    };
    let large = said(made, 50 << 20);
    let begins = "50.0 MiB of it are the minor heap, made that large by the program itself: OCAMLRUNPARAM=s=WORDS sets";
    assert!(large.starts_with(begins), "{large}");
    assert!(
        large.contains("some do so only where that variable is unset"),
        "{large}"
    );
    assert!(
        said(own, 50 << 20).starts_with("50.0 MiB of it are the minor heap: OCAMLRUNPARAM=s=WORDS")
    );
    assert!(said(made, 5 << 20).starts_with("OCAMLRUNPARAM=v=0x400"));
}

/// rustc: its jemalloc serves all that it loads, LLVM among it.
#[test]
fn what_is_unseen_in_a_malloc_of_the_programs_own_is_said_with_its_name() {
    let stack: &[&str] = &["main", "malloc_default", "pages_map", "mmap"];
    let said = |allocations: u64, mapped: &str| {
        let stack: Vec<&str> = stack
            .iter()
            .map(|name| if *name == "pages_map" { mapped } else { name })
            .collect();
        let mut report = report("rustc", &[(&stack, 30 << 20, 0)]);
        report.totals.allocations = allocations;
        report.completeness.notes = vec!["first".into(), format!("{NO_HEAP_CALL} It has …")];
        report.own_heaps = found(&report, &Naming::of(&report));
        say_unseen(&mut report);
        assert_eq!(report.completeness.notes[0], "first");
        report.completeness.notes.remove(1)
    };
    let text = said(0, "pages_map");
    let begins =
        "No block was recorded: the program's own malloc (jemalloc) goes past the recorder.";
    assert!(text.starts_with(begins), "{text}");
    assert!(text.contains("free in its 30.0 MiB"), "{text}");
    assert!(said(1, "pages_map").starts_with(NO_HEAP_CALL));
    // A program that maps what it needs has no malloc of its own.
    assert!(said(0, "room_for_a_picture").starts_with(NO_HEAP_CALL));
}

#[test]
fn pools_of_runtimes_are_told_in_their_own_files_only() {
    let stack: &[&str] = &[
        "main",
        "_PyEval_EvalFrameDefault",
        "PyList_New",
        "new_arena",
        "mmap",
    ];
    let known = ("CPython's object allocator".to_owned(), false, 30, 1);
    let pool = (stack, 30 << 20, 0);
    assert_eq!(recognised(&report("python3.11", &[pool])), [known]);
    assert_eq!(
        recognised(&report(
            "mine",
            &[
                (stack, 30 << 20, 0),
                (&["main", "f", "malloc"], 0, 40 << 20)
            ]
        )),
        []
    );
    // A large list is a block of the user's, and no pool.
    let list: &[&str] = &["main", "_PyEval_EvalFrameDefault", "list_resize", "malloc"];
    assert_eq!(
        recognised(&report("python3.11", &[(list, 0, 50 << 20)])),
        []
    );
}

/// HotSpot calls malloc, too: for buffers outside its heap, which the report has as blocks.
#[test]
fn what_java_asks_of_malloc_is_not_its_heap() {
    let map: (&[&str], u64, u64) = (
        &[
            "JavaMain",
            "os::pd_reserve_memory(char*, unsigned long)",
            "mmap",
        ],
        20 << 20,
        0,
    );
    let buffer: (&[&str], u64, u64) = (
        &[
            "JavaMain",
            "Unsafe_AllocateMemory0",
            "os::malloc(unsigned long, MEMFLAGS)",
            "malloc",
        ],
        0,
        22 << 20,
    );
    let known = (
        "Java's heap and metaspace (HotSpot)".to_owned(),
        false,
        20,
        1,
    );
    assert_eq!(recognised(&report("libjvm.so", &[map, buffer])), [known]);
}

#[test]
fn what_javas_memory_is_for_is_told_by_its_stacks() {
    let of = |function: &'static str| -> Vec<&'static str> {
        vec![
            "JavaMain",
            "universe_init",
            function,
            "os::commit_memory",
            "mmap",
        ]
    };
    let stacks = [
        (
            of("G1RegionsLargerThanCommitSizeMapper::commit_regions"),
            20,
        ),
        (
            of("G1RegionsSmallerThanCommitSizeMapper::commit_regions"),
            2,
        ),
        (of("metaspace::VirtualSpaceNode::commit_range"), 5),
        (of("CodeHeap::reserve"), 3),
        (of("SafepointMechanism::default_initialize"), 1),
    ];
    let stacks: Vec<(&[&str], u64, u64)> = stacks
        .iter()
        .map(|(stack, mib)| (stack.as_slice(), *mib << 20, 0))
        .collect();
    let report = report("libjvm.so", &stacks);
    let heap = &found(&report, &Naming::of(&report))[0];
    let parts: Vec<(&str, u64)> = heap
        .parts
        .iter()
        .map(|part| (part.name.as_str(), part.bytes >> 20))
        .collect();
    assert_eq!(
        parts,
        [
            ("Java heap", 20),
            ("metaspace", 5),
            ("code cache", 3),
            ("the collector's tables", 2),
            ("the rest", 1)
        ]
    );
    assert_eq!(
        heap.bytes,
        heap.parts.iter().map(|part| part.bytes).sum::<u64>()
    );
    let said =
        "31 % of resident memory): Java heap 20.0 MiB, metaspace 5.00 MiB, code cache 3.00 MiB, ";
    assert!(heap.what.contains(said), "{}", heap.what);
}

#[test]
fn names_of_pages_divide_what_javas_stacks_got() {
    let heap = |named: &[(&str, u64)]| {
        let of = |function: &'static str| vec!["JavaMain", function, "os::commit_memory", "mmap"];
        let stacks = [
            (
                of("G1RegionsLargerThanCommitSizeMapper::commit_regions"),
                20 << 20,
                0,
            ),
            (of("metaspace::VirtualSpaceNode::commit_range"), 5 << 20, 0),
            (of("CodeHeap::reserve"), 3 << 20, 0),
        ];
        let stacks = stacks
            .each_ref()
            .map(|one| (one.0.as_slice(), one.1, one.2));
        let mut report = report("libjvm.so", &stacks);
        let part = |(name, mib): &(&str, u64)| BookPart {
            name: (*name).into(),
            bytes: mib << 20,
            node: None,
        };
        let books = report.instants[0].books.as_mut().expect("books");
        books.beside = vec![BookRow {
            id: "java-spaces".into(),
            parts: named.iter().map(part).collect(),
            ..BookRow::default()
        }];
        found(&report, &Naming::of(&report)).swap_remove(0)
    };
    let parts = |heap: &OwnHeap| -> Vec<(String, u64)> {
        let each = heap.parts.iter();
        each.map(|part| (part.name.clone(), part.bytes >> 20))
            .collect()
    };
    let own = |all: &[(&str, u64)]| -> Vec<(String, u64)> {
        all.iter()
            .map(|(name, mib)| ((*name).into(), *mib))
            .collect()
    };
    let told = heap(&[
        ("[java heap: old]", 9),
        ("[java heap: free regions]", 8),
        ("[java code cache]", 2),
    ]);
    let by_names = [
        ("heap: old", 9),
        ("heap: free regions", 8),
        ("metaspace", 5),
        ("code cache", 2),
        ("the rest", 4),
    ];
    assert_eq!(parts(&told), own(&by_names));
    let free = "8.00 MiB of it are free regions of G1's: -XX:G1PeriodicGCInterval";
    assert!(told.change.starts_with(free), "{}", told.change);
    // No names, and names of more than the stacks got.
    let by_stacks = [("Java heap", 20), ("metaspace", 5), ("code cache", 3)];
    for untold in [heap(&[]), heap(&[("[java heap: old]", 24)])] {
        assert_eq!(parts(&untold), own(&by_stacks));
        assert!(untold.change.starts_with("Ask"), "{}", untold.change);
    }
    // Less than a quarter: 6 of 28.
    let few = heap(&[("[java heap: free regions]", 6), ("[java heap: old]", 14)]);
    assert!(few.change.starts_with("Ask"), "{}", few.change);
}

#[test]
fn spaces_of_v8_are_told_by_the_names_of_its_pages() {
    let mapped: (&[&str], u64, u64) = (&["main", "v8::base::OS::Allocate", "mmap"], 30 << 20, 0);
    let heap = |spaces: &[(&str, u64)]| {
        let mut report = report("node", &[mapped]);
        let books = report.instants[0].books.as_mut().expect("books");
        books.beside = vec![BookRow {
            id: "heap-spaces".into(),
            parts: spaces
                .iter()
                .map(|(name, mib)| BookPart {
                    name: (*name).into(),
                    bytes: mib << 20,
                    node: None,
                })
                .collect(),
            ..BookRow::default()
        }];
        let mut all = found(&report, &Naming::of(&report));
        all.swap_remove(0)
    };
    let told = heap(&[("[v8 new space]", 6), ("[v8 old space]", 20)]);
    let said =
        ": old space 20.0 MiB, new space 6.00 MiB, the rest 4.00 MiB; what is in them is not seen.";
    assert!(told.what.ends_with(said), "{}", told.what);
    assert_eq!(
        told.parts.iter().map(|part| part.bytes).sum::<u64>(),
        told.bytes
    );
    // More than the stacks of the heap have: some of its mappings were not seen to be made.
    for untold in [heap(&[]), heap(&[("[v8 old space]", 31)])] {
        assert!(untold.parts.is_empty());
        assert!(
            untold.what.contains("its spaces are not told apart"),
            "{}",
            untold.what
        );
    }
}

/// Debian's PHP: the function that maps has no name, and on most stacks no exported one is near.
#[test]
fn what_a_nameless_function_maps_for_a_heap_is_the_heap() {
    let first: (&[&str], u64, u64) = (
        &[
            "main",
            "php_module_startup",
            "start_memory_manager",
            "php8.2+0x2d3b57",
            "mmap",
        ],
        2 << 20,
        0,
    );
    let later: (&[&str], u64, u64) = (
        &[
            "main",
            "execute_ex",
            "php8.2+0x311bdc",
            "php8.2+0x2d3b57",
            "mmap",
        ],
        10 << 20,
        0,
    );
    let other: (&[&str], u64, u64) = (
        &["main", "execute_ex", "php8.2+0x555555", "mmap"],
        9 << 20,
        0,
    );
    let one = report("php8.2", &[first, later, other]);
    let heap = &found(&one, &Naming::of(&one))[0];
    assert_eq!(heap.bytes, 12 << 20);
    assert_eq!(heap.name, "PHP's request heap (Zend)");
    assert!(
        heap.what
            .contains("The function that mapped 10.0 MiB of it has no name here"),
        "{}",
        heap.what
    );
    // The same place in another file is another function.
    let apart = report("php8.2", &[later, other]);
    assert!(
        found(&apart, &Naming::of(&apart))
            .iter()
            .all(|heap| heap.name.is_empty())
    );
}

#[test]
fn slots_of_a_stripped_ruby_are_told_by_what_it_exports() {
    let slots: (&[&str], u64, u64) = (
        &[
            "main",
            "rb_vm_exec",
            "rb_wb_protected_newobj_of",
            "libruby-3.1.so.3.1+0xda28d",
            "libruby-3.1.so.3.1+0xd011c",
            "mmap",
        ],
        3 << 20,
        0,
    );
    let first: (&[&str], u64, u64) = (
        &[
            "main",
            "ruby_setup",
            "libruby-3.1.so.3.1+0xd0609",
            "libruby-3.1.so.3.1+0xd011c",
            "mmap",
        ],
        4 << 20,
        0,
    );
    let known = ("Ruby's object slots".to_owned(), false, 7, 2);
    assert_eq!(
        recognised(&report("libruby-3.1.so.3.1", &[slots, first])),
        [known]
    );
}

#[test]
fn a_heap_that_is_small_beside_the_rest_is_not_told() {
    let stack: &[&str] = &["main", "zend_mm_chunk_alloc", "mmap"];
    let blocks: (&[&str], u64, u64) = (&["main", "f", "malloc"], 0, 80 << 20);
    assert_eq!(
        recognised(&report("php8.2", &[(stack, 4 << 20, 0), blocks])),
        []
    );
    let recognised = recognised(&report("php8.2", &[(stack, 6 << 20, 0), blocks]));
    assert_eq!(recognised[0].0, "PHP's request heap (Zend)");
}

#[test]
fn an_allocator_without_a_known_name_is_told_where_malloc_serves_nobody() {
    let map: (&[&str], u64, u64) = (&["main", "f", "grow", "mmap"], 50 << 20, 0);
    let live = |bytes: u64| -> (&[&str], u64, u64) { (&["main", "g", "malloc"], 0, bytes) };
    assert_eq!(
        recognised(&report("app", &[map, live(2 << 20)])),
        [(String::new(), true, 50, 1)]
    );
    assert_eq!(recognised(&report("app", &[map, live(3 << 20)])), []);
}

#[test]
fn a_stripped_program_of_haskell_is_told_by_its_place() {
    let stack: (&[&str], u64, u64) = (
        &["main", "hledger+0x1e863dd", "hledger+0x1e85ebf", "mmap"],
        80 << 20,
        0,
    );
    let mut one = report("hledger", &[stack]);
    let heap = &found(&one, &Naming::of(&one))[0];
    assert!(heap.name.is_empty(), "not without its place: {}", heap.name);
    let owner = |at: u64| {
        let mapped = (0x42_0000_0000..0x142_0010_0000).contains(&at);
        mapped.then_some(Owner {
            node: skinflint_trace::NodeId(one.mappers[0].node),
            by_allocator: false,
            by_break: false,
            arena: false,
        })
    };
    // A buffer there that is not a tebibyte says nothing.
    assert_eq!(places(|at| owner(at).filter(|_| at < 0x43_0000_0000)), []);
    one.places = places(owner);
    let heap = &found(&one, &Naming::of(&one))[0];
    assert_eq!(
        (heap.name.as_str(), heap.bytes),
        ("Haskell's heap (GHC)", 80 << 20)
    );
    assert!(
        heap.what.contains("it lies where that runtime asks"),
        "{}",
        heap.what
    );
    assert!(!heap.allocator, "it is a runtime's");
}
