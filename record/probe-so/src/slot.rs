//! The slot of this process image in the shared file.
//!
//! ```text
//!   constructor ─► open, map, close ─► claim a slot ─► pid, path of the next malloc ─► count() adds from now on
//! ```
//!
//! T1  The mapping is made once, before `main`, and stays until the process ends: the counts are in the file even if
//!     the process is killed.
//! T2  If anything is missing (no variable, no file, wrong size), the library counts nothing and reports nothing.
//! T3  No descriptor stays open.
//! T4  The code of the server, the file that serves `malloc`, is a range of addresses that is known before anything is
//!     counted: a call from inside it is a part of one that was counted. The C library's own calls count as the
//!     program's, even if it serves them itself.
//!
//! Not here: the layout (`base::probe`).

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use skinflint_base::probe::{FILE_BYTES, PATH_BYTES, Page, SLOTS, Slot};
use skinflint_base::{env, sys};

static SLOT: AtomicPtr<Slot> = AtomicPtr::new(core::ptr::null_mut());

/// Counts a call. Cost: a load, a branch, a locked addition.
#[inline]
fn count() {
    // ORDER: Relaxed; set once before there are threads.
    let slot = SLOT.load(Ordering::Relaxed);
    if !slot.is_null() {
        // SAFETY: the mapping stays (T1). ORDER: Relaxed; a count, read after the process has ended.
        unsafe { (*slot).calls.fetch_add(1, Ordering::Relaxed) };
    }
}

/// The first and one past the last address of the file that serves `malloc` (T4); empty if not known.
static SERVER: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
/// Whether calls from there are inner calls: 0 if it is the C library.
static INNER: AtomicUsize = AtomicUsize::new(0);

/// Returns whether an address is in the file that serves `malloc`.
#[inline]
pub fn is_of_the_server(at: usize) -> bool {
    // ORDER: Relaxed; set once before there are threads, and so below.
    (SERVER[0].load(Ordering::Relaxed)..SERVER[1].load(Ordering::Relaxed)).contains(&at)
}

/// Returns whether a function is only a jump through a pointer that leads out of the server, behind one comparison of a word
/// with a small number at most (then the branch behind it must not be taken now). An `operator new[]` may
/// be one that the loader bound to our `operator new`, which counts the call.
///
/// # Safety
/// `function` is a function that the loader found.
#[cfg(target_arch = "x86_64")]
#[inline]
pub unsafe fn leads_elsewhere(function: usize) -> bool {
    // SAFETY: code of a function, which is mapped; no function ends its mapping within its first twenty bytes.
    let code = unsafe { (function as *const [u8; COMPARISON + JUMP]).read_unaligned() };
    let word = |distance: [u8; 4], next: usize| {
        let at = next.wrapping_add_signed(i32::from_le_bytes(distance) as isize);
        // SAFETY: the instruction loads this word.
        unsafe { (at as *const usize).read_unaligned() }
    };
    let (jump, next) = match code {
        // cmp qword ptr [rip + abcd], small; je: not taken
        [
            0x48,
            0x83,
            0x3d,
            a,
            b,
            c,
            d,
            small,
            0x0f,
            0x84,
            _,
            _,
            _,
            _,
            jump @ ..,
        ] => {
            if word([a, b, c, d], function + 8) == small as i8 as usize {
                return false;
            }
            (jump, function + COMPARISON + JUMP)
        }
        [a, b, c, d, e, f, ..] => ([a, b, c, d, e, f], function + JUMP),
    };
    let [0xff, 0x25, a, b, c, d] = jump else {
        return false;
    };
    !is_of_the_server(word([a, b, c, d], next))
}

/// On aarch64 such a jump is not told from other code: an `operator new[]` that leads to another library's `operator new`
/// is counted there and here.
///
/// # Safety
/// None: as on other processors.
#[cfg(target_arch = "aarch64")]
pub unsafe fn leads_elsewhere(_function: usize) -> bool {
    false
}

#[cfg(target_arch = "x86_64")]
/// Bytes of a comparison with a word and a branch, and of a jump through a pointer.
const COMPARISON: usize = 14;
#[cfg(target_arch = "x86_64")]
const JUMP: usize = 6;

/// Counts a call, unless it came from inside the server (T4). Cost: that of `count`, three loads and two branches.
#[inline]
pub fn count_from(from: usize) {
    // ORDER: Relaxed; as above.
    if INNER.load(Ordering::Relaxed) == 0 || !is_of_the_server(from) {
        count();
    }
}

/// Begins to count; the loader calls this once.
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

/// Maps the shared file; `None` if it is not as it must be (T2).
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

/// Writes the path of the file that the next `malloc` is in.
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
        remember_range(function as usize);
        CStr::from_ptr(info.dli_fname).to_bytes()
    };
    let bytes = name.len().min(PATH_BYTES);
    // SAFETY: the slot was claimed by this process alone (base::probe.P1), or is the shared last one, which any process may write.
    unsafe {
        core::ptr::copy_nonoverlapping(name.as_ptr(), slot.path.get().cast::<u8>(), bytes);
    }
    // ORDER: Relaxed; the reader looks after the process has ended.
    slot.path_bytes.store(bytes as u32, Ordering::Relaxed);
}

/// Keeps the range of addresses of the file with this function (T4).
fn remember_range(function: usize) {
    unsafe extern "C" fn look(
        info: *mut libc::dl_phdr_info,
        _: usize,
        wanted: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader's record, valid for this call; `wanted` is the caller's `Range`.
        let (info, wanted) = unsafe { (&*info, &mut *wanted.cast::<Range>()) };
        let (mut low, mut high) = (usize::MAX, 0);
        let mut has = false;
        for index in 0..usize::from(info.dlpi_phnum) {
            // SAFETY: the loader gives as many headers as it says.
            let segment = unsafe { &*info.dlpi_phdr.add(index) };
            if segment.p_type == libc::PT_LOAD {
                let start = (info.dlpi_addr as usize).wrapping_add(segment.p_vaddr as usize);
                let end = start.wrapping_add(segment.p_memsz as usize);
                (low, high) = (low.min(start), high.max(end));
                has |= (start..end).contains(&wanted.function);
            }
        }
        if has {
            (wanted.low, wanted.high) = (low, high);
        }
        c_int::from(has)
    }
    struct Range {
        function: usize,
        low: usize,
        high: usize,
    }
    let mut range = Range {
        function,
        low: 0,
        high: 0,
    };
    // SAFETY: the callback has the type that the loader wants, and `range` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut range).cast::<c_void>()) };
    // This function is the C library's, whatever is preloaded.
    let libc_itself = libc::dl_iterate_phdr as *const () as usize;
    let inner = !(range.low..range.high).contains(&libc_itself);
    // ORDER: Relaxed; there are no threads yet.
    SERVER[0].store(range.low, Ordering::Relaxed);
    // ORDER: Relaxed; as above.
    SERVER[1].store(range.high, Ordering::Relaxed);
    // ORDER: Relaxed; as above.
    INNER.store(usize::from(inner), Ordering::Relaxed);
}

/// Returns the value of a variable. By hand: libc's own list may not be set yet.
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
