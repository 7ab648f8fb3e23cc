//! What lives, against a whole recording: of any moment, whatever the order in which rings are read.

use std::collections::{BTreeMap, VecDeque};

use skinflint_base::random::Random;
use skinflint_trace::{Ending, FreeFn, ProcessInfo, Trace, Writer};

use super::*;

/// A block: size, usable, node, thread, function.
type Block = (u64, u64, u32, u32, AllocFn);

/// What lives by a plain reading of events in order: blocks by address, those of reallocations under way by thread; and the sums.
#[derive(Default, Debug, PartialEq, Eq)]
struct Plain {
    blocks: BTreeMap<u64, Block>,
    parked: BTreeMap<u32, Option<Block>>,
    mapped: BTreeMap<u64, u64>,
}

impl Plain {
    fn apply(&mut self, event: &Event) {
        let thread = event.thread.0;
        match event.kind {
            EventKind::Alloc {
                func,
                node,
                addr,
                size,
                usable,
            } => drop(
                self.blocks
                    .insert(addr, (size, usable, node.0, thread, func)),
            ),
            EventKind::Free { addr, .. } => drop(self.blocks.remove(&addr)),
            EventKind::ReallocRelease { addr } => {
                let old = self.blocks.remove(&addr);
                self.parked.insert(thread, old);
            }
            EventKind::ReallocAcquire {
                node,
                addr,
                size,
                usable,
            } => {
                self.parked.remove(&thread);
                let func = AllocFn::Realloc;
                self.blocks
                    .insert(addr, (size, usable, node.0, thread, func));
            }
            EventKind::ReallocCancel { addr } => {
                if let Some(Some(old)) = self.parked.remove(&thread) {
                    self.blocks.insert(addr, old);
                }
            }
            EventKind::Map { addr, len, .. } => drop(self.mapped.insert(addr, len)),
            EventKind::Unmap { addr, .. } => drop(self.mapped.remove(&addr)),
            ref other => panic!("{other:?} is not made here"),
        }
    }

    /// The blocks and their bytes, those of reallocs under way included.
    fn sums(&self) -> (u64, u64) {
        let all = self.blocks.values().chain(self.parked.values().flatten());
        all.fold((0, 0), |(n, bytes), block| (n + 1, bytes + block.0))
    }
}

/// A program of some threads, which publishes what it does as the recorder does: what is done at an address is published
/// before the next is done there; a thread may take a ticket and be late to publish.
struct Program {
    random: Random,
    ticket: u64,
    /// What a thread has begun and not published: events of one address.
    late: Vec<Option<Event>>,
    rings: Vec<VecDeque<Event>>,
    /// Live addresses that no thread is busy with.
    live: Vec<u64>,
    /// Free addresses, the newest last: an allocator hands them out again at once, to any thread.
    free: Vec<u64>,
    fresh: u64,
    /// By thread, the block of a realloc under way.
    parked: Vec<Option<u64>>,
}

const THREADS: usize = 4;

impl Program {
    fn new(seed: u64) -> Program {
        Program {
            random: Random::new(seed),
            ticket: 0,
            late: vec![None; THREADS],
            rings: vec![VecDeque::new(); THREADS],
            live: Vec::new(),
            free: Vec::new(),
            fresh: 0x10_0000,
            parked: vec![None; THREADS],
        }
    }

    fn below(&mut self, n: usize) -> usize {
        (self.random.bits() >> 33) as usize % n
    }

    fn publish(&mut self, thread: usize) {
        let Some(event) = self.late[thread].take() else {
            return;
        };
        // From now on others can have what it was about.
        match event.kind {
            EventKind::Alloc { addr, .. } | EventKind::ReallocAcquire { addr, .. } => {
                self.live.push(addr);
            }
            EventKind::ReallocCancel { addr } => self.live.push(addr),
            EventKind::Free { addr, .. } => self.free.push(addr),
            _ => {}
        }
        self.rings[thread].push_back(event);
    }

    fn address(&mut self) -> u64 {
        self.free.pop().unwrap_or_else(|| {
            self.fresh += 48;
            self.fresh
        })
    }

    fn step(&mut self) {
        let thread = self.below(THREADS);
        // One in eight stays unpublished for a while.
        if self.late[thread].is_some() {
            if self.below(8) > 0 {
                self.publish(thread);
            }
            return;
        }
        let choice = self.below(16);
        let node = NodeId(self.below(5) as u32);
        let size = self.below(4000) as u64;
        let usable = size + self.below(9) as u64;
        let kind = match self.parked[thread].take() {
            Some(old) if choice == 0 => EventKind::ReallocCancel { addr: old },
            Some(old) => {
                // The old block is free for others from its release on.
                self.free.push(old);
                let addr = self.address();
                EventKind::ReallocAcquire {
                    node,
                    addr,
                    size,
                    usable,
                }
            }
            None if choice < 8 || self.live.is_empty() => EventKind::Alloc {
                func: AllocFn::Calloc,
                node,
                addr: self.address(),
                size,
                usable,
            },
            None => {
                let at = self.below(self.live.len());
                let addr = self.live.swap_remove(at);
                match choice {
                    8..10 => {
                        self.parked[thread] = Some(addr);
                        EventKind::ReallocRelease { addr }
                    }
                    _ => EventKind::Free {
                        func: FreeFn::Free,
                        addr,
                    },
                }
            }
        };
        self.ticket += 1;
        self.late[thread] = Some(Event {
            ticket: self.ticket,
            time_ns: self.ticket * 1000,
            thread: ThreadId(thread as u32),
            kind,
        });
        if self.below(8) > 0 {
            self.publish(thread);
        }
    }
}

/// Returns the events of what a segment begins with.
fn decoded(beginning: &Beginning) -> Vec<Event> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.sft");
    let mut writer = Writer::create(&path, &ProcessInfo::default()).expect("a trace");
    for block in &beginning.blocks {
        writer.events(block.clone()).expect("written");
    }
    writer.ending(&Ending::default()).expect("ended");
    let trace = Trace::open(&path).expect("the trace");
    assert_eq!(trace.damage, []);
    assert_eq!(trace.event_count(), beginning.events);
    let (mut all, mut events) = (Vec::new(), trace.events());
    events.for_each(|event| all.push(*event));
    all
}

fn replayed(mut events: Vec<Event>) -> Plain {
    // As a reader merges them: stable by ticket, each thread's in order.
    events.sort_by_key(|event| event.ticket);
    let mut plain = Plain::default();
    events.iter().for_each(|event| plain.apply(event));
    plain
}

#[test]
fn a_segment_from_any_moment_ends_with_what_the_whole_ends_with() {
    for seed in 1..=8u64 {
        let mut program = Program::new(seed);
        let (mut live, mut whole) = (Live::new(), Vec::new());
        // What segments begin with, the events that came since, and the sums that were said.
        let mut segments: Vec<(Vec<Event>, (u64, u64))> = Vec::new();
        for pass in 0..96 {
            for _ in 0..program.below(60) {
                program.step();
            }
            for ring in 0..THREADS {
                // The program goes on while rings are read.
                for _ in 0..program.below(12) {
                    program.step();
                }
                let mut read: Vec<Event> = program.rings[ring].drain(..).collect();
                whole.extend_from_slice(&read);
                for (events, _) in &mut segments {
                    events.extend_from_slice(&read);
                }
                live.take(&mut read);
            }
            live.pass();
            if pass % 8 == 7 {
                let beginning = live.beginning(0);
                let met = replayed(whole.clone());
                let sums = (beginning.live, beginning.live_bytes);
                let acquired = whole.iter().filter(|event| {
                    matches!(
                        event.kind,
                        EventKind::Alloc { .. } | EventKind::ReallocAcquire { .. }
                    )
                });
                assert_eq!(beginning.acquired, acquired.count() as u64);
                segments.push((decoded(&beginning), sums));
                // Exact but for what late events change, which only order can tell: of the events met, these are it.
                assert!(
                    sums.0.abs_diff(met.sums().0) <= 3 * THREADS as u64,
                    "{sums:?} {met:?}"
                );
            }
        }
        // The end: what is late comes, and nothing is left in rings.
        for thread in 0..THREADS {
            program.publish(thread);
        }
        let rest: Vec<Event> = program
            .rings
            .iter_mut()
            .flat_map(|ring| ring.drain(..))
            .collect();
        whole.extend_from_slice(&rest);
        let expected = replayed(whole);
        assert!(expected.blocks.len() > 50 && segments.len() == 12);
        for (number, (mut events, _)) in segments.into_iter().enumerate() {
            events.extend_from_slice(&rest);
            assert_eq!(replayed(events), expected, "seed {seed}, segment {number}");
        }
    }
}

#[test]
fn mappings_and_reallocs_under_way_are_handed_on() {
    let event = |ticket, thread, kind| Event {
        ticket,
        time_ns: 5,
        thread: ThreadId(thread),
        kind,
    };
    let acquired = |addr, size| EventKind::Alloc {
        func: AllocFn::New,
        node: NodeId(3),
        addr,
        size,
        usable: size + 8,
    };
    let map = EventKind::Map {
        node: NodeId(4),
        addr: 0x7000,
        len: 0x3000,
        prot: 3,
        flags: 0x22,
        by_allocator: false,
    };
    let cut = EventKind::Unmap {
        addr: 0x8000,
        len: 0x1000,
        by_allocator: false,
    };
    let mut live = Live::new();
    live.take(&mut vec![
        event(1, 0, map),
        event(2, 0, acquired(0x100, 10)),
        event(3, 0, EventKind::ReallocRelease { addr: 0x100 }),
    ]);
    live.take(&mut vec![
        event(4, 1, acquired(0x200, 20)),
        event(5, 1, cut),
    ]);
    live.pass();
    live.pass();
    let beginning = live.beginning(77);
    assert_eq!((beginning.live, beginning.live_bytes), (2, 30));
    let events = decoded(&beginning);
    let pieces = |addr| EventKind::Map {
        node: NodeId(4),
        addr,
        len: 0x1000,
        prot: 3,
        flags: 0x22,
        by_allocator: false,
    };
    let expected = [
        (0, 0, pieces(0x7000)),
        (0, 0, pieces(0x9000)),
        (1, 0, acquired(0x100, 10)),
        (1, 1, acquired(0x200, 20)),
        (2, 0, EventKind::ReallocRelease { addr: 0x100 }),
    ];
    let expected = expected.map(|(ticket, thread, kind)| Event {
        time_ns: 77,
        ..event(ticket, thread, kind)
    });
    assert_eq!(events, expected);
}
