//! Go's own table of functions: from an address to functions, files and lines, inlined ones included.
//!
//! ```text
//!   .gopclntab   [ header | names | files by unit | files | steps of values | functions ]
//!   ftab         entry ─► _func: name, where its steps of file, line and inlining begin
//!   steps        (value += …, address += …)*
//!   inlining     index ─► inlined call: its name, its first line
//! ```
//!
//! T1  Nothing of a file is believed: every place is looked up with its bound, and a walk ends after so many steps.
//! T2  What cannot be found has no frame; a stack is then shorter, and never another's.
//! T3  The runtime puts an address on a stack for each call, inlined ones too: the innermost of an address is its frame.
//!
//! The layout is that of Go 1.18 and 1.19, or of 1.20 and later. Not here: which file (binary.rs).

use crate::remote::Remote;

/// The first word of the table, by the layout that it has.
const MAGICS: [(u32, Layout); 2] = [
    (0xffff_fff0, Layout::OneEighteen),
    (0xffff_fff1, Layout::OneTwenty),
];
/// The number of the table of inlined calls among a function's steps of values, and among its data.
const INLINE_INDEX: u64 = 2;
const INLINE_TREE: u64 = 3;
/// The most steps of one table of values.
const MOST_STEPS: usize = 1 << 20;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Layout {
    OneEighteen,
    OneTwenty,
}

/// A function and a place in it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Place {
    pub(super) function: String,
    pub(super) file: String,
    pub(super) line: u32,
    pub(super) first_line: u32,
}

/// The table of a program, and where its code lies.
pub(super) struct Pclntab {
    bytes: Vec<u8>,
    layout: Layout,
    /// Where the parts begin: names, files by unit, files, steps, functions.
    parts: [u64; 5],
    functions: u64,
    /// The address of the first function, in the process.
    text: u64,
    /// The address from which the places of a function's data are counted, in the process.
    data: u64,
    process: Remote,
}

/// The places of a function's fields, bytes.
const NAME: u64 = 4;
const FILE_STEPS: u64 = 20;
const LINE_STEPS: u64 = 24;
const VALUES: u64 = 28;
const UNIT: u64 = 32;
const FIRST_LINE: u64 = 36;

impl Pclntab {
    /// Takes a table; `None` if it is of no known layout.
    pub(super) fn new(bytes: Vec<u8>, text: u64, data: u64, process: Remote) -> Option<Pclntab> {
        let magic = u32::try_from(number(&bytes, 0, 4)?).ok()?;
        let layout = MAGICS.iter().find(|one| one.0 == magic)?.1;
        // Words of eight bytes.
        (number(&bytes, 7, 1)? == 8).then_some(())?;
        let part = |index: u64| number(&bytes, 32 + index * 8, 8);
        Some(Pclntab {
            parts: [part(0)?, part(1)?, part(2)?, part(3)?, part(4)?],
            functions: number(&bytes, 8, 8)?,
            layout,
            text,
            data,
            process,
            bytes,
        })
    }

    fn at(&self, part: usize, offset: u64, size: u64) -> Option<u64> {
        number(&self.bytes, self.parts[part].checked_add(offset)?, size)
    }

    fn text_at(&self, part: usize, offset: u64) -> Option<String> {
        let from = usize::try_from(self.parts[part].checked_add(offset)?).ok()?;
        let text = self.bytes.get(from..)?.split(|byte| *byte == 0).next()?;
        Some(String::from_utf8_lossy(text).into_owned())
    }

    /// Returns the function that an address lies in: the place of its record, and its first address less the first of all.
    fn function(&self, pc: u64) -> Option<(u64, u64)> {
        const EACH: u64 = 8;
        let wanted = pc.checked_sub(self.text)?;
        let entry = |index: u64| self.at(4, index * EACH, 4);
        let (mut low, mut high) = (0, self.functions);
        while low < high {
            let middle = low + (high - low) / 2;
            match entry(middle)? <= wanted {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        let index = low.checked_sub(1)?;
        // The last entry is the end of the last function.
        (wanted < entry(index + 1)?).then_some(())?;
        Some((self.at(4, index * EACH + 4, 4)?, entry(index)?))
    }

    /// Returns the address of a function of this name in the process, and its bytes.
    pub(super) fn named(&self, name: &str) -> Option<(u64, u64)> {
        const EACH: u64 = 8;
        let entry = |index: u64| self.at(4, index * EACH, 4);
        let is_it = |index: &u64| {
            let record = self.at(4, index * EACH + 4, 4);
            let at = record.and_then(|record| self.field(record, NAME));
            at.is_some_and(|at| self.is_text_at(0, at, name))
        };
        let index = (0..self.functions).find(is_it)?;
        let start = entry(index)?;
        Some((
            self.text.checked_add(start)?,
            entry(index + 1)?.checked_sub(start)?,
        ))
    }

    fn is_text_at(&self, part: usize, offset: u64, text: &str) -> bool {
        let from = self.parts[part].checked_add(offset);
        let from = from.and_then(|from| usize::try_from(from).ok());
        let bytes = from.and_then(|from| self.bytes.get(from..));
        bytes.is_some_and(|bytes| {
            bytes.starts_with(text.as_bytes()) && bytes.get(text.len()) == Some(&0)
        })
    }

    fn field(&self, function: u64, offset: u64) -> Option<u64> {
        self.at(4, function.checked_add(offset)?, 4)
    }

    /// The bytes of a function's record in front of its tables.
    fn head(&self) -> u64 {
        match self.layout {
            Layout::OneEighteen => 40,
            Layout::OneTwenty => 44,
        }
    }

    /// Returns the value that a table of steps has at an address, which is counted from the function's first.
    fn value(&self, steps: u64, wanted: u64) -> Option<i32> {
        // The table of no values.
        (steps != 0).then_some(())?;
        let mut at = usize::try_from(self.parts[3].checked_add(steps)?).ok()?;
        let (mut value, mut pc) = (-1i32, 0u64);
        for step in 0..MOST_STEPS {
            let change = self.varint(&mut at)?;
            if change == 0 && step > 0 {
                return None;
            }
            let change = (change >> 1) as i32 ^ -((change & 1) as i32);
            value = value.wrapping_add(change);
            pc += u64::from(self.varint(&mut at)?) * QUANTUM;
            if wanted < pc {
                return Some(value);
            }
        }
        None
    }

    fn varint(&self, at: &mut usize) -> Option<u32> {
        let (mut value, mut shift) = (0u32, 0);
        loop {
            let byte = *self.bytes.get(*at)?;
            *at += 1;
            value |= u32::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(value);
            }
            shift += 7;
        }
    }

    fn position(&self, function: u64, pc: u64) -> Option<(String, u32)> {
        let file = self.value(self.field(function, FILE_STEPS)?, pc)?;
        let line = self.value(self.field(function, LINE_STEPS)?, pc)?;
        let unit = self.field(function, UNIT)?;
        let index = unit.checked_add(u64::try_from(file).ok()?)?;
        let name = self.at(1, index.checked_mul(4)?, 4)?;
        Some((self.text_at(2, name)?, u32::try_from(line).ok()?))
    }

    /// Returns the address of a function's table of inlined calls.
    fn inlined_calls(&self, function: u64) -> Option<u64> {
        let values = self.field(function, VALUES)?;
        let count = self.at(4, function.checked_add(self.head() - 1)?, 1)?;
        (count > INLINE_TREE).then_some(())?;
        let at = self.head() + (values + INLINE_TREE) * 4;
        let offset = self.field(function, at)?;
        (offset != u64::from(u32::MAX)).then_some(self.data.checked_add(offset)?)
    }

    /// Returns the inlined call of a number: its name and its first line.
    fn inlined(&self, calls: u64, index: u64) -> Option<(String, u32)> {
        let each = match self.layout {
            Layout::OneEighteen => 20,
            Layout::OneTwenty => 16,
        };
        let mut call = [0u8; 20];
        let at = calls.checked_add(index.checked_mul(each)?)?;
        let call = &mut call[..each as usize];
        self.process.read(at, call).then_some(())?;
        let (name, first) = match self.layout {
            Layout::OneEighteen => (12, 0),
            Layout::OneTwenty => (4, number(call, 12, 4)?),
        };
        let name = self.text_at(0, number(call, name, 4)?)?;
        Some((name, u32::try_from(first).ok()?))
    }

    /// Returns the frame of an address behind a call: of inlined ones the innermost, as Go's stacks have an address for each.
    pub(super) fn place(&self, return_address: u64) -> Option<Place> {
        // The instruction before it is the call.
        let pc = return_address.wrapping_sub(1);
        let (function, entry) = self.function(pc)?;
        let pc = pc - self.text - entry;
        let (file, line) = self.position(function, pc)?;
        let inlined = self
            .inlined_calls(function)
            .zip(self.inline_index(function, pc))
            .and_then(|(calls, index)| self.inlined(calls, index));
        let own = || {
            Some((
                self.text_at(0, self.field(function, NAME)?)?,
                self.first_line(function),
            ))
        };
        let (name, first_line) = inlined.or_else(own)?;
        Some(Place {
            function: name,
            file,
            line,
            first_line,
        })
    }

    /// Returns the number of the inlined call that an address is in, if it is in one.
    fn inline_index(&self, function: u64, pc: u64) -> Option<u64> {
        let values = self.field(function, VALUES)?;
        (values > INLINE_INDEX).then_some(())?;
        let steps = self.field(function, self.head() + INLINE_INDEX * 4)?;
        u64::try_from(self.value(steps, pc)?).ok()
    }

    fn first_line(&self, function: u64) -> u32 {
        match self.layout {
            Layout::OneEighteen => 0,
            Layout::OneTwenty => self.field(function, FIRST_LINE).unwrap_or(0) as u32,
        }
    }
}

/// The bytes of the shortest instruction.
const QUANTUM: u64 = if cfg!(target_arch = "aarch64") { 4 } else { 1 };

/// Returns the little-endian number of so many bytes at an offset.
fn number(from: &[u8], at: u64, bytes: u64) -> Option<u64> {
    let at = usize::try_from(at).ok()?;
    let bytes = from.get(at..at.checked_add(bytes as usize)?)?;
    let shifted = |sum, byte: &u8| sum << 8 | u64::from(*byte);
    Some(bytes.iter().rev().fold(0, shifted))
}
