//! The check itself: each thing that is made wrong is named, and nothing is said of what is right.
//!
//! ```text
//!   all locks ─► one word wrong ─► check ─► its name, and where ─► the word as it was ─► check: all holds
//! ```
//!
//! C1  What is wrong is so only while every lock is held: no thread acts on it.
//!
//! Not here: whether the engine keeps what is checked (`tests/engine` and whatever else ends with a check).

use std::sync::MutexGuard;

use super::*;
use crate::mechanism::map::map_entry;
use crate::services::handles;
use crate::test_engine::{alone, in_child, new};

/// A heap of the test's own, with spans of 64 slots: a full one, and the current one of which one slot is taken.
struct Books {
    heap: &'static Heap,
    full: &'static Span,
    _alone: MutexGuard<'static, ()>,
}

impl Books {
    fn new() -> Books {
        let alone = alone();
        let heap = new();
        let class = class::base_class(64);
        assert!(heap.lock.lock(heap.who()));
        // SAFETY: the lock is held, and no thread has the heap.
        let full = unsafe {
            heap.take_locked(class);
            let full = heap.current(class);
            while heap.current(class) == full {
                heap.take_locked(class);
            }
            &*full
        };
        heap.lock.unlock();
        Books {
            heap,
            full,
            _alone: alone,
        }
    }

    /// What is said while something is wrong (C1), first by this level and then by the one below.
    fn while_wrong(
        &self,
        level: u32,
        change: impl FnOnce(&mut Pool),
        back: impl FnOnce(&mut Pool),
    ) -> [Held; 2] {
        let mine = core::ptr::from_ref(self.heap).cast_mut();
        let who = fork::who();
        assert!(PURGE_LOCK.lock(who));
        fork::lock_all(who);
        // SAFETY: the pool's lock is held, and each reference ends before the next one is made.
        let pool = || unsafe { pool_locked() };
        change(pool());
        let said = [level, level - 1].map(|level| check_all(level, mine, pool()));
        back(pool());
        let after = check_all(3, mine, pool());
        fork::unlock_all(who);
        PURGE_LOCK.unlock();
        assert_eq!(after, Ok(()), "as it was");
        said
    }

    /// A count that is one too high is named so, and a level below says nothing of it.
    #[track_caller]
    fn one_more(&self, level: u32, count: &AtomicU32, what: &str, at: usize) {
        let add = |_: &mut Pool| _ = count.fetch_add(1, Ordering::Relaxed); // ORDER: the locks are held (C1)
        let sub = |_: &mut Pool| _ = count.fetch_sub(1, Ordering::Relaxed); // ORDER: as above
        named(&self.while_wrong(level, add, sub), what, at);
    }
}

#[track_caller]
fn named(said: &[Held; 2], what: &str, at: usize) {
    let broken = said[0].expect_err("something is wrong");
    assert!(broken.what.starts_with(what), "{broken:x?}");
    assert_eq!(broken.at, at, "{broken:x?}");
    // What the lowest level finds all do; level 0 is not asked (`check_as`).
    assert!(said[1].is_ok() || said[1] == said[0], "{said:x?}");
}

#[test]
fn a_count_that_is_wrong_is_named() {
    let books = Books::new();
    let heap = core::ptr::from_ref(books.heap) as usize;
    books.one_more(1, &pool::HOLES, "O2: HOLES", 0);
    books.one_more(1, &books.heap.pages, "H4: a heap's pages", heap);
    books.one_more(1, &books.heap.empty_pages, "H4: a heap's empty pages", heap);
    books.one_more(2, &BESIDE, "P3: pages in use that are in no span", 0);
    let class = class::base_class(64);
    let more = |pages: i32| move |_: &mut Pool| class::population(class, pages);
    let said = books.while_wrong(1, more(1), more(-1));
    named(&said, "H4: a class's population", class);
    let said = books.while_wrong(
        2,
        |pool| pool.dirty_pages += 1,
        |pool| pool.dirty_pages -= 1,
    );
    named(&said, "dirty pages miscounted", 0);
    assert_eq!(said[1], Ok(()), "the pool is looked at from level 2 on");
}

#[test]
fn a_bit_for_a_list_without_a_span_is_named() {
    let books = Books::new();
    let word = &books.heap.has_empty[class::base_class(64) / 64];
    let bit = 1 << (class::base_class(64) % 64);
    let flip = |_: &mut Pool| _ = word.fetch_xor(bit, Ordering::Relaxed); // ORDER: the locks are held (C1)
    let at = core::ptr::from_ref(books.heap) as usize;
    named(&books.while_wrong(1, flip, flip), "H6: ", at);
}

#[test]
fn a_span_that_does_not_belong_where_it_is_is_named() {
    let books = Books::new();
    let span = books.full;
    let at = span.start();
    // ORDER: the locks are held (C1), throughout.
    let state = |to: u8| move |_: &mut Pool| span.state.store(to, Ordering::Relaxed);
    let said = books.while_wrong(1, state(span::state::PARTIAL), state(span::state::FULL));
    named(&said, "H3: a span on another state's list", at);
    let current = books.heap.current(class::base_class(64));
    // SAFETY: the current span of a class is live (heap.H3).
    let current: &'static Span = unsafe { &*current };
    let state = |to: u8| move |_: &mut Pool| current.state.store(to, Ordering::Relaxed); // ORDER: as above
    let said = books.while_wrong(1, state(span::state::FULL), state(span::state::CURRENT));
    named(
        &said,
        "H3: a class's current span is not Current",
        current.start(),
    );
    books.one_more(1, &span.owner, "H3: a span of another heap on a list", at);
    let back = span.prev.load(Ordering::Relaxed); // ORDER: as above
    let link = |to: u32| move |_: &mut Pool| span.prev.store(to, Ordering::Relaxed); // ORDER: as above
    let said = books.while_wrong(1, link(back ^ 64), link(back));
    named(&said, "H3: a list's links do not match", at);
    let pages = |more: i32| {
        move |_: &mut Pool| {
            // SAFETY: a page of the span.
            let entry = unsafe { map_entry(at - base()) };
            let offset = entry.load(Ordering::Relaxed); // ORDER: as above
            entry.store(offset.wrapping_add_signed(more), Ordering::Relaxed); // ORDER: as above
        }
    };
    let other = offset_of(current).wrapping_sub(offset_of(span)) as i32;
    let said = books.while_wrong(2, pages(other), pages(-other));
    named(&said, "H3: a page of a span that leads elsewhere", at);
    assert_eq!(said[1], Ok(()), "pages are looked at from level 2 on");
}

#[test]
fn a_bit_that_cannot_be_is_named() {
    let books = Books::new();
    let span = books.full;
    let slots = span.slots as usize;
    assert_eq!(slots, 64, "the mark is in a word of its own");
    // SAFETY: the words that the span has.
    let slot_bits = [0, 1].map(|word| unsafe { span.slot_bits(word) });
    let flipped = |word: &AtomicU64, bit: u32| {
        // ORDER: the locks are held (C1).
        let flip = |_: &mut Pool| _ = word.fetch_xor(1 << bit, Ordering::Relaxed);
        books.while_wrong(3, flip, flip)
    };
    for (word, bit, what) in [
        (&slot_bits[0].free, 5, "S1: a slot in F and not in D"),
        (&slot_bits[1].free, 0, "S1: a bit beyond the last slot"),
        (&slot_bits[1].remote, 1, "S1: a bit beyond the last slot"),
        (&slot_bits[1].dead, 0, "S8: no mark behind the last slot"),
        (&slot_bits[1].dead, 1, "S8: no mark behind the last slot"),
    ] {
        let said = flipped(word, bit);
        named(&said, what, span.start());
        assert_eq!(said[1], Ok(()), "bits are looked at by level 3");
    }
    let both = |_: &mut Pool| {
        // ORDER: as above.
        slot_bits[0].dead.fetch_xor(2, Ordering::Relaxed);
        slot_bits[0].remote.fetch_xor(2, Ordering::Relaxed); // ORDER: as above
    };
    let said = books.while_wrong(3, both, both);
    named(&said, "S1: a slot in both D and R", span.start());
}

#[test]
fn pages_that_are_not_clean_and_events_that_do_not_come_are_named() {
    let books = Books::new();
    let span = books.full;
    // ORDER: the locks are held (C1), throughout.
    let clean = |to: u16, holes: i32| {
        move |_: &mut Pool| {
            span.clean.store(to, Ordering::Relaxed);
            pool::HOLES.fetch_add(holes as u32, Ordering::Relaxed); // ORDER: as above
        }
    };
    let said = books.while_wrong(3, clean(1, 1), clean(0, -1));
    named(&said, "O1: a clean page with a live block", span.start());
    let due = span.left.load(Ordering::Relaxed); // ORDER: as above
    let left = |to: u32| move |_: &mut Pool| span.left.store(to, Ordering::Relaxed); // ORDER: as above
    // One late may be (a fork's child).
    let said = books.while_wrong(3, left(64 + 1), left(due));
    assert_eq!(said, [Ok(()); 2]);
    let said = books.while_wrong(3, left(64 + 2), left(due));
    named(&said, "S6: no event before", span.start());
    let current = books.heap.current(class::base_class(64));
    // SAFETY: the current span of a class is live (heap.H3).
    let current: &'static Span = unsafe { &*current };
    let left = |to: u32| move |_: &mut Pool| current.left.store(to, Ordering::Relaxed); // ORDER: as above
    let said = books.while_wrong(3, left(1), left(u32::MAX));
    assert_eq!(said, [Ok(()); 2], "the purger's");
    let said = books.while_wrong(3, left(2), left(u32::MAX));
    named(&said, "S6: a Current span", current.start());
}

/// The levels that others ask for are those that are checked; none of them nothing.
#[test]
fn each_level_asked_for_is_checked_and_none_is_none() {
    let _alone = alone();
    let heaps_before = handles::heaps();
    pool::HOLES.fetch_add(1, Ordering::Relaxed); // ORDER: one test at a time
    let said = [0, 1, 2, 3].map(check_invariants);
    pool::HOLES.fetch_sub(1, Ordering::Relaxed); // ORDER: as above
    assert_eq!(said[0], Ok(()));
    for held in &said[1..] {
        assert!(held.expect_err("wrong").what.starts_with("O2: "));
    }
    new();
    new();
    assert_eq!(handles::heaps(), heaps_before + 2);
}

#[test]
fn a_span_of_another_class_than_its_lists_is_named() {
    let books = Books::new();
    let (here, there) = (class::base_class(64), class::base_class(80));
    let heap = books.heap;
    // ORDER: the locks are held (C1), throughout.
    let swap = |_: &mut Pool| {
        let list = heap.full[here].load(Ordering::Relaxed);
        heap.full[here].store(heap.full[there].load(Ordering::Relaxed), Ordering::Relaxed); // ORDER: as above
        heap.full[there].store(list, Ordering::Relaxed); // ORDER: as above
    };
    let said = books.while_wrong(1, swap, swap);
    named(
        &said,
        "H3: a span on another class's list",
        books.full.start(),
    );
}

/// Each pass of the purger checks, however seldom slow paths do.
#[test]
fn passes_check_though_slow_paths_seldom_do() {
    let name = "services::check::tests::passes_check_though_slow_paths_seldom_do";
    let told = in_child(name, || {
        let _alone = alone();
        watch(1, u32::MAX);
        // The first of so many is one.
        for _ in 0..3 {
            NEXT_NS.store(0, Ordering::Relaxed); // ORDER: one thread
            maybe();
        }
        for _ in 0..3 {
            NEXT_NS.store(0, Ordering::Relaxed); // ORDER: as above
            maybe_as(crate::mechanism::lock::PURGER);
        }
        say();
    });
    let Some((status, said)) = told else { return };
    assert!(status.success(), "{said}");
    assert!(said.contains("skinflint: check: held 4 times\n"), "{said}");
}

#[test]
fn what_a_watched_process_finds_wrong_it_says_and_ends() {
    let name = "services::check::tests::what_a_watched_process_finds_wrong_it_says_and_ends";
    let told = in_child(name, || {
        let _alone = alone();
        watch(1, 1);
        maybe();
        say();
        pool::HOLES.fetch_add(1, Ordering::Relaxed); // ORDER: one thread
        // At once: a check waits four times as long as the one before took.
        NEXT_NS.store(0, Ordering::Relaxed); // ORDER: as above
        maybe();
        eprintln!("not looked at");
    });
    let Some((status, said)) = told else { return };
    let said: Vec<&str> = said
        .lines()
        .filter(|line| line.starts_with("skinflint"))
        .collect();
    let wrong = "skinflint: check: O2: HOLES is not the sum of the spans' clean pages (at 0x0)";
    assert_eq!(said, ["skinflint: check: held 1 times", wrong]);
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(status.signal(), Some(libc::SIGABRT));
}
