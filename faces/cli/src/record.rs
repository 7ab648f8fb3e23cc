//! `skinflint record`: a program and all that it starts, as traces.
//!
//! ```text
//!   CMD ─► recorded ─► traces; a line for each on stderr
//! ```

use anyhow::Result;
use clap::Args as ClapArgs;

use crate::options::{RecordOptions, Which};
use crate::{dark, dropped, recorded};

pub const HELP: &str = "\
Examples:
  skinflint record -o app.sft -- ./app --input big.json
  skinflint record --mark-signal USR2 -- ./server &   # then: kill -USR2 SERVER-PID makes a mark

Every process that the program starts is recorded into a trace of its own. A program marks its own
moments by skinflint_mark(\"name\") (skinflint.h); kill -USR1 SKINFLINT-PID marks from outside.
Two marks called \"X begin\" and \"X end\" make a phase.";

#[derive(ClapArgs, Debug)]
pub struct RecordArgs {
    /// The moment at which --dark-matter asks the reporters: peak (whenever memory has grown by a tenth; the last
    /// answer counts), end, the name of a mark, or a time after the start
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

/// Does what was asked. Returns the program's exit status.
///
/// # Errors
/// Whatever keeps the program from being started or recorded.
pub fn record(args: &RecordArgs) -> Result<u8> {
    let (outcome, asker) = recorded::record(&args.record, &args.at, Which::Both)?;
    recorded::complain(&outcome, &args.record, recorded::ELSEWHERE);
    if let Some(asker) = asker {
        dark::of_record(asker, &outcome);
    }
    let gone = dropped::drop_small(&outcome, dropped::open(&outcome), &args.record, &[]);
    if !args.record.quiet {
        recorded::say_traces(&outcome, &gone);
    }
    Ok(outcome.exit_code())
}
