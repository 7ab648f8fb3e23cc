//! `skinflint-js-stock-malloc`: Boa's own heap on our allocator, so that the two effects can be told apart.

use std::process::ExitCode;

#[global_allocator]
static MALLOC: skinflint_alloc::Skinflint = skinflint_alloc::Skinflint;

fn main() -> ExitCode {
    // SAFETY: the environment that libc has; there are no other threads yet.
    unsafe { skinflint_alloc::options::begin(skinflint_js_host::environment()) };
    skinflint_js_host::main(skinflint_js_host::Build {
        malloc: "skinflint",
        sees_pauses: false,
        allocator: None,
        arena: None,
    })
}
