//! A whole simulation: what was touched, then the events, from an open trace.
//!
//! ```text
//!   trace ─► Survey, if snapshots can tell ─► Touched ─┐
//!   trace ─► events ──────────────────────────────────┴─► Simulation ─► WhatIf, and what could not be read
//! ```
//!
//! Not here: opening the trace.

use skinflint_trace::{Damage, Trace};

use crate::outcome::WhatIf;
use crate::policy::Policy;
use crate::simulation::{Options, Simulation};
use crate::touched::{Survey, Touched};

/// Simulates `policies` over a trace. `progress` is called with the number of events of each step that is done. Cost:
/// 13 million events of a python took 170 ns of CPU time per event and policy; 100 million of `bench/churn.c` under
/// one policy, whose blocks are in no cache, took 165 s and 126 MB (2026-11-21, a busy machine).
pub fn run(
    trace: &Trace,
    policies: Vec<Policy>,
    delay_ms: u32,
    mut progress: impl FnMut(u64),
) -> Ran {
    const STEP: u64 = 1 << 20;
    let mut seen = 0u64;
    let mut step = || {
        seen += 1;
        if seen.is_multiple_of(STEP) {
            progress(STEP);
        }
    };
    let mut touched = Touched::default();
    if Survey::is_worthwhile(&trace.snapshots) {
        let mut survey = Survey::new(&trace.snapshots);
        trace.events().for_each(|event| {
            survey.event(event);
            step();
        });
        touched = survey.finish();
    }
    let mut simulation = Simulation::new(Options {
        policies,
        delay_ms,
        touched,
        ..Options::of(trace)
    });
    let mut events = trace.events();
    events.for_each(|event| {
        simulation.event(event);
        step();
    });
    Ran {
        what_if: simulation.finish(),
        damage: events.damage().to_vec(),
    }
}

/// A finished simulation of a trace.
pub struct Ran {
    /// The result of the simulation.
    pub what_if: WhatIf,
    /// The parts of the trace that could not be read.
    pub damage: Vec<Damage>,
}
