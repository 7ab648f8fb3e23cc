//! Two threads and a small ring: millions of records, and each says what it must be.
//!
//! ```text
//!   record n   STACK word: count, n (24 bits); then `count` words, each mixed from n and its place
//!   reader     copies out what is unread, splits it by `record_words`, checks n and every word
//! ```
//!
//! T1  Lengths are mixed from a seed and n, on both sides: nothing else passes between the threads.
//! T2  Every wait ends after a time, and a run that stops making progress fails.
//!
//! This proves no ordering (x86 hides most mistakes): `ring_model.rs` is for that.
#![cfg(not(loom))]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use skinflint_base::random::Random;
use skinflint_base::ring::{
    ADDRESS, Nonsense, Outside, SlotHeader, Writer, record_words, tag, unread, word,
};
use skinflint_base::sync::Word;
use skinflint_base::sys;

/// The longest time for which a side may see no progress at all.
const STUCK: Duration = Duration::from_secs(60);
/// The longest record.
const LONGEST: u64 = 80;

fn mix(seed: u64) -> u64 {
    Random::new(seed).bits()
}

/// Returns the words of record `n` after its first: mostly few, as in a recording.
fn count_of(seed: u64, n: u64) -> u64 {
    let random = mix(seed ^ n);
    let below = if random & 3 == 0 { LONGEST } else { 4 };
    (random >> 8) % below
}

fn first_word(n: u64, count: u64) -> u64 {
    word(tag::STACK, 0, count << 24 | (n & 0xff_ffff))
}

/// What a writer needs from outside, with the real futex.
struct Threads<'a, const FIRST: u64, const LAST: u64> {
    waits: &'a AtomicU64,
    over: &'a AtomicBool,
}

impl<const FIRST: u64, const LAST: u64> Outside for Threads<'_, FIRST, LAST> {
    const FIRST_CAPACITY: u64 = FIRST;
    const LAST_CAPACITY: u64 = LAST;
    const RECORD_WORDS: u64 = LONGEST;
    type Patience = Instant;

    fn wake_reader(&self) {}

    fn patience(&self) -> Option<Instant> {
        Some(Instant::now())
    }

    fn wait(&self, slot: &SlotHeader, seen: u32, since: &mut Instant) -> bool {
        self.waits.fetch_add(1, Ordering::Relaxed); // ORDER: Relaxed; a counter.
        sys::futex_wait(&slot.head.drained, seen, 2_000_000);
        // ORDER: Relaxed; a flag that stands alone.
        since.elapsed() < STUCK && !self.over.load(Ordering::Relaxed)
    }
}

/// Sets the flag when the reader is gone, even by a panic: the writer must not wait for it.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed); // ORDER: Relaxed; a flag that stands alone.
    }
}

struct Run {
    seed: u64,
    records: u64,
    /// After this many records the writer lets the other thread go first; 0: never.
    writer_yields: u64,
    /// After this many takings the reader lets the other thread go first; 0: never.
    reader_yields: u64,
}

/// What a run has seen.
#[derive(Debug)]
struct Seen {
    waits: u64,
    pads: u64,
    capacity: u64,
}

fn write<O: Outside>(run: &Run, mut writer: Writer<O>) {
    for n in 0..run.records {
        let count = count_of(run.seed, n);
        let mut cursor = writer.begin(1 + count as usize).expect("the reader reads");
        // SAFETY: `begin` made room for these words (writer.W1).
        unsafe {
            cursor.put(first_word(n, count));
            for place in 0..count {
                cursor.put(mix(n << 8 | place));
            }
        }
        writer.end(cursor);
        writer.publish();
        if run.writer_yields != 0 && n % run.writer_yields == 0 {
            std::thread::yield_now();
        }
    }
}

/// Reads until all records were seen; returns the number of pads between them.
fn read(run: &Run, slot: &SlotHeader, ring: &[Word], first: u64) -> u64 {
    let (mut n, mut pads, mut takings) = (0, 0, 0);
    let mut copy = Vec::new();
    let mut progress = Instant::now();
    while n < run.records {
        let Some(unread) = unread(slot, first, ring.len() as u64).expect("sound positions") else {
            // CLOCK: a bounded wait, and its bound ends it
            assert!(progress.elapsed() < STUCK, "nothing comes after record {n}");
            std::thread::yield_now();
            continue;
        };
        progress = Instant::now();
        copy.clear();
        for word in &ring[unread.at..][..unread.count] {
            // SAFETY: unread words are the reader's (sync.Y1).
            copy.push(unsafe { word.read() });
        }
        if unread.give_back(slot) {
            sys::futex_wake(&slot.head.drained);
        }
        check(run, &copy, &mut n, &mut pads);
        takings += 1;
        if run.reader_yields != 0 && takings % run.reader_yields == 0 {
            std::thread::yield_now();
        }
    }
    assert_eq!(unread(slot, first, ring.len() as u64), Ok(None), "no more");
    pads
}

/// Checks that what was taken is whole records (ring.R2, writer.W2), in order, and that a pad ends it.
fn check(run: &Run, mut rest: &[u64], n: &mut u64, pads: &mut u64) {
    while let [head, ..] = *rest {
        let words = record_words(head).expect("a known tag");
        assert!(words <= rest.len(), "record {n} straddles a seam");
        if (head >> 56) as u8 == tag::PAD {
            assert_eq!(head & ADDRESS, rest.len() as u64, "a pad ends the lap");
            *pads += 1;
        } else {
            let count = count_of(run.seed, *n);
            assert_eq!(head, first_word(*n, count), "record {n}");
            for (place, &value) in rest[1..words].iter().enumerate() {
                assert_eq!(value, mix(*n << 8 | place as u64), "record {n}, {place}");
            }
            *n += 1;
        }
        rest = &rest[words..];
    }
}

fn run<const FIRST: u64, const LAST: u64>(run: &Run) -> Seen {
    println!("seed {:#x}, {FIRST} to {LAST} words", run.seed);
    let slot = SlotHeader::new();
    let ring: Vec<Word> = (0..LAST).map(|_| Word::new(0)).collect();
    let (waits, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let pads = std::thread::scope(|scope| {
        let _over = Over(&over);
        let outside = Threads::<FIRST, LAST> {
            waits: &waits,
            over: &over,
        };
        let (slot, ring) = (&slot, &ring[..]);
        scope.spawn(move || {
            // SAFETY: the slot is this thread's (ring.R1); both outlive the scope.
            write(run, unsafe { Writer::over(slot, ring.as_ptr(), outside) });
        });
        read(run, slot, ring, FIRST)
    });
    Seen {
        waits: waits.into_inner(),
        pads,
        capacity: slot.capacity.load(Ordering::Relaxed), // ORDER: Relaxed; the thread has ended.
    }
}

#[test]
fn the_smallest_ring_never_grows_and_loses_nothing() {
    let seen = run::<128, 128>(&Run {
        seed: 0x51,
        records: 60_000,
        writer_yields: 0,
        reader_yields: 0,
    });
    assert_eq!(seen.capacity, 128);
    assert!(seen.waits > 0 && seen.pads > 0, "{seen:?}");
}

#[test]
fn a_ring_that_was_full_grows_to_its_bound() {
    let seen = run::<128, 1024>(&Run {
        seed: 0x52,
        records: 100_000,
        writer_yields: 0,
        reader_yields: 1,
    });
    assert_eq!(seen.capacity, 1024);
    assert!(seen.waits >= 3 && seen.pads > 0, "{seen:?}");
}

#[test]
fn a_writer_slower_than_its_reader() {
    let seen = run::<256, 512>(&Run {
        seed: 0x53,
        records: 40_000,
        writer_yields: 3,
        reader_yields: 0,
    });
    assert!(seen.pads > 0, "{seen:?}");
}

/// Reads what there is at the first wait; gives up at the second.
struct Obliging<'a>(&'a [Word]);

impl Outside for Obliging<'_> {
    const FIRST_CAPACITY: u64 = 8;
    const LAST_CAPACITY: u64 = 16;
    const RECORD_WORDS: u64 = 4;
    type Patience = u32;

    fn wake_reader(&self) {}

    fn patience(&self) -> Option<u32> {
        Some(0)
    }

    fn wait(&self, slot: &SlotHeader, _seen: u32, waits: &mut u32) -> bool {
        *waits += 1;
        let unread = unread(slot, 8, 16).expect("sound").expect("full");
        assert_eq!((unread.at, unread.count), (0, 8));
        // SAFETY: unread, and there is one thread (sync.Y1).
        let pad = unsafe { self.0[7].read() };
        assert_eq!(pad, word(tag::PAD, 0, 1));
        assert!(unread.give_back(slot), "the writer waits");
        *waits < 2
    }
}

/// Predicted by hand: 8 words, at most 16. A record of 3 fills 0..3, one of 4 fills 3..7, one of 2 does
/// not fit before the seam: a pad of one word, then there is no room. All is read: the ring has 16
/// words from here on, and the record begins at 8.
#[test]
fn positions_step_by_step() {
    let slot = SlotHeader::new();
    let ring: Vec<Word> = (0..16).map(|_| Word::new(u64::MAX)).collect();
    // SAFETY: one thread, both live to its end (ring.R1).
    let mut writer = unsafe { Writer::over(&slot, ring.as_ptr(), Obliging(&ring)) };
    for (words, pos) in [(3, 3), (4, 7), (2, 10)] {
        let mut cursor = writer.begin(words).expect("room");
        for _ in 0..words {
            // SAFETY: `begin` made room for these words (writer.W1).
            unsafe { cursor.put(word(tag::FREE, 0, 1)) };
        }
        writer.end(cursor);
        writer.publish();
        assert_eq!(writer.pos(), pos);
    }
    // ORDER: Relaxed; one thread.
    assert_eq!(slot.capacity.load(Ordering::Relaxed), 16);
    let rest = unread(&slot, 8, 16).expect("sound").expect("a record");
    assert_eq!((rest.at, rest.count), (8, 2));
    assert!(!rest.give_back(&slot), "nobody waits");
    // What a program may write into its half: more than fits, less than was read, a strange size.
    slot.tail.store(10 + 17, Ordering::Relaxed); // ORDER: Relaxed; one thread.
    assert_eq!(unread(&slot, 8, 16), Err(Nonsense));
    slot.tail.store(9, Ordering::Relaxed); // ORDER: Relaxed; one thread.
    assert_eq!(unread(&slot, 8, 16), Err(Nonsense));
    slot.tail.store(11, Ordering::Relaxed); // ORDER: Relaxed; one thread.
    for capacity in [0, 4, 12, 32] {
        slot.capacity.store(capacity, Ordering::Relaxed); // ORDER: Relaxed; one thread.
        assert_eq!(unread(&slot, 8, 16), Err(Nonsense), "{capacity}");
    }
}

/// There is no reader to wait for.
struct Nobody;

impl Outside for Nobody {
    const FIRST_CAPACITY: u64 = 4;
    const LAST_CAPACITY: u64 = 4;
    const RECORD_WORDS: u64 = 4;
    type Patience = ();

    fn wake_reader(&self) {}

    fn patience(&self) -> Option<()> {
        None
    }

    fn wait(&self, _: &SlotHeader, _: u32, _: &mut ()) -> bool {
        unreachable!("there is no patience")
    }
}

#[test]
fn a_full_ring_that_nobody_reads_is_the_end() {
    let slot = SlotHeader::new();
    let ring: Vec<Word> = (0..4).map(|_| Word::new(0)).collect();
    // SAFETY: one thread, both live to its end (ring.R1).
    let mut writer = unsafe { Writer::over(&slot, ring.as_ptr(), Nobody) };
    let mut cursor = writer.begin(4).expect("an empty ring");
    for n in 0..4 {
        // SAFETY: `begin` made room for four (writer.W1).
        unsafe { cursor.put(word(tag::FREE, 0, n)) };
    }
    writer.end(cursor);
    assert!(writer.begin(1).is_none(), "a full ring");
    // What was written is shown all the same.
    let unread = unread(&slot, 4, 4).expect("sound").expect("four words");
    assert_eq!((unread.at, unread.count), (0, 4));
}
