//! Stacks in a build without the feature `stacks`: the thread is kept, and no return address.
//!
//! ```text
//!   capture ──► the thread's id        tell ──► "  allocated by thread 7"
//! ```
//!
//! Not here: stacks as they are with the feature (`stacks.rs`, which has the same functions).

use skinflint_base::sync::{AtomicU32, Ordering};
use skinflint_base::sys;

use super::story::Story;

/// The thread of an allocation or free.
pub struct Stack {
    thread: AtomicU32,
}

/// Begins nothing.
pub fn begin() -> bool {
    true
}

/// Forgets nothing.
pub fn forget() {}

impl Stack {
    /// Creates an empty stack.
    pub const fn new() -> Stack {
        Stack {
            thread: AtomicU32::new(0),
        }
    }

    /// Forgets the thread.
    pub fn clear(&self) {
        self.thread.store(0, Ordering::Relaxed); // ORDER: the slot's holder calls (sampled.S2)
    }

    /// Keeps the running thread's id.
    pub fn capture(&self) {
        self.thread.store(sys::gettid(), Ordering::Relaxed); // ORDER: as in `clear`
    }

    /// Adds the thread to the story, after the words `who`; nothing if there is none.
    pub fn tell(&self, story: &mut Story, who: &[u8]) {
        // ORDER: see sampled.S2.
        let thread = self.thread.load(Ordering::Relaxed);
        if thread != 0 {
            story.add(who);
            story.add_number(u64::from(thread));
            story.add(b"\n");
        }
    }
}
