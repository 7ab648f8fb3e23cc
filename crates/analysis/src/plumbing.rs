//! Which frames of a stack only pass an allocation on, so that a stack can be named by the first
//! function that decided something.
//!
//! ```text
//!   malloc · operator new · std::vector<…>::_M_realloc_insert · xmalloc · parse · main
//!   └──────────── by list ─────────────────────────────────┘   └ by rule, if many call it
//! ```
//!
//! P1  By list: the malloc family, operators, innards of containers, and wrappers that well-known
//!     libraries export. A name is listed only if it says the same in every program.
//! P2  By rule: a function that at least [`MIN_CALLERS`] functions call for their allocations, and
//!     through which at least one in [`SITES_SHARE`] of all stacks or bytes come. It serves anybody, so the
//!     caller says more. Where a function has no name, its callers' callers count too, two levels out: one
//!     function is then many, one for each address in it, and its name would tell nothing.
//! P3  A stack of plumbing only is named by its innermost frame that the list does not know, or else
//!     by its innermost frame.
//!
//! Not here: start-up code at the outer end (views).

use rustc_hash::{FxHashMap, FxHashSet};

use crate::model::Report;

/// Fewest functions that call a wrapper (P2): two or three callers are a module, eight are everybody.
const MIN_CALLERS: usize = 8;
/// One in so many stacks comes through a wrapper (P2).
const SITES_SHARE: u64 = 50;
/// Wrappers lie on wrappers: SQLite has four, one above the other.
const ROUNDS: usize = 6;

/// Names that are plumbing as they are.
const EXACT: &[&str] = &[
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "free",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "valloc",
    "pvalloc",
    "strdup",
    "__strdup",
    "strndup",
    "__strndup",
    "wcsdup",
    "asprintf",
    "vasprintf",
    "__libc_malloc",
    "__libc_calloc",
    "__libc_realloc",
    "mmap",
    "mmap64",
    "__mmap",
    "mremap",
    "sbrk",
    "brk",
    // Wrappers that many programs write, and those of libraries.
    "xmalloc",
    "xcalloc",
    "xrealloc",
    "xstrdup",
    "xstrndup",
    "xmemdup",
    "emalloc",
    "safe_malloc",
    "g_malloc",
    "g_malloc0",
    "g_malloc_n",
    "g_malloc0_n",
    "g_realloc",
    "g_try_malloc",
    "g_slice_alloc",
    "g_slice_alloc0",
    "g_strdup",
    "zmalloc",
    "zcalloc",
    "zrealloc",
    "ztrymalloc",
    "ztrymalloc_usable",
    "zmalloc_usable",
    "zrealloc_usable",
    "ztryrealloc_usable",
    "ztrycalloc",
    "ztrycalloc_usable",
    "sqlite3Malloc",
    "sqlite3MemMalloc",
    "sqlite3MemRealloc",
    "sqlite3MallocZero",
    "sqlite3Realloc",
    "sqlite3_malloc",
    "sqlite3_malloc64",
    "sqlite3_realloc",
    "sqlite3_realloc64",
    "mallocWithAlarm",
    "sqlite3DbMallocRaw",
    "sqlite3DbMallocRawNN",
    "sqlite3DbMallocZero",
    "dbMallocRawFinish",
    "sqlite3DbRealloc",
    "PyMem_RawMalloc",
    "PyMem_RawCalloc",
    "PyMem_RawRealloc",
    "PyMem_Malloc",
    "PyMem_Calloc",
    "PyMem_Realloc",
    "PyObject_Malloc",
    "PyObject_Calloc",
    "PyObject_Realloc",
    "_PyMem_RawMalloc",
    "_PyMem_RawCalloc",
    "_PyMem_RawRealloc",
    "Perl_safesysmalloc",
    "Perl_safesyscalloc",
    "Perl_safesysrealloc",
    "ruby_xmalloc",
    "ruby_xmalloc2",
    "ruby_xcalloc",
    "ruby_xrealloc",
    "ruby_xrealloc2",
    "xmlMalloc",
    "xmlRealloc",
    "xmlStrdup",
    "xmlStrndup",
    "jv_mem_alloc",
    "jv_mem_alloc_unguarded",
    "jv_mem_calloc",
    "jv_mem_realloc",
    "CRYPTO_malloc",
    "CRYPTO_zalloc",
    "CRYPTO_realloc",
    "uv__malloc",
    "uv__calloc",
    "uv__realloc",
];
/// Beginnings of names.
const STARTS: &[&str] = &[
    "operator new",
    "operator delete",
    "std::allocator",
    "std::__new_allocator",
    "std::__allocator",
    "__gnu_cxx::",
    "std::_",
    "std::__",
    "std::pmr::",
    "alloc::",
    "<alloc::",
    "core::",
    "<core::",
    "hashbrown::raw",
    "hashbrown::map",
    "__rust_",
    "__rdl_",
    "__rg_",
    "__rustc",
    "std::alloc::",
    "<std::alloc::",
    "void* std::",
    "auto std::",
    "std::vector<",
    "std::map<",
    "std::set<",
    "std::multimap<",
    "std::unordered_",
    "std::deque<",
    "std::list<",
    "std::basic_string<",
    "std::string::",
    "std::make_unique",
    "std::make_shared",
    "std::allocate_shared",
    "std::unique_ptr<",
    "std::shared_ptr<",
    "std::collections::",
    "<std::collections::",
    "std::operator+",
    "std::to_string",
    "_gnu_cxx::",
    "v8::base::OS::",
    "v8::base::Page",
    "v8::base::Virtual",
    "v8::base::BoundedPageAllocator::",
    "v8::internal::VirtualMemory",
    "v8::internal::MemoryAllocator::",
    "v8::base::Region",
];
/// Parts of names.
const WITHIN: &[&str] = &[
    ">::_M_",
    "::_M_realloc_",
    " as core::alloc::",
    " std::operator+",
    " std::_",
];

/// Whether a function only passes an allocation on, by its name alone (P1).
pub fn is_plumbing(function: &str) -> bool {
    let name = function.split(['(', '@']).next().unwrap_or(function);
    // Clones that the compiler made: `xmalloc.part.0`, `parse.constprop.3`.
    let name = name.split(".part.").next().unwrap_or(name);
    let name = name.split(".constprop.").next().unwrap_or(name);
    EXACT.contains(&name)
        || STARTS.iter().any(|start| function.starts_with(start))
        || WITHIN.iter().any(|part| function.contains(part))
}

/// Whether a frame has no name, only a place: `libfoo.so+0x1234`, `0x7f…`.
pub fn is_unnamed(function: &str) -> bool {
    function.starts_with("0x") || function.contains("+0x")
}

/// For each node of a report, the node that names it; and which frames are plumbing.
pub(crate) struct Naming {
    /// By node: the innermost one on its path, itself included, that is no plumbing (P3).
    pub named: Vec<u32>,
    /// The same by the list alone (P1): what maps memory for a heap of its own serves everybody there.
    pub listed: Vec<u32>,
    /// By frame: the function, as a number; inlined or not, at any line, it is one function.
    pub function: Vec<u32>,
    /// By frame.
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
        let listed = |frame: &crate::model::Frame| is_plumbing(&frame.function);
        let mut naming = Naming {
            named: Vec::new(),
            listed: Vec::new(),
            plumbing: report.frames.iter().map(listed).collect(),
            function,
        };
        naming.named = naming.innermost(report);
        naming.listed.clone_from(&naming.named);
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

    /// The function that names a node, as a number.
    pub(crate) fn function_of(&self, report: &Report, node: u32) -> Option<u32> {
        let named = *self.named.get(node as usize)?;
        let frame = report.nodes.get(named as usize)?.frame;
        self.function.get(frame as usize).copied()
    }

    /// The function that mapped memory at a node, as a number.
    pub(crate) fn mapper_of(&self, report: &Report, node: u32) -> Option<u32> {
        let listed = *self.listed.get(node as usize)?;
        let frame = report.nodes.get(listed as usize)?.frame;
        self.function.get(frame as usize).copied()
    }

    /// Its name, without parameters.
    pub(crate) fn mapper_name(&self, report: &Report, node: u32) -> String {
        name_at(report, self.listed.get(node as usize))
    }

    /// The name of the function that names a node, without parameters.
    pub(crate) fn function_name(&self, report: &Report, node: u32) -> String {
        name_at(report, self.named.get(node as usize))
    }

    /// By node, the innermost node that is no plumbing; 0 if there is none. Parents come first.
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

    /// Functions that name many stacks for many callers (P2).
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

/// The name of a node's function, without parameters.
fn name_at(report: &Report, node: Option<&u32>) -> String {
    let node = node.and_then(|node| report.nodes.get(*node as usize));
    let frame = node.and_then(|node| report.frames.get(node.frame as usize));
    let name = frame.map_or("the program", |frame| frame.function.as_str());
    match name.find('(') {
        Some(at) if at > 0 => name[..at].to_owned(),
        _ => name.to_owned(),
    }
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
}
