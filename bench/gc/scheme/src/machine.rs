//! The machine: a stack in a heap, and what instructions do with it.
//!
//! ```text
//!   slice(cx, machine, 10,000 instructions) ─► the closure ends ─► what is due is collected ─► the next slice
//! ```
//!
//! M1  This file is compiled twice. `super::heap` has the names of the one collector or of the other: `Cx`, `Gc`, `Lock`,
//!     `object!`, `new`. What differs is there, and nothing here.
//! M2  All that lives between two slices is reached from the machine.
//!
//! Not here: when is collected (`ours`, `theirs`).

use super::heap::{Cx, Gc, Lock, new, object};
use crate::code::{Datum, Op, Prim, Program};

object! {
    #[derive(Clone, Copy)]
    pub enum Value<'gc> {
        Nil,
        Unspecified,
        Bool(bool),
        Int(i64),
        Symbol(u32),
        Prim(u32),
        Pair(Gc<'gc, Pair<'gc>>),
        Text(Gc<'gc, Lock<String>>),
        Vector(Gc<'gc, Lock<Vec<Value<'gc>>>>),
        Closure(Gc<'gc, Closure<'gc>>),
        Cell(Gc<'gc, Lock<Value<'gc>>>),
    }
}

object! {
    pub struct Pair<'gc> { car: Value<'gc>, cdr: Value<'gc> }
}

object! {
    /// A function with what it has copied: three values at once, others in a list.
    pub struct Closure<'gc> { code: u32, few: [Value<'gc>; 3], more: Option<Gc<'gc, Vec<Value<'gc>>>> }
}

object! {
    pub struct Machine<'gc> {
        stack: Gc<'gc, Lock<Vec<Value<'gc>>>>,
        /// Of each caller: its closure, and the place of its next instruction and of its frame.
        frames: Gc<'gc, Lock<Vec<Value<'gc>>>>,
        globals: Gc<'gc, Lock<Vec<Value<'gc>>>>,
        consts: Gc<'gc, Vec<Value<'gc>>>,
    }
}

use Value::{Bool, Int, Nil, Unspecified};

type Result<T> = std::result::Result<T, String>;

fn constant<'gc>(cx: Cx<'gc>, datum: &Datum) -> Result<Value<'gc>> {
    Ok(match datum {
        Datum::Int(number) => Int(*number),
        Datum::Bool(is) => Bool(*is),
        Datum::Sym(number) => Value::Symbol(*number),
        Datum::Str(text) => Value::Text(new(cx, Lock::new(text.clone()))?),
        Datum::List(items) => {
            let mut list = Nil;
            for item in items.iter().rev() {
                let (car, cdr) = (constant(cx, item)?, list);
                list = Value::Pair(new(cx, Pair { car, cdr })?);
            }
            list
        }
    })
}

/// Makes a machine at the beginning of a program.
pub fn start<'gc>(cx: Cx<'gc>, program: &Program) -> Result<Gc<'gc, Machine<'gc>>> {
    let consts: Result<Vec<_>> = program.consts.iter().map(|one| constant(cx, one)).collect();
    let (code, few, more) = (0, [Nil; 3], None);
    let main = Value::Closure(new(cx, Closure { code, few, more })?);
    let machine = Machine {
        stack: new(cx, Lock::new(vec![main]))?,
        frames: new(cx, Lock::new(vec![main, Int(1)]))?,
        globals: new(cx, Lock::new(vec![Unspecified; program.globals]))?,
        consts: new(cx, consts?)?,
    };
    new(cx, machine)
}

/// The registers of a slice.
struct Run<'a, 'gc> {
    cx: Cx<'gc>,
    program: &'a Program,
    stack: &'a mut Vec<Value<'gc>>,
    frames: &'a mut Vec<Value<'gc>>,
    globals: &'a mut [Value<'gc>],
    consts: &'a [Value<'gc>],
    out: &'a mut String,
    closure: Gc<'gc, Closure<'gc>>,
    ops: &'a [Op],
    pc: usize,
    base: usize,
}

fn wrong<T>(what: &str, value: Value<'_>) -> Result<T> {
    let is = match value {
        Nil => "()".to_owned(),
        Unspecified => "nothing".to_owned(),
        Bool(is) => format!("{is}"),
        Int(number) => format!("{number}"),
        Value::Symbol(_) => "a symbol".to_owned(),
        Value::Pair(_) => "a pair".to_owned(),
        Value::Text(text) => format!("{:?}", text.borrow()),
        Value::Vector(_) => "a vector".to_owned(),
        Value::Prim(_) | Value::Closure(_) | Value::Cell(_) => "a function".to_owned(),
    };
    Err(format!("{what}: {is}"))
}

/// Does so many instructions, or those that there are. `true`: the program has ended. What it displays goes to `out`.
pub fn slice<'gc>(
    cx: Cx<'gc>,
    machine: Gc<'gc, Machine<'gc>>,
    program: &Program,
    out: &mut String,
    fuel: u32,
) -> Result<bool> {
    let mut frames = machine.frames.borrow_mut(cx);
    let (Some(Int(at)), Some(Value::Closure(closure))) = (frames.pop(), frames.pop()) else {
        return Ok(true);
    };
    let mut run = Run {
        cx,
        program,
        stack: &mut machine.stack.borrow_mut(cx),
        frames: &mut frames,
        globals: &mut machine.globals.borrow_mut(cx),
        consts: &machine.consts,
        out,
        closure,
        ops: &program.codes[closure.code as usize].ops,
        pc: (at >> 32) as usize,
        base: at as u32 as usize,
    };
    for _ in 0..fuel {
        let op = run.ops[run.pc];
        run.pc += 1;
        let goes_on = match op {
            Op::Call(count) => run.call(count, false)?,
            Op::TailCall(count) => run.call(count, true)?,
            Op::Return => run.leave(),
            _ => run.step(op)?,
        };
        if !goes_on {
            return Ok(true);
        }
    }
    run.enter_frame();
    Ok(false)
}

impl<'gc> Run<'_, 'gc> {
    /// Puts the place to go on at on the stack of frames.
    #[inline]
    fn enter_frame(&mut self) {
        self.frames.push(Value::Closure(self.closure));
        self.frames
            .push(Int((self.pc as i64) << 32 | self.base as i64));
    }

    /// The frame goes, and its caller goes on with the value on top. `false`: there is no caller.
    #[inline]
    fn leave(&mut self) -> bool {
        let value = self.pop();
        self.stack.truncate(self.base - 1);
        self.stack.push(value);
        let (Some(Int(at)), Some(Value::Closure(caller))) = (self.frames.pop(), self.frames.pop())
        else {
            return false;
        };
        self.closure = caller;
        (self.pc, self.base) = ((at >> 32) as usize, at as u32 as usize);
        self.ops = &self.program.codes[caller.code as usize].ops;
        true
    }

    #[inline]
    fn call(&mut self, count: u32, tail: bool) -> Result<bool> {
        let callee = self.stack.len() - count as usize - 1;
        let to = match self.stack[callee] {
            Value::Closure(to) => to,
            Value::Prim(prim) => {
                let prim = Prim::ALL[prim as usize];
                if !prim.takes(count as usize) {
                    return Err(format!("{}: {count} arguments", prim.name()));
                }
                self.prim(prim, count as usize)?;
                self.slide(1);
                return Ok(!tail || self.leave());
            }
            other => return wrong("not to be called", other),
        };
        let code = &self.program.codes[to.code as usize];
        if code.params != count {
            return Err(format!("{count} arguments for {}", code.params));
        }
        if tail {
            self.stack.copy_within(callee.., self.base - 1);
            self.stack.truncate(self.base + count as usize);
        } else {
            self.enter_frame();
            self.base = callee + 1;
        }
        (self.closure, self.pc, self.ops) = (to, 0, &code.ops);
        Ok(true)
    }

    /// Does an instruction that stays in the frame.
    #[inline]
    fn step(&mut self, op: Op) -> Result<bool> {
        match op {
            Op::Nil => self.stack.push(Nil),
            Op::True => self.stack.push(Bool(true)),
            Op::False => self.stack.push(Bool(false)),
            Op::Int(number) => self.stack.push(Int(number)),
            Op::Const(number) => {
                let prim = || Value::Prim(u32::MAX - number);
                let value = self.consts.get(number as usize).copied();
                self.stack.push(value.unwrap_or_else(prim));
            }
            Op::Local(place) => self.stack.push(self.stack[self.base + place as usize]),
            Op::Free(at) => self.stack.push(match self.closure.more {
                Some(more) if at >= 3 => more[at as usize - 3],
                _ => self.closure.few[at as usize],
            }),
            Op::Global(global) => self.stack.push(self.globals[global as usize]),
            Op::SetGlobal(global) => {
                self.globals[global as usize] = self.pop();
                self.stack.push(Unspecified);
            }
            Op::Box => {
                let value = self.pop();
                self.stack
                    .push(Value::Cell(new(self.cx, Lock::new(value))?));
            }
            Op::BoxLocal(place) => {
                let value = &mut self.stack[self.base + place as usize];
                *value = Value::Cell(new(self.cx, Lock::new(*value))?);
            }
            Op::Unbox => match self.pop() {
                Value::Cell(cell) => self.stack.push(*cell.borrow()),
                other => return wrong("no variable", other),
            },
            Op::SetBox => {
                let (cell, value) = (self.pop(), self.pop());
                let Value::Cell(cell) = cell else {
                    return wrong("no variable", cell);
                };
                *cell.borrow_mut(self.cx) = value;
                self.stack.push(Unspecified);
            }
            Op::Closure(code, free) => self.closure(code, free as usize)?,
            Op::Jump(to) => self.pc = to as usize,
            Op::JumpFalse(to) => {
                if let Bool(false) = self.pop() {
                    self.pc = to as usize;
                }
            }
            Op::Pop => drop(self.pop()),
            Op::Slide(count) => self.slide(count as usize),
            Op::Prim(prim, count) => self.prim(prim, count as usize)?,
            // `slice` does the others.
            Op::Unspecified | Op::Call(_) | Op::TailCall(_) | Op::Return => {
                self.stack.push(Unspecified)
            }
        }
        Ok(true)
    }

    /// The compiler counts: there is a value.
    fn pop(&mut self) -> Value<'gc> {
        self.stack.pop().unwrap_or(Nil)
    }

    /// Drops values below the one on top.
    fn slide(&mut self, count: usize) {
        let value = self.pop();
        self.stack.truncate(self.stack.len() - count);
        self.stack.push(value);
    }

    fn closure(&mut self, code: u32, free: usize) -> Result<()> {
        let at = self.stack.len() - free;
        let mut few = [Nil; 3];
        let inline = free.min(3);
        few[..inline].copy_from_slice(&self.stack[at..at + inline]);
        let more = match free > 3 {
            true => Some(new(self.cx, self.stack[at + 3..].to_vec())?),
            false => None,
        };
        self.stack.truncate(at);
        let closure = new(self.cx, Closure { code, few, more })?;
        self.stack.push(Value::Closure(closure));
        Ok(())
    }

    fn text(&self, text: String) -> Result<Value<'gc>> {
        Ok(Value::Text(new(self.cx, Lock::new(text))?))
    }

    fn cons(&self, car: Value<'gc>, cdr: Value<'gc>) -> Result<Value<'gc>> {
        Ok(Value::Pair(new(self.cx, Pair { car, cdr })?))
    }

    fn prim(&mut self, prim: Prim, count: usize) -> Result<()> {
        let at = self.stack.len() - count;
        let args = &self.stack[at..];
        let value = match (prim, args) {
            (Prim::Add, &[Int(a), Int(b)]) => Int(a.wrapping_add(b)),
            (Prim::Sub, &[Int(a), Int(b)]) => Int(a.wrapping_sub(b)),
            (Prim::Less, &[Int(a), Int(b)]) => Bool(a < b),
            (Prim::Greater, &[Int(a), Int(b)]) => Bool(a > b),
            (Prim::Equals, &[Int(a), Int(b)]) => Bool(a == b),
            (Prim::Add | Prim::Sub | Prim::Mul, _) => sum(prim, args)?,
            (Prim::Quotient, &[Int(a), Int(b)]) if b != 0 => Int(a.wrapping_div(b)),
            (Prim::Remainder, &[Int(a), Int(b)]) if b != 0 => Int(a.wrapping_rem(b)),
            (Prim::Not, &[value]) => Bool(matches!(value, Bool(false))),
            (Prim::Eq, &[a, b]) => Bool(same(a, b)),
            (Prim::Equal, &[a, b]) => Bool(equal(a, b)),
            (Prim::Cons, &[car, cdr]) => self.cons(car, cdr)?,
            (Prim::Car, &[Value::Pair(pair)]) => pair.car,
            (Prim::Cdr, &[Value::Pair(pair)]) => pair.cdr,
            (Prim::IsNull, &[value]) => Bool(matches!(value, Nil)),
            (Prim::IsPair, &[value]) => Bool(matches!(value, Value::Pair(_))),
            (Prim::List, items) => {
                let mut list = Nil;
                for &item in items.iter().rev() {
                    list = self.cons(item, list)?;
                }
                list
            }
            (Prim::MakeVector, &[Int(len @ 0..0x100_0000), value]) => {
                Value::Vector(new(self.cx, Lock::new(vec![value; len as usize]))?)
            }
            (Prim::VectorLength, &[Value::Vector(all)]) => Int(all.borrow().len() as i64),
            (Prim::VectorRef, &[Value::Vector(all), Int(at)]) => {
                match all.borrow().get(at as usize) {
                    Some(&value) => value,
                    None => return wrong("vector-ref: no such place", Int(at)),
                }
            }
            (Prim::VectorSet, &[Value::Vector(all), Int(at), value]) => {
                match all.borrow_mut(self.cx).get_mut(at as usize) {
                    Some(place) => *place = value,
                    None => return wrong("vector-set!: no such place", Int(at)),
                }
                Unspecified
            }
            (Prim::StringLength, &[Value::Text(text)]) => Int(text.borrow().len() as i64),
            (Prim::StringByte, &[Value::Text(text), Int(at)]) => {
                match text.borrow().as_bytes().get(at as usize) {
                    Some(&byte) => Int(i64::from(byte)),
                    None => return wrong("string-byte: no such place", Int(at)),
                }
            }
            (Prim::StringAppend, parts) => {
                let mut all = String::new();
                for &part in parts {
                    match part {
                        Value::Text(text) => all.push_str(&text.borrow()),
                        other => return wrong("string-append", other),
                    }
                }
                self.text(all)?
            }
            (Prim::NumberToString, &[Int(number)]) => self.text(number.to_string())?,
            (Prim::SymbolToString, &[Value::Symbol(symbol)]) => {
                self.text(self.program.symbols[symbol as usize].clone())?
            }
            (Prim::Display, &[value]) => {
                match value {
                    Value::Text(text) => self.out.push_str(&text.borrow()),
                    Int(number) => self.out.push_str(&number.to_string()),
                    Bool(is) => self.out.push_str(if is { "#t" } else { "#f" }),
                    other => return wrong("display", other),
                }
                Unspecified
            }
            (Prim::Error, &[value]) => return wrong("error", value),
            (prim, args) => return wrong(prim.name(), args.first().copied().unwrap_or(Nil)),
        };
        self.stack.truncate(at);
        self.stack.push(value);
        Ok(())
    }
}

fn sum<'gc>(prim: Prim, args: &[Value<'gc>]) -> Result<Value<'gc>> {
    let number = |value: &Value<'gc>| match *value {
        Int(number) => Ok(number),
        other => wrong(prim.name(), other),
    };
    let (first, others) = match (prim, args) {
        (Prim::Sub, [first, others @ ..]) if !others.is_empty() => (number(first)?, others),
        (Prim::Mul, _) => (1, args),
        _ => (0, args),
    };
    let mut sum = first;
    for one in others {
        sum = match prim {
            Prim::Add => sum.wrapping_add(number(one)?),
            Prim::Sub => sum.wrapping_sub(number(one)?),
            _ => sum.wrapping_mul(number(one)?),
        };
    }
    Ok(Int(sum))
}

/// Whether both are one object, or one number, symbol and the like.
fn same<'gc>(a: Value<'gc>, b: Value<'gc>) -> bool {
    use super::heap::is;
    match (a, b) {
        (Nil, Nil) | (Unspecified, Unspecified) => true,
        (Bool(a), Bool(b)) => a == b,
        (Int(a), Int(b)) => a == b,
        (Value::Symbol(a), Value::Symbol(b)) | (Value::Prim(a), Value::Prim(b)) => a == b,
        (Value::Pair(a), Value::Pair(b)) => is(a, b),
        (Value::Text(a), Value::Text(b)) => is(a, b),
        (Value::Vector(a), Value::Vector(b)) => is(a, b),
        (Value::Closure(a), Value::Closure(b)) => is(a, b),
        _ => false,
    }
}

/// Whether both look the same; lists as long as one likes.
fn equal<'gc>(a: Value<'gc>, b: Value<'gc>) -> bool {
    let mut left = vec![(a, b)];
    while let Some((a, b)) = left.pop() {
        let are = match (a, b) {
            (Value::Pair(a), Value::Pair(b)) => {
                left.push((a.cdr, b.cdr));
                left.push((a.car, b.car));
                true
            }
            (Value::Text(a), Value::Text(b)) => *a.borrow() == *b.borrow(),
            _ => same(a, b),
        };
        if !are {
            return false;
        }
    }
    true
}
