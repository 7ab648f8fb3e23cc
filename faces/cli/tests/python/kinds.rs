//! Kinds of Python's objects (tests/python/kinds.py), under each Python that is here, with names of the interpreter's functions or
//! without.
//!
//! ```text
//!   kinds.py ─► lives ─ four marks, so that the collector has looked ─► report at the last: each function's holder says its kind
//! ```
//!
//! I1  Between a mark and its answer all rings are read at least once: after four, blocks that live were looked at as often as
//!     they have to be.
//!
//! Not here: types by hand (collect), wordings (analysis).

use crate::tool::{Bench, Running, root};
use crate::{is_known, objects};

#[test]
fn each_holder_says_what_it_is_made_of() {
    for (version, python) in objects::recordable() {
        if !is_known(version) {
            continue;
        }
        println!("Python 3.{version:?}");
        let bench = Bench::new();
        let script = root().join("tests/python/kinds.py");
        let command = [python.as_os_str(), script.as_os_str()];
        let mut running = Running::start(bench.recording(&["--python-objects"], command));
        let pid = running.line();
        for mark in ["one", "two", "three", "four"] {
            bench.tool(["ctl", pid.trim(), "mark", mark]).says(0, &[]);
        }
        running.say(b"\n");
        assert_eq!(running.finish(crate::tool::PATIENCE).status.code(), Some(0));
        let report = bench.report_at("main.sft", "four");
        let holders = report.list("findings").iter();
        let holders: Vec<_> = holders.filter(|one| one["kind"] == "holder").collect();
        // Before 3.11 an instance's attributes are a dictionary of its own, made elsewhere.
        let instances = (version.0 >= 11).then_some(("instances", "instances of Row"));
        for (function, kind) in [
            ("dictionaries", "dictionaries"),
            ("floats", "floats"),
            ("sets", "sets"),
            ("strings", "strings"),
        ]
        .into_iter()
        .chain(instances)
        {
            let own = holders.iter().find(|one| {
                let functions = report.functions(one["node"].as_u64().unwrap_or(0));
                functions
                    .iter()
                    .any(|name| name.split('.').next() == Some(function))
            });
            let own = own.unwrap_or_else(|| panic!("{function} holds nothing: {holders:#?}"));
            let what = own["what"].as_str().unwrap_or_default();
            assert!(
                what.contains(&format!(" of it are {kind}")),
                "{function}: {what}"
            );
            let title = own["title"].as_str().unwrap_or_default();
            assert!(
                title.ends_with(&format!(" % {kind}")),
                "{function}: {title}"
            );
        }
    }
}
