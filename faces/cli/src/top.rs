//! `skinflint top`: finds the trace, then calls the crate that draws it.
//!
//! ```text
//!   PID ─ the session that records it ─► its trace        TRACE ─► as it is
//! ```

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use clap::Args as ClapArgs;
use skinflint_sessions::under_way::{is_recorded_into, session_of};
use skinflint_symbols::{SymbolOptions, must_be_folders};
use skinflint_trace::OpenError;

use crate::analyse;
use crate::options::When;

pub const HELP: &str = "\
Examples:
  skinflint top                                 # what is being recorded now
  skinflint top 4711                            # one process, if several are recorded
  skinflint top app.sft                         # a trace, also one that is complete

Keys: s sorts by live bytes, growth or churn; p holds the screen still; h explains; q quits. If
stdout is not a terminal, one frame is printed as text.";

#[derive(ClapArgs, Debug)]
pub struct TopArgs {
    /// A process that is being recorded, or a trace [default: the only recording]
    #[arg(value_name = "PID|TRACE")]
    pub what: Option<String>,

    /// Print one frame as text, even on a terminal
    #[arg(long)]
    pub once: bool,

    /// Folder with separate debug files; may be given several times
    #[arg(long, value_name = "FOLDER")]
    pub debug_dir: Vec<PathBuf>,

    /// Colour: auto, always, never
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub color: When,
}

/// Does what was asked.
///
/// # Errors
/// If there is no such trace or recording, or the trace cannot be read.
pub fn top(args: &TopArgs) -> Result<u8> {
    must_be_folders("--debug-dir", &args.debug_dir)?;
    let trace = trace_of(args)?;
    let growing = is_recorded_into(&trace);
    let terminal = io::stdout().is_terminal() && io::stdin().is_terminal() && !args.once;
    let seen = terminal_size::terminal_size_of(io::stdout()).map(|(wide, high)| (wide.0, high.0));
    let columns = std::env::var("COLUMNS")
        .ok()
        .and_then(|text| text.parse().ok());
    let options = skinflint_top::Options {
        symbols: SymbolOptions {
            debug_dirs: args.debug_dir.clone(),
            ..SymbolOptions::default()
        },
        color: match args.color {
            When::Always => true,
            When::Never => false,
            When::Auto => terminal && std::env::var_os("NO_COLOR").is_none(),
        },
        size: match seen {
            Some(seen) if !terminal => seen,
            _ => (columns.unwrap_or(120).clamp(40, 1000), 40),
        },
        growing,
    };
    // Errors that decide the exit status keep their type.
    let plain = |error: Box<dyn std::error::Error + Send + Sync>| {
        let error = match error.downcast::<io::Error>() {
            Ok(error) => return anyhow::Error::new(*error),
            Err(error) => error,
        };
        match error.downcast::<OpenError>() {
            Ok(error) => anyhow::Error::new(*error),
            Err(error) => anyhow!("{error}"),
        }
    };
    if terminal {
        skinflint_top::watch(&trace, &options).map_err(plain)?;
    } else {
        let mut out = io::stdout().lock();
        skinflint_top::once(&trace, &options, &mut out).map_err(plain)?;
        out.flush()?;
    }
    Ok(0)
}

/// Returns the trace that the argument means.
fn trace_of(args: &TopArgs) -> Result<PathBuf> {
    let Some(what) = &args.what else {
        return first_trace(None);
    };
    let path = PathBuf::from(what);
    match what.parse::<u32>() {
        Ok(pid) if !path.exists() => first_trace(Some(pid)),
        _ => Ok(skinflint_recording::the_trace_of(&path).map_err(analyse::plain)?),
    }
}

/// Returns the trace of a process that is being recorded, or of the process that holds most in its session.
fn first_trace(pid: Option<u32>) -> Result<PathBuf> {
    let status = session_of(pid)?.status;
    let own = status
        .processes
        .iter()
        .find(|process| Some(process.pid) == pid);
    let largest = status
        .processes
        .iter()
        .max_by_key(|process| process.rss_bytes);
    match own.or(largest) {
        Some(process) => Ok(process.trace.clone()),
        None => bail!(
            "skinflint {} records, but no process of it lives",
            status.collector
        ),
    }
}
