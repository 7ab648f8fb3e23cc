//! An entry of a magazine: a block, and the way to its bit.
//!
//! ```text
//!   [ block │ overlay ─► the descriptor, with the bits of 64 of its slots │ bit ]
//! ```
//!
//! Not here: magazines (`heap`), descriptors (`span`).

use super::bits::SlotBits;

/// Offset in bytes of the bit words in a descriptor.
pub const WORDS_AT: usize = 40;

/// A descriptor laid out so that the bits of 64 of its slots have a fixed offset; see [`Span::overlay`].
#[repr(C)]
pub struct Overlay {
    header: [u64; WORDS_AT / 8],
    /// The bits of 64 slots.
    pub slot_bits: SlotBits,
}

/// Offset of D in an overlay, for assembly.
pub const DEAD_AT: usize =
    core::mem::offset_of!(Overlay, slot_bits) + core::mem::offset_of!(SlotBits, dead);
/// Offset of R in an overlay, for assembly.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
pub const REMOTE_AT: usize =
    core::mem::offset_of!(Overlay, slot_bits) + core::mem::offset_of!(SlotBits, remote);

/// A block in a magazine.
#[repr(C)]
pub struct Entry {
    /// Address of the block.
    pub block: *mut u8,
    /// The overlay with the block's bits.
    pub overlay: *const Overlay,
    /// The block's bit in the overlay.
    pub bit: u64,
}

impl Entry {
    /// Creates an entry from its fields.
    #[inline(always)]
    pub fn new(block: *mut u8, overlay: *const Overlay, bit: u64) -> Entry {
        Entry {
            block,
            overlay,
            bit,
        }
    }
}
