//! The owner of a size: what the owner of a stack chose, and what a library or runtime decides by itself.
//!
//! ```text
//!   malloc · operator new · std::make_unique<Page> · Cache::fetch        passed on: the owner's size
//!   malloc · operator new · std::_Rb_tree<…>::_M_create_node · place     a node: the element and the library's head
//!   malloc · PyObject_Malloc · PyFloat_FromDouble                        the runtime's own type
//! ```
//!
//! O1  The frames from the allocator out to the one that names the stack are judged: one that decides is enough.
//! O2  Nodes, tables and steps of growth are a library's: neither what rounds them up nor what lies above a round
//!     size can be changed by the program.
//! O3  Text and the objects of an interpreter are as long as they are: no advice to cut them by some bytes. A
//!     capacity a little above a round size may have been requested, and is reported; but not of a copy of a text
//!     (`strdup`), whose length no program chose, nor of what is shorter than any capacity that is rounded.
//!
//! Not here: whether a stack has one size or many (`passes/slop.rs`, `passes/spread.rs`).

use crate::model::{Finding, FindingKind, Frame, Report};
use crate::plumbing::{Naming, inner_frames};
use crate::qualified;

/// Containers that put each element into a node, or into a table of their own (O2).
const NODES: [&str; 17] = [
    "std::_Rb_tree",
    "std::_Hashtable",
    "std::__detail::_Hashtable_alloc",
    "std::_List_base",
    "std::_Fwd_list_base",
    "std::__cxx11::_List_base",
    "std::_Deque_base",
    "std::deque",
    "std::__tree",
    "std::__hash_table",
    "std::__list_imp",
    "alloc::collections::btree",
    "alloc::collections::linked_list",
    "hashbrown::",
    "std::collections::hash",
    "absl::container_internal",
    "boost::unordered",
];

/// Functions that let a buffer grow by themselves, by the end of the name, and the library that each belongs to (O2).
const GROWING: [(&str, &str); 8] = [
    ("std::", "::_M_realloc_insert"),
    ("std::", "::_M_realloc_append"),
    ("std::", "::_M_default_append"),
    ("alloc::raw_vec::", "::grow_amortized"),
    ("alloc::raw_vec::", "::grow_one"),
    ("alloc::raw_vec::", "::reserve_for_push"),
    ("alloc::raw_vec::", "::do_reserve_and_handle"),
    ("alloc::raw_vec::", "::reserve::do_reserve_and_handle"),
];

/// Text of any length (O3).
const TEXTS: [&str; 9] = [
    "std::__cxx11::basic_string",
    "std::basic_string",
    "std::string::",
    "std::to_string",
    "alloc::string::",
    "alloc::fmt::",
    "core::fmt::",
    "alloc::str::",
    "QString::",
];

/// Functions of C that make text as long as what it is made of (O3).
const COPIES: [&str; 21] = [
    "strdup",
    "__strdup",
    "strndup",
    "__strndup",
    "wcsdup",
    "asprintf",
    "__asprintf",
    "vasprintf",
    "__vasprintf",
    "getline",
    "__getline",
    "getdelim",
    "__getdelim",
    "_IO_getdelim",
    "xstrdup",
    "xstrndup",
    "g_strdup",
    "g_strndup",
    "__libc_strdup",
    "estrdup",
    "zstrdup",
];

/// Functions that make an interpreter's own objects, whatever the script requests (O2).
const OBJECTS: [&str; 14] = [
    "dictresize",
    "insertion_resize",
    "insert_to_emptydict",
    "new_keys_object",
    "new_dict",
    "set_table_resize",
    "list_resize",
    "_PyObject_New",
    "_PyObject_GC_",
    "_PyObject_VirtualAlloc",
    "PyType_GenericAlloc",
    "_PyType_AllocNoTrack",
    "gc_alloc",
    "new_arena",
];

/// Files of interpreters and virtual machines, by the beginnings of their names.
const INTERPRETERS: [&str; 23] = [
    "python",
    "libpython",
    "ruby",
    "libruby",
    "php",
    "libphp",
    "perl",
    "libperl",
    "lua",
    "liblua",
    "tclsh",
    "libtcl",
    "guile",
    "libguile",
    "libR",
    "gawk",
    "mawk",
    "node",
    "libnode",
    "libmozjs",
    "libjvm",
    "beam.smp",
    "swipl",
];

/// Reports whether a library or runtime decides what these frames request, so that no reader can follow advice of
/// this kind (O1).
pub(crate) fn is_not_the_owners<'a>(
    kind: FindingKind,
    inner: impl Iterator<Item = &'a Frame>,
) -> bool {
    let mut inner = inner;
    inner.any(|frame| {
        let name = qualified::own_name(&frame.function);
        let name = of_type(&name);
        let starts = |all: &[&str]| all.iter().any(|of| name.starts_with(of));
        let grows = |(of, how): &(&str, &str)| name.starts_with(of) && name.ends_with(how);
        let interpreted = is_interpreter(&frame.module);
        let decided = starts(&NODES) || GROWING.iter().any(grows);
        match kind {
            FindingKind::Slop => decided || interpreted || starts(&TEXTS) || starts(&COPIES),
            FindingKind::Clownshoes => {
                decided || (interpreted && starts(&OBJECTS)) || starts(&COPIES)
            }
            _ => false,
        }
    })
}

/// Returns a name without what comes before the path of its type: `<&mut alloc::string::String as …>`.
fn of_type(name: &str) -> &str {
    let name = name.trim_start_matches(['<', '&']);
    name.strip_prefix("mut ").unwrap_or(name)
}

/// Reports whether a file is an interpreter's: `python3.11` and `libruby-3.1.so.3`, not `pythonic`.
pub(crate) fn is_interpreter(module: &str) -> bool {
    INTERPRETERS.iter().any(|of| {
        let rest = module.strip_prefix(of);
        rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphabetic()))
    })
}

/// Reports whether an interpreter made the blocks of a finding: its own function names it, since the script's are on
/// no stack, or a function of a script does.
pub(crate) fn is_interpreters(report: &Report, naming: &Naming, finding: &Finding) -> bool {
    let named = finding
        .node
        .and_then(|node| inner_frames(report, naming, node).last());
    let is_script = |frame: &Frame| {
        matches!(
            frame.module.as_str(),
            "[python]" | "[javascript]" | "[ruby]" | "[php]" | "[java]"
        )
    };
    named.is_some_and(|frame| is_script(frame) || is_interpreter(&frame.module))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(kind: FindingKind, function: &str, module: &str) -> bool {
        let frames = [("malloc", "libc.so.6"), (function, module), ("main", "it")].map(
            |(function, module)| Frame {
                function: function.into(),
                module: module.into(),
                ..Frame::default()
            },
        );
        is_not_the_owners(kind, frames.iter())
    }

    #[test]
    fn what_is_passed_on_is_the_owners_and_what_is_made_for_itself_is_not() {
        use FindingKind::{Clownshoes, Slop};
        for (function, module, slop, shoes) in [
            ("std::make_unique<Page>()", "it", false, false),
            ("alloc::vec::Vec<T>::with_capacity", "it", false, false),
            (
                "std::vector<int, std::allocator<int> >::reserve(unsigned long)",
                "it",
                false,
                false,
            ),
            ("Store::put(std::_Rb_tree<int>&)", "it", false, false),
            (
                "std::_Rb_tree<int, int>::_M_create_node(int)",
                "it",
                true,
                true,
            ),
            (
                "std::_Deque_base<int, std::allocator<int> >::_M_allocate_node()",
                "it",
                true,
                true,
            ),
            (
                "alloc::collections::btree::node::LeafNode<K,V>::new",
                "it",
                true,
                true,
            ),
            (
                "<alloc::collections::btree::map::BTreeMap<K,V>>::insert",
                "it",
                true,
                true,
            ),
            (
                "std::vector<int>::_M_realloc_insert<int>(int&&)",
                "it",
                true,
                true,
            ),
            ("alloc::raw_vec::RawVec<T,A>::grow_one", "it", true, true),
            (
                "std::__cxx11::basic_string<char>::_M_create(unsigned long&, unsigned long)",
                "it",
                true,
                false,
            ),
            (
                "<&mut alloc::string::String as core::fmt::Write>::write_str",
                "it",
                true,
                false,
            ),
            ("strdup", "libc.so.6", true, true),
            ("__libc_strdup", "libc.so.6", true, true),
            ("PyFloat_FromDouble", "python3.11", true, false),
            (
                "PyBytes_FromStringAndSize",
                "libpython3.11.so.1.0",
                true,
                false,
            ),
            ("new_keys_object", "python3.11", true, true),
            ("new_keys_object", "it", false, false),
            ("parse", "pythonic", false, false),
        ] {
            assert_eq!(decided(Slop, function, module), slop, "{function}");
            assert_eq!(decided(Clownshoes, function, module), shoes, "{function}");
        }
        // Other advice is another's to judge.
        assert!(!decided(FindingKind::Leak, "new_keys_object", "python3.11"));
    }
}
