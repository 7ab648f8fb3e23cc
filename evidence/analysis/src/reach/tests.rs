//! Graphs predicted by hand, and random ones against a walk that knows nothing of components.

use skinflint_base::random::Random;
use skinflint_trace::{Look, LookRegion, LookRegister, NodeId, RegionKind};

use super::*;
use crate::maps::{Intervals, Owner};

const HEAP: u64 = 0x10_0000;
const DATA: u64 = 0x50_0000;

fn block(number: u64) -> u64 {
    HEAP + number * 0x40
}

fn live(count: u64) -> Vec<Live> {
    let one = |number: u64| Live {
        addr: block(number),
        size: 0x38,
        usable: 0x38,
        node: NodeId(number as u32 + 1),
        born_us: number,
    };
    (0..count).map(one).collect()
}

fn look() -> Look {
    let region = |start, end, kind, name: &str| LookRegion {
        start,
        end,
        kind,
        tid: 0,
        name: name.into(),
    };
    Look {
        regions: vec![
            region(HEAP, HEAP + 0x1_0000, RegionKind::Heap, "[heap]"),
            region(DATA, DATA + 0x1000, RegionKind::Data, "/app"),
            region(DATA + 0x1000, DATA + 0x2000, RegionKind::Data, "/libc.so.6"),
        ],
        ..Look::default()
    }
}

fn reach(look: &Look, blocks: Vec<Live>, words: &[(u64, u64)]) -> Result<Reach, String> {
    let maker = Maker {
        name: "glibc 2.36".into(),
        path: "/libc.so.6".into(),
    };
    let intervals = Intervals::default();
    let roots = Roots::new(look, &blocks, &maker, &intervals, &|owner: &Owner| {
        owner.by_allocator
    });
    let mut words = words.to_vec();
    words.sort_unstable();
    find(look, blocks, &roots, &mut |each| {
        words.iter().for_each(|&(at, value)| each(at, value));
        true
    })
}

fn states(reach: &Reach) -> String {
    let letter = |reached: &Reached| match reached {
        Reached::Not => '-',
        Reached::Certainly => 'c',
        Reached::Likely => 'l',
    };
    reach.reached.iter().map(letter).collect()
}

#[test]
fn a_list_is_held_by_its_head_and_lost_with_it() {
    let chain = [(block(0), block(1)), (block(1) + 8, block(2))];
    let mut words = chain.to_vec();
    words.push((DATA, block(0)));
    let held = reach(&look(), live(3), &words).expect("whole");
    assert_eq!((states(&held).as_str(), held.leaders.len()), ("ccc", 0));
    let path = held.path(2);
    let words: Vec<WordAt> = path.iter().map(|step| step.place).collect();
    let expected = [DATA, block(0), block(1) + 8].map(WordAt::Memory);
    assert_eq!(words, expected);
    let lost = reach(&look(), live(3), &chain).expect("whole");
    assert_eq!(states(&lost), "---");
    let leader = Leader {
        blocks: vec![0],
        cycle: false,
    };
    assert_eq!(
        (lost.leaders.as_slice(), lost.leader_of.as_slice()),
        (&[leader][..], &[0, 0, 0][..])
    );
}

#[test]
fn a_cycle_leads_and_what_it_holds_does_not() {
    // 1 ⇄ 2 → 3, and 0 → 1 is missing; 4 points to its own begin, 5 into itself.
    let words = [
        (block(1), block(2)),
        (block(2), block(1)),
        (block(2) + 8, block(3)),
        (block(4), block(4)),
        (block(5), block(5) + 16),
        (DATA, block(0)),
    ];
    let found = reach(&look(), live(6), &words).expect("whole");
    assert_eq!(states(&found), "c-----");
    let leaders: Vec<(Vec<u32>, bool)> = found
        .leaders
        .iter()
        .map(|one| (one.blocks.clone(), one.cycle))
        .collect();
    assert_eq!(
        leaders,
        [(vec![1, 2], true), (vec![4], true), (vec![5], false)]
    );
    assert_eq!(found.leader_of[3], 0);
}

#[test]
fn pointers_into_blocks_to_their_ends_and_tagged_ones_are_likely() {
    let words = [
        (DATA, block(0) + 8),
        (DATA + 8, block(1) | 1),
        (DATA + 16, block(2) | 0xffff << 48),
        (DATA + 24, block(3) + 0x38),
        (DATA + 32, block(5) + 0x39),
        (block(0), block(4)),
    ];
    let found = reach(&look(), live(6), &words).expect("whole");
    assert_eq!(states(&found), "lllll-");
}

/// The recorder keeps a half of a word with bit 48 set, and both halves at the word's address.
#[test]
fn halves_of_words_are_likely() {
    let half = |number: u64| block(number) | 1 << 48;
    let words = [(DATA, half(0)), (DATA, half(1)), (block(1), block(2))];
    let found = reach(&look(), live(4), &words).expect("whole");
    assert_eq!(states(&found), "lll-");
}

/// Blocks without a gap between them: the end of one is the begin of the next, and stands for that.
#[test]
fn where_a_block_begins_no_other_ends() {
    let mut blocks = live(3);
    (blocks[0].size, blocks[0].usable) = (0x40, 0x40);
    (blocks[2].size, blocks[2].usable) = (0x4_0000, 0x4_0000);
    let end = block(2) + 0x4_0000;
    let words = [(DATA, block(1)), (DATA + 8, end)];
    let found = reach(&look(), blocks, &words).expect("whole");
    assert_eq!(states(&found), "-cl");
}

#[test]
fn words_of_the_allocator_hold_nothing() {
    // In free memory of the heap; in glibc's data: to a chunk (16 before block 2, so the end of block 1), and to a block.
    let mut blocks = live(3);
    blocks[1].usable = 0x38;
    let words = [
        (block(8), block(0)),
        (DATA + 0x1000, block(1) + 0x30),
        (DATA + 0x1008, block(2)),
    ];
    let found = reach(&look(), blocks, &words).expect("whole");
    assert_eq!(states(&found), "--c");
}

#[test]
fn registers_and_thread_local_storage_are_roots() {
    let mut look = look();
    look.registers.push(LookRegister {
        tid: 1,
        number: 3,
        value: block(0),
    });
    look.regions.push(LookRegion {
        start: HEAP + 0x8000,
        end: HEAP + 0x8100,
        kind: RegionKind::Tls,
        tid: 1,
        name: String::new(),
    });
    let words = [(HEAP + 0x8080, block(1)), (HEAP + 0x8100, block(2))];
    let found = reach(&look, live(3), &words).expect("whole");
    assert_eq!(states(&found), "cc-");
    assert_eq!(found.path(0)[0].place, WordAt::Register(0));
}

#[test]
fn anonymous_memory_is_whose_mapping_it_is() {
    let mut look = look();
    let anon = |start: u64| LookRegion {
        start,
        end: start + 0x1000,
        ..LookRegion::default()
    };
    look.regions.extend([
        anon(0x70_0000),
        anon(0x80_0000),
        anon(0x400_0000),
        anon(0x900_0000),
    ]);
    let mut intervals = Intervals::default();
    let owner = |by_allocator| Owner {
        node: NodeId(1),
        by_allocator,
        by_break: false,
        arena: false,
    };
    intervals.map(0x70_0000, 0x1000, owner(false));
    intervals.map(0x80_0000, 0x1000, owner(true));
    let words = [
        (0x70_0000, block(0)),
        (0x80_0000, block(1)),
        (0x400_0000, block(2)),
        (0x900_0000, block(3)),
    ];
    let verdict = |name: &str| {
        let maker = Maker {
            name: name.into(),
            path: "/libx.so".into(),
        };
        let blocks = live(4);
        let roots = Roots::new(&look, &blocks, &maker, &intervals, &|owner| {
            owner.by_allocator
        });
        let found = find(&look, blocks, &roots, &mut |each| {
            words.iter().for_each(|&(at, value)| each(at, value));
            true
        });
        states(&found.expect("whole"))
    };
    // 0x4000000 is where glibc puts arenas of threads.
    assert_eq!(verdict("glibc 2.36"), "c--c");
    assert_eq!(verdict("jemalloc"), "c-cc");
}

#[test]
fn what_is_missing_has_no_verdict() {
    let mut cut = look();
    cut.missing = "it was refused".into();
    assert_eq!(
        reach(&cut, live(1), &[]).err().as_deref(),
        Some("it was refused")
    );
    let (whole, blocks) = (look(), live(1));
    let intervals = Intervals::default();
    let roots = Roots::new(&whole, &blocks, &Maker::default(), &intervals, &|_| false);
    assert!(find(&whole, blocks, &roots, &mut |_| false).is_err());
}

#[test]
fn random_graphs_are_as_a_plain_walk_has_them() {
    let mut random = Random::new(0x2545_f491_4f6c_dd1du64);
    let mut draw = |below: u64| random.below(below);
    for round in 0..300 {
        let count = 1 + draw(30);
        let mut words: Vec<(u64, u64)> = Vec::new();
        for from in 0..count {
            for slot in 0..draw(4) {
                words.push((block(from) + slot * 8, block(draw(count))));
            }
        }
        for slot in 0..draw(4) {
            words.push((DATA + slot * 8, block(draw(count))));
        }
        let found = reach(&look(), live(count), &words).expect("whole");
        let from_roots = walk(
            &words,
            words
                .iter()
                .filter(|(at, _)| *at >= DATA)
                .map(|w| w.1)
                .collect(),
        );
        let expected: Vec<bool> = (0..count)
            .map(|one| from_roots.contains(&block(one)))
            .collect();
        let seen: Vec<bool> = found
            .reached
            .iter()
            .map(|one| *one != Reached::Not)
            .collect();
        assert_eq!(seen, expected, "round {round}");
        judge_leaders(&found, &words, round);
    }
}

/// Everything that can be come to from these blocks, themselves included.
fn walk(words: &[(u64, u64)], mut todo: Vec<u64>) -> std::collections::BTreeSet<u64> {
    let mut seen = std::collections::BTreeSet::new();
    while let Some(at) = todo.pop() {
        if seen.insert(at) {
            let inside = words
                .iter()
                .filter(|(word, _)| (at..at + 0x38).contains(word));
            todo.extend(inside.map(|word| word.1));
        }
    }
    seen
}

fn judge_leaders(found: &Reach, words: &[(u64, u64)], round: usize) {
    let lost = |number: u32| found.reached[number as usize] == Reached::Not;
    let addr = |number: u32| found.blocks[number as usize].addr;
    let all: Vec<u32> = (0..found.blocks.len() as u32)
        .filter(|&one| lost(one))
        .collect();
    let leads: Vec<u32> = found
        .leaders
        .iter()
        .flat_map(|leader| leader.blocks.clone())
        .collect();
    for &one in &all {
        // It leads if all that lead to it are led to by it.
        let from_it = walk(words, vec![addr(one)]);
        let to_it = all
            .iter()
            .filter(|&&other| walk(words, vec![addr(other)]).contains(&addr(one)));
        let is_leader = to_it.clone().all(|&other| from_it.contains(&addr(other)));
        assert_eq!(
            leads.contains(&one),
            is_leader,
            "round {round}, block {one}"
        );
        // The leader that claims it leads to it, and the path says so.
        let leader = &found.leaders[found.leader_of[one as usize] as usize];
        let first = leader.blocks[0];
        assert!(
            walk(words, vec![addr(first)]).contains(&addr(one)),
            "round {round}"
        );
        let path = found.path(one);
        assert_eq!(path.is_empty(), one == first, "round {round}, block {one}");
    }
}

#[test]
fn an_empty_block_has_a_begin_and_a_block_of_a_byte_an_end() {
    let mut blocks = live(4);
    (blocks[0].size, blocks[1].size) = (0, 0);
    (blocks[2].size, blocks[3].size) = (1, 1);
    let words = [
        (DATA, block(0)),
        (DATA + 8, block(1) + 1),
        (DATA + 16, block(2)),
        (DATA + 24, block(3) + 1),
    ];
    let found = reach(&look(), blocks, &words).expect("whole");
    assert_eq!(states(&found), "c-cl");
}

#[test]
fn blocks_may_come_in_any_order() {
    let mut blocks = live(3);
    blocks.reverse();
    let words = [(DATA, block(0)), (block(0), block(1))];
    let found = reach(&look(), blocks, &words).expect("whole");
    assert!(found.blocks.is_sorted_by_key(|block| block.addr));
    assert_eq!(states(&found), "cc-");
}

#[test]
fn rows_come_by_what_they_hold() {
    let mut blocks = live(3);
    blocks[1].usable = 1024;
    let found = reach(&look(), blocks, &[]);
    let pass = Box::new(rows::ReachPass::new(&look(), "end", &found));
    let context = crate::pass::Context {
        cells: &[],
        blocks: &[],
        key: crate::block::NO_KEY,
        site: 0,
        time_ns: 0,
        ticket: 0,
    };
    let mut report = crate::model::Report::default();
    crate::pass::Pass::finish(pass, &context, &mut report);
    // A finding is worth 1,024 bytes.
    let told: Vec<_> = report.findings.iter().map(|one| one.node).collect();
    assert_eq!(told, [Some(2)]);
    let rows = report.reach.expect("a look").rows;
    let nodes: Vec<_> = rows.iter().map(|row| row.node).collect();
    assert_eq!(nodes, [Some(2), Some(1), Some(3)]);
}

/// Ours maps unseen and far from everything; what lies near a module, the loader mapped for it.
#[test]
fn near_a_module_anonymous_memory_is_a_root() {
    let mut look = look();
    let near = (16 << 20) - 1;
    for start in [DATA + 0x2000 + near, DATA + 0x4000 + 2 * near] {
        look.regions.push(LookRegion {
            start,
            end: start + 0x1000,
            ..LookRegion::default()
        });
    }
    let words = [
        (DATA + 0x2000 + near, block(0)),
        (DATA + 0x4000 + 2 * near, block(1)),
    ];
    let maker = Maker {
        name: "skinflint".into(),
        path: "/usr/lib/libskinflint.so".into(),
    };
    let blocks = live(2);
    let roots = Roots::new(&look, &blocks, &maker, &Intervals::default(), &|_| false);
    let found = find(&look, blocks, &roots, &mut |each| {
        words.iter().for_each(|&(at, value)| each(at, value));
        true
    });
    assert_eq!(states(&found.expect("whole")), "c-");
}
