//! The objects that hold the code that stacks run through.
//!
//! D1  Objects are reported when a frame first lies in one, found by `_dl_find_object`, which takes
//!     no lock; the collector reads the others (old glibc) from `/proc`.
//! D2  After `dlclose` the objects that are gone are reported, all rules are forgotten, and every
//!     thread forgets its last stack (epoch).

use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use skinflint_base::loader;
use skinflint_base::ring::{MODULE_PATH_BYTES, tag, word};
use skinflint_unwind::{Finder, Made, RuleCache};

use crate::emit;
use crate::frames;
use crate::java;
use crate::process;
use crate::real;
use crate::state::ThreadState;

/// The size of the table of rules, in bytes.
pub const RULES_BYTES: usize = size_of::<RuleCache>();

static RULES: AtomicPtr<RuleCache> = AtomicPtr::new(core::ptr::null_mut());
struct Find(core::cell::UnsafeCell<Finder>);
// SAFETY: written once by `prepare`, before any thread captures a stack.
unsafe impl Sync for Find {}
// SAFETY: no function at all is a valid choice.
static FINDER: Find = Find(core::cell::UnsafeCell::new(unsafe { Finder::new(None) }));

/// `struct dl_find_object` of glibc 2.35.
#[repr(C)]
struct Found {
    flags: u64,
    start: *mut c_void,
    end: *mut c_void,
    link_map: *const LinkMap,
    eh_frame: *mut c_void,
    reserved: [u64; 7],
}

/// The public head of glibc's `struct link_map`.
#[repr(C)]
struct LinkMap {
    bias: u64,
    name: *const c_char,
    dynamic: *const c_void,
    next: *const c_void,
    previous: *const c_void,
}

type FindObject = unsafe extern "C" fn(*mut c_void, *mut Found) -> core::ffi::c_int;
static FIND_OBJECT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

const MAX_KNOWN: usize = 1024;
struct Known {
    start: AtomicU64,
    end: AtomicU64,
    link_map: AtomicU64,
}
static KNOWN: [Known; MAX_KNOWN] = [const {
    Known {
        start: AtomicU64::new(0),
        end: AtomicU64::new(0),
        link_map: AtomicU64::new(0),
    }
}; MAX_KNOWN];
static KNOWN_COUNT: AtomicUsize = AtomicUsize::new(0);
static WRITING: AtomicBool = AtomicBool::new(false);

/// Prepares for captures; the first thread calls it once. Returns false if there is no memory.
pub fn prepare() -> bool {
    // ORDER: Relaxed; one thread, and others begin after it.
    if RULES.load(Ordering::Relaxed).is_null() {
        let rules = process::map_own(size_of::<RuleCache>());
        if rules.is_null() {
            return false;
        }
        RULES.store(rules.cast(), Ordering::Relaxed);
        // Looked up behind us: only glibc has one.
        let find = real::look_up(c"_dl_find_object");
        // ORDER: Relaxed; one thread, see `prepare`.
        FIND_OBJECT.store(find, Ordering::Relaxed);
        // SAFETY: see `Find`.
        unsafe { *FINDER.0.get() = Finder::resolve().knowing(made) };
    }
    // ORDER: Relaxed; a child of fork reports its objects anew.
    KNOWN_COUNT.store(0, Ordering::Relaxed);
    WRITING.store(false, Ordering::Relaxed);
    true
}

/// Returns the rules compiled so far.
#[inline(always)]
pub fn rules() -> &'static RuleCache {
    // SAFETY: mapped by `prepare` before the first capture, never unmapped. ORDER: Relaxed; as there.
    unsafe { &*RULES.load(Ordering::Relaxed) }
}

/// Forgets the rules of code in memory that is about to be unmapped: code that a runtime made may lie there.
#[inline]
pub fn unmapping(addr: u64, len: u64) {
    // ORDER: Relaxed; as in `rules`.
    let rules = RULES.load(Ordering::Relaxed);
    if !rules.is_null() {
        // SAFETY: never unmapped once it is set.
        unsafe { &*rules }.unmapping(addr, len);
    }
}

/// Returns the finder of unwind tables.
#[inline(always)]
pub fn finder() -> &'static Finder {
    // SAFETY: see `Find`.
    unsafe { &*FINDER.0.get() }
}

/// Returns how the frame of code outside of modules lies. The unwinder asks.
fn made(pc: u64) -> Option<Made> {
    if java::begins() {
        // Other threads have met such code before, and guessed.
        rules().clear();
        process::new_epoch();
    }
    java::made(pc)
}

fn object_at(pc: u64) -> Option<Found> {
    // ORDER: Relaxed; set once by `prepare`.
    let find = FIND_OBJECT.load(Ordering::Relaxed);
    if find.is_null() {
        return None;
    }
    // SAFETY: the symbol has this type since glibc 2.35; all-zero is a valid Found.
    unsafe {
        let find: FindObject = core::mem::transmute(find);
        let mut found: Found = core::mem::zeroed();
        let missing = find(pc as *mut c_void, &mut found);
        (missing == 0 && !found.link_map.is_null()).then_some(found)
    }
}

/// Reports the objects that the newest stack runs through and that were not reported yet. Called after
/// rules were compiled, which is seldom.
///
/// # Safety
/// Between `enter` and `leave`, RECORDING.
#[cold]
#[inline(never)]
pub unsafe fn notice(state: *mut ThreadState, frames: impl Iterator<Item = u64>) {
    // SAFETY: state.H1.
    unsafe {
        (*state).rules_seen = (&raw const (*state).stack.stats.rules_made).read();
        // ORDER: Acquire/Release; a try-lock: a thread that finds it held leaves the report to the collector.
        if WRITING.swap(true, Ordering::Acquire) {
            return;
        }
        for pc in frames {
            if !is_known(pc) {
                report(state, pc);
            }
        }
        // ORDER: Release; ends the try-lock, pairs with the Acquire of its swap.
        WRITING.store(false, Ordering::Release);
    }
}

fn is_known(pc: u64) -> bool {
    // ORDER: Relaxed; entries are written under WRITING, which the caller holds.
    let count = KNOWN_COUNT.load(Ordering::Relaxed).min(MAX_KNOWN);
    KNOWN[..count].iter().any(|known| {
        known.start.load(Ordering::Relaxed) <= pc && pc < known.end.load(Ordering::Relaxed)
    })
}

/// # Safety
/// As for `notice`, holding WRITING.
unsafe fn report(state: *mut ThreadState, pc: u64) {
    let Some(found) = object_at(pc) else { return };
    // ORDER: Relaxed; WRITING is held.
    let count = KNOWN_COUNT.load(Ordering::Relaxed);
    if count < MAX_KNOWN {
        KNOWN[count]
            .start
            .store(found.start as u64, Ordering::Relaxed);
        KNOWN[count].end.store(found.end as u64, Ordering::Relaxed);
        // ORDER: Relaxed; WRITING is held.
        KNOWN[count]
            .link_map
            .store(found.link_map as u64, Ordering::Relaxed);
        // ORDER: Relaxed; WRITING is held.
        KNOWN_COUNT.store(count + 1, Ordering::Relaxed);
    }
    // SAFETY: a frame of this thread lies in the object, so it stays loaded meanwhile, and so do
    // its link map and its headers.
    unsafe {
        let module = &*found.link_map.cast::<loader::LinkMap>();
        frames::met(module);
        java::met(module);
        let name = (*found.link_map).name;
        let path = if name.is_null() {
            c""
        } else {
            CStr::from_ptr(name)
        };
        let (build_id, id_len) = build_id(found.start as u64);
        let path = path.to_bytes();
        let path = &path[..path.len().min(MODULE_PATH_BYTES)];
        let mut words = [0u64; 7 + MODULE_PATH_BYTES / 8];
        words[0] = found.start as u64;
        words[1] = found.end as u64;
        words[2] = (*found.link_map).bias;
        words[3..7].copy_from_slice(&build_id);
        for (word, bytes) in words[7..].iter_mut().zip(path.chunks(8)) {
            let mut buffer = [0u8; 8];
            buffer[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(buffer);
        }
        let first = word(tag::MODULE, id_len as u8, path.len() as u64);
        emit::note(state, first, &words[..7 + path.len().div_ceil(8)]);
    }
}

/// Returns the build id of the object whose ELF header is at `start`: four words, and the number of its bytes.
///
/// # Safety
/// The object's first page is mapped, as for every object that the loader mapped.
unsafe fn build_id(start: u64) -> ([u64; 4], usize) {
    const NONE: ([u64; 4], usize) = ([0; 4], 0);
    // SAFETY: the loader maps the headers with the first segment; lengths are bounded below.
    unsafe {
        let header = &*(start as *const libc::Elf64_Ehdr);
        if header.e_ident[..4] != *b"\x7fELF" || header.e_phentsize != 56 {
            return NONE;
        }
        if header.e_phoff + u64::from(header.e_phnum) * 56 > 4096 {
            return NONE;
        }
        let programs = (start + header.e_phoff) as *const libc::Elf64_Phdr;
        let mut first_vaddr = None;
        for index in 0..usize::from(header.e_phnum) {
            let program = &*programs.add(index);
            if program.p_type == libc::PT_LOAD && first_vaddr.is_none() {
                first_vaddr = Some(program.p_vaddr & !0xfff);
            }
        }
        let Some(first_vaddr) = first_vaddr else {
            return NONE;
        };
        for index in 0..usize::from(header.e_phnum) {
            let program = &*programs.add(index);
            if program.p_type != libc::PT_NOTE || program.p_filesz > 4096 {
                continue;
            }
            let at = start + (program.p_vaddr - first_vaddr);
            if let Some(found) = note_in(at, program.p_filesz) {
                return found;
            }
        }
    }
    NONE
}

/// # Safety
/// `bytes` bytes at `at` are mapped.
unsafe fn note_in(at: u64, bytes: u64) -> Option<([u64; 4], usize)> {
    const NT_GNU_BUILD_ID: u32 = 3;
    let mut offset = 0;
    while offset + 16 <= bytes {
        // SAFETY: inside the segment, as just checked.
        let head = unsafe { ((at + offset) as *const [u32; 3]).read_unaligned() };
        let name_len = u64::from(head[0]).next_multiple_of(4);
        let len = u64::from(head[1]);
        let text = offset + 12 + name_len;
        if text + len > bytes {
            return None;
        }
        if head[2] == NT_GNU_BUILD_ID && head[0] == 4 && len <= 32 {
            let mut id = [0u64; 4];
            // SAFETY: `len` bytes at `text` are inside the segment, and fit.
            unsafe {
                let from = (at + text) as *const u8;
                core::ptr::copy_nonoverlapping(from, id.as_mut_ptr().cast::<u8>(), len as usize);
            }
            return Some((id, len as usize));
        }
        offset = text + len.next_multiple_of(4);
    }
    None
}

/// Reports the objects that are gone after `dlclose` (D2).
///
/// # Safety
/// Between `enter` and `leave`, RECORDING.
#[cold]
pub unsafe fn after_dlclose(state: *mut ThreadState) {
    // ORDER: Acquire/Release; as in `notice`. Held means another thread is reporting an object that
    // it runs in; ours are then noticed by the collector.
    if WRITING.swap(true, Ordering::Acquire) {
        return;
    }
    let mut index = 0;
    // ORDER: Relaxed; WRITING is held.
    while index < KNOWN_COUNT.load(Ordering::Relaxed).min(MAX_KNOWN) {
        let known = &KNOWN[index];
        let start = known.start.load(Ordering::Relaxed);
        let still_there = object_at(start)
            .is_some_and(|found| found.link_map as u64 == known.link_map.load(Ordering::Relaxed));
        if still_there {
            index += 1;
            continue;
        }
        // SAFETY: as the caller promises.
        unsafe { emit::note(state, word(tag::MODULE_GONE, 0, start), &[]) };
        // ORDER: Relaxed; WRITING is held.
        let last = KNOWN_COUNT.load(Ordering::Relaxed).min(MAX_KNOWN) - 1;
        let other = &KNOWN[last];
        // ORDER: Relaxed; WRITING is held.
        known
            .start
            .store(other.start.load(Ordering::Relaxed), Ordering::Relaxed);
        // ORDER: Relaxed; WRITING is held.
        known
            .end
            .store(other.end.load(Ordering::Relaxed), Ordering::Relaxed);
        // ORDER: Relaxed; WRITING is held.
        known
            .link_map
            .store(other.link_map.load(Ordering::Relaxed), Ordering::Relaxed);
        // ORDER: Relaxed; WRITING is held.
        KNOWN_COUNT.store(last, Ordering::Relaxed);
    }
    WRITING.store(false, Ordering::Release); // ORDER: Release; ends the try-lock.
    // Unknown objects may have gone too: rules are cheap to compile again.
    rules().clear();
    java::forget_if(|own| object_at(own).is_none());
    process::new_epoch();
}
