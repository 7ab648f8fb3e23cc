//! Frames of Ruby and PHP: scripts whose every holder is predicted by hand (tests/scripts).
//!
//! Not here: frames of Python (main.rs), chains made by hand (frames).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use skinflint_symbols::{Frame, SymbolOptions, Symbols};
use skinflint_test_support::need;
use skinflint_trace::{EventKind, Trace, code_of};

use crate::tool::{Bench, root, run};
use crate::{printed, said, user_frames};

/// A way, the size that it asks for, and how many times.
type Way = (String, u64, u64);

fn script(name: &str) -> PathBuf {
    root().join("tests/scripts").join(name)
}

/// Returns the line that a way is marked at.
fn line_of(script: &Path, way: &str) -> Option<u32> {
    let text = std::fs::read_to_string(script).expect("the script");
    let mark = format!(" HOLD {way}");
    let at = text.lines().position(|line| line.ends_with(&mark))?;
    Some(at as u32 + 1)
}

/// Records a script. Returns what it printed.
fn record(bench: &Bench, program: &str, script: &Path) -> Vec<Way> {
    let mut command = bench.recording(&[], [program.as_ref(), script.as_os_str()]);
    command.env("USE_ZEND_ALLOC", "0");
    let ways = printed(command);
    assert!(ways.len() >= 15, "{ways:?}");
    ways
}

/// Checks each acquisition of a way's size, by what its innermost frame of the language should be. Returns the frames of the
/// last one of each size.
#[track_caller]
fn all_ways_are_named(
    trace: &Path,
    ways: &[Way],
    is_right: impl Fn(&str, u64, &Frame) -> bool,
) -> BTreeMap<u64, Vec<String>> {
    let trace = Trace::open(trace).expect("a trace");
    let symbols = Symbols::new(&trace.modules, SymbolOptions::default());
    let mut symbols = symbols.with_codes(&trace.codes);
    let mut right: BTreeMap<u64, u64> = BTreeMap::new();
    let mut wrong: Vec<String> = Vec::new();
    let mut last = BTreeMap::new();
    trace.events().for_each(|event| {
        let EventKind::Alloc { node, size, .. } = event.kind else {
            return;
        };
        let Some((way, ..)) = ways.iter().find(|(_, of, _)| *of == size) else {
            return;
        };
        let frames = user_frames(&trace, &mut symbols, node);
        let before = right.get(&size).copied().unwrap_or(0);
        if frames
            .first()
            .is_some_and(|frame| is_right(way, before, frame))
        {
            *right.entry(size).or_default() += 1;
        } else {
            wrong.push(format!("{way}: {:?}", frames.first()));
        }
        let names = frames.into_iter().map(|frame| frame.function);
        last.insert(size, names.collect());
    });
    for (way, size, count) in ways {
        let found = right.get(size).copied().unwrap_or(0);
        assert_eq!(found, *count, "{way}: {:#?}", &wrong[..wrong.len().min(8)]);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    last
}

/// Checks that the report has a line of the script, by which frames are shown.
#[track_caller]
fn reports_name_the_line(bench: &Bench, line: &str, native: &str) {
    for (frames, user, natives) in [
        ("user", true, false),
        ("native", false, true),
        ("both", true, true),
    ] {
        let asked = ["report", "main.sft", "--full-stacks", "--frames", frames];
        let text = bench.tool(asked).stdout;
        assert_eq!(text.contains(line), user, "{frames}: {text}");
        assert_eq!(text.contains(native), natives, "{frames}: {text}");
    }
}

fn is_version(program: &str, argument: &str, begins: &str) -> bool {
    said(Command::new(program).arg(argument)).is_some_and(|said| said.starts_with(begins))
}

#[test]
fn every_holder_of_ruby_has_its_method_and_line() {
    let is_here = is_version("/usr/bin/ruby", "--version", "ruby 3.1.");
    if !need::that(is_here, "Ruby 3.1", "apt-get install ruby") {
        return;
    }
    let bench = Bench::new();
    let script = script("holders.rb");
    let ways = record(&bench, "/usr/bin/ruby", &script);
    let is_right = |way: &str, before: u64, frame: &Frame| {
        let of = frame.function.rsplit(" in ").next().unwrap_or_default();
        if way == "again" {
            let wanted = (
                format!("again_{before}"),
                Some("again.rb"),
                Some(before as u32 + 2),
            );
            return (of.to_owned(), frame.file.as_deref(), frame.line) == wanted;
        }
        let is_in = match way {
            "Store" | "defined" => of == "<class:Store>",
            "compared" => of == "<=>",
            _ => of == way,
        };
        let is_file = frame
            .file
            .as_deref()
            .is_some_and(|file| Path::new(file) == script);
        is_in && is_file && frame.line == line_of(&script, way)
    };
    let last = all_ways_are_named(&bench.path("main.sft"), &ways, is_right);
    let outer = ["block in main", "main", "<main>"];
    // The last of deep is 780 calls deep; each call of deep_in_c is a method and a block.
    let deep = &last[&10_122];
    assert!(deep[..781].iter().all(|name| name == "deep"), "{deep:?}");
    assert_eq!(deep[781..], outer);
    let deep = &last[&10_132];
    assert!(deep[..79].iter().step_by(2).all(|name| name == "deep_in_c"));
    assert_eq!(
        (deep[1].as_str(), &deep[79..]),
        ("block in deep_in_c", &outer.map(String::from)[..])
    );
    let threaded = &last[&10_142];
    assert_eq!(
        threaded[..],
        ["block in threaded", "threaded", "block in main"]
    );
    let line = line_of(&script, "plain").expect("marked");
    reports_name_the_line(&bench, &format!("holders.rb:{line}"), "rb_vm_exec");
}

#[test]
fn every_holder_of_php_has_its_function_and_line() {
    let is_here = is_version("/usr/bin/php", "--version", "PHP 8.2.");
    if !need::that(is_here, "PHP 8.2", "apt-get install php-cli") {
        return;
    }
    let bench = Bench::new();
    let script = script("holders.php");
    let ways = record(&bench, "/usr/bin/php", &script);
    let is_right = |way: &str, before: u64, frame: &Frame| {
        let file = frame.file.as_deref().unwrap_or_default();
        if way == "again" {
            let is_file = file.contains("holders.php(") && file.ends_with(") : eval()'d code");
            return frame.function == format!("again_{before}") && is_file && frame.line == Some(4);
        }
        let method = format!("Store::{way}");
        let is_in = match way {
            "mapped" | "compared" => frame.function == "{closure}",
            "finally" => frame.function == "caught",
            _ => frame.function == way || frame.function == method,
        };
        is_in && Path::new(file) == script && frame.line == line_of(&script, way)
    };
    let last = all_ways_are_named(&bench.path("main.sft"), &ways, is_right);
    let deep = &last[&10_162];
    assert!(deep[..781].iter().all(|name| name == "deep"), "{deep:?}");
    assert_eq!(deep[781..], ["main", "{main}"]);
    let deep = &last[&10_172];
    assert!(deep[..79].iter().step_by(2).all(|name| name == "deep_in_c"));
    assert_eq!((deep[1].as_str(), deep[79].as_str()), ("{closure}", "main"));
    let line = line_of(&script, "plain").expect("marked");
    reports_name_the_line(&bench, &format!("holders.php:{line}"), "execute_ex");
}

/// The report says whether PHP's own allocator hides its requests, and what shows them.
#[test]
fn php_with_its_own_allocator_is_said() {
    let is_here = is_version("/usr/bin/php", "--version", "PHP 8.2.");
    if !need::that(is_here, "PHP 8.2", "apt-get install php-cli") {
        return;
    }
    let bench = Bench::new();
    for (value, said) in [(None, true), (Some("1"), true), (Some("0"), false)] {
        let mut command = bench.recording(
            &[],
            ["/usr/bin/php", "-r", "echo strlen(str_repeat('x', 99999));"],
        );
        match value {
            Some(value) => command.env("USE_ZEND_ALLOC", value),
            None => command.env_remove("USE_ZEND_ALLOC"),
        };
        let done = run(command);
        assert_eq!(
            (done.status.code(), done.stdout.as_str()),
            (Some(0), "99999")
        );
        let text = bench.tool(["report", "main.sft"]).stdout;
        assert_eq!(
            text.contains("with USE_ZEND_ALLOC=0"),
            said,
            "{value:?}: {text}"
        );
    }
}

/// What says that it is a Ruby or a PHP of another version is left alone, and the report says so.
#[test]
fn other_versions_are_refused_aloud() {
    let bench = Bench::new();
    for (name, source, note) in [
        (
            "ruby",
            "char ruby_version[] = \"3.3.8\"; int rb_during_gc(void) { return 0; }",
            "native frames only: Ruby 3.3.8",
        ),
        (
            "php",
            "long executor_globals_offset;",
            "native frames only: PHP: this build's frames are not known",
        ),
    ] {
        let (program, file) = (bench.path(name), bench.path("other.c"));
        let rest = "\n#include <stdlib.h>\nvoid *volatile held[99];\n\
                    int main(void) { for (int i = 0; i < 99; i++) held[i] = malloc(1000); return 0; }\n";
        std::fs::write(&file, format!("{source}{rest}")).expect("written");
        let mut cc = Command::new("cc");
        cc.args(["-rdynamic", "-o"]).arg(&program).arg(&file);
        assert_eq!(said(&mut cc).as_deref(), Some(""));
        let done = bench.record([program.as_os_str()]);
        assert_eq!(done.status.code(), Some(0), "{done:#?}");
        let text = bench.tool(["report", "main.sft"]).stdout;
        assert!(text.contains(note), "{text}");
        let trace = Trace::open(bench.path("main.sft")).expect("a trace");
        assert!(trace.codes.is_empty() && code_of(1 << 62).is_some());
    }
}
