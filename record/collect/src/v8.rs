//! V8's heap: which of its spaces each of its pages belongs to, read from outside.
//!
//! ```text
//!   page of V8, at a multiple of 256 KiB  [ flags, size, …, owner, … ]                     V8 10 to 12
//!                                         [ flags, ► data of the page ] ─► [ …, owner, … ]  V8 13
//!   owner ─► [ table of functions, … ]     OldSpace, SemiSpace, …: symbols of the program's file
//! ```
//!
//! S1  No version is asked for, and no offset believed: a page is V8's if one of the first words of its head, or of what
//!     its head points to, is the address of an object whose first word is the table of functions of a space's class.
//! S2  Heads are read only where the snapshot found them resident. Other pointers may lead anywhere: what cannot be
//!     read is nothing, and reading makes no new page.
//! S3  The work is bounded: [`MOST_PAGES`] heads and [`MOST_OBJECTS`] objects of a snapshot, [`MOST_FILES`] files of a process.
//! S4  A page that holds one large object is as long as two words of its head agree on: its size, and its last address.
//!
//! Not here: what the spaces hold (heap-snapshot), pages that V8 keeps outside of its spaces: their heads name none.

use std::path::PathBuf;

use rustc_hash::FxHashMap;
use skinflint_trace::{Mapping, MappingKind};

use crate::elf::{DYNSYM, Elf, SYMTAB, Table};

/// The alignment of V8's pages, and the size of all but those of large objects.
const PAGE_BYTES: u64 = 256 << 10;
/// The words of a head, and of what it points to, among which the owner is.
const WORDS: usize = 16;
/// The words of a head that may point to the page's data.
const FIRST: usize = 4;
const MOST_PAGES: usize = 64 << 10;
const MOST_OBJECTS: usize = 256 << 10;
const MOST_FILES: usize = 4;
/// The least mapped bytes of a file that has V8 in it: its code alone is larger.
const LEAST_FILE: u64 = 16 << 20;
/// The anonymous memory below which no space is looked for.
const LEAST_ANONYMOUS: u64 = 2 << 20;
/// How often V8 is looked for: its library may be loaded late.
const SEARCHES: u32 = 4;
/// The bytes that may lie between an object's end and that of its page.
const TAIL: u64 = 8192;
const OS_PAGE: u64 = 4096;

type Words = [u64; WORDS];
/// Reads words at an address.
type Fetch<'a> = dyn FnMut(u64) -> Option<Words> + 'a;

/// The V8 of one process, as far as it is known from snapshot to snapshot.
#[derive(Debug, Default)]
pub(crate) struct V8 {
    /// The classes of spaces, by the address of their tables of functions.
    classes: FxHashMap<u64, String>,
    searches: u32,
}

/// A range of a space: from, to, its name.
type Range<'a> = (u64, u64, &'a str);

impl V8 {
    /// Gives the parts of anonymous mappings that are pages of V8's heap the names of their spaces: `[v8 old space]`.
    pub(crate) fn name(&mut self, pid: u32, mappings: Vec<Mapping>) -> Vec<Mapping> {
        let anonymous = mappings.iter().filter(|one| is_read(one));
        if anonymous.map(|one| one.rss_bytes).sum::<u64>() < LEAST_ANONYMOUS {
            return mappings;
        }
        if self.classes.is_empty() && self.searches < SEARCHES {
            self.searches += 1;
            self.classes = classes(pid, &mappings);
        }
        if self.classes.is_empty() {
            return mappings;
        }
        divide(&self.classes, mappings, &mut |at| read_words(pid, at))
    }
}

fn is_read(mapping: &Mapping) -> bool {
    mapping.kind == MappingKind::Anon && mapping.runs_known
}

/// Returns the classes of spaces in the files that a process has mapped, where they lie.
fn classes(pid: u32, mappings: &[Mapping]) -> FxHashMap<u64, String> {
    let mut files: Vec<(&str, u64, u64)> = Vec::new();
    let is_file = |one: &&Mapping| one.kind == MappingKind::File && one.name.starts_with('/');
    for mapping in mappings.iter().filter(is_file) {
        let bytes = mapping.end.saturating_sub(mapping.start);
        match files.iter_mut().find(|file| file.0 == mapping.name) {
            Some(file) => file.2 = file.2.saturating_add(bytes),
            None => files.push((&mapping.name, mapping.start, bytes)),
        }
    }
    files.retain(|file| file.2 >= LEAST_FILE);
    let mut found = FxHashMap::default();
    for (path, start, _) in files.into_iter().take(MOST_FILES) {
        let Some(elf) = Elf::open(&PathBuf::from(format!("/proc/{pid}/root{path}"))) else {
            continue;
        };
        let exported = elf.table(DYNSYM);
        let has_v8 = |table: &Table| table.symbols().any(|one| one.name.starts_with(ISOLATE));
        let (Some(exported), Some(first)) = (exported.filter(has_v8), elf.first_address()) else {
            continue;
        };
        let bias = start.wrapping_sub(first & !(OS_PAGE - 1));
        for table in elf.table(SYMTAB).iter().chain([&exported]) {
            for symbol in table.symbols().filter(|one| one.is_defined) {
                if let Some(space) = space_of(symbol.name) {
                    // In front of the functions are two words.
                    let at = symbol.address.wrapping_add(16).wrapping_add(bias);
                    found.insert(at, space);
                }
            }
        }
    }
    found
}

/// How the names of what each V8 exports begin.
const ISOLATE: &[u8] = b"_ZN2v87Isolate";

/// Returns the name of a space, as V8's own statistics have it, from the symbol of its class's table of functions.
fn space_of(symbol: &[u8]) -> Option<String> {
    let rest = symbol.strip_prefix(b"_ZTVN2v88internal")?;
    let rest = std::str::from_utf8(rest).ok()?;
    let class = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    let class = class.strip_suffix("SpaceE")?;
    let space = match class {
        "Semi" | "New" | "SemiSpaceNew" | "PagedNew" | "PagedSpaceForNew" => "new",
        // Pages on their way into the old space.
        "Old" | "Compaction" => "old",
        "ReadOnly" | "SharedReadOnly" => "read-only",
        "OldLargeObject" => "large object",
        class => return camel(class),
    };
    Some(format!("[v8 {space} space]"))
}

/// `NewLargeObject` ─► `[v8 new large object space]`.
fn camel(class: &str) -> Option<String> {
    let is_name = !class.is_empty() && class.chars().all(|c| c.is_ascii_alphabetic());
    is_name.then_some(())?;
    let mut name = String::from("[v8");
    for letter in class.chars() {
        if letter.is_ascii_uppercase() {
            name.push(' ');
        }
        name.push(letter.to_ascii_lowercase());
    }
    Some(name + " space]")
}

/// What is looked up in a process's memory for one snapshot.
struct Look<'a, 'b> {
    classes: &'a FxHashMap<u64, String>,
    fetch: &'b mut Fetch<'b>,
    /// The objects that were looked at, and their spaces.
    objects: FxHashMap<u64, Option<&'a str>>,
}

fn divide<'b>(
    classes: &FxHashMap<u64, String>,
    mappings: Vec<Mapping>,
    fetch: &'b mut Fetch<'b>,
) -> Vec<Mapping> {
    let mut look = Look {
        classes,
        fetch,
        objects: FxHashMap::default(),
    };
    let mut left = MOST_PAGES;
    let mut done = Vec::with_capacity(mappings.len());
    for mapping in mappings {
        if !is_read(&mapping) {
            done.push(mapping);
            continue;
        }
        let ranges = look.ranges(&mapping, &mut left);
        crate::dividing::split_names(mapping, &ranges, &mut done);
    }
    done
}

impl<'a> Look<'a, '_> {
    /// Returns the ranges of a mapping that are pages of a space, by address, neighbours joined.
    fn ranges(&mut self, mapping: &Mapping, left: &mut usize) -> Vec<Range<'a>> {
        let mut ranges: Vec<Range<'a>> = Vec::new();
        let mut from = mapping.start;
        for &(start, bytes) in &mapping.runs {
            let mut at = start.max(from).next_multiple_of(PAGE_BYTES);
            while at < start.saturating_add(bytes) && *left > 0 {
                *left -= 1;
                let mut end = at.saturating_add(PAGE_BYTES).min(mapping.end);
                if let Some((space, words)) = self.page(at) {
                    end = large_end(&words, at, mapping.end).unwrap_or(end);
                    match ranges.last_mut() {
                        Some(last) if last.1 == at && last.2 == space => last.1 = end,
                        _ => ranges.push((at, end, space)),
                    }
                }
                from = end;
                at = end.next_multiple_of(PAGE_BYTES);
            }
        }
        ranges
    }

    /// Returns the space of a page, and the words among which its owner was found (S1).
    fn page(&mut self, at: u64) -> Option<(&'a str, Words)> {
        let head = (self.fetch)(at)?;
        if let Some(space) = self.owner(&head, at) {
            return Some((space, head));
        }
        head.iter().take(FIRST).find_map(|&data| {
            let words = (self.fetch)(pointer(data, at)?)?;
            Some((self.owner(&words, at)?, words))
        })
    }

    fn owner(&mut self, words: &Words, page: u64) -> Option<&'a str> {
        words.iter().find_map(|&word| {
            let object = pointer(word, page)?;
            if let Some(known) = self.objects.get(&object) {
                return *known;
            }
            if self.objects.len() >= MOST_OBJECTS {
                return None;
            }
            let class = (self.fetch)(object).and_then(|words| self.classes.get(words.first()?));
            let space = class.map(String::as_str);
            self.objects.insert(object, space);
            space
        })
    }
}

/// Returns a word that may point to an object outside of its page.
fn pointer(word: u64, page: u64) -> Option<u64> {
    let outside = word < page || word >= page.saturating_add(PAGE_BYTES);
    let may_be = word.is_multiple_of(8) && (1 << 16..1 << 47).contains(&word);
    (outside && may_be).then_some(word)
}

/// Returns where a page of a large object ends (S4).
fn large_end(words: &Words, at: u64, limit: u64) -> Option<u64> {
    let ends = |size: u64| {
        let end = at.checked_add(size)?.checked_next_multiple_of(OS_PAGE)?;
        let is_last = |word: &&u64| **word <= end && end - **word < TAIL;
        (size > PAGE_BYTES && end <= limit && words.iter().any(|word| is_last(&word)))
            .then_some(end)
    };
    words.iter().filter_map(|&word| ends(word)).max()
}

fn read_words(pid: u32, at: u64) -> Option<Words> {
    let mut words: Words = [0; WORDS];
    let local = libc::iovec {
        iov_base: words.as_mut_ptr().cast(),
        iov_len: size_of::<Words>(),
    };
    let remote = libc::iovec {
        iov_base: at as *mut libc::c_void,
        iov_len: size_of::<Words>(),
    };
    // SAFETY: the local vector is the words, whole; the remote one is only read, in another process.
    let got = unsafe { libc::process_vm_readv(pid as i32, &local, 1, &remote, 1, 0) };
    (usize::try_from(got) == Ok(local.iov_len)).then_some(words)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use skinflint_test_support::need;

    use super::*;

    const OLD: u64 = 0x7000_0000_1000;
    const LARGE: u64 = 0x7000_0000_2000;
    const DATA: u64 = 0x7000_0000_3000;
    const AT: u64 = 0x10_0000_0000;

    /// Memory in which the spaces' objects are, and what lies at the multiples of a page's size.
    fn memory(heads: &[(u64, Words)]) -> impl FnMut(u64) -> Option<Words> {
        let mut all: FxHashMap<u64, Words> = heads.iter().copied().collect();
        let object = |table: u64| {
            let mut words = [0; WORDS];
            words[0] = table;
            words
        };
        all.insert(OLD, object(0x40_0010));
        all.insert(LARGE, object(0x40_0110));
        move |at| all.get(&at).copied()
    }

    fn named(heads: &[(u64, Words)], bytes: u64) -> Vec<(u64, u64, String, u64)> {
        let classes: FxHashMap<u64, String> = [
            (0x40_0010, "[v8 old space]".to_owned()),
            (0x40_0110, "[v8 large object space]".to_owned()),
        ]
        .into_iter()
        .collect();
        let mapping = Mapping {
            start: AT,
            end: AT + bytes,
            kind: MappingKind::Anon,
            rss_bytes: bytes,
            runs: vec![(AT, bytes)],
            runs_known: true,
            ..Mapping::default()
        };
        let mut fetch = memory(heads);
        let done = divide(&classes, vec![mapping], &mut fetch);
        let row = |one: Mapping| (one.start - AT, one.end - AT, one.name, one.rss_bytes);
        done.into_iter().map(row).collect()
    }

    fn head(words: &[(usize, u64)]) -> Words {
        let mut head = [0; WORDS];
        for &(index, word) in words {
            head[index] = word;
        }
        head
    }

    #[test]
    fn pages_have_the_names_of_their_spaces_and_what_is_none_has_no_name() {
        let heads = [
            (AT, head(&[(1, PAGE_BYTES), (8, OLD)])),
            // V8 13: by way of the page's data.
            (AT + PAGE_BYTES, head(&[(1, DATA)])),
            (DATA, head(&[(3, 17), (10, OLD)])),
            // Two words that point to nothing of V8's, and one to the page itself.
            (
                AT + 2 * PAGE_BYTES,
                head(&[(0, DATA + 8), (1, AT + 2 * PAGE_BYTES), (2, 7)]),
            ),
        ];
        let old = || "[v8 old space]".to_owned();
        assert_eq!(
            named(&heads, 3 * PAGE_BYTES),
            [
                (0, 2 * PAGE_BYTES, old(), 2 * PAGE_BYTES),
                (2 * PAGE_BYTES, 3 * PAGE_BYTES, String::new(), PAGE_BYTES),
            ]
        );
    }

    #[test]
    fn a_large_object_is_as_long_as_two_words_say() {
        let size = 5 * PAGE_BYTES + 4096;
        // What is in it may look like a page's head.
        let inside = (AT + PAGE_BYTES, head(&[(8, OLD)]));
        let behind = (AT + 6 * PAGE_BYTES, head(&[(8, OLD)]));
        let of = |size: u64, last: u64| {
            let large = (AT, head(&[(1, size), (4, last), (8, LARGE)]));
            named(&[large, inside, behind], 7 * PAGE_BYTES)
        };
        let large = || "[v8 large object space]".to_owned();
        let done = of(size, AT + size - 100);
        assert_eq!(done[0], (0, size, large(), size));
        assert_eq!(done.last().expect("rows").2, "[v8 old space]");
        // A size without its last address, and one that reaches beyond the mapping.
        assert_eq!(of(size, 0)[0].1, PAGE_BYTES);
        assert_eq!(of(size * 8, AT + size * 8)[0].1, PAGE_BYTES);
    }

    /// What V8 says of its own spaces, while the process waits.
    const SPACES: &str = "\
const kept = [];
for (let n = 0; n < 20; n++) kept.push(new Array(300000).fill(n));
for (let n = 0; n < 200000; n++) kept.push({ n, text: 'x' + n });
const text = require('v8').getHeapSpaceStatistics().map(one => one.space_name + ' ' + one.physical_space_size);
require('fs').writeSync(1, text.join('\\n') + '\\nend\\n');
require('fs').readSync(0, Buffer.alloc(1));
console.log(kept.length);
";

    /// The Nodes that are here: that of PATH, and what `make frames-deps` fetches.
    fn nodes() -> Vec<PathBuf> {
        let fetched = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/nodes");
        let of = |major: &&str| fetched.join(major).join("node_modules/node/bin/node");
        let fetched = ["18", "22", "24"]
            .iter()
            .map(of)
            .filter(|node| node.exists());
        std::iter::once(PathBuf::from("node"))
            .chain(fetched)
            .collect()
    }

    #[test]
    fn pages_are_of_the_spaces_that_v8_says() {
        if need::program("node") {
            nodes().iter().for_each(pages_are_in_their_spaces);
        }
    }

    fn pages_are_in_their_spaces(node: &PathBuf) {
        let mut child = Command::new(node)
            .args(["-e", SPACES])
            .env_remove("NODE_OPTIONS")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("node");
        let said = BufReader::new(child.stdout.as_mut().expect("piped")).lines();
        let said: Vec<String> = said
            .map(|line| line.expect("text"))
            .take_while(|line| line != "end")
            .collect();
        let pid = child.id();
        let mut mappings = crate::mappings::smaps(pid).expect("its mappings");
        let pages = crate::mappings::PageMap::open(pid).expect("its pages");
        for mapping in mappings
            .iter_mut()
            .filter(|one| one.kind == MappingKind::Anon)
        {
            mapping.runs = pages
                .runs(mapping.start, mapping.end, OS_PAGE)
                .expect("pages");
            mapping.runs_known = true;
        }
        let sizes = |all: &[Mapping]| all.iter().map(|one| one.end - one.start).sum::<u64>();
        let before = sizes(&mappings);
        let named = V8::default().name(pid, mappings);
        drop(child.stdin.take());
        assert!(child.wait().expect("ended").success());
        assert_eq!(sizes(&named), before, "{node:?}");
        let mut large = 0;
        for line in said {
            let (space, bytes) = line.split_once(' ').expect("two words");
            let bytes: u64 = bytes.parse().expect("a number");
            let name = format!("[v8 {}]", space.replace('_', " "));
            let found = named.iter().filter(|one| one.name == name);
            let found: u64 = found.map(|one| one.rss_bytes).sum();
            // What V8 takes for resident of a page is up to where objects have been in it, and its threads that sweep
            // give pages back meanwhile; of the new space it leaves out the half that is empty.
            if bytes >= 2 << 20 && space != "new_space" {
                let differs = found.abs_diff(bytes);
                assert!(
                    differs <= bytes / 10 + 2 * PAGE_BYTES,
                    "{node:?}: {name}: {found}, and V8 says {bytes}"
                );
                large += 1;
            }
        }
        assert!(large >= 2, "{node:?}");
    }

    #[test]
    fn spaces_are_called_as_v8_calls_them() {
        let of = |class: &str| space_of(format!("_ZTVN2v88internal9{class}E").as_bytes());
        for (class, name) in [
            ("OldSpace", "[v8 old space]"),
            ("SemiSpace", "[v8 new space]"),
            ("OldLargeObjectSpace", "[v8 large object space]"),
            ("NewLargeObjectSpace", "[v8 new large object space]"),
            ("CodeLargeObjectSpace", "[v8 code large object space]"),
            ("SharedReadOnlySpace", "[v8 read-only space]"),
            ("TrustedSpace", "[v8 trusted space]"),
        ] {
            assert_eq!(of(class).as_deref(), Some(name));
        }
        assert_eq!(of("SpaceIterator"), None);
        assert_eq!(of("Space"), None);
    }
}
