//! The dispatch of commands, and the errors that are the command line's.
//!
//! ```text
//!   Command ─► the file of its name ─► exit status          error ─► 1: a file, a trace; 2: what the user can put right
//! ```

use anyhow::Result;
use skinflint_compare::compile::CompileError;
use skinflint_heap_snapshot::read::ReadError;
use skinflint_reporters::gathered;
use skinflint_trace::OpenError;

use crate::args::Command;
use crate::{
    attach, check, compare, counted, ctl, dark, diff, exec, export, fit, gc, heap, import, js,
    memory, record, report, run, tabs, top, what_if,
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
        Command::Heap(args) => heap::heap(&args),
        Command::DarkMatter(args) => dark::dark(&args),
        Command::Export(args) => export::export(&args),
        Command::Import(args) => import::import(&args),
        Command::Exec(args) => exec::exec(&args),
        Command::Memory(args) => memory::memory(&args),
        Command::Compare(args) => compare::compare(&args),
        Command::Fit(args) => fit::fit(&args),
        Command::WhatIf(args) => what_if::what_if(&args),
        Command::Gc(args) => gc::gc(&args),
        Command::Tabs(args) => tabs::tabs(&args),
        Command::Js(args) => js::js(&args),
    }
}

/// Returns 2 for what the user can put right on the command line, 1 for the rest.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    if error.is::<OpenError>()
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
