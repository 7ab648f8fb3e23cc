//! `skinflint-js-quickjs-system`: QuickJS-ng on the C library's allocator, as it comes.

use std::process::ExitCode;

fn main() -> ExitCode {
    skinflint_js_quickjs::main(skinflint_js_quickjs::Malloc::System)
}
