//! Arenas: what their chunks take from the allocator, and what of that values have.
//!
//! ```text
//!   100,000 values of 40 bytes ─► ours, bumpalo, typed-arena ─► requested, usable, used; slop = usable − requested
//! ```
//!
//! A1  Values are summed up and must be the same for all.
//!
//! Not here: values with a Drop.

use crate::{counting, cpu_ns};

type Value = [u64; 5];
const VALUES: u64 = 100_000;

fn play<A>(who: &str, make: impl Fn() -> A, fill: impl Fn(&A) -> u64) {
    for rounds in [1u64, 40] {
        let (before, begin) = (counting::counts(), cpu_ns());
        let arenas: Vec<A> = (0..rounds).map(|_| make()).collect();
        let own = counting::counts();
        let sum = arenas
            .iter()
            .fold(0u64, |sum, arena| sum.wrapping_add(fill(arena)));
        let (ns, after) = (cpu_ns() - begin, counting::counts());
        // Arenas that take their first chunk when they are made have it in `before`.
        let base = if own.allocs - before.allocs > 1 {
            before
        } else {
            own
        };
        println!(
            "{{\"what\": \"arenas\", \"who\": \"{who}\", \"case\": \"{rounds} of {VALUES}\", \"allocs\": {}, \"requested\": {}, \"usable\": {}, \"slop\": {}, \"used\": {}, \"cpu_us\": {}, \"sum\": {sum}}}",
            after.allocs - base.allocs,
            after.requested - base.requested,
            after.usable - base.usable,
            (after.usable - base.usable) - (after.requested - base.requested),
            rounds * VALUES * size_of::<Value>() as u64,
            ns / 1_000,
        );
    }
}

/// Plays all arenas.
pub fn run() {
    play("Arena", skinflint_cache::Arena::new, |arena| {
        (0..VALUES).map(|at| arena.alloc([at; 5])[2]).sum()
    });
    play("bumpalo", bumpalo::Bump::new, |arena| {
        (0..VALUES).map(|at| arena.alloc([at; 5])[2]).sum()
    });
    play("typed-arena", typed_arena::Arena::<Value>::new, |arena| {
        (0..VALUES).map(|at| arena.alloc([at; 5])[2]).sum()
    });
}
