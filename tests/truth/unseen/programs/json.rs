//! Values of a document are read letter by letter into a String each, and kept with the room that was made for more.
//! Mended: what has been read is kept as a Box<str>, which has no room to spare.

#[path = "dice.rs"]
mod dice;
use dice::Dice;

struct Parser<'a> {
    text: std::str::Chars<'a>,
}

#[cfg(mended)]
type Text = Box<str>;
#[cfg(not(mended))]
type Text = String;

impl Parser<'_> {
    #[inline(never)]
    fn read_string(&mut self) -> Option<Text> {
        self.text.by_ref().find(|&c| c == '"')?;
        let mut value = String::new();
        while let Some(c) = self.text.next() {
            match c {
                '"' => break,
                '\\' => value.push(self.text.next()?),
                other => value.push(other),
            }
        }
        Some(value.into())
    }
}

fn main() {
    const VALUES: usize = 10_000;
    let mut dice = Dice(3);
    let mut source = String::with_capacity(VALUES * 620);
    for _ in 0..VALUES {
        source.push('"');
        for _ in 0..532 + dice.roll(80) {
            source.push((b'a' + dice.roll(26) as u8) as char);
        }
        source.push_str("\\n\",");
    }
    let mut values: Vec<Text> = Vec::with_capacity(VALUES);
    let mut parser = Parser { text: source.chars() };
    while let Some(value) = parser.read_string() {
        values.push(value);
    }
    dice::mark("parsed");
    let mut sum = 0u64;
    for i in 0..2_000_000u64 {
        let value = &values[dice.roll(VALUES as u64) as usize];
        sum += u64::from(value.as_bytes()[i as usize % value.len()]);
    }
    println!("{} {sum}", values.len());
}
