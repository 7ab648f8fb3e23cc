//! Codes of an interpreter: what frames of a script are called, to bytes and back.
//!
//! ```text
//!   address of a node:  bit 62 │ id of the code 32 │ one more than the instruction 24
//! ```
//!
//! N1  Ids are dense from 1; a block far beyond the codes before it is refused, except for what damage can have taken.
//!
//! Not here: lines (crate `symbols`).

use skinflint_framing::varint::{Cursor, Malformed, put, put_bytes};

use crate::meta::{get_record, get_text, put_record, put_text};

/// The bit of a node's address that says that it is a frame of an interpreter. No address of a program has it.
pub const USER_CODE: u64 = 1 << 62;

/// What [`Code::minor`] is for Ruby: a frame's unit is its line.
pub const RUBY_CODE: u32 = 0x1_0000;

/// What [`Code::minor`] is for PHP: a frame's unit is its line, and [`Code::lines`] is the name of its class.
pub const PHP_CODE: u32 = 0x2_0000;

/// What [`Code::minor`] is for Java, beside the version of the machine in its lower 16 bits: a frame's unit is one more than its
/// bytecode, and [`Code::lines`] is compressed as that version does.
pub const JAVA_CODE: u32 = 0x3_0000;

/// What [`Code::minor`] is for Go: a frame's unit is its line.
pub const GO_CODE: u32 = 0x4_0000;

/// The most codes in one block, each of at most a few dozen KB.
pub(crate) const CODES_PER_BLOCK: usize = 512;

/// Returns a node's address for a frame of an interpreter. `unit`: one more than the instruction; 24 bits.
pub const fn user_code(id: u32, unit: u32) -> u64 {
    USER_CODE | (id as u64) << 24 | (unit & 0xff_ffff) as u64
}

/// Returns the code and the unit of a node's address (see [`user_code`]); `None` if it is an address of the program.
pub const fn code_of(pc: u64) -> Option<(u32, u32)> {
    match pc >> 62 {
        1 => Some(((pc >> 24) as u32, (pc & 0xff_ffff) as u32)),
        _ => None,
    }
}

/// A code of an interpreter.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Code {
    /// The version of Python: its minor number; or [`RUBY_CODE`], [`PHP_CODE`], [`GO_CODE`], or [`JAVA_CODE`] and more.
    pub minor: u32,
    /// The line at which it begins.
    pub first_line: u32,
    /// The file, as the interpreter names it.
    pub file: String,
    /// The qualified name.
    pub name: String,
    /// The table of lines, as the interpreter keeps it.
    pub lines: Vec<u8>,
}

pub(crate) fn put_codes(out: &mut Vec<u8>, first_id: u32, codes: &[Code]) {
    put(out, u64::from(first_id));
    put(out, codes.len() as u64);
    for code in codes {
        put_record(out, |out| {
            put(out, u64::from(code.minor));
            put(out, u64::from(code.first_line));
            put_text(out, &code.file);
            put_text(out, &code.name);
            put_bytes(out, &code.lines);
        });
    }
}

/// Reads a block. `lost_bytes`: what damage may have taken before it.
pub(crate) fn get_codes(
    from: &mut Cursor<'_>,
    codes: &mut Vec<Code>,
    lost_bytes: u64,
) -> Result<(), Malformed> {
    let first = from.get()?;
    let count = from.get_count(2)?;
    let len = codes.len() as u64;
    if first == 0 || first - 1 > len + lost_bytes || first + count as u64 > u64::from(u32::MAX) {
        return Err(Malformed("a code far beyond the codes before it"));
    }
    let mut read = Vec::with_capacity(count.min(CODES_PER_BLOCK));
    for _ in 0..count {
        let mut record = get_record(from)?;
        read.push(Code {
            minor: record.get_u32()?,
            first_line: record.get_u32()?,
            file: get_text(&mut record)?,
            name: get_text(&mut record)?,
            lines: record.get_bytes()?.to_vec(),
        });
    }
    let start = first as usize - 1;
    if codes.len() < start + read.len() {
        codes.resize(start + read.len(), Code::default());
    }
    codes
        .iter_mut()
        .skip(start)
        .zip(read)
        .for_each(|(to, code)| *to = code);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(name: &str) -> Code {
        Code {
            minor: 11,
            first_line: 7,
            file: "a.py".into(),
            name: name.into(),
            lines: vec![0x80, 0xff, 0],
        }
    }

    #[test]
    fn codes_come_back_under_their_ids() {
        let mut codes = Vec::new();
        for (first, part) in [(1, vec![code("f"), code("g")]), (3, vec![code("h")])] {
            let mut bytes = Vec::new();
            put_codes(&mut bytes, first, &part);
            get_codes(&mut Cursor::new(&bytes), &mut codes, 0).expect("read");
        }
        assert_eq!(codes, [code("f"), code("g"), code("h")]);
        // A block was lost: what is missing is empty. Far beyond, it is damage.
        let mut bytes = Vec::new();
        put_codes(&mut bytes, 6, &[code("i")]);
        assert!(get_codes(&mut Cursor::new(&bytes), &mut codes, 1).is_err());
        get_codes(&mut Cursor::new(&bytes), &mut codes, 64).expect("read");
        assert_eq!(
            (codes.len(), &codes[4], &codes[5]),
            (6, &Code::default(), &code("i"))
        );
    }

    #[test]
    fn an_address_says_which_code_and_where() {
        assert_eq!(
            code_of(user_code(u32::MAX, 0xff_ffff)),
            Some((u32::MAX, 0xff_ffff))
        );
        assert_eq!(code_of(user_code(3, 0)), Some((3, 0)));
        for pc in [0, 1, 0x7fff_ffff_ffff, u64::MAX, 1 << 63] {
            assert_eq!(code_of(pc), None);
        }
    }
}
