//! Loads the recorder into a program, and calls it.
//!
//! ```text
//!   the program sees the same file? ─ yes ─► dlopen(path)
//!                                   └ no ──► memfd_create there, written from here ─► dlopen(/proc/self/…/fd/N) ─► close
//!   another network namespace? ──────────► socket, bind, listen there; the descriptor comes here ─► close
//! ```
//!
//! B1  Nothing is left in the program's file system, and no descriptor in the program.
//! B2  Functions of the recorder are found by its own tables, not by `dlsym`. A recorder that is there already, by
//!     whatever path, is not loaded once more.
//! B3  A library's name is compared by glibc before anything is opened; ours is one that no program would use.
//!
//! Not here: whether a call may be made (fit.rs, filters.rs).

use std::fs::OpenOptions;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::asked::Asked;
use super::calls::{self, Calls};
use super::memory::Memory;
use super::modules::{Module, Modules};

/// Functions by which a library is loaded.
pub(super) struct Loading {
    dlopen: u64,
    mode: u64,
    dlerror: Option<u64>,
    /// The function asked for, of a recorder that is there already.
    entry: Option<u64>,
}

/// The name by which the copy is mapped; the collector knows memory of this beginning as the recorder's.
const COPY: &[u8] = b"skinflint-libskinflint_record.so";
const RTLD_NOW: u64 = 2;
/// `__libc_dlopen_mode` wants to be told that it is a program that asks.
const OF_A_PROGRAM: u64 = 0x8000_0000;
const MFD_CLOEXEC: u64 = 1;
const MFD_EXEC: u64 = 16;

impl Loading {
    pub(super) fn of(modules: &Modules, function: &str) -> Option<Loading> {
        let entry = modules
            .0
            .iter()
            .find_map(|module| module.function(function));
        let inner = || {
            modules
                .function("__libc_dlopen_mode")
                .map(|at| (at, RTLD_NOW | OF_A_PROGRAM))
        };
        // Before glibc 2.34 dlopen lies in a library of its own, which may not be loaded.
        let named = modules
            .0
            .iter()
            .filter(|module| module.function("skinflint_attach").is_none());
        let dlopen = named
            .filter(|module| !module.is_program)
            .find_map(|module| module.function("dlopen"));
        let (dlopen, mode) = dlopen.map(|at| (at, RTLD_NOW)).or_else(inner)?;
        Some(Loading {
            dlopen,
            mode,
            dlerror: modules.function("dlerror"),
            entry,
        })
    }

    /// Calls the function that is asked for, with the recorder loaded. Returns what it returns.
    pub(super) fn run(
        &self,
        calls: &mut Calls<'_>,
        memory: &Memory,
        asked: &Asked<'_>,
    ) -> Result<i64> {
        let entry = match self.entry {
            Some(entry) => entry,
            None if asked.is_to_leave() => bail!("the recorder is not in it any more"),
            None => self.load(calls, memory, asked)?,
        };
        if let Some(sockets) = asked.elsewhere {
            sockets.add(listener(calls, asked)?);
        }
        let socket = calls.text(asked.socket.as_os_str().as_bytes())?;
        let result = calls.call(entry, &[socket], asked.patience)?;
        Ok(i64::from(result as u32 as i32))
    }

    fn load(&self, calls: &mut Calls<'_>, memory: &Memory, asked: &Asked<'_>) -> Result<u64> {
        let mut handle = 0;
        if is_seen_there(asked.pid, asked.library) {
            let path = calls.text(asked.library.as_os_str().as_bytes())?;
            handle = calls.call(self.dlopen, &[path, self.mode], calls::PATIENCE)?;
        }
        // Also if its user may not read the file.
        if handle == 0 {
            handle = self.load_copy(calls, memory, asked)?;
        }
        // What glibc returns is its link map.
        let (bias, dynamic) = (memory.word(handle), memory.word(handle + 16));
        let module = bias
            .zip(dynamic)
            .and_then(|(bias, dynamic)| Module::read(memory, bias, dynamic, None));
        let entry = module.and_then(|module| module.function(asked.function));
        entry.context("the recorder was loaded, and has not the function that is asked for: it is of another version")
    }

    /// Hands the library over as memory, without a path (B1).
    fn load_copy(&self, calls: &mut Calls<'_>, memory: &Memory, asked: &Asked<'_>) -> Result<u64> {
        let library =
            std::fs::read(asked.library).with_context(|| asked.library.display().to_string())?;
        let name = calls.text(COPY)?;
        let mut made = calls.system(libc::SYS_memfd_create, &[name, MFD_CLOEXEC | MFD_EXEC])?;
        if made
            .as_ref()
            .is_err_and(|error| error.raw_os_error() == Some(libc::EINVAL))
        {
            made = calls.system(libc::SYS_memfd_create, &[name, MFD_CLOEXEC])?;
        }
        let fd = made.context("it cannot make memory for the recorder (memfd_create)")?;
        let written = (|| {
            let path = format!("/proc/{}/fd/{fd}", asked.pid);
            OpenOptions::new()
                .write(true)
                .open(path)?
                .write_all(&library)
        })();
        let handle = match &written {
            Ok(()) => {
                let path = calls.text(format!("/proc/self/task/../fd/{fd}").as_bytes())?;
                calls.call(self.dlopen, &[path, self.mode], calls::PATIENCE)?
            }
            Err(_) => 0,
        };
        let why = match handle {
            0 if written.is_ok() => self.reason(calls, memory),
            _ => String::new(),
        };
        let _ = calls.system(libc::SYS_close, &[fd])?;
        written.context("the recorder cannot be written into its memory")?;
        if handle == 0 {
            bail!("it cannot load the recorder: {why}; it needs /proc in its root folder");
        }
        Ok(handle)
    }

    /// Returns what the loader says of the last failure.
    fn reason(&self, calls: &mut Calls<'_>, memory: &Memory) -> String {
        let text = self
            .dlerror
            .and_then(|dlerror| calls.call(dlerror, &[], calls::PATIENCE).ok());
        let text = text.filter(|at| *at != 0).and_then(|at| memory.text(at));
        text.unwrap_or_else(|| "the loader does not say why".into())
    }
}

/// Whether a process finds the very same file at this path.
fn is_seen_there(pid: u32, path: &Path) -> bool {
    let inside =
        PathBuf::from(format!("/proc/{pid}/root")).join(path.strip_prefix("/").unwrap_or(path));
    let file = |path: &Path| {
        std::fs::metadata(path)
            .ok()
            .map(|file| (file.dev(), file.ino()))
    };
    // What is ours alone may be gone when it is needed.
    !path.starts_with("/proc") && file(path).is_some() && file(path) == file(&inside)
}

/// Makes a socket that listens in the program's network namespace, at the abstract name that is the session's path
/// there, and takes it from the program.
fn listener(calls: &mut Calls<'_>, asked: &Asked<'_>) -> Result<OwnedFd> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let made = calls.system(libc::SYS_socket, &[libc::AF_UNIX as u64, kind as u64, 0])?;
    let fd = made.context("it is in another network namespace, and cannot make a socket there")?;
    let family = (libc::AF_UNIX as u16).to_ne_bytes();
    let address = [&family[..], b"\0", asked.socket.as_os_str().as_bytes()].concat();
    let at = calls.bytes(&address)?;
    let taken = match calls.system(libc::SYS_bind, &[fd, at, address.len() as u64])? {
        Ok(_) => match calls.system(libc::SYS_listen, &[fd, 4096])? {
            Ok(_) => taken(asked.pid, fd),
            Err(error) => Err(error),
        },
        Err(error) => Err(error),
    };
    let _ = calls.system(libc::SYS_close, &[fd])?;
    taken.context("the socket in its network namespace cannot be used (this needs Linux 5.6)")
}

/// Gets a descriptor of another process, which it keeps.
fn taken(pid: u32, fd: u64) -> std::io::Result<OwnedFd> {
    let owned = |fd: libc::c_long| match fd {
        // SAFETY: a fresh descriptor that has no other owner.
        0.. => Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) }),
        _ => Err(std::io::Error::last_os_error()),
    };
    // SAFETY: no memory is involved.
    let process = owned(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    // SAFETY: as above.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0) })
}
