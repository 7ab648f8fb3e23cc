//! The words of options: one for each thing, in all commands.
//!
//! ```text
//!   args::command() ─► every option that help shows ─► is in WORDS, with its value        old words ─► still taken
//! ```
//!
//! L1  An option that is not in [`WORDS`] fails the test: before one is added, a word for it is looked for here.
//! L2  A word means the same everywhere. One with two kinds of value is in the list twice, with intent.
//! L3  An old word is an alias that help does not show.

/// Each option, and the name of its value (empty: a flag).
const WORDS: &[(&str, &str)] = &[
    ("advise", ""),
    ("again", ""),
    ("all", ""),
    ("all-users", ""),
    ("allocations", "LIMIT"),
    ("anonymize", ""),
    ("at", "MOMENT"),
    ("baseline", "FILE"),
    ("baseline", "TRACE"),
    ("beside", "BYTES"),
    ("blocks", ""),
    ("blocks-at-end", "LIMIT"),
    ("brief", ""),
    ("browser", "B,C"),
    ("budgets", "FILE"),
    ("by", "FIGURE"),
    ("bytes-read", "LIMIT"),
    ("bytes-written", "LIMIT"),
    ("cache", "FOLDER"),
    ("cc", ""),
    ("cgroup", "GROUP"),
    ("check", ""),
    ("clock", "WHICH"),
    ("close", "WHICH"),
    ("color", "WHEN"),
    ("compact", "WHICH"),
    ("csv", "FILE"),
    ("cycles", "N"),
    ("dark-matter", "URL"),
    ("debug-dir", "FOLDER"),
    ("debuginfod", "FOLDER|URL|env"),
    ("delay", "MS"),
    ("detached", ""),
    ("diff", "FILE"),
    ("dir", "FOLDER"),
    ("driven", ""),
    ("engine", "ENGINE"),
    ("exact", ""),
    ("fail-if", "CONDITION"),
    ("fetch", ""),
    ("for", "SECONDS"),
    ("format", "FORMAT"),
    ("frames", "WHICH"),
    ("free-here", ""),
    ("from", "MOMENT"),
    ("full-stacks", ""),
    ("gc", ""),
    ("gc-log", "FORMAT"),
    ("github", ""),
    ("growth", "FACTOR"),
    ("growth-per", "MARK[=BYTES]"),
    ("headful", ""),
    ("heap", "HEAP"),
    ("heap-limit", "BYTES"),
    ("help", ""),
    ("history", "FILE"),
    ("html", "FILE"),
    ("idle", "SECONDS"),
    ("ignore-output", ""),
    ("input", "FILE"),
    ("instructions", ""),
    ("interval", "SECONDS"),
    ("json", ""),
    ("json", "FILE"),
    ("junit", "FILE"),
    ("keep", "N"),
    ("keep", "TIME|SIZE"),
    ("kind", "KIND"),
    ("label", "NAME=VALUE"),
    ("label", "TEXT"),
    ("level", "LEVEL"),
    ("lib", "PATH"),
    ("list", ""),
    ("live", "FILE.js"),
    ("live-at-end", "LIMIT"),
    ("load-timeout", "SECONDS"),
    ("malloc", "MALLOC"),
    ("mark-signal", "SIGNAL"),
    ("markdown", ""),
    ("markdown", "FILE"),
    ("marked-budgets", ""),
    ("max-objects", "N"),
    ("max-size", "SIZE"),
    ("memory", ""),
    ("minimize", ""),
    ("name-map", "FILE"),
    ("no-html", ""),
    ("no-separate", ""),
    ("nursery", "BYTES"),
    ("once", ""),
    ("openmetrics", "PORT"),
    ("output", "FILE"),
    ("output", "FOLDER"),
    ("paced", "SPEED"),
    ("page", "PORT"),
    ("page-count", "N"),
    ("pages", "N"),
    ("pages", "P,Q"),
    ("parallel", ""),
    ("path", "OBJECT"),
    ("paths", ""),
    ("paused", ""),
    ("pauses", ""),
    ("peak-blocks", "LIMIT"),
    ("peak-live", "LIMIT"),
    ("peak-rss", "LIMIT"),
    ("peak-slop", "LIMIT"),
    ("perf-map", "FILE"),
    ("phase", "NAME:FIGURE=LIMIT"),
    ("pid", "PID"),
    ("pinned-at-end", "LIMIT"),
    ("plan", "PLAN"),
    ("podinfo", "FOLDER"),
    ("policy", "NAME"),
    ("policy-growth", "FACTOR"),
    ("port", "PORT"),
    ("pprof", "URL"),
    ("preload", "LIBRARY"),
    ("process", "NAME"),
    ("profile", "RATE"),
    ("profile-file", "FILE"),
    ("purge", ""),
    ("push", "FORM=URL"),
    ("python-objects", ""),
    ("quick", ""),
    ("quiet", ""),
    ("reachable", ""),
    ("record", "HAR"),
    ("record-objects", "FILE"),
    ("ref", "NAME"),
    ("replay", "HAR"),
    ("rest", "SECONDS"),
    ("retained", ""),
    ("root", "FOLDER"),
    ("rows", "N"),
    ("runs", "N"),
    ("sample", "BYTES"),
    ("sample", "MS"),
    ("sarif", "FILE"),
    ("save", "FILE"),
    ("scheme", "SCHEME"),
    ("seed", "N"),
    ("series", "N"),
    ("settle", "SECONDS"),
    ("show", "FILE"),
    ("show-history", "FILE"),
    ("slop-at-end", "LIMIT"),
    ("socket", "PATH"),
    ("spool", "FOLDER"),
    ("spool-age", "SECONDS"),
    ("spool-size", "MIB"),
    ("stack", "PATTERN=BYTES"),
    ("stacks", "RANK"),
    ("stats", ""),
    ("stress", "N"),
    ("sweep", "ORDER"),
    ("sweep-in-pause", ""),
    ("synthetic", "SHAPE[:SEED[:PERCENT]]"),
    ("sysroot", "FOLDER"),
    ("tabs", "N"),
    ("then", "FILE"),
    ("threshold", "PERCENT"),
    ("timeout", "SECONDS"),
    ("to", "MOMENT"),
    ("until", "MARK"),
    ("value", "VALUE"),
    ("verify", ""),
    ("watch", "SECONDS"),
    ("weight", "WHAT"),
    ("what-if", ""),
    ("when", "CONDITION"),
    ("who-holds", "ADDRESS|FUNCTION"),
    ("windows", ""),
    ("with", "A,B"),
];

/// Old words, each with its command and the word that stands for it now.
const OLD: [(&str, &str, &str); 13] = [
    ("counts", "limit", "rows"),
    ("counts", "when", "at"),
    ("dark-matter", "limit", "rows"),
    ("diff", "limit", "rows"),
    ("gc", "against", "baseline"),
    ("gc", "policies", "with"),
    ("gc", "rounds", "runs"),
    ("gc", "write", "output"),
    ("heap", "limit", "rows"),
    ("js", "limit", "heap-limit"),
    ("tabs", "allocators", "with"),
    ("tabs", "repeat", "runs"),
    ("what-if", "policy", "with"),
];

/// Words that name a thing which has another word here, and the word.
const SYNONYMS: [(&str, &str); 23] = [
    ("limit", "rows"),
    ("top", "rows"),
    ("count", "rows"),
    ("max", "rows"),
    ("rounds", "runs"),
    ("repeat", "runs"),
    ("iterations", "runs"),
    ("policies", "with"),
    ("allocators", "with"),
    ("allocator", "with"),
    ("against", "baseline"),
    ("reference", "ref"),
    ("out", "output"),
    ("write", "output"),
    ("file", "output"),
    ("folder", "dir"),
    ("directory", "dir"),
    ("seconds", "for"),
    ("duration", "for"),
    ("moment", "at"),
    ("silent", "quiet"),
    ("colour", "color"),
    ("format-json", "json"),
];

/// Returns the options that help shows: command, word, name of the value.
fn shown() -> Vec<(String, String, String)> {
    let mut command = crate::args::command();
    command.build();
    let mut all = Vec::new();
    let mut todo: Vec<&clap::Command> = command.get_subcommands().collect();
    while let Some(command) = todo.pop() {
        todo.extend(command.get_subcommands());
        for option in command.get_arguments().filter(|one| !one.is_hide_set()) {
            let Some(word) = option.get_long() else {
                continue;
            };
            let takes_value = option.get_action().takes_values();
            let value = option.get_value_names().filter(|_| takes_value);
            let value = value.map_or(String::new(), |names| names[0].to_string());
            all.push((command.get_name().to_owned(), word.to_owned(), value));
        }
    }
    all.sort();
    all.dedup();
    all
}

#[test]
fn each_thing_has_one_word() {
    let mut wrong = Vec::new();
    let all = shown();
    assert!(all.len() > 150, "options are found: {}", all.len());
    for (command, word, value) in &all {
        if let Some((_, now)) = SYNONYMS.iter().find(|(old, _)| old == word) {
            wrong.push(format!("{command} --{word}: say --{now}"));
        }
        let known = WORDS.iter().filter(|(known, _)| known == word);
        if !known.clone().any(|(_, kind)| kind == value) {
            let others: Vec<_> = known.map(|(_, kind)| *kind).collect();
            wrong.push(format!(
                "{command} --{word} {value}: {}",
                match others.is_empty() {
                    true =>
                        "no such word; look for one in WORDS that means it, or add it there".into(),
                    false => format!("the value is called {others:?} elsewhere"),
                }
            ));
        }
    }
    let is_used = |word: &&(&str, &str)| {
        all.iter()
            .any(|(_, used, value)| (&**used, &**value) == **word)
    };
    wrong.extend(
        WORDS
            .iter()
            .filter(|word| !is_used(word))
            .map(|word| format!("{word:?} is in no command")),
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn words_are_in_order_and_none_is_a_synonym() {
    assert!(WORDS.is_sorted());
    for (word, now) in SYNONYMS {
        assert!(!WORDS.iter().any(|(known, _)| *known == word), "{word}");
        assert!(WORDS.iter().any(|(known, _)| *known == now), "{now}");
    }
}

#[test]
fn old_words_are_taken_and_not_shown() {
    let command = crate::args::command();
    for (name, old, now) in OLD {
        let command = command.find_subcommand(name).expect("the command");
        let option = command
            .get_arguments()
            .find(|one| one.get_long() == Some(now));
        let option = option.unwrap_or_else(|| panic!("{name} --{now}"));
        let aliases = option.get_all_aliases().unwrap_or_default();
        assert!(aliases.contains(&old), "{name} --{old}");
        let shown = option.get_visible_aliases().unwrap_or_default();
        assert!(shown.is_empty(), "{name} --{old}");
    }
}
