//! The difference of two reports, line by line, as about:memory makes it.
//!
//! ```text
//!   first ─┐ names without the parts that change by themselves: pid 42 ─► pid NNN, 0x7f… ─► 0xNNN, id=7 ─► id=NNN
//!   second ┴─► second − first, where it is not 0; a line of one side only is marked (First, Second)
//! ```
//!
//! X1  The sums of the difference are the differences of the sums: only equal lines are left out.
//! X2  Lines are matched by process, path, kind and units; several lines of one path are added up first.
//!
//! Not here: how a difference is shown (`text`), its file (`file`: `_presence`).

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::entry::{Entry, Kind, Units};
use crate::tree::Presence;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    process: String,
    path: String,
    kind: u8,
    units: u8,
}

struct Value {
    first: Option<i128>,
    second: Option<i128>,
    description: String,
}

/// Two reports that are being compared.
#[derive(Default)]
pub struct Diff {
    lines: BTreeMap<Key, Value>,
    isolated: [bool; 2],
}

/// A report that is compared with another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Usually the earlier one.
    First,
    /// Usually the later one.
    Second,
}

impl Diff {
    /// Creates a difference without lines.
    pub fn new() -> Diff {
        Diff::default()
    }

    /// Adds a line to one side.
    pub fn add(&mut self, side: Side, entry: &Entry<'_>) {
        if entry.process.starts_with("webIsolated=") {
            self.isolated[side as usize] = true;
        }
        let key = Key {
            process: steady(entry.process).into_owned(),
            path: steady(entry.path).into_owned(),
            kind: entry.kind as u8,
            units: entry.units as u8,
        };
        let value = self.lines.entry(key).or_insert_with(|| Value {
            first: None,
            second: None,
            description: entry.description.to_owned(),
        });
        let sum = match side {
            Side::First => &mut value.first,
            Side::Second => &mut value.second,
        };
        *sum = Some(sum.unwrap_or(0) + i128::from(entry.amount));
    }

    /// Passes the lines that differ to `each`, in order of process and path.
    pub fn each(mut self, mut each: impl FnMut(&Entry<'_>, Presence)) {
        // One side has a process for each site, the other has one for all: compare by kind, as about:memory does.
        if self.isolated[0] != self.isolated[1] {
            self.join_isolated();
        }
        for (key, value) in &self.lines {
            let presence = match (value.first, value.second) {
                (Some(_), None) => Presence::First,
                (None, Some(_)) => Presence::Second,
                _ => Presence::Both,
            };
            let change = value.second.unwrap_or(0) - value.first.unwrap_or(0);
            if change == 0 && presence == Presence::Both {
                continue;
            }
            let limits = (i128::from(i64::MIN), i128::from(i64::MAX));
            each(
                &Entry {
                    process: &key.process,
                    path: &key.path,
                    kind: Kind::from_number(u64::from(key.kind)).unwrap_or(Kind::Other),
                    units: Units::from_number(u64::from(key.units)).unwrap_or(Units::Bytes),
                    amount: change.clamp(limits.0, limits.1) as i64,
                    description: &value.description,
                },
                presence,
            );
        }
    }

    fn join_isolated(&mut self) {
        let add = |to: &mut Option<i128>, more: Option<i128>| {
            if let Some(more) = more {
                *to = Some(to.unwrap_or(0) + more);
            }
        };
        for (mut key, value) in std::mem::take(&mut self.lines) {
            if key.process.starts_with("webIsolated=") {
                key.process = "web (pid NNN)".into();
            }
            match self.lines.get_mut(&key) {
                Some(known) => {
                    add(&mut known.first, value.first);
                    add(&mut known.second, value.second);
                }
                None => {
                    self.lines.insert(key, value);
                }
            }
        }
    }
}

/// The texts before a number that changes from run to run.
const BEFORE: &[&str] = &["pid ", "tid ", "id=", "segments=", "scripts="];

/// Returns a name with its changing parts replaced.
pub fn steady(name: &str) -> Cow<'_, str> {
    if !name.bytes().any(|byte| byte.is_ascii_digit()) {
        return Cow::Borrowed(name);
    }
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        let inside = out.ends_with(|c: char| c.is_alphanumeric());
        let found = match inside {
            true => None,
            false => changing(rest),
        };
        match found {
            Some((kept, bytes)) => {
                out.push_str(kept);
                out.push_str("NNN");
                rest = &rest[bytes..];
            }
            None => {
                out.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    Cow::Owned(out)
}

/// If a text begins with a part that changes, returns what is kept of it, and its length in bytes.
fn changing(text: &str) -> Option<(&str, usize)> {
    let run = |from: usize, is: fn(&u8) -> bool| {
        text.as_bytes()[from..].iter().take_while(|b| is(b)).count()
    };
    for before in BEFORE {
        if text.starts_with(before) {
            let digits = run(before.len(), u8::is_ascii_digit);
            return (digits > 0).then_some((before, before.len() + digits));
        }
    }
    if text.starts_with("0x") {
        let digits = run(2, u8::is_ascii_hexdigit);
        return (digits > 0).then_some(("0x", 2 + digits));
    }
    // The name of a null principal.
    let digits = text
        .strip_prefix('{')
        .map(|_| run(1, |b| b.is_ascii_hexdigit() || *b == b'-'))?;
    let closed = text.as_bytes().get(1 + digits) == Some(&b'}');
    (digits == 36 && closed).then_some(("{", 37))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_stay() {
        for (name, wanted) in [
            ("Main Process (pid 1234)", "Main Process (pid NNN)"),
            ("web (pid 1, tid 22)", "web (pid NNN, tid NNN)"),
            ("zone(0x7f00aB12)/strings", "zone(0xNNN)/strings"),
            ("top(https:\\\\a, id=81)/x1", "top(https:\\\\a, id=NNN)/x1"),
            ("(segments=3)", "(segments=NNN)"),
            ("rapid 5 grid=7", "rapid 5 grid=7"),
            ("class-64", "class-64"),
            (
                "moz-nullprincipal:{0abcdef0-1234-5678-9abc-0123456789ab}",
                "moz-nullprincipal:{NNN}",
            ),
            ("{12}", "{12}"),
            ("pid ", "pid "),
            ("é0x", "é0x"),
        ] {
            assert_eq!(steady(name), wanted);
        }
    }

    #[test]
    fn a_difference_by_hand() {
        let line = |process, path, amount| Entry {
            process,
            path,
            kind: Kind::Heap,
            units: Units::Bytes,
            amount,
            description: "",
        };
        let mut diff = Diff::new();
        for entry in [
            line("p (pid 1)", "explicit/a", 10),
            line("p (pid 1)", "explicit/same", 5),
            line("p (pid 1)", "explicit/gone", 7),
            line("p (pid 1)", "explicit/twice", 1),
            line("p (pid 1)", "explicit/twice", 2),
        ] {
            diff.add(Side::First, &entry);
        }
        for entry in [
            line("p (pid 2)", "explicit/a", 4),
            line("p (pid 2)", "explicit/same", 5),
            line("p (pid 2)", "explicit/new", 9),
            line("p (pid 2)", "explicit/twice", 13),
        ] {
            diff.add(Side::Second, &entry);
        }
        let mut found = Vec::new();
        diff.each(|entry, presence| {
            assert_eq!(entry.process, "p (pid NNN)");
            found.push((entry.path.to_owned(), entry.amount, presence));
        });
        let wanted = [
            ("explicit/a", -6, Presence::Both),
            ("explicit/gone", -7, Presence::First),
            ("explicit/new", 9, Presence::Second),
            ("explicit/twice", 10, Presence::Both),
        ];
        let wanted = wanted.map(|(path, amount, presence)| (path.to_owned(), amount, presence));
        assert_eq!(found, wanted);
    }

    #[test]
    fn a_process_for_each_site_against_one_for_all() {
        let line = |process, amount| Entry {
            process,
            path: "explicit/dom",
            kind: Kind::Heap,
            units: Units::Bytes,
            amount,
            description: "",
        };
        let mut diff = Diff::new();
        diff.add(Side::First, &line("web (pid 5)", 10));
        diff.add(Side::Second, &line("webIsolated=https://a (pid 6)", 20));
        diff.add(Side::Second, &line("webIsolated=https://b (pid 7)", 30));
        let mut found = Vec::new();
        diff.each(|entry, _| found.push((entry.process.to_owned(), entry.amount)));
        assert_eq!(found, [("web (pid NNN)".to_owned(), 40)]);
    }
}
