//! The command line: every command, with its arguments and help from its own file.
//!
//! ```text
//!   words ─► Args ─► Command ─► commands::dispatch          nothing ─► BARE, five lines
//! ```
//!
//! A1  Each command is in one group of [`GROUPS`], and help lists the groups.

use std::fmt::Write as _;

use clap::{CommandFactory, Parser, Subcommand};

/// What `skinflint` alone prints.
pub const BARE: &str = "\
skinflint run ./app          records it: where its memory goes, and what to change
skinflint exec ./app         runs it on an allocator that gives memory back while it idles
skinflint compare -- ./app   which allocator suits it
skinflint doctor             what this machine allows
skinflint help [COMMAND]     all commands, or one of them";

/// The commands by what one wants of them.
const GROUPS: [(&str, &[&str]); 7] = [
    (
        "Find out where memory goes",
        &[
            "run",
            "record",
            "report",
            "attach",
            "detach",
            "top",
            "ctl",
            "memory",
            "agent",
            "counts",
            "dark-matter",
        ],
    ),
    ("Give memory back", &["exec", "fit"]),
    (
        "Compare",
        &["compare", "diff", "check", "cargo-test", "what-if"],
    ),
    ("Other tools' files", &["export", "import", "heap"]),
    ("Many machines", &["fleet"]),
    ("Laboratory", &["gc", "tabs", "js", "lab"]),
    ("This program", &["doctor", "completions", "man"]),
];

/// Returns the definition of the command line, with its commands in groups.
pub fn command() -> clap::Command {
    let command = Args::command();
    let mut groups = String::new();
    for (title, names) in GROUPS {
        let _ = writeln!(groups, "{title}:");
        for name in names {
            let about = command
                .find_subcommand(name)
                .and_then(clap::Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(groups, "  {name:12} {about}");
        }
        groups.push('\n');
    }
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}{{after-help}}"
    );
    let command = command.help_template(template);
    command.mut_subcommands(|command| match command.get_after_help() {
        Some(help) => {
            let help = flowing(&help.to_string());
            command.after_help(help)
        }
        None => command,
    })
}

/// Joins the lines of paragraphs, which clap then wraps at the terminal's width; wrapped already, each second line would
/// be a stump. Lines that are indented, and those before a blank one or behind a colon, stay.
fn flowing(help: &str) -> String {
    let mut text = String::new();
    let mut last = "";
    for line in help.lines() {
        let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ');
        if is_prose(line) && is_prose(last) && !last.ends_with(':') {
            text.push(' ');
        } else if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(line);
        last = line;
    }
    text
}

/// Finds out where a program's memory goes, and says what would give it back.
#[derive(Parser, Debug)]
#[command(name = "skinflint", version, max_term_width = 100)]
#[command(after_help = "\
Example:
  skinflint run -- sqlite3 app.db 'select count(*) from t'

Exit status: run, record and exec pass on the program's (128 + n if signal n killed it); 127 if it
is not there and 126 if it is no program; 2 for wrong use; 1 for a trace that cannot be read;
check: 3 if a budget is broken, 4 if one is not decided.

Environment:
  SKINFLINT_RECORDER   path of libskinflint_record.so, if neither the one beside this program or in
                       ../lib/skinflint is meant nor the one that this program carries
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

    /// Hold each test of a Rust package to budgets of memory (cargo skinflint test)
    #[command(name = "cargo-test", after_help = crate::cargo_test::HELP)]
    CargoTest(Box<crate::cargo_test::CargoTestArgs>),

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

    /// Serve the profiles of this machine's processes, for pprof and Prometheus
    #[command(after_help = crate::agent::HELP)]
    Agent(crate::agent::AgentArgs),

    /// Run a program, or replay traces, under several allocators
    #[command(after_help = crate::compare::HELP)]
    Compare(crate::compare::CompareArgs),

    /// Learn a profile for the allocator: size classes, spans, what to keep
    #[command(after_help = crate::fit::HELP)]
    Fit(crate::fit::FitArgs),

    /// Ask what the stacks of many machines hold, and what a release changed
    #[command(after_help = crate::fleet::HELP)]
    Fleet(crate::fleet::FleetArgs),

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

    /// Set claims of posts and talks about memory beside what our commands show
    #[command(after_help = crate::lab::HELP)]
    Lab(crate::lab::LabArgs),

    /// Say what this machine allows, and what to change
    #[command(after_help = crate::doctor::HELP)]
    Doctor(crate::doctor::DoctorArgs),

    /// Print what a shell needs to complete commands and options
    #[command(after_help = crate::shell::COMPLETIONS_HELP)]
    Completions(crate::shell::CompletionsArgs),

    /// Print a command's manual page, or write all of them
    #[command(after_help = crate::shell::MAN_HELP)]
    Man(crate::shell::ManArgs),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_is_in_one_group() {
        let mut grouped: Vec<_> = GROUPS
            .iter()
            .flat_map(|(_, names)| names.iter().copied())
            .collect();
        let command = Args::command();
        let mut all: Vec<_> = command
            .get_subcommands()
            .map(clap::Command::get_name)
            .collect();
        grouped.sort_unstable();
        all.sort_unstable();
        assert_eq!(grouped, all);
    }

    #[test]
    fn paragraphs_flow_and_examples_stay() {
        let help = "Examples:\n  skinflint run ./a\n  skinflint run ./b\n\nOne line\nand another.\n\nLast.";
        let wanted =
            "Examples:\n  skinflint run ./a\n  skinflint run ./b\n\nOne line and another.\n\nLast.";
        assert_eq!(flowing(help), wanted);
    }

    #[test]
    fn what_shells_are_told_is_sound() {
        command().debug_assert();
    }
}
