//! Figures out of what a command printed: paths into JSON with a little arithmetic, numbers of a line of text.
//!
//! ```text
//!   rows[policy=many].pages / rows[policy=legacy].pages      names, [n], [key=value], [key~part], [] for all
//!   sum(books.rows[].bytes) - books.resident_bytes            + - * / between spaces, brackets, numbers
//!   line "geometric mean", number 2                           the second number of the first such line
//! ```
//!
//! T1  An operator stands between spaces, since names have dashes. `*` and `/` bind closer than `+` and `-`.
//! T2  A path that leads nowhere is an error that names the part which is not there: never 0.
//! T3  Several values, by `[]`, are a list; only `sum`, `max`, `min`, `count` and `mean` (geometric) make one of them.
//! T4  Output that is not one JSON text is taken line by line: the lines that are JSON become one list.
//!
//! Not here: which figures there are (table/*.toml), what is made of them (agreement.rs).

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// The deepest nesting of brackets.
const DEEPEST: usize = 20;

/// Returns the JSON of an output (T4).
///
/// # Errors
/// If nothing of it is JSON.
pub fn json(output: &str) -> Result<Value> {
    if let Ok(value) = serde_json::from_str(output) {
        return Ok(value);
    }
    let lines: Vec<Value> = (output.lines())
        .filter(|line| line.trim_start().starts_with(['{', '[']))
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    ensure!(
        !lines.is_empty(),
        "the output is not JSON: {:.80}",
        output.trim()
    );
    Ok(Value::Array(lines))
}

/// Computes an expression over a JSON value.
///
/// # Errors
/// If it cannot be read, or leads to what is not there (T2).
pub fn expression(text: &str, value: &Value) -> Result<f64> {
    let tokens = tokens(text)?;
    let mut parser = Parser {
        tokens: &tokens,
        at: 0,
        value,
        depth: 0,
    };
    let figure = parser.sum().with_context(|| text.to_owned())?;
    ensure!(
        parser.at == tokens.len(),
        "{text}: {} is left over",
        tokens[parser.at]
    );
    ensure!(figure.is_finite(), "{text}: no finite number");
    Ok(figure)
}

/// Returns a number of the first line that has the text: the first, second … one, counted from 1.
///
/// # Errors
/// If no line has the text, or the line has fewer numbers.
pub fn of_line(output: &str, text: &str, number: usize) -> Result<f64> {
    let line = (output.lines().find(|line| line.contains(text)))
        .with_context(|| format!("no line has \"{text}\""))?;
    let all = numbers(line);
    let found = number.checked_sub(1).and_then(|at| all.get(at));
    found.copied().with_context(|| {
        let count = all.len();
        format!("{line:?} has {count} numbers, and number {number} was asked for")
    })
}

/// Returns how many lines are this text, but for space at their ends.
pub fn lines_equal(output: &str, text: &str) -> usize {
    output.lines().filter(|line| line.trim() == text).count()
}

/// Returns the numbers of a line: `1,024`, `0.5`, `-3`; a sign counts only at the beginning of a word.
fn numbers(line: &str) -> Vec<f64> {
    let mut found = Vec::new();
    let mut rest = line;
    let mut before = ' ';
    while let Some(first) = rest.chars().next() {
        let is_sign = matches!(first, '-' | '+') && !before.is_alphanumeric();
        let digits = &rest[if is_sign { 1 } else { 0 }..];
        let begins = digits.starts_with(|c: char| c.is_ascii_digit());
        if begins && !before.is_alphanumeric() && before != '.' && before != '_' {
            let is_part = |c: char| c.is_ascii_digit() || c == ',' || c == '.';
            let end = digits.find(|c| !is_part(c)).unwrap_or(digits.len());
            let word = digits[..end].trim_end_matches([',', '.']).replace(',', "");
            if let Ok(value) = word.parse::<f64>() {
                found.push(if first == '-' { -value } else { value });
            }
            before = '0';
            rest = &digits[end..];
        } else {
            // A dash within a word joins: the 2011 of mozjemalloc-2011 is no number.
            if first != '-' || !before.is_alphanumeric() {
                before = first;
            }
            rest = &rest[first.len_utf8()..];
        }
    }
    found
}

/// Splits an expression into words, operators, brackets and commas. Brackets of a path stay in its word.
fn tokens(text: &str) -> Result<Vec<String>> {
    let mut all = Vec::new();
    let mut word = String::new();
    let (mut quoted, mut selecting) = (false, 0_usize);
    for c in text.chars() {
        match c {
            '"' => {
                quoted = !quoted;
                word.push(c);
            }
            _ if quoted => word.push(c),
            '[' | ']' => {
                selecting = if c == '[' { selecting + 1 } else { 0 };
                word.push(c);
            }
            ' ' if selecting == 0 => all.extend(taken(&mut word)),
            '(' | ')' if selecting == 0 => {
                all.extend(taken(&mut word));
                all.push(c.to_string());
            }
            _ => word.push(c),
        }
    }
    ensure!(
        !quoted && selecting == 0,
        "{text}: a quote or a bracket is open"
    );
    all.extend(taken(&mut word));
    Ok(all)
}

fn taken(word: &mut String) -> Option<String> {
    (!word.is_empty()).then(|| std::mem::take(word))
}

struct Parser<'a> {
    tokens: &'a [String],
    at: usize,
    value: &'a Value,
    depth: usize,
}

impl Parser<'_> {
    fn next_is(&mut self, wanted: &str) -> bool {
        let is = self.tokens.get(self.at).is_some_and(|word| word == wanted);
        self.at += usize::from(is);
        is
    }

    fn sum(&mut self) -> Result<f64> {
        let mut left = self.product()?;
        loop {
            if self.next_is("+") {
                left += self.product()?;
            } else if self.next_is("-") {
                left -= self.product()?;
            } else {
                return Ok(left);
            }
        }
    }

    fn product(&mut self) -> Result<f64> {
        let mut left = self.operand()?;
        loop {
            if self.next_is("*") {
                left *= self.operand()?;
            } else if self.next_is("/") {
                left /= self.operand()?;
            } else {
                return Ok(left);
            }
        }
    }

    fn operand(&mut self) -> Result<f64> {
        if self.next_is("(") {
            self.depth += 1;
            ensure!(self.depth <= DEEPEST, "too many brackets");
            let inner = self.sum()?;
            ensure!(self.next_is(")"), "a bracket is open");
            self.depth -= 1;
            return Ok(inner);
        }
        let word = self.tokens.get(self.at).context("an operand is missing")?;
        self.at += 1;
        if let Ok(number) = word.parse() {
            return Ok(number);
        }
        if self.next_is("(") {
            let path = self.tokens.get(self.at).context("a path is missing")?;
            self.at += 1;
            ensure!(self.next_is(")"), "{word}: one path stands in its brackets");
            return function(word, &values(path, self.value)?);
        }
        match values(word, self.value)?[..] {
            [one] => number(word, one),
            ref many => bail!("{word} leads to {} values: sum, max …?", many.len()),
        }
    }
}

fn number(path: &str, value: &Value) -> Result<f64> {
    match value {
        Value::Bool(is) => Ok(f64::from(u8::from(*is))),
        _ => value
            .as_f64()
            .with_context(|| format!("{path} leads to {value:.60}, which is no number")),
    }
}

fn function(name: &str, values: &[&Value]) -> Result<f64> {
    if name == "count" {
        return Ok(values.len() as f64);
    }
    let numbers: Vec<f64> = (values.iter())
        .map(|value| number(name, value))
        .collect::<Result<_>>()?;
    ensure!(!numbers.is_empty(), "{name} of nothing");
    let all = numbers.iter().copied();
    match name {
        "sum" => Ok(all.sum()),
        "max" => Ok(all.fold(f64::NEG_INFINITY, f64::max)),
        "min" => Ok(all.fold(f64::INFINITY, f64::min)),
        "mean" => Ok((all.map(f64::ln).sum::<f64>() / numbers.len() as f64).exp()),
        _ => bail!("{name}: there are sum, max, min, count, mean"),
    }
}

/// A step of a path.
#[derive(Debug, PartialEq)]
enum Step {
    Name(String),
    Index(usize),
    All,
    /// `[key=value]`, or `[key~part]` if the flag is set.
    Where(String, String, bool),
}

fn values<'a>(path: &str, from: &'a Value) -> Result<Vec<&'a Value>> {
    let mut here = vec![from];
    for step in steps(path)? {
        let mut next = Vec::new();
        for value in &here {
            match &step {
                Step::Name(name) => next.extend(value.get(name)),
                Step::Index(at) => next.extend(value.get(at)),
                Step::All => next.extend(value.as_array().into_iter().flatten()),
                Step::Where(key, wanted, part) => {
                    let all = value.as_array().into_iter().flatten();
                    next.extend(all.filter(|one| has(one, key, wanted, *part)).take(1));
                }
            }
        }
        let is_list = step == Step::All;
        ensure!(is_list || !next.is_empty(), "{path}: {step:?} is not there");
        here = next;
    }
    Ok(here)
}

/// Reports whether an element has this key, or this place of a list, with the value.
fn has(element: &Value, key: &str, wanted: &str, part: bool) -> bool {
    let inner = match key.parse::<usize>() {
        Ok(at) => element.get(at),
        Err(_) => element.get(key),
    };
    let text = match inner {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => return false,
    };
    if part {
        text.contains(wanted)
    } else {
        text == wanted
    }
}

fn steps(path: &str) -> Result<Vec<Step>> {
    let mut all = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let (inner, after) = (inner.split_once(']')).context("a bracket is open")?;
            all.push(selection(inner));
            rest = after;
        } else if let Some(inner) = rest.strip_prefix('"') {
            let (name, after) = (inner.split_once('"')).context("a quote is open")?;
            all.push(Step::Name(name.to_owned()));
            rest = after;
        } else {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            ensure!(end > 0, "{path}: a name is missing");
            all.push(Step::Name(rest[..end].to_owned()));
            rest = &rest[end..];
        }
        if let Some(after) = rest.strip_prefix('.') {
            ensure!(!after.is_empty(), "{path}: a name is missing at its end");
            rest = after;
        }
    }
    Ok(all)
}

fn selection(inner: &str) -> Step {
    if inner.is_empty() {
        Step::All
    } else if let Ok(at) = inner.parse() {
        Step::Index(at)
    } else if let Some((key, wanted)) = inner.split_once('=') {
        Step::Where(key.to_owned(), wanted.to_owned(), false)
    } else if let Some((key, wanted)) = inner.split_once('~') {
        Step::Where(key.to_owned(), wanted.to_owned(), true)
    } else {
        Step::Name(inner.to_owned())
    }
}

/// Checks an expression without a value: its words, brackets and paths.
///
/// # Errors
/// If it cannot be read.
pub fn check(text: &str) -> Result<()> {
    for word in tokens(text)? {
        if !matches!(word.as_str(), "+" | "-" | "*" | "/" | "(" | ")") {
            steps(&word).with_context(|| text.to_owned())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(text: &str) -> Result<f64> {
        let value = json!({
            "rows": [{"policy": "legacy", "mib": 28.5, "n": 2}, {"policy": "many-origin", "mib": 27.5, "n": 3}],
            "books": {"resident": 30, "parts": [10, 20]},
            "our allocator": {"share": 0.97}, "pairs": [["peak", {"median": 7}]], "is": true, "empty": [],
        });
        expression(text, &value)
    }

    #[test]
    fn paths_and_arithmetic_by_hand() {
        let right = [
            (
                "rows[policy=many-origin].mib / rows[policy=legacy].mib",
                27.5 / 28.5,
            ),
            ("rows[1].n", 3.0),
            ("rows[policy~origin].n", 3.0),
            ("sum(books.parts[]) - books.resident", 0.0),
            ("count(rows[]) + 2 * max(rows[].n)", 8.0),
            ("( 1 + 2 ) * 3", 9.0),
            ("1 + 2 * 3", 7.0),
            ("\"our allocator\".share", 0.97),
            ("pairs[0=peak][1].median", 7.0),
            ("mean(rows[].n)", 6_f64.sqrt()),
            ("is", 1.0),
            ("count(empty[])", 0.0),
        ];
        for (text, wanted) in right {
            let found = of(text).unwrap_or_else(|error| panic!("{text}: {error:#}"));
            assert!((found - wanted).abs() < 1e-9, "{text}: {found}");
        }
    }

    #[test]
    fn what_is_not_there_is_named_and_never_zero() {
        for (text, named) in [
            ("rows[policy=tight].mib", "tight"),
            ("books.free", "free"),
            ("rows[].n", "2 values"),
            ("rows[0].policy", "no number"),
            ("sum(empty[])", "of nothing"),
            ("1 +", "operand is missing"),
            ("( 1", "bracket is open"),
            ("1 2", "left over"),
            ("1 / 0", "no finite number"),
            ("median(rows[].n)", "there are sum"),
        ] {
            let said = format!("{:#}", of(text).expect_err(text));
            assert!(said.contains(named), "{text}: {said}");
        }
    }

    #[test]
    fn numbers_of_a_line() {
        let output =
            "head\n909062 blocks cumulative: 1,024.5 bytes, -3 (50.0%), v2 x86_64 of-2011 0.25,\n";
        for (number, wanted) in [(1, 909_062.0), (2, 1024.5), (3, -3.0), (4, 50.0), (5, 0.25)] {
            assert_eq!(
                of_line(output, "cumulative", number).expect("there"),
                wanted
            );
        }
        assert!(of_line(output, "cumulative", 6).is_err());
        assert!(of_line(output, "cumulative", 0).is_err());
        assert!(of_line(output, "absent", 1).is_err());
        assert_eq!(lines_equal(" a b\na b \nab\n", "a b"), 2);
    }

    #[test]
    fn json_of_one_text_and_of_lines() {
        assert_eq!(json("{\"a\": 1}").expect("json")["a"], 1);
        assert_eq!(
            json("x\n{\"a\": 1}\n{\"a\": 2}\n").expect("lines")[1]["a"],
            2
        );
        assert!(json("nothing").is_err());
    }
}
