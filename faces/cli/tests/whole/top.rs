//! `skinflint top` on a terminal of its own: the content of the screen after the escapes have had their effect.
//!
//! ```text
//!   talk.c, recorded ─► trace, growing ─► skinflint top ─ pty ─► vt100 ─► the screen's text
//!                                               ▲ keys
//! ```
//!
//! P1  Every wait is for something to stand on the screen, and has a bound.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::tool::{Bench, PATIENCE, Running, program};

const ROWS: u16 = 40;
const COLUMNS: u16 = 130;

/// A program on a terminal.
struct Terminal {
    child: Child,
    keys: File,
    output: Receiver<Vec<u8>>,
    screen: vt100::Parser,
}

impl Terminal {
    fn start(mut command: Command) -> Terminal {
        let (mut ours, mut theirs) = (-1, -1);
        let size = libc::winsize {
            ws_row: ROWS,
            ws_col: COLUMNS,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        // SAFETY: both numbers and the size are ours; no name and no settings are asked for.
        let (ours, theirs) = unsafe {
            let null = std::ptr::null_mut();
            assert_eq!(
                libc::openpty(&mut ours, &mut theirs, null, null.cast(), &size),
                0
            );
            (OwnedFd::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs))
        };
        let end = || Stdio::from(theirs.try_clone().expect("a descriptor"));
        command.stdin(end()).stdout(end()).stderr(end());
        command.env("TERM", "xterm-256color").env_remove("NO_COLOR");
        let child = command.spawn().expect("it starts");
        drop(command);
        drop(theirs);
        let keys = File::from(ours);
        let mut reading = keys.try_clone().expect("a descriptor");
        let (to, output) = channel();
        std::thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(n @ 1..) = reading.read(&mut part) {
                if to.send(part[..n].to_vec()).is_err() {
                    return;
                }
            }
        });
        Terminal {
            child,
            keys,
            output,
            screen: vt100::Parser::new(ROWS, COLUMNS, 0),
        }
    }

    /// Waits until the screen is as wanted (P1).
    #[track_caller]
    fn until(&mut self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let text = self.screen.screen().contents();
            if wanted(&text) {
                return text;
            }
            // CLOCK: poll step of a bounded wait
            if let Ok(bytes) = self.output.recv_timeout(Duration::from_millis(100)) {
                self.screen.process(&bytes);
            }
        }
        panic!("never {what}:\n{}", self.screen.screen().contents());
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("it listens");
    }

    /// Waits for the program's end, and returns its status.
    fn end(mut self) -> Option<i32> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("ours") {
                return status.code();
            }
            // CLOCK: a bounded wait, and its bound ends it
            assert!(begun.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(10)); // CLOCK: poll step of a bounded wait
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn tell(talk: &mut Running, letters: &str) {
    for letter in letters.split("").filter(|letter| !letter.is_empty()) {
        talk.say(letter.as_bytes());
        assert_eq!(talk.line(), format!("done {letter}"));
    }
}

/// Returns the line of a stack on the screen.
fn line<'a>(screen: &'a str, function: &str) -> Option<&'a str> {
    screen.lines().find(|line| line.contains(function))
}

#[test]
fn it_follows_a_recording_and_obeys_keys() {
    let bench = Bench::new();
    let mut talk = Running::start(bench.recording(&[], [program("talk")]));
    let pid = talk.line();
    tell(&mut talk, "ab");
    let mut top = Terminal::start(bench.skinflint(["top", &pid]));
    // 10 x 67 by second; 6 x 61 by first. Usable sizes of glibc: 72 and 72.
    // A frame is painted row by row, and may be seen before it is whole: what is to be there is waited for.
    let screen = top.until("10 blocks of second, 6 of first", |screen| {
        let has = |function: &str, held: &str, blocks: &str| {
            let found = line(screen, function);
            found.is_some_and(|line| line.contains(held) && line.contains(blocks))
        };
        has("← second", "720 B", " 10 ")
            && has("← first", "432 B", " 6 ")
            && screen.contains("0 other stacks")
            && screen.contains("resident at")
    });
    assert!(
        screen.contains(&format!("talk {pid}")) && screen.contains("recording"),
        "{screen}"
    );
    assert!(screen.contains("live▼"), "{screen}");
    // The program's control group, where one below the top counts its memory.
    let group = bench.tool(["memory", &pid, "--cgroup", "--json"]);
    let is_counted = group.shell_status() == 0 && !group.stdout.contains("\"control group /\"");
    assert_eq!(
        screen.contains("working set"),
        is_counted,
        "{screen}\n{group:#?}"
    );
    // It ends with a figure or with words of ours, and not where the screen does.
    let row = screen.lines().find(|row| row.starts_with("group"));
    assert!(
        row.is_none_or(|row| ["iB", "%)", " memory", "no limit"]
            .iter()
            .any(|end| row.trim_end().ends_with(end))),
        "{row:?}"
    );

    top.press("s");
    top.until("sorted by growth", |screen| {
        screen.contains("growth▼") && !screen.contains("live▼")
    });
    top.press("s");
    top.until("sorted by churn", |screen| screen.contains("churn▼"));
    top.press("h");
    top.until("help", |screen| screen.contains("hold the screen still"));
    top.press("h");
    top.until("no help", |screen| {
        !screen.contains("hold the screen still")
    });
    top.press("p");
    top.until("paused", |screen| screen.contains("PAUSED"));
    tell(&mut talk, "fb");
    talk.say(b"q");
    assert_eq!(talk.finish(PATIENCE).status.code(), Some(5));
    // It read on while the screen stood still.
    top.press("p");
    top.until("the end, with all blocks", |screen| {
        let blocks = line(screen, "← second").is_some_and(|line| line.contains(" 10 "));
        let acquired = ["40 blocks acquired", "30 blocks acquired"];
        let acquired = acquired.iter().any(|said| screen.contains(said));
        blocks && acquired && screen.contains("ended: exit 5")
    });
    top.press("q");
    assert_eq!(top.end(), Some(0));
}

#[test]
fn without_a_terminal_it_is_one_frame_of_text() {
    let bench = Bench::new();
    let done = bench.record([program("predicted")]);
    assert!(done.status.code().is_some(), "{done:#?}");
    let mut command = bench.skinflint(["top", "main.sft"]);
    command.env("COLUMNS", "110");
    let done = crate::tool::run(command);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    let report = bench.report();
    let blocks = report.number("totals.allocations");
    let digits = done.stdout.replace(',', "");
    assert!(
        digits.contains(&format!("{blocks} blocks acquired")),
        "{}",
        done.stdout
    );
    assert!(done.stdout.contains("ended: exit 0") && done.stdout.contains("other stacks"));
    assert!(
        !done.stdout.contains('\u{1b}') && !done.stdout.contains("q quit"),
        "{}",
        done.stdout
    );
    assert!(done.stdout.lines().all(|line| line.chars().count() <= 110));
    assert!(!done.stdout.contains("incomplete"), "{}", done.stdout);
    // On 80 columns what does not fit is left out, and nothing is cut.
    let mut command = bench.skinflint(["top", "main.sft"]);
    command.env("COLUMNS", "80");
    let narrow = crate::tool::run(command).stdout;
    let lines: Vec<&str> = narrow.lines().collect();
    assert!(
        lines[1].contains(" · last ") || lines[1].contains("over the last "),
        "{narrow}"
    );
    let live = lines[2].rsplit(" live ").next().expect("a title");
    let most = live.rsplit(", most ").next().expect("its most");
    assert!(
        most.contains("iB ") || most.ends_with("iB") || most.contains(" B"),
        "{narrow}"
    );
    // What a trace lacks is said here, too.
    let whole = std::fs::read(bench.path("main.sft")).expect("the trace");
    std::fs::write(bench.path("cut.sft"), &whole[..whole.len() - 40]).expect("a file");
    let cut = bench.tool(["top", "cut.sft"]);
    assert!(cut.stdout.contains("cut: it has no end"), "{}", cut.stdout);
    assert!(cut.stdout.contains("\nincomplete: "), "{}", cut.stdout);
    let gone = bench.tool(["top", "gone.sft"]);
    assert!(
        gone.status.code() == Some(1) && gone.stderr.contains("gone.sft"),
        "{gone:#?}"
    );
    bench.tool(["top", "4194305"]).says(2, &["4194305: "]);
}
