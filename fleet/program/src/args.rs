//! The words of `skinflint-fleet`.
//!
//! ```text
//!   generate, ingest, retain: they write     top, regressions, pinned, where, whatif, sql: they ask     serve: the page
//!   duckdb, clickhouse: views
//! ```
//!
//! Not here: what is done (run.rs).

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args as Words, Parser, Subcommand};

use crate::questions::top::By;

const EXAMPLES: &str = "\
Examples:
  skinflint-fleet generate --machines 40 --hours 24        # a simulated fleet, in ./fleet
  skinflint-fleet ingest --service web --build 42 --host m1 app.json skinflint.4711.heap
  skinflint-fleet top --by stack --day 2026-11-27
  skinflint-fleet regressions --from 41 --to 42
  skinflint-fleet where \"service = 'web' AND build = '42'\" --flame > web.folded
  skinflint-fleet serve                                    # a page with all of it
  skinflint-fleet sql 'SELECT part, sum(byte_min) FROM books GROUP BY part'

Exit status: 0; 1 if a file or table cannot be read or written; 2 for wrong use.";

/// Answers questions on the memory of many machines: what stacks hold, waste and pin, and what a release changed.
#[derive(Parser, Debug)]
#[command(name = "skinflint-fleet", version, max_term_width = 100, after_help = EXAMPLES)]
pub struct Args {
    /// Folder of the tables
    #[arg(long, global = true, value_name = "FOLDER", default_value = "fleet")]
    pub root: PathBuf,

    /// Memory that a question may hold, mebibytes; what does not fit is spilled to disk
    #[arg(long, global = true, value_name = "MIB", default_value_t = 2048,
          value_parser = clap::value_parser!(u32).range(64..))]
    pub memory: u32,

    /// The engine that answers [default: embedded]
    #[arg(long, global = true, value_name = "ENGINE")]
    pub engine: Option<String>,

    /// What is to be done
    #[command(subcommand)]
    pub command: Command,
}

/// What is to be done.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Show what holds most: stacks, functions, services, builds or machines
    Top(TopArgs),
    /// Show what grew for certain between two builds, with intervals
    Regressions(RegressionsArgs),
    /// Show which stacks' blocks keep free memory resident
    Pinned(Asked),
    /// Show what stacks hold where a condition is true
    Where(WhereArgs),
    /// Show what the findings would give back, if followed everywhere
    Whatif(Asked),
    /// Answer a SELECT
    Sql(SqlArgs),
    /// Serve a page with all of it, for every browser that has its address
    Serve(ServeArgs),
    /// Read in reports (skinflint report --json), heap profiles (exec --profile) and pprof files
    Ingest(IngestArgs),
    /// Pack what is written, merge minutes to hours and hours to days, and drop old days
    Retain(RetainArgs),
    /// Make the tables of a simulated fleet
    Generate(GenerateArgs),
    /// Print statements that make the tables known to DuckDB
    Duckdb,
    /// Print statements that make the tables known to ClickHouse
    Clickhouse,
    /// Print what the tables and their columns mean, as Markdown
    Schema,
}

/// What all questions take.
#[derive(Words, Clone, Debug)]
pub struct Asked {
    /// A day, FIRST..LAST, or all [default: the last day]
    #[arg(long, value_name = "DAY")]
    pub day: Option<String>,

    /// Only this service
    #[arg(long, value_name = "NAME")]
    pub service: Option<String>,

    /// Rows to show
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub rows: usize,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Print the SQL, and do not ask
    #[arg(long, conflicts_with = "json")]
    pub print_sql: bool,
}

/// `top`.
#[derive(Words, Debug)]
pub struct TopArgs {
    /// What rows are added up by
    #[arg(long, value_enum, default_value = "stack", value_name = "WHAT")]
    pub by: By,

    /// What all questions take
    #[command(flatten)]
    pub asked: Asked,
}

/// `regressions`.
#[derive(Words, Debug)]
pub struct RegressionsArgs {
    /// The older build
    #[arg(long, value_name = "BUILD")]
    pub from: String,

    /// The newer build
    #[arg(long, value_name = "BUILD")]
    pub to: String,

    /// What all questions take
    #[command(flatten)]
    pub asked: Asked,
}

/// `where`.
#[derive(Words, Debug)]
pub struct WhereArgs {
    /// A condition in SQL on columns of the table profiles, as in "host = 'm1' AND build = '42'"
    #[arg(value_name = "CONDITION")]
    pub condition: String,

    /// Print the lines of a flame graph (outermost;…;innermost BYTES), of all stacks
    #[arg(long, conflicts_with = "json")]
    pub flame: bool,

    /// What all questions take
    #[command(flatten)]
    pub asked: Asked,
}

/// `sql`.
#[derive(Words, Debug)]
pub struct SqlArgs {
    /// The statement
    #[arg(value_name = "SELECT")]
    pub sql: String,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `serve`.
#[derive(Words, Debug)]
pub struct ServeArgs {
    /// Where it listens; port 0 for any that is free. Nothing is encrypted
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
}

/// `ingest`.
#[derive(Words, Debug)]
pub struct IngestArgs {
    /// Reports, heap profiles, pprof files, recordings (.sft: `skinflint report --json` is run on them)
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// The service [default: the program's name]
    #[arg(long, value_name = "NAME")]
    pub service: Option<String>,

    /// The build
    #[arg(long, value_name = "BUILD")]
    pub build: Option<String>,

    /// The machine [default: this one]
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,

    /// When the files begin, seconds since 1970 [default: what they say; else the time of their last change]
    #[arg(long, value_name = "SECONDS")]
    pub at: Option<i64>,

    /// For how many minutes a file stands [default: the recording's length; 1 for a profile]
    #[arg(long, value_name = "N")]
    pub minutes: Option<i64>,
}

/// `retain`.
#[derive(Words, Debug)]
pub struct RetainArgs {
    /// Hours for which rows of minutes are kept
    #[arg(long, value_name = "HOURS", default_value_t = 48)]
    pub minutes_for: u32,

    /// Days for which rows of hours are kept
    #[arg(long, value_name = "DAYS", default_value_t = 30)]
    pub hours_for: u32,

    /// Days for which rows of days are kept
    #[arg(long, value_name = "DAYS", default_value_t = 400)]
    pub days_for: u32,

    /// The day that counts as today, at its end [default: now]
    #[arg(long, value_name = "DAY")]
    pub today: Option<String>,
}

/// `generate`.
#[derive(Words, Debug)]
pub struct GenerateArgs {
    /// Number from which all follows
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Machines
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub machines: u32,

    /// Processes on a machine
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub processes: u32,

    /// Services
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub services: u32,

    /// Stacks of a service
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(12..=100_000))]
    pub stacks: u32,

    /// The first day
    #[arg(long, value_name = "DAY", default_value = "2026-01-01")]
    pub day: String,

    /// Hours
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=8_784))]
    pub hours: u32,

    /// No leak in the newer build
    #[arg(long)]
    pub no_leak: bool,

    /// No stack in the newer build that pins pages
    #[arg(long)]
    pub no_pins: bool,

    /// Write the events to FILE, a line each, for whoever counts again
    #[arg(long, value_name = "FILE")]
    pub events: Option<PathBuf>,
}
