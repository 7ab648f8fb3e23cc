//! Numbers of variable length.
//!
//! ```text
//!   value ──► 7 bits a byte, lowest first, top bit = more follows     1 … 10 bytes
//! ```
//!
//! V1  `get` never reads past the end of its slice, and takes at most ten bytes.
//!
//! Not here: what the numbers mean (`read`, `write`). `trace` has the same code as a private module; it knows nothing
//! of objects, and this crate must not depend on it.

/// Appends `value`. Cost: a comparison and a store for values below 128.
pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads the number at `at` and moves `at` past it. `None` if it is cut short or has more than 64 bits.
pub(crate) fn get(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..70).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        if shift == 63 && byte > 1 {
            return None;
        }
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_its_edges() {
        for bits in 0..64 {
            for value in [1u64 << bits, (1u64 << bits) - 1, u64::MAX >> bits] {
                let mut out = Vec::new();
                put(&mut out, value);
                let length = (64 - value.leading_zeros()).div_ceil(7).max(1) as usize;
                assert_eq!(out.len(), length, "{value}");
                let mut at = 0;
                assert_eq!((get(&out, &mut at), at), (Some(value), length));
                for cut in 0..length {
                    assert_eq!(get(&out[..cut], &mut 0), None, "{value} cut at {cut}");
                }
            }
        }
        assert_eq!(get(&[0xff; 11], &mut 0), None, "more than 64 bits");
    }
}
