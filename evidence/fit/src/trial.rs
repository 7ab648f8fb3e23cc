//! The second pass: the same acts under the classes that were earned.
//!
//! ```text
//!   acts ─► class of each block ─► live bytes by class ─► span lengths
//!                              └─► sums before and after ─► slop at the peak, on average; Spare
//! ```
//!
//! Not here: which classes are earned (`survey.rs`).

use skinflint_analysis::pass::{Act, Context};
use skinflint_sizes::spans::{base_class, pages_for};

use crate::spare::Spare;
use crate::steps::{STEPS, change, step};

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
