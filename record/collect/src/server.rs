//! The server: meets processes over Unix sockets, and learns from the kernel which process connects.
//!
//! ```text
//!   /tmp/skinflint-0123456789abcdef/s      0600 in a folder 0700: this user, and root
//!   the same text, as an abstract name     for processes that have given up their user, or their root folder
//!        └─► Arrival: pid, uid ─ hear ─► Caller: hello ─ welcome or refuse
//! ```
//!
//! Z1  The reply goes out only after the process (or its new region) is in the drain's queue, so that
//!     nothing it writes is missed, and after its trace is there (output.Q3).
//! Z2  The caller's identity comes from the kernel (`SO_PEERCRED`), not from the message.
//! Z3  There is no wait for a single process: a silent arrival holds up no other.
//!
//! Not here: which callers are served (session.rs).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use skinflint_base::ring::{HELLO_MAGIC, Hello, Welcome};

use crate::process::lock;

/// The listening sockets: by path, by the abstract name of the same text, and those that came later ([`LateSockets`]).
pub struct Listener {
    sockets: Vec<OwnedFd>,
    late: Arc<LateSockets>,
}

/// Where more sockets come in while others are listened at: of programs that reach none of ours, in a network namespace
/// of their own.
pub struct LateSockets {
    /// Becomes readable when one has come.
    notifier: OwnedFd,
    waiting: Mutex<Vec<OwnedFd>>,
}

impl LateSockets {
    fn make() -> io::Result<LateSockets> {
        // SAFETY: no memory is involved.
        let notifier = owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        Ok(LateSockets {
            notifier,
            waiting: Mutex::default(),
        })
    }

    /// Has a socket listened at, too.
    pub fn add(&self, socket: OwnedFd) {
        lock(&self.waiting).push(socket);
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight bytes of ours.
        unsafe { libc::write(self.notifier.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }
}

/// The connections that the kernel keeps until they are accepted; it takes less where `somaxconn` is less.
const BACKLOG: i32 = 4096;

/// A process that has connected, and said nothing yet.
pub struct Arrival {
    fd: OwnedFd,
    /// Its process id, as we see it.
    pub pid: u32,
    /// The effective user that it had when it connected.
    pub uid: u32,
    /// The time of its acceptance.
    pub since: Instant,
}

/// A process that has said hello, and waits for an answer.
pub struct Caller {
    fd: OwnedFd,
    /// Its process id, as we see it.
    pub pid: u32,
    /// Its hello.
    pub hello: Hello,
}

fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Returns a socket's address: a path, or with `by_name` the abstract name of the same text.
fn address(path: &Path, by_name: bool) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    let bytes = path.as_os_str().as_bytes();
    // SAFETY: all-zero is a valid sockaddr_un.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    if bytes.len() >= address.sun_path.len() {
        let text = format!(
            "{}: too long for a socket; set TMPDIR to a shorter folder",
            path.display()
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let to = address.sun_path.iter_mut().skip(usize::from(by_name));
    for (to, from) in to.zip(bytes) {
        *to = *from as libc::c_char;
    }
    let len = if by_name {
        std::mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + bytes.len()
    } else {
        size_of::<libc::sockaddr_un>()
    };
    Ok((address, len as libc::socklen_t))
}

fn listen(path: &Path, by_name: bool) -> io::Result<OwnedFd> {
    let (address, len) = address(path, by_name)?;
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: plain calls; the address is complete and of the length given.
    unsafe {
        let socket = owned(libc::socket(libc::AF_UNIX, kind, 0))?;
        if libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) != 0
            || libc::listen(socket.as_raw_fd(), BACKLOG) != 0
        {
            return Err(io::Error::last_os_error());
        }
        Ok(socket)
    }
}

/// Returns whether a socket's path exists and no process listens at it any more.
pub fn is_dead(path: &Path) -> bool {
    let Ok((address, len)) = address(path, false) else {
        return false;
    };
    // SAFETY: as in `listen`.
    unsafe {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let Ok(socket) = owned(libc::socket(libc::AF_UNIX, kind, 0)) else {
            return false;
        };
        libc::connect(socket.as_raw_fd(), (&raw const address).cast(), len) != 0
            && io::Error::last_os_error().raw_os_error() == Some(libc::ECONNREFUSED)
    }
}

impl Listener {
    /// Listens at `path`, in a folder that only the user can open, and at the abstract name. The path exists only once
    /// it is listened at: another collector takes a socket that refuses connections for a dead one's, and removes it.
    pub fn bind(path: &Path) -> io::Result<Listener> {
        use std::os::unix::fs::PermissionsExt;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let hidden = path.with_file_name(format!(".{name}"));
        let by_path = listen(&hidden, false)?;
        std::fs::set_permissions(&hidden, std::fs::Permissions::from_mode(0o600))?;
        std::fs::rename(&hidden, path)?;
        Ok(Listener {
            sockets: vec![by_path, listen(path, true)?],
            late: Arc::new(LateSockets::make()?),
        })
    }

    /// Returns where more sockets come in.
    pub fn late_sockets(&self) -> Arc<LateSockets> {
        Arc::clone(&self.late)
    }

    /// Returns the descriptors, to wait on; the last says that more have come in.
    pub fn fds(&self) -> Vec<RawFd> {
        let sockets = self.sockets.iter().chain([&self.late.notifier]);
        sockets.map(AsRawFd::as_raw_fd).collect()
    }

    /// Returns the number of sockets.
    pub fn count(&self) -> usize {
        self.sockets.len()
    }

    /// Listens at what has come in, too.
    pub fn take_late(&mut self) {
        let mut count = [0u8; 8];
        // SAFETY: eight bytes of ours.
        unsafe {
            libc::read(
                self.late.notifier.as_raw_fd(),
                count.as_mut_ptr().cast(),
                count.len(),
            )
        };
        self.sockets.append(&mut lock(&self.late.waiting));
    }

    /// Accepts a connection at one of the sockets; `None` if there is none, or the kernel does not say whose it is.
    pub fn accept(&self, which: usize) -> io::Result<Option<Arrival>> {
        // SAFETY: plain calls; every pointer is to a variable of ours of the length given.
        unsafe {
            let null = std::ptr::null_mut();
            let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
            let fd = libc::accept4(self.sockets[which].as_raw_fd(), null, null.cast(), flags);
            let fd = match owned(fd) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                fd => fd?,
            };
            let mut who = libc::ucred {
                pid: 0,
                uid: u32::MAX,
                gid: u32::MAX,
            };
            let mut len = size_of::<libc::ucred>() as libc::socklen_t;
            libc::getsockopt(
                fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut who).cast(),
                &mut len,
            );
            Ok((who.pid > 0).then(|| Arrival {
                fd,
                pid: who.pid as u32,
                uid: who.uid,
                since: Instant::now(),
            }))
        }
    }
}

/// The message that an arrival has sent.
pub enum Heard {
    /// Nothing yet.
    Nothing(Arrival),
    /// Something that is not a hello.
    Nonsense,
    /// Its hello.
    Hello(Box<Caller>),
}

impl Arrival {
    /// Returns the descriptor, to wait on.
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Reads its hello, if it has come (Z3).
    pub fn hear(self) -> Heard {
        // SAFETY: all-zero is a valid Hello; the call writes at most its size.
        unsafe {
            let mut hello: Hello = std::mem::zeroed();
            let size = size_of::<Hello>();
            let got = libc::recv(self.fd(), (&raw mut hello).cast(), size, 0);
            if got < 0 && io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock {
                return Heard::Nothing(self);
            }
            if got != size as isize || hello.magic != HELLO_MAGIC {
                return Heard::Nonsense;
            }
            Heard::Hello(Box::new(Caller {
                fd: self.fd,
                pid: self.pid,
                hello,
            }))
        }
    }
}

#[repr(C, align(8))]
struct Control {
    header: libc::cmsghdr,
    fds: [RawFd; 3],
}

/// The bytes of `Control` that the kernel reads: without the final padding, which it would take for a descriptor.
const CONTROL_BYTES: usize = std::mem::offset_of!(Control, fds) + size_of::<[RawFd; 3]>();

impl Caller {
    /// Answers, with the session's page, the notifier and a region.
    pub fn welcome(self, token: u64, fds: [RawFd; 3]) {
        let welcome = Welcome {
            magic: HELLO_MAGIC,
            token,
            refused: 0,
        };
        self.send(&welcome, Some(fds));
    }

    /// Answers that nothing will be recorded.
    pub fn refuse(self, error: i32) {
        let welcome = Welcome {
            magic: HELLO_MAGIC,
            token: 0,
            refused: error as u64,
        };
        self.send(&welcome, None);
    }

    fn send(self, welcome: &Welcome, fds: Option<[RawFd; 3]>) {
        let mut vector = libc::iovec {
            iov_base: std::ptr::from_ref(welcome).cast_mut().cast(),
            iov_len: size_of::<Welcome>(),
        };
        // musl's structure has padding among its fields, and its lengths have another type.
        // SAFETY: numbers, for which zeros are values.
        let mut header: libc::cmsghdr = unsafe { std::mem::zeroed() };
        header.cmsg_len = CONTROL_BYTES as _;
        header.cmsg_level = libc::SOL_SOCKET;
        header.cmsg_type = libc::SCM_RIGHTS;
        let mut control = Control {
            header,
            fds: fds.unwrap_or([-1; 3]),
        };
        // SAFETY: the message leads only to variables of ours, with their true lengths. A caller
        // that has gone is not our error.
        unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_iov = &raw mut vector;
            message.msg_iovlen = 1;
            if fds.is_some() {
                message.msg_control = (&raw mut control).cast();
                message.msg_controllen = size_of::<Control>() as _;
            }
            libc::sendmsg(
                self.fd.as_raw_fd(),
                &message,
                libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT,
            );
        }
    }
}

/// Returns a descriptor that becomes readable when the process ends; `None` before Linux 5.3.
pub fn pidfd(pid: u32) -> Option<OwnedFd> {
    // SAFETY: no memory is involved.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    owned(fd as RawFd).ok()
}

/// Returns the wait status of the process of a pidfd, which Linux 6.15 and later tell any process that asks.
pub fn exit_status(pidfd: RawFd) -> Option<i32> {
    #[repr(C)]
    #[derive(Default)]
    struct Info {
        mask: u64,
        cgroup: u64,
        ids: [u32; 11],
        exit_code: i32,
    }
    const PIDFD_INFO_EXIT: u64 = 1 << 3;
    const PIDFD_GET_INFO: u32 = 0xc040_ff0b;
    let mut info = Info {
        mask: PIDFD_INFO_EXIT,
        ..Info::default()
    };
    // SAFETY: the structure is of the size that the request's number says.
    let result = unsafe { libc::ioctl(pidfd, PIDFD_GET_INFO as _, &raw mut info) };
    (result == 0 && info.mask & PIDFD_INFO_EXIT != 0).then_some(info.exit_code)
}

/// Waits until one of the descriptors is readable, or the time is over. Returns which are readable.
pub fn poll(fds: &[RawFd], timeout_ms: i32) -> Vec<bool> {
    let mut polled: Vec<libc::pollfd> = fds
        .iter()
        .map(|&fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    // SAFETY: the slice is ours.
    unsafe {
        libc::poll(
            polled.as_mut_ptr(),
            polled.len() as libc::nfds_t,
            timeout_ms,
        )
    };
    polled.iter().map(|entry| entry.revents != 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_child_is_seen_with_its_status() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "exit 7"])
            .spawn()
            .expect("sh");
        let fd = pidfd(child.id()).expect("pidfd_open");
        assert_eq!(poll(&[fd.as_raw_fd()], 10_000), [true]);
        assert_eq!(child.wait().expect("wait").code(), Some(7));
        if let Some(status) = exit_status(fd.as_raw_fd()) {
            assert_eq!(status, 7 << 8);
        }
    }
}
