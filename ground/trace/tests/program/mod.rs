//! Made-up programs: streams of events that obey the rules of `event.rs` (event.E1 to event.E3), from a seed.
//!
//! ```text
//!   Random ──► Program { threads, live blocks, an allocator that reuses the last block } ──► Event*
//! ```
//!
//! Not here: real recordings, with which compression is tested.
#![allow(dead_code)] // Each test file uses a part.

pub use skinflint_test_support::random::Random;
use skinflint_trace::*;

/// What a made-up program does most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// Nested temporaries.
    Lifo,
    /// A queue of messages of varying size.
    Fifo,
    /// Small nodes that stay and die at random.
    Tree,
    /// Every kind of event with every kind of number.
    Wild,
}

/// A program with threads and an allocator like glibc's: the block released last is reused first.
pub struct Program {
    pub rng: Random,
    shape: Shape,
    threads: u32,
    ticket: u64,
    time_ns: u64,
    live: Vec<(u64, u64)>,
    free: std::collections::HashMap<u64, Vec<u64>>,
    top: u64,
    current: u32,
    pending: Vec<Option<(u64, u64)>>,
}

impl Program {
    pub fn new(seed: u64, shape: Shape, threads: u32) -> Self {
        Program {
            rng: Random::new(seed),
            shape,
            threads,
            ticket: 0,
            time_ns: 1000,
            live: Vec::new(),
            free: Default::default(),
            top: 0x5555_5575_92a0,
            current: 0,
            pending: vec![None; threads as usize],
        }
    }

    fn place(&mut self, size: u64) -> (u64, u64) {
        let usable = ((size + 8).next_multiple_of(16).max(32)) - 8;
        if let Some(addr) = self.free.get_mut(&usable).and_then(Vec::pop) {
            return (addr, usable);
        }
        let addr = self.top;
        self.top += usable + 8;
        (addr, usable)
    }

    fn alloc(&mut self, node: u32, size: u64) -> EventKind {
        let (addr, usable) = self.place(size);
        self.live.push((addr, usable));
        EventKind::Alloc {
            func: AllocFn::Malloc,
            node: NodeId(node),
            addr,
            size,
            usable,
        }
    }

    fn release(&mut self, index: usize) -> (u64, u64) {
        let (addr, usable) = if self.shape == Shape::Fifo {
            self.live.remove(index)
        } else {
            self.live.swap_remove(index)
        };
        self.free.entry(usable).or_default().push(addr);
        (addr, usable)
    }

    fn wild(&mut self) -> EventKind {
        let r = &mut self.rng;
        let any = |r: &mut Random| r.bits() >> r.below(64);
        let node = NodeId(any(r) as u32);
        let (addr, size) = (any(r), any(r));
        let usable = if r.below(2) == 0 { size } else { any(r) };
        match r.below(12) {
            0 | 1 => {
                let func = encode_fn(r.below(7));
                EventKind::Alloc {
                    func,
                    node,
                    addr,
                    size,
                    usable,
                }
            }
            2 => {
                let func = [
                    FreeFn::Free,
                    FreeFn::FreeSized,
                    FreeFn::Realloc,
                    FreeFn::Delete,
                    FreeFn::DeleteArray,
                ][r.below(5) as usize];
                EventKind::Free { func, addr }
            }
            3 => EventKind::ReallocRelease { addr },
            4 => EventKind::ReallocAcquire {
                node,
                addr,
                size,
                usable,
            },
            5 => EventKind::ReallocCancel { addr },
            6 => EventKind::Map {
                node,
                addr,
                len: size,
                prot: any(r) as u32,
                flags: any(r) as u32,
                by_allocator: r.below(2) == 0,
            },
            7 => EventKind::Unmap {
                addr,
                len: size,
                by_allocator: r.below(2) == 0,
            },
            8 => EventKind::Remap {
                node,
                old_addr: addr,
                old_len: size,
                new_addr: usable,
                new_len: any(r),
            },
            9 => EventKind::Brk { addr },
            10 => EventKind::Advise {
                addr,
                len: size,
                advice: any(r) as u32,
            },
            _ if r.below(2) == 0 => EventKind::Mark {
                mark: any(r) as u32,
            },
            _ => EventKind::Fork {
                child: any(r) as u32,
            },
        }
    }

    fn tame(&mut self) -> EventKind {
        let thread = self.current as usize;
        if let Some((addr, usable)) = self.pending[thread].take() {
            if self.rng.below(50) == 0 {
                return EventKind::ReallocCancel { addr };
            }
            let size = usable * 2;
            let (addr, usable) = self.place(size);
            self.live.push((addr, usable));
            return EventKind::ReallocAcquire {
                node: NodeId(7),
                addr,
                size,
                usable,
            };
        }
        let many = self.live.len();
        let r = self.rng.below(100);
        match self.shape {
            Shape::Lifo if many > 8 && r < 49 => {
                let addr = self.release(many - 1).0;
                EventKind::Free {
                    func: FreeFn::Free,
                    addr,
                }
            }
            Shape::Lifo => self.alloc(10 + (r % 6) as u32, 16 + (r % 6) * 24),
            Shape::Fifo if many > 200 => {
                let addr = self.release(0).0;
                EventKind::Free {
                    func: FreeFn::Free,
                    addr,
                }
            }
            Shape::Fifo => {
                let size = 30 + self.rng.below(300);
                self.alloc(30, size)
            }
            _ if many > 100 && r < 45 => {
                let index = self.rng.below(many as u64) as usize;
                let addr = self.release(index).0;
                EventKind::Free {
                    func: FreeFn::Free,
                    addr,
                }
            }
            _ if many > 100 && r < 48 => {
                let index = self.rng.below(many as u64) as usize;
                let block = self.release(index);
                self.pending[thread] = Some(block);
                EventKind::ReallocRelease { addr: block.0 }
            }
            _ => self.alloc(100 + (r * r % 97) as u32, 24 + r % 5 * 16),
        }
    }

    /// Returns the next event of the whole process.
    pub fn next(&mut self) -> Event {
        if self.rng.below(20) == 0 {
            self.current = self.rng.below(u64::from(self.threads)) as u32;
        }
        if self.rng.below(200) == 0 {
            self.time_ns += self.rng.below(100_000);
        }
        let kind = if self.shape == Shape::Wild {
            self.wild()
        } else {
            self.tame()
        };
        self.ticket += 1;
        if self.shape == Shape::Wild && self.rng.below(10) == 0 {
            self.ticket += self.rng.below(1 << 40);
        }
        let thread = ThreadId(self.current);
        Event {
            ticket: self.ticket - 1,
            time_ns: self.time_ns,
            thread,
            kind,
        }
    }

    pub fn take(&mut self, count: usize) -> Vec<Event> {
        (0..count).map(|_| self.next()).collect()
    }
}

fn encode_fn(n: u64) -> AllocFn {
    [
        AllocFn::Malloc,
        AllocFn::Calloc,
        AllocFn::Realloc,
        AllocFn::Memalign,
        AllocFn::Valloc,
        AllocFn::New,
        AllocFn::NewArray,
    ][n as usize]
}

/// Writes events as a collector does: an encoder for each thread, a block when it is full.
pub fn write_events<S: Sink>(writer: &mut Writer<S>, events: &[Event], block_events: u32) {
    let mut encoders: Vec<EventEncoder> = Vec::new();
    for event in events {
        let thread = event.thread.0 as usize;
        while encoders.len() <= thread {
            encoders.push(EventEncoder::new(ThreadId(encoders.len() as u32)));
        }
        encoders[thread].push(event);
        if encoders[thread].events() >= block_events {
            let _ = writer.events(encoders[thread].take().unwrap());
        }
    }
    for encoder in &mut encoders {
        if let Some(block) = encoder.take() {
            let _ = writer.events(block);
        }
    }
}

/// A sink in memory that holds at most `limit` bytes, like a disk.
pub struct Disk {
    pub bytes: Vec<u8>,
    pub limit: usize,
}

impl Disk {
    pub fn new() -> Self {
        Disk {
            bytes: Vec::new(),
            limit: usize::MAX,
        }
    }
}

impl std::io::Write for &mut Disk {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        let room = self.limit.saturating_sub(self.bytes.len()).min(data.len());
        if room == 0 && !data.is_empty() {
            return Err(std::io::Error::from(std::io::ErrorKind::StorageFull));
        }
        self.bytes.extend_from_slice(&data[..room]);
        Ok(room)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Sink for &mut Disk {
    fn cut(&mut self, len: u64) -> std::io::Result<()> {
        self.bytes.truncate(len as usize);
        Ok(())
    }
}
