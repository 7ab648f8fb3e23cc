//! Every drawn mutant in one source, each behind a question that is asked at run time.
//!
//! ```text
//!   a < b      (if crate::__mutant::is(17) { (a) <= (b) } else { a < b })
//!   f(x);      if crate::__mutant::is(18) { } else { f(x); }
//!   {          { if crate::__mutant::is(19) { return 0; }
//! ```
//!
//! W1  Only the arm of `else` holds other mutants: one is on at a time, so the mutated text is the plain one.
//! W2  With no mutant on, the program does what the original does; the result says where each mutant lies, so that
//!     the compiler's complaints find it.

use std::ops::Range;

use super::points::Shape;

/// A mutant that was drawn: the range and its replacement.
#[derive(Clone, Debug)]
pub struct Edit {
    pub number: u32,
    pub range: Range<usize>,
    pub shape: Shape,
    pub text: String,
}

/// The place of an edit in the rewritten text.
#[derive(Clone, Debug)]
pub struct Placed {
    pub number: u32,
    pub range: Range<usize>,
}

/// Rewrites `text`. Edits are nested, equal or apart (`points.N2`).
pub fn rewrite(text: &str, edits: &[Edit]) -> (String, Vec<Placed>) {
    let mut edits: Vec<&Edit> = edits.iter().collect();
    edits.sort_by_key(|edit| {
        (
            edit.range.start,
            std::cmp::Reverse(edit.range.end),
            edit.number,
        )
    });
    let mut out = Rewriter {
        text,
        edits,
        next: 0,
        out: String::with_capacity(text.len() * 2),
        placed: Vec::new(),
    };
    out.through(0..text.len());
    (out.out, out.placed)
}

struct Rewriter<'a> {
    text: &'a str,
    edits: Vec<&'a Edit>,
    next: usize,
    out: String,
    placed: Vec<Placed>,
}

impl Rewriter<'_> {
    /// Writes a range of the original, with the edits that lie in it.
    fn through(&mut self, range: Range<usize>) {
        let mut at = range.start;
        while let Some(&edit) = self.edits.get(self.next) {
            if edit.range.start >= range.end || edit.range.end > range.end {
                break;
            }
            self.next += 1;
            self.out.push_str(&self.text[at..edit.range.start]);
            let from = self.out.len();
            let asked = format!("if crate::__mutant::is({})", edit.number);
            match edit.shape {
                Shape::Body => {
                    let value = &edit.text;
                    self.out
                        .push_str(&format!(" {asked} {{ return {value}; }} "));
                }
                Shape::Expression => {
                    self.out
                        .push_str(&format!("({asked} {{ {} }} else {{ ", edit.text));
                    self.through(edit.range.clone());
                    self.out.push_str(" })");
                }
                Shape::Statement => {
                    self.out
                        .push_str(&format!("{asked} {{ {} }} else {{ ", edit.text));
                    self.through(edit.range.clone());
                    self.out.push_str(" }");
                }
            }
            self.placed.push(Placed {
                number: edit.number,
                range: from..self.out.len(),
            });
            at = edit.range.end;
        }
        self.out.push_str(&self.text[at..range.end]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(number: u32, range: Range<usize>, shape: Shape, text: &str) -> Edit {
        Edit {
            number,
            range,
            shape,
            text: text.into(),
        }
    }

    #[test]
    fn nested_equal_and_apart_keep_the_original_in_the_innermost_else() {
        let text = "a + b < c; f();";
        let edits = [
            edit(0, 0..9, Shape::Expression, "(a + b) >= (c)"),
            edit(1, 0..5, Shape::Expression, "(a) - (b)"),
            edit(2, 0..9, Shape::Expression, "!(a + b < c)"),
            edit(3, 11..15, Shape::Statement, ""),
        ];
        let (out, placed) = rewrite(text, &edits);
        let expected = "(if crate::__mutant::is(0) { (a + b) >= (c) } else { \
            (if crate::__mutant::is(2) { !(a + b < c) } else { \
            (if crate::__mutant::is(1) { (a) - (b) } else { a + b }) < c }) }); \
            if crate::__mutant::is(3) {  } else { f(); }";
        assert_eq!(out, expected);
        assert_eq!(placed.len(), 4);
        for place in placed {
            assert!(out[place.range].contains(&format!("is({})", place.number)));
        }
    }

    #[test]
    fn a_body_is_left_at_its_beginning() {
        let (out, _) = rewrite("fn f() -> u8 { 7 }", &[edit(4, 14..14, Shape::Body, "0")]);
        assert_eq!(
            out,
            "fn f() -> u8 { if crate::__mutant::is(4) { return 0; }  7 }"
        );
    }
}
