//! Writes the fuzzer's initial corpus: `cargo run -p skinflint-damage --example seeds -- FOLDER`.
//!
//! Not here: the fuzzer (fuzz/).

use std::path::PathBuf;

use skinflint_damage::{breaking, made};

fn main() -> std::io::Result<()> {
    let Some(folder) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("seeds: which folder? cargo run -p skinflint-damage --example seeds -- FOLDER");
        std::process::exit(2);
    };
    std::fs::create_dir_all(&folder)?;
    for (seed, events) in [(1, 20), (2, 60), (3, 150), (4, 400)] {
        let bytes = breaking::unpack(&made::trace(seed, events));
        std::fs::write(folder.join(format!("made-{seed}")), bytes)?;
    }
    Ok(())
}
