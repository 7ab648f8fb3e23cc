//! A frame of a stack, and what an address is called that has no name.
//!
//! ```text
//!   in a module ─► its names      generated code ─► [jit] 0x…      nowhere ─► 0x…
//! ```
//!
//! F1  A frame's name is never empty.
//!
//! Not here: which name an address has (`module.rs`, `perf_map.rs`).

/// A frame of a stack.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Frame {
    /// Demangled name; `module+0x1234` if there is none.
    pub function: String,
    /// File name of the module, without its folder; empty outside any module.
    pub module: String,
    /// Source file.
    pub file: Option<String>,
    /// Line, from 1.
    pub line: Option<u32>,
    /// Whether it is inlined into the frame that encloses it (the next one).
    pub inlined: bool,
}

/// Returns a frame outside every module. The lowest 64 KiB are never mapped: no code was there.
pub(crate) fn outside(pc: u64, modules_known: bool) -> Frame {
    if !modules_known {
        bare(format!("unknown module {pc:#x}"), "")
    } else if pc >= 1 << 16 {
        bare(format!("[jit] {pc:#x}"), "")
    } else {
        bare(format!("{pc:#x}"), "")
    }
}

pub(crate) fn bare(function: String, module: &str) -> Frame {
    Frame {
        function,
        module: module.to_string(),
        ..Frame::default()
    }
}
