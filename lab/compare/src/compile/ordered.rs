//! Order between threads: which thread waits for which, and which one starts which.
//!
//! ```text
//!   act on a slot ─► last operation on it by another thread, in this epoch or the one before? ─► Wait
//!   first event of a thread ─► Start, by the thread of the event before
//! ```
//!
//! W1  An operation on a slot comes after the one before it on that slot: in the same thread by the order of its
//!     chunk, two epochs or more ago by the epochs, otherwise by a Wait for the slot's count.
//! W2  What is waited for has a lower ticket, so the lowest ticket that is not done can always go on: no wait is for
//!     ever.
//! W3  An ended thread gets no more operations.
//!
//! Not here: chunks and epochs (epochs.rs), slots (slots.rs).

use std::io;

use skinflint_replay::script::{COUNT_BITS, LEAD, Op};
use skinflint_trace::{AllocFn, Event};

use super::epochs::Epochs;
use super::ledger::Act;
use super::slots::Pool;
use super::survey::Survey;

/// The last operation on a slot.
#[derive(Clone, Copy, Default)]
struct Last {
    count: u32,
    thread: u32,
    epoch: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    Unborn,
    Alive,
    Ended,
}

/// The script being built.
pub struct Ordered<'a> {
    /// The destination of operations.
    pub epochs: Epochs<'a>,
    /// Free slots.
    pub slots: Pool,
    /// The number of the survey's touches that are done.
    pub touched: usize,
    last: Vec<Last>,
    lives: Vec<Life>,
    main: u32,
    /// The thread of the event before.
    before: u32,
    now_ns: u64,
}

impl<'a> Ordered<'a> {
    /// Creates the order for this many threads; `main` needs no start.
    pub fn new(epochs: Epochs<'a>, threads: usize, main: u32) -> Ordered<'a> {
        let mut lives = vec![Life::Unborn; threads];
        lives[main as usize] = Life::Alive;
        Ordered {
            epochs,
            slots: Pool::new(threads),
            touched: 0,
            last: Vec::new(),
            lives,
            main,
            before: main,
            now_ns: 0,
        }
    }

    /// Begins an event. Its thread is started if need be.
    ///
    /// # Errors
    /// If the script cannot be written.
    pub fn begin(&mut self, event: &Event) -> io::Result<()> {
        self.epochs.begin(event.time_ns)?;
        self.now_ns = event.time_ns;
        let thread = event.thread.0;
        if self.lives[thread as usize] == Life::Unborn {
            self.lives[thread as usize] = Life::Alive;
            let starter = match self.lives[self.before as usize] {
                Life::Alive => self.before,
                _ => self.main,
            };
            self.epochs.push(starter, self.now_ns, Op::Start { thread });
        }
        self.before = thread;
        Ok(())
    }

    /// Notes that the thread's last event is over.
    pub fn end_thread(&mut self, thread: u32) {
        if thread != self.main {
            self.epochs.push(thread, self.now_ns, Op::End);
            self.lives[thread as usize] = Life::Ended;
            self.slots.end_thread(thread);
        }
    }

    /// Appends an operation on a slot, after a wait if need be (W1).
    fn on_slot(&mut self, thread: u32, slot: u32, prefix: Option<Op>, op: Op) {
        let epoch = self.epochs.number();
        self.epochs.use_slot(slot);
        if slot as usize >= self.last.len() {
            self.last.resize(slot as usize + 1, Last::default());
        }
        let last = &mut self.last[slot as usize];
        let is_near = epoch - last.epoch < u64::from(LEAD);
        if last.count != 0 && last.thread != thread && is_near {
            let wait = Op::Wait {
                slot,
                count: (last.count - 1) & ((1 << COUNT_BITS) - 1),
            };
            self.epochs.push(thread, self.now_ns, wait);
        }
        // The count is kept one higher than it is, so that 0 is a slot never used; it wraps where the replayer's
        // does.
        let count = (last.count.max(1) - 1).wrapping_add(1) & ((1 << COUNT_BITS) - 1);
        *last = Last {
            count: count + 1,
            thread,
            epoch,
        };
        if let Some(prefix) = prefix {
            self.epochs.push(thread, self.now_ns, prefix);
        }
        self.epochs.push(thread, self.now_ns, op);
    }

    /// Appends an acquisition or a regrowth, of which this many pages are touched (`None`: all).
    ///
    /// # Errors
    /// If the script cannot be written.
    pub fn acquire(
        &mut self,
        event: &Event,
        act: &Act,
        pages: Option<u64>,
        survey: &Survey,
    ) -> io::Result<()> {
        let prefix = pages.map(|pages| Op::TouchNext { pages });
        let thread = event.thread.0;
        match *act {
            Act::Acquire {
                slot,
                func,
                node,
                addr,
                size,
                ..
            } => {
                let op = match func {
                    AllocFn::Calloc => Op::Calloc { slot, size },
                    AllocFn::Memalign | AllocFn::Valloc => Op::Memalign {
                        slot,
                        size,
                        log2: survey.alignments.log2(node, addr),
                    },
                    _ => Op::Malloc { slot, size },
                };
                self.on_slot(thread, slot, prefix, op);
                self.epochs.count(Some(size), None);
            }
            Act::Regrow {
                slot,
                size,
                old_size,
                ..
            } => {
                self.on_slot(thread, slot, prefix, Op::Realloc { slot, size });
                self.epochs.count(Some(size), Some(old_size));
            }
            Act::Release { .. } => {}
        }
        Ok(())
    }

    /// Appends a release.
    ///
    /// # Errors
    /// If the script cannot be written.
    pub fn release(&mut self, event: &Event, act: &Act) -> io::Result<()> {
        if let Act::Release { slot, size } = *act {
            self.on_slot(event.thread.0, slot, None, Op::Free { slot });
            self.epochs.count(None, Some(size));
        }
        Ok(())
    }

    /// Appends a touch of more pages of a block, by the thread that had it last.
    ///
    /// # Errors
    /// If the script cannot be written.
    pub fn touch(&mut self, slot: u32, pages: u64) -> io::Result<()> {
        let thread = self.last[slot as usize].thread;
        if self.lives[thread as usize] == Life::Alive {
            self.on_slot(thread, slot, None, Op::Touch { slot, pages });
        }
        Ok(())
    }
}
