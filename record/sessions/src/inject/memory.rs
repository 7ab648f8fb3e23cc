//! The memory of another process, by `/proc/PID/mem`: no stop is needed, only the rights of a debugger.
//!
//! Y1  Addresses and lengths that were read there are believed in nothing: a read that leads nowhere is `None`, and no
//!     more than [`MOST_BYTES`] are read at a time.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

/// The most that is read at a time: the tables of the largest programs.
const MOST_BYTES: u64 = 256 << 20;

/// The memory of a process.
pub(super) struct Memory(File);

impl Memory {
    /// Opens it.
    ///
    /// # Errors
    /// The kernel's: mostly that this user may not.
    pub(super) fn open(pid: u32) -> io::Result<Memory> {
        let path = format!("/proc/{pid}/mem");
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Memory(file))
    }

    pub(super) fn bytes(&self, at: u64, len: u64) -> Option<Vec<u8>> {
        if len > MOST_BYTES {
            return None;
        }
        let mut bytes = vec![0; len as usize];
        self.0.read_exact_at(&mut bytes, at).ok()?;
        Some(bytes)
    }

    pub(super) fn array<const N: usize>(&self, at: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.0.read_exact_at(&mut bytes, at).ok()?;
        Some(bytes)
    }

    pub(super) fn word(&self, at: u64) -> Option<u64> {
        self.array(at).map(u64::from_le_bytes)
    }

    /// Reads a C string, cut after 4 KiB.
    pub(super) fn text(&self, at: u64) -> Option<String> {
        let mut bytes = vec![0; 4096];
        let got = self.0.read_at(&mut bytes, at).ok().filter(|got| *got > 0);
        // A page that is not there may follow: then less is read, or, of a string that ends before, nothing at all.
        let got = match got {
            Some(got) => got,
            None => {
                let rest = 4096 - (at as usize & 4095);
                self.0.read_at(&mut bytes[..rest], at).ok()?
            }
        };
        let len = bytes[..got].iter().position(|byte| *byte == 0)?;
        Some(String::from_utf8_lossy(&bytes[..len]).into_owned())
    }

    pub(super) fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, at)
    }
}
