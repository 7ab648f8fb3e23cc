//! A cursor over mapped bytes, in the encodings of DWARF.
//!
//! ```text
//!   [at ────► end)   u8, u16, u32, u64, LEB128
//! ```
//!
//! B1  Every read is bounded by the range that the cursor was created over; a read beyond it yields `None`.
//! B2  Every loop consumes input.
//!
//! Not here: what the bytes mean (cfi.rs, expr.rs).

/// A cursor over mapped bytes, `[at, end)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reader {
    pub(crate) at: usize,
    pub(crate) end: usize,
}

impl Reader {
    /// Creates a cursor over `[at, end)`.
    ///
    /// # Safety
    /// The range must be readable for as long as the reader or a copy of it is used.
    pub(crate) unsafe fn new(at: u64, end: u64) -> Reader {
        Reader {
            at: at as usize,
            end: (end as usize).max(at as usize),
        }
    }

    #[cfg(test)]
    pub(crate) fn over(bytes: &[u8]) -> Reader {
        let at = bytes.as_ptr() as usize;
        Reader {
            at,
            end: at + bytes.len(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.at >= self.end
    }

    pub(crate) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        if self.end - self.at < N {
            return None;
        }
        // SAFETY: B1: N bytes remain in the range that `new` was promised to be readable.
        let bytes = unsafe { (self.at as *const [u8; N]).read_unaligned() };
        self.at += N;
        Some(bytes)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|b| b[0])
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    pub(crate) fn uleb(&mut self) -> Option<u64> {
        let (mut value, mut shift) = (0u64, 0u32);
        loop {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            shift = shift.saturating_add(7);
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
    }

    pub(crate) fn sleb(&mut self) -> Option<i64> {
        let (mut value, mut shift) = (0u64, 0u32);
        loop {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            shift = shift.saturating_add(7);
            if byte & 0x80 == 0 {
                if byte & 0x40 != 0 && shift < 64 {
                    value |= u64::MAX << shift;
                }
                return Some(value as i64);
            }
        }
    }

    pub(crate) fn skip(&mut self, count: u64) -> Option<()> {
        let count = usize::try_from(count).ok()?;
        if self.end - self.at < count {
            return None;
        }
        self.at += count;
        Some(())
    }

    /// Returns the next `count` bytes as a reader of their own.
    pub(crate) fn split(&mut self, count: u64) -> Option<Reader> {
        let at = self.at;
        self.skip(count)?;
        Some(Reader { at, end: self.at })
    }

    /// Returns a reader at another place of the same bounds; `None` outside of them.
    pub(crate) fn moved(&self, low: u64, to: u64) -> Option<Reader> {
        let at = usize::try_from(to).ok()?;
        (to >= low && at < self.end).then_some(Reader { at, end: self.end })
    }

    /// Reads a pointer in the `DW_EH_PE` encoding `enc`; an indirect one is not followed.
    pub(crate) fn pointer(&mut self, enc: u8, data_base: u64) -> Option<u64> {
        let at = self.at as u64;
        let value = match enc & 0x0f {
            0x00 | 0x04 | 0x0c => self.u64()?,
            0x01 => self.uleb()?,
            0x02 => u64::from(self.u16()?),
            0x03 => u64::from(self.u32()?),
            0x09 => self.sleb()? as u64,
            0x0a => self.u16()? as i16 as i64 as u64,
            0x0b => self.u32()? as i32 as i64 as u64,
            _ => return None,
        };
        match enc & 0x70 {
            0x00 => Some(value),
            0x10 => Some(value.wrapping_add(at)),
            0x30 => Some(value.wrapping_add(data_base)),
            _ => None,
        }
    }
}
