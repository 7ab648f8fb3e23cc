//! `/proc/PID/stat`: state, parent, times, threads and start of a process or thread.
//!
//! ```text
//!   71 (a) b) S 7 …          the name ends at the last parenthesis; after it no field has one
//!             3 4 …          fields have the numbers of proc(5)
//! ```
//!
//! Not here: memory to the page. `rss_pages` lags by some pages for each processor (rollup.rs, status.rs).

use std::time::Duration;

use crate::file;

/// Ticks in a second (`USER_HZ`), on every Linux that we build for.
const TICKS_PER_SECOND: u64 = 100;

/// The fields of `stat` that are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stat {
    /// The state: `R`, `S`, `D`, `T`, `Z` …
    pub state: u8,
    /// The parent's process id; 0 of the first process and of kernel threads.
    pub ppid: u32,
    /// Page faults of the children that it waited for. Each child has some.
    pub waited_faults: u64,
    /// User time of the process alone.
    pub user_ticks: u64,
    /// System time of the process alone.
    pub system_ticks: u64,
    /// User and system time of the children that it waited for.
    pub waited_ticks: u64,
    /// Number of threads.
    pub threads: u32,
    /// The start since boot: with the process id it names a process as long as the machine runs.
    pub started_ticks: u64,
    /// Resident pages; the kernel's quick count.
    pub rss_pages: u64,
    /// How it ended, as `wait` would say, if it has ended and was not waited for. 0 also if that is not ours to know.
    pub wait_status: Option<i32>,
}

impl Stat {
    /// Parses the text; `None` if it is cut off.
    pub fn parse(text: &[u8]) -> Option<Stat> {
        let name_end = text.iter().rposition(|byte| *byte == b')')?;
        let text = std::str::from_utf8(&text[name_end + 1..]).ok()?;
        let mut fields = text.split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        let mut last = 3;
        let mut field = |number: usize| {
            let skipped = number - last - 1;
            last = number;
            fields.nth(skipped)
        };
        let mut number = |at| field(at)?.parse::<u64>().ok();
        let stat = Stat {
            state,
            ppid: u32::try_from(number(4)?).ok()?,
            waited_faults: number(11)?,
            user_ticks: number(14)?,
            system_ticks: number(15)?,
            waited_ticks: number(16)?.saturating_add(number(17)?),
            threads: u32::try_from(number(20)?).ok()?,
            started_ticks: number(22)?,
            rss_pages: number(24)?,
            wait_status: None,
        };
        let wait_status = match state {
            b'Z' => field(52).and_then(|status| status.parse().ok()),
            _ => None,
        };
        Some(Stat {
            wait_status,
            ..stat
        })
    }

    /// Returns the time that it used itself, in user and system mode.
    pub fn own_ticks(&self) -> u64 {
        self.user_ticks.saturating_add(self.system_ticks)
    }

    /// Returns whether it has ended, waited for or not. Of a first thread others may run on.
    pub fn is_dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }
}

/// Reads the line of a process; works until it has been waited for.
pub fn stat(pid: u32) -> Option<Stat> {
    file::parse(format_args!("/proc/{pid}/stat"), Stat::parse)
}

/// Reads the line of a thread.
pub fn of_thread(pid: u32, tid: u32) -> Option<Stat> {
    file::parse(format_args!("/proc/{pid}/task/{tid}/stat"), Stat::parse)
}

/// Returns how long a number of ticks is.
pub fn ticks(count: u64) -> Duration {
    Duration::from_millis(count.saturating_mul(1000 / TICKS_PER_SECOND))
}

/// Returns how long ago a process was started, in steps of a tick.
pub fn age(pid: u32) -> Option<Duration> {
    let started = ticks(stat(pid)?.started_ticks);
    let up = file::parse(format_args!("/proc/uptime"), |text| {
        let text = std::str::from_utf8(text).ok()?;
        text.split(' ').next()?.parse::<f64>().ok()
    })?;
    Duration::try_from_secs_f64(up - started.as_secs_f64()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line with fields 3 to 52, each its own number where it may be.
    fn line(name: &str, state: char) -> String {
        let fields: Vec<String> = (4..=52).map(|field| field.to_string()).collect();
        format!("7 ({name}) {state} {}\n", fields.join(" "))
    }

    #[test]
    fn each_field_has_the_number_of_the_manual() {
        let expected = Stat {
            state: b'S',
            ppid: 4,
            waited_faults: 11,
            user_ticks: 14,
            system_ticks: 15,
            waited_ticks: 16 + 17,
            threads: 20,
            started_ticks: 22,
            rss_pages: 24,
            wait_status: None,
        };
        for name in ["sh", "a) b", "(sd-pam)", ") Z 1 (", "Web Content", ""] {
            assert_eq!(Stat::parse(line(name, 'S').as_bytes()), Some(expected));
            let ended = Stat::parse(line(name, 'Z').as_bytes()).expect("complete");
            assert_eq!(ended.wait_status, Some(52), "{name}");
        }
        assert_eq!((expected.own_ticks(), expected.is_dead()), (29, false));
    }

    #[test]
    fn a_kernels_own_line() {
        let text = b"1 (systemd) S 0 1 1 0 -1 4194560 41374 2304018 122 1247 79 312 8102 2893 20 0 1 0 12 \
            172019712 3274 18446744073709551615 1 1 0 0 0 0 671173123 4096 1260 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n";
        let stat = Stat::parse(text).expect("complete");
        assert_eq!(
            (stat.ppid, stat.user_ticks, stat.system_ticks),
            (0, 79, 312)
        );
        assert_eq!((stat.waited_ticks, stat.started_ticks), (10_995, 12));
        assert_eq!((stat.threads, stat.rss_pages), (1, 3274));
    }

    #[test]
    fn a_cut_line_is_none_and_no_cut_panics() {
        let whole = line("a) b", 'Z');
        let rss_end = whole.find(" 24 ").expect("a field") + 3;
        for end in 0..whole.len() {
            let stat = Stat::parse(&whole.as_bytes()[..end]);
            // Inside the last field that is needed, a cut cannot be told from a shorter number.
            assert_eq!(stat.is_some(), end + 1 >= rss_end, "{end}");
        }
        let odd = b"7 (\xff\xfe) S 4 5 6 7 -1 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25";
        assert_eq!(Stat::parse(odd).map(|stat| stat.ppid), Some(4));
        assert_eq!(Stat::parse(b"7 (a) S \xff"), None);
        assert_eq!(Stat::parse(b"7 (a) S -4 5"), None);
    }

    #[test]
    fn this_process_began_before_now() {
        let own = stat(std::process::id()).expect("running");
        assert!(own.threads >= 1 && own.rss_pages > 0 && !own.is_dead());
        assert_eq!(own.ppid, std::os::unix::process::parent_id());
        let first = of_thread(std::process::id(), std::process::id()).expect("running");
        assert_eq!(first.started_ticks, own.started_ticks);
        assert!(age(std::process::id()).is_some());
        assert!(stat(0).is_none() && age(0).is_none());
        assert_eq!(ticks(47), Duration::from_millis(470));
    }
}
