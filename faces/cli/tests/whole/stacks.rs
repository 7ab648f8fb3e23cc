//! Stacks: each block is charged to the functions that were on the stack, in their order.
//!
//! ```text
//!   sites[i].node ─► nodes ─► frames:   must_malloc (inlined), top, main, …
//! ```
//!
//! K1  A stack is compared as the program's own functions that are not inlined, innermost first: what
//!     libc calls its parts depends on whether its debug symbols are installed.
//! K2  The stacks of a program add up to the blocks of its head comment, and there are no others.

use std::collections::BTreeMap;

use crate::programs::recorded;
use crate::report::{Report, number, text};
use crate::tool::{Bench, program};

/// Returns the number of blocks by stack of the program's own functions, joined by ` < `.
fn by_stack(report: &Report, module: &str) -> BTreeMap<String, u64> {
    let mut blocks = BTreeMap::new();
    for site in report.sites() {
        let functions = report.own_functions(number(site, "node"), module);
        *blocks.entry(functions.join(" < ")).or_default() += number(site, "allocations");
    }
    blocks
}

/// Returns `count` times a function, each calling the next.
fn times(function: &str, count: usize) -> String {
    vec![function; count].join(" < ")
}

/// Returns the number of blocks of exactly this stack.
#[track_caller]
fn of(blocks: &BTreeMap<String, u64>, stack: &str) -> u64 {
    *blocks
        .get(stack)
        .unwrap_or_else(|| panic!("no block of {stack}"))
}

#[test]
fn a_longjmp_leaves_no_frame_behind() {
    let bench = Bench::new();
    let blocks = by_stack(&recorded(&bench, "longjmp"), "longjmp");
    // K2: `top` by main in each round, whatever was jumped over.
    assert_eq!(of(&blocks, "top < main < _start"), 1000);
    let mut all = 1000;
    for depth in 0..60u64 {
        // Rounds with this remainder among 0..1000.
        let rounds = (999 - depth) / 60 + 1;
        let stack = format!("{} < main < _start", times("descend", depth as usize + 1));
        assert_eq!(of(&blocks, &stack), rounds, "depth {depth}");
        all += rounds;
    }
    assert_eq!((all, blocks.len()), (2000, 61));
}

#[test]
fn a_handler_stands_upon_what_it_interrupted() {
    let bench = Bench::new();
    let blocks = by_stack(&recorded(&bench, "signals"), "signals");
    assert_eq!(of(&blocks, "after < main < _start"), 50);
    assert_eq!(of(&blocks, "on_user < main < _start"), 100);
    let mut on_timer = 0;
    for (stack, count) in &blocks {
        let Some(beneath) = stack.strip_prefix("allocate_in_handler < on_alarm < ") else {
            continue;
        };
        let recursion = beneath.strip_suffix("main < _start").expect("main's stack");
        let frames: Vec<&str> = recursion.split_terminator(" < ").collect();
        // work(50) to work(0), or main between two calls of it.
        assert!(frames.len() <= 51, "{stack}");
        assert!(frames.iter().all(|frame| *frame == "work"), "{stack}");
        on_timer += count;
    }
    assert_eq!(on_timer, 200);
    assert_eq!(blocks.values().sum::<u64>(), 350);
}

#[test]
fn fibres_have_their_own_stacks() {
    let bench = Bench::new();
    let blocks = by_stack(&recorded(&bench, "fibres"), "fibres");
    let deep = format!("{} < fibre", times("deep", 11));
    assert_eq!(of(&blocks, "fibre"), 640);
    assert_eq!(of(&blocks, &deep), 160);
    assert_eq!(
        of(
            &blocks,
            "between_switches < round_of_fibres < main < _start"
        ),
        800
    );
    assert_eq!(of(&blocks, "round_of_fibres < main < _start"), 80);
    assert_eq!(blocks.len(), 4);
}

#[test]
fn exceptions_leave_no_frame_behind() {
    let bench = Bench::new();
    let report = recorded(&bench, "exceptions");
    let blocks = by_stack(&report, "exceptions");
    // A handler's block: the frames that were unwound are gone.
    assert_eq!(of(&blocks, "in_handler() < work(int*)"), 800);
    // A vector at depth d below the top is made in rounds that go at least as deep: round % 40 >= d,
    // 5 times in 200 rounds for each remainder, in 4 threads.
    for down in 0..40u64 {
        let frames = times("descend(int, int)", down as usize + 1);
        let stack = format!("{frames} < work(int*)");
        let vectors: u64 = 4 * 5 * (40 - down);
        let thrown = 4 * 5;
        // The exception is made in the deepest frame: one by the C++ library, one for its text.
        let found = of(&blocks, &stack);
        assert!(
            found == vectors + thrown || found == vectors + 2 * thrown,
            "depth {down}: {found}, not {vectors} vectors and {thrown} exceptions"
        );
    }
}

/// Tests a program whose unwind table is not in the segment that the loader reports for its code.
#[test]
fn a_program_with_holes_between_its_segments() {
    let bench = Bench::new();
    let done = bench.record([program("holes")]);
    assert_eq!(done.shell_status(), 0, "{done:#?}");
    let report = bench.report();
    assert_eq!(report.number("completeness.truncated_stacks"), 0);
    let of_main = report.sites().iter().filter(|site| {
        let functions = report.functions(number(site, "node"));
        functions.contains(&"main") && functions.last() == Some(&"_start")
    });
    assert!(of_main.count() >= 3, "stacks from main to _start");
}

#[test]
fn plugins_that_share_addresses_keep_their_names() {
    let bench = Bench::new();
    let report = recorded(&bench, "dl");
    let mut blocks = BTreeMap::new();
    for site in report.sites() {
        let frames = report.frames(number(site, "node"));
        let mut own = frames.iter().filter(|(_, _, inlined)| !inlined);
        let (Some(first), Some(second)) = (own.next(), own.next()) else {
            continue;
        };
        if first.1.starts_with("libplugin") {
            let key = (first.0, first.1, second.0);
            *blocks.entry(key).or_default() += number(site, "allocations");
        }
    }
    // `loaded` is called by the loader, whose functions have names only with its debug symbols.
    let loaded: u64 = blocks
        .iter()
        .filter(|((function, ..), _)| *function == "loaded")
        .map(|(_, count): (_, &u64)| count)
        .sum();
    assert_eq!(loaded, 201);
    let plain = ("plugin_allocate", "libplugin.so", "main");
    let second = ("plugin_allocate_second", "libplugin2.so", "main");
    assert_eq!(blocks.get(&plain), Some(&(100 + 1)), "{blocks:#?}");
    assert_eq!(blocks.get(&second), Some(&100), "{blocks:#?}");
}

#[test]
fn stacks_through_code_without_rules_are_cut_and_never_wrong() {
    let bench = Bench::new();
    let report = recorded(&bench, "jit");
    let mut blocks = 0;
    for site in report.sites() {
        let functions = report.functions(number(site, "node"));
        assert!(functions[0].starts_with("[jit] 0x"), "{functions:?}");
        // The stub ends the stack, and the report says so.
        assert_eq!(functions[1..], ["[truncated]"], "{functions:?}");
        blocks += number(site, "allocations");
    }
    assert_eq!(blocks, 150);
    assert_eq!(report.number("completeness.truncated_stacks"), 150);
    let done = bench.tool(["report", bench.traces()[0].as_str()]);
    let said = "without its outermost frames, as unwind information ends there: 150 stacks";
    assert!(done.stdout.contains(said), "{done:#?}");
}

#[test]
fn a_recursion_of_20000_frames_is_cut_at_its_outer_end_only() {
    let bench = Bench::new();
    let report = recorded(&bench, "recursion");
    // Computes for each node how many `descend` lie above the first other function, and which that is.
    // Parents come first, so one walk over the nodes is enough.
    let frames = report.list("frames");
    let mut stacks: Vec<(u64, &str)> = vec![(0, "")];
    for node in &report.list("nodes")[1..] {
        let function = text(&frames[number(node, "frame") as usize], "function");
        let (count, outer) = stacks[number(node, "parent") as usize];
        stacks.push(match function {
            "descend" => (count + 1, outer),
            "must_malloc" => (count, outer),
            other => (0, other),
        });
    }
    let (mut whole, mut cut) = (0, 0);
    for site in report.sites() {
        let (depth, outer) = stacks[number(site, "node") as usize];
        let count = number(site, "allocations");
        if outer == "[truncated]" {
            // Of a stack with more frames than are kept, at least a thousand inner frames are.
            assert!(depth > 1000, "{depth} frames");
            cut += count;
        } else {
            // From main on each depth is there, with one block on the way down.
            assert_eq!((outer, count), ("main", 1), "{depth} frames");
            whole += count;
        }
    }
    assert_eq!(whole + cut, 21_000);
    assert!(whole > 4_000 && cut > 1_000, "{whole} whole, {cut} cut");
    let said = report.number("completeness.truncated_stacks");
    assert_eq!(said, cut, "as many stacks are said to be cut as are");
}

#[test]
fn the_smallest_stacks_are_whole() {
    let bench = Bench::new();
    let blocks = by_stack(&recorded(&bench, "smallstack"), "smallstack");
    assert_eq!(of(&blocks, "allocate < thread"), 2000);
}
