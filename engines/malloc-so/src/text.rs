//! Lines of text without an allocator: a buffer of fixed size.
//!
//! ```text
//!   Text::new() ─► .put("system bytes     = ") ─► .number(1234, 10) ─► .bytes()
//! ```
//!
//! T1  What does not fit is left out whole: a number is never cut in two. The last byte is zero.
//!
//! Not here: `core::fmt`, whose machinery may panic and would be the largest part of this library.

/// Bytes of the longest text that is written at once.
const ROOM: usize = 4096;

/// Decimal digits of the largest number.
const DIGITS: usize = 20;

/// A text under construction.
pub struct Text {
    room: [u8; ROOM],
    used: usize,
}

impl Text {
    /// Creates an empty text.
    pub fn new() -> Text {
        Text {
            room: [0; ROOM],
            used: 0,
        }
    }

    /// Adds text (T1).
    pub fn put(&mut self, text: &str) -> &mut Text {
        self.add(text.as_bytes())
    }

    fn add(&mut self, bytes: &[u8]) -> &mut Text {
        let end = self.used + bytes.len();
        // One byte stays zero.
        if end < ROOM
            && let Some(room) = self.room.get_mut(self.used..end)
        {
            room.copy_from_slice(bytes);
            self.used = end;
        }
        self
    }

    /// Adds a number in decimal, right-aligned to `width` characters (20 at most).
    pub fn number(&mut self, mut number: usize, width: usize) -> &mut Text {
        let mut digits = [b' '; DIGITS];
        let mut first = DIGITS;
        while first > 0 {
            first -= 1;
            if let Some(digit) = digits.get_mut(first) {
                *digit = b'0' + (number % 10) as u8;
            }
            number /= 10;
            if number == 0 {
                break;
            }
        }
        let from = first.min(DIGITS.saturating_sub(width));
        self.add(digits.get(from..).unwrap_or(&[]))
    }

    /// Returns what was added.
    pub fn bytes(&self) -> &[u8] {
        self.room.get(..self.used).unwrap_or(&[])
    }

    /// Returns the text as a C string.
    pub fn as_c(&self) -> *const core::ffi::c_char {
        self.room.as_ptr().cast()
    }
}
