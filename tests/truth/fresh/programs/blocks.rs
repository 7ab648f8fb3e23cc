//! Blocks of a file, 4,096 bytes each, are kept with a checksum of four bytes behind the data.
//! Mended: the checksums are an array of their own.

#[path = "mark.rs"]
mod mark;
use mark::Seeded;

struct Store {
    blocks: Vec<Box<[u8]>>,
    sums: Vec<u32>,
}

impl Store {
    #[inline(never)]
    fn load_block(&mut self, seeded: &mut Seeded) {
        let mut block = Vec::with_capacity(if cfg!(mended) { 4096 } else { 4100 });
        let mut sum = 0u32;
        for _ in 0..4096 {
            let byte = seeded.0 as u8;
            seeded.below(2);
            sum = sum.wrapping_mul(31).wrapping_add(byte as u32);
            block.push(byte);
        }
        if cfg!(mended) {
            self.sums.push(sum);
        } else {
            block.extend_from_slice(&sum.to_le_bytes());
        }
        self.blocks.push(block.into_boxed_slice());
    }
}

fn main() {
    let mut seeded = Seeded(23);
    let mut store = Store { blocks: Vec::with_capacity(6000), sums: Vec::with_capacity(6000) };
    for _ in 0..6000 {
        store.load_block(&mut seeded);
    }
    let mut sum = 0usize;
    for _ in 0..1_000_000 {
        sum += store.blocks[seeded.below(6000)][seeded.below(4096)] as usize;
    }
    println!("{sum} {}", store.sums.len() & 0);
}
