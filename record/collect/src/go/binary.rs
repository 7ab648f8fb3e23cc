//! What a Go program's file says: its version, and where its runtime keeps what is read.
//!
//! ```text
//!   .go.buildinfo ─► version      .gopclntab ─► functions      .symtab ─► runtime.mbuckets …
//! ```
//!
//! B1  A version that is not in the table of known ones is refused, in words: another layout would give wrong figures.
//! B2  A stripped program has no symbols of data. Then its writable data are searched for the word that leads to the table of
//!     functions (`moduledata`), and each time for the newest bucket, by its shape (buckets.rs).
//!
//! Not here: reading the process (buckets.rs), functions (pclntab.rs).

use std::path::Path;

use skinflint_procfs::process::link;

use super::pclntab::Pclntab;
use crate::elf::{DYNSYM, Elf, SYMTAB};
use crate::mappings::mappings;
use crate::remote::Remote;

/// The minor versions whose layouts are known.
const KNOWN: std::ops::RangeInclusive<u32> = 18..=26;
/// The sections that the table of functions may be in.
const TABLES: [&[u8]; 2] = [b".gopclntab", b".data.rel.ro.gopclntab"];
/// The places of `text` and of the data of functions in `moduledata`, in words; the second by version.
const TEXT: usize = 22;
const DATA_BEFORE_20: usize = 38;
const DATA: usize = 40;
/// What the profile's rate is unless a program changes it.
pub const RATE: u64 = 512 << 10;

/// A Go program as its file describes it.
#[derive(Clone, Default, Debug)]
pub struct GoProgram {
    /// The version, as Go itself writes it.
    pub version: String,
    pub(super) minor: u32,
    /// Where the table of functions is loaded.
    pub(super) table: u64,
    /// Addresses in the file, if it has symbols of them.
    pub(super) buckets: Option<u64>,
    pub(super) module: Option<u64>,
    pub(super) rate: Option<u64>,
    pub(super) disabled: Option<u64>,
    pub(super) heap: Option<(u64, u64)>,
    /// Where data that can be written lie.
    pub(super) writable: Vec<(u64, u64)>,
    pub(super) first: u64,
    pub(super) is_fixed: bool,
    pub(super) calls_c: bool,
}

/// Why a Go program's profile is not read, in words.
pub(super) type Refused = String;

impl GoProgram {
    /// Reads a program's file; `None` if it is none of Go's.
    ///
    /// # Errors
    /// If its version or its tables are not known, in words (B1).
    pub fn of(path: &Path) -> Option<Result<GoProgram, String>> {
        let elf = Elf::open(path)?;
        let version = version(&elf)?;
        Some(GoProgram::read(&elf, version))
    }

    fn read(elf: &Elf, version: String) -> Result<GoProgram, Refused> {
        let minor = minor(&version).filter(|minor| KNOWN.contains(minor));
        let Some(minor) = minor else {
            return Err(format!(
                "how {version} keeps its heap profile is not known (known: Go 1.{} to 1.{})",
                KNOWN.start(),
                KNOWN.end()
            ));
        };
        let table = TABLES.iter().find_map(|name| elf.named(name));
        let Some((table, _)) = table else {
            return Err("it has no table of functions (.gopclntab)".into());
        };
        let mut program = GoProgram {
            version,
            minor,
            table,
            buckets: None,
            module: None,
            rate: None,
            disabled: None,
            heap: None,
            writable: elf.writable(),
            first: elf.first_address().unwrap_or(0),
            is_fixed: elf.is_fixed(),
            calls_c: elf.table(DYNSYM).is_some_and(|table| {
                let mut names = table.symbols().map(|one| one.name);
                names.any(|name| matches!(name, b"malloc" | b"free" | b"pthread_create"))
            }),
        };
        if let Some(symbols) = elf.table(SYMTAB) {
            for symbol in symbols.symbols().filter(|one| one.is_defined) {
                let to = match symbol.name {
                    b"runtime.mbuckets" => &mut program.buckets,
                    b"runtime.firstmoduledata" => &mut program.module,
                    b"runtime.MemProfileRate" => &mut program.rate,
                    b"runtime.disableMemoryProfiling" => &mut program.disabled,
                    b"runtime.mheap_" => {
                        program.heap = Some((symbol.address, symbol.bytes));
                        continue;
                    }
                    _ => continue,
                };
                *to = Some(symbol.address);
            }
        }
        Ok(program)
    }

    /// Returns by how much a process's addresses differ from the file's.
    pub(super) fn bias(&self, pid: u32) -> u64 {
        if self.is_fixed {
            return 0;
        }
        let (image, all) = (link(pid, "exe"), mappings(pid));
        let first = all.iter().find(|one| one.name == image);
        first.map_or(0, |one| one.start.wrapping_sub(self.first & !4095))
    }

    /// Reports whether it calls the C library, whose allocator the profile does not know.
    pub fn calls_c(&self) -> bool {
        self.calls_c
    }

    /// Returns where a process has the byte that says that the linker left the profile out.
    fn switch(&self, pid: u32) -> Option<u64> {
        Some(self.disabled?.wrapping_add(self.bias(pid)))
    }

    /// Has a process that has not begun to run Go code take samples, if the linker left that out: sets the byte to zero.
    pub fn switch_on(&self, pid: u32) {
        if let Some(at) = self.switch(pid) {
            Remote { pid }.clear(at);
        }
    }

    /// Returns the mean distance of samples, in bytes, as the process has it now.
    pub(super) fn rate(&self, process: Remote, bias: u64) -> u64 {
        let at = self.rate.map(|at| at.wrapping_add(bias));
        at.and_then(|at| process.word(at)).unwrap_or(RATE)
    }

    /// Reads the table of functions.
    ///
    /// # Errors
    /// If it cannot be read, or is of another layout.
    pub(super) fn functions(
        &self,
        path: &Path,
        process: Remote,
        bias: u64,
    ) -> Result<Pclntab, Refused> {
        let elf = Elf::open(path).ok_or("its file cannot be read")?;
        let table = TABLES.iter().find_map(|name| elf.named(name));
        let bytes = table.and_then(|(_, bytes)| bytes);
        let bytes = bytes.ok_or("its table of functions cannot be read")?;
        let data_at = if self.minor < 20 {
            DATA_BEFORE_20
        } else {
            DATA
        };
        let module = self.module.map(|at| at.wrapping_add(bias));
        let module = module.or_else(|| self.find_module(process, bias));
        let words = module.and_then(|at| process.words(at, data_at + 1));
        let words = words.filter(|words| words[0] == self.table.wrapping_add(bias));
        let words = words.ok_or("its description of itself (moduledata) was not found")?;
        let table = Pclntab::new(bytes, words[TEXT], words[data_at], process);
        table.ok_or_else(|| format!("its table of functions is not of {}", self.version))
    }

    /// Looks for the word that leads to the table of functions: the first of `moduledata` (B2).
    fn find_module(&self, process: Remote, bias: u64) -> Option<u64> {
        const AT_ONCE: u64 = 1 << 20;
        let wanted = self.table.wrapping_add(bias);
        for &(start, bytes) in &self.writable {
            let (mut at, end) = (start.wrapping_add(bias), start.wrapping_add(bias) + bytes);
            while at < end {
                let words = process.words(at, ((end - at).min(AT_ONCE) / 8) as usize);
                let words = words.unwrap_or_default();
                if let Some(index) = words.iter().position(|word| *word == wanted) {
                    return Some(at + index as u64 * 8);
                }
                at += AT_ONCE;
            }
        }
        None
    }
}

/// Returns the version in the note that Go's linker leaves: `go1.26.8`.
fn version(elf: &Elf) -> Option<String> {
    const MAGIC: &[u8] = b"\xff Go buildinf:";
    const INLINE: u8 = 2;
    let (_, note) = elf.named(b".go.buildinfo")?;
    let note = note?;
    note.starts_with(MAGIC).then_some(())?;
    // Before 1.18 it was elsewhere.
    (note.get(15)? & INLINE != 0).then_some(())?;
    let (mut at, mut bytes, mut shift) = (32, 0usize, 0u32);
    loop {
        let byte = *note.get(at)?;
        at += 1;
        bytes |= usize::from(byte & 0x7f).checked_shl(shift)?;
        shift += 7;
        if byte & 0x80 == 0 {
            break;
        }
    }
    let text = std::str::from_utf8(note.get(at..at.checked_add(bytes)?)?).ok()?;
    Some(text.to_owned())
}

/// Returns the minor number of a version: 26 of `go1.26.8`, of `go1.26-X:exp` and of `go1.26rc1`.
fn minor(version: &str) -> Option<u32> {
    let rest = version.strip_prefix("go1.")?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_unknown_ones_refused() {
        for (version, wanted) in [
            ("go1.26.8", Some(26)),
            ("go1.19", Some(19)),
            ("go1.22rc1", Some(22)),
            ("devel go1.27-abc", None),
            ("go2.1", None),
        ] {
            assert_eq!(minor(version), wanted, "{version}");
        }
        let elf = Elf::open(Path::new("/proc/self/exe")).expect("the test itself");
        let refused = GoProgram::read(&elf, "go1.99.1".into()).expect_err("not known");
        assert!(refused.contains("go1.99.1"), "{refused}");
        let refused = GoProgram::read(&elf, "go1.26.1".into()).expect_err("no table");
        assert!(refused.contains(".gopclntab"), "{refused}");
        assert!(GoProgram::of(Path::new("/proc/self/exe")).is_none());
    }
}
