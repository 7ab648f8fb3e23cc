//! The room below the limit of the memory cgroup.
//!
//! ```text
//!   /proc/self/cgroup ──► "0::/path"        ──► /sys/fs/cgroup/path/memory.max − memory.current
//!                    └──► "7:memory:/path"  ──► /sys/fs/cgroup/memory/path/memory.limit_in_bytes − …
//! ```
//!
//! X1  Nothing is kept: a process may be moved to another group at any time. A look reads two files for each group on the way
//!     to the root, and one more.
//! X2  Buffers are on the stack, files are read with plain system calls; `errno` and the heap are left alone.
//! X3  The kernel holds a process to the limits of its own group and of all groups above it: the least room counts. A container
//!     may see no more than its own group, mounted as if it were the root, under a path that leads nowhere (version 1
//!     without a namespace of groups): what is at the root is its own then.
//!
//! And what the machine has: MemAvailable. Not here: the reaction to little room (`reserve`).

use skinflint_base::sys;

/// Bytes of the longest path.
const PATH: usize = 512;

/// The room that a group has below its limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// Bytes that are free below the limit.
    pub free: usize,
    /// Bytes below which `free` is little: a sixteenth of the limit, 4 MiB at least.
    pub margin: usize,
}

/// Returns the bytes that the machine has for new memory without swapping, as the kernel estimates. `None`: it does not
/// say.
pub fn available() -> Option<usize> {
    let mut text = [0u8; 512];
    let text = read(b"/proc/meminfo\0", &mut text)?;
    let key = b"MemAvailable:";
    let line = text
        .split(|&byte| byte == b'\n')
        .find_map(|line| line.strip_prefix(key))?;
    let digits = line.trim_ascii().strip_suffix(b" kB")?.trim_ascii();
    let number = digits.iter().try_fold(0usize, |sum, &digit| {
        digit
            .is_ascii_digit()
            .then(|| sum * 10 + usize::from(digit - b'0'))
    })?;
    Some(number << 10)
}

/// Returns the room in the process's memory cgroup. `None`: no limit, or none that can be read.
pub fn room() -> Option<Room> {
    let mut text = [0u8; 2_048];
    let text = read(b"/proc/self/cgroup\0", &mut text)?;
    let (root, group, names) = group_of(text)?;
    least_room(root, group, names)
}

/// Returns the room of that group, or of one above it, which has the least (X3).
fn least_room(root: &[u8], group: &[u8], names: Names) -> Option<Room> {
    let mut least: Option<Room> = None;
    let mut group = Some(group);
    while let Some(path) = group {
        if let Some(room) = room_of(root, path, names)
            && least.is_none_or(|least| room.free < least.free)
        {
            least = Some(room);
        }
        let above = path.iter().rposition(|&byte| byte == b'/');
        group = above.map(|at| &path[..at]);
    }
    least
}

/// Returns the room of one group. `None`: it has no limit, or is not there.
fn room_of(root: &[u8], group: &[u8], names: Names) -> Option<Room> {
    let limit = number(root, group, names.0)?;
    let used = number(root, group, names.1)?;
    // "No limit" is a very large number in version 1.
    (limit <= 1 << 46).then(|| Room {
        free: limit.saturating_sub(used),
        margin: (limit / 16).max(4 << 20),
    })
}

type Names = (&'static [u8], &'static [u8]);
const V1: Names = (b"/memory.limit_in_bytes", b"/memory.usage_in_bytes");
const V2: Names = (b"/memory.max", b"/memory.current");

/// Finds where the groups are mounted, the process's own group, and the names of the files. The first version's memory
/// controller goes before the second version, which has none while the first has.
fn group_of(text: &[u8]) -> Option<(&'static [u8], &[u8], Names)> {
    let mut second = None;
    for line in text.split(|&b| b == b'\n') {
        let mut parts = line.splitn(3, |&b| b == b':').skip(1);
        let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else {
            continue;
        };
        let group = group.strip_suffix(b"/").unwrap_or(group);
        if controllers
            .split(|&b| b == b',')
            .any(|one| one == b"memory")
        {
            return Some((b"/sys/fs/cgroup/memory", group, V1));
        }
        if controllers.is_empty() {
            second = Some((&b"/sys/fs/cgroup"[..], group, V2));
        }
    }
    second
}

/// Returns the number in a file; `None` also for "max".
fn number(root: &[u8], group: &[u8], name: &[u8]) -> Option<usize> {
    let mut path = [0u8; PATH];
    let mut length = 0;
    for part in [root, group, name] {
        path.get_mut(length..length + part.len())?
            .copy_from_slice(part);
        length += part.len();
    }
    // There must be room for the closing zero.
    path.get(length)?;
    let mut text = [0u8; 32];
    let text = read(&path, &mut text)?;
    let digits = text.iter().take_while(|b| b.is_ascii_digit());
    let (mut value, mut any) = (0usize, false);
    for digit in digits {
        value = value
            .checked_mul(10)?
            .checked_add(usize::from(digit - b'0'))?;
        any = true;
    }
    any.then_some(value)
}

/// Reads as much of a file as there is room for. `path` ends with a zero.
#[unsafe(link_section = ".text.skinflint_first")]
pub fn read<'a>(path: &[u8], into: &'a mut [u8]) -> Option<&'a [u8]> {
    // SAFETY: the path is closed; the kernel writes to a buffer of ours, no more than its length.
    let read = unsafe {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        let file = sys::syscall(
            libc::SYS_openat,
            [
                libc::AT_FDCWD as u64,
                path.as_ptr() as u64,
                flags as u64,
                0,
                0,
                0,
            ],
        );
        if sys::is_error(file) {
            return None;
        }
        let read = sys::syscall(
            libc::SYS_read,
            [
                file as u64,
                into.as_mut_ptr() as u64,
                into.len() as u64,
                0,
                0,
                0,
            ],
        );
        sys::close(file as i32);
        read
    };
    if sys::is_error(read) {
        return None;
    }
    into.get(..read as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_both_versions_are_found() {
        let v1 = b"9:name=systemd:/\n4:cpu,memory:/a/b\n0::/c\n";
        assert_eq!(
            group_of(v1),
            Some((&b"/sys/fs/cgroup/memory"[..], &b"/a/b"[..], V1))
        );
        assert_eq!(
            group_of(b"0::/\n"),
            Some((&b"/sys/fs/cgroup"[..], &b""[..], V2))
        );
        assert_eq!(group_of(b"4:cpu:/x\nnonsense\n"), None);
        assert_eq!(group_of(b"4:memoryless:/x\n"), None);
    }

    #[test]
    fn the_least_room_of_all_groups_above_counts_and_a_container_finds_its_own_at_the_root() {
        let folder = std::env::temp_dir().join(format!("skinflint-groups-{}", std::process::id()));
        let write = |group: &str, limit: &str, used: &str| {
            let at = folder.join(group);
            std::fs::create_dir_all(&at).expect("a folder");
            std::fs::write(at.join("memory.max"), limit).expect("a file");
            std::fs::write(at.join("memory.current"), used).expect("a file");
        };
        let root = folder.to_str().expect("text").as_bytes().to_vec();
        let free = |group: &str| least_room(&root, group.as_bytes(), V2).map(|room| room.free);
        write("a/b/c", "max", "5000");
        write("a/b", "9000", "6000");
        assert_eq!(free("/a/b/c"), Some(3000));
        write("a", "7000", "6500");
        assert_eq!(free("/a/b/c"), Some(500));
        assert_eq!(free("/docker/0123"), None);
        write("", "100000", "40000");
        assert_eq!(free("/docker/0123"), Some(60_000));
        assert_eq!(free("/a/b/c"), Some(500));
        assert_eq!(free(""), Some(60_000));
        std::fs::remove_dir_all(&folder).expect("it was made here");
    }

    #[test]
    fn what_is_no_number_is_no_limit() {
        assert_eq!(number(b"/proc", b"/self", b"/oom_score_adj"), Some(0));
        assert_eq!(number(b"/proc", b"/self", b"/comm"), None);
        assert_eq!(number(b"/proc", &[b'x'; PATH], b"/comm"), None);
        assert_eq!(number(b"/proc", b"", b"/no such file"), None);
    }
}
