//! Names of data: which global variable an address lies in.
//!
//! D1  The smallest variable that holds the address gives the name; without one there is no name.
//! Not here: code (module.rs), thread-local variables, which have no address of their own.

use object::{Object, ObjectSymbol, SymbolKind};

use crate::demangle::demangle;
use crate::elf::Image;

/// Returns the variable at an address of the file, and the offset in it. Cost: a walk over all symbols.
pub(crate) fn variable(image: &Image, address: u64) -> Option<(String, u64)> {
    let elf = image.elf().ok()?;
    let holds = |one: &object::read::elf::ElfSymbol64<'_, '_, object::LittleEndian, &[u8]>| {
        one.kind() == SymbolKind::Data && address.wrapping_sub(one.address()) < one.size()
    };
    let all = elf.symbols().chain(elf.dynamic_symbols()).filter(holds);
    let best = all.min_by_key(|one| one.size())?;
    let name = demangle(best.name().ok()?);
    Some((name.to_string(), address - best.address()))
}
