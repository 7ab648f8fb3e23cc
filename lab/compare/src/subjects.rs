//! Makes subjects of a comparison: a program that can be started, or traces compiled to scripts.
//!
//! ```text
//!   CMD ─► launch::preflight ─► Subject          app.sft ─► replays::prepare ─► Subject
//! ```
//!
//! S1  A program that cannot be started is an error; one that no preload can reach is a subject that says so.
//! S2  Subjects have different names.
//!
//! Not here: how they are run (rounds.rs).

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Result;
use skinflint_launch::{installed, preflight};

use crate::replays;
use crate::rounds::{Kind, Subject};

/// Returns a program and its arguments as a subject; `input` is the file for its stdin.
///
/// # Errors
/// If the program cannot be started.
pub fn of_program(command: &[OsString], input: Option<&Path>) -> Result<Subject> {
    let program = command.first().map(OsString::as_os_str).unwrap_or_default();
    preflight::find(program, &preflight::COMPARE)?;
    let unreachable = preflight::check(program, &preflight::COMPARE).err();
    Ok(Subject {
        name: name_of(command),
        what: command
            .iter()
            .map(|w| w.to_string_lossy().into_owned())
            .collect(),
        notes: Vec::new(),
        kind: Kind::Command {
            command: command.to_vec(),
            input: input.map(Path::to_owned),
            unreachable: unreachable.map(|error| format!("{error:#}")),
        },
    })
}

/// Compiles traces to scripts in a folder; `begin` is called with each before it is compiled.
///
/// # Errors
/// If the player of scripts is missing, or a trace cannot be compiled.
pub fn of_traces(
    traces: &[PathBuf],
    folder: &Path,
    begin: &mut dyn FnMut(&Path),
) -> Result<Vec<Subject>> {
    let replayer = installed::replayer()?;
    // We may be of another C library than it.
    preflight::check(replayer.as_os_str(), &preflight::COMPARE)?;
    let mut subjects: Vec<Subject> = Vec::new();
    for (number, trace) in traces.iter().enumerate() {
        begin(trace);
        let (prepared, notes) = replays::prepare(trace, &replayer, folder, number)?;
        let name = trace.file_stem().unwrap_or(trace.as_os_str());
        let mut name = name.to_string_lossy().into_owned();
        if subjects.iter().any(|other| other.name == name) {
            name = trace.display().to_string();
        }
        subjects.push(Subject {
            name,
            what: vec![trace.display().to_string()],
            notes,
            kind: Kind::Replay(prepared),
        });
    }
    Ok(subjects)
}

/// Returns the name of a program: its file, or the script that an interpreter is given.
fn name_of(command: &[OsString]) -> String {
    const INTERPRETERS: [&str; 8] = [
        "sh", "bash", "dash", "python3", "perl", "ruby", "node", "php",
    ];
    let file = |word: &OsString| {
        let name = Path::new(word).file_name().unwrap_or(word.as_os_str());
        name.to_string_lossy().into_owned()
    };
    let name = command.first().map(&file).unwrap_or_default();
    match command.get(1) {
        Some(script) if INTERPRETERS.contains(&name.as_str()) && Path::new(script).is_file() => {
            file(script)
        }
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_gives_its_name_to_an_interpreter() {
        let name = |words: &[&str]| name_of(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(name(&["/usr/bin/jq", "."]), "jq");
        assert_eq!(name(&["sh", "-c", "exit"]), "sh");
        assert_eq!(name(&["python3", file!()]), "python3");
        assert_eq!(name(&["sh", "/etc/passwd"]), "passwd");
    }
}
