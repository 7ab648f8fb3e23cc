//! Topmost chunks: of this process, and of a made one in which everything that is to fit can be broken.
//!
//! ```text
//!   libc.so.6   .......[ main arena ]..        next: the thread's
//!   [heap]      | used | topmost chunk |
//!   64 MiB · n  [ heap_info | thread's arena | free | fast | fast | topmost chunk ]
//! ```
//!
//! Not here: what `malloc_trim` gives back (the whole tool, `faces/cli/tests/whole/given_back.rs`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};

use super::*;
use crate::mappings::{self, PageMap};

const LAYOUT: Layout = Layout {
    fast_bins: 16,
    heap_info: 48,
    mangled: true,
};
const DATA: u64 = 0x7f00_1234_5000;
const MAIN: u64 = DATA + 0x0c80;
const SEGMENT: u64 = 0x5555_0000_0000;
const MAIN_TOP: u64 = SEGMENT + 0x2340;
const SEGMENT_END: u64 = SEGMENT + 0x2_1000;
const HEAP: u64 = 0x7f00_0400_0000;
const ARENA: u64 = HEAP + 48;
const THREAD_TOP: u64 = HEAP + 0x5010;
const HEAP_SIZE: u64 = 0x2_1000;

/// A process's memory, and what may be read of it.
struct Made {
    pages: FxHashMap<u64, Page>,
    mappings: Vec<Mapping>,
}

impl Made {
    fn set(&mut self, at: u64, word: u64) {
        let page = at - at % PAGE;
        let page = self.pages.entry(page).or_insert([0; 4096]);
        let from = (at % PAGE) as usize;
        page[from..from + 8].copy_from_slice(&word.to_le_bytes());
    }

    fn arena(&mut self, at: u64, top: u64, next: u64) {
        for bin in 0..BINS {
            let links = at + LAYOUT.bin(bin);
            self.set(links, links - 16);
            self.set(links + 8, links - 16);
        }
        self.set(at + LAYOUT.top(), top);
        self.set(at + LAYOUT.next(), next);
    }

    fn new() -> Made {
        let mapping = |start, end, kind, name: &str| Mapping {
            start,
            end,
            kind,
            perms: "rw-p".into(),
            name: name.into(),
            runs: vec![(start, end - start)],
            runs_known: true,
            ..Mapping::default()
        };
        let libc = "/usr/lib/x86_64-linux-gnu/libc.so.6";
        let mappings = vec![
            mapping(SEGMENT, SEGMENT_END, MappingKind::Heap, "[heap]"),
            mapping(HEAP, HEAP + HEAP_SIZE, MappingKind::Anon, ""),
            mapping(DATA, DATA + 0x2000, MappingKind::File, libc),
        ];
        let pages = FxHashMap::default();
        let mut made = Made { pages, mappings };
        made.set(DATA + 0x1800, 7);
        made.arena(MAIN, MAIN_TOP, ARENA);
        made.arena(ARENA, THREAD_TOP, MAIN);
        made.set(MAIN_TOP + 8, (SEGMENT_END - MAIN_TOP) | 1);
        made.set(HEAP, ARENA);
        made.set(HEAP + 16, HEAP_SIZE);
        made.set(THREAD_TOP + 8, (HEAP + HEAP_SIZE - THREAD_TOP) | 1);
        // The chunk below it is no fast one.
        made.set(THREAD_TOP - 0x400 + 8, 0x405);
        made
    }

    /// Puts chunks of 32 bytes at these distances below the topmost chunk into the fast bin, in this order.
    fn fast(&mut self, below: &[u64]) {
        let at = |below: &u64| THREAD_TOP - below;
        self.set(ARENA + 16, below.first().map_or(0, at));
        for (index, one) in below.iter().enumerate() {
            let link = at(one) + 16;
            let next = below.get(index + 1).map_or(0, at);
            self.set(at(one) + 8, 32 | 5);
            self.set(link, next ^ (link >> 12));
        }
    }

    fn tops(&self) -> Option<Vec<(u64, u64)>> {
        self.tops_while(&mut |_, _| {})
    }

    /// What is found if each page, told by its address, is changed as it is read.
    fn tops_while(&self, change: &mut dyn FnMut(u64, &mut Page)) -> Option<Vec<(u64, u64)>> {
        let mut arenas = Arenas {
            layout: Some(LAYOUT),
            main: None,
            searches: 0,
        };
        let mut fetch = |at, count| {
            let pages = (0..count).map(|index| {
                let at = at + index * PAGE;
                let mut page = self.pages.get(&at).copied().unwrap_or([0; 4096]);
                change(at, &mut page);
                page
            });
            Some(pages.collect())
        };
        arenas.tops_by(&self.mappings, &mut fetch)
    }
}

const OF_MAIN: (u64, u64) = (MAIN_TOP, SEGMENT_END - MAIN_TOP);

fn of_thread(below: u64) -> (u64, u64) {
    let begin = THREAD_TOP - below;
    (begin, HEAP + HEAP_SIZE - begin)
}

#[test]
fn both_topmost_chunks_are_found() {
    assert_eq!(Made::new().tops(), Some(vec![OF_MAIN, of_thread(0)]));
}

#[test]
fn an_arena_without_memory_has_none() {
    let mut made = Made::new();
    made.set(MAIN + LAYOUT.top(), MAIN + LAYOUT.top());
    assert_eq!(made.tops(), Some(vec![of_thread(0)]));
}

/// Each of these is a reason to say nothing about any arena.
#[test]
fn what_does_not_fit_is_not_believed() {
    type Break = fn(&mut Made);
    let broken: [(&str, Break); 17] = [
        ("a topmost chunk that is not aligned", |made| {
            made.set(THREAD_TOP + 16, HEAP + HEAP_SIZE - THREAD_TOP - 8);
            made.set(ARENA + LAYOUT.top(), THREAD_TOP + 8);
        }),
        ("one that does not reach the end", |made| {
            made.set(THREAD_TOP + 8, (HEAP + HEAP_SIZE - THREAD_TOP - 16) | 1);
        }),
        ("one behind a free chunk", |made| {
            made.set(THREAD_TOP + 8, HEAP + HEAP_SIZE - THREAD_TOP);
        }),
        ("one of nowhere", |made| made.set(ARENA + LAYOUT.top(), 16)),
        ("one at the end of all", |made| {
            made.set(ARENA + LAYOUT.top(), !15);
        }),
        ("a main one that ends within a page", |made| {
            made.set(MAIN_TOP + 8, (SEGMENT_END - MAIN_TOP - 16) | 1);
        }),
        ("a main one that is longer than its memory", |made| {
            made.set(MAIN_TOP + 8, (SEGMENT_END + PAGE - MAIN_TOP) | 1);
        }),
        ("a heap of another arena", |made| made.set(HEAP, ARENA + 16)),
        ("a heap larger than any", |made| {
            made.set(HEAP + 16, HEAP_BYTES + PAGE);
            made.set(THREAD_TOP + 8, (HEAP + HEAP_BYTES + PAGE - THREAD_TOP) | 1);
        }),
        ("an arena elsewhere in its heap", |made| {
            made.arena(ARENA + 16, THREAD_TOP, MAIN);
            made.set(HEAP, ARENA + 16);
            made.set(MAIN + LAYOUT.next(), ARENA + 16);
        }),
        ("a last bin in use", |made| {
            made.set(ARENA + LAYOUT.bin(BINS - 1), THREAD_TOP);
        }),
        ("half a bin", |made| {
            made.set(MAIN + LAYOUT.bin(3), MAIN_TOP)
        }),
        ("a ring that does not come back", |made| {
            made.set(ARENA + LAYOUT.next(), ARENA);
        }),
        ("a ring that leads out of memory", |made| {
            made.set(ARENA + LAYOUT.next(), u64::MAX - (64 << 20) + 49);
        }),
        ("two C libraries", |made| {
            let mut second = made.mappings[2].clone();
            (second.start, second.end) = (second.end, second.end + 4096);
            made.mappings.push(second);
        }),
        ("an arena that is locked", |made| made.set(ARENA, 1)),
        ("a heap that is not resident", |made| {
            made.mappings[1].runs = vec![(HEAP, PAGE)];
        }),
    ];
    for (what, one) in broken {
        let mut made = Made::new();
        one(&mut made);
        assert_eq!(made.tops(), None, "{what}");
    }
}

/// The thread's arena in the middle of `malloc_trim`: its fast bins are empty, and its topmost chunk has been joined with a
/// part of what was in them.
#[test]
fn an_arena_that_changes_while_it_is_read_is_read_again() {
    let mut made = Made::new();
    made.fast(&[32]);
    // Each reading of the arena reads this page twice; of the first of the two its fast bin is of another moment.
    let with_changes = |most: u32| {
        let mut readings = 0;
        let found = made.tops_while(&mut |at, page| {
            if at == HEAP {
                readings += 1;
                if readings % 2 == 1 && readings < 2 * most {
                    page[48 + 16..48 + 24].fill(0);
                }
            }
        });
        (found, readings)
    };
    let right = Some(vec![OF_MAIN, of_thread(32)]);
    assert_eq!(with_changes(0), (right.clone(), 2));
    assert_eq!(with_changes(1), (right.clone(), 4));
    assert_eq!(with_changes(READINGS - 1), (right, 2 * READINGS));
    assert_eq!(with_changes(READINGS), (None, 2 * READINGS));
}

#[test]
fn chunks_in_fast_bins_right_below_become_part_of_it() {
    let begin = |below: &[u64], prepare: fn(&mut Made)| {
        let mut made = Made::new();
        made.fast(below);
        prepare(&mut made);
        made.tops().map(|tops| THREAD_TOP - tops[1].0)
    };
    let nothing: fn(&mut Made) = |_| {};
    assert_eq!(begin(&[32], nothing), Some(32));
    assert_eq!(begin(&[32, 96, 64], nothing), Some(96));
    // In a thread's cache: a chunk of that size that is in no bin.
    let cached: fn(&mut Made) = |made| {
        made.fast(&[]);
        made.set(THREAD_TOP - 32 + 8, 32 | 5);
    };
    assert_eq!(begin(&[], cached), Some(0));
    assert_eq!(begin(&[32, 128], nothing), Some(32));
    // A free chunk of 1 KiB lies below the fast one.
    let free: fn(&mut Made) = |made| {
        made.set(THREAD_TOP - 32, 1024);
        made.set(THREAD_TOP - 32 + 8, 32 | 4);
        made.set(THREAD_TOP - 32 - 1024 + 8, 1024 | 5);
    };
    assert_eq!(begin(&[32], free), Some(32 + 1024));
    let nonsense: [fn(&mut Made); 5] = [
        |made| made.set(THREAD_TOP - 32, 1 << 30),
        |made| made.set(THREAD_TOP - 32, u64::MAX),
        |made| made.set(THREAD_TOP - 32, 0),
        |made| made.set(THREAD_TOP - 32 - 1024 + 8, u64::MAX),
        |made| made.set(THREAD_TOP - 32 - 1024 + 8, 512 | 5),
    ];
    for break_it in nonsense {
        let mut made = Made::new();
        made.fast(&[32]);
        free(&mut made);
        break_it(&mut made);
        assert_eq!(made.tops(), None);
    }
}

#[test]
fn lists_of_fast_chunks_that_make_no_sense_end() {
    let broken: [fn(&mut Made); 4] = [
        // A chunk that comes after itself.
        |made| {
            let link = THREAD_TOP - 32 + 16;
            made.set(link, (THREAD_TOP - 32) ^ (link >> 12));
        },
        |made| made.set(THREAD_TOP - 32 + 16, 0x1234),
        |made| made.set(ARENA + 16, u64::MAX),
        |made| made.set(ARENA + 16 + 8, THREAD_TOP - 32),
    ];
    for break_it in broken {
        let mut made = Made::new();
        made.fast(&[32]);
        break_it(&mut made);
        assert_eq!(made.tops(), None);
    }
}

#[test]
fn layouts_are_those_of_the_versions_that_were_read() {
    let of = |name: &str| Layout::of(name).map(|one| (one.top(), one.heap_info, one.mangled));
    assert_eq!(of("glibc 2.25"), None);
    assert_eq!(of("glibc 2.26"), Some((88, 32, false)));
    assert_eq!(of("glibc 2.27"), Some((96, 32, false)));
    assert_eq!(of("glibc 2.31"), Some((96, 32, false)));
    assert_eq!(of("glibc 2.32"), Some((96, 32, true)));
    assert_eq!(of("glibc 2.34"), Some((96, 32, true)));
    assert_eq!(of("glibc 2.35"), Some((96, 48, true)));
    assert_eq!(of("glibc 2.42"), Some((96, 48, true)));
    assert_eq!(of("glibc 2.42.9000"), Some((96, 48, true)));
    assert_eq!(of("glibc 2.43"), None);
    assert_eq!(of("jemalloc"), None);
    assert_eq!(LAYOUT.next(), 2160);
}

/// The topmost chunks of this process; other tests run beside this one, so that a reading may not fit.
fn own() -> Vec<(u64, u64)> {
    let pid = std::process::id();
    // SAFETY: it returns a static C string.
    let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
    let info = ProcessInfo {
        allocator: format!("glibc {}", version.to_string_lossy()),
        ..ProcessInfo::default()
    };
    for _ in 0..1000 {
        let mut mappings = mappings::smaps(pid).expect("own mappings");
        let pages = PageMap::open(pid).expect("own pages");
        for mapping in &mut mappings {
            mapping.runs_known = true;
            mapping.runs = pages
                .runs(mapping.start, mapping.end, PAGE)
                .unwrap_or_default();
        }
        if let Some(tops) = Arenas::of(&info).tops(pid, &mappings) {
            return tops;
        }
    }
    panic!("a thousand readings of which none fits");
}

/// Where a block's chunk begins, and where it ends.
fn chunk(block: *mut libc::c_void) -> (u64, u64) {
    // SAFETY: a live block.
    let usable = unsafe { libc::malloc_usable_size(block) } as u64;
    (block as u64 - 16, block as u64 + usable - 8)
}

/// In a thread with an arena of its own: large blocks come from the topmost chunk and go back to it; of small ones the
/// first seven that are freed stay in use, in the thread's cache. It takes nothing while it is looked at.
///
/// It runs in a process of its own: in one of many tests glibc gives a thread the arena of one that has ended, with free
/// chunks below the topmost one, or one that it shares.
#[test]
fn the_topmost_chunk_of_a_thread_of_this_process_begins_where_its_blocks_end() {
    const ALONE: &str = "SKINFLINT_TEST_TOPS_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let (_, module) = module_path!().split_once("::").expect("below its crate");
        let this = format!(
            "{module}::{}",
            "the_topmost_chunk_of_a_thread_of_this_process_begins_where_its_blocks_end"
        );
        let alone = std::process::Command::new(std::env::current_exe().expect("this file"))
            .args(["--exact", &this, "--nocapture"])
            .env(ALONE, "1")
            .output()
            .expect("the same file");
        let said = String::from_utf8_lossy(&alone.stdout);
        let failed = String::from_utf8_lossy(&alone.stderr);
        assert!(alone.status.success(), "{said}{failed}");
        assert!(said.contains("1 passed"), "{said}");
        return;
    }
    let step = Arc::new((Barrier::new(2), AtomicU64::new(0)));
    let shown = Arc::clone(&step);
    let thread = std::thread::spawn(move || {
        let show = |begin: u64| {
            // ORDER: Relaxed; the barrier publishes it.
            shown.1.store(begin, Ordering::Relaxed);
            shown.0.wait();
            shown.0.wait();
        };
        // SAFETY: blocks are freed once, and written nowhere.
        let take = |size, count| (0..count).map(move |_| unsafe { libc::malloc(size) });
        let mut large: Vec<_> = take(60_000, 64).collect();
        show(chunk(large[63]).1);
        // SAFETY: as above.
        large
            .pop()
            .iter()
            .for_each(|&one| unsafe { libc::free(one) });
        show(chunk(large[62]).1);
        let small: Vec<_> = take(100, 400).collect();
        show(chunk(small[399]).1);
        // SAFETY: as above.
        (100..400).for_each(|at| unsafe { libc::free(small[at]) });
        show(chunk(small[106]).1);
        for one in large.iter().chain(&small[..100]) {
            // SAFETY: as above.
            unsafe { libc::free(*one) };
        }
    });
    for what in ["taken", "freed", "small ones", "seven in a cache"] {
        step.0.wait();
        // ORDER: Relaxed; the barrier publishes it.
        let begin = step.1.load(Ordering::Relaxed);
        assert!(own().iter().any(|&(start, _)| start == begin), "{what}");
        step.0.wait();
    }
    thread.join().expect("no panic");
}
