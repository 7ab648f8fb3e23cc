//! A table of the functions that are known to pass allocations on, and of those that are known to grow buffers well.
//!
//! ```text
//!   plumbing.txt ──once──► names · beginnings · exceptions, by group ──► is this one of them?
//! ```
//!
//! K1  The table is data: a line is a name, its group gives the files, its words say how it grows.
//! K2  A look-up costs the length of the name, not of the table.
//!
//! Not here: what a name is (qualified.rs), wrappers that no table knows (plumbing.rs).

use std::sync::OnceLock;

use rustc_hash::FxHashMap;

/// The lines of the table; its head says how they are read.
const TABLE: &str = include_str!("plumbing.txt");

#[derive(Default)]
struct Entry {
    /// The files that it belongs to, by the beginnings of their names; none means any.
    modules: Vec<&'static str>,
    excepted: bool,
    growth: Option<&'static str>,
}

#[derive(Default)]
struct Known {
    exact: FxHashMap<&'static str, Vec<Entry>>,
    /// Entries by the beginning of their names.
    starts: FxHashMap<&'static str, Vec<Entry>>,
    /// Lengths that beginnings have, longest first.
    lengths: Vec<usize>,
    /// `std::*::inner::*`: beginning, and what must follow somewhere.
    within: Vec<(&'static str, &'static str)>,
}

fn known() -> &'static Known {
    static KNOWN: OnceLock<Known> = OnceLock::new();
    KNOWN.get_or_init(|| parse(TABLE))
}

fn parse(table: &'static str) -> Known {
    let mut known = Known::default();
    let mut modules: Vec<&'static str> = Vec::new();
    for line in table.lines().map(str::trim) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(group) = line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            let of = group.split_once(" in ").map(|(_, files)| files);
            modules = of.map_or(Vec::new(), |files| files.split_whitespace().collect());
            continue;
        }
        let (name, growth) = match line.split_once(" ~ ") {
            Some((name, words)) => (name, Some(words)),
            None => (line, None),
        };
        let (name, excepted) = match name.strip_prefix('!') {
            Some(name) => (name, true),
            None => (name, false),
        };
        let entry = Entry {
            modules: modules.clone(),
            excepted,
            growth,
        };
        match name.strip_suffix('*') {
            Some(start) => match start.split_once('*') {
                Some((start, inner)) => known.within.push((start, inner)),
                None => known.starts.entry(start).or_default().push(entry),
            },
            None => known.exact.entry(name).or_default().push(entry),
        }
    }
    known.lengths = known.starts.keys().map(|start| start.len()).collect();
    known
        .lengths
        .sort_unstable_by_key(|length| std::cmp::Reverse(*length));
    known.lengths.dedup();
    known
}

impl Known {
    /// Returns what the table has for a qualified name in a file: the most specific line.
    fn entry(&self, name: &str, module: &str) -> Option<&Entry> {
        let here = |entry: &&Entry| {
            entry.modules.is_empty() || entry.modules.iter().any(|own| module.starts_with(own))
        };
        if let Some(entry) = self.exact.get(name).and_then(|all| all.iter().find(here)) {
            return Some(entry);
        }
        self.lengths.iter().find_map(|&length| {
            let start = name.get(..length)?;
            self.starts.get(start)?.iter().find(here)
        })
    }
}

/// Reports whether a function of this qualified name in this file only passes an allocation on.
pub(crate) fn passes_on(name: &str, module: &str) -> bool {
    let known = known();
    match known.entry(name, module) {
        Some(entry) => !entry.excepted,
        None => known.within.iter().any(|(start, inner)| {
            name.strip_prefix(start)
                .is_some_and(|rest| rest.contains(inner))
        }),
    }
}

/// Returns how a function is known to grow its buffers, in words: it is one of a runtime or library whose users
/// cannot change that. `None` if nothing is known. `function` is its demangled name, `module` the name of its file
/// without folder.
pub fn known_growth(function: &str, module: &str) -> Option<&'static str> {
    let name = crate::qualified::own_name(function);
    known().entry(&name, module).and_then(|entry| entry.growth)
}

/// Containers of C++ whose content lies in one block.
const CONTAINERS: [&str; 6] = [
    "std::vector::",
    "std::__1::vector::",
    "std::__cxx11::basic_string::",
    "std::__1::basic_string::",
    "std::basic_string::",
    "std::string::",
];
/// The beginnings of their functions that take a larger block only to move the content there. (What assigns may take
/// one, too, and moves nothing.)
const MOVERS: [&str; 11] = [
    "reserve",
    "resize",
    "push_back",
    "emplace_back",
    "append",
    "_M_append",
    "_M_realloc_",
    "_M_default_append",
    "_M_fill_append",
    "__push_back_slow_path",
    "__emplace_back_slow_path",
];

/// Reports whether a function of this demangled name is known to copy what it replaces by a larger block.
pub fn copies_to_grow(function: &str) -> bool {
    let name = crate::qualified::own_name(function);
    let mut own = CONTAINERS.iter().filter_map(|one| name.strip_prefix(one));
    own.any(|own| MOVERS.iter().any(|mover| own.starts_with(mover)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beginnings_exceptions_and_files() {
        let known = parse("[a]\nf\ng*\n!get\nab*cd* \n[b in libb bb]\nh ~ doubles\n");
        let is = |name: &str, module: &str| known.entry(name, module).map(|entry| !entry.excepted);
        assert_eq!(is("f", ""), Some(true));
        assert_eq!(is("ff", ""), None);
        assert_eq!(is("go", ""), Some(true));
        assert_eq!(is("get", ""), Some(false));
        assert_eq!(is("h", "libbig.so"), Some(true));
        assert_eq!(is("h", "a.out"), None);
        assert_eq!(
            known.entry("h", "bb").and_then(|entry| entry.growth),
            Some("doubles")
        );
        assert_eq!(known.within, [("ab", "cd")]);
    }

    #[test]
    fn runtimes_whose_growth_is_known() {
        assert!(known_growth("list_resize", "libpython3.11.so.1.0").is_some());
        assert!(known_growth("list_resize.part.0", "python3.11").is_some());
        assert!(
            known_growth("list_resize", "mine").is_none(),
            "any program's name"
        );
        assert!(known_growth("g_string_maybe_expand", "libglib-2.0.so.0").is_some());
        assert!(known_growth("llvm::SmallVectorBase<unsigned int>::grow_pod(void*, unsigned long, unsigned long)", "x").is_some());
        assert!(known_growth("grow", "mine").is_none());
    }

    #[test]
    fn containers_that_copy_to_grow_and_such_as_only_assign() {
        assert!(copies_to_grow(
            "std::vector<int, std::allocator<int> >::reserve(unsigned long)"
        ));
        assert!(copies_to_grow(
            "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >::_M_append(char const*, unsigned long)"
        ));
        assert!(!copies_to_grow(
            "std::vector<int, std::allocator<int> >::operator=(std::vector<int, std::allocator<int> > const&)"
        ));
        assert!(!copies_to_grow(
            "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >::_M_assign(std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> > const&)"
        ));
        assert!(!copies_to_grow("mine::vector<int>::reserve(unsigned long)"));
        assert!(!copies_to_grow("append"));
    }

    #[test]
    fn no_line_is_there_twice() {
        let mut seen = std::collections::BTreeSet::new();
        let mut group = "";
        for line in TABLE.lines() {
            match line.starts_with('[') {
                true => group = line,
                false if line.is_empty() || line.starts_with('#') => {}
                false => {
                    let scope = if group.contains(" in ") { group } else { "" };
                    assert!(seen.insert((scope, line)), "{group} {line}");
                }
            }
        }
        assert!(seen.len() > 400, "{} lines", seen.len());
    }
}
