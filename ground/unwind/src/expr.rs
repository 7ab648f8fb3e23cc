//! DWARF expressions, reduced to the few shapes that call-frame information uses.
//!
//! ```text
//!   bytes ──► evaluate(pc) ──► Const | base + offset | *(base + offset) + add
//! ```
//!
//! The evaluation is symbolic in the registers and concrete in the pc: the linker's expression for
//! a PLT entry, `rsp + 8 + ((rip & 15) >= 11) * 8`, becomes `rsp + 8` or `rsp + 16`.
//!
//! E1  The evaluation reads nothing but the expression's own bytes.
//! E2  Any operation or shape that is not listed yields `None`, never a guess.
//! Not here: loads from the stack (step.rs).

use crate::arch::{FP, SP};
use crate::reader::Reader;

/// The base that an address in unwind information is relative to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// The frame's stack pointer.
    Sp,
    /// The frame's `rbp`, or the register in its place (cfi.C4).
    Bp,
    /// The canonical frame address: `rsp` before the return address was pushed.
    Cfa,
}

/// A value that an expression can leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Const(u64),
    Reg(Base, i64),
    Load { base: Base, offset: i64, add: i64 },
}

const DEPTH: usize = 8;

/// `DW_OP_breg0` and a register's number.
const BREG_FP: u8 = 0x70 + FP as u8;
const BREG_SP: u8 = 0x70 + SP as u8;
/// The return address column of x86-64, which stands for the pc.
const BREG_PC: u8 = 0x70 + 16;

struct Stack {
    items: [Value; DEPTH],
    len: usize,
}

impl Stack {
    fn push(&mut self, value: Value) -> Option<()> {
        *self.items.get_mut(self.len)? = value;
        self.len += 1;
        Some(())
    }

    fn pop(&mut self) -> Option<Value> {
        self.len = self.len.checked_sub(1)?;
        self.items.get(self.len).copied()
    }

    fn pop_const(&mut self) -> Option<u64> {
        match self.pop()? {
            Value::Const(v) => Some(v),
            _ => None,
        }
    }
}

/// Evaluates the expression in `code` at `pc`. With `on_cfa`, the CFA lies on the stack first, as
/// the rules of registers (not the rule of the CFA) demand. `None`: not a shape we know (E2).
pub(crate) fn evaluate(mut code: Reader, pc: u64, on_cfa: bool) -> Option<Value> {
    let mut stack = Stack {
        items: [Value::Const(0); DEPTH],
        len: 0,
    };
    if on_cfa {
        stack.push(Value::Reg(Base::Cfa, 0))?;
    }
    while !code.is_empty() {
        let op = code.u8()?;
        let value = match op {
            0x06 => deref(stack.pop()?)?,
            0x08 => Value::Const(u64::from(code.u8()?)),
            0x09 => Value::Const(code.u8()? as i8 as i64 as u64),
            0x0a => Value::Const(u64::from(code.u16()?)),
            0x0b => Value::Const(code.u16()? as i16 as i64 as u64),
            0x0c => Value::Const(u64::from(code.u32()?)),
            0x0d => Value::Const(code.u32()? as i32 as i64 as u64),
            0x10 => Value::Const(code.uleb()?),
            0x11 => Value::Const(code.sleb()? as u64),
            0x1a => Value::Const(stack.pop_const()? & stack.pop_const()?),
            0x1c => {
                let right = stack.pop_const()?;
                add(stack.pop()?, right.wrapping_neg())?
            }
            0x22 => match (stack.pop()?, stack.pop()?) {
                (Value::Const(c), v) | (v, Value::Const(c)) => add(v, c)?,
                _ => return None,
            },
            0x23 => add(stack.pop()?, code.uleb()?)?,
            0x24 => {
                let by = stack.pop_const()?;
                Value::Const(stack.pop_const()?.checked_shl(u32::try_from(by).ok()?)?)
            }
            0x29..=0x2e => {
                let right = stack.pop_const()? as i64;
                Value::Const(u64::from(compare(op, stack.pop_const()? as i64, right)))
            }
            0x30..=0x4f => Value::Const(u64::from(op - 0x30)),
            BREG_FP => Value::Reg(Base::Bp, code.sleb()?),
            BREG_SP => Value::Reg(Base::Sp, code.sleb()?),
            BREG_PC if cfg!(target_arch = "x86_64") => {
                Value::Const(pc.wrapping_add(code.sleb()? as u64))
            }
            0x96 => continue,
            _ => return None,
        };
        stack.push(value)?;
    }
    stack.pop()
}

fn add(value: Value, by: u64) -> Option<Value> {
    let by = by as i64;
    Some(match value {
        Value::Const(v) => Value::Const(v.wrapping_add(by as u64)),
        Value::Reg(base, offset) => Value::Reg(base, offset.checked_add(by)?),
        Value::Load { base, offset, add } => Value::Load {
            base,
            offset,
            add: add.checked_add(by)?,
        },
    })
}

fn deref(value: Value) -> Option<Value> {
    match value {
        Value::Reg(base, offset) => Some(Value::Load {
            base,
            offset,
            add: 0,
        }),
        _ => None,
    }
}

fn compare(op: u8, left: i64, right: i64) -> bool {
    match op {
        0x29 => left == right,
        0x2a => left >= right,
        0x2b => left > right,
        0x2c => left <= right,
        0x2d => left < right,
        _ => left != right,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_plt_expression_depends_on_the_position_in_the_entry() {
        // breg7 8; breg16 0; lit15; and; lit11; ge; lit3; shl; plus
        let code = [0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];
        let at = |pc| evaluate(Reader::over(&code), pc, false);
        assert_eq!(at(0x4000), Some(Value::Reg(Base::Sp, 8)));
        assert_eq!(at(0x400a), Some(Value::Reg(Base::Sp, 8)));
        assert_eq!(at(0x400b), Some(Value::Reg(Base::Sp, 16)));
        assert_eq!(at(0x400f), Some(Value::Reg(Base::Sp, 16)));
    }

    #[test]
    fn the_realigned_frame_and_what_is_unknown() {
        let load = Value::Load {
            base: Base::Bp,
            offset: -16,
            add: 0,
        };
        assert_eq!(
            evaluate(Reader::over(&[BREG_FP, 0x70, 0x06]), 0, false),
            Some(load)
        );
        assert_eq!(evaluate(Reader::over(&[BREG_FP]), 0, false), None, "cut");
        assert_eq!(evaluate(Reader::over(&[0x73, 0]), 0, false), None, "rbx");
        assert_eq!(evaluate(Reader::over(&[0x22]), 0, true), None, "underflow");
        assert_eq!(
            evaluate(Reader::over(&[0x30; 9]), 0, false),
            None,
            "overflow"
        );
        let up = Value::Reg(Base::Cfa, 24);
        assert_eq!(evaluate(Reader::over(&[0x23, 24]), 0, true), Some(up));
    }
}
