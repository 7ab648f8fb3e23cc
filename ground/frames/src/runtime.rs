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

use crate::layout::{CODE_FILE, CODE_NAME, CODE_TABLE, Layout, layout_of};

/// Why frames of the interpreter are not read.
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
}

/// The interpreter of this program.
#[derive(Clone, Copy)]
pub struct Runtime {
    pub(crate) layout: &'static Layout,
    current: unsafe extern "C" fn() -> *const c_void,
    is_finalizing: unsafe extern "C" fn() -> c_int,
    pub(crate) code_type: u64,
    pub(crate) text_type: u64,
    pub(crate) bytes_type: u64,
}

/// The result of a search for a runtime.
pub enum Found {
    /// There is none.
    Nothing,
    /// There is one, of this version (as `Py_Version` has it; 0: older than 3.11), and it is refused.
    Refused(Refusal, u32),
    /// There is one, of this version.
    Known(Runtime, u32),
}

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
    pub unsafe fn find(look: impl Fn(&CStr) -> *mut c_void) -> Found {
        let current = look(c"PyGILState_GetThisThreadState");
        if current.is_null() {
            return Found::Nothing;
        }
        let version = look(c"Py_Version") as *const u32;
        if version.is_null() {
            return Found::Refused(Refusal::Version, 0);
        }
        // SAFETY: a constant of that type.
        let version = unsafe { version.read() };
        let Some(layout) = layout_of(version) else {
            return Found::Refused(Refusal::Version, version);
        };
        // A function up to 3.12, and under its new name from 3.13 on.
        let finalizing = [c"Py_IsFinalizing", c"_Py_IsFinalizing"].map(&look);
        let finalizing = finalizing.into_iter().find(|found| !found.is_null());
        let types = [c"PyCode_Type", c"PyUnicode_Type", c"PyBytes_Type"].map(&look);
        let types = types.map(|at| at as u64);
        let Some(finalizing) = finalizing.filter(|_| !types.contains(&0)) else {
            return Found::Refused(Refusal::Tables, version);
        };
        let [code_type, text_type, bytes_type] = types;
        // SAFETY: the type of code objects of a version that is known.
        if !unsafe { fits(code_type, layout) } {
            return Found::Refused(Refusal::Tables, version);
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
            current,
            is_finalizing,
            code_type,
            text_type,
            bytes_type,
        };
        Found::Known(runtime, version)
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

/// Returns whether the size and the members of the type of code objects are those of the layout.
///
/// # Safety
/// `code_type` is that type; its object is relocated.
unsafe fn fits(code_type: u64, layout: &Layout) -> bool {
    let wanted = [
        (c"co_filename", CODE_FILE),
        (c"co_qualname", CODE_NAME),
        (c"co_linetable", CODE_TABLE),
        (c"co_firstlineno", layout.first_line),
    ];
    let mut seen = 0;
    // SAFETY: static data of the runtime; the table ends with a name that is null.
    unsafe {
        if ((code_type + TYPE_SIZE) as *const u64).read() != layout.bytecode {
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
            current: nothing,
            is_finalizing: never,
            code_type: types[0],
            text_type: types[1],
            bytes_type: types[2],
        }
    }

    struct Exported {
        version: u32,
        members: Vec<[u64; MEMBER_WORDS]>,
        code_type: [u64; 64],
    }

    impl Exported {
        fn new(version: u32, size: u64, offsets: [u64; 4]) -> Box<Exported> {
            let names = [
                c"co_filename",
                c"co_qualname",
                c"co_linetable",
                c"co_firstlineno",
            ];
            let member = |(name, at): (&'static CStr, u64)| [name.as_ptr() as u64, 6, at, 1, 0];
            let mut members: Vec<_> = names.into_iter().zip(offsets).map(member).collect();
            members.push([0; MEMBER_WORDS]);
            let mut exported = Box::new(Exported {
                version,
                members,
                code_type: [0; 64],
            });
            exported.code_type[TYPE_SIZE as usize / 8] = size;
            exported.code_type[TYPE_MEMBERS as usize / 8] = exported.members.as_ptr() as u64;
            exported
        }

        fn found(&self) -> Found {
            let look = |name: &CStr| -> *mut c_void {
                match name.to_bytes() {
                    b"PyGILState_GetThisThreadState" => nothing as *mut c_void,
                    b"_Py_IsFinalizing" => never as *mut c_void,
                    b"Py_Version" => (&raw const self.version).cast_mut().cast(),
                    b"PyCode_Type" => (&raw const self.code_type).cast_mut().cast(),
                    b"PyUnicode_Type" | b"PyBytes_Type" => 0x10_0000 as *mut c_void,
                    _ => core::ptr::null_mut(),
                }
            };
            // SAFETY: the tables are as those of a runtime.
            unsafe { Runtime::find(look) }
        }
    }

    #[test]
    fn a_known_version_with_its_own_tables_is_taken() {
        let offsets = [CODE_FILE, CODE_NAME, CODE_TABLE, 72];
        let found = Exported::new(0x030b_02f0, 184, offsets);
        assert!(matches!(found.found(), Found::Known(_, 0x030b_02f0)));
    }

    #[test]
    fn anything_else_is_refused() {
        let good = [CODE_FILE, CODE_NAME, CODE_TABLE, 72];
        // 3.16; 3.11.0; a release candidate of 3.11.9.
        for version in [0x0310_00f0, 0x030b_00f0, 0x030b_09c1] {
            let found = Exported::new(version, 184, good).found();
            assert!(matches!(found, Found::Refused(Refusal::Version, v) if v == version));
        }
        // A debug build has other sizes; one field is elsewhere.
        let others = [
            (200, good),
            (184, [CODE_FILE, CODE_NAME, CODE_TABLE, 68]),
            (184, [CODE_FILE + 16, CODE_NAME, CODE_TABLE, 72]),
        ];
        for (size, offsets) in others {
            let found = Exported::new(0x030b_02f0, size, offsets).found();
            assert!(matches!(found, Found::Refused(Refusal::Tables, _)));
        }
        // SAFETY: nothing is exported.
        let nothing = unsafe { Runtime::find(|_| core::ptr::null_mut()) };
        assert!(matches!(nothing, Found::Nothing));
    }
}
