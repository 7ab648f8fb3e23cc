//! The counts of each thread, and the last line of the report.
//!
//! T1  A tally is written by its thread alone, and read by others only when all is quiet (feed.E3).
//!
//! Not here: resident memory (points.rs).

use skinflint_replay::script::op;

use crate::line::Line;

/// Counts of one thread, or of all.
#[derive(Clone, Copy, Default)]
pub struct Tally {
    /// Operations by their number.
    pub ops: [u64; 16],
    /// Requested bytes acquired minus bytes released; may be negative in one thread.
    pub live_bytes: i64,
    /// Blocks acquired minus blocks released.
    pub live_blocks: i64,
    /// Acquisitions that the allocator refused.
    pub refused: u64,
    /// Releases, reallocs or touches of a slot without a block, and waits for what is past.
    pub order_violations: u64,
    /// Acquisitions into a slot that has a block.
    pub double_uses: u64,
    /// Blocks whose mark was overwritten (`--check`).
    pub overwritten: u64,
    /// Waits that actually waited.
    pub slow_waits: u64,
    /// CPU time in chunks, waits not counted, nanoseconds.
    pub cpu_ns: u64,
    /// CPU time in waits, nanoseconds.
    pub waited_cpu_ns: u64,
    /// The highest slot used.
    pub top_slot: u32,
}

impl Tally {
    /// Adds another thread's counts.
    pub fn add(&mut self, other: &Tally) {
        for (sum, more) in self.ops.iter_mut().zip(other.ops) {
            *sum += more;
        }
        self.live_bytes += other.live_bytes;
        self.live_blocks += other.live_blocks;
        self.refused += other.refused;
        self.order_violations += other.order_violations;
        self.double_uses += other.double_uses;
        self.overwritten += other.overwritten;
        self.slow_waits += other.slow_waits;
        self.cpu_ns += other.cpu_ns;
        self.waited_cpu_ns += other.waited_cpu_ns;
        self.top_slot = self.top_slot.max(other.top_slot);
    }

    /// Returns the number of operations on blocks.
    pub fn block_ops(&self) -> u64 {
        self.ops[op::MALLOC as usize..=op::FREE as usize]
            .iter()
            .sum()
    }

    /// Adds the fields to a line.
    pub fn say(&self, line: &mut Line) {
        line.number(b"ops", self.block_ops());
        let kinds = [
            (&b"malloc"[..], op::MALLOC),
            (b"calloc", op::CALLOC),
            (b"memalign", op::MEMALIGN),
            (b"realloc", op::REALLOC),
            (b"free", op::FREE),
            (b"waits", op::WAIT),
            (b"threads_started", op::START),
        ];
        for (name, kind) in kinds {
            line.number(name, self.ops[kind as usize]);
        }
        line.number(b"slow_waits", self.slow_waits);
        line.number(b"order_violations", self.order_violations);
        line.number(b"double_uses", self.double_uses);
        line.number(b"overwritten", self.overwritten);
        line.number(b"refused", self.refused);
        line.number(b"cpu_ns", self.cpu_ns);
        line.number(b"waited_cpu_ns", self.waited_cpu_ns);
        line.number(b"live_bytes", self.live_bytes.max(0) as u64);
        line.number(b"live_blocks", self.live_blocks.max(0) as u64);
    }
}
