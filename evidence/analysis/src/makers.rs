//! What a script's line makes, told by the interpreter's function that made it: dictionaries, floats, instances.
//!
//! ```text
//!   PyFloat_FromDouble · float_add · eval · [python] total      ──► floats ──► an array keeps 8 bytes for each
//! ```
//!
//! M1  Only the interpreter's frames inside of the script's first are asked, innermost first: what made the block. Where they
//!     have no names (a stripped interpreter), nothing is said.
//! M2  Advice is given for the kind that half of a holder's bytes are of, and promises nothing: what the program needs of its
//!     objects no trace shows.
//!
//! Not here: who holds much (`grouping.rs`).

use crate::model::Report;

/// A kind of Python's objects.
pub(crate) struct Made {
    /// What many of them are called.
    pub name: &'static str,
    /// What may make them fewer, or smaller.
    pub change: &'static str,
    functions: &'static [&'static str],
}

/// The kinds, those that say most first: the table of a dictionary is the dictionary's.
pub(crate) const KINDS: [Made; 9] = [
    Made {
        name: "attributes of instances",
        change: "A class with __slots__ keeps attributes in the instance itself, and needs no room for them elsewhere.",
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
        functions: &["make_new_set*", "set_table_resize", "PySet_New"],
    },
    Made {
        name: "lists",
        change: "A list that no longer grows takes less as a tuple; one of numbers, as an array (array, numpy); one that is read \
                 once, as a generator.",
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
        functions: &["tuple_alloc", "PyTuple_New", "_PyTuple_FromArray*"],
    },
    Made {
        name: "floats",
        change: "An array (array, numpy) keeps each in 8 bytes, without an object of 24 and the pointer to it.",
        functions: &["PyFloat_FromDouble"],
    },
    Made {
        name: "integers",
        change: "An array (array, numpy) keeps each in 8 bytes or fewer, without an object of 28 and the pointer to it.",
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
        functions: &["_PyType_AllocNoTrack", "PyType_GenericAlloc"],
    },
];

/// Returns the kind of what a stack makes, as an index into [`KINDS`].
pub(crate) fn kind_of(report: &Report, node: u32) -> Option<usize> {
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
}
