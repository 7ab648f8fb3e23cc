//! Turns addresses of a trace into names: outside the recorded program, perhaps later, perhaps on another machine.
//!
//! ```text
//!   (pc, node) ─ which module? ─► module ─► DWARF ─► inlined frames, function, file, line
//!                                   │ none     └ none ─► .symtab, .dynsym, PLT ─► function
//!                                   ▼                          └ none ─► module+0x1234
//!                              perf map ─► function         └ none ─► [jit] 0x…
//!   frame of Python: code, unit ─► function, file, line
//! ```
//!
//! S1  A module is opened when its first address is asked for, and only once.
//! S2  Every address gets at least one frame with a name that is not empty.
//! S3  Names come only from files whose build id is the trace's (locate.L1).
//! S4  The cache holds one entry per distinct (module, address): the trace's stack tree bounds it.
//! S5  No network is asked that the caller did not name (debuginfod.rs, debuginfod.F1).
//!
//! Not here: reading traces, drawing stacks.

mod data;
mod debuginfod;
mod demangle;
mod dwarf;
mod elf;
mod error;
mod frame;
mod itanium;
mod java;
mod locate;
mod module;
mod perf_map;
mod python;
mod scopes;
mod sources;
mod symbols;

pub use demangle::{demangle, demangle_whole, short_name};
pub use error::SourceError;
pub use frame::Frame;
pub use module::{ModuleSummary, Source};
pub use sources::{Frames, NameSources, must_be_folders};
pub use symbols::{SymbolOptions, Symbols, TRUNCATED_PC};
