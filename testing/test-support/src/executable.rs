//! Executables that a test makes: copies of programs, and scripts.
//!
//! X1  No descriptor of the test's process ever writes them. The tests of a binary run side by side and start
//!     programs: between its fork and its exec such a child has every descriptor of the process, and for as long the
//!     kernel refuses to execute a file that one of them writes (`ETXTBSY`). On a busy machine that is long.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Copies a file under a mode, and makes the folder that it is to lie in.
///
/// # Panics
/// If the file cannot be read or the copy cannot be written.
#[track_caller]
pub fn copied(from: &Path, to: &Path, mode: u32) {
    let mut install = Command::new("install");
    install.arg("-D").arg(format!("--mode={mode:o}"));
    let done = install.args([from, to]).output();
    let done = done.expect("apt-get install coreutils");
    assert!(done.status.success(), "{done:?}");
}

/// Writes a file with a mode, for example a script that begins with `#!/bin/sh`.
///
/// # Panics
/// If the file cannot be written.
#[track_caller]
pub fn written(to: &Path, bytes: &[u8], mode: u32) {
    let mut cat = Command::new("sh");
    cat.args(["-c", "cat > \"$0\""])
        .arg(to)
        .stdin(Stdio::piped());
    let mut cat = cat.spawn().expect("apt-get install dash coreutils");
    let mut input = cat.stdin.take().expect("it is piped");
    input.write_all(bytes).expect("cat reads to the end");
    drop(input);
    assert!(cat.wait().expect("a child of ours").success(), "{to:?}");
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(mode)).expect("a file of ours");
}
