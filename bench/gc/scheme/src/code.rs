//! What a program is compiled to: instructions for a stack, without anything of a heap.
//!
//! ```text
//!   stack   … │ callee │ argument 0 │ argument 1 │ locals … │ temporaries        base: argument 0
//! ```
//!
//! C1  Variables that are assigned to are boxes; all others never change, so closures copy them.
//! C2  `TailCall` takes the place of its caller's frame: loops need no stack.
//!
//! Not here: how instructions are made (`compile`), what they do (`machine`).

/// What is read, and what constants are made of.
#[derive(Clone, PartialEq, Debug)]
pub enum Datum {
    Int(i64),
    Bool(bool),
    Str(String),
    Sym(u32),
    List(Vec<Datum>),
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Op {
    Nil,
    Unspecified,
    True,
    False,
    Int(i64),
    Const(u32),
    Local(u32),
    Free(u32),
    Global(u32),
    SetGlobal(u32),
    /// Puts the value on top into a box; `BoxLocal`: the value of a place of the frame.
    Box,
    BoxLocal(u32),
    Unbox,
    /// value, box ─► unspecified
    SetBox,
    Closure(u32, u32),
    Jump(u32),
    JumpFalse(u32),
    Call(u32),
    TailCall(u32),
    Return,
    Pop,
    /// Drops so many values below the one on top.
    Slide(u32),
    Prim(Prim, u32),
}

/// A function's instructions.
#[derive(Debug)]
pub struct Code {
    pub params: u32,
    pub ops: Vec<Op>,
}

/// A program: `codes[0]` is its beginning.
#[derive(Debug)]
pub struct Program {
    pub codes: Vec<Code>,
    pub consts: Vec<Datum>,
    pub globals: usize,
    pub symbols: Vec<String>,
}

macro_rules! prims {
    ($($name:ident $text:literal $least:literal $most:literal),* $(,)?) => {
        /// Functions that are built in.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Prim { $($name),* }

        impl Prim {
            pub const ALL: &[Prim] = &[$(Prim::$name),*];

            pub fn name(self) -> &'static str {
                match self { $(Prim::$name => $text),* }
            }

            /// Whether it takes so many arguments.
            pub fn takes(self, args: usize) -> bool {
                match self { $(Prim::$name => ($least..=$most).contains(&args)),* }
            }
        }
    };
}

prims! {
    Add "+" 0 99, Sub "-" 1 99, Mul "*" 0 99, Quotient "quotient" 2 2, Remainder "remainder" 2 2,
    Less "<" 2 2, Greater ">" 2 2, Equals "=" 2 2, Not "not" 1 1, Eq "eq?" 2 2, Equal "equal?" 2 2,
    Cons "cons" 2 2, Car "car" 1 1, Cdr "cdr" 1 1, IsNull "null?" 1 1, IsPair "pair?" 1 1, List "list" 0 99,
    MakeVector "make-vector" 2 2, VectorRef "vector-ref" 2 2, VectorSet "vector-set!" 3 3,
    VectorLength "vector-length" 1 1, StringAppend "string-append" 0 99, StringLength "string-length" 1 1,
    StringByte "string-byte" 2 2, NumberToString "number->string" 1 1, SymbolToString "symbol->string" 1 1,
    Display "display" 1 1, Error "error" 1 1,
}
