//! The linker's options for the recorder.
//!
//! ```text
//!   our own malloc, named inside the library ──► our own malloc          (-Bsymbolic-functions)
//! ```
//!
//! B1  Inside the library, a name of ours means our function, whichever object comes first in the program: a recorder
//!     that is loaded into a running program stands behind the C library, and must not hand out the C library's
//!     functions as hooks. Not -Bsymbolic, with which the loader would begin each of our look-ups with our own library.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
}
