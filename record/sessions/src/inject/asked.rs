//! What a program is to be made to call.

use std::path::Path;
use std::time::Duration;

use skinflint_collect::LateSockets;

/// A call to be made in a program.
pub(crate) struct Asked<'a> {
    pub(crate) pid: u32,
    /// The recorder's library, as this process sees it.
    pub(crate) library: &'a Path,
    /// The function of the recorder.
    pub(crate) function: &'a str,
    /// Its argument.
    pub(crate) socket: &'a Path,
    /// The longest time for it.
    pub(crate) patience: Duration,
    /// Takes a socket that listens in the program's network namespace, if that is not ours.
    pub(crate) elsewhere: Option<&'a LateSockets>,
}

impl Asked<'_> {
    /// Whether the program is to be left, and not recorded.
    pub(super) fn is_to_leave(&self) -> bool {
        self.function == "skinflint_detach"
    }
}
