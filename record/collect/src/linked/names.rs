//! What tells of an allocator in a file beside the names of its functions: which local ones other files could call, and the
//! words that it prints.
//!
//! ```text
//!   .comment ─► whose linker ─► where in .symtab a local function stands ─► could other files call it?
//!   .rodata ─► "<jemalloc>: ", "mimalloc: " ─► an allocator whose functions have no names
//! ```
//!
//! V2  A local function of a library counts as hidden, and is called as its header says, if it was one that other files could
//!     call when it was compiled. GNU's linker puts what it made local by itself behind all that was local before, the last of
//!     which is in `crtend.o`. LLVM's puts those with their source, and then that is one of C which was compiled by itself
//!     (whole-program optimisation names another source, or renames the function: `.llvm.`, `.lto_priv.`).
//! V3  An allocator without a name is known by the words that it prints: they are in the file, however it was stripped.
//!
//! Not here: what is hooked (mod.rs).

use crate::elf::{DYNSYM, Elf, SYMTAB, Symbol};

/// Why an allocator without symbols is not recorded.
pub(super) const NAMELESS: &str =
    "the file is stripped of the symbols by which its functions are found";

/// Reports whether LLVM's linker made the file.
pub(super) fn is_by_lld(elf: &Elf) -> bool {
    let comment = elf.named(b".comment").and_then(|(_, bytes)| bytes);
    comment.is_some_and(|text| has(&text, b"Linker: LLD"))
}

/// Reports whether a local function was one that other files could call (V2).
pub(super) fn could_be_called(symbol: &Symbol<'_>, by_lld: bool) -> bool {
    match by_lld {
        true => symbol.source.is_some_and(|source| source.ends_with(b".c")),
        false => symbol.is_behind,
    }
}

/// Returns the allocator in a file that has no names for it (V3), if it calls what allocators call.
pub(super) fn nameless(elf: &Elf) -> Option<&'static str> {
    const WORDS: [(&[u8], &str); 2] = [(b"<jemalloc>: ", "jemalloc"), (b"mimalloc: ", "mimalloc")];
    let called = elf.table(DYNSYM)?;
    let gives_back = called
        .symbols()
        .any(|symbol| symbol.name == b"madvise" && !symbol.is_defined);
    if !gives_back || elf.table(SYMTAB).is_some() {
        return None;
    }
    let (_, constants) = elf.named(b".rodata")?;
    let constants = constants?;
    let found = WORDS.iter().find(|(words, _)| has(&constants, words));
    found.map(|(_, name)| *name)
}

/// Reports whether bytes are among others.
fn has(all: &[u8], bytes: &[u8]) -> bool {
    all.windows(bytes.len()).any(|window| window == bytes)
}
