//! Measures how fast the ledger is: a seeded synthetic trace, streamed without passes and with all.
//!
//! ```text
//!   cargo run --release -p skinflint-analysis --example throughput [MILLION_EVENTS] [LIVE_BLOCKS] [SEED]
//! ```
//!
//! H1  Events are made before the clock starts, in rounds; only the analysis is timed.
//! H2  The work is checked: the blocks that live at the end are those that the generator left.
//! H3  Time is the CPU time of the thread, so that a busy machine affects only the caches.
//!
//! Not here: a real trace, whose decoding costs too.

use std::io::Write;
use std::time::Duration;

use skinflint_analysis::model::Frame;
use skinflint_analysis::{Analyzer, Facts, Options, StackNode, Symbolizer, passes};
use skinflint_trace::{AllocFn, Event, EventKind, FreeFn, NodeId, ThreadId};

const NODES: u64 = 4096;
const ROUND: usize = 1 << 20;

struct Nameless;

impl Symbolizer for Nameless {
    fn frames(&mut self, _pc: u64, _node: u32) -> Vec<Frame> {
        Vec::new()
    }
}

/// Makes events as programs do: most blocks are small, short-lived and from a few stacks.
struct Generator {
    state: u64,
    ticket: u64,
    time_ns: u64,
    live: Vec<u64>,
    free: Vec<u64>,
    parked: Option<u64>,
    target: usize,
}

impl Generator {
    fn below(&mut self, bound: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        ((u128::from(self.state) * u128::from(bound)) >> 64) as u64
    }

    fn node_and_size(&mut self) -> (NodeId, u64, u64) {
        // Squaring favours low numbers: a few stacks do most of the work.
        let draw = self.below(NODES);
        let node = draw * draw / NODES;
        let size = match self.below(16) {
            0 => 1024 + self.below(4) * 64,
            draw => 16 + (node % 7) * 24 + draw % 3,
        };
        (
            NodeId(node as u32 + 1),
            size,
            (size + 8).next_multiple_of(16).max(32) - 8,
        )
    }

    fn event(&mut self) -> Event {
        self.ticket += 1;
        self.time_ns += if self.ticket.is_multiple_of(64) {
            5000
        } else {
            0
        };
        let kind = self.kind();
        Event {
            ticket: self.ticket,
            time_ns: self.time_ns,
            thread: ThreadId(0),
            kind,
        }
    }

    fn kind(&mut self) -> EventKind {
        if let Some(addr) = self.parked.take() {
            let (node, size, usable) = self.node_and_size();
            self.live.push(addr);
            return EventKind::ReallocAcquire {
                node,
                addr,
                size,
                usable,
            };
        }
        let grow = self.live.len() < self.target;
        let dice = self.below(32);
        if self.live.len() > 64 && dice < 17 - 6 * u64::from(grow) {
            // Mostly one of the latest 64, sometimes any.
            let last = self.live.len() as u64;
            let back = if self.below(8) == 0 {
                self.below(last)
            } else {
                self.below(64)
            };
            let addr = self.live.swap_remove((last - 1 - back) as usize);
            if dice == 0 {
                self.parked = Some(addr);
                return EventKind::ReallocRelease { addr };
            }
            self.free.push(addr);
            return EventKind::Free {
                func: FreeFn::Free,
                addr,
            };
        }
        let (node, size, usable) = self.node_and_size();
        let addr = self
            .free
            .pop()
            .unwrap_or(0x5555_0000_0000 + self.ticket * 64);
        self.live.push(addr);
        EventKind::Alloc {
            func: AllocFn::Malloc,
            node,
            addr,
            size,
            usable,
        }
    }
}

/// Returns the CPU time of this thread: other work on the machine must not count.
fn cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = text
        .split_whitespace()
        .next()
        .and_then(|ns| ns.parse().ok());
    Duration::from_nanos(ns.expect("/proc/thread-self/schedstat gives nanoseconds on the CPU"))
}

fn peak_rss_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap_or_default();
    line.split_whitespace()
        .nth(1)
        .and_then(|kib| kib.parse().ok())
        .unwrap_or(0)
}

fn run(label: &str, events: u64, live: usize, seed: u64, with_passes: bool) {
    let nodes = (0..=NODES as u32)
        .map(|id| StackNode {
            pc: u64::from(id),
            parent: 0,
        })
        .collect();
    let facts = Facts {
        nodes,
        ..Facts::default()
    };
    let options = Options::default();
    let passes = if with_passes {
        passes::all(&facts, &options)
    } else {
        Vec::new()
    };
    let count = passes.len();
    let mut analyzer = Analyzer::with_passes(facts, options, passes).expect("default options");
    let mut generator = Generator {
        state: seed.max(1),
        ticket: 0,
        time_ns: 0,
        live: Vec::new(),
        free: Vec::new(),
        parked: None,
        target: live,
    };
    let mut round = Vec::with_capacity(ROUND);
    let (mut spent, mut done, mut best) = (Duration::ZERO, 0, Duration::MAX);
    while done < events {
        round.clear();
        round.extend((0..ROUND).map(|_| generator.event()));
        let start = cpu();
        round.iter().for_each(|event| analyzer.event(event));
        let took = cpu() - start;
        spent += took;
        best = best.min(took);
        done += ROUND as u64;
    }
    let start = cpu();
    let report = analyzer.finish(&mut Nameless);
    let closing = cpu() - start;
    let left = generator.live.len() as u64 + u64::from(generator.parked.is_some());
    assert_eq!(report.instants[report.at].live_blocks, left, "H2");
    let line = format!(
        "{label} ({count} passes): {:.1} M events/s of CPU over {} M events (best round {:.1}), {left} live \
         blocks, finish {:.0} ms, peak RSS {:.0} MiB with {:.0} MiB of events and generator",
        done as f64 / spent.as_secs_f64() / 1e6,
        done / 1_000_000,
        ROUND as f64 / best.as_secs_f64() / 1e6,
        closing.as_secs_f64() * 1e3,
        peak_rss_kib() as f64 / 1024.0,
        (ROUND * size_of::<Event>() + (generator.live.capacity() + generator.free.capacity()) * 8)
            as f64
            / f64::from(1 << 20),
    );
    // A closed pipe is no failure.
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn main() {
    let argument = |index: usize, default: u64| {
        std::env::args()
            .nth(index)
            .and_then(|text| text.parse().ok())
            .unwrap_or(default)
    };
    let events = argument(1, 20) * 1_000_000;
    let live = argument(2, 50_000) as usize;
    let seed = argument(3, 1);
    run("ledger alone", events, live, seed, false);
    run("with all passes", events, live, seed, true);
}
