//! Conditions on the figures of a series, under which it fails: `tabs_closed_gc > 1.2 * one`.
//!
//! ```text
//!   text ─► Condition ─┐
//!   Series ─► medians of complete runs by name ─┴─► judge ─► Judged: met (failed), not met, not decided
//! ```
//!
//! F1  A name that no series can have is refused when the condition is read, before a browser is started.
//! F2  Each browser is judged by itself, on medians over its complete runs. A figure that it does not have, or no complete
//!     run, leaves the condition not decided: never not met.
//! F3  Bytes are bytes: a number may have a unit (KiB, MiB, GiB).
//!
//!   condition = side ( > | >= | < | <= ) side
//!   side      = product ( + | - product )*      product = value ( * | / value )*      value = number | name | ( side )
//!
//! Not here: how figures are measured (figures.rs), what retains what is left (`heap_snapshot`).

use serde::Serialize;
use skinflint_compare::stats::median;

use crate::result::Series;
use crate::run::Run;

/// Names that every series may have, and what they are; checkpoints and `cycle_N` beside them.
const NAMES: [(&str, &str); 8] = [
    ("left", "PSS at the last checkpoint"),
    ("peak", "the greatest PSS"),
    (
        "growth",
        "PSS that a cycle adds, from the second to the last",
    ),
    ("given_back", "share of the pages' cost that came back"),
    ("slope", "bytes per minute while all windows are open"),
    ("processes_left", "processes at the last checkpoint"),
    ("ghosts", "Firefox's ghost windows"),
    ("failed_loads", "loads that failed"),
];

/// Checkpoints, as a plan's picture has them (plan.rs).
const CHECKPOINTS: [&str; 10] = [
    "start",
    "start-settled",
    "one-open",
    "tabs-open",
    "tabs-open-settled",
    "tabs-open-gc",
    "tabs-closed",
    "tabs-closed-settled",
    "rested",
    "tabs-closed-gc",
];

/// A condition under which a series fails.
#[derive(Clone, PartialEq, Debug)]
pub struct Condition {
    /// As it was written.
    pub text: String,
    left: Side,
    compare: Compare,
    right: Side,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Compare {
    Above,
    AtLeast,
    Below,
    AtMost,
}

#[derive(Clone, PartialEq, Debug)]
enum Side {
    Number(f64),
    Name(String),
    Pair(Box<Side>, char, Box<Side>),
}

/// A condition, judged of one browser.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Judged {
    /// The browser.
    pub label: String,
    /// The condition as it was written.
    pub condition: String,
    /// Whether it is met, which is a failure; `None` if it is not decided.
    pub is_met: Option<bool>,
    /// The figures in it.
    pub figures: Vec<(String, f64)>,
    /// Why it is not decided.
    pub why: Option<String>,
}

impl Condition {
    /// Reads a condition.
    ///
    /// # Errors
    /// What is wrong, and forms that are right.
    pub fn parse(text: &str) -> Result<Condition, String> {
        let words = words(text)?;
        let mut parser = Parser {
            words: &words,
            at: 0,
        };
        let wrong = |why: String| format!("--fail-if {text:?}: {why}");
        let condition = parser.condition(text).map_err(wrong)?;
        Ok(condition)
    }

    /// Reports whether it has a name in it.
    pub fn names(&self, name: &str) -> bool {
        self.left.names(name) || self.right.names(name)
    }

    /// Reports whether it is met.
    fn is_met(&self, value: &dyn Fn(&str) -> Option<f64>) -> Result<bool, String> {
        let (left, right) = (self.left.value(value)?, self.right.value(value)?);
        if !left.is_finite() || !right.is_finite() {
            return Err("a side of it is no number (a division by 0)".into());
        }
        Ok(match self.compare {
            Compare::Above => left > right,
            Compare::AtLeast => left >= right,
            Compare::Below => left < right,
            Compare::AtMost => left <= right,
        })
    }
}

impl Side {
    fn value(&self, of: &dyn Fn(&str) -> Option<f64>) -> Result<f64, String> {
        match self {
            Side::Number(number) => Ok(*number),
            Side::Name(name) => of(name).ok_or_else(|| format!("{name} was not measured")),
            Side::Pair(a, sign, b) => {
                let (a, b) = (a.value(of)?, b.value(of)?);
                Ok(match sign {
                    '+' => a + b,
                    '-' => a - b,
                    '*' => a * b,
                    _ => a / b,
                })
            }
        }
    }

    fn names(&self, wanted: &str) -> bool {
        match self {
            Side::Number(_) => false,
            Side::Name(name) => name == wanted,
            Side::Pair(a, _, b) => a.names(wanted) || b.names(wanted),
        }
    }

    fn collect<'a>(&'a self, into: &mut Vec<&'a str>) {
        match self {
            Side::Number(_) => {}
            Side::Name(name) if into.contains(&name.as_str()) => {}
            Side::Name(name) => into.push(name),
            Side::Pair(a, _, b) => {
                a.collect(into);
                b.collect(into);
            }
        }
    }
}

/// Splits a text into numbers with their unit, names, and signs.
fn words(text: &str) -> Result<Vec<String>, String> {
    let mut words: Vec<String> = Vec::new();
    let mut letters = text.chars().peekable();
    while let Some(&letter) = letters.peek() {
        let mut word = String::new();
        if letter.is_alphanumeric() || letter == '_' {
            while let Some(&next) = letters.peek() {
                if !(next.is_alphanumeric() || matches!(next, '_' | '.')) {
                    break;
                }
                word.push(next);
                letters.next();
            }
        } else {
            letters.next();
            if letter.is_whitespace() {
                continue;
            }
            word.push(letter);
            if matches!(letter, '<' | '>') && letters.peek() == Some(&'=') {
                word.push('=');
                letters.next();
            }
        }
        words.push(word);
    }
    Ok(words)
}

struct Parser<'a> {
    words: &'a [String],
    at: usize,
}

/// What is told of a condition that cannot be read.
const FORM: &str = "write FIGURE > FIGURE, such as 'left > 1.2 * one' or 'growth > 4MiB'";

impl Parser<'_> {
    fn next(&mut self) -> Option<&str> {
        let word = self.words.get(self.at)?;
        self.at += 1;
        Some(word)
    }

    fn peek(&self) -> &str {
        self.words.get(self.at).map_or("", String::as_str)
    }

    fn condition(&mut self, text: &str) -> Result<Condition, String> {
        let left = self.side()?;
        let compare = match self.next() {
            Some(">") => Compare::Above,
            Some(">=") => Compare::AtLeast,
            Some("<") => Compare::Below,
            Some("<=") => Compare::AtMost,
            _ => return Err(FORM.into()),
        };
        let right = self.side()?;
        match self.next() {
            None => Ok(Condition {
                text: text.trim().to_owned(),
                left,
                compare,
                right,
            }),
            Some(more) => Err(format!("{more:?} is too much; {FORM}")),
        }
    }

    fn side(&mut self) -> Result<Side, String> {
        let mut side = self.product()?;
        while let sign @ ("+" | "-") = self.peek() {
            let sign = if sign == "+" { '+' } else { '-' };
            self.at += 1;
            side = Side::Pair(Box::new(side), sign, Box::new(self.product()?));
        }
        Ok(side)
    }

    fn product(&mut self) -> Result<Side, String> {
        let mut side = self.value()?;
        while let sign @ ("*" | "/") = self.peek() {
            let sign = if sign == "*" { '*' } else { '/' };
            self.at += 1;
            side = Side::Pair(Box::new(side), sign, Box::new(self.value()?));
        }
        Ok(side)
    }

    fn value(&mut self) -> Result<Side, String> {
        let word = self.next().ok_or_else(|| FORM.to_owned())?.to_owned();
        if word == "(" {
            let side = self.side()?;
            return match self.next() {
                Some(")") => Ok(side),
                _ => Err(format!("a ) is missing; {FORM}")),
            };
        }
        if word.starts_with(|first: char| first.is_ascii_digit()) {
            return number(&word).map(Side::Number);
        }
        match is_known(&word) {
            true => Ok(Side::Name(word)),
            false => Err(format!(
                "no figure is called {word:?}; there are {}",
                known()
            )),
        }
    }
}

/// Reads a number with or without a unit.
fn number(word: &str) -> Result<f64, String> {
    const UNITS: [(&str, u64); 3] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
    let unit = UNITS.iter().find(|(unit, _)| word.ends_with(unit));
    let (digits, factor) = match unit {
        Some((unit, factor)) => (&word[..word.len() - unit.len()], *factor),
        None => (word, 1),
    };
    let number: f64 = digits
        .parse()
        .map_err(|_| format!("{word:?} is no number; write 1.2 or 64MiB"))?;
    Ok(number * factor as f64)
}

fn is_known(name: &str) -> bool {
    let is_cycle = name
        .strip_prefix("cycle_")
        .is_some_and(|number| number.parse::<u32>().is_ok());
    name == "one"
        || is_cycle
        || NAMES.iter().any(|(known, _)| *known == name)
        || CHECKPOINTS
            .iter()
            .any(|known| known.replace('-', "_") == name)
}

fn known() -> String {
    let names = NAMES.iter().map(|(name, _)| (*name).to_owned());
    let checkpoints = CHECKPOINTS.iter().map(|name| name.replace('-', "_"));
    let all: Vec<String> = names.chain(["one".into()]).chain(checkpoints).collect();
    format!("{} and cycle_N", all.join(", "))
}

/// Returns a figure of a run.
fn figure(run: &Run, name: &str) -> Option<f64> {
    let pss = |wanted: &str| run.checkpoint(wanted).map(|found| found.pss as f64);
    match name {
        "one" => pss("one-open"),
        "left" => run.checkpoints.last().map(|last| last.pss as f64),
        "peak" => Some(run.figures.peak_pss as f64),
        "given_back" => run.figures.given_back,
        "slope" => run.figures.slope.map(|slope| slope.bytes_per_minute),
        "processes_left" => run.checkpoints.last().map(|last| f64::from(last.processes)),
        "ghosts" => run.zombies.ghost_windows.map(|windows| windows as f64),
        "failed_loads" => Some(run.failed_loads() as f64),
        "growth" => {
            let last = run.plan.cycles;
            let cycles = f64::from(last.checked_sub(2).filter(|more| *more > 0)?);
            Some((pss(&format!("cycle-{last}"))? - pss("cycle-2")?) / cycles)
        }
        name => pss(&name.replace('_', "-")),
    }
}

/// Judges conditions of each browser of a series (F2).
pub fn judge(series: &Series, conditions: &[Condition]) -> Vec<Judged> {
    let of = |label: &str, name: &str| {
        let own = series
            .runs
            .iter()
            .filter(|run| run.complete && run.subject.label == label);
        let values: Vec<f64> = own.filter_map(|run| figure(run, name)).collect();
        median(&values)
    };
    let mut all = Vec::new();
    for row in &series.rows {
        for condition in conditions {
            let (is_met, why) = match condition.is_met(&|name| of(&row.label, name)) {
                Ok(is_met) => (Some(is_met), None),
                Err(_) if row.complete == 0 => (None, Some("no run is complete".to_owned())),
                Err(why) => (None, Some(why)),
            };
            let mut names = Vec::new();
            condition.left.collect(&mut names);
            condition.right.collect(&mut names);
            let figures = names
                .into_iter()
                .filter_map(|name| Some((name.to_owned(), of(&row.label, name)?)));
            all.push(Judged {
                label: row.label.clone(),
                condition: condition.text.clone(),
                is_met,
                figures: figures.collect(),
                why,
            });
        }
    }
    all
}

/// Renders the verdicts for a terminal, a line each.
pub fn render(all: &[Judged]) -> String {
    let mut out = String::new();
    for one in all {
        let verdict = match one.is_met {
            Some(true) => "FAILED",
            Some(false) => "held",
            None => "not decided",
        };
        let figures: Vec<String> = one
            .figures
            .iter()
            .map(|(name, value)| format!("{name} = {}", shown(name, *value)))
            .collect();
        let why = one
            .why
            .as_ref()
            .map_or(String::new(), |why| format!(": {why}"));
        out += &format!(
            "{verdict:<12} {}: {}  ({}){why}\n",
            one.label,
            one.condition,
            figures.join(", ")
        );
    }
    out
}

fn shown(name: &str, value: f64) -> String {
    match name {
        "given_back" => format!("{value:.2}"),
        "processes_left" | "ghosts" | "failed_loads" => format!("{value}"),
        _ if value < 0.0 => format!("-{}", skinflint_view::units::bytes(-value as u64)),
        _ => skinflint_view::units::bytes(value as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn met(text: &str) -> Result<bool, String> {
        let value = |name: &str| match name {
            "left" => Some(120.0),
            "one" => Some(100.0),
            "start" => Some(0.0),
            _ => None,
        };
        Condition::parse(text)?.is_met(&value)
    }

    #[test]
    fn conditions_compute() {
        assert_eq!(met("left > 1.2 * one"), Ok(false));
        assert_eq!(met("left >= 1.2*one"), Ok(true));
        assert_eq!(met("left - one > 2 * (one - 91)"), Ok(true));
        assert_eq!(met("left / 2 + 41 < one + 1"), Ok(false));
        assert_eq!(met("left <= 1KiB"), Ok(true));
        assert_eq!(met("one - left - 1 < 0 - 20"), Ok(true));
    }

    #[test]
    fn what_has_no_value_is_not_decided() {
        assert!(
            met("growth > 0")
                .unwrap_err()
                .contains("growth was not measured")
        );
        assert!(
            met("left / start > 0")
                .unwrap_err()
                .contains("division by 0")
        );
    }

    #[test]
    fn what_is_wrong_is_told() {
        let why = |text: &str| Condition::parse(text).unwrap_err();
        assert!(why("left > 1.2 * on").contains("there are left"));
        for text in [
            "",
            "left",
            "left >",
            "left > 1 2",
            "left > (1",
            "left = 1",
            "left > 5XiB",
            "> 1",
            "left > 1 > 2",
        ] {
            assert!(why(text).starts_with("--fail-if "), "{text}");
        }
        assert!(
            Condition::parse("cycle_3 > cycle_2")
                .unwrap()
                .names("cycle_3")
        );
    }
}
