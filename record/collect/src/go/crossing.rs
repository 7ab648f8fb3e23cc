//! Where a Go program passes from its stacks to C's, for the recorder in it.
//!
//! ```text
//!   runtime.asmcgocall   55 48 89 e5 …                 a frame pointer of its own?
//!                        48 89 7c 24 08                mov %rdi, 8(%rsp): the goroutine is kept there
//!                        48 2b/29 … 48 89 3c 24        mov %rdi, (%rsp): how deep its stack was
//! ```
//!
//! X1  What is not found so is not there: the recorder's stacks then end at the crossing, as without us.
//!
//! x86-64. Not here: the walk (`skinflint_frames::Crossing`).

use std::path::Path;

use skinflint_frames::Crossing;

use super::binary::GoProgram;
use crate::elf::{Elf, SYMTAB, X86_64};
use crate::remote::Remote;

/// The most bytes of the function.
const MOST_CODE: u64 = 4096;

impl GoProgram {
    /// Finds where a process passes to C.
    pub fn crossing(&self, pid: u32) -> Option<Crossing> {
        let path = format!("/proc/{pid}/exe");
        let elf = Elf::open(Path::new(&path)).filter(|elf| elf.machine == X86_64)?;
        let bias = self.bias(pid);
        let functions = named(&elf).or_else(|| self.listed(pid, bias))?;
        let [(start, bytes), (exit, _)] = functions;
        let code = elf.code(start, bytes.min(MOST_CODE))?;
        let (goroutine_at, depth_at) = kept(&code)?;
        let text = elf.executable(start)?;
        Some(Crossing {
            start: start.wrapping_add(bias),
            end: (start + bytes).wrapping_add(bias),
            text: (text.0.wrapping_add(bias), text.1.wrapping_add(bias)),
            exit: exit.wrapping_add(bias),
            goroutine_at,
            depth_at,
            has_frame: code.starts_with(&[0x55, 0x48, 0x89, 0xe5]),
        })
    }

    /// Finds the functions in Go's own table, which a stripped program has, too.
    fn listed(&self, pid: u32, bias: u64) -> Option<[(u64, u64); 2]> {
        let path = format!("/proc/{pid}/exe");
        let table = self
            .functions(Path::new(&path), Remote { pid }, bias)
            .ok()?;
        let found = ["runtime.asmcgocall", "runtime.goexit"].map(|name| table.named(name));
        let of = |one: Option<(u64, u64)>| one.map(|(at, bytes)| (at.wrapping_sub(bias), bytes));
        Some([of(found[0])?, of(found[1])?])
    }
}

/// Finds the functions by their symbols: the assembler's own, not what Go code calls them by.
fn named(elf: &Elf) -> Option<[(u64, u64); 2]> {
    let table = elf.table(SYMTAB)?;
    let mut found = [None; 2];
    for symbol in table
        .symbols()
        .filter(|one| one.is_defined && one.bytes > 0)
    {
        let (to, is_own) = match symbol.name {
            b"runtime.asmcgocall.abi0" => (0, true),
            b"runtime.asmcgocall" => (0, false),
            b"runtime.goexit.abi0" => (1, true),
            b"runtime.goexit" => (1, false),
            _ => continue,
        };
        if is_own || found[to].is_none() {
            found[to] = Some((symbol.address, symbol.bytes));
        }
    }
    Some([found[0]?, found[1]?])
}

/// Returns where the function keeps the goroutine and its depth: the first two stores of rdi at the stack pointer.
fn kept(code: &[u8]) -> Option<(u32, u32)> {
    let stores = (0..code.len()).filter_map(|at| match code.get(at..)? {
        [0x48, 0x89, 0x7c, 0x24, at, ..] => Some(u32::from(*at)),
        [0x48, 0x89, 0x3c, 0x24, ..] => Some(0),
        _ => None,
    });
    let all: Vec<u32> = stores.collect();
    match all[..] {
        [goroutine, depth, ..] if goroutine != depth && goroutine < 128 && depth < 128 => {
            Some((goroutine, depth))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_two_stores_are_the_goroutine_and_the_depth() {
        // As Go 1.26 has it, and 1.19 with more room below.
        let new = [
            0x48, 0x83, 0xe4, 0xf0, 0x48, 0x89, 0x7c, 0x24, 0x08, 0x48, 0x8b, 0x7f, 0x08, 0x48,
            0x29, 0xd7, 0x48, 0x89, 0x3c, 0x24, 0xe8,
        ];
        assert_eq!(kept(&new), Some((8, 0)));
        let old = [
            0x48, 0x89, 0x7c, 0x24, 0x30, 0x48, 0x29, 0xd7, 0x48, 0x89, 0x7c, 0x24, 0x28,
        ];
        assert_eq!(kept(&old), Some((48, 40)));
        assert_eq!(kept(&new[..9]), None);
        assert_eq!(
            kept(&[0x48, 0x89, 0x7c, 0x24, 0x30, 0x48, 0x89, 0x7c, 0x24, 0x30]),
            None
        );
    }
}
