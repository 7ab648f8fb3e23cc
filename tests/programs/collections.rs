//! collections: a Rust program whose growth is predicted.
//!
//! ```text
//!   doubling    Vec<u64> pushed 1000 times from empty: 4, 8, 16 … 1024 elements
//!               9 blocks of 32, 64 … 8192 bytes: 16352 bytes; then dropped
//!   one_by_one  Vec<u64> with reserve_exact(1) before each of 200 pushes:
//!               200 blocks of 8, 16 … 1600 bytes: 160800 bytes; then dropped
//!   exact       30 boxes of 48 bytes, kept to the end
//! ```
//!
//! Beside those: what the standard library takes for `main` and for printing.

#[inline(never)]
fn doubling() -> usize {
    let mut numbers: Vec<u64> = Vec::new();
    for i in 0..1000 {
        numbers.push(std::hint::black_box(i));
    }
    numbers.capacity()
}

#[inline(never)]
fn one_by_one() -> usize {
    let mut numbers: Vec<u64> = Vec::new();
    for i in 0..200 {
        numbers.reserve_exact(1);
        numbers.push(std::hint::black_box(i));
    }
    numbers.capacity()
}

#[inline(never)]
fn exact() {
    for _ in 0..30 {
        std::mem::forget(std::hint::black_box(Box::new([0u8; 48])));
    }
}

fn main() {
    let capacities = (doubling(), one_by_one());
    exact();
    println!("collections: {} {}", capacities.0, capacities.1);
}
