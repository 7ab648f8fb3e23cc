//! `skinflint heap`: what is in a heap snapshot, what retains it, what differs in another one.
//!
//! ```text
//!   FILE.heapsnapshot ─► heap_snapshot::tables: sums │ --retained │ --path │ --diff ─► text, --json
//! ```
//!
//! Not here: reading, sums and tables (`heap_snapshot`).

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use anyhow::Result;
use clap::Args as ClapArgs;
use skinflint_heap_snapshot::{leaks, tables};

pub const HELP: &str = "\
Examples:
  skinflint heap app.heapsnapshot                    # objects and bytes by class
  skinflint heap app.heapsnapshot --retained         # the objects that retain most
  skinflint heap app.heapsnapshot --path @4711       # why the object of this id is alive
  skinflint heap app.heapsnapshot --path Session:3   # the fourth of this class
  skinflint heap before.heapsnapshot --diff after.heapsnapshot --paths
  skinflint heap page.heapsnapshot --detached        # what was taken out of its page and lives on

Reads what Chromium, node (--heapsnapshot-signal, v8.writeHeapSnapshot) and our own
garbage-collected heap write. Sums by class are read as a stream; the rest needs 25 bytes of
memory a node and 9 an edge, and some 50 and 12 more for --retained.";

/// Classes of which --paths tells what retains them.
const PATHS: usize = 5;

#[derive(ClapArgs, Debug)]
pub struct HeapArgs {
    /// The snapshot
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Print the objects that alone keep most alive, and the objects that keep these
    #[arg(long, conflicts_with_all = ["path", "diff"])]
    pub retained: bool,

    /// Print the shortest path from the root to an object: @ID, CLASS (the first) or CLASS:N
    #[arg(long, value_name = "OBJECT", conflicts_with = "diff")]
    pub path: Option<String>,

    /// Compare with a later snapshot of the same program: what grew, what is new, what is gone
    #[arg(long, value_name = "FILE")]
    pub diff: Option<PathBuf>,

    /// With --diff: of the first five classes that grew, also what retains a new object
    #[arg(long, requires = "diff")]
    pub paths: bool,

    /// Print what was taken out of its page and lives on, and what retains it (Chromium)
    #[arg(long, conflicts_with_all = ["path", "diff", "retained"])]
    pub detached: bool,

    /// Rows to print; 0 prints all
    #[arg(long, alias = "limit", value_name = "N", default_value_t = 30)]
    pub rows: usize,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Does what was asked. Returns the exit status.
///
/// # Errors
/// Whatever keeps it from being done.
pub fn heap(args: &HeapArgs) -> Result<u8> {
    let rows = if args.rows == 0 {
        usize::MAX
    } else {
        args.rows
    };
    let told = if let Some(other) = &args.diff {
        leaks::diff(&args.file, other, rows, if args.paths { PATHS } else { 0 })?
    } else if let Some(object) = &args.path {
        tables::path(&args.file, object)?
    } else if args.detached {
        leaks::detached(&args.file, rows)?
    } else if args.retained {
        tables::retained(&args.file, rows)?
    } else {
        tables::sums(&args.file, rows)?
    };
    let mut out = BufWriter::new(io::stdout().lock());
    if args.json {
        serde_json::to_writer_pretty(&mut out, &told.json).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        out.write_all(told.text.as_bytes())?;
    }
    out.flush()?;
    Ok(0)
}
