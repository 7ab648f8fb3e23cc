//! Errors of compiling a trace to a script.
//!
//! ```text
//!   survey.rs (nothing to replay), compile.rs (too many, cannot write) ─► CompileError ─► one line, with the next step
//! ```
//!
//! F1  A message is one sentence without the trace's path, which the caller puts before it.
//!
//! Not here: what is wrong with a trace as such (`skinflint_trace`).

use std::fmt;
use std::io;

/// The reason why a trace could not be compiled.
#[derive(Debug)]
#[non_exhaustive]
pub enum CompileError {
    /// The trace has nothing that can be replayed.
    Nothing(&'static str),
    /// There are too many of something for the format.
    TooMany(&'static str),
    /// The script could not be written.
    Write(io::Error),
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CompileError::Nothing(why) => write!(f, "nothing to replay: {why}"),
            CompileError::TooMany(what) => {
                write!(f, "cannot be replayed: more {what} than a script can hold")
            }
            CompileError::Write(error) => write!(
                f,
                "the script cannot be written: {error}; is there room in the folder for temporary files?"
            ),
        }
    }
}

impl std::error::Error for CompileError {}

impl From<io::Error> for CompileError {
    fn from(error: io::Error) -> Self {
        CompileError::Write(error)
    }
}
