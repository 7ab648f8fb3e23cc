//! The JavaScript host: Boa with a tenant of the heap for each tab.
//!
//! ```text
//!   options ─► run ─► tab ─► Boa ─► boa_gc: stock, or ours by [patch] (feature `ours`)
//!                │      └─ natives, jobs, clock
//!                └─► heap (events, pauses) ─► report
//! ```
//!
//! The programs around it (`js/stock`, `js/skinflint`) choose the heap and the allocator; `skinflint js` starts
//! the right one.
//!
//! Not here: the options (`lab/js-options`), the command's own part (`faces/cli`), benchmarks (`bench/gc`).

pub mod beside;
mod clock;
pub mod counted;
mod driven;
mod heap;
mod jobs;
mod natives;
mod pauses;
mod report;
mod run;
mod tab;
pub mod watch;

use std::process::ExitCode;
use std::sync::OnceLock;

use skinflint_js_options::{JsArgs, host};

/// The parts of a program that the build chooses.
pub struct Build {
    /// `system` or `skinflint`.
    pub malloc: &'static str,
    /// Whether pauses are seen.
    pub sees_pauses: bool,
    /// What the allocator says of itself, as a line of JSON, where it can.
    pub allocator: Option<fn() -> String>,
    /// Makes an arena for what a tab holds outside of its heap, where the allocator has such.
    pub arena: Option<fn() -> Option<Box<dyn Arena>>>,
}

/// A part of the allocator that is one tab's: what the tab takes lies there, so that it goes with the tab.
pub trait Arena {
    /// Does something in it.
    fn within(&self, work: &mut dyn FnMut());
}

/// See [`Build::arena`].
static ARENA: OnceLock<fn() -> Option<Box<dyn Arena>>> = OnceLock::new();

/// Whether `malloc_trim` would do anything.
static MALLOC_IS_SYSTEM: OnceLock<bool> = OnceLock::new();
/// The allocator's own figures ([`Build::allocator`]).
static ALLOCATOR: OnceLock<fn() -> String> = OnceLock::new();

/// The environment, for our allocator's settings (`SKINFLINT_DECAY_MS` and the like).
pub fn environment() -> *const *const libc::c_char {
    // SAFETY: a pointer that libc has set before `main`; nothing here changes the environment.
    unsafe { libc::environ.cast_const().cast() }
}

/// The engine's version (Cargo.toml pins it).
const BOA: &str = "0.22.0";

/// Runs the command line. Status: 0; 1 if a program failed; 2 for wrong use.
pub fn main(build: Build) -> ExitCode {
    MALLOC_IS_SYSTEM.get_or_init(|| build.malloc == "system");
    build.arena.map(|make| ARENA.get_or_init(|| make));
    build.allocator.map(|ask| ALLOCATOR.get_or_init(|| ask));
    // What a tab's panic was is in its failure.
    std::panic::set_hook(Box::new(|_| {}));
    host::main(move |args| engine_thread(args, &build))
}

fn engine_thread(args: &JsArgs, build: &Build) -> u8 {
    if args.driven {
        return run::driven(args, build).map_or_else(|error| host::refused(&error), |()| 0);
    }
    match run::run(args, build) {
        Ok(report) => {
            let line = args.json.then(|| serde_json::to_string(&report));
            host::tell(&report.outcomes(), line, || report.text())
        }
        Err(error) => host::refused(&error),
    }
}
