//! Rules for tests: none judges a clock, and none makes an overlap by sleeping.
//!
//! ```text
//!   sleep-in-test    thread::sleep(…), usleep(…), time.sleep(…)
//!   clock-judged     assert!(begun.elapsed() < …), assert!(took …), a clock's difference in an assert
//!   short-timeout    recv_timeout(Duration::from_secs(5)): half a minute at least, or a named bound
//! ```
//!
//! T1  Test code is: files below a `tests` folder, `*tests.rs`, `*_judge.rs`, modules under `#[cfg(test)]`; C and
//!     Python programs below `tests`, and Python files that are self-tests.
//! T2  A line is exempt if a comment with `CLOCK:` and a reason is on it or up to [`NEAR`] lines above: a poll step
//!     of a bounded wait, a bound that ends a wait, a sleep that is judged only by its least length.
//! T3  Code is examined with strings and comments emptied (`source::Source`); in C and Python line by line.
//!
//! Another program may run at any moment: a test is left with counts, conditions that are waited for with a bound of
//! a minute, clocks that are moved by hand, instructions.
//!
//! Not here: clocks in Playwright checks and shell scripts; what only looks like a clock (a field called `cpu_ns`).

use super::Fault;
use super::source::Source;

/// The number of lines above a line on which its reason may be.
const NEAR: usize = 3;

/// The shortest bound that a wait may have without a reason, seconds.
const SHORT_S: u64 = 30;

const SLEEPS: &[&str] = &["sleep", "usleep", "nanosleep", "sleep_ms"];
const CLOCKS: &[&str] = &[".elapsed()", "Instant::now() -", "thread_cpu", "CPUTIME"];

/// Checks one file.
pub fn check(file: &str, content: &str) -> Vec<Fault> {
    if file.ends_with(".rs") {
        return rust(file, content);
    }
    let is_test = in_tests(file) || file.contains("selftest") || file.ends_with("/test.py");
    if is_test && (file.ends_with(".c") || file.ends_with(".py")) {
        return script(file, content);
    }
    Vec::new()
}

fn in_tests(file: &str) -> bool {
    file.starts_with("tests/") || file.contains("/tests/")
}

fn rust(file: &str, content: &str) -> Vec<Fault> {
    let source = Source::new(content);
    let whole = in_tests(file) || file.ends_with("tests.rs") || file.ends_with("_judge.rs");
    let mut faults = Vec::new();
    for (from, to) in parts(&source, whole) {
        for index in from..to {
            let mut fault = |rule, what: &str| {
                if !has_reason(&source, index) {
                    faults.push(Fault::new(file, index + 1, rule, what));
                }
            };
            let code = &source.code[index];
            if calls(code, SLEEPS) {
                fault("sleep-in-test", SLEEP);
            }
            if has_short_timeout(code) {
                fault("short-timeout", SHORT);
            }
            if let Some(at) = code.find("assert")
                && judges(&statement(&source, index, at))
            {
                fault("clock-judged", JUDGED);
            }
        }
    }
    faults
}

const SLEEP: &str =
    "a sleep in a test: wait for the condition, with a bound; or say why not, `// CLOCK: …`";
const SHORT: &str = "a bound that a busy machine exceeds: a minute; or say why not, `// CLOCK: …`";
const JUDGED: &str =
    "a clock is judged: count, or move a clock by hand; or say why not, `// CLOCK: …`";

/// Returns the ranges of lines that are test code (T1).
fn parts(source: &Source, whole: bool) -> Vec<(usize, usize)> {
    let lines = source.code.len();
    if whole {
        return vec![(0, lines)];
    }
    let mut parts = Vec::new();
    let mut from = 0;
    while let Some(at) = (from..lines).find(|at| is_test_module(source, *at)) {
        let depth =
            |line: &str| line.matches('{').count() as i64 - line.matches('}').count() as i64;
        let mut open = 0;
        let mut end = at + 1;
        while end < lines {
            open += depth(&source.code[end]);
            end += 1;
            if open <= 0 {
                break;
            }
        }
        parts.push((at, end));
        from = end;
    }
    parts
}

/// Reports whether a line is an attribute for tests with a module's body below it.
fn is_test_module(source: &Source, at: usize) -> bool {
    let code = source.code[at].trim_start();
    let next = source.code.get(at + 1).map_or("", String::as_str);
    let is_for_tests = code.starts_with("#[cfg(test)]") || code.starts_with("#[cfg(all(test");
    is_for_tests && next.contains("mod ") && next.contains('{')
}

fn has_reason(source: &Source, index: usize) -> bool {
    (index.saturating_sub(NEAR)..=index).any(|line| source.comments[line].contains("CLOCK: "))
}

/// Reports whether one of these is called, by whatever path.
fn calls(code: &str, names: &[&str]) -> bool {
    names.iter().any(|name| {
        code.match_indices(&format!("{name}(")).any(|(at, _)| {
            let before = code[..at].trim_end();
            let part = code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
            !part && !before.ends_with("fn")
        })
    })
}

/// Returns a macro's call from its name on, over as many lines as its parentheses.
fn statement(source: &Source, first: usize, at: usize) -> String {
    let (mut text, mut depth) = (String::new(), 0);
    for (index, code) in source.code.iter().enumerate().skip(first) {
        let start = if index == first { at } else { 0 };
        for c in code[start..].chars() {
            text.push(c);
            match c {
                '(' => depth += 1,
                ')' => {
                    depth -= 1;
                    if depth == 0 {
                        return text;
                    }
                }
                ';' if depth == 0 => return text,
                _ => {}
            }
        }
    }
    text
}

fn judges(statement: &str) -> bool {
    let word = |at: usize, name: &str| {
        let before = statement[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let after = statement[at + name.len()..]
            .starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '(');
        !before && !after
    };
    let took = statement
        .match_indices("took")
        .any(|(at, name)| word(at, name));
    took || CLOCKS.iter().any(|clock| statement.contains(clock))
}

/// Reports whether a wait has a numeric bound that is too short.
fn has_short_timeout(code: &str) -> bool {
    code.match_indices("_timeout(Duration::from_")
        .any(|(at, call)| {
            let rest = &code[at + call.len()..];
            let Some((unit, rest)) = rest.split_once('(') else {
                return false;
            };
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            unit != "secs" || digits.parse::<u64>().is_ok_and(|seconds| seconds < SHORT_S)
        })
}

/// Checks C and Python (T3).
fn script(file: &str, content: &str) -> Vec<Fault> {
    let lines: Vec<&str> = content.lines().collect();
    let mut faults = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let near = &lines[index.saturating_sub(NEAR)..=index];
        let has_reason = near.iter().any(|line| line.contains("CLOCK: "));
        let code = line.split("//").next().unwrap_or("");
        let is_comment =
            line.trim_start().starts_with(['*', '#']) || line.trim_start().starts_with("/*");
        if !has_reason && !is_comment && calls(code, SLEEPS) {
            faults.push(Fault::new(file, index + 1, "sleep-in-test", SLEEP));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(file: &str, content: &str) -> Vec<(&'static str, usize)> {
        let faults = check(file, content);
        faults
            .iter()
            .map(|fault| (fault.rule, fault.line))
            .collect()
    }

    fn test(content: &str) -> Vec<(&'static str, usize)> {
        rules("ground/x/tests/a.rs", content)
    }

    #[test]
    fn a_sleep_fires_with_no_reason() {
        assert_eq!(test("std::thread::sleep(TEN);"), [("sleep-in-test", 1)]);
        assert!(test("thread::sleep(TEN); // CLOCK: poll step of a bounded wait").is_empty());
        assert!(test("// CLOCK: as above\nthread::sleep(TEN);").is_empty());
        assert_eq!(
            test("// CLOCK:\nthread::sleep(TEN);"),
            [("sleep-in-test", 2)]
        );
        let far = format!("// CLOCK: x\n{}sleep(TEN);", "f();\n".repeat(NEAR));
        assert_eq!(test(&far), [("sleep-in-test", NEAR + 2)]);
        assert!(test("fn sleep(x: u8) {} asleep(1); f(\"sleep(1)\"); // sleep(1)").is_empty());
    }

    #[test]
    fn a_judged_clock_fires_wherever_the_assert_ends() {
        let judged = [("clock-judged", 1)];
        assert_eq!(test("assert!(begun.elapsed() < SECOND);"), judged);
        assert_eq!(
            test("assert!(\n    begin.elapsed() < FIVE,\n    \"late\"\n);"),
            judged
        );
        assert_eq!(test("assert!(took <= 1_000, \"{pressed}\");"), judged);
        assert_eq!(test("assert!(idle.took >= MS);"), judged);
        assert_eq!(test("debug_assert!(thread_cpu() - begin < BAR);"), judged);
        assert!(test("assert!(is_done());\nlet x = begun.elapsed();").is_empty());
        assert!(
            test("assert_eq!(took(1), [3]); assert!(mistook); assert!(\"took\" != x);").is_empty()
        );
        assert!(test("assert!(Instant::now() < until); // bounded").is_empty());
        assert!(test("// CLOCK: a bounded wait\nassert!(begun.elapsed() < PATIENCE);").is_empty());
    }

    #[test]
    fn a_short_bound_fires() {
        let short = [("short-timeout", 1)];
        assert_eq!(test("x.recv_timeout(Duration::from_secs(29));"), short);
        assert_eq!(
            test("x.wait_timeout(Duration::from_millis(90_000));"),
            short
        );
        assert!(
            test("x.recv_timeout(Duration::from_secs(30)); x.recv_timeout(PATIENCE);").is_empty()
        );
    }

    #[test]
    fn what_is_no_test_may_sleep() {
        let sleeps = "fn f() {\n    thread::sleep(TEN);\n}\n";
        assert!(rules("ground/x/src/a.rs", sleeps).is_empty());
        let inside = format!("{sleeps}#[cfg(test)]\nmod tests {{\n    {sleeps}}}\n{sleeps}");
        assert_eq!(rules("ground/x/src/a.rs", &inside), [("sleep-in-test", 7)]);
        let loom = inside.replace("cfg(test)", "cfg(all(test, not(loom)))");
        assert_eq!(rules("ground/x/src/a.rs", &loom), [("sleep-in-test", 7)]);
        assert_eq!(
            rules("ground/x/src/a_tests.rs", sleeps),
            [("sleep-in-test", 2)]
        );
    }

    #[test]
    fn programs_in_c_and_python_too() {
        assert_eq!(
            rules("tests/a/x.c", "    usleep(50);\n"),
            [("sleep-in-test", 1)]
        );
        assert!(
            rules(
                "tests/a/x.c",
                "    usleep(50); /* CLOCK: polled, the alarm bounds it */\n"
            )
            .is_empty()
        );
        assert!(rules("tests/a/x.c", " * it may sleep(1) here\n").is_empty());
        assert_eq!(
            rules("bench/selftest.py", "time.sleep(2)\n"),
            [("sleep-in-test", 1)]
        );
        assert!(rules("bench/idle.py", "time.sleep(2)\n").is_empty());
    }
}
