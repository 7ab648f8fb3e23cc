//! Stacks with inlined frames: one location for each call, innermost frame first.

use skinflint_analysis::model::{Frame, Node, Report};

use super::*;
use crate::lives::Lives;

/// Builds a report, innermost first: `copy` inlined into `grow` inlined into `push`, called by `work`, inlined into
/// `main`.
fn report() -> Report {
    let frame = |function: &str, line: u32, inlined: bool| Frame {
        function: function.into(),
        module: "app".into(),
        line: Some(line),
        inlined,
        ..Frame::default()
    };
    let frames = vec![
        Frame::default(),
        frame("main", 1, false),
        frame("work", 2, true),
        frame("push", 3, false),
        frame("grow", 4, true),
        frame("copy", 5, true),
    ];
    let nodes = (0..6u32)
        .map(|n| Node {
            parent: n.saturating_sub(1),
            frame: n,
        })
        .collect();
    Report {
        frames,
        nodes,
        ..Report::default()
    }
}

#[test]
fn lines_of_a_location_are_innermost_first_and_the_last_is_the_call() {
    let report = report();
    let lives = Lives::default();
    let mut tables = Tables::new(Source {
        report: &report,
        lives: &lives,
    });
    let stack = tables.stack(5);
    let named = |id: u64| {
        let location = &tables.profile.location[id as usize - 1];
        let lines = location.line.iter().map(|line| {
            let function = &tables.profile.function[line.function_id as usize - 1];
            (
                tables.profile.string_table[function.name as usize].as_str(),
                line.line,
            )
        });
        lines.collect::<Vec<_>>()
    };
    assert_eq!(stack.len(), 2, "two calls");
    assert_eq!(named(stack[0]), [("copy", 5), ("grow", 4), ("push", 3)]);
    assert_eq!(named(stack[1]), [("work", 2), ("main", 1)]);
    let again = tables.stack(5);
    assert_eq!(again, stack, "a location is made once");
    assert_eq!(tables.stack(3).len(), 2, "the same caller, another call");
    assert_eq!(tables.profile.location.len(), 3);
}

#[test]
fn the_executable_is_the_first_mapping_and_each_has_its_range_and_build_id() {
    let report = report();
    let lives = Lives::default();
    let mut tables = Tables::new(Source {
        report: &report,
        lives: &lives,
    });
    let module = |path: &str, start: u64, build_id: &str| Module {
        start,
        end: start + 0x1000,
        bias: start,
        path: path.into(),
        build_id: build_id.into(),
        first_node: 0,
    };
    let modules = [
        module("/lib/libc.so.6", 0x7000, "c0"),
        module("/usr/bin/app", 0x5000, "ab12"),
        module("/other/libc.so.6", 0x9000, ""),
    ];
    let loaded = Loaded {
        exe: "/usr/bin/app",
        modules: &modules,
    };
    tables.loaded(loaded);
    // The stack's module is the executable; another is of no object that the trace has.
    let location = tables.stack(3)[0];
    assert_eq!(tables.profile.location[location as usize - 1].mapping_id, 1);
    assert_eq!(tables.mapping("jit"), 4);
    assert_eq!((tables.mapping("libc.so.6"), tables.mapping("jit")), (2, 4));
    let text = |index: i64| tables.profile.string_table[index as usize].as_str();
    let all = tables.profile.mapping.iter().map(|one| {
        let range = (one.memory_start, one.memory_limit);
        (one.id, text(one.filename), range, text(one.build_id))
    });
    assert_eq!(
        all.collect::<Vec<_>>(),
        [
            (1, "/usr/bin/app", (0x5000, 0x6000), "ab12"),
            (2, "/lib/libc.so.6", (0x7000, 0x8000), "c0"),
            (3, "/other/libc.so.6", (0x9000, 0xa000), ""),
            (4, "jit", (0, 0), ""),
        ]
    );
    // Without a path that the loader knows, what was there first is the executable.
    let mut tables = Tables::new(tables.source);
    tables.loaded(Loaded {
        exe: "",
        modules: &modules[1..],
    });
    assert_eq!(tables.mapping("app"), 1);
}
