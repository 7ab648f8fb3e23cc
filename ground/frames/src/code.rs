//! What is copied of a code: its file, its qualified name and its line table, or the class that it is of.
//!
//! C1  Lengths are cut to bounds: a text that is longer is copied in part.
//!
//! Not here: where the copy goes (the recorder), what the line table means (`symbols`).

use crate::memory::{Memory, Plain};
use crate::runtime::Runtime;

const FILE_BYTES: u64 = 2048;
const NAME_BYTES: u64 = 1024;
const TABLE_BYTES: u64 = 48 << 10;

/// Bytes of the runtime's: characters of one width, or a table.
#[derive(Clone, Copy)]
pub struct Text {
    at: *const u8,
    /// The number of bytes.
    pub bytes: usize,
    /// The bytes of a character: 1, 2 or 4.
    pub width: u32,
}

impl Text {
    pub(crate) const NONE: Text = Text {
        at: core::ptr::null(),
        bytes: 0,
        width: 1,
    };

    /// Bytes that begin at an address, and stay there while the code's frame runs.
    pub(crate) fn bytes(at: u64, bytes: usize) -> Text {
        Text {
            at: at as *const u8,
            bytes,
            width: 1,
        }
    }

    /// Returns a byte; 0 beyond the end.
    #[inline(always)]
    pub fn byte(&self, index: usize) -> u8 {
        if index >= self.bytes {
            return 0;
        }
        // SAFETY: it lies in an object that the frame's code holds (frames.P3).
        unsafe { self.at.add(index).read() }
    }
}

/// A code of a runtime's, while a frame of this thread runs it.
#[derive(Clone, Copy)]
pub struct Code {
    /// The version of Python: its minor number; or `ring::CODE_RUBY`, `ring::CODE_PHP`, or `ring::CODE_JAVA` and its version.
    pub minor: u32,
    /// The line at which it begins.
    pub first_line: u32,
    /// The file.
    pub file: Text,
    /// The qualified name.
    pub name: Text,
    /// The table of lines; of PHP, whose units are lines, the name of its class.
    pub table: Text,
    /// Of Java the name of its class.
    pub class: Text,
}

impl Code {
    pub(crate) fn read(runtime: &Runtime, code: u64, first_line: u32) -> Code {
        let at = |offset: u64| Plain.word(code + offset).unwrap_or(0);
        Code {
            minor: runtime.layout.version & 0xff,
            first_line,
            file: text(runtime, at(runtime.layout.file), FILE_BYTES).unwrap_or(Text::NONE),
            name: text(runtime, at(runtime.layout.name), NAME_BYTES).unwrap_or(Text::NONE),
            table: table(runtime, at(runtime.layout.table)).unwrap_or(Text::NONE),
            class: Text::NONE,
        }
    }
}

const TYPE: u64 = 8;
const LENGTH: u64 = 16;

fn text(runtime: &Runtime, at: u64, most: u64) -> Option<Text> {
    const STATE: u64 = 32;
    const COMPACT: u64 = 1 << 5;
    const ASCII: u64 = 1 << 6;
    if Plain.word(at.checked_add(TYPE)?)? != runtime.text_type {
        return None;
    }
    let (length, state) = (Plain.word(at + LENGTH)?, Plain.word(at + STATE)?);
    let width = state >> 2 & 7;
    if state & COMPACT == 0 || !matches!(width, 1 | 2 | 4) {
        return None;
    }
    let start = match state & ASCII {
        0 => runtime.layout.wide,
        _ => runtime.layout.ascii,
    };
    Some(Text {
        at: (at + start) as *const u8,
        bytes: (length.min(most) * width).min(most) as usize,
        width: width as u32,
    })
}

fn table(runtime: &Runtime, at: u64) -> Option<Text> {
    const DATA: u64 = 32;
    if Plain.word(at.checked_add(TYPE)?)? != runtime.bytes_type {
        return None;
    }
    Some(Text {
        at: (at + DATA) as *const u8,
        bytes: Plain.word(at + LENGTH)?.min(TABLE_BYTES) as usize,
        width: 1,
    })
}
