//! The allocator that serves this process: its figures, and its function to give memory back.
//!
//! ```text
//!   skinflint_alloc   as #[global_allocator] (base::hook) ─► as libskinflint.so; not C code's blocks of malloc
//!   libskinflint.so   skinflint_stats_json ─► every row, with its resident bytes    ┐ explicit/heap-overhead/…
//!   glibc             mallinfo2 ───────────► in use, free                               ┘ heap-allocated, heap-…
//!   any other         nothing is known: no `heap-allocated`, so no `heap-unclassified` is made up
//! ```
//!
//! A1  The allocator is found by looking up names in the running process: nothing is linked, nothing need be preloaded,
//!     and the result is kept.
//! A2  glibc's figures are believed only if its `malloc` is the one that calls reach. Our recorder in front of it only
//!     passes calls on, and names the allocator beneath.
//! A3  Nothing here allocates (except once, if a stub hides the object that has `malloc`), so that the figures are
//!     those of before the measurement (registry.R1).
//! A4  `heap-allocated` counts live blocks, resident or not; `heap-overhead` is what is resident beside them, except
//!     for glibc, which does not know it and reports what is mapped.
//!
//! Not here: the meaning of the figures in the allocator (`alloc::stats`), other heaps.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::OnceLock;

use skinflint_base::hook::{self, LinkedAllocator};
use skinflint_base::sys;

use crate::entry::{ALLOCATED, Entry, Kind, Units};
use crate::store::Store;

type Beneath = unsafe extern "C" fn(*const c_char) -> *mut c_void;
type StatsJson = unsafe extern "C" fn(*mut c_char, usize) -> usize;
type Trim = unsafe extern "C" fn() -> c_int;
type MallocTrim = unsafe extern "C" fn(usize) -> c_int;
type Mallinfo = unsafe extern "C" fn() -> Mallinfo2;
type Dladdr1 =
    unsafe extern "C" fn(*const c_void, *mut libc::Dl_info, *mut *mut c_void, c_int) -> c_int;

/// glibc's `struct mallinfo2`. Written out, and all of glibc's functions looked up by name: so this builds with any C
/// library.
#[repr(C)]
struct Mallinfo2 {
    arena: usize,
    ordblks: usize,
    smblks: usize,
    hblks: usize,
    hblkhd: usize,
    usmblks: usize,
    fsmblks: usize,
    uordblks: usize,
    fordblks: usize,
    keepcost: usize,
}

/// The allocator that serves the program.
#[derive(Clone, Copy)]
enum Served {
    Skinflint { stats: StatsJson, trim: Trim },
    Linked(&'static LinkedAllocator),
    Glibc { info: Mallinfo, trim: MallocTrim },
    Other,
}

/// The room for the text of all figures, in bytes: about 12 KiB are used.
const ROOM: usize = 128 << 10;

fn look_up(name: &CStr) -> *mut c_void {
    // SAFETY: a C string; nothing is called.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// Returns the start of the object that an address belongs to; 0 if there is none.
fn object_of(address: *const c_void) -> usize {
    // SAFETY: a structure of pointers; all zero is one.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked about.
    match unsafe { libc::dladdr(address, &mut info) } {
        0 => 0,
        _ => info.dli_fbase.addr(),
    }
}

/// Returns whether a function is a stub: a program that is linked to a fixed address and takes a function's address has
/// a stub of that name, which stands for the function elsewhere (Debian's python3 has one for `malloc`).
fn is_stub(address: *const c_void) -> bool {
    const RTLD_DL_SYMENT: c_int = 1;
    let dladdr1 = look_up(c"dladdr1");
    if dladdr1.is_null() {
        return false;
    }
    // SAFETY: the type of the function of this name.
    let dladdr1 = unsafe { std::mem::transmute::<*mut c_void, Dladdr1>(dladdr1) };
    // SAFETY: a structure of pointers; all zero is one.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    let mut entry: *mut c_void = std::ptr::null_mut();
    // SAFETY: any address may be asked about; the entry is a symbol of a loaded object, if there is one.
    let entry = unsafe {
        match dladdr1(address, &mut info, &mut entry, RTLD_DL_SYMENT) {
            0 => None,
            _ => entry.cast::<libc::Elf64_Sym>().as_ref(),
        }
    };
    // The symbol is undefined, and yet it has an address.
    entry.is_some_and(|entry| entry.st_shndx == 0)
}

/// Returns the files of all loaded objects except the program, in the order in which names are looked up.
fn loaded() -> Vec<CString> {
    unsafe extern "C" fn add(info: *mut libc::dl_phdr_info, _: usize, names: *mut c_void) -> c_int {
        // SAFETY: the loader's structure, and the list below.
        let (info, names) = unsafe { (&*info, &mut *names.cast::<Vec<CString>>()) };
        if !info.dlpi_name.is_null() {
            // SAFETY: a C string of the loader's.
            names.push(unsafe { CStr::from_ptr(info.dlpi_name) }.to_owned());
        }
        0
    }
    let mut names: Vec<CString> = Vec::new();
    // SAFETY: the callback has the type asked for, and the list outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut names).cast()) };
    names.retain(|name| !name.is_empty());
    names
}

/// Returns the object that has the function itself, after `look_up` found a stub.
fn behind_stub(name: &CStr) -> usize {
    for file in loaded() {
        // SAFETY: C strings; with RTLD_NOLOAD nothing is loaded that was not, and the count goes back.
        unsafe {
            let handle = libc::dlopen(file.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            if handle.is_null() {
                continue;
            }
            let found = libc::dlsym(handle, name.as_ptr());
            libc::dlclose(handle);
            let mut info: libc::Dl_info = std::mem::zeroed();
            // `dlsym` also searches the object's dependencies, whose turn comes later.
            if !found.is_null()
                && libc::dladdr(found, &mut info) != 0
                && CStr::from_ptr(info.dli_fname) == file.as_c_str()
            {
                return info.dli_fbase.addr();
            }
        }
    }
    0
}

/// Returns the object whose `malloc` the program's calls reach.
fn of_malloc(found: *const c_void) -> usize {
    match is_stub(found) {
        true => behind_stub(c"malloc"),
        false => object_of(found),
    }
}

/// Returns the allocator of ours that is linked into the program, if it gives the program's blocks.
pub fn linked() -> Option<&'static LinkedAllocator> {
    let allocator = hook::linked()?;
    let block = std::hint::black_box(Box::new(0u64));
    // SAFETY: any address may be asked about.
    let usable = unsafe { (allocator.usable)(std::ptr::from_ref(&*block).cast()) };
    (usable > 0).then_some(allocator)
}

fn served() -> Served {
    static SERVED: OnceLock<Served> = OnceLock::new();
    *SERVED.get_or_init(|| {
        if let Some(allocator) = linked() {
            return Served::Linked(allocator);
        }
        let recorder = look_up(c"skinflint_beneath");
        let is_recorded =
            !recorder.is_null() && object_of(recorder) == of_malloc(look_up(c"malloc"));
        let look_up = |name: &CStr| match is_recorded {
            // SAFETY: the recorder's, which has this type; and a C string.
            true => unsafe { std::mem::transmute::<*mut c_void, Beneath>(recorder)(name.as_ptr()) },
            false => look_up(name),
        };
        let malloc = of_malloc(look_up(c"malloc"));
        let from = |name: &CStr| {
            let found = look_up(name);
            (malloc != 0 && !found.is_null() && object_of(found) == malloc).then_some(found)
        };
        if let (Some(stats), Some(trim)) = (from(c"skinflint_stats_json"), from(c"skinflint_trim"))
        {
            // SAFETY: the names belong to the object that serves malloc, and have these types there (skinflint.h).
            return unsafe {
                Served::Skinflint {
                    stats: std::mem::transmute::<*mut c_void, StatsJson>(stats),
                    trim: std::mem::transmute::<*mut c_void, Trim>(trim),
                }
            };
        }
        if let (Some(info), Some(trim)) = (from(c"mallinfo2"), from(c"malloc_trim")) {
            // SAFETY: glibc's, by <malloc.h> (A2).
            return unsafe {
                Served::Glibc {
                    info: std::mem::transmute::<*mut c_void, Mallinfo>(info),
                    trim: std::mem::transmute::<*mut c_void, MallocTrim>(trim),
                }
            };
        }
        Served::Other
    })
}

/// Returns the allocator's name, for the user.
pub fn name() -> &'static str {
    match served() {
        Served::Skinflint { .. } => "libskinflint.so",
        Served::Linked(_) => "skinflint_alloc",
        Served::Glibc { .. } => "glibc",
        Served::Other => "another allocator",
    }
}

/// Gives free memory back to the system. Returns whether there was any.
pub fn trim() -> bool {
    // SAFETY: functions that may be called at any time on any thread.
    unsafe {
        match served() {
            Served::Skinflint { trim, .. } => trim() != 0,
            Served::Linked(allocator) => (allocator.trim)(),
            Served::Glibc { trim, .. } => trim(0) != 0,
            Served::Other => false,
        }
    }
}

/// The resident bytes of the allocator's own mappings, by row.
#[derive(Clone, Copy, Default, Debug)]
pub struct Resident {
    /// Name and bytes.
    pub rows: [(&'static str, u64); 8],
}

impl Resident {
    /// Returns the sum of all rows.
    pub fn sum(&self) -> u64 {
        self.rows.iter().fold(0, |sum, (_, bytes)| sum + bytes)
    }
}

/// Adds the allocator's figures. Returns what is resident of it, if it knows.
pub(crate) fn figures(store: &mut Store) -> Option<Resident> {
    let served = served();
    if let Served::Glibc { info, .. } = served {
        // SAFETY: may be called at any time.
        of_glibc(&unsafe { info() }, store);
    }
    written(served, |text| from_text("", text, store))
}

/// Returns the bytes of live blocks, as the allocator says (A4). `None`: it does not say. Cost: glibc walks over its free
/// blocks, ours writes all its figures.
pub fn live_bytes() -> Option<u64> {
    let served = served();
    if let Served::Glibc { info, .. } = served {
        // SAFETY: may be called at any time.
        return Some(glibc_live(&unsafe { info() }));
    }
    written(served, |text| Figures(text).number("live", "usable_bytes"))
}

/// Passes the figures of an allocator of ours, as text, to `read`.
fn written<R>(served: Served, read: impl FnOnce(&str) -> Option<R>) -> Option<R> {
    let buffer = sys::map_private(ROOM);
    if buffer.is_null() {
        return None;
    }
    // SAFETY: both write at most `ROOM` bytes to the buffer, which has that room.
    let length = unsafe {
        match served {
            Served::Skinflint { stats, .. } => stats(buffer.cast(), ROOM),
            Served::Linked(allocator) => (allocator.figures)(buffer, ROOM),
            Served::Glibc { .. } | Served::Other => 0,
        }
    };
    // SAFETY: the buffer is ours and has `ROOM` bytes; the text is ASCII and shorter, or is cut.
    let text = unsafe { std::slice::from_raw_parts(buffer, length.min(ROOM - 1)) };
    let result = read(std::str::from_utf8(text).unwrap_or(""));
    // SAFETY: ours, and nothing refers to it any more.
    unsafe { sys::unmap(buffer, ROOM) };
    result
}

/// The text of `skinflint_stats_json`: one line, with sections one level deep.
struct Figures<'a>(&'a str);

impl Figures<'_> {
    /// Returns a number of the outermost level, or of a section.
    fn number(&self, section: &str, name: &str) -> Option<u64> {
        let mut text = self.0;
        if !section.is_empty() {
            text = after(text, section)?.strip_prefix('{')?;
            text = &text[..text.find('}')?];
        }
        let digits = after(text, name)?;
        let end = digits
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(digits.len());
        digits[..end].parse().ok()
    }
}

/// Returns what follows `"name":`.
fn after<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = text;
    loop {
        let at = rest.find(name)?;
        let behind = &rest[at + name.len()..];
        if rest[..at].ends_with('"')
            && let Some(value) = behind.strip_prefix("\":")
        {
            return Some(value);
        }
        rest = behind;
    }
}

/// The receiver of the lines of one process.
struct Out<'a> {
    store: &'a mut Store,
    process: &'a str,
}

impl Out<'_> {
    fn line(&mut self, path: &str, kind: Kind, units: Units, amount: u64, description: &str) {
        // If there is no memory for the line, it is missing, as the whole report would be.
        let _ = self.store.push(&Entry {
            process: self.process,
            path,
            kind,
            units,
            amount: i64::try_from(amount).unwrap_or(i64::MAX),
            description,
        });
    }

    fn bytes(&mut self, path: &str, amount: u64, description: &str) {
        self.line(path, Kind::Other, Units::Bytes, amount, description);
    }
}

/// Adds the figures in a text of `skinflint_stats_json`, as those of `process`. `None`: the text has another form.
pub fn from_text(process: &str, text: &str, store: &mut Store) -> Option<Resident> {
    let figures = Figures(text);
    let part = |name: &str| figures.number("resident", name);
    let rows = [
        ("live/small", part("small_bytes")?),
        ("live/large", part("large_bytes")?),
        ("free/in-spans", part("free_in_spans_bytes")?),
        ("free/holes", part("holes_bytes")?),
        ("free/dirty-runs", part("free_dirty_bytes")?),
        ("free/clean-runs", part("free_clean_bytes")?),
        ("reserve", part("reserve_bytes")?),
        ("metadata", figures.number("", "metadata_resident_bytes")?),
    ];
    let mut out = Out { store, process };
    let usable = in_use(&figures, &mut out)?;
    for (path, amount, said) in [
        (
            "explicit/heap-overhead/free-in-spans",
            rows[2].1 + rows[3].1,
            "Resident, in spans that hold live blocks, and in no live block.",
        ),
        (
            "explicit/heap-overhead/free-runs",
            rows[4].1 + rows[5].1,
            "Resident pages of no span; they go back after a while.",
        ),
        (
            "explicit/heap-overhead/reserve",
            rows[6].1,
            "Kept for when the system refuses memory.",
        ),
        (
            "explicit/heap-overhead/metadata",
            rows[7].1,
            "Resident pages of the allocator's own records.",
        ),
    ] {
        out.line(path, Kind::Nonheap, Units::Bytes, amount, said);
    }
    let overhead = rows[2..].iter().fold(0, |sum, (_, bytes)| sum + bytes);
    let percent = overhead.saturating_mul(10_000).checked_div(usable);
    let said = "explicit/heap-overhead in percent of heap-allocated.";
    let percent = percent.unwrap_or(0);
    out.line(
        "heap-overhead-fraction",
        Kind::Other,
        Units::Percent,
        percent,
        said,
    );
    Some(Resident { rows })
}

/// Adds what is in use, and the address space it lies in; returns the usable bytes of live blocks.
fn in_use(figures: &Figures<'_>, out: &mut Out<'_>) -> Option<u64> {
    let live = |name: &str| figures.number("live", name);
    let usable = live("usable_bytes")?;
    let blocks = live("small_blocks")? + live("large_blocks")?;
    let mapped =
        figures.number("", "mapped_bytes")? + figures.number("", "metadata_mapped_bytes")?;
    out.bytes(ALLOCATED, usable, SAID_ALLOCATED);
    let said = "Live blocks.";
    out.line("heap-blocks", Kind::Other, Units::Count, blocks, said);
    out.bytes(
        "heap-mapped",
        mapped,
        "Address space of the allocator, resident or not.",
    );
    if let Some(slop) = live("slop_bytes") {
        let said = "Given beyond what was asked for; estimated from samples for small blocks.";
        out.bytes("heap-slop", slop, said);
    }
    if let Some(tenants) = live("tenants").filter(|n| *n > 0) {
        let bytes = live("tenant_small_bytes")? + live("tenant_large_bytes")?;
        let said = "Live blocks in heaps of skinflint_heap_create; in heap-allocated.";
        out.bytes("heap-tenant-blocks", bytes, said);
        let said = "Heaps of skinflint_heap_create.";
        out.line("heap-tenants", Kind::Other, Units::Count, tenants, said);
    }
    Some(usable)
}

const SAID_ALLOCATED: &str = "Usable bytes of all live blocks, as the allocator says.";

fn glibc_live(info: &Mallinfo2) -> u64 {
    info.uordblks.saturating_add(info.hblkhd) as u64
}

fn of_glibc(info: &Mallinfo2, store: &mut Store) {
    let mut out = Out { store, process: "" };
    out.bytes(
        ALLOCATED,
        glibc_live(info),
        "Bytes of blocks in use by glibc's mallinfo2: with their headers, and with what its thread caches hold.",
    );
    out.bytes(
        "heap-mapped",
        info.arena.saturating_add(info.hblkhd) as u64,
        "Address space of the allocator, resident or not.",
    );
    let said = "Free in glibc's arenas, resident or not.";
    let free = info.fordblks as u64;
    out.line(
        "explicit/heap-overhead/free",
        Kind::Nonheap,
        Units::Bytes,
        free,
        said,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = concat!(
        r#"{"version":1,"balanced":true,"mapped_bytes":1000,"mapped":{"small_bytes":1,"large_bytes":2},"#,
        r#""metadata_mapped_bytes":50,"resident_bytes":900,"resident":{"small_bytes":400,"large_bytes":200,"#,
        r#""free_in_spans_bytes":60,"holes_bytes":4,"reserve_bytes":30,"free_dirty_bytes":20,"#,
        r#""free_clean_bytes":1,"others_bytes":7},"metadata_resident_bytes":40,"live":{"small_blocks":10,"#,
        r#""large_blocks":2,"usable_bytes":640,"requested_bytes":600,"slop_bytes":40,"tenants":1,"#,
        r#""tenant_small_bytes":16,"tenant_large_bytes":0},"total":{"requested_bytes":9}}"#
    );

    fn amount(store: &Store, path: &str) -> Option<i64> {
        let found = store.iter().find(|entry| entry.path == path);
        found.map(|entry| entry.amount)
    }

    #[test]
    fn the_allocators_text_by_hand() {
        let mut store = Store::new();
        let resident = from_text("p (pid 1)", TEXT, &mut store).expect("figures");
        assert_eq!(resident.sum(), 400 + 200 + 60 + 4 + 30 + 20 + 1 + 40);
        for (path, wanted) in [
            ("heap-allocated", 640),
            ("heap-blocks", 12),
            ("heap-mapped", 1050),
            ("heap-slop", 40),
            ("explicit/heap-overhead/free-in-spans", 64),
            ("explicit/heap-overhead/free-runs", 21),
            ("explicit/heap-overhead/reserve", 30),
            ("explicit/heap-overhead/metadata", 40),
            // (60 + 4 + 30 + 20 + 1 + 40) / 640
            ("heap-overhead-fraction", 2421),
            ("heap-tenant-blocks", 16),
        ] {
            assert_eq!(amount(&store, path), Some(wanted), "{path}");
        }
        assert!(store.iter().all(|entry| entry.process == "p (pid 1)"));
    }

    #[test]
    fn a_text_that_is_none() {
        for text in ["", "{}", "{\"live\":", "not JSON", &TEXT[..200]] {
            let mut store = Store::new();
            assert!(from_text("", text, &mut store).is_none(), "{text}");
        }
    }
}
