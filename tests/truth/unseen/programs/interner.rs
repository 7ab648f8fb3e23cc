//! Names of genes, 120 letters each, become numbers. The table that finds a name's number is only of use while
//! the text is read, and stays.
//! Mended: it goes with the reader.

#[path = "dice.rs"]
mod dice;
use dice::Dice;
use std::collections::BTreeMap;
use std::rc::Rc;

struct Interner {
    numbers: BTreeMap<Rc<str>, u32>,
    spelled: [u8; 160],
}

impl Interner {
    #[inline(never)]
    fn intern(&mut self, word: u64) -> u32 {
        let length = 120;
        for (i, letter) in self.spelled[..length].iter_mut().enumerate() {
            *letter = b'a' + ((word >> (i % 16)) + i as u64) as u8 % 26;
        }
        let text = std::str::from_utf8(&self.spelled[..length]).expect("letters");
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let number = self.numbers.len() as u32;
        self.numbers.insert(Rc::from(text), number);
        number
    }
}

struct Corpus {
    text: Vec<u32>,
    #[allow(dead_code)]
    interner: Option<Interner>,
}

fn read(words: usize) -> Corpus {
    let mut dice = Dice(12);
    let mut interner = Interner { numbers: BTreeMap::new(), spelled: [0; 160] };
    let text = (0..words).map(|_| interner.intern(dice.roll(50_000))).collect();
    Corpus { text, interner: if cfg!(mended) { None } else { Some(interner) } }
}

fn main() {
    dice::mark("read begin");
    let corpus = read(400_000);
    dice::mark("read end");
    let mut sum = 0u64;
    for distance in 1..60 {
        sum += corpus.text.windows(64).map(|near| u64::from(near[0] == near[distance])).sum::<u64>();
    }
    dice::mark("counted");
    println!("{sum} {}", corpus.text.len());
}
