//! Protocol buffers, written by hand: numbers, texts, messages in messages.
//!
//! ```text
//!   Message::new().uint(1, 5).text(2, "x").message(3, &inner) ─► bytes
//! ```
//!
//! W1  A number is written as it is, a negative one as ten bytes; one of 0 is left out, as proto3 has it; texts and messages are written even if they are empty, since in a
//!     table their place counts.
//!
//! Derived messages would be a type and its code for each of two dozen. Not here: which fields there are (`pprof`, `otlp`).

/// A message under construction.
#[derive(Clone, Default)]
pub struct Message(Vec<u8>);

impl Message {
    /// Creates an empty message.
    pub fn new() -> Message {
        Message::default()
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// Adds a number (W1).
    pub fn uint(&mut self, field: u32, value: u64) -> &mut Message {
        if value != 0 {
            self.varint(u64::from(field) << 3);
            self.varint(value);
        }
        self
    }

    /// Adds a number of eight bytes.
    pub fn fixed(&mut self, field: u32, value: u64) -> &mut Message {
        self.varint(u64::from(field) << 3 | 1);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Adds bytes.
    pub fn data(&mut self, field: u32, data: &[u8]) -> &mut Message {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(data.len() as u64);
        self.0.extend(data);
        self
    }

    /// Adds a text.
    pub fn text(&mut self, field: u32, text: &str) -> &mut Message {
        self.data(field, text.as_bytes())
    }

    /// Adds a message.
    pub fn message(&mut self, field: u32, message: &Message) -> &mut Message {
        self.data(field, &message.0)
    }

    /// Adds the fields of another message.
    pub fn append(&mut self, other: &Message) -> &mut Message {
        self.0.extend(&other.0);
        self
    }

    /// Adds a list of numbers, packed.
    pub fn packed(&mut self, field: u32, values: &[u64]) -> &mut Message {
        let mut list = Message::new();
        values.iter().for_each(|&value| list.varint(value));
        self.message(field, &list)
    }
}

/// Texts, each once, by their place; the empty one is at 0.
pub struct Texts {
    all: Vec<String>,
    places: std::collections::HashMap<String, u64>,
}

impl Texts {
    /// Creates a table with the empty text.
    pub fn new() -> Texts {
        let mut texts = Texts {
            all: Vec::new(),
            places: std::collections::HashMap::new(),
        };
        texts.at("");
        texts
    }

    /// Returns the place of a text.
    pub fn at(&mut self, text: &str) -> u64 {
        if let Some(&place) = self.places.get(text) {
            return place;
        }
        let place = self.all.len() as u64;
        self.all.push(text.to_owned());
        self.places.insert(text.to_owned(), place);
        place
    }

    /// Adds all of them to a message.
    pub fn write(&self, field: u32, to: &mut Message) {
        for text in &self.all {
            to.text(field, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the encoding's own document, and what it says of negative numbers.
    #[test]
    fn bytes_are_those_of_the_book() {
        let mut message = Message::new();
        message
            .uint(1, 150)
            .text(2, "testing")
            .packed(6, &[3, 270, 86942]);
        let wanted = [
            &[0x08, 0x96, 0x01, 0x12, 0x07][..],
            b"testing",
            &[0x32, 0x06, 0x03, 0x8e, 0x02, 0x9e, 0xa7, 0x05],
        ];
        assert_eq!(message.bytes(), wanted.concat());
        let mut message = Message::new();
        message.uint(1, -2i64 as u64).uint(2, 0).text(3, "");
        let ones = [0xff; 8];
        assert_eq!(
            message.bytes(),
            [&[0x08, 0xfe][..], &ones, &[0x01, 0x1a, 0x00]].concat()
        );
        let mut message = Message::new();
        message.fixed(1, 1);
        assert_eq!(message.bytes(), [0x09, 1, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_text_has_one_place() {
        let mut texts = Texts::new();
        assert_eq!(
            [texts.at("a"), texts.at(""), texts.at("b"), texts.at("a")],
            [1, 0, 2, 1]
        );
        let mut message = Message::new();
        texts.write(6, &mut message);
        assert_eq!(message.bytes(), [0x32, 0, 0x32, 1, b'a', 0x32, 1, b'b']);
    }
}
