//! Under a kernel with pages of 16 and 64 KiB: it is asked only for whole pages of its own.
//!
//! ```text
//!   pretend(16 KiB) ─► give back each range of a block ─► reads as zero, its neighbours are as they were,
//!                                                         and the pages at its edges stayed: nobody asked for them
//! ```
//!
//! The true kernel's pages are of 4 KiB: it would take any range of ours. So what it took shows what it was asked for. One
//! test: the size belongs to the process.

use skinflint_base::{page, sys};
use skinflint_pages::purge::Batch;
use skinflint_pages::{Options, PAGE, Pool};

/// Pages of ours in a block.
const PAGES: usize = 64;

#[test]
fn what_is_not_whole_pages_of_the_kernels_is_not_asked_for() {
    if page::is_larger() {
        return; // By the kernel itself: the other tests are about it.
    }
    for larger in [16 << 10, 64 << 10] {
        page::pretend(larger);
        let each = larger / PAGE;
        let block = sys::map_private(PAGES * PAGE + larger) as usize;
        let block = block.next_multiple_of(larger);
        for first in 0..each + 2 {
            for count in [1, 2, each - 1, each, each + 1, 2 * each + 3] {
                give_back(block, first, count.min(PAGES - first), each);
            }
        }
        mappings_end_on_its_pages(larger);
        page::pretend(PAGE);
    }
}

fn give_back(block: usize, first: usize, count: usize, each: usize) {
    let start = block as *mut u8;
    // SAFETY: the test's own mapping, here and below.
    unsafe { start.write_bytes(7, PAGES * PAGE) };
    let mut batch = Batch::new();
    batch.add(block + first * PAGE, count * PAGE);
    let taken = batch.flush();
    let whole_first = first.next_multiple_of(each);
    let whole_end = (first + count) / each * each;
    assert_eq!(
        taken,
        whole_end.saturating_sub(whole_first),
        "{first} {count} {each}"
    );
    let mut there = [0u8; PAGES];
    // SAFETY: as above; a byte for each page.
    let told = unsafe { libc::mincore(start.cast(), PAGES * PAGE, there.as_mut_ptr()) };
    assert_eq!(told, 0);
    for (index, page) in there.iter().enumerate() {
        let is_gone = whole_first <= index && index < whole_end;
        assert_eq!(page & 1 == 0, is_gone, "{index}: {first} {count} {each}");
    }
    for index in 0..PAGES {
        // SAFETY: as above.
        let page = unsafe { std::slice::from_raw_parts(start.add(index * PAGE), PAGE) };
        let expected = if (first..first + count).contains(&index) {
            0
        } else {
            7
        };
        assert!(
            page.iter().all(|&byte| byte == expected),
            "{index}: {first} {count} {each}"
        );
    }
}

fn mappings_end_on_its_pages(larger: usize) {
    let mut pool = Pool::new();
    let options = Options {
        huge_pages: false,
        seed: 7,
        first_heap_bytes: PAGE,
    };
    assert!(pool.region.place(&options));
    for pages in [1, 3, 300, 5_001] {
        assert!(pool.take(pages, 1).is_some());
        let bytes = pool.region.heap_bytes();
        assert!(
            bytes.is_multiple_of(larger),
            "{bytes} after {pages} pages, {larger}"
        );
    }
    let end = pool.region.base() + pool.region.heap_bytes();
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let edge = |text: &str| usize::from_str_radix(text, 16).expect("a number");
    let mut seen = 0;
    for line in maps.lines() {
        let (from, rest) = line.split_once('-').expect("a range");
        let (from, to) = (edge(from), edge(rest.split(' ').next().expect("an end")));
        if pool.region.meta() <= from && to <= end {
            assert!((from | to).is_multiple_of(larger), "{line}");
            seen += 1;
        }
    }
    assert!(seen >= 1, "{maps}");
    // SAFETY: nothing refers to it.
    unsafe { pool.region.release() };
}
