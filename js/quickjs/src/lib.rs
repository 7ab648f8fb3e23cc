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

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use skinflint_js_options::JsArgs;

pub use memory::Malloc;

/// The engine's stack; untouched pages cost nothing.
const STACK_BYTES: usize = 1 << 30;

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
    let args = match JsArgs::try_parse() {
        Ok(args) => args,
        Err(error) => {
            let code = if error.use_stderr() { 2 } else { 0 };
            // A closed pipe is success.
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    let engine = std::thread::Builder::new().stack_size(STACK_BYTES);
    let status = match engine.spawn(move || on_engine_thread(&args, malloc)) {
        Ok(thread) => thread.join().unwrap_or(2),
        Err(error) => {
            say(&format!(
                "no thread for the engine: {error}; look at `ulimit -v`"
            ));
            2
        }
    };
    let _ = std::io::stdout().flush();
    ExitCode::from(status)
}

fn on_engine_thread(args: &JsArgs, malloc: Malloc) -> u8 {
    let report = match run::run(args, malloc) {
        Ok(report) => report,
        Err(error) => {
            say(&format!("{error:#}"));
            return 2;
        }
    };
    let mut status = 0;
    for row in &report.programs {
        if let Some(failure) = &row.failure {
            status = 1;
            say(&format!("tab {}: {}: {}", row.tab, row.file, failure.text));
        }
    }
    if args.json {
        let line = serde_json::to_string(&report);
        if let Err(error) = line.map(|line| writeln!(std::io::stdout(), "{line}")) {
            say(&format!("the report cannot be written: {error}"));
            return 2;
        }
    } else {
        let _ = write!(std::io::stderr(), "{}", report.text());
    }
    status
}

fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "skinflint js: {text}");
}
