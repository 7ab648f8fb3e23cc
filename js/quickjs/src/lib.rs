//! The JavaScript host on QuickJS-ng: a runtime for each tab, all of its memory in a heap of the tab's own.
//!
//! ```text
//!   options ─► run ─► tab ─► engine ─► JS_NewRuntime2(hooks) ─► memory: a tenant of the allocator, or the C library
//! ```
//!
//! The engine counts references and looks for cycles; nothing of our garbage-collected heap is under it. What our allocator
//! adds is a heap for each tab: a tab that is closed is not taken apart object by object, its heap is destroyed whole.
//!
//! Q1  It does for a program what the hosts on Boa do (docs/js.md), and prints the report's first parts alike: programs,
//!     memory, tenants. It has none of the options that are of Boa's heaps.
//!
//! Not here: the options (`lab/js-options`), the command's own part (`faces/cli`).

mod engine;
mod memory;
mod report;
mod run;
mod tab;

use std::process::ExitCode;

use skinflint_js_options::{JsArgs, host};

pub use memory::Malloc;

/// Returns the environment, for our allocator's settings.
pub fn environment() -> *const *const libc::c_char {
    // SAFETY: a pointer that libc has set before `main`; nothing here changes the environment.
    unsafe { environ.cast_const().cast() }
}

unsafe extern "C" {
    static environ: *mut *mut libc::c_char;
}

/// Runs the command line. Status: 0; 1 if a program failed; 2 for wrong use.
pub fn main(malloc: Malloc) -> ExitCode {
    host::main(move |args| engine_thread(args, malloc))
}

fn engine_thread(args: &JsArgs, malloc: Malloc) -> u8 {
    match run::run(args, malloc) {
        Ok(report) => {
            let line = args.json.then(|| serde_json::to_string(&report));
            host::tell(&report.outcomes(), line, || report.text())
        }
        Err(error) => host::refused(&error),
    }
}
