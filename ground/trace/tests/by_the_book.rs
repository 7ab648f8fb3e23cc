//! A second reader of event blocks, slow and plain, written from FORMAT.md alone: it checks both the
//! document and the fast reader.
//!
//! Not here: damage; the blocks are whole.

mod program;

use program::*;
use skinflint_trace::*;
use std::collections::HashMap;

struct Streams<'a>(Vec<&'a [u8]>);

impl Streams<'_> {
    fn byte(&mut self, stream: usize) -> u8 {
        let (first, rest) = self.0[stream].split_first().expect("a byte");
        self.0[stream] = rest;
        *first
    }

    fn number(&mut self, stream: usize) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let byte = self.byte(stream);
            value |= u64::from(byte & 127) << shift;
            if byte < 128 {
                break;
            }
        }
        value
    }

    fn signed(&mut self, stream: usize) -> u64 {
        let n = self.number(stream);
        if n & 1 == 0 { n / 2 } else { !(n / 2) }
    }
}

const TAGS: usize = 0;
const CELLS: usize = 1;
const NODES: usize = 2;
const SIZES: usize = 3;
const PLACES: usize = 4;
const RELEASES: usize = 5;
const TICKETS: usize = 6;
const REST: usize = 7;

fn h(x: u64) -> u64 {
    x.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[derive(Clone, Copy, Default)]
struct Cell {
    how: u8,
    node: u32,
    size: u64,
    usable: u64,
}

/// State of a block: every table of the document as a map.
#[derive(Default)]
struct Book {
    cells: Vec<Cell>,
    follow: HashMap<u64, usize>,
    last_two: (u64, u64),
    pairs: HashMap<u64, (u64, u64)>,
    slops: HashMap<u64, u64>,
    addresses: Vec<u64>,
    class_of_ordinal: Vec<u64>,
    /// Ordinal → next older one; class → newest.
    older: HashMap<usize, usize>,
    newest: HashMap<u64, usize>,
    fresh: HashMap<u64, u64>,
    fresh_any: u64,
    fresh_end: u64,
    last_release: u64,
    last: usize,
    place: u64,
}

impl Book {
    fn cell(&mut self, form: u8, from: &mut Streams<'_>) -> Cell {
        let entry = h((self.last_two.0 << 32) + self.last_two.1) >> 52;
        let expected = *self.follow.get(&entry).unwrap_or(&0);
        let number = match form {
            0 => expected,
            1 => from.number(CELLS) as usize,
            _ => {
                let Cell {
                    mut how, mut node, ..
                } = self.cells[expected];
                let size = from.number(SIZES);
                let pair = *self.pairs.get(&(h(size) >> 56)).unwrap_or(&(0, 0));
                let slop = *self.slops.get(&(size % 16)).unwrap_or(&0);
                let fits = pair.0 == size && pair.1 != 0;
                let mut usable = if fits {
                    pair.1
                } else {
                    size.wrapping_add(slop)
                };
                if form == 3 {
                    let flags = from.byte(CELLS);
                    how = flags % 8;
                    node = from.number(NODES) as u32;
                    if flags >= 8 {
                        usable = size.wrapping_add(from.signed(SIZES));
                    }
                }
                self.pairs.insert(h(size) >> 56, (size, usable));
                self.slops.insert(size % 16, usable.wrapping_sub(size));
                self.cells.push(Cell {
                    how,
                    node,
                    size,
                    usable,
                });
                self.cells.len() - 1
            }
        };
        self.follow.insert(entry, number);
        self.last_two = (self.last_two.1, number as u64);
        self.cells[number]
    }

    fn acquire(&mut self, tag: u8, from: &mut Streams<'_>) -> EventKind {
        let Cell {
            how,
            node,
            size,
            usable,
        } = self.cell(tag >> 4, from);
        let (form, class) = (tag & 15, h(usable) >> 54);
        let fresh = *self.fresh.get(&class).unwrap_or(&0);
        let base = if fresh != 0 { fresh } else { self.fresh_any };
        let addr = match form {
            0..=7 => {
                let mut above = None;
                let mut ordinal = self.newest[&class];
                for _ in 0..form {
                    above = Some(ordinal);
                    ordinal = self.older[&ordinal];
                }
                let link = self.older.get(&ordinal).copied();
                match (above, link) {
                    (None, Some(link)) => drop(self.newest.insert(class, link)),
                    (None, None) => drop(self.newest.remove(&class)),
                    (Some(above), Some(link)) => drop(self.older.insert(above, link)),
                    (Some(above), None) => drop(self.older.remove(&above)),
                }
                self.addresses[ordinal]
            }
            8 => self.fresh_end,
            9 => fresh.wrapping_add(usable),
            10 => fresh.wrapping_sub(usable),
            11 => self.last_release,
            12 => base.wrapping_add(from.signed(PLACES).wrapping_mul(16)),
            13 => base.wrapping_add(from.signed(PLACES)),
            _ => panic!("place form {form}"),
        };
        if matches!(form, 8 | 9 | 10 | 12 | 13) {
            self.fresh.insert(class, addr);
            self.fresh_any = addr;
            self.fresh_end = addr.wrapping_add(usable).wrapping_add(8);
        }
        self.addresses.push(addr);
        self.class_of_ordinal.push(class);
        let node = NodeId(node);
        let func = match how {
            0 => AllocFn::Malloc,
            1 => AllocFn::Calloc,
            2 => AllocFn::Realloc,
            3 => AllocFn::Memalign,
            4 => AllocFn::Valloc,
            5 => AllocFn::New,
            6 => AllocFn::NewArray,
            _ => {
                return EventKind::ReallocAcquire {
                    node,
                    addr,
                    size,
                    usable,
                };
            }
        };
        EventKind::Alloc {
            func,
            node,
            addr,
            size,
            usable,
        }
    }

    fn release(&mut self, form: u8, from: &mut Streams<'_>) -> u64 {
        let n = self.addresses.len();
        let ordinal = match form {
            0..=9 => n - 1 - usize::from(form),
            10 => n - from.number(RELEASES) as usize,
            11 => self.last - 1,
            12 => self.last + 1,
            13 => self.last.wrapping_add(from.signed(RELEASES) as usize),
            _ => {
                let delta = from.signed(PLACES);
                let delta = if form == 14 {
                    delta.wrapping_mul(16)
                } else {
                    delta
                };
                self.last_release = self.last_release.wrapping_add(delta);
                return self.last_release;
            }
        };
        self.last = ordinal;
        let class = self.class_of_ordinal[ordinal];
        match self.newest.insert(class, ordinal) {
            Some(head) => drop(self.older.insert(ordinal, head)),
            None => drop(self.older.remove(&ordinal)),
        }
        self.last_release = self.addresses[ordinal];
        self.last_release
    }

    fn place(&mut self, from: &mut Streams<'_>) -> u64 {
        self.place = self.place.wrapping_add(from.signed(REST));
        self.place
    }

    fn other(&mut self, tag: u8, from: &mut Streams<'_>) -> EventKind {
        match tag {
            0x61 => EventKind::ReallocCancel {
                addr: self.last_release.wrapping_add(from.signed(REST)),
            },
            0x62 => EventKind::Map {
                addr: self.place(from),
                len: from.number(REST),
                node: NodeId(from.number(REST) as u32),
                prot: from.number(REST) as u32,
                flags: from.number(REST) as u32,
                by_allocator: from.number(REST) == 1,
            },
            0x63 => EventKind::Unmap {
                addr: self.place(from),
                len: from.number(REST),
                by_allocator: from.number(REST) == 1,
            },
            0x64 => {
                let (new_addr, new_len) = (self.place(from), from.number(REST));
                EventKind::Remap {
                    old_addr: new_addr.wrapping_add(from.signed(REST)),
                    old_len: from.number(REST),
                    node: NodeId(from.number(REST) as u32),
                    new_addr,
                    new_len,
                }
            }
            0x65 => EventKind::Brk {
                addr: self.place(from),
            },
            0x66 => EventKind::Advise {
                addr: self.place(from),
                len: from.number(REST),
                advice: from.number(REST) as u32,
            },
            0x67 => EventKind::Mark {
                mark: from.number(REST) as u32,
            },
            0x68 => EventKind::Fork {
                child: from.number(REST) as u32,
            },
            _ => panic!("tag {tag:#x}"),
        }
    }
}

/// Reads all events of a block.
fn read_block(head: &[u8], raw: &[u8]) -> Vec<Event> {
    let u32_at = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap());
    let u64_at = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().unwrap());
    let mut lengths = Streams(vec![raw]);
    let lengths: (Vec<usize>, &[u8]) = (
        (0..8).map(|_| lengths.number(0) as usize).collect(),
        lengths.0[0],
    );
    let (lengths, mut rest) = lengths;
    let mut from = Streams(Vec::new());
    for length in lengths {
        let (stream, after) = rest.split_at(length);
        from.0.push(stream);
        rest = after;
    }
    let mut book = Book {
        cells: vec![Cell::default()],
        ..Book::default()
    };
    let (mut ticket, mut time_ns) = (u64_at(24).wrapping_sub(1), u64_at(40));
    let mut events = Vec::new();
    while !from.0[TAGS].is_empty() {
        let tag = from.byte(TAGS);
        if tag == 0x60 {
            time_ns = time_ns.wrapping_add(from.signed(REST));
            continue;
        }
        ticket = ticket.wrapping_add(1);
        if tag >= 0x80 {
            ticket = ticket.wrapping_add(from.number(TICKETS));
        }
        let tag = tag & 0x7f;
        let form = tag & 15;
        let kind = match tag {
            0x00..=0x3f => book.acquire(tag, &mut from),
            0x40..=0x4f => EventKind::Free {
                func: FreeFn::Free,
                addr: book.release(form, &mut from),
            },
            0x50..=0x5f => EventKind::ReallocRelease {
                addr: book.release(form, &mut from),
            },
            0x70..=0x7f => {
                let func = match from.byte(REST) {
                    0 => FreeFn::Free,
                    1 => FreeFn::FreeSized,
                    2 => FreeFn::Realloc,
                    3 => FreeFn::Delete,
                    _ => FreeFn::DeleteArray,
                };
                EventKind::Free {
                    func,
                    addr: book.release(form, &mut from),
                }
            }
            _ => book.other(tag, &mut from),
        };
        events.push(Event {
            ticket,
            time_ns,
            thread: ThreadId(u32_at(8)),
            kind,
        });
    }
    assert!(
        from.0.iter().all(|stream| stream.is_empty()),
        "every byte has a meaning"
    );
    assert_eq!(events.len(), u32_at(20) as usize);
    assert_eq!(ticket, u64_at(32));
    events
}

#[test]
fn the_document_describes_what_is_written() {
    for seed in 0..60 {
        let shape = [Shape::Lifo, Shape::Fifo, Shape::Tree, Shape::Wild][seed as usize % 4];
        println!("seed {seed} {shape:?}");
        let events = Program::new(seed, shape, 3).take(4000);
        let mut disk = Disk::new();
        let mut writer = Writer::new(&mut disk, &ProcessInfo::default(), 1).unwrap();
        write_events(&mut writer, &events, 1500);
        let file = disk.bytes;
        assert_eq!(file[..8], *b"\x89SFT\r\n\x1a\n");
        let mut at = u32::from_le_bytes(file[12..16].try_into().unwrap()) as usize;
        let mut got = Vec::new();
        while at < file.len() {
            let (head, rest) = file[at..].split_at(64);
            let u32_at = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap());
            let stored = &rest[..u32_at(12) as usize];
            assert_eq!(head[..4], [0xAB, 0x53, 0x46, 0xBA]);
            assert_eq!(u32_at(56), crc32fast::hash(stored));
            assert_eq!(u32_at(60), crc32fast::hash(&head[..60]));
            let raw = match head[5] {
                0 => stored.to_vec(),
                _ => zstd::bulk::decompress(stored, u32_at(16) as usize).unwrap(),
            };
            if head[4] == 3 {
                got.extend(read_block(head, &raw));
            }
            at += 64 + stored.len();
        }
        got.sort_by_key(|event| event.ticket);
        assert!(got == events);
    }
}
