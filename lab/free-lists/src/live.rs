//! A space under a running program, whose objects do not move and report their own end.
//!
//! ```text
//!   alloc ─► │ words u32 │ client u32 ║ object … │        free: its bit goes, its memory stays
//!   due? ─► collect: what has a bit is marked ─► begin, end, sweeping as in `replay` ─► holes ─► the policy
//! ```
//!
//! L1  An object begins a word behind the space's own (space.V2), and has a bit in `here` from its allocation until it is
//!     freed. A collection keeps what has a bit: it need not find what is alive.
//! L2  The memory of an object that was freed stays as its owner left it until the next [`Placed::collect`], which only
//!     the owner calls. So a caller that knows that none was called may read it.
//! L3  A collection is due at the same number of bytes allocated as in `replay` (replay.Y1), and happens when the owner calls
//!     it. Samples are those of replay.Y4, sweeping beside the program that of replay.Y5. If the owner collects whenever it is due, a
//!     program and a trace of it have the same figures, except for the word of L1 (tested).
//! L4  The client's half of that word is read before each marking: another number in it is an overlap, and a panic.
//! L5  The bits are the engine's own marks, as those in a heap's arenas are: they are in no figure.
//!
//! Not here: which objects are alive (`shims/boa_gc`), objects above [`MAX_OBJECT`].

use core::ptr::NonNull;

use super::list::Origin;
use super::memory::{PAGE_WORDS, WORD, page_of};
use super::replay::{Plan, Run, cpu_now, cpu_ns};
use super::samples::{SAMPLE, Samples};
use super::space::{Compaction, Settings};
use super::space::{MARK_WORDS, MAX_BYTES, VarSpace};
use super::strategy::Strategy;

/// Bytes of the largest object, without the word before it.
pub const MAX_OBJECT: usize = (MAX_BYTES - WORD) as usize;
/// Objects begin at multiples of this.
pub const ALIGN: usize = WORD as usize;

/// Bits of a page: two for each word.
struct Bits {
    /// The objects that are allocated (L1).
    here: [u64; MARK_WORDS],
    /// The client's marks, which collections ignore.
    marks: [u64; MARK_WORDS],
}

/// The figures of a space.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The figures of a run. Its times are those of collections and of sweeping; `mutator` and `promotion` are 0: the
    /// program has them.
    pub run: Run,
    /// Number of objects placed.
    pub objects: u64,
    /// Their bytes, rounded up to words, with the words before them.
    pub bytes: u64,
    /// The most bytes that were live at once.
    pub peak_live_bytes: u64,
}

/// Objects of a live program, placed by a strategy. Single-threaded.
pub struct Placed {
    space: VarSpace,
    /// The bits of each page.
    bits: Vec<Option<Box<Bits>>>,
    client: u32,
    plan: Plan,
    live_bytes: u64,
    since: u64,
    due_at: u64,
    due: bool,
    since_sample: u64,
    since_sweep: u64,
    /// Bytes of objects that no collection has found dead (replay.Y4).
    undead: u64,
    background_ns: u64,
    samples: Samples,
    outcome: Outcome,
}

/// Returns the client's number of an object.
///
/// # Safety
/// It comes from [`Placed::alloc`], and no collection was begun since it was freed (L2).
#[inline]
pub unsafe fn client_of(object: NonNull<u8>) -> u32 {
    // SAFETY: L1, L2.
    unsafe { object.cast::<u32>().sub(1).read() }
}

/// Returns the numbers of the bits that are set.
fn each_bit(mut bits: u64) -> impl Iterator<Item = u32> {
    core::iter::from_fn(move || {
        let bit = (bits != 0).then(|| bits.trailing_zeros())?;
        bits &= bits - 1;
        Some(bit)
    })
}

impl Placed {
    /// Creates an empty space. The plan's `compaction` is ignored: nothing moves. [`client_of`] returns `client`.
    /// `None`: the kernel refused the address space.
    pub fn new(strategy: Strategy, plan: Plan, client: u32) -> Option<Placed> {
        let settings = Settings {
            compaction: Compaction::Never,
            clock: Some(cpu_ns),
            ..plan.settings
        };
        Some(Placed {
            space: VarSpace::new(strategy, settings)?,
            bits: Vec::new(),
            client,
            plan,
            live_bytes: 0,
            since: 0,
            due_at: plan.least_bytes,
            due: false,
            since_sample: 0,
            since_sweep: 0,
            undead: 0,
            background_ns: 0,
            samples: Samples::default(),
            outcome: Outcome::default(),
        })
    }

    /// Returns the name of strategy and variant.
    pub fn strategy(&self) -> &'static str {
        self.space.strategy()
    }

    /// Returns the bytes of pages.
    pub fn committed_bytes(&self) -> usize {
        self.space.figures().committed_bytes
    }

    /// Returns room for an object of at most [`MAX_OBJECT`] bytes, or `None`: the limit is reached. Its content is what
    /// was there before. Cost: that of [`VarSpace::alloc`], and a bit.
    pub fn alloc(&mut self, bytes: usize) -> Option<NonNull<u8>> {
        if bytes > MAX_OBJECT {
            return None;
        }
        let bytes = (bytes as u32 + WORD).div_ceil(WORD).max(2) * WORD;
        let start = self.space.alloc(bytes, Origin::Runtime)?;
        let (page, index, bit) = place(self.space.word_of(start));
        if self.bits.len() <= page {
            self.bits.resize_with(page + 1, || None);
        }
        let bits = self.bits[page].get_or_insert_with(|| {
            Box::new(Bits {
                here: [0; MARK_WORDS],
                marks: [0; MARK_WORDS],
            })
        });
        bits.here[index] |= bit;
        self.account(u64::from(bytes));
        // SAFETY: the space gave two words at least; the first one's upper half is the client's (space.V2).
        unsafe {
            start.cast::<u32>().add(1).write(self.client);
            Some(start.add(ALIGN))
        }
    }

    /// Counts one more object: sweeping beside the program, samples, and whether a collection is due (L3).
    fn account(&mut self, bytes: u64) {
        self.outcome.objects += 1;
        self.outcome.bytes += bytes;
        self.live_bytes += bytes;
        self.outcome.peak_live_bytes = self.outcome.peak_live_bytes.max(self.live_bytes);
        self.undead += bytes;
        self.since += bytes;
        self.since_sample += bytes;
        self.since_sweep += bytes;
        if self.since_sweep >= self.plan.background_bytes && self.plan.background_bytes > 0 {
            self.since_sweep = 0;
            let before = self.space.sweeping_ns();
            self.space.sweep_next();
            self.background_ns += self.space.sweeping_ns() - before;
        }
        if self.since_sample >= SAMPLE {
            self.due |= self.since >= self.due_at;
            if !self.due {
                self.sample(false);
            }
        }
    }

    /// Ends an object (L2).
    ///
    /// # Safety
    /// It was allocated here, and nothing uses it as an object any more.
    ///
    /// # Panics
    /// It was freed before.
    pub unsafe fn free(&mut self, object: NonNull<u8>) {
        let word = self.word(object);
        let (page, index, bit) = place(word);
        let bits = self.bits[page].as_mut().expect("L1: an object of ours");
        assert!(bits.here[index] & bit != 0, "L1: freed twice");
        bits.here[index] &= !bit;
        bits.marks[index] &= !bit;
        // SAFETY: the word in front is the space's own: how many words it has (space.V2).
        let words = unsafe { self.space.address(word).cast::<u32>().read() };
        self.live_bytes -= u64::from(words * WORD);
    }

    /// Returns the number of the word before an object.
    fn word(&self, object: NonNull<u8>) -> u32 {
        // Its address is behind that of the space's memory by a word at least.
        self.space.word_of(object) - 1
    }

    /// Marks an object; reports whether it was not marked before. One that was freed cannot be marked.
    pub fn mark(&mut self, object: NonNull<u8>) -> bool {
        let (page, index, bit) = place(self.word(object));
        let bits = self.bits[page].as_mut().expect("L1: an object of ours");
        let is_new = bits.here[index] & !bits.marks[index] & bit != 0;
        bits.marks[index] |= bits.here[index] & bit;
        is_new
    }

    /// Reports whether an object is marked.
    pub fn is_marked(&self, object: NonNull<u8>) -> bool {
        let (page, index, bit) = place(self.word(object));
        let bits = self.bits[page].as_ref();
        bits.is_some_and(|bits| bits.marks[index] & bit != 0)
    }

    /// Removes all marks.
    pub fn clear_marks(&mut self) {
        for bits in self.bits.iter_mut().flatten() {
            bits.marks.fill(0);
        }
    }

    /// Returns the words of objects for which `choose` keeps a bit, of the allocated and the marked ones.
    fn words(&self, choose: fn(u64, u64) -> u64) -> impl Iterator<Item = u32> {
        let pages = self.bits.iter().enumerate();
        pages.flat_map(move |(page, bits)| {
            let groups = bits.iter().flat_map(move |bits| {
                let both = bits.here.iter().zip(&bits.marks).enumerate();
                both.map(move |(index, (here, marks))| (index, choose(*here, *marks)))
            });
            groups.flat_map(move |(index, bits)| {
                let start = page as u32 * PAGE_WORDS + index as u32 * 64;
                each_bit(bits).map(move |bit| start + bit)
            })
        })
    }

    /// Passes every object to `visit`, by address.
    pub fn each(&self, mut visit: impl FnMut(NonNull<u8>)) {
        self.words(|here, _| here)
            .for_each(|word| visit(self.space.address(word + 1)));
    }

    /// Passes every object that is not marked to `visit`, by address.
    pub fn each_unmarked(&self, mut visit: impl FnMut(NonNull<u8>)) {
        self.words(|here, marks| here & !marks)
            .for_each(|word| visit(self.space.address(word + 1)));
    }

    /// Reports whether a collection is due (L3).
    #[inline]
    pub fn is_due(&self) -> bool {
        self.due
    }

    fn sample(&mut self, after: bool) {
        self.since_sample = 0;
        self.samples.add(&self.space.figures(), self.undead, after);
    }

    /// Makes what was freed available again. From now on freed objects must not be read (L2).
    ///
    /// # Panics
    /// Something was written over an object's first word (L4).
    pub fn collect(&mut self) {
        self.sample(false);
        let start = cpu_now();
        self.space.begin();
        let finished = cpu_now() - start;
        let words: Vec<u32> = self.words(|here, _| here).collect();
        for word in words {
            // SAFETY: L1: an object's word, whose upper half is the client's.
            let client = unsafe { self.space.address(word).cast::<u32>().add(1).read() };
            assert_eq!(client, self.client, "L4: an object was overwritten");
            self.space.mark(word);
        }
        let start = cpu_now();
        let live = self.space.end(self.since as usize, &mut |from, to| {
            unreachable_move(from, to);
        });
        let ended = cpu_now() - start;
        debug_assert_eq!(live as u64, self.live_bytes);
        let run = &mut self.outcome.run;
        run.finishing += finished;
        run.ending += ended;
        run.latency_max = run.latency_max.max(finished + ended);
        run.collections += 1;
        if self.plan.check {
            self.space.check();
            self.space.check_marked();
        }
        self.undead = live as u64;
        (self.since, self.due) = (0, false);
        let grown = (live as f64 * (self.plan.growth - 1.0)) as u64;
        self.due_at = grown.max(self.plan.least_bytes);
        self.sample(true);
    }

    /// Collects a last time, sweeps everything, and returns the figures so far. The space can still be used.
    pub fn finish(&mut self) -> Outcome {
        self.collect();
        self.space.finish_sweep();
        let (figures, sizes) = (self.space.figures(), self.samples.sizes());
        let mut outcome = self.outcome.clone();
        outcome.run = Run {
            background: std::time::Duration::from_nanos(self.background_ns),
            sweeping: std::time::Duration::from_nanos(figures.sweeping_ns_total),
            committed: sizes.committed,
            with_tables: sizes.with_tables,
            resident: sizes.resident,
            needed: sizes.needed,
            wasted: sizes.wasted,
            figures,
            ..outcome.run
        };
        outcome
    }
}

#[cold]
fn unreachable_move(from: u32, to: u32) {
    panic!("an object at word {from} was moved to {to}, in a space whose objects do not move")
}

/// Returns the page, the word of bits and the bit of a word.
#[inline]
fn place(word: u32) -> (usize, usize, u64) {
    let at = word % PAGE_WORDS;
    (page_of(word) as usize, at as usize / 64, 1 << (at % 64))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use skinflint_objects::synthetic::Shape;
    use skinflint_objects::{Event, Law, Synthetic};

    use super::super::replay::{Script, Step, run};
    use super::*;

    fn plan() -> Plan {
        Plan {
            check: true,
            // A collection at every sample, nearly.
            growth: 1.25,
            least_bytes: 128 << 10,
            settings: Settings {
                limit_bytes: 256 << 20,
                ..Settings::default()
            },
            ..Plan::default()
        }
    }

    const CLIENT: u32 = 77;

    /// Runs a trace on a live space, each object written whole and read again when it dies.
    fn live(strategy: Strategy, steps: &[Step]) -> Outcome {
        let mut placed = Placed::new(strategy, plan(), CLIENT).expect("address space");
        let mut at: HashMap<u64, (NonNull<u8>, usize)> = HashMap::new();
        for step in steps {
            match *step {
                Step::Alloc { id, bytes, .. } => {
                    let bytes = bytes as usize;
                    let object = placed.alloc(bytes).expect("room");
                    // SAFETY: it has so many bytes.
                    unsafe { object.as_ptr().write_bytes(id as u8, bytes) };
                    at.insert(id, (object, bytes));
                }
                Step::Death { id } => {
                    let Some((object, bytes)) = at.remove(&id) else {
                        continue;
                    };
                    // SAFETY: it was written, and is freed once.
                    unsafe {
                        let read = core::slice::from_raw_parts(object.as_ptr(), bytes);
                        assert!(read.iter().all(|byte| *byte == id as u8), "{id} was kept");
                        assert_eq!(client_of(object), CLIENT);
                        placed.free(object);
                        assert_eq!(client_of(object), CLIENT, "L2");
                    }
                }
            }
            if placed.is_due() {
                placed.collect();
            }
        }
        let mut objects = 0;
        placed.each(|object| {
            objects += 1;
            assert!(at.values().any(|(other, _)| *other == object) || objects > 100);
        });
        assert_eq!(objects, at.len(), "L1");
        placed.finish()
    }

    fn steps(most: usize) -> Vec<Step> {
        Synthetic::new(Law::new(Shape::Steady, 3))
            .filter_map(|event| match event {
                // Sizes as the law has them, the word in front included; all of the runtime.
                Event::Alloc { id, bytes, .. } => Some(Step::Alloc {
                    id,
                    bytes: bytes.max(16),
                    origin: Origin::Runtime,
                }),
                Event::Death { id } => Some(Step::Death { id }),
                Event::Collection => None,
            })
            .filter(
                |step| !matches!(step, Step::Alloc { bytes, .. } if *bytes as usize > MAX_OBJECT),
            )
            .take(most)
            .collect()
    }

    #[test]
    fn a_program_and_its_trace_have_the_same_figures_under_every_strategy() {
        let steps = steps(12_000);
        let with_word = steps.iter().map(|step| match *step {
            Step::Alloc { id, bytes, origin } => Step::Alloc {
                id,
                bytes: bytes.div_ceil(8) * 8 + 8,
                origin,
            },
            death => death,
        });
        let script = Script::new(with_word, u64::MAX);
        for strategy in Strategy::all()
            .iter()
            .filter(|s| s.studied || s.name == "tight")
        {
            let outcome = live(*strategy, &steps);
            let replayed = run(&script, *strategy, plan()).expect("it fits");
            let name = strategy.name;
            assert_eq!(outcome.objects, script.objects, "{name}");
            assert_eq!(outcome.bytes, script.bytes, "{name}");
            assert_eq!(outcome.peak_live_bytes, script.peak_live_bytes, "{name}");
            let figures = |run: &Run| {
                let mut figures = run.figures;
                figures.sweeping_ns_total = 0;
                (
                    [
                        run.committed,
                        run.with_tables,
                        run.resident,
                        run.needed,
                        run.wasted,
                    ],
                    run.collections,
                    figures,
                )
            };
            assert_eq!(figures(&outcome.run), figures(&replayed), "{name}");
            assert!(
                outcome.run.collections > 3,
                "{name}: it must collect to tell anything"
            );
        }
    }

    #[test]
    fn marks_are_of_objects_that_are_there_and_go_with_them() {
        let many = Strategy::by_name("many").expect("a strategy");
        let mut placed = Placed::new(many, plan(), CLIENT).expect("address space");
        let objects: Vec<_> = (0..10).map(|_| placed.alloc(100).expect("room")).collect();
        assert!(placed.mark(objects[3]) && !placed.mark(objects[3]));
        let mut unmarked = Vec::new();
        placed.each_unmarked(|object| unmarked.push(object));
        assert_eq!(unmarked.len(), 9);
        assert!(!unmarked.contains(&objects[3]) && placed.is_marked(objects[3]));
        // SAFETY: it is freed once.
        unsafe { placed.free(objects[3]) };
        assert!(!placed.is_marked(objects[3]) && !placed.mark(objects[3]));
        placed.mark(objects[4]);
        placed.clear_marks();
        assert!(!placed.is_marked(objects[4]));
        placed.collect();
        assert!(placed.alloc(MAX_OBJECT).is_some() && placed.alloc(MAX_OBJECT + 1).is_none());
    }

    #[test]
    fn at_the_limit_there_is_no_room_until_something_ends() {
        let tight = Strategy::by_name("tight").expect("a strategy");
        let mut limited = plan();
        limited.settings.limit_bytes = 1 << 20;
        let mut placed = Placed::new(tight, limited, CLIENT).expect("address space");
        let mut objects = Vec::new();
        while let Some(object) = placed.alloc(1000) {
            objects.push(object);
            assert!(objects.len() < 2000, "there is a limit");
        }
        for object in objects.drain(..500) {
            // SAFETY: each is freed once.
            unsafe { placed.free(object) };
        }
        assert!(placed.alloc(1000).is_none(), "L2: only a collection frees");
        placed.collect();
        assert!(placed.alloc(1000).is_some());
    }
}
