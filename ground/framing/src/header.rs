//! Headers of fixed length that end in a checksum of the bytes before it.
//!
//! ```text
//!   [fields, little-endian … | CRC-32 of them]
//! ```
//!
//! H1  All numbers are little-endian.
//!
//! Not here: the fields.

/// The bytes of a checksum.
const CRC: usize = 4;

/// Returns the number of 32 bits that begins at `at`.
///
/// # Panics
/// If the bytes end before it.
#[inline]
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Returns the number of 64 bits that begins at `at`.
///
/// # Panics
/// If the bytes end before it.
#[inline]
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// Writes the checksum of a header into its last four bytes.
///
/// # Panics
/// If it has fewer.
pub fn seal(header: &mut [u8]) {
    let (fields, crc) = header.split_at_mut(header.len() - CRC);
    crc.copy_from_slice(&crc32fast::hash(fields).to_le_bytes());
}

/// Reports whether a header's last four bytes are the checksum of the others.
pub fn is_sealed(header: &[u8]) -> bool {
    match header.len().checked_sub(CRC) {
        Some(end) => crc32fast::hash(&header[..end]) == u32_at(header, end),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_of_a_header_is_in_its_checksum() {
        let mut header = *b"a header of bytes, 0123";
        seal(&mut header);
        assert!(is_sealed(&header));
        for bit in 0..header.len() * 8 {
            let mut damaged = header;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_sealed(&damaged), "bit {bit}");
        }
        assert!(!is_sealed(b"abc"));
        assert_eq!(
            u64_at(&[0, 1, 2, 3, 4, 5, 6, 7, 8], 1),
            0x0807_0605_0403_0201
        );
    }
}
