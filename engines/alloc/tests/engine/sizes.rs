//! Every size and every alignment at its edges, once.
//!
//! Not here: anything at random (`threads`).

use skinflint_alloc::check::check_invariants;
use skinflint_alloc::{calloc, free, malloc, memalign, realloc, usable_size};

use crate::blocks::{Blocks, Way};

#[test]
fn every_size_to_70_000() {
    let mut blocks = Blocks::default();
    for bytes in 1..=70_000 {
        let way = if bytes % 3 == 0 {
            Way::Calloc
        } else {
            Way::Malloc
        };
        blocks.begin(bytes, way, bytes as u64).expect("memory");
        if blocks.len() > 60 {
            blocks.clear();
        }
    }
    blocks.clear();
    check_invariants(3).expect("at the end");
}

#[test]
fn every_alignment_at_every_edge() {
    let mut blocks = Blocks::default();
    for shift in 0..=22 {
        let align = 1_usize << shift;
        let edges = [
            1, 15, 16, 17, 1_000, 4_095, 4_096, 4_097, 32_767, 32_768, 32_769, 100_000,
        ];
        let own = [
            align.saturating_sub(1).max(1),
            align,
            align + 1,
            3 * align,
            3 * align + 1,
        ];
        for bytes in edges.into_iter().chain(own) {
            blocks
                .begin(bytes, Way::Memalign(align), bytes as u64)
                .expect("memory");
        }
        blocks.check();
        blocks.clear();
    }
    check_invariants(3).expect("at the end");
}

#[test]
fn every_edge_of_a_class_by_realloc() {
    let mut blocks = Blocks::default();
    for doubling in 0..12 {
        for eighth in 0..8 {
            let edge = (16_usize << doubling) + (2_usize << doubling) * eighth;
            for (from, to) in [
                (edge - 1, edge),
                (edge, edge + 1),
                (edge + 1, edge - 1),
                (edge, 1),
                (1, edge),
            ] {
                let block = blocks
                    .begin(from, Way::Malloc, edge as u64)
                    .expect("memory");
                assert!(blocks.resize(block.address, to));
                blocks.clear();
            }
        }
    }
    check_invariants(3).expect("at the end");
}

/// A small block with an alignment lies among small ones, and costs no page of its own.
#[test]
fn an_aligned_small_block_is_small() {
    for shift in 5..=12 {
        let align = 1_usize << shift;
        for bytes in [1, 24, align, 3 * align] {
            // SAFETY: freed at once.
            unsafe {
                let block = memalign(align, bytes);
                let (least, have) = (bytes.next_multiple_of(align), usable_size(block));
                assert!(
                    have >= least && have <= least + least / 4,
                    "{bytes} at {align}: {have}"
                );
                free(block);
            }
        }
    }
}

/// A copy costs more than slop which the next growth may use; but not more than half of a block.
#[test]
fn a_block_stays_where_it_is_until_half_of_it_is_not_wanted() {
    for edge in (48..8_192).step_by(48).chain([9_000, 20_000, 30_000]) {
        // SAFETY: one block, resized and freed.
        unsafe {
            let block = malloc(edge);
            let have = usable_size(block);
            for stays in [have, have - 1, have / 2 + 1] {
                assert_eq!(realloc(block, stays), block, "{have} to {stays}");
            }
            let less = realloc(block, have / 2);
            assert!(usable_size(less) < have, "{have} to its half");
            free(less);
        }
    }
    check_invariants(3).expect("at the end");
}

#[test]
fn a_block_that_grows_step_by_step_moves_seldom() {
    // SAFETY: one block, resized and freed.
    unsafe {
        let mut block = malloc(16);
        let mut moves = 0;
        for bytes in (32..=4_096).step_by(16) {
            let before = block;
            block = realloc(block, bytes);
            moves += u32::from(block != before);
            let most = bytes + bytes / 4;
            assert!(usable_size(block) <= most + most / 8 + 16, "{bytes}");
        }
        free(block);
        // Into the next class each time there are 47. Each sample costs one more.
        assert!((10..20).contains(&moves), "{moves} moves");
    }
}

#[test]
fn a_block_that_grows_once_or_by_much_gets_what_it_asks_for() {
    let plain = |bytes| {
        // SAFETY: one block, freed at once.
        unsafe {
            let block = malloc(bytes);
            let have = usable_size(block);
            free(block);
            have
        }
    };
    // SAFETY: one block each, resized and freed.
    unsafe {
        for bytes in [48, 256, 1_000, 10_000, 30_000] {
            let mut block = malloc(bytes);
            for more in [16, 32, 48] {
                block = realloc(block, bytes + more);
                assert!(usable_size(block) <= plain(bytes + more), "{bytes}");
            }
            free(block);
            let block = realloc(malloc(bytes), bytes + 400);
            assert_eq!(usable_size(block), plain(bytes + 400), "{bytes}");
            free(block);
        }
        let mut block = malloc(16);
        for bytes in [40, 100, 250, 600, 1_500, 4_000, 10_000, 25_000] {
            block = realloc(block, bytes);
            assert_eq!(usable_size(block), plain(bytes), "{bytes}");
        }
        free(block);
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let errno = || {
        // SAFETY: this thread's errno.
        unsafe { core::mem::replace(&mut *libc::__errno_location(), 0) }
    };
    errno();
    for (count, bytes) in [
        (usize::MAX, 2),
        (1 << 32, 1 << 32),
        (3, usize::MAX / 2),
        (1, usize::MAX),
    ] {
        // SAFETY: no block is made.
        assert!(
            // SAFETY: a refusal is expected; a block would be lost, and fail the test.
            unsafe { calloc(count, bytes) }.is_null(),
            "{count} * {bytes}"
        );
        assert_eq!(errno(), libc::ENOMEM);
    }
    for (align, bytes) in [
        (1 << 62, 1),
        (1 << 46, 100),
        (16, usize::MAX),
        (32, usize::MAX),
        (4_096, usize::MAX - 5),
        (1 << 63, 1),
        (4096, isize::MAX as usize),
    ] {
        // SAFETY: no block is made.
        assert!(
            // SAFETY: a refusal is expected; a block would be lost, and fail the test.
            unsafe { memalign(align, bytes) }.is_null(),
            "{bytes} at {align}"
        );
        assert_eq!(errno(), libc::ENOMEM);
    }
    check_invariants(3).expect("after refusals");
}

/// As Rust asks for blocks: alignment and contents stay when they are resized, and zeroes are zeroes.
#[test]
fn layouts_are_kept() {
    use std::alloc::{GlobalAlloc, Layout};
    let heap = skinflint_alloc::Skinflint;
    for align in [1, 8, 16, 32, 64, 256, 4_096] {
        for (bytes, more) in [
            (1, 40),
            (64, 200),
            (100, 5_000),
            (3_000, 40_000),
            (50_000, 70),
        ] {
            let layout = |bytes| Layout::from_size_align(bytes, align).expect("a layout");
            // Several at a time, since a block may be aligned by chance.
            let blocks = [(); 9].map(|()| {
                // SAFETY: a block of this layout, used within its size; resized and freed below.
                unsafe {
                    let block = heap.alloc_zeroed(layout(bytes));
                    assert_eq!(block as usize % align, 0, "{bytes} at {align}");
                    assert!((0..bytes).all(|i| block.add(i).read() == 0));
                    block.write_bytes(5, bytes);
                    block
                }
            });
            let blocks = blocks.map(|block| {
                // SAFETY: a live block of this layout, given up for another.
                unsafe {
                    if align <= 16 && bytes >= 64 {
                        let same = heap.realloc(block, layout(bytes), bytes - 1);
                        assert_eq!(same, block, "in place, where that can be");
                    }
                    let block = heap.realloc(block, layout(bytes), more);
                    assert_eq!(block as usize % align, 0, "{more} at {align}");
                    assert!((0..more.min(bytes - 1)).all(|i| block.add(i).read() == 5));
                    block.write_bytes(6, more);
                    block
                }
            });
            for block in blocks {
                // SAFETY: a live block of this layout.
                unsafe { heap.dealloc(block, layout(more)) };
            }
            // Where others have been, zeroes are zeroes still.
            // SAFETY: freed at once.
            unsafe {
                let block = heap.alloc_zeroed(layout(more));
                assert!(
                    (0..more).all(|i| block.add(i).read() == 0),
                    "{more} at {align}"
                );
                heap.dealloc(block, layout(more));
            }
        }
    }
    check_invariants(3).expect("at the end");
}
