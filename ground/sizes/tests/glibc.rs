//! The `glibc` scheme, compared with the libc that runs this test.
//!
//! G1  Every size to 64 KiB is asked; each block is released before the next is asked for, so that
//!     it comes from the top of the heap or from a bin of exactly its chunk size.
//! G2  One test in this file, so that no other thread of the binary fragments the heap meanwhile.
//!
//! Not here: sizes that glibc maps (the threshold moves as such blocks are freed).

use skinflint_sizes::Scheme;

#[test]
fn usable_sizes_are_those_of_the_running_libc() {
    let scheme = Scheme::by_name("glibc").expect("known");
    let mut larger = 0u32;
    for size in 0..=65_536u64 {
        // SAFETY: plain C allocation; the block is asked for its size once and released once (G1).
        let usable = unsafe {
            let block = libc::malloc(size as usize);
            assert!(!block.is_null());
            let usable = libc::malloc_usable_size(block) as u64;
            libc::free(block);
            usable
        };
        let ours = scheme.usable(size);
        // A remainder too small to be a chunk is given with the block: 16 bytes more, now and then.
        assert!(
            usable == ours || usable == ours + 16,
            "{size}: libc {usable}, scheme {ours}"
        );
        larger += u32::from(usable != ours);
    }
    assert!(larger < 656, "more than 1 % of the sizes differ: {larger}");
}
