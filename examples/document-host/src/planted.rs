//! Planted faults: memory that no reporter covers, and memory that two report. For trying `skinflint run
//! --dark-matter`, with `--plant`.
//!
//! ```text
//!   forgotten()    100 blocks of 10,000 bytes    no reporter
//!   shared()        50 blocks of 20,000 bytes    explicit/planted/owner and explicit/planted/user
//! ```
//!
//! L1  No block is all zeros: `vec!` requests such blocks in another place, and each kind is to have one stack.
//!
//! Not here: what is reported well (`reporters`).

use std::sync::Arc;

use skinflint_reporters::size::HeapBytes;
use skinflint_reporters::{Registry, Sink};

type Blocks = Vec<Vec<u8>>;

#[inline(never)]
fn forgotten() -> Blocks {
    let mut blocks = Vec::with_capacity(100);
    for n in 0..100u8 {
        blocks.push(vec![n + 1; 10_000]);
    }
    blocks
}

#[inline(never)]
fn shared() -> Blocks {
    let mut blocks = Vec::with_capacity(50);
    for n in 0..50u8 {
        blocks.push(vec![n + 1; 20_000]);
    }
    blocks
}

/// Plants both; they stay for as long as the returned values do.
pub fn plant(registry: &Registry) -> (Blocks, Arc<Blocks>) {
    let shared = Arc::new(shared());
    for path in ["explicit/planted/owner", "explicit/planted/user"] {
        let counted = Arc::clone(&shared);
        let report = move |out: &mut Sink<'_>| {
            let bytes = (*counted).heap_bytes();
            out.heap(path, bytes, "Counted by two.");
        };
        registry.add(path, report).keep();
    }
    (forgotten(), shared)
}
