//! Output for CI servers, read by parsers of others (check.V2).

use serde_json::Value;

use crate::recorded;
use crate::tool::{Bench, run};

/// A verdict with a budget that is held, one that is broken, and one that is not decided.
#[track_caller]
fn judged(bench: &Bench, more: &[&str]) -> String {
    let mut all = vec!["check", "main.sft", "--allocations=341", "--live-at-end=1"];
    all.extend(["--growth-per=none"]);
    all.extend(more);
    let done = bench.tool(all);
    assert_eq!(done.status.code(), Some(3), "{done:#?}");
    done.stdout
}

#[test]
fn junit_is_read_by_pythons_parser() {
    let bench = Bench::new();
    recorded(&bench, "rounds");
    judged(&bench, &["--junit", "j.xml"]);
    let script = "import sys, xml.etree.ElementTree as E\n\
                  root = E.parse('j.xml').getroot()\n\
                  assert root.tag == 'testsuites' and root.get('tests') == '3', root.attrib\n\
                  suite, = root\n\
                  assert (suite.get('failures'), suite.get('errors')) == ('1', '1'), suite.attrib\n\
                  for case in suite.iter('testcase'):\n \
                  print(case.get('name'), [(one.tag, one.get('type')) for one in case])\n\
                  assert 'leak' in ''.join(suite.find('.//failure').itertext())";
    let mut python = bench.command("/usr/bin/python3");
    python.args(["-c", script]);
    let done = run(python);
    assert_eq!(
        done.stdout,
        "live-at-end [('failure', 'broken')]\nallocations []\ngrowth-per none [('error', 'not decided')]\n",
        "{done:#?}"
    );
}

/// What SARIF 2.1.0 wants of the parts that are written: section, pointer.
#[test]
fn sarif_is_of_the_standards_shape() {
    let bench = Bench::new();
    recorded(&bench, "rounds");
    judged(&bench, &["--sarif", "s.sarif"]);
    let text = std::fs::read_to_string(bench.path("s.sarif")).expect("the file");
    let log: Value = serde_json::from_str(&text).expect("JSON");
    // 3.13: version and runs are required.
    assert_eq!(log["version"], "2.1.0");
    let run = &log["runs"][0];
    // 3.14.6, 3.19.8: a tool has a driver with a name.
    let driver = &run["tool"]["driver"];
    assert_eq!(driver["name"], "skinflint");
    let rules = driver["rules"].as_array().expect("rules");
    let results = run["results"].as_array().expect("results");
    assert_eq!(results.len(), 3);
    for (index, rule) in rules.iter().enumerate() {
        // 3.49.3: ids are unlike each other.
        assert!(rules[..index].iter().all(|other| other["id"] != rule["id"]));
    }
    let mut kinds = Vec::new();
    for one in results {
        // 3.27.11: a result has a message with text; 3.27.9, 3.27.10: a level only if it fails.
        assert!(
            one["message"]["text"]
                .as_str()
                .is_some_and(|text| !text.is_empty())
        );
        let kind = one["kind"].as_str().expect("a kind");
        let level = one["level"].as_str().expect("a level");
        assert_eq!(level == "none", kind != "fail", "{one}");
        let rule = one["ruleIndex"].as_u64().expect("an index") as usize;
        assert_eq!(rules[rule]["id"], one["ruleId"]);
        let place = &one["locations"][0]["physicalLocation"];
        let uri = place["artifactLocation"]["uri"].as_str().expect("a URI");
        assert!(!uri.is_empty() && !uri.contains(' '), "{uri}");
        // 3.30.5: lines begin with 1.
        if let Some(line) = place["region"]["startLine"].as_u64() {
            assert!(line >= 1);
        }
        kinds.push(kind);
    }
    assert_eq!(kinds, ["fail", "pass", "open"]);
    let place = &results[0]["locations"][0]["physicalLocation"];
    let uri = place["artifactLocation"]["uri"].as_str().expect("a URI");
    assert!(uri.ends_with("rounds.c"), "{uri}");
}

#[test]
fn annotations_and_markdown_have_every_budget() {
    let bench = Bench::new();
    recorded(&bench, "rounds");
    let text = judged(&bench, &["--github"]);
    let starts: Vec<&str> = text
        .lines()
        .map(|line| line.split(' ').next().unwrap_or_default())
        .collect();
    assert_eq!(starts, ["::error", "::notice", "::warning"]);
    let text = judged(&bench, &["--markdown"]);
    for row in [
        "| allocations | **held** |",
        "| live-at-end | **broken** |",
        "| growth-per none | **not decided** |",
    ] {
        assert!(text.contains(row), "{row}: {text}");
    }
    judged(&bench, &["--markdown=m.md"]);
    let written = std::fs::read_to_string(bench.path("m.md")).expect("the file");
    assert_eq!(written, text);
}

#[test]
fn json_has_the_figures_and_the_stacks() {
    let bench = Bench::new();
    recorded(&bench, "rounds");
    let all: Value = serde_json::from_str(&judged(&bench, &["--json"])).expect("JSON");
    assert_eq!(all["verdict"], "broken");
    assert_eq!(all["figures"]["live-at-end"]["low"], 14168);
    assert_eq!(all["budgets"][0]["figure"]["high"], 14168);
    // 10008 by `warm`, 4160 by `leak`.
    let stacks = &all["budgets"][0]["culprits"]["largest"];
    assert_eq!(stacks[0]["function"], "warm");
    assert_eq!(stacks[1]["value"], 4160);
}
