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
//!     many, one for each address in it, and its name would tell nothing. Of a function of C whose name has the word
//!     `malloc` in it, or one like it, two callers are enough: `ck_malloc` serves whoever calls it, in a small program
//!     too.
//! P6  By file: what is written in the standard library of Rust or C++ is plumbing, by whatever name. Builds with line
//!     tables alone (`debug = "line-tables-only"`, `-g1`) have inlined functions by their last name only: `grow_impl`.
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

use crate::interpreters::{is_of_java, own_frames};
use crate::known::passes_on;
use crate::model::{Frame, Report};
use crate::qualified::own_name;

/// The fewest functions that call a wrapper (P2): two or three callers are a module, eight are the whole program.
const MIN_CALLERS: usize = 8;
/// The fewest that call one whose name says what it is: with one caller it is that caller's own step.
const MIN_CALLERS_IF_NAMED: usize = 2;
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

/// Reports whether a function is written in the standard library of Rust or C++ (P6): the former lies in
/// `/rustc/HASH/library/`, or wherever a distribution built it, with its tables in a crate beside it.
fn is_of_a_standard_library(file: &str) -> bool {
    if file.contains("/include/c++/") {
        return true;
    }
    let of_rust = |folder: &str| {
        let in_crate = |rest: &str| {
            let (name, rest) = rest.split_once('/').unwrap_or((rest, ""));
            matches!(name, "alloc" | "core" | "std") && rest.starts_with("src/")
        };
        file.split(folder).skip(1).any(in_crate)
    };
    let is_table = |part: &str| part.starts_with("hashbrown-");
    file.contains("rust") && of_rust("/library/") || file.split('/').any(is_table)
}

/// Reports whether a frame only passes an allocation on, by its name or by its file (P1, P6).
pub fn only_passes_on(frame: &Frame) -> bool {
    is_plumbing(&frame.function) || frame.file.as_deref().is_some_and(is_of_a_standard_library)
}

/// Reports whether a function's name says that it allocates for others: `ck_malloc`, `cli_max_calloc`, `my_strdup`.
fn says_what_it_is(function: &str) -> bool {
    const WORDS: [&str; 9] = [
        "malloc",
        "calloc",
        "realloc",
        "zalloc",
        "reallocarray",
        "strdup",
        "strndup",
        "memdup",
        "memalign",
    ];
    let name = own_name(function);
    !name.contains("::") && name.split(['_', '.']).any(|word| WORDS.contains(&word))
}

/// Reports whether a frame has no name, only a place: `libfoo.so+0x1234`, `0x7f…`.
pub fn is_unnamed(function: &str) -> bool {
    function.starts_with("0x") || function.contains("+0x")
}

/// Reports whether a file is the C library or Fortran's, by its name without folder: its nameless functions are
/// plumbing (P5), and what it calls back (a comparison of `qsort`, what runs once) says more than it does.
pub fn is_of_c_library(module: &str) -> bool {
    ["libc.so", "libc-2.", "libgfortran.so"]
        .iter()
        .any(|of| module.starts_with(of))
}

/// Reports whether a function is of the code that runs before `main` or a thread's own function.
pub fn is_startup(function: &str) -> bool {
    // A program's own `clone_tree` and `_start_server` are none.
    const WHOLE: [&str; 9] = [
        "_start",
        "start_thread",
        "clone",
        "clone3",
        "__clone",
        "__clone3",
        "__clone_internal",
        // Go's.
        "runtime.main",
        "runtime.goexit",
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

/// Returns what tells a function of a script from others of its name. All files of an interpreter have one module, and each has its
/// `<module>`; before Python 3.11 all comprehensions of a file are called the same, and only their lines differ.
fn place_in_script(frame: &Frame) -> (&str, u32) {
    if !frame.module.starts_with('[') {
        return ("", 0);
    }
    const NAMELESS: [&str; 5] = [
        "<listcomp>",
        "<dictcomp>",
        "<setcomp>",
        "<genexpr>",
        "<lambda>",
    ];
    let is_nameless = NAMELESS.contains(&frame.function.as_str());
    let line = frame.line.filter(|_| is_nameless);
    (frame.file.as_deref().unwrap_or_default(), line.unwrap_or(0))
}

impl Naming {
    /// Finds the plumbing of a report whose frames have names.
    pub(crate) fn of(report: &Report) -> Naming {
        let mut ids: FxHashMap<(&str, &str, &str, u32), u32> = FxHashMap::default();
        let mut function = Vec::with_capacity(report.frames.len());
        for frame in &report.frames {
            let next = ids.len() as u32;
            let (file, line) = place_in_script(frame);
            let key = (frame.function.as_str(), frame.module.as_str(), file, line);
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
        naming.pass_over_library_files(report);
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
        let java = report.frames.iter().any(is_of_java);
        for node in 0..naming.named.len() {
            let named = naming.named[node];
            // A thread of the machine's own, its compilers' for one, has nothing but its steps (P4).
            if named == 0 || java && is_startup(&name_at(report, Some(&named))) {
                naming.named[node] = naming.listed[node];
            }
            if naming.named[node] == 0 {
                naming.named[node] = node as u32;
            }
        }
        naming
    }

    /// Makes what is written in a standard library plumbing (P6).
    fn pass_over_library_files(&mut self, report: &Report) {
        for (plumbing, frame) in self.plumbing.iter_mut().zip(&report.frames) {
            *plumbing |= frame.file.as_deref().is_some_and(is_of_a_standard_library);
        }
        self.named = self.innermost(report);
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
        let frames = self.function.iter().zip(&report.frames);
        let named = frames.filter(|(_, frame)| says_what_it_is(&frame.function));
        let named: FxHashSet<u32> = named.map(|(function, _)| *function).collect();
        callers
            .into_iter()
            .filter(|(function, by)| {
                let share = shares[function];
                let many = share.0 >= stacks / SITES_SHARE || share.1 >= bytes / SITES_SHARE;
                let is_named = named.contains(function) && by.len() >= MIN_CALLERS_IF_NAMED;
                is_named || by.len() >= MIN_CALLERS && many
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
#[path = "plumbing_tests.rs"]
mod tests;
