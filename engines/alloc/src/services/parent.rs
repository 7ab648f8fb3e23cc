//! Whether the parent process runs on this library, too, and has a variable: then the variable is that process's matter.
//!
//! ```text
//!   /proc/PARENT/environ ──► LD_PRELOAD=…libskinflint.so…, NAME=… ──► both there?
//! ```
//!
//! What a process was started with is read there, so a shell that has exported the variable since has it not, and what it
//! starts is the first of its tree. A program that takes the place of its starter (`exec`) has that one's parent. Only a
//! process with such a variable looks at all.
//!
//! Not here: the process's own variables (`options`).

use skinflint_base::sys;

use super::cgroup;

/// Bytes that are looked at.
const BYTES: usize = 256 * 1024;

/// Reports whether the parent has the variable of this name, and this library. `false` if its variables cannot be read.
pub fn has(name: &[u8]) -> bool {
    has_named(b"", name)
}

/// Does what [`has`] does, for a name in two pieces.
pub fn has_named(prefix: &[u8], name: &[u8]) -> bool {
    let text = sys::map_private(BYTES);
    if text.is_null() {
        return false;
    }
    // SAFETY: mapped just now, and this function's own.
    let bytes = unsafe { core::slice::from_raw_parts_mut(text, BYTES) };
    let found = variables(bytes).is_some_and(|text| both(text, prefix, name));
    // SAFETY: as above; nothing refers to it any more.
    unsafe { sys::unmap(text, BYTES) };
    found
}

/// Reads what the parent was started with.
fn variables(into: &mut [u8]) -> Option<&[u8]> {
    // SAFETY: no memory is involved.
    let parent = unsafe { sys::syscall(libc::SYS_getppid, [0; 6]) };
    let mut path = *b"/proc/0000000000/environ\0";
    let mut left = parent.max(0);
    for digit in path[6..16].iter_mut().rev() {
        *digit = b'0' + (left % 10) as u8;
        left /= 10;
    }
    // The kernel takes no leading zeroes.
    let first = path[6..15]
        .iter()
        .take_while(|&&digit| digit == b'0')
        .count();
    path.copy_within(6 + first.., 6);
    cgroup::read(&path, into)
}

fn both(text: &[u8], prefix: &[u8], name: &[u8]) -> bool {
    let entries = || text.split(|&byte| byte == 0);
    let is_ours = |value: &[u8]| value.windows(LIBRARY.len()).any(|part| part == LIBRARY);
    const LIBRARY: &[u8] = b"libskinflint.so";
    entries().any(|entry| entry.strip_prefix(b"LD_PRELOAD=").is_some_and(is_ours))
        && entries().any(|entry| {
            let rest = entry
                .strip_prefix(prefix)
                .and_then(|rest| rest.strip_prefix(name));
            rest.is_some_and(|rest| rest.first() == Some(&b'='))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_has_a_variable_if_it_has_the_library_too() {
        let name = b"SKINFLINT_X";
        for (text, found) in [
            (
                &b"A=1\0LD_PRELOAD=/x/libskinflint.so:y.so\0SKINFLINT_X=\0"[..],
                true,
            ),
            (b"SKINFLINT_X=3\0LD_PRELOAD=libskinflint.so", true),
            (
                b"LD_PRELOAD=/x/libskinflint_record.so\0SKINFLINT_X=3\0",
                false,
            ),
            (b"SKINFLINT_X=3\0", false),
            (b"LD_PRELOAD=libskinflint.so\0SKINFLINT_XY=3\0", false),
            (b"LD_PRELOAD=libskinflint.so\0NOT_SKINFLINT_X=3\0", false),
            (b"", false),
        ] {
            assert_eq!(both(text, b"", name), found);
            assert_eq!(both(text, b"SKINFLINT_", b"X"), found);
        }
    }

    #[test]
    fn the_parents_own_variables_are_read() {
        let parent = format!("/proc/{}/environ", std::os::unix::process::parent_id());
        let wanted = std::fs::read(parent).expect("the parent is this user's");
        assert!(!wanted.is_empty());
        assert_eq!(variables(&mut vec![0; BYTES]), Some(&wanted[..]));
    }
}
