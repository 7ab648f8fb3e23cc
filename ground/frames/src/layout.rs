//! Where the words of a frame lie, by version of CPython (x86-64, 64-bit, with the interpreter's lock, release build).
//!
//! ```text
//!   3.9    tstate ─► frame ─► frame ─► …               nothing on the C stack: native frames are counted (count.rs)
//!   3.10   tstate ─► cframe (C stack) ─► cframe ─► …      one for each frame of   tstate ─► frame ─► frame ─► …
//!   3.11   tstate ─► cframe (C stack) ─► frame ─► …, the frame with the entry mark ends the cframe's part
//!   3.12   tstate ─► cframe ─► frame ─► … ─► shim (C stack) ─► …
//!   3.13   tstate ─► frame ─► … ─► shim (C stack) ─► …
//!   3.14   as before, and the lowest bits of what a frame runs are no part of its address
//! ```
//!
//! O1  Offsets are those of the interpreter's own headers (`Include/internal/pycore_frame.h`, `Include/cpython/code.h` of
//!     each version). What a program's runtime itself can tell is compared when it is found (runtime.rs), and the rest
//!     is proved by its first chains.
//!
//! Not here: the walk (chain.rs).

/// How a part of the chain that one call of the eval loop runs is marked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Border {
    /// Each frame is run by a call of its own, of which nothing is known.
    Count,
    /// Each frame is run by a call of its own, and a local of that call leads to the next further out.
    Pair {
        /// From the thread's state to the innermost frame.
        frame: u64,
        /// From a call's local to the next.
        previous: u64,
    },
    /// A local of the eval loop leads to the part's first frame, and a byte of the last frame is not 0.
    Cframe {
        /// From the cframe to the part's first frame.
        frame: u64,
        /// From the cframe to the next.
        previous: u64,
    },
    /// A frame that is a local of the eval loop, with this owner or a later one, follows the part's last frame.
    Shim {
        /// The owner.
        owner: u8,
    },
}

/// How a frame says where in its code it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// By the address of an instruction; the code's bytecode begins at this offset in it.
    Address {
        /// From a code to its bytecode.
        bytecode: u64,
    },
    /// By the number of an instruction, −1 before the first.
    Number {
        /// From a code to the object that has its bytecode.
        bytes: u64,
        /// How many of these numbers a code unit has.
        per_unit: i32,
    },
}

/// The offsets of one version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Major and minor version, as in the upper half of `Py_Version`.
    pub version: u32,
    /// From the thread's state to the cframe, or to the frame.
    pub current: u64,
    /// From what `current` leads to on to the frame, if that is a cframe.
    pub through: Option<u64>,
    pub border: Border,
    /// From a frame to its code.
    pub code: u64,
    /// From a frame to the one that called it.
    pub previous: u64,
    /// From a frame to its instruction.
    pub instruction: u64,
    /// From a frame to the byte that [`Border`] is about.
    pub mark: u64,
    pub place: Place,
    /// The size of the type of codes, without what varies.
    pub code_size: u64,
    /// From a code to its first line.
    pub first_line: u64,
    /// From a code to its file, to its (qualified) name, and to its line table.
    pub file: u64,
    pub name: u64,
    pub table: u64,
    /// From a text to its characters, if all are ASCII.
    pub ascii: u64,
    /// From a text to its characters, if they are not.
    pub wide: u64,
    /// Whether a frame may have something else than a code.
    pub may_lack_code: bool,
    /// The bits of what a frame runs that are no part of its address.
    pub tag: u64,
}

/// From a text to its hash, which the runtime keeps there once it knows it; names of codes are interned, and so have one.
pub(crate) const TEXT_HASH: u64 = 24;

/// What most versions have in common.
const SINCE_12: Layout = Layout {
    version: 0x030c,
    current: 56,
    through: Some(0),
    border: Border::Shim { owner: 3 },
    code: 0,
    previous: 8,
    instruction: 56,
    mark: 70,
    place: Place::Address { bytecode: 192 },
    code_size: 192,
    first_line: 68,
    file: 112,
    name: 128,
    table: 136,
    ascii: 40,
    wide: 56,
    may_lack_code: false,
    tag: 0,
};

const BEFORE_11: Layout = Layout {
    version: 0x030a,
    current: 48,
    through: None,
    border: Border::Pair {
        frame: 24,
        previous: 8,
    },
    code: 32,
    previous: 24,
    instruction: 96,
    mark: 0,
    place: Place::Number {
        bytes: 48,
        per_unit: 1,
    },
    code_size: 176,
    first_line: 40,
    file: 104,
    name: 112,
    table: 120,
    ascii: 48,
    wide: 72,
    ..SINCE_12
};

const LAYOUTS: [Layout; 6] = [
    Layout {
        version: 0x0309,
        current: 24,
        border: Border::Count,
        instruction: 104,
        place: Place::Number {
            bytes: 48,
            per_unit: 2,
        },
        ..BEFORE_11
    },
    BEFORE_11,
    Layout {
        version: 0x030b,
        through: None,
        border: Border::Cframe {
            frame: 8,
            previous: 16,
        },
        code: 32,
        previous: 48,
        mark: 68,
        place: Place::Address { bytecode: 184 },
        code_size: 184,
        first_line: 72,
        ascii: 48,
        wide: 72,
        ..SINCE_12
    },
    SINCE_12,
    Layout {
        version: 0x030d,
        current: 72,
        through: None,
        place: Place::Address { bytecode: 200 },
        code_size: 200,
        may_lack_code: true,
        ..SINCE_12
    },
    Layout {
        version: 0x030e,
        current: 72,
        through: None,
        mark: 74,
        place: Place::Address { bytecode: 208 },
        code_size: 208,
        may_lack_code: true,
        tag: 7,
        ..SINCE_12
    },
];

/// Returns the offsets of a version, given as `Py_Version` has it; `None` if they are not known. Versions before the
/// final one may differ from it, and 3.11.0 keeps a frame in the chain while it is taken apart.
pub(crate) fn layout_of(version: u32) -> Option<&'static Layout> {
    let is_final = version >> 4 & 0xf == 0xf;
    let is_known = is_final && version >> 8 != 0x03_0b00;
    let mut all = LAYOUTS.iter();
    all.find(|layout| is_known && layout.version == version >> 16)
}
