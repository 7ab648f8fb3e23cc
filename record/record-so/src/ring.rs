//! The recorder's services to the writer of a ring: a reader to wake, and patience with it.
//!
//! ```text
//!   ring full ─► wake the collector ─► wait ─┬─ drained: go on
//!                                            └─ no sign of life for too long: recording ends (`process::give_up`)
//! ```
//!
//! Not here: what is written (emit.rs), how long a thread waits (patience.rs).

use core::sync::atomic::Ordering;

use skinflint_base::ring::{FIRST_CAPACITY, Outside, RECORD_WORDS, RING_WORDS, SlotHeader, Writer};
use skinflint_base::sys;

use crate::patience::{LOOK_NS, Patience};
use crate::process;

/// The writer's end of a thread's ring. Its code is in `ring::writer`, where two threads and a model
/// checker test it; change it there.
pub type Ring = Writer<Recorder>;

/// The recorder's services to the writer.
pub struct Recorder;

impl Outside for Recorder {
    const FIRST_CAPACITY: u64 = FIRST_CAPACITY;
    const LAST_CAPACITY: u64 = RING_WORDS as u64;
    const RECORD_WORDS: u64 = RECORD_WORDS as u64;
    type Patience = Patience;

    fn wake_reader(&self) {
        if let Some(session) = process::session() {
            process::wake_collector(session);
        }
    }

    fn patience(&self) -> Option<Patience> {
        Some(Patience::begin(process::session()?, &process::GAVE_UP))
    }

    fn wait(&self, slot: &SlotHeader, seen: u32, patience: &mut Patience) -> bool {
        process::notify_collector();
        sys::futex_wait(&slot.head.drained, seen, LOOK_NS);
        let is_over = patience.is_over();
        // ORDER: Relaxed; a flag. The thread that set it has said why.
        if is_over && !process::GAVE_UP.load(Ordering::Relaxed) {
            process::give_up();
        }
        !is_over
    }
}
