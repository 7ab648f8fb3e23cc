//! Frames of Java: those of compiled code and of the interpreter, among the native frames of a stack, by what HotSpot says
//! of itself.
//!
//! ```text
//!   native   JavaMain  call_stub │ pc        pc          pc            │ Unsafe_AllocateMemory0  os::malloc
//!   code heap                      interpreter  nmethod     native nmethod
//!                                  │ bp − 24      │ PcDesc ─► scopes    │
//!   Java                           Main.main     Main.load ◄ Buffers.take   Unsafe.allocateMemory0
//! ```
//!
//! J1  The code heap tells what a return address into it is of, and how large its frame is. So native frames further out are
//!     found behind those of Java: nothing of the machine's state is asked, nor which thread runs.
//! J2  Code that a frame returns to stays: neither it nor its methods are freed while the frame is there. Other threads
//!     change the code heap meanwhile, but not the segments of that code.
//! J3  Offsets, sizes and constants are those of the tables that HotSpot exports for its debuggers (tables.rs); what the tables do
//!     not have, or have of another type, refuses all. Three facts of x86-64 are not in them: an interpreted frame has its
//!     method at `rbp − 24` and its bytecode at `rbp − 64`, and compiled code saves `rbp` below the return address.
//! J4  A frame of compiled code that is kept is still the same if its code has the same number (they are given once); one of the
//!     interpreter is read anew.
//! J5  Methods are known by more than their addresses, which are used again when classes are unloaded.
//!
//! Not here: stepping over these frames (`unwind::made`), lines (`symbols`), where the tables are found (the recorder).

mod code_heap;
mod machine;
mod method;
mod scopes;
mod tables;
#[cfg(test)]
mod tests;
mod walk;

pub use code_heap::Frame as JavaFrame;
pub use machine::Java;
pub use tables::Tables as JavaTables;
