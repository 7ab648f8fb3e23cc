//! A writer and a reader meet on a tiny ring, in every order.
//!
//! ```text
//!   2 words, at most 4      writer: records of 1 and 2 words      reader: checks every word
//!   ring, sync ──(the crate itself)──► here ─┬─ make model-test: all orders
//!                                            └─ cargo test: real threads
//! ```
//!
//! L1  Every word's accesses are checked by loom: a word that is read before its `tail` was seen, or
//!     written before its `head` was, fails. So does a value out of order.
//! L2  A wait is a yield: it may end at any time, as one with a time-out does. That a wake can be
//!     lost is part of the model; the check is that the protocol is right nonetheless.
//! L3  At most `PREEMPTIONS` per run, which bounds the search.
//!
//! `make model-test` runs the scenarios under loom, in every order; `cargo test` runs them some hundred times on real
//! threads (`skinflint_interleave`), which proves no ordering; of loom's checks of words (L1) only the check of their
//! values is left there.
//!
//! Not here: long runs (`ring_threads.rs`), the futex.

use skinflint_base::ring::{ADDRESS, Outside, SlotHeader, Writer, tag, unread, word};
use skinflint_base::sync::Word;
use skinflint_interleave::{Arc, check, thread};

const PREEMPTIONS: usize = 3;

struct Yields<const FIRST: u64, const LAST: u64>;

impl<const FIRST: u64, const LAST: u64> Outside for Yields<FIRST, LAST> {
    const FIRST_CAPACITY: u64 = FIRST;
    const LAST_CAPACITY: u64 = LAST;
    const RECORD_WORDS: u64 = 2;
    type Patience = ();

    fn wake_reader(&self) {}

    fn patience(&self) -> Option<()> {
        Some(())
    }

    fn wait(&self, _slot: &SlotHeader, _seen: u32, _patience: &mut ()) -> bool {
        thread::yield_now();
        true
    }
}

struct Shared {
    slot: SlotHeader,
    ring: Vec<Word>,
}

/// Writes records of these lengths while the other thread reads.
fn exchange<const FIRST: u64, const LAST: u64>(lengths: &'static [usize]) {
    check(PREEMPTIONS, move || {
        let shared = Arc::new(Shared {
            slot: SlotHeader::new(),
            ring: (0..LAST).map(|_| Word::new(0)).collect(),
        });
        let theirs = shared.clone();
        let writing = thread::spawn(move || {
            let (slot, words) = (&theirs.slot, theirs.ring.as_ptr());
            // SAFETY: the slot is this thread's (ring.R1), and `theirs` outlives the writer.
            let mut writer = unsafe { Writer::over(slot, words, Yields::<FIRST, LAST>) };
            let mut value = 0;
            for &length in lengths {
                let mut cursor = writer.begin(length).expect("the reader reads");
                for _ in 0..length {
                    value += 1;
                    // SAFETY: `begin` made room for these words (writer.W1).
                    unsafe { cursor.put(word(tag::FREE, 0, value)) };
                }
                writer.end(cursor);
                writer.publish();
            }
        });
        read::<FIRST, LAST>(&shared, lengths.iter().sum::<usize>() as u64);
        writing.join().expect("the writer ends");
    });
}

/// Reads until `last` was seen. Each word is one more than the word before; pads are skipped.
fn read<const FIRST: u64, const LAST: u64>(shared: &Shared, last: u64) {
    let mut value = 0;
    while value < last {
        let Some(unread) = unread(&shared.slot, FIRST, LAST).expect("sound positions") else {
            thread::yield_now();
            continue;
        };
        let mut skip = 0;
        for place in unread.at..unread.at + unread.count {
            if skip > 0 {
                skip -= 1;
                continue;
            }
            // SAFETY: unread words are the reader's (sync.Y1).
            let word = unsafe { shared.ring[place].read() };
            if (word >> 56) as u8 == tag::PAD {
                skip = (word & ADDRESS) - 1;
                continue;
            }
            value += 1;
            assert_eq!(word & ADDRESS, value, "words come in order");
        }
        // The wake that this call may ask for is lost (L2).
        let _ = unread.give_back(&shared.slot);
    }
    assert_eq!(value, last);
}

/// A word is seen only after it was written: nothing is full, nothing waits.
#[test]
fn ring_model_publication() {
    exchange::<4, 4>(&[1, 2]);
}

/// Words are written again only after they were read: a record, a pad, no room, no growth.
#[test]
fn ring_model_a_full_ring() {
    exchange::<2, 2>(&[1, 2]);
}

/// The capacity changes behind the reader's back: full, empty, twice as large.
#[test]
fn ring_model_growth() {
    exchange::<2, 4>(&[2, 2, 1]);
}
