//! `skinflint-js`: our heap on our allocator.

use std::process::ExitCode;

use skinflint_alloc::Skinflint;
use skinflint_js_host::counted::Counted;

#[global_allocator]
static MALLOC: Counted<Skinflint> = Counted(Skinflint);

fn main() -> ExitCode {
    skinflint_js_host::main(skinflint_js_host::Build {
        malloc: "skinflint",
        sees_pauses: true,
    })
}
