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
