//! Processes that have connected and said nothing yet.
//!
//! ```text
//!   accept ─► hello there already? ─ yes ─► answered
//!                                  └ no ─► waits: our own user and root │ other users: few, the oldest makes room
//! ```
//!
//! V1  A hello is sent right after connecting, so nearly every caller is heard when it is accepted; only silent ones
//!     are kept, each for a bounded time.
//! V2  Silent peers of other users make room for one another, never for those of our own user: any user can connect to
//!     the abstract name, and must not keep a recorded process out.
//!
//! Not here: which callers are served (session.rs).

use std::os::fd::RawFd;
use std::time::Duration;

use crate::server::{Arrival, Caller, Heard};

/// The most silent arrivals of our own user and of root.
const MOST_OWN: usize = 256;
/// The most silent arrivals of other users.
const MOST_STRANGERS: usize = 32;
/// The longest wait for the hello of another user's process.
const PATIENCE: Duration = Duration::from_secs(1);
/// The longest wait for one of our own user's or of root's: on a machine where a process gets no processor for seconds
/// (neato at the lowest priority beside fifteen others, 2026-11-27), what lies between its connecting and its hello takes
/// as long, and after a second it went unrecorded.
const PATIENCE_OWN: Duration = Duration::from_secs(60);

/// The silent arrivals, oldest first.
#[derive(Default)]
pub struct Arrivals {
    own: Vec<Arrival>,
    strangers: Vec<Arrival>,
}

impl Arrivals {
    /// Returns the descriptors, to wait on.
    pub fn fds(&self) -> impl Iterator<Item = RawFd> {
        self.own.iter().chain(&self.strangers).map(Arrival::fd)
    }

    /// Hears a new arrival. Returns its user and its hello if that has come; else keeps it, and closes the oldest of
    /// its kind if there are too many.
    pub fn add(&mut self, arrival: Arrival, is_stranger: bool) -> Option<(u32, Box<Caller>)> {
        let uid = arrival.uid;
        let arrival = match arrival.hear() {
            Heard::Hello(caller) => return Some((uid, caller)),
            Heard::Nonsense => return None,
            Heard::Nothing(arrival) => arrival,
        };
        let (kept, most) = match is_stranger {
            true => (&mut self.strangers, MOST_STRANGERS),
            false => (&mut self.own, MOST_OWN),
        };
        if kept.len() >= most {
            kept.remove(0);
        }
        kept.push(arrival);
        None
    }

    /// Hears all that were silent. Returns those that have spoken; closes those that were silent for too long.
    pub fn hear(&mut self) -> Vec<(u32, Box<Caller>)> {
        let mut callers = Vec::new();
        let kinds = [
            (&mut self.own, PATIENCE_OWN),
            (&mut self.strangers, PATIENCE),
        ];
        for (kept, patience) in kinds {
            for arrival in std::mem::take(kept) {
                let uid = arrival.uid;
                match arrival.hear() {
                    Heard::Hello(caller) => callers.push((uid, caller)),
                    Heard::Nothing(arrival) if arrival.since.elapsed() < patience => {
                        kept.push(arrival);
                    }
                    Heard::Nothing(_) | Heard::Nonsense => {}
                }
            }
        }
        callers
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

    use skinflint_base::ring::{HELLO_MAGIC, Hello};

    use super::*;
    use crate::server::Listener;

    /// Connects to a listener in this folder, at its path.
    fn connect(path: &std::path::Path) -> OwnedFd {
        use std::os::unix::ffi::OsStrExt;
        // SAFETY: plain calls; the address is complete.
        unsafe {
            let mut address: libc::sockaddr_un = std::mem::zeroed();
            address.sun_family = libc::AF_UNIX as libc::sa_family_t;
            let bytes = path.as_os_str().as_bytes();
            for (to, from) in address.sun_path.iter_mut().zip(bytes) {
                *to = *from as libc::c_char;
            }
            let fd = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
            let fd = OwnedFd::from_raw_fd(fd);
            let len = size_of::<libc::sockaddr_un>() as libc::socklen_t;
            assert_eq!(
                libc::connect(fd.as_raw_fd(), (&raw const address).cast(), len),
                0
            );
            fd
        }
    }

    fn say_hello(fd: &OwnedFd) {
        // SAFETY: all-zero is a valid hello, and it is ours.
        unsafe {
            let mut hello: Hello = std::mem::zeroed();
            hello.magic = HELLO_MAGIC;
            let size = size_of::<Hello>();
            let sent = libc::send(fd.as_raw_fd(), (&raw const hello).cast(), size, 0);
            assert_eq!(sent, size as isize);
        }
    }

    #[test]
    fn silent_strangers_keep_no_caller_out() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("s");
        let listener = Listener::bind(&path).expect("a socket");
        let mut arrivals = Arrivals::default();
        let arrive = || {
            let fd = connect(&path);
            let arrival = listener.accept(0).expect("accepted").expect("one");
            (fd, arrival)
        };
        // A caller of our own that is slow to speak, then more silent strangers than are kept.
        let (ours, arrival) = arrive();
        assert!(arrivals.add(arrival, false).is_none());
        let mut silent = Vec::new();
        for _ in 0..300 {
            let (fd, arrival) = arrive();
            assert!(arrivals.add(arrival, true).is_none());
            silent.push(fd);
        }
        assert_eq!(arrivals.fds().count(), 1 + MOST_STRANGERS);
        // A stranger that speaks is heard at once.
        let fd = connect(&path);
        say_hello(&fd);
        let arrival = listener.accept(0).expect("accepted").expect("one");
        assert!(arrivals.add(arrival, true).is_some());
        say_hello(&ours);
        assert_eq!(arrivals.hear().len(), 1);
    }
    #[test]
    fn a_process_of_our_own_may_be_slow_to_speak() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("s");
        let listener = Listener::bind(&path).expect("a socket");
        let mut arrivals = Arrivals::default();
        let mut peers = Vec::new();
        for is_stranger in [false, true] {
            let fd = connect(&path);
            let mut arrival = listener.accept(0).expect("accepted").expect("one");
            let long_ago = arrival.since.checked_sub(Duration::from_secs(20));
            arrival.since = long_ago.expect("a clock that runs for longer");
            assert!(arrivals.add(arrival, is_stranger).is_none());
            peers.push(fd);
        }
        assert!(arrivals.hear().is_empty());
        assert_eq!(arrivals.fds().count(), 1, "the stranger is gone");
        say_hello(&peers[0]);
        assert_eq!(arrivals.hear().len(), 1);
    }
}
