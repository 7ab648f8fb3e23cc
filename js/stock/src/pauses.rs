//! `skinflint-js-stock-pauses`: Boa's own heap on the C library's allocator, with its collections timed from outside.

use std::process::ExitCode;

use skinflint_js_host::watch::Watch;

#[global_allocator]
static MALLOC: Watch = Watch;

fn main() -> ExitCode {
    skinflint_js_host::main(skinflint_js_host::Build {
        malloc: "system",
        sees_pauses: true,
        allocator: None,
        arena: None,
    })
}
