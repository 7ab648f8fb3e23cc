//! What an arena leaves unused of the blocks that the allocator gave it.
//!
//! ```text
//!   cargo run --release -p skinflint-cache --example arena ─► given, in values, left: bytes, as JSON
//! ```
//!
//! P1  Values are of 40 bytes and sum up to what 2,000 of PLArena's chunks of 4,096 bytes would hold.
//!
//! Not here: what Firefox's chunks took (`skinflint lab run arenas`).

use skinflint_cache::Arena;

const BYTES: usize = 2_000 * 4_096;
const VALUE: usize = 40;

fn main() {
    let arena = Arena::new();
    for number in 0..BYTES / VALUE {
        arena.alloc([number as u64; VALUE / 8]);
    }
    let (usable, used) = (arena.usable_bytes(), arena.used_bytes());
    let chunks = arena.chunks();
    println!("{{\"usable_bytes\": {usable}, \"used_bytes\": {used}, \"chunks\": {chunks}}}");
}
