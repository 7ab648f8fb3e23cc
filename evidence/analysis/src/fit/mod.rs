//! The content of a fit profile: learned from the acts of one or more traces, in two passes.
//!
//! ```text
//!   acts ─► Survey   most live blocks of each multiple of 16   ─► earned classes
//!   acts ─► Trial    the same acts under the new classes       ─► span lengths, slop before and after
//!             └─► Spare (spare.rs)   falls that are filled again ─► retained spare
//! ```
//!
//! F1  Memory is a few tables of 2,049 entries, whatever the traces hold.
//! F2  A size is earned by what its blocks save at the moment when most of them live, and only if
//!     that is more than [`WORTH_BYTES`]; with several traces the largest figure counts.
//! F3  There are two passes, because the class of a block depends on what is earned, which is known
//!     only at the end. So every figure of [`Trial`] is exact, to the byte, for what was recorded.
//! F4  Blocks above 32 KiB are rounded to pages before and after; they are in the sums and earn nothing.
//!
//! Source: fitting classes to a program comes from CustoMalloc (Grunwald and Zorn, 1993). Not here:
//! the file (`skinflint_sizes::fit`), alignment requests (they count as plain ones).

pub mod spare;

use skinflint_sizes::fit::EARNED_MAX;
use skinflint_sizes::spans::{
    SMALL_MAX, WORTH_BYTES, base_class, is_base_class, pages_for, saved_by_earning,
};

use crate::pass::{Act, Context};
use spare::Spare;

/// The number of multiples of 16 up to 32 KiB, and 0.
const STEPS: usize = SMALL_MAX as usize / 16 + 1;

/// Returns what an act did to the live blocks: the size that went, the size that came.
fn change(context: &Context<'_>, act: &Act) -> (Option<u64>, Option<u64>) {
    match act {
        Act::Acquire { .. } => (None, Some(context.key.size)),
        Act::Release { .. } => (Some(context.key.size), None),
        Act::Regrow { old, .. } => (Some(context.cell(old.cell).size), Some(context.key.size)),
        Act::Mark { .. } => (None, None),
    }
}

/// Returns the multiple of 16 that a small request is rounded to, in sixteenths; `None` for a large one.
fn step(size: u64) -> Option<usize> {
    (size <= u64::from(SMALL_MAX)).then(|| size.max(1).div_ceil(16) as usize)
}

/// A class that is worth having.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Earned {
    /// Its size in bytes.
    pub size: u16,
    /// The class that its blocks had before.
    pub base: u16,
    /// The most blocks of this multiple of 16 that lived at once.
    pub most_live_blocks: u64,
    /// The bytes of memory that they save at that moment. Smaller blocks that come to use the class
    /// save more.
    pub saved_bytes: u64,
}

/// The first pass: which sizes live in large numbers.
#[derive(Clone, Debug)]
pub struct Survey {
    live: Vec<u64>,
    most: Vec<u64>,
}

impl Default for Survey {
    fn default() -> Survey {
        Survey {
            live: vec![0; STEPS],
            most: vec![0; STEPS],
        }
    }
}

impl Survey {
    /// Begins a new trace: nothing lives.
    pub fn begin_trace(&mut self) {
        self.live.fill(0);
    }

    /// Takes an act, in order. Cost: two tables of 16 KiB.
    pub fn act(&mut self, context: &Context<'_>, act: &Act) {
        let (went, came) = change(context, act);
        if let Some(step) = went.and_then(step) {
            self.live[step] = self.live[step].saturating_sub(1);
        }
        if let Some(step) = came.and_then(step) {
            self.live[step] += 1;
            self.most[step] = self.most[step].max(self.live[step]);
        }
    }

    /// Returns what is earned (F2), by size: at most [`EARNED_MAX`] classes, those that save most.
    pub fn earned(&self) -> Vec<Earned> {
        let earned = |(step, most): (usize, &u64)| {
            let size = step as u32 * 16;
            let saved_bytes = saved_by_earning(size, *most);
            (saved_bytes > WORTH_BYTES && !is_base_class(size)).then_some(Earned {
                size: size as u16,
                base: base_class(u64::from(size)) as u16,
                most_live_blocks: *most,
                saved_bytes,
            })
        };
        let mut all: Vec<Earned> = self.most.iter().enumerate().filter_map(earned).collect();
        all.sort_by_key(|one| (std::cmp::Reverse(one.saved_bytes), one.size));
        all.truncate(EARNED_MAX);
        all.sort_by_key(|one| one.size);
        all
    }
}

/// Live bytes, requested and given.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Slop {
    /// Requested bytes.
    pub requested_bytes: u64,
    /// Bytes beyond these that the base classes give.
    pub slop_before_bytes: u64,
    /// Bytes beyond these that are given with the earned classes.
    pub slop_after_bytes: u64,
}

/// The figures of a trace under the new classes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Blocks acquired, including reallocs.
    pub acquisitions: u64,
    /// Figures at the moment with the most bytes given by the base classes, the first of several.
    pub at_peak: Slop,
    /// Mean figures over all acts, each of which counts once.
    pub on_average: Slop,
    /// Freed bytes that are soon wanted again: see [`Spare`].
    pub spare_bytes: u64,
}

/// The length that the spans of a class should have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// The class in bytes.
    pub class: u16,
    /// The number of pages of a span.
    pub pages: u8,
    /// The most bytes of the class that lived at once, in any of the traces.
    pub most_live_bytes: u64,
}

/// Live bytes and their sums over acts.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    requested: u64,
    before: u64,
    after: u64,
    acts: u64,
    requested_sum: u128,
    before_sum: u128,
    after_sum: u128,
    peak: (u64, Slop),
    acquisitions: u64,
}

impl Sums {
    fn slop(&self) -> Slop {
        Slop {
            requested_bytes: self.requested,
            slop_before_bytes: self.before.saturating_sub(self.requested),
            slop_after_bytes: self.after.saturating_sub(self.requested),
        }
    }

    fn look(&mut self) {
        self.acts += 1;
        self.requested_sum += u128::from(self.requested);
        self.before_sum += u128::from(self.before);
        self.after_sum += u128::from(self.after);
        if self.before > self.peak.0 {
            self.peak = (self.before, self.slop());
        }
    }

    fn average(&self) -> Slop {
        let acts = u128::from(self.acts.max(1));
        let mean = |sum: u128| u64::try_from(sum / acts).unwrap_or(u64::MAX);
        // Each sum is rounded once: differences of rounded means would be off by one.
        Slop {
            requested_bytes: mean(self.requested_sum),
            slop_before_bytes: mean(self.before_sum.saturating_sub(self.requested_sum)),
            slop_after_bytes: mean(self.after_sum.saturating_sub(self.requested_sum)),
        }
    }
}

/// The second pass: the same acts, under the classes that were earned.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The class in bytes, by step.
    class_of: Vec<u16>,
    earned: Vec<u16>,
    /// Live blocks by class, in sixteenths.
    live: Vec<u64>,
    most: Vec<u64>,
    sums: Sums,
    spare: Spare,
}

impl Trial {
    /// Creates a trial with these earned classes, which must ascend.
    pub fn new(earned: &[u16]) -> Trial {
        let class = |step: usize| {
            let size = (step.max(1) * 16) as u64;
            let above = earned.partition_point(|one| u64::from(*one) < size);
            let own = earned.get(above).map_or(u64::MAX, |one| u64::from(*one));
            base_class(size).min(own) as u16
        };
        Trial {
            class_of: (0..STEPS).map(class).collect(),
            earned: earned.to_vec(),
            live: vec![0; STEPS],
            most: vec![0; STEPS],
            sums: Sums::default(),
            spare: Spare::default(),
        }
    }

    /// Returns what a request is given.
    pub fn usable(&self, size: u64) -> u64 {
        step(size).map_or_else(|| base_class(size), |step| u64::from(self.class_of[step]))
    }

    /// Begins a new trace: nothing lives.
    pub fn begin_trace(&mut self) {
        self.live.fill(0);
        self.sums = Sums::default();
        self.spare = Spare::default();
    }

    /// Takes an act, in order. Cost: four tables of 16 KiB, a few sums.
    pub fn act(&mut self, context: &Context<'_>, act: &Act) {
        let (went, came) = change(context, act);
        if (went, came) == (None, None) {
            return;
        }
        if let Some(size) = went {
            let usable = self.usable(size);
            self.sums.requested = self.sums.requested.saturating_sub(size);
            self.sums.before = self.sums.before.saturating_sub(base_class(size));
            self.sums.after = self.sums.after.saturating_sub(usable);
            if let Some(step) = step(size) {
                let class = usize::from(self.class_of[step]) / 16;
                self.live[class] = self.live[class].saturating_sub(1);
            }
        }
        if let Some(size) = came {
            let usable = self.usable(size);
            self.sums.acquisitions += 1;
            self.sums.requested = self.sums.requested.saturating_add(size);
            self.sums.before = self.sums.before.saturating_add(base_class(size));
            self.sums.after = self.sums.after.saturating_add(usable);
            if let Some(step) = step(size) {
                let class = usize::from(self.class_of[step]) / 16;
                self.live[class] += 1;
                self.most[class] = self.most[class].max(self.live[class]);
            }
        }
        self.sums.look();
        self.spare.level(context.time_ns, self.sums.after);
    }

    /// Ends the trace, and returns its figures.
    pub fn end_trace(&mut self) -> Outcome {
        Outcome {
            acquisitions: self.sums.acquisitions,
            at_peak: self.sums.peak.1,
            on_average: self.sums.average(),
            spare_bytes: std::mem::take(&mut self.spare).finish(),
        }
    }

    /// Returns a span length for each class that was used, by class.
    pub fn spans(&self) -> Vec<Span> {
        let span = |(index, most): (usize, &u64)| {
            let class = index as u32 * 16;
            let most_live_bytes = most.saturating_mul(u64::from(class));
            let earned = self.earned.binary_search(&(class as u16)).is_ok();
            Span {
                class: class as u16,
                pages: pages_for(class, most_live_bytes, earned) as u8,
                most_live_bytes,
            }
        };
        let used = self.most.iter().enumerate().filter(|(_, most)| **most > 0);
        used.map(span).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Ledger;
    use skinflint_trace::{AllocFn, Event, EventKind, FreeFn, NodeId, ThreadId};

    /// Events by hand: blocks are numbers, and addresses are made of them.
    #[derive(Default)]
    struct Script(Vec<Event>);

    impl Script {
        fn push(&mut self, time_ns: u64, kind: EventKind) {
            let ticket = self.0.len() as u64;
            self.0.push(Event {
                ticket,
                time_ns,
                thread: ThreadId(0),
                kind,
            });
        }

        fn acquire(&mut self, blocks: std::ops::Range<u64>, size: u64) {
            for block in blocks {
                let addr = 0x10_0000 + block * 0x1_0000;
                let (func, node, usable) = (AllocFn::Malloc, NodeId(1), size);
                self.push(
                    0,
                    EventKind::Alloc {
                        func,
                        node,
                        addr,
                        size,
                        usable,
                    },
                );
            }
        }

        fn release(&mut self, blocks: std::ops::Range<u64>) {
            for block in blocks {
                let addr = 0x10_0000 + block * 0x1_0000;
                self.push(
                    0,
                    EventKind::Free {
                        func: FreeFn::Free,
                        addr,
                    },
                );
            }
        }

        fn regrow(&mut self, block: u64, size: u64) {
            let addr = 0x10_0000 + block * 0x1_0000;
            self.push(0, EventKind::ReallocRelease { addr });
            self.push(
                0,
                EventKind::ReallocAcquire {
                    node: NodeId(1),
                    addr,
                    size,
                    usable: size,
                },
            );
        }

        fn each(&self, mut act: impl FnMut(&Context<'_>, &Act)) {
            let mut ledger = Ledger::new(16);
            self.0
                .iter()
                .for_each(|event| ledger.apply(event, &mut act));
        }
    }

    fn learn(scripts: &[Script]) -> (Vec<Earned>, Trial, Vec<Outcome>) {
        let mut survey = Survey::default();
        for script in scripts {
            survey.begin_trace();
            script.each(|context, act| survey.act(context, act));
        }
        let earned = survey.earned();
        let sizes: Vec<u16> = earned.iter().map(|one| one.size).collect();
        let mut trial = Trial::new(&sizes);
        let mut outcomes = Vec::new();
        for script in scripts {
            trial.begin_trace();
            script.each(|context, act| trial.act(context, act));
            outcomes.push(trial.end_trace());
        }
        (earned, trial, outcomes)
    }

    #[test]
    fn a_buffer_of_4368_bytes_earns_its_class() {
        let mut script = Script::default();
        script.acquire(0..300, 4360);
        let (earned, trial, outcomes) = learn(&[script]);
        // 15 blocks of 4,368 share 16 pages: 4,369.07 each, and 4,608 before: 71,680 saved.
        let wanted = Earned {
            size: 4368,
            base: 4608,
            most_live_blocks: 300,
            saved_bytes: 71_680,
        };
        assert_eq!(earned, [wanted]);
        assert_eq!(
            (trial.usable(4352), trial.usable(4353), trial.usable(4369)),
            (4368, 4368, 4608)
        );
        assert_eq!((trial.usable(4096), trial.usable(40_000)), (4096, 40_960));
        let peak = Slop {
            requested_bytes: 300 * 4360,
            slop_before_bytes: 300 * 248,
            slop_after_bytes: 300 * 8,
        };
        assert_eq!(outcomes[0].at_peak, peak);
        // 1 + 2 + … + 300 blocks over 300 acts are 150.5 blocks.
        let average = Slop {
            requested_bytes: 4360 * 301 / 2,
            slop_before_bytes: 248 * 301 / 2,
            slop_after_bytes: 8 * 301 / 2,
        };
        assert_eq!(
            (outcomes[0].on_average, outcomes[0].acquisitions),
            (average, 300)
        );
        let span = Span {
            class: 4368,
            pages: 13,
            most_live_bytes: 300 * 4368,
        };
        assert_eq!(trial.spans(), [span]);
    }

    #[test]
    fn what_is_too_little_or_saves_nothing_is_not_earned() {
        let mut script = Script::default();
        // 238.9 bytes saved by each: 137 blocks save 32,733, 138 would save 32,972 and be enough.
        script.acquire(0..137, 4368);
        // A class already; one that the tails eat; a large one.
        script.acquire(1000..3000, 288);
        script.acquire(3000..3300, 30_000);
        script.acquire(4000..4100, 33_000);
        assert_eq!(learn(&[script]).0, []);
        let mut script = Script::default();
        script.acquire(0..138, 4368);
        assert_eq!(learn(&[script]).0.len(), 1);
    }

    #[test]
    fn the_most_that_lived_at_once_counts_and_not_what_passed() {
        let mut script = Script::default();
        for _ in 0..10 {
            script.acquire(0..100, 4368);
            script.release(0..100);
        }
        assert_eq!(learn(&[script]).0, []);
        // Gone before the peak of the heap, and earned all the same.
        let mut script = Script::default();
        script.acquire(0..300, 4368);
        script.release(0..300);
        script.acquire(0..3000, 512);
        let (earned, trial, outcomes) = learn(&[script]);
        assert_eq!(earned.len(), 1);
        assert_eq!(outcomes[0].at_peak.requested_bytes, 3000 * 512);
        assert_eq!(trial.spans().len(), 2);
    }

    #[test]
    fn a_realloc_moves_a_block_from_one_size_to_another() {
        let mut script = Script::default();
        script.acquire(0..200, 4368);
        (0..200).for_each(|block| script.regrow(block, 600));
        // At no time are there more than 200 of 4,368; 350 is what comes of old sizes that stay.
        script.acquire(200..350, 4368);
        (0..50).for_each(|block| script.regrow(block, 4368));
        let (earned, _, outcomes) = learn(&[script]);
        assert_eq!((earned.len(), earned[0].most_live_blocks), (1, 200));
        assert_eq!(outcomes[0].acquisitions, 200 + 200 + 150 + 50);
        let (at_peak, all) = (outcomes[0].at_peak.requested_bytes, 200 * 4368 + 150 * 600);
        assert_eq!(at_peak, all);
    }

    #[test]
    fn of_equal_peaks_the_first_is_told() {
        let mut script = Script::default();
        script.acquire(0..10, 4368);
        script.release(0..10);
        script.acquire(0..10, 4600);
        let (_, _, outcomes) = learn(&[script]);
        assert_eq!(outcomes[0].at_peak.requested_bytes, 43_680);
    }

    #[test]
    fn of_several_traces_the_largest_counts_and_they_do_not_add_up() {
        let script = |blocks| {
            let mut script = Script::default();
            script.acquire(0..blocks, 4368);
            script
        };
        assert_eq!(learn(&[script(100), script(100)]).0, []);
        let (earned, trial, outcomes) = learn(&[script(150), script(400), script(1)]);
        assert_eq!(earned[0].most_live_blocks, 400);
        assert_eq!(trial.spans()[0].most_live_bytes, 400 * 4368);
        let peaks = outcomes.iter().map(|one| one.at_peak.requested_bytes);
        assert_eq!(peaks.collect::<Vec<_>>(), [150 * 4368, 400 * 4368, 4368]);
    }

    #[test]
    fn of_too_many_those_that_save_most_are_taken() {
        // As if so many blocks had lived: more of the larger sizes.
        let mut survey = Survey::default();
        for step in 17..STEPS {
            survey.most[step] = 10_000 + step as u64;
        }
        let earned = survey.earned();
        assert_eq!(earned.len(), EARNED_MAX);
        assert!(earned.is_sorted_by_key(|one| one.size));
        let least = earned.iter().map(|one| one.saved_bytes).min();
        let mut left = 0;
        for step in 17..STEPS {
            let size = step as u32 * 16;
            let saved = saved_by_earning(size, 10_000 + step as u64);
            let taken = earned.iter().any(|one| u32::from(one.size) == size);
            assert!(taken || Some(saved) <= least, "{size} saves {saved}");
            left += u64::from(!taken && saved > WORTH_BYTES);
        }
        assert!(left > 100, "only {left} were left out");
    }

    #[test]
    fn every_request_is_given_the_least_class_that_holds_it() {
        let earned = [272, 4368, 32_752];
        let trial = Trial::new(&earned);
        for size in 0..=70_000u64 {
            let mut classes: Vec<u64> = earned.iter().map(|one| u64::from(*one)).collect();
            classes.push(base_class(size));
            let least = classes.into_iter().filter(|class| *class >= size).min();
            let large = size > u64::from(SMALL_MAX);
            let wanted = if large { Some(base_class(size)) } else { least };
            assert_eq!(Some(trial.usable(size)), wanted, "{size}");
        }
    }
}
