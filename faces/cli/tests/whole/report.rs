//! A report as its users read it: the JSON of `skinflint report --json`.
//!
//! R1  Whatever a test asks for must be there: a missing field fails it, and never reads as 0.

use serde_json::Value;

/// A report.
pub struct Report(pub Value);

/// Returns a field that must be there (R1).
#[track_caller]
pub fn field<'a>(value: &'a Value, path: &str) -> &'a Value {
    let mut at = value;
    for name in path.split('.') {
        at = at
            .get(name)
            .unwrap_or_else(|| panic!("the report has no {path:?} (at {name:?})"));
    }
    at
}

/// Returns a whole number.
#[track_caller]
pub fn number(value: &Value, path: &str) -> u64 {
    let found = field(value, path);
    found
        .as_u64()
        .unwrap_or_else(|| panic!("{path} is no number: {found}"))
}

/// Returns a text.
#[track_caller]
pub fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    let found = field(value, path);
    found
        .as_str()
        .unwrap_or_else(|| panic!("{path} is no text: {found}"))
}

/// Returns the elements of a list.
#[track_caller]
pub fn list<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    let found = field(value, path).as_array();
    found.unwrap_or_else(|| panic!("{path} is no list"))
}

impl Report {
    /// Reads a report from its JSON.
    #[track_caller]
    pub fn read(json: &str) -> Report {
        Report(serde_json::from_str(json).expect("JSON"))
    }

    /// Returns a whole number of the report.
    #[track_caller]
    pub fn number(&self, path: &str) -> u64 {
        number(&self.0, path)
    }

    /// Returns a text of the report.
    #[track_caller]
    pub fn text(&self, path: &str) -> &str {
        text(&self.0, path)
    }

    /// Returns a list of the report.
    #[track_caller]
    pub fn list(&self, path: &str) -> &[Value] {
        list(&self.0, path)
    }

    /// Returns the sentences of the completeness.
    pub fn notes(&self) -> Vec<&str> {
        let notes = self.list("completeness.notes").iter();
        notes.map(|note| note.as_str().expect("a text")).collect()
    }

    /// Checks that nothing is missing: no event lost, every release known.
    #[track_caller]
    pub fn is_complete(&self) {
        let completeness = field(&self.0, "completeness");
        let complete = field(completeness, "complete").as_bool();
        assert_eq!(complete, Some(true), "{completeness:#}");
        assert_eq!(number(completeness, "lost_events"), 0, "{completeness:#}");
        assert_eq!(number(completeness, "unknown_frees"), 0, "{completeness:#}");
    }

    /// Returns (acquired, released) over the run.
    pub fn heap(&self) -> (u64, u64) {
        (
            self.number("totals.allocations"),
            self.number("totals.frees"),
        )
    }

    /// Returns the number of live blocks at the end.
    pub fn end_blocks(&self) -> u64 {
        let instants = self.list("instants").iter();
        let mut ends = instants.filter(|instant| text(instant, "kind") == "end");
        number(ends.next().expect("always holds the end"), "live_blocks")
    }

    /// Returns one row for each stack.
    pub fn sites(&self) -> &[Value] {
        self.list("sites")
    }

    /// Returns the frames of a stack, innermost first: (function, module, inlined).
    #[track_caller]
    pub fn frames(&self, node: u64) -> Vec<(&str, &str, bool)> {
        let (nodes, frames) = (self.list("nodes"), self.list("frames"));
        let mut found = Vec::new();
        let mut at = node;
        while at != 0 {
            assert!(found.len() <= nodes.len(), "a circle in the tree of stacks");
            let node = &nodes[at as usize];
            let frame = &frames[number(node, "frame") as usize];
            let inlined = field(frame, "inlined").as_bool().expect("true or false");
            found.push((text(frame, "function"), text(frame, "module"), inlined));
            at = number(node, "parent");
        }
        found
    }

    /// Returns the functions of a stack, innermost first.
    pub fn functions(&self, node: u64) -> Vec<&str> {
        let frames = self.frames(node);
        frames.iter().map(|(function, ..)| *function).collect()
    }

    /// Returns the functions of a stack that are of this module and not inlined, innermost first.
    pub fn own_functions(&self, node: u64, module: &str) -> Vec<&str> {
        let frames = self.frames(node).into_iter();
        frames
            .filter(|(_, of, inlined)| *of == module && !inlined)
            .map(|(function, ..)| function)
            .collect()
    }

    /// Returns the sum of a field over the sites whose innermost function that is not inlined is this one.
    pub fn sum_at(&self, function: &str, field: &str) -> u64 {
        let innermost = |node| {
            let frames = self.frames(node).into_iter();
            frames
                .filter(|(_, _, inlined)| !inlined)
                .map(|(f, ..)| f)
                .next()
        };
        self.sites()
            .iter()
            .filter(|site| innermost(number(site, "node")) == Some(function))
            .map(|site| number(site, field))
            .sum()
    }

    /// Returns the row of a requested size.
    #[track_caller]
    pub fn size(&self, size: u64) -> &Value {
        let mut rows = self.list("sizes").iter();
        rows.find(|row| number(row, "size") == size)
            .unwrap_or_else(|| panic!("nobody asked for {size} bytes"))
    }

    /// Returns the number of blocks of a size, in total and live; zeros if no call asked for it.
    pub fn some_of(&self, size: u64) -> (u64, u64) {
        let asked = self
            .list("sizes")
            .iter()
            .any(|row| number(row, "size") == size);
        if asked { self.blocks_of(size) } else { (0, 0) }
    }

    /// Returns the number of blocks of a size over the run, and live at the moment of the report.
    #[track_caller]
    pub fn blocks_of(&self, size: u64) -> (u64, u64) {
        let row = self.size(size);
        (number(row, "allocations"), number(row, "live_blocks"))
    }
}
