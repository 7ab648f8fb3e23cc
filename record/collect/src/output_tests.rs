//! Perf maps: which owner they may have, and how old they may be.
//!
//! The files lie where runtimes write them, with process ids that no process can have.

use super::*;

/// A number above the kernel's largest process id.
const BEYOND: u32 = 4_200_000;

struct Map(PathBuf);

impl Map {
    fn write(number: u32) -> Map {
        let path = PathBuf::from(format!("/tmp/perf-{number}.map"));
        let _ = std::fs::remove_file(&path);
        std::fs::write(&path, "1000 20 f\n").expect("a writable /tmp");
        Map(path)
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Returns what is kept for a process with this id that began this many nanoseconds before (negative: after) the map
/// was written.
fn kept(number: u32, began_before_ns: i64) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir().expect("a folder");
    let about = std::fs::symlink_metadata(format!("/tmp/perf-{number}.map")).expect("a map");
    let written_ns = about.mtime() * 1_000_000_000 + about.mtime_nsec();
    let process = ProcessInfo {
        pid: number,
        started_unix_ns: (written_ns - began_before_ns) as u64,
        ..ProcessInfo::default()
    };
    let trace = folder.path().join("a.sft");
    keep_perf_map(&process, &trace).expect("copied, or left");
    std::fs::read_to_string(folder.path().join("a.perf.map")).ok()
}

#[test]
fn a_map_of_this_process_is_kept_and_one_of_an_earlier_process_is_not() {
    let number = BEYOND + std::process::id();
    let _map = Map::write(number);
    let text = || Some("1000 20 f\n".to_owned());
    assert_eq!(kept(number, 1_000_000_000), text());
    assert_eq!(kept(number, 0), text());
    assert_eq!(kept(number, -9_000_000), text(), "within the clock's step");
    assert_eq!(
        kept(number, -11_000_000),
        None,
        "written before the process began"
    );
    assert_eq!(kept(number, -3_600_000_000_000), None);
}

#[test]
fn a_link_is_not_followed() {
    let number = BEYOND + 1_000_000 + std::process::id();
    let map = Map::write(number);
    std::fs::remove_file(&map.0).expect("removed");
    std::os::unix::fs::symlink("/etc/passwd", &map.0).expect("a link");
    assert_eq!(kept(number, 1_000_000_000), None);
}
