//! What a script's line makes: dictionaries, floats, instances of a class.
//!
//! ```text
//!   type of an object in a block of the stack (trace) ───────────────────────────► dict ──► dictionaries ──► advice
//!   else the interpreter's function: PyFloat_FromDouble · eval · [python] total ──► floats
//!   no object in it: a table, items ──► of what the same line makes of dictionaries, lists, sets, instances
//! ```
//!
//! M1  The type of an object says most: it was read from the program, and needs no names of functions. A stack is of the type that
//!     most of its blocks had that were looked at.
//! M2  Of the interpreter's frames only those inside of the script's first are asked, innermost first: what made the block. Where
//!     they have no names (a stripped interpreter) and no block was looked at, nothing is said.
//! M3  Advice is given for the kind that a third of a holder's bytes are of, and promises nothing: what the program needs of its
//!     objects no trace shows.
//! M4  A class is named only if its name begins with a capital: other names are of the interpreter's own types, or a library's.
//!
//! Not here: who holds much (`grouping.rs`), which blocks are looked at (collect's `kinds.rs`).

use std::sync::Arc;

use rustc_hash::FxHashMap;
use skinflint_trace::Kind;

use crate::model::{Report, Site};
use crate::passes::wording::{bytes, percent};

/// A kind of Python's objects.
pub(crate) struct Made {
    /// What many of them are called.
    pub name: &'static str,
    /// What may make them fewer, or smaller.
    pub change: &'static str,
    /// The types that are of this kind.
    types: &'static [&'static str],
    functions: &'static [&'static str],
}

/// The kinds, those that say most first: the table of a dictionary is the dictionary's.
pub(crate) const KINDS: [Made; 9] = [
    Made {
        name: "attributes of instances",
        change: "A class with __slots__ keeps attributes in the instance itself, and needs no room for them elsewhere.",
        types: &[],
        functions: &[
            "init_inline_values",
            "new_values",
            "_PyObject_InitializeDict",
            "new_dict_with_shared_keys",
        ],
    },
    Made {
        name: "dictionaries",
        change: "If they all have the same keys, instances of a class with __slots__, or tuples, take a third of it; if they are \
                 read once, one after the other, a generator keeps none.",
        types: &[
            "dict",
            "collections.defaultdict",
            "collections.OrderedDict",
            "mappingproxy",
        ],
        functions: &[
            "new_dict",
            "dict_new",
            "new_keys_object",
            "dictresize",
            "dict_merge",
            "PyDict_New",
            "PyDict_Copy",
            "dict_new_presized",
        ],
    },
    Made {
        name: "sets",
        change: "A set that no longer changes and is only iterated over takes less as a tuple.",
        types: &["set", "frozenset"],
        functions: &["make_new_set*", "set_table_resize", "PySet_New"],
    },
    Made {
        name: "lists",
        change: "A list that no longer grows takes less as a tuple; one of numbers, as an array (array, numpy); one that is read \
                 once, as a generator.",
        types: &["list", "collections.deque"],
        functions: &[
            "list_resize",
            "list_extend*",
            "PyList_New",
            "list_new_prealloc",
            "list_preallocate_exact",
            "list_append",
        ],
    },
    Made {
        name: "tuples",
        change: "Many tuples of the same fields take less as columns: one array or list for each field.",
        types: &["tuple"],
        functions: &["tuple_alloc", "PyTuple_New", "_PyTuple_FromArray*"],
    },
    Made {
        name: "floats",
        change: "An array (array, numpy) keeps each in 8 bytes, without an object of 24 and the pointer to it.",
        types: &["float"],
        functions: &["PyFloat_FromDouble"],
    },
    Made {
        name: "integers",
        change: "An array (array, numpy) keeps each in 8 bytes or fewer, without an object of 28 and the pointer to it.",
        types: &["int"],
        functions: &[
            "_PyLong_New",
            "PyLong_From*",
            "_PyLong_FromLarge",
            "_PyLong_FromMedium",
            "long_*",
        ],
    },
    Made {
        name: "strings",
        change: "If many are equal, sys.intern keeps one of each; if they are parts of one text, its offsets take less.",
        types: &["str"],
        functions: &[
            "PyUnicode_New",
            "resize_compact",
            "unicode_*",
            "_PyUnicode*",
            "PyUnicode_*",
        ],
    },
    Made {
        name: "instances of classes",
        change: "A class with __slots__ makes each smaller, if it has none yet.",
        types: &[],
        functions: &["_PyType_AllocNoTrack", "PyType_GenericAlloc"],
    },
];

/// The kinds whose objects have room of their own elsewhere: dictionaries, sets, lists, instances.
const WITH_ROOM: [usize; 4] = [1, 2, 3, INSTANCES];
/// The kind of instances of classes.
const INSTANCES: usize = KINDS.len() - 1;

/// Returns by node the type that most of its blocks had that were looked at; of two, one that is named.
pub(crate) fn types(kinds: &[Kind]) -> FxHashMap<u32, Arc<str>> {
    let mut counts: FxHashMap<u32, Vec<(Arc<str>, u32)>> = FxHashMap::default();
    for kind in kinds {
        let of = counts.entry(kind.node).or_default();
        match of.iter_mut().find(|(name, _)| *name == kind.name) {
            Some((_, count)) => *count += 1,
            None => of.push((kind.name.clone(), 1)),
        }
    }
    let most = counts.into_iter().filter_map(|(node, of)| {
        let most = of
            .into_iter()
            .max_by_key(|(name, count)| (*count, !name.is_empty()));
        most.map(|(name, _)| (node, name))
    });
    most.collect()
}

/// What the blocks of a stack are.
enum What {
    Kind(usize),
    Class(Arc<str>),
    /// Room of an object that lies elsewhere.
    Room,
    Unknown,
}

fn what(report: &Report, site: &Site) -> What {
    let by_function = || kind_of(report, site.node).map(What::Kind);
    match site.object_type.as_ref() {
        Some(name) if !name.is_empty() => {
            let kind = KINDS.iter().position(|one| one.types.contains(&&**name));
            match kind {
                Some(kind) => What::Kind(kind),
                None if is_class(name) => What::Class(name.clone()),
                None => What::Unknown,
            }
        }
        Some(_) => by_function().unwrap_or(What::Room),
        None => by_function().unwrap_or(What::Unknown),
    }
}

fn is_class(name: &str) -> bool {
    let own = name.rsplit('.').next().unwrap_or(name);
    own.starts_with(|first: char| first.is_uppercase())
}

/// The resident bytes of what a function holds, by kind.
#[derive(Default)]
pub(crate) struct Sums {
    by_kind: [u64; KINDS.len()],
    classes: FxHashMap<Arc<str>, u64>,
    /// Room of objects, by the node of the script's line.
    rooms: Vec<(u32, u64)>,
}

/// What each line of a script makes whose objects have room elsewhere, bytes by kind.
#[derive(Default)]
pub(crate) struct Lines(FxHashMap<u32, [u64; WITH_ROOM.len()]>);

/// What is said of a holder.
pub(crate) struct Said {
    /// For its title.
    pub short: String,
    /// For its explanation.
    pub long: String,
    /// What may make them fewer, or smaller; empty if nothing is known to.
    pub change: &'static str,
}

impl Sums {
    /// Adds the blocks of a stack.
    pub fn add(&mut self, report: &Report, site: &Site, resident: u64, lines: &mut Lines) {
        let mut is_of = |kind: usize| {
            if let Some(at) = WITH_ROOM.iter().position(|one| *one == kind)
                && let Some(line) = line_of(report, site.node)
            {
                let all = lines.0.entry(line).or_default();
                all[at] = all[at].saturating_add(resident);
            }
        };
        match what(report, site) {
            What::Kind(kind) => {
                is_of(kind);
                self.by_kind[kind] = self.by_kind[kind].saturating_add(resident);
            }
            What::Class(name) => {
                is_of(INSTANCES);
                self.by_kind[INSTANCES] = self.by_kind[INSTANCES].saturating_add(resident);
                let of = self.classes.entry(name).or_default();
                *of = of.saturating_add(resident);
            }
            What::Room => {
                let line = line_of(report, site.node);
                self.rooms.extend(line.map(|line| (line, resident)));
            }
            What::Unknown => {}
        }
    }

    /// Says what a holder of so many bytes is made of, if a third of it is known.
    pub fn said(&self, resident: u64, lines: &Lines) -> Option<Said> {
        let mut by_kind = self.by_kind;
        for (line, room) in &self.rooms {
            let of = lines
                .0
                .get(line)
                .into_iter()
                .flat_map(|all| all.iter().enumerate());
            let most = of
                .filter(|(_, bytes)| **bytes > 0)
                .max_by_key(|(_, bytes)| **bytes);
            if let Some((at, _)) = most {
                let kind = WITH_ROOM[at];
                by_kind[kind] = by_kind[kind].saturating_add(*room);
            }
        }
        let mut all: Vec<(u64, usize)> = by_kind.into_iter().zip(0..).collect();
        all.sort_unstable_by_key(|&(of, kind)| (std::cmp::Reverse(of), kind));
        all.retain(|(of, _)| *of > 0 && *of >= resident / 8);
        let &(most, kind) = all.first().filter(|(of, _)| *of >= resident / 3)?;
        let class = self
            .classes
            .iter()
            .max_by_key(|(name, of)| (**of, (*name).clone()));
        let class = class.filter(|(_, of)| **of >= self.by_kind[INSTANCES] / 2);
        let name = |kind: usize| match class {
            Some((class, _)) if kind == INSTANCES => format!("instances of {class}"),
            _ => KINDS[kind].name.to_string(),
        };
        let mut long = format!(" {} of it are {}", bytes(most), name(kind));
        for (of, kind) in all.iter().skip(1) {
            long.push_str(&format!(", {} {}", bytes(*of), name(*kind)));
        }
        long.push('.');
        Some(Said {
            short: format!(", {} % {}", percent(most, resident), name(kind)),
            long,
            change: KINDS[kind].change,
        })
    }
}

/// Returns the node of the script's innermost frame of a stack.
fn line_of(report: &Report, node: u32) -> Option<u32> {
    let mut at = node;
    while let Some(entry) = report.nodes.get(at as usize).filter(|_| at != 0) {
        if report.frames.get(entry.frame as usize)?.module == "[python]" {
            return Some(at);
        }
        at = (entry.parent < at).then_some(entry.parent)?;
    }
    None
}

/// Returns the kind of what a stack makes by its functions, as an index into [`KINDS`] (M2).
fn kind_of(report: &Report, node: u32) -> Option<usize> {
    let (mut at, mut kind) = (node, None);
    while let Some(entry) = report.nodes.get(at as usize).filter(|_| at != 0) {
        let frame = report.frames.get(entry.frame as usize)?;
        if frame.module == "[python]" {
            return kind;
        }
        let is_interpreter =
            frame.module.starts_with("python") || frame.module.starts_with("libpython");
        if kind.is_none() && is_interpreter {
            // A copy that the compiler made for one caller has an ending.
            let name = frame.function.split('.').next().unwrap_or_default();
            kind = KINDS.iter().position(|one| fits(one.functions, name));
        }
        at = (entry.parent < at).then_some(entry.parent)?;
    }
    None
}

fn fits(names: &[&str], name: &str) -> bool {
    names.iter().any(|known| match known.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == *known,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made::push_stack;
    use crate::model::{Frame, Node};

    fn kind(frames: &[(&str, &str)]) -> Option<&'static str> {
        let mut report = Report {
            nodes: vec![Node::default()],
            frames: vec![Frame::default()],
            ..Report::default()
        };
        let frames = frames.iter().map(|(function, module)| Frame {
            function: (*function).into(),
            module: (*module).into(),
            ..Frame::default()
        });
        let node = push_stack(&mut report, frames);
        kind_of(&report, node).map(|kind| KINDS[kind].name)
    }

    #[test]
    fn what_a_line_makes_is_told_by_what_it_called() {
        let line = ("load", "[python]");
        let eval = ("_PyEval_EvalFrameDefault", "python3.11");
        let lib = "libpython3.13.so.1.0";
        assert_eq!(
            kind(&[line, eval, ("PyFloat_FromDouble", lib)]),
            Some("floats")
        );
        let keys = ("new_keys_object.constprop.0", lib);
        assert_eq!(
            kind(&[line, eval, ("dict_new_presized", lib), keys]),
            Some("dictionaries")
        );
        // The innermost decides: a tuple that a list's method made.
        let inner = [
            line,
            eval,
            ("list_append", "python3"),
            ("tuple_alloc", "python3"),
        ];
        assert_eq!(kind(&inner), Some("tuples"));
    }

    #[test]
    fn nothing_is_said_of_what_is_not_the_interpreters() {
        let line = ("load", "[python]");
        // A library in C, a stripped interpreter, no frame of the script, a function further out.
        for frames in [
            &[line, ("PyFloat_FromDouble", "mine.so")][..],
            &[line, ("python3.11+0x1234", "python3.11")],
            &[("PyFloat_FromDouble", "python3.11")],
            &[("PyList_New", "python3.11"), line, ("grow", "mine.so")],
        ] {
            assert_eq!(kind(frames), None, "{frames:?}");
        }
    }

    /// Sites of a script's line 1 and line 2 (nodes 1 and 2), whose blocks are of these types.
    fn said(sites: &[(u32, Option<&str>, u64)]) -> Option<Said> {
        let mut report = Report {
            nodes: vec![Node::default()],
            frames: vec![Frame::default()],
            ..Report::default()
        };
        let frame = |function: &str, module: &str| Frame {
            function: function.into(),
            module: module.into(),
            ..Frame::default()
        };
        let lines = ["one", "two"]
            .map(|line| push_stack(&mut report, [frame(line, "[python]")].into_iter()));
        let (mut sums, mut all) = (Sums::default(), Lines::default());
        for &(line, object_type, bytes) in sites {
            let site = Site {
                node: lines[line as usize - 1],
                object_type: object_type.map(Arc::from),
                ..Site::default()
            };
            sums.add(&report, &site, bytes, &mut all);
        }
        sums.said(sites.iter().map(|(_, _, bytes)| bytes).sum(), &all)
    }

    #[test]
    fn the_type_of_an_object_needs_no_names_and_room_is_of_what_the_line_makes() {
        let found = said(&[
            (1, Some("dict"), 4000),
            (1, Some(""), 12_000),
            (2, Some(""), 4096),
            (2, Some("float"), 4096),
            (2, None, 100),
        ])
        .expect("known");
        // Floats have no room elsewhere.
        assert_eq!(found.short, ", 66 % dictionaries");
        assert_eq!(
            found.long,
            " 15.6 KiB of it are dictionaries, 4,096 bytes floats."
        );
        assert!(found.change.contains("generator"));
        let found = said(&[(1, Some("Row"), 700), (1, Some("bytes"), 300)]).expect("known");
        assert_eq!(found.short, ", 70 % instances of Row");
        assert!(found.change.contains("__slots__"));
        // A type without a kind, less than a third, nothing looked at.
        assert!(said(&[(1, Some("bytes"), 700), (1, Some("dict"), 300)]).is_none());
        assert!(said(&[(1, None, 700)]).is_none());
    }

    #[test]
    fn a_stack_has_the_type_of_most_of_its_blocks() {
        let kind = |node, name: &str| Kind {
            node,
            name: name.into(),
        };
        let types = types(&[
            kind(1, ""),
            kind(1, "dict"),
            kind(2, "set"),
            kind(2, "list"),
            kind(2, "list"),
        ]);
        assert_eq!((&*types[&1], &*types[&2], types.len()), ("dict", "list", 2));
    }
}
