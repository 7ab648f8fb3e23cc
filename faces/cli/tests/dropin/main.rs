//! `libskinflint.so` in the place of glibc's malloc: the whole contract, and real programs.
//!
//! ```text
//!   program ─┬─ as it is ─────────────────────► stdout, status ─┐
//!            └─ LD_PRELOAD=libskinflint.so ───► stdout, status ─┴─► the same
//! ```
//!
//! D1  glibc judges each program: both runs print the same and end the same way. If only ours can be
//!     tested (a handler that allocates, a fault that glibc does not see), the test says so.
//! D2  A library that was not loaded fails every test: the loader's complaint is on stderr, which is
//!     compared as well.
//! D3  With `SKINFLINT_LONG` set the same tests take their long forms (minutes each).
//!
//! Not here: speed and memory (bench/), the engine's own tests.

// Shared with the tests of the whole tool, and not all of it is needed here.
#[allow(dead_code)]
#[path = "../whole/report.rs"]
mod report;
#[allow(dead_code)]
#[path = "../whole/tool.rs"]
mod tool;

mod beside;
mod checked;
mod contract;
mod exec;
mod library;
mod real;
mod servers;
mod symbols;
