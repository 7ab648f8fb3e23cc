//! Functions with all that they call: what the stacks hold that each function is on.
//!
//! ```text
//!   main ─┬─ load ─┬─ parse ── intern   5        through load: 9, parse: 7, main: 12
//!         │        └─ read ──────────   2        load is no passage (5 + 2 + 2), intern is the holder
//!         └─ draw ───────────────────   3        whose own 5 are
//! ```
//!
//! H1  A stack counts once for a function, at its outermost frame of it; so a function holds at most what all stacks
//!     hold, and functions that call each other overlap.
//! H2  A function passes on if nine tenths of it come through one that it calls, directly or not, that is in the list
//!     too, and nine tenths of which are its own: of a chain the innermost stays, which is where memory begins to
//!     part. A function that serves many callers is no link of their chains.
//! H3  Plumbing, the loader and what runs before `main` are left out; functions without a name too, unless
//!     one of them holds more than twice what any that has one does: of a stripped program, what its libraries hold would
//!     be all that is listed. So are functions of the C library that call back (`qsort`, `__pthread_once_slow`).
//!
//! Cost: two walks over the stack tree, and the pairs of listed functions on each stack that holds something. Not
//! here: what a stack holds ([`crate::held::HeldBy`]), which function names it (plumbing.rs).

use crate::model::{Report, Through};
use crate::plumbing::{Naming, is_of_c_library, is_startup, is_unnamed};

/// The number of functions listed.
const LISTED: usize = 100;
/// A function is worth a line from one part in this many of all.
const WORTH: u64 = 200;
/// The tenths that make a function pass on (H2).
const TENTHS: u64 = 9;

/// The stack tree by children, and sums over it.
struct Tree {
    first: Vec<u32>,
    next: Vec<u32>,
    /// By node: what it holds itself, and with all below it.
    own: Vec<u64>,
    sum: Vec<Held>,
}

#[derive(Clone, Copy, Default)]
struct Held {
    bytes: u64,
    blocks: u64,
    stacks: u64,
}

impl Tree {
    fn of(report: &Report) -> Tree {
        let size = report.nodes.len();
        let mut tree = Tree {
            first: vec![0; size],
            next: vec![0; size],
            own: vec![0; size],
            sum: vec![Held::default(); size],
        };
        for one in report.held() {
            let node = one.node as usize;
            if node < size {
                tree.own[node] = one.bytes();
                tree.sum[node] = Held {
                    bytes: one.bytes(),
                    blocks: one.blocks,
                    stacks: 1,
                };
            }
        }
        for index in (1..size).rev() {
            // A damaged report may name a parent behind its child: that node is put under the root.
            let parent = match report.nodes[index].parent as usize {
                parent if parent < index => parent,
                _ => 0,
            };
            (tree.next[index], tree.first[parent]) = (tree.first[parent], index as u32);
            let own = tree.sum[index];
            let sum = &mut tree.sum[parent];
            sum.bytes = sum.bytes.saturating_add(own.bytes);
            sum.blocks += own.blocks;
            sum.stacks += own.stacks;
        }
        tree
    }

    /// Returns the nodes that are called at a node.
    fn children(&self, node: u32) -> impl Iterator<Item = u32> {
        let next = |node: u32| Some(self.next.get(node as usize).copied().unwrap_or(0));
        let first = self.first.get(node as usize).copied();
        std::iter::successors(first, move |node| next(*node)).take_while(|node| *node != 0)
    }

    /// Visits every node that holds something, parents first, with `enter` and `leave`, without recursion.
    fn walk(&self, enter: &mut dyn FnMut(u32), leave: &mut dyn FnMut(u32)) {
        let mut open: Vec<u32> = Vec::new();
        let mut node = self.first.first().copied().unwrap_or(0);
        while node != 0 || !open.is_empty() {
            if node == 0 {
                let Some(done) = open.pop() else { break };
                leave(done);
                node = self.next[done as usize];
            } else if self.sum[node as usize].bytes == 0 {
                node = self.next[node as usize];
            } else {
                enter(node);
                open.push(node);
                node = self.first[node as usize];
            }
        }
    }
}

/// The sum of what came through one function.
#[derive(Clone, Default)]
struct Sum {
    held: Held,
    own: u64,
    /// Its largest outermost node, and what that holds.
    node: (u64, u32),
}

/// Returns the list (H1 to H3), most first.
pub(crate) fn of(report: &Report, naming: &Naming) -> Vec<Through> {
    let tree = Tree::of(report);
    let whole = tree.sum.first().map_or(0, |all| all.bytes);
    let sums = sums(report, naming, &tree);
    let mut listed: Vec<u32> = (0..sums.len() as u32)
        .filter(|function| sums[*function as usize].held.bytes > whole / WORTH)
        .filter(|function| is_listed(report, naming, &tree, sums[*function as usize].node.1))
        .collect();
    let named = |function: &u32| !is_unnamed(name(report, sums[*function as usize].node.1));
    let most = |is_named: bool| {
        let of = listed.iter().filter(|one| named(one) == is_named);
        of.map(|one| sums[*one as usize].held.bytes).max()
    };
    if most(true).is_some_and(|bytes| bytes >= most(false).unwrap_or(0) / 2) {
        listed.retain(named);
    }
    listed.sort_by_key(|function| {
        let sum = &sums[*function as usize];
        (std::cmp::Reverse(sum.held.bytes), sum.node.1)
    });
    listed.truncate(LISTED);
    let passes = passages(report, naming, &tree, &listed, &sums);
    let row = |(function, passes_on): (&u32, bool)| {
        let sum = &sums[*function as usize];
        Through {
            node: sum.node.1,
            bytes: sum.held.bytes,
            own_bytes: sum.own,
            blocks: sum.held.blocks,
            stacks: sum.held.stacks,
            passes_on,
        }
    };
    listed.iter().zip(passes).map(row).collect()
}

fn name(report: &Report, node: u32) -> &str {
    let frame = report.nodes.get(node as usize).map(|node| node.frame);
    let frame = frame.and_then(|frame| report.frames.get(frame as usize));
    frame.map_or("", |frame| &frame.function)
}

/// Reports whether the function that a node ends in is listed (H3).
fn is_listed(report: &Report, naming: &Naming, tree: &Tree, node: u32) -> bool {
    let frame = report.nodes.get(node as usize).map_or(0, |node| node.frame);
    let plumbing = naming.plumbing.get(frame as usize).copied();
    let name = name(report, node);
    let file = report
        .frames
        .get(frame as usize)
        .map_or("", |frame| &frame.module);
    // A name in brackets is no function: where a stack was cut, what was inherited.
    let is_one = !is_startup(name) && !name.is_empty() && !name.starts_with('[');
    // The loader runs constructors of libraries, and the C library those of the program.
    let is_loader = file.starts_with("ld-") || name == "call_init" && file.starts_with("libc.so");
    let calls_back =
        is_of_c_library(file) && tree.children(node).any(|child| is_foreign(report, child));
    !plumbing.unwrap_or(true) && is_one && !is_loader && !calls_back
}

/// Reports whether a node is in a known file that is not the C library.
fn is_foreign(report: &Report, node: u32) -> bool {
    let frame = report.nodes.get(node as usize).map(|node| node.frame);
    let frame = frame.and_then(|frame| report.frames.get(frame as usize));
    frame.is_some_and(|frame| !frame.module.is_empty() && !is_of_c_library(&frame.module))
}

/// Returns the function of a node, as a number.
fn function(report: &Report, naming: &Naming, node: u32) -> usize {
    let frame = report.nodes[node as usize].frame as usize;
    naming.function.get(frame).map_or(0, |f| *f as usize)
}

/// Returns the sums by function (H1).
fn sums(report: &Report, naming: &Naming, tree: &Tree) -> Vec<Sum> {
    let functions = naming.function.iter().max().map_or(0, |most| *most + 1) as usize;
    let mut sums = vec![Sum::default(); functions];
    let open = std::cell::RefCell::new(vec![0u32; functions]);
    tree.walk(
        &mut |node| {
            let function = function(report, naming, node);
            let times = &mut open.borrow_mut()[function];
            *times += 1;
            if *times == 1 {
                let (held, sum) = (tree.sum[node as usize], &mut sums[function]);
                sum.held.bytes = sum.held.bytes.saturating_add(held.bytes);
                sum.held.blocks += held.blocks;
                sum.held.stacks += held.stacks;
                if held.bytes > sum.node.0 {
                    sum.node = (held.bytes, node);
                }
            }
        },
        &mut |node| open.borrow_mut()[function(report, naming, node)] -= 1,
    );
    for (node, &own) in tree.own.iter().enumerate().filter(|(_, own)| **own > 0) {
        if let Some(function) = naming.function_of(report, node as u32) {
            let sum = &mut sums[function as usize];
            sum.own = sum.own.saturating_add(own);
        }
    }
    sums
}

/// Returns which of the listed functions pass on (H2).
fn passages(
    report: &Report,
    naming: &Naming,
    tree: &Tree,
    listed: &[u32],
    sums: &[Sum],
) -> Vec<bool> {
    let many = listed.len();
    let mut place = vec![usize::MAX; sums.len()];
    for (index, function) in listed.iter().enumerate() {
        place[*function as usize] = index;
    }
    // For each pair, what the stacks hold on which the second comes after the first.
    let mut after = vec![0u64; many * many];
    let open = std::cell::RefCell::new((vec![0u32; many], Vec::<usize>::new()));
    tree.walk(
        &mut |node| {
            let (times, order) = &mut *open.borrow_mut();
            let at = place[function(report, naming, node)];
            if at != usize::MAX {
                times[at] += 1;
                if times[at] == 1 {
                    // Below here every stack has the pairs with all functions that are open.
                    let held = tree.sum[node as usize].bytes;
                    for outer in order.iter() {
                        let pair = &mut after[outer * many + at];
                        *pair = pair.saturating_add(held);
                    }
                    order.push(at);
                }
            }
        },
        &mut |node| {
            let (times, order) = &mut *open.borrow_mut();
            let at = place[function(report, naming, node)];
            if at != usize::MAX {
                times[at] -= 1;
                if times[at] == 0 {
                    order.pop();
                }
            }
        },
    );
    let whole = |at: usize| u128::from(sums[listed[at] as usize].held.bytes) * u128::from(TENTHS);
    let passes = |at: usize| {
        let row = after[at * many..(at + 1) * many].iter().enumerate();
        let mut row = row.map(|(inner, both)| (inner, u128::from(*both) * 10));
        row.any(|(inner, both)| both > 0 && both >= whole(at) && both >= whole(inner))
    };
    (0..many).map(passes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Frame, Mapper, Node, Site};

    /// A report with one site for each stack, given outermost first with what it holds.
    fn report(stacks: &[(&[&str], u64)]) -> Report {
        let mut report = Report {
            nodes: vec![Node::default()],
            frames: vec![Frame::default()],
            ..Report::default()
        };
        for (stack, held) in stacks {
            let mut parent = 0;
            for name in *stack {
                let known = report.frames.iter().position(|f| f.function == *name);
                let frame = known.unwrap_or_else(|| {
                    report.frames.push(Frame {
                        function: (*name).to_owned(),
                        ..Frame::default()
                    });
                    report.frames.len() - 1
                }) as u32;
                let node = Node { parent, frame };
                let known = report.nodes.iter().skip(1).position(|known| *known == node);
                parent = known.map_or_else(
                    || {
                        report.nodes.push(node);
                        report.nodes.len() as u32 - 1
                    },
                    |at| at as u32 + 1,
                );
            }
            report.sites.push(Site {
                node: parent,
                live_blocks: 1,
                live_usable_bytes: *held,
                ..Site::default()
            });
        }
        report
    }

    fn rows(report: &Report) -> Vec<(&str, u64, u64, u64, bool)> {
        let rows = of(report, &Naming::of(report));
        let row = |row: &Through| {
            let function = name(report, row.node);
            (
                function,
                row.bytes,
                row.own_bytes,
                row.stacks,
                row.passes_on,
            )
        };
        rows.iter().map(row).collect()
    }

    #[test]
    fn a_function_counts_each_stack_once_with_all_that_it_calls() {
        let report = report(&[
            (
                &["_start", "main", "load", "parse", "intern", "malloc"],
                5000,
            ),
            (&["_start", "main", "load", "parse", "malloc"], 2000),
            (&["_start", "main", "load", "read", "malloc"], 2000),
            (
                &[
                    "_start",
                    "main",
                    "draw",
                    "operator new(unsigned long)",
                    "malloc",
                ],
                3000,
            ),
            // Recursion: parse is on it twice, and it counts once.
            (
                &["_start", "main", "load", "parse", "load", "parse", "intern"],
                1000,
            ),
        ]);
        assert_eq!(
            rows(&report),
            [
                ("main", 13_000, 0, 5, false),
                ("load", 10_000, 0, 4, false),
                ("parse", 8_000, 2_000, 3, false),
                ("intern", 6_000, 6_000, 2, false),
                ("draw", 3_000, 3_000, 1, false),
                ("read", 2_000, 2_000, 1, false),
            ]
        );
    }

    #[test]
    fn what_calls_back_is_left_out_and_what_holds_by_itself_is_not() {
        let mut report = report(&[
            (&["main", "bsearch", "compare"], 500),
            (&["main", "own_table"], 400),
        ]);
        for frame in report.frames.iter_mut().skip(1) {
            let is_library = ["bsearch", "own_table"].contains(&&*frame.function);
            frame.module = if is_library { "libc.so.6" } else { "app" }.to_owned();
        }
        let names: Vec<&str> = rows(&report).into_iter().map(|row| row.0).collect();
        assert_eq!(names, ["main", "compare", "own_table"]);
    }

    #[test]
    fn of_a_chain_the_innermost_stays() {
        let report = report(&[
            (&["main", "run", "serve", "handle", "a"], 900),
            (&["main", "run", "serve", "handle", "b"], 900),
            (&["main", "run", "serve", "c"], 199),
            (&["main", "init"], 1),
        ]);
        let kept: Vec<_> = rows(&report)
            .into_iter()
            .filter(|row| !row.4)
            .map(|row| (row.0, row.1))
            .collect();
        // serve: 1,800 of 1,999 come through handle, which is nine tenths and no more than a hair.
        assert_eq!(
            kept,
            [("handle", 1_800), ("a", 900), ("b", 900), ("c", 199)]
        );
    }

    #[test]
    fn what_serves_many_callers_does_not_hide_them() {
        let report = report(&[
            (&["main", "load", "get"], 700),
            (&["main", "draw", "get"], 300),
        ]);
        let kept: Vec<_> = rows(&report)
            .into_iter()
            .filter(|row| !row.4)
            .map(|row| (row.0, row.1))
            .collect();
        assert_eq!(kept, [("get", 1000), ("load", 700), ("draw", 300)]);
    }

    #[test]
    fn functions_without_names_are_told_where_none_has_one() {
        let stripped = report(&[(&["x+0x10", "x+0x20"], 600), (&["x+0x10", "x+0x30"], 400)]);
        let names: Vec<_> = rows(&stripped).iter().map(|row| row.0).collect();
        assert_eq!(names, ["x+0x10", "x+0x20", "x+0x30"]);
        let mixed = report(&[(&["x+0x10", "f"], 600), (&["x+0x10", "x+0x30"], 400)]);
        let names: Vec<_> = rows(&mixed).iter().map(|row| row.0).collect();
        assert_eq!(names, ["f"]);
        // A library's name does not stand for a program that has none.
        let library = report(&[(&["x+0x10", "x+0x30"], 800), (&["x+0x10", "f"], 200)]);
        let names: Vec<&str> = rows(&library).iter().map(|row| row.0).collect();
        assert_eq!(names, ["x+0x10", "x+0x30", "f"]);
    }

    #[test]
    fn the_loader_is_nobodys_function() {
        let mut one = report(&[(&["main", "call_init", "make_tables"], 600)]);
        let names = |one: &Report| {
            rows(one)
                .iter()
                .map(|row| row.0.to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&one), ["main", "call_init", "make_tables"]);
        for file in ["ld-linux-x86-64.so.2", "libc.so.6"] {
            for frame in one.frames.iter_mut().filter(|f| f.function == "call_init") {
                frame.module = file.into();
            }
            assert_eq!(names(&one), ["main", "make_tables"], "{file}");
        }
    }

    #[test]
    fn what_a_stack_mapped_counts_and_what_is_not_resident_does_not() {
        let mut one = report(&[(&["main", "map"], 0), (&["main", "touch"], 1000)]);
        one.mappers = vec![Mapper {
            node: one.sites.remove(0).node,
            resident_bytes: Some(700),
            ..Mapper::default()
        }];
        one.sites[0].live_resident_bytes = Some(300);
        let rows = rows(&one);
        let rows: Vec<_> = rows.iter().map(|row| (row.0, row.1, row.2)).collect();
        assert_eq!(
            rows,
            [("main", 1000, 0), ("map", 700, 700), ("touch", 300, 300)]
        );
    }

    #[test]
    fn the_last_of_the_list_may_be_what_the_others_come_to() {
        let report = report(&[(&["main", "run"], 1000)]);
        assert_eq!(
            rows(&report),
            [("main", 1000, 0, 1, true), ("run", 1000, 1000, 1, false)]
        );
    }

    #[test]
    fn a_stack_whose_parent_is_no_earlier_one_hangs_on_the_root() {
        for wrong in [2, 3, 99] {
            let mut report = report(&[(&["main"], 100), (&["lost"], 50), (&["draw"], 20)]);
            report.nodes[2].parent = wrong;
            let rows = rows(&report);
            let rows: Vec<_> = rows.iter().map(|row| (row.0, row.1)).collect();
            assert_eq!(rows, [("main", 100), ("lost", 50), ("draw", 20)]);
        }
    }
}
