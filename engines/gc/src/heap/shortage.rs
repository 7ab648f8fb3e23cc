//! The error of an allocation that could not be met.
//!
//! Not here: when that is so (`limit`, `chunks`).

/// Why there is no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// The tenant's own limit is reached.
    Limit,
    /// The kernel refused.
    System,
    /// The size is more than a heap can address.
    Size,
    /// A snapshot of the heap is being written, and the stream that it goes to asked.
    Still,
}

/// An allocation that could not be met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// The heap's name.
    pub heap: String,
    /// Bytes that were requested.
    pub bytes: usize,
    /// Why they could not be had.
    pub shortage: Shortage,
    /// Bytes that the heap holds.
    pub held_bytes: usize,
    /// Bytes that its objects hold outside of it, as the client says
    /// ([`Heap::client_bytes`](crate::Heap::client_bytes)).
    pub client_bytes: usize,
}

impl std::fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (heap, bytes, held) = (&self.heap, self.bytes, self.held_bytes);
        write!(
            f,
            "heap \"{heap}\": no room for {bytes} bytes beside the {held} held"
        )?;
        if self.client_bytes > 0 {
            write!(f, " and {} of the client's", self.client_bytes)?;
        }
        f.write_str(": ")?;
        f.write_str(match self.shortage {
            Shortage::Limit => "its limit is reached; collect, or raise it",
            Shortage::System => "the system has no memory to give",
            Shortage::Size => "no object may be so large",
            Shortage::Still => "a snapshot of it is being written; allocate after that",
        })
    }
}

impl std::error::Error for OutOfMemory {}
