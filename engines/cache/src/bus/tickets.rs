//! Requests to the bus that are not answered yet, without a lock: they are posted inside malloc.
//!
//! ```text
//!   post: wanted, level ─► ticket ──► (wake) ──► take: tickets, then level, wanted ─► round ─► answer(tickets)
//! ```
//!
//! T1  `answered >= ticket` means that a round which had the ticket's level began after it was posted, and ended.
//! T2  No ticket is left over. A ticket whose level went into an earlier round, since it was drawn just after that
//!     round had counted the tickets, is answered by the next [`Tickets::take`], for that round has ended. Without this
//!     the thread would wait in vain for all of its patience.
//!
//! T3  A thread that finds its ticket open sleeps at a number that changes with each answer, and was read before the
//!     look: an answer that it missed has changed the number, so the kernel does not let it sleep.
//!
//! The models run this very file (`tests/models.rs`).
//!
//! Not here: waking and waiting (`notifier`).

use skinflint_base::sync::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// The posts and the answers of one bus.
#[derive(Debug)]
pub struct Tickets {
    level: AtomicU32,
    wanted: AtomicUsize,
    drawn: AtomicU64,
    answered: AtomicU64,
    /// The number of answers so far, at which threads sleep.
    rounds: AtomicU32,
}

/// The tickets that [`Tickets::take`] found.
pub struct Posted {
    /// The highest level that was posted; 0: nothing is to be done, and the tickets are to be answered at once (T2).
    pub level: u32,
    /// The most bytes that were wanted.
    pub wanted_bytes: usize,
    /// Tickets up to this one are included.
    pub ticket: u64,
}

impl Tickets {
    /// Creates the state without a ticket.
    pub fn new() -> Tickets {
        Tickets {
            level: AtomicU32::new(0),
            wanted: AtomicUsize::new(0),
            drawn: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            rounds: AtomicU32::new(0),
        }
    }

    /// Posts, and draws a ticket. `level` is 1 or more.
    pub fn post(&self, level: u32, wanted_bytes: usize) -> u64 {
        // ORDER: Release by the level, below.
        self.wanted.fetch_max(wanted_bytes, Ordering::Relaxed);
        // ORDER: Release with the Acquire of `take`'s swap: it sees the wish with the level.
        // [model: no_ticket_is_left_over]
        self.level.fetch_max(level, Ordering::Release);
        // ORDER: Release with the Acquire of `take`: a ticket that it counts has its level in that swap or before (T1).
        // [reason: unshown]
        self.drawn.fetch_add(1, Ordering::Release) + 1
    }

    /// Takes what was posted; only the one thread that answers calls it. `None`: all tickets are answered.
    pub fn take(&self) -> Option<Posted> {
        // ORDER: Acquire with `post`, so that the swap below comes after. Loom never has an exchange miss one that ran
        // before it. [reason: unshown]
        let ticket = self.drawn.load(Ordering::Acquire);
        // ORDER: Acquire with `post`'s level. [model: no_ticket_is_left_over]
        let level = self.level.swap(0, Ordering::Acquire);
        // Without a level the wish may be that of a post that is about to come.
        let wanted_bytes = match level {
            0 => 0,
            _ => self.wanted.swap(0, Ordering::Relaxed), // ORDER: by the level's Acquire
        };
        // ORDER: this thread's own.
        let is_open = self.answered.load(Ordering::Relaxed) < ticket;
        (level > 0 || is_open).then_some(Posted {
            level,
            wanted_bytes,
            ticket,
        })
    }

    /// Answers all tickets up to this one. The caller then wakes the threads that sleep at [`Tickets::rounds`].
    pub fn answer(&self, ticket: u64) {
        // ORDER: Release with the Acquire of `is_answered`: what the round dropped was dropped before.
        // [model: who_sleeps_for_an_answer_is_woken]
        self.answered.fetch_max(ticket, Ordering::Release);
        // ORDER: Release with the Acquire of `look` (T3). [model: who_sleeps_for_an_answer_is_woken]
        self.rounds.fetch_add(1, Ordering::Release);
    }

    /// Checks that a ticket is answered.
    ///
    /// # Errors
    /// The ticket is open; the error is the number at which to sleep until it may be answered (T3).
    pub fn look(&self, ticket: u64) -> Result<(), u32> {
        // ORDER: Acquire with `answer`: a thread that sees the number sees what was answered before it.
        // [model: who_sleeps_for_an_answer_is_woken]
        let rounds = self.rounds.load(Ordering::Acquire);
        match self.is_answered(ticket) {
            true => Ok(()),
            false => Err(rounds),
        }
    }

    /// Returns the number that a thread sleeps at; it changes with each answer.
    pub fn rounds(&self) -> &AtomicU32 {
        &self.rounds
    }

    /// Reports whether a ticket is answered.
    pub fn is_answered(&self, ticket: u64) -> bool {
        // ORDER: Acquire with `answer`. [model: who_sleeps_for_an_answer_is_woken]
        self.answered.load(Ordering::Acquire) >= ticket
    }

    /// Returns the number of tickets that were drawn.
    pub fn drawn(&self) -> u64 {
        self.drawn.load(Ordering::Relaxed) // ORDER: a bound; later ones see that no thread serves
    }
}
