//! Frames of Java: from a method and a bytecode to a function, a file and a line.
//!
//! ```text
//!   bbbbb lll          an entry of the table: so many bytes of bytecode further on, so many lines; 0 ends it
//!   255 number number   both with a sign, in one to five bytes each
//! ```
//!
//! J1  A table of any content is read in bounded time: an entry takes at least a byte.
//!
//! Not here: what a code is (`skinflint_trace::Code`).

use skinflint_trace::Code;

use crate::frame::Frame;

const MODULE: &str = "[java]";

/// Returns the frame of a method at a bytecode, given as one more than its place; 0 is at none.
pub(crate) fn frame(code: &Code, unit: u32) -> Frame {
    let less = u32::from(code.minor & 0xffff >= 20);
    let at = unit.checked_sub(1);
    Frame {
        function: code.name.clone(),
        module: MODULE.into(),
        file: Some(code.file.clone()).filter(|file| !file.is_empty()),
        line: at.and_then(|at| line(&code.lines, at, less)),
        inlined: false,
    }
}

/// Returns the line of a bytecode: that of the last entry that begins no later. Entries need not rise.
fn line(table: &[u8], bytecode: u32, less: u32) -> Option<u32> {
    const ESCAPE: u8 = 0xff;
    let mut bytes = table.iter().copied();
    let (mut at, mut line) = (0i64, 0i64);
    let mut best: Option<(i64, i64)> = None;
    while let Some(head) = bytes.next().filter(|head| *head != 0) {
        if head == ESCAPE {
            at += signed(&mut bytes, less);
            line += signed(&mut bytes, less);
        } else {
            at += i64::from(head >> 3);
            line += i64::from(head & 7);
        }
        if at <= i64::from(bytecode) && best.is_none_or(|(before, _)| at >= before) {
            best = Some((at, line));
        }
    }
    let (_, line) = best?;
    u32::try_from(line).ok().filter(|line| *line > 0)
}

/// Reads a number with its sign in the lowest bit. A byte adds six bits and more; one that is small enough is the last. `less` is taken
/// off each byte.
fn signed(bytes: &mut impl Iterator<Item = u8>, less: u32) -> i64 {
    const MOST: u32 = 5;
    let mut sum = 0u32;
    for (index, byte) in (0..MOST).zip(bytes) {
        let value = u32::from(byte).wrapping_sub(less);
        sum = sum.wrapping_add(value << (index * 6));
        if value < 192 - less {
            break;
        }
    }
    let half = i64::from(sum >> 1);
    if sum & 1 == 0 { half } else { -half - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skinflint_trace::JAVA_CODE;

    fn code(version: u32, lines: &[u8]) -> Code {
        Code {
            minor: JAVA_CODE | version,
            file: "org/example/Rows.java".into(),
            name: "org.example.Rows.load".into(),
            lines: lines.to_vec(),
            ..Code::default()
        }
    }

    /// Bytecode 0 at line 1000, 4 at 1003, 35 at 1003 + 200, 36 at 1200; then what is not of the table.
    fn table(less: u8) -> Vec<u8> {
        // A number with its sign in the lowest bit: 2000, 62, 400; each byte larger by `less`.
        let at_least_192 = |value: u32| {
            let low = 192 - less as u32 + (value - (192 - less as u32)) % 64;
            [low as u8 + less, ((value - low) >> 6) as u8 + less]
        };
        let mut table = vec![255, less];
        table.extend(at_least_192(2000));
        table.push(4 << 3 | 3);
        table.extend([255, 62 + less]);
        table.extend(at_least_192(400));
        table.extend([255, 2 + less, 5 + less, 0, 9, 9]);
        table
    }

    #[test]
    fn each_bytecode_has_its_line() {
        for (version, less) in [(17, 0), (25, 1)] {
            let code = code(version, &table(less));
            let line = |bytecode: u32| frame(&code, bytecode + 1).line;
            for (bytecode, wanted) in [
                (0, 1000),
                (3, 1000),
                (4, 1003),
                (34, 1003),
                (35, 1203),
                (36, 1200),
                (999, 1200),
            ] {
                assert_eq!(line(bytecode), Some(wanted), "{version}: {bytecode}");
            }
            assert_eq!(frame(&code, 0).line, None, "a native method");
        }
        let frame = frame(&code(17, &[]), 7);
        assert_eq!(
            (&*frame.function, &*frame.module, frame.line),
            ("org.example.Rows.load", "[java]", None)
        );
        assert_eq!(frame.file.as_deref(), Some("org/example/Rows.java"));
    }

    /// A loop's condition may stand behind its body: entries need not rise.
    #[test]
    fn entries_that_go_back_count_by_where_they_begin() {
        // 8 at line 7; back to 2 at line 5.
        let table = [8 << 3 | 7, 255, 11, 3, 0];
        let line = |bytecode: u32| frame(&code(17, &table), bytecode + 1).line;
        assert_eq!(
            [line(1), line(2), line(7), line(8)],
            [None, Some(5), Some(5), Some(7)]
        );
    }

    #[test]
    fn tables_of_any_content_are_read() {
        for table in [
            &[255][..],
            &[255, 255, 255, 255],
            &[0xf8; 60],
            &[255, 0, 0, 0],
        ] {
            for (version, unit) in [(17, 1), (25, 1 << 23), (25, 0)] {
                let _ = frame(&code(version, table), unit);
            }
        }
    }
}
