//! Names of scripts' functions: the variable by which Node is asked to write them down while it runs.
//!
//! ```text
//!   run --frames user node app.js ─► NODE_OPTIONS=… --perf-basic-prof --interpreted-frames-native-stack
//!                                                        └─► /tmp/perf-PID.map, kept beside the trace
//! ```
//!
//! S1  Only programs that are Node, or that a script begins with it (npm), get the variable; what they start inherits it.
//! S2  What the variable had stays, in front: of two equal options the last one counts for Node.
//! S3  Both options change how code is made, not what it does: functions that are interpreted get code of their own, so
//!     that a stack shows which one runs.
//!
//! Not here: reading the map (the crate `symbols`).

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::preflight;

/// The variable that Node reads options from.
pub const VARIABLE: &str = "NODE_OPTIONS";
/// The options that make Node write the names of its scripts' functions.
pub const OPTIONS: &str = "--perf-basic-prof --interpreted-frames-native-stack";

/// Returns the variable's value with which a program names its scripts' functions; `None` if it is no program of Node.
pub fn node_options(program: &OsStr, before: Option<OsString>) -> Option<OsString> {
    if !is_node(program) {
        return None;
    }
    let mut value = before.unwrap_or_default();
    if !value.is_empty() {
        value.push(" ");
    }
    value.push(OPTIONS);
    Some(value)
}

/// Returns whether a program is Node, or a script of it (S1).
fn is_node(program: &OsStr) -> bool {
    const NAMES: [&str; 2] = ["node", "nodejs"];
    let file = |path: &Path| {
        path.file_name()
            .map(|name| name.to_string_lossy().into_owned())
    };
    let is_named = |path: &Path| file(path).is_some_and(|name| NAMES.contains(&name.as_str()));
    let Ok(place) = preflight::find(program, &preflight::RECORD) else {
        return is_named(Path::new(program));
    };
    let real = std::fs::canonicalize(&place).unwrap_or_else(|_| place.clone());
    is_named(&place) || is_named(&real) || begins_with_node(&real)
}

/// Returns whether a file is a script that names Node as its interpreter.
fn begins_with_node(file: &Path) -> bool {
    let mut head = [0u8; 128];
    let read = File::open(file).and_then(|mut file| file.read(&mut head));
    let line = head[..read.unwrap_or(0)]
        .split(|byte| *byte == b'\n')
        .next();
    let line = String::from_utf8_lossy(line.unwrap_or_default()).into_owned();
    let words = line
        .strip_prefix("#!")
        .unwrap_or_default()
        .split_whitespace();
    words
        .into_iter()
        .any(|word| matches!(word.rsplit('/').next(), Some("node" | "nodejs")))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn value(program: &Path, before: Option<&str>) -> Option<String> {
        let value = node_options(program.as_os_str(), before.map(Into::into));
        value.map(|value| value.to_string_lossy().into_owned())
    }

    #[test]
    fn programs_of_node_get_the_options_and_others_do_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("written");
            let may_run = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(&path, may_run).expect("set");
            path
        };
        let node = file("node", "\x7fELF");
        assert_eq!(value(&node, None).as_deref(), Some(OPTIONS));
        assert_eq!(
            value(&node, Some("--inspect")),
            Some(format!("--inspect {OPTIONS}"))
        );
        let script = file("npm", "#!/usr/bin/env node\nrequire('x')\n");
        assert!(value(&script, None).is_some());
        let flags = file("tool", "#!/usr/bin/env -S node --no-warnings\n");
        assert!(value(&flags, None).is_some());
        for (name, text) in [
            ("python3", "\x7fELF"),
            ("sh", "#!/bin/sh\nnode\n"),
            ("nodes", ""),
            ("x", "#!"),
        ] {
            assert_eq!(value(&file(name, text), None), None, "{name}");
        }
        let link = folder.path().join("js");
        std::os::unix::fs::symlink(&node, &link).expect("linked");
        assert!(value(&link, None).is_some());
    }
}
