//! Types, template arguments, and what stands for either.

use super::parser::Parser;
use super::tree::{Id, Node, Quals};

/// Types of one letter.
const BUILT_IN: [(u8, &str); 21] = [
    (b'v', "void"),
    (b'w', "wchar_t"),
    (b'b', "bool"),
    (b'a', "signed char"),
    (b'h', "unsigned char"),
    (b'c', "char"),
    (b's', "short"),
    (b't', "unsigned short"),
    (b'i', "int"),
    (b'j', "unsigned int"),
    (b'l', "long"),
    (b'm', "unsigned long"),
    (b'x', "long long"),
    (b'y', "unsigned long long"),
    (b'n', "__int128"),
    (b'o', "unsigned __int128"),
    (b'f', "float"),
    (b'd', "double"),
    (b'e', "long double"),
    (b'g', "__float128"),
    (b'z', "..."),
];
/// Types written as `D` and a letter.
const BUILT_IN_D: [(u8, &str); 10] = [
    (b'd', "decimal64"),
    (b'e', "decimal128"),
    (b'f', "decimal32"),
    (b'h', "half"),
    (b'i', "char32_t"),
    (b's', "char16_t"),
    (b'u', "char8_t"),
    (b'a', "auto"),
    (b'c', "decltype(auto)"),
    (b'n', "decltype(nullptr)"),
];

impl<'a> Parser<'a> {
    pub(super) fn type_(&mut self) -> Option<Id> {
        self.deeper(Parser::type_inner)
    }

    fn type_inner(&mut self) -> Option<Id> {
        let (c, next) = (self.peek(), self.peek_at(1));
        if let Some((_, text)) = BUILT_IN.iter().find(|(own, _)| *own == c) {
            self.at += 1;
            return Some(self.add(Node::Text(text)));
        }
        let node = match c {
            b'r' | b'V' | b'K' => return self.qualified(),
            b'P' => self.pointer("*")?,
            b'R' => self.pointer("&")?,
            b'O' => self.pointer("&&")?,
            b'C' => self.suffixed(" _Complex")?,
            b'G' => self.suffixed(" _Imaginary")?,
            b'F' => self.function_type(Quals::default())?,
            b'A' => self.array()?,
            b'M' => {
                self.at += 1;
                let class = self.type_()?;
                Node::Member(class, self.type_()?)
            }
            b'U' if !matches!(next, b'l' | b't') => {
                self.at += 1;
                let mut word = self.source_name()?;
                if self.peek() == b'I' {
                    let args = self.arguments(false)?;
                    word = self.add(Node::Template(word, args));
                }
                Node::Suffixed(self.type_()?, word)
            }
            b'u' => {
                self.at += 1;
                let name = self.source_name()?;
                self.seen.push(name);
                return Some(name);
            }
            b'D' => return self.type_d(next),
            b'T' if matches!(next, b's' | b'u' | b'e') => {
                self.at += 2;
                let name = self.name(None)?;
                self.seen.push(name);
                return Some(name);
            }
            b'T' => return self.param_type(),
            b'S' if next != b't' => return self.substituted_type(),
            _ => {
                let name = self.name(None)?;
                self.seen.push(name);
                return Some(name);
            }
        };
        Some(self.add_seen(node))
    }

    fn param_type(&mut self) -> Option<Id> {
        let param = self.template_param()?;
        self.seen.push(param);
        // After a conversion to `T_`, the operator's own arguments follow.
        if self.peek() != b'I' || self.ahead {
            return Some(param);
        }
        let args = self.arguments(false)?;
        Some(self.add_seen(Node::Template(param, args)))
    }

    fn substituted_type(&mut self) -> Option<Id> {
        let id = self.substitution()?;
        if self.peek() != b'I' {
            return Some(id);
        }
        let args = self.arguments(false)?;
        Some(self.add_seen(Node::Template(id, args)))
    }

    fn type_d(&mut self, next: u8) -> Option<Id> {
        if let Some((_, text)) = BUILT_IN_D.iter().find(|(own, _)| *own == next) {
            self.at += 2;
            return Some(self.add(Node::Text(text)));
        }
        match next {
            b't' | b'T' => self.decltype(),
            b'p' => {
                self.at += 2;
                let pattern = self.type_()?;
                Some(self.add_seen(Node::Expand(pattern)))
            }
            b'v' => {
                self.at += 2;
                let size = match self.eat("_") {
                    true => self.expression()?,
                    false => {
                        let digits = self.digits();
                        self.add(Node::Text(digits))
                    }
                };
                self.expect("_")?;
                let of = self.type_()?;
                Some(self.add_seen(Node::Vector(size, of)))
            }
            b'F' => {
                self.at += 2;
                let bits = self.digits();
                let text = match (bits, self.peek()) {
                    ("16", b'b') => "std::bfloat16_t",
                    ("16", _) => "_Float16",
                    ("32", b'x') => "_Float32x",
                    ("32", _) => "_Float32",
                    ("64", b'x') => "_Float64x",
                    ("64", _) => "_Float64",
                    _ => "_Float128",
                };
                self.at += 1;
                Some(self.add(Node::Text(text)))
            }
            b'o' | b'O' | b'w' | b'x' => {
                let node = self.function_type(Quals::default())?;
                Some(self.add_seen(node))
            }
            _ => None,
        }
    }

    pub(super) fn decltype(&mut self) -> Option<Id> {
        self.at += 2;
        let inner = self.expression()?;
        self.expect("E")?;
        Some(self.add_seen(Node::Decltype(inner)))
    }

    pub(super) fn qualifiers(&mut self) -> Quals {
        Quals {
            restrict: self.eat("r"),
            volatile: self.eat("V"),
            constant: self.eat("K"),
            ..Quals::default()
        }
    }

    fn qualified(&mut self) -> Option<Id> {
        let quals = self.qualifiers();
        let function = self.peek() == b'F'
            || (self.peek() == b'D' && matches!(self.peek_at(1), b'o' | b'O' | b'w' | b'x'));
        let node = match function {
            true => self.function_type(quals)?,
            false => Node::Qualified(self.type_()?, quals),
        };
        Some(self.add_seen(node))
    }

    fn pointer(&mut self, sign: &'static str) -> Option<Node<'a>> {
        self.at += 1;
        Some(Node::Pointer(self.type_()?, sign))
    }

    fn suffixed(&mut self, word: &'static str) -> Option<Node<'a>> {
        self.at += 1;
        let of = self.type_()?;
        let word = self.add(Node::Text(word.trim_start()));
        Some(Node::Suffixed(of, word))
    }

    fn function_type(&mut self, mut quals: Quals) -> Option<Node<'a>> {
        quals.noexcept |= self.eat("Do");
        if self.eat("DO") {
            self.expression()?;
            self.expect("E")?;
        } else if self.eat("Dw") {
            self.until_end(Parser::type_)?;
        }
        self.eat("Dx");
        self.expect("F")?;
        self.eat("Y");
        let returned = self.type_()?;
        let mut params = Vec::new();
        loop {
            if self.eat("E") {
                break;
            }
            if self.eat("v") {
                continue;
            }
            quals.reference = match (self.peek(), self.peek_at(1)) {
                (b'R', b'E') => "&",
                (b'O', b'E') => "&&",
                _ => "",
            };
            if !quals.reference.is_empty() {
                self.at += 2;
                break;
            }
            params.push(self.type_()?);
        }
        Some(Node::Call(returned, params, quals))
    }

    fn array(&mut self) -> Option<Node<'a>> {
        self.at += 1;
        let size = if self.peek() == b'_' {
            None
        } else if self.peek().is_ascii_digit() {
            let digits = self.digits();
            Some(self.add(Node::Text(digits)))
        } else {
            Some(self.expression()?)
        };
        self.expect("_")?;
        Some(Node::Array(size, self.type_()?))
    }

    /// Reads `T_`, `T0_` …
    pub(super) fn template_param(&mut self) -> Option<Id> {
        self.expect("T")?;
        if self.eat("L") {
            self.digits();
            self.expect("_")?;
        }
        let index = self.sequence(10)?;
        self.param(index)
    }

    fn param(&mut self, index: usize) -> Option<Id> {
        let node = if self.in_lambda {
            Node::Auto(index + 1)
        } else if self.ahead {
            Node::Ahead(index)
        } else {
            Node::Param(*self.params.get(index)?, index)
        };
        Some(self.add(node))
    }

    /// Reads `S_`, `S0_` … and the standard abbreviations.
    pub(super) fn substitution(&mut self) -> Option<Id> {
        self.expect("S")?;
        let (short, long, name) = match self.peek() {
            b'a' => ("std::allocator", "std::allocator", "allocator"),
            b'b' => ("std::basic_string", "std::basic_string", "basic_string"),
            b's' => (
                "std::string",
                "std::basic_string<char, std::char_traits<char>, std::allocator<char> >",
                "basic_string",
            ),
            b'i' => (
                "std::istream",
                "std::basic_istream<char, std::char_traits<char> >",
                "basic_istream",
            ),
            b'o' => (
                "std::ostream",
                "std::basic_ostream<char, std::char_traits<char> >",
                "basic_ostream",
            ),
            b'd' => (
                "std::iostream",
                "std::basic_iostream<char, std::char_traits<char> >",
                "basic_iostream",
            ),
            _ => {
                let index = self.sequence(36)?;
                let id = *self.seen.get(index)?;
                // A parameter seen before is the one of that number here.
                return match self.nodes[id as usize] {
                    Node::Param(_, number) if self.in_lambda || number < self.params.len() => {
                        self.param(number)
                    }
                    Node::Auto(number) if !self.in_lambda => self.param(number - 1),
                    _ => Some(id),
                };
            }
        };
        self.at += 1;
        let mut id = self.add(Node::Standard(short, long, name));
        while self.eat("B") {
            let Node::Text(tag) = self
                .source_name()
                .map(|id| self.nodes[id as usize].clone())?
            else {
                return None;
            };
            id = self.add_seen(Node::Tagged(id, tag));
        }
        Some(id)
    }

    /// Reads `I…E`. The arguments of a function are remembered.
    pub(super) fn arguments(&mut self, of_function: bool) -> Option<Vec<Id>> {
        self.expect("I")?;
        let ahead = std::mem::replace(&mut self.ahead, false);
        if of_function {
            self.params.clear();
        }
        let mut args = Vec::new();
        while !self.eat("E") {
            let arg = self.argument()?;
            if of_function {
                self.params.push(arg);
            }
            args.push(arg);
        }
        self.ahead = ahead;
        Some(args)
    }

    pub(super) fn argument(&mut self) -> Option<Id> {
        self.deeper(|this| match this.peek() {
            b'X' => {
                this.at += 1;
                let inner = this.expression()?;
                this.expect("E")?;
                Some(inner)
            }
            b'J' => {
                this.at += 1;
                let all = this.until_end(Parser::argument)?;
                Some(this.add(Node::Pack(all)))
            }
            b'I' => {
                let all = this.arguments(false)?;
                Some(this.add(Node::Pack(all)))
            }
            b'L' => this.literal(),
            _ => this.type_(),
        })
    }
}
