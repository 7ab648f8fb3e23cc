//! Runs of several nodes: each gets its own back, and borders hold.
//!
//! ```text
//!   serve 0: take, give      serve 1: take ─► not what 0 gave      serve 0: take ─► what 0 gave
//! ```
//!
//! Not here: where the kernel puts pages (`make qemu-alloc`).

use skinflint_base::random::Random;

use super::*;
use crate::os::faults;

fn of_nodes(count: u32, seed: u64) -> Fresh {
    let mut pool = Pool::new();
    pool.set_nodes(count);
    let process = u64::from(std::process::id()) << 32;
    let placed = pool.region.place(&Options {
        huge_pages: false,
        seed: seed ^ process,
        first_heap_bytes: 1 << 20,
    });
    assert!(placed, "no place for a region");
    Fresh(pool)
}

#[test]
fn a_node_gets_what_it_gave_and_no_other() {
    let mut pool = of_nodes(3, 201);
    assert_eq!(pool.node_count(), 3);
    // What lies unused is not purged for a new maximum.
    pool.slack_pages = Some(10_000);
    let mut own = [0; 3];
    for node in 0..3 {
        pool.serve(node);
        own[node as usize] = take(&mut pool, 600);
        assert_eq!(pool.check(), Ok(()));
    }
    for node in [1, 2, 0, 1] {
        pool.serve(node);
        let page = own[node as usize];
        pool.give(page, 600, true);
        pool.serve((node + 1) % 3);
        assert!(!pool.has_dirty(600), "node {node}'s");
        let other = take(&mut pool, 600);
        assert!(!own.contains(&other), "node {node}'s");
        pool.give(other, 600, false);
        pool.serve(node);
        assert!(pool.has_dirty(600));
        assert_eq!(take(&mut pool, 600), page);
        assert_eq!(pool.check(), Ok(()));
    }
    // A node that the pool does not tell apart counts as the first, whichever was served before.
    pool.give(own[0], 600, true);
    pool.give(own[1], 600, true);
    pool.serve(3);
    assert_eq!(take(&mut pool, 600), own[0]);
}

#[test]
fn when_the_system_gives_nothing_a_node_takes_anothers() {
    let mut pool = of_nodes(2, 203);
    pool.slack_pages = Some(10_000);
    let page = take(&mut pool, 500);
    pool.give(page, 500, true);
    pool.serve(1);
    faults::arm(0, faults::FOR_EVER);
    let run = pool.take(500, 1);
    faults::disarm();
    assert_eq!(run.map(|run| run.page), Some(page));
    assert_eq!(pool.nodes.served, 1);
    assert_eq!(pool.check(), Ok(()));
}

#[test]
fn random_acts_of_three_nodes_keep_all_invariants() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let mut pool = of_nodes(3, 300 + seed);
        let mut held: Vec<(u32, u32, u64)> = Vec::new();
        for act in 0..600u64 {
            pool.serve(random.below(3) as u32);
            match random.below(10) {
                0..5 => {
                    let pages = 1 + random.below(if act % 7 == 0 { 1_500 } else { 40 }) as u32;
                    let page = take(&mut pool, pages);
                    write(&pool, page, act);
                    write(&pool, page + pages - 1, act);
                    held.push((page, pages, act));
                }
                5..8 if !held.is_empty() => {
                    let at = random.below(held.len() as u64) as usize;
                    let (page, pages, tag) = held.swap_remove(at);
                    assert_eq!(
                        (read(&pool, page), read(&pool, page + pages - 1)),
                        (tag, tag)
                    );
                    pool.give(page, pages, true);
                }
                8 if !held.is_empty() => {
                    let at = random.below(held.len() as u64) as usize;
                    let (page, pages, tag) = held[at];
                    // Through free runs of whatever node.
                    if pool.extend(page + pages, 700).is_some() {
                        write(&pool, page + pages + 699, tag);
                        held[at].1 += 700;
                    }
                }
                _ => pool.purge(50),
            }
            assert_eq!(pool.check(), Ok(()), "seed {seed}, act {act}");
        }
        held.sort_unstable();
        let apart = held.windows(2).all(|two| two[0].0 + two[0].1 <= two[1].0);
        assert!(apart, "seed {seed}: runs overlap");
    }
}
