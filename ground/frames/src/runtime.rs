//! The interpreter of a program: found by what it exports, and refused if its tables are not those that we know.
//!
//! ```text
//!   names ─► Py_Version ─► layout ─► PyCode_Type: size, members ─► Runtime      else a refusal, with its reason
//! ```
//!
//! T1  A runtime is taken only from objects that the program was started with: they are never unloaded.
//!
//! Not here: chains (chain.rs).

use core::ffi::{CStr, c_char, c_int, c_void};

use skinflint_base::loader::Extent;

use crate::layout::{Border, Layout, Place, layout_of};

/// Why frames of an interpreter are not read.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The version is not known.
    Version = 1,
    /// The runtime's own tables are not those of its version.
    Tables = 2,
    /// A frame is no address.
    Frame = 3,
    /// A frame's code is none.
    Code = 4,
    /// A frame's instruction is not in its code.
    Instruction = 5,
    /// A record is not on this thread's stack.
    Record = 6,
    /// The runtime has no lock of the interpreter's: its frames have other fields, and its objects another allocator.
    FreeThreaded = 7,
}

/// The interpreter of this program.
#[derive(Clone, Copy)]
pub struct Runtime {
    pub(crate) layout: &'static Layout,
    /// The eval loop, if calls of it are counted.
    pub(crate) counted: Option<Extent>,
    current: unsafe extern "C" fn() -> *const c_void,
    is_finalizing: unsafe extern "C" fn() -> c_int,
    pub(crate) code_type: u64,
    pub(crate) text_type: u64,
    pub(crate) bytes_type: u64,
}

/// What a search for a runtime finds: it, or why it is refused; and its version, as `Py_Version` has it (0: before 3.9).
pub(crate) type Search = Option<(Result<Runtime, Refusal>, u32)>;

const TYPE_SIZE: u64 = 32;
const TYPE_MEMBERS: u64 = 240;
/// A member of a type: name, kind, offset, flags, description.
const MEMBER_WORDS: usize = 5;
const MOST_MEMBERS: usize = 32;

impl Runtime {
    /// Finds the runtime among the objects that the program was started with.
    ///
    /// # Safety
    /// `look` returns what those objects export under a name, or null (T1), and they are relocated.
    pub unsafe fn find(
        look: impl Fn(&CStr) -> *mut c_void,
        extent: impl Fn(&CStr) -> Option<Extent>,
    ) -> Search {
        let current = look(c"PyGILState_GetThisThreadState");
        if current.is_null() {
            return None;
        }
        // SAFETY: as the caller promises.
        let version = unsafe { version(&look) };
        // SAFETY: as above.
        if version >> 16 >= 0x030d && unsafe { is_free_threaded(&look) } {
            return Some((Err(Refusal::FreeThreaded), version));
        }
        let Some(layout) = layout_of(version) else {
            return Some((Err(Refusal::Version), version));
        };
        // A function up to 3.12, and under its new name from 3.13 on.
        let finalizing = [c"Py_IsFinalizing", c"_Py_IsFinalizing"].map(&look);
        let finalizing = finalizing.into_iter().find(|found| !found.is_null());
        let types = [c"PyCode_Type", c"PyUnicode_Type", c"PyBytes_Type"].map(&look);
        let types = types.map(|at| at as u64);
        let Some(finalizing) = finalizing.filter(|_| !types.contains(&0)) else {
            return Some((Err(Refusal::Tables), version));
        };
        let [code_type, text_type, bytes_type] = types;
        // SAFETY: the type of code objects of a version that is known.
        if !unsafe { fits(code_type, layout) } {
            return Some((Err(Refusal::Tables), version));
        }
        let counted = match layout.border {
            Border::Count => extent(c"_PyEval_EvalFrameDefault"),
            _ => None,
        };
        if counted.is_none() && layout.border == Border::Count {
            return Some((Err(Refusal::Tables), version));
        }
        // SAFETY: these functions have had these types in all versions that are known.
        let (current, is_finalizing) = unsafe {
            (
                core::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> *const c_void>(
                    current,
                ),
                core::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(finalizing),
            )
        };
        let runtime = Runtime {
            layout,
            counted,
            current,
            is_finalizing,
            code_type,
            text_type,
            bytes_type,
        };
        Some((Ok(runtime), version))
    }

    /// Returns the state of this thread; 0 if it has none, or the runtime is about to end: then the states of other
    /// threads are freed while these may still run.
    #[inline(always)]
    pub(crate) fn thread_state(&self) -> u64 {
        // SAFETY: they load words (frames.P1); the runtime is never unloaded (T1).
        unsafe {
            let current = (self.current)();
            if current.is_null() || (self.is_finalizing)() != 0 {
                return 0;
            }
            current as u64
        }
    }
}

/// Returns the version, as `Py_Version` has it. Up to 3.10 it is known by the functions that a version brought, and those
/// of later ones that are missing; what is not of that minor version at all is then told by its tables. 0: older than that.
///
/// # Safety
/// As for [`Runtime::find`].
unsafe fn version(look: &impl Fn(&CStr) -> *mut c_void) -> u32 {
    const BROUGHT: [(&CStr, u32); 2] = [
        (c"PyIter_Send", 0x030a_00f0),
        (c"PyFrame_GetBack", 0x0309_00f0),
    ];
    let version = look(c"Py_Version") as *const u32;
    if !version.is_null() {
        // SAFETY: a constant of that type.
        return unsafe { version.read() };
    }
    let mut all = BROUGHT.iter();
    let newest = all.find(|(name, _)| !look(name).is_null());
    newest.map_or(0, |(_, version)| *version)
}

/// Returns whether a Python says that it has no lock of the interpreter's; it can from 3.13 on.
///
/// # Safety
/// `look` returns what the objects that the program was started with export under a name, or null.
pub unsafe fn is_free_threaded(look: &impl Fn(&CStr) -> *mut c_void) -> bool {
    const COOKIE: u64 = u64::from_le_bytes(*b"xdebugpy");
    let at = look(c"_PyRuntime") as *const [u64; 3];
    // SAFETY: the runtime's own data, which begins so from 3.13 on: a cookie, the version, the flag.
    !at.is_null() && matches!(unsafe { at.read() }, [COOKIE, _, flag] if flag != 0)
}

/// Returns whether the size and the members of the type of code objects are those of the layout.
///
/// # Safety
/// `code_type` is that type; its object is relocated.
unsafe fn fits(code_type: u64, layout: &Layout) -> bool {
    let is_old = matches!(layout.place, Place::Number { .. });
    let table = match layout.border {
        Border::Count => c"co_lnotab",
        _ => c"co_linetable",
    };
    let wanted = [
        (c"co_filename", layout.file),
        (
            if is_old { c"co_name" } else { c"co_qualname" },
            layout.name,
        ),
        (table, layout.table),
        (c"co_firstlineno", layout.first_line),
    ];
    let mut seen = 0;
    // SAFETY: static data of the runtime; the table ends with a name that is null.
    unsafe {
        if ((code_type + TYPE_SIZE) as *const u64).read() != layout.code_size {
            return false;
        }
        let members = ((code_type + TYPE_MEMBERS) as *const *const [u64; MEMBER_WORDS]).read();
        if members.is_null() {
            return false;
        }
        for index in 0..MOST_MEMBERS {
            let [name, _, offset, ..] = members.add(index).read();
            if name == 0 {
                break;
            }
            let name = CStr::from_ptr(name as *const c_char);
            let is_it = |(wanted, at): &(&CStr, u64)| *wanted == name && *at == offset;
            seen += usize::from(wanted.iter().any(is_it));
        }
    }
    seen == wanted.len()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    unsafe extern "C" fn nothing() -> *const c_void {
        core::ptr::null()
    }

    unsafe extern "C" fn never() -> c_int {
        0
    }

    /// A runtime of a version, whose types are these addresses.
    pub(crate) fn runtime(version: u32, types: [u64; 3]) -> Runtime {
        Runtime {
            layout: layout_of(version).expect("a known version"),
            counted: None,
            current: nothing,
            is_finalizing: never,
            code_type: types[0],
            text_type: types[1],
            bytes_type: types[2],
        }
    }

    const EVAL: Extent = Extent {
        start: 0x1000,
        end: 0x2000,
    };

    struct Exported {
        version: u32,
        /// What a runtime from 3.13 on begins with.
        runtime: [u64; 3],
        members: Vec<[u64; MEMBER_WORDS]>,
        code_type: [u64; 64],
    }

    impl Exported {
        fn new(version: u32, size: u64, offsets: [u64; 4]) -> Box<Exported> {
            let names = [
                c"co_filename",
                if version >> 16 <= 0x030a {
                    c"co_name"
                } else {
                    c"co_qualname"
                },
                if version >> 16 == 0x0309 {
                    c"co_lnotab"
                } else {
                    c"co_linetable"
                },
                c"co_firstlineno",
            ];
            let member = |(name, at): (&'static CStr, u64)| [name.as_ptr() as u64, 6, at, 1, 0];
            let mut members: Vec<_> = names.into_iter().zip(offsets).map(member).collect();
            members.push([0; MEMBER_WORDS]);
            let mut exported = Box::new(Exported {
                version,
                runtime: [u64::from_le_bytes(*b"xdebugpy"), 0, 0],
                members,
                code_type: [0; 64],
            });
            exported.code_type[TYPE_SIZE as usize / 8] = size;
            exported.code_type[TYPE_MEMBERS as usize / 8] = exported.members.as_ptr() as u64;
            exported
        }

        fn found(&self) -> Search {
            let look = |name: &CStr| -> *mut c_void {
                match name.to_bytes() {
                    b"PyGILState_GetThisThreadState" => nothing as *mut c_void,
                    b"_Py_IsFinalizing" => never as *mut c_void,
                    b"PyIter_Send" if self.version >= 0x030a_0000 => never as *mut c_void,
                    b"PyFrame_GetBack" => never as *mut c_void,
                    b"_PyRuntime" => (&raw const self.runtime).cast_mut().cast(),
                    b"Py_Version" if self.version >= 0x030b_0000 => {
                        (&raw const self.version).cast_mut().cast()
                    }
                    b"PyCode_Type" => (&raw const self.code_type).cast_mut().cast(),
                    b"PyUnicode_Type" | b"PyBytes_Type" => 0x10_0000 as *mut c_void,
                    _ => core::ptr::null_mut(),
                }
            };
            // SAFETY: the tables are as those of a runtime.
            unsafe { Runtime::find(look, |_| Some(EVAL)) }
        }
    }

    #[test]
    fn a_known_version_with_its_own_tables_is_taken() {
        let offsets = [112, 128, 136, 72];
        let found = Exported::new(0x030b_02f0, 184, offsets);
        assert!(matches!(found.found(), Some((Ok(_), 0x030b_02f0))));
    }

    #[test]
    fn versions_that_do_not_say_which_they_are_are_known_by_what_they_have() {
        let found = Exported::new(0x030a_00f0, 176, [104, 112, 120, 40]).found();
        assert!(matches!(found, Some((Ok(_), 0x030a_00f0))));
        let found = Exported::new(0x0309_12f0, 176, [104, 112, 120, 40]).found();
        assert!(matches!(
            found,
            Some((
                Ok(Runtime {
                    counted: Some(EVAL),
                    ..
                }),
                0x0309_00f0
            ))
        ));
        // Sources that were changed, or a later version's.
        let found = Exported::new(0x030a_00f0, 184, [104, 112, 120, 40]).found();
        assert!(matches!(found, Some((Err(Refusal::Tables), _))));
    }

    #[test]
    fn a_runtime_without_a_lock_is_refused() {
        let mut exported = Exported::new(0x030e_00f0, 208, [112, 128, 136, 68]);
        assert!(matches!(exported.found(), Some((Ok(_), _))));
        exported.runtime[2] = 1;
        let found = exported.found();
        assert!(matches!(found, Some((Err(Refusal::FreeThreaded), _))));
    }

    #[test]
    fn anything_else_is_refused() {
        let good = [112, 128, 136, 72];
        // 3.16; 3.11.0; a release candidate of 3.11.9.
        for version in [0x0310_00f0, 0x030b_00f0, 0x030b_09c1] {
            let found = Exported::new(version, 184, good).found();
            assert!(matches!(found, Some((Err(Refusal::Version), v)) if v == version));
        }
        // A debug build has other sizes; one field is elsewhere.
        let others = [
            (200, good),
            (184, [112, 128, 136, 68]),
            (184, [112 + 16, 128, 136, 72]),
        ];
        for (size, offsets) in others {
            let found = Exported::new(0x030b_02f0, size, offsets).found();
            assert!(matches!(found, Some((Err(Refusal::Tables), _))));
        }
        // SAFETY: nothing is exported.
        let nothing = unsafe { Runtime::find(|_| core::ptr::null_mut(), |_| None) };
        assert!(nothing.is_none());
    }
}
