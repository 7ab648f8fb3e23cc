//! The reader: text to data.
//!
//! ```text
//!   "(define x '(1 \"a\"))" ─► [List([Sym(define), Sym(x), List([Sym(quote), List([Int(1), Str("a")])])])]
//! ```
//!
//! R1  What cannot be read is an error with its line.
//!
//! Not here: what forms mean (`compile`).

use std::collections::HashMap;

use crate::code::Datum;

/// Names, and their numbers.
#[derive(Default)]
pub struct Symbols {
    numbers: HashMap<String, u32>,
    pub names: Vec<String>,
}

impl Symbols {
    pub fn of(&mut self, name: &str) -> u32 {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        let number = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    symbols: &'a mut Symbols,
}

/// Reads all data of a text.
pub fn read(text: &str, symbols: &mut Symbols) -> Result<Vec<Datum>, String> {
    let mut reader = Reader {
        text: text.as_bytes(),
        at: 0,
        symbols,
    };
    let mut all = Vec::new();
    loop {
        reader.space();
        if reader.at == reader.text.len() {
            return Ok(all);
        }
        all.push(reader.datum()?);
    }
}

impl Reader<'_> {
    fn space(&mut self) {
        while let Some(&byte) = self.text.get(self.at) {
            match byte {
                b';' => {
                    while self.text.get(self.at).is_some_and(|&b| b != b'\n') {
                        self.at += 1;
                    }
                }
                _ if byte.is_ascii_whitespace() => self.at += 1,
                _ => return,
            }
        }
    }

    fn wrong(&self, what: &str) -> String {
        let line = self.text[..self.at].iter().filter(|&&b| b == b'\n').count() + 1;
        format!("line {line}: {what}")
    }

    fn datum(&mut self) -> Result<Datum, String> {
        self.space();
        let Some(&byte) = self.text.get(self.at) else {
            return Err(self.wrong("the text ends within a list"));
        };
        self.at += 1;
        match byte {
            b'(' => self.list(),
            b')' => Err(self.wrong("a ) without a (")),
            b'\'' => {
                let quote = Datum::Sym(self.symbols.of("quote"));
                Ok(Datum::List(vec![quote, self.datum()?]))
            }
            b'"' => self.string(),
            _ => {
                self.at -= 1;
                Ok(self.atom())
            }
        }
    }

    fn list(&mut self) -> Result<Datum, String> {
        let mut items = Vec::new();
        loop {
            self.space();
            if self.text.get(self.at) == Some(&b')') {
                self.at += 1;
                return Ok(Datum::List(items));
            }
            items.push(self.datum()?);
        }
    }

    fn string(&mut self) -> Result<Datum, String> {
        let begin = self.at;
        while let Some(&byte) = self.text.get(self.at) {
            self.at += 1;
            if byte == b'"' {
                let text = String::from_utf8_lossy(&self.text[begin..self.at - 1]);
                return Ok(Datum::Str(text.replace("\\n", "\n")));
            }
        }
        Err(self.wrong("the text ends within a string"))
    }

    fn atom(&mut self) -> Datum {
        let begin = self.at;
        let ends = |byte: u8| byte.is_ascii_whitespace() || b"();'\"".contains(&byte);
        while self.text.get(self.at).is_some_and(|&byte| !ends(byte)) {
            self.at += 1;
        }
        let text = String::from_utf8_lossy(&self.text[begin..self.at]);
        match &*text {
            "#t" => Datum::Bool(true),
            "#f" => Datum::Bool(false),
            _ => match text.parse() {
                Ok(number) => Datum::Int(number),
                Err(_) => Datum::Sym(self.symbols.of(&text)),
            },
        }
    }
}
