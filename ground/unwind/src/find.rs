//! From a pc to the module that holds it and to the module's unwind table.
//!
//! ```text
//!   pc ──► _dl_find_object (glibc ≥ 2.35: lock-free, usable in signal handlers)
//!     └──► dl_iterate_phdr  (older: takes the loader's recursive lock)
//! ```
//!
//! F1  We hold no lock of our own when the loader is called.
//! F2  The bounds handed out are those of the module's mapping. For a program whose segments have holes between them,
//!     `_dl_find_object` reports only the segment of the pc, and the table lies in another one, which is looked up by
//!     the program headers.
//! Not here: reading the table (cfi.rs); noticing that modules came or went (the caller).

use core::ffi::{c_int, c_void};

use crate::made::{Made, MadeFn};

/// `struct dl_find_object` of glibc on x86-64.
#[repr(C)]
pub struct DlFindObject {
    flags: u64,
    map_start: *mut c_void,
    map_end: *mut c_void,
    link_map: *mut c_void,
    eh_frame: *mut c_void,
    reserved: [u64; 7],
}

/// The type of glibc's `_dl_find_object`.
pub type FindObjectFn = unsafe extern "C" fn(*mut c_void, *mut DlFindObject) -> c_int;

/// A mapped module, or the segment of the pc, `[start, end)`; the address of its `.eh_frame_hdr` (0 if it has none),
/// and the bounds within which tables are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Module {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) hdr: u64,
    pub(crate) tables: (u64, u64),
}

/// Finds modules by pc. Cheap to copy; immutable.
#[derive(Clone, Copy, Debug)]
pub struct Finder {
    find_object: Option<FindObjectFn>,
    made: Option<MadeFn>,
}

impl Finder {
    /// Creates a finder that uses `_dl_find_object`, or `dl_iterate_phdr` if the C library has no such function.
    ///
    /// # Safety
    /// The function must be glibc's.
    pub const unsafe fn new(find_object: Option<FindObjectFn>) -> Finder {
        Finder {
            find_object,
            made: None,
        }
    }

    /// Returns a finder that asks about code outside of modules, too.
    pub const fn knowing(self, made: MadeFn) -> Finder {
        Finder {
            made: Some(made),
            ..self
        }
    }

    /// Returns how the frame of code outside of modules lies.
    pub(crate) fn made(&self, pc: u64) -> Option<Made> {
        self.made?(pc)
    }

    /// Creates a finder with the function looked up by `dlsym`. For start-up only: `dlsym` may allocate.
    pub fn resolve() -> Finder {
        // SAFETY: the name is terminated, and RTLD_DEFAULT needs no handle.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr()) };
        // SAFETY: a symbol of this name is glibc's function, or null, which is `None`.
        let find_object =
            unsafe { core::mem::transmute::<*mut c_void, Option<FindObjectFn>>(found) };
        Finder {
            find_object,
            made: None,
        }
    }

    /// Returns the module at `pc`.
    pub(crate) fn module(&self, pc: u64) -> Option<Module> {
        let Some(find_object) = self.find_object else {
            return by_phdr(pc);
        };
        let mut found = DlFindObject {
            flags: 0,
            map_start: core::ptr::null_mut(),
            map_end: core::ptr::null_mut(),
            link_map: core::ptr::null_mut(),
            eh_frame: core::ptr::null_mut(),
            reserved: [0; 7],
        };
        // SAFETY: F1; the function takes any address and writes only the structure.
        if unsafe { find_object(pc as usize as *mut c_void, &mut found) } != 0 {
            return None;
        }
        let (start, end) = (found.map_start as u64, found.map_end as u64);
        let hdr = found.eh_frame as u64;
        let is_inside = hdr == 0 || start <= hdr && hdr < end;
        Some(Module {
            start,
            end,
            hdr,
            tables: if is_inside {
                (start, end)
            } else {
                by_phdr(pc).map_or((start, end), |whole| whole.tables)
            },
        })
    }
}

struct Search {
    pc: u64,
    found: Option<Module>,
}

#[cold]
fn by_phdr(pc: u64) -> Option<Module> {
    let mut search = Search { pc, found: None };
    // SAFETY: F1; the callback gets the structure that outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.found
}

unsafe extern "C" fn visit(
    info: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    data: *mut c_void,
) -> c_int {
    // SAFETY: the loader passes a valid structure, and `data` is the `Search` of `by_phdr`.
    let (info, search) = unsafe { (&*info, &mut *data.cast::<Search>()) };
    let mut module = Module {
        start: u64::MAX,
        end: 0,
        hdr: 0,
        tables: (0, 0),
    };
    let mut inside = false;
    for i in 0..usize::from(info.dlpi_phnum) {
        // SAFETY: the loader's array has `dlpi_phnum` entries.
        let ph = unsafe { &*info.dlpi_phdr.add(i) };
        let start = info.dlpi_addr.wrapping_add(ph.p_vaddr);
        let end = start.wrapping_add(ph.p_memsz);
        if ph.p_type == libc::PT_LOAD {
            module.start = module.start.min(start);
            module.end = module.end.max(end);
            inside |= start <= search.pc && search.pc < end;
        } else if ph.p_type == libc::PT_GNU_EH_FRAME {
            module.hdr = start;
        }
    }
    module.tables = (module.start, module.end);
    if inside {
        search.found = Some(module);
    }
    c_int::from(inside)
}

/// The lowest address of code: none lies in the first page.
pub(crate) const LOWEST_CODE: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_find_the_same_table() {
        // SAFETY: no function at all.
        let old = unsafe { Finder::new(None) };
        let new = Finder::resolve();
        assert!(
            new.find_object.is_some(),
            "these tests want glibc 2.35 or later"
        );
        for pc in [
            both_ways_find_the_same_table as *const () as u64,
            libc::qsort as *const () as u64,
        ] {
            let (a, b) = (old.module(pc).unwrap(), new.module(pc).unwrap());
            assert_eq!(a.hdr, b.hdr);
            assert!(a.start <= pc && pc < a.end && b.start <= pc && pc < b.end);
        }
        assert!(old.module(4096).is_none() && new.module(4096).is_none());
    }
}
