//! Names of the allocator beneath the recorder: `glibc 2.36`, `libjemalloc.so.2`, `jemalloc (libserver.so)`.
//!
//! ```text
//!   libc.so.6 ──────────────────────────────► glibc and its version
//!   a file that is named after an allocator ─► the file's name, links followed
//!   another file ─► .dynsym: mallctl? ───────► jemalloc (the file's name)
//! ```
//!
//! A1  A program or library may carry an allocator inside: what the file that has `malloc` exports of the allocator's own
//!     interface tells which. Only symbols that it defines count, not those that it calls.
//! A2  Nothing of a file is believed (elf.E1): what makes no sense names nothing.
//!
//! Cost: two sections of one file are read, for a process whose allocator's file has another name. Not here: which file
//! that is (record-so says it).

use std::path::Path;

use crate::elf::{self, Elf};

/// Parts of the names of files that need not be read.
const NAMED: [&str; 4] = ["jemalloc", "mimalloc", "tcmalloc", "skinflint"];

/// Returns the allocator's name. `path` is the file that has its `malloc`, as the process sees it.
pub fn name(pid: u32, path: &str, libc_version: &str) -> String {
    let file = Path::new(path);
    let name = |path: &Path| path.file_name().map(|n| n.to_string_lossy().into_owned());
    let given = match name(file) {
        Some(libc) if libc == "libc.so.6" => return format!("glibc {libc_version}"),
        Some(given) => given,
        None => return String::new(),
    };
    let real = std::fs::canonicalize(file).ok().and_then(|p| name(&p));
    let shown = real.unwrap_or(given);
    if NAMED.iter().any(|one| shown.contains(one)) {
        return shown;
    }
    // The loader keeps the name that it was given, which may be relative.
    let place = match path.starts_with('/') {
        true => format!("/proc/{pid}/root{path}"),
        false => format!("/proc/{pid}/cwd/{path}"),
    };
    match inside(Path::new(&place)) {
        Some(allocator) => format!("{allocator} ({shown})"),
        None => shown,
    }
}

/// Returns the allocator that a file carries, by what it exports (A1).
fn inside(file: &Path) -> Option<&'static str> {
    let table = Elf::open(file)?.table(elf::DYNSYM)?;
    let mut symbols = table.symbols();
    symbols.find_map(|symbol| symbol.is_defined.then(|| of_symbol(symbol.name)).flatten())
}

/// Returns the allocator whose own interface has this function.
fn of_symbol(name: &[u8]) -> Option<&'static str> {
    match name {
        b"mallctl" | b"je_mallctl" | b"_rjem_mallctl" => Some("jemalloc"),
        b"mi_version" => Some("mimalloc"),
        b"tc_version" | b"_ZN15MallocExtension8instanceEv" => Some("tcmalloc"),
        // Google's newer one has the class in a namespace.
        _ if name.starts_with(b"_ZN8tcmalloc15MallocExtension") => Some("tcmalloc"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYMBOL_BYTES: usize = 24;

    /// Returns a file with the tables of dynamic symbols that a linker writes: names, and whether each is defined.
    fn object(symbols: &[(&str, bool)]) -> Vec<u8> {
        let (mut table, mut names) = (vec![0u8; SYMBOL_BYTES], vec![0u8]);
        for (name, is_defined) in symbols {
            let mut symbol = [0u8; SYMBOL_BYTES];
            symbol[..4].copy_from_slice(&(names.len() as u32).to_le_bytes());
            symbol[6] = u8::from(*is_defined);
            table.extend(symbol);
            names.extend(name.bytes().chain([0]));
        }
        let mut file = vec![0u8; 64];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        let mut sections = vec![0u8; 64];
        for (kind, contents) in [(11u32, table), (3, names)] {
            let mut section = [0u8; 64];
            section[4..8].copy_from_slice(&kind.to_le_bytes());
            section[24..32].copy_from_slice(&(file.len() as u64).to_le_bytes());
            section[32..40].copy_from_slice(&(contents.len() as u64).to_le_bytes());
            section[40] = 2;
            sections.extend(section);
            file.extend(contents);
        }
        let table = (file.len() as u64).to_le_bytes();
        file[40..48].copy_from_slice(&table);
        file[60] = 3;
        file.extend(sections);
        file
    }

    fn named(file_name: &str, contents: &[u8]) -> String {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(file_name);
        std::fs::write(&path, contents).expect("written");
        name(std::process::id(), &path.to_string_lossy(), "2.36")
    }

    #[test]
    fn an_allocator_inside_another_file_is_named_by_what_the_file_exports() {
        for (symbol, is) in [
            ("mallctl", "jemalloc"),
            ("mi_version", "mimalloc"),
            ("tc_version", "tcmalloc"),
            ("_ZN15MallocExtension8instanceEv", "tcmalloc"),
            (
                "_ZN8tcmalloc15MallocExtension19ReleaseMemoryToSystemEm",
                "tcmalloc",
            ),
        ] {
            let file = object(&[("malloc", true), (symbol, true)]);
            assert_eq!(
                named("libserver.so.3", &file),
                format!("{is} (libserver.so.3)")
            );
            let calls = object(&[("malloc", true), (symbol, false)]);
            assert_eq!(
                named("libserver.so.3", &calls),
                "libserver.so.3",
                "{symbol}"
            );
        }
        let other = object(&[("malloc", true), ("mallctl_of_ours", true)]);
        assert_eq!(named("server", &other), "server");
    }

    #[test]
    fn a_file_that_has_an_allocators_name_keeps_it() {
        let file = object(&[("malloc", true), ("mallctl", true)]);
        assert_eq!(named("libjemalloc.so.2", &file), "libjemalloc.so.2");
        assert_eq!(named("libc.so.6", &file), "glibc 2.36");
        assert_eq!(name(1, "", "2.36"), "");
        assert_eq!(name(1, "/no/such/file.so", "2.36"), "file.so");
    }

    /// The working folder of a test is the crate's.
    #[test]
    fn a_relative_name_is_found_from_the_processs_folder() {
        let folder = tempfile::tempdir_in(".").expect("a folder");
        let path = folder.path().join("server.so");
        std::fs::write(&path, object(&[("mallctl", true)])).expect("written");
        let own = std::env::current_dir().expect("a folder");
        let relative = path.strip_prefix(own).unwrap_or(&path).to_string_lossy();
        assert!(!relative.starts_with('/'), "{relative}");
        let name = name(std::process::id(), &relative, "2.36");
        assert_eq!(name, "jemalloc (server.so)");
    }

    #[test]
    fn a_damaged_file_names_nothing() {
        let file = object(&[("malloc", true), ("mallctl", true)]);
        for bytes in 0..file.len() {
            assert_eq!(named("x", &file[..bytes]), "x", "cut at {bytes}");
        }
        for at in 0..file.len() {
            let mut broken = file.clone();
            broken[at] ^= 0xff;
            let name = named("x", &broken);
            assert!(name == "x" || name == "jemalloc (x)", "byte {at}: {name}");
        }
    }
}
