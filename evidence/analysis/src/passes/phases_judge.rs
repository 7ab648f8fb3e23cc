//! Random phases, judged by brute force: every live block is looked through at each end mark.
//!
//! ```text
//!   seed ──► marks, acquisitions, regrows, releases ──► Phases ──► rows ─┐
//!                                                 └──► Judge  ──► rows ─┴─ equal
//! ```
//!
//! J1  The judge keeps births itself, by counting, and shares no code with the pass.
//!
//! Not here: bytes and findings (predicted by hand in phases.rs).

use skinflint_base::random::Random;

use crate::pass::Block;
use crate::passes::driver::{Driver, glibc, marks};
use crate::passes::phases::Phases;

/// Every block with the phases it was born in, looked through at each end mark.
#[derive(Default)]
struct Judge {
    live: Vec<(Block, u32, u64)>,
    open: Vec<(usize, u32)>,
    spans: Vec<(usize, u32, u32)>,
    blocks: std::collections::BTreeMap<(usize, u32), u64>,
    next: u32,
}

#[test]
fn random_phases_agree_with_a_brute_force_judge() {
    const NAMES: [&str; 6] = ["a begin", "a end", "b start", "b stop", "c begin", "c end"];
    for seed in 1..=40u64 {
        let mut random = Random::new(seed);
        let mut below = |bound: u64| random.below(bound);
        let mut d = Driver::new(Phases::new(&marks(&NAMES)), glibc);
        let mut j = Judge::default();
        for _ in 0..1500 {
            match below(24) {
                0 => {
                    let (name, ends) = (below(3) as usize, below(2) == 1);
                    d.mark(2 * name as u32 + u32::from(ends));
                    j.mark(name, ends);
                }
                1..=11 => {
                    let (node, size) = (1 + below(5) as u32, 100 * (1 + below(3)));
                    let block = d.alloc(node, size);
                    j.live.push((block, j.next, node.into()));
                    j.next += 1;
                }
                12..=14 if !j.live.is_empty() => {
                    let at = below(j.live.len() as u64) as usize;
                    let node = 1 + below(5) as u32;
                    let new = d.regrow(j.live[at].0, node, 100 * (1 + below(3)));
                    j.live[at] = (new, j.live[at].1, node.into());
                    j.next += 1;
                }
                _ if !j.live.is_empty() => {
                    let at = below(j.live.len() as u64) as usize;
                    d.free(j.live.swap_remove(at).0);
                }
                _ => {}
            }
        }
        let report = d.finish();
        let mut got: Vec<_> = report
            .zombies
            .iter()
            .map(|z| (z.phase.clone(), z.node, z.blocks, z.end_blocks))
            .collect();
        got.sort();
        assert_eq!(got, j.rows(), "seed {seed}");
    }
}

impl Judge {
    fn mark(&mut self, name: usize, ends: bool) {
        let open = self.open.iter().position(|(open, _)| *open == name);
        match (open, ends) {
            (None, false) => self.open.push((name, self.next)),
            (Some(at), true) => {
                let (_, first) = self.open.remove(at);
                self.spans.push((name, first, self.next));
                for (_, _, node) in self.live.iter().filter(|(_, birth, _)| *birth >= first) {
                    *self.blocks.entry((name, *node as u32)).or_default() += 1;
                }
            }
            _ => {}
        }
    }

    fn rows(&self) -> Vec<(String, u32, u64, u64)> {
        let mut keys: std::collections::BTreeMap<(usize, u32), (u64, u64)> = self
            .blocks
            .iter()
            .map(|(key, blocks)| (*key, (*blocks, 0)))
            .collect();
        for (name, first, past) in &self.spans {
            for (_, _, node) in self
                .live
                .iter()
                .filter(|(_, birth, _)| (first..past).contains(&birth))
            {
                keys.entry((*name, *node as u32)).or_default().1 += 1;
            }
        }
        let name = |at: usize| ["a", "b", "c"][at].to_owned();
        let mut rows: Vec<_> = keys
            .into_iter()
            .map(|((n, node), (b, e))| (name(n), node, b, e))
            .collect();
        rows.sort();
        rows
    }
}
