//! What HotSpot says of its own structures, read out of another process.
//!
//! ```text
//!   gHotSpotVMStructs ─► [ type │ field │ kind │ is static │ offset │ address ] … up to one without a type
//!   gHotSpotVMIntConstants ─► [ name │ value ] … up to one without a name
//! ```
//!
//! T1  Entries count only if they are as far apart as ours (the machine exports that, too), and their texts end.
//! T2  The tables never change, so they are read once.
//!
//! Not here: what is found by them.

use std::path::PathBuf;

use rustc_hash::FxHashMap;

use crate::elf::{DYNSYM, Elf};
use crate::remote::Remote;

const FIELD_WORDS: usize = 6;
const CONSTANT_WORDS: usize = 2;
/// The entries that are read at once, and the most of a table.
const AT_ONCE: usize = 64;
const MOST: usize = 1 << 14;
/// The most bytes of a name: longer ones are not asked for.
const TEXT_BYTES: usize = 64;
const OS_PAGE: u64 = 4096;

/// A machine's tables.
#[derive(Debug, Default)]
pub(super) struct Tables {
    /// Offsets of fields, by type and name: `CollectedHeap::_reserved`.
    fields: FxHashMap<String, u64>,
    /// Addresses of variables.
    variables: FxHashMap<String, u64>,
    constants: FxHashMap<String, u32>,
}

impl Tables {
    /// Reads the tables of the machine in a file that is mapped from `start` on; `None` if it does not describe itself (T1).
    pub(super) fn read(remote: Remote, path: &str, start: u64) -> Option<Tables> {
        let pid = remote.pid;
        let elf = Elf::open(&PathBuf::from(format!("/proc/{pid}/root{path}")))?;
        let exported = elf.table(DYNSYM)?;
        let bias = start.wrapping_sub(elf.first_address()? & !(OS_PAGE - 1));
        let variable = |name: &str| {
            let mut symbols = exported.symbols();
            let found = symbols.find(|one| one.is_defined && one.name == name.as_bytes())?;
            remote.word(found.address.wrapping_add(bias))
        };
        let is_apart = |name: &str, words: usize| variable(name) == Some(words as u64 * 8);
        let is_known = is_apart("gHotSpotVMStructEntryArrayStride", FIELD_WORDS)
            && is_apart("gHotSpotVMIntConstantEntryArrayStride", CONSTANT_WORDS);
        if !is_known {
            return None;
        }
        let fields = entries::<FIELD_WORDS>(remote, variable("gHotSpotVMStructs")?)?;
        let constants = entries::<CONSTANT_WORDS>(remote, variable("gHotSpotVMIntConstants")?)?;
        let types = texts(remote, fields.iter().map(|entry| entry[0]));
        let names = texts(remote, fields.iter().map(|entry| entry[1]));
        let mut tables = Tables::default();
        for ((entry, of), name) in fields.iter().zip(types).zip(names) {
            let (Some(of), Some(name)) = (of, name) else {
                continue;
            };
            let [_, _, _, is_static, offset, address] = *entry;
            // The word has four bytes of the flag, and four that are unused.
            match is_static as u32 {
                0 => tables.fields.insert(format!("{of}::{name}"), offset),
                _ => tables.variables.insert(format!("{of}::{name}"), address),
            };
        }
        let names = texts(remote, constants.iter().map(|entry| entry[0]));
        for (entry, name) in constants.iter().zip(names) {
            if let Some(name) = name {
                tables.constants.insert(name, entry[1] as u32);
            }
        }
        Some(tables)
    }

    /// Returns the offset of a field.
    pub(super) fn field(&self, of: &str, name: &str) -> Option<u64> {
        self.fields.get(&format!("{of}::{name}")).copied()
    }

    /// Returns the address of a variable.
    pub(super) fn variable(&self, of: &str, name: &str) -> Option<u64> {
        self.variables.get(&format!("{of}::{name}")).copied()
    }

    /// Returns a constant.
    pub(super) fn constant(&self, name: &str) -> Option<u32> {
        self.constants.get(name).copied()
    }
}

/// Returns the entries of a table, up to one whose first word is 0.
fn entries<const N: usize>(remote: Remote, mut at: u64) -> Option<Vec<[u64; N]>> {
    let mut all: Vec<[u64; N]> = Vec::new();
    while all.len() < MOST {
        // The table's end may be that of what can be read.
        let some = remote.words(at, N * AT_ONCE);
        let some = some.or_else(|| remote.words(at, N))?;
        let (some, _) = some.as_chunks::<N>();
        for entry in some {
            if entry[0] == 0 {
                return Some(all);
            }
            all.push(*entry);
        }
        at = at.checked_add(size_of_val(some) as u64)?;
    }
    None
}

/// Returns the texts at addresses; those that could not be read, or do not end, are none.
fn texts(remote: Remote, at: impl Iterator<Item = u64>) -> Vec<Option<String>> {
    let at: Vec<u64> = at.collect();
    let mut bytes = vec![0; at.len() * TEXT_BYTES];
    let done = remote.read_all(&at, TEXT_BYTES, &mut bytes);
    let (each, _) = bytes.as_chunks::<TEXT_BYTES>();
    let text = |(index, bytes): (usize, &[u8; TEXT_BYTES])| {
        let end = bytes.iter().position(|byte| *byte == 0)?;
        let text = std::str::from_utf8(bytes.get(..end)?).ok()?;
        (index < done).then(|| text.to_owned())
    };
    each.iter().enumerate().map(text).collect()
}
