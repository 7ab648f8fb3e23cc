//! Flags of the linker for the library.
//!
//! ```text
//!   initfirst   our constructor before every other one (begin.rs, B1)
//! ```
//!
//! Not here: `-Bsymbolic-functions`. Nothing here calls an exported function by its name, except the
//! operators that must reach what the program means by that name (operators.rs, N1).

fn main() {
    println!("cargo::rustc-link-arg-cdylib=-Wl,-z,initfirst");
    println!("cargo::rerun-if-changed=build.rs");
}
