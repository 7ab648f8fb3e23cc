//! The end of a child: its status, and the processor time and memory that are its own.
//!
//! ```text
//!   waitid (peek) ─► /proc/PID/stat of the zombie: own time, had it children? ─► wait4 ─► ChildEnd
//!                    /proc/PID/io: what its calls moved
//! ```
//!
//! E1  A figure that may be another process's (a child of the child, our own copy before its exec) is left out. Only of what its
//!     calls moved the kernel tells the sum with the children that it waited for, and nothing else.
//!
//! Not here: what is done until then (record.rs).

use skinflint_collect::ChildEnd;
use skinflint_procfs::Stat;
use skinflint_procfs::stat::{stat, ticks};

/// Reports whether a child has ended; it can still be looked at.
pub(crate) fn has_ended(pid: u32) -> bool {
    // SAFETY: `info` is ours; WNOWAIT leaves the child to be looked at once more by `reap`.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let options = libc::WEXITED | libc::WNOWAIT | libc::WNOHANG;
        let result = libc::waitid(libc::P_PID, pid, &mut info, options);
        // While pointers are looked at, the child's stops are reported here, too: another thread of ours is its
        // tracer.
        let ends = [libc::CLD_EXITED, libc::CLD_KILLED, libc::CLD_DUMPED];
        result != 0 || info.si_pid() != 0 && ends.contains(&info.si_code)
    }
}

/// Waits until the child has ended or a signal has come, for 50 ms at most.
pub(crate) fn poll(pid: u32) {
    // SAFETY: plain calls; the descriptor is closed again.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0) as i32;
        let mut polled = libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        libc::poll(&mut polled, 1, 50);
        if fd >= 0 {
            libc::close(fd);
        }
    }
}

/// Takes the status of a child that has ended, and the resources that it used.
pub(crate) fn reap(pid: u32) -> ChildEnd {
    let alone = stat(pid).map(|stat| own_cpu(&stat));
    let moved = skinflint_procfs::moved(pid);
    // SAFETY: all are ours.
    unsafe {
        let mut status = 0;
        let mut usage: libc::rusage = std::mem::zeroed();
        let mut ours: libc::rusage = std::mem::zeroed();
        libc::wait4(pid as i32, &mut status, 0, &mut usage);
        libc::getrusage(libc::RUSAGE_SELF, &mut ours);
        let micros = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
        let whole = (micros(usage.ru_utime) + micros(usage.ru_stime)) * 1000;
        ChildEnd {
            pid,
            status,
            // wait4 also counts the children that the child waited for; then only the coarse figure is its own.
            cpu_ns: match alone {
                Some((coarse, true)) => Some(coarse),
                Some((_, false)) => Some(whole),
                None => None,
            },
            max_rss_bytes: own_high_water(alone, usage.ru_maxrss, ours.ru_maxrss),
            moved,
        }
    }
}

/// Returns the child's own high-water mark in bytes, as far as wait4 knows it: a make is not as large as its
/// compilers, and until its exec the child was a copy of ours, whose mark it keeps. Both arguments are in KiB.
fn own_high_water(alone: Option<(u64, bool)>, child: i64, ours: i64) -> Option<u64> {
    let is_own = matches!(alone, Some((_, false))) && child > ours;
    is_own.then_some(child as u64 * 1024)
}

/// Returns the CPU nanoseconds of a process itself, in steps of 10 ms, and whether it waited for children. These show
/// by their page faults, without which none can begin: their time is 0 ticks if they were quick.
fn own_cpu(stat: &Stat) -> (u64, bool) {
    let had_children = stat.waited_faults + stat.waited_ticks > 0;
    (ticks(stat.own_ticks()).as_nanos() as u64, had_children)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quick_child_is_seen_by_its_page_faults() {
        let stat = |faults, time| {
            let text =
                format!("7 (a) b) Z 1 7 7 0 -1 0 90 {faults} 0 0 3 2 {time} 0 20 0 1 0 9 0 0");
            Stat::parse(text.as_bytes()).expect("complete")
        };
        assert_eq!(own_cpu(&stat(0, 0)), (50_000_000, false));
        assert_eq!(own_cpu(&stat(80, 0)), (50_000_000, true));
        assert_eq!(own_cpu(&stat(0, 1)), (50_000_000, true));
    }

    #[test]
    fn what_the_child_was_before_its_exec_is_not_its_mark() {
        assert_eq!(
            own_high_water(Some((0, false)), 9000, 8000),
            Some(9000 << 10)
        );
        assert_eq!(
            own_high_water(Some((0, false)), 8000, 8000),
            None,
            "a copy of ours"
        );
        assert_eq!(
            own_high_water(Some((0, true)), 9000, 8000),
            None,
            "perhaps its child's"
        );
        assert_eq!(own_high_water(None, 9000, 8000), None);
    }
}
