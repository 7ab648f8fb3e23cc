//! An entry of a magazine: a block, and the way to its bit.
//!
//! ```text
//!   [ block │ window ─► a descriptor as seen from some of its bits │ bit ]
//! ```
//!
//! Not here: magazines (`heap`), descriptors (`span`).

use super::bits::SlotBits;

/// Offset in bytes of the bit words in a descriptor.
pub const WORDS_AT: usize = 40;

/// A descriptor as seen from some of its bits; see [`Span::window`].
#[repr(C)]
pub struct Window {
    header: [u64; WORDS_AT / 8],
    /// The bits of 64 slots.
    pub slot_bits: SlotBits,
}

/// A block in a magazine.
#[repr(C)]
pub struct Entry {
    /// Address of the block.
    pub block: *mut u8,
    /// The window in which the block's bits are.
    pub window: *const Window,
    /// The block's bit in that window.
    pub bit: u64,
}

impl Entry {
    /// Creates an entry from its fields.
    #[inline(always)]
    pub fn new(block: *mut u8, window: *const Window, bit: u64) -> Entry {
        Entry { block, window, bit }
    }
}
