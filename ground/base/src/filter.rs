//! The answers of a filter of system calls (seccomp): the kernel's machine for such filters, run by hand.
//!
//! ```text
//!   program ─► seccomp(filter) ─► verdict(filter, call) ─► passes │ handled │ kills
//! ```
//!
//! F1  A filter is read only after the kernel has accepted it: then its jumps lead forward and inside, and its memory
//!     accesses lie inside. Nothing here relies on it: what the kernel would not have accepted is said to kill.
//! F2  Jumps lead forward only, so a run takes at most as many steps as the filter has instructions.
//!
//! Not here: when filters are looked at, and what follows (the recorder's `filters`).

use crate::arch::AUDIT_ARCH as ARCH;
use libc::sock_filter;

/// The fate of a system call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    /// It is made, fails with an error, or is answered by another process.
    Passes,
    /// The process gets `SIGSYS`, and may have a handler for it.
    Handled,
    /// The thread or the process is ended.
    Kills,
}

/// A system call: its number and its arguments.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The number.
    pub number: i64,
    /// The arguments.
    pub args: [u64; 6],
}

/// The words of the machine's memory.
const CELLS: usize = 16;

impl Call {
    /// Returns a word of `struct seccomp_data` by its offset: number, architecture, address of the instruction (not
    /// known: 0), arguments.
    fn word(&self, offset: u32) -> Option<u32> {
        let half = |value: u64| (value >> (offset % 8 * 8)) as u32;
        match offset {
            _ if !offset.is_multiple_of(4) => None,
            0 => Some(self.number as u32),
            4 => Some(ARCH),
            8 | 12 => Some(0),
            16..64 => Some(half(self.args[(offset as usize - 16) / 8])),
            _ => None,
        }
    }
}

/// Returns what a filter answers to a call. Cost: a few nanoseconds for each instruction.
pub fn verdict(filter: &[sock_filter], call: &Call) -> Verdict {
    const ACTION: u32 = 0xffff_0000;
    match run(filter, call).unwrap_or(libc::SECCOMP_RET_KILL_PROCESS) & ACTION {
        libc::SECCOMP_RET_ERRNO
        | libc::SECCOMP_RET_USER_NOTIF
        | libc::SECCOMP_RET_TRACE
        | libc::SECCOMP_RET_LOG
        | libc::SECCOMP_RET_ALLOW => Verdict::Passes,
        libc::SECCOMP_RET_TRAP => Verdict::Handled,
        _ => Verdict::Kills,
    }
}

/// Runs a filter. Returns what it returns; `None` if the kernel would not have accepted it (F1).
fn run(filter: &[sock_filter], call: &Call) -> Option<u32> {
    const WORDS: u32 = 64;
    let (mut a, mut x, mut at) = (0u32, 0u32, 0usize);
    let mut cells = [0u32; CELLS];
    loop {
        let sock_filter { code, jt, jf, k } = *filter.get(at)?;
        at += 1;
        let operand = if code & 0x08 != 0 { x } else { k };
        let jump = |is: bool| usize::from(if is { jt } else { jf });
        match code {
            0x20 => a = call.word(k)?,                // a = a word of the call
            0x80 => a = WORDS,                        // a = the length
            0x81 => x = WORDS,                        // x = the length
            0x00 => a = k,                            // a = k
            0x01 => x = k,                            // x = k
            0x60 => a = *cells.get(k as usize)?,      // a = a cell
            0x61 => x = *cells.get(k as usize)?,      // x = a cell
            0x02 => *cells.get_mut(k as usize)? = a,  // a cell = a
            0x03 => *cells.get_mut(k as usize)? = x,  // a cell = x
            0x07 => x = a,                            // x = a
            0x87 => a = x,                            // a = x
            0x84 => a = a.wrapping_neg(),             // a = -a
            0x05 => at = at.checked_add(k as usize)?, // on, by k
            0x15 | 0x1d => at += jump(a == operand),
            0x25 | 0x2d => at += jump(a > operand),
            0x35 | 0x3d => at += jump(a >= operand),
            0x45 | 0x4d => at += jump(a & operand != 0),
            0x06 => return Some(k),
            0x16 => return Some(a),
            _ => a = calculated(code, a, operand)?,
        }
    }
}

/// Returns the result of an arithmetic instruction; `None` if it is none, or divides by zero, which ends the call.
fn calculated(code: u16, a: u32, operand: u32) -> Option<u32> {
    match code & !0x08 {
        0x04 => Some(a.wrapping_add(operand)),
        0x14 => Some(a.wrapping_sub(operand)),
        0x24 => Some(a.wrapping_mul(operand)),
        0x34 => a.checked_div(operand),
        0x44 => Some(a | operand),
        0x54 => Some(a & operand),
        0x64 => Some(a.checked_shl(operand).unwrap_or(0)),
        0x74 => Some(a.checked_shr(operand).unwrap_or(0)),
        0xa4 => Some(a ^ operand),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(code: u16, jt: u8, jf: u8, k: u32) -> sock_filter {
        sock_filter { code, jt, jf, k }
    }

    fn call(number: i64, first: u64) -> Call {
        Call {
            number,
            args: [first, 0, 0, 0, 0, 0],
        }
    }

    /// A call with one argument that does no harm to a child.
    #[cfg(target_arch = "x86_64")]
    const WITH_ONE: i64 = libc::SYS_alarm;
    #[cfg(target_arch = "aarch64")]
    const WITH_ONE: i64 = libc::SYS_close;

    /// `getppid` and `getuid` by their numbers, and another call by both halves of its argument, with arithmetic on the way.
    fn filter(action: u32) -> Vec<sock_filter> {
        let allow = libc::SECCOMP_RET_ALLOW;
        let number = |number: i64| number as u32;
        vec![
            step(0x20, 0, 0, 4),
            step(0x15, 0, 14, ARCH),
            step(0x20, 0, 0, 0),
            step(0x15, 13, 0, number(libc::SYS_getppid)),
            // A number, through a cell and back: negated, subtracted, shifted.
            step(0x02, 0, 0, 3),
            step(0x61, 0, 0, 3),
            step(0x87, 0, 0, 0),
            step(0x84, 0, 0, 0),
            step(0x84, 0, 0, 0),
            step(0x64, 0, 0, 4),
            step(0x74, 0, 0, 4),
            step(0x15, 5, 0, number(libc::SYS_getuid)),
            step(0x15, 0, 3, number(WITH_ONE)),
            step(0x20, 0, 0, 20),
            step(0x45, 2, 0, 0x10),
            step(0x05, 0, 0, 0),
            step(0x06, 0, 0, allow),
            step(0x06, 0, 0, action),
        ]
    }

    const CALLS: [(i64, u64); 5] = [
        (libc::SYS_getppid, 0),
        (libc::SYS_getuid, 0),
        (WITH_ONE, 0),
        (WITH_ONE, 0x10 << 32),
        (libc::SYS_getgid, 0),
    ];

    /// Makes a call behind a filter in a child. Returns the signal that ended it; 0 if none did.
    fn by_the_kernel(filter: &[sock_filter], call: &Call) -> i32 {
        let program = libc::sock_fprog {
            len: filter.len() as u16,
            filter: filter.as_ptr().cast_mut(),
        };
        // SAFETY: the child makes system calls only, and ends; the filter lives as long as it.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                let own = libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
                let mode = libc::SECCOMP_MODE_FILTER;
                let set = libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program);
                if own != 0 || set != 0 {
                    libc::_exit(9);
                }
                libc::syscall(call.number, call.args[0]);
                libc::_exit(0);
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
            assert_ne!(status >> 8, 9, "the kernel takes the filter");
            status & 0x7f
        }
    }

    #[test]
    fn the_kernel_answers_the_same() {
        for (action, expected) in [
            (libc::SECCOMP_RET_KILL_PROCESS, Verdict::Kills),
            (libc::SECCOMP_RET_KILL_THREAD, Verdict::Kills),
            (libc::SECCOMP_RET_TRAP, Verdict::Handled),
            (libc::SECCOMP_RET_ERRNO | 1, Verdict::Passes),
        ] {
            let filter = filter(action);
            let mut verdicts = Vec::new();
            for (number, first) in CALLS {
                let call = call(number, first);
                let verdict = verdict(&filter, &call);
                let signal = by_the_kernel(&filter, &call);
                let ended = verdict != Verdict::Passes;
                assert_eq!(signal == libc::SIGSYS, ended, "{call:?} {action:x}");
                verdicts.push(verdict);
            }
            let passes = Verdict::Passes;
            assert_eq!(verdicts, [expected, expected, passes, expected, passes]);
        }
    }

    #[test]
    fn what_the_kernel_would_not_take_kills() {
        let any = call(1, 0);
        let allow = step(0x06, 0, 0, libc::SECCOMP_RET_ALLOW);
        let mut all = vec![vec![], vec![step(0x20, 0, 0, 0)]];
        for (code, operand) in [
            (0x20, 64),
            (0x20, 3),
            (0x02, 16),
            (0x05, u32::MAX),
            (0x34, 0),
            (0xff, 0),
        ] {
            all.push(vec![step(code, 0, 0, operand), allow]);
        }
        for wrong in all {
            assert_eq!(verdict(&wrong, &any), Verdict::Kills, "{}", wrong.len());
        }
    }
}
