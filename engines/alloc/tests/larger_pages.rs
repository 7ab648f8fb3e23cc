//! The allocator under a kernel with pages of 16 and 64 KiB, of which it is only told: no byte of a live block changes, and
//! what is counted holds.
//!
//! ```text
//!   child ─► pretend(16 KiB │ 64 KiB) ─► small, large and growing blocks with marks ─► freed in between, trims ─► marks, invariants
//! ```
//!
//! That the kernel is asked for whole pages of its own is tested in pages (`tests/larger.rs`); here that nothing above
//! relies on pages of 4 KiB being taken.
//!
//! One test: the size belongs to the process, and is set before its first block.

use skinflint_alloc as alloc;
use skinflint_base::page;
use skinflint_base::random::Random;

const CHILD: &str = "SKINFLINT_TEST_LARGER_PAGE";

#[test]
fn blocks_keep_their_bytes_under_larger_pages() {
    if let Ok(bytes) = std::env::var(CHILD) {
        return child(bytes.parse().expect("a number"));
    }
    for bytes in [16 << 10, 64 << 10] {
        let own = std::env::current_exe().expect("a path");
        let ended = std::process::Command::new(own)
            .env(CHILD, bytes.to_string())
            .status()
            .expect("starts");
        assert!(ended.success(), "{bytes}");
    }
}

struct Block {
    at: *mut u8,
    bytes: usize,
    mark: u8,
}

impl Block {
    fn fill(&self) {
        // SAFETY: a live block of this many bytes, here and below.
        unsafe { self.at.write_bytes(self.mark, self.bytes) };
    }

    fn check(&self, bytes: usize) {
        // SAFETY: as above.
        let all = unsafe { std::slice::from_raw_parts(self.at, bytes) };
        assert!(all.iter().all(|&byte| byte == self.mark), "{bytes}");
    }
}

fn child(bytes: usize) {
    if page::is_larger() {
        return; // By the kernel itself.
    }
    page::pretend(bytes);
    let mut random = Random::new(bytes as u64);
    let mut blocks: Vec<Block> = Vec::new();
    for round in 0..40_000u32 {
        let size = match random.below(100) {
            0 => 1 + random.below(400_000) as usize,
            1..=4 => 1 + random.below(40_000) as usize,
            _ => 1 + random.below(2_000) as usize,
        };
        let mark = round as u8 | 1;
        match random.below(5) {
            0 | 1 if !blocks.is_empty() => {
                let index = random.below(blocks.len() as u64) as usize;
                let block = blocks.swap_remove(index);
                block.check(block.bytes);
                // SAFETY: a live block.
                unsafe { alloc::free(block.at) };
            }
            2 if !blocks.is_empty() => {
                let index = random.below(blocks.len() as u64) as usize;
                let block = &mut blocks[index];
                // SAFETY: a live block.
                block.at = unsafe { alloc::realloc(block.at, size) };
                block.check(size.min(block.bytes));
                block.bytes = size;
                block.fill();
            }
            3 => {
                // SAFETY: freed later.
                let at = unsafe { alloc::calloc(1, size) };
                let block = Block {
                    at,
                    bytes: size,
                    mark: 0,
                };
                block.check(size);
                blocks.push(Block { mark, ..block });
                blocks[blocks.len() - 1].fill();
            }
            _ => {
                // SAFETY: freed later.
                let at = unsafe { alloc::malloc(size) };
                blocks.push(Block {
                    at,
                    bytes: size,
                    mark,
                });
                blocks[blocks.len() - 1].fill();
            }
        }
        if round % 4_000 == 3_999 {
            // Most go, so that there are holes of every length.
            for _ in 0..blocks.len() * 3 / 4 {
                let block = blocks.swap_remove(random.below(blocks.len() as u64) as usize);
                block.check(block.bytes);
                // SAFETY: a live block.
                unsafe { alloc::free(block.at) };
            }
            alloc::trim();
            blocks.iter().for_each(|block| block.check(block.bytes));
            alloc::check::check_invariants(3).expect("as it should be");
        }
    }
    for block in blocks {
        block.check(block.bytes);
        // SAFETY: a live block.
        unsafe { alloc::free(block.at) };
    }
    alloc::trim();
    alloc::check::check_invariants(3).expect("at the end");
}
