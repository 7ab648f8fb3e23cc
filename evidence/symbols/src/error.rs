//! Errors of sources of names that the caller gave.

use std::fmt;
use std::io;

/// The error of a source of debug files that was named: it cannot be used, or its contents cannot.
#[derive(Debug)]
pub struct SourceError {
    what: String,
    cause: Option<io::Error>,
}

impl SourceError {
    pub(crate) fn new(what: impl Into<String>) -> SourceError {
        SourceError {
            what: what.into(),
            cause: None,
        }
    }

    /// Returns what makes an error of the system's.
    pub(crate) fn of(what: impl Into<String>) -> impl FnOnce(io::Error) -> SourceError {
        move |cause| SourceError {
            what: what.into(),
            cause: Some(cause),
        }
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for SourceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.cause.as_ref()?)
    }
}
