//! The rights of our threads: whether they are still the program's, and whether there may be such threads at all.
//!
//! ```text
//!   the drop-in: a filter of system calls is set ──► filtering() ──► no thread, one madvise at a time, no barrier
//!   the purger, at each wake ──► has_no_more_than_the_first_thread() ──► it has more: it ends
//! ```
//!
//! R1  Only capabilities are compared. A process that gives root up loses them, whichever call it makes, and the kernel
//!     tells those of another thread without a file: a descriptor of ours would be a number that the program could have
//!     had. What this misses (an identity without capabilities, a filter set past the C library) the drop-in meets at the
//!     C library's functions (`malloc-so::rights`). Fewer than the first thread's are no way back to anything: so has a
//!     purger which was begun by a thread that gave its own rights up, as servers do that work as the user of each request.
//! R2  A filter that was there when the process was started does not count: what set it expects a C library's calls, those
//!     that make threads among them, and in a container every process has one.
//!
//! Not here: what the purger does about it (`purger`).

use skinflint_base::sync::{AtomicU32, Ordering};
use skinflint_base::sys;
use skinflint_pages::purge::{keep_all, one_by_one};

static FILTERED: AtomicU32 = AtomicU32::new(NOTHING);
const NOTHING: u32 = Punished::Nothing as u32;
const ALL: u32 = Punished::All as u32;

/// What a filter of system calls punishes of all that a thread may do for the allocator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Punished {
    /// Nothing.
    Nothing,
    /// Some call that only a purger makes.
    Purger,
    /// Every call but read, write and exit: the kernel's strict mode, in which reading the clock ends the process, too.
    All,
}

/// Reports whether a filter of system calls was set since the start that punishes what a purger does.
pub fn filtered() -> bool {
    FILTERED.load(Ordering::Relaxed) != NOTHING // ORDER: set while no purger runs
}

/// Reports whether a thread of the process may do nothing but use the memory that there is.
pub fn confined() -> bool {
    FILTERED.load(Ordering::Relaxed) == ALL // ORDER: as above
}

/// Makes the call that sets a filter of system calls. If the filter punishes what a purger does, the kernel is called from
/// then on only for what a C library calls it for, and in strict mode for nothing but memory; forks keep that. A call that
/// failed, as those do that ask whether filters are known here, changes nothing. No purger runs (`purger::leave`).
pub fn filtering(call: impl FnOnce() -> i64, punishes: impl FnOnce() -> Punished) -> i64 {
    // Before it: the filter may be for all threads, and another may give pages back at this moment.
    let before = one_by_one(true);
    let result = call();
    let punished = match result < 0 {
        true => Punished::Nothing,
        false => punishes(),
    };
    if punished == Punished::Nothing {
        one_by_one(before);
    } else {
        // What an earlier filter punishes it goes on to punish.
        FILTERED.fetch_max(punished as u32, Ordering::Relaxed); // ORDER: no purger runs
    }
    if punished == Punished::All {
        keep_all();
    }
    result
}

/// `struct __user_cap_header_struct`.
#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

/// Two times effective, permitted and inheritable.
type Capabilities = [u32; 6];

/// Reports whether this thread has no capability that the process's first one lacks (R1). `true` where the kernel does not
/// tell. Cost: three system calls.
pub fn has_no_more_than_the_first_thread() -> bool {
    match (of(0), of(sys::getpid() as i32)) {
        (Some(mine), Some(first)) => within(mine, first),
        _ => true,
    }
}

fn within(some: Capabilities, all: Capabilities) -> bool {
    some.iter().zip(all).all(|(some, all)| some & !all == 0)
}

fn of(tid: i32) -> Option<Capabilities> {
    const VERSION_3: u32 = 0x2008_0522;
    let mut header = Header {
        version: VERSION_3,
        pid: tid,
    };
    let mut sets: Capabilities = [0; 6];
    // SAFETY: both are ours, and of the sizes that this version has.
    let result = unsafe {
        sys::syscall(
            libc::SYS_capget,
            [(&raw mut header) as u64, (&raw mut sets) as u64, 0, 0, 0, 0],
        )
    };
    (result == 0).then_some(sets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_capabilities_are_within_and_each_further_one_is_seen() {
        let all: Capabilities = [0x8000_0001, 7, 0, 0, u32::MAX, 1];
        assert!(within(all, all) && within([0; 6], all));
        for at in 0..6 {
            for bit in 0..32 {
                let mut other = all;
                other[at] ^= 1 << bit;
                let more = other[at] > all[at];
                assert_eq!(within(other, all), !more, "bit {bit} of {at}");
                assert_eq!(within(all, other), more, "bit {bit} of {at}");
            }
        }
    }

    #[test]
    fn a_thread_that_gave_its_capabilities_up_has_no_more() {
        assert!(has_no_more_than_the_first_thread(), "nothing was given up");
        std::thread::spawn(|| {
            let Some(sets) = of(0).filter(|sets| *sets != [0; 6]) else {
                println!("not checked: this user has no capabilities to give up");
                return;
            };
            assert_eq!(of(sys::gettid() as i32), Some(sets));
            let header = [0x2008_0522u32, 0];
            // SAFETY: both are ours; only this thread loses them.
            let result =
                unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), [0u32; 6].as_ptr()) };
            assert_eq!(result, 0);
            assert_eq!(of(0), Some([0; 6]));
            assert!(has_no_more_than_the_first_thread());
        })
        .join()
        .expect("checked");
    }
}
