//! Budgets in a TOML file.
//!
//! ```toml
//!   baseline = "main.sft"                 # beside the file
//!   [budget]
//!   peak-live = "64 MiB"
//!   allocations = 200000
//!   stack = { "load_*" = "4 MiB" }
//!   growth-per = { request = "+5%" }
//!   phase = { "load *" = { growth = 0, peak-live = "8 MiB" } }
//! ```
//!
//! F1  An error names the file, the line and the next step; an unknown key is an error, never ignored.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use toml::{Spanned, Value};

use crate::budget::{Budget, Kind, PLAIN, Within};
use crate::limit::Limit;

/// What a file asks for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct File {
    /// Its budgets, in the order of their lines.
    pub budgets: Vec<Budget>,
    /// The recording that relative limits are of.
    pub baseline: Option<PathBuf>,
}

pub(crate) type Table = BTreeMap<Spanned<String>, Spanned<Value>>;
/// Tables one level down: `stack` and `growth-per` hold tables, the others values.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Entry {
    Values(BTreeMap<String, Value>),
    Value(Value),
}

#[derive(serde::Deserialize, Default)]
struct Raw {
    baseline: Option<Spanned<String>>,
    #[serde(default)]
    budget: Table,
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

/// Reads the text of a file; `path` is where it lies.
///
/// # Errors
/// File, line, and what to write there.
pub fn read(text: &str, path: &Path) -> Result<File, String> {
    let shown = path.display();
    let line = |at: usize| 1 + text[..at.min(text.len())].matches('\n').count();
    let raw: Raw = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        format!(
            "{shown}:{}: {}; docs/check.md shows a file",
            line(at),
            error.message()
        )
    })?;
    if let Some(other) = raw.others.keys().next() {
        let at = text.find(other.as_str()).unwrap_or(0);
        return Err(format!(
            "{shown}:{}: {other:?} is not known here; a file has `baseline` and the table [budget]",
            line(at)
        ));
    }
    let beside = path.parent().unwrap_or(Path::new(""));
    Ok(File {
        budgets: budgets(raw.budget, text, path)?,
        baseline: raw.baseline.map(|name| beside.join(name.get_ref())),
    })
}

/// Returns the budgets of a table, in the order of its lines.
pub(crate) fn budgets(table: Table, text: &str, path: &Path) -> Result<Vec<Budget>, String> {
    let mut found: Vec<(usize, Budget)> = Vec::new();
    for (key, value) in table {
        let at = key.span().start;
        let line = 1 + text[..at.min(text.len())].matches('\n').count();
        let said_by = format!("{}:{line}", path.display());
        for (kind, limit) in
            entries(key.get_ref(), value.into_inner()).map_err(|why| format!("{said_by}: {why}"))?
        {
            let limit = limit_of(&limit).map_err(|why| format!("{said_by}: {kind}: {why}"))?;
            let said_by = said_by.clone();
            found.push((
                at,
                Budget {
                    kind,
                    limit,
                    said_by,
                },
            ));
        }
    }
    found.sort_by_key(|(at, _)| *at);
    Ok(found.into_iter().map(|(_, budget)| budget).collect())
}

/// Returns the budgets of a key: one, or one for each pattern or mark of a table.
fn entries(key: &str, value: Value) -> Result<Vec<(Kind, Value)>, String> {
    if key == "phase" {
        return phases(value);
    }
    let of: Option<fn(String) -> Kind> = match key {
        "stack" => Some(Kind::Stack),
        "growth-per" => Some(Kind::GrowthPer),
        _ => None,
    };
    let entry = value
        .try_into::<Entry>()
        .map_err(|error| error.to_string())?;
    match (of, entry) {
        (Some(of), Entry::Values(table)) => Ok(table
            .into_iter()
            .map(|(name, limit)| (of(name), limit))
            .collect()),
        (Some(_), Entry::Value(_)) => Err(format!(
            "{key} needs a name for each limit: {key} = {{ \"NAME\" = \"4 MiB\" }}"
        )),
        (None, Entry::Value(limit)) => {
            let kind = PLAIN.iter().find(|kind| kind.name() == key);
            let kind = kind.ok_or_else(|| unknown(key))?;
            Ok(vec![(kind.clone(), limit)])
        }
        (None, Entry::Values(_)) if PLAIN.iter().any(|kind| kind.name() == key) => {
            Err(format!("{key} is one limit: {key} = \"64 MiB\""))
        }
        (None, Entry::Values(_)) => Err(unknown(key)),
    }
}

/// Returns the budgets of phases: a table of figures for each.
fn phases(value: Value) -> Result<Vec<(Kind, Value)>, String> {
    let form = "phase = { \"NAME\" = { growth = \"4 KiB\" } }";
    let Value::Table(phases) = value else {
        return Err(format!("phase needs a name, and figures for each: {form}"));
    };
    let mut all = Vec::new();
    for (name, figures) in phases {
        let Value::Table(figures) = figures else {
            return Err(format!("phase {name}: it needs figures: {form}"));
        };
        for (figure, limit) in figures {
            let within = Within::named(&figure).map_err(|why| format!("phase {name}: {why}"))?;
            all.push((Kind::Phase(name.clone(), within), limit));
        }
    }
    Ok(all)
}

fn unknown(key: &str) -> String {
    let names: Vec<&str> = PLAIN.iter().map(Kind::name).collect();
    format!(
        "no budget is called {key:?}; there are {}, stack, growth-per and phase",
        names.join(", ")
    )
}

fn limit_of(value: &Value) -> Result<Limit, String> {
    match value {
        Value::String(text) => Limit::parse(text),
        Value::Integer(number) => u64::try_from(*number)
            .map(Limit::Absolute)
            .map_err(|_| format!("{number} is below 0; against a baseline write \"{number}\"")),
        other => Err(format!(
            "a limit is a number or text such as \"64 MiB\", not a {}",
            other.type_str()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        read(text, Path::new("b/m.toml")).unwrap_err()
    }

    #[test]
    fn a_whole_file() {
        let text = "baseline = \"old.sft\"\n[budget]\npeak-live = \"64 MiB\"\nallocations = 20\n\
                    stack = { \"load_*\" = \"+5%\", a = 1 }\ngrowth-per = { \"request 1\" = \"4KiB\" }\n";
        let file = read(text, Path::new("b/m.toml")).unwrap();
        assert_eq!(file.baseline, Some(PathBuf::from("b/old.sft")));
        let said: Vec<String> = file
            .budgets
            .iter()
            .map(|one| format!("{} {} {}", one.kind, one.limit, one.said_by))
            .collect();
        assert_eq!(
            said,
            [
                "peak-live 67108864 b/m.toml:3",
                "allocations 20 b/m.toml:4",
                "stack a 1 b/m.toml:5",
                "stack load_* +5% b/m.toml:5",
                "growth-per request 1 4096 b/m.toml:6",
            ]
        );
    }

    #[test]
    fn tables_of_names_may_have_headers_of_their_own() {
        let text = "[budget]\npeak-live = 5\n[budget.stack]\nload = 7\n";
        let file = read(text, Path::new("m.toml")).unwrap();
        assert_eq!(file.budgets[1].kind, Kind::Stack("load".into()));
    }

    #[test]
    fn phases_have_figures() {
        let text = "[budget.phase]\n\"Cache.*\" = { growth = 0, allocations = \"2k\" }\n";
        let file = read(text, Path::new("m.toml")).unwrap();
        let kinds: Vec<String> = file
            .budgets
            .iter()
            .map(|one| one.kind.to_string())
            .collect();
        assert_eq!(kinds, ["phase Cache.* allocations", "phase Cache.* growth"]);
        for wrong in [
            "phase = 3",
            "phase = { a = 3 }",
            "phase = { a = { grows = 3 } }",
        ] {
            let said = refused(&format!("[budget]\n{wrong}\n"));
            assert!(said.starts_with("b/m.toml:2: "), "{said}");
            assert!(said.contains("growth"), "{said}");
        }
    }

    #[test]
    fn errors_name_file_line_and_the_next_step() {
        let said = refused("[budget]\n\npeak-liv = 3\n");
        assert!(
            said.starts_with("b/m.toml:3: ") && said.contains("peak-live"),
            "{said}"
        );
        let said = refused("[budget]\npeak-live = \"5%\"\n");
        assert!(
            said.starts_with("b/m.toml:2: peak-live: ") && said.contains("write +5%"),
            "{said}"
        );
        let said = refused("[budget]\npeak-live = -5\n");
        assert!(
            said.starts_with("b/m.toml:2: ") && said.contains("\"-5\""),
            "{said}"
        );
        let said = refused("[budget]\nstack = 5\n");
        assert!(said.contains("stack = {"), "{said}");
        let said = refused("[budget]\npeak-live = { a = 5 }\n");
        assert!(said.contains("peak-live = \"64 MiB\""), "{said}");
        let said = refused("[budget]\npeak-live = true\n");
        assert!(said.contains("not a boolean"), "{said}");
        let said = refused("[budget]\npeak-live = \n");
        assert!(said.starts_with("b/m.toml:2: "), "{said}");
        let said = refused("\n[budgets]\npeak-live = 1\n");
        assert!(
            said.starts_with("b/m.toml:2: \"budgets\"") && said.contains("[budget]"),
            "{said}"
        );
    }
}
