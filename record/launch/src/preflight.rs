//! Judges a program before it is started: whether `LD_PRELOAD` has an effect on it.
//!
//! ```text
//!   CMD ─► PATH ─► #! ─► #! … ─► ELF: for this machine, dynamically linked, of glibc, not set-user-id ─► or a refusal with reasons
//! ```
//!
//! P1  A refusal names the file, says what would happen and what to do instead.
//! P2  What only the kernel knows how to start (binfmt) is let through.
//!
//! Not here: the list of libraries (preload.rs).

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The machine that the libraries are for: its number in ELF files, and its name.
const OWN: (u16, &str) = if cfg!(target_arch = "aarch64") {
    (183, "aarch64")
} else {
    (62, "x86-64")
};

/// The number of programs that a chain of interpreters in `#!` lines may have.
const INTERPRETERS: usize = 4;

/// The purpose for which the program is started: the words for a refusal.
pub struct Purpose {
    /// The subcommand, for examples.
    subcommand: &'static str,
    /// What is preloaded.
    library: &'static str,
    /// What happens if the loader ignores the library.
    in_vain: &'static str,
    /// What the user wants to do with a program.
    verb: &'static str,
}

/// The program is to be recorded.
pub const RECORD: Purpose = Purpose {
    subcommand: "run",
    library: "recorder",
    in_vain: "nothing would be recorded",
    verb: "record",
};

/// The program is to run on our allocator.
pub const EXEC: Purpose = Purpose {
    subcommand: "exec",
    library: "allocator",
    in_vain: "it would keep its own allocator",
    verb: "run",
};

/// The program is to run on several allocators.
pub const COMPARE: Purpose = Purpose {
    subcommand: "compare",
    library: "allocator",
    in_vain: "it keeps its own allocator",
    verb: "compare",
};

/// A program that there is no use in starting: not there, or not a program. Shells tell the two apart by their status.
#[derive(Debug)]
pub struct Unstartable {
    /// What to say.
    said: String,
    /// 127 if it is not there, else 126.
    pub status: u8,
}

impl Unstartable {
    fn missing(said: String) -> anyhow::Error {
        Self { said, status: 127 }.into()
    }

    fn unfit(said: String) -> anyhow::Error {
        Self { said, status: 126 }.into()
    }

    /// Returns the error of a program that the kernel refused to start.
    pub fn refused(program: &OsStr, error: &io::Error) -> anyhow::Error {
        let said = format!("{}: cannot be started: {error}", program.to_string_lossy());
        match error.kind() {
            io::ErrorKind::NotFound => Self::missing(said),
            _ => Self::unfit(said),
        }
    }
}

impl std::fmt::Display for Unstartable {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(&self.said)
    }
}

impl std::error::Error for Unstartable {}

/// Finds the program and refuses what no library can be preloaded into, saying why and what to do.
///
/// # Errors
/// If there is no such program, or it is not executable, statically linked, 32-bit, set-user-id, not for this
/// machine, or of another C library; or if its loader is not there.
pub fn check(command: &OsStr, purpose: &Purpose) -> Result<PathBuf> {
    let Purpose {
        library,
        in_vain,
        verb,
        ..
    } = purpose;
    let found = find(command, purpose)?;
    let mut path = found.clone();
    for _ in 0..INTERPRETERS {
        match Kind::of(&path).with_context(|| format!("{}: cannot be read", path.display()))? {
            Kind::Script(interpreter) => {
                let what = format!("{}: its interpreter", path.display());
                // As a shell: the script is there, and is no program here.
                path = find(interpreter.as_os_str(), purpose)
                    .map_err(|error| Unstartable::unfit(format!("{what}: {error:#}")))?;
            }
            Kind::Dynamic(loader) => {
                if let Some(loader) = loader {
                    refuse_loader(&path, &loader, purpose)?;
                }
                refuse_setuid(&path, purpose)?;
                return Ok(found);
            }
            Kind::Static => bail!(
                "{}: statically linked, so LD_PRELOAD cannot see it and {in_vain}; \
                 build it with dynamic linking, or {verb} a program that loads libc.so",
                path.display()
            ),
            Kind::Bits32 => bail!(
                "{}: a 32-bit program; the {library} is built for x86-64 and the loader would \
                 ignore it; use a 64-bit build",
                path.display()
            ),
            Kind::Foreign(machine) => bail!(
                "{}: built for another machine (ELF machine {machine}); the {library} is for {}",
                path.display(),
                OWN.1
            ),
            // Whatever the kernel makes of it (binfmt): we let it try.
            Kind::Other => return Ok(found),
        }
    }
    Ok(found)
}

/// Finds a program in the search path.
///
/// # Errors
/// If there is no such program, or it is not executable.
pub fn find(command: &OsStr, purpose: &Purpose) -> Result<PathBuf> {
    let shown = command.to_string_lossy();
    if shown.is_empty() {
        bail!(
            "the program's name is empty; give it after --, as in: skinflint {} -- ls -l",
            purpose.subcommand
        );
    }
    if Path::new(command).components().count() > 1 || shown.contains('/') {
        let path = PathBuf::from(command);
        let meta = fs::metadata(&path).map_err(|error| {
            Unstartable::missing(format!("{shown}: no such program; check the path: {error}"))
        })?;
        if meta.is_dir() {
            return Err(Unstartable::unfit(format!(
                "{shown}: a folder, not a program"
            )));
        }
        if meta.permissions().mode() & 0o111 == 0 {
            return Err(Unstartable::unfit(format!(
                "{shown}: not executable; try: chmod +x {shown}"
            )));
        }
        return Ok(path);
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders)
        .map(|folder| folder.join(command))
        .find(|path| {
            fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
        });
    found.ok_or_else(|| {
        Unstartable::missing(format!(
            "{shown}: no such program in PATH; check the name, or give its path"
        ))
    })
}

/// Reports whether a file that the kernel refused to start is a script without a first line that says of which
/// interpreter: shells, and `execvp`, take it for their own. As in bash, what has a zero in its first line is none.
pub fn is_for_shell(path: &Path, refused: &io::Error) -> bool {
    let is_text = |head: &[u8]| {
        !head
            .split(|byte| *byte == b'\n')
            .next()
            .unwrap_or(head)
            .contains(&0)
    };
    refused.raw_os_error() == Some(libc::ENOEXEC) && head_of(path).is_ok_and(|head| is_text(&head))
}

/// Refuses a program where a recording is wanted, and says how it is run. A name is one if it is no file here.
///
/// # Errors
/// If it is a program.
pub fn refuse_program(path: &Path, subcommand: &str) -> Result<()> {
    let is_program = match head_of(path) {
        Ok(head) => head.starts_with(b"\x7fELF") || head.starts_with(b"#!"),
        // A folder of traces may be called as a program is.
        Err(error) => {
            error.kind() == io::ErrorKind::NotFound && find(path.as_os_str(), &RECORD).is_ok()
        }
    };
    if is_program {
        let shown = path.display();
        bail!("{shown}: a program, not a recording; to run it: skinflint {subcommand} -- {shown}");
    }
    Ok(())
}

/// The kind of a file, as far as preloading is concerned.
#[derive(PartialEq, Eq, Debug)]
enum Kind {
    Script(PathBuf),
    /// With the path of its loader, where that lies in the head.
    Dynamic(Option<PathBuf>),
    Static,
    Bits32,
    Foreign(u16),
    Other,
}

/// Returns the first bytes of a file: its ELF header, the table behind it, and its notes.
fn head_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    File::open(path)?.take(16 << 10).read_to_end(&mut head)?;
    Ok(head)
}

/// Reports whether a program ends by a system call of its own, past libc's `exit` and what is to run there: Go's
/// runtime does, which its linker's note tells of.
pub fn ends_past_libc(path: &Path) -> bool {
    head_of(path).is_ok_and(|head| has_note(&head, b"Go\0\0").unwrap_or(false))
}

/// Reports whether an ELF file has a note of this owner; `None` if its head is damaged.
fn has_note(head: &[u8], owner: &[u8; 4]) -> Option<bool> {
    const PT_NOTE: u32 = 4;
    let bytes = |at: usize, len: usize| head.get(at..at.checked_add(len)?);
    let half = |at: usize| {
        Some(usize::from(u16::from_le_bytes(
            bytes(at, 2)?.try_into().ok()?,
        )))
    };
    let word = |at: usize| Some(u32::from_le_bytes(bytes(at, 4)?.try_into().ok()?));
    let long = |at: usize| {
        let value = u64::from_le_bytes(bytes(at, 8)?.try_into().ok()?);
        usize::try_from(value).ok()
    };
    if !head.starts_with(b"\x7fELF\x02") {
        return Some(false);
    }
    let (table, size, count) = (long(32)?, half(54)?, half(56)?);
    for index in 0..count {
        let entry = table.checked_add(index * size)?;
        if word(entry)? != PT_NOTE {
            continue;
        }
        let (mut at, len) = (long(entry + 8)?, long(entry + 32)?);
        let end = at.checked_add(len)?;
        while at + 12 <= end {
            // A note further into the file is not looked for.
            let Some(name) = bytes(at + 12, 4) else { break };
            if word(at)? == 4 && name == owner {
                return Some(true);
            }
            let padded = |len: u32| (len as usize).next_multiple_of(4);
            at = at.checked_add(12 + padded(word(at)?) + padded(word(at + 4)?))?;
        }
    }
    Some(false)
}

impl Kind {
    fn of(path: &Path) -> io::Result<Kind> {
        Ok(Kind::from_head(&head_of(path)?))
    }

    fn from_head(head: &[u8]) -> Kind {
        if let Some(line) = head.strip_prefix(b"#!") {
            let line = line.split(|&byte| byte == b'\n').next().unwrap_or(line);
            let mut words = line
                .split(|byte| byte.is_ascii_whitespace())
                .filter(|w| !w.is_empty());
            let first = words.next().unwrap_or(b"");
            // `#!/usr/bin/env python3`: the second word counts.
            let by_env = first.ends_with(b"/env");
            let named = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='));
            let interpreter = if by_env {
                named.unwrap_or(first)
            } else {
                first
            };
            return Kind::Script(PathBuf::from(OsStr::from_bytes(interpreter)));
        }
        if !head.starts_with(b"\x7fELF") {
            return Kind::Other;
        }
        Kind::from_elf(head).unwrap_or(Kind::Other)
    }

    fn from_elf(head: &[u8]) -> Option<Kind> {
        const PT_INTERP: u32 = 3;
        let half = |at: usize| Some(u16::from_le_bytes(head.get(at..at + 2)?.try_into().ok()?));
        let word = |at: usize| Some(u32::from_le_bytes(head.get(at..at + 4)?.try_into().ok()?));
        let long = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
        let machine = half(18)?;
        if *head.get(4)? == 1 {
            return Some(Kind::Bits32);
        }
        if machine != OWN.0 {
            return Some(Kind::Foreign(machine));
        }
        let table = usize::try_from(long(32)?).ok()?;
        let (size, count) = (usize::from(half(54)?), usize::from(half(56)?));
        for index in 0..count {
            let entry = table.checked_add(index * size)?;
            if word(entry)? == PT_INTERP {
                let at = usize::try_from(long(entry + 8)?).ok()?;
                let len = usize::try_from(long(entry + 32)?).ok()?;
                let path = at.checked_add(len).and_then(|end| head.get(at..end));
                let path = path.and_then(|path| {
                    let len = path.iter().position(|&byte| byte == 0)?;
                    Some(OsStr::from_bytes(&path[..len]).into())
                });
                return Some(Kind::Dynamic(path));
            }
        }
        Some(Kind::Static)
    }
}

/// Refuses a library that the loader would ignore: the loader prints one line among the program's
/// own, and starts the program all the same.
///
/// # Errors
/// If the file is not readable, is no library, or is not for this machine.
pub fn check_library(path: &Path) -> Result<()> {
    match Kind::of(path).with_context(|| format!("{}: cannot be read", path.display()))? {
        Kind::Static | Kind::Dynamic(_) => Ok(()),
        Kind::Script(_) | Kind::Other => bail!(
            "{}: no library; name libskinflint.so, as built by `cargo build --release`",
            path.display()
        ),
        Kind::Bits32 | Kind::Foreign(_) => bail!(
            "{}: built for another machine; the loader would ignore it. Name one for {}",
            path.display(),
            OWN.1
        ),
    }
}

/// Returns whose loader it is, if it is one of another C library than glibc: such a loader takes our library for one of
/// its own, does not find what only glibc has, and ends the program.
fn other_library(loader: &Path) -> Option<&'static str> {
    const OTHERS: [(&str, &str); 4] = [
        ("ld-musl-", "musl"),
        ("ld-uClibc", "uClibc"),
        ("ld64-uClibc", "uClibc"),
        ("linker64", "Android"),
    ];
    let name = loader.file_name()?.to_str()?;
    let found = OTHERS.iter().find(|(begin, _)| name.starts_with(begin));
    found.map(|(_, library)| *library)
}

fn refuse_loader(path: &Path, loader: &Path, purpose: &Purpose) -> Result<()> {
    if let Some(other) = other_library(loader) {
        bail!(
            "{}: its C library is {other} ({}), which cannot load the {}: that is built for glibc, and the program would \
             not even start; {} a build of it for glibc",
            path.display(),
            loader.display(),
            purpose.library,
            purpose.verb
        );
    }
    if !loader.exists() {
        return Err(Unstartable::missing(format!(
            "{}: its loader {} is not there, so the kernel cannot start it; run it where its C library is installed",
            path.display(),
            loader.display()
        )));
    }
    Ok(())
}

fn refuse_setuid(path: &Path, purpose: &Purpose) -> Result<()> {
    let meta = fs::metadata(path)?;
    // SAFETY: no memory is involved.
    let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
    let changes_user = meta.mode() & libc::S_ISUID != 0 && meta.uid() != uid;
    let changes_group = meta.mode() & libc::S_ISGID != 0 && meta.gid() != gid;
    if changes_user || changes_group {
        bail!(
            "{}: a set-user-id program, for which the loader ignores LD_PRELOAD, so {}; run skinflint \
             as the program's owner ({}), or {} a copy without the bit",
            path.display(),
            purpose.in_vain,
            if changes_user {
                format!("user {}", meta.uid())
            } else {
                format!("group {}", meta.gid())
            },
            purpose.verb
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_name_their_interpreters() {
        let script = |text: &str| Kind::from_head(text.as_bytes());
        assert_eq!(script("#!/bin/sh -e\necho"), Kind::Script("/bin/sh".into()));
        assert_eq!(
            script("#! /usr/bin/env -S A=1 perl -w\n"),
            Kind::Script("perl".into())
        );
        assert_eq!(script("plain text"), Kind::Other);
        assert_eq!(script("\x7fELF"), Kind::Other);
    }

    #[test]
    fn elf_heads() {
        let mut head = vec![0u8; 64 + 56];
        head[..6].copy_from_slice(b"\x7fELF\x02\x01");
        head[18] = OWN.0 as u8;
        head[32] = 64;
        head[54] = 56;
        head[56] = 1;
        head[64] = 1;
        assert_eq!(Kind::from_head(&head), Kind::Static);
        head[64] = 3;
        assert_eq!(Kind::from_head(&head), Kind::Dynamic(None));
        // The loader's path, right behind the table.
        let loader = b"/lib/ld.so\0";
        (head[72], head[96]) = (head.len() as u8, loader.len() as u8);
        head.extend(loader);
        assert_eq!(
            Kind::from_head(&head),
            Kind::Dynamic(Some("/lib/ld.so".into()))
        );
        head.truncate(head.len() - 1);
        assert_eq!(Kind::from_head(&head), Kind::Dynamic(None), "cut off");
        head[18] = 183;
        assert_eq!(Kind::from_head(&head), Kind::Foreign(183));
        head[4] = 1;
        assert_eq!(Kind::from_head(&head), Kind::Bits32);
    }

    #[test]
    fn a_loader_tells_whose_it_is() {
        let whose = |loader: &str| other_library(Path::new(loader));
        assert_eq!(whose("/lib/ld-musl-x86_64.so.1"), Some("musl"));
        assert_eq!(whose("/system/bin/linker64"), Some("Android"));
        assert_eq!(whose("/lib/ld64-uClibc.so.1"), Some("uClibc"));
        for glibc in [
            "/lib64/ld-linux-x86-64.so.2",
            "/lib/ld-linux-aarch64.so.1",
            "/nix/store/0-glibc-2.40/lib/ld-linux-x86-64.so.2",
            "/usr/lib/ld.so",
        ] {
            assert_eq!(whose(glibc), None, "{glibc}");
        }
        let of = |loader: &str| {
            let refused = refuse_loader(Path::new("./app"), Path::new(loader), &EXEC);
            refused.map_err(|error| {
                (
                    format!("{error:#}"),
                    error.downcast_ref().map(|one: &Unstartable| one.status),
                )
            })
        };
        assert!(of("/proc/self/exe").is_ok());
        let (said, status) = of("/lib/ld-musl-x86_64.so.1").unwrap_err();
        assert!(
            said.contains("musl") && said.contains("cannot load the allocator"),
            "{said}"
        );
        assert_eq!(status, None);
        let (said, status) = of("/nowhere/ld-linux-x86-64.so.2").unwrap_err();
        assert!(said.contains("its loader /nowhere/ld-linux"), "{said}");
        assert_eq!(status, Some(127));
    }

    #[test]
    fn a_note_of_gos_linker_is_found_behind_another() {
        let mut head = vec![0u8; 64 + 2 * 56];
        head[..6].copy_from_slice(b"\x7fELF\x02\x01");
        head[32] = 64;
        head[54] = 56;
        head[56] = 2;
        // The second segment has the notes, right behind the table.
        let (entry, at) = (64 + 56, head.len() as u8);
        head[entry] = 4;
        head[entry + 8] = at;
        head[entry + 32] = 64;
        let note = |owner: &[u8; 4], text: &[u8; 12]| {
            let mut note = vec![4, 0, 0, 0, 10, 0, 0, 0, 4, 0, 0, 0];
            note.extend(owner);
            note.extend(text);
            note
        };
        let is_go = |owner: &[u8; 4]| {
            let mut head = head.clone();
            head.extend(note(b"GNU\0", b"0123456789\0\0"));
            head.extend(note(owner, b"abcdefghij\0\0"));
            has_note(&head, b"Go\0\0")
        };
        assert_eq!(
            (is_go(b"Go\0\0"), is_go(b"GNU\0")),
            (Some(true), Some(false))
        );
        // Notes beyond what was read, no program at all, and a table that is not there.
        assert_eq!(has_note(&head, b"Go\0\0"), Some(false));
        assert_eq!(has_note(b"#!/bin/sh", b"Go\0\0"), Some(false));
        assert_eq!(has_note(&head[..70], b"Go\0\0"), None);
    }

    #[test]
    fn a_name_is_found_in_path_and_a_wrong_one_says_what_to_do() {
        assert!(check(OsStr::new("sh"), &RECORD).is_ok());
        let error = check(OsStr::new("no-such-program-here"), &RECORD).expect_err("not there");
        assert!(format!("{error:#}").contains("check the name"));
        let error = check(OsStr::new("/etc/passwd"), &RECORD).expect_err("not executable");
        assert!(format!("{error:#}").contains("chmod +x"));
        let error = check(OsStr::new("/etc/"), &RECORD).expect_err("a folder");
        assert!(format!("{error:#}").contains("folder"));
    }
}
