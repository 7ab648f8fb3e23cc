//! The modules of another process as its loader lists them, and the functions that they export: all from its memory,
//! so no file has to be found, and none that was replaced since is taken for what runs.
//!
//! ```text
//!   /proc/PID/auxv ─► program headers ─► DT_DEBUG ─► link maps ─► each: range, .eh_frame_hdr, dynamic symbols
//! ```
//!
//! O1  The list may change while it is read: it is bounded, and what cannot be read is left out.

use super::memory::Memory;

/// A program header.
struct Segment {
    kind: u32,
    is_code: bool,
    address: u64,
    bytes: u64,
}

/// A function that a module exports.
pub(super) struct Function {
    pub(super) name: String,
    pub(super) at: u64,
    pub(super) len: u64,
    /// Whether it is kept only for programs that were linked long ago.
    is_old: bool,
}

/// A module.
pub(super) struct Module {
    /// Its path as the loader knows it; empty for the program.
    pub(super) name: String,
    /// First address, and one past the last.
    pub(super) range: (u64, u64),
    /// Where its unwind tables lie: first address, bytes, and the address of `.eh_frame_hdr`.
    pub(super) tables: Option<(u64, u64, u64)>,
    pub(super) is_program: bool,
    pub(super) is_loader: bool,
    pub(super) functions: Vec<Function>,
    /// Executable parts, each from its first address to one past the last.
    pub(super) code: Vec<(u64, u64)>,
}

/// All modules, the program first, in the order in which the loader searches them.
pub(super) struct Modules(pub(super) Vec<Module>);

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_PHDR: u32 = 6;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
/// The most modules that are read (O1).
const MOST_MODULES: usize = 4096;

impl Modules {
    /// Reads the list; `None` if the program has no loader: it is static, or has ended.
    pub(super) fn read(pid: u32, memory: &Memory) -> Option<Modules> {
        let auxiliary = std::fs::read(format!("/proc/{pid}/auxv")).ok()?;
        let value = |key: u64| {
            let mut pairs = auxiliary.chunks_exact(16);
            pairs
                .find(|pair| number(pair, 0) == key)
                .map(|pair| number(pair, 8))
        };
        let (headers, count) = (value(3)?, value(5)?);
        let loader = value(7).unwrap_or(0);
        let segments = read_segments(memory, headers, count)?;
        let own = segments.iter().find(|one| one.kind == PT_PHDR);
        let bias = own.map_or(0, |own| headers.wrapping_sub(own.address));
        let dynamic = segments.iter().find(|one| one.kind == PT_DYNAMIC)?;
        let entries = dynamic_entries(memory, bias.wrapping_add(dynamic.address))?;
        let debug = entries.iter().find(|(tag, _)| *tag == 21)?.1;
        let mut modules = Vec::new();
        let mut map = memory.word(debug.checked_add(8)?)?;
        while map != 0 && modules.len() < MOST_MODULES {
            let Some(link) = memory.bytes(map, 32) else {
                break;
            };
            let is_program = modules.is_empty();
            let (bias, name) = (number(&link, 0), number(&link, 8));
            let of_program = is_program.then_some((headers, count));
            if let Some(mut module) = Module::read(memory, bias, number(&link, 16), of_program) {
                module.name = memory.text(name).unwrap_or_default();
                module.is_program = is_program;
                module.is_loader = loader != 0 && module.holds(loader);
                modules.push(module);
            }
            map = number(&link, 24);
        }
        (!modules.is_empty()).then_some(Modules(modules))
    }

    /// Returns the module that holds an address.
    pub(super) fn at(&self, address: u64) -> Option<&Module> {
        self.0.iter().find(|module| module.holds(address))
    }

    /// Returns the C library, by a function that only glibc has.
    pub(super) fn libc(&self) -> Option<&Module> {
        let mut all = self.0.iter();
        all.find(|module| !module.is_program && module.function("gnu_get_libc_version").is_some())
    }

    /// Returns the first function of this name in the order of the loader.
    pub(super) fn function(&self, name: &str) -> Option<u64> {
        self.0.iter().find_map(|module| module.function(name))
    }
}

impl Module {
    /// Reads a module of which a link map is known. `headers`: its program headers, if they are known.
    pub(super) fn read(
        memory: &Memory,
        bias: u64,
        dynamic: u64,
        headers: Option<(u64, u64)>,
    ) -> Option<Module> {
        let (headers, count) = match headers {
            Some(headers) => headers,
            None => {
                let head: [u8; 64] = memory.array(bias)?;
                if &head[..4] != b"\x7fELF" {
                    return None;
                }
                let count = u64::from(u16::from_le_bytes([head[56], head[57]]));
                (bias.wrapping_add(number(&head, 32)), count)
            }
        };
        let segments = read_segments(memory, headers, count)?;
        let loaded = |one: &&Segment| one.kind == PT_LOAD;
        let ends = |one: &Segment| {
            let start = bias.wrapping_add(one.address);
            (start, start.wrapping_add(one.bytes))
        };
        let parts: Vec<_> = segments.iter().filter(loaded).map(ends).collect();
        let code = segments
            .iter()
            .filter(loaded)
            .filter(|one| one.is_code)
            .map(ends)
            .collect();
        let range = (
            parts.iter().map(|part| part.0).min()?,
            parts.iter().map(|part| part.1).max()?,
        );
        let header = segments.iter().find(|one| one.kind == PT_GNU_EH_FRAME);
        let tables = header.and_then(|header| {
            let header = bias.wrapping_add(header.address);
            let (low, high) = *parts
                .iter()
                .find(|part| part.0 <= header && header < part.1)?;
            // `.eh_frame` follows nearly always; else all from where it begins.
            let [_, encoding, _, _, a, b, c, d] = memory.array(header)?;
            let frames = i64::from(i32::from_le_bytes([a, b, c, d]));
            let frames = header.wrapping_add(4).wrapping_add_signed(frames);
            let from = match encoding == 0x1b && low <= frames && frames < header {
                true => frames,
                false => header,
            };
            Some((from, high - from, header))
        });
        Some(Module {
            name: String::new(),
            range,
            tables,
            is_program: false,
            is_loader: false,
            functions: exported(memory, bias, dynamic).unwrap_or_default(),
            code,
        })
    }

    pub(super) fn holds(&self, address: u64) -> bool {
        (self.range.0..self.range.1).contains(&address)
    }

    /// Returns a function that it exports, in its newest version.
    pub(super) fn function(&self, name: &str) -> Option<u64> {
        let named = || self.functions.iter().filter(|one| one.name == name);
        let newest = named().find(|one| !one.is_old);
        newest.or_else(|| named().next()).map(|one| one.at)
    }

    /// Returns the last part of its path.
    pub(super) fn file_name(&self) -> &str {
        self.name.rsplit('/').next().unwrap_or("")
    }
}

/// Returns a word of a structure that was read.
fn number(bytes: &[u8], at: usize) -> u64 {
    let word = bytes.get(at..at + 8).and_then(|word| word.try_into().ok());
    word.map_or(0, u64::from_le_bytes)
}

fn read_segments(memory: &Memory, at: u64, count: u64) -> Option<Vec<Segment>> {
    let bytes = memory.bytes(at, count.min(512) * 56)?;
    let segment = |entry: &[u8]| Segment {
        kind: number(entry, 0) as u32,
        is_code: number(entry, 0) >> 32 & 1 != 0,
        address: number(entry, 16),
        bytes: number(entry, 40),
    };
    Some(bytes.chunks_exact(56).map(segment).collect())
}

fn dynamic_entries(memory: &Memory, at: u64) -> Option<Vec<(u64, u64)>> {
    let mut entries = Vec::new();
    for index in 0..512 {
        let pair: [u8; 16] = memory.array(at.checked_add(index * 16)?)?;
        if number(&pair, 0) == 0 {
            break;
        }
        entries.push((number(&pair, 0), number(&pair, 8)));
    }
    Some(entries)
}

/// Reads the functions that a module defines for others.
fn exported(memory: &Memory, bias: u64, dynamic: u64) -> Option<Vec<Function>> {
    let entries = dynamic_entries(memory, dynamic)?;
    let value = |tag: u64| entries.iter().find(|one| one.0 == tag).map(|one| one.1);
    // The loader has made most addresses absolute, but not those of the vdso.
    let address = |tag: u64| {
        value(tag).map(|value| match value < bias {
            true => bias + value,
            false => value,
        })
    };
    let count = match (address(0x6fff_fef5), address(4)) {
        (Some(hash), _) => symbols_by_gnu_hash(memory, hash)?,
        (None, Some(hash)) => memory.word(hash)? >> 32,
        _ => return None,
    };
    let symbols = memory.bytes(address(6)?, count.checked_mul(24)?)?;
    let names = memory.bytes(address(5)?, value(10)?)?;
    let versions = address(0x6fff_fff0).and_then(|at| memory.bytes(at, count * 2));
    let mut functions = Vec::new();
    for (index, symbol) in symbols.chunks_exact(24).enumerate() {
        let (head, at, len) = (number(symbol, 0), number(symbol, 8), number(symbol, 16));
        let is_function = matches!(head >> 32 & 15, 2 | 10);
        if !is_function || head >> 48 == 0 || at == 0 {
            continue;
        }
        let name = names.get(head as u32 as usize..)?;
        let name = name.split(|byte| *byte == 0).next()?;
        let version = versions.as_ref().and_then(|all| all.get(index * 2 + 1));
        functions.push(Function {
            name: String::from_utf8_lossy(name).into_owned(),
            at: bias.wrapping_add(at),
            len,
            is_old: version.is_some_and(|high| high & 0x80 != 0),
        });
    }
    Some(functions)
}

/// Returns the number of symbols of a module: the last of the chains.
fn symbols_by_gnu_hash(memory: &Memory, hash: u64) -> Option<u64> {
    let head: [u8; 16] = memory.array(hash)?;
    let [buckets, first, filter] = [0, 4, 8].map(|at| {
        u64::from(u32::from_le_bytes([
            head[at],
            head[at + 1],
            head[at + 2],
            head[at + 3],
        ]))
    });
    let table = hash.checked_add(16)?.checked_add(filter * 8)?;
    let bytes = memory.bytes(table, buckets * 4)?;
    let newest = bytes
        .chunks_exact(4)
        .map(|one| u64::from(u32::from_le_bytes([one[0], one[1], one[2], one[3]])));
    let mut index = newest.max()?;
    if index < first {
        return Some(first);
    }
    let chain = table.checked_add(buckets * 4)?;
    loop {
        let entry: [u8; 4] = memory.array(chain.checked_add((index - first) * 4)?)?;
        index += 1;
        if entry[0] & 1 != 0 {
            return Some(index);
        }
    }
}
