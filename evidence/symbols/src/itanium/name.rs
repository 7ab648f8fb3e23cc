//! Names: nested, local, of operators, constructors, lambdas; and special names about another name.

use super::parser::Parser;
use super::tree::{Id, Node, Quals};

/// The facts about the signature that follows, as a function's name gives them.
#[derive(Clone, Copy, Default)]
pub(super) struct About {
    /// The name ends in template arguments: a return type follows.
    pub templated: bool,
    /// Constructors, destructors and conversions have no return type.
    pub no_return: bool,
    /// Qualifiers of the object of a member function.
    pub quals: Quals,
}

/// Operators: code, text written after `operator`, operands in an expression.
pub(super) const OPERATORS: [(&str, &str, u8); 52] = [
    ("aN", "&=", 2),
    ("aS", "=", 2),
    ("aa", "&&", 2),
    ("ad", "&", 1),
    ("an", "&", 2),
    ("aw", "co_await ", 1),
    ("cl", "()", 0),
    ("cm", ",", 2),
    ("co", "~", 1),
    ("dV", "/=", 2),
    ("da", "delete[] ", 1),
    ("de", "*", 1),
    ("dl", "delete ", 1),
    ("ds", ".*", 2),
    ("dt", ".", 2),
    ("dv", "/", 2),
    ("eO", "^=", 2),
    ("eo", "^", 2),
    ("eq", "==", 2),
    ("ge", ">=", 2),
    ("gt", ">", 2),
    ("ix", "[]", 0),
    ("lS", "<<=", 2),
    ("le", "<=", 2),
    ("ls", "<<", 2),
    ("lt", "<", 2),
    ("mI", "-=", 2),
    ("mL", "*=", 2),
    ("mi", "-", 2),
    ("ml", "*", 2),
    ("mm", "--", 0),
    ("na", "new[]", 0),
    ("ne", "!=", 2),
    ("ng", "-", 1),
    ("nt", "!", 1),
    ("nw", "new", 0),
    ("oR", "|=", 2),
    ("oo", "||", 2),
    ("or", "|", 2),
    ("pL", "+=", 2),
    ("pl", "+", 2),
    ("pm", "->*", 2),
    ("pp", "++", 0),
    ("ps", "+", 1),
    ("pt", "->", 2),
    ("qu", "?", 0),
    ("rM", "%=", 2),
    ("rS", ">>=", 2),
    ("rm", "%", 2),
    ("rs", ">>", 2),
    ("ss", "<=>", 2),
    ("nx", "noexcept", 0),
];

impl<'a> Parser<'a> {
    /// Reads a function, a variable, or something about one.
    pub(super) fn encoding(&mut self, top: bool) -> Option<Id> {
        self.deeper(|this| {
            if matches!(this.peek(), b'T' | b'G') {
                return this.special();
            }
            let mut about = About::default();
            let name = this.name(Some(&mut about))?;
            if matches!(this.peek(), 0 | b'E' | b'.') {
                return Some(name);
            }
            this.settle();
            let returned = match about.templated && !about.no_return {
                true => Some(this.type_()?),
                false => None,
            };
            let params = this.parameters()?;
            let returned = returned.filter(|_| top);
            Some(this.add(Node::Function(name, returned, params, about.quals)))
        })
    }

    /// Reads types until there are no more; a lone `v` is none.
    pub(super) fn parameters(&mut self) -> Option<Vec<Id>> {
        let mut params = Vec::new();
        if self.eat("v") {
            return Some(params);
        }
        while !matches!(self.peek(), 0 | b'E' | b'.' | b'Q') {
            params.push(self.type_()?);
        }
        (!params.is_empty()).then_some(params)
    }

    /// Resolves what was named ahead.
    fn settle(&mut self) {
        for index in 0..self.nodes.len() {
            if let Node::Ahead(param) = self.nodes[index]
                && let Some(&id) = self.params.get(param)
            {
                self.nodes[index] = Node::Param(id, param);
            }
        }
    }

    fn special(&mut self) -> Option<Id> {
        const OF_TYPES: [(&str, &str); 4] = [
            ("TV", "vtable for "),
            ("TT", "VTT for "),
            ("TI", "typeinfo for "),
            ("TS", "typeinfo name for "),
        ];
        const OF_NAMES: [(&str, &str); 3] = [
            ("TH", "TLS init function for "),
            ("TW", "TLS wrapper function for "),
            ("GV", "guard variable for "),
        ];
        for (code, words) in OF_TYPES {
            if self.eat(code) {
                let of = self.type_()?;
                return Some(self.add(Node::About(words, of)));
            }
        }
        for (code, words) in OF_NAMES {
            if self.eat(code) {
                let of = self.name(None)?;
                return Some(self.add(Node::About(words, of)));
            }
        }
        let words = if self.eat("Th") {
            self.offset(1)?;
            "non-virtual thunk to "
        } else if self.eat("Tv") {
            self.offset(2)?;
            "virtual thunk to "
        } else if self.eat("Tc") {
            for _ in 0..2 {
                let parts = if self.eat("h") {
                    1
                } else {
                    self.eat("v").then_some(2)?
                };
                self.offset(parts)?;
            }
            "covariant return thunk to "
        } else if self.eat("GTt") || self.eat("GTn") {
            "transaction clone for "
        } else if self.eat("TC") {
            let derived = self.type_()?;
            self.digits();
            self.expect("_")?;
            let base = self.type_()?;
            return Some(self.add(Node::Within(base, derived)));
        } else {
            self.expect("GR")?;
            let of = self.name(None)?;
            let number = match self.at == self.text.len() {
                true => 0,
                false => self.sequence(36)?,
            };
            return Some(self.add(Node::Temporary(number, of)));
        };
        let of = self.encoding(false)?;
        Some(self.add(Node::About(words, of)))
    }

    /// Reads the offsets of a thunk: numbers, each with `_`.
    fn offset(&mut self, parts: usize) -> Option<()> {
        for _ in 0..parts {
            self.eat("n");
            if self.digits().is_empty() {
                return None;
            }
            self.expect("_")?;
        }
        Some(())
    }

    /// Reads a name; with `about` that of a function, whose arguments are what `T_` stands for from now on.
    pub(super) fn name(&mut self, mut about: Option<&mut About>) -> Option<Id> {
        self.deeper(|this| match (this.peek(), this.peek_at(1)) {
            (b'N', _) => this.nested(about),
            (b'Z', _) => this.local(about),
            (b'S', next) if next != b't' => {
                let id = this.substitution()?;
                let args = this.arguments(about.is_some())?;
                if let Some(about) = about {
                    about.templated = true;
                }
                Some(this.add(Node::Template(id, args)))
            }
            _ => {
                let scope = match this.eat("St") {
                    true => Some(this.add(Node::Text("std"))),
                    false => None,
                };
                let mut id = this.unqualified(scope, about.as_deref_mut())?;
                if let Some(scope) = scope {
                    id = this.add(Node::Scoped(scope, id));
                }
                if this.peek() != b'I' {
                    return Some(id);
                }
                this.seen.push(id);
                let args = this.arguments(about.is_some())?;
                if let Some(about) = about {
                    about.templated = true;
                }
                Some(this.add(Node::Template(id, args)))
            }
        })
    }

    fn nested(&mut self, mut about: Option<&mut About>) -> Option<Id> {
        self.expect("N")?;
        self.eat("H");
        let mut quals = self.qualifiers();
        quals.reference = match self.peek() {
            b'R' => "&",
            b'O' => "&&",
            _ => "",
        };
        self.at += usize::from(!quals.reference.is_empty());
        if let Some(about) = about.as_deref_mut() {
            about.quals = quals;
        }
        let mut so_far: Option<Id> = None;
        while !self.eat("E") {
            let (c, next) = (self.peek(), self.peek_at(1));
            let templated = c == b'I';
            so_far = Some(match c {
                b'S' if next == b't' => {
                    self.at += 2;
                    self.add(Node::Text("std"))
                }
                b'S' => self.substitution()?,
                b'M' => {
                    self.at += 1;
                    so_far?
                }
                b'T' => {
                    let param = self.template_param()?;
                    self.seen.push(param);
                    param
                }
                b'D' if matches!(next, b't' | b'T') => self.decltype()?,
                b'I' => {
                    let args = self.arguments(about.is_some())?;
                    self.add_seen(Node::Template(so_far?, args))
                }
                _ => {
                    let name = self.unqualified(so_far, about.as_deref_mut())?;
                    match so_far {
                        Some(scope) => self.add_seen(Node::Scoped(scope, name)),
                        None => {
                            self.seen.push(name);
                            name
                        }
                    }
                }
            });
            if let Some(about) = about.as_deref_mut() {
                about.templated = templated;
            }
        }
        // The whole name is no prefix: as a type, the reader of types adds it.
        self.seen.pop()?;
        so_far
    }

    fn local(&mut self, about: Option<&mut About>) -> Option<Id> {
        self.expect("Z")?;
        let outer = self.params.clone();
        let function = self.encoding(false)?;
        self.expect("E")?;
        if about.is_none() {
            self.params = outer;
        }
        if self.eat("s") {
            self.discriminator();
            let text = self.add(Node::Text("string literal"));
            return Some(self.add(Node::Scoped(function, text)));
        }
        let mut scope = function;
        if self.eat("d") {
            let number = self.sequence(10)?;
            let default = self.add(Node::Default(number + 1));
            scope = self.add(Node::Scoped(function, default));
        }
        let name = self.name(about)?;
        self.discriminator();
        Some(self.add(Node::Scoped(scope, name)))
    }

    /// Reads what distinguishes names of one function, which is not written.
    fn discriminator(&mut self) {
        if self.peek() != b'_' {
            return;
        }
        if self.eat("__") {
            self.digits();
            self.eat("_");
        } else if self.peek_at(1).is_ascii_digit() {
            self.at += 2;
        }
    }

    /// Reads one part of a name, with its tags.
    pub(super) fn unqualified(
        &mut self,
        scope: Option<Id>,
        about: Option<&mut About>,
    ) -> Option<Id> {
        self.eat("L");
        let mut id = match (self.peek(), self.peek_at(1)) {
            (b'0'..=b'9', _) => self.source_name()?,
            (b'U', b'l') => self.lambda()?,
            (b'U', b't') => {
                self.at += 2;
                let number = self.sequence(10)? + 1;
                self.add(Node::Unnamed(number))
            }
            (b'D', b'C') => {
                self.at += 2;
                let names = self.until_end(Parser::source_name)?;
                self.add(Node::Bindings(names))
            }
            (b'C' | b'D', b'0'..=b'9' | b'I') => {
                if let Some(about) = about {
                    about.no_return = true;
                }
                self.structor(scope?)?
            }
            _ => self.operator_name(about)?,
        };
        while self.eat("B") {
            let tag = self.counted()?;
            id = self.add(Node::Tagged(id, tag));
        }
        Some(id)
    }

    /// Reads a constructor or destructor, named after its class.
    fn structor(&mut self, scope: Id) -> Option<Id> {
        let destroys = self.peek() == b'D';
        self.at += 1;
        let inherits = self.eat("I");
        self.at += 1;
        let class = match inherits {
            true => self.type_()?,
            false => scope,
        };
        let class = self.last_name(class);
        Some(self.add(match destroys {
            true => Node::Destructor(class),
            false => Node::Constructor(class),
        }))
    }

    /// Returns the last part of a name, without arguments and tags.
    fn last_name(&mut self, mut id: Id) -> Id {
        loop {
            id = match &self.nodes[id as usize] {
                // What has no name is called by the name of what it lies in.
                Node::Scoped(scope, name) => match self.nodes[*name as usize] {
                    Node::Unnamed(_) => *scope,
                    _ => *name,
                },
                Node::Template(name, _) => *name,
                Node::Tagged(name, _) => *name,
                Node::Standard(_, _, name) => {
                    let name = *name;
                    return self.add(Node::Text(name));
                }
                _ => return id,
            };
        }
    }

    /// Reads text with its length before it.
    fn counted(&mut self) -> Option<&'a str> {
        let length: usize = self.digits().parse().ok()?;
        let end = self.at.checked_add(length)?;
        let text = self
            .text
            .get(self.at..end)
            .filter(|text| !text.is_empty())?;
        self.at = end;
        Some(text)
    }

    pub(super) fn source_name(&mut self) -> Option<Id> {
        let text = self.counted()?;
        let hidden = text
            .strip_prefix("_GLOBAL_")
            .is_some_and(|rest| rest.len() > 1 && rest.as_bytes()[1] == b'N');
        Some(self.add(Node::Text(match hidden {
            true => "(anonymous namespace)",
            false => text,
        })))
    }

    fn lambda(&mut self) -> Option<Id> {
        self.expect("Ul")?;
        let before = std::mem::replace(&mut self.in_lambda, true);
        let params = self.parameters();
        self.in_lambda = before;
        let params = params?;
        self.expect("E")?;
        let number = self.sequence(10)? + 1;
        Some(self.add(Node::Lambda(params, number)))
    }

    fn operator_name(&mut self, about: Option<&mut About>) -> Option<Id> {
        if self.eat("cv") {
            let ahead = std::mem::replace(&mut self.ahead, about.is_some());
            let to = self.type_();
            self.ahead = ahead;
            if let Some(about) = about {
                about.no_return = true;
            }
            return Some(self.add(Node::Conversion(to?)));
        }
        if self.eat("li") {
            let name = self.source_name()?;
            return Some(self.add(Node::Literally(name)));
        }
        let text = self.operator_text()?;
        Some(self.add(Node::Text(text)))
    }

    /// Reads `operator+` as a name.
    pub(super) fn operator_text(&mut self) -> Option<&'static str> {
        let code = self.text.get(self.at..self.at + 2)?;
        let found = OPERATORS.iter().position(|(own, ..)| *own == code)?;
        self.at += 2;
        Some(OPERATOR_NAMES[found])
    }
}

/// The names of operator functions, by operator.
const OPERATOR_NAMES: [&str; 52] = [
    "operator&=",
    "operator=",
    "operator&&",
    "operator&",
    "operator&",
    "operator co_await",
    "operator()",
    "operator,",
    "operator~",
    "operator/=",
    "operator delete[]",
    "operator*",
    "operator delete",
    "operator.*",
    "operator.",
    "operator/",
    "operator^=",
    "operator^",
    "operator==",
    "operator>=",
    "operator>",
    "operator[]",
    "operator<<=",
    "operator<=",
    "operator<<",
    "operator<",
    "operator-=",
    "operator*=",
    "operator-",
    "operator*",
    "operator--",
    "operator new[]",
    "operator!=",
    "operator-",
    "operator!",
    "operator new",
    "operator|=",
    "operator||",
    "operator|",
    "operator+=",
    "operator+",
    "operator->*",
    "operator++",
    "operator+",
    "operator->",
    "operator?",
    "operator%=",
    "operator>>=",
    "operator%",
    "operator>>",
    "operator<=>",
    "operatornoexcept",
];
