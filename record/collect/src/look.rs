//! Looks at a program's pointers: it is stopped, its registers and memory are read, and it goes on.
//!
//! ```text
//!   every thread: seize, interrupt ─► stopped ─► registers (stop.rs)
//!        mappings ─► what is read: data, stacks from sp on, heap, anonymous (scan.rs)
//!        words that may point into anonymous memory ─► blocks of pointers
//!   every thread: detach, with the signal that it was about to get
//! ```
//!
//! O1  A look is made on a thread of its own. When that thread ends, the kernel lets go all threads that it had
//!     stopped, whatever happened in between.
//! O2  The stop is bounded: [`STOP_PATIENCE`] until all threads are stopped, [`READ_PATIENCE`] to read. A look that is
//!     not done by then says so (`missing`), and nothing is concluded from it.
//! O3  Reading makes no new pages: only pages that are present or swapped out are read, and of private mappings only
//!     those that are the process's own.
//! O4  Nothing of this is done, or prepared, unless it was asked for.
//!
//! Not here: which words are roots, and what they hold (analysis `reach`).

mod registers;
mod scan;
mod stop;

use std::sync::Arc;
use std::time::{Duration, Instant};

use skinflint_trace::{Look, LookCause, PointerEncoder, Pointers};

use crate::process::Process;

/// The longest wait until all threads are stopped.
const STOP_PATIENCE: Duration = Duration::from_secs(2);
/// The longest time for reading while they are stopped.
const READ_PATIENCE: Duration = Duration::from_secs(10);
/// Looks at a process. Returns the look and its words.
pub(crate) fn take(process: &Arc<Process>, number: u32, cause: LookCause) -> (Look, Vec<Pointers>) {
    let process = Arc::clone(process);
    let look = std::thread::Builder::new()
        .name("skinflint-look".into())
        .spawn(move || looked(&process, number, cause));
    let failed = |why: String| {
        let look = Look {
            number,
            cause,
            missing: why,
            ..Look::default()
        };
        (look, Vec::new())
    };
    match look.map(std::thread::JoinHandle::join) {
        Ok(Ok(looked)) => looked,
        Ok(Err(_)) => failed("the look ended in a fault of ours; please report it".into()),
        Err(error) => failed(format!("no thread could be made for it: {error}")),
    }
}

fn looked(process: &Process, number: u32, cause: LookCause) -> (Look, Vec<Pointers>) {
    let begun = Instant::now();
    let mut look = Look {
        number,
        cause,
        time_ns: process.now_ns(),
        ticket: process.newest_ticket(),
        ..Look::default()
    };
    let stopped = match stop::all(process.pid, begun + STOP_PATIENCE) {
        Ok(stopped) => stopped,
        Err(why) => {
            look.missing = why;
            return (look, Vec::new());
        }
    };
    look.time_ns = process.now_ns();
    look.ticket = process.newest_ticket();
    look.threads = stopped.threads.len() as u32;
    let mut encoder = PointerEncoder::new(number);
    if let Err(why) = scan::read(
        process,
        &stopped,
        Instant::now() + READ_PATIENCE,
        &mut look,
        &mut encoder,
    ) {
        look.missing = why;
    }
    // The program goes on before anything else is done.
    drop(stopped);
    look.stopped_ns = begun.elapsed().as_nanos() as u64;
    let pointers = encoder.finish();
    look.words = pointers.iter().map(|one| u64::from(one.words)).sum();
    (look, pointers)
}
