//! Options of `skinflint js`, which program of the JavaScript host has each, and what all those programs do alike.
//!
//! ```text
//!   skinflint js ARGS ── JsArgs ──► programs: heap, malloc, pauses ──► skinflint-js[-…] ARGS ── JsArgs (the same)
//! ```
//!
//! J1  The options are defined once: for the command, and for the programs that take its place (`js/`, workspaces of
//!     their own).
//! J2  Options that no program can serve together are refused before one is started.
//!
//! Not here: what a host does with its engine (`js/`), where its programs are (`launch::installed`).

mod args;
pub mod host;
mod programs;

pub use args::{ClockOf, Close, Engine, HELP, Heap, JsArgs, LogFormat, Malloc};
pub use programs::{of, program};
