//! Compiles a trace by hand, as `skinflint compare` does, up to the script.
//!
//! ```text
//!   cargo run --release -p skinflint-compare --example compile -- app.sft app.sfp
//! ```
//!
//! Not here: replaying it (`skinflint-replay app.sfp --report -`).

use std::fs::File;
use std::io::{BufWriter, Write};

use anyhow::{Context, Result, bail};
use skinflint_compare::compile::compile;
use skinflint_trace::Trace;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [trace, script] = &arguments[..] else {
        bail!("usage: compile TRACE SCRIPT (- for standard output)");
    };
    let opened = Trace::open(trace)?;
    let out: Box<dyn Write> = match script.as_str() {
        "-" => Box::new(std::io::stdout()),
        path => Box::new(File::create(path).with_context(|| format!("cannot write {path}"))?),
    };
    let compiled = compile(&opened, &mut BufWriter::with_capacity(1 << 18, out))
        .with_context(|| trace.clone())?;
    eprintln!("{compiled:?}");
    for note in compiled.notes() {
        eprintln!("{trace}: {note}");
    }
    Ok(())
}
