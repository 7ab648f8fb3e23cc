//! Flags of the linker for the library.
//!
//! ```text
//!   initfirst   our constructor before every other one (begin.B1)
//!   first.ld    what every program runs in one place (lib.M5)
//!   soname      a program linked with -lskinflint finds the library that is preloaded, not a second one
//! ```
//!
//! Not here: `-Bsymbolic-functions`. No exported function is called by its name here, except the operators that must
//! reach what the program means by that name (operators.N1).

fn main() {
    println!("cargo::rustc-link-arg-cdylib=-Wl,-z,initfirst");
    println!("cargo::rustc-link-arg-cdylib=-Wl,-soname,libskinflint.so.1");
    let here = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    println!("cargo::rustc-link-arg-cdylib=-Wl,-T,{here}/first.ld");
    println!("cargo::rerun-if-changed=first.ld");
    println!("cargo::rerun-if-changed=build.rs");
}
