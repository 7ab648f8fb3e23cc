//! `cargo skinflint test`: cargo starts `cargo-skinflint skinflint test …`, and this is `skinflint cargo-test …`.
//!
//! ```text
//!   cargo skinflint test -p app ─► cargo-skinflint skinflint test -p app ─► skinflint cargo-test -p app
//! ```
//!
//! Not here: what is done (cargo_test.rs).

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let mut words: Vec<OsString> = std::env::args_os().skip(1).collect();
    // Cargo repeats the name of the subcommand.
    if words.first().is_some_and(|word| word == "skinflint") {
        words.remove(0);
    }
    match words.first() {
        Some(word) if word == "test" => words[0] = "cargo-test".into(),
        _ => {
            eprintln!(
                "cargo skinflint test [OPTIONS] [CARGO OPTIONS] [-- TEST NAMES]: memory as a test; \
                 `skinflint cargo-test --help` has the options"
            );
            let asked = words
                .first()
                .is_some_and(|word| word == "--help" || word == "-h");
            return ExitCode::from(if asked { 0 } else { 2 });
        }
    }
    let beside = std::env::current_exe().ok();
    let beside = beside.map(|own| own.with_file_name("skinflint"));
    let program = beside.filter(|path| path.exists());
    let program = program.unwrap_or_else(|| PathBuf::from("skinflint"));
    let error = Command::new(&program).args(&words).exec();
    eprintln!(
        "cargo-skinflint: {}: {error}; install skinflint beside it",
        program.display()
    );
    ExitCode::from(127)
}
