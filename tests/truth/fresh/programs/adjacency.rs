//! A graph's lists of neighbours, filled edge by edge in the order of the file, so that every list has grown by doubling.
//! Mended: degrees are counted first, and each list gets its capacity.

#[path = "mark.rs"]
mod mark;
use mark::{mark, Seeded};

struct Graph {
    neighbours: Vec<Vec<u32>>,
}

impl Graph {
    #[inline(never)]
    fn add_edge(&mut self, from: usize, to: u32) {
        self.neighbours[from].push(to);
    }
}

fn main() {
    let nodes = 50_000;
    let mut seeded = Seeded(7);
    let degrees: Vec<usize> = (0..nodes).map(|_| 33 + seeded.below(10)).collect();
    let mut graph = Graph { neighbours: vec![Vec::new(); nodes] };
    if cfg!(mended) {
        for (list, degree) in graph.neighbours.iter_mut().zip(&degrees) {
            list.reserve_exact(*degree);
        }
    }
    for turn in 0..43 {
        for node in 0..nodes {
            if turn < degrees[node] {
                graph.add_edge(node, seeded.below(nodes) as u32);
            }
        }
    }
    mark("loaded");
    let mut at = 0;
    for i in 0..300_000 {
        let list = &graph.neighbours[at];
        at = list[i % list.len()] as usize;
    }
    println!("{at}");
}
