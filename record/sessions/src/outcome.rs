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
    /// The processes that the program left running when it ended, as a daemon does; they are recorded, too.
    pub stayed: Vec<u32>,
    /// Why the recorder of a process was given no shared memory, if that happened.
    pub refused: Option<String>,
}

impl Outcome {
    /// Returns the exit status: the program's own, 128 + n for signal n; 2 if that would be 0 and a trace could not
    /// be written, for callers that check only the status.
    pub fn exit_code(&self) -> u8 {
        match self.own_code() {
            0 if self.unwritten().next().is_some() => 2,
            own => own,
        }
    }

    /// Returns the program's own exit status, 128 + n for signal n, whatever became of its traces.
    pub fn own_code(&self) -> u8 {
        match self.status & 0x7f {
            0 => (self.status >> 8 & 0xff) as u8,
            signal => 128u8.wrapping_add(signal as u8),
        }
    }

    /// Returns the traces that could not be written, whole or in part.
    pub fn unwritten(&self) -> impl Iterator<Item = &Recorded> {
        self.recorded.iter().filter(|trace| trace.error.is_some())
    }

    /// Returns the process that the screen is about: the program itself, unless another process that it started grew to
    /// more than twice its size (a wrapper, a build); unless it left one running, and did not grow to more than twice the
    /// size of that one (the launcher of a daemon). Of the programs that it was, one after another (`exec`),
    /// the largest; the last of several.
    pub fn most_interesting(&self) -> Option<&Recorded> {
        let sizes: Vec<_> = self.recorded.iter().map(size).collect();
        let own = self.recorded.iter().zip(&sizes);
        let own = own.filter(|(trace, _)| trace.process.pid == self.pid);
        // What was not written is said of the last one.
        if let Some((last, _)) = own
            .clone()
            .next_back()
            .filter(|(last, _)| last.error.is_some())
        {
            return Some(last);
        }
        let pids = self.recorded.iter().map(|trace| trace.process.pid);
        let all: Vec<_> = pids.zip(sizes).collect();
        most_interesting(self.pid, &self.stayed, &all).map(|index| &self.recorded[index])
    }
}

fn size(trace: &Recorded) -> u64 {
    let ending = trace.ending.as_ref();
    ending.and_then(|one| one.max_rss_bytes).unwrap_or(0)
}

/// Returns the index of the trace that the screen is about, given each one's process id and size, and which stayed.
fn most_interesting(pid: u32, stayed: &[u32], all: &[(u32, u64)]) -> Option<usize> {
    let of = |is_wanted: &dyn Fn(u32) -> bool| {
        let all = all.iter().enumerate();
        let those = all.filter(|(_, (pid, _))| is_wanted(*pid));
        those.max_by_key(|(_, (_, size))| *size)
    };
    let (largest, (_, most)) = of(&|_| true)?;
    let own = of(&|one| one == pid);
    let left = of(&|one| one != pid && stayed.contains(&one));
    let is_launcher = |size: u64| left.is_some_and(|(_, (_, left))| size <= left * 2);
    let main = match own {
        Some((_, (_, size))) if is_launcher(*size) => left,
        own => own,
    };
    match main {
        Some((main, (_, size))) if *most <= size * 2 => Some(main),
        _ => Some(largest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_screen_is_about_the_largest_program_that_it_was() {
        // A shim becomes the program; the program becomes something small at its end; two are as large.
        assert_eq!(most_interesting(1, &[], &[(1, 2), (1, 20)]), Some(1));
        assert_eq!(most_interesting(1, &[], &[(1, 20), (1, 1)]), Some(0));
        assert_eq!(most_interesting(1, &[], &[(1, 2), (1, 2)]), Some(1));
        // A child counts only if it grew to more than twice as much.
        assert_eq!(most_interesting(1, &[], &[(1, 10), (2, 20)]), Some(0));
        assert_eq!(most_interesting(1, &[], &[(1, 10), (2, 21)]), Some(1));
        assert_eq!(most_interesting(1, &[], &[]), None);
    }

    #[test]
    fn the_screen_is_about_the_process_that_stays() {
        // A launcher is of the size of the daemon that it forks.
        assert_eq!(most_interesting(1, &[2], &[(1, 10), (2, 10)]), Some(1));
        assert_eq!(most_interesting(1, &[2], &[(1, 20), (2, 10)]), Some(1));
        // What a large program leaves behind is small beside it.
        assert_eq!(most_interesting(1, &[2], &[(1, 21), (2, 10)]), Some(0));
        // Of a daemon's processes, one that grew to more than twice its size.
        let all = [(1, 10), (2, 10), (3, 30)];
        assert_eq!(most_interesting(1, &[2], &all), Some(2));
        assert_eq!(most_interesting(1, &[2, 3], &all), Some(2));
        // Nothing is known of one that has no trace.
        assert_eq!(most_interesting(1, &[9], &[(1, 10), (2, 10)]), Some(0));
    }
}
