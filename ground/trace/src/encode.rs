//! From the events of one thread to the bytes of one block. Pure: no file, no clock, no thread.
//!
//! ```text
//!   push(event) ──► model: expected? ──► tag byte (+ numbers, each in its own stream)
//!   take()      ──► [8 lengths | tags | cells | nodes | sizes | places | releases | tickets | rest]
//! ```
//!
//! N1  A block decodes by itself (model.P2).
//! N2  Every event can be coded, whatever its numbers: what is not expected is written in full.
//! N3  The two tables are hints: a lost entry costs bytes, never correctness, because what they say is
//!     compared with the model before it is used.
//!
//! Not here: compression and checksums (write.rs), the order of threads (merge.rs).

use crate::event::{AllocFn, Event, EventKind, FreeFn, ThreadId};
use crate::model::{Cell, Model, REALLOC_ACQUIRE, stream, tag};
use skinflint_framing::varint::{put, put_signed, zigzag};

/// The number of events after which [`EventEncoder::is_full`] returns true. Larger blocks know more
/// addresses and compress better, but cost more memory for each thread that is being read. The same g++
/// run as at [`crate::DEFAULT_LEVEL`], in bytes per event: 1.47 with 8,192 events a block, 1.34 with
/// 16,384, 1.24 with 32,768, 1.17 with 65,536.
pub const BLOCK_EVENTS: u32 = 1 << 16;

/// The number of slots in which cells are found again by hash.
const CELL_SLOTS: usize = 8192;

/// The events of one thread, coded, not yet compressed: what [`crate::Writer::events`] takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RawBlock {
    pub(crate) thread: ThreadId,
    pub(crate) raw: Vec<u8>,
    pub(crate) events: u32,
    pub(crate) first_ticket: u64,
    pub(crate) last_ticket: u64,
    pub(crate) first_time_ns: u64,
}

impl RawBlock {
    /// Returns the thread whose events these are.
    pub fn thread(&self) -> ThreadId {
        self.thread
    }

    /// Returns the number of events.
    pub fn events(&self) -> u32 {
        self.events
    }

    /// Returns the coded size in bytes, before compression.
    pub fn raw_bytes(&self) -> usize {
        self.raw.len()
    }

    /// Returns the ticket of the first event.
    pub fn first_ticket(&self) -> u64 {
        self.first_ticket
    }

    /// Returns the ticket of the last event.
    pub fn last_ticket(&self) -> u64 {
        self.last_ticket
    }
}

/// Codes the events of one thread. Keeps its buffers from block to block; memory is bounded by the
/// events pushed since the last [`take`](Self::take): about 40 bytes per event, plus 75 KiB. Drop the
/// encoder of a thread that has ended.
pub struct EventEncoder {
    thread: ThreadId,
    model: Model,
    streams: [Vec<u8>; stream::COUNT],
    /// Ordinal + 1 of the newest block at an address, by hash of the address.
    by_addr: Vec<u32>,
    by_cell: Box<[u32; CELL_SLOTS]>,
    events: u32,
    first_ticket: u64,
    first_time_ns: u64,
    ticket: u64,
    time_ns: u64,
}

#[inline]
fn hash(value: u64) -> u64 {
    value.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[inline]
fn cell_slot(cell: &Cell) -> usize {
    let mixed = hash(cell.size ^ u64::from(cell.node).rotate_left(32) ^ u64::from(cell.how) << 61);
    (mixed >> 51) as usize
}

impl EventEncoder {
    /// Creates an encoder for this thread's events.
    pub fn new(thread: ThreadId) -> Self {
        EventEncoder {
            thread,
            model: Model::new(),
            streams: Default::default(),
            by_addr: vec![0; 1024],
            by_cell: Box::new([0; CELL_SLOTS]),
            events: 0,
            first_ticket: 0,
            first_time_ns: 0,
            ticket: 0,
            time_ns: 0,
        }
    }

    /// Returns the thread whose events these are.
    pub fn thread(&self) -> ThreadId {
        self.thread
    }

    /// Returns the number of events since the last [`take`](Self::take).
    pub fn events(&self) -> u32 {
        self.events
    }

    /// Returns the coded bytes since the last [`take`](Self::take), before compression.
    pub fn raw_bytes(&self) -> usize {
        self.streams.iter().map(Vec::len).sum()
    }

    /// Returns whether it is time to [`take`](Self::take). Going on is possible, but a block of more than
    /// 16 MiB is refused by [`crate::Writer::events`].
    #[inline]
    pub fn is_full(&self) -> bool {
        self.events >= BLOCK_EVENTS
    }

    /// Adds an event. Its `thread` is ignored: the encoder's own is used. Tickets should rise; one that does
    /// not is stored all the same.
    #[inline]
    pub fn push(&mut self, event: &Event) {
        if self.events == 0 {
            self.first_ticket = event.ticket;
            self.first_time_ns = event.time_ns;
            self.time_ns = event.time_ns;
            self.ticket = event.ticket.wrapping_sub(1);
        }
        if event.time_ns != self.time_ns {
            self.streams[stream::TAGS].push(tag::TIME);
            let later = event.time_ns.wrapping_sub(self.time_ns) as i64;
            put_signed(&mut self.streams[stream::REST], later);
            self.time_ns = event.time_ns;
        }
        let jump = event.ticket.wrapping_sub(self.ticket).wrapping_sub(1);
        let mut flag = 0;
        if jump != 0 {
            put(&mut self.streams[stream::TICKETS], jump);
            flag = tag::JUMP;
        }
        self.ticket = event.ticket;
        self.events += 1;
        let code = self.code(event.kind);
        self.streams[stream::TAGS].push(flag | code);
    }

    /// Writes the event's numbers to the streams; returns its tag.
    #[inline]
    fn code(&mut self, kind: EventKind) -> u8 {
        match kind {
            EventKind::Alloc {
                func,
                node,
                addr,
                size,
                usable,
            } => {
                let cell = Cell {
                    size,
                    usable,
                    node: node.0,
                    how: func as u8,
                };
                self.acquire(cell, addr)
            }
            EventKind::ReallocAcquire {
                node,
                addr,
                size,
                usable,
            } => {
                let cell = Cell {
                    size,
                    usable,
                    node: node.0,
                    how: REALLOC_ACQUIRE,
                };
                self.acquire(cell, addr)
            }
            EventKind::Free {
                func: FreeFn::Free,
                addr,
            } => tag::FREE | self.release(addr),
            EventKind::Free { func, addr } => {
                self.streams[stream::REST].push(func as u8);
                tag::FREE_BY | self.release(addr)
            }
            EventKind::ReallocRelease { addr } => tag::REALLOC | self.release(addr),
            EventKind::ReallocCancel { addr } => {
                let delta = addr.wrapping_sub(self.model.last_release) as i64;
                self.rare(tag::REALLOC_CANCEL, None, &[zigzag(delta)])
            }
            EventKind::Map {
                node,
                addr,
                len,
                prot,
                flags,
                by_allocator,
            } => {
                let (node, prot, flags) = (node.0.into(), prot.into(), flags.into());
                self.rare(
                    tag::MAP,
                    Some(addr),
                    &[len, node, prot, flags, by_allocator.into()],
                )
            }
            EventKind::Unmap {
                addr,
                len,
                by_allocator,
            } => self.rare(tag::UNMAP, Some(addr), &[len, by_allocator.into()]),
            EventKind::Remap {
                node,
                old_addr,
                old_len,
                new_addr,
                new_len,
            } => {
                let back = zigzag(old_addr.wrapping_sub(new_addr) as i64);
                self.rare(
                    tag::REMAP,
                    Some(new_addr),
                    &[new_len, back, old_len, node.0.into()],
                )
            }
            EventKind::Brk { addr } => self.rare(tag::BRK, Some(addr), &[]),
            EventKind::Advise { addr, len, advice } => {
                self.rare(tag::ADVISE, Some(addr), &[len, advice.into()])
            }
            EventKind::Mark { mark } => self.rare(tag::MARK, None, &[mark.into()]),
            EventKind::Fork { child } => self.rare(tag::FORK, None, &[child.into()]),
        }
    }

    #[inline]
    fn acquire(&mut self, cell: Cell, addr: u64) -> u8 {
        let expected = self.model.expected_cell();
        let cell_form = if self.model.cell(expected) == Some(&cell) {
            self.model.used_cell(expected);
            tag::CELL_EXPECTED
        } else {
            self.other_cell(cell, expected)
        };
        let (form, number) = self.model.place_form(cell.usable, addr);
        if form >= tag::AT_DELTA_16 {
            put(&mut self.streams[stream::PLACES], number);
        }
        let ordinal = self.model.acquired(form, cell.usable, addr);
        if ordinal as usize >= self.by_addr.len() / 2 {
            self.grow();
        }
        let slot = self.addr_slot(addr);
        self.by_addr[slot] = ordinal + 1;
        cell_form | form
    }

    #[inline(never)]
    fn other_cell(&mut self, cell: Cell, expected: u32) -> u8 {
        let slot = cell_slot(&cell);
        let known = self.by_cell[slot];
        if known != 0 && self.model.cell(known) == Some(&cell) {
            put(&mut self.streams[stream::CELLS], u64::from(known));
            self.model.used_cell(known);
            return tag::CELL_KNOWN;
        }
        let like = self.model.cell(expected).copied().unwrap_or_default();
        let usable = self.model.expected_usable(cell.size);
        put(&mut self.streams[stream::SIZES], cell.size);
        let form = if cell.node == like.node && cell.how == like.how && cell.usable == usable {
            tag::CELL_SIZE
        } else {
            let odd = cell.usable != usable;
            self.streams[stream::CELLS].push(cell.how | u8::from(odd) << 3);
            put(&mut self.streams[stream::NODES], u64::from(cell.node));
            if odd {
                let slop = cell.usable.wrapping_sub(cell.size) as i64;
                put(&mut self.streams[stream::SIZES], zigzag(slop));
            }
            tag::CELL_NEW
        };
        let index = self.model.add_cell(cell);
        self.by_cell[slot] = index;
        self.model.used_cell(index);
        form
    }

    #[inline]
    fn release(&mut self, addr: u64) -> u8 {
        let found = self.by_addr[self.addr_slot(addr)].wrapping_sub(1);
        if self.model.held_addr(found) != Some(addr) {
            return self.release_unknown(addr);
        }
        let out = &mut self.streams[stream::RELEASES];
        let nth = self.model.held_count() - found;
        let delta = i64::from(found) - i64::from(self.model.last_ordinal());
        let form = if nth <= tag::NEWEST_FORMS {
            nth as u8 - 1
        } else if delta == 1 {
            tag::NEXT_NEWER
        } else if delta == -1 {
            tag::NEXT_OLDER
        } else if zigzag(delta) < u64::from(nth) {
            put_signed(out, delta);
            tag::ORDINAL_DELTA
        } else {
            put(out, u64::from(nth));
            tag::NTH_NEWEST
        };
        self.model.released(found);
        form
    }

    #[inline(never)]
    fn release_unknown(&mut self, addr: u64) -> u8 {
        let delta = addr.wrapping_sub(self.model.last_release) as i64;
        let out = &mut self.streams[stream::PLACES];
        self.model.released_unknown(addr);
        if delta & 15 == 0 {
            put_signed(out, delta >> 4);
            tag::DELTA_16
        } else {
            put_signed(out, delta);
            tag::DELTA_1
        }
    }

    #[inline]
    fn addr_slot(&self, addr: u64) -> usize {
        (hash(addr) >> 32) as usize & (self.by_addr.len() - 1)
    }

    #[cold]
    fn grow(&mut self) {
        let slots = self.by_addr.len() * 2;
        self.by_addr.clear();
        self.by_addr.resize(slots, 0);
        for ordinal in 0..self.model.held_count() {
            let addr = self.model.held_addr(ordinal).unwrap_or(0);
            let slot = self.addr_slot(addr);
            self.by_addr[slot] = ordinal + 1;
        }
    }

    /// Writes an event that is not of the malloc family: plain numbers, in the order of FORMAT.md.
    #[cold]
    #[inline(never)]
    fn rare(&mut self, code: u8, place: Option<u64>, numbers: &[u64]) -> u8 {
        let out = &mut self.streams[stream::REST];
        if let Some(addr) = place {
            put_signed(out, addr.wrapping_sub(self.model.last_place) as i64);
            self.model.last_place = addr;
        }
        for &number in numbers {
            put(out, number);
        }
        code
    }

    /// Returns the block so far, and begins a new one; `None` if there is no event in it.
    pub fn take(&mut self) -> Option<RawBlock> {
        if self.events == 0 {
            return None;
        }
        let mut raw = Vec::with_capacity(self.raw_bytes() + 8 * 4);
        for stream in &self.streams {
            put(&mut raw, stream.len() as u64);
        }
        for stream in &mut self.streams {
            raw.extend_from_slice(stream);
            stream.clear();
        }
        let block = RawBlock {
            thread: self.thread,
            raw,
            events: self.events,
            first_ticket: self.first_ticket,
            last_ticket: self.ticket,
            first_time_ns: self.first_time_ns,
        };
        // A thread that was busy once does not keep large tables.
        let needed = (4 * self.model.held_count() as usize)
            .next_power_of_two()
            .max(1024);
        if needed < self.by_addr.len() / 4 {
            self.by_addr = vec![0; needed];
            self.model.shrink(needed);
        }
        self.model.reset();
        self.by_addr.fill(0);
        self.by_cell.fill(0);
        self.events = 0;
        Some(block)
    }
}

/// The functions that [`Cell::how`] stands for, by number.
pub(crate) const ALLOC_FNS: [AllocFn; 7] = [
    AllocFn::Malloc,
    AllocFn::Calloc,
    AllocFn::Realloc,
    AllocFn::Memalign,
    AllocFn::Valloc,
    AllocFn::New,
    AllocFn::NewArray,
];

/// The functions that the byte of a `FREE_BY` stands for, by number.
pub(crate) const FREE_FNS: [FreeFn; 5] = [
    FreeFn::Free,
    FreeFn::FreeSized,
    FreeFn::Realloc,
    FreeFn::Delete,
    FreeFn::DeleteArray,
];
