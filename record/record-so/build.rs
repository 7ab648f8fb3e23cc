//! What the linker has to know of the recorder.
//!
//! ```text
//!   our own malloc, named inside the library ──► our own malloc          (-Bsymbolic-functions)
//! ```
//!
//! B1  A name of ours means ours inside the library, whoever comes first in the program: a recorder that was loaded
//!     into a running program stands behind the C library, and must not hand out its functions as hooks. Not
//!     -Bsymbolic, which would have the loader begin every look-up of ours with ourselves.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
}
