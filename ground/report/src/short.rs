//! A text in a fixed buffer, for what may not allocate.
//!
//! ```text
//!   Text::<64>::of(format_args!("/proc/{pid}/maps")) ─► [ / p r o c … 0 0 0 ]
//! ```
//!
//! H1  What does not fit is cut, between characters; the bytes are a `str` at any moment.
//!
//! Not here: what is written (`process`, `image`).

use std::fmt::{self, Write as _};

/// A text in a fixed buffer. What does not fit is cut.
pub(crate) struct Text<const N: usize> {
    pub(crate) bytes: [u8; N],
    pub(crate) used: usize,
}

impl<const N: usize> Text<N> {
    pub(crate) fn new() -> Text<N> {
        Text {
            bytes: [0; N],
            used: 0,
        }
    }

    pub(crate) fn of(arguments: fmt::Arguments<'_>) -> Text<N> {
        let mut text = Text::new();
        // Never fails: what does not fit is cut.
        let _ = text.write_fmt(arguments);
        text
    }

    /// Returns the whole buffer; unused bytes are zero.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.used]).unwrap_or("")
    }
}

impl<const N: usize> fmt::Write for Text<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            let mut room = [0; 4];
            let bytes = c.encode_utf8(&mut room).as_bytes();
            let end = self.used + bytes.len();
            if let Some(to) = self.bytes.get_mut(self.used..end) {
                to.copy_from_slice(bytes);
                self.used = end;
            }
        }
        Ok(())
    }
}
