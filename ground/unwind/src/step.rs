//! A step outwards: from the registers in a frame to those of its caller.
//!
//! ```text
//!   pc ──► rule (cache, or compiled: Finder ► cfi ► pack) ──► Stepped { link, sp, bp, also read }
//! ```
//!
//! S1  A step lists every word it read: two in the link, up to two more in `extra`.
//! S2  Outside signal frames the stack pointer only grows, so a walk ends.
//! S3  All reads of a stack go through a `Memory`, which knows what may be read (unwind.U2).
//! Not here: the two common kinds on the thread's own stack, which capture.rs does inline.

use crate::arch::{SIGRETURN, UC_FP, UC_PC, UC_SP, code_at};
use crate::cfi::{Cfa, FP, Row, Saved, row_at};
use crate::expr::Base;
use crate::find::{Finder, LOWEST_CODE};
use crate::foreign::Window;
use crate::generated;
use crate::made::Made;
use crate::rule::{Rule, RuleCache, kind};

/// Why the outermost reported frame is the last.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It is the outermost: nothing is missing.
    Complete = 0,
    /// More than `MAX_FRAMES` frames: the outermost are missing.
    TooDeep = 1,
    /// Code without unwind information and without a plausible frame pointer.
    NoInfo = 2,
    /// Unwind information led out of the stack.
    BadFrame = 3,
    /// Unwind information of a form that is not followed.
    Unsupported = 4,
    /// A foreign stack could not be read (any further).
    Unreadable = 5,
}

/// The memory that a step may read.
pub(crate) trait Memory {
    /// Returns the word at `addr`, if it may be read.
    fn load(&mut self, addr: u64) -> Option<u64>;
}

/// The thread's own stack, from the `sp` of the capture up.
pub(crate) struct Own {
    pub(crate) sp: u64,
    pub(crate) hi: u64,
}

impl Memory for Own {
    fn load(&mut self, addr: u64) -> Option<u64> {
        if addr < self.sp || addr > self.hi.wrapping_sub(8) {
            return None;
        }
        // SAFETY: unwind.U2: the word lies within [sp, hi) of the running thread's stack.
        Some(unsafe { (addr as *const u64).read_unaligned() })
    }
}

impl Memory for &mut Window {
    fn load(&mut self, addr: u64) -> Option<u64> {
        Window::load(self, addr)
    }
}

/// The words that lead from a frame to its caller, with their addresses.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// The address of the return address.
    pub(crate) slot: u64,
    pub(crate) ra: u64,
    /// The address of the caller's `rbp`; `slot` again if it is still in the register.
    pub(crate) bp_slot: u64,
    pub(crate) bp_value: u64,
}

impl Link {
    /// Creates a link that reads the return address only.
    pub(crate) fn bare(slot: u64, ra: u64) -> Link {
        Link {
            slot,
            ra,
            bp_slot: slot,
            bp_value: ra,
        }
    }
}

/// Two more words that a step read, each as (address, value).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extra {
    pub(crate) words: [[u64; 2]; 2],
}

/// How a frame was left.
pub(crate) mod shape {
    /// By the link alone, and the caller's `sp` is `slot + 8`.
    pub(crate) const PLAIN: u32 = 0;
    /// With more words (`Extra`).
    pub(crate) const WIDE: u32 = 1;
    /// By the return from a signal handler: `ra` is the interrupted pc itself.
    pub(crate) const SIGNAL: u32 = 1 << SIGNAL_BIT;
    pub(crate) const SIGNAL_BIT: u32 = 1;
    /// A flag beside the shapes above: not all words that were read are listed.
    pub(crate) const UNLISTED: u32 = 4;
    /// All bits.
    pub(crate) const ALL: u32 = 7;
}

/// The result of a step.
pub(crate) struct Stepped {
    pub(crate) link: Link,
    pub(crate) shape: u32,
    pub(crate) sp: u64,
    pub(crate) bp: u64,
    pub(crate) extra: Option<Extra>,
}

/// Makes the rule for `pc`. `exact`: the walk reached it by rules, not by a guess. Cost: 0.2 to 2 µs; outside of
/// modules two system calls.
pub(crate) fn rule_slow(rules: &RuleCache, find: &Finder, pc: u64, exact: bool) -> Rule {
    let rule = match find.module(pc) {
        // What lies there can become other code at any time: it is asked for at each step.
        None if find.made(pc).is_some() => Rule::WIDE,
        None => match exact
            .then(|| generated::row_of(pc.wrapping_add(1)))
            .flatten()
        {
            Some(row) => {
                rules.note_generated(pc);
                Rule::pack(&row)
            }
            None => Rule::NO_INFO,
        },
        // SAFETY: the program executes in this module, so it stays mapped while we look.
        Some(module) => match unsafe { row_at(&module, pc, FP) } {
            Some(row) => Rule::pack(&row),
            None if is_sigreturn(pc, module.start, module.end) => Rule::SIGNAL,
            None => Rule::NO_INFO,
        },
    };
    rules.put(pc, rule);
    rule
}

/// Returns whether the instructions of a signal handler's return are just after `pc`, where a return address less one
/// points: the restorer of a C library that gives it no unwind information.
fn is_sigreturn(pc: u64, start: u64, end: u64) -> bool {
    if pc < start || end.saturating_sub(pc) < 10 {
        return false;
    }
    // SAFETY: pc is executed, so its page is mapped; the bounds say that ten bytes follow.
    let code = unsafe { (pc as *const [u8; 10]).read_unaligned() };
    code[1..].starts_with(&SIGRETURN)
}

/// Leaves the frame at `pc` by `rule`, whatever its kind.
pub(crate) fn step<M: Memory>(
    memory: &mut M,
    find: &Finder,
    rule: Rule,
    pc: u64,
    sp: u64,
    bp: u64,
) -> Result<Stepped, End> {
    #[cfg(target_arch = "aarch64")]
    if let kind::SP | kind::BP = rule.kind() {
        return step_apart(memory, rule, sp, bp);
    }
    let cfa = match rule.kind() {
        kind::SP => sp.wrapping_add(rule.a()),
        kind::BP => bp.wrapping_add(rule.a()),
        kind::LOAD => return step_load(memory, rule, sp, bp),
        kind::SIGNAL => return step_signal(memory, sp),
        kind::END => return Err(End::Complete),
        kind::NO_INFO => return step_frame_pointer(memory, sp, bp),
        kind::WIDE => return step_wide(memory, find, pc, sp, bp),
        _ => return Err(End::Unsupported),
    };
    let bp_slot = if rule.b() == 0 {
        None
    } else {
        Some(cfa.wrapping_sub(rule.b()))
    };
    plain(memory, cfa, bp_slot, sp, bp)
}

fn plain<M: Memory>(
    memory: &mut M,
    cfa: u64,
    bp_slot: Option<u64>,
    sp: u64,
    bp: u64,
) -> Result<Stepped, End> {
    if cfa < sp.saturating_add(8) {
        return Err(End::BadFrame);
    }
    let slot = cfa - 8;
    let ra = code_at(memory.load(slot).ok_or(End::BadFrame)?);
    let mut link = Link::bare(slot, ra);
    let mut out = bp;
    if let Some(bp_slot) = bp_slot {
        if bp_slot < sp || bp_slot >= slot {
            return Err(End::BadFrame);
        }
        out = memory.load(bp_slot).ok_or(End::BadFrame)?;
        link.bp_slot = bp_slot;
        link.bp_value = out;
    }
    Ok(Stepped {
        link,
        shape: shape::PLAIN,
        sp: cfa,
        bp: out,
        extra: None,
    })
}

/// Makes the common step where the return address lies anywhere in the frame, as on aarch64.
#[cfg(target_arch = "aarch64")]
fn step_apart<M: Memory>(memory: &mut M, rule: Rule, sp: u64, bp: u64) -> Result<Stepped, End> {
    let (up, down, bp_down) = rule.apart();
    let base = if rule.is_by_bp() { bp } else { sp };
    let cfa = base.checked_add(up).ok_or(End::BadFrame)?;
    let place = |down: u64| {
        cfa.checked_sub(down)
            .filter(|at| *at >= sp)
            .ok_or(End::BadFrame)
    };
    let slot = place(down)?;
    let mut link = Link::bare(slot, code_at(memory.load(slot).ok_or(End::BadFrame)?));
    let mut out = bp;
    if bp_down != 0 {
        let bp_slot = place(bp_down)?;
        out = memory.load(bp_slot).ok_or(End::BadFrame)?;
        (link.bp_slot, link.bp_value) = (bp_slot, out);
    }
    Ok(Stepped {
        link,
        shape: shape::PLAIN,
        sp: cfa,
        bp: out,
        extra: None,
    })
}

/// Steps without unwind information, by the frame pointer, if it is a plausible one. JIT compilers of
/// JavaScript keep frame pointers.
pub(crate) fn step_frame_pointer<M: Memory>(
    memory: &mut M,
    sp: u64,
    bp: u64,
) -> Result<Stepped, End> {
    if bp < sp || bp - sp > LARGEST_GUESS || !bp.is_multiple_of(8) {
        return Err(End::NoInfo);
    }
    let cfa = bp.checked_add(16).ok_or(End::NoInfo)?;
    let stepped = plain(memory, cfa, Some(bp), sp, bp).map_err(|_| End::NoInfo)?;
    // The caller's frame lies further out, or its rbp is not a frame pointer but 0 by convention.
    let plausible = stepped.bp > bp || stepped.bp == 0;
    if plausible && stepped.link.ra >= LOWEST_CODE {
        Ok(stepped)
    } else {
        Err(End::NoInfo)
    }
}

/// The largest frame without unwind information, in bytes: a larger one comes from an `rbp` left over
/// from another stack, as at the end of a fibre.
const LARGEST_GUESS: u64 = 256 << 10;

fn step_load<M: Memory>(memory: &mut M, rule: Rule, sp: u64, bp: u64) -> Result<Stepped, End> {
    let at = bp.wrapping_add(rule.signed_a() as u64);
    let bp_at = bp.wrapping_add(rule.signed_b() as u64);
    let cfa = memory.load(at).ok_or(End::BadFrame)?;
    let out = memory.load(bp_at).ok_or(End::BadFrame)?;
    leave_wide(memory, cfa, -8, out, sp, [[at, cfa], [bp_at, out]])
}

/// Leaves a frame whose words are not all in the link. `words` are the others that were read.
fn leave_wide<M: Memory>(
    memory: &mut M,
    cfa: u64,
    ra_offset: i64,
    bp: u64,
    sp: u64,
    words: [[u64; 2]; 2],
) -> Result<Stepped, End> {
    let slot = cfa.wrapping_add(ra_offset as u64);
    if cfa < sp.saturating_add(8) || slot < sp {
        return Err(End::BadFrame);
    }
    let ra = code_at(memory.load(slot).ok_or(End::BadFrame)?);
    let extra = Some(Extra { words });
    Ok(Stepped {
        link: Link::bare(slot, ra),
        shape: shape::WIDE,
        sp: cfa,
        bp,
        extra,
    })
}

pub(crate) fn step_signal<M: Memory>(memory: &mut M, sp: u64) -> Result<Stepped, End> {
    let mut read = |at: u64| memory.load(sp.wrapping_add(at)).ok_or(End::BadFrame);
    let (pc, new_sp, bp) = (read(UC_PC)?, read(UC_SP)?, read(UC_FP)?);
    let words = [[sp + UC_SP, new_sp], [sp + UC_FP, bp]];
    let link = Link::bare(sp + UC_PC, pc);
    Ok(Stepped {
        link,
        shape: shape::SIGNAL,
        sp: new_sp,
        bp,
        extra: Some(Extra { words }),
    })
}

/// Leaves a frame whose row does not fit a rule: the row is looked up and run as it is.
#[cold]
#[inline(never)]
fn step_wide<M: Memory>(
    memory: &mut M,
    find: &Finder,
    pc: u64,
    sp: u64,
    bp: u64,
) -> Result<Stepped, End> {
    let Some(module) = find.module(pc) else {
        return match find.made(pc) {
            Some(made) => leave_made(memory, find, made, sp, bp),
            None => step_frame_pointer(memory, sp, bp),
        };
    };
    // SAFETY: as in `rule_slow`: code that is being executed stays mapped.
    let row: Row = unsafe { row_at(&module, pc, FP) }.ok_or(End::NoInfo)?;
    leave_by_row(memory, &row, sp, bp)
}

/// Leaves a frame by its row, which is not the outermost frame's.
pub(crate) fn leave_by_row<M: Memory>(
    memory: &mut M,
    row: &Row,
    sp: u64,
    bp: u64,
) -> Result<Stepped, End> {
    // A word that was not read is listed as the first word, so that it is verified together with it.
    let mut words = [[0u64; 2]; 2];
    let base = |b: Base, cfa: u64| match b {
        Base::Sp => sp,
        Base::Bp => bp,
        Base::Cfa => cfa,
    };
    let cfa = match row.cfa {
        Cfa::Reg(b, offset) => base(b, 0).wrapping_add(offset as u64),
        Cfa::Load {
            base: b,
            offset,
            add,
        } => {
            let at = base(b, 0).wrapping_add(offset as u64);
            let word = memory.load(at).ok_or(End::BadFrame)?;
            words[0] = [at, word];
            word.wrapping_add(add as u64)
        }
        Cfa::Bad => return Err(End::Unsupported),
    };
    let out = match row.bp {
        Saved::Same | Saved::Undefined => bp,
        Saved::IsCfa(offset) => cfa.wrapping_add(offset as u64),
        Saved::At(b, offset) => {
            let at = base(b, cfa).wrapping_add(offset as u64);
            let word = memory.load(at).ok_or(End::BadFrame)?;
            words[1] = [at, word];
            word
        }
        Saved::Bad => return Err(End::Unsupported),
    };
    let Saved::At(Base::Cfa, ra_offset) = row.ra else {
        return Err(End::Unsupported);
    };
    leave_wide(memory, cfa, ra_offset, out, sp, words)
}

/// Leaves a frame of code outside of modules that the caller of the walk knows.
fn leave_made<M: Memory>(
    memory: &mut M,
    find: &Finder,
    made: Made,
    sp: u64,
    bp: u64,
) -> Result<Stepped, End> {
    let by_pointer = bp.checked_add(16).ok_or(End::BadFrame)?;
    match made {
        Made::Sized(bytes) => {
            let cfa = sp.checked_add(bytes).ok_or(End::BadFrame)?;
            plain(memory, cfa, cfa.checked_sub(16), sp, bp)
        }
        Made::Pointed => plain(memory, by_pointer, Some(bp), sp, bp),
        Made::Interpreted => {
            let slot = by_pointer - 8;
            let ra = memory.load(slot).ok_or(End::BadFrame)?;
            let at = bp.wrapping_sub(8);
            let caller_sp = memory.load(at).ok_or(End::BadFrame)?;
            // Only the way out of a frame of known size begins at its stack pointer.
            let matters = || matches!(find.made(ra.wrapping_sub(1)), Some(Made::Sized(_)));
            if caller_sp == by_pointer || !matters() {
                return plain(memory, by_pointer, Some(bp), sp, bp);
            }
            let out = memory.load(bp).ok_or(End::BadFrame)?;
            let down = slot.wrapping_sub(caller_sp).cast_signed();
            if bp < sp || caller_sp < by_pointer {
                return Err(End::BadFrame);
            }
            leave_wide(
                memory,
                caller_sp,
                down,
                out,
                sp,
                [[bp, out], [at, caller_sp]],
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    struct Words(HashMap<u64, u64>);

    impl Memory for Words {
        fn load(&mut self, addr: u64) -> Option<u64> {
            self.0.get(&addr).copied()
        }
    }

    /// Code at 0x7000 to 0x7fff has frames of 48 bytes, at 0x8000 to 0x8fff it is the interpreter's.
    fn known(pc: u64) -> Option<Made> {
        match pc >> 12 {
            7 => Some(Made::Sized(48)),
            8 => Some(Made::Interpreted),
            _ => None,
        }
    }

    fn left(made: Made, words: &[(u64, u64)], sp: u64, bp: u64) -> Option<[u64; 5]> {
        // SAFETY: no function at all.
        let find = unsafe { Finder::new(None) }.knowing(known);
        let mut words = Words(words.iter().copied().collect());
        let out = leave_made(&mut words, &find, made, sp, bp).ok()?;
        let shape = u64::from(out.shape);
        Some([out.link.slot, out.link.ra, out.sp, out.bp, shape])
    }

    #[test]
    fn each_kind_is_left_by_its_own_words() {
        let plain = u64::from(shape::PLAIN);
        let wide = u64::from(shape::WIDE);
        let words = [(0x128, 0x8123), (0x120, 0x500)];
        let sized = left(Made::Sized(48), &words, 0x100, 0x110);
        assert_eq!(sized, Some([0x128, 0x8123, 0x130, 0x500, plain]));
        let pointed = left(Made::Pointed, &words, 0x100, 0x120);
        assert_eq!(pointed, Some([0x128, 0x8123, 0x130, 0x500, plain]));
        // The caller is the interpreter's, which finds all by rbp.
        let words = [(0x128, 0x8123), (0x120, 0x500), (0x118, 0x150)];
        let inner = left(Made::Interpreted, &words, 0x100, 0x120);
        assert_eq!(inner, Some([0x128, 0x8123, 0x130, 0x500, plain]));
        // It is compiled: what it had as its stack pointer counts.
        let words = [(0x128, 0x7123), (0x120, 0x500), (0x118, 0x150)];
        let inner = left(Made::Interpreted, &words, 0x100, 0x120);
        assert_eq!(inner, Some([0x128, 0x7123, 0x150, 0x500, wide]));
        // No variables are between them.
        let words = [(0x128, 0x7123), (0x120, 0x500), (0x118, 0x130)];
        let inner = left(Made::Interpreted, &words, 0x100, 0x120);
        assert_eq!(inner, Some([0x128, 0x7123, 0x130, 0x500, plain]));
    }

    #[test]
    fn what_leads_inwards_or_nowhere_is_no_frame() {
        let words = [(0x128, 0x7123), (0x120, 0x500), (0x118, 0x90)];
        assert_eq!(
            left(Made::Interpreted, &words, 0x100, 0x120),
            None,
            "the caller further in"
        );
        assert_eq!(
            left(Made::Pointed, &words, 0x130, 0x120),
            None,
            "rbp below the stack pointer"
        );
        assert_eq!(
            left(Made::Sized(96), &words, 0x100, 0x120),
            None,
            "not to be read"
        );
        assert_eq!(
            left(Made::Sized(8), &words, u64::MAX - 7, 0),
            None,
            "beyond all addresses"
        );
        assert_eq!(
            left(Made::Pointed, &words, 0, u64::MAX),
            None,
            "beyond all addresses"
        );
    }
}
