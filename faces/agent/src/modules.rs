//! Where addresses of a process lie in its files: the same place has the same address in each process, and none of the
//! process's own.
//!
//! ```text
//!   mappings with code ─► files: the program, then the others by path ─► file n lies at n << 36, as far as it is not fixed
//!   return address - 1 ─► mapping ─► its file's base + offset            /proc/PID/root/PATH, /proc/PID/exe ─► build id
//! ```
//!
//! M1  What is served tells no address of the process: with one, another user of the machine would know where its libraries
//!     lie. A program that is linked to a fixed address keeps it, which its file says anyway.
//! M2  A build id is read only from the very file that is mapped (its inode), and what was read is kept by device, inode and time.
//! M3  At most [`FILES`] files have a place, and [`KNOWN`] build ids are kept.
//!
//! Not here: names of functions (whoever reads the profile has the files, or asks by build id).

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use skinflint_collect::elf::Elf;
use skinflint_procfs::maps::MapLine;
use skinflint_procfs::process;

use crate::heap::Heap;

/// The most files of a process.
const FILES: usize = 2_000;
/// The most files of which a build id is kept.
const KNOWN: usize = 4_096;
/// Bytes of address space for each file.
const SPACE: u32 = 36;

/// A mapping as it is served.
#[derive(Clone, PartialEq, Debug)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// Where in the file it begins.
    pub offset: u64,
    /// The file, or a name in brackets.
    pub name: String,
    /// In hex; empty: not known.
    pub build_id: String,
}

/// A place in a profile.
#[derive(Clone, PartialEq, Debug)]
pub enum Place {
    /// An address in a mapping, by its place in the list; none: in none.
    Code(Option<usize>, u64),
    /// A row that is no code.
    Named(&'static str),
}

/// Stacks as places in files.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Stacks {
    /// The program is the first.
    pub mappings: Vec<Mapping>,
    /// All places, each once.
    pub places: Vec<Place>,
    /// The innermost place comes first.
    pub stacks: Vec<Vec<u32>>,
}

/// What is known of a file.
#[derive(Clone, Default)]
struct About {
    build_id: String,
    is_fixed: bool,
}

/// Build ids that were read (M2).
#[derive(Default)]
pub struct Known(HashMap<(u64, u64, i64), About>);

impl Known {
    /// Returns what is known of a mapped file.
    fn of(&mut self, pid: u32, map: &MapLine, exe: &str) -> About {
        let inside = || {
            let path = map.name.strip_prefix('/')?;
            Some(Path::new(&format!("/proc/{pid}/root")).join(path))
        };
        let path = match map.name == exe {
            // There even if the file was replaced.
            true => Some(PathBuf::from(format!("/proc/{pid}/exe"))),
            false => inside(),
        };
        self.read(path, map.inode).unwrap_or_default()
    }

    fn read(&mut self, path: Option<PathBuf>, inode: u64) -> Option<About> {
        let path = path?;
        let found = std::fs::metadata(&path).ok()?;
        if found.ino() != inode || !found.is_file() {
            return None;
        }
        let key = (found.dev(), found.ino(), found.mtime());
        if let Some(about) = self.0.get(&key) {
            return Some(about.clone());
        }
        let elf = Elf::open(&path);
        let id = elf.as_ref().and_then(Elf::build_id).unwrap_or_default();
        let about = About {
            build_id: id.iter().map(|byte| format!("{byte:02x}")).collect(),
            is_fixed: elf.is_some_and(|elf| elf.is_fixed()),
        };
        if self.0.len() >= KNOWN {
            self.0.clear();
        }
        self.0.insert(key, about.clone());
        Some(about)
    }
}

/// Returns the stacks of a process's profile.
pub fn stacks(pid: u32, heap: &Heap, known: &mut Known) -> Stacks {
    let exe = process::link(pid, "exe");
    let mut names: Vec<&str> = heap.code.iter().map(|map| &*map.name).collect();
    names.sort_by_key(|name| {
        (
            name.is_empty() || *name != exe,
            !name.starts_with('/'),
            *name,
        )
    });
    names.dedup();
    names.truncate(FILES);
    let mut mappings = Vec::new();
    // The mapping in the process, beside the one that is served.
    let mut real: Vec<(u64, u64, usize)> = Vec::new();
    for (at, name) in names.into_iter().enumerate() {
        let of_file: Vec<&MapLine> = heap.code.iter().filter(|map| map.name == name).collect();
        let Some(first) = of_file.first() else {
            continue;
        };
        let about = known.of(pid, first, &exe);
        let base = (at as u64 + 1) << SPACE;
        let is_file = name.starts_with('/');
        // What is no file has room one after the other.
        let mut next = base;
        for map in of_file {
            let bytes = map.end.saturating_sub(map.start);
            let start = match (about.is_fixed, is_file) {
                (true, _) => map.start,
                (_, true) => base.saturating_add(map.offset),
                (_, false) => next,
            };
            next = start.saturating_add(bytes);
            real.push((map.start, map.end, mappings.len()));
            mappings.push(Mapping {
                start,
                end: next,
                offset: if is_file { map.offset } else { 0 },
                name: if name.is_empty() {
                    "[anon]".into()
                } else {
                    name.to_owned()
                },
                build_id: about.build_id.clone(),
            });
        }
    }
    real.sort_unstable();
    placed(heap, mappings, &real)
}

/// Puts the return addresses into their mappings. A call lies before the address that it returns to.
fn placed(heap: &Heap, mappings: Vec<Mapping>, real: &[(u64, u64, usize)]) -> Stacks {
    let mut result = Stacks {
        mappings,
        ..Stacks::default()
    };
    let mut at: HashMap<u64, u32> = HashMap::new();
    for row in &heap.rows {
        let mut stack = Vec::with_capacity(row.frames.len());
        for frame in &row.frames {
            let pc = frame - 1;
            let next = result.places.len() as u32;
            let place = *at.entry(pc).or_insert(next);
            if place == next {
                let before = real.partition_point(|(start, _, _)| *start <= pc);
                let within = before.checked_sub(1).and_then(|at| real.get(at));
                result.places.push(match within {
                    Some(&(start, end, map)) if pc < end => Place::Code(
                        Some(map),
                        result.mappings[map].start.saturating_add(pc - start),
                    ),
                    // M1: not even this one.
                    _ => Place::Code(None, 0),
                });
            }
            stack.push(place);
        }
        if stack.is_empty() {
            stack.push(result.named("(stack not known)"));
        }
        result.stacks.push(stack);
    }
    result
}

impl Stacks {
    /// Returns the place of a row that is no code.
    fn named(&mut self, name: &'static str) -> u32 {
        let found = self
            .places
            .iter()
            .position(|place| *place == Place::Named(name));
        found.unwrap_or_else(|| {
            self.places.push(Place::Named(name));
            self.places.len() - 1
        }) as u32
    }

    /// Adds a stack that is one row's name.
    pub fn add_named(&mut self, name: &'static str) {
        let place = self.named(name);
        self.stacks.push(vec![place]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::Row;

    fn row(frames: &[u64]) -> Row {
        Row {
            figures: [1; 4],
            variance: 0,
            pinned: 0,
            number: 0,
            frames: frames.to_vec(),
        }
    }

    /// Two processes with the same files at other addresses serve the same profile (M1).
    #[test]
    fn addresses_are_those_of_files() {
        let at = |app: u64, lib: u64, jit: u64| {
            let line = |start: u64, rest: &str| {
                let text = format!("{start:x}-{:x} r-xp {rest}", start + 0x1000);
                MapLine::parse(&text).expect("a line")
            };
            let heap = Heap {
                rows: vec![
                    row(&[lib + 0x11, app + 0x21, jit + 0x31]),
                    row(&[]),
                    row(&[0x77]),
                ],
                code: vec![
                    line(jit, "0 0:0 0"),
                    line(lib, "5000 fe:0 1 /no/such/lib"),
                    line(app, "2000 fe:0 2 /no/such/app"),
                ],
                ..Heap::default()
            };
            stacks(0, &heap, &mut Known::default())
        };
        let one = at(0x55_0000, 0x7f_0000, 0x7e_0000);
        assert_eq!(one, at(0x56_0000, 0x7d_0000, 0x7f_0000));
        let names: Vec<&str> = one.mappings.iter().map(|map| &*map.name).collect();
        assert_eq!(names, ["/no/such/app", "/no/such/lib", "[anon]"]);
        assert_eq!(
            one.places,
            [
                Place::Code(Some(1), (2 << SPACE) + 0x5010),
                Place::Code(Some(0), (1 << SPACE) + 0x2020),
                Place::Code(Some(2), (3 << SPACE) + 0x30),
                Place::Named("(stack not known)"),
                Place::Code(None, 0),
            ]
        );
        assert_eq!(one.stacks, [vec![0, 1, 2], vec![3], vec![4]]);
    }

    #[test]
    fn the_build_id_of_this_program_is_that_of_its_file() {
        let pid = std::process::id();
        let heap = Heap {
            code: skinflint_procfs::maps::maps(pid)
                .into_iter()
                .filter(|map| map.perms.contains('x'))
                .collect(),
            ..Heap::default()
        };
        let mut known = Known::default();
        let stacks = stacks(pid, &heap, &mut known);
        let own = std::env::current_exe().expect("this test");
        assert_eq!(Path::new(&stacks.mappings[0].name), own);
        let libc = stacks
            .mappings
            .iter()
            .find(|map| map.name.contains("libc.so"));
        assert_eq!(libc.expect("libc").build_id.len(), 40);
        // Another file at that path is not the one that is mapped.
        let other = MapLine {
            inode: 1,
            name: own.to_string_lossy().into_owned(),
            ..MapLine::default()
        };
        assert_eq!(known.of(pid, &other, "").build_id, "");
    }
}
