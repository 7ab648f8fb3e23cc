//! Forms to expressions with their variables resolved.
//!
//! ```text
//!   (let loop ((i 0)) …) ─► letrec ─► let + set!        cond, and, or, when, let* … ─► if, let        define ─► set!
//! ```
//!
//! E1  A variable that is set anywhere is `assigned` by the time that all is expanded.
//!
//! Not here: instructions (`compile`).

use std::collections::HashMap;

use crate::code::{Datum, Prim};
use crate::read::Symbols;

pub type Var = usize;

pub enum Expr {
    Const(Datum),
    Unspecified,
    Var(Var),
    Global(u32),
    SetVar(Var, Box<Expr>),
    SetGlobal(u32, Box<Expr>),
    If(Box<[Expr; 3]>),
    Lambda(Vec<Var>, Box<Expr>),
    Let(Vec<Var>, Vec<Expr>, Box<Expr>),
    Seq(Vec<Expr>),
    Call(Box<Expr>, Vec<Expr>),
    Prim(Prim, Vec<Expr>),
    PrimValue(Prim),
}

/// The names in sight, innermost last.
type Scope = Vec<(u32, Var)>;

#[derive(Default)]
pub struct Expander {
    pub symbols: Symbols,
    pub assigned: Vec<bool>,
    pub globals: HashMap<u32, u32>,
}

fn bad<T>(what: &str) -> Result<T, String> {
    Err(format!("a bad {what}"))
}

impl Expander {
    fn var(&mut self, assigned: bool) -> Var {
        self.assigned.push(assigned);
        self.assigned.len() - 1
    }

    fn global(&mut self, name: u32) -> u32 {
        let next = self.globals.len() as u32;
        *self.globals.entry(name).or_insert(next)
    }

    fn all(&mut self, data: &[Datum], scope: &mut Scope) -> Result<Vec<Expr>, String> {
        data.iter().map(|one| self.expr(one, scope)).collect()
    }

    pub fn expr(&mut self, datum: &Datum, scope: &mut Scope) -> Result<Expr, String> {
        match datum {
            Datum::Sym(name) => Ok(self.name(*name, scope)),
            Datum::List(items) => self.form(items, scope),
            _ => Ok(Expr::Const(datum.clone())),
        }
    }

    fn name(&mut self, name: u32, scope: &Scope) -> Expr {
        if let Some((_, var)) = scope.iter().rev().find(|(one, _)| *one == name) {
            return Expr::Var(*var);
        }
        let text = &self.symbols.names[name as usize];
        match Prim::ALL.iter().find(|prim| prim.name() == text) {
            Some(prim) => Expr::PrimValue(*prim),
            None => Expr::Global(self.global(name)),
        }
    }

    fn form(&mut self, items: &[Datum], scope: &mut Scope) -> Result<Expr, String> {
        let Some((head, rest)) = items.split_first() else {
            return bad("form: ()");
        };
        if let Datum::Sym(name) = head
            && !scope.iter().any(|(one, _)| one == name)
        {
            let text = self.symbols.names[*name as usize].clone();
            if let Some(special) = self.special(&text, rest, scope) {
                return special.map_err(|what| format!("{text}: {what}"));
            }
        }
        let args = self.all(rest, scope)?;
        match self.expr(head, scope)? {
            Expr::PrimValue(prim) if prim.takes(args.len()) => Ok(Expr::Prim(prim, args)),
            Expr::PrimValue(prim) => bad(&format!("number of arguments: {}", prim.name())),
            callee => Ok(Expr::Call(Box::new(callee), args)),
        }
    }

    fn special(
        &mut self,
        name: &str,
        rest: &[Datum],
        scope: &mut Scope,
    ) -> Option<Result<Expr, String>> {
        Some(match name {
            "quote" => match rest {
                [datum] => Ok(Expr::Const(datum.clone())),
                _ => bad("quote"),
            },
            "if" => self.branch(rest, scope),
            "define" => self.define(rest, scope),
            "set!" => self.set(rest, scope),
            "lambda" => match rest {
                [Datum::List(params), body @ ..] => self.lambda(params, body, scope),
                _ => bad("lambda"),
            },
            "begin" => self.all(rest, scope).map(Expr::Seq),
            "let" => self.let_form(rest, scope),
            "let*" => self.let_star(rest, scope),
            "letrec" => match rest {
                [Datum::List(bindings), body @ ..] => self.letrec(bindings, body, scope),
                _ => bad("letrec"),
            },
            "cond" => self.cond(rest, scope),
            "and" => self.and(rest, scope),
            "or" => self.or(rest, scope),
            "when" => match rest {
                [test, body @ ..] => self.when(test, body, scope),
                _ => bad("when"),
            },
            _ => return None,
        })
    }

    fn branch(&mut self, rest: &[Datum], scope: &mut Scope) -> Result<Expr, String> {
        let other = match rest {
            [_, _] => Expr::Unspecified,
            [_, _, other] => self.expr(other, scope)?,
            _ => return bad("if"),
        };
        let (test, then) = (self.expr(&rest[0], scope)?, self.expr(&rest[1], scope)?);
        Ok(Expr::If(Box::new([test, then, other])))
    }

    fn define(&mut self, rest: &[Datum], scope: &mut Scope) -> Result<Expr, String> {
        let (name, value) = match rest {
            [Datum::Sym(name), value] => (*name, self.expr(value, scope)?),
            [Datum::List(head), body @ ..] => match head.split_first() {
                Some((Datum::Sym(name), params)) => (*name, self.lambda(params, body, scope)?),
                _ => return bad("define"),
            },
            _ => return bad("define"),
        };
        Ok(match scope.iter().rev().find(|(one, _)| *one == name) {
            Some((_, var)) => Expr::SetVar(*var, Box::new(value)),
            None => Expr::SetGlobal(self.global(name), Box::new(value)),
        })
    }

    fn set(&mut self, rest: &[Datum], scope: &mut Scope) -> Result<Expr, String> {
        let [Datum::Sym(name), value] = rest else {
            return bad("set!");
        };
        let value = Box::new(self.expr(value, scope)?);
        match self.name(*name, scope) {
            Expr::Var(var) => {
                self.assigned[var] = true;
                Ok(Expr::SetVar(var, value))
            }
            Expr::Global(global) => Ok(Expr::SetGlobal(global, value)),
            _ => bad("set! of a built-in name"),
        }
    }

    fn lambda(
        &mut self,
        params: &[Datum],
        body: &[Datum],
        scope: &mut Scope,
    ) -> Result<Expr, String> {
        let outside = scope.len();
        let mut vars = Vec::new();
        for param in params {
            let Datum::Sym(name) = param else {
                return bad("parameter");
            };
            vars.push(self.var(false));
            scope.push((*name, vars[vars.len() - 1]));
        }
        let body = self.body(body, scope);
        scope.truncate(outside);
        Ok(Expr::Lambda(vars, Box::new(body?)))
    }

    /// A body: what it defines are boxes around all of it.
    fn body(&mut self, body: &[Datum], scope: &mut Scope) -> Result<Expr, String> {
        let define = Datum::Sym(self.symbols.of("define"));
        let names = body.iter().filter_map(|form| match form {
            Datum::List(items) if items.first() == Some(&define) => match items.get(1) {
                Some(Datum::Sym(name)) => Some(*name),
                Some(Datum::List(head)) => match head.first() {
                    Some(Datum::Sym(name)) => Some(*name),
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        });
        let names: Vec<u32> = names.collect();
        let outside = scope.len();
        let vars: Vec<Var> = names.iter().map(|_| self.var(true)).collect();
        scope.extend(names.into_iter().zip(vars.iter().copied()));
        let all = self.all(body, scope);
        scope.truncate(outside);
        let all = Expr::Seq(all?);
        if vars.is_empty() {
            return Ok(all);
        }
        let nothing = vars.iter().map(|_| Expr::Unspecified).collect();
        Ok(Expr::Let(vars, nothing, Box::new(all)))
    }

    fn binding(datum: &Datum) -> Result<(u32, &Datum), String> {
        match datum {
            Datum::List(items) => match &items[..] {
                [Datum::Sym(name), value] => Ok((*name, value)),
                _ => bad("binding"),
            },
            _ => bad("binding"),
        }
    }

    fn let_form(&mut self, rest: &[Datum], scope: &mut Scope) -> Result<Expr, String> {
        match rest {
            [Datum::List(bindings), body @ ..] => {
                let mut vars = Vec::new();
                let (mut inits, mut names) = (Vec::new(), Vec::new());
                for binding in bindings {
                    let (name, value) = Self::binding(binding)?;
                    inits.push(self.expr(value, scope)?);
                    names.push(name);
                    vars.push(self.var(false));
                }
                let outside = scope.len();
                scope.extend(names.into_iter().zip(vars.iter().copied()));
                let body = self.body(body, scope);
                scope.truncate(outside);
                Ok(Expr::Let(vars, inits, Box::new(body?)))
            }
            [Datum::Sym(name), Datum::List(bindings), body @ ..] => {
                let (mut params, mut inits) = (Vec::new(), Vec::new());
                for binding in bindings {
                    let (name, value) = Self::binding(binding)?;
                    params.push(Datum::Sym(name));
                    inits.push(self.expr(value, scope)?);
                }
                let var = self.var(true);
                scope.push((*name, var));
                let lambda = self.lambda(&params, body, scope);
                scope.pop();
                let set = Expr::SetVar(var, Box::new(lambda?));
                let call = Expr::Call(Box::new(Expr::Var(var)), inits);
                let all = Box::new(Expr::Seq(vec![set, call]));
                Ok(Expr::Let(vec![var], vec![Expr::Unspecified], all))
            }
            _ => bad("let"),
        }
    }

    fn let_star(&mut self, rest: &[Datum], scope: &mut Scope) -> Result<Expr, String> {
        let [Datum::List(bindings), body @ ..] = rest else {
            return bad("let*");
        };
        let Some((first, others)) = bindings.split_first() else {
            return self.body(body, scope);
        };
        let (name, value) = Self::binding(first)?;
        let value = self.expr(value, scope)?;
        let var = self.var(false);
        scope.push((name, var));
        let inner = [&[Datum::List(others.to_vec())], body].concat();
        let inner = self.let_star(&inner, scope);
        scope.pop();
        Ok(Expr::Let(vec![var], vec![value], Box::new(inner?)))
    }

    fn letrec(
        &mut self,
        bindings: &[Datum],
        body: &[Datum],
        scope: &mut Scope,
    ) -> Result<Expr, String> {
        let define = Datum::Sym(self.symbols.of("define"));
        let mut forms = Vec::new();
        for binding in bindings {
            let (name, value) = Self::binding(binding)?;
            let items = vec![define.clone(), Datum::Sym(name), value.clone()];
            forms.push(Datum::List(items));
        }
        forms.extend_from_slice(body);
        self.body(&forms, scope)
    }

    fn cond(&mut self, rest: &[Datum], scope: &mut Scope) -> Result<Expr, String> {
        let Some((Datum::List(clause), others)) = rest.split_first() else {
            return Ok(Expr::Unspecified);
        };
        let Some((test, body)) = clause.split_first() else {
            return bad("cond");
        };
        let body = Expr::Seq(self.all(body, scope)?);
        if *test == Datum::Sym(self.symbols.of("else")) {
            return Ok(body);
        }
        let (test, other) = (self.expr(test, scope)?, self.cond(others, scope)?);
        Ok(Expr::If(Box::new([test, body, other])))
    }

    fn and(&mut self, rest: &[Datum], scope: &mut Scope) -> Result<Expr, String> {
        match rest {
            [] => Ok(Expr::Const(Datum::Bool(true))),
            [last] => self.expr(last, scope),
            [first, others @ ..] => {
                let (first, others) = (self.expr(first, scope)?, self.and(others, scope)?);
                let no = Expr::Const(Datum::Bool(false));
                Ok(Expr::If(Box::new([first, others, no])))
            }
        }
    }

    fn or(&mut self, rest: &[Datum], scope: &mut Scope) -> Result<Expr, String> {
        match rest {
            [] => Ok(Expr::Const(Datum::Bool(false))),
            [last] => self.expr(last, scope),
            [first, others @ ..] => {
                let first = self.expr(first, scope)?;
                let var = self.var(false);
                let others = self.or(others, scope)?;
                let choice = Expr::If(Box::new([Expr::Var(var), Expr::Var(var), others]));
                Ok(Expr::Let(vec![var], vec![first], Box::new(choice)))
            }
        }
    }

    fn when(&mut self, test: &Datum, body: &[Datum], scope: &mut Scope) -> Result<Expr, String> {
        let (test, body) = (self.expr(test, scope)?, self.all(body, scope)?);
        Ok(Expr::If(Box::new([
            test,
            Expr::Seq(body),
            Expr::Unspecified,
        ])))
    }
}
