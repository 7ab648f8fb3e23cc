//! Places at which a thread must not be made to call anything: inside the allocator, the loader, or what holds a lock
//! of theirs. A call from there would wait for ever, or find the heap half changed.
//!
//! ```text
//!   registers ─► frames, innermost first (unwind::elsewhere), through signal handlers ─► one in an unfit range? which?
//! ```
//!
//! L1  All of glibc's allocator is unfit, also its functions without a name: they lie in one piece, between the
//!     neighbours of those with a name. So is all of the loader, and of a library that is an allocator.
//! L2  Of other modules that define an allocator's functions, those functions are unfit.
//! L3  A stack that cannot be followed out of the C library is unfit; one that cannot be followed further out (code made
//!     at run time) is fit, as far as it was followed.
//!
//! Not here: what happens if no thread will do (the caller tries again).

use std::collections::HashMap;

use skinflint_unwind::{Frame, Tables};

use super::memory::Memory;
use super::modules::{Function, Module, Modules};

/// The most frames that are looked at.
const MOST_FRAMES: usize = 256;

/// Names by which libraries show that they are allocators, or ours.
const ALLOCATORS: [&str; 9] = [
    "libjemalloc",
    "libmimalloc",
    "libtcmalloc",
    "libsnmalloc",
    "libhoard",
    "librpmalloc",
    "libscudo",
    "libskinflint",
    "memfd:skinflint-",
];

/// Functions of glibc's allocator, which lie together (L1).
const OF_MALLOC: [&str; 12] = [
    "malloc",
    "free",
    "calloc",
    "realloc",
    "memalign",
    "valloc",
    "pvalloc",
    "malloc_trim",
    "malloc_info",
    "malloc_usable_size",
    "mallopt",
    "posix_memalign",
];

/// Functions of the C library that hold a lock which loading a library takes, or are in the middle of making a process or
/// a thread.
const OF_LIBC: [&str; 12] = [
    "fork",
    "_Fork",
    "__libc_fork",
    "vfork",
    "clone",
    "pthread_create",
    "pthread_atfork",
    "__register_atfork",
    "__tls_get_addr",
    "__libc_freeres",
    "__libc_dlopen_mode",
    "__libc_dlsym",
];

/// Functions by which programs allocate, by their names or the beginnings of these (L2).
const ALLOCATING: [&str; 14] = [
    "malloc",
    "free",
    "calloc",
    "realloc",
    "memalign",
    "posix_memalign",
    "aligned_alloc",
    "valloc",
    "pvalloc",
    "cfree",
    "_Znwm",
    "_Znam",
    "_ZdlPv",
    "_ZdaPv",
];
const ALLOCATING_PREFIXES: [&str; 5] = ["je_", "mi_", "tc_", "_Znwm", "_ZdlPv"];

/// The unfit ranges of a process, and copies of its unwind tables as far as they were needed.
pub(super) struct Places {
    ranges: Vec<(u64, u64, String)>,
    libc: (u64, u64),
    tables: HashMap<u64, Option<Vec<u8>>>,
}

/// Whether an exported function is one of an allocator.
fn allocates(name: &str) -> bool {
    ALLOCATING.contains(&name)
        || ALLOCATING_PREFIXES
            .iter()
            .any(|start| name.starts_with(start))
}

/// Whether a function of the C library must not be interrupted by a call.
fn is_of_libc(name: &str) -> bool {
    let loads = name.starts_with("dl") || name.starts_with("_dl_");
    loads && !name.starts_with("dlt") || OF_LIBC.contains(&name)
}

/// Returns the range of glibc's allocator in the C library: from the end of the function before it to the beginning of
/// that behind it.
fn whole_allocator(functions: &[Function]) -> Option<(u64, u64)> {
    let own = || {
        functions
            .iter()
            .filter(|one| OF_MALLOC.contains(&one.name.as_str()))
    };
    let (first, last) = (
        own().map(|one| one.at).min()?,
        own().map(|one| one.at + one.len).max()?,
    );
    let before = functions
        .iter()
        .map(|one| one.at + one.len)
        .filter(|end| *end <= first)
        .max();
    let behind = functions
        .iter()
        .map(|one| one.at)
        .filter(|at| *at >= last)
        .min();
    Some((before.unwrap_or(first), behind.unwrap_or(last)))
}

impl Places {
    pub(super) fn of(modules: &Modules) -> Places {
        let mut ranges = Vec::new();
        let mut libc = (0, 0);
        for module in &modules.0 {
            let file = module.file_name();
            let whole = (module.range.0, module.range.1, file.to_owned());
            let is_allocator = ALLOCATORS.iter().any(|start| file.starts_with(start));
            let is_libc = !module.is_program && module.function("gnu_get_libc_version").is_some();
            let defines = module.function("malloc").is_some() && module.function("free").is_some();
            let is_loader =
                module.is_loader || file.starts_with("ld-") || file.starts_with("ld.so");
            if is_loader
                || is_allocator
                || is_ours(module)
                || defines && !is_libc && !module.is_program
            {
                ranges.push(whole);
                continue;
            }
            if is_libc {
                libc = module.range;
                let own = whole_allocator(&module.functions);
                ranges.extend(own.map(|(low, high)| (low, high, "malloc".to_owned())));
            }
            let threads = file.starts_with("libpthread") || file.starts_with("libdl");
            let unfit = module
                .functions
                .iter()
                .filter(|one| match is_libc || threads {
                    true => is_of_libc(&one.name),
                    false => allocates(&one.name),
                });
            ranges.extend(unfit.map(|one| (one.at, one.at + one.len.max(1), one.name.clone())));
        }
        Places {
            ranges,
            libc,
            tables: HashMap::new(),
        }
    }

    /// Returns where a thread with these registers is that must not be made to call anything; `None` if it may.
    pub(super) fn unfit(
        &mut self,
        modules: &Modules,
        memory: &Memory,
        innermost: Frame,
    ) -> Option<String> {
        let mut frame = innermost;
        for _ in 0..MOST_FRAMES {
            let code = frame.code();
            let unfit = self
                .ranges
                .iter()
                .find(|(low, high, _)| (*low..*high).contains(&code));
            if let Some((.., name)) = unfit {
                return Some(name.clone());
            }
            let module = modules.at(code);
            let tables = module.and_then(|module| self.tables_of(module, memory));
            frame = match frame.caller(tables.as_ref(), &mut |at| memory.word(at)) {
                Ok(caller) => caller,
                Err(skinflint_unwind::End::Complete) => return None,
                Err(_) if (self.libc.0..self.libc.1).contains(&code) => {
                    return Some(format!("the C library at {code:#x}"));
                }
                Err(_) => return None,
            };
        }
        None
    }

    /// Returns a module's unwind tables, which are copied when they are first needed.
    fn tables_of(&mut self, module: &Module, memory: &Memory) -> Option<Tables<'_>> {
        let (at, len, header) = module.tables?;
        let copy = self
            .tables
            .entry(at)
            .or_insert_with(|| memory.bytes(at, len));
        Some(Tables {
            bytes: copy.as_deref()?,
            at,
            header,
        })
    }
}

/// Whether a module is the recorder, by whatever path it was loaded.
fn is_ours(module: &Module) -> bool {
    module.function("skinflint_attach").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The threads of this process are as good as any other's: their stacks are read as if they were elsewhere.
    #[test]
    fn a_thread_inside_malloc_is_unfit_and_one_that_waits_is_not() {
        let own = std::process::id();
        let memory = Memory::open(own).expect("our own");
        let modules = Modules::read(own, &memory).expect("a loader");
        let libc = modules.libc().expect("glibc");
        let mut places = Places::of(&modules);
        let at = |pc: u64, is_exact| Frame {
            pc,
            sp: 8,
            bp: 0,
            is_exact,
        };
        for name in [
            "malloc",
            "free",
            "calloc",
            "realloc",
            "fork",
            "dlopen",
            "pthread_create",
        ] {
            let inside = libc.function(name).expect(name) + 4;
            let unfit = places.unfit(&modules, &memory, at(inside, true));
            assert!(unfit.is_some(), "{name}");
        }
        // Functions without a name of its own lie before `malloc`: `_int_malloc` and others.
        let malloc = libc.function("malloc").expect("there");
        assert_eq!(
            places
                .unfit(&modules, &memory, at(malloc - 64, true))
                .as_deref(),
            Some("malloc")
        );
        assert!(
            places
                .unfit(
                    &modules,
                    &memory,
                    at(modules.function("_dl_find_object").unwrap_or(malloc), true)
                )
                .is_some()
        );
    }
}
