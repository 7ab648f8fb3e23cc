//! The first pass: what has to be known of a trace before its first operation is written.
//!
//! ```text
//!   events ─► ledger ─► live bytes: peak, lowest after it     snapshots ─► pages touched (touched.rs)
//!          ├► alignments by stack                             threads ─► first and last event
//! ```
//!
//! V1  The peak is the first moment at which most requested bytes live; "after free" is the first moment after it at
//!     which fewest live.
//! V2  A trace does not hold alignments: the common low bits of a stack's addresses are used instead (`Alignments`).
//!
//! Not here: the second pass (compile.rs).

use rustc_hash::FxHashMap;
use skinflint_replay::script::MAX_THREADS;
use skinflint_trace::{AllocFn, Event, EventKind, NodeId, Trace};

use super::error::CompileError;
use super::ledger::{Act, Ledger, Slots};
use super::touched::Touched;

/// Alignments above this are believed only of stacks that kept to them this often.
const SURE_LOG2: u32 = 12;
const SURE_BLOCKS: u32 = 8;
const MOST_LOG2: u32 = 21;

/// A moment, by the event that made it.
#[derive(Clone, Copy, Default, Debug)]
pub struct Moment {
    /// Bytes that live after the event.
    pub live_bytes: u64,
    /// The event; `u64::MAX` for none.
    pub ticket: u64,
}

/// A thread's events.
#[derive(Clone, Copy, Default)]
pub struct ThreadEvents {
    /// The number of events.
    pub events: u64,
    /// Ticket of the last event.
    pub last_ticket: u64,
}

/// The alignment that the addresses of a stack's aligned blocks have in common.
#[derive(Default)]
pub struct Alignments {
    /// Bits that were ever set in an address, and how many blocks there were.
    stacks: FxHashMap<NodeId, (u64, u32)>,
}

impl Alignments {
    fn see(&mut self, node: NodeId, addr: u64) {
        let (bits, blocks) = self.stacks.entry(node).or_default();
        *bits |= addr;
        *blocks = blocks.saturating_add(1);
    }

    /// Returns the binary logarithm of the alignment that this stack most likely asks for: at least 4 (what any block
    /// has).
    pub fn log2(&self, node: NodeId, addr: u64) -> u32 {
        let (bits, blocks) = self.stacks.get(&node).copied().unwrap_or((addr, 1));
        let most = if blocks >= SURE_BLOCKS {
            MOST_LOG2
        } else {
            SURE_LOG2
        };
        (bits | addr).trailing_zeros().clamp(4, most)
    }
}

/// Slots for the first pass, where it does not matter which slot is used.
#[derive(Default)]
struct AnySlots {
    free: Vec<u32>,
    next: u32,
}

impl Slots for &mut AnySlots {
    fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.next = self.next.saturating_add(1);
            self.next - 1
        })
    }

    fn give(&mut self, slot: u32) {
        self.free.push(slot);
    }
}

/// The results of the first pass.
pub struct Survey {
    /// Events of the trace.
    pub events: u64,
    /// The number of operations on blocks that the script will have.
    pub ops: u64,
    /// Events by thread.
    pub threads: Vec<ThreadEvents>,
    /// The moment with most live bytes (V1).
    pub peak: Moment,
    /// The moment with fewest live bytes after that (V1).
    pub after_free: Moment,
    /// The time of the last event, nanoseconds.
    pub last_ns: u64,
    /// The alignments by stack (V2).
    pub alignments: Alignments,
    /// The pages of large blocks that were touched.
    pub touched: Touched,
}

impl Survey {
    /// Reads the events once.
    ///
    /// # Errors
    /// If there is nothing to replay.
    pub fn of(trace: &Trace) -> Result<Survey, CompileError> {
        let none = Moment {
            live_bytes: 0,
            ticket: u64::MAX,
        };
        let mut survey = Survey {
            events: 0,
            ops: 0,
            threads: Vec::new(),
            peak: none,
            after_free: none,
            last_ns: 0,
            alignments: Alignments::default(),
            touched: Touched::new(trace),
        };
        let (mut ledger, mut slots, mut live_bytes) = (Ledger::default(), AnySlots::default(), 0);
        trace.events().for_each(|event| {
            survey.event(event);
            survey.touched.snapshots_before(event.ticket);
            let survey = &mut survey;
            ledger.apply(event, &mut slots, &mut |act| {
                survey.act(event, &act, &mut live_bytes)
            });
        });
        survey.touched.snapshots_before(u64::MAX);
        survey.touched.finish();
        if survey.ops > 0 {
            return Ok(survey);
        }
        Err(CompileError::Nothing(
            match ledger.left_out.damaged_events {
                0 => "the trace holds no allocation; was the program recorded to its end?",
                _ => {
                    "the trace holds no addresses, so releases cannot be told to blocks; record with `skinflint record`"
                }
            },
        ))
    }

    fn event(&mut self, event: &Event) {
        self.events += 1;
        self.last_ns = self.last_ns.max(event.time_ns);
        let number = event.thread.0 as usize;
        if number >= MAX_THREADS as usize {
            return;
        }
        if number >= self.threads.len() {
            self.threads.resize(number + 1, ThreadEvents::default());
        }
        self.threads[number].events += 1;
        self.threads[number].last_ticket = event.ticket;
        if let EventKind::Alloc {
            func: AllocFn::Memalign | AllocFn::Valloc,
            node,
            addr,
            ..
        } = event.kind
        {
            self.alignments.see(node, addr);
        }
    }

    fn act(&mut self, event: &Event, act: &Act, live_bytes: &mut u64) {
        self.ops += 1;
        match *act {
            Act::Acquire {
                slot,
                func,
                node,
                addr,
                size,
                serial,
            } => {
                *live_bytes += size;
                self.touched.acquired(slot, func, node, addr, size, serial);
            }
            Act::Regrow {
                slot,
                func,
                node,
                addr,
                size,
                serial,
                old_size,
            } => {
                *live_bytes = *live_bytes + size - old_size;
                self.touched.acquired(slot, func, node, addr, size, serial);
            }
            Act::Release { slot, size } => {
                *live_bytes -= size;
                self.touched.released(slot);
            }
        }
        let now = Moment {
            live_bytes: *live_bytes,
            ticket: event.ticket,
        };
        if *live_bytes > self.peak.live_bytes {
            self.peak = now;
            self.after_free = Moment {
                ticket: u64::MAX,
                ..now
            };
        } else if *live_bytes < self.after_free.live_bytes {
            self.after_free = now;
        }
    }
}
