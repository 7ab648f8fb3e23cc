//! A function's own qualified name: its signature without return type, arguments and parameters.
//!
//! ```text
//!   std::string* lib::Store<int>::put<char>(int, std::string const&) const ──► lib::Store::put
//!   foo(int)::{lambda(char)#1}::operator()(char) const                     ──► foo::{lambda#1}::operator()
//!   <alloc::vec::Vec<T> as core::ops::Drop>::drop                          ──► <alloc::vec::Vec as core::ops::Drop>::drop
//! ```
//!
//! Q1  The parameters, the result and the template arguments of a function do not tell which code it belongs to: no
//!     character of those is in the name.
//! Q2  Any text gives a name, in time linear in its length (by the depth of declarators); a text that is not empty
//!     gives one that is not.
//!
//! Not here: mangled names (symbols), how a name is cut for a screen (view).

/// The deepest declarator within a declarator: `int (*(*f(int))(long))(char)`.
const DECLARATORS: u32 = 8;

/// Operators that are written with signs, longest first.
const SIGNS: [&str; 39] = [
    "<=>", "<<=", ">>=", "->*", "new[]", "()", "[]", "->", "<<", ">>", "<=", ">=", "==", "!=",
    "&&", "||", "++", "--", "+=", "-=", "*=", "/=", "%=", "^=", "&=", "|=", "<", ">", "+", "-",
    "*", "/", "%", "^", "&", "|", "~", "!", "=",
];
/// Words that may follow the parameters.
const AFTER: [&str; 8] = [
    " const",
    " volatile",
    " __restrict",
    " noexcept",
    " &&",
    " &",
    " [clone",
    " [abi:",
];

/// Returns the qualified name of a demangled function of C, C++ or Rust.
///
/// Conversion operators keep the type that they convert to, without its arguments. Tags (`[abi:cxx11]`), versions
/// (`@GLIBC_2.2.5`, `@plt`) and suffixes of the compiler's clones (`.part.0`) are left out.
pub fn own_name(function: &str) -> String {
    // A method of Go's: `strings.(*Builder).grow`.
    if function.contains(".(") {
        return function.to_owned();
    }
    let name = named(function, 0);
    match name.is_empty() {
        true => function.to_owned(), // Q2
        false => name,
    }
}

fn named(text: &str, depth: u32) -> String {
    let mut reader = Reader {
        text,
        at: 0,
        out: String::new(),
    };
    while reader.at < text.len() {
        if let Some(whole) = reader.step(depth) {
            return whole;
        }
    }
    reader.finished()
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    out: String,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Reads one token; returns the name, if it ends here.
    fn step(&mut self, depth: u32) -> Option<String> {
        let rest = self.rest();
        let c = rest.chars().next().unwrap_or(' ');
        let starts = self.out.is_empty() || self.out.ends_with("::");
        if starts && let Some(operator) = operator(rest) {
            return self.operator(operator);
        }
        if let Some(left) = rest.strip_prefix("(anonymous namespace)") {
            self.out += "(anonymous namespace)";
            self.at = self.text.len() - left.len();
            return None;
        }
        match c {
            '<' if starts && self.out.is_empty() => {
                // In Rust this is the type that a function belongs to, and the trait.
                let end = self.at + bracket(rest);
                let inner = inside(&self.text[self.at..end]);
                self.out = format!("<{}>", without_arguments(inner));
                self.at = end;
            }
            '<' => {
                // A turbofish leaves no separator.
                let kept = self.out.trim_end_matches("::").len();
                self.out.truncate(kept);
                self.at += bracket(rest);
            }
            '{' => {
                let end = bracket(rest);
                self.out += &without_arguments(&rest[..end]);
                self.at += end;
            }
            '[' => self.at += bracket(rest),
            '(' => return self.parameters(depth),
            ' ' => {
                // Everything read so far belongs to the return type.
                self.out.clear();
                self.at += 1;
            }
            '*' | '&' if self.out.is_empty() => self.at += 1,
            '@' if !self.out.is_empty() => return Some(self.finished()),
            _ => {
                self.out.push(c);
                self.at += c.len_utf8();
            }
        }
        None
    }

    /// Reads `operator` and its signs; for a conversion, its type.
    fn operator(&mut self, length: usize) -> Option<String> {
        let rest = self.rest();
        self.out += rest[..length].trim_end();
        self.at += length;
        let conversion = rest[..length].ends_with(' ') && rest[..length].trim_end() == "operator";
        if !conversion {
            // A space separates `operator<` from its arguments.
            let spaces = self.rest().len() - self.rest().trim_start_matches(' ').len();
            if self.rest()[spaces..].starts_with('<') {
                self.at += spaces;
            }
            return None;
        }
        let to = self.rest();
        let end = last_parameters(to);
        let to = without_arguments(&to[..end]);
        Some(format!("{} {}", self.out, to.trim()))
    }

    /// Reads a list of parameters, or a declarator within brackets, or part of the return type.
    fn parameters(&mut self, depth: u32) -> Option<String> {
        let rest = self.rest();
        let end = bracket(rest);
        let is_of_type = ["decltype ", "sizeof "]
            .iter()
            .any(|word| self.text[..self.at].ends_with(word));
        if self.out.is_empty() && self.at > 0 && !is_of_type && depth < DECLARATORS {
            // `int (*name(int))(long)`: the name lies inside; the type of a pointer has none inside.
            let inner = named(
                inside(&rest[..end]).trim_start_matches(['*', '&']),
                depth + 1,
            );
            if !inner.is_empty() {
                return Some(inner);
            }
        }
        self.at += end;
        let mut after = self.rest();
        let mut said = false;
        while let Some(left) = AFTER.iter().find_map(|word| after.strip_prefix(word)) {
            (after, said) = (left, true);
        }
        if after.starts_with("::") {
            // This is a function within a member function.
            self.at = self.text.len() - after.len();
            return None;
        }
        let ends = said || after.is_empty() || after.starts_with(['@', '.']);
        (ends && !self.out.is_empty()).then(|| self.finished())
    }

    fn finished(&mut self) -> String {
        let mut name = std::mem::take(&mut self.out);
        for clone in [
            ".part.",
            ".constprop.",
            ".isra.",
            ".cold",
            ".llvm.",
            ".lto_priv.",
        ] {
            if let Some(at) = name.find(clone).filter(|at| *at > 0) {
                name.truncate(at);
            }
        }
        name
    }
}

/// Returns the length of an operator's name at the start of the text: with a space at its end, a conversion's.
fn operator(text: &str) -> Option<usize> {
    const WORDS: [&str; 6] = [
        " new[]",
        " delete[]",
        " new",
        " delete",
        " co_await",
        "\"\" ",
    ];
    let after = text.strip_prefix("operator")?;
    let base = "operator".len();
    if let Some(sign) = SIGNS.iter().find(|sign| after.starts_with(**sign)) {
        return Some(base + sign.len());
    }
    if after.starts_with(',') {
        return Some(base + 1);
    }
    for word in WORDS {
        let Some(left) = after.strip_prefix(word) else {
            continue;
        };
        let ends = !left.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        if word.starts_with('"') {
            let name = left.find(['(', '<']).unwrap_or(left.len());
            return Some(base + word.len() + name);
        }
        if ends {
            return Some(base + word.len());
        }
    }
    after.starts_with(' ').then_some(base + 1)
}

/// Returns the bytes of the bracket at the start, including both signs; all, if none closes it.
fn bracket(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut open: Vec<u8> = Vec::new();
    let (mut at, mut opened) = (0, usize::MAX);
    while at < bytes.len() {
        let byte = bytes[at];
        let inner_round = open.last().is_some_and(|last| *last != b'<');
        let before = if at == 0 { 0 } else { bytes[at - 1] };
        if byte == b'o'
            && !(before.is_ascii_alphanumeric() || before == b'_')
            && let Some(length) = operator(&text[at..])
        {
            at += length;
            continue;
        }
        match byte {
            b'(' | b'[' | b'{' => open.push(byte),
            b')' | b']' | b'}' => {
                // A comparison left something open.
                while open.pop().is_some_and(|last| last == b'<') {}
            }
            // Within round brackets it may be a comparison: `((a)>(b))`. After one it is: `(a)<(b)`.
            b'<' if (!inner_round || opens(before))
                && before != b')'
                && (before != b'<' || opened.wrapping_add(1) == at) =>
            {
                open.push(byte);
                opened = at;
            }
            b'>' if before != b'-' && before != b'=' && open.last() == Some(&b'<') => {
                _ = open.pop()
            }
            _ => {}
        }
        at += 1;
        if open.is_empty() {
            return at;
        }
    }
    text.len()
}

/// Returns what is within the bracket; up to the end, if it is not closed.
fn inside(text: &str) -> &str {
    let inner = text.get(1..).unwrap_or("");
    inner.strip_suffix([')', '>']).unwrap_or(inner)
}

/// Reports whether arguments may begin after this sign.
fn opens(before: u8) -> bool {
    before.is_ascii_alphanumeric()
        || matches!(
            before,
            b'_' | b']' | b'}' | b' ' | b':' | b'(' | b'&' | b'*' | b','
        )
}

/// Returns where the last list of parameters begins.
fn last_parameters(text: &str) -> usize {
    let (mut at, mut last) = (0, text.len());
    while at < text.len() {
        let c = text[at..].chars().next().unwrap_or(' ');
        match c {
            '(' if !text[at..].starts_with("(anonymous namespace)") => {
                last = at;
                at += bracket(&text[at..]);
            }
            '<' | '[' | '{' | '(' => at += bracket(&text[at..]),
            _ => at += c.len_utf8(),
        }
    }
    last
}

/// Returns the text without what is in brackets after a name.
fn without_arguments(text: &str) -> String {
    let mut out = String::new();
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let c = rest.chars().next().unwrap_or(' ');
        let after_name =
            out.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '}' || c == ':');
        match c {
            '<' if after_name => {
                let kept = out.trim_end_matches("::").len();
                out.truncate(kept);
                at += bracket(rest);
            }
            '(' if after_name && !rest.starts_with("(anonymous namespace)") => at += bracket(rest),
            _ => {
                out.push(c);
                at += c.len_utf8();
            }
        }
    }
    out
}

#[cfg(test)]
mod tests;
