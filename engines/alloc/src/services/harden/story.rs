//! The text about a fault, put together without a heap.
//!
//! ```text
//!   tell ─► one story at a time ─► "skinflint: use after free: write to 0x… by thread 7" … ─► one write
//! ```
//!
//! Not here: what is in it (`report`, `sampled`, `stacks`).

use skinflint_base::sys;

use crate::heaps::fault::Line;
use crate::mechanism::guarded::Guarded;
use crate::mechanism::publish::Gate;

/// Room for two stacks with long paths.
const STORY_BYTES: usize = 16 << 10;

/// The text about a fault.
pub type Story = Line<STORY_BYTES>;

/// Reached only under TELLING.
static STORY: Guarded<Story> = Guarded::new(Line::empty());

/// Set while a story is told (stacks.K3).
static TELLING: Gate = Gate::new();

/// Adds where an address lies as seen from a block.
pub fn place(story: &mut Story, address: usize, start: usize, bytes: usize) {
    story.add(b"  ");
    if address < start {
        story.add_number((start - address) as u64);
        story.add(b" bytes before");
    } else if address >= start + bytes {
        story.add_number((address - start - bytes) as u64);
        story.add(b" bytes behind the end of");
    } else {
        story.add_number((address - start) as u64);
        story.add(b" bytes into");
    }
    story.add(b" a block of ");
    story.add_number(bytes as u64);
    story.add(b" bytes at ");
    story.add_hex(start);
    story.add(b"\n");
}

/// Puts a story together and writes it in one write (stacks.K3). If another one is being written, this one is not.
pub fn tell(write: impl FnOnce(&mut Story)) {
    if !TELLING.enter() {
        return;
    }
    // SAFETY: TELLING is ours.
    let story = unsafe { &mut *STORY.get() };
    story.clear();
    write(story);
    sys::stderr(story.bytes());
    TELLING.leave();
}

/// Lets stories be told in the child of a fork: the thread that told one is gone.
pub fn forget() {
    TELLING.reset();
}
