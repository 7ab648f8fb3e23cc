//! Both passes over events by hand: what is earned, what is given, which figures are of which moment.

use skinflint_analysis::ledger::Ledger;
use skinflint_analysis::pass::{Act, Context};
use skinflint_sizes::fit::EARNED_MAX;
use skinflint_sizes::spans::{SMALL_MAX, WORTH_BYTES, base_class, saved_by_earning};
use skinflint_trace::{AllocFn, Event, EventKind, FreeFn, NodeId, ThreadId};

use crate::steps::STEPS;
use crate::{Earned, Outcome, Slop, Span, Survey, Trial};

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
