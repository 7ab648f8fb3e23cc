//! The way out of the dynamic linker's lazy binding, whose CFA is in `rbx`.
//!
//! ```text
//!   malloc ◄ _dl_… ◄ _dl_fixup ◄ _dl_runtime_resolve (CFA = rbx + n) ◄ the program
//!              │         └─ saved rbx? its value here
//!              └─ if not, further in
//! ```
//!
//! Only rbp is followed from frame to frame. The rbx of a frame is looked up here when it is needed: it
//! is callee-saved, so the nearest frame further in that saved it has it, or it is still in the
//! register, whose value was not kept. Cost: one table look-up for each frame passed.
//!
//! L1  The result is what the tables say and nothing else; a frame without a table ends the search.
//! L2  The caller does not list the words that were read here, and so does not keep the frame.
//! Not here: CFAs in other registers (r10 at the start of realigned functions).

use crate::cfi::{Cfa, FP, RBX, Row, Saved, row_at};
use crate::expr::Base;
use crate::find::{Finder, LOWEST_CODE};
use crate::step::{Memory, Own};

/// The most frames further in that are searched for the value.
const MAX_INNER: usize = 16;

/// A caller that `leave` found.
pub(crate) struct Caller {
    pub(crate) slot: u64,
    pub(crate) ra: u64,
    pub(crate) bp: u64,
}

fn row(find: &Finder, pc: u64, register: u64) -> Option<Row> {
    let module = find.module(pc)?;
    // SAFETY: code that is being executed stays mapped.
    unsafe { row_at(&module, pc, register) }
}

/// Leaves the frame at `pc`, whose `rbp` and `rsp` are given. `inner` are the frames within it,
/// nearest first: a pc in each, and the CFA of each.
#[cold]
#[inline(never)]
pub(crate) fn leave(
    memory: &mut Own,
    find: &Finder,
    pc: u64,
    sp: u64,
    bp: u64,
    inner: impl Iterator<Item = (u64, u64)>,
) -> Option<Caller> {
    let by_rbx = row(find, pc, RBX)?;
    let (Cfa::Reg(Base::Bp, offset), Saved::At(Base::Cfa, -8)) = (by_rbx.cfa, by_rbx.ra) else {
        return None;
    };
    let cfa = saved_rbx(memory, find, inner)?.wrapping_add(offset as u64);
    let slot = cfa.wrapping_sub(8);
    if slot < sp {
        return None;
    }
    let ra = memory.load(slot)?;
    let bp = match row(find, pc, FP)?.bp {
        Saved::Same | Saved::Undefined => bp,
        Saved::At(Base::Cfa, at) => memory.load(cfa.wrapping_add(at as u64))?,
        _ => return None,
    };
    (ra >= LOWEST_CODE).then_some(Caller { slot, ra, bp })
}

fn saved_rbx(
    memory: &mut Own,
    find: &Finder,
    inner: impl Iterator<Item = (u64, u64)>,
) -> Option<u64> {
    for (pc, cfa) in inner.take(MAX_INNER) {
        match row(find, pc, RBX)?.bp {
            Saved::Same => {}
            Saved::At(Base::Cfa, at) => return memory.load(cfa.wrapping_add(at as u64)),
            _ => return None,
        }
    }
    None
}
