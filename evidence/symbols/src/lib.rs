//! Turns addresses of a trace into names: outside the recorded program, perhaps later, perhaps on another machine.
//!
//! ```text
//!   (pc, node) ─ which module? ─► module ─► DWARF ─► inlined frames, function, file, line
//!                                   │ none     └ none ─► .symtab, .dynsym, PLT ─► function
//!                                   ▼                          └ none ─► module+0x1234
//!                              perf map ─► function         └ none ─► [jit] 0x…
//! ```
//!
//! S1  A module is opened when its first address is asked for, and only once.
//! S2  Every address gets at least one frame with a name that is not empty.
//! S3  Names come only from files whose build id is the trace's (locate.L1).
//! S4  The cache holds one entry per distinct (module, address): the trace's stack tree bounds it.
//! Not here: reading traces, drawing stacks, asking the network for debug files.

mod data;
mod demangle;
mod dwarf;
mod elf;
mod frame;
mod itanium;
mod locate;
mod module;
mod perf_map;
mod symbols;

pub use demangle::{demangle, demangle_whole, short_name};
pub use frame::Frame;
pub use module::{ModuleSummary, Source};
pub use symbols::{SymbolOptions, Symbols, TRUNCATED_PC};
