//! The native frames of a capture, as its maker has them.
//!
//! Not here: finding them (`unwind`), what is done with them (state.rs).

/// The native frames of a capture, outermost first.
pub trait Natives {
    /// Returns the number of frames.
    fn total(&self) -> usize;
    /// Returns the number of outermost frames that are as they were.
    fn keep(&self) -> usize;
    /// Returns the return address into a frame.
    fn pc(&self, index: usize) -> u64;
    /// Returns the address at which it is stored.
    fn slot(&self, index: usize) -> u64;
    /// Returns whether frame 0 is the outermost that there is.
    fn is_whole(&self) -> bool;
}
