//! Text to a stream: buffered, counted, and with the first failure kept for the end.
//!
//! ```text
//!   number, word, string ─► 64 KiB ─► the client's stream        failed? everything after is dropped
//! ```
//!
//! Y1  After a failure nothing more is written; the writer calls [`Out::check`] now and then.
//! Y2  A muted output writes only what goes through [`Out::aloud`].
//!
//! Not here: what is written (`write`).

use std::io::{Error, Write};

const BUFFER_BYTES: usize = 64 << 10;

pub(crate) struct Out<'w> {
    to: &'w mut dyn Write,
    buffer: Vec<u8>,
    bytes: u64,
    failed: Option<Error>,
    muted: bool,
}

impl<'w> Out<'w> {
    pub(crate) fn new(to: &'w mut dyn Write) -> Out<'w> {
        Out {
            to,
            buffer: Vec::with_capacity(BUFFER_BYTES + 64),
            bytes: 0,
            failed: None,
            muted: false,
        }
    }

    pub(crate) fn mute(&mut self, muted: bool) {
        self.muted = muted;
    }

    /// Writes text as it is.
    pub(crate) fn word(&mut self, text: &str) {
        if !self.muted {
            self.buffer.extend_from_slice(text.as_bytes());
            self.flush_full();
        }
    }

    /// Writes a number, then one byte.
    pub(crate) fn number(&mut self, number: u64, then: u8) {
        if !self.muted {
            self.digits(number);
            self.buffer.push(then);
            self.flush_full();
        }
    }

    /// Writes a number, and nothing after it.
    pub(crate) fn last(&mut self, number: u64) {
        if !self.muted {
            self.digits(number);
            self.flush_full();
        }
    }

    fn digits(&mut self, number: u64) {
        let mut digits = [0; 20];
        let mut first = digits.len();
        let mut rest = number;
        loop {
            first -= 1;
            digits[first] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.buffer.extend_from_slice(&digits[first..]);
    }

    /// Writes a string of JSON, whether muted or not (Y2).
    pub(crate) fn aloud(&mut self, text: &str) {
        self.buffer.push(b'"');
        quote(text, &mut self.buffer);
        self.buffer.push(b'"');
        self.flush_full();
    }

    fn flush_full(&mut self) {
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if self.failed.is_none() {
            match self.to.write_all(&self.buffer) {
                Ok(()) => self.bytes += self.buffer.len() as u64,
                Err(error) => self.failed = Some(error),
            }
        }
        self.buffer.clear();
    }

    /// Returns the failure, if there was one.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Writes what is left. Returns the bytes written in all.
    pub(crate) fn finish(mut self) -> Result<u64, Error> {
        self.flush();
        self.check()?;
        self.to.flush()?;
        Ok(self.bytes)
    }
}

/// Appends the inside of a string of JSON.
pub(crate) fn quote(text: &str, to: &mut Vec<u8>) {
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => to.extend_from_slice(&[b'\\', byte]),
            0..0x20 => {
                const HEX: &[u8; 16] = b"0123456789abcdef";
                let (high, low) = (HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]);
                to.extend_from_slice(&[b'\\', b'u', b'0', b'0', high, low]);
            }
            _ => to.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_strings_are_those_of_json() {
        let mut text = Vec::new();
        let mut out = Out::new(&mut text);
        for number in [0, 9, 10, 65_535, u64::MAX] {
            out.number(number, b' ');
        }
        out.mute(true);
        out.word("unheard");
        out.number(1, b' ');
        out.aloud("a\"b\\c\n\u{1f}é\u{7f}");
        assert_eq!(out.finish().unwrap(), text.len() as u64);
        let text = String::from_utf8(text).unwrap();
        assert_eq!(
            text,
            "0 9 10 65535 18446744073709551615 \"a\\\"b\\\\c\\u000a\\u001fé\u{7f}\""
        );
    }
}
