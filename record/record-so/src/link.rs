//! Meeting the collector: one message each way over its socket, then only shared memory.
//!
//! K1  No descriptor stays open: a program that closes all of them loses nothing, and one that relies
//!     on their numbers finds them unchanged.
//! K2  Every wait has a time-out; a collector that does not answer means no recording.
//! K3  Only raw system calls are used, so a child of a threaded program may link itself, whatever locks it was
//!     copied with; the first meeting asks the loader which object the allocator is, and later ones know it.

use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};

use skinflint_base::env;
use skinflint_base::ring::{
    HELLO_MAGIC, HELLO_MODULE, HELLO_PROCESS, HELLO_REGION, Hello, LAYOUT, NOTIFIER_BYTES,
    NotifierPage, PLAN_OFFSET, ProcessHeader, REGION_BYTES, SESSION_BYTES, SessionPage, Welcome,
};
use skinflint_base::sys;

use crate::{filters, process, real, slots};

/// The socket's address, read from the environment once.
struct Address(core::cell::UnsafeCell<libc::sockaddr_un>);
// SAFETY: written once, by the first thread, before `KNOWN` is set.
unsafe impl Sync for Address {}

static ADDRESS: Address = Address(core::cell::UnsafeCell::new(libc::sockaddr_un {
    sun_family: libc::AF_UNIX as libc::sa_family_t,
    sun_path: [0; 108],
}));
static READ: AtomicBool = AtomicBool::new(false);
static KNOWN: AtomicBool = AtomicBool::new(false);
/// The number of the signal that makes a mark, or 0.
pub static MARK_SIGNAL: AtomicI32 = AtomicI32::new(0);

/// The path of the object that the allocator lies in; null before the first meeting.
static ALLOCATOR: AtomicPtr<c_char> = AtomicPtr::new(core::ptr::null_mut());

/// The longest environment that is searched, in bytes.
const ENVIRONMENT_BYTES: usize = 4 << 20;

/// Reads our variables from the kernel's copy of the environment: libc's may not be set up yet when
/// the loader allocates for the first time.
fn read_environment() {
    // ORDER: Relaxed; the first event of a process, one thread.
    if READ.swap(true, Ordering::Relaxed) {
        return;
    }
    let path = c"/proc/self/environ";
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: the path is a C string.
    let fd = unsafe {
        let dir = libc::AT_FDCWD as u64;
        sys::syscall(
            libc::SYS_openat,
            [dir, path.as_ptr() as u64, flags as u64, 0, 0, 0],
        )
    };
    if sys::is_error(fd) {
        return;
    }
    let buffer = sys::map_private(ENVIRONMENT_BYTES);
    if !buffer.is_null() {
        let mut len = 0usize;
        while len < ENVIRONMENT_BYTES {
            // SAFETY: the rest of the buffer is ours.
            let n = unsafe {
                let at = buffer.add(len) as u64;
                let room = (ENVIRONMENT_BYTES - len) as u64;
                sys::syscall(libc::SYS_read, [fd as u64, at, room, 0, 0, 0])
            };
            if n <= 0 {
                break;
            }
            len += n as usize;
        }
        // SAFETY: `len` bytes were written.
        let text = unsafe { core::slice::from_raw_parts(buffer, len) };
        text.split(|&byte| byte == 0).for_each(take_variable);
        // SAFETY: nothing of it is kept.
        unsafe { sys::unmap(buffer, ENVIRONMENT_BYTES) };
    }
    sys::close(fd as i32);
}

fn take_variable(entry: &[u8]) {
    if let Some(path) = value_of(entry, &env::SOCKET) {
        if path.is_empty() || path.len() >= 108 {
            return;
        }
        // SAFETY: see `Address`.
        let address = unsafe { &mut *ADDRESS.0.get() };
        for (to, from) in address.sun_path.iter_mut().zip(path) {
            *to = *from as c_char;
        }
        // ORDER: Relaxed; as above.
        KNOWN.store(true, Ordering::Relaxed);
    } else if let Some(digits) = value_of(entry, &env::MARK_SIGNAL) {
        let number = digits.iter().try_fold(0i32, |sum, digit| match digit {
            b'0'..=b'9' => Some((sum * 10 + i32::from(digit - b'0')).min(1000)),
            _ => None,
        });
        // ORDER: Relaxed; as above.
        MARK_SIGNAL.store(
            number.filter(|n| (1..=64).contains(n)).unwrap_or(0),
            Ordering::Relaxed,
        );
    }
}

/// Sets the collector's address, in place of the environment's. Returns false if it is too long, or empty.
pub fn set_address(path: &[u8]) -> bool {
    if path.is_empty() || path.len() >= 108 {
        return false;
    }
    // SAFETY: see `Address`; the thread that attaches is the only one that links.
    let address = unsafe { &mut *ADDRESS.0.get() };
    address.sun_path = [0; 108];
    for (to, from) in address.sun_path.iter_mut().zip(path) {
        *to = *from as c_char;
    }
    // ORDER: Relaxed; as in `read_environment`.
    READ.store(true, Ordering::Relaxed);
    KNOWN.store(true, Ordering::Relaxed);
    true
}

fn value_of<'a>(entry: &'a [u8], variable: &env::Variable) -> Option<&'a [u8]> {
    entry
        .strip_prefix(variable.name().as_bytes())?
        .strip_prefix(b"=")
}

/// A connection; it is closed when dropped.
struct Socket(i32);

impl Drop for Socket {
    fn drop(&mut self) {
        sys::close(self.0);
    }
}

fn connect() -> Option<Socket> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: no memory is involved.
    let fd = unsafe {
        sys::syscall(
            libc::SYS_socket,
            [libc::AF_UNIX as u64, kind as u64, 0, 0, 0, 0],
        )
    };
    if sys::is_error(fd) {
        return None;
    }
    let socket = Socket(fd as i32);
    let timeout = libc::timeval {
        tv_sec: 5,
        tv_usec: 0,
    };
    for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
        // SAFETY: `timeout` is valid for its length.
        unsafe {
            let value = &raw const timeout as u64;
            let len = size_of::<libc::timeval>() as u64;
            let args = [
                fd as u64,
                libc::SOL_SOCKET as u64,
                option as u64,
                value,
                len,
                0,
            ];
            sys::syscall(libc::SYS_setsockopt, args);
        }
    }
    (reach(fd as i32, false) || reach(fd as i32, true)).then_some(socket)
}

/// Connects to the collector: by its path, or by the abstract name of the same text. A process that has given up its
/// user, or its root, cannot connect by the path any more.
fn reach(fd: i32, by_name: bool) -> bool {
    // SAFETY: see `Address`; a copy.
    let mut address = unsafe { *ADDRESS.0.get() };
    let mut len = size_of::<libc::sockaddr_un>();
    if by_name {
        let text = address.sun_path.iter().take_while(|&&c| c != 0).count();
        let room = text.min(address.sun_path.len() - 1);
        address.sun_path.copy_within(..room, 1);
        address.sun_path[0] = 0;
        len = core::mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + room;
    }
    let at = &raw const address as u64;
    // SAFETY: the address is complete, and of the length given.
    let result = unsafe { sys::syscall(libc::SYS_connect, [fd as u64, at, len as u64, 0, 0, 0]) };
    !sys::is_error(result)
}

/// Room for the three descriptors of a welcome, in the layout of `cmsghdr`.
#[repr(C, align(8))]
struct Control {
    header: libc::cmsghdr,
    fds: [c_int; 3],
}

fn exchange(socket: &Socket, hello: &Hello) -> Option<(Welcome, [c_int; 3])> {
    // SAFETY: `hello` is plain data.
    let sent = unsafe {
        let at = &raw const *hello as u64;
        let len = size_of::<Hello>() as u64;
        let flags = libc::MSG_NOSIGNAL as u64;
        sys::syscall(libc::SYS_sendto, [socket.0 as u64, at, len, flags, 0, 0])
    };
    if sent != size_of::<Hello>() as i64 {
        return None;
    }
    let mut welcome = Welcome {
        magic: 0,
        token: 0,
        refused: 0,
    };
    let mut control = Control {
        header: libc::cmsghdr {
            cmsg_len: 0,
            cmsg_level: 0,
            cmsg_type: 0,
        },
        fds: [-1; 3],
    };
    let mut vector = libc::iovec {
        iov_base: (&raw mut welcome).cast(),
        iov_len: size_of::<Welcome>(),
    };
    // SAFETY: all-zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<Control>();
    // SAFETY: the message leads only to our own variables, with their true lengths.
    let received = unsafe {
        let flags = libc::MSG_CMSG_CLOEXEC as u64;
        let at = &raw mut message as u64;
        sys::syscall(libc::SYS_recvmsg, [socket.0 as u64, at, flags, 0, 0, 0])
    };
    let whole = received == size_of::<Welcome>() as i64
        && control.header.cmsg_level == libc::SOL_SOCKET
        && control.header.cmsg_type == libc::SCM_RIGHTS
        && welcome.magic == HELLO_MAGIC
        && welcome.refused == 0;
    whole.then_some((welcome, control.fds))
}

fn map_for_us_alone(fd: c_int, bytes: usize) -> *mut u8 {
    let at = sys::map_shared(fd, bytes);
    if !at.is_null() {
        // SAFETY: the mapping is ours and fresh; a child must not have it (it links itself).
        unsafe { sys::advise(at, bytes, libc::MADV_DONTFORK) };
    }
    at
}

/// The result of a meeting with the collector.
struct Met {
    token: u64,
    session: *mut u8,
    notifier: *mut u8,
    region: *mut u8,
}

/// Returns the path of the object that the allocator lies in, which the loader is asked for once (K3).
fn allocator_path() -> &'static CStr {
    // ORDER: Relaxed for both; found at the first meeting, by the only thread that records.
    let known = ALLOCATOR.load(Ordering::Relaxed);
    if !known.is_null() {
        // SAFETY: of `object_of`, below.
        return unsafe { CStr::from_ptr(known) };
    }
    let path = real::object_of(real::REAL.malloc.get());
    ALLOCATOR.store(path.as_ptr().cast_mut(), Ordering::Relaxed);
    path
}

fn meet(kind: u32, token: u64, (module, fork_ticket): (u64, u64), time_ns: u64) -> Option<Met> {
    let socket = connect()?;
    let mut hello = Hello {
        magic: HELLO_MAGIC,
        layout: LAYOUT,
        kind,
        token,
        module,
        fork_ticket,
        time_ns,
        allocator_path: [0; 256],
        libc_version: [0; 32],
    };
    copy_text(&mut hello.allocator_path, allocator_path().to_bytes());
    // SAFETY: returns a static C string.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    copy_text(&mut hello.libc_version, version.to_bytes());
    let (welcome, [session_fd, notifier_fd, region_fd]) = exchange(&socket, &hello)?;
    // The session page and the notifier are needed once; a child of fork keeps its parent's mappings. A process that is
    // attached to anew gets new ones.
    let session = match process::session() {
        Some(session) => (&raw const *session).cast_mut().cast(),
        None => sys::map_to_read(session_fd, SESSION_BYTES),
    };
    let notifier = match process::notifier() {
        Some(notifier) => (&raw const *notifier).cast_mut().cast(),
        None => sys::map_shared(notifier_fd, NOTIFIER_BYTES),
    };
    let region = map_for_us_alone(region_fd, REGION_BYTES);
    for fd in [session_fd, notifier_fd, region_fd] {
        sys::close(fd);
    }
    let all = !session.is_null() && !notifier.is_null() && !region.is_null();
    all.then_some(Met {
        token: welcome.token,
        session,
        notifier,
        region,
    })
}

/// Returns whether the collector's address is known. Without one, no system call is made but those that the loader has
/// made, too: there may be a filter.
pub fn has_address() -> bool {
    read_environment();
    KNOWN.load(Ordering::Relaxed) // ORDER: Relaxed; one thread, see `begin`.
}

/// Makes the process known, and takes its first region. `time_ns`: its beginning.
pub fn begin(parent: u64, fork_ticket: u64, time_ns: u64) -> bool {
    if !filters::may_meet() {
        return false;
    }
    let Some(met) = meet(HELLO_PROCESS, parent, (0, fork_ticket), time_ns) else {
        return false;
    };
    let region = met.region;
    // SAFETY: a fresh region begins with a zeroed header. ORDER: Relaxed; no thread waits for it.
    let header = unsafe { &*region.cast::<ProcessHeader>() };
    header
        .glibc_fast
        .store(u32::from(real::glibc_headers()), Ordering::Relaxed);
    // ORDER: Release; pairs with the Acquire of `process::header` and `process::session`.
    process::TOKEN.store(met.token, Ordering::Relaxed);
    process::NOTIFIER.store(met.notifier.cast::<NotifierPage>(), Ordering::Release);
    process::SESSION.store(met.session.cast::<SessionPage>(), Ordering::Release);
    process::HEADER.store(region.cast(), Ordering::Release);
    slots::add_region(region);
    true
}

/// Asks for a region with rings for more threads. Returns whether there are more now.
#[cold]
pub fn more_slots() -> bool {
    // ORDER: Relaxed; the token does not change after `begin`.
    let token = process::TOKEN.load(Ordering::Relaxed);
    if !filters::may_meet() {
        return false;
    }
    match meet(HELLO_REGION, token, (0, 0), sys::monotonic_ns()) {
        Some(met) => slots::add_region(met.region),
        None => false,
    }
}

/// A region that was sent for the plan in it; unmapped when dropped.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
pub struct PlanFor {
    /// The library's number.
    pub number: u64,
    region: *mut u8,
}

#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
impl PlanFor {
    /// Returns the first byte of the plan.
    pub fn plan(&self) -> *const u8 {
        // SAFETY: inside of the region.
        unsafe { self.region.add(PLAN_OFFSET) }
    }
}

impl Drop for PlanFor {
    fn drop(&mut self) {
        // SAFETY: mapped by `meet`, and nothing of it is kept.
        unsafe { sys::unmap(self.region, REGION_BYTES) };
    }
}

/// Asks for the plan for a library, by an address in its code. `None` if nothing in it is to be hooked.
#[cold]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
pub fn plan_for(module: u64) -> Option<PlanFor> {
    // ORDER: Relaxed; as in `more_slots`.
    let token = process::TOKEN.load(Ordering::Relaxed);
    if !filters::may_meet() {
        return None;
    }
    let met = meet(HELLO_MODULE, token, (module, 0), sys::monotonic_ns())?;
    Some(PlanFor {
        number: met.token,
        region: met.region,
    })
}

/// Copies a text, cut so that it fits with its final zero.
fn copy_text(field: &mut [u8], text: &[u8]) {
    let room = field.len() - 1;
    for (to, from) in field.iter_mut().zip(text.iter().take(room)) {
        *to = *from;
    }
}
