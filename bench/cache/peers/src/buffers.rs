//! Growing buffers: blocks, bytes asked for over all, bytes that the allocator gave and nobody can use.
//!
//! ```text
//!   append | items | many ─► Buf, Vec, just-enough (reserve_exact for each piece)
//! ```
//!
//! V1  Contents are summed up and must be the same for all.
//!
//! Not here: buffers that never grow.

use skinflint_cache::Buf;

use crate::{SEED, counting, cpu_ns, next};

type Item = [u64; 3];

trait Grows<T> {
    fn add(&mut self, items: &[T]);
    fn items(&self) -> &[T];
    fn room(&self) -> usize;
}

struct JustEnough<T>(Vec<T>);

impl<T: Copy> Grows<T> for Buf<T> {
    fn add(&mut self, items: &[T]) {
        self.extend_from_slice(items);
    }
    fn items(&self) -> &[T] {
        self
    }
    fn room(&self) -> usize {
        self.capacity() * size_of::<T>()
    }
}

impl<T: Copy> Grows<T> for Vec<T> {
    fn add(&mut self, items: &[T]) {
        self.extend_from_slice(items);
    }
    fn items(&self) -> &[T] {
        self
    }
    fn room(&self) -> usize {
        self.capacity() * size_of::<T>()
    }
}

impl<T: Copy> Grows<T> for JustEnough<T> {
    fn add(&mut self, items: &[T]) {
        self.0.reserve_exact(items.len());
        self.0.extend_from_slice(items);
    }
    fn items(&self) -> &[T] {
        &self.0
    }
    fn room(&self) -> usize {
        self.0.capacity() * size_of::<T>()
    }
}

fn play<T: Copy, G: Grows<T>>(
    (who, case): (&str, &str),
    lengths: &[usize],
    piece: &[T],
    make: impl Fn() -> G,
    sum: impl Fn(&[T]) -> u64,
) {
    let mut all: Vec<G> = Vec::with_capacity(lengths.len());
    let (before, begin) = (counting::counts(), cpu_ns());
    for length in lengths {
        let mut one = make();
        while one.items().len() < *length {
            let left = *length - one.items().len();
            one.add(&piece[..left.min(piece.len())]);
        }
        all.push(one);
    }
    let (ns, after) = (cpu_ns() - begin, counting::counts());
    let total = all
        .iter()
        .fold(0u64, |total, one| total.wrapping_add(sum(one.items())));
    let used: usize = all.iter().map(|one| size_of_val(one.items())).sum();
    let room: usize = all.iter().map(Grows::room).sum();
    let usable = after.usable - before.usable;
    println!(
        "{{\"what\": \"buffers\", \"who\": \"{who}\", \"case\": \"{case}\", \"allocs\": {}, \"reallocs\": {}, \"moved\": {}, \"cumulative\": {}, \"used\": {used}, \"usable\": {usable}, \"slop\": {}, \"cpu_us\": {}, \"sum\": {total}}}",
        after.allocs - before.allocs,
        after.reallocs - before.reallocs,
        after.moved - before.moved,
        after.cumulative - before.cumulative,
        usable - room as i64,
        ns / 1_000,
    );
}

/// Plays all cases.
pub fn run() {
    let mut state = SEED;
    let bytes: Vec<u8> = (0..100).map(|_| next(&mut state) as u8).collect();
    let items: Vec<Item> = (0..1).map(|at| [at, at * 2, at * 3]).collect();
    // Many buffers of all lengths, small ones more often: what a document's runs of text are.
    let many: Vec<usize> = (0..20_000)
        .map(|_| (20.0 * 500f64.powf((next(&mut state) % 1_000) as f64 / 1_000.0)) as usize)
        .collect();
    let of_bytes = |bytes: &[u8]| bytes.iter().map(|b| u64::from(*b)).sum();
    let of_items = |items: &[Item]| items.iter().map(|item| item[1]).sum();
    for (case, lengths) in [("append 4 MB", vec![4_000_000]), ("many", many)] {
        play(("Buf", case), &lengths, &bytes, Buf::<u8>::new, of_bytes);
        play(("Vec", case), &lengths, &bytes, Vec::<u8>::new, of_bytes);
        play(
            ("just-enough", case),
            &lengths,
            &bytes,
            || JustEnough::<u8>(Vec::new()),
            of_bytes,
        );
    }
    let lengths: Vec<usize> = (0..200).map(|at| 10 + at * 37).collect();
    play(
        ("Buf", "items of 24"),
        &lengths,
        &items,
        Buf::<Item>::new,
        of_items,
    );
    play(
        ("Vec", "items of 24"),
        &lengths,
        &items,
        Vec::<Item>::new,
        of_items,
    );
    play(
        ("just-enough", "items of 24"),
        &lengths,
        &items,
        || JustEnough::<Item>(Vec::new()),
        of_items,
    );
}
