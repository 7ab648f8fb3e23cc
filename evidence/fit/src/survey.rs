//! The first pass: which multiples of 16 earn a class of their own.
//!
//! ```text
//!   acts ─► live and most blocks of each multiple of 16 ─► what a class of its own would save ─► Earned
//! ```
//!
//! Not here: what the classes do to the same acts (`trial.rs`).

use skinflint_analysis::pass::{Act, Context};
use skinflint_sizes::fit::EARNED_MAX;
use skinflint_sizes::spans::{WORTH_BYTES, base_class, is_base_class, saved_by_earning};

use crate::steps::{STEPS, change, step};

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
    pub(crate) most: Vec<u64>,
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

    /// Returns what is earned (fit.F2), by size: at most [`EARNED_MAX`] classes, those that save most.
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
