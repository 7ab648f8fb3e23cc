//! The reader of one name: its place in the text, the nodes so far, and what substitutions stand for.
//!
//! ```text
//!   text ──at──►      nodes: the tree      seen: S_, S0_ …      params: T_, T0_ …
//! ```
//!
//! R1  A place is between characters: only ASCII is stepped over one by one.
//!
//! Not here: the grammar (name.rs, types.rs, expression.rs).

use super::tree::{DEPTH, Id, Node};

/// Reads one name.
pub(super) struct Parser<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
    pub(super) nodes: Vec<Node<'a>>,
    /// What `S_`, `S0_` … stand for.
    pub(super) seen: Vec<Id>,
    /// What `T_`, `T0_` … stand for.
    pub(super) params: Vec<Id>,
    /// Whether a parameter may be named before it is known.
    pub(super) ahead: bool,
    /// Whether we are within the parameters of a lambda.
    pub(super) in_lambda: bool,
    pub(super) depth: u32,
}

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str) -> Parser<'a> {
        Parser {
            text,
            at: 0,
            nodes: Vec::new(),
            seen: Vec::new(),
            params: Vec::new(),
            ahead: false,
            in_lambda: false,
            depth: 0,
        }
    }

    pub(super) fn add(&mut self, node: Node<'a>) -> Id {
        self.nodes.push(node);
        self.nodes.len() as Id - 1
    }

    /// Adds a node that may be named again.
    pub(super) fn add_seen(&mut self, node: Node<'a>) -> Id {
        let id = self.add(node);
        self.seen.push(id);
        id
    }

    pub(super) fn peek(&self) -> u8 {
        self.peek_at(0)
    }

    /// Returns the byte `ahead` positions further on; 0 at the end.
    pub(super) fn peek_at(&self, ahead: usize) -> u8 {
        let bytes = self.text.as_bytes();
        bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    pub(super) fn eat(&mut self, what: &str) -> bool {
        let found = self.text[self.at..].starts_with(what);
        if found {
            self.at += what.len();
        }
        found
    }

    pub(super) fn expect(&mut self, what: &str) -> Option<()> {
        self.eat(what).then_some(())
    }

    /// Runs one level deeper (itanium.I2).
    pub(super) fn deeper<T>(&mut self, run: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        self.depth += 1;
        let result = match self.depth <= DEPTH {
            true => run(self),
            false => None,
        };
        self.depth -= 1;
        result
    }

    /// Reads decimal digits.
    pub(super) fn digits(&mut self) -> &'a str {
        let start = self.at;
        while self.peek().is_ascii_digit() {
            self.at += 1;
        }
        &self.text[start..self.at]
    }

    /// Reads a sequence number in the base of its digits: `_` is 0, `0_` is 1 …
    pub(super) fn sequence(&mut self, base: u32) -> Option<usize> {
        if self.eat("_") {
            return Some(0);
        }
        let start = self.at;
        while self.peek().is_ascii_digit() || (base == 36 && self.peek().is_ascii_uppercase()) {
            self.at += 1;
        }
        let value = usize::from_str_radix(&self.text[start..self.at], base).ok()?;
        self.expect("_")?;
        value.checked_add(1)
    }

    /// Reads everything up to `E` with `one`.
    pub(super) fn until_end(
        &mut self,
        mut one: impl FnMut(&mut Self) -> Option<Id>,
    ) -> Option<Vec<Id>> {
        let mut all = Vec::new();
        while !self.eat("E") {
            all.push(one(self)?);
        }
        Some(all)
    }
}
