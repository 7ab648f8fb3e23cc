//! The heap profile that Go's runtime keeps: a bucket for each stack and size that a sample was of.
//!
//! ```text
//!   runtime.mbuckets ─► [ next | allnext | kind | hash | size | frames | addresses … | active, 3 × future ] ─► …
//!                        a cycle = allocated, freed, their bytes
//! ```
//!
//! K1  A bucket is put in front of the list and never taken out, and nothing of it changes but its counts: what is known of
//!     it is kept, and each reading takes the counts alone.
//! K2  Counts are read twice. A cycle that is published meanwhile is for an instant in two places: of two different readings
//!     of a bucket the smaller counts, and no count is ever taken back.
//!
//! Not here: whose bucket a stack is (pclntab.rs), where the list begins (binary.rs).

use rustc_hash::FxHashSet;

use super::binary::GoProgram;
use crate::counted::Counts;
use crate::remote::{Remote, words};

/// The bytes in front of a bucket's addresses, and of its counts behind them.
const HEAD: usize = 48;
const COUNTS: usize = 128;
/// The kind of a bucket of the heap profile.
const OF_MEMORY: u64 = 1;
/// The most frames of a stack (1.23 and later allow a thousand), and the most buckets.
const MOST_FRAMES: u64 = 1024;
const MOST_BUCKETS: usize = 4 << 20;

/// A bucket, as far as it never changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Bucket {
    pub(super) at: u64,
    /// The bytes of each of its blocks.
    pub(super) size: u64,
    /// Return addresses, innermost first.
    pub(super) frames: Vec<u64>,
}

impl Counts {
    fn of(words: &[u64]) -> Counts {
        let sum = |field: usize| {
            let cycles = words.chunks_exact(4);
            cycles.fold(0u64, |sum, cycle| sum.wrapping_add(cycle[field]))
        };
        Counts {
            allocated: sum(0),
            freed: sum(1),
        }
    }

    fn least(self, other: Counts) -> Counts {
        let allocated = self.allocated.min(other.allocated);
        Counts {
            allocated,
            freed: self.freed.min(other.freed).min(allocated),
        }
    }
}

/// The list of a process.
pub(super) struct Buckets {
    process: Remote,
    /// Where the word lies that leads to the newest.
    head: Option<u64>,
    known: Vec<Bucket>,
    seen: FxHashSet<u64>,
}

impl Buckets {
    pub(super) fn new(process: Remote, program: &GoProgram, bias: u64) -> Buckets {
        Buckets {
            process,
            head: program.buckets.map(|at| at.wrapping_add(bias)),
            known: Vec::new(),
            seen: FxHashSet::default(),
        }
    }

    /// Reads the list; returns all buckets, the new ones last, and what is counted of each. `false`: the process is gone.
    pub(super) fn read(&mut self, program: &GoProgram, bias: u64) -> Option<Vec<Counts>> {
        let head = match self.head {
            Some(head) => head,
            None => self.find_head(program, bias)?,
        };
        self.head = Some(head);
        let first = self.process.word(head)?;
        self.walk(first);
        Some(self.counts())
    }

    /// Returns the addresses of the buckets that are known.
    pub(super) fn addresses(&self) -> &FxHashSet<u64> {
        &self.seen
    }

    /// Returns the buckets that are known.
    pub(super) fn known(&self) -> &[Bucket] {
        &self.known
    }

    /// Takes the buckets in front of those that are known (K1).
    fn walk(&mut self, first: u64) {
        let (mut at, mut fresh) = (first, Vec::new());
        while at != 0 && self.known.len() + fresh.len() < MOST_BUCKETS && self.seen.insert(at) {
            let Some((bucket, next)) = self.bucket(at) else {
                self.seen.remove(&at);
                break;
            };
            fresh.push(bucket);
            at = next;
        }
        self.known.extend(fresh.into_iter().rev());
    }

    /// Reads what never changes of a bucket, and the address of the next.
    fn bucket(&self, at: u64) -> Option<(Bucket, u64)> {
        let head = self.process.words(at, HEAD / 8)?;
        let (next, kind, size, frames) = (head[1], head[2], head[4], head[5]);
        (kind == OF_MEMORY && frames <= MOST_FRAMES && at.is_multiple_of(8)).then_some(())?;
        let frames = self.process.words(at + HEAD as u64, frames as usize)?;
        Some((Bucket { at, size, frames }, next))
    }

    fn counts(&self) -> Vec<Counts> {
        let places: Vec<u64> = self
            .known
            .iter()
            .map(|one| one.at + HEAD as u64 + one.frames.len() as u64 * 8)
            .collect();
        let mut bytes = vec![0; places.len() * COUNTS];
        let mut once = || {
            let read = self.process.read_all(&places, COUNTS, &mut bytes);
            let all = bytes[..read * COUNTS].chunks_exact(COUNTS);
            all.map(|one| Counts::of(&words(one))).collect::<Vec<_>>()
        };
        let (one, two) = (once(), once());
        let both = one.iter().zip(&two);
        both.map(|(one, two)| one.least(*two)).collect()
    }

    /// Looks for the word that leads to the newest bucket, by a bucket's shape (binary.B2): a stack of addresses of code and
    /// a list of such buckets.
    fn find_head(&self, program: &GoProgram, bias: u64) -> Option<u64> {
        const AT_ONCE: u64 = 1 << 20;
        for &(start, bytes) in &program.writable {
            let (mut at, end) = (start.wrapping_add(bias), start.wrapping_add(bias) + bytes);
            while at < end {
                let words = self
                    .process
                    .words(at, ((end - at).min(AT_ONCE) / 8) as usize)
                    .unwrap_or_default();
                let found = words.iter().position(|word| self.is_list(*word));
                if let Some(index) = found {
                    return Some(at + index as u64 * 8);
                }
                at += AT_ONCE;
            }
        }
        None
    }

    /// Reports whether an address is of a bucket that leads to others of the same kind.
    fn is_list(&self, at: u64) -> bool {
        const ENOUGH: usize = 3;
        let may_be = |at: u64| at.is_multiple_of(8) && (1 << 16..1 << 47).contains(&at);
        let (mut at, mut met) = (at, 0);
        while met < ENOUGH && may_be(at) {
            let Some((bucket, next)) = self.bucket(at) else {
                return false;
            };
            let is_code = |pc: &u64| (1 << 12..1 << 47).contains(pc);
            let has_size = (1..1 << 40).contains(&bucket.size);
            if !has_size || bucket.frames.is_empty() || !bucket.frames.iter().all(is_code) {
                return false;
            }
            met += 1;
            at = next;
        }
        met == ENOUGH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Buckets as Go lays them out, in this process; the first is the newest.
    fn list(sizes: &[(u64, [u64; 4])]) -> Vec<Vec<u64>> {
        let mut all: Vec<Vec<u64>> = Vec::new();
        for &(size, [active, freed, future, later]) in sizes.iter().rev() {
            let next = all.last().map_or(0, |one| one.as_ptr() as u64);
            let mut bucket = vec![0, next, OF_MEMORY, 99, size, 2, 0x40_1000 + size, 0x40_2000];
            bucket.extend([active, freed, active * size, freed * size]);
            bucket.extend([
                future,
                0,
                future * size,
                0,
                0,
                later,
                0,
                later * size,
                0,
                0,
                0,
                0,
            ]);
            all.push(bucket);
        }
        all.reverse();
        all
    }

    fn program() -> GoProgram {
        GoProgram {
            version: "go1.26".into(),
            ..GoProgram::default()
        }
    }

    #[test]
    fn counts_are_those_of_all_cycles_and_new_buckets_come_last() {
        let process = Remote {
            pid: std::process::id(),
        };
        let all = list(&[(64, [5, 1, 2, 3]), (4096, [1, 0, 0, 0])]);
        let mut head = Box::new(all[1].as_ptr() as u64);
        let mut buckets = Buckets::new(process, &program(), 0);
        buckets.head = Some(std::ptr::from_ref(&*head) as u64);
        let counts = |allocated, freed| Counts { allocated, freed };
        assert_eq!(buckets.read(&program(), 0), Some(vec![counts(1, 0)]));
        *head = all[0].as_ptr() as u64;
        let read = buckets.read(&program(), 0);
        assert_eq!(read, Some(vec![counts(1, 0), counts(7, 4)]));
        let newest = &buckets.known()[1];
        assert_eq!(
            (newest.size, &*newest.frames),
            (64, &[0x40_1040, 0x40_2000][..])
        );
        assert_eq!(*head, newest.at);
    }

    #[test]
    fn of_two_readings_the_smaller_counts_and_more_was_never_freed_than_allocated() {
        let of = |allocated, freed| Counts { allocated, freed };
        assert_eq!(of(9, 4).least(of(7, 8)), of(7, 4));
        assert_eq!(of(3, 4).least(of(5, 4)), of(3, 3));
    }

    #[test]
    fn the_list_of_a_stripped_program_is_found_by_its_shape() {
        let process = Remote {
            pid: std::process::id(),
        };
        let all = list(&[(64, [1; 4]), (96, [1; 4]), (128, [1; 4])]);
        let noise = [7u64, 16, u64::MAX, 0, all[2].as_ptr() as u64];
        let mut data = noise.to_vec();
        data.push(all[0].as_ptr() as u64);
        let program = GoProgram {
            writable: vec![(data.as_ptr() as u64, data.len() as u64 * 8)],
            ..program()
        };
        let buckets = Buckets::new(process, &program, 0);
        let wanted = data.as_ptr() as u64 + 5 * 8;
        assert_eq!(buckets.find_head(&program, 0), Some(wanted));
    }
}
