//! Lines of text and of JSON, put together without allocating.
//!
//! J1  A line has a fixed size; what does not fit is cut, and the line is still closed. No line of the report comes
//!     near the limit.
//!
//! Not here: the content (tally.rs, points.rs).

use crate::system;

const ROOM: usize = 2048;

/// A line being built.
pub struct Line {
    bytes: [u8; ROOM],
    len: usize,
}

impl Line {
    /// Creates an empty line.
    pub fn new() -> Line {
        Line {
            bytes: [0; ROOM],
            len: 0,
        }
    }

    /// Creates a JSON object whose field `line` says what it is.
    pub fn object(name: &[u8]) -> Line {
        let mut line = Line::new();
        line.raw(b"{\"line\":\"");
        line.raw(name);
        line.raw(b"\"");
        line
    }

    /// Adds bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) {
        // Room for the end of an object is kept (J1).
        let room = (ROOM - 4).saturating_sub(self.len).min(bytes.len());
        self.bytes[self.len..self.len + room].copy_from_slice(&bytes[..room]);
        self.len += room;
    }

    /// Adds a number in decimal digits.
    pub fn decimal(&mut self, mut value: u64) {
        let mut digits = [0; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (value % 10) as u8;
            value /= 10;
            if value == 0 {
                break;
            }
        }
        self.raw(&digits[at..]);
    }

    fn key(&mut self, key: &[u8]) {
        self.raw(b",\"");
        self.raw(key);
        self.raw(b"\":");
    }

    /// Adds a field that is a number.
    pub fn number(&mut self, key: &[u8], value: u64) {
        self.key(key);
        self.decimal(value);
    }

    /// Adds a field that is true or false.
    pub fn flag(&mut self, key: &[u8], value: bool) {
        self.key(key);
        self.raw(if value { b"true" } else { b"false" });
    }

    /// Adds a field that is text; control characters, quotes and what is not ASCII become `?`.
    pub fn text(&mut self, key: &[u8], value: &[u8]) {
        self.key(key);
        self.raw(b"\"");
        for &byte in value {
            let plain = (b' '..127).contains(&byte) && byte != b'"' && byte != b'\\';
            self.raw(&[if plain { byte } else { b'?' }]);
        }
        self.raw(b"\"");
    }

    /// Ends the object and writes the line; returns `false` if that failed.
    pub fn close_to(mut self, fd: i32) -> bool {
        self.bytes[self.len] = b'}';
        self.bytes[self.len + 1] = b'\n';
        self.len += 2;
        self.write_to(fd)
    }

    /// Writes the line as it is; returns `false` if that failed.
    pub fn write_to(&self, fd: i32) -> bool {
        system::write_all(fd, &self.bytes[..self.len])
    }
}
