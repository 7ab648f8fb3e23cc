//! Where a thread's own stack ends, asked of the kernel without memory and without the C library.
//!
//! ```text
//!   first thread: the loader's end of the stack, less the limit      others: the mapping around the stack pointer
//! ```
//!
//! Not here: which thread is the first, and who remembers the answer (`record-so`'s bounds, `alloc`'s profile).

use crate::sys;

/// Returns how far below its end the first thread's stack may reach: no mapping lies there. Cost: one system call.
pub fn first_thread_limit() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let at = &raw mut limit as u64;
    // SAFETY: `limit` is ours.
    unsafe {
        sys::syscall(
            libc::SYS_prlimit64,
            [0, libc::RLIMIT_STACK as u64, 0, at, 0, 0],
        )
    };
    // The kernel keeps at least 128 MiB below the stack free of mappings.
    limit.rlim_cur.clamp(64 << 10, 128 << 20)
}

/// `struct procmap_query` of Linux 6.11.
#[repr(C)]
#[derive(Default)]
struct MapQuery {
    size: u64,
    flags: u64,
    addr: u64,
    start: u64,
    end: u64,
    rest: [u64; 8],
}

/// Returns the mapping around an address: start and end. `None` before Linux 6.11, and where no mapping is. Cost: three
/// system calls.
pub fn mapping_around(addr: u64) -> Option<(u64, u64)> {
    const PROCMAP_QUERY: u64 = 0xc068_6611;
    let mut query = MapQuery {
        size: size_of::<MapQuery>() as u64,
        addr,
        ..MapQuery::default()
    };
    let file = sys::open_to_read(c"/proc/self/maps");
    if sys::is_error(file) {
        return None;
    }
    let at = &raw mut query as u64;
    // SAFETY: the query is ours and of the size that it says.
    let result =
        unsafe { sys::syscall(libc::SYS_ioctl, [file as u64, PROCMAP_QUERY, at, 0, 0, 0]) };
    sys::close(file as i32);
    (result == 0).then_some((query.start, query.end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_what_the_kernel_says_within_bounds() {
        let text = std::fs::read_to_string("/proc/self/limits").expect("this process");
        let line = text.lines().find(|line| line.starts_with("Max stack size"));
        let soft = line
            .and_then(|line| line.split_whitespace().nth(3))
            .expect("a limit");
        let soft = soft.parse().unwrap_or(u64::MAX);
        assert_eq!(first_thread_limit(), soft.clamp(64 << 10, 128 << 20));
    }

    /// Where the kernel answers, it says what the file of mappings says.
    #[test]
    fn a_mapping_is_found_by_any_address_in_it() {
        let local = 0u8;
        let here = &raw const local as u64;
        let Some((start, end)) = mapping_around(here) else {
            let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("a name");
            let mut numbers = release
                .split('.')
                .map_while(|word| word.parse::<u32>().ok());
            let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
            assert!(version < (6, 11), "{release}");
            return;
        };
        assert!(start <= here && here < end);
        let maps = std::fs::read_to_string("/proc/self/maps").expect("this process");
        assert!(maps.contains(&format!("{start:08x}-{end:08x} ")), "{maps}");
        assert_eq!(mapping_around(start), Some((start, end)));
        assert_ne!(mapping_around(end), Some((start, end)));
    }
}
