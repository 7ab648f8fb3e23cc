//! Numbers of variable length, and the only code that reads the bytes of our traces one by one.
//!
//! ```text
//!   value  ──► 7 bits a byte, lowest first, top bit = more follows     1 … 10 bytes
//!   signed ──► zigzag (0, −1, 1, −2 … → 0, 1, 2, 3 …) ──► value
//! ```
//!
//! V1  `get` never reads past the end of its slice and never loops more than ten times.
//! V2  What `put` writes, `get` reads back, and each value has exactly one shortest form; longer
//!     forms are read too, bits past the 64th are refused.
//!
//! Not here: what the numbers mean.

/// A number or a string that is not what the format says: cut short, too long, or out of range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed(pub &'static str);

/// Appends `value`. Cost: one compare and one store for values below 128.
#[inline]
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a signed number, zigzag coded.
#[inline]
pub fn put_signed(out: &mut Vec<u8>, value: i64) {
    put(out, zigzag(value));
}

/// Appends a length and that many bytes.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Maps signed numbers to unsigned ones, so that small magnitudes become small numbers.
#[inline]
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Returns the signed number of a zigzag code: the inverse of [`zigzag`].
#[inline]
pub fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// A place in a slice of bytes.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Begins at the first byte.
    pub fn new(bytes: &'a [u8]) -> Self {
        Cursor { bytes, at: 0 }
    }

    /// Reports whether all bytes were read.
    pub fn is_empty(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// Returns the number of bytes that are left.
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Reads a number.
    ///
    /// # Errors
    /// If it is cut short, or has more than 64 bits.
    pub fn get(&mut self) -> Result<u64, Malformed> {
        get(self.bytes, &mut self.at)
    }

    /// Reads a signed number.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_signed(&mut self) -> Result<i64, Malformed> {
        Ok(unzigzag(self.get()?))
    }

    /// Reads a number of at most 32 bits.
    ///
    /// # Errors
    /// As [`get`](Self::get), or if it has more bits.
    pub fn get_u32(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.get()?).map_err(|_| Malformed("a 32-bit field holds more than 32 bits"))
    }

    /// Reads this many bytes.
    ///
    /// # Errors
    /// If there are fewer.
    pub fn get_slice(&mut self, len: u64) -> Result<&'a [u8], Malformed> {
        if len > self.remaining() as u64 {
            return Err(Malformed("a string is longer than its block"));
        }
        let start = self.at;
        self.at += len as usize;
        Ok(&self.bytes[start..self.at])
    }

    /// Reads a length and that many bytes.
    ///
    /// # Errors
    /// As [`get`](Self::get), or if there are fewer.
    pub fn get_bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.get()?;
        self.get_slice(len)
    }

    /// Reads a count of things of at least `least` bytes each, and refuses one that cannot be there, so
    /// that nothing is allocated for it.
    ///
    /// # Errors
    /// As [`get`](Self::get), or if it cannot be there.
    pub fn get_count(&mut self, least: u64) -> Result<usize, Malformed> {
        let count = self.get()?;
        if count > self.remaining() as u64 / least.max(1) {
            return Err(Malformed("a list is longer than its block"));
        }
        Ok(count as usize)
    }
}

/// Reads the number at `at` and moves `at` past it. Cost: one load and one compare for values below 128.
///
/// # Errors
/// If it is cut short, or has more than 64 bits.
#[inline]
pub fn get(bytes: &[u8], at: &mut usize) -> Result<u64, Malformed> {
    match bytes.get(*at) {
        Some(&byte) if byte < 0x80 => {
            *at += 1;
            Ok(u64::from(byte))
        }
        _ => get_slow(bytes, at),
    }
}

/// Reads a number of several bytes: of up to eight in one step, without a branch for each byte.
#[inline(never)]
fn get_slow(bytes: &[u8], at: &mut usize) -> Result<u64, Malformed> {
    if let Some(eight) = bytes.get(*at..).and_then(|rest| rest.first_chunk()) {
        let word = u64::from_le_bytes(*eight);
        // The top bit of the last byte is the lowest of these that is set.
        let last = !word & 0x8080_8080_8080_8080;
        if last != 0 {
            *at += (last.trailing_zeros() / 8) as usize + 1;
            return Ok(sevens(word & (last ^ (last - 1))));
        }
    }
    get_by_byte(bytes, at)
}

/// Returns the number of which a word has seven bits in each byte, lowest first.
#[inline]
fn sevens(word: u64) -> u64 {
    let pairs = (word & 0x007F_007F_007F_007F) | ((word & 0x7F00_7F00_7F00_7F00) >> 1);
    let fours = (pairs & 0x0000_3FFF_0000_3FFF) | ((pairs & 0x3FFF_0000_3FFF_0000) >> 2);
    (fours & 0x0FFF_FFFF) | ((fours & 0x0FFF_FFFF_0000_0000) >> 4)
}

#[cold]
#[inline(never)]
fn get_by_byte(bytes: &[u8], at: &mut usize) -> Result<u64, Malformed> {
    let mut value = 0u64;
    for shift in (0..70).step_by(7) {
        let &byte = bytes.get(*at).ok_or(Malformed("a number is cut short"))?;
        *at += 1;
        if shift == 63 && byte > 1 {
            break;
        }
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(Malformed("a number has more than 64 bits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_its_edges() {
        for bits in 0..64 {
            for value in [
                1u64 << bits,
                (1u64 << bits) - 1,
                (1u64 << bits) + 1,
                u64::MAX >> bits,
            ] {
                let mut out = Vec::new();
                put(&mut out, value);
                let expected_len = (64 - value.leading_zeros()).div_ceil(7).max(1) as usize;
                assert_eq!(out.len(), expected_len, "{value}");
                let mut at = 0;
                assert_eq!(get(&out, &mut at), Ok(value));
                assert_eq!(at, out.len());
                // With something behind it, a number is read in another way.
                let mut beyond = out.clone();
                beyond.extend([0xFF; 8]);
                let mut at = 0;
                assert_eq!(get(&beyond, &mut at), Ok(value));
                assert_eq!(at, out.len());
                for cut in 0..out.len() {
                    assert!(get(&out[..cut], &mut 0).is_err(), "{value} cut at {cut}");
                }
                assert_eq!(unzigzag(zigzag(value as i64)), value as i64);
            }
        }
    }

    #[test]
    fn too_many_bits_are_refused() {
        let eleven = [0xff; 11];
        assert!(get(&eleven, &mut 0).is_err());
        let mut sixty_five = vec![0xff; 9];
        sixty_five.push(0x02);
        assert!(get(&sixty_five, &mut 0).is_err());
    }

    #[test]
    fn zigzag_by_hand() {
        assert_eq!([0, -1, 1, -2, 2].map(zigzag), [0, 1, 2, 3, 4]);
        assert_eq!(zigzag(i64::MIN), u64::MAX);
    }
}
