//! Base64, for bytes in JSON.
//!
//! ```text
//!   three bytes ─► four letters          the rest ─► with = to four
//! ```
//!
//! Not here: the other way.

/// Returns the letters of bytes.
pub fn encoded(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let at = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for letter in 0..4 {
            let place = (bits >> (18 - 6 * letter)) as usize % 64;
            out.push(if letter <= three.len() {
                LETTERS[place] as char
            } else {
                '='
            });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn letters_are_those_of_rfc_4648() {
        for (bytes, letters) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("\u{ff}~?", "w79+Pw=="),
        ] {
            assert_eq!(super::encoded(bytes.as_bytes()), letters);
        }
    }
}
