//! The text profile of `skinflint exec --profile`: rows of figures and return addresses, then what was mapped.
//!
//! ```text
//!   # 12 of 40 samples, variance 5123456789
//!     96: 6291456 [320: 20971520] @ 0x55d0c0de1234 …  ─► blocks: bytes in use [of all time] @ stack
//!   MAPPED_LIBRARIES: 55d0c0de0000-55d0c0df0000 r-xp 00001000 … /usr/bin/server ─► module, offset in its file
//! ```
//!
//! H1  A profile is taken as it is: its figures are estimates that need no scaling. One that asks to be scaled (a rate in
//!     its first line) is refused, since a row's mean size is no size.
//! H2  A frame is the module's file name and the offset in its file: the same on every machine, not in every build.
//!     `go tool pprof -proto` makes a file with names of it.
//! H3  A profile that was cut off has no list of what was mapped, and is refused.
//!
//! Not here: names of addresses.

use anyhow::{Context, Result, bail};

use super::seen::Seen;

/// A line of what was mapped.
struct Mapped<'a> {
    start: u64,
    end: u64,
    offset: u64,
    path: &'a str,
}

/// Reads a profile.
///
/// # Errors
/// If a line is not as it has to be, or the end is missing (H3).
pub(super) fn read(content: &str) -> Result<Seen> {
    let (rows, maps) = content
        .split_once("\nMAPPED_LIBRARIES:\n")
        .context("a heap profile without its end: it was cut off")?;
    let mut lines = rows.lines();
    let first = lines.next().unwrap_or_default();
    let scaled = first
        .rsplit_once('@')
        .is_none_or(|(_, form)| form.trim() != "heapprofile");
    if scaled {
        bail!(
            "a heap profile that has to be scaled, `{first}`: only those without a rate are taken"
        );
    }
    let maps: Vec<Mapped<'_>> = maps.lines().filter_map(mapped).collect();
    let program = maps.iter().find(|map| map.path.starts_with('/'));
    let mut seen = Seen {
        program: program.map_or("unknown", |map| base(map.path)).to_owned(),
        minutes: 1,
        ..Seen::default()
    };
    let (mut samples, mut variance) = (0, 0);
    for line in lines {
        if let Some(comment) = line.strip_prefix('#') {
            (samples, variance) = comments(comment, &mut seen).unwrap_or((samples, variance));
        } else if !line.trim().is_empty() {
            row(line, &maps, &mut seen, (samples, variance))
                .with_context(|| format!("`{line}`"))?;
            (samples, variance) = (0, 0);
        }
    }
    Ok(seen)
}

/// Takes in a comment; returns samples and variance if it is that of a row.
fn comments(comment: &str, seen: &mut Seen) -> Option<(i64, i64)> {
    let words: Vec<&str> = comment
        .split([' ', ',', ';'])
        .filter(|word| !word.is_empty())
        .collect();
    let behind = |word: &str| {
        let at = words.iter().position(|one| *one == word)?;
        words.get(at + 1)?.parse::<i64>().ok()
    };
    if let Some(pid) = behind("process") {
        seen.pid = pid.cast_unsigned();
    }
    if let Some(rate) = behind("in").filter(|_| words.starts_with(&["one", "sample"])) {
        seen.sample_bytes = rate;
        seen.lost = behind("room").unwrap_or(0) + behind("handlers").unwrap_or(0);
    }
    Some((words.first()?.parse().ok()?, behind("variance")?))
}

/// Takes in a row: `96: 6291456 [320: 20971520] @ 0x1 0x2`.
fn row(
    line: &str,
    maps: &[Mapped<'_>],
    seen: &mut Seen,
    (samples, variance): (i64, i64),
) -> Result<()> {
    let (figures, addresses) = line.split_once('@').context("a row without a stack")?;
    let figures = figures
        .split([' ', ':', '[', ']'])
        .filter(|word| !word.is_empty());
    let figures: Vec<i64> = figures.map(str::parse).collect::<Result<_, _>>()?;
    let [blocks, bytes, all_blocks, all_bytes] = figures[..] else {
        bail!("a row with {} figures, not 4", figures.len());
    };
    let mut frames = Vec::new();
    for (at, word) in addresses.split_whitespace().enumerate() {
        let address = u64::from_str_radix(word.trim_start_matches("0x"), 16)?;
        // A return address is behind its call; the innermost of a profile is one, too.
        let pc = address.saturating_sub(1);
        let map = maps.iter().find(|map| (map.start..map.end).contains(&pc));
        let (module, function) = match map {
            Some(map) => (
                base(map.path),
                format!("{}+{:#x}", base(map.path), pc - map.start + map.offset),
            ),
            None if address == 0 && at == 0 => ("", "without a stack".to_owned()),
            None => ("", "code of no file".to_owned()),
        };
        frames.push(seen.frame(module, &function, "", 0));
    }
    let held = seen.stack(&frames, None);
    held.samples += samples;
    held.alloc_bytes += all_bytes;
    held.alloc_blocks += all_blocks;
    held.live_bytes += bytes;
    held.live_blocks += blocks;
    held.variance += variance >> 20;
    Ok(())
}

/// Reads a line of `/proc/PID/maps`.
fn mapped(line: &str) -> Option<Mapped<'_>> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let offset = words.nth(1)?;
    Some(Mapped {
        start: hex(start)?,
        end: hex(end)?,
        offset: hex(offset)?,
        path: words.nth(2).unwrap_or_default(),
    })
}

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE: &str = "\
heap profile: 12: 3145728 [ 20: 5242880] @ heapprofile
# skinflint heap profile 1, process 4711, in use now: 3 samples, 3145728 bytes +- 869000 (19 of 20 times)
# one sample in 16384 bytes; without a stack 1, without room 4, lost in signal handlers 2
# 2 of 5 samples, variance 3145728
 8: 2097152 [16: 4194304] @ 0x401235 0x7f0000001001
# 1 of 2 samples, variance 1048576
 4: 1048576 [4: 1048576] @ 0x0

MAPPED_LIBRARIES:
00401000-00402000 r-xp 00001000 08:01 12 /usr/bin/server
7f0000001000-7f0000002000 r-xp 00000000 08:01 13 /usr/lib/libc.so.6
7ffd00000000-7ffd00001000 rw-p 00000000 00:00 0 [stack]
";

    #[test]
    fn a_profile_is_read_row_by_row() {
        let seen = read(PROFILE).unwrap();
        assert_eq!(
            (
                seen.program.as_str(),
                seen.pid,
                seen.sample_bytes,
                seen.lost
            ),
            ("server", 4711, 16384, 6)
        );
        let frames = [
            crate::id::frame("server", "server+0x1234"),
            crate::id::frame("libc.so.6", "libc.so.6+0x0"),
        ];
        let held = &seen.stacks[&crate::id::stack(&frames)];
        assert_eq!(
            (
                held.live_bytes,
                held.live_blocks,
                held.alloc_bytes,
                held.samples
            ),
            (2_097_152, 8, 4_194_304, 2)
        );
        assert_eq!(held.variance, 3);
        let live: i64 = seen.stacks.values().map(|held| held.live_bytes).sum();
        assert_eq!(live, 3_145_728, "the first line's sum");
        assert_eq!(seen.frames.len(), 3);
    }

    #[test]
    fn a_cut_or_scaled_profile_is_refused() {
        for cut in 0..PROFILE.find("MAPPED").unwrap() {
            assert!(read(&PROFILE[..cut]).is_err(), "cut at {cut}");
        }
        let scaled = PROFILE.replace("@ heapprofile", "@ heap_v2/524288");
        assert!(read(&scaled).unwrap_err().to_string().contains("scaled"));
        let odd = PROFILE.replace("8: 2097152", "8 2097152 1");
        assert!(format!("{:#}", read(&odd).unwrap_err()).contains("5 figures"));
    }
}
