//! The glibc that programs get here: its version, and whether it registers restartable sequences.
//!
//! ```text
//!   this program is of glibc, too      ─► what it has got itself
//!   it is of musl, statically linked   ─► the loader of glibc's programs: is it there? ─► libc.so.6: its banner
//! ```
//!
//! G1  Nothing is started, and nothing of glibc's is loaded where we are not of glibc.
//! G2  Where there is a loader and no banner is found, there is a glibc of an unknown version.
//!
//! Not here: what follows from it (machine.rs), the loader of one program (preflight.rs).

#[cfg(target_env = "gnu")]
pub use own::{has_rseq, version};
#[cfg(not(target_env = "gnu"))]
pub use system::{has_rseq, version};

/// Returns the first two numbers of a version.
pub(crate) fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split(|letter: char| !letter.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(target_env = "gnu")]
mod own {
    /// Returns the version of the glibc that programs get; `None` where there is none.
    #[must_use]
    pub fn version() -> Option<String> {
        // SAFETY: G1: a string of our own C library, for ever.
        let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
        Some(version.to_string_lossy().into_owned())
    }

    /// Returns whether it registers a thread's restartable sequences.
    #[must_use]
    pub fn has_rseq() -> bool {
        // SAFETY: G1: looks a name up.
        let size = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()) };
        // SAFETY: G1: glibc exports an unsigned number under this name, which it never changes after the start.
        !size.is_null() && unsafe { size.cast::<u32>().read() } > 0
    }
}

#[cfg(any(test, not(target_env = "gnu")))]
#[cfg_attr(target_env = "gnu", allow(dead_code))]
mod system {
    use std::path::Path;

    use super::numbers;

    const LOADER: &str = if cfg!(target_arch = "aarch64") {
        "lib/ld-linux-aarch64.so.1"
    } else {
        "lib64/ld-linux-x86-64.so.2"
    };
    /// Where distributions have it: Debian's, Fedora's, others'.
    const FOLDERS: [&str; 4] = [
        if cfg!(target_arch = "aarch64") {
            "lib/aarch64-linux-gnu"
        } else {
            "lib/x86_64-linux-gnu"
        },
        "lib64",
        "usr/lib64",
        "usr/lib",
    ];

    /// Returns the version of the glibc that programs get; `None` where there is none.
    #[must_use]
    pub fn version() -> Option<String> {
        version_below(Path::new("/"))
    }

    pub(super) fn version_below(root: &Path) -> Option<String> {
        // A link into a folder of the root's own: not followed out of a root of a test's.
        root.join(LOADER).symlink_metadata().ok()?;
        let mut files = FOLDERS
            .iter()
            .map(|folder| root.join(folder).join("libc.so.6"));
        let found = files.find_map(|file| banner(&std::fs::read(file).ok()?));
        Some(found.unwrap_or_else(|| "(unknown version)".into()))
    }

    /// Returns the version in the line that libc.so.6 prints if it is started: `… release version 2.36.`
    fn banner(file: &[u8]) -> Option<String> {
        const BEFORE: &[u8] = b" release version ";
        let at = file
            .windows(BEFORE.len())
            .position(|window| window == BEFORE)?;
        let version = file[at + BEFORE.len()..].iter();
        let version = version.take_while(|byte| byte.is_ascii_digit() || **byte == b'.');
        let text: String = version.map(|&byte| char::from(byte)).collect();
        let text = text.trim_end_matches('.');
        numbers(text).map(|_| text.to_owned())
    }

    /// Returns whether it registers a thread's restartable sequences.
    #[must_use]
    pub fn has_rseq() -> bool {
        let tunables = std::env::var("GLIBC_TUNABLES").unwrap_or_default();
        registers(version().as_deref(), &tunables)
    }

    /// Returns whether a version registers them, if it is tuned so.
    pub(super) fn registers(version: Option<&str>, tunables: &str) -> bool {
        let is_new = version
            .and_then(numbers)
            .is_some_and(|version| version >= (2, 35));
        is_new && !tunables.split(':').any(|one| one == "glibc.pthread.rseq=0")
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        fn plant(root: &Path, file: &str, bytes: &[u8]) {
            let file = root.join(file);
            std::fs::create_dir_all(file.parent().expect("a folder")).expect("ours");
            std::fs::write(file, bytes).expect("ours");
        }

        #[test]
        fn the_version_is_in_the_librarys_banner() {
            let root = tempfile::tempdir().expect("a folder");
            let root = root.path();
            let line =
                b"\x7fELF\0GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36.\n\0";
            plant(root, "lib64/libc.so.6", line);
            assert_eq!(version_below(root), None, "no loader: no program starts");
            plant(root, LOADER, b"\x7fELF");
            assert_eq!(version_below(root).as_deref(), Some("2.36"));
            plant(
                root,
                "lib64/libc.so.6",
                b"\x7fELF release version of nothing",
            );
            assert_eq!(version_below(root).as_deref(), Some("(unknown version)"));
            assert_eq!(banner(b" release version 2.41"), Some("2.41".into()));
        }

        #[test]
        #[cfg(target_env = "gnu")]
        fn it_says_of_this_machine_what_this_program_has_got() {
            assert_eq!(version(), crate::glibc::version());
            assert_eq!(has_rseq(), crate::glibc::has_rseq());
        }

        #[test]
        fn sequences_can_be_turned_off() {
            assert!(registers(Some("2.35"), "glibc.malloc.arena_max=1"));
            assert!(!registers(
                Some("2.35"),
                "glibc.malloc.arena_max=1:glibc.pthread.rseq=0"
            ));
            assert!(!registers(Some("2.34"), ""));
            assert!(!registers(None, ""));
        }
    }
}
