//! The files that this program carries in itself, laid out where a process can map them.
//!
//! ```text
//!   build.rs ─► FILES ─► $XDG_CACHE_HOME/skinflint/VERSION-KEY/NAME         (kept from one run to the next)
//!                   ├──► /var/cache/skinflint/VERSION-KEY/NAME               (root's: what it starts may become another user)
//!                   └──► a sealed memfd, /proc/PID/fd/N                      (no such folder: as long as this process)
//! ```
//!
//! C1  A file is used only if this user owns it, no other user can write it, and its bytes have the hash that was
//!     built in. Whatever else lies there under its name is replaced.
//! C2  The folder, and the two that it lies in, belong to this user, and no other can write them; so what has been
//!     checked cannot be exchanged before the loader opens it. Symbolic links in our own folders are not followed.
//! C3  A file appears whole or not at all: it is written under another name and renamed.
//! C4  A memfd is sealed, and is closed in programs that we start; only `exec`, which becomes the program, hands it on
//!     ([`hand_on`]).
//!
//! A memfd's path is of this process, not of `self`: programs that close every descriptor still find the library, as long
//! as this process lives. A process of another user finds neither: what root starts and becomes one maps the libraries out
//! of a folder of root's that all users can read, unless `XDG_CACHE_HOME` names another.
//!
//! Not here: which places are looked at before (installed.rs).

use std::ffi::{CStr, CString, OsString};
use std::fs::{DirBuilder, File as OpenFile, Metadata};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use anyhow::{Context, Result, anyhow, bail};
use sha2::{Digest, Sha256};

/// A file that this program carries.
struct File {
    name: &'static str,
    bytes: usize,
    sha256: [u8; 32],
    zlib: &'static [u8],
}

include!(concat!(env!("OUT_DIR"), "/carried_files.rs"));

/// Files in memory: made once per process, since each costs a descriptor.
static IN_MEMORY: Mutex<Vec<(&str, OwnedFd)>> = Mutex::new(Vec::new());

/// Why the first of them is not in a folder.
static NO_FOLDER: OnceLock<String> = OnceLock::new();

/// Returns whether this program carries its libraries.
#[must_use]
pub fn is_complete() -> bool {
    !FILES.is_empty()
}

/// Returns the names of all files that this program carries.
pub fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|file| file.name)
}

/// Returns a path under which a carried file can be mapped, or nothing if it is not carried.
///
/// # Errors
/// If it can be laid out neither in a folder nor in memory.
pub fn laid_out(name: &str) -> Result<Option<PathBuf>> {
    let file = FILES.iter().find(|file| file.name == name);
    file.map(|file| in_folder_or_memory(file, &own_places()))
        .transpose()
}

fn in_folder_or_memory(file: &'static File, places: &[Place]) -> Result<PathBuf> {
    first(places, |place| in_folder(file, place)).or_else(|no_folder| {
        let why = NO_FOLDER.get_or_init(|| format!("{no_folder:#}"));
        in_memory(file)
            .with_context(|| format!("{} is carried, but cannot be laid out ({why})", file.name))
    })
}

/// Returns why a file that this process laid out is in memory, not in a folder: none can be made, or it is full.
#[must_use]
pub fn why_in_memory() -> Option<&'static str> {
    NO_FOLDER.get().map(String::as_str)
}

/// Has the program that this process becomes inherit what lies in memory (C4).
///
/// # Errors
/// If the kernel refuses.
pub fn hand_on() -> io::Result<()> {
    let held = IN_MEMORY.lock().map_err(|_| io::ErrorKind::Other)?;
    for (_, fd) in held.iter() {
        // SAFETY: C4: a descriptor of ours, which the list owns.
        if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, 0) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// A folder in which ours may lie, and the mode of ours.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Place {
    base: PathBuf,
    mode: libc::mode_t,
}

/// The mode of a folder that only its user reads, and of one that all users read.
const PRIVATE: libc::mode_t = 0o700;
const SHARED: libc::mode_t = 0o755;

fn own_places() -> Vec<Place> {
    // SAFETY: C1: it only reads.
    let is_root = unsafe { libc::geteuid() } == 0;
    places(
        is_root,
        std::env::var_os("XDG_CACHE_HOME"),
        std::env::var_os("HOME"),
    )
}

/// Returns the places to try, the best first. No other user can read root's own folder, and a server that root
/// starts and that becomes another user could map nothing there.
fn places(is_root: bool, xdg: Option<OsString>, home: Option<OsString>) -> Vec<Place> {
    let shared = (is_root && xdg.is_none()).then(|| Place {
        base: "/var/cache".into(),
        mode: SHARED,
    });
    let own = cache_folder(xdg, home).map(|base| Place {
        base,
        mode: PRIVATE,
    });
    shared.into_iter().chain(own).collect()
}

/// Returns what the first place gives that gives something; otherwise why the last one did not.
fn first<T>(places: &[Place], give: impl Fn(&Place) -> Result<T>) -> Result<T> {
    let mut last = anyhow!("neither XDG_CACHE_HOME nor HOME names a folder");
    for place in places {
        match give(place) {
            Ok(given) => return Ok(given),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Returns whether every user can read a file: all folders on the way can be searched, too.
#[must_use]
pub fn is_for_all_users(path: &Path) -> bool {
    let allows = |path: &Path, modes: u32| {
        std::fs::metadata(path).is_ok_and(|found| found.mode() & modes == modes)
    };
    let mut folders = path.ancestors().skip(1);
    // What lies in memory is of this process: its folder in /proc is closed to others, whatever the file's mode.
    allows(path, 0o004) && folders.all(|folder| allows(folder, 0o001))
}

/// Returns the user's folder for what can be made again, as the XDG base directories say: relative paths do not count.
fn cache_folder(xdg: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute =
        |path: Option<OsString>| path.map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || absolute(home).map(|home| home.join(".cache"));
    absolute(xdg).or_else(home)
}

fn in_folder(file: &File, place: &Place) -> Result<PathBuf> {
    let folder = Folder::open(place)?;
    let path = folder.path.join(file.name);
    if !folder.has(file)? {
        folder
            .write(file)
            .with_context(|| path.display().to_string())?;
    }
    Ok(path)
}

/// Our folder, open, so that no name on the way to it is looked up twice (C2).
struct Folder {
    fd: OwnedFd,
    path: PathBuf,
    mode: libc::mode_t,
}

impl Folder {
    /// Opens the folder of this build, and makes it if it is not there.
    fn open(place: &Place) -> Result<Self> {
        let Place { base, mode } = place;
        let shown = base.display();
        if shown.to_string().contains([' ', ':', '$']) {
            bail!("{shown}: LD_PRELOAD cannot name a path with spaces, colons or dollars");
        }
        let made = DirBuilder::new().recursive(true).mode(*mode).create(base);
        made.with_context(|| shown.to_string())?;
        let opened = OpenFile::open(base).with_context(|| shown.to_string())?;
        checked(&opened.metadata()?, libc::S_IWGRP | libc::S_IWOTH)
            .with_context(|| shown.to_string())?;
        let outer = Self {
            fd: opened.into(),
            path: base.clone(),
            mode: *mode,
        };
        let version = format!("{}-{KEY}", env!("CARGO_PKG_VERSION"));
        let folder = outer.inner("skinflint")?.inner(&version)?;
        if folder.is_noexec()? {
            bail!(
                "{}: nothing can be executed there (mounted noexec)",
                folder.path.display()
            );
        }
        Ok(folder)
    }

    /// Opens a folder in this one, of the place's mode whatever the umask.
    fn inner(&self, name: &str) -> Result<Self> {
        let path = self.path.join(name);
        let entry = CString::new(name)?;
        // SAFETY: C2: `fd` is open, and `entry` is a string of C's.
        let made = unsafe { libc::mkdirat(self.fd.as_raw_fd(), entry.as_ptr(), self.mode) };
        let error = io::Error::last_os_error();
        if made != 0 && error.kind() != io::ErrorKind::AlreadyExists {
            return Err(error).with_context(|| path.display().to_string());
        }
        let opened = self.open_at(&entry, libc::O_RDONLY | libc::O_DIRECTORY, 0);
        let opened = opened.with_context(|| path.display().to_string())?;
        let read = opened.metadata()?;
        checked(&read, 0).with_context(|| path.display().to_string())?;
        if read.mode() & 0o7777 != self.mode {
            opened.set_permissions(PermissionsExt::from_mode(self.mode))?;
        }
        Ok(Self {
            fd: opened.into(),
            path,
            mode: self.mode,
        })
    }

    fn open_at(&self, name: &CStr, flags: i32, mode: libc::mode_t) -> io::Result<OpenFile> {
        let flags = flags | libc::O_CLOEXEC | libc::O_NOFOLLOW;
        // SAFETY: C2: `fd` is open, and `name` is a string of C's.
        let fd = unsafe { libc::openat(self.fd.as_raw_fd(), name.as_ptr(), flags, mode) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: C2: just opened, and nothing else has it.
        Ok(unsafe { OpenFile::from_raw_fd(fd) })
    }

    fn is_noexec(&self) -> Result<bool> {
        // SAFETY: C2: a structure of numbers, for which zeros are values.
        let mut file_system: libc::statvfs = unsafe { std::mem::zeroed() };
        // SAFETY: C2: `fd` is open, and the structure is ours to be written.
        if unsafe { libc::fstatvfs(self.fd.as_raw_fd(), &raw mut file_system) } != 0 {
            return Err(io::Error::last_os_error().into());
        }
        Ok(file_system.f_flag & libc::ST_NOEXEC != 0)
    }

    /// Returns whether the file is there as it was built (C1).
    fn has(&self, file: &File) -> Result<bool> {
        // Not blocked by a FIFO under its name.
        let opened = self.open_at(
            &CString::new(file.name)?,
            libc::O_RDONLY | libc::O_NONBLOCK,
            0,
        );
        let Ok(opened) = opened else {
            return Ok(false);
        };
        let found = opened.metadata()?;
        let is_whole = found.is_file() && found.len() == file.bytes as u64;
        // Every user that can reach the folder has to be able to map the file.
        let wanted = self.mode & 0o555;
        if !is_whole
            || checked(&found, libc::S_IWGRP | libc::S_IWOTH).is_err()
            || found.mode() & wanted != wanted
        {
            return Ok(false);
        }
        let mut bytes = Vec::with_capacity(file.bytes);
        opened.take(file.bytes as u64).read_to_end(&mut bytes)?;
        Ok(<[u8; 32]>::from(Sha256::digest(&bytes)) == file.sha256)
    }

    /// Writes the file (C3).
    fn write(&self, file: &File) -> Result<()> {
        let bytes = unpacked(file)?;
        let (name, passing) = (
            CString::new(file.name)?,
            format!(".{}.{}", file.name, std::process::id()),
        );
        let passing = CString::new(passing)?;
        // Of a process that had our number and was killed here.
        self.remove(&passing, 0);
        let mut opened = self.open_at(
            &passing,
            libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL,
            0o700,
        )?;
        let written = opened
            .write_all(&bytes)
            .and_then(|()| opened.set_permissions(PermissionsExt::from_mode(0o755)));
        drop(opened);
        let renamed = written.and_then(|()| {
            self.rename(&passing, &name).or_else(|_| {
                // A folder under the name of a file.
                self.remove(&name, libc::AT_REMOVEDIR);
                self.rename(&passing, &name)
            })
        });
        if renamed.is_err() {
            self.remove(&passing, 0);
        }
        Ok(renamed?)
    }

    fn rename(&self, from: &CStr, to: &CStr) -> io::Result<()> {
        let fd = self.fd.as_raw_fd();
        // SAFETY: C2: `fd` is open, and both are strings of C's.
        match unsafe { libc::renameat(fd, from.as_ptr(), fd, to.as_ptr()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn remove(&self, name: &CStr, flags: i32) {
        // SAFETY: C2: `fd` is open, and `name` is a string of C's.
        unsafe { libc::unlinkat(self.fd.as_raw_fd(), name.as_ptr(), flags) };
    }
}

/// Refuses what another user owns, or may touch by one of `modes`.
fn checked(found: &Metadata, modes: u32) -> Result<()> {
    // SAFETY: C1: it only reads.
    let own = unsafe { libc::geteuid() };
    if found.uid() != own {
        bail!("it belongs to user {}, and this is user {own}", found.uid());
    }
    if found.mode() & modes != 0 {
        bail!("others may write it (mode {:o})", found.mode() & 0o7777);
    }
    Ok(())
}

/// Unpacks a file, and makes sure of it: this program may have been cut or changed.
fn unpacked(file: &File) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(file.bytes);
    let unpacked = flate2::read::ZlibDecoder::new(file.zlib).read_to_end(&mut bytes);
    let is_same = unpacked.is_ok() && <[u8; 32]>::from(Sha256::digest(&bytes)) == file.sha256;
    if !is_same {
        bail!(
            "{}: what this program carries is damaged; install it again",
            file.name
        );
    }
    Ok(bytes)
}

/// Lays a file out in memory (C4).
fn in_memory(file: &'static File) -> Result<PathBuf> {
    let Ok(mut held) = IN_MEMORY.lock() else {
        bail!("a thread failed while it held the list of files in memory");
    };
    let known = held.iter().find(|(name, _)| *name == file.name);
    let number = match known {
        Some((_, fd)) => fd.as_raw_fd(),
        None => {
            let fd = sealed(file.name, &unpacked(file)?)?;
            let number = fd.as_raw_fd();
            held.push((file.name, fd));
            number
        }
    };
    Ok(format!("/proc/{}/fd/{number}", std::process::id()).into())
}

/// Returns whether a path leads to a carried file in memory of the given name.
#[must_use]
pub(crate) fn is_in_memory(path: &Path, name: &str) -> bool {
    let target = path.starts_with("/proc").then(|| std::fs::read_link(path));
    let Some(Ok(target)) = target else {
        return false;
    };
    let shown = target.as_os_str().as_bytes();
    shown.starts_with(format!("/memfd:/{name}").as_bytes())
}

fn sealed(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    // In the list of mappings it then looks like a file: what ends in `/libskinflint.so` is our allocator.
    let name = CString::new(format!("/{name}"))?;
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: C4: `name` is a string of C's.
    let create = |flags| unsafe { libc::memfd_create(name.as_ptr(), flags) };
    // Linux before 6.3 does not know the first; where vm.memfd_noexec is set, the second is refused or of no use.
    let fd = match create(flags | libc::MFD_EXEC) {
        -1 => create(flags),
        fd => fd,
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: C4: just made, and nothing else has it.
    let mut file = unsafe { OpenFile::from_raw_fd(fd) };
    file.write_all(bytes)?;
    let seals = libc::F_SEAL_WRITE | libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
    // SAFETY: C4: `file` is open.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(file.into())
}

#[cfg(test)]
mod tests;
