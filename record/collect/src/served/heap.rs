//! What a served profile has counted, as samples that came and went.
//!
//! ```text
//!   bytes in use / (bytes of a block) × p(size) ─► so many samples live      all less those ─► so many went
//! ```
//!
//! H1  A profile is scaled: x bytes in use stand for x · p samples' bytes, p = 1 − exp(−size / period). Taken back so, the
//!     estimates of the trace are the profile's own, but for what rounding to whole samples does.
//! H2  Of a profile that has what lives alone, what came is what it grew by.
//! H3  Frames are what they are called, with file and line: addresses may mean another place in the next profile.
//!
//! Not here: what a profile is (profile.rs).

use rustc_hash::FxHashMap;

use super::Profile;
use super::profile::{Figures, Sample};
use crate::counted::{Addresses, Counted, Counts, changes};
use crate::go::{Batch, GoFrame};

/// The heap of a program that serves its profile.
#[derive(Default)]
pub(crate) struct ServedHeap {
    stacks: FxHashMap<Vec<GoFrame>, u32>,
    known: FxHashMap<(u32, u64), usize>,
    counted: Vec<Counted>,
    addresses: Addresses,
    newest_ticket: u64,
}

impl ServedHeap {
    /// Takes a profile; returns what has changed since the last.
    pub(crate) fn take(&mut self, profile: &Profile, time_ns: u64) -> Batch {
        let mut batch = Batch {
            first_ticket: self.newest_ticket + 1,
            time_ns,
            ..Batch::default()
        };
        // Of a stack that is not there any more nothing lives.
        let mut now = vec![(0, None); self.counted.len()];
        for sample in &profile.samples {
            let size = size_of(sample);
            if size == 0 {
                continue;
            }
            let stack = self.stack(profile.frames(&sample.stack), &mut batch.stacks);
            let next = self.counted.len();
            let at = *self.known.entry((stack, size)).or_insert(next);
            if at == next {
                self.counted.push(Counted::new(stack, size));
                now.push((0, None));
            }
            let (live, all) = samples_of(&sample.figures, size, profile.period);
            if let Some(to) = now.get_mut(at) {
                to.0 += live;
                to.1 = all.map(|all| to.1.unwrap_or(0) + all);
            }
        }
        let counts: Vec<Counts> = self
            .counted
            .iter()
            .zip(&now)
            .map(|(counted, now)| counts_of(counted.counts(), *now))
            .collect();
        changes(
            &mut self.counted,
            &counts,
            |_| &[],
            &mut self.addresses,
            &mut batch.changes,
        );
        self.newest_ticket += batch.changes.len() as u64;
        batch
    }

    /// Returns the newest ticket that was given out.
    pub(crate) fn newest_ticket(&self) -> u64 {
        self.newest_ticket
    }

    fn stack(&mut self, frames: Vec<GoFrame>, fresh: &mut Vec<Vec<GoFrame>>) -> u32 {
        let next = self.stacks.len() as u32;
        *self.stacks.entry(frames).or_insert_with_key(|frames| {
            fresh.push(frames.clone());
            next
        })
    }
}

/// Returns what was counted until now, by what was counted before and by what lives and was made.
fn counts_of(before: Counts, (live, all): (u64, Option<u64>)) -> Counts {
    let lived = before.allocated - before.freed;
    // Rounding apart, or a profile of another moment: no count is taken back.
    let allocated = all
        .unwrap_or(0)
        .max(before.allocated + live.saturating_sub(lived));
    Counts {
        allocated,
        freed: before.freed.max(allocated - live),
    }
}

/// Returns the bytes of a block of a sample.
fn size_of(sample: &Sample) -> u64 {
    let of = |blocks: u64, bytes: u64| bytes.checked_div(blocks);
    let Figures {
        live_blocks,
        live_bytes,
        all,
    } = sample.figures;
    sample
        .block_bytes
        .or_else(|| of(live_blocks, live_bytes))
        .or_else(|| all.and_then(|(blocks, bytes)| of(blocks, bytes)))
        .unwrap_or(0)
}

/// Returns how many samples live and were taken, rounded (H1).
fn samples_of(figures: &Figures, size: u64, period: u64) -> (u64, Option<u64>) {
    let share = match period {
        1 => 1.0,
        period => -(-(size as f64) / period as f64).exp_m1(),
    };
    let samples = |bytes: u64| (bytes as f64 / size as f64 * share).round() as u64;
    let live = samples(figures.live_bytes);
    (live, figures.all.map(|(_, bytes)| samples(bytes).max(live)))
}

#[cfg(test)]
#[path = "heap_tests.rs"]
mod tests;
