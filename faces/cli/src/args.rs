//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use skinflint_base::env;
use skinflint_symbols::NameSources;

/// Finds out where a program's memory goes, and says what would give it back.
#[derive(Parser, Debug)]
#[command(name = "skinflint", version, max_term_width = 100)]
#[command(after_help = "\
Example:
  skinflint run -- sqlite3 app.db 'select count(*) from t'

Exit status: run and record pass on the program's (128 + n if signal n killed it); 2 for wrong use;
1 for a trace that cannot be read.

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
    #[command(after_help = "\
Examples:
  skinflint run -- python3 service.py
  skinflint run --at end -- ./server --port 8080
  skinflint run --preload libjemalloc.so.2 -- redis-server
  skinflint run --dark-matter --at loaded -- ./viewer     # what its own reporters leave out

The report goes to stderr, so that the program's own output stays what it is. The trace
(skinflint.NAME.PID.sft) and the HTML report are written to the current folder, or to --dir.")]
    Run(RunArgs),

    /// Record a program, and nothing else
    #[command(after_help = "\
Examples:
  skinflint record -o app.sft -- ./app --input big.json
  skinflint record --mark-signal USR2 -- ./server &   # then: kill -USR2 SERVER-PID makes a mark

Every process that the program starts is recorded into a trace of its own. A program marks its own
moments by skinflint_mark(\"name\") (skinflint.h); kill -USR1 SKINFLINT-PID marks from outside. Two
marks called \"X begin\" and \"X end\" make a phase.")]
    Record(RecordArgs),

    /// Analyse a trace, or several as one: text, --json or --html
    #[command(after_help = "\
Examples:
  skinflint report app.sft
  skinflint report traces/                      # all processes of a build, a row each
  skinflint report app.sft --at 'load end' --html app.html
  skinflint report app.sft --json | jq '.findings[0]'")]
    Report(ReportArgs),

    /// Record a program that is running already
    #[command(after_help = "\
Examples:
  skinflint attach 4711 -o app.sft              # Ctrl-C, or skinflint detach 4711, leaves it
  skinflint attach $(pidof redis-server) --for 60

Blocks from before are unknown. Needs gdb with Python, which stops the program for about a second at
each end; a wait in it (poll, sleep) may return early. Not for statically linked programs, nor for
allocators that are linked into the program without being exported. The recorder stays loaded
afterwards, and does nothing.")]
    Attach(AttachArgs),

    /// Leave a program that attach records, as it was
    #[command(after_help = "\
Examples:
  skinflint detach 4711                         # when it returns, the trace is whole")]
    Detach(DetachArgs),

    /// Watch a recording under way: books, stacks that hold and grow
    #[command(after_help = "\
Examples:
  skinflint top                                 # what is being recorded now
  skinflint top 4711                            # of several: the process
  skinflint top app.sft                         # a trace, also one that is complete

Keys: s sorts by live bytes, growth or churn; p holds the screen still; h explains; q quits. Where
stdout is no terminal, one frame is printed as text.")]
    Top(TopArgs),

    /// Tell a recording to start, stop, mark, take a snapshot
    #[command(after_help = "\
Examples:
  skinflint ctl start                           # after: skinflint record --paused -- ./server
  skinflint ctl 4711 mark 'load begin'          # of several recordings: a process of it
  skinflint ctl status --json | jq '.processes[].trace'

PID is the program's, that of any process it started, or skinflint's own. While stopped,
releases are still recorded, so that what was acquired before is known to live or not; acquisitions
are only counted.")]
    Ctl(CtlArgs),

    /// Count the sizes that a program asks for, as a concordance
    #[command(after_help = "\
Examples:
  skinflint counts app.sft
  skinflint counts app.sft --scheme mozjemalloc-2011 --weight slop
  skinflint counts app.sft --when peak
  skinflint counts app.sft --stacks 3            # who asks for what line 3 says

A line reads:  ( rank ) count (percent, cumulative percent): kind:  asked -> given ( slop )")]
    Counts(CountsArgs),

    /// Write a trace for another tool: pprof, DHAT, heaptrack, Firefox …
    #[command(after_help = crate::export::HELP)]
    Export(crate::export::ExportArgs),

    /// Compare two runs, or two moments: what grew and shrank, by stack
    #[command(after_help = crate::diff::HELP)]
    Diff(crate::diff::DiffArgs),

    /// Read a heap snapshot (.heapsnapshot): classes, retained sizes, paths
    #[command(after_help = crate::heap::HELP)]
    Heap(crate::heap::HeapArgs),

    /// Say what the program's own reporters leave out, or count twice
    #[command(visible_alias = "dmd", after_help = crate::dark::HELP)]
    DarkMatter(crate::dark::DarkArgs),

    /// Make a trace of a log of another recorder: Mozilla's logalloc
    #[command(after_help = crate::import::HELP)]
    Import(crate::import::ImportArgs),

    /// Run a program on our allocator, which gives memory back while the program idles
    #[command(after_help = exec_help())]
    Exec(ExecArgs),

    /// Show where a running program's memory is, by its own reporters and the kernel
    #[command(after_help = crate::memory::HELP)]
    Memory(crate::memory::MemoryArgs),

    /// Run a program, or replay traces, under several allocators
    #[command(after_help = "\
Examples:
  skinflint compare -- ./app --input big.json
  skinflint compare --with glibc,skinflint,jemalloc --runs 10 --html app.html -- ./app
  skinflint compare app.sft                      # a trace of skinflint record: no program needed
  skinflint compare --paced 1 --idle 5 a.sft b.sft
  skinflint compare --idle 3 -- sh load.sh       # a server is ended when it has been idle for 3 s

Allocators by name: glibc, skinflint, jemalloc, mimalloc (mimalloc2, mimalloc3), tcmalloc, gperftools,
snmalloc, rpmalloc; own is what the program is linked with; or a path. `cargo xtask peers` builds them from
their authors' sources. What each figure means is in docs/compare.md.")]
    Compare(CompareArgs),

    /// Learn a profile for the allocator: size classes, spans, what to keep
    #[command(after_help = "\
Examples:
  skinflint fit app.sft -o app.fit
  skinflint fit monday.sft friday.sft -o app.fit --json | jq '.earned'
  skinflint fit --show app.fit

Traces must be of one program. What was learned goes to stderr. To use it, set SKINFLINT_FIT=app.fit
where the program runs on Skinflint's allocator; a profile that is damaged is ignored there, with one line.")]
    Fit(FitArgs),

    /// Lay a trace's blocks out as other allocators would, without running anything
    #[command(after_help = "\
Examples:
  skinflint what-if app.sft
  skinflint what-if app.sft --policy glibc,skinflint,jemalloc5:64k:fullest
  skinflint what-if app.sft --delay 500 --json | jq '.[0].policies[] | [.policy, .after_free.held_bytes]'

A policy is a name, or CLASSES:LENGTH:ORDER[:threads]: size classes, length of spans, which free slot is
taken, whether each thread has a heap of its own. A wrong one lists what there is.")]
    WhatIf(WhatIfArgs),

    /// Run object traces under free-list policies of a garbage-collected heap
    #[command(after_help = crate::gc::HELP)]
    Gc(crate::gc::GcArgs),

    /// Measure what real browsers hold, and keep when windows are closed
    #[command(after_help = crate::tabs::HELP)]
    Tabs(crate::tabs::TabsArgs),

    /// Run JavaScript programs on Boa, each a tenant of the garbage-collected heap
    #[command(after_help = crate::js_args::HELP)]
    Js(crate::js_args::JsArgs),
}

/// Returns what follows the options of `exec`: examples, and the allocator's variables from their one table.
fn exec_help() -> String {
    let mut help = String::from(
        "\
Examples:
  skinflint exec -- redis-server
  skinflint exec --stats -- python3 service.py
  skinflint record -- skinflint exec -- ./server    # recorded, on our allocator
  SKINFLINT_HARDEN=1 skinflint exec -- ./server     # guarded samples, for use in production

The program takes the place of this one: process id, signals and exit status are its own. What it
starts runs on our allocator too (LD_PRELOAD is inherited); statically linked programs keep theirs.

Environment of the program:",
    );
    for variable in env::ALL {
        if variable.reader == env::Reader::Allocator {
            let (name, meaning) = (variable.name(), variable.meaning);
            let (values, default) = (variable.values, variable.default);
            help += &format!("\n  {name}\n      {meaning}\n      {values} [default: {default}]");
        }
    }
    help
}

#[derive(ClapArgs, Debug)]
pub struct ExecArgs {
    /// The allocator's library [default: libskinflint.so beside this program or in ../lib/skinflint]
    #[arg(long, value_name = "PATH")]
    pub lib: Option<PathBuf>,

    /// Have each process print its totals to stderr when it ends
    #[arg(long)]
    pub stats: bool,

    /// Let `skinflint memory` ask each process for its figures while it runs
    #[arg(long)]
    pub memory: bool,

    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

#[derive(ClapArgs, Debug)]
pub struct RecordOptions {
    /// File for the trace of the program itself; other processes get names of their own beside it
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Folder for traces and reports [default: that of --output, or the current one]
    #[arg(long, value_name = "FOLDER")]
    pub dir: Option<PathBuf>,

    /// Allocator (or other library) to preload beneath the recorder; may be given several times
    #[arg(long, value_name = "LIBRARY")]
    pub preload: Vec<OsString>,

    /// Signal that makes a mark when the program gets it, by name or number (USR1, 12)
    #[arg(long, value_name = "SIGNAL")]
    pub mark_signal: Option<String>,

    /// Record nothing until `skinflint ctl start`
    #[arg(long)]
    pub paused: bool,

    /// Have the program's own reporters say, at the moment of --at, which blocks they have measured; list what
    /// nobody reports and what two report. URL: a page of `skinflint memory --page`, or a reporters' socket
    /// [default: that of the program, or of whom it starts]
    #[arg(long, value_name = "URL", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub dark_matter: Option<String>,

    /// At marks and at the end, stop the program and read what points where: the report then says what nothing points
    /// to, and what only a cycle keeps
    #[arg(long)]
    pub reachable: bool,

    /// Compression level of the trace, 1 (fast) to 19 (small)
    #[arg(long, value_name = "LEVEL", default_value_t = 1,
          value_parser = clap::value_parser!(i32).range(1..=19))]
    pub level: i32,

    /// Write nothing of our own to stderr, except errors
    #[arg(short, long)]
    pub quiet: bool,

    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

#[derive(ClapArgs, Debug)]
pub struct AttachArgs {
    /// The program's process id
    #[arg(value_name = "PID")]
    pub pid: u32,

    /// File for its trace [default: skinflint.NAME.PID.sft]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Leave it after so many seconds
    #[arg(long = "for", value_name = "SECONDS", value_parser = positive)]
    pub for_s: Option<f64>,

    /// Record nothing until `skinflint ctl start`
    #[arg(long)]
    pub paused: bool,

    /// At marks and when it is left, stop the program and read what points where: the report then says what of all
    /// that it acquired meanwhile nothing points to, and what only a cycle keeps
    #[arg(long)]
    pub reachable: bool,

    /// Compression level of the trace, 1 (fast) to 19 (small)
    #[arg(long, value_name = "LEVEL", default_value_t = 1,
          value_parser = clap::value_parser!(i32).range(1..=19))]
    pub level: i32,

    /// Write nothing of our own to stderr, except errors
    #[arg(short, long)]
    pub quiet: bool,
}

/// Parses a number of seconds that can be waited for.
fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..1e9).contains(&seconds) => Ok(seconds),
        _ => Err("a number of seconds, from 0 to 1000000000".into()),
    }
}

#[derive(ClapArgs, Debug)]
pub struct TopArgs {
    /// A process that is being recorded, or a trace [default: the only recording]
    #[arg(value_name = "PID|TRACE")]
    pub what: Option<String>,

    /// Print one frame as text, also on a terminal
    #[arg(long)]
    pub once: bool,

    /// Folder with separate debug files; may be given several times
    #[arg(long, value_name = "FOLDER")]
    pub debug_dir: Vec<PathBuf>,

    /// Colour: auto, always, never
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub color: When,
}

#[derive(ClapArgs, Debug)]
pub struct DetachArgs {
    /// The program's process id
    #[arg(value_name = "PID")]
    pub pid: u32,
}

#[derive(ClapArgs, Debug)]
pub struct CtlArgs {
    /// A process of the recording; not needed if there is only one recording
    #[arg(value_name = "PID", conflicts_with = "socket")]
    pub pid: Option<u32>,

    /// The recording's control socket, as `status` prints it
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,

    /// What to tell it
    #[command(subcommand)]
    pub action: CtlAction,
}

#[derive(Subcommand, Debug)]
pub enum CtlAction {
    /// Record from now on
    Start,
    /// Record no acquisitions from now on
    Stop,
    /// Name this moment, in all processes of the recording
    Mark {
        /// Its name; "X begin" and "X end" make a phase
        name: String,
    },
    /// Read all memory now; the report has it as the moment "snapshot N"
    Snapshot,
    /// What is being recorded, and where to
    Status {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(ClapArgs, Debug)]
pub struct RecordArgs {
    /// When --dark-matter asks: peak (whenever memory has grown by a tenth; the last answer counts), end, the name
    /// of a mark, or a time after the start
    #[arg(
        long,
        value_name = "MOMENT",
        default_value = "peak",
        requires = "dark_matter"
    )]
    pub at: String,

    #[command(flatten)]
    pub record: RecordOptions,
}

#[derive(ClapArgs, Debug)]
pub struct RunArgs {
    #[command(flatten)]
    pub analysis: AnalysisOptions,

    /// Write no HTML report
    #[arg(long)]
    pub no_html: bool,

    #[command(flatten)]
    pub record: RecordOptions,
}

/// Where names of functions are looked for.
#[derive(ClapArgs, Debug, Clone)]
pub struct NameOptions {
    /// Folder with separate debug files; may be given several times
    #[arg(long, value_name = "FOLDER")]
    pub debug_dir: Vec<PathBuf>,

    /// Where to get debug files by build id: a debuginfod client's folder, a server's URL, or env for
    /// DEBUGINFOD_URLS; may be given several times. URLs are asked with curl, nothing is asked without this
    #[arg(long, value_name = "FOLDER|URL|env")]
    pub debuginfod: Vec<String>,

    /// Perf map of the process (/tmp/perf-PID.map, written by node --perf-basic-prof, python -X perf), for
    /// names of code that it made itself [default: TRACE with the ending .perf.map, kept while recording]
    #[arg(long, value_name = "FILE")]
    pub perf_map: Vec<PathBuf>,

    /// Folder that holds the recorded machine's files (/usr, /lib …), if it was another machine
    #[arg(long, value_name = "FOLDER")]
    pub sysroot: Option<PathBuf>,
}

impl NameOptions {
    /// Returns where names are looked for; a server that does not answer is named on stderr.
    pub fn sources(&self) -> NameSources {
        NameSources {
            debug_dirs: self.debug_dir.clone(),
            sysroot: self.sysroot.clone(),
            debuginfod: self.debuginfod.clone(),
            perf_maps: self.perf_map.clone(),
            trouble: |why| say!("skinflint: {why}"),
        }
    }

    /// Returns the options of an analysis with these names, as of a moment.
    pub fn at(&self, at: &str) -> AnalysisOptions {
        AnalysisOptions {
            at: at.to_owned(),
            names: self.clone(),
            full_stacks: false,
            color: When::Auto,
        }
    }
}

#[derive(ClapArgs, Debug, Clone)]
pub struct AnalysisOptions {
    /// The moment to report on: peak, end, heap-peak, after-free (the snapshot after the largest fall
    /// of live memory), the name of a mark, or a time after the start (1.5s, 200ms)
    #[arg(long, value_name = "MOMENT", default_value = "peak")]
    pub at: String,

    #[command(flatten)]
    pub names: NameOptions,

    /// Show every frame of every stack, and every finding
    #[arg(long)]
    pub full_stacks: bool,

    /// Colour: auto, always, never
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub color: When,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// On a terminal
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

#[derive(ClapArgs, Debug)]
pub struct ReportArgs {
    /// The trace; several, or a folder of them, become one report with a row for each process
    #[arg(value_name = "TRACE", required = true)]
    pub traces: Vec<PathBuf>,

    /// Of several processes: rows to print at most; the rest is summed
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub rows: usize,

    /// Of several processes: with --html, write the own pages of the N largest beside it
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub pages: usize,

    #[command(flatten)]
    pub analysis: AnalysisOptions,

    /// Print the report as JSON (documented in SCHEMA.md)
    #[arg(long)]
    pub json: bool,

    /// With --json: the verdict, the books, the largest findings and stacks, in less than 64 KiB
    #[arg(long, requires = "json", conflicts_with = "windows")]
    pub brief: bool,

    /// With --json: also what each stack held, acquired and released at up to a thousand moments,
    /// from which any window of the run follows
    #[arg(long, requires = "json")]
    pub windows: bool,

    /// Write the report as one self-contained HTML file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Print only what nothing points to and what only cycles keep, all of it (of a trace recorded with --reachable)
    #[arg(long, conflicts_with_all = ["json", "html"])]
    pub reachable: bool,

    /// Print how roots lead to a block (0xADDRESS), or to blocks with this function in their stacks (of a trace
    /// recorded with --reachable)
    #[arg(long, value_name = "ADDRESS|FUNCTION", conflicts_with_all = ["json", "html", "reachable"])]
    pub who_holds: Option<String>,
}

#[derive(ClapArgs, Debug)]
pub struct CountsArgs {
    /// The trace
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,

    /// Sizes that another allocator would give, instead of those that were given:
    /// mozjemalloc-2011, mozjemalloc, jemalloc5, mimalloc, tcmalloc, go, glibc, skinflint
    #[arg(long, value_name = "SCHEME")]
    pub scheme: Option<String>,

    /// What a line's percentage is of: count, or slop (count times bytes wasted)
    #[arg(long, value_name = "WHAT", default_value = "count")]
    pub weight: Weight,

    /// Which blocks: cumulative (all ever acquired), live (at the end), peak, heap-peak, or the
    /// name of a mark
    #[arg(long, value_name = "WHEN", default_value = "cumulative")]
    pub when: String,

    /// The stacks of the line of this rank, instead of the lines
    #[arg(long, value_name = "RANK")]
    pub stacks: Option<usize>,

    /// Lines to print, or stacks; 0 prints all [default: all lines, 20 stacks]
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,

    #[command(flatten)]
    pub names: NameOptions,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// One for each block
    Count,
    /// The bytes wasted in each block
    Slop,
}

#[derive(ClapArgs, Debug)]
pub struct CompareArgs {
    /// Traces to replay
    #[arg(value_name = "TRACE")]
    pub traces: Vec<PathBuf>,

    /// Allocators, with commas: names or paths [default: all that are found]
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub with: Vec<String>,

    /// The allocator that ratios refer to
    #[arg(long = "ref", value_name = "NAME", default_value = "glibc")]
    pub reference: String,

    /// Rounds; in each, every allocator runs once. Below 5 nothing is called distinct
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,

    /// Limit of one run [default: ten times what the reference took, at least 60]
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<f64>,

    /// A program without work for so long is ended; a replay waits so long at its end
    #[arg(long, value_name = "SECONDS")]
    pub idle: Option<f64>,

    /// Replay in recorded time, so many times as fast (1 as recorded), so that idle purging acts
    #[arg(long, value_name = "SPEED")]
    pub paced: Option<f64>,

    /// File for the program's stdin [default: nothing]
    #[arg(long, value_name = "FILE")]
    pub input: Option<PathBuf>,

    /// Do not compare what the program writes to stdout
    #[arg(long)]
    pub ignore_output: bool,

    /// Write everything as JSON; - is stdout
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write each run's figures as CSV; - is stdout
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,

    /// Write one self-contained page, with memory over time
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Simulate other layouts of the traces' blocks instead, without running anything: the same as
    /// `skinflint what-if`, which has options for it
    #[arg(long, conflicts_with_all = ["with", "timeout", "idle", "paced", "csv", "html", "command"])]
    pub what_if: bool,

    /// Seed of the intervals' random draws
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Show no progress
    #[arg(short, long)]
    pub quiet: bool,

    /// The program and its arguments
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

#[derive(ClapArgs, Debug)]
pub struct FitArgs {
    /// The traces, of one program
    #[arg(
        value_name = "TRACE",
        required_unless_present = "show",
        conflicts_with = "show"
    )]
    pub traces: Vec<PathBuf>,

    /// The profile to write
    #[arg(
        short,
        long,
        value_name = "FILE",
        required_unless_present = "show",
        conflicts_with = "show"
    )]
    pub output: Option<PathBuf>,

    /// Print a profile instead
    #[arg(long, value_name = "FILE")]
    pub show: Option<PathBuf>,

    /// Print what was learned (or is shown) as JSON; its fields are in FIT.md
    #[arg(long)]
    pub json: bool,
}

#[derive(ClapArgs, Debug)]
pub struct WhatIfArgs {
    /// The traces
    #[arg(value_name = "TRACE", required = true)]
    pub traces: Vec<PathBuf>,

    /// What to simulate, several with commas [default: every policy that has a name]
    #[arg(long, value_name = "POLICY", value_delimiter = ',')]
    pub policy: Vec<String>,

    /// Milliseconds for which pages lie unused before they are given back
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pub delay: u32,

    /// Print the figures as JSON: an array with an element for each trace
    #[arg(long)]
    pub json: bool,
}
