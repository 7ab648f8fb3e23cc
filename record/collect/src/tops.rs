//! The topmost chunks of glibc's arenas: memory that `malloc_trim` treats unlike all other free memory.
//!
//! ```text
//!   libc.so.6, data   [ … main_arena … ]      found once, by its bins that point to themselves
//!                          │ next                                                   (a ring that ends where it began)
//!   heap of a thread  [ heap_info | malloc_state | used, free … |  in a fast bin  |  topmost chunk  ]
//!                       │ ar_ptr ──►│ top ────────────────────────────────────────►│               ▲
//!                       └ size ──────────────────────────────────────────────────────────────────── ┘
//! ```
//!
//! G1  Nothing that is read is believed before it fits: an arena's last bin, which glibc never uses, points to itself; a
//!     heap says which arena it is of; a topmost chunk is aligned, lies in that heap, and its size reaches the heap's end.
//!     If one arena does not fit, nothing is said about any.
//! G2  Only words of pages that the snapshot found resident are read, and of the C library's data: reading makes no
//!     new page.
//! G3  The work is bounded: [`MOST_ARENAS`], [`MOST_PAGES`] and [`MOST_CHUNKS`] of a snapshot. Beyond that nothing is said.
//! G4  `malloc_trim` first empties the fast bins. Their chunks right below a topmost chunk, and free chunks right below
//!     those, become part of it; so the range begins where it will begin then.
//! G5  An arena is read while it stands: its lock is free before and after, and its fast bins and its topmost chunk are
//!     the same. In the middle of `malloc_trim` the fast bins are empty and most of what was in them lies below the topmost
//!     chunk, in no list at all.
//!
//! The layouts are glibc's (malloc/malloc.c, malloc/arena.c), on machines with words of 64 bits, from 2.26 to 2.42. Not
//! here: what comes back of a topmost chunk (analysis `giveback.rs`); blocks in threads' caches, which are in use to glibc.

use rustc_hash::FxHashMap;
use skinflint_trace::{Mapping, MappingKind, ProcessInfo};

/// The most arenas that are looked at; glibc makes eight for each processor.
const MOST_ARENAS: usize = 4096;
/// The most pages that are read for one snapshot.
const MOST_PAGES: u64 = 32 << 10;
/// The most chunks in fast bins that are followed for one snapshot.
const MOST_CHUNKS: usize = 1 << 20;
/// The most bytes of the C library's data that are searched.
const MOST_DATA_BYTES: u64 = 256 << 10;
/// How often the main arena is looked for, and an arena read that another thread is just changing.
const SEARCHES: u32 = 16;
const READINGS: u32 = 8;

/// The size to which heaps of threads' arenas are aligned, bytes.
const HEAP_BYTES: u64 = 64 << 20;
const PAGE: u64 = 4096;
/// The bytes that are read at once where chunks in fast bins are followed, at most; they lie side by side.
const WINDOW: u64 = 16 * PAGE;
const BINS: u64 = 127;
const FAST_BINS: u64 = 10;
/// The size of the chunks in the first fast bin, and the step from bin to bin, bytes.
const FAST_LEAST: u64 = 32;
const FAST_STEP: u64 = 16;
/// The bits of a size word that are not size, and those of them that are set in a topmost chunk's.
const FLAGS: u64 = 7;
const PREVIOUS_IN_USE: u64 = 1;
const MAPPED: u64 = 2;
/// The half of an arena's first word that is its lock: 0 if it is free.
const LOCK: u64 = 0xffff_ffff;

type Page = [u8; PAGE as usize];
/// Reads some pages at an address, whole.
type Fetch<'a> = dyn FnMut(u64, u64) -> Option<Vec<Page>> + 'a;

/// Offsets in glibc's structures, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Layout {
    /// In an arena: the fast bins, which `top` follows.
    fast_bins: u64,
    /// The size of `heap_info`, which a thread's first arena lies behind.
    heap_info: u64,
    /// Whether the links of fast bins are mangled with their own addresses.
    mangled: bool,
}

impl Layout {
    /// Returns the layout of an allocator, if it is a glibc whose layout is known.
    fn of(allocator: &str) -> Option<Layout> {
        let version = allocator.strip_prefix("glibc 2.")?;
        let digits = version.split(|c: char| !c.is_ascii_digit()).next()?;
        let minor: u32 = digits.parse().ok()?;
        (26..=42).contains(&minor).then_some(Layout {
            fast_bins: if minor < 27 { 8 } else { 16 },
            heap_info: if minor < 35 { 32 } else { 48 },
            mangled: minor >= 32,
        })
    }

    const fn top(self) -> u64 {
        self.fast_bins + FAST_BINS * 8
    }

    /// Returns the offset of a bin's links; bins are counted from 0.
    const fn bin(self, index: u64) -> u64 {
        self.top() + 16 + index * 16
    }

    const fn next(self) -> u64 {
        // Behind the bins is a map of them, a bit each.
        self.bin(BINS) + 16
    }

    const fn bytes(self) -> u64 {
        self.next() + 40
    }
}

/// The arenas of one process, as far as they are known from snapshot to snapshot.
#[derive(Debug)]
pub(crate) struct Arenas {
    layout: Option<Layout>,
    main: Option<u64>,
    searches: u32,
}

impl Arenas {
    pub(crate) fn of(info: &ProcessInfo) -> Arenas {
        Arenas {
            layout: Layout::of(&info.allocator),
            main: None,
            searches: 0,
        }
    }

    /// Returns the topmost chunks (address, bytes) of all arenas that have one, by address; `None` if they are not known.
    /// Cost: two readings of a page for each arena, and of those that chunks in fast bins lie on, if there is one right
    /// below a topmost chunk.
    pub(crate) fn tops(&mut self, pid: u32, mappings: &[Mapping]) -> Option<Vec<(u64, u64)>> {
        self.tops_by(mappings, &mut |at, count| read_pages(pid, at, count))
    }

    fn tops_by(&mut self, mappings: &[Mapping], fetch: &mut Fetch<'_>) -> Option<Vec<(u64, u64)>> {
        let layout = self.layout?;
        let data = data_of_libc(mappings)?;
        let mut memory = Memory {
            mappings,
            data,
            fetch,
            pages: FxHashMap::default(),
            is_walk: false,
            pages_left: MOST_PAGES,
            chunks_left: MOST_CHUNKS,
        };
        let main = match self.main {
            Some(main) => main,
            None if self.searches >= SEARCHES => return None,
            None => {
                self.searches += 1;
                let main = find_main(&mut memory, layout)?;
                self.main = Some(main);
                main
            }
        };
        let mut tops = Vec::new();
        let mut arena = main;
        for _ in 0..MOST_ARENAS {
            let (top, next) = read_arena(&mut memory, layout, arena, main)?;
            tops.extend(top);
            memory.pages.clear();
            if next == main {
                tops.sort_unstable();
                let overlap = tops.windows(2).any(|two| two[0].0 + two[0].1 > two[1].0);
                return (!overlap).then_some(tops);
            }
            arena = next;
        }
        None
    }
}

/// Returns the C library's writable data; `None` if there is not exactly one such mapping (namespaces have several).
fn data_of_libc(mappings: &[Mapping]) -> Option<(u64, u64)> {
    let is_data = |one: &&Mapping| {
        let file = one.name.rsplit('/').next().unwrap_or("");
        one.kind == MappingKind::File
            && one.perms == "rw-p"
            && one.name.starts_with('/')
            && (file.starts_with("libc.so.6") || file.starts_with("libc-2."))
    };
    let mut found = mappings.iter().filter(is_data);
    let data = found.next()?;
    (found.next().is_none() && data.end - data.start <= MOST_DATA_BYTES)
        .then_some((data.start, data.end))
}

/// Finds the main arena in the C library's data: nothing else there is a row of so many links that point to themselves.
fn find_main(memory: &mut Memory<'_>, layout: Layout) -> Option<u64> {
    let (start, end) = memory.data;
    let last = end.checked_sub(layout.bytes())?;
    (start..=last).step_by(16).find(|&at| {
        // The row ends where it has to, so that none of its other bins was taken for the last.
        let behind = at + layout.bin(BINS);
        is_arena(memory, layout, at) == Some(true)
            && memory.word(behind).is_some_and(|word| word != behind - 16)
            && (0..BINS).all(|bin| is_bin(memory, at + layout.bin(bin)))
    })
}

/// Reports whether these are the links of a bin: both to itself, or both to chunks.
fn is_bin(memory: &mut Memory<'_>, links: u64) -> bool {
    let own = links - 16;
    match (memory.word(links), memory.word(links + 8)) {
        (Some(first), Some(last)) => first != 0 && last != 0 && (first == own) == (last == own),
        _ => false,
    }
}

/// Reports whether the last bin, which is never used, points to itself (G1).
fn is_arena(memory: &mut Memory<'_>, layout: Layout, at: u64) -> Option<bool> {
    let links = at + layout.bin(BINS - 1);
    let own = links - 16;
    Some(memory.word(links)? == own && memory.word(links + 8)? == own)
}

/// Reads an arena: its topmost chunk, if it has one, and the next arena.
fn read_arena(
    memory: &mut Memory<'_>,
    layout: Layout,
    arena: u64,
    main: u64,
) -> Option<(Option<(u64, u64)>, u64)> {
    (0..READINGS).find_map(|reading| {
        if reading > 0 {
            memory.pages.clear();
            // The thread that changes it may need this processor.
            std::thread::yield_now();
        }
        let before = standing(memory, layout, arena)?;
        let read = read_arena_once(memory, layout, arena, main)?;
        memory.pages.clear();
        (standing(memory, layout, arena)? == before).then_some(read)
    })
}

/// Returns what of an arena must not change while it is read, up to its topmost chunk; `None` if it is locked (G5).
fn standing(
    memory: &mut Memory<'_>,
    layout: Layout,
    arena: u64,
) -> Option<[u64; FAST_BINS as usize + 1]> {
    let is_free = memory.word(arena)? & LOCK == 0;
    let mut words = [0; FAST_BINS as usize + 1];
    for (word, at) in words.iter_mut().zip((layout.fast_bins..).step_by(8)) {
        *word = memory.word(arena + at)?;
    }
    is_free.then_some(words)
}

fn read_arena_once(
    memory: &mut Memory<'_>,
    layout: Layout,
    arena: u64,
    main: u64,
) -> Option<(Option<(u64, u64)>, u64)> {
    let is_main = arena == main;
    let place = arena % HEAP_BYTES;
    if (!is_main && place != layout.heap_info) || !is_arena(memory, layout, arena)? {
        return None;
    }
    let next = memory.word(arena + layout.next())?;
    let top = memory.word(arena + layout.top())?;
    // An arena that nothing was taken from has no memory: its topmost chunk is said to be where its bins begin.
    if top == arena + layout.top() {
        return Some((None, next));
    }
    let chunk = match is_main {
        true => main_top(memory, top)?,
        false => thread_top(memory, layout, arena, top)?,
    };
    Some((Some(chunk), next))
}

/// Returns the size of a topmost chunk, as its own word says.
fn top_bytes(memory: &mut Memory<'_>, top: u64) -> Option<u64> {
    let size = memory.word(top.checked_add(8)?)?;
    (top.is_multiple_of(16) && size & FLAGS == PREVIOUS_IN_USE).then_some(size & !FLAGS)
}

/// Returns the main arena's topmost chunk. It ends with a page, in the memory that it begins in.
fn main_top(memory: &mut Memory<'_>, top: u64) -> Option<(u64, u64)> {
    let bytes = top_bytes(memory, top)?;
    let end = top.checked_add(bytes)?;
    (end.is_multiple_of(PAGE) && end <= memory.end_of_run(top)?).then_some((top, bytes))
}

/// Returns the topmost chunk of a thread's arena (G1, G4).
fn thread_top(memory: &mut Memory<'_>, layout: Layout, arena: u64, top: u64) -> Option<(u64, u64)> {
    let heap = top - top % HEAP_BYTES;
    let size = memory.word(heap + 16)?;
    let fits = memory.word(heap)? == arena
        && top - heap >= layout.heap_info
        && size <= HEAP_BYTES
        && top.checked_add(top_bytes(memory, top)?)? == heap + size;
    if !fits {
        return None;
    }
    let first = match heap == arena - arena % HEAP_BYTES {
        true => arena + layout.bytes(),
        false => heap + layout.heap_info,
    };
    let begin = joined(memory, layout, arena, (first, top))?;
    Some((begin, heap + size - begin))
}

/// Returns where a topmost chunk begins once fast bins are emptied (G4). `heap`: the first address that a chunk may
/// have, and the topmost chunk.
fn joined(memory: &mut Memory<'_>, layout: Layout, arena: u64, heap: (u64, u64)) -> Option<u64> {
    let (first, top) = heap;
    // A chunk right below is in use to glibc: by a block, in a thread's cache or in a fast bin.
    let may_be_fast = (0..FAST_BINS).any(|bin| {
        let size = FAST_LEAST + bin * FAST_STEP;
        let word = memory.word(top - size + 8);
        word.is_some_and(|word| word & !FLAGS == size)
    });
    if !may_be_fast {
        return Some(top);
    }
    memory.is_walk = true;
    let fast = fast_chunks(memory, layout, arena, heap);
    memory.is_walk = false;
    let fast = fast?;
    let mut begin = top;
    loop {
        let below = if memory.word(begin + 8)? & PREVIOUS_IN_USE == 0 {
            begin.checked_sub(memory.word(begin)?)?
        } else {
            match fast.binary_search_by_key(&begin, |&(end, _)| end) {
                Ok(at) => fast[at].1,
                Err(_) => return Some(begin),
            }
        };
        let size = memory.word(below.checked_add(8)?)? & !FLAGS;
        if below < first || below >= begin || size != begin - below {
            return None;
        }
        begin = below;
    }
}

/// Returns the chunks of an arena's fast bins that lie in one heap: end and address, by end.
fn fast_chunks(
    memory: &mut Memory<'_>,
    layout: Layout,
    arena: u64,
    (first, top): (u64, u64),
) -> Option<Vec<(u64, u64)>> {
    let mut chunks = Vec::new();
    for bin in 0..FAST_BINS {
        let size = FAST_LEAST + bin * FAST_STEP;
        let mut chunk = memory.word(arena + layout.fast_bins + bin * 8)?;
        while chunk != 0 {
            memory.chunks_left = memory.chunks_left.checked_sub(1)?;
            let word = memory.word(chunk.checked_add(8)?)?;
            if !chunk.is_multiple_of(16) || word & !FLAGS != size || word & MAPPED != 0 {
                return None;
            }
            if (first..top).contains(&chunk) {
                chunks.push((chunk + size, chunk));
            }
            let link = chunk + 16;
            let next = memory.word(link)?;
            chunk = match layout.mangled {
                true => next ^ (link >> 12),
                false => next,
            };
        }
    }
    chunks.sort_unstable();
    Some(chunks)
}

/// Words of a program's memory.
struct Memory<'a> {
    mappings: &'a [Mapping],
    /// The C library's data.
    data: (u64, u64),
    fetch: &'a mut Fetch<'a>,
    pages: FxHashMap<u64, Box<Page>>,
    /// Whether chunks are followed, of which the next is likely to be near.
    is_walk: bool,
    pages_left: u64,
    chunks_left: usize,
}

impl Memory<'_> {
    /// Reads the word at an address; `None` if it is not to be read (G2), or cannot be.
    fn word(&mut self, at: u64) -> Option<u64> {
        let page = at - at % PAGE;
        if !self.pages.contains_key(&page) {
            self.read(page)?;
        }
        let from = (at % PAGE) as usize;
        let bytes = self.pages.get(&page)?.get(from..from + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }

    /// Reads the page at an address, and of a walk those around it.
    fn read(&mut self, page: u64) -> Option<()> {
        let (first, end) = self.readable(page)?;
        let (first, end) = match self.is_walk {
            true => {
                let window = page - page % WINDOW;
                (first.max(window), end.min(window + WINDOW))
            }
            false => (page, page + PAGE),
        };
        let count = (end - first) / PAGE;
        self.pages_left = self.pages_left.checked_sub(count)?;
        let read = (self.fetch)(first, count)?;
        let addresses = (first..end).step_by(PAGE as usize);
        self.pages
            .extend(addresses.zip(read.into_iter().map(Box::new)));
        Some(())
    }

    /// Returns the mapping that an address lies in.
    fn mapping(&self, at: u64) -> Option<usize> {
        let index = self.mappings.partition_point(|one| one.end <= at);
        let mapping = self.mappings.get(index)?;
        (mapping.start <= at).then_some(index)
    }

    /// Returns the pages without a hole among which a page may be read (G2).
    fn readable(&self, page: u64) -> Option<(u64, u64)> {
        if (self.data.0..self.data.1).contains(&page) {
            return Some(self.data);
        }
        let mapping = &self.mappings[self.mapping(page)?];
        let is_heap = matches!(mapping.kind, MappingKind::Anon | MappingKind::Heap);
        if !is_heap || !mapping.perms.starts_with("rw") {
            return None;
        }
        let after = mapping.runs.partition_point(|&(start, _)| start <= page);
        let (start, bytes) = *mapping.runs.get(after.checked_sub(1)?)?;
        (page < start + bytes).then_some((start, start + bytes))
    }

    /// Returns the end of the writable memory without a hole that an address lies in.
    fn end_of_run(&self, at: u64) -> Option<u64> {
        let first = self.mapping(at)?;
        let mut end = self.mappings[first].start;
        for mapping in &self.mappings[first..] {
            if mapping.start != end || !mapping.perms.starts_with("rw") {
                break;
            }
            end = mapping.end;
        }
        Some(end)
    }
}

/// Reads pages of a process.
fn read_pages(pid: u32, at: u64, count: u64) -> Option<Vec<Page>> {
    let mut pages: Vec<Page> = vec![[0; PAGE as usize]; count as usize];
    let bytes = pages.as_flattened_mut();
    let local = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let remote = libc::iovec {
        iov_base: at as *mut libc::c_void,
        iov_len: bytes.len(),
    };
    // SAFETY: the local vector is the pages, whole; the remote one is only read, in another process.
    let got = unsafe { libc::process_vm_readv(pid as i32, &local, 1, &remote, 1, 0) };
    (usize::try_from(got) == Ok(local.iov_len)).then_some(pages)
}

#[cfg(test)]
#[path = "tops_tests.rs"]
mod tests;
