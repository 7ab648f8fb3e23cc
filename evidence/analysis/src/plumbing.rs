//! Finds the frames of a stack that only pass an allocation on, so that a stack can be named by the first function
//! that decided something.
//!
//! ```text
//!   malloc · operator new · std::vector<…>::_M_realloc_insert · xmalloc · parse · main
//!   └──────────── by list ─────────────────────────────────┘   └ by rule, if many call it
//! ```
//!
//! P1  By list (plumbing.txt): the malloc family, operators, the standard libraries of C++ and Rust, wrappers and
//!     internals of well-known libraries and runtimes. A name is listed only if it means the same in every program,
//!     or in files of certain names. The function's own qualified name is compared (qualified.rs).
//! P2  By rule: a function that at least [`MIN_CALLERS`] functions call for their allocations, and through which at
//!     least one in [`SITES_SHARE`] of all stacks or bytes come. It serves any caller, so the caller is more
//!     informative. If a function has no name, its callers' callers count too, two levels out: one function is then
//!     many, one for each address in it, and its name would tell nothing.
//! P3  A stack that consists only of plumbing is named by its innermost frame that the list does not have, or else by
//!     its innermost frame.
//! P5  What has no name in the C library, or in Fortran's, is plumbing: its caller's name says more than a place there.
//!     So is what has no name in any file, and is called by plumbing of the same file: a stripped runtime exports
//!     what allocates, and not the steps inside. Of the C library all that its plumbing calls is, with a name too.
//! P4  If functions of Python or JavaScript have names (from a perf map), the interpreter's own are plumbing
//!     (interpreters.rs).
//!
//! Start-up code at the outer end is known by name ([`is_startup`]); views leave it out.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::interpreters::own_frames;
use crate::known::passes_on;
use crate::model::{Frame, Report};
use crate::qualified::own_name;

/// The fewest functions that call a wrapper (P2): two or three callers are a module, eight are the whole program.
const MIN_CALLERS: usize = 8;
/// One in this many stacks comes through a wrapper (P2).
const SITES_SHARE: u64 = 50;
/// The number of rounds: wrappers lie on wrappers; SQLite has four, one above the other.
const ROUNDS: usize = 6;

/// Reports whether a function only passes an allocation on, by its name alone (P1): names that mean it only in some
/// files do not count. The function's own qualified name is judged, never its arguments or its result.
pub fn is_plumbing(function: &str) -> bool {
    is_plumbing_in(function, "")
}

/// Reports the same as [`is_plumbing`] for a function in a file, by the file's name without folder.
pub fn is_plumbing_in(function: &str, module: &str) -> bool {
    let name = own_name(function);
    passes_on(&name, module) || is_of_a_builtin(&name)
}

/// Reports whether a name is of a Rust library's implementation for a type parameter, for the library's own type, or
/// for a type of the language, which only the library can implement more for:
/// `<T as alloc::string::ToString>::to_string`, `<&mut alloc::string::String as core::fmt::Write>::write_str`,
/// `<str>::repeat`.
fn is_of_a_builtin(name: &str) -> bool {
    let Some(rest) = name.strip_prefix('<') else {
        return false;
    };
    let Some((of, by)) = rest.split_once(" as ") else {
        return rest
            .split_once(">::")
            .is_some_and(|(of, _)| is_of_the_language(of));
    };
    let own = |path: &str| {
        ["alloc::", "core::", "std::"]
            .iter()
            .any(|own| path.starts_with(own))
    };
    let of = of.trim_start_matches('&');
    let of = of.strip_prefix("mut ").unwrap_or(of);
    // A trait within one of the library's own functions: `<u8 as <[_]>::to_vec_in::ConvertVec>::to_vec`.
    let within = by.strip_prefix('<').and_then(|by| by.split_once(">::"));
    if within.is_some_and(|(of, _)| is_of_the_language(of)) {
        return true;
    }
    own(by) && (own(of) || !of.contains("::") || is_of_the_language(of))
}

/// Reports whether a type of Rust is the language's own: slices and pointers are, of whatever they are.
fn is_of_the_language(of: &str) -> bool {
    const NAMED: [&str; 17] = [
        "str", "bool", "char", "u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32",
        "i64", "i128", "isize", "f32", "f64",
    ];
    of.starts_with(['[', '*']) || NAMED.contains(&of)
}

/// Reports whether a frame has no name, only a place: `libfoo.so+0x1234`, `0x7f…`.
pub fn is_unnamed(function: &str) -> bool {
    function.starts_with("0x") || function.contains("+0x")
}

/// Reports whether a file's nameless functions are plumbing (P5).
fn is_of_c_library(module: &str) -> bool {
    ["libc.so", "libc-2.", "libgfortran.so"]
        .iter()
        .any(|of| module.starts_with(of))
}

/// Reports whether a function is of the code that runs before `main` or a thread's own function.
pub fn is_startup(function: &str) -> bool {
    // A program's own `clone_tree` and `_start_server` are none.
    const WHOLE: [&str; 7] = [
        "_start",
        "start_thread",
        "clone",
        "clone3",
        "__clone",
        "__clone3",
        "__clone_internal",
    ];
    const STARTS: [&str; 7] = [
        "__libc_start_",
        "std::rt::",
        "std::panicking::",
        "std::panic::",
        "std::sys::",
        "__rust_begin_short",
        "core::ops::function::",
    ];
    let unversioned = function.split('@').next().unwrap_or(function);
    WHOLE.contains(&unversioned)
        || STARTS.iter().any(|start| function.starts_with(start))
        || function.contains("__rust_begin_short_backtrace")
}

/// For each node of a report, the node that names it; and which frames are plumbing.
pub(crate) struct Naming {
    /// By node: the innermost node on its path, itself included, that is no plumbing (P3).
    pub named: Vec<u32>,
    /// The same by the list alone (P1): what maps memory for a heap of its own serves all callers there.
    pub listed: Vec<u32>,
    /// By frame: the function, as a number; inlined or not, at any line, it is one function.
    pub function: Vec<u32>,
    /// By frame: whether it is plumbing.
    pub plumbing: Vec<bool>,
}

impl Naming {
    /// Finds the plumbing of a report whose frames have names.
    pub(crate) fn of(report: &Report) -> Naming {
        let mut ids: FxHashMap<(&str, &str), u32> = FxHashMap::default();
        let mut function = Vec::with_capacity(report.frames.len());
        for frame in &report.frames {
            let next = ids.len() as u32;
            let key = (frame.function.as_str(), frame.module.as_str());
            function.push(*ids.entry(key).or_insert(next));
        }
        let listed = |frame: &Frame| {
            is_plumbing_in(&frame.function, &frame.module)
                || is_unnamed(&frame.function) && is_of_c_library(&frame.module)
        };
        let mut naming = Naming {
            named: Vec::new(),
            listed: Vec::new(),
            plumbing: report.frames.iter().map(listed).collect(),
            function,
        };
        naming.named = naming.innermost(report);
        naming.listed.clone_from(&naming.named);
        naming.pass_over_steps(report);
        naming.pass_over_interpreters(report);
        for _ in 0..ROUNDS {
            let wrappers = naming.wrappers(report);
            if wrappers.is_empty() {
                break;
            }
            for (frame, function) in naming.function.iter().enumerate() {
                naming.plumbing[frame] |= wrappers.contains(function);
            }
            naming.named = naming.innermost(report);
        }
        for node in 0..naming.named.len() {
            if naming.named[node] == 0 {
                naming.named[node] = naming.listed[node];
            }
            if naming.named[node] == 0 {
                naming.named[node] = node as u32;
            }
        }
        naming
    }

    /// Makes functions without a name, and those of the C library, plumbing that plumbing of their own file calls (P5).
    fn pass_over_steps(&mut self, report: &Report) {
        let is_step = |frame: &Frame| {
            let nameless = !frame.module.is_empty() && is_unnamed(&frame.function);
            nameless || is_of_c_library(&frame.module)
        };
        let steps: Vec<bool> = report.frames.iter().map(is_step).collect();
        // One round for each step inwards, as long as nodes come in order of their stacks: few.
        for _ in 0..ROUNDS {
            let mut more = false;
            for node in report.nodes.iter().skip(1) {
                let frame = node.frame as usize;
                let caller = report.nodes.get(node.parent as usize);
                let caller = caller.map_or(0, |caller| caller.frame as usize);
                let own = steps.get(frame).copied().unwrap_or(false) && !self.plumbing[frame];
                let passes = || self.plumbing.get(caller).copied().unwrap_or(false);
                if own && passes() && report.frames[frame].module == report.frames[caller].module {
                    (self.plumbing[frame], more) = (true, true);
                }
            }
            if !more {
                break;
            }
        }
        self.named = self.innermost(report);
    }

    /// Makes the interpreter's own functions plumbing (P4).
    fn pass_over_interpreters(&mut self, report: &Report) {
        for (plumbing, own) in self.plumbing.iter_mut().zip(own_frames(report)) {
            *plumbing |= own;
        }
        self.named = self.innermost(report);
    }

    /// Returns the function that names a node, as a number.
    pub(crate) fn function_of(&self, report: &Report, node: u32) -> Option<u32> {
        let named = *self.named.get(node as usize)?;
        let frame = report.nodes.get(named as usize)?.frame;
        self.function.get(frame as usize).copied()
    }

    /// Returns the function that mapped memory at a node, as a number.
    pub(crate) fn mapper_of(&self, report: &Report, node: u32) -> Option<u32> {
        let listed = *self.listed.get(node as usize)?;
        let frame = report.nodes.get(listed as usize)?.frame;
        self.function.get(frame as usize).copied()
    }

    /// Returns the name of the function that mapped memory at a node, without parameters.
    pub(crate) fn mapper_name(&self, report: &Report, node: u32) -> String {
        name_at(report, self.listed.get(node as usize))
    }

    /// Returns the name of the function that names a node, without parameters.
    pub(crate) fn function_name(&self, report: &Report, node: u32) -> String {
        name_at(report, self.named.get(node as usize))
    }

    /// Returns, by node, the innermost node that is no plumbing; 0 if there is none. Parents come first.
    fn innermost(&self, report: &Report) -> Vec<u32> {
        let mut inner = vec![0u32; report.nodes.len()];
        for (index, node) in report.nodes.iter().enumerate().skip(1) {
            let plumbing = self.plumbing.get(node.frame as usize).copied();
            inner[index] = match plumbing.unwrap_or(false) {
                true => inner.get(node.parent as usize).copied().unwrap_or(0),
                false => index as u32,
            };
        }
        inner
    }

    /// Returns the functions that name many stacks for many callers (P2).
    fn wrappers(&self, report: &Report) -> FxHashSet<u32> {
        let mut callers: FxHashMap<u32, FxHashSet<u32>> = FxHashMap::default();
        let mut shares: FxHashMap<u32, (u64, u64)> = FxHashMap::default();
        for site in &report.sites {
            let named = self.named.get(site.node as usize).copied().unwrap_or(0);
            let Some(node) = report.nodes.get(named as usize).filter(|_| named != 0) else {
                continue;
            };
            let function = self.function[node.frame as usize];
            let share = shares.entry(function).or_default();
            share.0 += 1;
            share.1 = share.1.saturating_add(site.usable_bytes);
            let name = &report.frames[node.frame as usize].function;
            let mut at = node.parent;
            for _ in 0..if is_unnamed(name) { 3 } else { 1 } {
                let caller = self.named.get(at as usize).copied().unwrap_or(0);
                if caller == 0 {
                    break;
                }
                let entry = report.nodes[caller as usize];
                let caller = self.function[entry.frame as usize];
                if caller != function {
                    callers.entry(function).or_default().insert(caller);
                }
                at = entry.parent;
            }
        }
        let stacks = report.sites.len() as u64;
        let bytes = report
            .sites
            .iter()
            .fold(0u64, |sum, site| sum.saturating_add(site.usable_bytes));
        callers
            .into_iter()
            .filter(|(function, by)| {
                let share = shares[function];
                let many = share.0 >= stacks / SITES_SHARE || share.1 >= bytes / SITES_SHARE;
                by.len() >= MIN_CALLERS && many
            })
            .map(|(function, _)| function)
            .collect()
    }
}

/// Returns the frames of a node from the innermost to the one that names it.
pub(crate) fn inner_frames<'a>(
    report: &'a Report,
    naming: &Naming,
    node: u32,
) -> impl Iterator<Item = &'a Frame> {
    let named = naming.named.get(node as usize).copied().unwrap_or(node);
    let parent = move |at: &u32| {
        let next = report.nodes.get(*at as usize)?.parent;
        (*at != named && *at != 0 && next != *at).then_some(next)
    };
    std::iter::successors(Some(node), parent).filter_map(|at| {
        let frame = report.nodes.get(at as usize)?.frame;
        report.frames.get(frame as usize)
    })
}

/// Returns the qualified name of a node's function.
fn name_at(report: &Report, node: Option<&u32>) -> String {
    let node = node.and_then(|node| report.nodes.get(*node as usize));
    let frame = node.and_then(|node| report.frames.get(node.frame as usize));
    frame.map_or("the program".into(), |frame| own_name(&frame.function))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Frame, Node, Site};

    /// A report with one site for each stack, given outermost first.
    fn report(stacks: &[&[&str]]) -> Report {
        let mut report = Report {
            nodes: vec![Node::default()],
            frames: vec![Frame::default()],
            ..Report::default()
        };
        for stack in stacks {
            let mut parent = 0;
            for name in *stack {
                let function = (*name).to_owned();
                report.frames.push(Frame {
                    function,
                    ..Frame::default()
                });
                let frame = report.frames.len() as u32 - 1;
                report.nodes.push(Node { parent, frame });
                parent = report.nodes.len() as u32 - 1;
            }
            report.sites.push(Site {
                node: parent,
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
}
