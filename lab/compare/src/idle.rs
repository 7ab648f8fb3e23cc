//! Decides whether a process tree is idle: it has no work, and does not merely get no processor.
//!
//! ```text
//!   window   ├── ran ──┤ waited for a processor ├────────── slept ──────────┤ now
//!            idle:     window − waited >= idle,  ran <= 1 % of that,  no thread is runnable now
//! ```
//!
//! I1  Time in which a thread waited for a processor tells nothing about its work: it does not count towards `idle`.
//!     The kernel adds a wait to `schedstat` when it ends; a wait that is still on shows as state R.
//! I2  A thread that waits for the disk (state D) has work.
//! I3  If `ran` is too much, the window begins anew; if a thread is runnable, it goes on, and is looked at again.
//! I4  A kernel without `schedstat` (CONFIG_SCHED_INFO) reports no waits: then only the state shows a starved thread.
//!
//! Rejected: CPU time alone, which takes a program that eight others starve for an idle one (2 of 5 runs beside eight
//! busy loops on two processors); the load average, which is the whole machine's.
//! Not here: the members of the tree (tree.rs), the consequences (run.rs).

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

/// An idle tree uses at most one part in this many of one processor.
const SHARE: u32 = 100;

/// The activity of a tree until now, and at present.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// CPU time of living members and of what they waited for, in steps of 10 ms.
    pub cpu: Duration,
    /// Each living thread, by its thread id.
    pub threads: HashMap<u32, Thread>,
}

/// The activity of one thread until now, and at present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// CPU time that it used.
    pub ran: Duration,
    /// Time that it waited for a processor, without a wait that is still on.
    pub waited: Duration,
    /// Whether it runs, waits for a processor, or waits for the disk.
    pub has_work: bool,
}

impl Activity {
    /// Reads members' threads. Cost: two small files for each thread, one for each process. Processes that end
    /// meanwhile are left out.
    pub fn of(members: &[u32], cpu: Duration) -> Activity {
        let mut threads = HashMap::new();
        for pid in members {
            let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
                continue;
            };
            for task in tasks.flatten() {
                let name = task.file_name();
                let Some(id) = name.to_str().and_then(|name| name.parse().ok()) else {
                    continue;
                };
                let Ok(stat) = fs::read_to_string(task.path().join("stat")) else {
                    continue;
                };
                let times = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
                threads.insert(id, Thread::parse(&stat, &times));
            }
        }
        Activity { cpu, threads }
    }

    /// Returns the CPU time since `before`: of threads to the nanosecond, or of processes, which include threads that
    /// ended.
    fn ran_since(&self, before: &Activity) -> Duration {
        let exact = self.grown(before, |thread| thread.ran).sum();
        self.cpu.saturating_sub(before.cpu).max(exact)
    }

    /// Returns the longest time that one thread waited for a processor since `before`.
    fn waited_since(&self, before: &Activity) -> Duration {
        let waits = self.grown(before, |thread| thread.waited);
        waits.max().unwrap_or_default()
    }

    fn grown(
        &self,
        before: &Activity,
        of: impl Fn(&Thread) -> Duration,
    ) -> impl Iterator<Item = Duration> {
        self.threads.iter().map(move |(id, thread)| {
            let was = before.threads.get(id).map(&of).unwrap_or_default();
            of(thread).saturating_sub(was)
        })
    }
}

impl Thread {
    /// Parses `/proc/PID/task/TID/stat` and `schedstat`.
    fn parse(stat: &str, schedstat: &str) -> Thread {
        // The name is in parentheses and may contain anything.
        let state = stat.rfind(')').map(|at| stat[at + 1..].trim_start());
        let mut times = schedstat
            .split_ascii_whitespace()
            .map(|word| Duration::from_nanos(word.parse().unwrap_or(0)));
        Thread {
            ran: times.next().unwrap_or_default(),
            waited: times.next().unwrap_or_default(),
            has_work: state.is_some_and(|state| state.starts_with(['R', 'D'])),
        }
    }
}

/// The window in which a tree may prove that it is idle. Times are since the run's start.
#[derive(Debug)]
pub struct IdleWindow {
    idle: Duration,
    begun: Duration,
    before: Activity,
    /// The time before which it need not be looked at.
    next: Duration,
}

impl IdleWindow {
    /// Creates the window of a tree that began now and has done nothing.
    pub fn new(idle: Duration) -> IdleWindow {
        IdleWindow {
            idle,
            begun: Duration::ZERO,
            before: Activity::default(),
            next: idle,
        }
    }

    /// Reports whether a look can tell anything. Cost: nothing.
    pub fn is_due(&self, now: Duration) -> bool {
        now >= self.next
    }

    /// Reports whether the tree has rested for long enough, after a look at it.
    pub fn was_idle(&mut self, now: Duration, seen: Activity) -> bool {
        let window = now.saturating_sub(self.begun);
        let could = window.saturating_sub(seen.waited_since(&self.before));
        let ran = seen.ran_since(&self.before);
        if could < self.idle {
            // The next look is at least a tenth later: a look costs some files.
            self.next = now + (self.idle - could).max(self.idle / 10);
            return false;
        }
        if ran > could / SHARE {
            *self = IdleWindow {
                idle: self.idle,
                begun: now,
                before: seen,
                next: now + self.idle,
            };
            return false;
        }
        if seen.threads.values().any(|thread| thread.has_work) {
            self.next = now + self.idle / 10;
            return false;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = ms(300);

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn thread(ran_ms: u64, waited_ms: u64, has_work: bool) -> Thread {
        Thread {
            ran: ms(ran_ms),
            waited: ms(waited_ms),
            has_work,
        }
    }

    fn seen(threads: &[Thread]) -> Activity {
        Activity {
            cpu: Duration::ZERO,
            threads: (1..).zip(threads.iter().copied()).collect(),
        }
    }

    #[test]
    fn who_sleeps_rests_and_who_computes_does_not() {
        let mut window = IdleWindow::new(IDLE);
        assert!(!window.is_due(ms(299)) && window.is_due(IDLE));
        assert!(window.was_idle(IDLE, seen(&[thread(3, 0, false)])));
        let mut window = IdleWindow::new(IDLE);
        for nth in 1..50 {
            let at = IDLE * nth;
            assert!(!window.was_idle(at, seen(&[thread(300 * u64::from(nth), 0, false)])));
        }
        // It is idle from then on.
        assert!(!window.is_due(IDLE * 50 - ms(1)));
        assert!(window.was_idle(IDLE * 50, seen(&[thread(300 * 49, 0, false)])));
    }

    /// Tests a thread that wants the processor and never gets it: the kernel adds the wait when it ends, so the times
    /// stand still.
    #[test]
    fn who_is_starved_does_not_rest() {
        let mut window = IdleWindow::new(IDLE);
        let starved = thread(0, 0, true);
        for at in 1..1000 {
            assert!(!window.was_idle(IDLE * at, seen(&[thread(0, 0, false), starved])));
        }
        // Finally it ran for a moment, and sleeps: its wait shows that it had not slept before.
        let ran =
            |ran_ms, waited_ms| seen(&[thread(0, 0, false), thread(ran_ms, waited_ms, false)]);
        assert!(!window.was_idle(IDLE * 1000, ran(1, 299_990)));
        assert!(window.was_idle(IDLE * 1001, ran(1, 299_990)));
    }

    /// Tests a thread that gets 1 ms of processor in each 400, always seen when it sleeps for a moment.
    #[test]
    fn waits_for_a_processor_do_not_count_as_rest() {
        let mut window = IdleWindow::new(IDLE);
        for turn in 1..500 {
            let now = ms(400 * turn);
            let busy = seen(&[thread(turn, 399 * turn, false)]);
            assert!(!window.was_idle(now, busy), "turn {turn}");
        }
    }

    /// Tests a server that wakes ten times a second for nothing, on a machine where each waking waits for 20 ms.
    #[test]
    fn a_server_that_wakes_now_and_then_rests_on_a_busy_machine_too() {
        let mut window = IdleWindow::new(IDLE);
        let at = (1..100).find(|at| {
            let wakings = u64::from(*at);
            let server = Thread {
                ran: Duration::from_micros(50 * wakings),
                waited: ms(20 * wakings),
                has_work: wakings.is_multiple_of(5),
            };
            window.was_idle(ms(100) * *at, seen(&[server]))
        });
        assert_eq!(at, Some(4), "300 ms and what was waited");
    }

    #[test]
    fn work_of_threads_and_processes_that_ended_counts() {
        let mut window = IdleWindow::new(IDLE);
        let mut first = seen(&[thread(0, 0, false)]);
        first.cpu = ms(250);
        assert!(!window.was_idle(IDLE, first.clone()));
        assert!(window.was_idle(IDLE * 2, first));
    }

    #[test]
    fn the_kernels_texts() {
        let parsed = |state: &str| {
            let stat = format!("7 (a) R) {state} 3 1 1 0 -1");
            Thread::parse(&stat, "210083 34361305 2\n")
        };
        assert_eq!(parsed("S").ran, Duration::from_nanos(210_083));
        assert_eq!(parsed("S").waited, Duration::from_nanos(34_361_305));
        for (state, has_work) in [
            ("R", true),
            ("D", true),
            ("S", false),
            ("T", false),
            ("Z", false),
        ] {
            assert_eq!(parsed(state).has_work, has_work, "{state}");
        }
        assert_eq!(Thread::parse("7 (a", ""), Thread::default());
        assert_eq!(Thread::parse("7 (a) R 3", "").ran, Duration::ZERO, "I4");
    }

    #[test]
    fn the_kernel_tells_that_this_thread_runs() {
        // SAFETY: no memory is involved.
        let own = unsafe { libc::gettid() } as u32;
        let seen = Activity::of(&[std::process::id()], Duration::ZERO);
        assert!(seen.threads[&own].has_work);
        assert!(Activity::of(&[u32::MAX], Duration::ZERO).threads.is_empty());
    }
}
