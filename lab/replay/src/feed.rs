//! The feed: reads the script, epoch by epoch, and hands the threads their chunks.
//!
//! ```text
//!   thread finishes the last chunk of an epoch ─► advance ─► read the next but one ─► post
//! ```
//!
//! E1  Epoch k is posted when all up to k − `LEAD` are done, so at most `LEAD` are under way and a buffer is free.
//! E2  The thread that raises `feed_calls` from 0 is the feed until it is 0 again; other threads only raise it. So
//!     one thread at a time touches the feed and the file.
//! E3  An epoch with flags is posted when all before it are done; its points are taken just before: all is quiet.
//! E4  A payload is checked and its chunks are known to fit before any of it is posted.
//!
//! Not here: mailboxes (stage.rs), measuring (points.rs).

use core::sync::atomic::Ordering;

use skinflint_replay::script::{CHUNK_BYTES, Chunk, EPOCH_BYTES, Epoch, Fault, LEAD, point};

use crate::points;
use crate::stage::{Posted, Stage};
use crate::system;

/// The number of slots made at a time: 16 pages.
const SLOTS_AHEAD: u32 = 4096;

/// The position of the reading.
pub struct Feed {
    fd: i32,
    /// Bytes read of the script.
    offset: u64,
    /// The number of the epoch to read next.
    next: u32,
    /// The number of the first epoch that is not done.
    oldest: u32,
    /// The header of `next`, if it was already read.
    pending: Option<Epoch>,
    ended: bool,
    /// The number of slots that exist.
    populated: u32,
    /// Time spent here, nanoseconds.
    pub spent_ns: u64,
}

impl Feed {
    /// Creates a feed whose file is positioned after the header.
    pub fn new(fd: i32, offset: u64) -> Feed {
        Feed {
            fd,
            offset,
            next: 0,
            oldest: 0,
            pending: None,
            ended: false,
            populated: 0,
            spent_ns: 0,
        }
    }

    fn fill(&mut self, stage: &Stage, buffer: &mut [u8]) {
        match system::read_full(self.fd, buffer) {
            Ok(done) if done == buffer.len() => self.offset += done as u64,
            Ok(done) => {
                let what = b"the script ends here, before its last epoch: it was cut; compile the trace again";
                stage.fail(2, self.offset + done as u64, what)
            }
            Err(number) => stage.fail(2, self.offset, system::error_text(number, &mut [0; 128])),
        }
    }

    /// Reads and posts what may be posted.
    fn step(&mut self, stage: &'static Stage) {
        while !self.ended {
            // ORDER: Acquire; pairs with the AcqRel of `done`: what the epoch's threads did is seen.
            let is_done =
                |epoch: u32| stage.remaining[(epoch % LEAD) as usize].load(Ordering::Acquire) == 0;
            while self.oldest != self.next && is_done(self.oldest) {
                self.oldest = self.oldest.wrapping_add(1);
            }
            let under_way = self.next.wrapping_sub(self.oldest);
            if under_way >= LEAD {
                return;
            }
            let epoch = match self.pending {
                Some(epoch) => epoch,
                None => self.read_header(stage),
            };
            if epoch.flags != 0 && under_way != 0 {
                return;
            }
            self.pending = None;
            if epoch.flags != 0 {
                points::take(stage, &epoch);
            }
            self.ended = epoch.flags & point::END != 0;
            if self.ended {
                stage.end();
            } else {
                self.post(stage, &epoch);
            }
        }
    }

    fn read_header(&mut self, stage: &Stage) -> Epoch {
        let mut bytes = [0; EPOCH_BYTES];
        self.fill(stage, &mut bytes);
        match Epoch::from_bytes(&bytes, self.next) {
            Ok(epoch) => *self.pending.insert(epoch),
            Err(Fault { at, what }) => stage.fail(
                2,
                self.offset - EPOCH_BYTES as u64 + at as u64,
                what.as_bytes(),
            ),
        }
    }

    /// Makes this many slots exist.
    fn populate(&mut self, stage: &Stage, slots: u32) {
        if slots > self.populated {
            if slots - 1 > stage.memory.slot_mask() {
                let what =
                    b"more live blocks than the address space has room for: lift ulimit -v and -f";
                stage.fail(2, self.offset, what);
            }
            let to = (slots - 1)
                .saturating_add(SLOTS_AHEAD)
                .min(stage.memory.slot_mask());
            stage.memory.populate(self.populated..to);
            self.populated = to;
        }
    }

    /// Reads the payload of an epoch and posts its chunks (E4).
    fn post(&mut self, stage: &'static Stage, epoch: &Epoch) {
        self.populate(stage, epoch.slots);
        let start = stage.memory.buffer(self.next);
        // SAFETY: E1: the buffer's last epoch is done; its length was checked against the buffer's.
        let payload =
            unsafe { core::slice::from_raw_parts_mut(start, epoch.payload_bytes as usize) };
        let begin = self.offset;
        self.fill(stage, payload);
        if skinflint_replay::script::check(payload) != epoch.payload_check {
            stage.fail(
                2,
                begin,
                b"an epoch is damaged: its check is wrong; compile the trace again",
            );
        }
        let each = |act: &mut dyn FnMut(usize, Chunk)| {
            let mut at = 0;
            for _ in 0..epoch.chunks {
                match Chunk::from_payload(payload, at, stage.header.threads) {
                    Ok(chunk) => {
                        act(at, chunk);
                        at += chunk.bytes();
                    }
                    Err(Fault { at, what }) => stage.fail(2, begin + at as u64, what.as_bytes()),
                }
            }
            if at != payload.len() {
                stage.fail(
                    2,
                    begin + at as u64,
                    b"bytes after the last chunk of an epoch",
                );
            }
        };
        let number = self.next.wrapping_add(1);
        each(&mut |at, chunk| {
            // SAFETY: stage.H2: `fed` is the feed's, which we are (E2).
            let fed = unsafe { &mut *stage.part(chunk.thread).fed.get() };
            if *fed == number {
                stage.fail(
                    2,
                    begin + at as u64,
                    b"a thread has two chunks in one epoch",
                );
            }
            *fed = number;
        });
        // ORDER: Release; the threads that lower it have seen a chunk that is posted after it.
        stage.remaining[(self.next % LEAD) as usize].store(epoch.chunks, Ordering::Release);
        each(&mut |at, chunk| {
            let words = at + CHUNK_BYTES;
            let posted = Posted {
                // SAFETY: E4: inside the payload, at a multiple of eight bytes.
                words: unsafe { start.add(words) }.cast(),
                count: chunk.words as usize,
                epoch: self.next,
                offset: begin + words as u64,
                time_ns: chunk.time_ns,
            };
            stage.post(chunk.thread, posted);
        });
        self.next = number;
    }
}

/// Reads on, or makes the thread that is reading look again (E2).
pub fn advance(stage: &'static Stage) {
    // ORDER: AcqRel; pairs with the exchange below: the feed is handed from thread to thread.
    if stage.feed_calls.fetch_add(1, Ordering::AcqRel) != 0 {
        return;
    }
    let mut answered = 1;
    loop {
        let begun_ns = system::now_ns();
        // SAFETY: E2.
        unsafe { (*stage.feed.get()).step(stage) };
        let spent_ns = system::now_ns() - begun_ns;
        // SAFETY: E2; the reference above has ended.
        unsafe { (*stage.feed.get()).spent_ns += spent_ns };
        // ORDER: AcqRel and Acquire; pairs with the addition above.
        match stage
            .feed_calls
            .compare_exchange(answered, 0, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) => return,
            Err(calls) => answered = calls,
        }
    }
}

/// Notes that a chunk of this epoch is done.
pub fn done(stage: &'static Stage, epoch: u32) {
    stage.moved();
    // ORDER: AcqRel; pairs with the Acquire in `step`, so that the next epochs see what was done in this one.
    if stage.remaining[(epoch % LEAD) as usize].fetch_sub(1, Ordering::AcqRel) == 1 {
        advance(stage);
    }
}
