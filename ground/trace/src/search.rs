//! The search for the next whole header of a block, after bytes that are not one.
//!
//! ```text
//!   … block | ??? | block | ??? | block …
//!            └─ one window of the file is kept: what was read for one gap serves the next ones ─┘
//! ```
//!
//! V1  Each byte is read once, except for the length of a header at the end of each window, however many
//!     gaps there are: the scan goes forward only.
//! V2  A window is at most [`WINDOW_BYTES`] long.
//!
//! Not here: what is reported about the gap (read.rs).

use crate::block::{BLOCK_HEADER_BYTES, BLOCK_MAGIC, Header};
use crate::source::Source;

/// The bytes that are read at a time (V2).
const WINDOW_BYTES: usize = 256 << 10;

/// A part of the file that is kept in memory.
#[derive(Default)]
pub(crate) struct Window {
    /// Where it begins, bytes from the start of the file.
    start: u64,
    bytes: Vec<u8>,
    /// Bytes read so far (V1).
    #[cfg(test)]
    read: u64,
}

impl Window {
    /// Returns where the first whole header at or after `from` begins. Cost: one comparison per byte.
    pub(crate) fn next_header(&mut self, source: &Source, mut from: u64) -> Option<u64> {
        loop {
            let bytes = self.at(source, from);
            let last = bytes.len().checked_sub(BLOCK_HEADER_BYTES)?;
            let hit = (0..=last).find(|&start| {
                bytes[start] == BLOCK_MAGIC[0]
                    && Header::from_bytes(&bytes[start..])
                        .is_some_and(|header| header.check_lengths().is_ok())
            });
            if let Some(start) = hit {
                return Some(from + start as u64);
            }
            from += last as u64 + 1;
        }
    }

    /// Returns the bytes from `from` on: at least the length of a header, unless the file ends.
    fn at(&mut self, source: &Source, from: u64) -> &[u8] {
        let kept = from.checked_sub(self.start).map(|skip| skip as usize);
        let kept = kept.filter(|skip| self.bytes.len() >= skip + BLOCK_HEADER_BYTES);
        let skip = kept.unwrap_or_else(|| {
            self.bytes.resize(WINDOW_BYTES, 0);
            let got = source.read_at(&mut self.bytes, from).unwrap_or(0);
            self.bytes.truncate(got);
            self.start = from;
            #[cfg(test)]
            {
                self.read += got as u64;
            }
            0
        });
        &self.bytes[skip..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::kind;

    /// Returns an empty block of a kind that no reader knows.
    fn block() -> [u8; BLOCK_HEADER_BYTES] {
        let header = Header {
            kind: 200,
            ..Header::default()
        };
        assert!(!(kind::PROCESS..=kind::LOST).contains(&header.kind));
        header.to_bytes()
    }

    #[test]
    fn thousands_of_gaps_cost_one_reading() {
        let block = block();
        let mut file = Vec::new();
        let mut begins = Vec::new();
        for gap in 0..20_000usize {
            begins.push(file.len() as u64);
            file.extend(block);
            file.resize(file.len() + 1 + gap % 3, 0xab);
        }
        let len = file.len() as u64;
        let (source, mut window) = (Source::Bytes(file), Window::default());
        for pair in begins.windows(2) {
            let behind = pair[0] + BLOCK_HEADER_BYTES as u64;
            assert_eq!(window.next_header(&source, behind), Some(pair[1]));
        }
        let last = begins[begins.len() - 1] + 1;
        assert_eq!(window.next_header(&source, last), None);
        let windows = len / WINDOW_BYTES as u64 + 2;
        assert!(window.read <= len + windows * BLOCK_HEADER_BYTES as u64);
    }

    #[test]
    fn a_header_across_the_end_of_a_window_is_found() {
        for before in WINDOW_BYTES - BLOCK_HEADER_BYTES - 1..WINDOW_BYTES + 2 {
            let mut file = vec![0; before];
            file.extend(block());
            let source = Source::Bytes(file);
            assert_eq!(
                Window::default().next_header(&source, 0),
                Some(before as u64)
            );
        }
        assert_eq!(
            Window::default().next_header(&Source::Bytes(vec![1; 9]), 0),
            None
        );
    }
}
