//! Control: a dictionary of words of any length, filled and asked.
use std::collections::HashMap;

fn main() {
    let mut all: HashMap<String, usize> = HashMap::with_capacity(60_000);
    let mut seed = 1u64;
    for at in 0..60_000 {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let length = 5 + (seed >> 33) % 200;
        let mut word = String::with_capacity(length as usize);
        word.extend((0..length).map(|i| (b'a' + ((seed >> (i % 40)) % 26) as u8) as char));
        all.insert(word, at);
    }
    std::hint::black_box(&all);
}
