//! Frames of CPython, Ruby, PHP and Java on the running thread's stack, cheaply enough for every `malloc`, and their places among the
//! native frames.
//!
//! ```text
//!   tstate ─► frame ─► frame ─► frame ─► …            the interpreter's own chain, innermost first
//!              │ code, instruction   │
//!              └─────── record ──────┘                 a word on the C stack: the call of the eval loop that runs them
//!   native:  main  eval  call  eval  list_resize       the record lies in the frame of its eval loop
//!   merged:  main  eval  PY PY  call  eval  PY  list_resize
//! ```
//!
//! P1  Nothing here allocates, locks, formats, touches `errno`, or runs code of the language. At most two
//!     functions of a runtime are called, which load words.
//! P2  Loads are from: objects that the program was started with; the state that the runtime says is this thread's; records
//!     within `[sp, hi)` of the thread's stack; and what a chain that begins there leads to. In the first captures the
//!     kernel is asked before each load whether it can be made; afterwards the layout is proved, and an address is
//!     only checked for being one.
//! P3  A chain is written by the thread that runs it alone, and its frames keep their code alive: no lock is needed,
//!     whichever thread has the interpreter's.
//!     Of Go: what its runtime saved where it passed to C, and the goroutine's stack (go.rs).
//! P4  Chains of more than [`MAX_CHAIN`] frames are not read.
//! P5  A frame is kept only if it and all frames outside of it have the same address, code, name, line table, instruction, record
//!     and place: one eval loop runs many functions from the same return address, and memory of frames and of code is
//!     reused.
//! P6  All-zero memory is a valid [`State`].
//! P7  What does not fit is refused, with a reason, and for good: a wrong offset would be a fault of the program.
//!
//! Beside that, and independent of it: which addresses are of arenas of the runtime's object allocator (arenas.rs).
//!
//! Not here: native frames (`unwind`), where frames are written (the recorder), lines (`symbols`).

#![cfg_attr(not(test), no_std)]

mod arenas;
mod chain;
mod code;
mod count;
mod go;
mod java;
mod layout;
mod memory;
mod natives;
mod php;
mod php_quick;
mod program;
mod quick;
mod reader;
mod ruby;
mod ruby_quick;
mod runtime;
mod state;

pub use arenas::{Arenas, Leaf, MOST_BYTES};
pub use code::{Code, Text};
pub use go::{Crossing, MAX_GO};
pub use java::{Java, JavaFrame, JavaTables};
pub use natives::Natives;
pub use program::Program;
pub use reader::{Found, Language, Reader};
pub use ruby::thread_pointer;
pub use runtime::{Refusal, is_free_threaded};
pub use state::{Plan, State, Trust, User};

/// The most frames of a chain.
pub const MAX_CHAIN: usize = 4096;

/// The number of codes that a thread has slots for.
pub const CODE_SLOTS: usize = 2048;
