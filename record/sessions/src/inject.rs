//! Makes a running program load the recorder and call one of its functions, as debuggers do it (ptrace).
//!
//! ```text
//!   its memory ─► modules, unfit places ─► one thread: seize, interrupt ─ unfit ─► let go, the next, again
//!                                                          └ fit ─► calls ─► put back, let go
//! ```
//!
//! I1  One thread is stopped at a time; the others go on. So a call that waits for a lock gets it, as any call of the
//!     program's does, and what stands still is one thread for some milliseconds.
//! I2  All of this runs on a thread of its own. When it ends, however it ends, the kernel lets go of what it had seized
//!     (tracee.P1).
//! I3  A program that cannot be made to call safely is left as it is, after a bounded time, with the reason.
//! I4  One end is not covered: if this process is killed (SIGKILL) during a call, the thread runs into the breakpoint with
//!     nobody to meet it there, and SIGTRAP ends the program. The calls take milliseconds.
//!
//! Not here: what the function does (record-so/src/attach.rs); what can be known before anything is stopped
//! (attach.rs).

mod asked;
mod calls;
mod filters;
mod fit;
mod load;
mod machine;
mod memory;
mod modules;
mod tracee;

use std::io;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use skinflint_procfs::process::threads;
use skinflint_procfs::status::{WHO_MAY, tracer};

pub(crate) use asked::Asked;
use calls::{Calls, Entries};
use fit::Places;
use load::Loading;
use memory::Memory;
use modules::Modules;
use tracee::{Late, NotStopped, Stopped};

/// The longest search for a thread at a fit place.
const SEARCH: Duration = Duration::from_secs(20);
/// Rounds through all threads after which the modules are read anew: some may have come since.
const ROUNDS: u32 = 8;

/// What came of it.
pub(crate) struct Answer {
    /// What the function returned.
    pub(crate) result: i64,
    /// How long the thread stood still that called it.
    pub(crate) stood_still: Duration,
}

/// Makes the program call one of the recorder's functions.
///
/// # Errors
/// Why it was not, with the next step; the program goes on as before.
pub(crate) fn in_program(asked: &Asked<'_>) -> Result<Answer> {
    if let Some(refusal) = machine::REFUSAL {
        bail!("{refusal}");
    }
    let named = |error: anyhow::Error| anyhow!("{}: {error:#}", asked.pid);
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("skinflint-attach".into());
        let thread = thread.spawn_scoped(scope, || on_some_thread(asked).map_err(named))?;
        thread.join().unwrap_or_else(|_| {
            Err(anyhow!(
                "attaching ended in a fault of ours; please report it"
            ))
        })
    })
}

/// What is known of a program before one of its threads is stopped.
struct Program {
    memory: Memory,
    modules: Modules,
    places: Places,
    entries: Entries,
    loading: Loading,
}

impl Program {
    fn read(asked: &Asked<'_>) -> Result<Program> {
        let memory = Memory::open(asked.pid).map_err(|error| refused(asked.pid, &error))?;
        let modules = Modules::read(asked.pid, &memory).context(
            "it has no loader: it is linked statically, so nothing can be loaded into it",
        )?;
        let entries = Entries::of(&modules, &memory).context("its C library is not glibc")?;
        let loading =
            Loading::of(&modules, asked.function).context("its C library cannot load others")?;
        Ok(Program {
            places: Places::of(&modules),
            memory,
            modules,
            entries,
            loading,
        })
    }
}

fn on_some_thread(asked: &Asked<'_>) -> Result<Answer> {
    let mut program = Program::read(asked)?;
    let until = Instant::now() + SEARCH;
    let mut pause = Duration::from_millis(1);
    let late = Late::default();
    let mut round = 0;
    let mut why = String::from("it has no thread that stops");
    loop {
        let all = threads(asked.pid);
        if all.is_empty() {
            bail!("it has ended");
        }
        for tid in all {
            let thread = match Stopped::stop(asked.pid, tid, &late) {
                Ok(thread) => thread,
                Err(NotStopped::Gone | NotStopped::Signalled | NotStopped::Waits) => continue,
                Err(NotStopped::Narrow) => {
                    bail!("it runs 32-bit code; the recorder is a 64-bit library")
                }
                Err(NotStopped::Refused(error)) => return Err(refused(asked.pid, &error)),
            };
            match program.objection(&thread)? {
                Some(unfit) => why = unfit,
                None => return program.call(asked, thread),
            }
        }
        if Instant::now() >= until {
            bail!(
                "each of its threads is in the allocator or the loader, or waits in the kernel, whenever it is looked at (the \
                 last: {why}); try again when it does less"
            );
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
        round += 1;
        if round % ROUNDS == 0 {
            program = Program::read(asked)?;
        }
    }
}

impl Program {
    /// Returns why this thread must not be made to call anything now.
    ///
    /// # Errors
    /// Why no thread of the program ever may be.
    fn objection(&mut self, thread: &Stopped) -> Result<Option<String>> {
        if !tracee::can_return(thread) {
            bail!(
                "its processor checks return addresses (shadow stacks), so no call can be made in it; start it with `skinflint record`"
            );
        }
        match filters::mode(thread.tid) {
            0 => {}
            1 => bail!("its system calls are restricted (seccomp, strict): it cannot be recorded"),
            _ => {
                if let Some(objection) = filters::objection(thread.tid) {
                    bail!("{objection}");
                }
            }
        }
        if !thread.registers.has_thread() {
            return Ok(Some("a thread that the C library has not made".into()));
        }
        if thread.is_in_restartable_sequence(&self.memory) {
            return Ok(Some("a restartable sequence".into()));
        }
        let frame = thread.registers.frame();
        Ok(self.places.unfit(&self.modules, &self.memory, frame))
    }

    fn call(&self, asked: &Asked<'_>, mut thread: Stopped) -> Result<Answer> {
        let since = thread.since;
        let result = match Calls::begin(&self.memory, &self.entries, &mut thread) {
            Ok(mut calls) => {
                let result = self.loading.run(&mut calls, &self.memory, asked);
                calls.end();
                result
            }
            Err(error) => Err(error),
        };
        // It goes on before anything else is done.
        drop(thread);
        let stood_still = since.elapsed();
        Ok(Answer {
            result: result?,
            stood_still,
        })
    }
}

/// Says why a process cannot be stopped, and what to do.
fn refused(pid: u32, error: &io::Error) -> anyhow::Error {
    if let Some(tracer) = tracer(pid) {
        return anyhow!("process {tracer} (a debugger, strace) is tracing it; end that first");
    }
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    match scope.trim() {
        "" | "0" => anyhow!("it may not be stopped: {error}; {WHO_MAY}"),
        scope => anyhow!(
            "it may not be stopped: {error}; kernel.yama.ptrace_scope is {scope}: be root, or have root set it to 0"
        ),
    }
}
