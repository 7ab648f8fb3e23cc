//! The events of all threads, in the order of tickets.
//!
//! ```text
//!   index (by first ticket) ─► feeder thread: read, check, unpack ─► channel (2 blocks) ─┐
//!   lanes: one per block that is begun   ◄─────────────────────────────────────────────┘
//!   heap: lanes that wait, by next ticket;  current lane runs until its ticket passes `limit`
//! ```
//!
//! G1  A block is begun when its first ticket is the lowest of all that are left, so blocks are needed
//!     exactly in the order of first tickets, and a thread that starts late is not loaded early.
//! G2  `limit` is the lowest ticket that waits elsewhere, in the heap or in a block not yet begun. A
//!     run of one thread costs one comparison per event; the heap is touched once per run.
//! G3  Memory: the blocks that are begun (at most one per thread in a trace of our writer), two in
//!     the channel, one with the feeder; the memory of blocks that were read goes back to the feeder, which takes it for
//!     the next ones: memory anew for each is cleared by the kernel, page by page.
//! G4  A block that cannot be read is noted in `damage` and skipped; each event comes at most once.
//!
//! Not here: decoding (decode.rs).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::thread::JoinHandle;

use crate::block::{BLOCK_HEADER_BYTES, Unpacker};
use crate::decode::{Decoder, Start, Stop};
use crate::event::{Event, ThreadId};
use crate::source::{Damage, Entry, Source, add_damage, load};
use skinflint_framing::varint::Malformed;

/// The most events of a run: few enough to stay in the first-level cache until they were used.
pub const RUN: usize = 32;

/// The number of blocks that are unpacked ahead.
const AHEAD: usize = 2;

type Loaded = Result<(Start, Vec<u8>), Malformed>;

/// The source of unpacked blocks.
enum Feed {
    /// A thread that works ahead, and what takes the memory of blocks that were read back to it; the options are `None`
    /// only while dropping.
    Ahead(
        Option<Receiver<Loaded>>,
        Sender<Vec<u8>>,
        Option<JoinHandle<()>>,
    ),
    /// No thread: there are few blocks, or no thread could be started.
    Here,
}

/// A block that is begun.
struct Lane {
    decoder: Decoder,
    /// An event that was read already, but whose turn has not come.
    head: Option<Event>,
    entry: Entry,
}

/// The events of a trace, one after the other: see [`crate::Trace::events`].
///
/// Not an `Iterator`: its `for_each` would hide the faster one below.
pub struct Events {
    source: Arc<Source>,
    index: Arc<Vec<Entry>>,
    /// Next block of `index` to begin.
    next: usize,
    feed: Feed,
    lanes: Vec<Lane>,
    /// Lanes that are free.
    idle: Vec<usize>,
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    current: Option<usize>,
    limit: u64,
    damage: Vec<Damage>,
    /// Events that were read for `next_event`, and the next of them.
    run: Vec<Event>,
    at: usize,
}

/// Loads a block into `raw`, whose content is dropped.
fn load_entry(source: &Source, entry: &Entry, unpacker: &mut Unpacker, mut raw: Vec<u8>) -> Loaded {
    let header = load(source, entry.offset, entry.payload_len, unpacker, &mut raw)?;
    let start = Start {
        thread: ThreadId(entry.thread),
        first_ticket: entry.first_ticket,
        first_time_ns: header.first_time_ns,
        events: entry.events,
    };
    Ok((start, raw))
}

impl Events {
    pub(crate) fn new(source: Arc<Source>, index: Arc<Vec<Entry>>) -> Self {
        let mut feed = Feed::Here;
        if index.len() > AHEAD {
            let (send, receive) = sync_channel(AHEAD);
            let (spents, spent) = channel();
            let (source, index) = (Arc::clone(&source), Arc::clone(&index));
            let work = move || {
                let mut unpacker = Unpacker::default();
                for entry in index.iter() {
                    // The other end is gone when no more blocks are wanted.
                    let raw = spent.try_recv().unwrap_or_default();
                    if send
                        .send(load_entry(&source, entry, &mut unpacker, raw))
                        .is_err()
                    {
                        return;
                    }
                }
            };
            let thread = std::thread::Builder::new()
                .name("sft-unpack".into())
                .spawn(work);
            if let Ok(thread) = thread {
                feed = Feed::Ahead(Some(receive), spents, Some(thread));
            }
        }
        Events {
            source,
            index,
            next: 0,
            feed,
            lanes: Vec::new(),
            idle: Vec::new(),
            waiting: BinaryHeap::new(),
            current: None,
            limit: 0,
            damage: Vec::new(),
            run: Vec::new(),
            at: 0,
        }
    }

    /// Returns what could not be read so far; complete after the last event. Damage found when the trace
    /// was opened is in [`crate::Trace::damage`].
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// Returns the next event; `None` at the end.
    #[inline]
    pub fn next_event(&mut self) -> Option<Event> {
        if self.at >= self.run.len() {
            let mut run = std::mem::take(&mut self.run);
            self.read_more(&mut run);
            (self.run, self.at) = (run, 0);
        }
        let event = self.run.get(self.at).copied();
        self.at += 1;
        event
    }

    /// Calls `each` for every event that is left.
    pub fn for_each(&mut self, mut each: impl FnMut(&Event)) {
        self.for_each_run(|run| run.iter().for_each(&mut each));
    }

    /// Calls `each` for every event that is left, [`RUN`] of them at a time: the fast way. `each` may take the events
    /// and leave other memory in their place.
    pub fn for_each_run(&mut self, mut each: impl FnMut(&mut Vec<Event>)) {
        let mut run = std::mem::take(&mut self.run);
        run.drain(..self.at.min(run.len()));
        self.at = 0;
        while !run.is_empty() || self.read_more(&mut run) {
            each(&mut run);
            run.clear();
        }
    }

    /// Reads up to [`RUN`] events; returns whether there were any.
    fn read_more(&mut self, run: &mut Vec<Event>) -> bool {
        run.clear();
        run.reserve_exact(RUN);
        while run.len() < RUN {
            let Some(current) = self.current else {
                if !self.switch() {
                    break;
                }
                continue;
            };
            let lane = &mut self.lanes[current];
            run.extend(lane.head.take());
            match lane.decoder.read(self.limit, run) {
                Ok(Stop::Full) => {}
                Ok(Stop::Beyond) => {
                    lane.head = run.pop();
                    if !self.switch() {
                        break;
                    }
                }
                Ok(Stop::End) => self.end_lane(current, None),
                Err(fault) => self.end_lane(current, Some(fault)),
            }
        }
        !run.is_empty()
    }

    /// Ends the current lane, which has no more events; notes the fault if it should have more.
    #[cold]
    #[inline(never)]
    fn end_lane(&mut self, current: usize, fault: Option<Malformed>) {
        let lane = &mut self.lanes[current];
        if let Some(Malformed(what)) = fault {
            let damage = Damage {
                offset: lane.entry.offset,
                bytes: 0,
                events: u64::from(lane.decoder.left()),
                what: format!("a block of events: {what}"),
            };
            add_damage(&mut self.damage, damage);
        }
        let spent = lane.decoder.finish();
        // The next block is as a rule as large. Other lanes may wait for long.
        if !self.idle.is_empty() {
            lane.decoder.shrink();
        }
        if let Feed::Ahead(_, spents, _) = &self.feed {
            let _ = spents.send(spent);
        }
        self.idle.push(current);
        self.current = None;
    }

    /// Makes the lane with the lowest ticket the current one; `false` if nothing is left.
    #[inline(never)]
    fn switch(&mut self) -> bool {
        if let Some(current) = self.current.take() {
            let ticket = self.lanes[current]
                .head
                .map_or(u64::MAX, |head| head.ticket);
            self.waiting.push(Reverse((ticket, current)));
        }
        loop {
            let waiting = self.waiting.peek().map(|&Reverse((ticket, _))| ticket);
            let unread = self.index.get(self.next).map(|entry| entry.first_ticket);
            match (waiting, unread) {
                (None, None) => return false,
                (Some(ticket), unread) if unread.is_none_or(|unread| ticket <= unread) => {
                    self.current = self.waiting.pop().map(|Reverse((_, lane))| lane);
                }
                _ => self.begin_block(),
            }
            if self.current.is_some() {
                break;
            }
        }
        let waiting = self
            .waiting
            .peek()
            .map_or(u64::MAX, |&Reverse((ticket, _))| ticket);
        let unread = self
            .index
            .get(self.next)
            .map_or(u64::MAX, |entry| entry.first_ticket);
        self.limit = waiting.min(unread);
        true
    }

    /// Begins the next block of the index as the current lane; if it cannot be read, there is no current lane.
    fn begin_block(&mut self) {
        let entry = self.index[self.next];
        self.next += 1;
        let loaded = match &self.feed {
            Feed::Ahead(Some(receive), ..) => receive
                .recv()
                .unwrap_or(Err(Malformed("the thread that unpacks has ended"))),
            _ => load_entry(&self.source, &entry, &mut Unpacker::default(), Vec::new()),
        };
        let lane = self.idle.pop().unwrap_or_else(|| {
            self.lanes.push(Lane {
                decoder: Decoder::new(),
                head: None,
                entry,
            });
            self.lanes.len() - 1
        });
        self.lanes[lane].entry = entry;
        self.lanes[lane].head = None;
        let begun = loaded.and_then(|(start, raw)| self.lanes[lane].decoder.start(raw, start));
        match begun {
            Ok(()) => self.current = Some(lane),
            Err(Malformed(what)) => {
                let damage = Damage {
                    offset: entry.offset,
                    bytes: u64::from(entry.payload_len) + BLOCK_HEADER_BYTES as u64,
                    events: u64::from(entry.events),
                    what: format!("a block of events: {what}"),
                };
                add_damage(&mut self.damage, damage);
                self.idle.push(lane);
            }
        }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        if let Feed::Ahead(receive, _, thread) = &mut self.feed {
            // Without a receiver the feeder's next send fails, so it ends.
            drop(receive.take());
            if let Some(thread) = thread.take() {
                let _ = thread.join();
            }
        }
    }
}
