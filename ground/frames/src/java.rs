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
mod method;
mod scopes;
mod tables;
#[cfg(test)]
mod tests;
mod walk;

pub use code_heap::Frame as JavaFrame;
pub use tables::Tables;

use crate::code::Code;
use crate::memory::{Asked, Memory, Plain};
use crate::runtime::Refusal;

/// The Java virtual machine of this program.
#[derive(Clone, Copy)]
pub struct Java {
    pub(crate) layout: tables::Layout,
}

impl Java {
    /// Reads the tables of a virtual machine. Returns its version, three numbers a byte each, too.
    ///
    /// # Safety
    /// `tables` are a loaded machine's, and stay.
    pub unsafe fn find(tables: &Tables) -> (Result<Java, Refusal>, u32) {
        // SAFETY: as the caller promises.
        let (layout, version) = unsafe { (tables.layout(), tables.version()) };
        let found = layout.map(|layout| Java { layout });
        (found.ok_or(Refusal::Tables), version)
    }

    /// Returns how the frame lies that an address, a byte before where it is returned to, is of; `None` if that is not known.
    /// `proved`: the layout was proved.
    ///
    /// # Safety
    /// The machine is loaded.
    pub unsafe fn frame_at(&self, pc: u64, proved: bool) -> Option<JavaFrame> {
        match proved {
            true => self.frame(&Plain, pc),
            false => self.frame(&Asked, pc),
        }
    }

    /// Returns what is copied of a method.
    pub(crate) fn code(&self, link: &crate::chain::Link) -> Code {
        self.text_of(link)
    }
}

/// Returns four bytes, by what loads eight.
#[inline(always)]
fn half<M: Memory>(memory: &M, at: u64) -> Option<u32> {
    Some((memory.word(at & !7)? >> ((at & 7) * 8)) as u32)
}

/// Returns two bytes.
#[inline(always)]
fn short<M: Memory>(memory: &M, at: u64) -> Option<u16> {
    Some((memory.word(at & !7)? >> ((at & 7) * 8)) as u16)
}

/// Returns a byte.
#[inline(always)]
fn byte<M: Memory>(memory: &M, at: u64) -> Option<u8> {
    Some((memory.word(at & !7)? >> ((at & 7) * 8)) as u8)
}
