//! A second, deliberately simple record of the blocks: what every act must have done.
//!
//! B1  Every block's content is written whole when it begins and when it grows, and read whole when it ends,
//!     moves, or is checked: a block that overlaps another, or that something else wrote to, is found.
//! B2  The content follows from the block's key, so that the record is small and a child process can check it.
//!
//! Not here: which acts (`threads`, `refusals`).

use std::collections::BTreeMap;

use skinflint_alloc::{calloc, free, malloc, memalign, realloc, usable_size};

use crate::numbers::Numbers;

/// A live block.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    pub address: usize,
    pub bytes: usize,
    pub key: u64,
}

impl Block {
    fn word(&self, at: usize) -> u64 {
        (self.key ^ at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// Bytes from `from` on are those of the key.
    pub fn fill(&self, from: usize) {
        let mut at = from;
        while at < self.bytes {
            let word = self.word(at & !7).to_le_bytes();
            let (skip, count) = (at & 7, (8 - (at & 7)).min(self.bytes - at));
            let part = &word[skip..skip + count];
            // SAFETY: within a live block.
            unsafe {
                (self.address as *mut u8)
                    .add(at)
                    .copy_from_nonoverlapping(part.as_ptr(), count)
            };
            at += count;
        }
    }

    /// The first `bytes` are as they were filled.
    pub fn check(&self, bytes: usize) {
        let mut at = 0;
        while at < bytes {
            let word = self.word(at).to_le_bytes();
            let count = 8.min(bytes - at);
            let mut found = [0; 8];
            // SAFETY: within a live block.
            unsafe {
                (self.address as *const u8)
                    .add(at)
                    .copy_to_nonoverlapping(found.as_mut_ptr(), count)
            };
            assert!(
                found[..count] == word[..count],
                "byte {at} of {self:x?} has changed"
            );
            at += count;
        }
    }
}

/// Blocks by address, and none over another.
#[derive(Default)]
pub struct Blocks {
    live: BTreeMap<usize, Block>,
    pub bytes: usize,
}

/// How a block begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Malloc,
    Calloc,
    Memalign(usize),
}

impl Blocks {
    pub fn len(&self) -> usize {
        self.live.len()
    }

    /// Any block.
    pub fn any(&self, numbers: &mut Numbers) -> Option<Block> {
        let (&low, _) = self.live.first_key_value()?;
        let (&high, _) = self.live.last_key_value()?;
        let from = low + numbers.index(high - low + 1);
        self.live.range(from..).next().map(|(_, block)| *block)
    }

    fn insert(&mut self, block: Block) {
        let end = block.address + block.bytes;
        let before = self.live.range(..end).next_back();
        if let Some((_, other)) = before {
            assert!(
                other.address + other.bytes <= block.address,
                "{block:x?} lies over {other:x?}"
            );
        }
        self.bytes += block.bytes;
        self.live.insert(block.address, block);
    }

    /// Takes a block out of the books, its content checked.
    pub fn remove(&mut self, address: usize) -> Block {
        let block = self.live.remove(&address).expect("a live block");
        block.check(block.bytes);
        self.bytes -= block.bytes;
        block
    }

    /// Begins a block; `None`: the engine has no memory, and has said so in errno.
    pub fn begin(&mut self, bytes: usize, way: Way, key: u64) -> Option<Block> {
        // SAFETY: this thread's errno; blocks are used within their sizes.
        unsafe {
            *libc::__errno_location() = 0;
            let address = match way {
                Way::Malloc => malloc(bytes),
                Way::Calloc => calloc(1, bytes),
                Way::Memalign(align) => memalign(align, bytes),
            };
            let errno = *libc::__errno_location();
            if address.is_null() {
                assert_eq!(errno, libc::ENOMEM, "{bytes} bytes by {way:?} refused");
                return None;
            }
            assert_eq!(errno, 0, "a success that changes errno");
            let align = if let Way::Memalign(align) = way {
                align.max(16)
            } else {
                16
            };
            assert_eq!(
                address as usize % align,
                0,
                "{bytes} bytes by {way:?} at {address:p}"
            );
            let usable = usable_size(address);
            assert!(
                usable >= bytes,
                "{usable} usable of {bytes} bytes by {way:?}"
            );
            if way == Way::Calloc {
                let bytes = core::slice::from_raw_parts(address, bytes);
                let dirty = bytes.iter().position(|&byte| byte != 0);
                assert_eq!(
                    dirty,
                    None,
                    "calloc of {} bytes at {address:p}",
                    bytes.len()
                );
            }
            // All that may be written is written.
            let block = Block {
                address: address as usize,
                bytes: usable,
                key,
            };
            block.fill(0);
            self.insert(block);
            Some(block)
        }
    }

    /// Resizes a block; false: the engine has no memory, and the block is as it was.
    pub fn resize(&mut self, address: usize, bytes: usize) -> bool {
        let old = self.remove(address);
        // SAFETY: a live block; this thread's errno.
        let (new, errno) = unsafe {
            *libc::__errno_location() = 0;
            (
                realloc(address as *mut u8, bytes),
                *libc::__errno_location(),
            )
        };
        if new.is_null() {
            assert_eq!(errno, libc::ENOMEM, "{old:x?} to {bytes} bytes refused");
            old.check(old.bytes);
            self.insert(old);
            return false;
        }
        let kept = Block {
            address: new as usize,
            ..old
        };
        kept.check(old.bytes.min(bytes));
        // SAFETY: a live block.
        let usable = unsafe { usable_size(new) };
        assert!(usable >= bytes, "{usable} usable of {bytes} bytes");
        let block = Block {
            bytes: usable,
            ..kept
        };
        block.fill(0);
        self.insert(block);
        true
    }

    /// Ends a block.
    pub fn end(&mut self, address: usize) {
        let block = self.remove(address);
        // SAFETY: a live block, in no books any more.
        unsafe { free(block.address as *mut u8) };
    }

    /// Ends all of them.
    pub fn clear(&mut self) {
        while let Some((&address, _)) = self.live.first_key_value() {
            self.end(address);
        }
    }

    /// Reads every block.
    pub fn check(&self) {
        self.live
            .values()
            .for_each(|block| block.check(block.bytes));
    }
}

/// A size: mostly small, often at the edge of a class, sometimes up to 2 MiB.
pub fn size(numbers: &mut Numbers) -> usize {
    let class = |numbers: &mut Numbers| {
        let doubling = numbers.index(12);
        let base = 16 << doubling;
        base + base / 8 * numbers.index(8)
    };
    match numbers.index(40) {
        0 => 1 + numbers.index(2 << 20),
        1 => 1 + numbers.index(200_000),
        2..5 => 32_768 - 2 + numbers.index(5),
        5..15 => class(numbers).saturating_sub(1).max(1) + numbers.index(3),
        15..20 => 1 + numbers.index(32_768),
        _ => 1 + numbers.index(512),
    }
}

/// A way to begin.
pub fn way(numbers: &mut Numbers) -> Way {
    match numbers.index(10) {
        0 => Way::Memalign(1 << numbers.index(14)),
        1 if numbers.index(20) == 0 => Way::Memalign(1 << numbers.index(23)),
        1..4 => Way::Calloc,
        _ => Way::Malloc,
    }
}
