//! Statistics of a cache: its contents, and its use.
//!
//! ```text
//!   hits × what each cost to make = saved        saved against made: is it worth its bytes?
//! ```
//!
//! V1  A cache that was asked [`PLACEBO_LOOKUPS`] times and hit less than once in [`PLACEBO_MISSES`] is a
//!     [`Verdict::Placebo`], unless its few hits saved as large a part of the time that making took: it costs memory
//!     and saves next to nothing. Fewer lookups prove nothing, and the verdict says that.
//! V2  One that was asked [`ASKED_EACH`] times for each of its entries, and saved less time than the kernel takes to give a
//!     program the pages that it holds ([`PAGE_NS`] each), is a placebo as well, however often it hits: made anew each time,
//!     its values would cost less than their memory. Where no time of making is known (`insert`), this says nothing.
//! V3  Times are wall time of making, on the machine that ran: an entry's own, not an average.
//!
//! Not here: counting (`mod`).

use core::fmt;

/// Number of lookups from which on a cache without a hit is called a placebo.
pub const PLACEBO_LOOKUPS: u64 = 64;
/// Less than one hit in this many lookups, or less than this part of the time of making saved, is next to nothing.
pub const PLACEBO_MISSES: u64 = 100;

/// Number of lookups for each entry from which on a cache is judged by the time that it saved (V2).
pub const ASKED_EACH: u64 = 8;
/// Nanoseconds that a page of memory costs: a first touch of 4 KiB took 1.4 µs (2026-11-22).
pub const PAGE_NS: u64 = 1_400;
const PAGE_BYTES: u64 = 4096;

/// Figures of a cache. Counts are since it was made, bytes are now.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// The cache's name.
    pub name: String,
    /// Entries now.
    pub entries: usize,
    /// Bytes of keys and values.
    pub bytes: usize,
    /// Bytes of its tables.
    pub own_bytes: usize,
    /// The most bytes that it may ever have.
    pub limit_bytes: usize,
    /// The most bytes that it may have now.
    pub allowed_bytes: usize,
    /// Lookups that found something.
    pub hits: u64,
    /// Lookups that did not.
    pub misses: u64,
    /// Misses that got the value from another thread that was making it just then (store.X6).
    pub joined: u64,
    /// Entries that came (store.X4: those that are in, and the next five).
    pub inserted: u64,
    /// Entries that were refused at once: they were asked for less than those that would have had to go.
    pub refused: u64,
    /// Entries that others displaced, or replaced.
    pub evicted: u64,
    /// Entries that went after the idle time.
    pub expired: u64,
    /// Entries given back: pressure, budget, clear.
    pub released: u64,
    /// Entries that the program removed.
    pub removed: u64,
    /// Wall time that making took.
    pub made_ns: u64,
    /// Wall time that hits saved: what their entries had cost.
    pub saved_ns: u64,
    /// Times that a lock could not be had under pressure.
    pub busy: u64,
}

/// A judgement of a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Too few lookups to say.
    Unknown,
    /// The cache never hit, or next to never (V1).
    Placebo,
    /// The cache hits, or has saved enough.
    Useful,
}

impl Stats {
    /// Returns the share of lookups that hit; 0 without a lookup.
    pub fn hit_ratio(&self) -> f64 {
        match self.hits + self.misses {
            0 => 0.0,
            lookups => self.hits as f64 / lookups as f64,
        }
    }

    /// Reports whether it saved less time than its memory costs (V2).
    pub fn saves_less_than_its_memory_costs(&self) -> bool {
        let lookups = self.hits + self.misses;
        let asked = lookups >= PLACEBO_LOOKUPS.max(self.entries as u64 * ASKED_EACH);
        let pages = (self.bytes + self.own_bytes) as u64 / PAGE_BYTES;
        asked && self.made_ns > 0 && self.saved_ns < pages * PAGE_NS
    }

    /// Returns the judgement (V1, V2).
    pub fn verdict(&self) -> Verdict {
        let lookups = self.hits + self.misses;
        let rare = self.hits.saturating_mul(PLACEBO_MISSES) < lookups;
        let saves =
            self.saved_ns.saturating_mul(PLACEBO_MISSES) >= self.made_ns && self.saved_ns > 0;
        match self.hits {
            0 if lookups < PLACEBO_LOOKUPS => Verdict::Unknown,
            0 => Verdict::Placebo,
            _ if rare && !saves => Verdict::Placebo,
            _ if self.saves_less_than_its_memory_costs() => Verdict::Placebo,
            _ => Verdict::Useful,
        }
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} entries, {} + {} bytes of {} (limit {}); {:.1} % of {} lookups hit, saved {:.1} ms, making took {:.1} ms",
            self.name,
            self.entries,
            self.bytes,
            self.own_bytes,
            self.allowed_bytes,
            self.limit_bytes,
            self.hit_ratio() * 100.0,
            self.hits + self.misses,
            self.saved_ns as f64 / 1e6,
            self.made_ns as f64 / 1e6,
        )?;
        match self.verdict() {
            Verdict::Placebo if self.hits == 0 => f.write_str("; a placebo: it never hit"),
            Verdict::Placebo if self.saves_less_than_its_memory_costs() => {
                f.write_str("; a placebo: it saved less time than its memory costs")
            }
            Verdict::Placebo => {
                f.write_str("; a placebo: it hits next to never, and saves next to nothing")
            }
            Verdict::Unknown | Verdict::Useful => Ok(()),
        }
    }
}
