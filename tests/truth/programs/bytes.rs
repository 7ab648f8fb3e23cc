//! Planted: packets that make room for the next piece only, one after another and kept. Mended: the vector's own growth.
#[inline(never)]
fn packet(pieces: usize) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::new();
    for piece in 0..pieces {
        #[cfg(not(mended))]
        out.reserve_exact(33);
        out.extend_from_slice(&[piece as u8; 33]);
    }
    out
}

fn main() {
    let all: Vec<Vec<u8>> = (0..3000).map(|i| packet(60 + i * 7 % 90)).collect();
    std::hint::black_box(&all);
}
