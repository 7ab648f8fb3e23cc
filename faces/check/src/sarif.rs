//! The verdict in SARIF 2.1.0, for code scanning.
//!
//! ```text
//!   run ─► tool.driver.rules: a rule a kind of budget
//!     └──► results: kind "pass", "fail" (level "error"), "open" (not decided), with the stack as locations
//! ```
//!
//! S1  The level of what does not fail is `none`, as the standard wants (3.27.10).

use serde_json::{Value, json};

use crate::judge::{Checked, Judged, Verdict};
use crate::text::{blame, others, summary};

/// Returns the log as JSON.
pub fn render(checked: &Checked) -> String {
    let mut rules: Vec<Value> = Vec::new();
    for one in &checked.budgets {
        let id = one.kind.name();
        if rules.iter().all(|rule| rule["id"] != id) {
            rules.push(json!({"id": id, "shortDescription": {"text": one.meaning}}));
        }
    }
    let budgets = checked.budgets.iter();
    let mut results: Vec<Value> = budgets.map(|one| result(checked, one, &rules)).collect();
    if let Some(failed) = &checked.failed {
        rules.push(json!({
            "id": "program-failed",
            "shortDescription": {"text": "the program ended well"},
        }));
        results.push(json!({
            "ruleId": "program-failed",
            "ruleIndex": rules.len() - 1,
            "kind": "fail",
            "level": "error",
            "message": {"text": failed},
            "locations": [{"physicalLocation": {"artifactLocation": {"uri": uri(&checked.trace)}}}],
        }));
    }
    let log = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "skinflint",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            }},
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    });
    // Values of these types are always JSON.
    serde_json::to_string_pretty(&log).unwrap_or_default() + "\n"
}

fn result(checked: &Checked, one: &Judged, rules: &[Value]) -> Value {
    let (kind, level) = match one.verdict {
        Verdict::Held => ("pass", "none"),
        Verdict::Broken => ("fail", "error"),
        Verdict::Undecided => ("open", "none"),
    };
    let id = one.kind.name();
    let mut said = format!("{}: {}", one.name, summary(one));
    for culprit in &one.culprits.largest {
        said.push_str(&format!("\n{}", blame(one, culprit)));
    }
    if let Some(others) = others(one) {
        said.push_str(&format!("\n{others}"));
    }
    // A result without a location is shown nowhere: what has no source line is laid to the recording.
    let located = one.culprits.largest.iter().find_map(|culprit| {
        let file = culprit.file.as_ref()?;
        let mut place = json!({"artifactLocation": {"uri": uri(file)}});
        if let Some(line) = culprit.line.filter(|line| *line > 0) {
            place["region"] = json!({"startLine": line});
        }
        Some(json!({
            "physicalLocation": place,
            "logicalLocations": [{"name": culprit.function, "kind": "function"}],
        }))
    });
    let whole = json!({"physicalLocation": {"artifactLocation": {"uri": uri(&checked.trace)}}});
    json!({
        "ruleId": id,
        "ruleIndex": rules.iter().position(|rule| rule["id"] == id),
        "kind": kind,
        "level": level,
        "message": {"text": said},
        "locations": [located.unwrap_or(whole)],
        "partialFingerprints": {"budget/v1": one.name},
    })
}

/// Returns a path as a URI: absolute ones with a scheme, and what URIs do not have by its bytes.
fn uri(path: &str) -> String {
    let mut out = String::from(if path.starts_with('/') { "file://" } else { "" });
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' | b'~' => {
                out.push(char::from(byte));
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::tests::checked;

    #[test]
    fn results_are_of_rules_and_levels_are_of_kinds() {
        let log: Value = serde_json::from_str(&render(&checked())).unwrap();
        let run = &log["runs"][0];
        let results = run["results"].as_array().unwrap();
        let told: Vec<_> = results
            .iter()
            .map(|one| (one["kind"].as_str(), one["level"].as_str()))
            .collect();
        assert_eq!(
            told,
            [
                (Some("pass"), Some("none")),
                (Some("fail"), Some("error")),
                (Some("open"), Some("none"))
            ]
        );
        for one in results {
            let rule = one["ruleIndex"].as_u64().unwrap() as usize;
            assert_eq!(run["tool"]["driver"]["rules"][rule]["id"], one["ruleId"]);
        }
        let place = &results[1]["locations"][0]["physicalLocation"];
        assert_eq!(place["artifactLocation"]["uri"], "src/load.c");
        assert_eq!(place["region"]["startLine"], 12);
        let place = &results[0]["locations"][0]["physicalLocation"];
        assert_eq!(place["artifactLocation"]["uri"], "app.sft");
    }

    #[test]
    fn paths_become_uris() {
        assert_eq!(uri("a b/ä:%.c"), "a%20b/%C3%A4%3A%25.c");
        assert_eq!(uri("/a.c"), "file:///a.c");
    }
}
