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
    /// more than twice its size (a wrapper, a build); unless it left one running: a process of the same file, and did not
    /// grow to more than twice its size (a daemon's first process), or a larger one of another file (its launcher). Of the
    /// programs that it was, one after another (`exec`), the largest; the last of several.
    pub fn most_interesting(&self) -> Option<&Recorded> {
        let recorded: Vec<&Recorded> = self.recorded.iter().filter(|one| !one.beside).collect();
        let sizes: Vec<_> = recorded.iter().map(|one| size(one)).collect();
        let own = recorded.iter().zip(&sizes);
        let own = own.filter(|(trace, _)| trace.process.pid == self.pid);
        // What was not written is said of the last one.
        if let Some((last, _)) = own
            .clone()
            .next_back()
            .filter(|(last, _)| last.error.is_some())
        {
            return Some(last);
        }
        let processes = recorded.iter().map(|trace| &trace.process);
        let all: Vec<_> = processes
            .zip(sizes)
            .map(|(process, size)| (process.pid, process.exe.as_str(), size))
            .collect();
        most_interesting(self.pid, &self.stayed, &all).map(|index| recorded[index])
    }

    /// Returns what was read from outside of the process of a trace.
    pub fn beside<'a>(&'a self, trace: &'a Recorded) -> impl Iterator<Item = &'a Recorded> {
        let all = self.recorded.iter().filter(|one| one.beside);
        all.filter(|one| one.process.pid == trace.process.pid)
    }
}

fn size(trace: &Recorded) -> u64 {
    let ending = trace.ending.as_ref();
    ending.and_then(|one| one.max_rss_bytes).unwrap_or(0)
}

/// Returns the index of the trace that the screen is about, given each one's process id, file and size, and which stayed.
fn most_interesting(pid: u32, stayed: &[u32], all: &[(u32, &str, u64)]) -> Option<usize> {
    let of = |is_wanted: &dyn Fn(u32) -> bool| {
        let all = all.iter().enumerate();
        let those = all.filter(|(_, (pid, _, _))| is_wanted(*pid));
        those.max_by_key(|(_, (_, _, size))| *size)
    };
    let (largest, (_, _, most)) = of(&|_| true)?;
    let own = of(&|one| one == pid);
    let left = of(&|one| one != pid && stayed.contains(&one));
    let is_own = |file: &str| all.iter().any(|(one, of, _)| *one == pid && *of == file);
    // A helper of another file that outlives the program (gpg's agent) is not what was asked about.
    let is_launcher = |size: u64| {
        left.is_some_and(|(_, (_, file, left))| match is_own(file) {
            true => size <= left * 2,
            false => size < *left,
        })
    };
    let main = match own {
        Some((_, (_, _, size))) if is_launcher(*size) => left,
        own => own,
    };
    match main {
        Some((main, (_, _, size))) if *most <= size * 2 => Some(main),
        _ => Some(largest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the function above, where all processes are of one file.
    fn of_one_file(pid: u32, stayed: &[u32], all: &[(u32, u64)]) -> Option<usize> {
        let all: Vec<_> = all
            .iter()
            .map(|(pid, size)| (*pid, "/app", *size))
            .collect();
        most_interesting(pid, stayed, &all)
    }

    #[test]
    fn the_screen_is_about_the_largest_program_that_it_was() {
        // A shim becomes the program; the program becomes something small at its end; two are as large.
        assert_eq!(of_one_file(1, &[], &[(1, 2), (1, 20)]), Some(1));
        assert_eq!(of_one_file(1, &[], &[(1, 20), (1, 1)]), Some(0));
        assert_eq!(of_one_file(1, &[], &[(1, 2), (1, 2)]), Some(1));
        // A child counts only if it grew to more than twice as much.
        assert_eq!(of_one_file(1, &[], &[(1, 10), (2, 20)]), Some(0));
        assert_eq!(of_one_file(1, &[], &[(1, 10), (2, 21)]), Some(1));
        assert_eq!(of_one_file(1, &[], &[]), None);
    }

    #[test]
    fn the_screen_is_about_the_process_that_stays() {
        // A launcher is of the size of the daemon that it forks.
        assert_eq!(of_one_file(1, &[2], &[(1, 10), (2, 10)]), Some(1));
        assert_eq!(of_one_file(1, &[2], &[(1, 20), (2, 10)]), Some(1));
        // What a large program leaves behind is small beside it.
        assert_eq!(of_one_file(1, &[2], &[(1, 21), (2, 10)]), Some(0));
        // Of a daemon's processes, one that grew to more than twice its size.
        let all = [(1, 10), (2, 10), (3, 30)];
        assert_eq!(of_one_file(1, &[2], &all), Some(2));
        assert_eq!(of_one_file(1, &[2, 3], &all), Some(2));
        // A helper that stays is not the program; a server that its launcher leaves is.
        let of = |left| most_interesting(1, &[2], &[(1, "/gpg", 10), (2, "/agent", left)]);
        assert_eq!((of(9), of(10), of(11)), (Some(0), Some(0), Some(1)));
        // Nothing is known of one that has no trace.
        assert_eq!(of_one_file(1, &[9], &[(1, 10), (2, 10)]), Some(0));
    }
}
