//! Rules for every text file: no trace of the machine it was written on, and no file too long to read.
//!
//! ```text
//!   path of a home folder · address of a registry or a private host · more than 800 lines
//! ```
//!
//! P1  The patterns are put together at run time: this file must not break its own rule.
//! P2  A lock file may name one registry, the public index of the language.
//!
//! Not here: Rust syntax (`rust`).

use super::Fault;

/// The most lines that a file may have.
const LINES: usize = 800;

/// The one source that `Cargo.lock` may name.
const PUBLIC_INDEX: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Folders at the root of a file system in which people, not packages, keep files.
const HOMES: &[&str] = &["home", "root", "work", "Users"];

/// Endings of host names that have a meaning only on one network.
const PRIVATE_ENDINGS: &[&str] = &["internal", "corp", "lan", "intranet"];

/// Checks one file.
pub fn check(file: &str, content: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (index, line) in content.lines().enumerate() {
        let number = index + 1;
        if let Some(path) = machine_path(line) {
            let what = format!("`{path}` is a path of one machine");
            faults.push(Fault::new(file, number, "machine-path", what));
        }
        if let Some(host) = private_host(line) {
            let what = format!("`{host}` is a host of one network");
            faults.push(Fault::new(file, number, "host", what));
        }
        if let Some(what) = foreign_registry(file, line) {
            faults.push(Fault::new(file, number, "host", what));
        }
    }
    let lines = content.lines().count();
    if lines > LINES && has_length_limit(file) {
        let what = format!("{lines} lines, limit {LINES}: this is two files");
        faults.push(Fault::new(file, lines, "long-file", what));
    }
    faults
}

fn has_length_limit(file: &str) -> bool {
    [".rs", ".py", ".c", ".h", ".js", ".css"]
        .iter()
        .any(|ending| file.ends_with(ending))
}

/// Finds `/HOME/name…` as an absolute path: nothing that could be part of a path comes before it.
fn machine_path(line: &str) -> Option<&str> {
    for home in HOMES {
        let needle = format!("/{home}/");
        for (at, _) in line.match_indices(&needle) {
            let before = line[..at].chars().next_back();
            let inside = before.is_some_and(|c| c.is_alphanumeric() || "_.-/~*})".contains(c));
            let rest = &line[at + needle.len()..];
            if !inside && rest.starts_with(|c: char| c.is_alphanumeric() || c == '.' || c == '_') {
                return Some(&line[at..at + needle.len() + word_length(rest)]);
            }
        }
    }
    None
}

fn word_length(text: &str) -> usize {
    text.find(|c: char| !(c.is_alphanumeric() || "._-".contains(c)))
        .unwrap_or(text.len())
}

/// Finds the host of a web address that is a bare private number or ends like a private network.
fn private_host(line: &str) -> Option<&str> {
    for (at, scheme) in line.match_indices("://") {
        let rest = &line[at + scheme.len()..];
        let end = rest
            .find(|c: char| !(c.is_alphanumeric() || ".-@".contains(c)))
            .unwrap_or(rest.len());
        let host = rest[..end].rsplit('@').next().unwrap_or("");
        let ending = host.rsplit('.').next().unwrap_or("");
        let numeric = host.contains('.') && host.chars().all(|c| c.is_ascii_digit() || c == '.');
        let loopback = host.starts_with("127.") || host == "0.0.0.0";
        if (numeric && !loopback) || (host.contains('.') && PRIVATE_ENDINGS.contains(&ending)) {
            return Some(host);
        }
    }
    None
}

fn foreign_registry(file: &str, line: &str) -> Option<String> {
    let name = file.rsplit('/').next().unwrap_or(file);
    if name == "Cargo.lock" {
        let source = line.strip_prefix("source = \"")?.trim_end_matches('"');
        let foreign = source != PUBLIC_INDEX;
        return foreign.then(|| format!("`{source}` is not the public index"));
    }
    let cargo_config = file.ends_with(".cargo/config.toml") || file.ends_with(".cargo/config");
    let setting = line.trim_start();
    let changed = setting.starts_with("[source") || setting.starts_with("[registr");
    (cargo_config && changed)
        .then(|| format!("`{setting}`: a source of one machine belongs in its own settings"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(file: &str, content: &str) -> Vec<&'static str> {
        check(file, content)
            .iter()
            .map(|fault| fault.rule)
            .collect()
    }

    /// Builds a sample from parts, since this file is checked too (P1).
    fn home(rest: &str) -> String {
        format!("/{}/{rest}", HOMES[0])
    }

    #[test]
    fn a_home_folder_fires() {
        assert_eq!(
            rules("a.md", &format!("see {}", home("ann/x.rs"))),
            ["machine-path"]
        );
        assert_eq!(
            rules("a.py", &format!("open('{}')", home("ann"))),
            ["machine-path"]
        );
        assert_eq!(
            rules("a.md", &format!("/{}/wt", HOMES[2])),
            ["machine-path"]
        );
    }

    #[test]
    fn a_relative_or_system_path_is_silent() {
        assert!(rules("a.md", "target/work/x, ${DIR}/work/y, ./home/z, ../root/q").is_empty());
        assert!(rules("a.md", "/usr/bin/python3 /proc/self/root /tmp/x").is_empty());
        assert!(rules("a.md", "at work/home/root").is_empty());
    }

    #[test]
    fn private_hosts_fire() {
        assert_eq!(
            rules("a.md", &["http:/", "/10.1.2.3/simple"].concat()),
            ["host"]
        );
        assert_eq!(
            rules(
                "a.md",
                &["https:/", "/crates.example.", "internal/x"].concat()
            ),
            ["host"]
        );
        assert!(rules("a.md", "http://127.0.0.1:80 https://example.org/a.lan").is_empty());
    }

    #[test]
    fn a_lock_file_names_the_public_index_only() {
        let good = format!("source = \"{PUBLIC_INDEX}\"\n");
        assert!(rules("Cargo.lock", &good).is_empty());
        let bad = "source = \"sparse+https://crates.example.org/index/\"\n";
        assert_eq!(rules("Cargo.lock", bad), ["host"]);
        assert_eq!(
            rules(".cargo/config.toml", "[source.crates-io]\n"),
            ["host"]
        );
        assert!(rules(".cargo/config.toml", "[alias]\n").is_empty());
    }

    #[test]
    fn the_limit_of_length_is_exact() {
        let lines = |n: usize| "// x\n".repeat(n);
        assert!(rules("a.rs", &lines(LINES)).is_empty());
        assert_eq!(rules("a.rs", &lines(LINES + 1)), ["long-file"]);
        assert!(rules("Cargo.lock", &lines(LINES + 1)).is_empty());
    }
}
