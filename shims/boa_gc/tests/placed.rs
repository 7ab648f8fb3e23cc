//! Objects under every free-list policy: the same objects live and end as in the heap, whatever is swept when.
//!
//! ```text
//!   the same random program ─┬─ in the heap ─────────► what it read, objects left
//!                            └─ under each policy ───► the same, with every cycle checked
//! ```
//!
//! Not here: the choice of a hole (`skinflint_free_lists`).

use boa_gc::skinflint::{self, OutOfMemory, Strategy, Tenant, place_by, stats};
use boa_gc::{Finalize, Gc, GcRefCell, Trace, WeakGc, force_collect};
use skinflint_base::random::Random;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[derive(Trace, Finalize)]
struct Node {
    stamp: [u64; 9],
    next: GcRefCell<Option<Gc<Node>>>,
}

impl Node {
    fn stamp(&self) -> u64 {
        let first = self.stamp[0];
        assert!(self.stamp.iter().all(|word| *word == first), "overwritten");
        first
    }
}

fn node(stamp: u64, next: Option<Gc<Node>>) -> Node {
    Node {
        stamp: [stamp; 9],
        next: GcRefCell::new(next),
    }
}

/// A leaf with a size of its own, beside the nodes: 16 to some thousand bytes.
#[derive(Trace, Finalize)]
struct Leaf<const WORDS: usize>([u64; WORDS]);

type Leaves = (Gc<Leaf<3>>, Gc<Leaf<40>>, Gc<Leaf<700>>);

/// Runs a random program; returns what it read, and how many objects it left.
fn program(seed: u64, steps: u64) -> (u64, u64) {
    let mut random = Random::new(seed);
    let mut held: Vec<Option<Gc<Node>>> = vec![None; 64];
    let mut small: Vec<Option<Leaves>> = vec![None; 32];
    let mut weak: Vec<(u64, WeakGc<Node>)> = Vec::new();
    let mut sum = 0u64;
    for step in 0..steps {
        let at = random.below(64) as usize;
        match random.below(8) {
            0..=3 => {
                let next = held[random.below(64) as usize].clone();
                held[at] = Some(Gc::new(node(step, next)));
            }
            4 => {
                // This makes cycles now and then.
                let other = held[random.below(64) as usize].clone();
                if let Some(object) = &held[at] {
                    *object.next.borrow_mut() = other;
                }
            }
            5 => held[at] = None,
            6 => {
                let leaves = (
                    Gc::new(Leaf([step; 3])),
                    Gc::new(Leaf([step; 40])),
                    Gc::new(Leaf([step; 700])),
                );
                small[at / 2] = Some(leaves);
            }
            _ => {
                if let Some(object) = &held[at] {
                    weak.push((object.stamp(), WeakGc::new(object)));
                }
                weak.truncate(40);
            }
        }
        if let Some(object) = &held[at] {
            let mut far = object.clone();
            for _ in 0..5 {
                sum = sum.wrapping_mul(31).wrapping_add(far.stamp());
                let next = far.next.borrow().clone();
                let Some(next) = next else { break };
                far = next;
            }
        }
        if let Some((one, two, three)) = &small[at / 2] {
            assert!(
                one.0[0] == two.0[39] && two.0[0] == three.0[699],
                "overwritten"
            );
        }
    }
    force_collect();
    for (stamp, weak) in &weak {
        if let Some(object) = weak.upgrade() {
            assert_eq!(object.stamp(), *stamp);
            sum = sum.wrapping_add(*stamp);
        }
    }
    let alive = stats().objects;
    drop((held, small, weak));
    (sum, alive)
}

/// Runs the program on a thread with one tenant, placed by a policy or not. It is verified, and collected at each
/// `stress`th allocation unless that is 0.
fn in_tenant(policy: Option<Strategy>, seed: u64, steps: u64, stress: u32) -> (u64, u64) {
    let thread = std::thread::spawn(move || {
        skinflint::verify(true);
        skinflint::stress(stress);
        place_by(policy.map(|policy| (policy, 2.0)));
        let tenant = Tenant::new("t", usize::MAX);
        let read = {
            let _inside = tenant.enter();
            program(seed, steps)
        };
        skinflint::stress(0);
        match (policy, tenant.placement()) {
            (Some(policy), Some(placement)) => {
                assert_eq!(placement.policy, policy.name);
                let outcome = &placement.outcome;
                assert_eq!(
                    outcome.objects + placement.outside_objects,
                    stats().made,
                    "all are placed"
                );
                assert!(outcome.run.collections > 1 && outcome.run.figures.refills_total > 0);
            }
            (policy, outcome) => assert!(policy.is_none() && outcome.is_none()),
        }
        assert_eq!(tenant.end().objects_left, 0);
        read
    });
    thread.join().expect("the test's thread")
}

fn policies() -> impl Iterator<Item = Strategy> {
    // The map space is only for objects of one size.
    Strategy::all()
        .iter()
        .copied()
        .filter(|s| s.name != "map-space")
}

#[test]
fn a_program_reads_the_same_under_every_policy() {
    let in_heap = in_tenant(None, 7, 15_000, 0);
    for policy in policies() {
        assert_eq!(in_tenant(Some(policy), 7, 15_000, 0), in_heap, "{policy:?}");
    }
}

#[test]
fn the_same_when_room_is_made_at_every_few_allocations() {
    for seed in 1..3 {
        let in_heap = in_tenant(None, seed, 1_500, 7);
        for name in ["legacy", "many-origin", "tight", "full-pages", "segregated"] {
            let policy = Strategy::by_name(name);
            assert!(policy.is_some());
            assert_eq!(
                in_tenant(policy, seed, 1_500, 7),
                in_heap,
                "{name}, seed {seed}"
            );
        }
    }
}

#[derive(Trace, Finalize)]
#[repr(align(64))]
struct Aligned(u64);

#[test]
fn what_no_policy_places_lies_in_the_heap_and_is_counted() {
    let thread = std::thread::spawn(|| {
        place_by(Strategy::by_name("many").map(|policy| (policy, 2.0)));
        let tenant = Tenant::new("t", usize::MAX);
        let inside = tenant.enter();
        let aligned = Gc::new(Aligned(3));
        assert_eq!(Gc::into_raw(aligned.clone()).addr().get() % 64, 0);
        let huge = Gc::new(Leaf([5; 20_000]));
        let small = Gc::new(Leaf([6; 2]));
        drop(inside);
        let placement = tenant.placement().expect("a policy");
        assert_eq!(
            (placement.outcome.objects, placement.outside_objects),
            (1, 2)
        );
        assert_eq!(tenant.row().objects, 3);
        // A page of 256 KiB, and the heap's chunk for the other two.
        assert!(tenant.row().chunks >= 2);
        assert_eq!((aligned.0, huge.0[19_999], small.0[1]), (3, 5, 6));
        drop((huge, small));
        let ended = tenant.end();
        // `into_raw` kept a handle.
        assert_eq!(ended.objects_left, 1);
        assert!(ended.path.is_some());
    });
    thread.join().expect("the test's thread");
}

#[test]
fn a_limit_is_the_tenants_alone_and_room_comes_back() {
    let thread = std::thread::spawn(|| {
        place_by(Strategy::by_name("tight").map(|policy| (policy, 2.0)));
        let tenant = Tenant::new("small", 2 << 20);
        let mut kept = Vec::new();
        let failed = {
            let _inside = tenant.enter();
            catch_unwind(AssertUnwindSafe(|| {
                for stamp in 0..100_000u64 {
                    kept.push(Gc::new(Leaf([stamp; 40])));
                }
            }))
        };
        let failed = failed.expect_err("there is a limit");
        let outcome = failed.downcast_ref::<OutOfMemory>().expect("in words");
        assert!(outcome.why.contains("\"small\""), "{outcome}");
        assert!(kept.len() > 5_000, "{}", kept.len());
        assert!(
            kept.iter()
                .enumerate()
                .all(|(at, leaf)| leaf.0 == [at as u64; 40])
        );
        let half = kept.len() / 2;
        kept.truncate(half);
        let _inside = tenant.enter();
        for stamp in 0..1_000 {
            kept.push(Gc::new(Leaf([stamp; 40])));
        }
    });
    thread.join().expect("the test's thread");
}

#[test]
fn tenants_under_a_policy_mark_beside_each_other() {
    // Marking one tenant follows edges to the other, whose cells end and are swept meanwhile.
    let thread = std::thread::spawn(|| {
        skinflint::verify(true);
        place_by(Strategy::by_name("many-origin").map(|policy| (policy, 1.1)));
        let (one, two) = (
            Tenant::new("one", usize::MAX),
            Tenant::new("two", usize::MAX),
        );
        let mut held: Vec<Gc<Node>> = Vec::new();
        let mut random = Random::new(5);
        for step in 0..200_000u64 {
            let tenant = if step / 100 % 2 == 0 { &one } else { &two };
            let _inside = tenant.enter();
            let next =
                (!held.is_empty()).then(|| held[random.below(held.len() as u64) as usize].clone());
            let object = Gc::new(node(step, next));
            if held.len() < 30_000 {
                held.push(object);
            } else {
                let at = random.below(30_000) as usize;
                held[at] = object.clone();
                // This makes a ring through both: only examinations find it.
                let other = held[random.below(30_000) as usize].clone();
                *held[at].next.borrow_mut() = Some(other);
            }
            let seen = &held[random.below(held.len() as u64) as usize];
            let far = seen.next.borrow().clone();
            assert!(far.is_none_or(|far| far.stamp() <= step));
        }
        assert!(
            one.placement()
                .is_some_and(|p| p.outcome.run.collections > 2)
        );
        let collections = one.row().collections + two.row().collections;
        assert!(collections > 2, "marked {collections} times");
        held.clear();
        force_collect();
        assert_eq!((one.end().objects_left, two.end().objects_left), (0, 0));
    });
    thread.join().expect("the test's thread");
}
