//! SCHEMA.md is generated from the model's own comments, so that it cannot drift from the code.
//!
//! ```text
//!   analysis/src/model.rs ──document()──► SCHEMA.md        compared here, byte for byte
//!   a full report ──keys()──► every key is in SCHEMA.md
//! ```
//!
//! `SKINFLINT_WRITE_SCHEMA=1 cargo test -p skinflint-view --test schema` writes it anew.

#[path = "../examples/sample/synthetic.rs"]
mod synthetic;

use std::collections::BTreeSet;
use std::fmt::Write;

use serde_json::Value;

const MODEL: &str = concat!(
    include_str!("../../analysis/src/model.rs"),
    include_str!("../../analysis/src/model/finding.rs"),
    include_str!("../../analysis/src/model/reachability.rs")
);
const BRIEF: &str = include_str!("../src/brief.rs");
const SCHEMA: &str = include_str!("../SCHEMA.md");

const INTRODUCTION: &str = "\
# The JSON of a report

What `skinflint report --json` prints and what every view reads. Generated from
`evidence/analysis/src/model.rs` by `evidence/view/tests/schema.rs`; do not edit by hand.

- The top is a `Report`. Unknown fields are to be ignored: minor versions add some. A reader refuses
  a `schema` that it does not know.
- Bytes are bytes, times are nanoseconds since the start of the recording unless the field says
  otherwise. A field is of the report's instant (`instants[at]`) if it says “live” or “at the
  instant”, of the end if it says `end`, of the largest live heap if it says `heap_peak`, and else of
  the whole run.
- `T or null` is a figure that was not measured; it is never written as 0.
- Numbers are up to 2^64 − 1: read them as 64-bit integers, not as doubles, where that matters.
- A stack is an index into `nodes`; its frame is `frames[nodes[n].frame]`, its caller is
  `nodes[n].parent`, and 0 is the empty stack. Parents come before their children.
- The rows of `books.rows` add up to `books.resident_bytes`; the sums over `sites` equal the figures
  of the instant and the totals.
";

/// Describes a type in words.
fn spoken(kind: &str) -> String {
    if let Some(inner) = kind
        .strip_prefix("Option<")
        .and_then(|rest| rest.strip_suffix('>'))
    {
        return format!("{} or null", spoken(inner));
    }
    if let Some(inner) = kind
        .strip_prefix("Vec<")
        .and_then(|rest| rest.strip_suffix('>'))
    {
        return format!("array of {}", spoken(inner));
    }
    match kind {
        "u32" | "u64" | "usize" => "integer".to_owned(),
        "f64" => "number".to_owned(),
        "bool" => "true or false".to_owned(),
        "String" => "text".to_owned(),
        other => other.to_owned(),
    }
}

fn snake(name: &str) -> String {
    let mut out = String::new();
    for (index, c) in name.chars().enumerate() {
        if c.is_uppercase() && index > 0 {
            out.push('_');
        }
        out.extend(c.to_lowercase());
    }
    out
}

const BRIEFLY: &str = "
# The brief report

What `skinflint report --json --brief` prints: a `Brief`, made of the types above and of these.
";

/// The report of a sampled recording, whose types have names that a report's have, too.
const SAMPLED: &str = include_str!("sampled.md");

/// Renders every struct and enum of the model, and of the brief report, as a table.
fn document(model: &str, brief: &str) -> String {
    let (model, brief) = (tables(model), tables(brief));
    format!("{INTRODUCTION}{model}{BRIEFLY}{brief}{SAMPLED}")
}

fn tables(model: &str) -> String {
    let mut out = String::new();
    let mut comment = String::new();
    let (mut inside, mut left_out) = (None, false);
    for line in model.lines() {
        let line = line.trim();
        if line == "#[serde(skip)]" {
            left_out = true;
            continue;
        }
        if std::mem::take(&mut left_out) {
            comment.clear();
            continue;
        }
        if let Some(text) = line.strip_prefix("///") {
            if !comment.is_empty() {
                comment.push(' ');
            }
            comment.push_str(text.trim());
            continue;
        }
        let plain = |comment: &mut String| {
            std::mem::take(comment)
                .replace("[`", "`")
                .replace("`]", "`")
                .replace('|', "\\|")
        };
        let opened = |word: &str| {
            line.strip_prefix(word)
                .and_then(|rest| rest.strip_suffix(" {"))
        };
        if let Some(name) = opened("pub struct ") {
            inside = Some(false);
            let _ = write!(
                out,
                "\n## {name}\n\n{}\n\n| field | type | meaning |\n|---|---|---|\n",
                plain(&mut comment)
            );
        } else if let Some(name) = opened("pub enum ") {
            inside = Some(true);
            let _ = write!(
                out,
                "\n## {name}\n\n{}\n\n| value | meaning |\n|---|---|\n",
                plain(&mut comment)
            );
        } else if line == "}" {
            inside = None;
        } else if inside == Some(false)
            && let Some((name, kind)) = line
                .strip_prefix("pub ")
                .and_then(|rest| rest.split_once(": "))
        {
            let _ = writeln!(
                out,
                "| `{name}` | {} | {} |",
                spoken(kind.trim_end_matches(',')),
                plain(&mut comment)
            );
        } else if inside == Some(true) && !line.is_empty() && !line.starts_with('#') {
            let variant = line.trim_end_matches(',');
            let value = match variant.split_once('(') {
                Some((name, kind)) => format!(
                    "{{\"how\": \"{}\", \"value\": {}}}",
                    snake(name),
                    spoken(kind.trim_end_matches(')'))
                ),
                None => snake(variant),
            };
            let _ = writeln!(out, "| `{value}` | {} |", plain(&mut comment));
        } else if !line.starts_with('#') {
            comment.clear();
        }
    }
    out.replace("| `just_enough` |", "| `{\"how\": \"just_enough\"}` |")
        .replace("| `irregular` |", "| `{\"how\": \"irregular\"}` |")
}

/// Collects every object key below `value`.
fn keys(value: &Value, out: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                out.insert(key.clone());
                keys(inner, out);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| keys(item, out)),
        _ => {}
    }
}

fn undocumented(report: &Value, schema: &str) -> Vec<String> {
    let mut all = BTreeSet::new();
    keys(report, &mut all);
    // The two parts of a growth pattern are described with its values.
    all.into_iter()
        .filter(|key| {
            !schema.contains(&format!("`{key}`")) && !schema.contains(&format!("\"{key}\":"))
        })
        .collect()
}

#[test]
fn the_schema_is_what_the_model_says() {
    let expected = document(MODEL, BRIEF);
    if std::env::var_os("SKINFLINT_WRITE_SCHEMA").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/SCHEMA.md");
        std::fs::write(path, &expected).expect("SCHEMA.md can be written");
        return;
    }
    assert_eq!(
        SCHEMA, expected,
        "run SKINFLINT_WRITE_SCHEMA=1 cargo test -p skinflint-view --test schema"
    );
}

#[test]
fn every_key_of_a_full_report_is_described() {
    let report = synthetic::report(5, 40);
    let text = skinflint_view::json::render(&report, true).expect("writes");
    let value: Value = serde_json::from_str(&text).expect("reads");
    assert_eq!(undocumented(&value, SCHEMA), [""; 0]);
    let brief = skinflint_view::brief::render(&report).expect("writes");
    let value: Value = serde_json::from_str(&brief).expect("reads");
    assert_eq!(undocumented(&value, SCHEMA), [""; 0]);
    let sampled = serde_json::to_value(skinflint_analysis::sampled::Sampled {
        rows: vec![Default::default()],
        stacks: vec![Default::default()],
        ..Default::default()
    });
    let mut value = sampled.expect("writes");
    // What a trace says of its process is the trace's.
    value["process"] = Value::Null;
    assert_eq!(undocumented(&value, SCHEMA), [""; 0]);
    // The check can fail.
    let odd = serde_json::json!({"books": [{"dark_bytes": 1}]});
    assert_eq!(undocumented(&odd, SCHEMA), ["dark_bytes"]);
}

#[test]
fn every_field_says_what_it_means() {
    for line in SCHEMA.lines().filter(|line| line.starts_with("| `")) {
        let meaning = line
            .trim_end_matches('|')
            .rsplit('|')
            .next()
            .unwrap_or("")
            .trim();
        assert!(!meaning.is_empty(), "no meaning: {line}");
    }
    assert!(SCHEMA.matches("\n## ").count() >= 19, "types are missing");
}

#[test]
fn json_reads_back_as_it_was() {
    let report = synthetic::report(5, 40);
    for pretty in [false, true] {
        let text = skinflint_view::json::render(&report, pretty).expect("writes");
        assert_eq!(text.contains('\n'), pretty);
        let back: skinflint_analysis::model::Report = serde_json::from_str(&text).expect("reads");
        assert_eq!(
            skinflint_view::json::render(&back, pretty).expect("writes"),
            text
        );
    }
}
