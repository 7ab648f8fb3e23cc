//! ELF files, mapped and never read whole: identity, links to debug files, symbols.
//!
//! ```text
//!   file ──mmap──► Image ──► build id, .gnu_debuglink, .gnu_debugaltlink
//!                    ├─────► SymbolTable   (sorted once, names as offsets into the mapping)
//!                    └─────► sections for DWARF (dwarf.rs)
//! ```
//!
//! I1  An `Image` keeps its mapping alive; whatever borrows from it is dropped first (dwarf.D1).
//! I2  Nothing here panics on a damaged file: what cannot be read is an error naming the file, or is
//!     left out.
//! I3  A mapping is private and read-only. If another program truncates the file while we read it,
//!     the kernel raises SIGBUS: no reader that maps files can prevent that, and reading a debug
//!     file of a gigabyte into memory instead would be worse.
//! Not here: which file to open (locate.rs), names for people (demangle.rs).

use std::fs::File;
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use object::read::elf::ElfFile64;
use object::{
    LittleEndian, Object, ObjectSection, ObjectSymbol, ObjectSymbolTable, RelocationTarget,
    SectionKind, SymbolKind,
};

/// The largest decompressed size of one section that we accept: a damaged header must not make us
/// reserve the machine's memory. Chromium's largest section is about 2 GiB.
const MAX_SECTION_BYTES: u64 = 8 << 30;

/// An ELF file of x86-64, parsed over a mapping.
pub(crate) type Elf<'data> = ElfFile64<'data, LittleEndian, &'data [u8]>;

/// A mapped file (I1).
#[derive(Debug)]
pub(crate) struct Image {
    path: PathBuf,
    map: Mmap,
}

impl Image {
    /// Maps a file. Errors are sentences that name the file.
    pub(crate) fn open(path: &Path) -> Result<Image, String> {
        let broken = |e: std::io::Error| format!("{}: {e}", path.display());
        // This is checked before it is opened: the path comes from a trace, and opening a FIFO would wait for ever.
        if !std::fs::metadata(path).map_err(broken)?.is_file() {
            return Err(format!("{}: not a regular file", path.display()));
        }
        let file = File::open(path).map_err(broken)?;
        // SAFETY: I3: private and read-only; a truncation by others is the documented limit.
        let map = unsafe { Mmap::map(&file) }.map_err(broken)?;
        let image = Image {
            path: path.to_path_buf(),
            map,
        };
        image.elf()?;
        Ok(image)
    }

    /// Returns the file's path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the bytes of the file.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Parses the headers (cheap: nothing is copied).
    pub(crate) fn elf(&self) -> Result<Elf<'_>, String> {
        Elf::parse(&self.map[..])
            .map_err(|e| format!("{}: not a usable 64-bit ELF file: {e}", self.path.display()))
    }

    /// Returns the GNU build id in lower-case hex; empty if there is none or it cannot be read.
    pub(crate) fn build_id(&self) -> String {
        match self.elf().map(|elf| elf.build_id()) {
            Ok(Ok(Some(id))) => hex(id),
            _ => String::new(),
        }
    }

    /// Returns `.gnu_debuglink`: file name and CRC-32 of the debug file.
    pub(crate) fn debuglink(&self) -> Option<(PathBuf, u32)> {
        let elf = self.elf().ok()?;
        let (name, crc) = elf.gnu_debuglink().ok()??;
        Some((os_path(name), crc))
    }

    /// Returns `.gnu_debugaltlink`: path and build id of the file that dwz moved common parts to.
    pub(crate) fn debugaltlink(&self) -> Option<(PathBuf, String)> {
        let elf = self.elf().ok()?;
        let (name, id) = elf.gnu_debugaltlink().ok()??;
        Some((os_path(name), hex(id)))
    }

    /// Reports whether it holds the program's code (a separate debug file does not).
    pub(crate) fn has_code(&self) -> bool {
        self.elf().is_ok_and(|elf| {
            elf.elf_program_headers().iter().any(|header| {
                let executable = header.p_flags.get(LittleEndian) & object::elf::PF_X
                    != object::elf::ProgramFlags(0);
                executable
                    && header.p_type.get(LittleEndian) == object::elf::PT_LOAD
                    && header.p_filesz.get(LittleEndian) > 0
            }) && !elf.sections().any(|section| {
                // objcopy --only-keep-debug keeps the headers of the code and drops its bytes.
                section.kind() == SectionKind::UninitializedData
                    && section.name().is_ok_and(|name| name == ".text")
            })
        })
    }

    /// Reports whether it can name anything: it has DWARF or a full symbol table.
    pub(crate) fn has_names(&self) -> bool {
        self.has_dwarf() || self.elf().is_ok_and(|elf| elf.symbol_table().is_some())
    }

    /// Returns the bytes of `.debug_info` as stored; 0 if it carries no DWARF. A skeleton for split files counts.
    pub(crate) fn dwarf_bytes(&self) -> u64 {
        let Ok(elf) = self.elf() else { return 0 };
        let size = |name| elf.section_by_name(name).map_or(0, |s| s.size());
        if size(".debug_line") == 0 {
            return 0;
        }
        size(".debug_info")
    }

    /// Reports whether it carries DWARF.
    pub(crate) fn has_dwarf(&self) -> bool {
        self.dwarf_bytes() > 0
    }
}

/// Returns one section's bytes, decompressed if need be; empty if there is none.
///
/// Errors: the section is there and cannot be read.
pub(crate) fn section<'data>(
    elf: &Elf<'data>,
    name: &str,
) -> Result<std::borrow::Cow<'data, [u8]>, String> {
    let Some(section) = elf.section_by_name(name) else {
        return Ok((&[][..]).into());
    };
    let data = section
        .compressed_data()
        .map_err(|e| format!("section {name}: {e}"))?;
    if data.uncompressed_size > MAX_SECTION_BYTES {
        return Err(format!(
            "section {name}: says it is {} bytes long decompressed",
            data.uncompressed_size
        ));
    }
    data.decompress()
        .map_err(|e| format!("section {name}: {e}"))
}

/// Formats bytes as lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn os_path(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    PathBuf::from(std::ffi::OsStr::from_bytes(bytes))
}

/// The table that names come from; the larger, the better.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum TableKind {
    Dynsym,
    Symtab,
}

/// A symbol: 32 bytes; the name lies in the mapping (or in `extra` for `foo@plt`).
#[derive(Clone, Copy, Debug)]
struct Row {
    address: u64,
    size: u32,
    name_at: u64,
    name_len: u32,
    /// Orders the symbols of one address: better names come first.
    rank: u8,
}

/// Code symbols of one file, sorted by address.
///
/// Invariant: `reach[i]` is the largest end of `rows[..=i]`, so that a search backwards knows when
/// to stop however symbols are nested.
#[derive(Debug)]
pub(crate) struct SymbolTable {
    pub(crate) kind: TableKind,
    rows: Vec<Row>,
    reach: Vec<u64>,
    /// Names of PLT entries, which no file contains as text.
    extra: String,
}

/// The bit that is set in `name_at` for names in `extra`.
const EXTRA: u64 = 1 << 63;

impl SymbolTable {
    /// Reads `.symtab`, or `.dynsym` if there is none, and the PLT. Returns `None` if there are no code symbols.
    pub(crate) fn read(image: &Image) -> Option<SymbolTable> {
        let elf = image.elf().ok()?;
        let base = image.bytes().as_ptr().addr();
        let len = image.bytes().len();
        let mut table = SymbolTable {
            kind: TableKind::Symtab,
            rows: Vec::new(),
            reach: Vec::new(),
            extra: String::new(),
        };
        table.collect(&elf, elf.symbol_table(), base, len);
        if table.rows.is_empty() {
            table.kind = TableKind::Dynsym;
            table.collect(&elf, elf.dynamic_symbol_table(), base, len);
        }
        table.collect_plt(&elf);
        table.rows.sort_unstable_by(|a, b| {
            (a.address, a.rank, a.name_len, a.name_at)
                .cmp(&(b.address, b.rank, b.name_len, b.name_at))
        });
        // The best name of an address is first; a name with a size beats one without (rank).
        table.rows.dedup_by_key(|row| row.address);
        table.bound_unsized(&elf);
        let mut reach = 0;
        table.reach = table
            .rows
            .iter()
            .map(|row| {
                reach = reach.max(row.address.saturating_add(u64::from(row.size)));
                reach
            })
            .collect();
        (!table.rows.is_empty()).then_some(table)
    }

    fn collect<'data>(
        &mut self,
        elf: &Elf<'data>,
        symbols: Option<impl ObjectSymbolTable<'data>>,
        base: usize,
        len: usize,
    ) {
        let Some(symbols) = symbols else { return };
        for symbol in symbols.symbols() {
            // Kind Text covers FUNC and IFUNC; labels of assembly are NOTYPE, `Unknown` here.
            if !symbol.is_definition() && symbol.kind() != SymbolKind::Text
                || !matches!(symbol.kind(), SymbolKind::Text | SymbolKind::Unknown)
                || symbol.is_undefined()
                || !in_code(elf, &symbol)
            {
                continue;
            }
            let Ok(name) = symbol.name_bytes() else {
                continue;
            };
            // I1: the name is a slice of the mapping; we keep its position, not the borrow.
            let Some(at) = name.as_ptr().addr().checked_sub(base) else {
                continue;
            };
            if name.is_empty() || name[0] == b'$' || at + name.len() > len {
                continue;
            }
            self.rows.push(Row {
                address: symbol.address(),
                size: u32::try_from(symbol.size()).unwrap_or(u32::MAX),
                name_at: at as u64,
                name_len: u32::try_from(name.len()).unwrap_or(0),
                rank: rank(&symbol, name),
            });
        }
    }

    /// Names PLT entries by the slot of the GOT that each jumps through: that holds for `.plt`,
    /// `.plt.sec` (with endbr64) and `.plt.got` alike, without knowing how entries are numbered.
    fn collect_plt(&mut self, elf: &Elf<'_>) {
        let Some(names) = elf.dynamic_symbol_table() else {
            return;
        };
        let slots: rustc_hash::FxHashMap<u64, &[u8]> = elf
            .dynamic_relocations()
            .into_iter()
            .flatten()
            .filter_map(|(slot, relocation)| match relocation.target() {
                RelocationTarget::Symbol(index) => {
                    let name = names.symbol_by_index(index).ok()?.name_bytes().ok()?;
                    (!name.is_empty()).then_some((slot, name))
                }
                _ => None,
            })
            .collect();
        for (section_name, entry_bytes) in [(".plt", 16), (".plt.sec", 16), (".plt.got", 8)] {
            let Some(section) = elf.section_by_name(section_name) else {
                continue;
            };
            let Ok(code) = section.data() else { continue };
            for at in (0..code.len()).step_by(entry_bytes) {
                let address = section.address().wrapping_add(at as u64);
                let slot = jump_slot(address, &code[at..]);
                let Some(name) = slot.and_then(|slot| slots.get(&slot)) else {
                    continue;
                };
                let at = self.extra.len() as u64;
                self.extra.push_str(&String::from_utf8_lossy(name));
                self.extra.push_str("@plt");
                self.rows.push(Row {
                    address,
                    size: entry_bytes as u32,
                    name_at: at | EXTRA,
                    name_len: (self.extra.len() as u64 - at) as u32,
                    rank: u8::MAX,
                });
            }
        }
    }

    /// Lets a symbol of size 0 reach to the next symbol, but not past the end of its section.
    fn bound_unsized(&mut self, elf: &Elf<'_>) {
        let mut ends: Vec<(u64, u64)> = elf
            .sections()
            .filter(|s| s.size() > 0)
            .map(|s| (s.address(), s.address().saturating_add(s.size())))
            .collect();
        ends.sort_unstable();
        for index in 0..self.rows.len() {
            let Row { address, size, .. } = self.rows[index];
            if size != 0 {
                continue;
            }
            let at = ends.partition_point(|&(start, _)| start <= address);
            let section_end = at
                .checked_sub(1)
                .map_or(u64::MAX, |i| ends[i].1)
                .max(address);
            let next = self.rows.get(index + 1).map_or(u64::MAX, |r| r.address);
            self.rows[index].size =
                u32::try_from(next.min(section_end) - address).unwrap_or(u32::MAX);
        }
    }

    /// Returns the innermost symbol that holds the address of the file: name and start. Cost: a
    /// binary search, then as many steps back as symbols are nested (at most 64).
    pub(crate) fn find<'a>(&'a self, image: &'a Image, address: u64) -> Option<(&'a [u8], u64)> {
        let above = self.rows.partition_point(|row| row.address <= address);
        for index in (above.saturating_sub(64)..above).rev() {
            if self.reach[index] <= address {
                return None;
            }
            let row = &self.rows[index];
            if address - row.address < u64::from(row.size) {
                return Some((self.name(image, row)?, row.address));
            }
        }
        None
    }

    fn name<'a>(&'a self, image: &'a Image, row: &Row) -> Option<&'a [u8]> {
        let bytes = if row.name_at & EXTRA != 0 {
            self.extra.as_bytes()
        } else {
            image.bytes()
        };
        let at = usize::try_from(row.name_at & !EXTRA).ok()?;
        bytes.get(at..at.checked_add(row.name_len as usize)?)
    }
}

/// Reports whether a symbol is in an executable section: symbols without a type also label data.
fn in_code<'data>(elf: &Elf<'data>, symbol: &impl ObjectSymbol<'data>) -> bool {
    symbol.kind() == SymbolKind::Text
        || symbol
            .section_index()
            .and_then(|index| elf.section_by_index(index).ok())
            .is_some_and(|section| section.kind() == SectionKind::Text)
}

/// Ranks the symbols of one address: sized before unsized, exported before local, fewer leading
/// underscores (`malloc`, not `__libc_malloc`; `fork`, though weak), global before weak.
fn rank<'data>(symbol: &impl ObjectSymbol<'data>, name: &[u8]) -> u8 {
    let mangled = name.starts_with(b"_Z") || name.starts_with(b"_R");
    let underscores = if mangled {
        0
    } else {
        underscores(name).min(7) as u8
    };
    u8::from(symbol.size() == 0) << 6
        | u8::from(symbol.is_local()) << 5
        | underscores << 1
        | u8::from(symbol.is_weak())
}

/// Counts leading underscores: the more, the less a name is meant for users.
pub(crate) fn underscores(name: &[u8]) -> usize {
    name.iter().take_while(|&&b| b == b'_').count()
}

/// Decodes `[endbr64] [bnd] jmp *slot(%rip)`, and returns the address of the slot.
fn jump_slot(address: u64, entry: &[u8]) -> Option<u64> {
    let mut at = 0;
    if entry.starts_with(&[0xf3, 0x0f, 0x1e, 0xfa]) {
        at = 4;
    }
    if entry.get(at) == Some(&0xf2) {
        at += 1;
    }
    if entry.get(at..at + 2)? != [0xff, 0x25] {
        return None;
    }
    let displacement = i32::from_le_bytes(entry.get(at + 2..at + 6)?.try_into().ok()?);
    Some(
        address
            .wrapping_add(at as u64 + 6)
            .wrapping_add_signed(i64::from(displacement)),
    )
}
