//! What is read of a program's file beside what runs: tables of symbols, code, the build id.
//!
//! ```text
//!   head ─► section headers ─► .dynsym · .symtab ─ names in the section that they link to
//!       └─► program headers ─► code at an address · notes
//! ```
//!
//! E1  Nothing of a file is believed: offsets and sizes have bounds, and what makes no sense is not there.
//! E2  A table is read as a whole, up to [`MOST_BYTES`]; code is read piece by piece.
//!
//! Not here: what names mean (allocator.rs, linked/), names of addresses (the crate `symbols`).

use std::ffi::CStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The largest table that is read, bytes.
const MOST_BYTES: u64 = 64 << 20;
const SECTION_BYTES: u64 = 64;
const SEGMENT_BYTES: u64 = 56;
const SYMBOL_BYTES: usize = 24;

/// The kind of a section that holds all symbols of a file.
pub const SYMTAB: u64 = 2;
/// The kind of a section that holds the symbols that other files see.
pub const DYNSYM: u64 = 11;
/// The number of x86-64.
pub const X86_64: u64 = 62;

const PT_LOAD: u64 = 1;
const PT_NOTE: u64 = 4;
/// Code that can be read.
const READ_AND_RUN: u64 = 5;
const WRITE: u64 = 2;

/// A file of 64 bits, lowest byte first.
pub struct Elf {
    file: File,
    bytes: u64,
    /// The number of the processor.
    pub machine: u64,
    kind: u64,
    /// The number of the section with the names of sections.
    names: u64,
    sections: Vec<u8>,
    segments: Vec<u8>,
}

/// A symbol of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Symbol<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Its address in the file.
    pub address: u64,
    /// Its number of bytes.
    pub bytes: u64,
    /// Whether it is a function.
    pub is_function: bool,
    /// Whether it is defined in this file.
    pub is_defined: bool,
    /// Whether only the file that it was compiled from could name it.
    pub is_local: bool,
    /// The source that is named before it in the table.
    pub source: Option<&'a [u8]>,
    /// Whether it stands behind the only symbol of `crtend.o`, which is the last file that is linked.
    pub is_behind: bool,
}

/// A table of symbols, read.
pub struct Table {
    symbols: Vec<u8>,
    names: Vec<u8>,
}

impl Table {
    /// Returns its symbols, the broken ones left out.
    pub fn symbols(&self) -> impl Iterator<Item = Symbol<'_>> {
        const FUNCTION: u64 = 2;
        const SOURCE: u64 = 4;
        const HIDDEN: [u64; 2] = [1, 2];
        let (mut source, mut is_behind) = (None, false);
        let read = move |symbol: &[u8]| {
            let at = usize::try_from(number(symbol, 0, 4)?).ok()?;
            let (info, other) = (number(symbol, 4, 1)?, number(symbol, 5, 1)?);
            let name = CStr::from_bytes_until_nul(self.names.get(at..)?).ok()?;
            let name = name.to_bytes();
            if info & 15 == SOURCE {
                source = Some(name);
            }
            is_behind |= name == b"__FRAME_END__";
            let is_hidden = HIDDEN.contains(&(other & 3));
            Some(Symbol {
                name,
                address: number(symbol, 8, 8)?,
                bytes: number(symbol, 16, 8)?,
                is_function: info & 15 == FUNCTION,
                is_defined: number(symbol, 6, 2)? != 0,
                // What was hidden from other files is local, too, once it is linked.
                is_local: info >> 4 == 0 && !is_hidden,
                source,
                is_behind,
            })
        };
        self.symbols.chunks_exact(SYMBOL_BYTES).filter_map(read)
    }
}

impl Elf {
    /// Opens a file; `None` if it is none of this kind.
    pub fn open(path: &Path) -> Option<Elf> {
        let file = File::open(path).ok()?;
        let bytes = file.metadata().ok()?.len();
        let mut head = [0u8; 64];
        file.read_exact_at(&mut head, 0).ok()?;
        if head.get(..6)? != b"\x7fELF\x02\x01" {
            return None;
        }
        let mut elf = Elf {
            file,
            bytes,
            machine: number(&head, 18, 2)?,
            kind: number(&head, 16, 2)?,
            names: number(&head, 62, 2)?,
            sections: Vec::new(),
            segments: Vec::new(),
        };
        let table = |at: usize, count: usize, each: u64| {
            elf.read(number(&head, at, 8)?, number(&head, count, 2)? * each)
        };
        let sections = table(40, 60, SECTION_BYTES).unwrap_or_default();
        let segments = table(32, 56, SEGMENT_BYTES).unwrap_or_default();
        (elf.sections, elf.segments) = (sections, segments);
        Some(elf)
    }

    fn read(&self, offset: u64, bytes: u64) -> Option<Vec<u8>> {
        if offset.checked_add(bytes)? > self.bytes || bytes > MOST_BYTES {
            return None;
        }
        let mut read = vec![0; usize::try_from(bytes).ok()?];
        self.file.read_exact_at(&mut read, offset).ok()?;
        Some(read)
    }

    fn section(&self, index: u64) -> Option<&[u8]> {
        let at = usize::try_from(index.checked_mul(SECTION_BYTES)?).ok()?;
        self.sections
            .get(at..at.checked_add(SECTION_BYTES as usize)?)
    }

    fn contents(&self, section: &[u8]) -> Option<Vec<u8>> {
        self.read(number(section, 24, 8)?, number(section, 32, 8)?)
    }

    /// Returns where the section of a name is loaded, and its contents, which may be missing.
    pub fn named(&self, name: &[u8]) -> Option<(u64, Option<Vec<u8>>)> {
        let names = self.contents(self.section(self.names)?)?;
        let mut sections = self.sections.chunks_exact(SECTION_BYTES as usize);
        let section = sections.find(|one| {
            let at = number(one, 0, 4).and_then(|at| names.get(at as usize..));
            at.and_then(|at| at.split(|byte| *byte == 0).next()) == Some(name)
        })?;
        Some((number(section, 16, 8)?, self.contents(section)))
    }

    /// Returns where the loaded parts that can be written lie, zeros behind their contents included: address and bytes.
    pub fn writable(&self) -> Vec<(u64, u64)> {
        let parts = self.segments(PT_LOAD).filter_map(|one| {
            (number(one, 4, 4)? & WRITE != 0).then_some((number(one, 16, 8)?, number(one, 40, 8)?))
        });
        parts.collect()
    }

    /// Reads the first table of this kind ([`SYMTAB`], [`DYNSYM`]).
    pub fn table(&self, kind: u64) -> Option<Table> {
        let mut sections = self.sections.chunks_exact(SECTION_BYTES as usize);
        let section = sections.find(|one| number(one, 4, 4) == Some(kind))?;
        Some(Table {
            symbols: self.contents(section)?,
            names: self.contents(self.section(number(section, 40, 4)?)?)?,
        })
    }

    fn segments(&self, kind: u64) -> impl Iterator<Item = &[u8]> {
        let segments = self.segments.chunks_exact(SEGMENT_BYTES as usize);
        segments.filter(move |one| number(one, 0, 4) == Some(kind))
    }

    /// Returns the first address that is loaded.
    pub fn first_address(&self) -> Option<u64> {
        number(self.segments(PT_LOAD).next()?, 16, 8)
    }

    /// Reads code; `None` if not all of it lies in one part of the file that can be read and run, and not written.
    pub fn code(&self, address: u64, bytes: u64) -> Option<Vec<u8>> {
        self.segments(PT_LOAD).find_map(|segment| {
            let flags = number(segment, 4, 4)?;
            let (offset, start) = (number(segment, 8, 8)?, number(segment, 16, 8)?);
            let at = address.checked_sub(start)?;
            let is_inside = at.checked_add(bytes)? <= number(segment, 32, 8)?;
            let is_code = flags & READ_AND_RUN == READ_AND_RUN && flags & WRITE == 0;
            (is_inside && is_code).then_some(())?;
            self.read(offset.checked_add(at)?, bytes)
        })
    }

    /// Returns the bounds of the part that can be run which an address lies in.
    pub fn executable(&self, address: u64) -> Option<(u64, u64)> {
        self.segments(PT_LOAD).find_map(|segment| {
            let start = number(segment, 16, 8)?;
            let end = start.checked_add(number(segment, 32, 8)?)?;
            let is_code = number(segment, 4, 4)? & READ_AND_RUN == READ_AND_RUN;
            (is_code && (start..end).contains(&address)).then_some((start, end))
        })
    }

    /// Reports whether it is a program that is linked to a fixed address.
    pub fn is_fixed(&self) -> bool {
        const EXECUTABLE: u64 = 2;
        self.kind == EXECUTABLE
    }

    /// Returns the build id.
    pub fn build_id(&self) -> Option<Vec<u8>> {
        const MOST_NOTES: u64 = 64 << 10;
        self.segments(PT_NOTE).find_map(|segment| {
            let bytes = number(segment, 32, 8)?.min(MOST_NOTES);
            id_in(&self.read(number(segment, 8, 8)?, bytes)?)
        })
    }
}

fn id_in(notes: &[u8]) -> Option<Vec<u8>> {
    const BUILD_ID: u64 = 3;
    let mut at = 0;
    loop {
        let (name, bytes) = (number(notes, at, 4)?, number(notes, at + 4, 4)?);
        let (name, bytes) = (usize::try_from(name).ok()?, usize::try_from(bytes).ok()?);
        let text = at
            .checked_add(12)?
            .checked_add(name.checked_next_multiple_of(4)?)?;
        let content = notes.get(text..text.checked_add(bytes)?)?;
        if number(notes, at + 8, 4)? == BUILD_ID && notes.get(at + 12..at + 16)? == b"GNU\0" {
            return Some(content.to_vec());
        }
        at = text.checked_add(bytes.checked_next_multiple_of(4)?)?;
    }
}

/// Returns the little-endian number of `bytes` bytes at an offset.
fn number(from: &[u8], at: usize, bytes: usize) -> Option<u64> {
    let bytes = from.get(at..at.checked_add(bytes)?)?;
    Some(
        bytes
            .iter()
            .rev()
            .fold(0, |sum, &byte| sum << 8 | u64::from(byte)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Elf {
        Elf::open(Path::new("/proc/self/exe")).expect("the test itself")
    }

    #[test]
    fn the_test_itself_has_its_own_function_with_its_code() {
        let elf = own();
        let table = elf.table(SYMTAB).expect("not stripped");
        let main = table.symbols().find(|symbol| symbol.name == b"main");
        let main = main.expect("main");
        assert!(main.is_function && main.is_defined && !main.is_local);
        let code = elf.code(main.address, main.bytes).expect("in a segment");
        assert_eq!(code.len() as u64, main.bytes);
        assert!(code.iter().any(|byte| *byte != 0));
        // Data are no code, and neither is what lies across an end.
        let data = table.symbols().find(|symbol| symbol.name == b"_DYNAMIC");
        assert_eq!(elf.code(data.expect("a section").address, 8), None);
        assert_eq!(elf.code(main.address, 1 << 40), None);
        assert_eq!(elf.code(u64::MAX - 3, 8), None);
    }

    #[test]
    fn a_build_id_is_found_among_other_notes() {
        let mut notes = Vec::new();
        for (kind, content) in [(5u32, &b"other"[..]), (3, &b"\x12\x34\x56"[..])] {
            notes.extend(4u32.to_le_bytes());
            notes.extend((content.len() as u32).to_le_bytes());
            notes.extend(kind.to_le_bytes());
            notes.extend(b"GNU\0");
            notes.extend(content);
            notes.resize(notes.len().next_multiple_of(4), 0);
        }
        assert_eq!(id_in(&notes).as_deref(), Some(&b"\x12\x34\x56"[..]));
        for bytes in 0..notes.len() - 1 {
            assert_eq!(id_in(&notes[..bytes]), None, "cut at {bytes}");
        }
        assert_eq!(id_in(&[0xff; 64]), None);
    }
}
