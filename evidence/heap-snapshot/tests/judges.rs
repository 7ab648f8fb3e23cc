//! Dominators, paths and sums against slow methods that are obviously right; damaged files.
//!
//! ```text
//!   random graphs ─► a file ─► read ─► Dominators        against: take each node out, see what is still reached
//!   a file ─► cut anywhere, numbers changed ─► an error, never a panic
//! ```
//!
//! J1  Seeds are in the messages.
//!
//! Not here: files of node and of our own heap (`faces/cli/tests/heap`).

use std::collections::BTreeSet;

use skinflint_base::random::Random;
use skinflint_heap_snapshot::census::diff;
use skinflint_heap_snapshot::dominators::Dominators;
use skinflint_heap_snapshot::graph::NONE;
use skinflint_heap_snapshot::read::{Snapshot, Want, read};

/// The type of an edge, and the node that it leads to.
type Edge = (usize, usize);

const ELEMENT: usize = 0;
const SHORTCUT: usize = 2;
const WEAK: usize = 3;

/// Writes a file with fields in another order than V8's, to check that names are used.
fn file(nodes: &[Vec<Edge>]) -> String {
    let edges: usize = nodes.iter().map(Vec::len).sum();
    let mut text = format!(
        r#"{{"snapshot":{{"meta":{{"node_fields":["name","type","edge_count","id","extra","self_size"],
        "node_types":["string",["synthetic","object","string"],"number","number","number","number"],
        "edge_fields":["to_node","type","name_or_index"],
        "edge_types":["node",["element","property","shortcut","weak"],"string_or_number"],"more":[]}},
        "node_count":{},"edge_count":{edges},"unknown":{{"a":[1,2]}}}},"nodes":["#,
        nodes.len()
    );
    let rows = nodes.iter().enumerate().map(|(n, edges)| {
        let class = if n == 0 { 0 } else { 1 + n % 2 };
        format!(
            "{},{class},{},{},77,{}",
            n % 3,
            edges.len(),
            n * 2 + 1,
            10 + n
        )
    });
    text += &rows.collect::<Vec<_>>().join(",");
    text += "],\"edges\":[";
    let rows = nodes
        .iter()
        .flatten()
        .map(|(class, to)| format!("{},{class},{}", to * 6, to % 4));
    text += &rows.collect::<Vec<_>>().join(",");
    text + "],\"samples\":[1,2],\"strings\":[\"zero\",\"o\\u006ee\",\"half \\ud83d of a pair\",\"\\n\\\"\"]}\n"
}

fn random(random: &mut Random) -> Vec<Vec<Edge>> {
    let count = 1 + random.index(12);
    let node = |random: &mut Random| {
        let edges = random.index(4);
        (0..edges)
            .map(|_| (random.index(4), random.index(count)))
            .collect()
    };
    (0..count).map(|_| node(random)).collect()
}

/// Returns what the root reaches without `out`.
fn reached(nodes: &[Vec<Edge>], out: Option<usize>) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut stack = vec![0];
    while let Some(node) = stack.pop() {
        if Some(node) == out || !reached.insert(node) {
            continue;
        }
        let edges = nodes[node].iter();
        let edges = edges.filter(|(class, _)| *class != WEAK && (*class != SHORTCUT || node == 0));
        stack.extend(edges.map(|(_, to)| *to));
    }
    reached
}

fn parsed(text: &str) -> Snapshot {
    read(text.as_bytes(), Want::Graph).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

#[test]
fn retained_sizes_are_what_is_no_longer_reached() {
    for seed in 0..3000 {
        let nodes = random(&mut Random::new(seed));
        let graph = parsed(&file(&nodes)).graph;
        let dominators = Dominators::of(&graph);
        let all = reached(&nodes, None);
        for node in 0..nodes.len() {
            let rest = reached(&nodes, Some(node));
            let gone: Vec<usize> = all.difference(&rest).copied().collect();
            let bytes: u64 = gone.iter().map(|n| 10 + *n as u64).sum();
            if all.contains(&node) {
                assert_eq!(
                    dominators.retained[node], bytes,
                    "seed {seed}, node {node}: {nodes:?}"
                );
            } else {
                assert_eq!(dominators.idom[node], NONE, "seed {seed}, node {node}");
                assert_eq!(dominators.retained[node], 10 + node as u64);
            }
            for other in gone {
                let above = dominators.above(other as u32);
                assert!(
                    other == node || above.contains(&(node as u32)),
                    "seed {seed}"
                );
            }
        }
    }
}

#[test]
fn paths_are_as_short_as_rounds_are_many() {
    for seed in 0..1000 {
        let nodes = random(&mut Random::new(seed));
        let graph = parsed(&file(&nodes)).graph;
        let parents = graph.parents();
        // In each round: what is reached over at most n edges.
        let mut level: BTreeSet<usize> = BTreeSet::from([0]);
        let mut distance = vec![None; nodes.len()];
        for round in 0..nodes.len() {
            for node in std::mem::take(&mut level) {
                if distance[node].is_none() {
                    distance[node] = Some(round);
                    level.extend(graph.retained(node as u32).map(|to| to as usize));
                }
            }
        }
        for (node, distance) in distance.iter().enumerate() {
            let path = graph.path(&parents, node as u32);
            let length = path.as_ref().map(|path| path.len() - 1);
            assert_eq!(length, *distance, "seed {seed}, node {node}");
            for two in path.iter().flat_map(|path| path.windows(2)) {
                let leads = graph.retained(two[0].node).any(|to| to == two[1].node);
                assert!(leads && !two[1].edge.is_empty(), "seed {seed}");
            }
        }
    }
}

#[test]
fn sums_are_those_of_the_nodes_with_and_without_a_graph() {
    let nodes: Vec<Vec<Edge>> = vec![vec![(ELEMENT, 1), (1, 2)], vec![(1, 3)], vec![], vec![]];
    let text = file(&nodes);
    let whole = parsed(&text);
    let alone = read(text.as_bytes(), Want::Census).unwrap();
    assert_eq!(whole.census.rows, alone.census.rows);
    let rows: Vec<_> = alone
        .census
        .rows
        .iter()
        .map(|(class, sum)| (class.to_string(), sum.objects, sum.bytes))
        .collect();
    // Node 2 is an object; 1 and 3 are strings, whose names are no classes.
    let row = |name: &str, objects, bytes| (name.to_owned(), objects, bytes);
    assert_eq!(
        rows,
        [
            row("half \u{fffd}\u{fffd}\u{fffd} of a pair", 1, 12),
            row("(string)", 2, 24),
            row("zero", 1, 10)
        ]
    );
    assert_eq!(alone.census.total().bytes, 46);
    let path = whole.graph.path(&whole.graph.parents(), 3).unwrap();
    let edges: Vec<&str> = path.iter().map(|step| step.edge.as_str()).collect();
    assert_eq!(edges, ["", "[1]", ".\n\""]);
}

#[test]
fn a_difference_knows_new_and_gone() {
    let before: Vec<Vec<Edge>> = vec![vec![]; 4];
    let after: Vec<Vec<Edge>> = vec![vec![]; 7];
    let (old, new) = (parsed(&file(&before)).graph, parsed(&file(&after)).graph);
    let rows = diff(&old, &new);
    let grown: i128 = rows.iter().map(|(_, row)| row.grown()).sum();
    assert_eq!(grown, 14 + 15 + 16);
    let new_objects: u64 = rows.iter().map(|(_, row)| row.new.objects).sum();
    assert_eq!(new_objects, 3);
    let back = diff(&new, &old);
    let gone: u64 = back.iter().map(|(_, row)| row.gone.objects).sum();
    assert_eq!(gone, 3);
    assert_eq!(diff(&old, &old), []);
}

#[test]
fn a_file_that_is_cut_or_changed_anywhere_is_an_error_or_a_snapshot_and_never_a_panic() {
    let nodes: Vec<Vec<Edge>> = vec![
        vec![(ELEMENT, 1), (WEAK, 2)],
        vec![(1, 2)],
        vec![(SHORTCUT, 0)],
    ];
    let text = file(&nodes);
    for end in 0..text.trim_end().len() {
        for want in [Want::Census, Want::Nodes, Want::Graph] {
            let cut = read(&text.as_bytes()[..end], want);
            let error = cut
                .err()
                .unwrap_or_else(|| panic!("cut at {end}, no error"));
            assert!(
                error.contains("too early") || error.contains("line"),
                "cut at {end}: {error}"
            );
        }
    }
    let mut random = Random::new(1);
    for _ in 0..20_000 {
        let mut bytes = text.clone().into_bytes();
        let at = random.index(bytes.len());
        bytes[at] = b"0123456789,]}[\"x-."[random.index(18)];
        if let Ok(snapshot) = read(bytes.as_slice(), Want::Graph) {
            let dominators = Dominators::of(&snapshot.graph);
            assert_eq!(dominators.idom.len(), snapshot.graph.len());
            let parents = snapshot.graph.parents();
            for node in 0..snapshot.graph.len() as u32 {
                snapshot.graph.path(&parents, node);
                snapshot.graph.name_of(node);
            }
        }
    }
}

#[test]
fn errors_say_what_is_wrong_and_where() {
    let nodes: Vec<Vec<Edge>> = vec![vec![(1, 1)], vec![]];
    let good = file(&nodes);
    let wrong = |from: &str, to: &str| {
        let text = good.replacen(from, to, 1);
        assert_ne!(text, good, "{from}");
        read(text.as_bytes(), Want::Graph).expect_err(to)
    };
    assert!(wrong("\"node_count\":2", "\"node_count\":3").contains("2 nodes"));
    assert!(wrong("\"node_count\":2", "\"node_count\":1").contains("more nodes"));
    assert!(wrong("\"edge_count\":1", "\"edge_count\":2").contains("edges"));
    assert!(wrong("\"self_size\"", "\"size\"").contains("no \"self_size\""));
    assert!(wrong("\"edges\":[6,", "\"edges\":[7,").contains("where no node begins"));
    assert!(wrong("\"edges\":[6,", "\"edges\":[12,").contains("where no node begins"));
    assert!(wrong("\"edges\":[6,1,", "\"edges\":[6,4,").contains("an edge of type 4"));
    assert!(wrong("\"edges\":[6,1,1]", "\"edges\":[6,1,9]").contains("string 9 of 4"));
    assert!(wrong("\"snapshot\":{", "\"other\":{").contains("before \"snapshot\""));
    assert!(
        read(&b"%PDF-1.4"[..], Want::Graph)
            .unwrap_err()
            .contains("no JSON at line 1")
    );
    assert!(
        read(&b"{}"[..], Want::Graph)
            .unwrap_err()
            .contains("no \"snapshot\"")
    );
    assert!(
        read(&b"[1,2]"[..], Want::Graph)
            .unwrap_err()
            .contains("a heap snapshot")
    );
}
