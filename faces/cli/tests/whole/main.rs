//! The whole tool on real programs: `skinflint` starts them, the recorder listens, the report is read.
//!
//! ```text
//!   tests/programs ─ make ─► program ─┬─ as it is ───────────► stdout, status ─┐
//!                                     └─ skinflint record ─┬─► stdout, status ─┴─► the same
//!                                                          └─► .sft ─► report --json ─► what the
//!                                                                       program's head predicts
//! ```
//!
//! I1  Every figure is worked out in the head of a test program, never copied from a report.
//! I2  Every process that a test starts is waited for within a bound, and killed with its group when
//!     the bound is over ([`tool`]).
//! I3  What a machine lacks (a compiler, an allocator's package) fails the test that needs it, with
//!     the name of the package. Nothing is skipped in silence.
//!
//! Not here: speed (bench/), the formats by themselves (the crates' own tests).

mod attached;
mod attached_anywhere;
mod beneath;
mod builds;
mod control;
mod cuts;
mod daemon;
mod damaged;
mod disk;
mod drawn;
mod filtered;
mod fit;
mod folder;
mod given_back;
mod golang;
mod golang_c;
mod golang_served;
mod kept;
mod limited;
mod linked;
mod lost;
mod mapped;
mod marks;
mod moments;
mod named;
mod past;
mod pins;
mod predicted;
mod processes;
mod programs;
mod reach;
mod refused;
mod replayed;
mod report;
mod sampled;
mod scripts;
mod stacks;
mod strangers;
mod streams;
mod tool;
mod top;
mod traces;
mod what_if;
