//! Demangles the names on standard input, one per line, as `c++filt` does, so that both can be compared.
//!
//! ```text
//!   nm -D -j LIBRARY | demangle > ours;  nm -D -j LIBRARY | c++filt > theirs;  diff ours theirs
//! ```

use std::io::{BufRead, Write};

fn main() -> std::io::Result<()> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for line in std::io::stdin().lock().lines() {
        writeln!(out, "{}", skinflint_symbols::demangle_whole(&line?))?;
    }
    Ok(())
}
