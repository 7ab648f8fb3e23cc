//! Planted: a boxed session stays behind each request. Mended: it is dropped.
#[inline(never)]
fn session(id: u64) -> Box<[u64; 64]> {
    Box::new([id; 64])
}

#[inline(never)]
fn request(id: u64) -> Vec<u64> {
    vec![id; 500]
}

fn main() {
    for id in 0..20_000 {
        let work = request(id);
        let one = session(id);
        std::hint::black_box((&work, &one));
        #[cfg(not(mended))]
        std::mem::forget(one);
    }
}
