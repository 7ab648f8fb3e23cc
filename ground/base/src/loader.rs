//! The objects that the dynamic loader has mapped, read from its own structures: names are looked up without `dlsym`,
//! and the tables through which modules call each other are read and changed.
//!
//! ```text
//!   _r_debug ─► link map ─► link map ─► link map ─► …        the objects the program was started with, in order
//!                 program     ours        libc        │ last: what comes behind was loaded later
//!                               └─ behind("free") ────► dynamic section ─► hash table ─► symbol
//! ```
//!
//! O1  No look-up of a name allocates, takes a lock or leaves an error for `dlerror`. `dlsym` does all three for a
//!     name that is missing, and an allocator that the program brings may hold its own lock while it calls us.
//! O2  Objects that the program was started with are never unloaded, and the links between them do not change; so
//!     they can be walked at any time, by any thread, up to the last of them.
//! O3  An entry of a module's table is changed by one aligned store, so that a thread that calls through it meanwhile
//!     calls one function or the other.
//!
//! Not here: which entries get which function (the recorder's and the allocator's libraries).

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicU64, Ordering};

use crate::{page, sys};

/// The public head of glibc's `struct link_map`.
#[repr(C)]
pub struct LinkMap {
    /// The load bias: an address in the file plus this is the address in memory.
    pub bias: u64,
    /// The path as the loader knows it; empty for the program.
    pub name: *const c_char,
    /// The dynamic section.
    pub dynamic: *const [u64; 2],
    next: *const LinkMap,
    previous: *const LinkMap,
}

/// The public head of glibc's `struct r_debug`.
#[repr(C)]
struct Debug {
    version: c_int,
    map: *const LinkMap,
}

unsafe extern "C" {
    static _r_debug: Debug;
    /// The dynamic section of the object that this is linked into; the linker defines the symbol.
    #[link_name = "_DYNAMIC"]
    static OWN_DYNAMIC: [u64; 2];
}

/// The most objects that are walked: far more than a program is started with.
const MAX_OBJECTS: usize = 4096;

/// The objects that the program was started with (O2).
#[derive(Clone, Copy)]
pub struct Startup {
    first: *const LinkMap,
    own: *const LinkMap,
    last: *const LinkMap,
}

impl Startup {
    /// Takes down the objects that are loaded now. To be called before the program's first thread and first `dlopen`.
    /// `None` if the loader's list is not found, or if we are not on it (loaded into a running program).
    pub fn take() -> Option<Startup> {
        // SAFETY: the loader's own, complete before any code of an object runs; we read what it never takes back.
        unsafe {
            let first = (&raw const _r_debug.map).read();
            let (mut own, mut last) = (core::ptr::null(), core::ptr::null());
            let mut at = first;
            for _ in 0..MAX_OBJECTS {
                if at.is_null() {
                    break;
                }
                if (*at).dynamic == &raw const OWN_DYNAMIC {
                    own = at;
                }
                last = at;
                at = (*at).next;
            }
            (!own.is_null()).then_some(Startup { first, own, last })
        }
    }

    fn each(&self, from: *const LinkMap) -> impl Iterator<Item = &LinkMap> {
        let last = self.last;
        // SAFETY: O2; null is not followed.
        core::iter::successors(unsafe { from.as_ref() }, move |object| unsafe {
            if core::ptr::eq(*object, last) {
                None
            } else {
                object.next.as_ref()
            }
        })
        .take(MAX_OBJECTS)
    }

    /// Returns the function of this name in the objects behind ours: what `dlsym(RTLD_NEXT)` returns. Null if there is
    /// none. Cost: one look-up in a hash table for each object.
    #[unsafe(link_section = ".text.skinflint_first")]
    pub fn behind(&self, name: &CStr) -> *mut c_void {
        self.each(self.own)
            .skip(1)
            // SAFETY: O2.
            .map(|object| unsafe { object.function(name) })
            .find(|found| !found.is_null())
            .unwrap_or(core::ptr::null_mut())
    }

    /// Returns the first function of this name in all objects: the one that the program's modules are bound to. With
    /// `libraries_only` the program itself is left out. Null if there is none.
    #[unsafe(link_section = ".text.skinflint_first")]
    pub fn first(&self, name: &CStr, libraries_only: bool) -> *mut c_void {
        self.each(self.first)
            .skip(usize::from(libraries_only))
            // SAFETY: O2.
            .map(|object| unsafe { object.function(name) })
            .find(|found| !found.is_null())
            .unwrap_or(core::ptr::null_mut())
    }

    /// Returns where the first function or variable of this name lies, if it says how many bytes it has.
    pub fn extent(&self, name: &CStr) -> Option<Extent> {
        let mut all = self.each(self.first);
        // SAFETY: O2.
        let found = all.find_map(|object| unsafe { object.symbol(name) }.map(|s| (object, s)));
        let (object, symbol) = found.filter(|(_, symbol)| symbol.kind & 15 != STT_TLS)?;
        let start = object.bias.wrapping_add(symbol.value);
        let end = start.wrapping_add(symbol.size);
        (symbol.size != 0).then_some(Extent { start, end })
    }

    /// Returns the object that has the first thread-local variable of this name, and where in the object's part of each
    /// thread it lies.
    pub fn thread_local(&self, name: &CStr) -> Option<(&LinkMap, u64)> {
        let mut all = self.each(self.first);
        // SAFETY: O2.
        let found = all.find_map(|object| unsafe { object.symbol(name) }.map(|s| (object, s)));
        let (object, symbol) = found.filter(|(_, symbol)| symbol.kind & 15 == STT_TLS)?;
        Some((object, symbol.value))
    }

    /// Returns the first function of this name if it is not ours: that of a program that brings its own.
    pub fn in_front_of(&self, name: &CStr, ours: *mut c_void) -> Option<*mut c_void> {
        let first = self.first(name, false);
        (!first.is_null() && first != ours).then_some(first)
    }

    /// Returns whether the object with this dynamic section is one of the objects.
    pub fn has(&self, dynamic: u64) -> bool {
        self.each(self.first)
            .any(|object| object.dynamic as u64 == dynamic)
    }
}

/// A part of memory: its first address, and the one behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// The first address.
    pub start: u64,
    /// The address behind the last.
    pub end: u64,
}

impl Extent {
    /// Returns whether an address is in it.
    #[inline(always)]
    pub fn holds(&self, at: u64) -> bool {
        self.start <= at && at < self.end
    }
}

const DT_HASH: u64 = 4;
const DT_PLTRELSZ: u64 = 2;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_RELA: u64 = 7;
const DT_RELASZ: u64 = 8;
const DT_JMPREL: u64 = 23;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
const DT_VERSYM: u64 = 0x6fff_fff0;
const DYNAMIC_ENTRIES: usize = 512;

/// An entry of the dynamic symbol table.
#[repr(C)]
pub struct Symbol {
    name: u32,
    kind: u8,
    other: u8,
    /// 0: not defined here.
    pub section: u16,
    value: u64,
    size: u64,
}

/// The addresses of an object's tables, and the sizes of its relocations.
#[derive(Default)]
struct Tables {
    symbols: u64,
    names: u64,
    gnu_hash: u64,
    hash: u64,
    versions: u64,
    relocations: [(u64, u64); 2],
}

/// Reads the dynamic section of an object.
///
/// # Safety
/// `dynamic` is the dynamic section of a loaded object, whose load bias is `bias`.
unsafe fn tables(bias: u64, dynamic: *const [u64; 2]) -> Tables {
    // The loader has made most addresses absolute, but not those of the vdso.
    let address = |value: u64| if value < bias { bias + value } else { value };
    let mut found = Tables::default();
    let mut at = dynamic;
    for _ in 0..DYNAMIC_ENTRIES {
        // SAFETY: the section ends with a zero tag; the loader has read it before us.
        let [tag, value] = unsafe { at.read() };
        match tag {
            0 => break,
            DT_STRTAB => found.names = address(value),
            DT_SYMTAB => found.symbols = address(value),
            DT_GNU_HASH => found.gnu_hash = address(value),
            DT_HASH => found.hash = address(value),
            DT_VERSYM => found.versions = address(value),
            DT_RELA => found.relocations[0].0 = address(value),
            DT_RELASZ => found.relocations[0].1 = value,
            DT_JMPREL => found.relocations[1].0 = address(value),
            DT_PLTRELSZ => found.relocations[1].1 = value,
            _ => {}
        }
        // SAFETY: as above: this was not the last.
        at = unsafe { at.add(1) };
    }
    found
}

impl LinkMap {
    /// Returns the function that this object defines under this name, in its default version; null if there is none.
    ///
    /// # Safety
    /// The object is loaded, and stays so.
    pub unsafe fn function(&self, name: &CStr) -> *mut c_void {
        if self.dynamic.is_null() {
            return core::ptr::null_mut();
        }
        // SAFETY: as the caller promises.
        unsafe { defined(self.bias, self.dynamic, name) }
    }

    /// Returns what the object's table says of a name that it defines, in its default version.
    ///
    /// # Safety
    /// The object is loaded.
    unsafe fn symbol(&self, name: &CStr) -> Option<&Symbol> {
        if self.dynamic.is_null() {
            return None;
        }
        // SAFETY: as the caller promises; the tables are as long as their heads say.
        unsafe {
            let tables = tables(self.bias, self.dynamic);
            let mut found = None;
            let mut look = |index: u32| {
                found = tables.symbol(index, name);
                found.is_some()
            };
            if tables.symbols == 0 || tables.names == 0 {
                return None;
            }
            if tables.gnu_hash != 0 {
                by_gnu_hash(tables.gnu_hash, name, &mut look);
            } else if tables.hash != 0 {
                by_old_hash(tables.hash, name, &mut look);
            }
            found
        }
    }
}

/// Returns the function that an object defines under this name; null if there is none.
///
/// # Safety
/// As for [`tables`], and the object stays loaded.
#[unsafe(link_section = ".text.skinflint_first")]
unsafe fn defined(bias: u64, dynamic: *const [u64; 2], name: &CStr) -> *mut c_void {
    // SAFETY: as the caller promises; the tables are as long as their heads say.
    unsafe {
        let tables = tables(bias, dynamic);
        if tables.symbols == 0 || tables.names == 0 {
            return core::ptr::null_mut();
        }
        let mut found = core::ptr::null_mut();
        let mut look = |index: u32| {
            found = tables.at(bias, index, name);
            !found.is_null()
        };
        if tables.gnu_hash != 0 {
            by_gnu_hash(tables.gnu_hash, name, &mut look);
        } else if tables.hash != 0 {
            by_old_hash(tables.hash, name, &mut look);
        }
        found
    }
}

impl Tables {
    /// Returns the address of symbol `index` if it is a function of this name, else null.
    ///
    /// # Safety
    /// The index comes from the object's own hash table.
    unsafe fn at(&self, bias: u64, index: u32, name: &CStr) -> *mut c_void {
        const STT_GNU_IFUNC: u8 = 10;
        // SAFETY: as the caller promises.
        unsafe {
            let Some(symbol) = self.symbol(index, name) else {
                return core::ptr::null_mut();
            };
            let kind = symbol.kind & 15;
            if symbol.value == 0 || kind == STT_TLS {
                return core::ptr::null_mut();
            }
            let at = bias.wrapping_add(symbol.value);
            if kind == STT_GNU_IFUNC {
                let choose =
                    core::mem::transmute::<usize, extern "C" fn() -> *mut c_void>(at as usize);
                return choose();
            }
            at as *mut c_void
        }
    }
}

const STT_TLS: u8 = 6;

impl Tables {
    /// Returns symbol `index` if it is defined under this name, in its default version.
    ///
    /// # Safety
    /// The index comes from the object's own hash table.
    unsafe fn symbol<'a>(&self, index: u32, name: &CStr) -> Option<&'a Symbol> {
        /// The version is only for programs that were linked with an older version of the object.
        const HIDDEN: u16 = 1 << 15;
        // SAFETY: as the caller promises; the table is as long as the object is loaded.
        unsafe {
            let symbol = &*(self.symbols as *const Symbol).add(index as usize);
            let same =
                CStr::from_ptr((self.names + u64::from(symbol.name)) as *const c_char) == name;
            let is_hidden = || {
                self.versions != 0
                    && (self.versions as *const u16).add(index as usize).read() & HIDDEN != 0
            };
            (same && symbol.section != 0 && !is_hidden()).then_some(symbol)
        }
    }
}

/// Offers the symbols of a name's chain to `take`, until it takes one.
///
/// # Safety
/// `table` is a table of `DT_GNU_HASH`.
unsafe fn by_gnu_hash(table: u64, name: &CStr, take: &mut dyn FnMut(u32) -> bool) {
    // SAFETY: as the caller promises: head, filter, buckets, chains.
    unsafe {
        let [buckets, first, filter, _] = (table as *const [u32; 4]).read();
        if buckets == 0 {
            return;
        }
        let hash = name.to_bytes().iter().fold(5381u32, |hash, &byte| {
            hash.wrapping_mul(33).wrapping_add(u32::from(byte))
        });
        let bucket = (table + 16 + u64::from(filter) * 8) as *const u32;
        let chain = bucket.add(buckets as usize);
        let mut index = bucket.add((hash % buckets) as usize).read();
        if index < first {
            return;
        }
        loop {
            let entry = chain.add((index - first) as usize).read();
            if (entry | 1) == (hash | 1) && take(index) || entry & 1 != 0 {
                return;
            }
            index += 1;
        }
    }
}

/// Offers the symbols of a name's chain in a table of `DT_HASH` to `take`, until it takes one.
///
/// # Safety
/// `table` is a table of `DT_HASH`.
unsafe fn by_old_hash(table: u64, name: &CStr, take: &mut dyn FnMut(u32) -> bool) {
    // SAFETY: as the caller promises: head, buckets, chains.
    unsafe {
        let [buckets, symbols] = (table as *const [u32; 2]).read();
        if buckets == 0 {
            return;
        }
        let hash = name.to_bytes().iter().fold(0u32, |hash, &byte| {
            let hash = (hash << 4).wrapping_add(u32::from(byte));
            let top = hash & 0xf000_0000;
            (hash ^ top >> 24) & !top
        });
        let bucket = (table + 8) as *const u32;
        let chain = bucket.add(buckets as usize);
        let mut index = bucket.add((hash % buckets) as usize).read();
        for _ in 0..symbols {
            if index == 0 || take(index) {
                return;
            }
            index = chain.add(index as usize).read();
        }
    }
}

const R_X86_64_64: u32 = 1;
const R_X86_64_GLOB_DAT: u32 = 6;
const R_X86_64_JUMP_SLOT: u32 = 7;

#[repr(C)]
struct Relocation {
    offset: u64,
    info: u64,
    addend: i64,
}

/// A module, as `dl_iterate_phdr` describes it.
#[derive(Clone, Copy)]
pub struct Module {
    bias: u64,
    low: u64,
    high: u64,
    /// Address of its dynamic section; 0 if it has none.
    pub dynamic: u64,
    relro: (u64, u64),
    code: (u64, u64),
}

/// Shows all modules that are loaded now, in the order in which they were loaded, until `show` returns false. Takes
/// the loader's lock, which keeps them loaded meanwhile. Returns the number of modules that were ever loaded.
pub fn each_module(show: &mut dyn FnMut(&Module, &CStr) -> bool) -> u64 {
    struct Shown<'a> {
        show: &'a mut dyn FnMut(&Module, &CStr) -> bool,
        added: u64,
    }
    unsafe extern "C" fn one(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: as called below; the loader's entries are complete.
        unsafe {
            let shown = &mut *data.cast::<Shown<'_>>();
            shown.added = (*info).dlpi_adds;
            let path = match (*info).dlpi_name.is_null() {
                true => c"",
                false => CStr::from_ptr((*info).dlpi_name),
            };
            let module = Module::of(&*info);
            c_int::from(module.is_some_and(|module| !(shown.show)(&module, path)))
        }
    }
    let mut shown = Shown { show, added: 0 };
    // SAFETY: the callback has the type that is wanted; `shown` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(one), (&raw mut shown).cast()) };
    shown.added
}

/// How some names begin: a table has thousands of other names, and nearly all of them differ from these in their first three
/// bytes.
pub struct Beginnings {
    /// A bit for each first and second byte, and one for each second and third, by their lowest five bits.
    pairs: [[u32; 32]; 2],
}

impl Beginnings {
    /// Takes names of at least three bytes.
    pub const fn of(names: &[&CStr]) -> Beginnings {
        let mut pairs = [[0; 32]; 2];
        let mut at = 0;
        while at < names.len() {
            let name = names[at].to_bytes();
            let mut pair = 0;
            while pair < 2 {
                pairs[pair][name[pair] as usize & 31] |= 1 << (name[pair + 1] & 31);
                pair += 1;
            }
            at += 1;
        }
        Beginnings { pairs }
    }

    /// Returns false if none of the names is this one. Cost: about ten instructions.
    ///
    /// # Safety
    /// `name` is a C string.
    #[inline(always)]
    unsafe fn may_be(&self, name: *const u8) -> bool {
        let [first, further] = &self.pairs;
        let is_in = |pairs: &[u32; 32], one: u8, two: u8| {
            pairs[usize::from(one & 31)] >> (two & 31) & 1 != 0
        };
        // SAFETY: a byte that is not 0 has one behind it.
        unsafe {
            let one = name.read();
            if one == 0 {
                return false;
            }
            let two = name.add(1).read();
            is_in(first, one, two) && two != 0 && is_in(further, two, name.add(2).read())
        }
    }
}

/// A word of a module that holds a function's address.
pub struct Entry<'a> {
    /// The function's name.
    pub name: &'a CStr,
    /// Whether the entry may lead back into its own module, because it has not been bound yet.
    pub lazy: bool,
    at: u64,
}

impl Module {
    /// Reads what the loader says about a module. `None` if nothing of it is mapped.
    pub fn of(info: &libc::dl_phdr_info) -> Option<Module> {
        let mut module = Module {
            bias: info.dlpi_addr,
            low: u64::MAX,
            high: 0,
            dynamic: 0,
            relro: (0, 0),
            code: (0, 0),
        };
        for index in 0..usize::from(info.dlpi_phnum) {
            // SAFETY: the loader's table has `dlpi_phnum` entries.
            let header = unsafe { &*info.dlpi_phdr.add(index) };
            let start = info.dlpi_addr.wrapping_add(header.p_vaddr);
            match header.p_type {
                libc::PT_LOAD => {
                    let end = start.wrapping_add(header.p_memsz);
                    module.low = module.low.min(start);
                    module.high = module.high.max(end);
                    let rights = header.p_flags & (libc::PF_R | libc::PF_W | libc::PF_X);
                    if module.code == (0, 0) && rights == libc::PF_R | libc::PF_X {
                        module.code = (start, end);
                    }
                }
                libc::PT_DYNAMIC => module.dynamic = start,
                libc::PT_GNU_RELRO => {
                    module.relro = (start & !4095, (start + header.p_memsz) & !4095)
                }
                _ => {}
            }
        }
        (module.low < module.high).then_some(module)
    }

    /// Returns what is added to addresses of its file.
    pub fn bias(&self) -> u64 {
        self.bias
    }

    /// Returns the first part of it that can be read and run, and not written: lowest address, one past the highest;
    /// (0, 0) if there is none.
    pub fn code(&self) -> (u64, u64) {
        self.code
    }

    /// Returns whether an address lies in the module.
    pub fn holds(&self, at: u64) -> bool {
        self.low <= at && at < self.high
    }

    /// Returns the function that the module defines under this name, in its default version; null if there is none.
    ///
    /// # Safety
    /// The module is loaded, and stays so.
    pub unsafe fn function(&self, name: &CStr) -> *mut c_void {
        if self.dynamic == 0 {
            return core::ptr::null_mut();
        }
        // SAFETY: as the caller promises.
        unsafe { defined(self.bias, self.dynamic as *const [u64; 2], name) }
    }

    /// Shows the words of the module's tables that hold the address of a function whose name begins so. Cost: about 20
    /// instructions for each of another name.
    ///
    /// # Safety
    /// As for [`Module::function`].
    pub unsafe fn entries(&self, names: &Beginnings, mut show: impl FnMut(&Entry<'_>)) {
        if self.dynamic == 0 {
            return;
        }
        // SAFETY: as the caller promises.
        unsafe {
            let tables = tables(self.bias, self.dynamic as *const [u64; 2]);
            if tables.symbols == 0 || tables.names == 0 {
                return;
            }
            for (start, bytes) in tables.relocations {
                if start == 0 {
                    continue;
                }
                for index in 0..bytes as usize / size_of::<Relocation>() {
                    let relocation = &*(start as *const Relocation).add(index);
                    let (kind, symbol) = (relocation.info as u32, relocation.info >> 32);
                    let is_function =
                        matches!(kind, R_X86_64_64 | R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT);
                    if !is_function || symbol == 0 || relocation.addend != 0 {
                        continue;
                    }
                    let symbol = &*(tables.symbols as *const Symbol).add(symbol as usize);
                    let name = (tables.names + u64::from(symbol.name)) as *const c_char;
                    if !names.may_be(name.cast()) {
                        continue;
                    }
                    show(&Entry {
                        name: CStr::from_ptr(name),
                        lazy: kind == R_X86_64_JUMP_SLOT && symbol.section == 0,
                        at: self.bias.wrapping_add(relocation.offset),
                    });
                }
            }
        }
    }

    /// Stores `value` in an entry if `wanted` agrees, given what the entry holds; pages that the loader has sealed are
    /// opened for the store and sealed again. Returns whether the entry was changed.
    ///
    /// # Safety
    /// The entry is this module's, which is loaded; `value` is a function that its callers can call.
    pub unsafe fn change(
        &self,
        entry: &Entry<'_>,
        value: u64,
        wanted: impl FnOnce(u64) -> bool,
    ) -> bool {
        if entry.at & 7 != 0 || !self.holds(entry.at) {
            return false;
        }
        // SAFETY: as the caller promises; the loader itself writes the entry as a word.
        let slot = unsafe { &*(entry.at as *const AtomicU64) };
        // ORDER: Relaxed for the entries; code does not change, and each of the two functions may be called (O3).
        if !wanted(slot.load(Ordering::Relaxed)) {
            return false;
        }
        let page = entry.at & !(page::kernel() as u64 - 1);
        let sealed = self.relro.0 <= page && page < self.relro.1;
        if sealed && !protect(page, libc::PROT_READ | libc::PROT_WRITE) {
            return false;
        }
        slot.store(value, Ordering::Relaxed); // ORDER: as above.
        if sealed {
            protect(page, libc::PROT_READ);
        }
        true
    }
}

fn protect(at: u64, rights: c_int) -> bool {
    // SAFETY: a page of a module's data that the loader has sealed, and that is sealed again afterwards.
    let result = unsafe {
        sys::syscall(
            libc::SYS_mprotect,
            [at, page::kernel() as u64, rights as u64, 0, 0, 0],
        )
    };
    !sys::is_error(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(name: &CStr) -> *mut c_void {
        // SAFETY: a look-up.
        unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
    }

    #[test]
    fn names_are_found_as_dlsym_finds_them() {
        let startup = Startup::take().expect("the loader's list");
        // Old and new versions (realpath, pthread_create, memcpy by ifunc), and plain ones.
        for name in [
            c"malloc",
            c"free",
            c"pthread_create",
            c"realpath",
            c"memcpy",
            c"strlen",
            c"sbrk",
            c"dl_iterate_phdr",
            c"quick_exit",
            c"fopen",
        ] {
            let found = startup.behind(name);
            assert_eq!(found, address(name), "{name:?}");
            assert_eq!(startup.first(name, true), found, "{name:?}");
        }
        for missing in [c"free_sized_by_nobody", c"", c"malloc_"] {
            assert!(startup.behind(missing).is_null(), "{missing:?}");
        }
    }

    #[test]
    fn variables_of_threads_and_the_bytes_of_functions_are_found() {
        let startup = Startup::take().expect("the loader's list");
        assert!(startup.thread_local(c"malloc").is_none());
        let (object, at) = startup.thread_local(c"errno").expect("the C library's");
        assert!(!object.dynamic.is_null() && at < 1 << 20);
        assert_eq!(startup.extent(c"errno"), None);
        let malloc = startup.extent(c"malloc").expect("a function");
        let at = address(c"malloc") as u64;
        assert!(malloc.start == at && malloc.holds(at) && !malloc.holds(malloc.end));
    }

    #[test]
    fn beginnings_leave_no_name_out_and_nearly_all_others() {
        let names = [c"malloc", c"brk", c"_Exit", c"posix_memalign"];
        let beginnings = Beginnings::of(&names);
        // SAFETY: C strings.
        let may_be = |name: &CStr| unsafe { beginnings.may_be(name.as_ptr().cast()) };
        assert!(names.iter().all(|name| may_be(name)));
        for other in [
            c"", c"m", c"ma", c"br", c"_", c"memcpy", c"_efree", c"prctl",
        ] {
            assert!(!may_be(other), "{other:?}");
        }
    }

    #[test]
    fn entries_are_those_of_the_names() {
        let own = address(c"dl_iterate_phdr") as u64;
        let beginnings = Beginnings::of(&[c"dl_iterate_phdr"]);
        let (mut found, mut all) = (0, 0);
        each_module(&mut |module, _| {
            // SAFETY: the module stays loaded while it is shown; its entries are words.
            unsafe {
                module.entries(&beginnings, |entry| {
                    all += 1;
                    if entry.name == c"dl_iterate_phdr" {
                        module.change(entry, 0, |now| {
                            found += usize::from(now == own);
                            false
                        });
                    }
                });
            }
            true
        });
        // This program's own call, and of everything else only what begins as it does.
        assert!(found > 0 && all < 100, "{found} of {all}");
    }

    #[test]
    fn missing_names_leave_no_error_behind() {
        let startup = Startup::take().expect("the loader's list");
        // SAFETY: this thread's error.
        unsafe { libc::dlerror() };
        assert!(startup.behind(c"no such name").is_null());
        // SAFETY: as above.
        assert!(unsafe { libc::dlerror() }.is_null());
    }

    #[test]
    fn the_old_hash_table_says_the_same() {
        // "ab" and "c" in one bucket; the hash itself is what the System V ABI writes down.
        let table = [1u32, 3, 2, 0, 0, 1];
        let mut seen = [0u32; 2];
        let mut count = 0;
        // SAFETY: one bucket, three symbols, of which 2 leads to 1.
        unsafe {
            by_old_hash(table.as_ptr() as u64, c"ab", &mut |index| {
                seen[count] = index;
                count += 1;
                false
            });
        }
        assert_eq!(seen, [2, 1]);
    }
}
