//! The kernel's view of a process: every resident byte by what it is, and the usual sums.
//!
//! ```text
//!   /proc/PID/smaps ─► resident-by-kind/{heap, stacks, files, shared, anonymous, kernel}/…      = resident
//!                   ─► resident, pss, resident-unique, swap      /proc/PID/stat ─► vsize, page faults
//! ```
//!
//! K1  `resident-by-kind` adds up to `resident` to the byte: both are sums of `Rss` over one reading.
//! K2  The allocator's own figures replace the same number of bytes of anonymous mappings, and not one more.
//! K3  Nothing here allocates: files are read through a buffer on the stack (registry.R1).
//! K4  A process that ends while it is read is an error; it is never reported with too little memory.
//! K5  Variables of a file that begin as zeros (.bss) lie in a mapping without a name, and count to the file's row if
//!     it is certain that they are the file's (`image`).
//!
//! The kernel does not say which anonymous memory is a stack: a mapping after a guard of exactly one page is taken for
//! a thread's stack, as glibc makes them, up to the number of threads. Cost: a tenth of a millisecond for 100 mappings.
//! Not here: the allocator's rows (`heap`).

use std::ffi::CStr;
use std::fmt::{self, Write as _};

use skinflint_base::sys;

use crate::entry::{Entry, Kind, LONGEST, Units};
use crate::heap::Resident;
use crate::image::Image;
use crate::short::Text;
use crate::store::Store;

const PAGE: u64 = 4096;

/// Why there are no figures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoFigures {
    /// There is no such process, or there is none any more.
    Gone,
    /// The kernel refuses: the process is another user's, or protected.
    Forbidden,
    /// It has no memory of its own: a kernel thread, or one that has ended and was not waited for.
    Empty,
    /// There is no such control group, or there is none any more.
    NoGroup,
    /// The system refused otherwise, with this error number.
    Other(i32),
}

impl fmt::Display for NoFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoFigures::Gone => f.write_str("no such process (any more)"),
            NoFigures::NoGroup => f.write_str("no such control group (any more)"),
            // SAFETY: no memory is involved.
            NoFigures::Forbidden if unsafe { libc::geteuid() } == 0 => f.write_str(
                "the kernel refuses to show its /proc files, also to root: this root lacks CAP_SYS_PTRACE over it \
                 (a container, a namespace, a security module)",
            ),
            NoFigures::Forbidden => f.write_str(
                "the kernel refuses to show its /proc files: it belongs to another user, or is protected against its \
                 own user; ask as its user, or as root",
            ),
            NoFigures::Empty => f.write_str(
                "it has no memory of its own: a kernel thread, or a process that has ended",
            ),
            NoFigures::Other(error) => write!(f, "its /proc files cannot be read: error {error}"),
        }
    }
}

impl std::error::Error for NoFigures {}

/// A file of `/proc`, line by line.
struct Lines {
    fd: i32,
    buffer: [u8; 16 << 10],
    begin: usize,
    end: usize,
    error: Option<i32>,
}

impl Drop for Lines {
    fn drop(&mut self) {
        sys::close(self.fd);
    }
}

impl Lines {
    fn open(pid: u32, file: &str) -> Result<Lines, NoFigures> {
        let mut path: Text<64> = match pid {
            0 => Text::of(format_args!("/proc/self/{file}")),
            pid => Text::of(format_args!("/proc/{pid}/{file}")),
        };
        path.used = path.used.min(63);
        let path = CStr::from_bytes_until_nul(&path.bytes).unwrap_or(c"/");
        let fd = sys::open_to_read(path);
        match fd {
            fd if !sys::is_error(fd) => Ok(Lines {
                fd: fd as i32,
                buffer: [0; 16 << 10],
                begin: 0,
                end: 0,
                error: None,
            }),
            error => Err(of_error(-error as i32)),
        }
    }

    /// Returns the next line without its end; a line longer than the buffer comes in parts.
    fn next(&mut self) -> Option<&[u8]> {
        loop {
            let here = &self.buffer[self.begin..self.end];
            if let Some(at) = here.iter().position(|&byte| byte == b'\n') {
                let begin = self.begin;
                self.begin += at + 1;
                return Some(&self.buffer[begin..begin + at]);
            }
            self.buffer.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end - self.begin);
            if self.end == self.buffer.len() {
                self.begin = self.end;
                return Some(&self.buffer[..self.end]);
            }
            match sys::read(self.fd, &mut self.buffer[self.end..]) {
                0 if self.end == 0 => return None,
                0 => {
                    self.begin = self.end;
                    return Some(&self.buffer[..self.end]);
                }
                error if sys::is_error(error) => {
                    self.error = Some(-error as i32);
                    return None;
                }
                bytes => self.end += bytes as usize,
            }
        }
    }
}

fn of_error(error: i32) -> NoFigures {
    match error {
        libc::ENOENT | libc::ESRCH => NoFigures::Gone,
        libc::EACCES | libc::EPERM => NoFigures::Forbidden,
        error => NoFigures::Other(error),
    }
}

fn number(text: &str) -> u64 {
    let digits = text.trim_start();
    let end = digits
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(digits.len());
    digits[..end].parse().unwrap_or(0)
}

/// A mapping of `smaps`; all sizes are in bytes.
struct Mapping {
    start: u64,
    end: u64,
    perms: [u8; 4],
    offset: u64,
    name: Text<1024>,
    rss: u64,
    pss: u64,
    merged: u64,
    private: u64,
    swap: u64,
    anonymous: u64,
}

impl Mapping {
    /// Reads the first line of a mapping: `start-end perms offset device inode name`.
    fn head(line: &str) -> Option<Mapping> {
        let (start, rest) = line.split_once('-')?;
        let (end, rest) = rest.split_once(' ')?;
        let perms = rest.as_bytes().get(..4)?.try_into().ok()?;
        let offset = rest.split(' ').nth(1)?;
        // The name comes after four more fields, and may hold spaces.
        let mut name = rest;
        for _ in 0..4 {
            name = name.split_once(' ').map_or("", |(_, rest)| rest);
        }
        Some(Mapping {
            start: u64::from_str_radix(start, 16).ok()?,
            end: u64::from_str_radix(end, 16).ok()?,
            perms,
            offset: u64::from_str_radix(offset, 16).ok()?,
            name: Text::of(format_args!("{}", Plain(name.trim()))),
            rss: 0,
            pss: 0,
            merged: 0,
            private: 0,
            swap: 0,
            anonymous: 0,
        })
    }

    fn field(&mut self, line: &str) {
        let Some((field, value)) = line.split_once(':') else {
            return;
        };
        let to = match field {
            "Rss" => &mut self.rss,
            "Pss" => &mut self.pss,
            "KSM" => &mut self.merged,
            "Private_Clean" | "Private_Dirty" => &mut self.private,
            "Swap" => &mut self.swap,
            "Anonymous" => &mut self.anonymous,
            _ => return,
        };
        *to += number(value) * 1024;
    }
}

/// A name as one component of a path, without allocating.
struct Plain<'a>(&'a str);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| {
            f.write_char(match c {
                '/' => '\\',
                c if c.is_control() => ' ',
                c => c,
            })
        })
    }
}

/// Sums over all mappings.
#[derive(Clone, Copy, Default)]
struct Sums {
    rss: u64,
    pss: u64,
    merged: u64,
    private: u64,
    swap: u64,
    anonymous: u64,
    stacks: u64,
}

/// Adds what the kernel reports about a process (0: this one), and the rows of its allocator, if they are known.
///
/// # Errors
/// K4.
pub fn of(
    pid: u32,
    process: &str,
    allocator: Option<&Resident>,
    store: &mut Store,
) -> Result<(), NoFigures> {
    let mark = store.mark();
    let done = try_of(pid, process, allocator, store);
    if done.is_err() {
        store.cut(mark);
    }
    done
}

fn try_of(
    pid: u32,
    process: &str,
    allocator: Option<&Resident>,
    store: &mut Store,
) -> Result<(), NoFigures> {
    let mut out = Out { store, process };
    let facts = Facts::read(pid)?;
    let mut lines = Lines::open(pid, "smaps")?;
    let mut sums = Sums::default();
    let mut before: Option<(u64, u64, [u8; 4])> = None;
    let mut mapping: Option<Mapping> = None;
    let mut image = Image::new();
    let mut stacks_left = facts.threads.saturating_sub(1);
    loop {
        let line = lines.next();
        let line = line.map(|line| std::str::from_utf8(line).unwrap_or(""));
        let head = line.and_then(Mapping::head);
        if (head.is_some() || line.is_none())
            && let Some(done) = mapping.take()
        {
            let stack = stacks_left > 0 && is_stack(before, &done);
            stacks_left -= u64::from(stack);
            let range = (done.start, done.end);
            let is_data = done.perms == *b"rw-p";
            let bss_of = match done.name.used == 0 && is_data && !stack {
                true => image.of_bss(pid, range),
                false => None,
            };
            out.mapping(&done, (stack, bss_of), &mut sums);
            if done.name.str().starts_with('\\') {
                image.file(&done.name, range, done.offset, is_data);
            }
            before = Some((done.start, done.end, done.perms));
        }
        match (line, head) {
            (None, _) => break,
            (_, Some(head)) => mapping = Some(head),
            (Some(line), None) => {
                if let Some(mapping) = &mut mapping {
                    mapping.field(line);
                }
            }
        }
    }
    if let Some(error) = lines.error {
        return Err(of_error(error));
    }
    if before.is_none() {
        return Err(NoFigures::Empty);
    }
    out.rest(&sums, &facts, allocator);
    Ok(())
}

/// Returns whether a mapping is a thread's stack, by the guard page beneath it.
fn is_stack(before: Option<(u64, u64, [u8; 4])>, mapping: &Mapping) -> bool {
    mapping.name.used == 0
        && mapping.perms == *b"rw-p"
        && mapping.end - mapping.start >= 4 * PAGE
        && before.is_some_and(|(start, end, perms)| {
            end == mapping.start && end - start == PAGE && perms == *b"---p"
        })
}

struct Out<'a> {
    store: &'a mut Store,
    process: &'a str,
}

impl Out<'_> {
    fn line(&mut self, path: &str, kind: Kind, units: Units, amount: u64, description: &str) {
        // If there is no memory for the line, it is missing, as the whole report would be.
        let _ = self.store.push(&Entry {
            process: self.process,
            path,
            kind,
            units,
            amount: i64::try_from(amount).unwrap_or(i64::MAX),
            description,
        });
    }

    fn resident(&mut self, path: fmt::Arguments<'_>, bytes: u64) {
        if bytes > 0 {
            let path: Text<LONGEST> = Text::of(format_args!("resident-by-kind/{path}"));
            let said = "Resident memory by what it is; the parts add up to resident.";
            self.line(path.str(), Kind::Other, Units::Bytes, bytes, said);
        }
    }

    /// Adds a mapping. `what`: whether it is a thread's stack, and the file whose variables it holds.
    fn mapping(&mut self, mapping: &Mapping, what: (bool, Option<&str>), sums: &mut Sums) {
        let (is_stack, bss_of) = what;
        sums.rss += mapping.rss;
        sums.pss += mapping.pss;
        sums.merged += mapping.merged;
        sums.private += mapping.private;
        sums.swap += mapping.swap;
        let name = mapping.name.str();
        let shared = mapping.perms[3] == b's';
        let rss = mapping.rss;
        match name {
            "" if is_stack => {
                sums.stacks += rss;
                self.resident(format_args!("stacks/threads"), rss);
            }
            "" if shared => self.resident(format_args!("shared/anonymous"), rss),
            "" if bss_of.is_some() => {
                let file = bss_of.unwrap_or_default();
                self.resident(format_args!("files/{file}/zeroed"), rss);
            }
            // Its parts are known after all mappings are read (K2).
            "" => sums.anonymous += rss,
            "[heap]" => self.resident(format_args!("heap/brk"), rss),
            "[stack]" => {
                sums.stacks += rss;
                self.resident(format_args!("stacks/main"), rss);
            }
            _ if name.starts_with("[anon") => {
                self.resident(format_args!("anonymous/named/{name}"), rss);
            }
            _ if name.starts_with('[') => self.resident(format_args!("kernel/{name}"), rss),
            _ if is_shared_memory(name) => self.resident(format_args!("shared/{name}"), rss),
            _ => {
                let written = mapping.anonymous.min(rss);
                self.resident(format_args!("files/{name}/written"), written);
                self.resident(format_args!("files/{name}/as-in-file"), rss - written);
            }
        }
    }

    fn rest(&mut self, sums: &Sums, facts: &Facts, allocator: Option<&Resident>) {
        let mut anonymous = sums.anonymous;
        for (name, bytes) in allocator.iter().flat_map(|allocator| allocator.rows) {
            let bytes = bytes.min(anonymous);
            anonymous -= bytes;
            self.resident(format_args!("heap/{name}"), bytes);
        }
        self.resident(format_args!("anonymous/other"), anonymous);
        if self.process.is_empty() || allocator.is_some() {
            let said = "Resident pages of the stacks of all threads.";
            self.line(
                "explicit/stacks",
                Kind::Nonheap,
                Units::Bytes,
                sums.stacks,
                said,
            );
        }
        let bytes = [
            (
                "resident",
                sums.rss,
                "Resident memory: the sum of Rss over all mappings.",
            ),
            (
                "resident-unique",
                sums.private,
                "Resident memory that is of this process alone (USS).",
            ),
            (
                "pss",
                sums.pss,
                "Resident memory, a page shared by n processes counted as one n-th.",
            ),
            (
                "resident-merged",
                sums.merged,
                "Resident memory at addresses whose page the kernel merged with others (KSM): RSS counts each address, PSS and \
                 control groups the page.",
            ),
            ("swap", sums.swap, "Memory that is in swap space."),
            ("vsize", facts.vsize, "Address space, resident or not."),
        ];
        for (path, amount, said) in bytes {
            self.line(path, Kind::Other, Units::Bytes, amount, said);
        }
        let counts = [
            (
                "page-faults-hard",
                facts.hard,
                "Page faults that waited for a disk, since the start.",
            ),
            (
                "page-faults-soft",
                facts.soft,
                "Page faults that did not, since the start.",
            ),
        ];
        for (path, amount, said) in counts {
            self.line(path, Kind::Other, Units::Cumulative, amount, said);
        }
        let said = "Threads.";
        self.line("threads", Kind::Other, Units::Count, facts.threads, said);
    }
}

/// Returns whether the name is that of shared memory without a file.
fn is_shared_memory(name: &str) -> bool {
    [
        "\\memfd:",
        "\\dev\\shm\\",
        "\\SYSV",
        "\\dev\\zero (deleted)",
    ]
    .iter()
    .any(|start| name.starts_with(start))
}

/// The fields of `/proc/PID/stat` that are used here.
struct Facts {
    vsize: u64,
    soft: u64,
    hard: u64,
    threads: u64,
}

impl Facts {
    fn read(pid: u32) -> Result<Facts, NoFigures> {
        let mut lines = Lines::open(pid, "stat")?;
        let line = lines.next().map(String::from_utf8_lossy);
        // Borrowed: `stat` is ASCII except for the name, which may hold anything.
        let line = line.as_deref().ok_or(NoFigures::Gone)?;
        let rest = line.rfind(')').and_then(|at| line.get(at + 1..));
        let rest = rest.ok_or(NoFigures::Gone)?;
        // The first field after the name is the third.
        let field = |number: usize| rest.split_ascii_whitespace().nth(number - 3);
        let value = |number| {
            field(number)
                .and_then(|text| text.parse().ok())
                .unwrap_or(0)
        };
        Ok(Facts {
            soft: value(10),
            hard: value(12),
            threads: value(20),
            vsize: value(23),
        })
    }
}

/// Adds the figures of this process.
pub(crate) fn figures(allocator: Option<&Resident>, store: &mut Store) -> Result<(), NoFigures> {
    of(0, "", allocator, store)
}

/// Returns the most bytes that a line of this process may report: twice what is mapped now, and a little.
pub(crate) fn address_space_bytes() -> u64 {
    let vsize = Facts::read(0).map_or(1 << 47, |facts| facts.vsize);
    vsize.saturating_mul(2).saturating_add(64 << 20)
}

/// Returns `NAME (pid N)`, as reports name processes.
///
/// # Errors
/// If there is no such process.
pub fn title(pid: u32) -> Result<String, NoFigures> {
    let mut lines = Lines::open(pid, "comm")?;
    let name = lines.next().ok_or(NoFigures::Gone)?;
    let name = String::from_utf8_lossy(name);
    let pid = match pid {
        0 => sys::getpid(),
        pid => pid,
    };
    Ok(format!("{} (pid {pid})", Plain(&name)))
}
