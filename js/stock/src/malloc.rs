//! `skinflint-js-stock-malloc`: Boa's own heap on our allocator, so that the two effects can be told apart.

use std::process::ExitCode;

#[global_allocator]
static MALLOC: skinflint_alloc::Skinflint = skinflint_alloc::Skinflint;

fn main() -> ExitCode {
    skinflint_js_host::main(skinflint_js_host::Build {
        malloc: "skinflint",
        sees_pauses: false,
    })
}
