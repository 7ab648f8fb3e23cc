//! Expressions: literals, operators, casts, names in them.

use super::name::OPERATORS;
use super::parser::Parser;
use super::tree::{Expr, Id, Node};

impl<'a> Parser<'a> {
    pub(super) fn expression(&mut self) -> Option<Id> {
        self.deeper(Parser::expression_inner)
    }

    fn expression_inner(&mut self) -> Option<Id> {
        if self.peek() == b'L' {
            return self.literal();
        }
        if self.peek() == b'T' {
            return self.template_param_expression();
        }
        if self.eat("gs") {
            let inner = self.expression()?;
            return Some(self.add(Node::Expr(Expr::Global(inner))));
        }
        if self.peek() == b'f' {
            return self.parameter_or_fold();
        }
        if let Some(found) = self.word() {
            return found;
        }
        if self.peek().is_ascii_digit() || self.text[self.at..].starts_with("sr") {
            return self.unresolved();
        }
        if self.eat("on") {
            let text = self.operator_text()?;
            let name = self.add(Node::Text(text));
            return self.with_arguments(name);
        }
        if self.eat("dn") {
            let class = self.unresolved()?;
            return Some(self.add(Node::Destructor(class)));
        }
        self.operation()
    }

    fn template_param_expression(&mut self) -> Option<Id> {
        let param = self.template_param()?;
        self.with_arguments(param)
    }

    /// Reads the arguments that may follow a name.
    fn with_arguments(&mut self, name: Id) -> Option<Id> {
        if self.peek() != b'I' {
            return Some(name);
        }
        let args = self.arguments(false)?;
        Some(self.add(Node::Template(name, args)))
    }

    fn parameter_or_fold(&mut self) -> Option<Id> {
        self.at += 1;
        if self.eat("pT") {
            return Some(self.add(Node::Expr(Expr::Parameter(0))));
        }
        let kind = self.peek();
        if kind == b'p' || (kind == b'L' && self.peek_at(1).is_ascii_digit()) {
            self.at += 1;
            if kind == b'L' {
                self.digits();
                self.expect("p")?;
            }
            self.qualifiers();
            let number = self.sequence(10)? + 1;
            return Some(self.add(Node::Expr(Expr::Parameter(number))));
        }
        self.at += 1;
        let code = self.text.get(self.at..self.at + 2)?;
        let (_, sign, _) = OPERATORS.iter().find(|(own, ..)| *own == code)?;
        self.at += 2;
        let first = self.expression()?;
        let fold = match kind {
            b'l' => Expr::Fold(sign, None, Some(first)),
            b'r' => Expr::Fold(sign, Some(first), None),
            b'L' | b'R' => Expr::Fold(sign, Some(first), Some(self.expression()?)),
            _ => return None,
        };
        Some(self.add(Node::Expr(fold)))
    }

    /// Reads what is written as a word: casts, `sizeof`, `new`, braces. Returns `None` if it is something else.
    fn word(&mut self) -> Option<Option<Id>> {
        const OF_TYPE: [(&str, &str); 3] = [("st", "sizeof"), ("at", "alignof"), ("ti", "typeid")];
        const OF_EXPRESSION: [(&str, &str); 4] = [
            ("sz", "sizeof"),
            ("az", "alignof"),
            ("te", "typeid"),
            ("nx", "noexcept"),
        ];
        const CASTS: [(&str, &str); 4] = [
            ("dc", "dynamic_cast"),
            ("sc", "static_cast"),
            ("cc", "const_cast"),
            ("rc", "reinterpret_cast"),
        ];
        for (code, word) in OF_TYPE {
            if self.eat(code) {
                return Some(
                    self.type_()
                        .map(|of| self.add(Node::Expr(Expr::Word(word, of)))),
                );
            }
        }
        for (code, word) in OF_EXPRESSION {
            if self.eat(code) {
                return Some(
                    self.expression()
                        .map(|of| self.add(Node::Expr(Expr::Word(word, of)))),
                );
            }
        }
        for (code, word) in CASTS {
            if self.eat(code) {
                return Some(self.cast_named(word));
            }
        }
        let code = self.text.get(self.at..self.at + 2)?;
        Some(match code {
            "cv" => self.cast(),
            "tl" | "il" => self.braces(code == "tl"),
            "nw" | "na" => self.new_expression(code == "na"),
            "cl" | "cp" => self.invoke(),
            "sp" => {
                self.at += 2;
                self.expression().map(|inner| self.add(Node::Expand(inner)))
            }
            "sZ" => {
                self.at += 2;
                self.expression()
                    .map(|pack| self.add(Node::Expr(Expr::Count(pack))))
            }
            "sP" => {
                self.at += 2;
                let all = self.until_end(Parser::argument)?;
                let pack = self.add(Node::Pack(all));
                Some(self.add(Node::Expr(Expr::Count(pack))))
            }
            "tr" => {
                self.at += 2;
                Some(self.add(Node::Text("throw")))
            }
            "tw" => {
                self.at += 2;
                self.expression()
                    .map(|inner| self.add(Node::Expr(Expr::Prefix("throw ", inner))))
            }
            _ => return None,
        })
    }

    fn cast_named(&mut self, word: &'static str) -> Option<Id> {
        let to = self.type_()?;
        let from = self.expression()?;
        Some(self.add(Node::Expr(Expr::Named(word, to, from))))
    }

    fn cast(&mut self) -> Option<Id> {
        self.at += 2;
        let to = self.type_()?;
        let from = match self.eat("_") {
            true => self.until_end(Parser::expression)?,
            false => {
                let one = self.expression()?;
                return Some(self.add(Node::Expr(Expr::Cast(to, vec![one]))));
            }
        };
        let list = self.add(Node::Expr(Expr::Invoke(to, from)));
        Some(list)
    }

    fn braces(&mut self, typed: bool) -> Option<Id> {
        self.at += 2;
        let of = match typed {
            true => Some(self.type_()?),
            false => None,
        };
        let all = self.until_end(Parser::expression)?;
        Some(self.add(Node::Expr(Expr::Braces(of, all))))
    }

    fn new_expression(&mut self, array: bool) -> Option<Id> {
        self.at += 2;
        let mut place = Vec::new();
        while !self.eat("_") {
            place.push(self.expression()?);
        }
        let of = self.type_()?;
        let args = match self.eat("pi") {
            true => self.until_end(Parser::expression)?,
            false => {
                if self.eat("il") {
                    self.until_end(Parser::expression)?;
                }
                self.eat("E");
                Vec::new()
            }
        };
        Some(self.add(Node::Expr(Expr::New(array, place, of, args))))
    }

    fn invoke(&mut self) -> Option<Id> {
        self.at += 2;
        let callee = self.expression()?;
        let args = self.until_end(Parser::expression)?;
        Some(self.add(Node::Expr(Expr::Invoke(callee, args))))
    }

    /// Reads a name that depends on a parameter.
    fn unresolved(&mut self) -> Option<Id> {
        if !self.eat("sr") {
            let name = self.unqualified(None, None)?;
            return self.with_arguments(name);
        }
        let levels = self.eat("N") || self.peek().is_ascii_digit();
        let mut scope = match self.peek().is_ascii_digit() {
            true => self.simple_part()?,
            false => self.type_()?,
        };
        while levels && !self.eat("E") {
            let part = self.simple_part()?;
            scope = self.add(Node::Scoped(scope, part));
        }
        let part = self.simple_name()?;
        scope = self.add(Node::Scoped(scope, part));
        self.with_arguments(scope)
    }

    fn simple_part(&mut self) -> Option<Id> {
        let name = self.simple_name()?;
        self.with_arguments(name)
    }

    fn simple_name(&mut self) -> Option<Id> {
        Some(if self.eat("on") {
            let text = self.operator_text()?;
            self.add(Node::Text(text))
        } else if self.eat("dn") {
            let class = self.source_name()?;
            self.add(Node::Destructor(class))
        } else {
            self.unqualified(None, None)?
        })
    }

    fn operation(&mut self) -> Option<Id> {
        let code = self.text.get(self.at..self.at + 2)?;
        let &(_, sign, operands) = OPERATORS.iter().find(|(own, ..)| *own == code)?;
        self.at += 2;
        let expression = match (code, operands) {
            ("pp" | "mm", _) => {
                let before = self.eat("_");
                let of = self.expression()?;
                match before {
                    true => Expr::Prefix(sign, of),
                    false => Expr::Postfix(sign, of),
                }
            }
            ("ix", _) => {
                let of = self.expression()?;
                Expr::Binary("[]", of, self.expression()?)
            }
            ("qu", _) => {
                let (a, b) = (self.expression()?, self.expression()?);
                Expr::Ternary(a, b, self.expression()?)
            }
            (_, 1) => Expr::Prefix(sign, self.expression()?),
            (_, 2) => {
                let of = self.expression()?;
                Expr::Binary(sign, of, self.expression()?)
            }
            _ => return None,
        };
        Some(self.add(Node::Expr(expression)))
    }

    /// Reads `L…E`.
    pub(super) fn literal(&mut self) -> Option<Id> {
        self.expect("L")?;
        if self.eat("_Z") || self.eat("Z") {
            let params = self.params.clone();
            let id = self.encoding(true);
            self.params = params;
            self.expect("E")?;
            return id;
        }
        let of = self.type_()?;
        let start = self.at;
        while !matches!(self.peek(), b'E' | 0) {
            self.at += 1;
        }
        let digits = &self.text[start..self.at];
        self.expect("E")?;
        Some(self.add(Node::Expr(Expr::Literal(of, digits))))
    }
}
