//! Errors of reading a recording.

use std::fmt;

use skinflint_analysis::AnalysisError;
use skinflint_symbols::SourceError;
use skinflint_trace::OpenError;

/// The reason why there is no result.
#[derive(Debug)]
pub enum Error {
    /// A trace cannot be read.
    Open(OpenError),
    /// None of several traces can be read; the first one's reason.
    NoneRead(OpenError),
    /// The trace does not have what the analysis was asked for.
    Analysis(AnalysisError),
    /// Names cannot be looked for where the caller says.
    Names(SourceError),
    /// Something that was asked for is not there; a sentence without its full stop.
    Asked(String),
    /// A folder cannot be read.
    Folder {
        /// The folder.
        shown: String,
        /// The system's error.
        cause: std::io::Error,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Open(error) => error.fmt(f),
            Error::NoneRead(_) => f.write_str("none of the traces can be read"),
            Error::Analysis(error) => error.fmt(f),
            Error::Names(error) => error.fmt(f),
            Error::Asked(text) => f.write_str(text),
            Error::Folder { shown, .. } => write!(f, "{shown}: the folder cannot be read"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Open(error) => error.source(),
            Error::NoneRead(error) => Some(error),
            Error::Analysis(error) => error.source(),
            Error::Names(error) => error.source(),
            Error::Asked(_) => None,
            Error::Folder { cause, .. } => Some(cause),
        }
    }
}

impl From<OpenError> for Error {
    fn from(error: OpenError) -> Error {
        Error::Open(error)
    }
}

impl From<AnalysisError> for Error {
    fn from(error: AnalysisError) -> Error {
        Error::Analysis(error)
    }
}

impl From<SourceError> for Error {
    fn from(error: SourceError) -> Error {
        Error::Names(error)
    }
}
