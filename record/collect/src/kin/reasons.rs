//! Reasons why a process has no recorder: by its program's file, and by what `/proc` shows of it while it lives.
//!
//! Not here: which processes are missed (kin.rs).

use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use skinflint_procfs::process::environment;
use skinflint_procfs::status::user;
use skinflint_trace::LostWhy;

use crate::mappings::is_recorder;

/// Returns the path of a program that was asked for by its name alone, or by a path from `folder`, the folder that the
/// caller worked in; empty if there is none.
pub(super) fn found_in_path(asked: &str, folder: &str) -> String {
    if asked.is_empty() || asked.starts_with('/') {
        return asked.to_owned();
    }
    if asked.contains('/') {
        let path = Path::new(folder).join(asked.trim_start_matches("./"));
        let is_there = path.is_absolute() && path.is_file();
        return if is_there {
            path.to_string_lossy().into_owned()
        } else {
            String::new()
        };
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders)
        .map(|folder| folder.join(asked))
        .find(|path| path.is_file())
        .map_or_else(String::new, |path| path.to_string_lossy().into_owned())
}

/// Returns why a living process has no recorder.
pub(super) fn why_by_process(pid: u32) -> LostWhy {
    match why_by_file(Path::new(&format!("/proc/{pid}/exe"))) {
        LostWhy::Unknown => {}
        why => return why,
    }
    let root = |pid: &str| {
        let about = std::fs::metadata(PathBuf::from(format!("/proc/{pid}/root/.")));
        about.map(|about| (about.dev(), about.ino())).ok()
    };
    if let (Some(its), Some(ours)) = (root(&pid.to_string()), root("self"))
        && its != ours
    {
        return LostWhy::Root;
    }
    let Some(environment) = environment(pid) else {
        return LostWhy::Unknown;
    };
    match recorder(&environment) {
        None => LostWhy::Environment,
        // The same root folder, and something else mounted over the recorder's.
        Some(file) if !Path::new(&format!("/proc/{pid}/root{file}")).exists() => LostWhy::Root,
        Some(file) if user(pid).is_some_and(|user| is_closed_to(Path::new(&file), user)) => {
            LostWhy::Unreadable
        }
        Some(_) => LostWhy::Unknown,
    }
}

/// Returns whether a user certainly cannot open a file. The user's groups are not known here: what a group may do, the
/// user is taken to be allowed.
fn is_closed_to(path: &Path, user: u32) -> bool {
    let denies = |path: &Path, bit: u32| {
        std::fs::metadata(path).is_ok_and(|about| {
            let wanted = match about.uid() == user {
                true => bit << 6,
                false => bit << 3 | bit,
            };
            about.mode() & wanted == 0
        })
    };
    let mut folders = path.ancestors().skip(1);
    user != 0 && (denies(path, 0o4) || folders.any(|folder| denies(folder, 0o1)))
}

/// Returns the recorder's path among the preloaded libraries of an environment; `None` if it is not among them.
fn recorder(environment: &[u8]) -> Option<String> {
    let mut entries = environment.split(|&byte| byte == 0);
    let preloaded = entries.find_map(|entry| entry.strip_prefix(b"LD_PRELOAD="))?;
    let preloaded = String::from_utf8_lossy(preloaded).into_owned();
    let mut files = preloaded.split([':', ' ']);
    // A recorder that lies in memory is named by a descriptor (launch's carried.rs).
    let in_memory = |file: &str| file.starts_with("/proc/") && file.contains("/fd/");
    files
        .find(|file| is_recorder(file) || in_memory(file))
        .map(str::to_owned)
}

/// Returns why no library can be preloaded into a program file; `None` if one can be.
pub(super) fn why_by_file(path: &Path) -> LostWhy {
    let Ok(file) = std::fs::File::open(path) else {
        return LostWhy::Unknown;
    };
    let mut head = [0u8; 4096];
    let got = file.read_at(&mut head, 0).unwrap_or(0);
    let head = &head[..got];
    if is_static(head) == Some(true) {
        return LostWhy::Static;
    }
    const SET_ID: u32 = 0o6000;
    let privileged = file
        .metadata()
        .is_ok_and(|about| about.permissions().mode() & SET_ID != 0)
        || has_capabilities(&file);
    if head.starts_with(b"\x7fELF") && privileged {
        return LostWhy::Privileged;
    }
    LostWhy::Unknown
}

fn has_capabilities(file: &std::fs::File) -> bool {
    let name = c"security.capability";
    // SAFETY: asks for the length alone.
    let bytes =
        unsafe { libc::fgetxattr(file.as_raw_fd(), name.as_ptr(), std::ptr::null_mut(), 0) };
    bytes > 0
}

/// Returns whether an ELF program names no loader; `None` if it is not ELF, or its table lies further on.
fn is_static(head: &[u8]) -> Option<bool> {
    const PT_INTERP: u32 = 3;
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let number = |at: usize, bytes: usize| {
        let mut word = [0u8; 8];
        word[..bytes].copy_from_slice(head.get(at..at + bytes)?);
        Some(u64::from_le_bytes(word) as usize)
    };
    let (table, each, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    for index in 0..count {
        let at = table.checked_add(index.checked_mul(each)?)?;
        if number(at, 4)? as u32 == PT_INTERP {
            return Some(false);
        }
    }
    Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_in_a_closed_folder_is_closed_to_other_users() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("libskinflint_record.so");
        std::fs::write(&file, b"").expect("ours");
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("ours");
        };
        mode(&file, 0o755);
        mode(folder.path(), 0o700);
        let own = user(std::process::id()).expect("this process");
        let other = own + 1;
        assert!(is_closed_to(&file, other));
        assert!(!is_closed_to(&file, own) && !is_closed_to(&file, 0));
        for open in [0o750, 0o711] {
            mode(folder.path(), open);
            assert!(!is_closed_to(&file, other), "{open:o}");
        }
        mode(&file, 0o700);
        assert!(is_closed_to(&file, other));
    }

    #[test]
    fn programs_with_and_without_a_loader() {
        let own = std::env::current_exe().expect("a path");
        assert_eq!(why_by_file(&own), LostWhy::Unknown);
        let mut head = std::fs::read(&own).expect("it");
        head.truncate(4096);
        assert_eq!(is_static(&head), Some(false));
        let table = 64;
        let count = usize::from(head[56]);
        for index in 0..count {
            let at = table + index * 56;
            if head[at] == 3 {
                head[at] = 4;
            }
        }
        assert_eq!(is_static(&head), Some(true));
        assert_eq!(is_static(&head[..100]), None, "cut");
        assert_eq!(is_static(b"#!/bin/sh"), None);
    }

    #[test]
    fn the_recorder_is_found_among_preloaded_libraries() {
        let of = |text: &str| recorder(text.replace(' ', "\0").as_bytes());
        let path = "/opt/libskinflint_record.so";
        assert_eq!(
            of(&format!("A=1 LD_PRELOAD=/x.so:{path} B=2")).as_deref(),
            Some(path)
        );
        assert_eq!(of(&format!("LD_PRELOAD={path}")).as_deref(), Some(path));
        assert_eq!(of("A=1 LD_PRELOAD=/x.so"), None);
        assert_eq!(of("A=1"), None);
    }

    #[test]
    fn a_path_from_the_callers_folder_is_found() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let file = folder.path().join("true_st");
        std::fs::write(&file, b"").expect("written");
        let (folder, file) = (
            folder.path().display().to_string(),
            file.display().to_string(),
        );
        assert_eq!(found_in_path("./true_st", &folder), file);
        assert_eq!(found_in_path("./no", &folder), "");
        assert_eq!(
            found_in_path("./true_st", ""),
            "",
            "the folder is not known"
        );
        assert_eq!(found_in_path("/a/b", ""), "/a/b");
    }
}
