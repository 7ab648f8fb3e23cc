//! Leaders: which leader's graph each unreached block belongs to.
//!
//! ```text
//!   unreached blocks ─► strongly connected components ─► those with no edge from another one lead
//!   leaders, oldest first ─► each claims what it leads to and no other has claimed (mod.rs reach.Q2)
//! ```
//!
//! E1  Every component that does not lead is led to by one that does: the components are a graph without cycles.
//! E2  The walk keeps its own stack: a list of a million blocks is a million deep.
//!
//! Source: the components are found as Tarjan did (Depth-first search and linear graph algorithms, 1972).

use super::graph::{Graph, Quality};
use super::reached::{Leader, Reach, Reached};

const NONE: u32 = u32::MAX;

/// Finds the leaders, and lets each claim its graph.
pub(super) fn find(graph: &Graph, reach: &mut Reach) {
    let components = Components::of(graph, reach);
    let count = components.sizes.len();
    let mut led = vec![false; count];
    let mut own_edge = vec![false; count];
    for block in unreached(reach) {
        let own = components.of[block as usize];
        for edge in graph.edges(block) {
            let other = components.of[edge.to as usize];
            if other == own {
                own_edge[own as usize] |= edge.to == block && edge.quality == Quality::Begin;
            } else if other != NONE {
                led[other as usize] = true;
            }
        }
    }
    let mut members: Vec<Vec<u32>> = vec![Vec::new(); count];
    for block in unreached(reach) {
        let component = components.of[block as usize];
        if !led[component as usize] {
            members[component as usize].push(block);
        }
    }
    let mut leaders = Vec::new();
    for (component, mut blocks) in members.into_iter().enumerate() {
        if led[component] {
            continue;
        }
        blocks.sort_by_key(|&block| age(reach, block));
        let cycle = blocks.len() > 1 || own_edge[component];
        leaders.push(Leader { blocks, cycle });
    }
    leaders.sort_by_key(|leader| age(reach, leader.blocks[0]));
    for (number, leader) in leaders.iter().enumerate() {
        claim(graph, reach, number as u32, leader);
    }
    reach.leaders = leaders;
}

fn age(reach: &Reach, block: u32) -> (u64, u64) {
    let live = &reach.blocks[block as usize];
    (live.born_us, live.addr)
}

fn unreached(reach: &Reach) -> impl Iterator<Item = u32> {
    let reached = &reach.reached;
    (0..reached.len() as u32).filter(|&block| reached[block as usize] == Reached::Not)
}

fn claim(graph: &Graph, reach: &mut Reach, number: u32, leader: &Leader) {
    // The walk begins at one block: the others of a cycle are met on the way, and so have a step of their own.
    let first = leader.blocks[0];
    reach.leader_of[first as usize] = number;
    let mut queue = std::collections::VecDeque::from([first]);
    while let Some(from) = queue.pop_front() {
        for edge in graph.edges(from) {
            let to = edge.to as usize;
            if reach.reached[to] == Reached::Not && reach.leader_of[to] == NONE {
                reach.leader_of[to] = number;
                reach.via[to] = Some(edge.place);
                queue.push_back(edge.to);
            }
        }
    }
}

struct Components {
    /// The component by block; [`NONE`] for blocks that are reached.
    of: Vec<u32>,
    sizes: Vec<u32>,
}

struct Walk {
    order: Vec<u32>,
    low: Vec<u32>,
    open: Vec<u32>,
    next: u32,
}

impl Components {
    fn of(graph: &Graph, reach: &Reach) -> Components {
        let count = reach.blocks.len();
        let mut found = Components {
            of: vec![NONE; count],
            sizes: Vec::new(),
        };
        let mut walk = Walk {
            order: vec![NONE; count],
            low: vec![0; count],
            open: Vec::new(),
            next: 0,
        };
        for start in unreached(reach) {
            if walk.order[start as usize] == NONE {
                found.from(start, graph, reach, &mut walk);
            }
        }
        found
    }

    fn from(&mut self, start: u32, graph: &Graph, reach: &Reach, walk: &mut Walk) {
        // (block, number of its next edge)
        let mut path: Vec<(u32, usize)> = Vec::new();
        let enter = |block: u32, walk: &mut Walk| {
            walk.order[block as usize] = walk.next;
            walk.low[block as usize] = walk.next;
            walk.next += 1;
            walk.open.push(block);
            (block, 0)
        };
        path.push(enter(start, walk));
        while let Some(top) = path.last_mut() {
            let (block, number) = *top;
            top.1 += 1;
            if let Some(to) = graph.edge(block, number) {
                if reach.reached[to as usize] != Reached::Not {
                    continue;
                }
                if walk.order[to as usize] == NONE {
                    path.push(enter(to, walk));
                } else if self.of[to as usize] == NONE {
                    let order = walk.order[to as usize];
                    walk.low[block as usize] = walk.low[block as usize].min(order);
                }
                continue;
            }
            path.pop();
            if let Some(&(caller, _)) = path.last() {
                let low = walk.low[block as usize];
                walk.low[caller as usize] = walk.low[caller as usize].min(low);
            }
            if walk.low[block as usize] == walk.order[block as usize] {
                self.close(block, walk);
            }
        }
    }

    /// Closes a component: everything that was opened since `block`.
    fn close(&mut self, block: u32, walk: &mut Walk) {
        let number = self.sizes.len() as u32;
        let mut size = 0;
        while let Some(member) = walk.open.pop() {
            self.of[member as usize] = number;
            size += 1;
            if member == block {
                break;
            }
        }
        self.sizes.push(size);
    }
}
