//! The machine that a trace is of: its kernel, its pages.
//!
//! Not here: what a process is (names.rs, process.rs).

/// Returns the size of a page.
pub fn page_bytes() -> u64 {
    // SAFETY: no memory is involved.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(4096) as u64
}

/// Returns the kernel's release and the machine.
pub fn system() -> String {
    // SAFETY: all-zero is valid; `uname` fills it with zero-terminated texts.
    unsafe {
        let mut names: libc::utsname = std::mem::zeroed();
        if libc::uname(&mut names) != 0 {
            return String::new();
        }
        let text = |field: &[libc::c_char]| {
            let bytes: Vec<u8> = field
                .iter()
                .take_while(|c| **c != 0)
                .map(|c| *c as u8)
                .collect();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        format!(
            "{} {} {}",
            text(&names.sysname),
            text(&names.release),
            text(&names.machine)
        )
    }
}
