//! The ages of pinning blocks by stack, for exact medians.
//!
//! ```text
//!   pins of site 3 | pins of site 7 | …      one word each: acquisitions since 32 | age 32
//!   └ offsets[rank of 3] …
//! ```
//!
//! Y1  A slice has as many ages as its site has pinning blocks.
//! Y2  Order is by acquisitions since, which is the order of events; the time is that of the same block.
//! Y3  An age is the bits of an `f32`, in microseconds: exact below 16.7 s, to 1 part in 16 million
//!     above. Bits of numbers that are not negative are ordered as the numbers are.
//! Y4  Ages run to the time at which pages were read, not to the event before it: a program that rests has no events, and
//!     its blocks grow older.
//!
//! Not here: which blocks pin (`sweep.rs`).

use super::sweep::Bits;
use super::tally::Tally;
use crate::ledger::Ledger;
use crate::model::PinAge;

/// Ages of pinning blocks, by site.
#[derive(Clone, Debug, Default)]
pub(super) struct Ages {
    /// By site: where its ages begin and end; an empty range for sites that were not wanted.
    slices: Vec<(u32, u32)>,
    words: Vec<u64>,
}

impl Ages {
    /// Collects the ages of the wanted sites. Cost: one look at every live block, in the order in which they are
    /// stored.
    pub fn of(
        wanted: &[u32],
        tallies: &[Tally],
        pins: &Bits,
        (ledger, read_ns): (&Ledger, u64),
    ) -> Ages {
        let mut slices = vec![(0u32, 0u32); tallies.len()];
        let mut total = 0u32;
        let mut left = vec![0u32; tallies.len()];
        for &site in wanted {
            // The number of live blocks fits into 32 bits: so do their slots.
            let blocks = tallies[site as usize].blocks as u32;
            slices[site as usize] = (total, total);
            left[site as usize] = blocks;
            total = total.saturating_add(blocks);
        }
        let mut words = vec![0u64; total as usize];
        let (now_ns, now) = (
            read_ns.max(ledger.now_ns()),
            ledger.counts().allocations as u32,
        );
        for (slot, block) in ledger.live_at() {
            if !pins.contains(slot) {
                continue;
            }
            let site = ledger.cells().site_of(block.cell);
            if left[site] == 0 {
                continue;
            }
            left[site] -= 1;
            let since = now.wrapping_sub(block.serial);
            let end = &mut slices[site].1;
            let age_us = (block.age_ns(now_ns) / 1000) as f32;
            words[*end as usize] = u64::from(since) << 32 | u64::from(age_us.to_bits());
            *end += 1;
        }
        Ages { slices, words }
    }

    /// Returns the median and oldest age of these sites together; `None` if none of their blocks pins.
    pub fn of_sites(&self, sites: &[u32]) -> Option<PinAge> {
        let slice = |&site: &u32| {
            let (from, to) = self.slices.get(site as usize).copied().unwrap_or_default();
            self.words
                .get(from as usize..to as usize)
                .unwrap_or_default()
        };
        let mut words: Vec<u64> = sites.iter().flat_map(slice).copied().collect();
        let oldest = words.iter().copied().max()?;
        let middle = words.len() / 2;
        let (_, &mut median, _) = words.select_nth_unstable(middle);
        let age_ns = |word: u64| (f32::from_bits(word as u32) as u64).saturating_mul(1000);
        Some(PinAge {
            median_ns: age_ns(median),
            oldest_ns: age_ns(oldest),
            median_acquisitions: median >> 32,
            oldest_acquisitions: oldest >> 32,
        })
    }
}
