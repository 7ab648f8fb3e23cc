//! The options of `skinflint js`: one definition, for the command and for the programs that it becomes.
//!
//! ```text
//!   words ─► JsArgs ─► programs.rs (the command)
//!                  └─► js/host::run (the program)
//! ```
//!
//! A1  The command passes its arguments on as they are, so nothing can be lost between the two.
//!
//! Not here: what cannot be done on which heap (`js/host/src/run.rs`).

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// Examples, below the options.
pub const HELP: &str = "\
Examples:
  skinflint js app.js
  skinflint js tab.js --tabs 60 --close all-but-one   # a tenant for each tab
  skinflint js tab.js --tabs 59 --then busy.js --pauses --heap stock
  skinflint js a.js b.js --heap-limit 64M --gc-log=json
  skinflint js tab.js --tabs 150 --close all-but-one --engine quickjs
  skinflint js app.js --policy many-origin    # `skinflint gc --live app.js` compares all of them

Output of the programs goes to stdout, the report to stderr; with --json the report goes to stdout
and contains that output. Exit status: 1 if a program threw, did not parse or reached its limit
(the others go on), 2 for wrong use, or if stdout could not be written.";

/// Which engine runs the programs.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    /// Boa, on a garbage-collected heap.
    Boa,
    /// QuickJS-ng, all of its memory in a heap of the allocator's for each tab.
    Quickjs,
}

/// Which garbage-collected heap is under the engine.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heap {
    /// Boa's own: one for all tabs.
    Stock,
    /// Ours: a tenant for each tab.
    Skinflint,
}

/// Which allocator is under everything else.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malloc {
    /// The C library's.
    System,
    /// Ours.
    Skinflint,
}

/// Which tabs are closed in the end.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Close {
    /// Every second one, the first included.
    Half,
    /// Every second one, then all others but the last.
    AllButOne,
}

/// How the log of collections is written.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogFormat {
    /// One readable line.
    Text,
    /// One JSON object a line.
    Json,
}

/// What the programs' clocks show.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClockOf {
    /// The time of day.
    Wall,
    /// Processor time of the process: other processes do not change scores.
    Cpu,
}

/// Run JavaScript: a tab for each program, on Boa each a tenant of the garbage-collected heap.
#[derive(Parser, Clone, Debug)]
#[command(name = "skinflint js", after_help = HELP, max_term_width = 100)]
pub struct JsArgs {
    /// Programs; if there are more tabs than programs, tabs take the programs in turn
    #[arg(required_unless_present = "driven", value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// Open and close tabs as lines on stdin say (js/host/src/driven.rs); for `skinflint tabs --browser js`
    #[arg(long, conflicts_with_all = ["files", "tabs", "then", "close", "json", "pauses"])]
    pub driven: bool,

    /// Number of tabs to open [default: one for each FILE]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub tabs: Option<u32>,

    /// Program to run in a tab of its own when all other tabs are open; may be given several times
    #[arg(long, value_name = "FILE")]
    pub then: Vec<PathBuf>,

    /// The engine; quickjs takes only --tabs, --then, --malloc, --close, --heap-limit and --json
    #[arg(long, value_enum, default_value = "boa")]
    pub engine: Engine,

    /// The garbage-collected heap (engine boa)
    #[arg(long, value_enum, default_value = "skinflint")]
    pub heap: Heap,

    /// The allocator for everything else [default: system under stock, skinflint under skinflint]
    #[arg(long, value_enum)]
    pub malloc: Option<Malloc>,

    /// Close tabs in the end, and print resident memory after each step
    #[arg(long, value_enum, value_name = "WHICH")]
    pub close: Option<Close>,

    /// Print each collection and its reason on stderr (skinflint heap)
    #[arg(long, value_enum, value_name = "FORMAT", num_args = 0..=1, require_equals = true,
          default_missing_value = "text")]
    pub gc_log: Option<LogFormat>,

    /// Report pauses; the stock heap is watched from outside (docs/js.md)
    #[arg(long)]
    pub pauses: bool,

    /// Write each object's birth and death to FILE (skinflint heap)
    #[arg(long, value_name = "FILE")]
    pub record_objects: Option<PathBuf>,

    /// Collect at every Nth allocation, to find bugs (skinflint heap)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub stress: Option<u32>,

    /// Check each collection by a second, simpler tracer (skinflint heap)
    #[arg(long)]
    pub verify: bool,

    /// End dead objects in the pause that finds them, for comparison (skinflint heap)
    #[arg(long)]
    pub sweep_in_pause: bool,

    /// Free blocks of at least this size that ended objects held (strings, buffers, tables) on another thread
    /// (skinflint heap)
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value = "1")]
    pub beside: usize,

    /// Free what ended objects held on the engine's thread, for comparison (skinflint heap)
    #[arg(long)]
    pub free_here: bool,

    /// The most that a tab's objects may hold, strings and buffers included; only the tab that needs more ends. A
    /// single string or buffer is not refused: the tab ends after it (skinflint heap)
    #[arg(long = "heap-limit", alias = "limit", value_name = "BYTES", value_parser = bytes)]
    pub limit: Option<usize>,

    /// Put the engine's own objects among the programs' objects, for comparison (skinflint heap)
    #[arg(long)]
    pub no_separate: bool,

    /// Place objects by this free-list policy, not in cells by size, and report what it did; `skinflint gc --list` names
    /// them (skinflint heap)
    #[arg(long, value_name = "NAME", conflicts_with_all = ["then", "close"])]
    pub policy: Option<String>,

    /// Give the policy the room of dead objects each time the objects' bytes have grown to FACTOR times those that lived
    #[arg(long, value_name = "FACTOR", default_value_t = 2.0, requires = "policy", value_parser = growth)]
    pub policy_growth: f64,

    /// The time that Date and performance.now show
    #[arg(long, value_enum, default_value = "wall", value_name = "WHICH")]
    pub clock: ClockOf,

    /// Print the report as JSON, with what the programs printed
    #[arg(long)]
    pub json: bool,
}

/// A factor of what lives.
fn growth(text: &str) -> Result<f64, String> {
    let factor = text.parse().ok();
    factor
        .filter(|factor| (1.05..=20.0).contains(factor))
        .ok_or_else(|| "a factor from 1.05 to 20".to_owned())
}

/// A number of bytes, with K, M or G for 1,024, its square and its cube.
fn bytes(text: &str) -> Result<usize, String> {
    let wrong = || "a number of bytes, as in 500000, 64M, 1G".to_owned();
    let (number, unit) = match text.char_indices().next_back() {
        Some((at, 'K' | 'k')) => (&text[..at], 1 << 10),
        Some((at, 'M' | 'm')) => (&text[..at], 1 << 20),
        Some((at, 'G' | 'g')) => (&text[..at], 1 << 30),
        _ => (text, 1),
    };
    let number: usize = number.parse().map_err(|_| wrong())?;
    match number.checked_mul(unit) {
        Some(0) | None => Err(wrong()),
        Some(bytes) => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_units_and_bounds() {
        assert_eq!(bytes("500000"), Ok(500_000));
        assert_eq!(bytes("64M"), Ok(64 << 20));
        assert_eq!(bytes("2g"), Ok(2 << 30));
        for wrong in ["", "M", "0", "-1", "1.5M", "64T", "99999999999G", "M64"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn options_hold_together() {
        use clap::CommandFactory;
        JsArgs::command().debug_assert();
        let args = JsArgs::try_parse_from(["js", "a.js", "--gc-log", "--close", "half"]).unwrap();
        assert_eq!(args.gc_log, Some(LogFormat::Text));
        assert_eq!(args.files.len(), 1);
        let more = |words: &[&str]| JsArgs::try_parse_from(["js", "a.js"].iter().chain(words));
        assert_eq!(more(&["--policy", "many"]).unwrap().policy_growth, 2.0);
        for wrong in [
            &["--policy", "many", "--close", "half"][..],
            &["--policy", "many", "--policy-growth", "1"],
            &["--policy", "many", "--policy-growth", "NaN"],
            &["--policy-growth", "2"],
        ] {
            assert!(more(wrong).is_err(), "{wrong:?}");
        }
    }
}
