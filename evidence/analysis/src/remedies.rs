//! Remedies for free pages that an allocator keeps: what gives them back, and how many of them.
//!
//! ```text
//!   glibc   |LL  free  LLL    free    LL|  topmost chunk  |
//!             └─ malloc_trim(0), exec ─┘  └─ also trim_threshold
//! ```
//!
//! E1  A remedy that is named first gives back the bytes that are promised with it. glibc's `trim_threshold` reaches
//!     topmost chunks only: it comes first where next to all free pages lie there, and promises these.
//! E2  Without knowledge of the topmost chunks (giveback.B4) only remedies are named that reach every page.
//!
//! Not here: how many pages are free (`giveback.rs`), whether giving them back is worth it (`findings.rs`).

use skinflint_trace::OriginKind;

use crate::facts::Facts;
use crate::giveback::GiveBack;
use crate::passes::wording::bytes as size;

/// The part of free pages, per cent, from which those of the topmost chunk stand for all (E1).
const NEXT_TO_ALL: u64 = 90;
/// The fewest bytes of a topmost chunk that are worth a setting of their own.
const WORTH_BYTES: u64 = 1 << 20;
/// The bytes of a topmost chunk that glibc keeps at a threshold of 128 KiB: as many, for what comes next.
const TOP_PAD: u64 = 128 << 10;

/// A way to give free pages back.
pub(crate) struct Remedy {
    /// What to do.
    pub change: String,
    /// The most bytes that it gives back.
    pub bytes: u64,
    /// Whether these are known to the page.
    pub is_exact: bool,
}

/// Returns what makes this allocator give whole pages back, the best remedy first (E1).
pub(crate) fn give_back(facts: &Facts, giveback: GiveBack) -> Remedy {
    let allocator = facts.process.allocator.as_str();
    let origin = facts.process.origin.as_ref();
    let all = |change: String| Remedy {
        change,
        bytes: giveback.whole_bytes,
        is_exact: allocator.starts_with("glibc"),
    };
    // Threads of the allocator's own do not come along: its worker is missed from then on.
    if allocator.contains("jemalloc") && origin.is_some_and(|one| one.how == OriginKind::Fork) {
        return all(
            "MALLOC_CONF=dirty_decay_ms:0,muzzy_decay_ms:0: this process is a copy (fork), in which jemalloc's \
             background thread does not run. With many threads also narenas:2."
                .into(),
        );
    }
    let advice = advice_for(allocator);
    if !allocator.starts_with("glibc") {
        return all(advice.into());
    }
    // A stream of marks from outside is a thread without a number of the kernel's: it has no arena.
    let threads = facts.threads.iter().filter(|thread| thread.tid != 0);
    let arenas = match threads.count() > 1 {
        true => format!(" {FEWER_ARENAS}"),
        false => String::new(),
    };
    let top = giveback.top_bytes;
    if top > 0 && top >= giveback.whole_bytes / 100 * NEXT_TO_ALL {
        return Remedy {
            change: format!("{TOP_END} {advice}{arenas}"),
            bytes: top.saturating_sub(TOP_PAD),
            is_exact: false,
        };
    }
    let partly = match top >= WORTH_BYTES {
        true => format!(
            " GLIBC_TUNABLES=glibc.malloc.trim_threshold=131072 does it for {} of them alone, at the end of the data \
             segment.",
            size(top)
        ),
        false => String::new(),
    };
    all(format!("{advice}{partly}{arenas}"))
}

/// How glibc is made to give the end of the data segment back by itself.
const TOP_END: &str = "GLIBC_TUNABLES=glibc.malloc.trim_threshold=131072: they lie at the end of the data segment, and \
     then go back as its blocks are freed (glibc raises the threshold by itself otherwise); blocks of 128 KiB and more \
     are mapped each by itself, which takes time.";
/// How glibc is made to give the ends of its heaps back. By itself it raises the threshold to twice the largest block
/// that was mapped alone and freed, at most 64 MiB.
pub(crate) const ARENA_ENDS: &str = "GLIBC_TUNABLES=glibc.malloc.trim_threshold=131072: the ends of arenas then go back as their \
     blocks are freed (glibc raises the threshold by itself otherwise); blocks of 128 KiB and more are mapped each by \
     itself, which takes time.";
/// Advice for a program with threads, to be measured before it is followed.
pub(crate) const FEWER_ARENAS: &str = "Fewer arenas (MALLOC_ARENA_MAX=2) hold less where threads allocate in turns, and more where \
     long-lived blocks of one thread then lie among those of the others: measure it.";

/// How jemalloc is made to give pages back soon, and while the program rests.
pub(crate) const JEMALLOC_ADVICE: &str = "MALLOC_CONF=background_thread:true,dirty_decay_ms:500,muzzy_decay_ms:0. With many threads also narenas:2.";

/// Returns what makes an allocator of this name give whole pages back.
fn advice_for(allocator: &str) -> &'static str {
    if allocator.starts_with("glibc") {
        "Call malloc_trim(0) after large releases, or from time to time when idle. Or run the \
         program on an allocator that gives pages back by itself (skinflint exec)."
    } else if allocator.contains("jemalloc") {
        JEMALLOC_ADVICE
    } else if allocator.contains("mimalloc") {
        "MIMALLOC_PURGE_DELAY=0, or mi_collect(true) after large releases."
    } else if allocator.contains("tcmalloc") {
        "TCMALLOC_RELEASE_RATE=10, or MallocExtension ReleaseFreeMemory after large releases."
    } else if allocator.contains("skinflint") {
        "Call malloc_trim(0) after large releases: it gives all of them back at once. By itself this \
         allocator gives them back while the program is idle, unless SKINFLINT_PURGE=off."
    } else {
        "Use the allocator's own call or option to give free pages back, or another allocator."
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skinflint_trace::{Origin, ProcessInfo, Thread};

    #[test]
    fn advice_is_for_what_the_process_is() {
        let facts = |allocator: &str, forked: bool, threads: usize| Facts {
            process: ProcessInfo {
                allocator: allocator.into(),
                origin: forked.then(|| Origin {
                    how: OriginKind::Fork,
                    uid: "1".into(),
                    pid: 7,
                    fork_ticket: 9,
                }),
                ..ProcessInfo::default()
            },
            threads: (0..threads)
                .map(|number| Thread {
                    tid: 4711 + number as u32,
                    ..Thread::default()
                })
                .chain([Thread::default()])
                .collect(),
            ..Facts::default()
        };
        let advice = |allocator, forked, threads| {
            give_back(&facts(allocator, forked, threads), GiveBack::default()).change
        };
        // A copy has no thread of jemalloc's.
        assert!(advice("jemalloc 5.3.0", false, 9).contains("background_thread:true"));
        let copy = advice("jemalloc 5.3.0", true, 9);
        assert!(copy.contains("dirty_decay_ms:0") && !copy.contains("background_thread:true"));
        // Arenas are of threads.
        let threads = advice("glibc 2.36", false, 2);
        assert!(threads.starts_with("Call malloc_trim(0)"), "{threads}");
        assert!(threads.contains("MALLOC_ARENA_MAX=2"));
        assert!(!advice("glibc 2.36", true, 1).contains("ARENA"));
    }

    #[test]
    fn the_remedy_that_comes_first_reaches_the_pages_that_are_promised() {
        const MIB: u64 = 1 << 20;
        let facts = Facts {
            process: ProcessInfo {
                allocator: "glibc 2.36".into(),
                ..ProcessInfo::default()
            },
            ..Facts::default()
        };
        let remedy = |top_bytes| {
            let giveback = GiveBack {
                whole_bytes: 20 * MIB,
                top_bytes,
                tops_known: true,
                ..GiveBack::default()
            };
            give_back(&facts, giveback)
        };
        // Between blocks, at the end or at both.
        let inside = remedy(0);
        assert!(inside.change.starts_with("Call malloc_trim(0)"));
        assert!(inside.change.contains("skinflint exec") && inside.is_exact);
        assert!(
            !inside.change.contains("trim_threshold"),
            "{}",
            inside.change
        );
        assert_eq!(inside.bytes, 20 * MIB);
        let end = remedy(19 * MIB);
        assert!(
            end.change
                .starts_with("GLIBC_TUNABLES=glibc.malloc.trim_threshold")
        );
        assert_eq!((end.bytes, end.is_exact), (19 * MIB - TOP_PAD, false));
        let both = remedy(8 * MIB);
        assert!(both.change.starts_with("Call malloc_trim(0)"));
        let said = "trim_threshold=131072 does it for 8.00 MiB of them alone";
        assert!(both.change.contains(said), "{}", both.change);
        assert_eq!(both.bytes, 20 * MIB);
    }
}
