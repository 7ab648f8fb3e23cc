//! The acceptor thread: meets processes over a Unix socket in a folder that nobody can guess.
//!
//! Z1  The reply goes out only after the process (or its new region) is in the drain's queue, so that
//!     nothing it writes is missed.
//! Z2  Who calls is known from the kernel (`SO_PEERCRED`), not from the message.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use skinflint_base::ring::{HELLO_MAGIC, Hello, Welcome};

/// A listening socket.
pub struct Listener(OwnedFd);

/// A caller, waiting for an answer.
pub struct Caller {
    fd: OwnedFd,
    /// Its process id, as we see it.
    pub pid: u32,
    /// What it said.
    pub hello: Hello,
}

fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl Listener {
    /// Listens at `path`; every user may call, since a program may have given up its rights.
    pub fn bind(path: &Path) -> io::Result<Listener> {
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
        for (to, from) in address.sun_path.iter_mut().zip(bytes) {
            *to = *from as libc::c_char;
        }
        // SAFETY: plain calls; the address is complete and of the length given.
        unsafe {
            let socket = owned(libc::socket(
                libc::AF_UNIX,
                libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC,
                0,
            ))?;
            let len = size_of::<libc::sockaddr_un>() as libc::socklen_t;
            if libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) != 0
                || libc::listen(socket.as_raw_fd(), 256) != 0
            {
                return Err(io::Error::last_os_error());
            }
            let text = std::ffi::CString::new(bytes).map_err(io::Error::other)?;
            libc::chmod(text.as_ptr(), 0o666);
            Ok(Listener(socket))
        }
    }

    /// The descriptor, to wait on.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Takes a caller and hears its hello; `None` if it said nothing sensible.
    pub fn accept(&self) -> io::Result<Option<Caller>> {
        // SAFETY: plain calls; every pointer is to a variable of ours of the length given.
        unsafe {
            let null = std::ptr::null_mut();
            let fd = owned(libc::accept4(
                self.fd(),
                null,
                null.cast(),
                libc::SOCK_CLOEXEC,
            ))?;
            let timeout = libc::timeval {
                tv_sec: 1,
                tv_usec: 0,
            };
            libc::setsockopt(
                fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVTIMEO,
                (&raw const timeout).cast(),
                size_of::<libc::timeval>() as libc::socklen_t,
            );
            let mut who = libc::ucred {
                pid: 0,
                uid: 0,
                gid: 0,
            };
            let mut len = size_of::<libc::ucred>() as libc::socklen_t;
            libc::getsockopt(
                fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut who).cast(),
                &mut len,
            );
            let mut hello: Hello = std::mem::zeroed();
            let size = size_of::<Hello>();
            let got = libc::recv(fd.as_raw_fd(), (&raw mut hello).cast(), size, 0);
            let whole = got == size as isize && hello.magic == HELLO_MAGIC && who.pid > 0;
            Ok(whole.then(|| Caller {
                fd,
                pid: who.pid as u32,
                hello,
            }))
        }
    }
}

#[repr(C, align(8))]
struct Control {
    header: libc::cmsghdr,
    fds: [RawFd; 2],
}

impl Caller {
    /// Answers, with the session's page and a region.
    pub fn welcome(self, token: u64, session: RawFd, region: RawFd) {
        let welcome = Welcome {
            magic: HELLO_MAGIC,
            token,
            refused: 0,
        };
        self.send(&welcome, Some([session, region]));
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

    fn send(self, welcome: &Welcome, fds: Option<[RawFd; 2]>) {
        let mut vector = libc::iovec {
            iov_base: std::ptr::from_ref(welcome).cast_mut().cast(),
            iov_len: size_of::<Welcome>(),
        };
        let mut control = Control {
            header: libc::cmsghdr {
                cmsg_len: size_of::<Control>(),
                cmsg_level: libc::SOL_SOCKET,
                cmsg_type: libc::SCM_RIGHTS,
            },
            fds: fds.unwrap_or([-1, -1]),
        };
        // SAFETY: the message leads only to variables of ours, with their true lengths. A caller
        // that has gone is no error of ours.
        unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_iov = &raw mut vector;
            message.msg_iovlen = 1;
            if fds.is_some() {
                message.msg_control = (&raw mut control).cast();
                message.msg_controllen = size_of::<Control>();
            }
            libc::sendmsg(
                self.fd.as_raw_fd(),
                &message,
                libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT,
            );
        }
    }
}

/// A descriptor that becomes readable when the process ends; `None` before Linux 5.3.
pub fn pidfd(pid: u32) -> Option<OwnedFd> {
    // SAFETY: no memory is involved.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    owned(fd as RawFd).ok()
}

/// How the process of a pidfd ended, as Linux 6.15 and later tell anybody who asks: its wait status.
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
    const PIDFD_GET_INFO: libc::c_ulong = 0xc040_ff0b;
    let mut info = Info {
        mask: PIDFD_INFO_EXIT,
        ..Info::default()
    };
    // SAFETY: the structure is of the size that the request's number says.
    let result = unsafe { libc::ioctl(pidfd, PIDFD_GET_INFO, &raw mut info) };
    (result == 0 && info.mask & PIDFD_INFO_EXIT != 0).then_some(info.exit_code)
}

/// Waits until one of the descriptors is readable, or the time is over. Says which are.
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
