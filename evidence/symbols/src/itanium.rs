//! C++ names as c++filt writes them: the Itanium ABI's mangling, read into a tree and written out.
//!
//! ```text
//!   _ZN3geo4growIiEEvPT_m ──parse──► tree ──print──► void geo::grow<int>(int*, unsigned long)
//!                             │  S_, T_: places in it
//!                             └─ expressions, in template arguments and decltype
//! ```
//!
//! I1  A name that is not wholly understood gives `None`, never half a name.
//! I2  Depth, steps and written bytes are bounded (`DEPTH`, `STEPS`, the caller's room): a hostile name costs
//!     no more than a long one.
//! I3  A child of a node was made before it, except for what a conversion operator names ahead (`Node::Ahead`); the
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
mod parser;
mod print;
mod symbol;
mod tree;
mod types;

pub(crate) use symbol::demangle;

#[cfg(test)]
mod tests;
