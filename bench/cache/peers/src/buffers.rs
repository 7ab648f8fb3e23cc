//! Growing buffers: blocks, bytes asked for over all, bytes that the allocator gave and no program can use.
//!
//! ```text
//!   append | many ─► Buf, Vec, just-enough (reserve_exact for each piece)       bytes, 100 at a time
//!   8 … 1000: one, many, steps ─► Buf, Vec                                     items of so many bytes, one at a time
//! ```
//!
//! V1  Contents are summed up and must be the same for all.
//!
//! Not here: buffers that never grow.

use skinflint_cache::Buf;

use crate::{SEED, counting, cpu_ns, next};

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
        "{{\"what\": \"buffers\", \"who\": \"{who}\", \"case\": \"{case}\", \"allocs\": {}, \"reallocs\": {}, \"moved\": {}, \"cumulative\": {}, \"given\": {}, \"used\": {used}, \"usable\": {usable}, \"slop\": {}, \"cpu_us\": {}, \"sum\": {total}}}",
        after.allocs - before.allocs,
        after.reallocs - before.reallocs,
        after.moved - before.moved,
        after.cumulative - before.cumulative,
        after.given - before.given,
        usable - room as i64,
        ns / 1_000,
    );
}

/// Plays all cases.
pub fn run() {
    let mut state = SEED;
    let bytes: Vec<u8> = (0..100).map(|_| next(&mut state) as u8).collect();
    // Many buffers of all lengths, small ones more often: what a document's runs of text are.
    let many: Vec<usize> = (0..20_000)
        .map(|_| (20.0 * 500f64.powf((next(&mut state) % 1_000) as f64 / 1_000.0)) as usize)
        .collect();
    let of_bytes = |bytes: &[u8]| bytes.iter().map(|b| u64::from(*b)).sum();
    for (case, lengths) in [("append 4 MB", vec![4_000_000]), ("many", many.clone())] {
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
    items::<8>(&many);
    items::<16>(&many);
    items::<24>(&many);
    items::<40>(&many);
    items::<56>(&many);
    items::<100>(&many);
    items::<1000>(&many);
}

/// Items of so many bytes, pushed one at a time: one buffer of 4 MB, many of all lengths, and 200 whose lengths are
/// evenly apart, up to 177 KB.
fn items<const N: usize>(many: &[usize]) {
    let of = |items: &[[u8; N]]| items.iter().map(|item| u64::from(item[N - 1])).sum();
    let steps: Vec<usize> = (0..200).map(|at| (10 + at * 37) * 24).collect();
    for (pattern, bytes) in [("one", &[4_000_000][..]), ("many", many), ("steps", &steps)] {
        let case = format!("{pattern} of {N}");
        let lengths: Vec<usize> = bytes.iter().map(|bytes| bytes.div_ceil(N)).collect();
        let item = [[7u8; N]];
        play(("Buf", &case), &lengths, &item, Buf::<[u8; N]>::new, of);
        play(("Vec", &case), &lengths, &item, Vec::<[u8; N]>::new, of);
    }
}
