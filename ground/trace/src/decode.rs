//! From the bytes of one block to its events, one after the other, without a list of them.
//!
//! ```text
//!   raw ──► 8 streams ──► tag ──► model ──► Event
//! ```
//!
//! D1  Nothing in `raw` can make it panic, loop or allocate: each event takes a tag, each number is
//!     bounds-checked, each index is checked against the model, which grows by one entry per tag.
//! D2  Events that were read before a fault are kept; the fault ends the block.
//!
//! Not here: checksums (block.rs), threads (merge.rs).

use crate::encode::{ALLOC_FNS, FREE_FNS};
use crate::event::{Event, EventKind, FreeFn, NodeId, ThreadId};
use crate::model::{Cell, Model, REALLOC_ACQUIRE, stream, tag};
use skinflint_framing::varint::{Malformed, get, unzigzag};

#[derive(Clone, Copy, Default)]
struct Span {
    at: usize,
    end: usize,
}

/// Reads one block at a time; keeps its buffers from block to block.
pub(crate) struct Decoder {
    model: Model,
    raw: Vec<u8>,
    spans: [Span; stream::COUNT],
    thread: ThreadId,
    ticket: u64,
    time_ns: u64,
    left: u32,
}

/// The start of a block, from its header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    pub(crate) thread: ThreadId,
    pub(crate) first_ticket: u64,
    pub(crate) first_time_ns: u64,
    pub(crate) events: u32,
}

/// What ended [`Decoder::read`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// There is no more room.
    Full,
    /// The last event is beyond the limit.
    Beyond,
    /// All that the header promised have been read.
    End,
}

impl Decoder {
    pub(crate) fn new() -> Self {
        Decoder {
            model: Model::new(),
            raw: Vec::new(),
            spans: Default::default(),
            thread: ThreadId(0),
            ticket: 0,
            time_ns: 0,
            left: 0,
        }
    }

    /// Begins a block; `raw` is what the encoder wrote.
    pub(crate) fn start(&mut self, raw: Vec<u8>, start: Start) -> Result<(), Malformed> {
        self.model.reset();
        self.raw = raw;
        self.thread = start.thread;
        self.ticket = start.first_ticket.wrapping_sub(1);
        self.time_ns = start.first_time_ns;
        self.left = 0;
        let mut at = 0;
        let mut lengths = [0; stream::COUNT];
        for length in &mut lengths {
            *length = get(&self.raw, &mut at)?;
        }
        for (span, length) in self.spans.iter_mut().zip(lengths) {
            if length > (self.raw.len() - at) as u64 {
                return Err(Malformed(
                    "the streams of a block are longer than the block",
                ));
            }
            *span = Span {
                at,
                end: at + length as usize,
            };
            at = span.end;
        }
        self.left = start.events;
        Ok(())
    }

    /// Ends the block and returns its bytes, for their memory.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        self.left = 0;
        std::mem::take(&mut self.raw)
    }

    /// Releases large tables.
    pub(crate) fn shrink(&mut self) {
        self.model.shrink(4096);
    }

    /// Returns the number of events that the header promised and that were not read yet.
    pub(crate) fn left(&self) -> u32 {
        self.left
    }

    #[inline]
    fn number(&mut self, which: usize) -> Result<u64, Malformed> {
        let span = &mut self.spans[which];
        get(&self.raw[..span.end], &mut span.at)
    }

    #[inline]
    fn signed(&mut self, which: usize) -> Result<i64, Malformed> {
        Ok(unzigzag(self.number(which)?))
    }

    #[inline]
    fn number_u32(&mut self, which: usize) -> Result<u32, Malformed> {
        u32::try_from(self.number(which)?)
            .map_err(|_| Malformed("a 32-bit field holds more than 32 bits"))
    }

    #[inline]
    fn byte(&mut self, which: usize) -> Result<u8, Malformed> {
        let span = &mut self.spans[which];
        if span.at >= span.end {
            return Err(Malformed("a stream ends before its events do"));
        }
        let byte = self.raw[span.at];
        span.at += 1;
        Ok(byte)
    }

    /// Adds events to `into` up to the ticket `limit`, and one beyond it unless there is none, until `into` has as many
    /// as it has room for. Returns what ended it. Events are made where they stay: handed on by value, the 64 bytes of
    /// one were moved twice, right behind the smaller stores that made them.
    pub(crate) fn read(&mut self, limit: u64, into: &mut Vec<Event>) -> Result<Stop, Malformed> {
        while into.len() < into.capacity() {
            if self.left == 0 {
                return Ok(Stop::End);
            }
            let event = self.next()?;
            let is_beyond = event.ticket > limit;
            into.push(event);
            if is_beyond {
                return Ok(Stop::Beyond);
            }
        }
        Ok(Stop::Full)
    }

    /// Returns the next event; the header promised one more.
    #[inline(always)]
    fn next(&mut self) -> Result<Event, Malformed> {
        let mut byte = self.byte(stream::TAGS)?;
        while byte == tag::TIME {
            let later = self.signed(stream::REST)?;
            self.time_ns = self.time_ns.wrapping_add(later as u64);
            byte = self.byte(stream::TAGS)?;
        }
        let mut step = 1;
        if byte & tag::JUMP != 0 {
            step = self.number(stream::TICKETS)?.wrapping_add(1);
        }
        let code = byte & !tag::JUMP;
        let kind = match code & 0x70 {
            tag::FREE => EventKind::Free {
                func: FreeFn::Free,
                addr: self.release(code & 15)?,
            },
            tag::REALLOC => EventKind::ReallocRelease {
                addr: self.release(code & 15)?,
            },
            tag::FREE_BY => {
                let func = *FREE_FNS
                    .get(self.byte(stream::REST)? as usize)
                    .ok_or(Malformed("a release by an unknown function"))?;
                EventKind::Free {
                    func,
                    addr: self.release(code & 15)?,
                }
            }
            tag::OTHER => self.rare(code)?,
            _ => self.acquire(code)?,
        };
        self.ticket = self.ticket.wrapping_add(step);
        self.left -= 1;
        Ok(Event {
            ticket: self.ticket,
            time_ns: self.time_ns,
            thread: self.thread,
            kind,
        })
    }

    #[inline]
    fn acquire(&mut self, code: u8) -> Result<EventKind, Malformed> {
        let index = match code & 0x30 {
            tag::CELL_EXPECTED => self.model.expected_cell(),
            tag::CELL_KNOWN => self.number_u32(stream::CELLS)?,
            _ => self.new_cell(code & 0x30)?,
        };
        let cell = *self.model.cell(index).ok_or(Malformed("an unknown cell"))?;
        self.model.used_cell(index);
        let form = code & 15;
        let span = &mut self.spans[stream::PLACES];
        let raw = &self.raw[..span.end];
        let addr = self
            .model
            .place_of(form, cell.usable, || get(raw, &mut span.at))?
            .ok_or(Malformed("an address that was not released"))?;
        self.model.acquired(form, cell.usable, addr);
        let node = NodeId(cell.node);
        let Cell { size, usable, .. } = cell;
        if cell.how == REALLOC_ACQUIRE {
            return Ok(EventKind::ReallocAcquire {
                node,
                addr,
                size,
                usable,
            });
        }
        let func = ALLOC_FNS[usize::from(cell.how).min(ALLOC_FNS.len() - 1)];
        Ok(EventKind::Alloc {
            func,
            node,
            addr,
            size,
            usable,
        })
    }

    #[inline(never)]
    fn new_cell(&mut self, form: u8) -> Result<u32, Malformed> {
        let size = self.number(stream::SIZES)?;
        let like = self.model.expected_cell();
        let like = self.model.cell(like).copied().unwrap_or_default();
        let mut usable = self.model.expected_usable(size);
        let (mut how, mut node) = (like.how, like.node);
        if form == tag::CELL_NEW {
            let flags = self.byte(stream::CELLS)?;
            if flags > 15 {
                return Err(Malformed("an unknown flag of a cell"));
            }
            how = flags & 7;
            node = self.number_u32(stream::NODES)?;
            if flags & 8 != 0 {
                usable = size.wrapping_add(self.signed(stream::SIZES)? as u64);
            }
        }
        Ok(self.model.add_cell(Cell {
            size,
            usable,
            node,
            how,
        }))
    }

    #[inline]
    fn release(&mut self, form: u8) -> Result<u64, Malformed> {
        let count = self.model.held_count();
        let last = self.model.last_ordinal();
        let ordinal = match form {
            tag::NTH_NEWEST => u64::from(count).wrapping_sub(self.number(stream::RELEASES)?),
            tag::NEXT_OLDER => u64::from(last).wrapping_sub(1),
            tag::NEXT_NEWER => u64::from(last) + 1,
            tag::ORDINAL_DELTA => {
                u64::from(last).wrapping_add(self.signed(stream::RELEASES)? as u64)
            }
            tag::DELTA_16 | tag::DELTA_1 => {
                let delta = self.signed(stream::PLACES)?;
                let delta = if form == tag::DELTA_16 {
                    delta.wrapping_shl(4)
                } else {
                    delta
                };
                let addr = self.model.last_release.wrapping_add(delta as u64);
                self.model.released_unknown(addr);
                return Ok(addr);
            }
            nth => u64::from(count).wrapping_sub(u64::from(nth) + 1),
        };
        let ordinal = u32::try_from(ordinal).unwrap_or(u32::MAX);
        let addr = self
            .model
            .held_addr(ordinal)
            .ok_or(Malformed("a release of no known block"))?;
        self.model.released(ordinal);
        Ok(addr)
    }

    #[inline]
    fn place(&mut self) -> Result<u64, Malformed> {
        let delta = self.signed(stream::REST)?;
        self.model.last_place = self.model.last_place.wrapping_add(delta as u64);
        Ok(self.model.last_place)
    }

    #[inline(never)]
    fn rare(&mut self, code: u8) -> Result<EventKind, Malformed> {
        let rest = stream::REST;
        Ok(match code {
            tag::REALLOC_CANCEL => {
                let delta = self.signed(rest)?;
                EventKind::ReallocCancel {
                    addr: self.model.last_release.wrapping_add(delta as u64),
                }
            }
            tag::MAP => {
                let addr = self.place()?;
                let len = self.number(rest)?;
                let node = NodeId(self.number_u32(rest)?);
                let prot = self.number_u32(rest)?;
                let flags = self.number_u32(rest)?;
                let by_allocator = self.number(rest)? != 0;
                EventKind::Map {
                    node,
                    addr,
                    len,
                    prot,
                    flags,
                    by_allocator,
                }
            }
            tag::UNMAP => {
                let addr = self.place()?;
                let len = self.number(rest)?;
                EventKind::Unmap {
                    addr,
                    len,
                    by_allocator: self.number(rest)? != 0,
                }
            }
            tag::REMAP => {
                let new_addr = self.place()?;
                let new_len = self.number(rest)?;
                let old_addr = new_addr.wrapping_add(self.signed(rest)? as u64);
                let old_len = self.number(rest)?;
                let node = NodeId(self.number_u32(rest)?);
                EventKind::Remap {
                    node,
                    old_addr,
                    old_len,
                    new_addr,
                    new_len,
                }
            }
            tag::BRK => EventKind::Brk {
                addr: self.place()?,
            },
            tag::ADVISE => {
                let addr = self.place()?;
                let len = self.number(rest)?;
                EventKind::Advise {
                    addr,
                    len,
                    advice: self.number_u32(rest)?,
                }
            }
            tag::MARK => EventKind::Mark {
                mark: self.number_u32(rest)?,
            },
            tag::FORK => EventKind::Fork {
                child: self.number_u32(rest)?,
            },
            _ => return Err(Malformed("an unknown kind of event")),
        })
    }
}
