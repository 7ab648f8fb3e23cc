//! The reader's end of a ring: which words are unread, and giving their room back.
//!
//! ```text
//!   unread ─► Unread { at, count } ─ copy them out ─► give_back ─► wake the writer, or not
//! ```
//!
//! D1  What is unread lies inside the ring, whatever the program has written into its half: anything
//!     else is [`Nonsense`].
//! D2  `head` moves after the words were copied, `drained` after `head`, and `waiting` is looked at
//!     last.
//!
//! Not here: the copy, and the wake itself; the records (their lengths are the decoder's to check).

use crate::ring::SlotHeader;
use crate::sync::Ordering;

/// A ring's positions contradict each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nonsense;

/// Words that may be read, up to the end of the lap.
#[must_use = "the writer waits for its room"]
#[derive(PartialEq, Eq, Debug)]
pub struct Unread {
    /// The index of the first unread word in the ring.
    pub at: usize,
    /// The number of unread words; at least one. `at + count` is at most the largest capacity (D1).
    pub count: usize,
    head: u64,
}

/// Returns what is unread in a slot's ring, whose capacity must be between `first` and `last`.
pub fn unread(slot: &SlotHeader, first: u64, last: u64) -> Result<Option<Unread>, Nonsense> {
    // ORDER: Relaxed; only we write `head`.
    let head = slot.head.words.load(Ordering::Relaxed);
    // ORDER: Acquire; pairs with the Release in `Writer::publish`: the words below `tail` are
    // written. [model: ring_model_publication]
    let tail = slot.tail.load(Ordering::Acquire);
    if head == tail {
        return Ok(None);
    }
    // ORDER: Relaxed; published with `tail` (ring.R3). ring_model: growth.
    let capacity = slot.capacity.load(Ordering::Relaxed);
    let sound = capacity.is_power_of_two()
        && (first..=last).contains(&capacity)
        && tail.wrapping_sub(head) <= capacity;
    if !sound {
        return Err(Nonsense);
    }
    let at = head & (capacity - 1);
    Ok(Some(Unread {
        at: at as usize,
        count: tail.wrapping_sub(head).min(capacity - at) as usize,
        head,
    }))
}

impl Unread {
    /// Gives the room of these words, which have been copied, back to the writer. Returns true if the
    /// writer waits for room: the caller then wakes it at `slot.head.drained`.
    #[must_use = "a writer that waits should be woken"]
    pub fn give_back(self, slot: &SlotHeader) -> bool {
        let head = self.head.wrapping_add(self.count as u64);
        // ORDER: Release; pairs with the Acquires in `Writer::room_slow` and `wait_for_room`: the
        // words have been copied. [model: ring_model_a_full_ring]
        slot.head.words.store(head, Ordering::Release);
        // ORDER: Release; pairs with the Acquire in `Writer::wait_for_room`: a writer that sees it sees `head`; one
        // that does not sleeps until its time-out (writer.W3). [reason: look]
        slot.head.drained.fetch_add(1, Ordering::Release);
        // ORDER: Relaxed; a thread that begins to wait just now wakes by its time-out (writer.W3).
        if slot.waiting.load(Ordering::Relaxed) == 0 {
            return false;
        }
        slot.waiting.store(0, Ordering::Relaxed); // ORDER: Relaxed; as above.
        true
    }
}
