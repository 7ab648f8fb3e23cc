//! `/proc/PID/maps` and `smaps`: what is mapped where.
//!
//! ```text
//!   5580-5590 rw-p 00001000 fe:00 77    /bin/x y        ─► Head(MapLine)
//!   Rss:        8 kB                                    ─► Bytes("Rss", 8192)
//!   VmFlags: rd wr                                      ─► (nothing)
//! ```
//!
//! Not here: whose memory a mapping is (collect's mappings.rs).

use crate::file;

/// A line of `maps`, or the head of one of `smaps`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MapLine {
    /// First address.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// `rw-p`
    pub perms: String,
    /// The offset in the file.
    pub offset: u64,
    /// Inode, 0 for none.
    pub inode: u64,
    /// Path or `[name]`.
    pub name: String,
}

impl MapLine {
    /// Parses a line; `None` if it is another kind of line.
    pub fn parse(line: &str) -> Option<MapLine> {
        let mut fields = line.splitn(6, ' ');
        let (start, end) = fields.next()?.split_once('-')?;
        let start = u64::from_str_radix(start, 16).ok()?;
        let end = u64::from_str_radix(end, 16).ok()?;
        let perms = fields.next()?.to_owned();
        let offset = u64::from_str_radix(fields.next()?, 16).ok()?;
        let _device = fields.next()?;
        let inode = fields.next()?.parse().ok()?;
        let name = fields.next().unwrap_or("").trim().to_owned();
        Some(MapLine {
            start,
            end,
            perms,
            offset,
            inode,
            name,
        })
    }
}

/// Reads all mappings; empty if the process has no memory any more, or may not be looked at.
pub fn maps(pid: u32) -> Vec<MapLine> {
    let text = maps_text(pid).unwrap_or_default();
    text.lines().filter_map(MapLine::parse).collect()
}

/// Reads the text of `maps`; it is empty for a process that has released its memory.
pub fn maps_text(pid: u32) -> Option<String> {
    file::whole_text(format_args!("/proc/{pid}/maps"))
}

/// Reads the text of `smaps`. The kernel walks the page tables.
pub fn smaps_text(pid: u32) -> Option<String> {
    file::whole_text(format_args!("/proc/{pid}/smaps"))
}

/// A line of `smaps` that says something.
#[derive(PartialEq, Eq, Debug)]
pub enum SmapsLine<'a> {
    /// A mapping begins.
    Head(MapLine),
    /// A figure of the mapping that began last, and its bytes.
    Bytes(&'a str, u64),
}

/// Parses `smaps`, or `maps`, which has heads alone.
pub fn smaps_lines(text: &str) -> impl Iterator<Item = SmapsLine<'_>> {
    text.lines().filter_map(|line| {
        let first = line.split_once(' ').map_or(line, |(first, _)| first);
        match first.strip_suffix(':') {
            Some(key) => {
                let value = line.get(first.len()..)?.trim();
                Some(SmapsLine::Bytes(key, file::bytes(value)?))
            }
            None => MapLine::parse(line).map(SmapsLine::Head),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_blanks_and_lines_without() {
        let text = "55d0-55d8 rw-p 00001000 fe:00 77                         /srv/a b: (deleted)\n";
        let line = MapLine::parse(text.trim_end()).expect("complete");
        assert_eq!((line.start, line.end), (0x55d0, 0x55d8));
        assert_eq!((line.perms.as_str(), line.offset), ("rw-p", 0x1000));
        assert_eq!(
            (line.inode, line.name.as_str()),
            (77, "/srv/a b: (deleted)")
        );
        let bare = MapLine::parse("55d8-55e0 ---p 00000000 00:00 0 ").expect("complete");
        assert_eq!((bare.name.as_str(), bare.inode), ("", 0));
        for end in 0..text.find(" 77").expect("there") {
            assert_eq!(MapLine::parse(&text[..end]), None, "{end}");
        }
    }

    #[test]
    fn heads_and_figures() {
        let text = "10-20 rw-p 0 fe:00 77 /x: y\nRss:   8 kB\nTHPeligible:  0\nVmFlags: rd wr\n20-30 r--p 0 0:0 0\n";
        let lines: Vec<_> = smaps_lines(text).collect();
        let head = |line| SmapsLine::Head(MapLine::parse(line).expect("complete"));
        let expected = [
            head("10-20 rw-p 0 fe:00 77 /x: y"),
            SmapsLine::Bytes("Rss", 8 << 10),
            head("20-30 r--p 0 0:0 0"),
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn the_mappings_of_this_process() {
        let own = maps(std::process::id());
        let here = &raw const own as u64;
        let stack = own.iter().find(|map| (map.start..map.end).contains(&here));
        assert!(stack.is_some_and(|map| map.perms == "rw-p"), "{own:?}");
        let smaps = smaps_text(std::process::id()).expect("running");
        assert!(smaps_lines(&smaps).any(|line| matches!(line, SmapsLine::Bytes("Pss", 1..))));
        assert!(maps(0).is_empty() && smaps_text(0).is_none());
    }
}
