//! Which live pages are told of as cold, and that nothing happens to them.
//!
//! ```text
//!   blocks ─► cool(): noted ─► cool(): all of them ─► a free ─► cool(): all but that span
//! ```
//!
//! C1  One test: marks and heaps are the process's.
//!
//! Not here: what the kernel does with it (`pages`, and by hand `make qemu-alloc`, which has a swap).

use skinflint_alloc::cold::cool;
use skinflint_alloc::{Advice, allow_purger, free, malloc};

const PAGE: usize = 4096;
const SIZE: usize = 200;

fn block(number: usize, bytes: usize) -> *mut u8 {
    // SAFETY: none needed.
    let block = unsafe { malloc(bytes) };
    assert!(!block.is_null());
    // SAFETY: a block of this many bytes.
    unsafe { block.write_bytes(number as u8, bytes) };
    block
}

fn told(advice: Advice, large: bool) -> usize {
    cool(advice, large).expect("Linux 5.4, and nobody else calls")
}

#[test]
fn what_did_not_change_is_cold_and_stays_as_it_is() {
    allow_purger(false);
    let blocks: Vec<*mut u8> = (0..20_000).map(|number| block(number, SIZE)).collect();
    let bytes = blocks.len() * SIZE;
    assert_eq!(told(Advice::Cold, false), 0, "the first look");
    let all = told(Advice::Cold, false);
    // Not the current span.
    assert!(
        (bytes * 9 / 10..bytes * 11 / 10).contains(&all),
        "{all} of {bytes}"
    );
    assert_eq!(told(Advice::PageOut, false), all);

    // A free in a span takes it out for as long as the block lies in the magazine, and one look more.
    let again = blocks[5_000];
    // SAFETY: a block of the test's, once.
    unsafe { free(again) };
    let without = told(Advice::Cold, false);
    let span = all - without;
    assert!(
        span > 0 && span <= 16 * PAGE && span.is_multiple_of(PAGE),
        "{span}"
    );
    assert_eq!(told(Advice::Cold, false), without);
    assert_eq!(block(5_000, SIZE), again, "the block freed last");
    assert_eq!(told(Advice::Cold, false), without);
    assert_eq!(told(Advice::Cold, false), all);

    // Large blocks only if that is wanted.
    let large = block(77, 1 << 20);
    let earlier = told(Advice::PageOut, true);
    assert_eq!(told(Advice::PageOut, true), earlier + (1 << 20));
    assert_eq!(told(Advice::PageOut, false), all);
    // SAFETY: a block of the test's, once.
    unsafe { free(large) };
    assert_eq!(
        told(Advice::Cold, true),
        earlier,
        "what is kept is not live"
    );

    for (number, block) in blocks.into_iter().enumerate() {
        // SAFETY: a block of the test's, once.
        unsafe {
            assert!((0..SIZE).all(|at| block.add(at).read() == number as u8));
            free(block);
        }
    }
}
