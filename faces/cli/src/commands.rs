//! The dispatch of commands, and the errors that are the command line's.
//!
//! ```text
//!   Command ─► the file of its name ─► exit status          error ─► 1: a file, a trace; 2: what the user can put right
//!                                                                    126, 127: the program, as a shell's
//! ```

use anyhow::Result;
use skinflint_compare::compile::CompileError;
use skinflint_heap_snapshot::read::ReadError;
use skinflint_launch::preflight::Unstartable;
use skinflint_reporters::gathered;
use skinflint_trace::OpenError;

use crate::args::{self, Command};
use crate::{
    agent, attach, cargo_test, check, compare, counted, ctl, dark, diff, doctor, exec, export, fit,
    fleet, gc, heap, import, js, lab, memory, record, report, run, shell, tabs, top, what_if,
};

/// Does what was asked. Returns the exit status.
///
/// # Errors
/// Whatever keeps it from being done.
pub fn dispatch(command: Command) -> Result<u8> {
    match command {
        Command::Run(args) => run::run(&args),
        Command::Record(args) => record::record(&args),
        Command::Report(args) => report::report(&args),
        Command::Attach(args) => attach::attach(&args),
        Command::Detach(args) => attach::detach(&args),
        Command::Top(args) => top::top(&args),
        Command::Ctl(args) => ctl::ctl(&args),
        Command::Counts(args) => counted::counts(&args),
        Command::Diff(args) => diff::diff(&args),
        Command::Check(args) => check::check(&args),
        Command::CargoTest(args) => cargo_test::cargo_test(&args),
        Command::Heap(args) => heap::heap(&args),
        Command::DarkMatter(args) => dark::dark(&args),
        Command::Export(args) => export::export(&args),
        Command::Import(args) => import::import(&args),
        Command::Exec(args) => exec::exec(&args),
        Command::Agent(args) => agent::agent(&args),
        Command::Memory(args) => memory::memory(&args),
        Command::Compare(args) => compare::compare(&args),
        Command::Fit(args) => fit::fit(&args),
        Command::Fleet(args) => fleet::fleet(&args),
        Command::WhatIf(args) => what_if::what_if(&args),
        Command::Gc(args) => gc::gc(&args),
        Command::Tabs(args) => tabs::tabs(&args),
        Command::Js(args) => js::js(&args),
        Command::Lab(args) => lab::lab(&args),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Completions(args) => shell::completions(&args, args::command()),
        Command::Man(args) => shell::man(&args, args::command()),
    }
}

/// Returns 2 for what the user can put right on the command line, 1 for the rest; of a program that was to run, 127 if
/// it is not there and 126 if it is none, as a shell does.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    if let Some(program) = error.downcast_ref::<Unstartable>() {
        program.status
    } else if error.is::<OpenError>()
        || error.is::<fit::Unfit>()
        || error.is::<CompileError>()
        || error.is::<ReadError>()
        || import::is_of_log(error)
        || gc::is_of_trace(error)
        || gathered::is_of_subject(error)
    {
        1
    } else {
        2
    }
}
