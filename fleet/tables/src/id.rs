//! Ids of frames, stacks and processes: 64-bit hashes that are the same on every machine and in every build.
//!
//! ```text
//!   module, function ─► frame ─┐
//!   frames, innermost first ───┴─► stack            host, pid, start ─► process
//! ```
//!
//! I1  A frame is its module's file name and its function. The line is not part of it: it moves with every build, and
//!     two builds could not be compared.
//! I2  Two of a hundred million ids are the same with a chance of 1 in 4,000: no id is checked against its text.
//! I3  0 is no id: it stands for the process as a whole.
//!
//! Not here: names of ids (the tables `stacks` and `frames`).

/// Hashes bytes: FNV-1a of 64 bits, its bits then mixed as SplitMix64 mixes them.
#[derive(Clone, Copy)]
struct Hash(u64);

impl Hash {
    fn new() -> Self {
        Hash(0xcbf2_9ce4_8422_2325)
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        // The end of a part: "ab" and "c" are not "a" and "bc".
        self.0 = (self.0 ^ 0xff).wrapping_mul(0x0000_0100_0000_01b3);
        self
    }

    fn id(self) -> i64 {
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let id = (z ^ (z >> 31)).cast_signed();
        if id == 0 { 1 } else { id }
    }
}

/// Returns the id of a frame (I1).
pub fn frame(module: &str, function: &str) -> i64 {
    Hash::new()
        .bytes(module.as_bytes())
        .bytes(function.as_bytes())
        .id()
}

/// Returns the id of a stack of frames, innermost first.
pub fn stack(frames: &[i64]) -> i64 {
    let hash = |hash: Hash, frame: &i64| hash.bytes(&frame.to_le_bytes());
    frames.iter().fold(Hash::new(), hash).id()
}

/// Returns the id of a process: of its host, its number there and its start.
pub fn process(host: &str, pid: u64, started: i64) -> i64 {
    Hash::new()
        .bytes(host.as_bytes())
        .bytes(&pid.to_le_bytes())
        .bytes(&started.to_le_bytes())
        .id()
}

/// Returns the id of a file's content: the same file read in twice replaces itself.
pub fn content(bytes: &[u8]) -> i64 {
    Hash::new().bytes(bytes).id()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_run_into_each_other_and_order_counts() {
        assert_ne!(frame("ab", "c"), frame("a", "bc"));
        assert_ne!(stack(&[1, 2]), stack(&[2, 1]));
        assert_ne!(stack(&[]), 0);
    }

    #[test]
    fn ids_are_the_same_for_ever() {
        // Worked out once by a script of FNV-1a and SplitMix64; files of other days have these ids.
        assert_eq!(frame("web", "main"), FRAME);
        assert_eq!(stack(&[frame("web", "main")]), STACK);
    }

    const FRAME: i64 = -4_576_947_689_772_125_022;
    const STACK: i64 = 7_697_545_043_693_547_307;
}
