//! The command line: every command, with its arguments and help from its own file.
//!
//! ```text
//!   words ─► Args ─► Command ─► commands::dispatch
//! ```

use clap::{Parser, Subcommand};

/// Finds out where a program's memory goes, and says what would give it back.
#[derive(Parser, Debug)]
#[command(name = "skinflint", version, max_term_width = 100)]
#[command(after_help = "\
Example:
  skinflint run -- sqlite3 app.db 'select count(*) from t'

Exit status: run and record pass on the program's (128 + n if signal n killed it); 2 for wrong
use; 1 for a trace that cannot be read; check: 3 if a budget is broken, 4 if one is not decided.

Environment:
  SKINFLINT_RECORDER   path of libskinflint_record.so, if it is not beside this program or in
                       ../lib/skinflint
  SKINFLINT_ALLOCATOR  the same for libskinflint.so
  SKINFLINT_REPLAYER, SKINFLINT_PROBE_LIBRARY, SKINFLINT_PEERS
                       the same for what compare needs: skinflint-replay,
                       libskinflint_probe.so, peers.json
  SKINFLINT_JS         folder of the programs of skinflint js
  SKINFLINT_FIT        fit profile that the allocator reads at its start (skinflint fit)
  NO_COLOR, COLUMNS    no colour; width of the text report")]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Record a program, then print where its memory went and what to change
    #[command(after_help = crate::run::HELP)]
    Run(crate::run::RunArgs),

    /// Record a program, without a report
    #[command(after_help = crate::record::HELP)]
    Record(crate::record::RecordArgs),

    /// Analyse a trace, or several as one: text, --json or --html
    #[command(after_help = crate::report::HELP)]
    Report(crate::report::ReportArgs),

    /// Record a program that already runs
    #[command(after_help = crate::attach::HELP)]
    Attach(crate::attach::AttachArgs),

    /// End the recording of an attached program, which goes on as before
    #[command(after_help = crate::attach::DETACH_HELP)]
    Detach(crate::attach::DetachArgs),

    /// Watch a recording under way: books, largest and growing stacks
    #[command(after_help = crate::top::HELP)]
    Top(crate::top::TopArgs),

    /// Tell a recording to start, stop, mark, take a snapshot
    #[command(after_help = crate::ctl::HELP)]
    Ctl(crate::ctl::CtlArgs),

    /// Count the sizes that a program requests, as a concordance
    #[command(after_help = crate::counted::HELP)]
    Counts(crate::counted::CountsArgs),

    /// Write a trace for another tool: pprof, DHAT, heaptrack, Firefox …
    #[command(after_help = crate::export::HELP)]
    Export(crate::export::ExportArgs),

    /// Compare two runs, or two moments: what grew and shrank, by stack
    #[command(after_help = crate::diff::HELP)]
    Diff(crate::diff::DiffArgs),

    /// Hold a program to budgets of memory, as a test does
    #[command(after_help = crate::check::HELP)]
    Check(Box<crate::check::CheckArgs>),

    /// Read a heap snapshot (.heapsnapshot): classes, retained sizes, paths
    #[command(after_help = crate::heap::HELP)]
    Heap(crate::heap::HeapArgs),

    /// List the blocks that a program's reporters leave out or count twice
    #[command(visible_alias = "dmd", after_help = crate::dark::HELP)]
    DarkMatter(crate::dark::DarkArgs),

    /// Make a trace from another recorder's log: Mozilla's logalloc
    #[command(after_help = crate::import::HELP)]
    Import(crate::import::ImportArgs),

    /// Run a program on our allocator, which gives memory back while the program idles
    #[command(after_help = crate::exec::help())]
    Exec(crate::exec::ExecArgs),

    /// Show where a running program's memory is, by its reporters and the kernel
    #[command(after_help = crate::memory::HELP)]
    Memory(crate::memory::MemoryArgs),

    /// Run a program, or replay traces, under several allocators
    #[command(after_help = crate::compare::HELP)]
    Compare(crate::compare::CompareArgs),

    /// Learn a profile for the allocator: size classes, spans, what to keep
    #[command(after_help = crate::fit::HELP)]
    Fit(crate::fit::FitArgs),

    /// Simulate other allocators' layouts of a trace's blocks
    #[command(after_help = crate::what_if::HELP)]
    WhatIf(crate::what_if::WhatIfArgs),

    /// Run object traces under free-list policies of a garbage-collected heap
    #[command(after_help = crate::gc::HELP)]
    Gc(crate::gc::GcArgs),

    /// Measure the memory of real browsers, and what they keep after windows close
    #[command(after_help = crate::tabs::HELP)]
    Tabs(crate::tabs::TabsArgs),

    /// Run JavaScript programs on Boa, each a tenant of the garbage-collected heap
    #[command(after_help = skinflint_js_options::HELP)]
    Js(skinflint_js_options::JsArgs),
}
