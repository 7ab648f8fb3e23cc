//! A process that no recorder is in, read from outside: its readings on their way to the drain.
//!
//! ```text
//!   sampler, drain ─ read ─► GoHeap ─────┐
//!   keeper ─ take_profile ─► ServedHeap ─┴─► batches ─ take ─► drain: codes, nodes, events of a stream of its own
//! ```
//!
//! O1  A reading has its tickets before it is known to the rest: a snapshot that is taken after it has the newest of them.
//! O2  Batches are taken in the order in which they were read.
//!
//! Not here: what is read (go/), and fetched (served/).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Mutex, MutexGuard, PoisonError};

use skinflint_trace::{AllocFn, Code, EventKind, FreeFn, GO_CODE, Mapping, NodeId, user_code};

use crate::go::{Batch, Change, GoHeap};
use crate::memory::Region;
use crate::served::{Errand, Profile as Served, ServedHeap};
use crate::stream::Stream;
use crate::tree::Tree;

/// How a heap's memory is mapped.
const READ_AND_WRITE: u32 = (libc::PROT_READ | libc::PROT_WRITE) as u32;
const PRIVATE: u32 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u32;

/// Where the samples are from.
enum Heap {
    Go(Box<GoHeap>),
    /// The program serves its profile; the thread that fetches it is asked by this.
    Served(Box<ServedHeap>, Sender<Errand>),
}

/// The heap of a process that is read from outside.
pub struct Outside {
    heap: Mutex<Heap>,
    batches: Mutex<Vec<Batch>>,
    /// The mean distance of its samples, when recording began.
    rate: u64,
    /// When it was read last, nanoseconds since the start.
    read_ns: AtomicU64,
}

impl Outside {
    /// Begins with a heap.
    pub fn new(heap: GoHeap) -> Outside {
        Outside {
            rate: heap.rate(),
            heap: Mutex::new(Heap::Go(Box::new(heap))),
            batches: Mutex::default(),
            read_ns: AtomicU64::new(0),
        }
    }

    /// Begins with a heap whose profile is served, of which `rate` is the mean distance of samples.
    pub fn served(rate: u64, keeper: Sender<Errand>) -> Outside {
        Outside {
            rate,
            heap: Mutex::new(Heap::Served(Box::default(), keeper)),
            batches: Mutex::default(),
            read_ns: AtomicU64::new(0),
        }
    }

    /// Returns where to ask for a profile, if it is served.
    pub fn keeper(&self) -> Option<Sender<Errand>> {
        match &*lock(&self.heap) {
            Heap::Served(_, keeper) => Some(keeper.clone()),
            Heap::Go(_) => None,
        }
    }

    /// Takes a profile that was fetched (O1).
    pub fn take_profile(&self, profile: &Served, region: &Region, time_ns: u64) {
        let mut heap = lock(&self.heap);
        if let Heap::Served(heap, _) = &mut *heap {
            let batch = heap.take(profile, time_ns);
            self.publish(batch, heap.newest_ticket(), region);
        }
    }

    /// Hands a batch on. The caller holds the lock of the heap (O2).
    fn publish(&self, batch: Batch, newest_ticket: u64, region: &Region) {
        // ORDER: Release; pairs with `newest_ticket`'s Acquire, though only the number matters.
        region
            .slot(0)
            .ticket
            .store(newest_ticket, Ordering::Release);
        // ORDER: Relaxed; read when the process has ended.
        self.read_ns.store(batch.time_ns, Ordering::Relaxed);
        if !batch.changes.is_empty() || !batch.stacks.is_empty() {
            lock(&self.batches).push(batch);
        }
    }

    /// Returns when it was read last, nanoseconds since the start.
    pub fn read_ns(&self) -> u64 {
        self.read_ns.load(Ordering::Relaxed) // ORDER: Relaxed; as above.
    }

    /// Reads what has changed (O1), but for a profile that has to be fetched. The region is that of the process.
    pub fn read(&self, region: &Region, time_ns: u64) {
        let mut heap = lock(&self.heap);
        if let Heap::Go(heap) = &mut *heap {
            let batch = heap.read(time_ns);
            self.publish(batch, heap.newest_ticket(), region);
        }
    }

    /// Returns the mean distance of its samples, bytes; of a program that takes none, that of others.
    pub fn rate(&self) -> u64 {
        match self.rate {
            0 => crate::go::RATE,
            rate => rate,
        }
    }

    /// Gives parts of mappings the names of what they are for.
    pub fn name(&self, mappings: Vec<Mapping>) -> Vec<Mapping> {
        match &*lock(&self.heap) {
            Heap::Go(heap) => heap.name(mappings),
            Heap::Served(..) => mappings,
        }
    }

    /// Returns the bytes in use as the program's own runtime counts them; 0 if that is not known.
    pub fn in_use(&self) -> u64 {
        match &*lock(&self.heap) {
            Heap::Go(heap) => heap.in_use(),
            Heap::Served(..) => 0,
        }
    }

    /// Returns what was read since the last call.
    pub fn take(&self) -> Vec<Batch> {
        std::mem::take(&mut lock(&self.batches))
    }

    /// Returns what a reader of the trace should know, a sentence each.
    ///
    /// `is_child`: another program started it.
    pub fn notes(&self, is_child: bool) -> Vec<String> {
        let heap = lock(&self.heap);
        let Heap::Go(heap) = &*heap else {
            return Vec::new();
        };
        let version = heap.version();
        let mut notes: Vec<String> = heap
            .refused()
            .map(|why| format!("its heap profile was not read: {why}"))
            .into_iter()
            .collect();
        if self.rate == 0 {
            let instead = match is_child {
                true => "; started by itself (skinflint run -- PROGRAM) it would keep one",
                false => "",
            };
            notes.push(format!(
                "it keeps no heap profile (MemProfileRate is 0 in it), so no functions are known ({version}){instead}"
            ));
        }
        notes
    }
}

/// Locks a mutex, even after a thread of ours panicked: the next reading says what is true.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A heap that is read from outside, as events of a stream.
pub struct Profile {
    /// The nodes of the stacks of its batches.
    stacks: Vec<NodeId>,
    stream: Stream,
}

impl Profile {
    /// Begins with a stream that no thread writes to.
    pub fn new(stream: Stream) -> Profile {
        Profile {
            stacks: Vec::new(),
            stream,
        }
    }

    /// Returns its stream.
    pub fn stream(&mut self) -> &mut Stream {
        &mut self.stream
    }

    /// Adds a batch.
    pub fn add(&mut self, batch: &Batch, tree: &mut Tree) {
        for frames in &batch.stacks {
            let mut node = 0;
            for frame in frames {
                let id = tree.codes.id(Code {
                    minor: GO_CODE,
                    first_line: frame.first_line,
                    file: frame.file.clone(),
                    name: frame.function.clone(),
                    lines: Vec::new(),
                });
                node = tree.child(node, user_code(id, frame.line)).0;
            }
            self.stacks.push(NodeId(node));
        }
        for (change, ticket) in batch.changes.iter().zip(batch.first_ticket..) {
            let kind = match *change {
                Change::Acquired(stack, addr, size) => EventKind::Alloc {
                    func: AllocFn::Malloc,
                    node: self.stacks.get(stack as usize).copied().unwrap_or_default(),
                    addr,
                    size,
                    usable: size,
                },
                Change::Mapped(addr, len) => EventKind::Map {
                    node: NodeId::default(),
                    addr,
                    len,
                    prot: READ_AND_WRITE,
                    flags: PRIVATE,
                    by_allocator: true,
                },
                Change::Released(addr) => EventKind::Free {
                    func: FreeFn::Free,
                    addr,
                },
            };
            self.stream.outside_event(kind, ticket, batch.time_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::go::GoFrame;
    use skinflint_trace::ThreadId;

    fn frame(function: &str, line: u32) -> GoFrame {
        GoFrame {
            function: function.into(),
            file: "/srv/main.go".into(),
            line,
            first_line: 3,
        }
    }

    #[test]
    fn equal_outer_frames_are_one_node_and_lines_are_not() {
        let mut tree = Tree::new();
        let mut profile = Profile::new(Stream::new(ThreadId(0), 0));
        let batch = Batch {
            stacks: vec![
                vec![frame("main.main", 9), frame("main.rows", 5)],
                vec![frame("main.main", 9), frame("main.rows", 6)],
            ],
            changes: vec![
                Change::Acquired(0, 4096, 64),
                Change::Acquired(1, 8192, 32),
                Change::Released(4096),
            ],
            first_ticket: 7,
            time_ns: 100,
        };
        profile.add(&batch, &mut tree);
        let (first, nodes) = tree.take_fresh().expect("three");
        assert_eq!(
            (first, nodes),
            (
                1,
                vec![
                    (0, user_code(1, 9)),
                    (1, user_code(2, 5)),
                    (1, user_code(2, 6))
                ]
            )
        );
        let (_, codes) = tree.codes.take_fresh().expect("two");
        assert_eq!(
            (codes.len(), codes[1].minor, &*codes[1].name),
            (2, GO_CODE, "main.rows")
        );
        let stream = profile.stream();
        assert_eq!((stream.events, stream.ticket, stream.time_ns), (3, 9, 100));
    }
}
