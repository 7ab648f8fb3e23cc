//! `skinflint-js-system`: our heap on the C library's allocator, so that the two effects can be told apart.

use std::alloc::System;
use std::process::ExitCode;

use skinflint_js_host::counted::Counted;

#[global_allocator]
static MALLOC: Counted<System> = Counted(System);

fn main() -> ExitCode {
    skinflint_js_host::main(skinflint_js_host::Build {
        malloc: "system",
        sees_pauses: true,
        allocator: None,
        arena: None,
    })
}
