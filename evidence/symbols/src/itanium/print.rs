//! The tree as text. What follows a declarator (`(*)(int)`, `[3]`) is written apart from what precedes it.
//!
//! P1  An argument that a pack leaves empty leaves no comma.
//! P2  Writing stops when the caller's room is full: what was written until then is kept, and cut by the caller.
//! P3  For readers, the standard library's names lose what no programmer wrote: `std::__cxx11::basic_string<char, …>`
//!     is `std::string`, a container's allocator, comparison and hash are left out if they are the standard's own.

use super::tree::{DEPTH, Expr, Id, Node, Quals, STEPS};

pub(super) struct Printer<'a, 'b> {
    nodes: &'b [Node<'a>],
    pub(super) out: String,
    is_whole: bool,
    room: usize,
    steps: u32,
    depth: u32,
    /// The index of the pack element that is being written.
    element: Option<usize>,
    /// The position at which a comma was taken back: c++filt assumes that it is still there, and puts no space before
    /// a `>`.
    comma_at: usize,
    failed: bool,
}

impl<'a, 'b> Printer<'a, 'b> {
    pub(super) fn new(nodes: &'b [Node<'a>], is_whole: bool, room: usize) -> Printer<'a, 'b> {
        Printer {
            nodes,
            out: String::new(),
            is_whole,
            room,
            steps: 0,
            depth: 0,
            element: None,
            comma_at: 0,
            failed: false,
        }
    }

    /// Writes the whole tree; returns whether that succeeded.
    pub(super) fn whole(&mut self, root: Id) -> bool {
        self.both(root);
        // A name that ran out of room is still a name (P2); one that is too deep is not.
        !self.failed || self.out.len() > self.room
    }

    fn node(&self, id: Id) -> &'b Node<'a> {
        &self.nodes[id as usize]
    }

    fn put(&mut self, text: &str) {
        self.out.push_str(text);
        self.failed |= self.out.len() > self.room;
    }

    /// Writes a space, unless one is there.
    fn gap(&mut self) {
        if !self.out.ends_with([' ', '(']) {
            self.put(" ");
        }
    }

    fn both(&mut self, id: Id) {
        self.left(id);
        self.right(id);
    }

    fn enter(&mut self) -> bool {
        self.steps += 1;
        self.failed |= self.steps > STEPS || self.depth >= DEPTH;
        !self.failed
    }

    /// Returns what a parameter stands for at this point.
    fn resolve(&self, mut id: Id) -> Id {
        for _ in 0..DEPTH {
            id = match self.node(id) {
                Node::Param(to, _) => match (self.node(*to), self.element) {
                    (Node::Pack(all), Some(index)) => match all.get(index) {
                        Some(one) => *one,
                        None => return id,
                    },
                    (Node::Pack(_), None) => return *to,
                    _ => *to,
                },
                _ => return id,
            };
        }
        id
    }

    fn left(&mut self, id: Id) {
        if !self.enter() {
            return;
        }
        self.depth += 1;
        match self.node(id) {
            Node::Param(..) => {
                let to = self.resolve(id);
                if to != id {
                    let element = self.element.take();
                    self.left(to);
                    self.element = element;
                }
            }
            Node::Qualified(of, quals) => {
                self.left(*of);
                if !self.is_function(*of) {
                    self.cv(*quals, *of);
                }
            }
            Node::Pointer(of, sign) => self.pointer(*of, sign),
            Node::Member(class, of) => {
                self.left(*of);
                match self.is_function(*of) || self.is_array(*of) {
                    true => {
                        self.gap();
                        self.put("(");
                    }
                    false => self.gap(),
                }
                self.both(*class);
                self.put("::*");
            }
            Node::Call(returned, ..) => {
                self.left(*returned);
                self.gap();
            }
            Node::Array(_, of) => self.left(*of),
            node => self.rest(node),
        }
        self.depth -= 1;
    }

    /// Writes a node that has nothing to its right.
    fn rest(&mut self, node: &'b Node<'a>) {
        match node {
            Node::Text(text) => self.put(text),
            Node::Standard(short, long, _) => self.put(if self.is_whole { long } else { short }),
            Node::Scoped(scope, name) => {
                self.both(*scope);
                if self.is_whole || !self.is_version(*scope, *name) {
                    self.put("::");
                    self.both(*name);
                }
            }
            Node::Tagged(name, tag) => {
                self.both(*name);
                self.put("[abi:");
                self.put(tag);
                self.put("]");
            }
            Node::Template(name, args) => self.template(*name, args),
            Node::Pack(all) => self.list(all),
            Node::Ahead(_) => self.failed = true,
            Node::Auto(number) => self.numbered("auto:", *number, ""),
            Node::Expand(pattern) => self.expand(*pattern),
            Node::Constructor(class) => self.both(*class),
            Node::Destructor(class) => {
                self.put("~");
                self.both(*class);
            }
            Node::Conversion(to) => {
                self.put("operator ");
                self.both(*to);
            }
            Node::Literally(name) => {
                self.put("operator\"\" ");
                self.both(*name);
            }
            Node::Lambda(params, number) => {
                self.put("{lambda(");
                self.list(params);
                self.numbered(")#", *number, "}");
            }
            Node::Unnamed(number) => self.numbered("{unnamed type#", *number, "}"),
            Node::Default(number) => self.numbered("{default arg#", *number, "}"),
            Node::Bindings(names) => {
                self.put("[");
                self.list(names);
                self.put("]");
            }
            Node::Function(name, returned, params, quals) => {
                let returned = returned.filter(|_| self.is_whole);
                if let Some(returned) = returned {
                    self.left(returned);
                    // A declarator of a pointer to a type with parameters is open.
                    if !["(*", "(&", "(&&"]
                        .iter()
                        .any(|open| self.out.ends_with(open))
                    {
                        self.gap();
                    }
                }
                self.function(*name, params, *quals);
                if let Some(returned) = returned {
                    self.right(returned);
                }
            }
            Node::About(words, of) => {
                self.put(words);
                self.both(*of);
            }
            Node::Within(base, derived) => {
                self.put("construction vtable for ");
                self.both(*base);
                self.put("-in-");
                self.both(*derived);
            }
            Node::Temporary(number, of) => {
                self.numbered("reference temporary #", *number, " for ");
                self.both(*of);
            }
            Node::Suffixed(of, word) => {
                self.both(*of);
                self.put(" ");
                self.both(*word);
            }
            Node::Vector(size, of) => {
                self.both(*of);
                self.put(" __vector(");
                self.both(*size);
                self.put(")");
            }
            Node::Decltype(inner) => {
                self.put("decltype (");
                self.both(*inner);
                self.put(")");
            }
            Node::Expr(expression) => self.expression(expression),
            _ => self.failed = true,
        }
    }

    fn right(&mut self, id: Id) {
        if !self.enter() {
            return;
        }
        self.depth += 1;
        match self.node(id) {
            Node::Param(..) => {
                let to = self.resolve(id);
                if to != id {
                    let element = self.element.take();
                    self.right(to);
                    self.element = element;
                }
            }
            Node::Qualified(of, quals) => {
                self.right(*of);
                if self.is_function(*of) {
                    self.cv(*quals, *of);
                }
            }
            Node::Pointer(of, _) => {
                let target = self.resolve(*of);
                if self.is_array(target) || self.is_function(target) {
                    self.put(")");
                }
                self.right(*of);
            }
            Node::Member(_, of) => {
                if self.is_function(*of) || self.is_array(*of) {
                    self.put(")");
                }
                self.right(*of);
            }
            Node::Call(returned, params, quals) => {
                self.put("(");
                self.list(params);
                self.put(")");
                self.quals(*quals);
                self.right(*returned);
            }
            Node::Array(size, of) => {
                self.put(if self.out.ends_with(']') { "[" } else { " [" });
                if let Some(size) = size {
                    self.both(*size);
                }
                self.put("]");
                self.right(*of);
            }
            _ => {}
        }
        self.depth -= 1;
    }

    fn is_function(&self, id: Id) -> bool {
        matches!(self.node(self.resolve(id)), Node::Call(..))
    }

    fn is_array(&self, id: Id) -> bool {
        match self.node(self.resolve(id)) {
            Node::Array(..) => true,
            Node::Qualified(of, _) => matches!(self.node(self.resolve(*of)), Node::Array(..)),
            _ => false,
        }
    }

    fn pointer(&mut self, of: Id, sign: &'static str) {
        let target = self.resolve(of);
        // A reference to a reference is one reference.
        if sign != "*"
            && let Node::Pointer(inner, own) = self.node(target)
            && *own != "*"
        {
            let inner = *inner;
            let both = if *own == "&&" { sign } else { "&" };
            // What a parameter stands for comes from another place: its packs are its own.
            let element = match target == of {
                true => self.element,
                false => self.element.take(),
            };
            self.pointer(inner, both);
            self.element = element;
            return;
        }
        self.left(of);
        if self.is_array(target) || self.is_function(target) {
            self.gap();
            self.put("(");
        }
        self.put(sign);
    }

    fn cv(&mut self, quals: Quals, of: Id) {
        let mut have = Quals::default();
        if let Node::Qualified(_, own) = self.node(self.resolve(of)) {
            have = *own;
        }
        for (wanted, there, word) in [
            (quals.constant, have.constant, " const"),
            (quals.volatile, have.volatile, " volatile"),
            (quals.restrict, have.restrict, " __restrict"),
        ] {
            if wanted && !there {
                self.put(word);
            }
        }
    }

    /// Writes what follows a function's parameters.
    fn quals(&mut self, quals: Quals) {
        for (wanted, word) in [
            (quals.constant, " const"),
            (quals.volatile, " volatile"),
            (quals.restrict, " __restrict"),
            (!quals.reference.is_empty(), " "),
            (!quals.reference.is_empty(), quals.reference),
            (quals.noexcept, " noexcept"),
        ] {
            if wanted {
                self.put(word);
            }
        }
    }

    fn function(&mut self, name: Id, params: &[Id], quals: Quals) {
        self.both(name);
        self.put("(");
        self.list(params);
        self.put(")");
        self.quals(quals);
    }

    fn numbered(&mut self, before: &str, number: usize, after: &str) {
        self.put(before);
        self.put(&number.to_string());
        self.put(after);
    }

    /// Writes nodes with commas between them (P1).
    fn list(&mut self, all: &[Id]) {
        let start = self.out.len();
        for &id in all {
            let before = self.out.len();
            if before > start {
                self.put(", ");
            }
            let with_comma = self.out.len();
            self.both(id);
            if self.out.len() == with_comma && with_comma > before {
                self.out.truncate(before);
                self.comma_at = before;
            }
            if self.failed {
                return;
            }
        }
    }

    /// Writes a name with its arguments; for readers without those that are the standard library's defaults (P3).
    fn template(&mut self, name: Id, args: &'b [Id]) {
        let Some(class) = self.standard(name).filter(|_| !self.is_whole) else {
            self.both(name);
            self.angle(args);
            return;
        };
        let given = args.iter().rposition(|arg| !self.is_default(*arg));
        let given = given.map_or(1, |last| last + 1).min(args.len());
        let of = args.first().map(|first| self.node(self.resolve(*first)));
        let word = match (class, of) {
            ("basic_string", Some(Node::Text(of))) if given == 1 => string_of(of),
            _ => None,
        };
        match word {
            Some(word) => self.put(word),
            None => {
                self.both(name);
                self.angle(&args[..given]);
            }
        }
    }

    /// Returns the name within `std`.
    fn standard(&self, id: Id) -> Option<&'b str> {
        match self.node(self.resolve(id)) {
            Node::Standard(short, ..) => short.strip_prefix("std::"),
            Node::Scoped(scope, name) => match (self.is_std(*scope), self.node(*name)) {
                (true, Node::Text(name)) => Some(name),
                _ => None,
            },
            _ => None,
        }
    }

    fn is_std(&self, id: Id) -> bool {
        match self.node(id) {
            Node::Text("std") => true,
            Node::Scoped(scope, name) => self.is_version(*scope, *name),
            _ => false,
        }
    }

    /// Reports whether a name is a namespace in which a standard library keeps a version of itself.
    fn is_version(&self, scope: Id, name: Id) -> bool {
        matches!(self.node(scope), Node::Text("std"))
            && matches!(self.node(name), Node::Text("__cxx11" | "__1" | "__ndk1"))
    }

    fn is_default(&self, id: Id) -> bool {
        const DEFAULTS: [&str; 6] = [
            "allocator",
            "char_traits",
            "less",
            "hash",
            "equal_to",
            "default_delete",
        ];
        match self.node(self.resolve(id)) {
            Node::Template(name, _) => self
                .standard(*name)
                .is_some_and(|class| DEFAULTS.contains(&class)),
            _ => false,
        }
    }

    fn angle(&mut self, args: &[Id]) {
        self.put(if self.out.ends_with('<') { " <" } else { "<" });
        self.list(args);
        let apart = self.out.ends_with('>') && self.comma_at != self.out.len();
        self.put(if apart { " >" } else { ">" });
    }

    fn expand(&mut self, pattern: Id) {
        let Some(count) = self.pack_of(pattern, 0) else {
            self.both(pattern);
            self.put("...");
            return;
        };
        let before = self.element;
        for index in 0..count {
            if index > 0 {
                self.put(", ");
            }
            self.element = Some(index);
            self.both(pattern);
            if self.failed {
                break;
            }
        }
        self.element = before;
    }

    /// Returns the length of the first pack that a pattern names.
    fn pack_of(&mut self, id: Id, depth: u32) -> Option<usize> {
        self.steps += 1;
        if depth > DEPTH || self.steps > STEPS {
            return None;
        }
        let nodes = self.nodes;
        let mut first = |ids: &[Id]| ids.iter().find_map(|id| self.pack_of(*id, depth + 1));
        match &nodes[id as usize] {
            Node::Param(to, _) => match &nodes[*to as usize] {
                Node::Pack(all) => Some(all.len()),
                _ => None,
            },
            Node::Scoped(a, b) | Node::Member(a, b) | Node::Suffixed(a, b) => first(&[*a, *b]),
            Node::Template(name, args) => first(&[*name]).or_else(|| first(args)),
            Node::Pack(all) => first(all),
            Node::Tagged(of, _) | Node::Qualified(of, _) | Node::Pointer(of, _) => first(&[*of]),
            Node::Decltype(of) | Node::Array(None, of) => first(&[*of]),
            Node::Array(Some(a), b) | Node::Vector(a, b) => first(&[*a, *b]),
            Node::Call(returned, params, _) => first(&[*returned]).or_else(|| first(params)),
            Node::Expr(expression) => match expression {
                Expr::Prefix(_, a) | Expr::Postfix(_, a) | Expr::Word(_, a) | Expr::Global(a) => {
                    first(&[*a])
                }
                Expr::Binary(_, a, b) | Expr::Named(_, a, b) => first(&[*a, *b]),
                Expr::Ternary(a, b, c) => first(&[*a, *b, *c]),
                Expr::Invoke(a, all) | Expr::Cast(a, all) => first(&[*a]).or_else(|| first(all)),
                Expr::Braces(of, all) => of.and_then(|of| first(&[of])).or_else(|| first(all)),
                Expr::New(_, place, a, all) => {
                    first(place).or_else(|| first(&[*a])).or_else(|| first(all))
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// Writes an operand: in brackets, unless it is a name.
    fn operand(&mut self, id: Id) {
        let bare = matches!(
            self.node(id),
            Node::Text(_) | Node::Scoped(..) | Node::Expr(Expr::Braces(..) | Expr::Parameter(_))
        );
        if bare {
            self.both(id);
            return;
        }
        self.put("(");
        self.both(id);
        self.put(")");
    }

    fn expression(&mut self, expression: &'b Expr<'a>) {
        match expression {
            Expr::Literal(of, digits) => self.literal(*of, digits),
            Expr::Prefix(sign, of) => self.prefix(sign, *of),
            Expr::Postfix(sign, of) => {
                self.operand(*of);
                self.put(sign);
            }
            Expr::Binary("[]", a, b) => {
                self.operand(*a);
                self.put("[");
                self.both(*b);
                self.put("]");
            }
            Expr::Binary(sign, a, b) => {
                // It would otherwise close the arguments.
                let closes = *sign == ">";
                self.put(if closes { "(" } else { "" });
                self.operand(*a);
                self.put(sign);
                self.operand(*b);
                self.put(if closes { ")" } else { "" });
            }
            Expr::Ternary(a, b, c) => {
                self.operand(*a);
                self.put("?");
                self.operand(*b);
                self.put(" : ");
                self.operand(*c);
            }
            Expr::Invoke(callee, args) => {
                match self.node(*callee) {
                    Node::Function(name, ..) => self.both(*name),
                    _ => self.operand(*callee),
                }
                self.bracketed(args);
            }
            Expr::Cast(to, from) => {
                self.put("(");
                self.both(*to);
                self.put(")");
                for one in from {
                    self.operand(*one);
                }
            }
            Expr::Named(word, to, from) => {
                self.put(word);
                self.angle(std::slice::from_ref(to));
                self.bracketed(std::slice::from_ref(from));
            }
            Expr::Word(word, of) => {
                self.put(word);
                self.put(" ");
                self.bracketed(std::slice::from_ref(of));
            }
            Expr::Count(pack) => match self.pack_length(*pack) {
                Some(count) => self.put(&count.to_string()),
                None => {
                    self.put("sizeof...(");
                    self.both(*pack);
                    self.put(")");
                }
            },
            Expr::Parameter(0) => self.put("this"),
            Expr::Parameter(number) => self.numbered("{parm#", *number, "}"),
            Expr::Braces(of, all) => {
                if let Some(of) = of {
                    self.both(*of);
                }
                self.put("{");
                self.list(all);
                self.put("}");
            }
            Expr::New(array, place, of, args) => {
                self.put(if *array { "new[] " } else { "new " });
                if !place.is_empty() {
                    self.bracketed(place);
                    self.put(" ");
                }
                self.both(*of);
                if !args.is_empty() {
                    self.bracketed(args);
                }
            }
            Expr::Fold(sign, a, b) => self.fold(sign, *a, *b),
            Expr::Global(name) => {
                self.put("::");
                self.both(*name);
            }
        }
    }

    fn bracketed(&mut self, all: &[Id]) {
        self.put("(");
        self.list(all);
        self.put(")");
    }

    fn is_scoped(&self, id: Id) -> bool {
        matches!(self.node(id), Node::Scoped(..))
    }

    fn pack_length(&self, id: Id) -> Option<usize> {
        match self.node(id) {
            Node::Pack(all) => Some(all.len()),
            Node::Param(to, _) => match self.node(*to) {
                Node::Pack(all) => Some(all.len()),
                _ => None,
            },
            _ => None,
        }
    }

    fn prefix(&mut self, sign: &str, of: Id) {
        self.put(sign);
        match self.node(of) {
            // The address of a function is written without its parameters.
            Node::Function(name, ..) if sign == "&" && self.is_scoped(*name) => self.both(*name),
            _ if sign.ends_with(' ') => self.both(of),
            _ => self.operand(of),
        }
    }

    fn fold(&mut self, sign: &str, a: Option<Id>, b: Option<Id>) {
        self.put("(");
        match a {
            Some(a) => self.operand(a),
            None => self.put("..."),
        }
        self.put(sign);
        if let (Some(_), Some(_)) = (a, b) {
            self.put("...");
            self.put(sign);
        }
        match b {
            Some(b) => self.operand(b),
            None => self.put("..."),
        }
        self.put(")");
    }

    fn literal(&mut self, of: Id, digits: &str) {
        let (minus, value) = match digits.strip_prefix('n') {
            Some(value) => ("-", value),
            None => ("", digits),
        };
        let name = match self.node(of) {
            Node::Text(name) => *name,
            _ => "",
        };
        let suffix = match name {
            "int" => Some(""),
            "unsigned int" => Some("u"),
            "long" => Some("l"),
            "unsigned long" => Some("ul"),
            "long long" => Some("ll"),
            "unsigned long long" => Some("ull"),
            _ => None,
        };
        match (name, digits, suffix) {
            ("bool", "0", _) => self.put("false"),
            ("bool", "1", _) => self.put("true"),
            (_, _, Some(suffix)) => {
                self.put(minus);
                self.put(value);
                self.put(suffix);
            }
            _ => {
                self.put("(");
                self.both(of);
                self.put(")");
                let float = matches!(name, "float" | "double" | "long double" | "__float128");
                self.put(minus);
                self.put(if float { "[" } else { "" });
                self.put(value);
                self.put(if float { "]" } else { "" });
            }
        }
    }
}

/// Returns the name of a string of these characters.
fn string_of(characters: &str) -> Option<&'static str> {
    Some(match characters {
        "char" => "std::string",
        "wchar_t" => "std::wstring",
        "char8_t" => "std::u8string",
        "char16_t" => "std::u16string",
        "char32_t" => "std::u32string",
        _ => return None,
    })
}
