//! Errors of learning.

use std::fmt;

use skinflint_sizes::fit::FitError;
use skinflint_trace::OpenError;

/// The reason why traces give no profile.
#[derive(Debug)]
pub enum Error {
    /// A trace cannot be read.
    Open(OpenError),
    /// Nothing was recorded in any of the traces, the first of which is this file.
    Nothing(String),
    /// The traces are of several programs; a sentence that names two.
    Differ(String),
    /// The allocator's own reader refuses what was learned.
    Refused(FitError),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Open(error) => error.fmt(f),
            Error::Nothing(file) => write!(
                f,
                "{file}: nothing was recorded, so there is nothing to learn; `skinflint report {file}` says why that \
                 may be"
            ),
            Error::Differ(text) => f.write_str(text),
            Error::Refused(_) => f.write_str(
                "the profile does not pass its own reader: please report it with the traces",
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Open(error) => error.source(),
            Error::Refused(error) => Some(error),
            Error::Nothing(_) | Error::Differ(_) => None,
        }
    }
}

impl From<OpenError> for Error {
    fn from(error: OpenError) -> Error {
        Error::Open(error)
    }
}
