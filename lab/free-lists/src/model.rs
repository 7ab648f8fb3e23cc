//! Random operations against obviously right models, and whole traces under every strategy.
//!
//! ```text
//!   free, take, remove, reset ─► strategy ─┬─ blocks ⊆ model, no overlap, no loss
//!                                          └─ the same block as vectors of vectors would give (`Dumb`)
//! ```
//!
//! The seed of a failure is in its message; `SKINFLINT_SEED=N` repeats it.
//!
//! Not here: choices on paper (`by_hand`).

use std::collections::BTreeMap;

use skinflint_objects::synthetic::Shape;
use skinflint_objects::{Event, Law, Synthetic};

use super::list::{Block, FreeList, Freed, Origin};
use super::lists::{Cached, Heavy, Light, Mask, Plain, Search};
use super::memory::{Memory, PAGE_WORDS, WORD, page_of};
use super::replay::{Fault, Plan, Script, Step, run};
use super::space::{Compaction, Settings};
use super::strategies::{
    FreeListPolicy, HalfMany, HalfManyFast, Legacy, Listed, Many, ManyFast, ManyOrigin, More1k,
    More2kFast, MoreSmalls, SingleList,
};
use super::strategy::Strategy;
use super::table::Table;
use skinflint_base::random::Random;

/// Words of a block or request: many small ones, some up to half a page.
fn drawn_words(random: &mut Random) -> u32 {
    let bits = 1 + random.below(14);
    1 + random.below(1 << bits) as u32
}

fn seeds() -> Vec<u64> {
    let given = std::env::var("SKINFLINT_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    given.map_or_else(|| (1..=4).collect(), |seed| vec![seed])
}

const PAGES: u32 = 6;

/// Memory that is in no list: runs by their first word.
struct Held(BTreeMap<u32, u32>);

impl Held {
    /// A run, cut out of the ones there are.
    fn cut(&mut self, random: &mut Random) -> Option<Block> {
        let index = random.below(self.0.len().max(1) as u64) as usize;
        let (word, words) = self
            .0
            .iter()
            .nth(index)
            .map(|(word, words)| (*word, *words))?;
        let want = drawn_words(random).min(words);
        self.0.remove(&word);
        if want < words {
            self.0.insert(word + want, words - want);
        }
        Some(Block { word, words: want })
    }
}

#[test]
fn no_block_is_lost_or_given_twice_whatever_the_strategy() {
    for strategy in Strategy::all() {
        for seed in seeds() {
            lose_nothing(*strategy, seed);
        }
    }
}

fn lose_nothing(strategy: Strategy, seed: u64) {
    let mut random = Random::new(seed);
    let memory = Memory::reserve(PAGES).expect("address space");
    let mut list = (strategy.make)(&memory);
    let mut held = Held(
        (1..=PAGES)
            .map(|page| (page * PAGE_WORDS, PAGE_WORDS))
            .collect(),
    );
    let mut free: BTreeMap<u32, u32> = BTreeMap::new();
    let mut wasted = 0;
    (1..=PAGES).for_each(|page| list.add_page(page));
    let context = format!("{} seed {seed}", strategy.name);
    for _ in 0..3000 {
        if random.below(2) == 0
            && let Some(block) = held.cut(&mut random)
        {
            let why = [Freed::Sweep, Freed::Rest, Freed::Page][random.below(3) as usize];
            assert_eq!(
                free.insert(block.word, block.words),
                None,
                "the test itself"
            );
            if let Some(lost) = list.free(block, why) {
                assert_eq!(
                    free.remove(&lost.word),
                    Some(lost.words),
                    "{context}: lost what it had"
                );
                wasted += lost.words;
            }
            if random.below(4) == 0 {
                let sure = list.guaranteed(block.words * WORD);
                let kept = free.contains_key(&block.word);
                if kept && sure > 0 {
                    let took = list.take(sure, Origin::Gc);
                    let took = took
                        .unwrap_or_else(|| panic!("{context}: {sure} after {block:?} was sure"));
                    assert_eq!(free.remove(&took.word), Some(took.words), "{context}");
                    held.0.insert(took.word, took.words);
                }
            }
        } else {
            let words = drawn_words(&mut random);
            let origin = Origin::ALL[random.below(3) as usize];
            if let Some(block) = list.take(words * WORD, origin) {
                assert!(block.words >= words, "{context}: {block:?} for {words}");
                assert_eq!(
                    free.remove(&block.word),
                    Some(block.words),
                    "{context}: gave what it had not"
                );
                held.0.insert(block.word, block.words);
            }
        }
    }
    let mut listed: Vec<(u32, u32)> = list
        .blocks()
        .iter()
        .map(|block| (block.word, block.words))
        .collect();
    listed.sort_unstable();
    assert!(
        listed
            .iter()
            .copied()
            .eq(free.iter().map(|(word, words)| (*word, *words))),
        "{context}: lost"
    );
    let (free_words, held_words): (u32, u32) = (free.values().sum(), held.0.values().sum());
    assert_eq!(
        free_words + held_words + wasted,
        PAGES * PAGE_WORDS,
        "F2: {context}"
    );
    list.remove_page(2);
    assert!(
        list.blocks().iter().all(|block| page_of(block.word) != 2),
        "{context}"
    );
    list.reset();
    assert_eq!(list.blocks(), [], "{context}");
}

/// The two-level list as vectors of vectors: classes of pages of blocks, the head of everything last.
struct Dumb {
    table: &'static Table,
    classes: Vec<Vec<(u32, Vec<Block>)>>,
}

impl Dumb {
    fn new(table: &'static Table) -> Dumb {
        let classes = vec![Vec::new(); table.len()];
        Dumb { table, classes }
    }

    fn free(&mut self, block: Block) {
        if block.words * WORD < self.table.min[0] {
            return;
        }
        let class = self.table.class_slowly(block.words * WORD);
        let pages = &mut self.classes[class];
        let page = page_of(block.word);
        match pages.iter_mut().find(|(number, _)| *number == page) {
            Some((_, blocks)) => blocks.push(block),
            None => pages.push((page, vec![block])),
        }
    }

    fn remove_page(&mut self, page: u32) {
        self.classes
            .iter_mut()
            .for_each(|pages| pages.retain(|(number, _)| *number != page));
    }

    fn tidy(&mut self) {
        self.classes
            .iter_mut()
            .for_each(|pages| pages.retain(|(_, blocks)| !blocks.is_empty()));
    }
}

impl Search for Dumb {
    fn try_top(&mut self, class: usize, bytes: u32) -> Option<Block> {
        let (_, blocks) = self.classes[class].last_mut()?;
        let found = blocks.pop_if(|block| block.words * WORD >= bytes);
        self.tidy();
        found
    }
    fn walk(&mut self, class: usize, bytes: u32) -> Option<Block> {
        let found = self.classes[class]
            .iter_mut()
            .rev()
            .find_map(|(_, blocks)| {
                let at = blocks
                    .iter()
                    .rposition(|block| block.words * WORD >= bytes)?;
                Some(blocks.remove(at))
            });
        self.tidy();
        found
    }
    fn next(&self, from: usize) -> usize {
        from
    }
    fn head(&self, class: usize) -> Option<u32> {
        self.classes[class].last().map(|(page, _)| *page)
    }
}

/// Plain, cached, mask, with both sorts of descriptors, and `Dumb`: the same blocks all the way (free_lists.F3).
fn same_choices<P: FreeListPolicy + 'static>(name: &'static str, seed: u64) {
    let memories: Vec<Memory> = (0..4)
        .map(|_| Memory::reserve(PAGES).expect("address space"))
        .collect();
    let mut lists: Vec<Box<dyn FreeList>> = vec![
        Box::new(Listed::<P, Heavy, Plain>::new(name, &memories[0])),
        Box::new(Listed::<P, Heavy, Cached>::new(name, &memories[1])),
        Box::new(Listed::<P, Heavy, Mask>::new(name, &memories[2])),
        Box::new(Listed::<P, Light, Mask>::new(name, &memories[3])),
    ];
    let mut dumb = Dumb::new(P::TABLE);
    let mut random = Random::new(seed);
    let mut held = Held(
        (1..=PAGES)
            .map(|page| (page * PAGE_WORDS, PAGE_WORDS))
            .collect(),
    );
    for list in &mut lists {
        (1..=PAGES).for_each(|page| list.add_page(page));
    }
    for step in 0..2500 {
        match random.below(200) {
            0 => {
                let page = 1 + random.below(u64::from(PAGES)) as u32;
                for list in &mut lists {
                    list.remove_page(page);
                    list.add_page(page);
                }
                dumb.remove_page(page);
            }
            1..100 => {
                let Some(block) = held.cut(&mut random) else {
                    continue;
                };
                for list in &mut lists {
                    list.free(block, Freed::Sweep);
                }
                dumb.free(block);
            }
            _ => {
                let (bytes, origin) = (
                    drawn_words(&mut random) * WORD,
                    Origin::ALL[random.below(3) as usize],
                );
                let expected = P::find(&mut dumb, bytes, origin);
                for (index, list) in lists.iter_mut().enumerate() {
                    let got = list.take(bytes, origin);
                    assert_eq!(
                        got, expected,
                        "{name} seed {seed} step {step}: variant {index}, {bytes} bytes"
                    );
                    assert_eq!(
                        list.page_for(bytes),
                        P::page_for(&dumb, bytes),
                        "{name} seed {seed} step {step}"
                    );
                }
                if let Some(block) = expected {
                    held.0.insert(block.word, block.words);
                }
            }
        }
    }
}

#[test]
fn variants_take_the_same_blocks_as_vectors_of_vectors() {
    for seed in seeds() {
        same_choices::<Legacy>("legacy", seed);
        same_choices::<MoreSmalls>("legacy-more-smalls", seed);
        same_choices::<Many>("many", seed);
        same_choices::<ManyFast>("many-fast", seed);
        same_choices::<HalfMany>("half-many", seed);
        same_choices::<HalfManyFast>("half-many-fast", seed);
        same_choices::<More1k>("more-1k", seed);
        same_choices::<More2kFast>("more-2k-fast", seed);
        same_choices::<ManyOrigin>("many-origin", seed);
        same_choices::<SingleList>("single-list", seed);
    }
}

fn script(shape: Shape, seed: u64) -> Script {
    let law = Law {
        live_bytes: 1 << 20,
        total_bytes: 6 << 20,
        ..Law::new(shape, seed)
    };
    let steps = Synthetic::new(law).filter_map(|event| match event {
        Event::Alloc {
            id, bytes, origin, ..
        } => {
            let origin = Origin::ALL[origin as usize];
            Some(Step::Alloc { id, bytes, origin })
        }
        Event::Death { id } => Some(Step::Death { id }),
        Event::Collection => None,
    });
    Script::new(steps, u64::MAX)
}

fn plan(compaction: Compaction, purge: bool) -> Plan {
    Plan {
        least_bytes: 512 << 10,
        check: true,
        settings: Settings {
            compaction,
            purge,
            ..Settings::default()
        },
        ..Plan::default()
    }
}

#[test]
fn traces_run_under_every_strategy_with_all_that_is_checked() {
    let script = script(Shape::Phases, 3);
    for strategy in Strategy::all() {
        for compaction in [Compaction::Never, Compaction::Sparse, Compaction::Always] {
            let ran = run(
                &script,
                *strategy,
                plan(compaction, compaction == Compaction::Always),
            );
            let ran =
                ran.unwrap_or_else(|fault| panic!("{} {compaction:?}: {fault}", strategy.name));
            assert!(ran.collections > 5, "{}", strategy.name);
            let figures = ran.figures;
            let sum = figures.allocated_bytes + figures.free_bytes + figures.wasted_bytes;
            assert_eq!(sum, figures.committed_bytes, "V1: {}", strategy.name);
            assert!(
                ran.resident.mean <= ran.committed.mean,
                "V5: {}",
                strategy.name
            );
            let moves = figures.moved_bytes_total > 0;
            assert_eq!(
                moves,
                compaction != Compaction::Never,
                "{} {compaction:?}",
                strategy.name
            );
        }
    }
}

#[test]
fn variants_have_the_same_memory_over_a_whole_trace() {
    let script = script(Shape::Steady, 5);
    for (plain, others) in [
        ("many", ["many-cached", "many-mask", "many-light"]),
        (
            "many-origin",
            [
                "many-origin-cached",
                "many-origin-mask",
                "many-origin-light",
            ],
        ),
    ] {
        let figures = |name: &str| {
            let strategy = Strategy::by_name(name).expect(name);
            let ran = run(&script, strategy, plan(Compaction::Sparse, false)).expect(name);
            let figures = ran.figures;
            (
                ran.committed,
                ran.wasted,
                figures.refills_total,
                figures.moved_bytes_total,
            )
        };
        for other in others {
            assert_eq!(figures(other), figures(plain), "{other}");
        }
    }
}

/// A strategy that says itself which block is next, as soon as there is a page.
struct Faulty {
    has_page: bool,
    given: u32,
    next: fn(u32) -> Block,
}

impl Faulty {
    fn giving(next: fn(u32) -> Block) -> Box<dyn FreeList> {
        let (has_page, given) = (false, 0);
        Box::new(Faulty {
            has_page,
            given,
            next,
        })
    }
}

impl FreeList for Faulty {
    fn name(&self) -> &'static str {
        "faulty"
    }
    fn add_page(&mut self, _: u32) {
        self.has_page = true;
    }
    fn remove_page(&mut self, _: u32) {}
    fn reset(&mut self) {}
    fn free(&mut self, _: Block, _: Freed) -> Option<Block> {
        None
    }
    fn take(&mut self, bytes: u32, _: Origin) -> Option<Block> {
        let block = (self.next)(self.given);
        let fits = self.has_page && bytes <= block.words * WORD;
        self.given += u32::from(fits);
        fits.then_some(block)
    }
    fn guaranteed(&self, _: u32) -> u32 {
        0
    }
    fn page_for(&self, _: u32) -> Option<u32> {
        None
    }
    fn blocks(&self) -> Vec<Block> {
        Vec::new()
    }
    fn table_bytes(&self) -> usize {
        0
    }
}

/// What becomes of so many objects of 64 bytes that do not die.
fn under(make: super::strategy::Make, objects: u64) -> Option<Fault> {
    let faulty = Strategy {
        name: "faulty",
        about: "",
        studied: false,
        make,
    };
    let steps = (0..objects).map(|id| Step::Alloc {
        id,
        bytes: 64,
        origin: Origin::Runtime,
    });
    let mut plan = plan(Compaction::Never, false);
    (plan.check, plan.least_bytes) = (false, 1 << 30);
    run(&Script::new(steps, u64::MAX), faulty, plan).err()
}

#[test]
#[should_panic(expected = "V1: page 1 in faulty")]
fn a_strategy_that_does_not_have_what_was_free_is_found_out() {
    fn first(_: u32) -> Block {
        let (word, words) = (PAGE_WORDS, 512);
        Block { word, words }
    }
    let strategy = Strategy {
        name: "faulty",
        about: "",
        studied: false,
        make: |_| Faulty::giving(first),
    };
    let space = super::space::VarSpace::new(strategy, Settings::default());
    let mut space = space.expect("address space");
    space.check();
    assert!(space.alloc(64, Origin::Runtime).is_some());
    space.check();
}

#[test]
fn a_strategy_that_gives_a_block_twice_is_found_out() {
    // 64 areas of 4 KiB in one page: the accounts hold, the objects do not.
    fn twice(_: u32) -> Block {
        let (word, words) = (PAGE_WORDS, 512);
        Block { word, words }
    }
    assert_eq!(under(|_| Faulty::giving(twice), 4000), Some(Fault::Overlap));
}

#[test]
fn a_strategy_whose_blocks_overlap_but_for_their_first_words_is_found_out() {
    // Room for one object each, the second a word before the first: it writes over the first one's head by its middle.
    fn shifted(given: u32) -> Block {
        let (word, words) = (PAGE_WORDS + 1 - given, 8);
        Block { word, words }
    }
    assert_eq!(under(|_| Faulty::giving(shifted), 2), Some(Fault::Overlap));
    fn apart(given: u32) -> Block {
        let (word, words) = (PAGE_WORDS + 8 * given, 8);
        Block { word, words }
    }
    assert_eq!(under(|_| Faulty::giving(apart), 2), None);
}

#[test]
fn what_is_above_half_a_page_is_no_matter_of_policies() {
    let alloc = |id, bytes| Step::Alloc {
        id,
        bytes,
        origin: Origin::Runtime,
    };
    let script = Script::new([alloc(0, 131_072), alloc(1, 131_073)].into_iter(), u64::MAX);
    assert_eq!(
        (script.objects, script.large_objects, script.large_bytes),
        (1, 1, 131_073)
    );
}

#[test]
fn a_limit_that_is_too_small_is_an_error_and_not_a_crash() {
    let script = script(Shape::Steady, 1);
    for strategy in Strategy::all() {
        let mut plan = plan(Compaction::Never, false);
        plan.settings.limit_bytes = 512 << 10;
        assert_eq!(
            run(&script, *strategy, plan).err(),
            Some(Fault::Limit),
            "{}",
            strategy.name
        );
    }
}
