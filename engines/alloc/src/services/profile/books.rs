//! The books of the profile: which block is a sample of which stack, and what each stack holds and has asked for.
//!
//! ```text
//!   samples   [ address │ requested │ p │ row ] …     by a hash of the address, the next free place after a collision
//!   index     [ row ] …                               by a hash of the stack
//!   rows      [ hash │ frames │ live │ all │ peak │ return addresses ] [ … ]      words, one after the other, never moved
//! ```
//!
//! B1  The place of a sample is the first free one from its hash on, or nearer: taking one out moves up those behind it. The places are a
//!     part of those that are mapped, four times as many when three quarters are used: hashes touch every page of a table, and most
//!     programs have some hundred samples.
//! B2  A row's `live` is the sum over its samples, and `total` that over all rows. Weights are whole bytes and 1024ths of
//!     blocks, which a `f64` adds and takes away exactly; the variance is set to 0 where no sample is left.
//! B3  Row 0 has no frames: samples whose stack is not known, or for which there is no room (profile.P5).
//! B4  `peak` of all rows is that of one moment: the last at which what is live was a sixty-fourth above the peak of before. So
//!     it is short of the highest by less than that.
//!
//! Everything here is under the profile's lock (profile.P4). Not here: what is a sample (`points`), the text (`text`).

use skinflint_base::{random, sys};

use super::stack::{DEPTH, Frames};
use crate::heaps::pool;
use crate::heaps::slow::Sample;
use crate::services::sample::probability;

/// The least and the most bytes between two samples that may be chosen.
pub const RATES: (usize, usize) = (1024, 1 << 30);
/// Places for samples, of which three quarters are used: 1.25 MiB, touched as it is used (B1). At 512 KiB so many stand for 12 GiB.
pub const SAMPLES: usize = 32 * 1024;
/// Places at first, 20 KiB.
const FIRST: usize = 512;
/// Words of rows: 4 MiB, touched as they are used; some 11,000 stacks of thirty frames.
pub const WORDS: usize = 512 * 1024;
/// Places for rows, of which half are used.
const INDEX: usize = 32 * 1024;
const ROWS_MOST: usize = INDEX / 2;

/// A sum over samples.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
#[repr(C)]
pub struct Sum {
    /// Their number.
    pub samples: u64,
    /// The blocks that they stand for.
    pub blocks: f64,
    /// The requested bytes that they stand for.
    pub bytes: f64,
    /// The variance of these bytes.
    pub variance: f64,
}

impl Sum {
    fn of(sample: &Sample) -> Sum {
        let n = sample.requested as f64;
        let weight = whole(n / sample.probability);
        Sum {
            samples: 1,
            blocks: whole(1024.0 / sample.probability) / 1024.0,
            bytes: weight,
            variance: weight * (weight - n).max(0.0),
        }
    }

    fn add(&mut self, other: &Sum) {
        self.samples += other.samples;
        self.blocks += other.blocks;
        self.bytes += other.bytes;
        self.variance += other.variance;
    }

    fn take(&mut self, other: &Sum) {
        self.samples = self.samples.saturating_sub(other.samples);
        if self.samples == 0 {
            *self = Sum::default();
            return;
        }
        self.blocks -= other.blocks;
        self.bytes -= other.bytes;
        self.variance = (self.variance - other.variance).max(0.0);
    }
}

/// Rounds a number above 0 to a whole one, where a `u64` can hold it.
pub(super) fn whole(x: f64) -> f64 {
    (x + 0.5) as u64 as f64
}

/// The head of a row; its return addresses follow.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Row {
    hash: u64,
    /// Number of return addresses.
    pub frames: u64,
    pub live: Sum,
    pub all: Sum,
    pub peak: Sum,
}

/// Words of a row's head.
pub const HEAD: usize = size_of::<Row>() / 8;

/// The books; their memory is mapped by [`Books::begin`].
pub struct Books {
    /// Bytes between two samples, on average.
    pub rate: u32,
    /// Of all rows (B2).
    pub live: Sum,
    pub all: Sum,
    /// What was live at the peak (B4).
    pub peak: Sum,
    /// Samples without a place, and samples without their stacks.
    pub refused: u64,
    pub stackless: u64,
    /// Words of rows in use.
    pub words: usize,
    rows: usize,
    used: usize,
    /// Places in use, a power of two (B1).
    places: usize,
    pub(super) random: u64,
    samples: *mut Sample,
    index: *mut u32,
    arena: *mut u64,
}

impl Books {
    /// Creates books without memory.
    pub const fn none() -> Books {
        const NOTHING: Sum = Sum {
            samples: 0,
            blocks: 0.0,
            bytes: 0.0,
            variance: 0.0,
        };
        Books {
            rate: 0,
            live: NOTHING,
            all: NOTHING,
            peak: NOTHING,
            refused: 0,
            stackless: 0,
            words: 0,
            rows: 0,
            used: 0,
            places: FIRST,
            random: 0,
            samples: core::ptr::null_mut(),
            index: core::ptr::null_mut(),
            arena: core::ptr::null_mut(),
        }
    }

    /// Maps the memory. `false`: the OS refuses; what was mapped stays for another try.
    pub fn begin(&mut self) -> bool {
        let mapped = |at: &mut *mut u8, bytes| {
            if at.is_null() {
                *at = sys::map_private(bytes);
            }
            !at.is_null()
        };
        let (mut samples, mut index, mut arena) =
            (self.samples.cast(), self.index.cast(), self.arena.cast());
        let all = mapped(&mut samples, SAMPLES * size_of::<Sample>())
            && mapped(&mut index, INDEX * size_of::<u32>())
            && mapped(&mut arena, WORDS * size_of::<u64>());
        (self.samples, self.index, self.arena) = (samples.cast(), index.cast(), arena.cast());
        self.random = pool::seed();
        // Row 0, all zero (B3).
        self.words = HEAD;
        all
    }

    /// Returns the places of samples; none before [`Books::begin`].
    pub(super) fn samples(&mut self) -> &mut [Sample] {
        if self.samples.is_null() {
            return &mut [];
        }
        // SAFETY: mapped with as many and more, all zero at first, which is valid; the books are borrowed.
        unsafe { core::slice::from_raw_parts_mut(self.samples, self.places) }
    }

    fn index(&mut self) -> &mut [u32] {
        if self.index.is_null() {
            return &mut [];
        }
        // SAFETY: as in `samples`.
        unsafe { core::slice::from_raw_parts_mut(self.index, INDEX) }
    }

    /// Returns the words of rows in use.
    pub fn words(&self) -> &[u64] {
        if self.arena.is_null() {
            return &[];
        }
        // SAFETY: as in `samples`; no more than are mapped.
        unsafe { core::slice::from_raw_parts(self.arena, self.words.min(WORDS)) }
    }

    /// Returns the row at a word.
    fn row(&mut self, at: u32) -> Option<&mut Row> {
        if self.arena.is_null() || at as usize + HEAD > self.words {
            return None;
        }
        // SAFETY: a row's head lies there, of words that are aligned for it; the books are borrowed.
        Some(unsafe { &mut *self.arena.add(at as usize).cast::<Row>() })
    }

    /// Adds a sample of a stack. `false`: there is no room.
    pub fn add_of(&mut self, sample: Sample, frames: &Frames) -> bool {
        let stack = self.row_of(frames.all());
        self.stackless += u64::from(stack == 0);
        let sample = Sample { stack, ..sample };
        let added = self.put(sample);
        if added {
            let sum = Sum::of(&sample);
            self.all.add(&sum);
            if let Some(row) = self.row(stack) {
                row.all.add(&sum);
            }
            self.look_at_peak();
        }
        added
    }

    /// Puts a sample in, as live. `false`: there is no room.
    pub fn put(&mut self, sample: Sample) -> bool {
        // An entry at this address is of a block that a signal handler freed, which could not take it out.
        self.take(sample.address);
        if self.used >= self.places / 4 * 3 {
            self.grow();
        }
        if self.used >= self.places / 4 * 3 {
            self.thin();
            if self.used >= self.places / 4 * 3 || self.samples.is_null() {
                self.refused += 1;
                return false;
            }
        }
        let place = self.place(sample.address);
        let Some(to) = self.samples().get_mut(place) else {
            return false;
        };
        *to = sample;
        self.used += 1;
        self.count(&sample, Sum::add);
        true
    }

    /// Takes a sample out. `None`: there is none at this address. Cost: a load or two of the samples.
    pub fn take(&mut self, address: usize) -> Option<Sample> {
        let place = self.place(address);
        let taken = *self.samples().get(place)?;
        if taken.address != address || address == 0 {
            return None;
        }
        self.close_up(place);
        self.used -= 1;
        self.count(&taken, Sum::take);
        Some(taken)
    }

    fn count(&mut self, sample: &Sample, how: fn(&mut Sum, &Sum)) {
        let sum = Sum::of(sample);
        how(&mut self.live, &sum);
        if let Some(row) = self.row(sample.stack) {
            how(&mut row.live, &sum);
        }
    }

    /// Returns the place of an address, or the free one that it would have (B1).
    fn place(&mut self, address: usize) -> usize {
        let samples = self.samples();
        let places = samples.len();
        let mut at = begin_of(address, places);
        for _ in 0..places {
            match samples.get(at) {
                Some(sample) if sample.address != 0 && sample.address != address => {
                    at = (at + 1) % places;
                }
                _ => break,
            }
        }
        at
    }

    /// Frees a place, and moves up what would no longer be found behind it (B1).
    fn close_up(&mut self, place: usize) {
        let samples = self.samples();
        let places = samples.len();
        let (mut hole, mut at) = (place, place);
        for _ in 0..places {
            at = (at + 1) % places;
            let Some(&next) = samples.get(at) else { break };
            if next.address == 0 {
                break;
            }
            // It may move if its own place is not between the hole and where it is.
            let own = begin_of(next.address, places);
            if at.wrapping_sub(own) % places >= at.wrapping_sub(hole) % places {
                if let Some(to) = samples.get_mut(hole) {
                    *to = next;
                }
                hole = at;
            }
        }
        if let Some(last) = samples.get_mut(hole) {
            *last = Sample::default();
        }
    }

    /// Uses more of the places that are mapped, if there are more, and memory to move the samples by.
    #[cold]
    fn grow(&mut self) {
        let before = self.places;
        if before >= SAMPLES || self.samples.is_null() {
            return;
        }
        let bytes = before * size_of::<Sample>();
        let copy: *mut Sample = sys::map_private(bytes).cast();
        if copy.is_null() {
            return;
        }
        // SAFETY: both are mapped with as many and disjoint, and the books are borrowed; zero is a valid sample.
        unsafe {
            core::ptr::copy_nonoverlapping(self.samples, copy, before);
            core::ptr::write_bytes(self.samples, 0, before);
        }
        self.places = (before * 4).min(SAMPLES);
        for at in 0..before {
            // SAFETY: as above.
            let sample = unsafe { copy.add(at).read() };
            if sample.address != 0 {
                let place = self.place(sample.address);
                if let Some(to) = self.samples().get_mut(place) {
                    *to = sample;
                }
            }
        }
        // SAFETY: our own mapping, which nothing uses any more.
        unsafe { sys::unmap(copy.cast(), bytes) };
    }

    /// Doubles the rate until half of the room is free, and keeps each sample with the chance that makes its p that of the new
    /// rate (profile.P5). What was counted for all time stays.
    #[cold]
    fn thin(&mut self) {
        while self.used > self.places / 2 && (self.rate as usize) <= RATES.1 / 2 {
            self.rate *= 2;
            let rate = self.rate;
            for at in 0..self.places {
                // What moves up to here is looked at next.
                while let Some(&sample) = self.samples().get(at) {
                    let wanted = if sample.requested >= rate as usize {
                        1.0
                    } else {
                        probability(sample.requested, rate.into())
                    };
                    if sample.address == 0 || sample.probability <= wanted {
                        break;
                    }
                    let stays = self.draw() * sample.probability <= wanted;
                    self.take(sample.address);
                    if stays {
                        // To its place, or one nearer: no sample is skipped, and one that comes before here was looked at.
                        self.put(Sample {
                            probability: wanted,
                            ..sample
                        });
                    }
                }
            }
        }
    }

    /// Draws a number from 0 to 1.
    fn draw(&mut self) -> f64 {
        self.random = self.random.wrapping_add(random::STEP);
        (random::mix(self.random) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns the row of a stack, which is made if it is new; row 0 if it has no frames, or there is no room (B3).
    fn row_of(&mut self, frames: &[usize]) -> u32 {
        if frames.is_empty() || self.arena.is_null() {
            return 0;
        }
        let hash = hash_of(frames);
        let mut at = hash as usize % INDEX;
        for _ in 0..INDEX {
            match self.index().get(at) {
                Some(&found) if found != 0 => {
                    if self.is_row_of(found, hash, frames) {
                        return found;
                    }
                    at = (at + 1) % INDEX;
                }
                _ => break,
            }
        }
        let row = self.words;
        if self.rows >= ROWS_MOST || row + HEAD + frames.len() > WORDS {
            return 0;
        }
        self.rows += 1;
        self.words += HEAD + frames.len();
        // SAFETY: the words are mapped, zero and nobody's yet.
        unsafe {
            let to = self.arena.add(row + HEAD);
            for (i, &frame) in frames.iter().enumerate() {
                to.add(i).write(frame as u64);
            }
        }
        if let Some(head) = self.row(row as u32) {
            (head.hash, head.frames) = (hash, frames.len() as u64);
        }
        if let Some(to) = self.index().get_mut(at) {
            *to = row as u32;
        }
        row as u32
    }

    fn is_row_of(&mut self, at: u32, hash: u64, frames: &[usize]) -> bool {
        let begin = at as usize + HEAD;
        self.row(at)
            .is_some_and(|row| row.hash == hash && row.frames == frames.len() as u64)
            && self
                .words()
                .get(begin..begin + frames.len())
                .is_some_and(|words| words.iter().zip(frames).all(|(a, b)| *a == *b as u64))
    }

    /// Keeps what is live as the peak, if it is high enough above that of before (B4).
    fn look_at_peak(&mut self) {
        if self.live.bytes <= self.peak.bytes * (1.0 + 1.0 / 64.0) {
            return;
        }
        self.peak = self.live;
        let mut at = 0;
        while let Some(row) = self.row(at) {
            row.peak = row.live;
            at += (HEAD + (row.frames as usize).min(DEPTH)) as u32;
        }
    }
}

/// Returns the first place to look for an address.
fn begin_of(address: usize, places: usize) -> usize {
    random::mix(address as u64) as usize % places.max(1)
}

fn hash_of(frames: &[usize]) -> u64 {
    let mix = |hash: u64, &frame: &usize| random::mix(hash.wrapping_add(frame as u64));
    frames.iter().fold(frames.len() as u64, mix)
}
