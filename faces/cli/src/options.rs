//! Options that several commands have.
//!
//! ```text
//!   run, record: RecordOptions ─► PartOptions ◄─ attach        report, run: AnalysisOptions ─► NameOptions: all that name functions
//! ```

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};
use skinflint_collect::{Bounds, ProfileUrl, Sample, Trigger, time};
use skinflint_symbols::{Frames, NameSources};

#[derive(ClapArgs, Debug)]
pub struct RecordOptions {
    /// File for the trace of the program itself; those of other processes go to a folder beside it, skinflint-NAME-PID
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Folder for all traces and reports, made if it is not there [default: that of --output, or the current one]. If --output is in another folder,
    /// the reports on children do not know what they inherited: the program's trace has to lie beside theirs
    #[arg(long, value_name = "FOLDER")]
    pub dir: Option<PathBuf>,

    /// Keep the traces of small processes that the program starts, too. Without it, of a process that held less than
    /// 16 MiB and less than half of the largest only the row in the table of processes stays
    #[arg(long)]
    pub all: bool,

    /// Allocator (or other library) to preload beneath the recorder; may be given several times
    #[arg(long, value_name = "LIBRARY")]
    pub preload: Vec<OsString>,

    /// Signal that makes a mark when the program gets it, by name or number (USR1, 12)
    #[arg(long, value_name = "SIGNAL")]
    pub mark_signal: Option<String>,

    /// Record nothing until `skinflint ctl start`
    #[arg(long)]
    pub paused: bool,

    /// Ask the program's reporters, at the moment of --at, which blocks they have measured; list the blocks that
    /// no reporter and that two reporters measured. URL: a page of `skinflint memory --page`, or a socket of
    /// reporters [default: the socket of the program, or of a process that it starts]
    #[arg(long, value_name = "URL", num_args = 0..=1, require_equals = true, default_missing_value = "",
          conflicts_with_all = ["sample", "keep", "max_size", "when"])]
    pub dark_matter: Option<String>,

    /// Find leaks: at marks and at the end, stop the program and read its pointers; the report then lists the blocks that
    /// nothing points to, and those that only a cycle keeps
    #[arg(long, conflicts_with_all = ["sample", "keep", "max_size", "when"])]
    pub reachable: bool,

    /// Record each object of Python (3.8 and later) of up to 512 bytes, which its own allocator serves, with the stack that
    /// made it. Without it they are seen as arenas only
    #[arg(long, conflicts_with = "sample")]
    pub python_objects: bool,

    /// Keep the heap profile that the program serves as pprof (Go's net/http/pprof, jemalloc's …), too: fetched at marks, as memory
    /// grows, every 2 s and before the end. Where its blocks are recorded, in a trace beside that. URL: http://HOST:PORT, and
    /// a path if it is not /debug/pprof/heap; no TLS
    #[arg(long, value_name = "URL", value_parser = ProfileUrl::parse, conflicts_with_all = ["keep", "max_size", "when"])]
    pub pprof: Option<ProfileUrl>,

    #[command(flatten)]
    pub part: PartOptions,

    /// Compression level of the trace, 1 (fast) to 19 (small)
    #[arg(long, value_name = "LEVEL", default_value_t = 1,
          value_parser = clap::value_parser!(i32).range(1..=19))]
    pub level: i32,

    /// Write nothing of our own to stderr, except errors and the report of run
    #[arg(short, long)]
    pub quiet: bool,

    /// The program and its arguments: all that follows, so our own options come before it
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// Which part of what happens is recorded, and which part of that is kept. Commands name what goes with none of it.
#[derive(ClapArgs, Debug, Default)]
pub struct PartOptions {
    /// Record a sample of the blocks, one every so many requested bytes (512K, 2M): for runs that last, at a small part of the
    /// cost. The report then has estimates with their errors; what needs every event says so [default: 512K]
    #[arg(
        long,
        value_name = "BYTES",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "512K",
        value_parser = sample_bytes
    )]
    pub sample: Option<u64>,

    /// With --sample: draw the same samples again (a number from 1), if the program does the same again. Processes that are
    /// copies of one (fork) then draw alike
    #[arg(long, value_name = "N", requires = "sample")]
    pub seed: Option<u64>,

    /// Keep the last part of the recording only: a time (10m, 90s, 2h) or a size (500M). The trace then is files of a
    /// quarter of that each: FILE is the newest, FILE.N older ones. Each begins with what lived, and is complete by itself;
    /// older ones are dropped
    #[arg(long, value_name = "TIME|SIZE", value_parser = keep)]
    pub keep: Option<Keep>,

    /// Keep at most so many bytes (500M, 2G) of each process's trace: its last part, as with --keep
    #[arg(long, value_name = "SIZE", value_parser = kept_bytes)]
    pub max_size: Option<u64>,

    /// Put what is left aside, as FILE with .kept-1 in its name, when this comes true; may be given several times: rss>2G,
    /// rss>80%limit (of the control group), growth>100M/10m, psi>20% (tasks stalled for memory), oom (the kernel kills in the
    /// group, or is about to), mark=NAME or mark (any: the program's, `skinflint ctl PID mark NAME`, a signal's). Without --keep
    /// or --max-size the last ten minutes are kept
    #[arg(long, value_name = "CONDITION")]
    pub when: Vec<Trigger>,
}

/// Reads the distance of samples.
fn sample_bytes(text: &str) -> Result<u64, String> {
    let bytes = bytes(text).filter(|bytes| (1 << 10..=1 << 30).contains(bytes));
    let bytes = bytes.map(|bytes| bytes as u64);
    bytes.ok_or_else(|| "a number of bytes from 1K to 1G, with K, M or G".into())
}

/// What is kept if only a condition was given.
const USUAL: Duration = Duration::from_secs(600);

/// What of a recording is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keep {
    /// The last part in time.
    Time(Duration),
    /// The last part in bytes.
    Bytes(u64),
}

/// Reads a time (10m, 90s, 2h) or a size.
fn keep(text: &str) -> Result<Keep, String> {
    let time = time(text).filter(|time| *time >= Duration::from_millis(100));
    match time {
        Some(time) => Ok(Keep::Time(time)),
        None => kept_bytes(text).map(Keep::Bytes).map_err(|_| {
            "a time from 100ms (with ms, s, m, h or d), or a number of bytes from 1M (with K, M or G)".into()
        }),
    }
}

/// Reads a size that a recording can be kept within.
fn kept_bytes(text: &str) -> Result<u64, String> {
    let bytes = bytes(text).filter(|bytes| *bytes >= 1 << 20);
    let bytes = bytes.map(|bytes| bytes as u64);
    bytes.ok_or_else(|| "a number of bytes from 1M, with K, M or G".into())
}

impl PartOptions {
    /// Returns which acquisitions are recorded.
    pub fn sample(&self) -> Option<Sample> {
        self.sample.map(|bytes| Sample {
            bytes,
            seed: self.seed.unwrap_or(0),
        })
    }

    /// Returns what of each trace is kept.
    pub fn bounds(&self) -> Option<Bounds> {
        let (time, bytes) = match self.keep {
            Some(Keep::Time(time)) => (Some(time), None),
            Some(Keep::Bytes(bytes)) => (None, Some(bytes)),
            None => (None, None),
        };
        let max_bytes = bytes.into_iter().chain(self.max_size).min();
        let is_unbounded = time.is_none() && max_bytes.is_none();
        let usual = (is_unbounded && !self.when.is_empty()).then_some(USUAL);
        let bounds = Bounds {
            keep: time.or(usual),
            max_bytes,
            when: self.when.clone(),
        };
        (bounds != Bounds::default()).then_some(bounds)
    }
}

/// Parses a number with K, M or G.
pub fn bytes(text: &str) -> Option<usize> {
    let (digits, shift) = match text.as_bytes().last().map(u8::to_ascii_uppercase) {
        Some(b'K') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        Some(b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: Option<usize> = digits.parse().ok();
    number.and_then(|number| number.checked_mul(1 << shift))
}

/// Where names of functions are looked for.
#[derive(ClapArgs, Debug, Clone)]
pub struct NameOptions {
    /// Folder with separate debug files; may be given several times
    #[arg(long, value_name = "FOLDER")]
    pub debug_dir: Vec<PathBuf>,

    /// Source of debug files by build id: a debuginfod client's folder, a server's URL, or env for
    /// DEBUGINFOD_URLS; may be given several times. Without this option no server is asked
    #[arg(long, value_name = "FOLDER|URL|env")]
    pub debuginfod: Vec<String>,

    /// Perf map of the process (/tmp/perf-PID.map, written by node --perf-basic-prof, python -X perf), for
    /// names of code that the process made [default: TRACE with the ending .perf.map, if the recording kept one]
    #[arg(long, value_name = "FILE")]
    pub perf_map: Vec<PathBuf>,

    /// Which frames of stacks are shown where a script's own are known (Python's, Ruby's, PHP's, Java's; JavaScript's with a perf map): both, user (the
    /// script's, and what the innermost called), native. With user, `run` has Node write a perf map (NODE_OPTIONS)
    #[arg(long, value_name = "WHICH", default_value = "both")]
    pub frames: Which,

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
            frames: match self.frames {
                Which::User => Frames::User,
                Which::Native => Frames::Native,
                Which::Both => Frames::Both,
            },
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
    /// The moment to report on: peak (of the largest readings of resident memory, within 2 %, the one with most live and
    /// resident bytes together), end, heap-peak (most live bytes), after-free (the snapshot after the largest fall of live
    /// memory), most-kept (where the allocator kept most beyond what lived), the name of a mark ("snapshot 1" and so on are
    /// those that `skinflint ctl PID snapshot` sets), or a time after the start (1.5s, 200ms). `--json` lists the moments
    /// that have figures (instants)
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
pub enum Which {
    /// The script's, and what the innermost of them called
    User,
    /// Those of the program's own code
    Native,
    /// All
    Both,
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
