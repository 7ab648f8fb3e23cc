//! The command line.
//!
//! ```text
//!   skinflint-replay SCRIPT --report FILE [--paced SPEED] [--idle SECONDS] [--null] [--check]
//! ```
//!
//! P1  A word that is not understood ends the program with a sentence that names it, and status 2.

use core::ffi::{CStr, c_char, c_int};

use crate::line::Line;

const USAGE: &[u8] = b"usage: skinflint-replay SCRIPT --report FILE [--paced SPEED] [--idle SECONDS] [--null] [--check]

Plays a compiled trace on the allocator of the process (LD_PRELOAD chooses it) and reports as JSON lines.

  SCRIPT          what the compiler wrote; - reads standard input
  --report FILE   where the report goes; - is standard output
  --paced SPEED   in recorded time, SPEED times as fast (1 as recorded); else as fast as it goes
  --idle SECONDS  wait at the end with what then lives, and report again
  --null          call no allocator: the time that is left is the replayer's own
  --check         write a mark into each block and look whether it is still there
";

/// The options of a replay.
#[derive(Clone, Copy)]
pub struct Options {
    /// The script's path.
    pub script: &'static CStr,
    /// The report's path.
    pub report: &'static CStr,
    /// Recorded nanoseconds for each nanosecond that passes, in thousandths; 0 means as fast as possible.
    pub paced_milli: u64,
    /// The time to wait at the end, milliseconds.
    pub idle_ms: u64,
    /// Whether no allocator is called.
    pub null: bool,
    /// Whether blocks are marked.
    pub check: bool,
}

/// The request of the command line.
pub enum Asked {
    /// A script is to be replayed.
    Play(Options),
    /// Nothing more is to be done; this is the exit status.
    Answered(c_int),
}

fn refuse(what: &[u8], word: &[u8]) -> Asked {
    let mut line = Line::new();
    line.raw(b"skinflint-replay: ");
    line.raw(what);
    line.raw(word);
    line.raw(b"; see --help\n");
    line.write_to(2);
    Asked::Answered(2)
}

/// Parses a number with up to three decimals, in thousandths; at most 10^6.
fn thousandths(text: &[u8]) -> Option<u64> {
    let (mut value, mut decimals, mut digits) = (0_u64, None, 0);
    for &byte in text {
        match byte {
            b'0'..=b'9' => {
                if decimals == Some(3) {
                    return None;
                }
                value = value * 10 + u64::from(byte - b'0');
                decimals = decimals.map(|some| some + 1);
                digits += 1;
            }
            b'.' if decimals.is_none() => decimals = Some(0),
            _ => return None,
        }
        if value > 1_000_000_000 {
            return None;
        }
    }
    for _ in decimals.unwrap_or(0)..3 {
        value *= 10;
    }
    (digits > 0 && value <= 1_000_000_000).then_some(value)
}

impl Options {
    /// Reads the command line; errors are printed here.
    ///
    /// # Safety
    /// `values` are `count` C strings that live as long as the process.
    pub unsafe fn from_raw(count: c_int, values: *const *const c_char) -> Asked {
        let word = |nth: c_int| -> Option<&'static CStr> {
            if nth >= count {
                return None;
            }
            // SAFETY: the caller's promise.
            Some(unsafe { CStr::from_ptr(*values.add(nth as usize)) })
        };
        let (mut script, mut report) = (None, None);
        let mut options = Options {
            script: c"",
            report: c"",
            paced_milli: 0,
            idle_ms: 0,
            null: false,
            check: false,
        };
        let mut nth = 1;
        while let Some(option) = word(nth) {
            nth += 1;
            let bytes = option.to_bytes();
            if matches!(bytes, b"--report" | b"--paced" | b"--idle") {
                let Some(value) = word(nth) else {
                    return refuse(b"a value is missing after ", bytes);
                };
                nth += 1;
                let number = thousandths(value.to_bytes());
                match (bytes, number) {
                    (b"--report", _) => report = Some(value),
                    (b"--paced", Some(1..)) => options.paced_milli = number.unwrap_or(0),
                    (b"--idle", Some(_)) => options.idle_ms = number.unwrap_or(0),
                    (b"--paced", _) => {
                        return refuse(
                            b"--paced takes a number from 0.001 to 1000000, not ",
                            value.to_bytes(),
                        );
                    }
                    _ => {
                        return refuse(
                            b"--idle takes seconds from 0 to 1000000, not ",
                            value.to_bytes(),
                        );
                    }
                }
                continue;
            }
            match bytes {
                b"--null" => options.null = true,
                b"--check" => options.check = true,
                b"--help" | b"-h" => {
                    crate::system::write_all(1, USAGE);
                    return Asked::Answered(0);
                }
                [b'-', _, ..] => return refuse(b"no such option: ", bytes),
                _ if script.is_some() => return refuse(b"one script at a time, not also ", bytes),
                _ => script = Some(option),
            }
        }
        match (script, report) {
            (None, _) => refuse(b"which script?", b""),
            (_, None) => refuse(b"where to report? --report FILE is missing", b""),
            _ if options.null && options.check => {
                refuse(b"--check has nothing to check with --null", b"")
            }
            (Some(script), Some(report)) => Asked::Play(Options {
                script,
                report,
                ..options
            }),
        }
    }
}
