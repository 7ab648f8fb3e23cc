//! Options of `skinflint js`, and which program of the JavaScript host has each.
//!
//! ```text
//!   skinflint js ARGS ── JsArgs ──► programs: heap, malloc, pauses ──► skinflint-js[-…] ARGS ── JsArgs (the same)
//! ```
//!
//! J1  The options are defined once: for the command, and for the programs that take its place (`js/`, workspaces of
//!     their own).
//! J2  Options that no program can serve together are refused before one is started.
//!
//! Not here: what the host does (`js/host`), where its programs are (`launch::installed`).

mod args;
mod programs;

pub use args::{ClockOf, Close, Engine, HELP, Heap, JsArgs, LogFormat, Malloc};
pub use programs::{of, program};
