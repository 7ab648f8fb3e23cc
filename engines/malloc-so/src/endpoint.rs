//! The socket on which `skinflint memory` and `skinflint agent` ask, if SKINFLINT_MEMORY or SKINFLINT_PROFILE says so.
//!
//! ```text
//!   open ─► a hidden thread ─► FOLDER/PID.heap ◄── "measure\n" ── skinflint memory PID
//!              its own table of descriptors       ── "figures\n" JSON ──►      "minimize\n" ─► "done\n" text
//!                                                                              "profile\n" ─► "profile\n" text
//! ```
//!
//! K1  The program does not see it: the thread is no thread of the C library's (`alloc::hidden`), and it has a table of
//!     descriptors of its own. So no number is taken from the program, nothing that it closes is closed here, and no
//!     end of a pipe is held open by us for longer than opening the socket takes.
//! K2  Only the user that runs the program, and root, get answers: the folder is that user's with mode 0700, and the
//!     kernel is asked for the user at the other end.
//! K3  The thread has no thread-local storage and uses none: figures are taken as ASKER.
//! K4  No client can hold it up: a request has 16 bytes and must come within two seconds, an answer must go within two
//!     seconds.
//! K5  A socket of a process that is gone (same number, same user) is replaced; one that answers is not.
//!
//! K6  It has the rights of the thread that began it, and follows none of their changes. So it is not there while the
//!     program changes them ([`leave`], [`come_back`]): it is told through its own socket, or looks within a second where
//!     the program has locked itself out of the folder. Then it opens the socket anew, with the rights of the program.
//!
//! Without the variable none of this runs: the preloaded library has no visible effect. Cost with it: a thread that wakes
//! once a second.
//! Not here: the other end, and its use of the answers (`report`).

use core::cell::UnsafeCell;
use core::ffi::c_char;

use skinflint_alloc as alloc;
use skinflint_alloc::stats::{Snapshot, snapshot_hidden};
use skinflint_base::sync::{AtomicU32, Ordering};
use skinflint_base::sys;

use crate::files::Out;

/// Names are looked up from the working folder, which matters to none that begins with a slash. (aarch64 has these calls
/// only.)
const HERE: u64 = libc::AT_FDCWD as i64 as u64;

/// A socket's name has room for 108 bytes with its end.
const NAME: usize = 108;
/// Bytes of the thread's stack, three times what a debug build takes: a snapshot is some 5 KiB, a buffer on its way out
/// 4 KiB.
const STACK_BYTES: usize = 256 << 10;
/// Longest wait for the other end, in seconds.
const PATIENCE_S: i64 = 2;

struct Folder(UnsafeCell<[u8; NAME]>);
// SAFETY: written by `remember`, before there are threads.
unsafe impl Sync for Folder {}

/// Whether the folder is the one in `/tmp` that is named after the user.
static OF_USER: AtomicU32 = AtomicU32::new(0);
/// Number of threads that want no thread of ours just now (K6).
static HELD: AtomicU32 = AtomicU32::new(0);
/// Whether the thread is to come back.
static LEFT: AtomicU32 = AtomicU32::new(0);
/// Whether a complaint was written: a program may change its rights many times.
static COMPLAINED: AtomicU32 = AtomicU32::new(0);

/// The path of the socket; empty: there is none, or it is named after the user.
static FOLDER: Folder = Folder(UnsafeCell::new([0; NAME]));
static TID: AtomicU32 = AtomicU32::new(0);
static STACK: core::sync::atomic::AtomicUsize = core::sync::atomic::AtomicUsize::new(0);

/// A path that is being put together; a part that does not fit makes it unusable.
struct Name {
    bytes: [u8; NAME],
    used: usize,
    fits: bool,
}

impl Name {
    fn new() -> Name {
        Name {
            bytes: [0; NAME],
            used: 0,
            fits: true,
        }
    }

    fn add(&mut self, text: &[u8]) -> &mut Name {
        for &byte in text {
            // The last byte stays zero.
            match self.bytes.get_mut(self.used) {
                Some(to) if self.used < NAME - 1 => {
                    *to = byte;
                    self.used += 1;
                }
                _ => self.fits = false,
            }
        }
        self
    }

    fn number(&mut self, number: u32) -> &mut Name {
        let mut digits = [0u8; 10];
        let mut begin = digits.len();
        let mut rest = number;
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            begin -= 1;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.add(digits.get(begin..).unwrap_or(&[]))
    }
}

fn call(number: i64, args: [u64; 6]) -> i64 {
    // SAFETY: only used below, each time with numbers, and with pointers to values of the caller's that outlive
    // the call and have the size that the call writes.
    unsafe { sys::syscall(number, args) }
}

fn user() -> u32 {
    call(libc::SYS_geteuid, [0; 6]) as u32
}

/// Returns the text of a C string; empty for null.
///
/// # Safety
/// A C string or null.
unsafe fn text<'a>(value: *const c_char) -> &'a [u8] {
    match value.is_null() {
        true => &[],
        // SAFETY: as the caller promises.
        false => unsafe { core::ffi::CStr::from_ptr(value) }.to_bytes(),
    }
}

/// Notes where the socket is to be. Takes the values of SKINFLINT_MEMORY, XDG_RUNTIME_DIR and SKINFLINT_PROFILE, or null.
/// A profile is there to be asked for: with one, no word on the socket means on.
///
/// # Safety
/// C strings or null; before there are threads.
#[unsafe(link_section = ".text.skinflint_first")]
pub unsafe fn remember(value: *const c_char, runtime: *const c_char, profile: *const c_char) {
    // SAFETY: as the caller promises.
    let (value, runtime, profile) = unsafe { (text(value), text(runtime), text(profile)) };
    let mut name = Name::new();
    match value {
        b"" if profile == b"on" => return remember_on(runtime, name),
        b"" | b"off" => return,
        b"on" => return remember_on(runtime, name),
        folder if folder.first() == Some(&b'/') => name.add(folder),
        // The allocator's options have reported what is wrong with it.
        _ => return,
    };
    keep(&name);
}

/// Notes the folder of this user.
#[unsafe(link_section = ".text.skinflint_first")]
fn remember_on(runtime: &[u8], mut name: Name) {
    if is_folder(runtime) {
        keep(name.add(runtime).add(b"/skinflint"));
    } else {
        OF_USER.store(1, Ordering::Relaxed); // ORDER: one thread
    }
}

/// Keeps the path of a folder.
#[unsafe(link_section = ".text.skinflint_first")]
fn keep(name: &Name) {
    if name.fits {
        // SAFETY: `remember` alone calls, before there are threads.
        unsafe { *FOLDER.0.get() = name.bytes };
    } else {
        complain(b"the folder's name is too long for a socket");
    }
}

/// Reports whether a runtime folder exists: its variable may name one that was never made, as under `su` or in a
/// container. The same rule as `report::endpoint::folder`, so that both ends meet.
fn is_folder(path: &[u8]) -> bool {
    let mut name = Name::new();
    name.add(path);
    if path.first() != Some(&b'/') || !name.fits {
        return false;
    }
    // SAFETY: numbers only; all zero is one.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    let args = [
        HERE,
        name.bytes.as_ptr() as u64,
        (&raw mut stat) as u64,
        0,
        0,
        0,
    ];
    !sys::is_error(call(libc::SYS_newfstatat, args)) && stat.st_mode & libc::S_IFMT == libc::S_IFDIR
}

fn complain(what: &[u8]) {
    // ORDER: a flag that stands alone.
    if COMPLAINED.swap(1, Ordering::Relaxed) != 0 {
        return;
    }
    sys::stderr(b"skinflint: SKINFLINT_MEMORY: ");
    sys::stderr(what);
    sys::stderr(b"; skinflint memory will show less of this process\n");
}

#[unsafe(link_section = ".text.skinflint_first")]
fn folder() -> Name {
    // ORDER: written when there was one thread.
    if OF_USER.load(Ordering::Relaxed) != 0 {
        let mut name = Name::new();
        name.add(b"/tmp/skinflint-").number(user());
        return name;
    }
    // SAFETY: written before there were threads.
    let bytes = unsafe { *FOLDER.0.get() };
    let used = bytes.iter().position(|&byte| byte == 0).unwrap_or(0);
    Name {
        bytes,
        used,
        fits: true,
    }
}

/// Starts the thread, if there is to be one.
#[unsafe(link_section = ".text.skinflint_first")]
pub fn open() {
    if folder().used == 0 {
        return;
    }
    // ORDER: one thread calls: the loader's, or the only one of a fork's child.
    let mut stack = STACK.load(Ordering::Relaxed);
    if stack == 0 {
        stack = sys::map_private(STACK_BYTES) as usize;
        STACK.store(stack, Ordering::Relaxed); // ORDER: as above
    }
    // SAFETY: a mapping of ours that nothing uses and that stays; `main` keeps alloc::hidden.V2 (K3). No CLONE_FILES: K1.
    if stack == 0 || !unsafe { alloc::hidden::begin(0, stack, STACK_BYTES, &TID, main) } {
        complain(b"no thread");
    }
}

/// Starts the thread again in the child of a fork, where it does not run.
pub fn open_again() {
    for word in [&TID, &HELD, &LEFT] {
        word.store(0, Ordering::Relaxed); // ORDER: the child has one thread
    }
    if !alloc::filtered() {
        open();
    }
}

/// Ends the thread, if there is one, until [`come_back`] (K6). Returns once the kernel has it no more, after some three
/// seconds at most.
pub fn leave() {
    // ORDER: the thread looks within a second; the wait below orders.
    HELD.fetch_add(1, Ordering::Relaxed);
    let tid = TID.load(Ordering::Acquire); // ORDER: the kernel's write
    if tid == 0 {
        return;
    }
    LEFT.store(1, Ordering::Relaxed); // ORDER: before `come_back`, by this thread or one that waits with it
    tell();
    let until = sys::monotonic_ns() + 3_000_000_000;
    while TID.load(Ordering::Acquire) == tid && sys::monotonic_ns() < until {
        sys::futex_wait(&TID, tid, 50_000_000);
    }
    // The kernel writes its 0 before it takes the thread out of the process.
    while sys::thread_exists(sys::getpid(), tid) && sys::monotonic_ns() < until {
        core::hint::spin_loop();
    }
}

/// Lets the thread come back, if it was there, once no thread holds it off. Under a filter of system calls it does not.
pub fn come_back() {
    // ORDER: the last one begins it; AcqRel, so that it sees what the others did.
    if HELD.fetch_sub(1, Ordering::AcqRel) == 1
        && LEFT.swap(0, Ordering::AcqRel) != 0
        && !alloc::filtered()
    {
        open();
    }
}

/// Wakes the thread out of its wait for clients.
fn tell() {
    let kind = (libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) as u64;
    let socket = call(libc::SYS_socket, [libc::AF_UNIX as u64, kind, 0, 0, 0, 0]);
    if sys::is_error(socket) {
        return;
    }
    let address = address(&socket_name());
    let size = core::mem::size_of::<libc::sockaddr_un>() as u64;
    let args = [socket as u64, (&raw const address) as u64, size, 0, 0, 0];
    call(libc::SYS_connect, args);
    sys::close(socket as i32);
}

fn address(name: &Name) -> libc::sockaddr_un {
    let mut address = libc::sockaddr_un {
        sun_family: libc::AF_UNIX as u16,
        sun_path: [0; 108],
    };
    for (to, byte) in address.sun_path.iter_mut().zip(name.bytes) {
        *to = byte as c_char;
    }
    address
}

/// Removes the socket's name when the process ends. Sockets that are being opened at this very moment, and those of
/// processes that end otherwise, stay behind: K5, and `skinflint memory` clears them away.
#[unsafe(link_section = ".text.skinflint_first")]
pub fn close() {
    if folder().used > 0 {
        let name = socket_name();
        call(
            libc::SYS_unlinkat,
            [HERE, name.bytes.as_ptr() as u64, 0, 0, 0, 0],
        );
    }
}

fn socket_name() -> Name {
    let mut name = folder();
    name.add(b"/").number(sys::getpid()).add(b".heap");
    name
}

/// Runs the thread.
extern "C" fn main() {
    const TITLE: &[u8] = b"skinflint-endpoint\0";
    call(
        libc::SYS_prctl,
        [libc::PR_SET_NAME as u64, TITLE.as_ptr() as u64, 0, 0, 0, 0],
    );
    match listen() {
        Ok(socket) => {
            // K1: the copies of the program's descriptors are closed, now that nothing more is to be written to them.
            close_all_but(socket);
            serve(socket);
            close();
            sys::close(socket);
        }
        Err(what) => {
            complain(what);
            close_all_but(-1);
        }
    }
}

fn close_all_but(kept: i32) {
    let close = |from: u32, to: u32| {
        if from <= to {
            let args = [u64::from(from), u64::from(to), 0, 0, 0, 0];
            // Kernels before 5.9 do not know it; descriptors are then closed one by one, as far as programs usually go.
            if sys::is_error(call(libc::SYS_close_range, args)) {
                for fd in from..=to.min(65_535) {
                    sys::close(fd as i32);
                }
            }
        }
    };
    match u32::try_from(kept) {
        Ok(kept) => {
            if let Some(below) = kept.checked_sub(1) {
                close(0, below);
            }
            close(kept + 1, u32::MAX);
        }
        Err(_) => close(0, u32::MAX),
    }
}

/// Opens the folder (K2) and the socket (K5).
fn listen() -> Result<i32, &'static [u8]> {
    let path = folder();
    let at = path.bytes.as_ptr() as u64;
    // It may exist already: then it is checked.
    call(libc::SYS_mkdirat, [HERE, at, 0o700, 0, 0, 0]);
    // SAFETY: numbers only; all zero is one.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    let as_it_is = libc::AT_SYMLINK_NOFOLLOW as u64;
    let args = [HERE, at, (&raw mut stat) as u64, as_it_is, 0, 0];
    if sys::is_error(call(libc::SYS_newfstatat, args)) {
        return Err(b"its folder is not there and cannot be made");
    }
    let is_folder = stat.st_mode & libc::S_IFMT == libc::S_IFDIR;
    if !is_folder || stat.st_uid != user() || stat.st_mode & 0o077 != 0 {
        return Err(b"its folder must be this user's alone (mode 0700), and no link");
    }
    let name = socket_name();
    if !name.fits {
        return Err(b"the folder's name is too long for a socket");
    }
    let address = address(&name);
    let kind = (libc::SOCK_STREAM | libc::SOCK_CLOEXEC) as u64;
    let new = || call(libc::SYS_socket, [libc::AF_UNIX as u64, kind, 0, 0, 0, 0]);
    let with = |number: i64, socket: i64| {
        let size = core::mem::size_of::<libc::sockaddr_un>() as u64;
        call(
            number,
            [socket as u64, (&raw const address) as u64, size, 0, 0, 0],
        )
    };
    let socket = new();
    if sys::is_error(socket) {
        return Err(b"no socket");
    }
    if with(libc::SYS_bind, socket) == -i64::from(libc::EADDRINUSE) {
        let probe = new();
        let answer = with(libc::SYS_connect, probe);
        sys::close(probe as i32);
        if answer == 0 {
            return Err(b"another process listens in its place");
        }
        call(
            libc::SYS_unlinkat,
            [HERE, name.bytes.as_ptr() as u64, 0, 0, 0, 0],
        );
        if sys::is_error(with(libc::SYS_bind, socket)) {
            return Err(b"its socket cannot be opened");
        }
    }
    // A socket that could not be bound cannot be listened on, either.
    match call(libc::SYS_listen, [socket as u64, 8, 0, 0, 0, 0]) {
        0 => Ok(socket as i32),
        _ => Err(b"its socket cannot be opened"),
    }
}

fn serve(socket: i32) {
    // ORDER: a look; `leave` waits.
    while HELD.load(Ordering::Relaxed) == 0 {
        if !comes(socket) {
            // The rights were changed past the C library.
            if !alloc::has_no_more_than_the_first_thread() {
                return;
            }
            continue;
        }
        let flags = libc::SOCK_CLOEXEC as u64;
        let peer = call(libc::SYS_accept4, [socket as u64, 0, 0, flags, 0, 0]);
        if sys::is_error(peer) {
            match (-peer) as i32 {
                libc::EINTR | libc::ECONNABORTED => continue,
                // The socket is gone, or there are no descriptors for a long time.
                _ => return,
            }
        }
        answer(peer as i32);
        sys::close(peer as i32);
    }
}

/// Waits for a client, for a second at most (K6).
fn comes(socket: i32) -> bool {
    let mut polled = libc::pollfd {
        fd: socket,
        events: libc::POLLIN,
        revents: 0,
    };
    let second = libc::timespec {
        tv_sec: 1,
        tv_nsec: 0,
    };
    let args = [
        (&raw mut polled) as u64,
        1,
        (&raw const second) as u64,
        0,
        0,
        0,
    ];
    call(libc::SYS_ppoll, args) != 0
}

/// Answers one client (K2, K4).
fn answer(peer: i32) {
    if !is_allowed(peer) {
        return;
    }
    let patience = libc::timeval {
        tv_sec: PATIENCE_S,
        tv_usec: 0,
    };
    for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
        let args = [
            peer as u64,
            libc::SOL_SOCKET as u64,
            option as u64,
            (&raw const patience) as u64,
            core::mem::size_of::<libc::timeval>() as u64,
            0,
        ];
        call(libc::SYS_setsockopt, args);
    }
    let mut request = [0u8; 16];
    let mut used = 0;
    while !request.contains(&b'\n') && used < request.len() {
        let got = sys::read(peer, request.get_mut(used..).unwrap_or(&mut []));
        if got <= 0 {
            return;
        }
        used += got as usize;
    }
    let end = request.iter().position(|&byte| byte == b'\n');
    let mut out = Out::to(peer);
    match request.get(..end.unwrap_or(0)).unwrap_or(&[]) {
        b"measure" => {
            let mut figures = Snapshot::new();
            if snapshot_hidden(&mut figures, true) {
                out.add(b"figures\n");
                alloc::write_json(&figures, |piece| out.add(piece));
            } else {
                out.add(b"no\nnothing has been allocated yet");
            }
        }
        b"minimize" => {
            let gave = alloc::trim_hidden();
            out.add(match gave {
                true => b"done\nthe allocator gave free pages back",
                false => b"done\nthe allocator had nothing to give back",
            });
        }
        b"profile" if !alloc::profile::is_kept() => out.add(
            b"no\nno profile is kept: start it by `skinflint exec --profile`, or with SKINFLINT_PROFILE=on",
        ),
        b"profile" => {
            out.add(b"profile\n");
            // Without memory for a copy nothing follows, which is no profile to the other end.
            alloc::profile::write_hidden(&mut |bytes| out.add(bytes));
        }
        b"gc" | b"cc" => out.add(b"no\nthe allocator collects no garbage"),
        _ => out.add(b"no\na request is measure, profile or minimize"),
    }
    out.flush();
}

fn is_allowed(peer: i32) -> bool {
    let mut who = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut size = core::mem::size_of::<libc::ucred>() as u32;
    let args = [
        peer as u64,
        libc::SOL_SOCKET as u64,
        libc::SO_PEERCRED as u64,
        (&raw mut who) as u64,
        (&raw mut size) as u64,
        0,
    ];
    call(libc::SYS_getsockopt, args) == 0 && (who.uid == user() || who.uid == 0)
}
