//! The Java virtual machine of a program, by its tables.
//!
//! Not here: what is read by them (code_heap.rs, method.rs, scopes.rs, walk.rs).

use super::tables::{Layout, Tables};
use crate::memory::Memory;
use crate::runtime::Refusal;

/// The Java virtual machine of this program.
#[derive(Clone, Copy)]
pub struct Java {
    pub(crate) layout: Layout,
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
}

/// Returns four bytes, by what loads eight.
#[inline(always)]
pub(crate) fn half<M: Memory>(memory: &M, at: u64) -> Option<u32> {
    Some((memory.word(at & !7)? >> ((at & 7) * 8)) as u32)
}

/// Returns two bytes.
#[inline(always)]
pub(crate) fn short<M: Memory>(memory: &M, at: u64) -> Option<u16> {
    Some((memory.word(at & !7)? >> ((at & 7) * 8)) as u16)
}

/// Returns a byte.
#[inline(always)]
pub(crate) fn byte<M: Memory>(memory: &M, at: u64) -> Option<u8> {
    Some((memory.word(at & !7)? >> ((at & 7) * 8)) as u8)
}
