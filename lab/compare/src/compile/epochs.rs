//! Epochs: operations gathered by thread, written when there are enough.
//!
//! ```text
//!   push(thread, op) ─► chunk of the thread ─┐
//!   push(other, op)  ─► chunk of the other  ─┴─ cut ─► [epoch header | chunks] ─► out
//! ```
//!
//! O1  An epoch ends after `EPOCH_EVENTS` events, at a point, or when its threads have acquired or released much: a
//!     thread may run ahead by two epochs, and the peak must not be falsified by more than a percent or two.
//! O2  Chunks keep the order in which their threads first did something; within a chunk, the order of tickets.
//!
//! Not here: which operations (ordered.rs), the bytes of headers (`skinflint_replay::script`).

use std::io::{self, Write};

use skinflint_replay::script::{
    CHUNK_BYTES, Chunk, EPOCH_EVENTS, Epoch, Header, MAX_PAYLOAD_BYTES, Op,
};

/// An epoch of several threads ends early if live bytes changed by this much: this part of what lives, and …
const CHANGE_SHARE: u64 = 64;
/// … at least this.
const CHANGE_BYTES: u64 = 64 << 10;
/// The fewest events of an epoch, unless a point ends it.
const LEAST_EVENTS: u32 = 8;
/// The size beyond which no epoch grows, whatever the events are.
const FULL_BYTES: usize = MAX_PAYLOAD_BYTES / 2;
/// The nanoseconds after which a thread's operations get a new time stamp.
const TIME_NS: u64 = 1_000_000;

#[derive(Default)]
struct Part {
    words: Vec<u32>,
    time_ns: u64,
    /// The time of the last stamp.
    now_ns: u64,
}

/// The epoch being built, and what was written.
pub struct Epochs<'a> {
    out: &'a mut dyn Write,
    parts: Vec<Part>,
    /// The threads of this epoch, in order (O2).
    active: Vec<u32>,
    payload: Vec<u8>,
    words: usize,
    events: u32,
    acquired_bytes: u64,
    released_bytes: u64,
    /// The header of the epoch being built.
    head: Epoch,
    now_ns: u64,
    ops: u64,
    live_bytes: u64,
    live_blocks: u32,
    /// The number of slots used so far.
    slots: u32,
    written: u64,
    bytes: u64,
}

impl<'a> Epochs<'a> {
    /// Writes the script's header.
    ///
    /// # Errors
    /// If `out` fails.
    pub fn new(out: &'a mut dyn Write, header: &Header) -> io::Result<Epochs<'a>> {
        let bytes = header.to_bytes();
        out.write_all(&bytes)?;
        let mut parts = Vec::new();
        parts.resize_with(header.threads as usize, Part::default);
        Ok(Epochs {
            out,
            parts,
            active: Vec::new(),
            payload: Vec::new(),
            words: 0,
            events: 0,
            acquired_bytes: 0,
            released_bytes: 0,
            head: Epoch::default(),
            now_ns: 0,
            ops: 0,
            live_bytes: 0,
            live_blocks: 0,
            slots: 0,
            written: 0,
            bytes: bytes.len() as u64,
        })
    }

    /// Returns the number of the epoch being built.
    pub fn number(&self) -> u64 {
        self.written
    }

    /// Returns the number of epochs written.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Returns the number of operations on blocks so far.
    pub fn ops(&self) -> u64 {
        self.ops
    }

    /// Returns the number of bytes written.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Begins an event at this time: the epoch may end before it.
    ///
    /// # Errors
    /// If `out` fails.
    pub fn begin(&mut self, time_ns: u64) -> io::Result<()> {
        let much = CHANGE_BYTES.max(self.live_bytes / CHANGE_SHARE);
        // A thread that runs ahead acquires, or releases, at most this much before the others.
        let changed = self.acquired_bytes.max(self.released_bytes) > much
            && self.active.len() > 1
            && self.events >= LEAST_EVENTS;
        if self.events >= EPOCH_EVENTS || changed || self.words * 4 > FULL_BYTES {
            self.cut(0, 0)?;
        }
        self.now_ns = self.now_ns.max(time_ns);
        self.events += 1;
        Ok(())
    }

    /// Appends an operation of a thread.
    pub fn push(&mut self, thread: u32, time_ns: u64, op: Op) {
        let part = &mut self.parts[thread as usize];
        if part.words.is_empty() {
            self.active.push(thread);
            self.words += CHUNK_BYTES / 4;
            (part.time_ns, part.now_ns) = (time_ns, time_ns);
        }
        let before = part.words.len();
        if time_ns >= part.now_ns + TIME_NS {
            let micros = u32::try_from((time_ns - part.now_ns) / 1000).unwrap_or(u32::MAX);
            part.now_ns += u64::from(micros) * 1000;
            part.words
                .extend_from_slice(Op::Time { micros }.words().as_slice());
        }
        part.words.extend_from_slice(op.words().as_slice());
        self.words += part.words.len() - before;
    }

    /// Notes that this slot is used.
    pub fn use_slot(&mut self, slot: u32) {
        self.slots = self.slots.max(slot + 1);
    }

    /// Notes an appended operation on a block: what lives changes.
    pub fn count(&mut self, acquired: Option<u64>, released: Option<u64>) {
        self.ops += 1;
        // The replayer's table holds 40 bits of a size.
        let known = |size: Option<u64>| size.unwrap_or(0).min((1 << 40) - 1);
        self.live_bytes = (self.live_bytes + known(acquired)).saturating_sub(known(released));
        self.live_blocks =
            (self.live_blocks + u32::from(acquired.is_some())) - u32::from(released.is_some());
        self.acquired_bytes += known(acquired).saturating_sub(known(released));
        self.released_bytes += known(released).saturating_sub(known(acquired));
    }

    /// Ends the epoch; the next one has these points before it.
    ///
    /// # Errors
    /// If `out` fails.
    pub fn point(&mut self, flags: u32, mark: u32) -> io::Result<()> {
        self.cut(flags, mark)
    }

    /// Writes the last epoch, with this flag.
    ///
    /// # Errors
    /// If `out` fails.
    pub fn finish(&mut self, flags: u32) -> io::Result<()> {
        self.cut(flags, 0)?;
        self.write()?;
        self.out.flush()
    }

    fn cut(&mut self, flags: u32, mark: u32) -> io::Result<()> {
        if self.active.is_empty() && self.head.flags == 0 {
            // Nothing came since the last cut: the points belong to the same epoch.
        } else {
            self.write()?;
        }
        self.head = Epoch {
            index: self.written as u32,
            flags,
            mark,
            first_op: self.ops,
            time_ns: self.now_ns,
            live_bytes: self.live_bytes,
            live_blocks: self.live_blocks,
            ..Epoch::default()
        };
        self.events = 0;
        self.acquired_bytes = 0;
        self.released_bytes = 0;
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        self.payload.clear();
        for &thread in &self.active {
            let part = &mut self.parts[thread as usize];
            let chunk = Chunk {
                thread,
                words: part.words.len() as u32,
                time_ns: part.time_ns,
            };
            self.payload.extend_from_slice(&chunk.to_bytes());
            part.words.resize(part.words.len().next_multiple_of(2), 0);
            for word in part.words.drain(..) {
                self.payload.extend_from_slice(&word.to_le_bytes());
            }
        }
        self.head.slots = self.slots;
        self.head.chunks = self.active.len() as u32;
        self.active.clear();
        self.words = 0;
        let header = self.head.to_bytes(&self.payload);
        self.out.write_all(&header)?;
        self.out.write_all(&self.payload)?;
        self.bytes += (header.len() + self.payload.len()) as u64;
        self.written += 1;
        Ok(())
    }
}
