//! The slot of this process image in the shared file.
//!
//! ```text
//!   constructor ─► open, map, close ─► claim a slot ─► pid, path of the next malloc ─► count() adds from now on
//! ```
//!
//! T1  The mapping is made once, before `main`, and stays until the process ends: killed or not, what was counted
//!     is in the file.
//! T2  If anything is missing (no variable, no file, wrong size) the library counts nothing and says nothing.
//! T3  No descriptor stays open.
//!
//! Not here: the layout (`base::probe`).

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use skinflint_base::probe::{FILE_BYTES, PATH_BYTES, Page, SLOTS, Slot};
use skinflint_base::{env, sys};

static SLOT: AtomicPtr<Slot> = AtomicPtr::new(core::ptr::null_mut());

/// One call more. Cost: a load, a branch, a locked addition.
#[inline]
pub fn count() {
    // ORDER: Relaxed; set once before there are threads.
    let slot = SLOT.load(Ordering::Relaxed);
    if !slot.is_null() {
        // SAFETY: the mapping stays (T1). ORDER: Relaxed; a count, read after the process has ended.
        unsafe { (*slot).calls.fetch_add(1, Ordering::Relaxed) };
    }
}

/// Called by the loader, once.
///
/// # Safety
/// `envp` is the environment, closed by a null pointer.
unsafe extern "C" fn begin(_argc: c_int, _argv: *const *const c_char, envp: *const *const c_char) {
    // SAFETY: as the caller promises.
    let Some(path) = (unsafe { variable(envp, env::PROBE.name().as_bytes()) }) else {
        return;
    };
    let Some(page) = map(path) else { return };
    // SAFETY: the mapping has the size of a page and stays (T1).
    let page = unsafe { &*page };
    // ORDER: Relaxed; only the number counts.
    let index = page.used.fetch_add(1, Ordering::Relaxed) as usize;
    let slot = &page.slots[index.min(SLOTS - 1)];
    // ORDER: Relaxed; the reader looks after the process has ended.
    slot.pid.store(sys::getpid(), Ordering::Relaxed);
    remember_server(slot);
    // ORDER: Relaxed; there are no threads yet.
    SLOT.store(core::ptr::from_ref(slot).cast_mut(), Ordering::Relaxed);
}

/// The shared file; `None` if it is not as it must be (T2).
fn map(path: &CStr) -> Option<*const Page> {
    // SAFETY: plain calls with a path that ends with a zero byte; the structure is ours.
    let fd = unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        if fd < 0 {
            return None;
        }
        let mut status: libc::stat = core::mem::zeroed();
        if libc::fstat(fd, &mut status) != 0 || status.st_size != FILE_BYTES as i64 {
            libc::close(fd);
            return None;
        }
        fd
    };
    let page = sys::map_shared(fd, FILE_BYTES);
    sys::close(fd);
    (!page.is_null()).then_some(page.cast::<Page>().cast_const())
}

/// Writes which file the next `malloc` is in.
fn remember_server(slot: &Slot) {
    // SAFETY: look-ups of the loader; the structure is ours, its strings live as long as the library they name.
    let name = unsafe {
        let function = libc::dlsym(libc::RTLD_NEXT, c"malloc".as_ptr());
        let mut info: libc::Dl_info = core::mem::zeroed();
        if function.is_null() || libc::dladdr(function.cast::<c_void>(), &mut info) == 0 {
            return;
        }
        if info.dli_fname.is_null() {
            return;
        }
        CStr::from_ptr(info.dli_fname).to_bytes()
    };
    let bytes = name.len().min(PATH_BYTES);
    // SAFETY: the slot was claimed by this process alone (P1), or is the shared last one, whose text is anybody's.
    unsafe {
        core::ptr::copy_nonoverlapping(name.as_ptr(), slot.path.get().cast::<u8>(), bytes);
    }
    // ORDER: Relaxed; the reader looks after the process has ended.
    slot.path_bytes.store(bytes as u32, Ordering::Relaxed);
}

/// The value of a variable. By hand: libc's own list may not be set yet.
///
/// # Safety
/// `envp` is the environment, closed by a null pointer.
unsafe fn variable(envp: *const *const c_char, name: &[u8]) -> Option<&'static CStr> {
    let mut at = envp;
    // SAFETY: the list ends with a null pointer; its strings live as long as the process.
    unsafe {
        while !at.is_null() && !(*at).is_null() {
            let entry = CStr::from_ptr(*at);
            let bytes = entry.to_bytes();
            if bytes.starts_with(name) && bytes.get(name.len()) == Some(&b'=') {
                return CStr::from_bytes_with_nul(&entry.to_bytes_with_nul()[name.len() + 1..])
                    .ok();
            }
            at = at.add(1);
        }
    }
    None
}

/// The list of constructors, in which the loader finds `begin`.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: unsafe extern "C" fn(c_int, *const *const c_char, *const *const c_char) = begin;
