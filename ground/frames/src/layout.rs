//! Where the words of a frame lie, by version of CPython (x86-64, 64-bit, with the interpreter's lock, release build).
//!
//! ```text
//!   3.11   tstate ─► cframe (C stack) ─► frame ─► …, the frame with the entry mark ends the cframe's part
//!   3.12   tstate ─► cframe ─► frame ─► … ─► shim (C stack) ─► …
//!   3.13   tstate ─► frame ─► … ─► shim (C stack) ─► …
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
    /// From a code to its bytecode.
    pub bytecode: u64,
    /// From a code to its first line.
    pub first_line: u64,
    /// From a text to its characters, if all are ASCII.
    pub ascii: u64,
    /// From a text to its characters, if they are not.
    pub wide: u64,
    /// Whether a frame may have something else than a code.
    pub may_lack_code: bool,
}

/// From a code to its file; its qualified name and its line table: the same in all versions here.
pub(crate) const CODE_FILE: u64 = 112;
pub(crate) const CODE_NAME: u64 = 128;
pub(crate) const CODE_TABLE: u64 = 136;
/// From a text to its hash, which the runtime keeps there once it knows it; names of codes are interned, and so have one.
pub(crate) const TEXT_HASH: u64 = 24;

const LAYOUTS: [Layout; 3] = [
    Layout {
        version: 0x030b,
        current: 56,
        through: None,
        border: Border::Cframe {
            frame: 8,
            previous: 16,
        },
        code: 32,
        previous: 48,
        instruction: 56,
        mark: 68,
        bytecode: 184,
        first_line: 72,
        ascii: 48,
        wide: 72,
        may_lack_code: false,
    },
    Layout {
        version: 0x030c,
        current: 56,
        through: Some(0),
        border: Border::Shim { owner: 3 },
        code: 0,
        previous: 8,
        instruction: 56,
        mark: 70,
        bytecode: 192,
        first_line: 68,
        ascii: 40,
        wide: 56,
        may_lack_code: false,
    },
    Layout {
        version: 0x030d,
        current: 72,
        through: None,
        border: Border::Shim { owner: 3 },
        code: 0,
        previous: 8,
        instruction: 56,
        mark: 70,
        bytecode: 200,
        first_line: 68,
        ascii: 40,
        wide: 56,
        may_lack_code: true,
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
