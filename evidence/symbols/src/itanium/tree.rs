//! The tree of a name: nodes, expressions, qualifiers.
//!
//! ```text
//!   nodes: [ Text geo │ Text grow │ Scoped(0, 1) │ … ]      a child has a lower number than its parent
//! ```
//!
//! Not here: reading (parser.rs), writing (print.rs).

/// The deepest nesting that is read or written.
pub(super) const DEPTH: u32 = 192;
/// The most nodes written, counting repetitions.
pub(super) const STEPS: u32 = 200_000;

/// The index of a node.
pub(super) type Id = u32;

/// A node of the tree.
#[derive(Clone, Debug)]
pub(super) enum Node<'a> {
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
pub(super) enum Expr<'a> {
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
pub(super) struct Quals {
    pub(super) restrict: bool,
    pub(super) volatile: bool,
    pub(super) constant: bool,
    /// "", "&" or "&&".
    pub(super) reference: &'static str,
    pub(super) noexcept: bool,
}
