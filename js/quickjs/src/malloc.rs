//! `skinflint-js-quickjs`: QuickJS-ng, a heap of our allocator's for each tab.

use std::process::ExitCode;

#[global_allocator]
static MALLOC: skinflint_alloc::Skinflint = skinflint_alloc::Skinflint;

fn main() -> ExitCode {
    // SAFETY: the environment that libc has; there are no other threads yet.
    unsafe { skinflint_alloc::options::begin(skinflint_js_quickjs::environment()) };
    skinflint_js_quickjs::main(skinflint_js_quickjs::Malloc::Tenants)
}
