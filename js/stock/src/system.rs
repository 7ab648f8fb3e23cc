//! `skinflint-js-stock`: Boa's own heap on the C library's allocator: the engine as it is published.

use std::process::ExitCode;

fn main() -> ExitCode {
    skinflint_js_host::main(skinflint_js_host::Build {
        malloc: "system",
        sees_pauses: false,
        allocator: None,
        arena: None,
    })
}
