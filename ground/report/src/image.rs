//! The end of a file's image in memory: its variables that begin as zeros have no bytes in the file.
//!
//! ```text
//!   7f00 r--p 0000 libx.so ─┐ base                 program headers: … LOAD vaddr, memsz ─► end of .bss
//!   7f08 rw-p 8000 libx.so  ├─ one file                                                      │
//!   7f09 rw-p      (no name)┘ .bss, if it ends no later than the headers say ◄───────────────┘
//! ```
//!
//! J1  A mapping without a name is an image's only if it begins where the file's own mapping ends, and ends no later than
//!     the image does by the file's headers. One that the kernel has merged with another mapping is left as it is: its
//!     owner cannot be known.
//! J2  Nothing here allocates; a file that cannot be read, or is not an ELF file, has no image.
//!
//! Not here: which mappings there are (`process`).

use std::ffi::CStr;
use std::fmt::Write as _;

use skinflint_base::sys;

use crate::short::Text;

const PAGE: u64 = 4096;
const LOAD: u32 = 1;

/// The file that was mapped last.
pub(crate) struct Image {
    name: Text<1024>,
    /// The address of its first byte.
    base: u64,
    /// The end of its last mapping, if variables may follow; else 0.
    end: u64,
}

impl Image {
    pub(crate) fn new() -> Image {
        Image {
            name: Text::new(),
            base: 0,
            end: 0,
        }
    }

    /// Notes a mapping of a file.
    pub(crate) fn file(
        &mut self,
        name: &Text<1024>,
        range: (u64, u64),
        offset: u64,
        is_data: bool,
    ) {
        if self.name.str() != name.str() || offset == 0 {
            self.name = Text::of(format_args!("{}", name.str()));
            self.base = if offset == 0 { range.0 } else { 0 };
        }
        self.end = if is_data { range.1 } else { 0 };
    }

    /// Returns the file whose variables lie in this mapping without a name (J1).
    pub(crate) fn of_bss(&self, pid: u32, range: (u64, u64)) -> Option<&str> {
        if self.end == 0 || self.base == 0 || range.0 != self.end {
            return None;
        }
        let mut path: Text<1100> = match pid {
            0 => Text::of(format_args!("/proc/self/root")),
            pid => Text::of(format_args!("/proc/{pid}/root")),
        };
        for c in self.name.str().chars() {
            // A slash is a backslash in a report's path. Never fails: what does not fit is cut.
            let _ = path.write_char(if c == '\\' { '/' } else { c });
        }
        let end = image_end(&path, self.base)?;
        (range.1 <= end).then(|| self.name.str())
    }
}

/// Returns the end of an image that begins at `base`.
fn image_end(path: &Text<1100>, base: u64) -> Option<u64> {
    let path = CStr::from_bytes_until_nul(path.bytes()).ok()?;
    let fd = sys::open_to_read(path);
    if sys::is_error(fd) {
        return None;
    }
    let mut head = [0; 4096];
    let read = sys::read(fd as i32, &mut head);
    sys::close(fd as i32);
    if sys::is_error(read) {
        return None;
    }
    end_by_headers(head.get(..read as usize)?, base)
}

fn number<const N: usize>(head: &[u8], at: usize) -> Option<[u8; N]> {
    head.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// Returns the end of an image by the program headers of its ELF file of 64 bits.
fn end_by_headers(head: &[u8], base: u64) -> Option<u64> {
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let first = usize::try_from(u64::from_le_bytes(number(head, 0x20)?)).ok()?;
    let size = usize::from(u16::from_le_bytes(number(head, 0x36)?));
    let count = usize::from(u16::from_le_bytes(number(head, 0x38)?));
    let mut lowest = None;
    let mut end = None;
    for at in (0..count).map(|n| first.checked_add(n.checked_mul(size)?)) {
        let at = at?;
        if u32::from_le_bytes(number(head, at)?) != LOAD {
            continue;
        }
        let vaddr = u64::from_le_bytes(number(head, at.checked_add(16)?)?);
        let bytes = u64::from_le_bytes(number(head, at.checked_add(40)?)?);
        lowest.get_or_insert(vaddr / PAGE * PAGE);
        end = Some(vaddr.checked_add(bytes)?.checked_next_multiple_of(PAGE)?);
    }
    base.checked_sub(lowest?)?.checked_add(end?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a file of two segments: 0x1000 bytes at `vaddr`, and `memsz` bytes at 0x3e10 after it.
    fn elf(vaddr: u64, memsz: u64) -> Vec<u8> {
        let mut head = vec![0u8; 64 + 2 * 56];
        head[..6].copy_from_slice(b"\x7fELF\x02\x01");
        head[0x20] = 64;
        head[0x36] = 56;
        head[0x38] = 2;
        for (n, vaddr, memsz) in [(0, vaddr, 0x1000), (1, vaddr + 0x3e10, memsz)] {
            let at = 64 + n * 56;
            head[at] = 1;
            head[at + 16..at + 24].copy_from_slice(&u64::to_le_bytes(vaddr));
            head[at + 40..at + 48].copy_from_slice(&u64::to_le_bytes(memsz));
        }
        head
    }

    #[test]
    fn where_an_image_ends() {
        // 0x3e10 + 0x2000 is 0x5e10, up to the page's end.
        assert_eq!(
            end_by_headers(&elf(0, 0x2000), 0x7f00_0000),
            Some(0x7f00_6000)
        );
        // An image that is not moved begins where its headers say.
        let fixed = elf(0x40_0000, 0x2000);
        assert_eq!(end_by_headers(&fixed, 0x40_0000), Some(0x40_6000));
        for cut in 0..fixed.len() {
            // It never panics, and there is no end before all headers are there.
            let found = end_by_headers(&fixed[..cut], 0x40_0000);
            assert!(found.is_none() || cut >= fixed.len() - 8, "{cut}");
        }
        assert_eq!(end_by_headers(&elf(0, u64::MAX), 1 << 40), None);
        assert_eq!(end_by_headers(b"#!/bin/sh\n", 0), None);
    }

    #[test]
    fn variables_are_the_files_only_where_its_headers_say_so() {
        let lines = std::fs::read_to_string("/proc/self/maps").expect("it");
        // This program's own file: its first mapping, and any end that its headers allow.
        let first = lines.lines().next().expect("a mapping");
        let base = u64::from_str_radix(first.split('-').next().unwrap_or(""), 16).expect("hex");
        let exe = std::env::current_exe().expect("it has a path");
        let name: Text<1024> = Text::of(format_args!(
            "{}",
            exe.display().to_string().replace('/', "\\")
        ));
        let mut image = Image::new();
        image.file(&name, (base, base + PAGE), 0, false);
        image.file(&name, (base + PAGE, base + 2 * PAGE), PAGE, true);
        let from = base + 2 * PAGE;
        assert_eq!(image.of_bss(0, (from, from + PAGE)), Some(name.str()));
        assert_eq!(image.of_bss(0, (from, from + (1 << 40))), None);
        assert_eq!(image.of_bss(0, (from + PAGE, from + 2 * PAGE)), None);
        image.file(&name, (base + PAGE, base + 2 * PAGE), PAGE, false);
        assert_eq!(image.of_bss(0, (from, from + PAGE)), None);
    }
}
