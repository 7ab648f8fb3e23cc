//! The audit of safe functions: each has a line in `docs/safe-functions.md` that says why it can be safe.
//!
//! ```text
//!   engines/gc/src, engines/cache/src: pub fn … ─┐
//!   docs/safe-functions.md: ## file, | `Type::fn` | why | ─┴─► one for one, by file and name
//! ```
//!
//! A1  A public function that is not `unsafe`, and no test's, has a line below the heading of its file; where a file has
//!     several of one name there are as many lines.
//! A2  A line without a function is a fault, too: the audit is of what there is.
//!
//! Not here: whether the reason is right. It is asked for where a function is added, which is when it can be answered.

use std::collections::BTreeMap;

use super::Fault;
use super::source::Source;

/// The document.
pub const AUDIT: &str = "docs/safe-functions.md";

const RULE: &str = "safe-function";
/// The folders that are audited.
const AUDITED: &[&str] = &["engines/gc/src/", "engines/cache/src/"];

/// Lines of functions, or of rows, by file and name.
type Found = BTreeMap<(String, String), Vec<usize>>;

/// Checks the files of the audited folders against the document; `read` gives a file's text.
pub fn check(files: &[String], read: &dyn Fn(&str) -> Option<String>) -> Vec<Fault> {
    let mut functions = Found::new();
    let audited = |file: &&String| AUDITED.iter().any(|folder| file.starts_with(folder));
    for file in files.iter().filter(audited).filter(|f| is_code(f)) {
        for (name, line) in safe_functions(&read(file).unwrap_or_default()) {
            functions
                .entry((file.clone(), name))
                .or_default()
                .push(line);
        }
    }
    let rows = rows(&read(AUDIT).unwrap_or_default());
    let none = Vec::new();
    let mut faults = Vec::new();
    for ((file, name), lines) in &functions {
        let told = rows.get(&(file.clone(), name.clone())).unwrap_or(&none);
        for line in lines.iter().skip(told.len()) {
            let what = format!("`{name}` is not in {AUDIT}: say there why it can be safe");
            faults.push(Fault::new(file, *line, RULE, what));
        }
    }
    for (place, lines) in &rows {
        let there = functions.get(place).unwrap_or(&none);
        for line in lines.iter().skip(there.len()) {
            let what = format!("{} has no safe public function `{}`", place.0, place.1);
            faults.push(Fault::new(AUDIT, *line, RULE, what));
        }
    }
    faults
}

fn is_code(file: &str) -> bool {
    file.ends_with(".rs") && !file.ends_with("_tests.rs")
}

/// Returns the names of the safe public functions of a file, with their lines. What follows `mod tests` is a test's.
fn safe_functions(content: &str) -> Vec<(String, usize)> {
    let source = Source::new(content);
    let mut found = Vec::new();
    for (index, code) in source.code.iter().enumerate() {
        let code = code.trim_start();
        if code.starts_with("mod tests") {
            break;
        }
        let rest = code.strip_prefix("pub ");
        let rest = rest.map(|rest| rest.strip_prefix("const ").unwrap_or(rest));
        let rest = rest.map(|rest| rest.strip_prefix("async ").unwrap_or(rest));
        if let Some(rest) = rest.and_then(|rest| rest.strip_prefix("fn ")) {
            let is_name = |c: char| c.is_alphanumeric() || c == '_';
            let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
            found.push((rest[..end].to_owned(), index + 1));
        }
    }
    found
}

/// Returns the document's rows. A row without a reason is none.
fn rows(document: &str) -> Found {
    let mut rows = Found::new();
    let mut file = String::new();
    for (index, line) in document.lines().enumerate() {
        if let Some(heading) = line.strip_prefix("## ") {
            file = heading.trim().trim_matches('`').to_owned();
        }
        let mut cells = line.split('|').skip(1).map(str::trim);
        let (Some(first), Some(why)) = (cells.next(), cells.next()) else {
            continue;
        };
        let name = first
            .strip_prefix('`')
            .and_then(|name| name.strip_suffix('`'));
        if let Some(name) = name.filter(|_| !why.is_empty()) {
            let name = name.rsplit("::").next().unwrap_or(name);
            let place = (file.clone(), name.to_owned());
            rows.entry(place).or_default().push(index + 1);
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "impl A {\n    pub fn new() -> A {}\n    pub const fn get(&self) {}\n    pub unsafe fn raw() {}\n    \
                        pub(crate) fn own() {}\n}\n// pub fn said() {}\nimpl B {\n    pub fn new() -> B {}\n    pub async fn wait() {}\n}\n\
                        #[cfg(test)]\nmod tests {\n    pub fn tested() {}\n}\n";

    fn faults(document: &str) -> Vec<String> {
        let files = [
            "engines/gc/src/a.rs",
            "engines/gc/src/b_tests.rs",
            "faces/x.rs",
        ];
        let read = |file: &str| Some(if file == AUDIT { document } else { CODE }.to_owned());
        let found = check(&files.map(str::to_owned), &read);
        let said = |fault: &Fault| format!("{}:{} {}", fault.file, fault.line, fault.what);
        found.iter().map(said).collect()
    }

    #[test]
    fn each_safe_function_has_a_line_and_each_line_a_function() {
        let head = "## `engines/gc/src/a.rs`\n\n| function | why |\n|---|---|\n";
        let rows = "| `A::new` | a value |\n| `A::get` | a value |\n| `B::new` | a value |\n| `B::wait` | a value |\n";
        assert_eq!(faults(&format!("{head}{rows}")), [""; 0]);
        let missing = faults(&format!("{head}| `A::new` | a value |\n| `A::get` | |\n"));
        let line = |line, name: &str| {
            format!(
                "engines/gc/src/a.rs:{line} `{name}` is not in {AUDIT}: say there why it can be safe"
            )
        };
        assert_eq!(missing, [line(3, "get"), line(9, "new"), line(10, "wait")]);
        let more = faults(&format!("{head}{rows}| `A::raw` | it is not |\n"));
        let what = format!("{AUDIT}:9 engines/gc/src/a.rs has no safe public function `raw`");
        assert_eq!(more, [what]);
        assert_eq!(faults("").len(), 4);
    }
}
