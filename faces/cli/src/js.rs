//! `skinflint js`: the JavaScript host, in our place.
//!
//! ```text
//!   engine, heap, malloc, pauses ──► skinflint-js │ -system │ -stock │ … │ -quickjs │ -quickjs-system ── execve, same words
//! ```
//!
//! H1  The host replaces us, so that the memory that it reports is its own alone.
//! H2  Our arguments are passed on as they are.
//!
//! Not here: the options and which program has them (`js_options`), where it is (`launch::installed`), what it does
//! (`js/host`).

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result};
use skinflint_js_options::{JsArgs, program};
use skinflint_launch::installed;

/// Becomes the host. Returns only if that fails.
///
/// # Errors
/// If no host can serve the options together, or there is no host.
pub fn js(args: &JsArgs) -> Result<u8> {
    let host = installed::js_host(program(args)?)?;
    let words: Vec<OsString> = std::env::args_os().collect();
    let after = words.iter().position(|word| word == "js");
    let words = after.map_or(&[][..], |at| &words[at + 1..]);
    let error = Command::new(&host).args(words).exec();
    Err(error).with_context(|| format!("{}: cannot be started", host.display()))
}
