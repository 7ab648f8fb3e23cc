//! `skinflint fit`: traces in, a profile for the allocator out; and `--show`, which prints one.
//!
//! ```text
//!   TRACE… ─► fit::learn ─► encode ─► app.fit
//!                      └──► stderr, or --json on stdout
//! ```
//!
//! F1  The file is whole or does not exist: it is written beside its place and then renamed.
//! F2  Every error names the file and the next step. A profile that cannot be read is status 1, wrong
//!     use is 2.
//!
//! Not here: what is learned and how, and what is said of it (`fit`), the bytes (`sizes::fit`, FIT.md).

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::Args as ClapArgs;
use skinflint_fit::{Error, Json};
use skinflint_sizes::fit::{self, FILE_BYTES_MAX};

use crate::analyse::{self, Bar};

pub const HELP: &str = "\
Examples:
  skinflint fit app.sft -o app.fit
  skinflint fit monday.sft friday.sft -o app.fit --json | jq '.earned'
  skinflint fit --show app.fit

All traces must be of one program. A summary goes to stderr. To use the profile, set
SKINFLINT_FIT=app.fit where the program runs on Skinflint's allocator; the allocator ignores a
damaged profile, with one line.";

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

    /// Print what was learned, or the profile of --show, as JSON; FIT.md has its fields
    #[arg(long)]
    pub json: bool,
}

/// Something in a file keeps it from being used (F2).
#[derive(Debug)]
pub struct Unfit(String);

impl std::fmt::Display for Unfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unfit {}

/// Does what was asked. Returns the exit status.
///
/// # Errors
/// Whatever keeps it from being done.
pub fn fit(args: &FitArgs) -> Result<u8> {
    match (&args.show, &args.output) {
        (Some(profile), _) => show(profile, args.json),
        // Many tools take this for stdout; here it would become a file of that name.
        (None, Some(output)) if output.as_os_str() == "-" => {
            bail!("-o -: a profile is a file for later; name one, as in -o app.fit")
        }
        (None, Some(output)) => learn(&analyse::one_each(&args.traces)?, output, args.json),
        (None, None) => {
            bail!("-o FILE is missing: name the profile to be written, as in -o app.fit")
        }
    }
}

fn learn(traces: &[PathBuf], output: &Path, json: bool) -> Result<u8> {
    let learned = skinflint_fit::learn(traces, &Bar::default()).map_err(|error| match error {
        Error::Open(error) => error.into(),
        error @ Error::Nothing(_) => Unfit(error.to_string()).into(),
        error => anyhow::Error::new(error),
    })?;
    let file = learned.encode()?;
    write_whole(output, &file)?;
    if json {
        print_json(&learned.json(output))?;
    } else {
        let _ = io::stderr().write_all(learned.text(output, file.len()).as_bytes());
    }
    Ok(0)
}

/// Writes a whole file (F1). What is no regular file (a pipe, /dev/stdout) is written to directly.
fn write_whole(path: &Path, file: &[u8]) -> Result<()> {
    let written = match std::fs::metadata(path) {
        Ok(there) if !there.is_file() => std::fs::write(path, file),
        _ => {
            let mut beside = path.as_os_str().to_owned();
            beside.push(format!(".{}.tmp", std::process::id()));
            let done = std::fs::write(&beside, file).and_then(|()| std::fs::rename(&beside, path));
            done.inspect_err(|_| _ = std::fs::remove_file(&beside))
        }
    };
    written.with_context(|| {
        format!(
            "{}: the profile cannot be written; name another file with -o",
            path.display()
        )
    })
}

fn print_json(json: &Json<'_>) -> Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, json).map_err(io::Error::from)?;
    writeln!(out)?;
    out.flush()?;
    Ok(())
}

fn show(path: &Path, json: bool) -> Result<u8> {
    let file = read_small(path)?;
    let view = fit::parse(&file).map_err(|error| {
        let next = match error {
            fit::FitError::NotAProfile => "give a file that `skinflint fit TRACE -o FILE` wrote",
            _ => "write it again with `skinflint fit TRACE -o FILE`",
        };
        Unfit(format!("{}: {error}; {next}", path.display()))
    })?;
    if json {
        print_json(&skinflint_fit::profile_json(&view, path))?;
        return Ok(0);
    }
    let mut out = io::stdout().lock();
    out.write_all(skinflint_fit::profile_text(&view, path, file.len()).as_bytes())?;
    out.flush()?;
    Ok(0)
}

/// Reads a file that cannot be longer than a profile; one more byte shows that it is.
fn read_small(path: &Path) -> Result<Vec<u8>> {
    use std::io::Read;
    let next = "check the name, and that you may read it";
    let refused =
        |error: io::Error| Unfit(format!("cannot read {}: {error}; {next}", path.display()));
    let file = std::fs::File::open(path).map_err(refused)?;
    let mut read = Vec::new();
    let limit = FILE_BYTES_MAX as u64 + 1;
    file.take(limit).read_to_end(&mut read).map_err(refused)?;
    Ok(read)
}
