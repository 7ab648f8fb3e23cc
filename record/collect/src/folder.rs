//! The folder of a session's sockets: only its user can open it, and it is removed with the session.
//!
//! ```text
//!   /tmp/skinflint-0123456789abcdef   0700
//!     s    recorded programs      ctl    `skinflint ctl`
//! ```
//!
//! F1  A collector that was killed leaves its folder behind. The next one removes it, if it belongs to the same user
//!     and no process listens in it any more; other files than the sockets stay, and so does the folder then. A socket
//!     is there only once it is listened at (`Listener::bind`), so a collector that starts is never taken for a dead one.
//!
//! Not here: the sockets (server.rs, control.rs).

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use skinflint_base::sys;

use crate::server;

/// The folder; removed when dropped.
pub struct Folder(pub PathBuf);

impl Folder {
    /// Makes a folder, and removes those of dead collectors.
    pub fn make() -> io::Result<Folder> {
        let base = std::env::temp_dir();
        sweep(&base);
        let path = base.join(format!("skinflint-{:016x}", random()));
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(|error| {
                let text = format!(
                    "{}: {error}; set TMPDIR to a folder that can be written",
                    path.display()
                );
                io::Error::new(error.kind(), text)
            })?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Makes the folder for the traces of processes that a program starts: `skinflint-NAME-PID`, with a number behind it if
/// there is one of this name.
pub(crate) fn for_others(base: &Path, name: &str, pid: u32) -> io::Result<PathBuf> {
    let name = crate::output::plain_name(name);
    let first = base.join(format!("skinflint-{name}-{pid}"));
    let others = (2..10_000).map(|n| base.join(format!("skinflint-{name}-{pid}.{n}")));
    for path in std::iter::once(first).chain(others) {
        match std::fs::create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            done => return done.map(|()| path),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Removes the folders of dead collectors (F1).
fn sweep(base: &Path) {
    let Ok(entries) = std::fs::read_dir(base) else {
        return;
    };
    // SAFETY: no memory is involved.
    let own = unsafe { libc::geteuid() };
    for path in entries.flatten().map(|entry| entry.path()) {
        let is_dead = is_name_of_ours(&path)
            && std::fs::symlink_metadata(&path)
                .is_ok_and(|about| about.is_dir() && about.uid() == own)
            && server::is_dead(&path.join("s"));
        if is_dead {
            for name in ["s", ".s", "ctl", ".ctl"] {
                let _ = std::fs::remove_file(path.join(name));
            }
            let _ = std::fs::remove_dir(&path);
        }
    }
}

fn is_name_of_ours(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.strip_prefix("skinflint-").is_some_and(|number| {
        number.len() == 16
            && number
                .bytes()
                .all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c))
    })
}

/// Returns 64 random bits from the kernel.
pub(crate) fn random() -> u64 {
    let mut bits = 0u64;
    // SAFETY: eight bytes of ours.
    let got = unsafe { libc::getrandom((&raw mut bits).cast(), 8, 0) };
    if got == 8 {
        bits
    } else {
        sys::monotonic_ns() ^ u64::from(std::process::id()) << 40
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Listener;

    #[test]
    fn folders_of_the_dead_go_and_those_of_the_living_stay() {
        let base = tempfile::tempdir().expect("a folder");
        let folder = |number: u64| {
            let path = base.path().join(format!("skinflint-{number:016x}"));
            std::fs::create_dir(&path).expect("a folder");
            path
        };
        let (dead, alive, begun, filled) = (folder(1), folder(2), folder(3), folder(4));
        drop(Listener::bind(&dead.join("s")).expect("a socket"));
        std::fs::write(dead.join("ctl"), b"").expect("a file");
        let living = Listener::bind(&alive.join("s")).expect("a socket");
        drop(Listener::bind(&filled.join("s")).expect("a socket"));
        std::fs::write(filled.join("precious"), b"").expect("a file");
        let other = base.path().join("skinflint-user");
        std::fs::create_dir(&other).expect("a folder");
        drop(Listener::bind(&other.join("s")).expect("a socket"));
        sweep(base.path());
        assert!(!dead.exists(), "dead");
        assert!(alive.join("s").exists(), "alive");
        assert!(begun.exists(), "no socket yet");
        assert!(filled.join("precious").exists(), "not ours");
        assert!(other.join("s").exists(), "another name");
        drop(living);
    }

    #[test]
    fn each_run_has_a_folder_of_its_own_for_others() {
        let base = tempfile::tempdir().expect("a folder");
        let first = for_others(base.path(), "a/b c", 7).expect("a folder");
        let second = for_others(base.path(), "a/b c", 7).expect("another");
        assert_eq!(first, base.path().join("skinflint-a_b_c-7"));
        assert_eq!(second, base.path().join("skinflint-a_b_c-7.2"));
    }

    #[test]
    fn a_collector_that_starts_is_never_taken_for_a_dead_one() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let base = tempfile::tempdir().expect("a folder");
        let path = |number: usize| base.path().join(format!("{number}"));
        // The one that starts now. ORDER: Relaxed: only a number.
        let now = AtomicUsize::new(0);
        let end = 300;
        let living: Vec<Listener> = std::thread::scope(|scope| {
            let looks = scope.spawn(|| {
                loop {
                    let number = now.load(Ordering::Relaxed); // ORDER: as above
                    if number == end {
                        return;
                    }
                    assert!(!server::is_dead(&path(number)), "it refuses connections");
                }
            });
            let start = |number| {
                now.store(number, Ordering::Relaxed); // ORDER: as above
                Listener::bind(&path(number)).expect("a socket")
            };
            let living = (0..end).map(start).collect();
            now.store(end, Ordering::Relaxed); // ORDER: as above
            looks.join().expect("never dead");
            living
        });
        drop(living);
    }
}
