//! Control. An index of words in a BTreeMap, each with the places where it stands; words are counted first, so that each list is
//! made as long as it becomes.

#[path = "mark.rs"]
mod mark;
use mark::Seeded;
use std::collections::BTreeMap;

const WORDS: [&str; 7] = ["heap", "page", "block", "stack", "arena", "span", "mark"];

fn word(seeded: &mut Seeded) -> (usize, &'static str) {
    let number = seeded.below(300) * seeded.below(300);
    (number, WORDS[number % WORDS.len()])
}

fn main() {
    let places = 400_000u32;
    let mut counts = vec![0usize; 300 * 300];
    let mut seeded = Seeded(41);
    for _ in 0..places {
        counts[word(&mut seeded).0] += 1;
    }
    let mut index: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    let mut seeded = Seeded(41);
    for place in 0..places {
        let (number, word) = word(&mut seeded);
        let list = index.entry(format!("{word}-{number}")).or_insert_with(|| Vec::with_capacity(counts[number]));
        list.push(place);
    }
    let longest = index.values().map(Vec::len).max().unwrap();
    println!("{} {longest}", index.len());
}
