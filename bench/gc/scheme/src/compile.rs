//! Expressions to instructions, with flat closures.
//!
//! ```text
//!   (lambda (x) (+ x y)) ─► load y, Closure(code, 1)          in code: Local(0), Free(0), Prim(+, 2), Return
//! ```
//!
//! P1  After an expression the stack has one value more; in tail position the frame is left instead.
//!
//! Not here: forms (`expand`).

use std::collections::HashMap;

use crate::code::{Code, Datum, Op, Prim, Program};
use crate::expand::{Expander, Expr, Var};
use crate::read::read;

/// A function that is being compiled.
#[derive(Default)]
struct Function {
    ops: Vec<Op>,
    places: HashMap<Var, u32>,
    free: Vec<Var>,
    /// Values in the frame.
    height: u32,
}

#[derive(Default)]
struct Compiler {
    assigned: Vec<bool>,
    codes: Vec<Code>,
    consts: Vec<Datum>,
}

/// Compiles a program's text.
pub fn compile(text: &str) -> Result<Program, String> {
    let mut expander = Expander::default();
    let data = read(text, &mut expander.symbols)?;
    let mut all = Vec::new();
    for datum in &data {
        all.push(expander.expr(datum, &mut Vec::new())?);
    }
    let mut compiler = Compiler {
        assigned: expander.assigned,
        ..Compiler::default()
    };
    compiler.codes.push(Code {
        params: 0,
        ops: Vec::new(),
    });
    let mut main = Function::default();
    compiler.expr(&mut main, &Expr::Seq(all), true);
    compiler.codes[0].ops = main.ops;
    Ok(Program {
        codes: compiler.codes,
        consts: compiler.consts,
        globals: expander.globals.len(),
        symbols: expander.symbols.names,
    })
}

impl Function {
    fn push(&mut self, op: Op) {
        self.ops.push(op);
        self.height += 1;
    }

    /// Loads a variable as it lies in its place: a box, if it is assigned to.
    fn load(&mut self, var: Var) {
        let op = match self.places.get(&var) {
            Some(&place) => Op::Local(place),
            None => Op::Free(self.free_of(var)),
        };
        self.push(op);
    }

    fn free_of(&mut self, var: Var) -> u32 {
        let found = self.free.iter().position(|&one| one == var);
        let at = found.unwrap_or_else(|| {
            self.free.push(var);
            self.free.len() - 1
        });
        at as u32
    }

    fn jump(&mut self, op: fn(u32) -> Op) -> usize {
        self.ops.push(op(0));
        self.ops.len() - 1
    }

    fn lands(&mut self, at: usize, op: fn(u32) -> Op) {
        self.ops[at] = op(self.ops.len() as u32);
    }
}

impl Compiler {
    fn expr(&mut self, to: &mut Function, expr: &Expr, tail: bool) {
        match expr {
            Expr::Const(datum) => {
                let op = self.constant(datum);
                to.push(op);
            }
            Expr::Unspecified => to.push(Op::Unspecified),
            Expr::Var(var) => {
                to.load(*var);
                if self.assigned[*var] {
                    to.ops.push(Op::Unbox);
                }
            }
            Expr::Global(global) => to.push(Op::Global(*global)),
            Expr::PrimValue(prim) => {
                let at = Prim::ALL.iter().position(|one| one == prim);
                to.push(Op::Const(u32::MAX - at.unwrap_or(0) as u32));
            }
            Expr::SetVar(var, value) => {
                self.expr(to, value, false);
                to.load(*var);
                to.ops.push(Op::SetBox);
                to.height -= 1;
            }
            Expr::SetGlobal(global, value) => {
                self.expr(to, value, false);
                to.ops.push(Op::SetGlobal(*global));
            }
            Expr::If(parts) => return self.branch(to, parts, tail),
            Expr::Lambda(params, body) => self.lambda(to, params, body),
            Expr::Let(vars, inits, body) => return self.binding(to, (vars, inits), body, tail),
            Expr::Seq(all) => return self.sequence(to, all, tail),
            Expr::Call(callee, args) => {
                self.expr(to, callee, false);
                args.iter().for_each(|arg| self.expr(to, arg, false));
                let count = args.len() as u32;
                to.height -= count;
                if tail {
                    to.ops.push(Op::TailCall(count));
                    return;
                }
                to.ops.push(Op::Call(count));
            }
            Expr::Prim(prim, args) => {
                args.iter().for_each(|arg| self.expr(to, arg, false));
                to.height -= args.len() as u32;
                to.push(Op::Prim(*prim, args.len() as u32));
            }
        }
        if tail {
            to.ops.push(Op::Return);
        }
    }

    fn constant(&mut self, datum: &Datum) -> Op {
        match datum {
            Datum::Int(number) => Op::Int(*number),
            Datum::Bool(true) => Op::True,
            Datum::Bool(false) => Op::False,
            Datum::List(items) if items.is_empty() => Op::Nil,
            _ => {
                self.consts.push(datum.clone());
                Op::Const(self.consts.len() as u32 - 1)
            }
        }
    }

    fn sequence(&mut self, to: &mut Function, all: &[Expr], tail: bool) {
        let Some((last, others)) = all.split_last() else {
            return self.expr(to, &Expr::Unspecified, tail);
        };
        for one in others {
            self.expr(to, one, false);
            to.ops.push(Op::Pop);
            to.height -= 1;
        }
        self.expr(to, last, tail);
    }

    fn branch(&mut self, to: &mut Function, [test, then, other]: &[Expr; 3], tail: bool) {
        self.expr(to, test, false);
        let no = to.jump(Op::JumpFalse);
        to.height -= 1;
        let before = to.height;
        self.expr(to, then, tail);
        let end = (!tail).then(|| to.jump(Op::Jump));
        to.lands(no, Op::JumpFalse);
        to.height = before;
        self.expr(to, other, tail);
        if let Some(end) = end {
            to.lands(end, Op::Jump);
        }
        to.height = before + 1;
    }

    fn binding(
        &mut self,
        to: &mut Function,
        (vars, inits): (&[Var], &[Expr]),
        body: &Expr,
        tail: bool,
    ) {
        let first = to.height;
        for (var, init) in vars.iter().zip(inits) {
            self.expr(to, init, false);
            if self.assigned[*var] {
                to.ops.push(Op::Box);
            }
        }
        for (at, var) in vars.iter().enumerate() {
            to.places.insert(*var, first + at as u32);
        }
        self.expr(to, body, tail);
        if !tail && !vars.is_empty() {
            to.ops.push(Op::Slide(vars.len() as u32));
        }
        to.height = first + 1;
    }

    fn lambda(&mut self, to: &mut Function, params: &[Var], body: &Expr) {
        let number = self.codes.len();
        let count = params.len() as u32;
        self.codes.push(Code {
            params: count,
            ops: Vec::new(),
        });
        let mut inner = Function {
            height: count,
            ..Function::default()
        };
        for (at, &var) in params.iter().enumerate() {
            inner.places.insert(var, at as u32);
            if self.assigned[var] {
                inner.ops.push(Op::BoxLocal(at as u32));
            }
        }
        self.expr(&mut inner, body, true);
        self.codes[number].ops = inner.ops;
        let free = inner.free.len() as u32;
        inner.free.into_iter().for_each(|var| to.load(var));
        to.height -= free;
        to.push(Op::Closure(number as u32, free));
    }
}
