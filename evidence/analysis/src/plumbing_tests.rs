//! Which frames only pass an allocation on, by list and by rule, on reports made by hand.

use super::*;
use crate::made::push_stack;
use crate::model::{Frame, Node, Site};

/// A report with one site for each stack, given outermost first.
fn report(stacks: &[&[&str]]) -> Report {
    let mut report = Report {
        nodes: vec![Node::default()],
        frames: vec![Frame::default()],
        ..Report::default()
    };
    for stack in stacks {
        let frames = stack.iter().map(|name| Frame {
            function: (*name).to_owned(),
            ..Frame::default()
        });
        let node = push_stack(&mut report, frames);
        report.sites.push(Site {
            node,
            ..Site::default()
        });
    }
    report
}

fn names(report: &Report) -> Vec<&str> {
    let naming = Naming::of(report);
    let name = |site: &Site| {
        let node = naming.named[site.node as usize];
        report.frames[report.nodes[node as usize].frame as usize]
            .function
            .as_str()
    };
    report.sites.iter().map(name).collect()
}

#[test]
fn what_eight_functions_call_is_a_wrapper_and_what_seven_call_is_none() {
    let callers = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let stacks: Vec<[&str; 3]> = callers.iter().map(|c| ["main", *c, "get_memory"]).collect();
    let stacks: Vec<&[&str]> = stacks.iter().map(|stack| &stack[..]).collect();
    assert_eq!(names(&report(&stacks)), callers);
    assert_eq!(names(&report(&stacks[..7])), ["get_memory"; 7]);
}

#[test]
fn a_wrapper_that_is_called_so_needs_two_callers() {
    let stacks: [&[&str]; 3] = [
        &["main", "a", "ck_malloc"],
        &["main", "b", "ck_malloc"],
        &["main", "c", "leak_calloc"],
    ];
    assert_eq!(names(&report(&stacks)), ["a", "b", "leak_calloc"]);
    let one: [&[&str]; 2] = [&["main", "a", "ck_malloc"], &["main", "a", "ck_malloc"]];
    assert_eq!(names(&report(&one)), ["ck_malloc"; 2]);
    let method: [&[&str]; 2] = [&["f", "Pool::calloc"], &["g", "Pool::calloc"]];
    assert_eq!(names(&report(&method)), ["Pool::calloc"; 2]);
}

#[test]
fn wrappers_on_wrappers_are_peeled_off_one_after_another() {
    let callers = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let mut stacks: Vec<Vec<&str>> = Vec::new();
    for outer in callers {
        stacks.push(vec!["main", outer, "upper", "lower"]);
        stacks.push(vec!["main", outer, "lower"]);
    }
    let stacks: Vec<&[&str]> = stacks.iter().map(|stack| &stack[..]).collect();
    let expected: Vec<&str> = callers.iter().flat_map(|c| [*c, *c]).collect();
    assert_eq!(names(&report(&stacks)), expected);
}

#[test]
fn a_thread_of_javas_machine_is_named_by_its_own_step() {
    let compiler: &[&str] = &["start_thread", "Compile::Code_Gen()", "AllocateHeap"];
    let of = |others: &[&[&str]]| {
        let mut report = report(&[&[compiler], others].concat());
        for frame in &mut report.frames {
            frame.module = match &*frame.function {
                "start_thread" => "libc.so.6",
                "org.example.Rows.load" => "[java]",
                _ => "libjvm.so",
            }
            .to_owned();
        }
        names(&report)[0].to_owned()
    };
    assert_eq!(of(&[&["org.example.Rows.load"]]), "Compile::Code_Gen()");
    assert_eq!(of(&[]), "Compile::Code_Gen()");
}

#[test]
fn a_stack_of_plumbing_keeps_a_name() {
    assert_eq!(
        names(&report(&[&["_start", "operator new(unsigned long)"]])),
        ["_start"]
    );
    assert_eq!(
        names(&report(&[&["operator new(unsigned long)", "malloc"]])),
        ["malloc"]
    );
    assert_eq!(names(&report(&[&["main", "xmalloc.part.0"]])), ["main"]);
}

#[test]
fn a_function_that_is_called_like_the_start_is_the_programs_own() {
    for startup in [
        "_start",
        "clone3",
        "__clone@@GLIBC_2.2.5",
        "start_thread",
        "__libc_start_call_main",
        "std::rt::lang_start",
    ] {
        assert!(is_startup(startup), "{startup}");
    }
    for own in [
        "clone_tree",
        "clone_submodule",
        "_start_server",
        "start_thread_pool",
    ] {
        assert!(!is_startup(own), "{own}");
    }
}

/// The function of C++ that takes a `std::string` decides; its caller does not.
#[test]
fn what_a_function_is_given_does_not_make_it_plumbing() {
    for own in [
        "store_record(int, std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> > const&)",
        "store_record(int, std::string const&)",
        "lib::Store<std::vector<int, std::allocator<int> > >::put(std::_Any, int)",
        "void* std_like::make(std::allocator<int>)",
        "auto run(int)::{lambda(std::vector<int>&)#1}::operator()(std::vector<int>&) const",
        "Foo::operator std::vector<int>() const",
        "<my::Store<alloc::vec::Vec<u8>> as core::clone::Clone>::clone",
        "my::mallocate",
        "stdlib_init",
    ] {
        assert!(!is_plumbing(own), "{own}");
        let stack = ["main", own, "operator new(unsigned long)", "malloc"];
        assert_eq!(names(&report(&[&stack])), [own]);
    }
}

#[test]
fn libraries_pass_on_whatever_they_are_given() {
    for passing in [
        "std::vector<Mine, std::allocator<Mine> >::_M_realloc_insert<Mine const&>(Mine*, Mine const&)",
        "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >::_M_create(unsigned long&, unsigned long)",
        "std::shared_ptr<Mine> std::make_shared<Mine, int>(int&&)",
        "Mine* std::__do_uninit_copy<Mine const*, Mine*>(Mine const*, Mine const*, Mine*)",
        "std::string::_M_mutate(unsigned long, unsigned long, char const*, unsigned long)",
        "std::map<int, Mine>::operator[](int const&)",
        "std::operator+<char>(char const*, std::string const&)",
        "operator new[](unsigned long, std::align_val_t)",
        "__gnu_cxx::new_allocator<Mine>::allocate(unsigned long, void const*)",
        "alloc::vec::Vec<T,A>::push",
        "<alloc::vec::Vec<T> as alloc::vec::spec_from_iter::SpecFromIter<T, I>>::from_iter",
        "<T as alloc::string::ToString>::to_string",
        "<&mut alloc::string::String as core::fmt::Write::write_fmt::SpecWriteFmt>::spec_write_fmt",
        "hashbrown::raw::RawTable<T,A>::reserve_rehash",
        "xmalloc.part.0",
        "malloc@plt",
        "<str>::repeat",
        "<[u8]>::repeat",
        "<[my::Page]>::to_vec",
        "<my::Page as <[_]>::to_vec_in::ConvertVec>::to_vec::<alloc::alloc::Global>",
        "<[my::Page] as alloc::slice::Join<&T>>::join",
        "std::_Function_base::_Base_manager<fill(int)::{lambda()}>::_M_create<fill(int)::<lambda()> >",
    ] {
        assert!(is_plumbing(passing), "{passing}");
    }
    for own in [
        "<my::Page>::repeat",
        "<[my::Page] as my::Join>::join",
        "<string>::repeat",
    ] {
        assert!(!is_plumbing(own), "{own}");
    }
}

/// The caller of what makes text, reads a line or opens a buffer is named, with and without names in the library.
#[test]
fn who_calls_the_c_library_for_text_is_named() {
    let of = |stack: &[&str]| {
        let mut report = report(&[stack]);
        for frame in &mut report.frames {
            frame.module = match frame.function.as_str() {
                "main" | "load" => "app",
                _ => "libc.so.6",
            }
            .into();
        }
        names(&report)[0].to_owned()
    };
    for inner in [
        &[
            "asprintf",
            "__vasprintf_internal",
            "__vfprintf_internal",
            "_IO_default_xsputn",
            "_IO_str_overflow",
            "malloc",
        ][..],
        &[
            "__asprintf_chk",
            "libc.so.6+0x77f2c",
            "libc.so.6+0x5c2b1",
            "_IO_str_overflow",
            "malloc",
        ],
        &[
            "fprintf",
            "libc.so.6+0x5c2b1",
            "libc.so.6+0x7b000",
            "_IO_str_overflow",
            "malloc",
        ],
        &[
            "fputs",
            "_IO_new_file_xsputn",
            "_IO_new_file_overflow",
            "_IO_doallocbuf",
            "_IO_file_doallocate",
            "malloc",
        ],
        &["open_memstream", "malloc"],
        &["getline", "_IO_getdelim", "realloc"],
        &["qsort_r", "malloc"],
        &[
            "pthread_create",
            "libc.so.6+0x88f00",
            "_dl_allocate_tls",
            "allocate_dtv",
            "calloc",
        ],
        &[
            "regcomp",
            "re_compile_internal",
            "parse_reg_exp",
            "libc.so.6+0xe1000",
            "calloc",
        ],
    ] {
        let mut stack = vec!["main", "load"];
        stack.extend(inner);
        assert_eq!(of(&stack), "load", "{stack:?}");
    }
    // What the library does for itself keeps its name, and a stack of nothing else too.
    assert_eq!(
        of(&["main", "load", "setlocale", "libc.so.6+0x2f111", "malloc"]),
        "setlocale"
    );
    assert_eq!(of(&["libc.so.6+0x2f111", "malloc"]), "malloc");
}

/// Stacks of programs of Debian 12 and of Python's own builds: innermost last, as recorded.
const RUNTIMES: &[(&str, &[&str])] = &[
    (
        "libpython3.12.so.1.0",
        &[
            "main",
            "*list_append",
            "list_resize",
            "PyMem_Realloc",
            "realloc",
        ],
    ),
    (
        "libpython3.12.so.1.0",
        &[
            "main",
            "*unicode_concatenate",
            "PyUnicode_New",
            "_PyObject_Malloc",
            "malloc",
        ],
    ),
    (
        "python3.11",
        &[
            "main",
            "*_PyEval_EvalFrameDefault",
            "PyList_New",
            "_PyObject_GC_New",
            "gc_alloc",
            "PyObject_Malloc",
            "_PyObject_Malloc",
            "allocate_from_new_pool",
            "new_arena",
            "_PyObject_ArenaMmap",
            "mmap64",
        ],
    ),
    (
        "libruby-3.1.so.3.1",
        &[
            "main",
            "*rb_ary_push",
            "ary_ensure_room_for_push",
            "ary_double_capa",
            "ary_resize_capa",
            "ruby_xrealloc2",
            "objspace_xrealloc",
            "realloc",
        ],
    ),
    (
        "libperl.so.5.36",
        &[
            "main",
            "*Perl_pp_concat",
            "Perl_sv_grow",
            "Perl_safesysrealloc",
            "realloc",
        ],
    ),
    (
        "php8.2",
        &[
            "main",
            "*zend_compile_file",
            "zend_arena_alloc",
            "_emalloc",
            "zend_mm_alloc_huge",
            "zend_mm_chunk_alloc",
            "mmap",
        ],
    ),
    (
        "php8.2",
        &[
            "main",
            "*php8.2+0x37d0a1",
            "zend_hash_lookup",
            "zend_hash_real_finit",
            "_safe_femalloc",
            "_femalloc",
            "php8.2+0x2d3b57",
            "mmap",
        ],
    ),
    (
        "app",
        &[
            "main",
            "caml_startup_common",
            "*camlA__build_270",
            "camlStdlib__Bytes__make_93",
            "caml_create_bytes",
            "caml_alloc_string",
            "caml_alloc_shr",
            "malloc",
        ],
    ),
    (
        "node",
        &[
            "main",
            "*v8::internal::Parser::ParseFunction(v8::internal::Isolate*)",
            "v8::internal::ZoneList<int>::Add(int const&, v8::internal::Zone*)",
            "v8::internal::Zone::NewExpand(unsigned long)",
            "v8::internal::AccountingAllocator::AllocateSegment(unsigned long, bool)",
            "malloc",
        ],
    ),
    (
        "libglib-2.0.so.0",
        &[
            "main",
            "*g_key_file_parse_line",
            "g_string_append_len",
            "g_string_insert_len",
            "g_string_expand",
            "g_realloc",
            "realloc",
        ],
    ),
    (
        "libQt5Core.so.5",
        &[
            "main",
            "*QDir::entryList(QFlags<QDir::Filter>) const",
            "QString::append(QChar)",
            "QString::reallocData(unsigned int, bool)",
            "QArrayData::allocate(unsigned long, unsigned long, unsigned long, QFlags<QArrayData::AllocationOption>)",
            "malloc",
        ],
    ),
    (
        "libapr-1.so.0",
        &[
            "main",
            "*ap_create_request",
            "apr_pcalloc",
            "apr_palloc",
            "allocator_alloc",
            "malloc",
        ],
    ),
    (
        "libtalloc.so.2",
        &[
            "main",
            "*smbd_process",
            "talloc_asprintf",
            "talloc_vasprintf",
            "__talloc_with_prefix",
            "malloc",
        ],
    ),
    (
        "cc1plus",
        &[
            "main",
            "*c_parse_file",
            "_obstack_newchunk",
            "xmalloc",
            "malloc",
        ],
    ),
    (
        "cc1plus",
        &[
            "main",
            "*make_node",
            "ggc_internal_alloc(unsigned long, void (*)(void*), unsigned long, unsigned long)",
            "alloc_page(unsigned int)",
            "alloc_anon(char*, unsigned long, bool)",
            "mmap",
        ],
    ),
    (
        "postgres",
        &[
            "main",
            "*ExecInitNode",
            "MemoryContextAllocZero",
            "AllocSetAlloc",
            "malloc",
        ],
    ),
];

#[test]
fn runtimes_pass_on() {
    let of = |module: &str, stack: &[&str]| {
        let mut report = report(&[stack]);
        for frame in &mut report.frames {
            frame.module = module.into();
        }
        names(&report)[0].to_owned()
    };
    for (module, stack) in RUNTIMES {
        let culprit = stack
            .iter()
            .find(|name| name.starts_with('*'))
            .expect("one");
        let plain: Vec<&str> = stack
            .iter()
            .map(|name| name.trim_start_matches('*'))
            .collect();
        assert_eq!(
            of(module, &plain),
            culprit.trim_start_matches('*'),
            "{module} {plain:?}"
        );
    }
    // Any program may call a function so.
    assert_eq!(
        of("mine", &["main", "list_resize", "realloc"]),
        "list_resize"
    );
}

#[test]
fn python_functions_name_what_their_interpreter_allocates() {
    let mut one = report(&[
        &["main", "Server.run", "py_eval", "list_append", "malloc"],
        &["main", "Server.run", "py_eval", "np_array", "malloc"],
        &["main", "py_init", "malloc"],
    ]);
    for frame in &mut one.frames {
        frame.module = match frame.function.as_str() {
            "Server.run" => "[python]",
            "py_eval" | "list_append" | "py_init" | "main" => "python3.12",
            "np_array" => "_multiarray.so",
            _ => "libc.so.6",
        }
        .into();
    }
    // Where none is named so, the interpreter's function is all there is.
    assert_eq!(names(&one), ["Server.run", "np_array", "py_init"]);
}

#[test]
fn what_a_standard_library_has_is_plumbing_by_its_file() {
    let std = "/rustc/59807616e1fa2540724bfbac14d7976d7e4a3860/library";
    let stack = [
        ("main", "src/main.rs".to_owned()),
        ("load", "src/library/core.rs".to_owned()),
        ("resize<mine::Row>", format!("{std}/alloc/src/vec/mod.rs")),
        ("grow_impl", format!("{std}/alloc/src/alloc.rs")),
    ];
    let debian = "/usr/src/rustc-1.63.0/library/std/src/collections/hash/map.rs";
    let tables = "/rust/deps/hashbrown-0.15.2/src/raw/mod.rs";
    let maps = [
        ("main", "src/main.rs".to_owned()),
        ("count", "/src/rust/library/mine/src/map.rs".to_owned()),
        ("insert<u64, u64>", debian.to_owned()),
        ("resize_inner", tables.to_owned()),
    ];
    let cpp = [
        ("main", "a.cc".to_owned()),
        ("fill", "/opt/c++/a.cc".to_owned()),
        ("_M_grow", "/usr/include/c++/15/bits/vector.tcc".to_owned()),
    ];
    // Nothing of the program's: the list of names decides, as before.
    let only = [
        ("lang_start<()>", format!("{std}/std/src/rt.rs")),
        ("alloc::vec::Vec::push", format!("{std}/alloc/src/vec.rs")),
    ];
    let mut made = report(&[]);
    for stack in [&stack[..], &maps, &cpp, &only] {
        let frames = stack.iter().map(|(function, file)| Frame {
            function: (*function).to_owned(),
            file: Some(file.clone()),
            ..Frame::default()
        });
        let node = push_stack(&mut made, frames);
        made.sites.push(Site {
            node,
            ..Site::default()
        });
    }
    assert_eq!(names(&made), ["load", "count", "fill", "lang_start<()>"]);
}

#[test]
fn two_files_of_a_script_have_functions_of_one_name() {
    let mut made = report(&[]);
    for (function, module, file) in [
        ("<module>", "[python]", "a.py"),
        ("<module>", "[python]", "b.py"),
        ("load", "app", "one.h"),
        ("load", "app", "two.c"),
    ] {
        let frame = Frame {
            function: function.into(),
            module: module.into(),
            file: Some(file.into()),
            ..Frame::default()
        };
        let node = push_stack(&mut made, [frame].into_iter());
        made.sites.push(Site {
            node,
            ..Site::default()
        });
    }
    let naming = Naming::of(&made);
    let of = |site: usize| naming.function_of(&made, made.sites[site].node);
    assert_ne!(of(0), of(1), "each file has its own");
    assert_eq!(of(2), of(3), "inlined or not, it is one");
}
