//! The settings of the heaps of a world.
//!
//! Not here: the tables of thresholds (`trigger`).

use crate::heap::clock::Clock;
use crate::heap::incremental::Incremental;
use crate::heap::trigger::Growth;

/// The default of [`Config::ahead`].
const AHEAD: f64 = 0.08;

/// The settings of the heaps of a world.
#[derive(Clone, Debug)]
pub struct Config {
    /// When they are collected, unless a heap has its own table.
    pub growth: Growth,
    /// Marking while the program runs; `None`: in one pause. With it, clients of the core need write barriers
    /// ([`Heap::barrier`](crate::Heap::barrier)).
    pub incremental: Option<Incremental>,
    /// Whether a thread sweeps beside the mutators. Without it, everything happens in an order that only the program
    /// decides.
    pub background: bool,
    /// The new memory that a heap may take while that thread sweeps what the last collection left, as a part of what
    /// the heap held when that collection ended (alloc.P6): 0.08 is 8 %. With 0 an allocation that finds no swept arena
    /// sweeps some itself.
    pub ahead: f64,
    /// Whether everything is swept within the pause that finds it, on the heap's thread: for comparison.
    pub sweep_in_pause: bool,
    /// If set, every nth allocation makes a collection due.
    pub stress_every: Option<u64>,
    /// Whether after each marking a second, simpler tracer must find the same set; a difference is a panic.
    pub verify: bool,
    /// Whether freed cells are filled with a pattern, which must still be there when they are used again.
    pub poison: bool,
    /// Entries of the mark stack; beyond it arenas are delayed. `None`: the default number.
    pub mark_stack: Option<usize>,
    /// The clock of pauses and shares.
    pub clock: Clock,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            growth: Growth::TENANT,
            incremental: None,
            background: true,
            ahead: AHEAD,
            sweep_in_pause: false,
            stress_every: None,
            verify: false,
            poison: false,
            mark_stack: None,
            clock: Clock::real(),
        }
    }
}

impl Config {
    /// Returns settings that find faults: a collection at every nth allocation, verified; poison; no other thread.
    pub fn stress(every: u64) -> Config {
        Config {
            stress_every: Some(every),
            verify: true,
            poison: true,
            background: false,
            ..Config::default()
        }
    }
}
