//! Random programs of several threads: in whatever order the format lets them run, the order of blocks holds.

use std::collections::HashMap;

use skinflint_replay::script::{Header, Op};
use skinflint_trace::EventKind;

use crate::machine::{Outcome, Read, Rule, next, run};
use crate::made::Made;

/// Builds a program of this many threads and events. Half the releases are of other threads' blocks.
fn program(seed: u64, threads: u32, events: usize) -> Made {
    let (mut made, mut seed) = (Made::new(), seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut live: Vec<u64> = Vec::new();
    let mut free_addresses: Vec<u64> = Vec::new();
    let mut fresh = 0x10_0000;
    // While a realloc is under way, its thread does nothing else until it ends.
    let mut under_way: HashMap<u32, u64> = HashMap::new();
    while made.events.len() < events {
        let draw = next(&mut seed);
        // Threads come one after the other, and thread 0 does the most.
        let able = 1 + threads.min((made.events.len() / 50) as u32 + 1) - 1;
        let thread = if draw & 7 == 0 {
            0
        } else {
            (draw >> 8) as u32 % able
        };
        let mut address = || {
            free_addresses.pop().unwrap_or_else(|| {
                fresh += 0x1000;
                fresh
            })
        };
        let size = 1 + (draw >> 20) % 3000;
        if let Some(old) = under_way.remove(&thread) {
            if draw & 0x70 == 0 {
                live.push(old);
                made.push(thread, EventKind::ReallocCancel { addr: old });
            } else {
                let new = address();
                live.push(new);
                made.realloc_ends(thread, new, size);
            }
            continue;
        }
        let wants_less = live.len() as u64 > 20 + (draw >> 40) % 200;
        match (draw >> 4) % 8 {
            0 if !live.is_empty() => {
                let old = live.swap_remove((draw >> 32) as usize % live.len());
                made.realloc_begins(thread, old);
                under_way.insert(thread, old);
            }
            n if (n > 4 || wants_less) && !live.is_empty() => {
                let addr = live.swap_remove((draw >> 32) as usize % live.len());
                made.free(thread, addr);
                free_addresses.push(addr);
            }
            _ => {
                let addr = address();
                live.push(addr);
                made.malloc(thread, addr, size);
            }
        }
    }
    made
}

fn rules(threads: u32) -> Vec<Rule> {
    let each = (0..threads).flat_map(|thread| [Rule::Ahead(thread), Rule::Last(thread)]);
    each.chain((1..=6).map(Rule::Chance)).collect()
}

#[test]
fn no_order_that_the_format_allows_violates() {
    for seed in 1..=12 {
        let threads = 2 + seed as u32 % 6;
        let made = program(seed, threads, 9000);
        let (bytes, compiled) = made.compiled();
        let script = Read::of(&bytes);
        let mut ends: Vec<Outcome> = Vec::new();
        for rule in rules(threads) {
            let outcome = run(&script, rule);
            println!("seed {seed} threads {threads} {rule:?}: {outcome:?}");
            assert_eq!((outcome.violations, outcome.is_stuck), (0, false));
            let much = compiled.peak_live_bytes / 5;
            let off = outcome.most_live_bytes.abs_diff(compiled.peak_live_bytes);
            assert!(
                off < much + 200_000,
                "the peak is {off} bytes off, {}",
                compiled.peak_live_bytes
            );
            ends.push(Outcome {
                most_live_bytes: 0,
                ..outcome
            });
        }
        assert!(ends.iter().all(|end| *end == ends[0]), "all end alike");
    }
}

#[test]
fn without_its_waits_a_script_violates() {
    let (bytes, _) = program(3, 4, 9000).compiled();
    let script = Read::of(&bytes).without_waits();
    let violations: u64 = rules(4)
        .into_iter()
        .map(|rule| run(&script, rule).violations)
        .sum();
    assert!(violations > 0);
}

#[test]
fn every_thread_does_what_it_did() {
    let made = program(7, 5, 6000);
    let script = Read::of(&made.compiled().0);
    let (mut recorded, mut compiled) = (vec![[0_u64; 3]; 5], vec![[0_u64; 3]; 5]);
    for event in &made.events {
        let counts = &mut recorded[event.thread.0 as usize];
        match event.kind {
            EventKind::Alloc { size, .. } | EventKind::ReallocAcquire { size, .. } => {
                counts[0] += 1;
                counts[1] += size;
            }
            EventKind::Free { .. } => counts[2] += 1,
            _ => {}
        }
    }
    for (thread, op) in script.ops() {
        let counts = &mut compiled[thread as usize];
        match op {
            Op::Malloc { size, .. } | Op::Realloc { size, .. } => {
                counts[0] += 1;
                counts[1] += size;
            }
            Op::Free { .. } => counts[2] += 1,
            _ => {}
        }
    }
    assert_eq!(recorded, compiled);
    let header: Header = script.header;
    assert_eq!((header.threads, header.main), (5, 0));
}

/// Tests a thread that hands all that it acquires to another, which is always behind: without short epochs it would
/// run ahead. It has enough slots for that, of small blocks that it had before.
#[test]
fn a_producer_does_not_run_ahead_of_the_recording() {
    let mut made = Made::new();
    let small = |n: u64| 0x1000_0000 + n * 64;
    (0..2000).for_each(|n| _ = made.malloc(0, small(n), 16));
    (0..2000).for_each(|n| _ = made.free(0, small(n)));
    let addr = |n: u64| 0x10_0000 + n % 64 * 0x10_000;
    for n in 0..40_000 {
        if n >= 20 {
            made.free(1, addr(n - 20));
        }
        made.malloc(0, addr(n), 50_000);
    }
    let (bytes, compiled) = made.compiled();
    assert_eq!(compiled.peak_live_bytes, 20 * 50_000);
    let outcome = run(&Read::of(&bytes), Rule::Ahead(0));
    assert_eq!((outcome.violations, outcome.is_stuck), (0, false));
    // Two epochs of 8 events, half of them acquisitions: up to 8 blocks more.
    assert!(
        outcome.most_live_bytes <= 29 * 50_000,
        "{}",
        outcome.most_live_bytes
    );
}

#[test]
fn threads_that_ended_end_and_their_slots_are_used_again() {
    let mut made = Made::new();
    for thread in 1..100 {
        made.malloc(0, 0x5000, 10)
            .malloc(thread, 0x6000, 10)
            .free(thread, 0x6000)
            .free(0, 0x5000);
        made.ended_threads.push(thread);
    }
    let (bytes, compiled) = made.compiled();
    let script = Read::of(&bytes);
    let count = |wanted: fn(&Op) -> bool| script.ops().filter(|(_, op)| wanted(op)).count();
    assert_eq!(count(|op| matches!(op, Op::Start { .. })), 99);
    assert_eq!(count(|op| matches!(op, Op::End)), 99);
    assert_eq!(compiled.slots, 2);
    for rule in rules(3) {
        let outcome = run(&script, rule);
        assert_eq!(
            (outcome.violations, outcome.is_stuck, outcome.live_blocks),
            (0, false, 0)
        );
    }
}
