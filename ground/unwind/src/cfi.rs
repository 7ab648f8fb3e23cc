//! Call-frame information: from a pc to the row that says how to leave the frame.
//!
//! ```text
//!   .eh_frame_hdr ── binary search ──► FDE ──► CIE
//!                                       │       │ initial instructions
//!                                       └───────┴──► run up to pc ──► Row { cfa, bp, ra }
//! ```
//!
//! Written afresh instead of using a general DWARF reader, because of where it runs: only the CFA,
//! `rbp` and the return address are followed, so a row is 72 bytes instead of kilobytes, and the
//! saved states fit a small stack. The tests compare it with `gimli` at every pc of the C library.
//!
//! C1  Every read is bounded by the module's mapping; a read beyond it yields `None`.
//! C2  Every loop consumes input, or is bounded by the table's count.
//! C3  Information that is not understood yields `None` or a `Bad` rule, never a guessed row.
//! C4  A row follows one register beside `rsp`: `rbp`, or another one if asked to, which then stands in
//!     `rbp`'s place (`Base::Bp`, `Row::bp`).
//! Not here: `.debug_frame`.

use crate::arch::{SP, is_about_signing};
use crate::expr::{Base, Value, evaluate};
use crate::find::Module;
use crate::reader::Reader;

/// How to find the CFA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cfa {
    /// A register and an offset.
    Reg(Base, i64),
    /// `*(base + offset) + add`, for functions that realign their stack.
    Load { base: Base, offset: i64, add: i64 },
    /// Another register, or an expression that we do not know.
    Bad,
}

/// How to find a register of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Saved {
    /// Unchanged.
    Same,
    /// There is none. For the return address, this means the outermost frame.
    Undefined,
    /// In memory at `base + offset`.
    At(Base, i64),
    /// It is `CFA + offset`.
    IsCfa(i64),
    /// In another register, or by an expression that we do not know.
    Bad,
}

/// How to leave a frame at one pc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) cfa: Cfa,
    pub(crate) bp: Saved,
    pub(crate) ra: Saved,
    /// Whether this is the frame of a signal handler's return: all registers are in the `ucontext` at `rsp`.
    pub(crate) signal: bool,
}

/// A rule as the instructions state it; expressions are evaluated only for the row that is wanted.
#[derive(Clone, Copy)]
enum Raw {
    Unset,
    Same,
    Undefined,
    Offset(i64),
    IsCfa(i64),
    Expression(Reader),
    Bad,
}

#[derive(Clone, Copy)]
struct RawRow {
    cfa_register: u64,
    cfa_offset: i64,
    cfa_expression: Option<Reader>,
    bp: Raw,
    ra: Raw,
}

#[cfg(target_arch = "x86_64")]
pub(crate) const RBX: u64 = 3;
pub(crate) use crate::arch::FP;
/// What a table that says nothing about the return address means: on aarch64 it is still in its register.
const UNSET_RA: Saved = if cfg!(target_arch = "aarch64") {
    Saved::Same
} else {
    Saved::Bad
};

struct Cie {
    code_align: u64,
    data_align: i64,
    ra_register: u64,
    pointer_encoding: u8,
    augmented: bool,
    signal: bool,
    instructions: Reader,
}

struct Fde {
    cie: Cie,
    start: u64,
    len: u64,
    instructions: Reader,
}

/// Returns the row for `pc` in `module`, following `register` (C4); `None` if the module says nothing
/// (usable) about it.
///
/// # Safety
/// The module must stay mapped during the call.
pub(crate) unsafe fn row_at(module: &Module, pc: u64, register: u64) -> Option<Row> {
    let (start, end) = module.tables;
    if module.hdr < start {
        return None;
    }
    // SAFETY: the caller keeps the module mapped; its bounds are those of the mapping (C1).
    let hdr = unsafe { Reader::new(module.hdr, end) };
    let fde = find_fde(hdr, module, pc)?;
    run(&fde, pc, register)
}

fn find_fde(hdr: Reader, module: &Module, pc: u64) -> Option<Fde> {
    let mut r = hdr;
    let [version, frame_enc, count_enc, table_enc] = r.take::<4>()?;
    if version != 1 {
        return None;
    }
    let frame = r.pointer(frame_enc, module.hdr)?;
    // 0xff is DW_EH_PE_omit. Every linker in use writes sdata4 relative to the header.
    if table_enc == 0x3b && count_enc != 0xff {
        let count = r.pointer(count_enc, module.hdr)?;
        let at = search(r, count, module.hdr, pc)?;
        return parse_fde(hdr.moved(module.tables.0, at)?, module, pc);
    }
    scan(hdr.moved(module.tables.0, frame)?, module, pc)
}

/// Searches the table for the FDE with the largest start that is at most `pc` (binary search).
fn search(table: Reader, count: u64, base: u64, pc: u64) -> Option<u64> {
    let fits = ((table.end - table.at) / 8) as u64;
    let entry = |i: u64| -> Option<(u64, u64)> {
        let mut r = table;
        r.skip(i * 8)?;
        let start = r.u32()? as i32 as i64 as u64;
        let fde = r.u32()? as i32 as i64 as u64;
        Some((base.wrapping_add(start), base.wrapping_add(fde)))
    };
    let (mut low, mut high) = (0, count.min(fits));
    while low < high {
        let middle = low + (high - low) / 2;
        if entry(middle)?.0 <= pc {
            low = middle + 1
        } else {
            high = middle
        }
    }
    entry(low.checked_sub(1)?).map(|e| e.1)
}

/// Searches without a table: every entry of `.eh_frame` in turn, up to its zero terminator.
fn scan(mut frames: Reader, module: &Module, pc: u64) -> Option<Fde> {
    loop {
        let here = frames;
        let length = match frames.u32()? {
            0 => return None,
            u32::MAX => frames.u64()?,
            n => u64::from(n),
        };
        let mut body = frames.split(length)?;
        if body.u32()? != 0
            && let Some(fde) = parse_fde(here, module, pc)
        {
            return Some(fde);
        }
    }
}

fn parse_fde(mut r: Reader, module: &Module, pc: u64) -> Option<Fde> {
    let whole = r;
    let length = match r.u32()? {
        0 => return None,
        u32::MAX => r.u64()?,
        n => u64::from(n),
    };
    let mut body = r.split(length)?;
    let id_at = body.at as u64;
    let cie_delta = u64::from(body.u32()?);
    if cie_delta == 0 {
        return None;
    }
    let cie = parse_cie(
        whole.moved(module.tables.0, id_at.checked_sub(cie_delta)?)?,
        module.hdr,
    )?;
    let start = body.pointer(cie.pointer_encoding, module.hdr)?;
    let len = body.pointer(cie.pointer_encoding & 0x0f, 0)?;
    if pc.wrapping_sub(start) >= len {
        return None;
    }
    if cie.augmented {
        let skip = body.uleb()?;
        body.skip(skip)?;
    }
    Some(Fde {
        cie,
        start,
        len,
        instructions: body,
    })
}

fn parse_cie(mut r: Reader, data_base: u64) -> Option<Cie> {
    let length = match r.u32()? {
        0 => return None,
        u32::MAX => r.u64()?,
        n => u64::from(n),
    };
    let mut body = r.split(length)?;
    if body.u32()? != 0 {
        return None;
    }
    let version = body.u8()?;
    if version != 1 && version != 3 {
        return None;
    }
    let mut letters = body;
    while body.u8()? != 0 {}
    let code_align = body.uleb()?;
    let data_align = body.sleb()?;
    let ra_register = if version == 1 {
        u64::from(body.u8()?)
    } else {
        body.uleb()?
    };
    let mut cie = Cie {
        code_align,
        data_align,
        ra_register,
        pointer_encoding: 0,
        augmented: false,
        signal: false,
        instructions: body,
    };
    let mut letter = letters.u8()?;
    if letter == 0 {
        return Some(cie);
    }
    if letter != b'z' {
        return None;
    }
    let size = body.uleb()?;
    let mut data = body.split(size)?;
    cie.augmented = true;
    cie.instructions = body;
    loop {
        letter = letters.u8()?;
        match letter {
            0 => return Some(cie),
            b'R' => cie.pointer_encoding = data.u8()?,
            b'L' => drop(data.u8()?),
            b'P' => {
                let enc = data.u8()?;
                data.pointer(enc & 0x0f, data_base)?;
            }
            b'S' => cie.signal = true,
            b'B' => {}
            // The augmentation data has a length, so an unknown letter hides only what follows.
            _ => return Some(cie),
        }
    }
}

/// The saved states of `DW_CFA_remember_state`. Compilers nest one deep; eight is generous.
struct Saves {
    rows: [RawRow; 8],
    len: usize,
}

struct Machine<'a> {
    cie: &'a Cie,
    /// The register in `bp`'s place (C4).
    register: u64,
    row: RawRow,
    initial: RawRow,
    loc: u64,
    pc: u64,
}

fn run(fde: &Fde, pc: u64, register: u64) -> Option<Row> {
    let empty = RawRow {
        cfa_register: u64::MAX,
        cfa_offset: 0,
        cfa_expression: None,
        bp: Raw::Unset,
        ra: Raw::Unset,
    };
    let cie = &fde.cie;
    let mut machine = Machine {
        cie,
        register,
        row: empty,
        initial: empty,
        loc: fde.start,
        pc,
    };
    let mut saves = Saves {
        rows: [empty; 8],
        len: 0,
    };
    machine.run(cie.instructions, &mut saves)?;
    machine.initial = machine.row;
    machine.loc = fde.start;
    machine.run(fde.instructions, &mut saves)?;
    debug_assert!(pc.wrapping_sub(fde.start) < fde.len);
    Some(machine.finish())
}

impl Machine<'_> {
    /// Runs until the row of `pc` is complete or the instructions end.
    fn run(&mut self, mut code: Reader, saves: &mut Saves) -> Option<()> {
        while !code.is_empty() {
            let op = code.u8()?;
            let low = u64::from(op & 0x3f);
            match op >> 6 {
                1 => {
                    if self.advance(low) {
                        return Some(());
                    }
                }
                2 => {
                    let offset = code.uleb()? as i64;
                    self.set(low, Raw::Offset(offset.checked_mul(self.cie.data_align)?));
                }
                3 => self.restore(low),
                _ => {
                    if self.extended(op, &mut code, saves)? {
                        return Some(());
                    }
                }
            }
        }
        Some(())
    }

    /// Moves the location on. Returns true once it has passed `pc`.
    fn advance(&mut self, by: u64) -> bool {
        let next = self.loc.wrapping_add(by.wrapping_mul(self.cie.code_align));
        if next > self.pc {
            return true;
        }
        self.loc = next;
        false
    }

    fn set(&mut self, register: u64, raw: Raw) {
        if register == self.register {
            self.row.bp = raw;
        } else if register == self.cie.ra_register {
            self.row.ra = raw;
        }
    }

    fn restore(&mut self, register: u64) {
        if register == self.register {
            self.row.bp = self.initial.bp;
        } else if register == self.cie.ra_register {
            self.row.ra = self.initial.ra;
        }
    }

    fn def_cfa(&mut self, register: u64, offset: i64) {
        self.row.cfa_register = register;
        self.row.cfa_offset = offset;
        self.row.cfa_expression = None;
    }

    /// Runs an instruction with a whole opcode byte. Returns true once the location has passed `pc`.
    fn extended(&mut self, op: u8, code: &mut Reader, saves: &mut Saves) -> Option<bool> {
        let align = self.cie.data_align;
        match op {
            0x00 => {}
            0x01 => {
                let to = code.pointer(self.cie.pointer_encoding, 0)?;
                if to > self.pc {
                    return Some(true);
                }
                self.loc = to;
            }
            0x02 => return Some(self.advance(u64::from(code.u8()?))),
            0x03 => return Some(self.advance(u64::from(code.u16()?))),
            0x04 => return Some(self.advance(u64::from(code.u32()?))),
            0x0c => {
                let register = code.uleb()?;
                self.def_cfa(register, code.uleb()? as i64);
            }
            0x12 => {
                let register = code.uleb()?;
                self.def_cfa(register, code.sleb()?.checked_mul(align)?);
            }
            0x0d => self.row.cfa_register = code.uleb()?,
            0x0e => self.row.cfa_offset = code.uleb()? as i64,
            0x13 => self.row.cfa_offset = code.sleb()?.checked_mul(align)?,
            0x0f => {
                let size = code.uleb()?;
                self.row.cfa_expression = Some(code.split(size)?);
            }
            0x0a => {
                *saves.rows.get_mut(saves.len)? = self.row;
                saves.len += 1;
            }
            0x0b => {
                saves.len = saves.len.checked_sub(1)?;
                self.row = *saves.rows.get(saves.len)?;
            }
            0x2e => drop(code.uleb()?),
            _ if is_about_signing(op) => {}
            _ => self.register_rule(op, code)?,
        }
        Some(false)
    }

    /// Runs an instruction that gives one register a rule.
    fn register_rule(&mut self, op: u8, code: &mut Reader) -> Option<()> {
        let align = self.cie.data_align;
        let register = code.uleb()?;
        let raw = match op {
            0x05 => Raw::Offset((code.uleb()? as i64).checked_mul(align)?),
            0x06 => {
                self.restore(register);
                return Some(());
            }
            0x07 => Raw::Undefined,
            0x08 => Raw::Same,
            0x09 => {
                let source = code.uleb()?;
                if source == register {
                    Raw::Same
                } else {
                    Raw::Bad
                }
            }
            0x10 => {
                let size = code.uleb()?;
                Raw::Expression(code.split(size)?)
            }
            0x11 => Raw::Offset(code.sleb()?.checked_mul(align)?),
            0x14 => Raw::IsCfa((code.uleb()? as i64).checked_mul(align)?),
            0x15 => Raw::IsCfa(code.sleb()?.checked_mul(align)?),
            0x16 => {
                let size = code.uleb()?;
                code.skip(size)?;
                Raw::Bad
            }
            0x2f => Raw::Offset((code.uleb()? as i64).checked_mul(align)?.checked_neg()?),
            _ => return None,
        };
        self.set(register, raw);
        Some(())
    }

    fn finish(&self) -> Row {
        let cfa = match self.row.cfa_expression {
            Some(code) => match evaluate(code, self.pc, false) {
                Some(Value::Reg(base, offset)) => Cfa::Reg(base, offset),
                Some(Value::Load { base, offset, add }) => Cfa::Load { base, offset, add },
                _ => Cfa::Bad,
            },
            None if self.row.cfa_register == SP => Cfa::Reg(Base::Sp, self.row.cfa_offset),
            None if self.row.cfa_register == self.register => {
                Cfa::Reg(Base::Bp, self.row.cfa_offset)
            }
            None => Cfa::Bad,
        };
        let bp = self.saved(self.row.bp, Saved::Same);
        let ra = self.saved(self.row.ra, UNSET_RA);
        Row {
            cfa,
            bp,
            ra,
            signal: self.cie.signal,
        }
    }

    fn saved(&self, raw: Raw, unset: Saved) -> Saved {
        match raw {
            Raw::Unset => unset,
            Raw::Same => Saved::Same,
            Raw::Undefined => Saved::Undefined,
            Raw::Offset(offset) => Saved::At(Base::Cfa, offset),
            Raw::IsCfa(offset) => Saved::IsCfa(offset),
            Raw::Bad => Saved::Bad,
            Raw::Expression(code) => match evaluate(code, self.pc, true) {
                Some(Value::Reg(base, offset)) => Saved::At(base, offset),
                _ => Saved::Bad,
            },
        }
    }
}

#[cfg(test)]
#[path = "cfi_tests.rs"]
mod tests;
