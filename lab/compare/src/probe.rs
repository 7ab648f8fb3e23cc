//! The check round: did the preloaded allocator really serve? Calls are counted, nothing is assumed.
//!
//! ```text
//!   Counter::new ─► file ─► run with LD_PRELOAD=probe:allocator ─► slots ─► Check { calls, processes, served_by }
//! ```
//!
//! K1  What a process wrote into the file is data: lengths are checked, an invalid slot is not counted.
//! K2  Calls of all processes are added up; the allocator must have served some, and no other library any.
//!
//! Not here: counting (crate `probe-so`), the layout (`base::probe`).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use skinflint_base::probe::{FILE_BYTES, PATH_BYTES, SLOTS};

use crate::model::{Allocator, Check};

/// The file of one check.
pub struct Counter {
    path: PathBuf,
}

/// The counts of one process image.
#[derive(Debug, PartialEq, Eq)]
struct Counted {
    pid: u32,
    calls: u64,
    server: String,
}

impl Counter {
    /// Creates a fresh file in a folder.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn new(folder: &Path) -> io::Result<Counter> {
        let path = folder.join("counted");
        fs::write(&path, vec![0u8; FILE_BYTES])?;
        Ok(Counter { path })
    }

    /// Returns the value for `SKINFLINT_PROBE`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file. `pid` is the program that was started.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(&self, pid: u32) -> io::Result<Finding> {
        let bytes = fs::read(&self.path)?;
        Ok(Finding::of(&parse(&bytes), pid))
    }
}

fn parse(bytes: &[u8]) -> Vec<Counted> {
    let word = |at: usize| -> Option<u32> {
        Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
    };
    let used = (word(0).unwrap_or(0) as usize).min(SLOTS);
    let slot = |index: usize| -> Option<Counted> {
        let at = 8 + index * 256;
        let length = (word(at + 4)? as usize).min(PATH_BYTES);
        let calls = u64::from_le_bytes(bytes.get(at + 8..at + 16)?.try_into().ok()?);
        let path = bytes.get(at + 24..at + 24 + length)?;
        Some(Counted {
            pid: word(at)?,
            calls,
            server: String::from_utf8_lossy(path).into_owned(),
        })
    };
    (0..used).filter_map(slot).collect()
}

/// The result of a check.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    /// The counts for the report.
    pub check: Check,
    /// Whether the probe was loaded into the program that was started.
    pub root_loaded: bool,
    /// Calls that each file served, the largest number first.
    by_server: Vec<(String, u64)>,
}

impl Finding {
    fn of(counted: &[Counted], pid: u32) -> Finding {
        let mut by_server: Vec<(String, u64)> = Vec::new();
        for one in counted {
            match by_server.iter_mut().find(|(name, _)| *name == one.server) {
                Some((_, calls)) => *calls = calls.saturating_add(one.calls),
                None => by_server.push((one.server.clone(), one.calls)),
            }
        }
        by_server.sort_by_key(|(_, calls)| std::cmp::Reverse(*calls));
        let served_by = by_server.first().map(|(name, _)| name.clone());
        Finding {
            check: Check {
                calls: by_server.iter().map(|(_, calls)| calls).sum(),
                processes: counted.len() as u64,
                served_by: served_by.unwrap_or_default(),
            },
            root_loaded: counted.iter().any(|one| one.pid == pid),
            by_server,
        }
    }

    /// Returns why the preload had no effect; `None` if it had one (K2).
    pub fn in_vain(&self, allocator: &Allocator) -> Option<String> {
        let wanted = allocator.library.as_deref()?;
        if self.check.processes == 0 {
            return Some(
                "the loader ignored it: a statically linked, set-user-id or 32-bit program".into(),
            );
        }
        let others = self
            .by_server
            .iter()
            .filter(|(name, calls)| *calls > 0 && !is_same(name, wanted));
        if let Some((name, calls)) = others.into_iter().next() {
            return Some(format!("{calls} calls were served by {name}"));
        }
        let served: u64 = self.by_server.iter().map(|(_, calls)| calls).sum();
        if served == 0 {
            return Some(
                "no call came: the program has an allocator inside, or allocates nothing".into(),
            );
        }
        None
    }
}

/// Reports whether the loader's name of a file is the library that was preloaded.
fn is_same(loaded: &str, wanted: &str) -> bool {
    if wanted.contains('/') {
        let real = |path: &str| fs::canonicalize(path).unwrap_or_else(|_| path.into());
        real(loaded) == real(wanted)
    } else {
        Path::new(loaded).file_name() == Some(wanted.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn allocator(library: &str) -> Allocator {
        Allocator {
            name: "x".into(),
            version: "1".into(),
            library: Some(library.into()),
            source: String::new(),
            environment: BTreeMap::new(),
        }
    }

    fn counted(pid: u32, calls: u64, server: &str) -> Counted {
        Counted {
            pid,
            calls,
            server: server.into(),
        }
    }

    #[test]
    fn only_calls_that_it_served_prove_an_allocator() {
        let all = [counted(7, 10, "/l/libx.so"), counted(8, 5, "/l/libx.so")];
        let found = Finding::of(&all, 7);
        assert_eq!(found.in_vain(&allocator("/l/libx.so")), None);
        assert!(found.root_loaded && !Finding::of(&all, 9).root_loaded);
        assert_eq!((found.check.calls, found.check.processes), (15, 2));
        let other = found.in_vain(&allocator("/l/liby.so")).expect("in vain");
        assert!(
            other.contains("15 calls were served by /l/libx.so"),
            "{other}"
        );
        let mixed = [counted(7, 10, "/l/libx.so"), counted(8, 1, "libc.so.6")];
        assert!(
            Finding::of(&mixed, 7)
                .in_vain(&allocator("/l/libx.so"))
                .is_some()
        );
        let silent = [counted(7, 0, "/l/libx.so")];
        let said = Finding::of(&silent, 7).in_vain(&allocator("/l/libx.so"));
        assert!(said.expect("in vain").contains("no call came"));
        let ignored = Finding::of(&[], 7).in_vain(&allocator("/l/libx.so"));
        assert!(ignored.expect("in vain").contains("ignored"));
    }

    #[test]
    fn glibc_is_known_by_its_file_name() {
        let found = Finding::of(&[counted(7, 1, "/lib/x86_64-linux-gnu/libc.so.6")], 7);
        assert_eq!(found.in_vain(&allocator("libc.so.6")), None);
    }

    #[test]
    fn any_bytes_are_read() {
        let mut bytes = vec![0xff_u8; FILE_BYTES];
        assert_eq!(parse(&bytes).len(), SLOTS);
        bytes.truncate(FILE_BYTES - 100);
        assert_eq!(parse(&bytes).len(), SLOTS - 1);
        assert!(parse(&[]).is_empty());
        let mut good = vec![0_u8; FILE_BYTES];
        good[0] = 1;
        good[8] = 42;
        good[12] = 3;
        good[16] = 9;
        good[32..35].copy_from_slice(b"/a/");
        assert_eq!(parse(&good), [counted(42, 9, "/a/")]);
    }
}
