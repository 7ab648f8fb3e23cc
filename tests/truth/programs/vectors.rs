//! Planted: vectors that make room for one more at a time, in turns. Mended: the vector's own growth.
#[inline(never)]
fn append(to: &mut Vec<u64>, what: u64) {
    #[cfg(not(mended))]
    to.reserve_exact(1);
    to.push(what);
}

fn main() {
    let mut all: Vec<Vec<u64>> = vec![Vec::new(); 200];
    for step in 0..1000 {
        for one in &mut all {
            append(one, step);
        }
    }
    std::hint::black_box(&all);
}
