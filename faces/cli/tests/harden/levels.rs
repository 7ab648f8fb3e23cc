//! Programs that do nothing wrong, at every level.

use std::process::Command;

use crate::tool::{self, Bench, Done};
use crate::{fault, library, on_ours, program};

const LEVELS: [&str; 12] = [
    "0",
    "1",
    "2",
    "3",
    "4",
    "sample",
    "guard",
    "canary",
    "zero",
    "poison",
    "quarantine",
    "canary,zero,quarantine",
];

#[test]
fn nothing_is_said_of_a_sound_program() {
    for level in LEVELS {
        let bench = Bench::new();
        let command = bench.command(program("sound"));
        let done = on_ours(command, &[&format!("HARDEN={level}"), "SAMPLE_EVERY=9"]);
        assert_eq!(done.stderr, "", "{level}");
        assert_eq!(
            (done.stdout.as_str(), done.shell_status()),
            ("sound\n", 0),
            "{level}"
        );
    }
}

/// The invariants hold at every level, too: blocks between guards are where they are said to be.
#[test]
fn what_is_checked_beside_it_holds() {
    for level in LEVELS {
        let bench = Bench::new();
        let command = bench.command(program("sound"));
        let options = [&format!("HARDEN={level}"), "SAMPLE_EVERY=9", "CHECK=2"];
        let done = on_ours(command, &options);
        let mut lines = done.stderr.lines().peekable();
        assert!(lines.peek().is_some(), "{level}: not checked");
        assert!(
            lines.all(|line| line.starts_with("skinflint: check: held ")),
            "{level}: {done:#?}"
        );
        assert_eq!(done.shell_status(), 0, "{level}: {done:#?}");
    }
}

/// Of two libraries that want to be initialised first, the later one is.
#[test]
fn blocks_from_before_the_options_were_read_are_taken_as_they_come() {
    for level in LEVELS {
        let bench = Bench::new();
        let mut command = bench.command("true");
        let both = [library(), &program("libearly.so")].map(|path| path.display().to_string());
        command.env("LD_PRELOAD", both.join(":"));
        command.env("SKINFLINT_HARDEN", level);
        let done = tool::run(command);
        assert_eq!(
            (done.stdout.as_str(), done.stderr.as_str()),
            ("early ok\n", ""),
            "{level}: {done:#?}"
        );
    }
}

#[test]
fn the_quarantine_goes_when_memory_runs_out() {
    let bench = Bench::new();
    let programs = tool::made("tests/contract", "contract-programs");
    let command = bench.command(programs.join("limit"));
    let done = on_ours(command, &["HARDEN=4"]);
    assert_eq!(done.stderr, "", "{done:#?}");
    assert_eq!(done.stdout, "limit ok\n", "{done:#?}");
}

/// Checks that the output is the same on level 0 and 4, with frequent samples, and at the default.
#[track_caller]
fn same(arguments: &[&str]) {
    let run = |options: &[&str]| -> Done {
        let bench = Bench::new();
        let mut command: Command = bench.command(arguments[0]);
        command.args(&arguments[1..]);
        on_ours(command, options)
    };
    let plain = run(&["HARDEN=0"]);
    assert_eq!(plain.shell_status(), 0, "{plain:#?}");
    assert!(!plain.stdout.is_empty(), "{plain:#?}");
    for options in [&["HARDEN=4"][..], &["HARDEN=4", "SAMPLE_EVERY=50"][..]] {
        let hardened = run(options);
        assert_eq!(hardened.stdout, plain.stdout, "{options:?}: {hardened:#?}");
        assert_eq!(hardened.stderr, plain.stderr, "{options:?}");
        assert_eq!(hardened.shell_status(), 0, "{options:?}: {hardened:#?}");
    }
}

#[test]
fn python_says_the_same() {
    same(&[
        "python3",
        "-c",
        "import json, re, threading, zlib, decimal, subprocess
out = []
def work(k):
    data = [{'a': i * k, 'b': str(i) * (i % 50)} for i in range(2000)]
    text = json.dumps(data)
    out.append((k, len(text), zlib.crc32(zlib.compress(text.encode()))))
    assert json.loads(text) == data and len(re.findall('a', text)) >= 2000
threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
[t.start() for t in threads]; [t.join() for t in threads]
print(sorted(out), decimal.Decimal(2).sqrt())
print(subprocess.run(['true']).returncode, len('x' * 5_000_000))",
    ]);
}

#[test]
fn sqlite_says_the_same() {
    same(&[
        "sqlite3",
        ":memory:",
        "create table t(a integer primary key, b text);
         with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000)
         insert into t select i, hex(i * 7919) || printf('%0*d', i % 90, i) from n;
         create index u on t(b); delete from t where a % 3 = 0;
         select count(*), sum(length(b)), max(b), group_concat(a) from t where b like '%9%' and a < 3000;
         vacuum; select count(*) from t x join t y on x.a = y.a + 1;",
    ]);
}

#[test]
fn perl_says_the_same() {
    same(&[
        "perl",
        "-e",
        "my %h; for my $i (1..30000) { $h{$i % 977} .= chr(65 + $i % 26) x ($i % 40); }
         my $s = join ',', map { \"$_:\" . length $h{$_} } sort keys %h;
         $s =~ s/(\\d+):(\\d+)/$2-$1/g; print length($s), ' ', substr($s, 0, 200), \"\\n\";",
    ]);
}

/// Of blocks of every size one in so many is a sample, though points are found by bytes. Of 200,000 blocks 200 are expected,
/// with a deviation of 14.
#[test]
fn a_sample_is_as_likely_for_each_size() {
    for options in [
        &["HARDEN=1", "SAMPLE_EVERY=1000"],
        &["HARDEN=2", "SAMPLE_EVERY=1000"],
    ] {
        let done = fault("shares", options);
        let counts: Vec<u32> = done
            .stdout
            .lines()
            .filter_map(|line| line.parse().ok())
            .collect();
        assert_eq!(counts.len(), 4, "{done:#?}");
        for count in counts {
            assert!((110..=290).contains(&count), "{options:?}: {done:#?}");
        }
    }
}
