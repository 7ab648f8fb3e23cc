//! The result of recording a program.
//!
//! ```text
//!   the program's wait status + traces ─► our exit status, the trace that a report is about
//! ```
//!
//! U1  The exit status is the program's own, unless that would hide a trace that could not be written.
//!
//! Not here: how it is recorded (record.rs), what is said of it (`cli`).

use skinflint_collect::Recorded;

/// The result of recording.
pub struct Outcome {
    /// The program's wait status.
    pub status: i32,
    /// The program's process id.
    pub pid: u32,
    /// The traces, in the order in which the processes began.
    pub recorded: Vec<Recorded>,
    /// Why the recorder of a process was given no shared memory, if that happened.
    pub refused: Option<String>,
}

impl Outcome {
    /// Returns the exit status: the program's own, 128 + n for signal n; 2 if that would be 0 and a trace could not
    /// be written, for callers that check only the status.
    pub fn exit_code(&self) -> u8 {
        match self.status & 0x7f {
            0 if self.status >> 8 & 0xff == 0 && self.unwritten().next().is_some() => 2,
            0 => (self.status >> 8 & 0xff) as u8,
            signal => 128u8.wrapping_add(signal as u8),
        }
    }

    /// Returns the traces that could not be written, whole or in part.
    pub fn unwritten(&self) -> impl Iterator<Item = &Recorded> {
        self.recorded.iter().filter(|trace| trace.error.is_some())
    }

    /// Returns the process that the screen is about: the program itself, unless another process that it started grew to
    /// more than twice its size (a wrapper, a build, a daemon).
    pub fn most_interesting(&self) -> Option<&Recorded> {
        let size = |trace: &Recorded| {
            trace
                .ending
                .as_ref()
                .and_then(|e| e.max_rss_bytes)
                .unwrap_or(0)
        };
        let own = self
            .recorded
            .iter()
            .rfind(|trace| trace.process.pid == self.pid);
        let largest = self.recorded.iter().max_by_key(|trace| size(trace))?;
        if let Some(own) = own.filter(|own| own.error.is_some()) {
            return Some(own);
        }
        Some(match own {
            Some(own) if size(largest) <= size(own) * 2 => own,
            _ => largest,
        })
    }
}
