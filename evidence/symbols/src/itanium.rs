//! C++ names as c++filt writes them: the Itanium ABI's mangling, read into a tree and written out.
//!
//! ```text
//!   _ZN3geo4growIiEEvPT_m ──parse──► tree ──print──► void geo::grow<int>(int*, unsigned long)
//!                             │  S_, T_: places in it
//!                             └─ expressions, in template arguments and decltype
//! ```
//!
//! I1  A name that is not wholly understood gives `None`, never half a name.
//! I2  Depth, steps and written bytes are bounded ([`DEPTH`], [`STEPS`], the caller's room): a hostile name costs
//!     no more than a long one.
//! I3  A child of a node was made before it, except for what a conversion operator names ahead ([`Node::Ahead`]); the
//!     tree is shared, never copied.
//!
//! Why our own: in libstdc++, ICU and LLVM, between none and one name per library differs from c++filt's (`nm -D -j
//! LIB | target/release/examples/demangle`, against c++filt 2.40, 2026-11-22); cpp_demangle 0.5.1, the only
//! maintained crate, writes some differently and gives up on others.
//!
//! Source: the grammar of the Itanium C++ ABI, section 5.1; the way to write was learnt from c++filt's output.
//!
//! Not here: Rust's names, suffixes and versions of symbols (demangle.rs).

mod expression;
mod name;
mod print;
mod types;

use print::Printer;

/// The deepest nesting that is read or written.
const DEPTH: u32 = 192;
/// The most nodes written, counting repetitions.
const STEPS: u32 = 200_000;

/// The index of a node.
type Id = u32;

/// A node of the tree.
#[derive(Clone, Debug)]
enum Node<'a> {
    /// Text that is written as it is.
    Text(&'a str),
    /// A standard abbreviation: its short form, its full form, and the name of its constructor.
    Standard(&'static str, &'static str, &'static str),
    /// `a::b`.
    Scoped(Id, Id),
    /// `name[abi:tag]`.
    Tagged(Id, &'a str),
    /// `name<arguments>`.
    Template(Id, Vec<Id>),
    /// The arguments that one parameter stands for.
    Pack(Vec<Id>),
    /// A template parameter: what it stands for, and its number.
    Param(Id, usize),
    /// A parameter that a conversion operator names before its arguments are known: the index.
    Ahead(usize),
    /// A parameter of a generic lambda, counted from 1.
    Auto(usize),
    /// The pattern, written for each argument of its pack.
    Expand(Id),
    Constructor(Id),
    Destructor(Id),
    /// `operator type`.
    Conversion(Id),
    /// `operator"" name`.
    Literally(Id),
    Lambda(Vec<Id>, usize),
    Unnamed(usize),
    /// `{default arg#n}`.
    Default(usize),
    /// `[a, b]`.
    Bindings(Vec<Id>),
    /// A function: name, return type, parameters, what follows them.
    Function(Id, Option<Id>, Vec<Id>, Quals),
    /// A prefix and what it is about: `vtable for`.
    About(&'static str, Id),
    /// `construction vtable for A-in-B`.
    Within(Id, Id),
    Temporary(usize, Id),
    Qualified(Id, Quals),
    /// `*`, `&` or `&&`.
    Pointer(Id, &'static str),
    /// The type of a function.
    Call(Id, Vec<Id>, Quals),
    Array(Option<Id>, Id),
    /// A class and a type.
    Member(Id, Id),
    /// A type, and a word after it.
    Suffixed(Id, Id),
    /// A dimension and a type.
    Vector(Id, Id),
    Decltype(Id),
    Expr(Expr<'a>),
}

/// An expression.
#[derive(Clone, Debug)]
enum Expr<'a> {
    /// A type and digits.
    Literal(Id, &'a str),
    Prefix(&'static str, Id),
    Postfix(&'static str, Id),
    Binary(&'static str, Id, Id),
    Ternary(Id, Id, Id),
    /// `f(a, b)`.
    Invoke(Id, Vec<Id>),
    /// `(type)expression`; several expressions are written in brackets.
    Cast(Id, Vec<Id>),
    /// `static_cast<type>(expression)`.
    Named(&'static str, Id, Id),
    /// `word (inner)`.
    Word(&'static str, Id),
    /// The number of a pack's elements.
    Count(Id),
    /// A parameter, counted from 1; 0 is `this`.
    Parameter(usize),
    /// `type{a, b}`.
    Braces(Option<Id>, Vec<Id>),
    /// `new (place) type(arguments)`; the flag says whether it is of an array.
    New(bool, Vec<Id>, Id, Vec<Id>),
    /// A fold, left operand first.
    Fold(&'static str, Option<Id>, Option<Id>),
    /// `::name`.
    Global(Id),
}

/// Qualifiers of a type or of a member function's object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Quals {
    restrict: bool,
    volatile: bool,
    constant: bool,
    /// "", "&" or "&&".
    reference: &'static str,
    noexcept: bool,
}

/// Reads one name.
struct Parser<'a> {
    text: &'a str,
    at: usize,
    nodes: Vec<Node<'a>>,
    /// What `S_`, `S0_` … stand for.
    seen: Vec<Id>,
    /// What `T_`, `T0_` … stand for.
    params: Vec<Id>,
    /// Whether a parameter may be named before it is known.
    ahead: bool,
    /// Whether we are within the parameters of a lambda.
    in_lambda: bool,
    depth: u32,
}

/// Demangles a C++ symbol: with `whole` to the letter as c++filt does, else for readers: without the return type, and
/// with the standard library's names shortened. Reads at most what `text` has and writes about `room` bytes at most;
/// returns `None` if it is no such symbol.
pub(crate) fn demangle(text: &str, whole: bool, room: usize) -> Option<String> {
    let rest = text.strip_prefix("_Z")?;
    let mut parser = Parser::new(rest);
    let root = parser.encoding(true)?;
    if parser.at != rest.len() {
        return None; // I1
    }
    let mut printer = Printer::new(&parser.nodes, whole, room);
    printer.whole(root).then_some(printer.out)
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Parser<'a> {
        Parser {
            text,
            at: 0,
            nodes: Vec::new(),
            seen: Vec::new(),
            params: Vec::new(),
            ahead: false,
            in_lambda: false,
            depth: 0,
        }
    }

    fn add(&mut self, node: Node<'a>) -> Id {
        self.nodes.push(node);
        self.nodes.len() as Id - 1
    }

    /// Adds a node that may be named again.
    fn add_seen(&mut self, node: Node<'a>) -> Id {
        let id = self.add(node);
        self.seen.push(id);
        id
    }

    fn peek(&self) -> u8 {
        self.peek_at(0)
    }

    /// Returns the byte `ahead` positions further on; 0 at the end.
    fn peek_at(&self, ahead: usize) -> u8 {
        let bytes = self.text.as_bytes();
        bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn eat(&mut self, what: &str) -> bool {
        let found = self.text[self.at..].starts_with(what);
        if found {
            self.at += what.len();
        }
        found
    }

    fn expect(&mut self, what: &str) -> Option<()> {
        self.eat(what).then_some(())
    }

    /// Runs one level deeper (I2).
    fn deeper<T>(&mut self, run: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        self.depth += 1;
        let result = match self.depth <= DEPTH {
            true => run(self),
            false => None,
        };
        self.depth -= 1;
        result
    }

    /// Reads decimal digits.
    fn digits(&mut self) -> &'a str {
        let start = self.at;
        while self.peek().is_ascii_digit() {
            self.at += 1;
        }
        &self.text[start..self.at]
    }

    /// Reads a sequence number in the base of its digits: `_` is 0, `0_` is 1 …
    fn sequence(&mut self, base: u32) -> Option<usize> {
        if self.eat("_") {
            return Some(0);
        }
        let start = self.at;
        while self.peek().is_ascii_digit() || (base == 36 && self.peek().is_ascii_uppercase()) {
            self.at += 1;
        }
        let value = usize::from_str_radix(&self.text[start..self.at], base).ok()?;
        self.expect("_")?;
        value.checked_add(1)
    }

    /// Reads everything up to `E` with `one`.
    fn until_end(&mut self, mut one: impl FnMut(&mut Self) -> Option<Id>) -> Option<Vec<Id>> {
        let mut all = Vec::new();
        while !self.eat("E") {
            all.push(one(self)?);
        }
        Some(all)
    }
}

#[cfg(test)]
mod tests;
