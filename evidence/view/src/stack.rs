//! Stacks for readers: from a node of the report to the frames worth showing.
//!
//! ```text
//!   node ──path──► malloc · operator new · std::vector<…>::_M_realloc_insert · parse · main · _start
//!        ──interesting──►                                                     parse · main
//! ```
//!
//! K1  A path ends for any input: it is cut where a parent does not come before its child, so a
//!     damaged report cannot loop.
//! K2  Hiding never hides everything: a stack that consists only of plumbing is shown whole.
//! K3  The order is innermost (nearest to the allocation) first.
//!
//! Not here: the flame graph, which keeps every frame (page/flame.js).

use skinflint_analysis::model::{Frame, Report};
use skinflint_analysis::plumbing::is_of_c_library;
use skinflint_analysis::plumbing::only_passes_on;
pub use skinflint_analysis::plumbing::{is_plumbing, is_startup, is_unnamed};

use crate::screen::{columns, cut_middle};

/// Returns the frames of a stack, innermost first. A node or frame out of range ends the stack.
pub fn path(report: &Report, node: u32) -> Vec<&Frame> {
    let frames = path_indices(report, node).into_iter();
    frames.map(|index| &report.frames[index as usize]).collect()
}

fn path_indices(report: &Report, node: u32) -> Vec<u32> {
    let mut frames = Vec::new();
    let mut at = node;
    while at != 0 {
        let Some(entry) = report.nodes.get(at as usize) else {
            break;
        };
        if entry.frame as usize >= report.frames.len() {
            break;
        }
        frames.push(entry.frame);
        if entry.parent >= at {
            break;
        }
        at = entry.parent;
    }
    frames
}

/// Returns the path without frames that only pass an allocation on, and without the start-up code
/// at its outer end (K2). The report says which frames pass on (`plumbing`); if it does not, names
/// decide.
pub fn interesting(report: &Report, node: u32) -> Vec<&Frame> {
    let mut all = path_indices(report, node);
    if is_inherited(report, node) {
        // What is outside of it is said beside the stack.
        all.pop();
    }
    let dull = |index: u32| match report.plumbing.is_empty() {
        true => only_passes_on(&report.frames[index as usize]),
        false => report.plumbing.binary_search(&index).is_ok(),
    };
    let startup = |index: u32| is_startup(&report.frames[index as usize].function);
    // The program's own `_start` may have no name: everything outside of libc's start is left out.
    let libc = |index: u32| {
        report.frames[index as usize]
            .function
            .starts_with("__libc_start_")
    };
    let within = all
        .iter()
        .position(|index| libc(*index))
        .unwrap_or(all.len());
    let outer = all[..within]
        .iter()
        .rev()
        .take_while(|index| startup(**index))
        .count();
    let inner = &all[..within - outer];
    let pick = |skip: &dyn Fn(u32) -> bool| -> Vec<&Frame> {
        let kept = inner.iter().filter(|index| !skip(**index));
        kept.map(|index| &report.frames[*index as usize]).collect()
    };
    // If a rule leaves nothing, the list of names may leave something.
    let own = pick(&dull);
    if !own.is_empty() {
        return own;
    }
    let own = pick(&|index| is_plumbing(&report.frames[index as usize].function));
    if own.is_empty() {
        path(report, node)
    } else {
        own
    }
}

/// Returns the frames of [`interesting`], but of those without names only the innermost: addresses
/// say little, and the first function with a name tells which part of the program it is. The C library's that calls
/// one back (`qsort`, `__pthread_once_slow`) does not.
pub fn telling(report: &Report, node: u32) -> Vec<&Frame> {
    let mut frames = interesting(report, node);
    let mut at = 0;
    frames.retain(|frame| {
        at += 1;
        at == 1 || !is_of_c_library(&frame.module)
    });
    if frames.iter().all(|frame| is_unnamed(&frame.function)) {
        return frames;
    }
    let kept = frames.into_iter().enumerate();
    kept.filter(|(index, frame)| *index == 0 || !is_unnamed(&frame.function))
        .map(|(_, frame)| frame)
        .collect()
}

/// Returns the frames of [`telling`], behind the program's own innermost function if that has no name: it passed the
/// call on, as far as can be told, but no name says so. A function further out never allocated by itself.
pub fn heading(report: &Report, node: u32) -> Vec<&Frame> {
    let mut frames = telling(report, node);
    let own = report.program.exe.rsplit('/').next().unwrap_or_default();
    let is_own = |frame: &&Frame| !own.is_empty() && frame.module == own;
    let inner = path(report, node).into_iter().find(is_own);
    let inner = inner.filter(|frame| is_unnamed(&frame.function));
    if let (Some(inner), Some(first)) = (inner, frames.first())
        && is_own(first)
        && !is_unnamed(&first.function)
    {
        frames.insert(0, inner);
    }
    frames
}

/// Reports whether a stack is of the process that forked, which left its blocks to this one.
pub fn is_inherited(report: &Report, node: u32) -> bool {
    let all = path_indices(report, node);
    let outermost = all.last().filter(|_| all.len() > 1);
    outermost.is_some_and(|index| {
        report.frames[*index as usize]
            .function
            .starts_with("[inherited")
    })
}

/// Returns `file:line` with at most the last two folders, else the module, else nothing.
pub fn place(frame: &Frame) -> String {
    let Some(file) = &frame.file else {
        return frame.module.clone();
    };
    let parts: Vec<&str> = file.split('/').collect();
    let short = parts[parts.len().saturating_sub(2)..].join("/");
    match frame.line {
        Some(line) => format!("{short}:{line}"),
        None => short,
    }
}

/// Returns the name without its parameters, and without template arguments deeper than one level:
/// `std::map<std::string, Foo<int>>::insert(…)` becomes `std::map<std::string, Foo<…>>::insert`.
pub fn short_name(function: &str) -> String {
    let mut out = String::new();
    let (mut angle, mut round) = (0_u32, 0_u32);
    let mut last = ' ';
    for c in function.chars() {
        let arrow = c == '>' && last == '-';
        let operator =
            out.ends_with("operator") || out.ends_with("operator<") || out.ends_with("operator>");
        last = c;
        match c {
            // A tuple among template arguments is no list of parameters: `Fn<(), Output = T>`; nor is what stands
            // behind a blank or a point: Ruby's `block (2 levels) in load`, Go's `strings.(*Builder).grow`.
            '(' if !(operator
                || out.is_empty()
                || ["::", "<", " ", "."].iter().any(|end| out.ends_with(end))) =>
            {
                round += 1
            }
            ')' if round > 0 => round -= 1,
            _ if round > 0 => {}
            '<' if !operator && !out.is_empty() => {
                angle += 1;
                match angle {
                    1 => out.push('<'),
                    2 => out.push_str("<…>"),
                    _ => {}
                }
            }
            '>' if angle > 0 && !arrow => {
                angle -= 1;
                if angle == 0 {
                    out.push('>');
                }
            }
            _ if angle > 1 => {}
            _ => out.push(c),
        }
    }
    let out = out.trim_end_matches(" const").trim().to_owned();
    if out.is_empty() {
        function.to_owned()
    } else {
        out
    }
}

/// Returns the short name within this many columns. What tells functions apart stays: the start of the qualified name
/// and its last component. Template arguments go first, then the components between.
pub fn fitted(function: &str, room: usize) -> String {
    let short = short_name(function);
    if columns(&short) <= room {
        return short;
    }
    let bare = without_arguments(&short);
    if columns(&bare) <= room {
        return bare;
    }
    let parts = components(&bare);
    let (last, before) = parts.split_last().expect("never empty");
    let shortened = (1..before.len()).rev().map(|kept| {
        let start = before[..kept].join("::");
        format!("{start}::…::{last}")
    });
    let only_last = (!before.is_empty()).then(|| format!("…::{last}"));
    let mut all = shortened.chain(only_last);
    let fits = all.find(|text| columns(text) <= room);
    fits.unwrap_or_else(|| cut_middle(&bare, room))
}

/// Returns a name with the arguments of its templates replaced; those that begin a name (`<T as Trait>::f`) stay.
fn without_arguments(name: &str) -> String {
    let mut out = String::new();
    let mut angle = 0_u32;
    let mut last = ' ';
    for c in name.chars() {
        let is_name = out.is_empty() || out.contains("operator") || last == '-';
        last = c;
        match c {
            '<' if !is_name => {
                angle += 1;
                if angle == 1 {
                    out.push_str("<…>");
                }
            }
            '>' if angle > 0 && !is_name => angle -= 1,
            _ if angle > 0 => {}
            c => out.push(c),
        }
    }
    // `Foo<Bar<int> >` loses its blank with its arguments.
    out.replace("<…> >", "<…>")
}

/// Returns the components of a qualified name.
fn components(name: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut from) = (0_i32, 0);
    for (at, c) in name.char_indices() {
        match c {
            '<' | '(' | '{' => depth += 1,
            '>' | ')' | '}' => depth -= 1,
            ':' if depth == 0 && at > from && name[at..].starts_with("::") => {
                parts.push(&name[from..at]);
                from = at + 2;
            }
            _ => {}
        }
    }
    parts.push(&name[from..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use skinflint_analysis::model::Node;

    fn report(outer_to_inner: &[&str]) -> Report {
        let mut report = Report {
            nodes: vec![Node::default()],
            ..Report::default()
        };
        for (index, name) in outer_to_inner.iter().enumerate() {
            report.frames.push(Frame {
                function: (*name).to_owned(),
                ..Frame::default()
            });
            report.nodes.push(Node {
                parent: index as u32,
                frame: index as u32,
            });
        }
        report
    }

    fn names(frames: &[&Frame]) -> Vec<String> {
        frames.iter().map(|frame| frame.function.clone()).collect()
    }

    /// coqc: the runtime in the program's file exports some of its functions, and not those that allocate.
    #[test]
    fn a_heading_begins_with_the_programs_own_innermost_function_though_it_has_no_name() {
        let headed = |outer_to_inner: &[(&str, &str)], plumbing: &[u32]| {
            let stack: Vec<&str> = outer_to_inner.iter().map(|(name, _)| *name).collect();
            let mut one = report(&stack);
            for (frame, (_, module)) in one.frames.iter_mut().zip(outer_to_inner) {
                frame.module = (*module).into();
            }
            one.program.exe = "/usr/bin/app".into();
            one.plumbing = plumbing.into();
            let node = one.nodes.len() as u32 - 1;
            names(&heading(&one, node)).join(" < ")
        };
        let (libc, app) = ("libc.so.6", "app");
        let stack = [
            ("main", app),
            ("modify", app),
            ("app+0xc6b952", app),
            ("malloc", libc),
        ];
        assert_eq!(headed(&stack, &[2, 3]), "app+0xc6b952 < modify < main");
        // With a name it is plumbing for what it is called.
        let named = [
            ("main", app),
            ("modify", app),
            ("xmalloc", app),
            ("malloc", libc),
        ];
        assert_eq!(headed(&named, &[2, 3]), "modify < main");
        // A library's inner steps belong to its function with a name, which the program called.
        let library = [
            ("main", app),
            ("PyList_New", "libpy.so"),
            ("libpy.so+0x12", "libpy.so"),
            ("malloc", libc),
        ];
        assert_eq!(headed(&library, &[2, 3]), "PyList_New < main");
        let nameless = [
            ("main", app),
            ("app+0x10", app),
            ("app+0x20", app),
            ("malloc", libc),
        ];
        assert_eq!(headed(&nameless, &[2, 3]), "app+0x10 < main");
        // What the C library calls back says more than it does; what it holds itself is its own.
        let back = [
            ("main", app),
            ("qsort", libc),
            ("app+0x20", app),
            ("malloc", libc),
        ];
        assert_eq!(headed(&back, &[3]), "app+0x20 < main");
        assert_eq!(
            headed(&[("main", app), ("opendir", libc)], &[]),
            "opendir < main"
        );
    }

    #[test]
    fn what_a_fork_left_has_its_stack_and_is_known_for_it() {
        let marker = "[inherited from parent]";
        let left = report(&[marker, "clone", "start_thread", "work", "fill", "malloc"]);
        assert!(is_inherited(&left, 6));
        assert_eq!(names(&interesting(&left, 6)), ["fill", "work"]);
        // Where the parent's trace is missing, this is all there is.
        assert!(!is_inherited(&left, 1));
        assert_eq!(names(&interesting(&left, 1)), [marker]);
        assert!(!is_inherited(&report(&["main", "fill"]), 2));
    }

    #[test]
    fn plumbing_is_hidden_at_both_ends_and_between() {
        let report = report(&[
            "_start",
            "main",
            "alloc::vec::Vec<T>::push",
            "parse",
            "operator new(unsigned long)",
            "malloc",
        ]);
        assert_eq!(names(&interesting(&report, 6)), ["parse", "main"]);
        assert_eq!(path(&report, 6).len(), 6);
    }

    #[test]
    fn a_stack_of_plumbing_is_shown_whole() {
        let report = report(&["_start", "operator new(unsigned long)", "malloc"]);
        assert_eq!(interesting(&report, 3).len(), 3);
        assert!(interesting(&report, 0).is_empty());
    }

    #[test]
    fn damaged_trees_end() {
        let mut report = report(&["a", "b"]);
        report.nodes[1].parent = 2;
        assert_eq!(names(&path(&report, 2)), ["b", "a"]);
        report.nodes[2].frame = 99;
        assert!(path(&report, 2).is_empty());
        assert!(path(&report, 99).is_empty());
    }

    #[test]
    fn names_lose_parameters_and_deep_templates() {
        assert_eq!(
            short_name("std::map<std::string, Foo<int>>::insert(int, Foo<int> const&) const"),
            "std::map<std::string, Foo<…>>::insert"
        );
        assert_eq!(short_name("operator new(unsigned long)"), "operator new");
        assert_eq!(
            short_name("<top (required)>") + &short_name("block (2 levels) in load"),
            "<top (required)>block (2 levels) in load"
        );
        assert_eq!(
            short_name("(anonymous namespace)::load(char*)"),
            "(anonymous namespace)::load"
        );
        assert_eq!(
            short_name("<alloc::vec::Vec<T> as Clone>::clone"),
            "<alloc::vec::Vec<T> as Clone>::clone"
        );
        assert_eq!(
            short_name("call::<dyn core::ops::Fn<(), Output = i32>>(i32)"),
            "call::<dyn core::ops::Fn<…>>"
        );
        assert_eq!(
            short_name("FnOnce<(), Output = i32>::call_once(self)"),
            "FnOnce<(), Output = i32>::call_once"
        );
        assert_eq!(
            short_name("Map<int, (anonymous namespace)::Key>::at(int)"),
            "Map<int, (anonymous namespace)::Key>::at"
        );
        assert_eq!(short_name("main"), "main");
    }

    #[test]
    fn long_names_keep_their_start_and_their_last_component() {
        let name =
            "app::store::Cache<std::pair<long, std::string>, std::less<long> >::Shard::fill(int)";
        for (room, said) in [
            (
                80,
                "app::store::Cache<std::pair<…>, std::less<…> >::Shard::fill",
            ),
            (40, "app::store::Cache<…>::Shard::fill"),
            (30, "app::store::Cache<…>::…::fill"),
            (28, "app::store::…::fill"),
            (18, "app::…::fill"),
            (10, "…::fill"),
            (6, "app:…l"),
        ] {
            assert_eq!(fitted(name, room), said, "{room}");
        }
        assert_eq!(fitted("main", 2), "m…");
        assert_eq!(
            fitted("<alloc::vec::Vec<T> as Clone>::clone", 12),
            "…::clone"
        );
    }

    #[test]
    fn places_are_short() {
        let frame = Frame {
            file: Some("/a/b/src/parse.c".into()),
            line: Some(7),
            module: "x".into(),
            ..Frame::default()
        };
        assert_eq!(place(&frame), "src/parse.c:7");
        assert_eq!(
            place(&Frame {
                module: "libc.so.6".into(),
                ..Frame::default()
            }),
            "libc.so.6"
        );
    }
}
