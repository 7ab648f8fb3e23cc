//! No byte is promised twice: faults that share their blocks, by hand and drawn.
//!
//! ```text
//!   buffers that grow, and are rounded up       one finding: growth
//!   blocks that leak, and are rounded up        one finding with their bytes: the leak
//!   programs drawn from all of it, by seed      saved ≤ held, of each function and of all
//! ```

use super::advice::{Script, function, of, under};
use super::*;
use skinflint_base::random::Random;
use skinflint_sizes::Scheme;

fn jemalloc(size: u64) -> u64 {
    Scheme::by_name("jemalloc5").unwrap().usable(size)
}

impl Script {
    fn given(&mut self, node: u32, size: u64) -> u64 {
        self.alloc(node, size, jemalloc(size))
    }

    /// Blocks that are never named again.
    fn keep(&mut self, node: u32, size: u64, many: u64) {
        for _ in 0..many {
            self.given(node, size);
        }
    }

    /// A realloc that moves if the class changes.
    fn regrow(&mut self, node: u32, from: u64, before: u64, size: u64) -> u64 {
        let usable = jemalloc(size);
        let to = match usable == jemalloc(before) {
            true => from,
            false => self.fresh(usable),
        };
        self.push(EventKind::ReallocRelease { addr: from });
        self.push(EventKind::ReallocAcquire {
            node: NodeId(node),
            addr: to,
            size,
            usable,
        });
        to
    }
}

fn saved(report: &Report, kind: FindingKind) -> u64 {
    of(report, kind).iter().map(|one| one.saved_bytes).sum()
}

/// 400 buffers that grow by 8 bytes to 1,032, which jemalloc makes 1,280: 248 unused in each are the growth's, as whoever
/// doubles has 1,024 or 2,048. Asked for at once the same size is a clownshoe.
#[test]
fn what_grows_is_not_rounded_up_as_well() {
    let mut script = Script::new();
    for _ in 0..400 {
        let mut addr = script.given(1, 8);
        for size in (16..=1032).step_by(8) {
            addr = script.regrow(1, addr, size - 8, size);
        }
    }
    let report = script.report(under("libjemalloc.so.2"));
    let growth = of(&report, FindingKind::Growth);
    assert_eq!(growth.len(), 1, "{growth:#?}");
    let smaller = [FindingKind::Clownshoes, FindingKind::Slop];
    assert_eq!(
        smaller.map(|kind| saved(&report, kind)),
        [0, 0],
        "{:#?}",
        report.findings
    );
    // Doubling from 8 they come to 2,048.
    let other = growth[0].growth_what_if.unwrap();
    assert_eq!(
        (other.held_bytes, other.then_held_bytes),
        (400 * 1032, 400 * 2048)
    );
    assert_eq!(
        other.copied_bytes - other.then_copied_bytes,
        growth[0].saved_cumulative_bytes
    );
    // The same blocks, had they come at once.
    let mut script = Script::new();
    script.keep(1, 1032, 400);
    let report = script.report(under("libjemalloc.so.2"));
    // 25 slabs hold 400 blocks of 1,280, and 100 as many of 1,024: 128 bytes for each.
    let saves = 400 * 256 - 75 * 128;
    assert_eq!(saved(&report, FindingKind::Clownshoes), saves);
}

/// 1,000 blocks of 1,040 at once, and 10 in each of 100 rounds, by one stack: the leak has the bytes of its 1,000, and
/// the clownshoe those of the others, and says so.
#[test]
fn what_leaks_is_not_made_smaller_as_well() {
    let mut script = Script::new();
    let mut marks = Vec::new();
    script.keep(1, 1040, 1000);
    for round in 0..100 {
        script.mark(&format!("request {round} begin"), &mut marks);
        script.keep(1, 1040, 10);
        script.mark(&format!("request {round} end"), &mut marks);
    }
    let mut facts = under("libjemalloc.so.2");
    facts.marks = marks;
    let report = script.report(facts);
    assert_eq!(saved(&report, FindingKind::Leak), 1000 * 1280);
    let shoes = of(&report, FindingKind::Clownshoes);
    assert_eq!(shoes.len(), 1, "{shoes:#?}");
    // Of 2,000 blocks, which are in 125 slabs and would be in 500, half.
    let saves = (2000 * 256 - 375 * 128) / 2;
    assert_eq!((shoes[0].saved_bytes, shoes[0].blocks), (saves, 1000));
    assert!(
        shoes[0]
            .what
            .contains("1,000 blocks are also in “Leaves 10 blocks a round"),
        "{}",
        shoes[0].what
    );
}

/// A program in which stacks 1 to 4 do several things at once, each of some sizes of its own.
fn drawn(seed: u64) -> Report {
    let mut random = Random::new(seed);
    let mut script = Script::new();
    let mut marks = Vec::new();
    let sizes: Vec<u64> = (0..5)
        .map(|_| [33, 136, 1025, 1040, 1288, 4112, 700][random.below(7) as usize])
        .collect();
    let mut growing: Vec<(u64, u64)> = (0..40).map(|_| (script.given(3, 16), 16)).collect();
    let mut pool: Vec<u64> = Vec::new();
    (1..=2).for_each(|node| script.keep(node, sizes[0], 800));
    let rounds = 20 + random.below(60);
    let (keeps, adds) = (1 + random.below(12), 1 + random.below(90));
    for round in 0..rounds {
        let name = ["request", "page", "job"][(random.below(8) % 3) as usize];
        script.mark(&format!("{name} {round} begin"), &mut marks);
        for kept in 0..keeps {
            let node = 1 + random.below(2) as u32;
            script.given(node, sizes[kept as usize % 5]);
        }
        for (addr, size) in growing.iter_mut() {
            *addr = script.regrow(3, *addr, *size, *size + adds);
            *size += adds;
        }
        for _ in 0..30 {
            let node = 1 + random.below(4) as u32;
            let addr = script.given(node, sizes[0]);
            match pool.len() {
                0..8 => pool.push(addr),
                _ => script.free(addr),
            }
        }
        script.mark(&format!("{name} {round} end"), &mut marks);
        script.keep(4, sizes[1], 20);
    }
    let mut facts = under("libjemalloc.so.2");
    facts.marks = marks;
    script.report(facts)
}

#[test]
fn programs_with_many_faults_at_once_promise_no_more_than_they_hold() {
    let mut shared = 0;
    for seed in 1..=60 {
        let report = drawn(seed);
        let mut all = 0;
        for node in 1..=4u32 {
            let name = format!("f{node}");
            let own = |one: &&skinflint_analysis::model::Finding| {
                one.node.is_some() && one.saved_bytes > 0 && function(&report, one) == name
            };
            let found: Vec<_> = report.findings.iter().filter(own).collect();
            let promised: u64 = found.iter().map(|one| one.saved_bytes).sum();
            let held = report.sites.iter().filter(|site| {
                let frame = report.nodes[site.node as usize].frame;
                report.frames[frame as usize].function == name
            });
            let held: u64 = held.map(|site| site.live_usable_bytes).sum();
            assert!(
                promised <= held,
                "seed {seed}, {name}: {promised} of {held}: {found:#?}"
            );
            all += promised;
        }
        let settled =
            |one: &&skinflint_analysis::model::Finding| one.what.contains("are also in “");
        shared += report.findings.iter().filter(settled).count();
        assert!(
            all <= report.instants[report.at].live_usable_bytes,
            "seed {seed}"
        );
    }
    assert!(shared > 10, "too few findings share their blocks: {shared}");
}
