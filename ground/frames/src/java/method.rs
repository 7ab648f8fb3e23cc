//! A method: what tells it from another, and what is copied of it.
//!
//! ```text
//!   method ─► fixed part: flags, bytes │ bytecode │ lines          constants ─► class ─► name
//!                └─ constants, place of its name ───────────────────────┘   └─ names
//! ```
//!
//! Not here: which bytecode runs (walk.rs, scopes.rs).

use super::machine::{Java, byte, half, short};
use crate::chain::Link;
use crate::code::{Code, Text};
use crate::memory::{Memory, Plain};
use crate::runtime::Refusal;
use skinflint_base::ring::CODE_JAVA;

const MOST_NAME: u64 = 1024;
const MOST_LINES: u64 = 16 << 10;

impl Java {
    /// Reads what tells a method from another (java.J5). `unit`: one more than its bytecode, 0 if that is not known.
    pub(crate) fn link<M: Memory>(
        &self,
        memory: &M,
        method: u64,
        unit: u32,
    ) -> Result<Link, Refusal> {
        let layout = &self.layout;
        let word = |at: u64| memory.word(at).ok_or(Refusal::Code);
        let fixed = word(method.wrapping_add(layout.fixed))?;
        let constants = word(fixed.wrapping_add(layout.constants))?;
        let bytes = short(memory, fixed + layout.code_bytes).ok_or(Refusal::Code)?;
        if unit > u32::from(bytes).max(1) {
            return Err(Refusal::Instruction);
        }
        let class =
            word(word(constants.wrapping_add(layout.holder))?.wrapping_add(layout.class_name))?;
        let name = self.constant(memory, constants, layout.name_index, fixed)?;
        let mixed = constants.rotate_left(17)
            ^ self.beginning(memory, class)?.rotate_left(7)
            ^ self.beginning(memory, name)?
            ^ class.rotate_left(29)
            ^ name.rotate_left(43);
        Ok(Link {
            code: method,
            table: fixed,
            name: mixed,
            unit,
            ..Link::default()
        })
    }

    /// Returns a symbol among constants, whose place is two bytes at `index` from `of`.
    fn constant<M: Memory>(
        &self,
        memory: &M,
        constants: u64,
        index: u64,
        of: u64,
    ) -> Result<u64, Refusal> {
        let index = short(memory, of + index).ok_or(Refusal::Code)?;
        let count = half(memory, constants + self.layout.count).ok_or(Refusal::Code)?;
        if u32::from(index) >= count || index == 0 {
            return Err(Refusal::Code);
        }
        let at = constants + self.layout.constants_bytes + u64::from(index) * 8;
        memory.word(at).ok_or(Refusal::Code)
    }

    /// Returns a symbol's number of bytes and its first ones, without how often it is referred to.
    fn beginning<M: Memory>(&self, memory: &M, symbol: u64) -> Result<u64, Refusal> {
        let first = memory.word(symbol).ok_or(Refusal::Code)? >> 32;
        Ok(match first & 0xffff {
            0..=2 => first,
            _ => {
                first
                    ^ memory
                        .word(symbol + 8)
                        .ok_or(Refusal::Code)?
                        .rotate_left(32)
            }
        })
    }

    /// Returns what is copied of a link's method.
    pub(crate) fn code(&self, link: &Link) -> Code {
        let layout = &self.layout;
        let word = |at: u64| Plain.word(at).unwrap_or(0);
        let fixed = link.table;
        let constants = word(fixed + layout.constants);
        let class = word(word(constants + layout.holder) + layout.class_name);
        let symbol = |index, of| self.constant(&Plain, constants, index, of).ok();
        Code {
            minor: CODE_JAVA | layout.major & 0xffff,
            first_line: 0,
            file: self.symbol(symbol(layout.file_index, constants)),
            name: self.symbol(symbol(layout.name_index, fixed)),
            table: self.lines(fixed),
            class: self.symbol(Some(class)),
        }
    }

    fn symbol(&self, symbol: Option<u64>) -> Text {
        let bytes = symbol.and_then(|at| Some((at, short(&Plain, at + self.layout.symbol_bytes)?)));
        bytes.map_or(Text::NONE, |(at, bytes)| {
            let bytes = u64::from(bytes).min(MOST_NAME);
            Text::bytes(at + self.layout.symbol_text, bytes as usize)
        })
    }

    /// Returns the table of lines, which follows the bytecode: pairs up to a 0, and behind that what is not of it.
    fn lines(&self, fixed: u64) -> Text {
        let layout = &self.layout;
        let flags = short(&Plain, fixed + layout.flags).unwrap_or(0);
        let bytes = short(&Plain, fixed + layout.code_bytes).unwrap_or(0);
        let words = half(&Plain, fixed + layout.fixed_words).unwrap_or(0);
        let start = fixed + layout.fixed_bytes + u64::from(bytes);
        let end = fixed + u64::from(words) * 8;
        if u32::from(flags) & layout.has_lines == 0 || end <= start {
            return Text::NONE;
        }
        let most = (end - start).min(MOST_LINES);
        Text::bytes(start, lines_bytes(&Plain, start, most) as usize)
    }
}

/// Returns the bytes of a table of lines with its 0: a byte, or 255 and two numbers.
fn lines_bytes<M: Memory>(memory: &M, start: u64, most: u64) -> u64 {
    const ESCAPE: u8 = 0xff;
    let mut at = 0;
    // The bytes of numbers that are left, by how many numbers: a byte of 192 or more is followed by one of the same.
    let mut numbers = 0;
    let mut within = 0;
    while at < most {
        let next = byte(memory, start + at).unwrap_or(0);
        at += 1;
        if numbers > 0 {
            within += 1;
            if next < 192 || within == 5 {
                (numbers, within) = (numbers - 1, 0);
            }
        } else if next == ESCAPE {
            numbers = 2;
        } else if next == 0 {
            break;
        }
    }
    at
}
