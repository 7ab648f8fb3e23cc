//! Made-up traces that hold every kind of block and every kind of event, from a seed.
//!
//! ```text
//!   heap: 1 MiB of blocks ─ three threads ─ marks, samples, snapshots with resident runs ─► bytes of a trace
//! ```
//!
//! A1  A made-up trace is whole and obeys event.rs: reading it back shows that.
//!
//! Not here: anything realistic; real recordings are broken as well (the command line's tests).

use std::io::{self, Write};

use skinflint_trace::*;

use skinflint_base::random::Random;

const HEAP: u64 = 0x5555_5575_9000;
const ARENA: u64 = 0x7f00_0000_0000;
const PAGE: u64 = 4096;
const THREADS: u32 = 3;
const NODES: u32 = 120;
const BLOCK_EVENTS: u32 = 150;

/// A file in memory.
#[derive(Default)]
struct Memory(Vec<u8>);

impl Write for &mut Memory {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink for &mut Memory {
    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.0.truncate(len as usize);
        Ok(())
    }
}

struct Made {
    rng: Random,
    ticket: u64,
    time_ns: u64,
    top: u64,
    live: Vec<(u64, u64)>,
    marks: u32,
}

impl Made {
    fn event(&mut self, kind: EventKind) -> Event {
        self.ticket += 1;
        self.time_ns += self.rng.index(20_000) as u64;
        Event {
            ticket: self.ticket - 1,
            time_ns: self.time_ns,
            thread: ThreadId(self.rng.index(THREADS as usize) as u32),
            kind,
        }
    }

    fn place(&mut self, size: u64) -> (u64, u64) {
        let usable = (size + 8).next_multiple_of(16).max(32) - 8;
        self.top += usable + 8;
        (self.top - usable - 8, usable)
    }

    fn acquired(&mut self) -> EventKind {
        let size = match self.rng.index(20) {
            0 => 0,
            1 => 5000 + self.rng.index(20_000) as u64,
            2 | 3 => 1025,
            _ => 8 + self.rng.index(200) as u64,
        };
        let (addr, usable) = self.place(size);
        self.live.push((addr, size));
        let func = [
            AllocFn::Malloc,
            AllocFn::Calloc,
            AllocFn::New,
            AllocFn::Memalign,
        ];
        EventKind::Alloc {
            func: func[self.rng.index(4)],
            node: NodeId(1 + self.rng.index(NODES as usize - 1) as u32),
            addr,
            size,
            usable,
        }
    }

    /// Makes one event, or two that belong together.
    fn step(&mut self, out: &mut Vec<Event>) {
        let chosen = self.rng.index(100);
        let kind = match chosen {
            0 => EventKind::Map {
                node: NodeId(3),
                addr: ARENA,
                len: 64 * PAGE,
                prot: 3,
                flags: 0x22,
                by_allocator: self.rng.index(2) == 0,
            },
            1 => EventKind::Unmap {
                addr: ARENA + 32 * PAGE,
                len: 8 * PAGE,
                by_allocator: false,
            },
            2 => EventKind::Remap {
                node: NodeId(5),
                old_addr: ARENA,
                old_len: 16 * PAGE,
                new_addr: ARENA + 128 * PAGE,
                new_len: 32 * PAGE,
            },
            3 => EventKind::Brk { addr: self.top },
            4 => EventKind::Advise {
                addr: ARENA,
                len: PAGE,
                advice: 4,
            },
            5 if self.marks < 6 => {
                self.marks += 1;
                EventKind::Mark {
                    mark: self.marks - 1,
                }
            }
            6 => EventKind::Fork { child: 4321 },
            7..=45 if !self.live.is_empty() => {
                let at = self.rng.index(self.live.len());
                let (addr, _) = self.live.swap_remove(at);
                EventKind::Free {
                    func: FreeFn::Free,
                    addr,
                }
            }
            46..=52 if !self.live.is_empty() => {
                self.regrow(out);
                return;
            }
            _ => self.acquired(),
        };
        let event = self.event(kind);
        out.push(event);
    }

    fn regrow(&mut self, out: &mut Vec<Event>) {
        let at = self.rng.index(self.live.len());
        let (old, size) = self.live.swap_remove(at);
        let released = self.event(EventKind::ReallocRelease { addr: old });
        let kind = if self.rng.index(8) == 0 {
            self.live.push((old, size));
            EventKind::ReallocCancel { addr: old }
        } else {
            let size = size * 2 + 1;
            let (addr, usable) = self.place(size);
            self.live.push((addr, size));
            EventKind::ReallocAcquire {
                node: NodeId(7),
                addr,
                size,
                usable,
            }
        };
        let mut second = self.event(kind);
        // Both halves belong to one thread.
        second.thread = released.thread;
        out.extend([released, second]);
    }

    fn snapshot(&mut self, cause: SnapshotCause) -> Snapshot {
        let end = self.top.next_multiple_of(PAGE);
        let heap = Mapping {
            start: HEAP,
            end: end + 32 * PAGE,
            perms: "rw-p".into(),
            name: "[heap]".into(),
            kind: MappingKind::Heap,
            rss_bytes: end - HEAP,
            pss_bytes: end - HEAP,
            private_bytes: end - HEAP,
            anon_bytes: end - HEAP,
            runs: vec![(HEAP, end - HEAP)],
            runs_known: true,
            ..Mapping::default()
        };
        let file = Mapping {
            start: 0x7fff_1000_0000,
            end: 0x7fff_1000_0000 + 40 * PAGE,
            perms: "r-xp".into(),
            name: "/usr/lib/libmade.so".into(),
            kind: MappingKind::File,
            rss_bytes: 20 * PAGE,
            pss_bytes: 4 * PAGE,
            ..Mapping::default()
        };
        Snapshot {
            time_ns: self.time_ns,
            ticket: self.ticket,
            cause,
            took_ns: 70_000,
            counted_bytes: None,
            tops: Some(vec![(self.top, end + 32 * PAGE - self.top)]),
            mappings: vec![heap, file],
        }
    }
}

/// Returns a whole trace of about this many events.
///
/// # Panics
/// Never: the memory takes what is written.
pub fn trace(seed: u64, events: usize) -> Vec<u8> {
    let mut memory = Memory::default();
    write(&mut memory, seed, events).unwrap_or_else(|error| panic!("in memory: {error}"));
    memory.0
}

fn write(memory: &mut Memory, seed: u64, events: usize) -> io::Result<()> {
    let mut made = Made {
        rng: Random::new(seed),
        ticket: 0,
        time_ns: 1000,
        top: HEAP,
        live: Vec::new(),
        marks: 0,
    };
    let process = ProcessInfo {
        uid: format!("{seed:016x}"),
        pid: 1234,
        name: "made-up".into(),
        argv: vec!["made-up".into(), "--seed".into(), seed.to_string()],
        allocator: "glibc 2.36".into(),
        os_page_bytes: PAGE,
        ..ProcessInfo::default()
    };
    let mut writer = Writer::new(memory, &process, 3)?;
    describe(&mut writer)?;
    let mut encoders: Vec<EventEncoder> = (0..THREADS)
        .map(|id| EventEncoder::new(ThreadId(id)))
        .collect();
    let quarter = (events / 4).max(1);
    let mut written = 0;
    let mut said = 0;
    while written < events {
        let mut some = Vec::new();
        made.step(&mut some);
        for event in &some {
            let encoder = &mut encoders[event.thread.0 as usize];
            encoder.push(event);
            if encoder.events() >= BLOCK_EVENTS
                && let Some(block) = encoder.take()
            {
                writer.events(block)?;
            }
        }
        if made.marks > said {
            mark(&mut writer, &mut made, said)?;
            said = made.marks;
        }
        if written / quarter != (written + some.len()) / quarter {
            sample(&mut writer, &mut made)?;
        }
        written += some.len();
    }
    for encoder in &mut encoders {
        if let Some(block) = encoder.take() {
            writer.events(block)?;
        }
    }
    let last = made.snapshot(SnapshotCause::Exit);
    writer.snapshot(&last)?;
    writer.ending(&Ending {
        exit: Exit::Exited(0),
        time_ns: made.time_ns,
        events: written as u64,
        ..Ending::default()
    })
}

fn describe(writer: &mut Writer<&mut Memory>) -> io::Result<()> {
    let nodes: Vec<(u32, u64)> = (1..NODES)
        .map(|id| (id / 2, 0x5555_5555_0000 + u64::from(id) * 40))
        .collect();
    writer.nodes(1, &nodes)?;
    writer.modules(&[Module {
        start: 0x5555_5555_0000,
        end: 0x5555_5556_0000,
        bias: 0x5555_5555_0000,
        path: "/usr/bin/made-up".into(),
        build_id: "00ff".into(),
        first_node: 0,
    }])?;
    for id in 0..THREADS {
        let thread = Thread {
            tid: 1234 + id,
            name: format!("worker {id}"),
            ..Thread::default()
        };
        writer.thread(ThreadId(id), &thread)?;
    }
    Ok(())
}

fn mark(writer: &mut Writer<&mut Memory>, made: &mut Made, index: u32) -> io::Result<()> {
    let name = ["load begin", "load end", "serve begin", "serve end"][index as usize % 4];
    writer.mark(
        index,
        &Mark {
            name: name.into(),
            time_ns: made.time_ns,
            ticket: made.ticket - 1,
            thread: Some(ThreadId(0)),
        },
    )?;
    let snapshot = made.snapshot(SnapshotCause::Mark(index));
    writer.snapshot(&snapshot)
}

fn sample(writer: &mut Writer<&mut Memory>, made: &mut Made) -> io::Result<()> {
    let bytes = made.top - HEAP + 20 * PAGE;
    writer.rss(&[RssSample {
        time_ns: made.time_ns,
        ticket: made.ticket,
        rss_bytes: bytes,
        anon_bytes: bytes - 20 * PAGE,
        file_bytes: 20 * PAGE,
        ..RssSample::default()
    }])?;
    let snapshot = made.snapshot(SnapshotCause::Peak);
    writer.snapshot(&snapshot)
}
