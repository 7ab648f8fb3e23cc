//! The sampled heap profile of `libskinflint.so`: its file, its functions for C, `skinflint exec --profile`.
//!
//! P1  tests/accounts/profile.c keeps 12,000,000 bytes of one function and has freed as many of another. At one sample in
//!     16 KiB the standard deviation of each is √(12,000,000 · 16,384), 3.7 %; a figure may be five of them off, which no
//!     run of a life's length will see.
//!
//! Not here: the estimates by themselves (engines/alloc/tests/profile.rs).

use std::path::Path;

use super::tool::{Bench, Done, run_within};
use super::{PATIENCE, library, ok, on_ours, program};

const BYTES: f64 = 12_000_000.0;
const FIVE: f64 = 5.0 * 0.037;

/// Bytes in use and of all time in rows with a frame in the function at an address.
fn of_function(profile: &str, function: usize) -> (f64, f64) {
    let (body, maps) = profile
        .split_once("\nMAPPED_LIBRARIES:\n")
        .expect("mappings");
    assert!(maps.contains("/profile\n"), "{maps}");
    let mut lines = body.lines();
    let first = lines.next().expect("a line");
    assert!(
        first.starts_with("heap profile: ") && first.ends_with(" @ heapprofile"),
        "{first}"
    );
    let mut sums = (0.0, 0.0);
    for line in lines.filter(|line| !line.starts_with('#')) {
        let (figures, frames) = line.split_once("] @ ").expect("a row");
        let in_it = frames.split(' ').any(|frame| {
            let frame = usize::from_str_radix(&frame[2..], 16).expect("hex");
            frame.wrapping_sub(function) < 32
        });
        let words: Vec<&str> = figures.split_whitespace().collect();
        let [_, bytes, _, all] = words[..] else {
            panic!("{line}");
        };
        if in_it {
            sums.0 += bytes.parse::<f64>().expect("a number");
            sums.1 += all.parse::<f64>().expect("a number");
        }
    }
    sums
}

/// Checks a profile against what the program did (P1); `peak`: what it had freed at the end was still there.
#[track_caller]
fn check(profile: &str, said: &str, peak: bool) {
    let words: Vec<&str> = said.split_whitespace().collect();
    let at = |word: &str| usize::from_str_radix(word.trim_start_matches("0x"), 16).expect("hex");
    let (holds, drops) = (
        of_function(profile, at(words[1])),
        of_function(profile, at(words[2])),
    );
    let about = |figure: f64, why: &str| {
        assert!(
            (figure / BYTES - 1.0).abs() < FIVE,
            "{why}: {figure}\n{profile}"
        );
    };
    about(holds.0, "kept, in use");
    about(holds.1, "kept, of all time");
    about(drops.1, "freed, of all time");
    if peak {
        about(drops.0, "freed, at the peak");
    } else {
        assert_eq!(drops.0, 0.0, "{profile}");
    }
}

/// Runs `skinflint exec OPTIONS -- profile` in a bench's folder.
fn executed(bench: &Bench, options: &[&str], arguments: &[&str]) -> Done {
    let mut tool = bench.skinflint(["exec"]);
    tool.args(options).arg("--").arg(program("profile"));
    tool.args(arguments).env("SKINFLINT_ALLOCATOR", library());
    run_within(tool, b"", PATIENCE)
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn exec_writes_a_profile_at_the_end_and_says_where() {
    let bench = Bench::new();
    let file = bench.path("heap-%p");
    let file = file.to_str().expect("text");
    let options = ["--profile=16K", "--profile-file", file];
    let done = executed(&bench, &options, &[]);
    assert_eq!(done.shell_status(), 0, "{done:#?}");
    let pid = done.stdout.split(' ').next().expect("a process id");
    let path = file.replace("%p", pid);
    let wanted = format!("skinflint: heap profile: {path} (at the peak: the same with .peak)\n");
    assert_eq!(done.stderr, wanted);
    check(&read(Path::new(&path)), &done.stdout, false);
    let peak = read(Path::new(&format!("{path}.peak")));
    check(&peak, &done.stdout, true);
}

#[test]
fn a_program_asks_for_its_own_profile() {
    let bench = Bench::new();
    let mut command = bench.command(program("profile"));
    command.arg("ask");
    let done = on_ours(command, &[]);
    assert_eq!((done.shell_status(), &*done.stderr), (0, ""), "{done:#?}");
    let (said, profile) = done.stdout.split_once('\n').expect("a line");
    check(profile, said, false);
    ok("profile", &["refused"]);
}

/// A profile that is cut off would read as a smaller heap.
#[test]
fn a_full_disk_leaves_a_line_and_no_profile() {
    let bench = Bench::new();
    let done = executed(&bench, &["--profile", "--profile-file", "/dev/full"], &[]);
    assert_eq!(done.shell_status(), 0, "{done:#?}");
    let wanted = "skinflint: /dev/full: the heap profile cannot be written: no space is left\n";
    assert_eq!(done.stderr, wanted);
    // A plain file, which the limit of the program's files cuts off.
    let file = bench.path("heap");
    let mut shell = bench.command("sh");
    shell
        .args(["-c", "trap '' XFSZ; ulimit -f 2; exec \"$0\""])
        .arg(program("profile"));
    let done = on_ours(
        shell,
        &[
            ("SKINFLINT_PROFILE", "on"),
            ("SKINFLINT_PROFILE_RATE", "1K"),
            ("SKINFLINT_PROFILE_FILE", file.to_str().expect("text")),
        ],
    );
    assert_eq!(done.shell_status(), 0, "{done:#?}");
    let wanted = format!(
        "skinflint: {}: the heap profile cannot be written: the file is larger than allowed\n",
        file.display()
    );
    assert_eq!(done.stderr, wanted);
    assert!(!file.exists());
}

#[test]
fn what_cannot_be_profiled_is_said() {
    let bench = Bench::new();
    for rate in ["1", "2G", "often", "+2K", ""] {
        let done = executed(&bench, &[&format!("--profile={rate}")], &[]);
        done.says(2, &["a number of bytes from 1K to 1G"]);
        assert_eq!(done.stdout, "", "nothing was run");
    }
    let done = executed(&bench, &["--profile-file", "heap"], &[]);
    done.says(2, &["--profile"]);
    let done = executed(
        &bench,
        &["--profile", "--profile-file", "/no/such/heap"],
        &[],
    );
    done.says(2, &["/no/such: there is no such folder"]);
    let mut command = bench.command(program("profile"));
    command.arg("refused");
    let done = on_ours(
        command,
        &[("SKINFLINT_PROFILE", "on"), ("SKINFLINT_HARDEN", "1")],
    );
    let wanted = "skinflint: SKINFLINT_PROFILE is ignored: SKINFLINT_HARDEN is set, too, and checks each call\n";
    assert!(done.stderr.starts_with(wanted), "{done:#?}");
}
