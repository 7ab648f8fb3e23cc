//! A line of a memory report, and what makes it a sound one.
//!
//! ```text
//!   process            path                        kind   units   amount   description
//!   "viewer (pid 42)"  explicit/caches/images      HEAP   BYTES   1048576  "Decoded images."
//!                      └─ the tree is made of the components; `/` within one is written `\`
//! ```
//!
//! N1  Below `explicit/` an amount is in bytes, and of kind heap or nonheap: the sums there are the memory that the
//!     program has asked for, and an amount of another kind would falsify them.
//! N2  A path has no empty component and no control character, so it is a place in a tree and one line of text.
//! N3  Rows of the process and of its allocator are built in: a reporter that adds one of them would change what all
//!     others are judged by ([`is_built_in`]).
//! N4  A line that is left out is named: a check answers with the words that the user reads.
//!
//! The numbers of [`Kind`] and [`Units`] are those of Firefox's nsIMemoryReporter.idl, which its file uses.
//! Not here: where lines are kept (`store`), where they come from (`registry`).

use std::borrow::Cow;

/// The longest path or description, in bytes.
pub const LONGEST: usize = 4096;

/// Where the memory is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Kind {
    /// In mappings that the allocator did not make.
    Nonheap = 0,
    /// In blocks of the allocator. `heap-unclassified` is what no line of this kind covers.
    Heap = 1,
    /// Neither, and not to be added to the others: a sum, a count, another view of the same memory.
    Other = 2,
}

/// The units of an amount.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Units {
    /// Bytes.
    Bytes = 0,
    /// The number of things that exist now.
    Count = 1,
    /// The number of things since the start.
    Cumulative = 2,
    /// Hundredths of a percent.
    Percent = 3,
}

impl Kind {
    /// Returns the kind that a number in a file means.
    pub fn from_number(number: u64) -> Option<Kind> {
        [Kind::Nonheap, Kind::Heap, Kind::Other]
            .into_iter()
            .find(|kind| *kind as u64 == number)
    }
}

impl Units {
    /// Returns the units that a number in a file means.
    pub fn from_number(number: u64) -> Option<Units> {
        [
            Units::Bytes,
            Units::Count,
            Units::Cumulative,
            Units::Percent,
        ]
        .into_iter()
        .find(|units| *units as u64 == number)
    }
}

/// A line of a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// `NAME (pid N)`; empty for the process that measures itself.
    pub process: &'a str,
    /// The components, with `/` between them.
    pub path: &'a str,
    /// Where the memory is.
    pub kind: Kind,
    /// What `amount` counts.
    pub units: Units,
    /// The amount, in `units`.
    pub amount: i64,
    /// A sentence for the user.
    pub description: &'a str,
}

/// The root of the tree whose sum is the memory that the program has asked for.
pub const EXPLICIT: &str = "explicit";
/// The path of what no reporter covers; the reader computes it, and no reporter adds it.
pub const UNCLASSIFIED: &str = "explicit/heap-unclassified";
/// The path of the usable bytes of all live blocks of the allocator.
pub const ALLOCATED: &str = "heap-allocated";

/// The name of a row that has what is left over of a sum.
pub const NOT_EXPLAINED: &str = "not-explained";

/// The row, below zero, of what a control group's processes hold and other groups are charged for.
pub const CHARGED_ELSEWHERE: &str = "charged-elsewhere";
/// Returns whether a path is below `explicit`.
pub fn is_explicit(path: &str) -> bool {
    path.strip_prefix(EXPLICIT)
        .is_some_and(|rest| rest.starts_with('/'))
}

/// The trees of the process and of the allocator (`process`, `heap`), to which no reporter may add.
const BUILT_IN: [&str; 14] = [
    ALLOCATED,
    "heap-blocks",
    "heap-mapped",
    "heap-slop",
    "heap-overhead-fraction",
    "heap-tenants",
    "heap-tenant-blocks",
    "pss",
    "swap",
    "vsize",
    "threads",
    "page-faults-hard",
    "page-faults-soft",
    "explicit/heap-overhead",
];

/// Returns whether a row is one of the process or of its allocator (N3).
pub fn is_built_in(path: &str) -> bool {
    let below = |tree: &str| {
        path.strip_prefix(tree)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    // The first letter is tested first: there may be ten thousand lines.
    let may_be = matches!(
        path.as_bytes(),
        [b'h' | b'p' | b's' | b'v' | b't' | b'r', ..]
    ) || path.starts_with("explicit/heap-")
        || path.starts_with("explicit/stacks");
    may_be
        && (BUILT_IN.iter().any(|tree| below(tree))
            || [
                "resident",
                "resident-by-kind",
                "resident-unique",
                "resident-merged",
            ]
            .iter()
            .any(|tree| below(tree))
            || path == "explicit/stacks")
}

/// Returns whether a line is about the process that reports it, by whatever name.
fn is_own(process: &str) -> bool {
    let pid = || {
        let (_, end) = process.rsplit_once("(pid ")?;
        end.strip_suffix(')')?.parse().ok()
    };
    process.is_empty() || pid() == Some(std::process::id())
}

/// Returns a name as one component of a path: one line, `/` as `\`, never empty.
pub fn component(name: &str) -> Cow<'_, str> {
    if name.is_empty() {
        return Cow::Borrowed("(no name)");
    }
    if !name.contains(|c: char| c == '/' || c.is_control()) {
        return Cow::Borrowed(name);
    }
    let clean = |c: char| match c {
        '/' => '\\',
        c if c.is_control() => ' ',
        c => c,
    };
    Cow::Owned(name.chars().map(clean).collect())
}

/// The owner of some memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner<'a> {
    /// The program itself.
    System,
    /// A tenant that the program works for: a tab, a request, a customer.
    User(&'a str),
}

impl Owner<'_> {
    /// Returns `explicit/tenants/user/NAME/REST` or `explicit/tenants/system/REST`: all rows of a tenant are in one
    /// place.
    pub fn path(&self, rest: &str) -> String {
        match self {
            Owner::System => format!("explicit/tenants/system/{rest}"),
            Owner::User(name) => format!("explicit/tenants/user/{}/{rest}", component(name)),
        }
    }
}

impl Entry<'_> {
    /// Checks whether a reporter may add the line, in a process with this much address space (N1 to N3).
    ///
    /// # Errors
    /// What is wrong with it (N4).
    pub fn check(&self, address_space_bytes: u64) -> Result<(), &'static str> {
        check_text(self.path, self.description)?;
        if self.path == EXPLICIT || self.path == UNCLASSIFIED {
            return Err("this row is computed and not reported");
        }
        if is_built_in(self.path) && is_own(self.process) {
            return Err("this row is built in, and not for reporters");
        }
        if is_explicit(self.path) {
            if self.units != Units::Bytes {
                return Err("below explicit/ units must be bytes");
            }
            if self.kind == Kind::Other {
                return Err("below explicit/ the kind must be heap or nonheap");
            }
        }
        if self.amount < 0 {
            return Err("a negative amount");
        }
        // An amount on a disk, or of another process, may be larger.
        let own = self.process.is_empty() && self.kind != Kind::Other;
        if own && self.units == Units::Bytes && self.amount as u64 > address_space_bytes {
            return Err("more bytes than the process has addresses for");
        }
        Ok(())
    }
}

/// Checks N2.
fn check_text(path: &str, description: &str) -> Result<(), &'static str> {
    if path.len() > LONGEST || description.len() > LONGEST {
        return Err("a path or description of more than 4096 bytes");
    }
    // Bytes are tested first: nearly all paths are plain, and there may be ten thousand.
    let mut before = b'/';
    for &byte in path.as_bytes() {
        if byte == b'/' && before == b'/' {
            return Err("an empty component in its path");
        }
        if byte < b' ' || byte == 0x7f {
            return Err("a control character in its path");
        }
        before = byte;
    }
    if before == b'/' {
        return Err("an empty component in its path");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(path: &str, kind: Kind, units: Units, amount: i64) -> Entry<'_> {
        Entry {
            process: "",
            path,
            kind,
            units,
            amount,
            description: "",
        }
    }

    #[test]
    fn names_as_components() {
        assert_eq!(component("https://a/b"), "https:\\\\a\\b");
        assert_eq!(component("a\nb"), "a b");
        assert_eq!(component(""), "(no name)");
        assert_eq!(
            Owner::User("a/b").path("dom"),
            "explicit/tenants/user/a\\b/dom"
        );
        assert_eq!(Owner::System.path("dom"), "explicit/tenants/system/dom");
    }

    #[test]
    fn sound_lines_and_others() {
        use Kind::{Heap, Nonheap, Other};
        use Units::{Bytes, Count, Percent};
        let space = 1 << 20;
        for (path, kind, units, amount) in [
            ("explicit/a", Heap, Bytes, 0),
            ("explicit/a/b", Nonheap, Bytes, 1 << 20),
            ("explicitly", Other, Count, i64::MAX),
            ("explicit/heap-overheads", Heap, Bytes, 1),
            ("explicit/stacks/of-coroutines", Nonheap, Bytes, 1),
            ("resident-images", Other, Bytes, 1),
            ("a", Other, Percent, 1234),
        ] {
            assert_eq!(line(path, kind, units, amount).check(space), Ok(()));
        }
        for (path, kind, units, amount, what) in [
            ("explicit/a", Heap, Count, 1, "bytes"),
            ("explicit/a", Other, Bytes, 1, "kind"),
            ("explicit", Heap, Bytes, 1, "computed"),
            (UNCLASSIFIED, Heap, Bytes, 1, "computed"),
            ("heap-allocated", Other, Bytes, 1, "built in"),
            ("resident/a", Other, Bytes, 1, "built in"),
            ("resident-by-kind/a", Other, Bytes, 1, "built in"),
            ("explicit/heap-overhead/a", Nonheap, Bytes, 1, "built in"),
            ("explicit/stacks", Nonheap, Bytes, 1, "built in"),
            ("explicit/a", Heap, Bytes, -1, "negative"),
            ("a", Other, Count, -1, "negative"),
            ("explicit/a", Heap, Bytes, (1 << 20) + 1, "addresses"),
            ("explicit/a", Heap, Bytes, i64::MAX, "addresses"),
            ("", Other, Count, 1, "empty"),
            ("/a", Other, Count, 1, "empty"),
            ("a//b", Other, Count, 1, "empty"),
            ("a/", Other, Count, 1, "empty"),
            ("a\nb", Other, Count, 1, "control"),
        ] {
            let answer = line(path, kind, units, amount).check(space);
            assert!(
                answer.is_err_and(|said| said.contains(what)),
                "{path}: {answer:?}"
            );
        }
        let long = "x".repeat(LONGEST + 1);
        assert!(line(&long, Other, Count, 1).check(space).is_err());
    }
}
