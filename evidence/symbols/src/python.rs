//! Frames of scripts, of Python, Ruby, PHP and Go: from a code and an instruction to a function, a file and a line.
//!
//! ```text
//!   1 cccc lll  …      an entry of the line table of 3.11 and later: form c, units l + 1; then numbers of 6 bits a byte
//!   bytes, lines        an entry of 3.10: so many bytes of code, at so many lines further on; −128: at none
//!                       of 3.9: after so many bytes of code, so many lines further on
//! ```
//!
//! Y1  A table of any content is read in bounded time: an entry takes at least a byte.
//! Y2  An entry without a line leaves the running line as it is.
//!
//! Not here: what a code is (`skinflint_trace::Code`).

use skinflint_trace::{Code, GO_CODE, JAVA_CODE, PHP_CODE, RUBY_CODE};

use crate::frame::{Frame, bare};
use crate::java;

/// The modules that frames of scripts are said to be of.
const MODULE: &str = "[python]";
const RUBY: &str = "[ruby]";
const PHP: &str = "[php]";
const GO: &str = "[go]";

/// Returns the frame of a code at an instruction, given as one more than its place in code units.
pub(crate) fn frame(code: Option<&Code>, unit: u32) -> Frame {
    let Some(code) = code.filter(|code| !code.name.is_empty()) else {
        return bare("[function of a script that was not copied]".into(), MODULE);
    };
    if matches!(code.minor, RUBY_CODE | PHP_CODE | GO_CODE) {
        return with_line(code, unit);
    }
    if code.minor & !0xffff == JAVA_CODE {
        return java::frame(code, unit);
    }
    let before_first = code.first_line;
    let line = match unit.checked_sub(1) {
        Some(unit) if code.minor <= 9 => step_line(&code.lines, code.first_line, u64::from(unit)),
        Some(unit) if code.minor <= 10 => pair_line(&code.lines, code.first_line, u64::from(unit)),
        Some(unit) => line(&code.lines, code.first_line, u64::from(unit)),
        None => Some(before_first),
    };
    Frame {
        function: code.name.clone(),
        module: MODULE.into(),
        file: Some(code.file.clone()).filter(|file| !file.is_empty()),
        line: line.or(Some(before_first)).filter(|line| *line > 0),
        inlined: false,
    }
}

/// Returns the frame of a code whose units are lines.
fn with_line(code: &Code, line: u32) -> Frame {
    let class = String::from_utf8_lossy(&code.lines);
    let function = match class.is_empty() {
        true => code.name.clone(),
        false => format!("{class}::{}", code.name),
    };
    let line = if line == 0 { code.first_line } else { line };
    Frame {
        function,
        module: match code.minor {
            PHP_CODE => PHP,
            GO_CODE => GO,
            _ => RUBY,
        }
        .into(),
        file: Some(code.file.clone()).filter(|file| !file.is_empty()),
        line: Some(line).filter(|line| *line > 0),
        inlined: false,
    }
}

/// Returns the line of a unit; `None` if the table has none for it.
fn line(table: &[u8], first_line: u32, unit: u64) -> Option<u32> {
    const LONG: u8 = 14;
    const NO_COLUMNS: u8 = 13;
    const NONE: u8 = 15;
    const ONE_LINE: std::ops::RangeInclusive<u8> = 10..=12;
    let mut bytes = table.iter().copied().peekable();
    let (mut running, mut units) = (i64::from(first_line), 0u64);
    while let Some(head) = bytes.next() {
        let form = head >> 3 & 15;
        units += u64::from(head & 7) + 1;
        if matches!(form, NO_COLUMNS | LONG) {
            running = running.wrapping_add(signed(&mut bytes));
        } else if ONE_LINE.contains(&form) {
            running += i64::from(form - ONE_LINE.start());
        }
        if unit < units {
            return match form {
                NONE => None,
                _ => u32::try_from(running).ok(),
            };
        }
        while bytes.next_if(|byte| byte & 0x80 == 0).is_some() {}
    }
    None
}

/// Returns what `line` does, of a table of 3.10.
fn pair_line(table: &[u8], first_line: u32, unit: u64) -> Option<u32> {
    const NONE: i8 = -128;
    let (mut running, mut end) = (i64::from(first_line), 0u64);
    let (entries, _) = table.as_chunks::<2>();
    for &[bytes, lines] in entries {
        let lines = lines.cast_signed();
        end += u64::from(bytes);
        if lines != NONE {
            running += i64::from(lines);
        }
        if unit.saturating_mul(2) < end {
            return u32::try_from(running).ok().filter(|_| lines != NONE);
        }
    }
    None
}

/// Returns what `line` does, of a table of 3.9: so many bytes further on, so many lines further on.
fn step_line(table: &[u8], first_line: u32, unit: u64) -> Option<u32> {
    let (mut running, mut at) = (i64::from(first_line), 0u64);
    let (steps, _) = table.as_chunks::<2>();
    for &[bytes, lines] in steps {
        at += u64::from(bytes);
        if unit.saturating_mul(2) < at {
            break;
        }
        running += i64::from(lines.cast_signed());
    }
    u32::try_from(running).ok()
}

/// Reads a number with its sign in the lowest bit, six bits a byte, lowest first; bit 6 says that another follows.
fn signed(bytes: &mut impl Iterator<Item = u8>) -> i64 {
    let (mut value, mut shift) = (0u64, 0);
    for byte in bytes {
        value |= u64::from(byte & 63).checked_shl(shift).unwrap_or(0);
        shift += 6;
        if byte & 64 == 0 || shift >= 60 {
            break;
        }
    }
    let size = (value >> 1) as i64;
    if value & 1 == 0 { size } else { -size }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(form: u8, units: u8) -> u8 {
        0x80 | form << 3 | (units - 1)
    }

    /// Two units at line 10 (short form 0), one at 12 (form 12), two without a line, three at 9 (long, −3), one at 79.
    fn table() -> Vec<u8> {
        [
            &[head(0, 2), 0x12][..],
            &[head(12, 1), 3, 4],
            &[head(15, 2)],
            &[head(14, 3), 3 << 1 | 1, 0, 5, 6],
            &[head(13, 1), 64 | (140 & 63), (140 >> 6) as u8],
        ]
        .concat()
    }

    #[test]
    fn each_form_of_an_entry_has_its_line() {
        let line = |unit| line(&table(), 10, unit);
        let wanted = [10, 10, 12, 0, 0, 9, 9, 9, 79, 0];
        for (unit, wanted) in wanted.into_iter().enumerate() {
            assert_eq!(line(unit as u64).unwrap_or(0), wanted, "unit {unit}");
        }
    }

    #[test]
    fn pairs_have_their_lines() {
        // Four bytes of line 10, 200 lines on in two steps, two bytes without a line, two of line 207.
        let table = [4, 0, 0, 127, 2, 73, 2, 0x80, 2, 0xfd];
        let wanted = [10, 10, 210, 0, 207, 0];
        for (unit, wanted) in wanted.into_iter().enumerate() {
            let found = pair_line(&table, 10, unit as u64).unwrap_or(0);
            assert_eq!(found, wanted, "unit {unit}");
        }
        let code = Code {
            minor: 10,
            first_line: 10,
            name: "make".into(),
            lines: table.to_vec(),
            ..Code::default()
        };
        assert_eq!(frame(Some(&code), 5).line, Some(207));
    }

    #[test]
    fn steps_have_their_lines() {
        // Line 10 from the first byte on, 12 from byte 4, 211 from byte 6 (in two steps), 208 from byte 8.
        let table = [0, 0, 4, 2, 2, 127, 0, 72, 2, 0xfd];
        for (unit, wanted) in [10, 10, 12, 211, 208, 208].into_iter().enumerate() {
            assert_eq!(
                step_line(&table, 10, unit as u64),
                Some(wanted),
                "unit {unit}"
            );
        }
        assert_eq!(step_line(&[], 10, 7), Some(10));
    }

    #[test]
    fn a_frame_has_function_file_and_line() {
        let code = Code {
            minor: 11,
            first_line: 10,
            file: "/srv/work.py".into(),
            name: "Rows.make".into(),
            lines: table(),
        };
        let at = |unit| frame(Some(&code), unit);
        assert_eq!(
            (at(3).function.as_str(), at(3).line),
            ("Rows.make", Some(12))
        );
        assert_eq!(at(3).file.as_deref(), Some("/srv/work.py"));
        assert_eq!(at(0).line, Some(10), "not begun");
        assert_eq!(at(4).line, Some(10), "no line: the function's first");
        assert!(frame(None, 3).function.starts_with('['));
    }

    #[test]
    fn units_of_ruby_and_php_are_lines() {
        let code = |minor, lines: &[u8]| Code {
            minor,
            first_line: 10,
            file: "/srv/work".into(),
            name: "make".into(),
            lines: lines.to_vec(),
        };
        let at = |minor, lines, unit| {
            let frame = frame(Some(&code(minor, lines)), unit);
            (frame.function, frame.module, frame.line)
        };
        let wanted =
            |function: &str, module: &str, line| (function.into(), module.into(), Some(line));
        assert_eq!(at(RUBY_CODE, b"", 12), wanted("make", "[ruby]", 12));
        assert_eq!(at(RUBY_CODE, b"", 0), wanted("make", "[ruby]", 10));
        assert_eq!(at(PHP_CODE, b"Rows", 12), wanted("Rows::make", "[php]", 12));
    }

    #[test]
    fn tables_of_any_content_are_read() {
        for bytes in [
            &[][..],
            &[0x80],
            &[0xf0],
            &[0xff; 40],
            &[0xe8, 0x7f, 0x7f, 0x7f],
            &[0; 9],
        ] {
            for unit in [0, 7, u64::MAX] {
                let _ = (
                    step_line(bytes, u32::MAX, unit),
                    line(bytes, u32::MAX, unit),
                    pair_line(bytes, u32::MAX, unit),
                );
            }
        }
    }
}
