//! What HotSpot says of itself: names of fields, types and constants, with offsets and sizes, as it exports them.
//!
//! ```text
//!   gHotSpotVMStructs ─► type, field, type of the field, is it static, offset, address │ …        ends with no name
//!   gHotSpotVMTypes   ─► type, …, size │ …        gHotSpotVMIntConstants ─► name, value │ …
//! ```
//!
//! B1  A field counts only if it is there and has the type that it is read as: its width follows from it.
//! B2  Two forms of compiled code are known: all in one block (to 22), and with what does not change, and what does, in blocks
//!     of their own (25 to 28). What lies between (only what does not change has a block: 23, 24) is refused, as are others.
//!
//! Not here: what is read by them.

use core::ffi::{CStr, c_char, c_void};

/// A machine's tables, each by the address of the variable that it exports.
pub struct Tables {
    /// `gHotSpotVMStructs`.
    pub structs: *const c_void,
    /// `gHotSpotVMTypes`.
    pub types: *const c_void,
    /// `gHotSpotVMIntConstants`.
    pub constants: *const c_void,
    /// What it exports beside them: the distances of entries, which are given as numbers.
    pub strides: [*const c_void; 3],
}

/// An entry of `gHotSpotVMStructs`.
#[repr(C)]
struct Field {
    of: *const c_char,
    name: *const c_char,
    kind: *const c_char,
    is_static: i32,
    offset: u64,
    address: u64,
}

/// An entry of `gHotSpotVMTypes`.
#[repr(C)]
struct Type {
    name: *const c_char,
    above: *const c_char,
    is_oop: i32,
    is_integer: i32,
    is_unsigned: i32,
    bytes: u64,
}

/// An entry of `gHotSpotVMIntConstants`.
#[repr(C)]
struct Constant {
    name: *const c_char,
    value: i32,
}

/// The most entries of a table.
const MOST: usize = 1 << 14;

/// Where words lie, and how large things are (java.J3).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Layout {
    /// The machine's version: its first number.
    pub major: u32,
    /// Addresses of variables: the code heaps, the bounds of their addresses, the interpreter's code, where `call_stub`'s
    /// call returns to.
    pub heaps: u64,
    pub low: u64,
    pub high: u64,
    pub interpreter: u64,
    pub call_stub: u64,
    /// In an array: its length, its elements.
    pub array_len: u64,
    pub array_data: u64,
    /// In a code heap: lowest and highest address of its memory, of its map of segments, and their size.
    pub memory: [u64; 2],
    pub segments: [u64; 2],
    pub segment_log: u64,
    /// Of a block: the bytes of its head, and where in it is said that it is used.
    pub block_bytes: u64,
    pub block_used: u64,
    /// In the interpreter's code: where it begins, and its bytes.
    pub buffer: u64,
    pub buffer_bytes: u64,
    /// In a piece of code: its name, its bytes, the words of its frame, where its instructions begin.
    pub name: u64,
    pub bytes: u64,
    pub frame_words: u64,
    pub begin: Begin,
    /// In compiled code: its method, its number, and where its frames keep the return address in whose place another is put.
    pub method: u64,
    pub number: u64,
    pub replaced: u64,
    pub debug: Debug,
    /// In a method: what of it never changes. In that: constants, flags (two bytes or four), bytes of bytecode, of all, the
    /// name's place among the constants; and its own bytes.
    pub fixed: u64,
    pub constants: u64,
    pub flags: u64,
    pub code_bytes: u64,
    pub fixed_words: u64,
    pub name_index: u64,
    pub fixed_bytes: u64,
    /// The bit of these flags that says that there is a table of lines.
    pub has_lines: u32,
    /// In constants: the class, how many there are, the place of the file's name; and their own bytes.
    pub holder: u64,
    pub count: u64,
    pub file_index: u64,
    pub constants_bytes: u64,
    /// In a class: its name. In a symbol: its bytes, and their number.
    pub class_name: u64,
    pub symbol_bytes: u64,
    pub symbol_text: u64,
}

/// How a piece of code says where its instructions begin.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Begin {
    /// By an address.
    At(u64),
    /// By their distance from its own beginning.
    By(u64),
}

impl Default for Begin {
    fn default() -> Begin {
        Begin::At(0)
    }
}

/// Where compiled code has what debuggers need (B2).
#[derive(Clone, Copy, Debug)]
pub(crate) enum Debug {
    /// Distances from the code's own beginning: descriptors of instructions, their end, methods; and the address of scopes.
    Within {
        pcs: u64,
        pcs_end: u64,
        methods: u64,
        scopes: u64,
    },
    /// Blocks of their own: one that never changes, with the distances in it of descriptors and of scopes, which follow them;
    /// one that may, with its bytes, and the bytes before its methods.
    Apart {
        fixed: u64,
        pcs: u64,
        scopes: u64,
        other: u64,
        other_bytes: u64,
        before_methods: u64,
    },
}

impl Default for Debug {
    fn default() -> Debug {
        Debug::Within {
            pcs: 0,
            pcs_end: 0,
            methods: 0,
            scopes: 0,
        }
    }
}

const POINTERS: u64 = 8;
/// Types of fields of 1, 2 and 4 bytes; all others are taken for words.
const NARROW: [(u64, &[&CStr]); 3] = [
    (1, &[c"bool", c"u1"]),
    (2, &[c"u2", c"uint16_t", c"int16_t"]),
    (4, &[c"int", c"u4", c"uint32_t"]),
];

impl Tables {
    /// Returns the version: three numbers, a byte each.
    ///
    /// # Safety
    /// The machine is loaded.
    pub(crate) unsafe fn version(&self) -> u32 {
        let part = |name: &CStr| {
            // SAFETY: as the caller promises; a variable of four bytes.
            let value = unsafe {
                let at = self.find(c"Abstract_VM_Version", name, true, 4)?;
                (at as *const i32).read()
            };
            Some(value.clamp(0, 255) as u32)
        };
        let names = [
            c"_vm_major_version",
            c"_vm_minor_version",
            c"_vm_security_version",
        ];
        names
            .into_iter()
            .fold(0, |all, name| all << 8 | part(name).unwrap_or(0))
    }

    /// Returns the offsets that frames are read by; `None` if one is missing.
    ///
    /// # Safety
    /// As for `version`.
    pub(crate) unsafe fn layout(&self) -> Option<Layout> {
        // SAFETY: as the caller promises.
        let (are_known, version) = unsafe { (self.are_as_known(), self.version()) };
        let loaded = Loaded(are_known.then_some(self)?);
        let major = version >> 16;
        loaded.methods(loaded.code(Layout {
            major,
            ..Layout::default()
        })?)
    }

    /// Returns whether entries are as far apart as ours.
    ///
    /// # Safety
    /// As for `version`.
    pub(super) unsafe fn are_as_known(&self) -> bool {
        let sizes = [size_of::<Field>(), size_of::<Type>(), size_of::<Constant>()];
        // SAFETY: as the caller promises: numbers of eight bytes.
        let is_it = |(at, size): (&*const c_void, usize)| unsafe {
            !at.is_null() && at.cast::<u64>().read() == size as u64
        };
        self.strides.iter().zip(sizes).all(is_it)
    }

    /// Returns a field's offset, or a variable's address, if it has so many bytes (B1).
    ///
    /// # Safety
    /// As for `version`.
    pub(super) unsafe fn find(
        &self,
        of: &CStr,
        name: &CStr,
        is_static: bool,
        bytes: u64,
    ) -> Option<u64> {
        // SAFETY: as the caller promises: entries up to one without a name, whose texts are the machine's own.
        unsafe {
            let is_it = |field: &Field| is(field.of, of) && is(field.name, name);
            let field = find(self.structs, |field: &Field| field.of.is_null(), is_it)?;
            let is_kind = |kinds: &[&CStr]| kinds.iter().any(|kind| is(field.kind, kind));
            let width = NARROW.iter().find(|(_, kinds)| is_kind(kinds));
            let is_it = (field.is_static != 0) == is_static
                && width.map_or(POINTERS, |(bytes, _)| *bytes) == bytes;
            is_it.then_some(match is_static {
                true => field.address,
                false => field.offset,
            })
        }
    }

    /// Returns the bytes of a type.
    ///
    /// # Safety
    /// As for `version`.
    unsafe fn bytes(&self, of: &CStr) -> Option<u64> {
        // SAFETY: as in `find`.
        unsafe {
            let found = find(
                self.types,
                |entry: &Type| entry.name.is_null(),
                |entry: &Type| is(entry.name, of),
            )?;
            Some(found.bytes)
        }
    }

    /// Returns a constant.
    ///
    /// # Safety
    /// As for `version`.
    unsafe fn constant(&self, name: &CStr) -> Option<u32> {
        // SAFETY: as in `find`.
        unsafe {
            let found = find(
                self.constants,
                |entry: &Constant| entry.name.is_null(),
                |entry: &Constant| is(entry.name, name),
            )?;
            Some(found.value as u32)
        }
    }
}

/// The tables of a machine that is loaded: only `Tables::layout` makes one.
struct Loaded<'a>(&'a Tables);

impl Loaded<'_> {
    fn variable(&self, of: &CStr, name: &CStr) -> Option<u64> {
        // SAFETY: the machine is loaded.
        unsafe { self.0.find(of, name, true, POINTERS) }
    }

    fn field(&self, of: &CStr, name: &CStr, bytes: u64) -> Option<u64> {
        // SAFETY: as above.
        unsafe { self.0.find(of, name, false, bytes) }
    }

    fn bytes(&self, of: &CStr) -> Option<u64> {
        // SAFETY: as above.
        unsafe { self.0.bytes(of) }
    }

    fn constant(&self, name: &CStr) -> Option<u32> {
        // SAFETY: as above.
        unsafe { self.0.constant(name) }
    }

    /// Returns a field of compiled code, which had two types once.
    fn compiled(&self, name: &CStr, bytes: u64) -> Option<u64> {
        let own = self.field(c"nmethod", name, bytes);
        own.or_else(|| self.field(c"CompiledMethod", name, bytes))
    }

    /// Returns where a part of a code heap has its lowest and its highest address.
    fn space(&self, name: &CStr) -> Option<[u64; 2]> {
        let of = self.field(c"CodeHeap", name, POINTERS)?;
        let low = self.field(c"VirtualSpace", c"_low", POINTERS)?;
        let high = self.field(c"VirtualSpace", c"_high", POINTERS)?;
        Some([of + low, of + high])
    }

    /// Adds what leads to a piece of code, and what is in one.
    fn code(&self, to: Layout) -> Option<Layout> {
        let begin = match self.field(c"CodeBlob", c"_code_begin", POINTERS) {
            Some(begin) => Begin::At(begin),
            None => Begin::By(self.field(c"CodeBlob", c"_code_offset", 4)?),
        };
        Some(Layout {
            heaps: self.variable(c"CodeCache", c"_heaps")?,
            low: self.variable(c"CodeCache", c"_low_bound")?,
            high: self.variable(c"CodeCache", c"_high_bound")?,
            interpreter: self.variable(c"AbstractInterpreter", c"_code")?,
            call_stub: self.variable(c"StubRoutines", c"_call_stub_return_address")?,
            array_len: self.field(c"GrowableArrayBase", c"_len", 4)?,
            array_data: self.field(c"GrowableArray<int>", c"_data", POINTERS)?,
            memory: self.space(c"_memory")?,
            segments: self.space(c"_segmap")?,
            segment_log: self.field(c"CodeHeap", c"_log2_segment_size", 4)?,
            block_bytes: self.bytes(c"HeapBlock")?,
            block_used: self.field(c"HeapBlock::Header", c"_used", 1)?,
            buffer: self.field(c"StubQueue", c"_stub_buffer", POINTERS)?,
            buffer_bytes: self.field(c"StubQueue", c"_buffer_limit", 4)?,
            name: self.field(c"CodeBlob", c"_name", POINTERS)?,
            bytes: self.field(c"CodeBlob", c"_size", 4)?,
            frame_words: self.field(c"CodeBlob", c"_frame_size", 4)?,
            begin,
            method: self.compiled(c"_method", POINTERS)?,
            number: self.compiled(c"_compile_id", 4)?,
            replaced: self.compiled(c"_orig_pc_offset", 4)?,
            debug: self.debug()?,
            ..to
        })
    }

    fn debug(&self) -> Option<Debug> {
        let pcs = self.compiled(c"_scopes_pcs_offset", 4)?;
        let Some(fixed) = self.compiled(c"_immutable_data", POINTERS) else {
            return Some(Debug::Within {
                pcs,
                pcs_end: self.compiled(c"_dependencies_offset", 4)?,
                methods: self.compiled(c"_metadata_offset", 4)?,
                scopes: self.compiled(c"_scopes_data_begin", POINTERS)?,
            });
        };
        Some(Debug::Apart {
            fixed,
            pcs,
            scopes: self.compiled(c"_scopes_data_offset", 4)?,
            other: self.field(c"CodeBlob", c"_mutable_data", POINTERS)?,
            other_bytes: self.field(c"CodeBlob", c"_mutable_data_size", 4)?,
            before_methods: self.field(c"CodeBlob", c"_relocation_size", 4)?,
        })
    }

    /// Adds what leads from a method to its names and lines.
    fn methods(&self, to: Layout) -> Option<Layout> {
        let (flags, has_lines) = match self.field(c"ConstMethod", c"_flags", 2) {
            Some(flags) => (flags, c"ConstMethod::_has_linenumber_table"),
            None => (
                self.field(c"ConstMethod", c"_flags._flags", 4)?,
                c"ConstMethodFlags::_misc_has_linenumber_table",
            ),
        };
        Some(Layout {
            fixed: self.field(c"Method", c"_constMethod", POINTERS)?,
            constants: self.field(c"ConstMethod", c"_constants", POINTERS)?,
            flags,
            code_bytes: self.field(c"ConstMethod", c"_code_size", 2)?,
            fixed_words: self.field(c"ConstMethod", c"_constMethod_size", 4)?,
            name_index: self.field(c"ConstMethod", c"_name_index", 2)?,
            fixed_bytes: self.bytes(c"ConstMethod")?,
            has_lines: self.constant(has_lines)?,
            holder: self.field(c"ConstantPool", c"_pool_holder", POINTERS)?,
            count: self.field(c"ConstantPool", c"_length", 4)?,
            file_index: self.field(c"ConstantPool", c"_source_file_name_index", 2)?,
            constants_bytes: self.bytes(c"ConstantPool")?,
            class_name: self.field(c"Klass", c"_name", POINTERS)?,
            symbol_bytes: self.field(c"Symbol", c"_length", 2)?,
            symbol_text: self.field(c"Symbol", c"_body[0]", 1)?,
            ..to
        })
    }
}

/// Returns the entry of a table that `is_it` takes.
///
/// # Safety
/// `at` is a variable that leads to entries of this type, the last of which `is_end` takes.
unsafe fn find<'a, T>(
    at: *const c_void,
    is_end: impl Fn(&T) -> bool,
    is_it: impl Fn(&T) -> bool,
) -> Option<&'a T> {
    if at.is_null() {
        return None;
    }
    // SAFETY: as the caller promises.
    unsafe {
        let mut entry = at.cast::<*const T>().read().as_ref()?;
        for _ in 0..MOST {
            if is_end(entry) {
                return None;
            }
            if is_it(entry) {
                return Some(entry);
            }
            entry = &*(&raw const *entry).add(1);
        }
    }
    None
}

/// Returns whether a text is this one.
///
/// # Safety
/// It is null, or ends with 0.
unsafe fn is(text: *const c_char, wanted: &CStr) -> bool {
    // SAFETY: as the caller promises.
    !text.is_null() && unsafe { CStr::from_ptr(text) } == wanted
}
