//! Laying out a file of a few bytes, in folders that others have touched.

use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

/// `zlib.compress(b"carried\n", 9)`, by Python.
const ZLIB: &[u8] = &[
    120, 218, 75, 78, 44, 42, 202, 76, 77, 225, 2, 0, 14, 82, 2, 229,
];
const SHA256: [u8; 32] = [
    98, 181, 124, 182, 141, 17, 52, 59, 103, 172, 4, 247, 241, 156, 226, 71, 105, 103, 78, 152,
    103, 154, 125, 206, 229, 220, 135, 246, 207, 103, 12, 25,
];

fn file() -> &'static File {
    static FILE: File = File {
        name: "part.so",
        bytes: 8,
        sha256: SHA256,
        zlib: ZLIB,
    };
    &FILE
}

fn base() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

fn private(base: &Path) -> Place {
    Place {
        base: base.to_owned(),
        mode: PRIVATE,
    }
}

fn content(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("laid out")
}

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).expect("it is there").mode() & 0o7777
}

#[test]
fn a_file_is_laid_out_once_in_folders_of_the_users_own() {
    let base = base();
    let path = in_folder(file(), &private(base.path())).expect("laid out");
    assert_eq!(content(&path), b"carried\n");
    let version = path.parent().expect("a folder");
    assert_eq!(
        (mode(version), mode(version.parent().expect("a folder"))),
        (0o700, 0o700)
    );
    assert_eq!(mode(&path), 0o755);
    let inode = std::fs::metadata(&path).expect("laid out").ino();
    in_folder(file(), &private(base.path())).expect("laid out");
    assert_eq!(
        std::fs::metadata(&path).expect("laid out").ino(),
        inode,
        "written again"
    );
    assert_eq!(
        std::fs::read_dir(version).expect("a folder").count(),
        1,
        "something is left over"
    );
}

#[test]
fn what_is_not_the_file_is_replaced() {
    let base = base();
    let path = in_folder(file(), &private(base.path())).expect("laid out");
    std::fs::write(&path, b"planted\n").expect("ours");
    in_folder(file(), &private(base.path())).expect("laid out");
    assert_eq!(content(&path), b"carried\n", "of the same length");

    let other = base.path().join("other");
    std::fs::write(&other, b"carried\n").expect("ours");
    std::fs::remove_file(&path).expect("ours");
    symlink(&other, &path).expect("ours");
    in_folder(file(), &private(base.path())).expect("laid out");
    assert!(
        !std::fs::symlink_metadata(&path)
            .expect("it is there")
            .is_symlink()
    );
    assert_eq!(content(&other), b"carried\n", "written through a link");

    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o777)).expect("ours");
    in_folder(file(), &private(base.path())).expect("laid out");
    assert_eq!(mode(&path), 0o755, "others may write it");

    std::fs::remove_file(&path).expect("ours");
    std::fs::create_dir(&path).expect("ours");
    in_folder(file(), &private(base.path())).expect("laid out");
    assert_eq!(content(&path), b"carried\n", "a folder lay there");
}

#[test]
fn a_folder_that_others_can_touch_is_closed_or_refused() {
    let base = base();
    let path = in_folder(file(), &private(base.path())).expect("laid out");
    let version = path.parent().expect("a folder");
    std::fs::set_permissions(version, PermissionsExt::from_mode(0o777)).expect("ours");
    in_folder(file(), &private(base.path())).expect("laid out");
    assert_eq!(mode(version), 0o700);

    std::fs::set_permissions(base.path(), PermissionsExt::from_mode(0o777)).expect("ours");
    let refused = in_folder(file(), &private(base.path())).expect_err("others could exchange it");
    assert!(
        format!("{refused:#}").contains("others may write it"),
        "{refused:#}"
    );
}

/// A full disk refuses a file in a folder that could be made; what lies in the file's place does so, too.
#[test]
fn a_file_that_finds_no_place_in_its_folder_is_in_memory_and_the_reason_is_known() {
    let base = base();
    let folder = Folder::open(&private(base.path())).expect("a folder");
    std::fs::create_dir_all(folder.path.join("part.so/full")).expect("ours");
    let path = in_folder_or_memory(file(), &[private(base.path())]).expect("memory");
    assert_eq!(content(&path), b"carried\n");
    assert!(path.starts_with("/proc"), "{path:?}");
    assert!(
        why_in_memory().is_some_and(|why| why.contains("part.so")),
        "{:?}",
        why_in_memory()
    );
}

#[test]
fn a_link_in_place_of_our_folder_is_not_followed() {
    let (base, elsewhere) = (base(), self::base());
    symlink(elsewhere.path(), base.path().join("skinflint")).expect("ours");
    in_folder(file(), &private(base.path())).expect_err("planted");
    assert_eq!(
        std::fs::read_dir(elsewhere.path())
            .expect("a folder")
            .count(),
        0
    );
}

#[test]
fn another_users_folder_is_refused() {
    if !skinflint_test_support::need::root("a folder of another user") {
        return;
    }
    let base = base();
    let planted = base.path().join("skinflint");
    std::fs::create_dir(&planted).expect("ours");
    std::os::unix::fs::chown(&planted, Some(65534), None).expect("root");
    let refused = in_folder(file(), &private(base.path())).expect_err("planted");
    assert!(
        format!("{refused:#}").contains("belongs to user 65534"),
        "{refused:#}"
    );
}

#[test]
fn a_path_that_the_loader_cannot_name_is_refused() {
    let base = base();
    let refused = in_folder(file(), &private(&base.path().join("a b"))).expect_err("a space");
    assert!(
        format!("{refused:#}").contains("spaces, colons or dollars"),
        "{refused:#}"
    );
}

#[test]
fn only_absolute_folders_count() {
    let folder = |xdg: Option<&str>, home: Option<&str>| {
        cache_folder(xdg.map(Into::into), home.map(Into::into))
    };
    assert_eq!(folder(Some("/c"), Some("/h")), Some("/c".into()));
    assert_eq!(folder(Some("c"), Some("/h")), Some("/h/.cache".into()));
    assert_eq!(folder(Some(""), Some("")), None);
    assert_eq!(folder(None, None), None);
}

#[test]
fn in_memory_it_is_made_once_sealed_and_not_handed_on_by_itself() {
    let path = in_memory(file()).expect("in memory");
    assert_eq!(content(&path), b"carried\n");
    assert_eq!(in_memory(file()).expect("in memory"), path);
    assert!(is_in_memory(&path, "part.so") && !is_in_memory(&path, "whole.so"));
    let refused = std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .and_then(|mut file| file.write_all(b"x"));
    assert!(refused.is_err(), "it can be written");
    let held = IN_MEMORY.lock().expect("no thread failed");
    // SAFETY: carried.C4: it only reads.
    let flags = unsafe { libc::fcntl(held[0].1.as_raw_fd(), libc::F_GETFD) };
    drop(held);
    assert_eq!(flags, libc::FD_CLOEXEC);
    hand_on().expect("our own");
    let held = IN_MEMORY.lock().expect("no thread failed");
    // SAFETY: carried.C4: it only reads.
    let flags = unsafe { libc::fcntl(held[0].1.as_raw_fd(), libc::F_GETFD) };
    assert_eq!(flags, 0);
}

#[test]
fn damage_is_found() {
    static CUT: File = File {
        name: "cut.so",
        bytes: 8,
        sha256: SHA256,
        zlib: &[120, 218, 75],
    };
    static OTHER: File = File {
        name: "other.so",
        bytes: 8,
        sha256: [0; 32],
        zlib: ZLIB,
    };
    assert!(unpacked(&CUT).is_err() && unpacked(&OTHER).is_err());
}

#[test]
fn root_lays_out_where_all_users_read_unless_a_folder_is_named() {
    let bases = |is_root, xdg: Option<&str>| {
        let all = places(is_root, xdg.map(Into::into), Some("/h".into()));
        let shown = all.into_iter().map(|one| (one.base, one.mode));
        shown.collect::<Vec<_>>()
    };
    let own = (PathBuf::from("/h/.cache"), 0o700);
    let shared = (PathBuf::from("/var/cache"), 0o755);
    assert_eq!(bases(true, None), [shared, own.clone()]);
    assert_eq!(bases(false, None), [own]);
    assert_eq!(bases(true, Some("/c")), [("/c".into(), 0o700)]);
}

#[test]
fn a_shared_folder_is_read_by_all_and_written_by_us_alone() {
    let base = base();
    let open = |mode| std::fs::set_permissions(base.path(), PermissionsExt::from_mode(mode));
    open(0o755).expect("ours");
    let place = Place {
        base: base.path().to_owned(),
        mode: SHARED,
    };
    let path = in_folder(file(), &place).expect("laid out");
    let version = path.parent().expect("a folder");
    let outer = version.parent().expect("a folder");
    assert_eq!(
        [mode(outer), mode(version), mode(&path)],
        [0o755, 0o755, 0o755]
    );
    assert!(is_for_all_users(&path));
    // Closed to others by somebody's umask: opened again.
    for closed in [outer, &path] {
        std::fs::set_permissions(closed, PermissionsExt::from_mode(0o700)).expect("ours");
        assert!(!is_for_all_users(&path));
        in_folder(file(), &place).expect("laid out");
        assert!(is_for_all_users(&path));
    }
    // Others may write beside it: refused, as a folder of one's own is.
    open(0o777).expect("ours");
    let refused = in_folder(file(), &place).expect_err("others may write");
    assert!(format!("{refused:#}").contains("others may write it"));
    // The next place is tried.
    let own = tempfile::tempdir().expect("a folder");
    let both = [place, private(own.path())];
    let found = first(&both, |place| in_folder(file(), place)).expect("laid out");
    assert!(found.starts_with(own.path()) && !is_for_all_users(&found));
}
