//! What both programs do: blocks of many sizes, through every function of Rust's allocator interface, on two threads.
//! What lives at the end is counted by the allocator, and nothing is acquired or released after that: the programs end
//! by `_exit` behind the line that says it.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, realloc};
use std::collections::BTreeMap;

/// Acquires, changes and releases; what it returns lives on.
pub fn work() -> Vec<Box<dyn Send>> {
    let mut kept: Vec<Box<dyn Send>> = Vec::new();
    let mut map = BTreeMap::new();
    for n in 0..2000_usize {
        map.insert(n * 7919 % 2003, "x".repeat(n % 300 + 1));
    }
    map.retain(|key, _| key % 3 != 0);
    let mut text = String::new();
    for n in 0..5000 {
        text += &n.to_string();
    }
    text.shrink_to_fit();
    let zeroed: Vec<Vec<u64>> = (1..200).map(|n| vec![0; n * 5]).collect();
    kept.push(Box::new((map, text, zeroed)));
    let other = std::thread::spawn(|| {
        let all: Vec<Vec<u8>> = (0..1000).map(|n| vec![1; n % 700 + 1]).collect();
        all.into_iter()
            .filter(|one| one.len() % 2 == 0)
            .collect::<Vec<_>>()
    });
    kept.push(Box::new(other.join().expect("a thread")));
    by_hand();
    kept
}

/// One hundred blocks of 1,504 bytes, of which sixty live: the interface itself.
fn by_hand() {
    let layout = Layout::from_size_align(1504, 32).expect("a layout");
    for n in 0..100 {
        // SAFETY: the size is not zero; each block is released at most once, with its layout.
        unsafe {
            let block = match n % 2 {
                0 => alloc(layout),
                _ => alloc_zeroed(layout),
            };
            assert!(!block.is_null() && block as usize % 32 == 0);
            if n % 5 < 2 {
                let block = realloc(block, layout, 6000);
                assert!(!block.is_null());
                dealloc(block, Layout::from_size_align_unchecked(6000, 32));
            }
        }
    }
}

/// Says what lives by the allocator's own count, without a block, and ends the process.
pub fn end(blocks: u64, bytes: u64) -> ! {
    unsafe extern "C" {
        fn dprintf(fd: i32, format: *const core::ffi::c_char, ...) -> i32;
        fn exit(status: i32) -> !;
    }
    // SAFETY: a format of the C library, with the numbers that it names.
    unsafe {
        dprintf(1, c"blocks %lu bytes %lu\n".as_ptr(), blocks, bytes);
        exit(0)
    }
}
