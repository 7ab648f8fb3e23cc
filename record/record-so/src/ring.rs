//! What the writer of a ring needs from the recorder: a reader to wake, and patience with it.
//!
//! ```text
//!   ring full ─► wake the collector ─► wait ─┬─ drained: go on
//!                                            └─ no sign of life for too long: recording ends (`process::give_up`)
//! ```
//!
//! Q1  A thread waits for a bounded time after the collector's last sign of life, whatever became of it.
//!
//! Not here: what is written (emit.rs).

use core::sync::atomic::Ordering;

use skinflint_base::ring::{
    FIRST_CAPACITY, Outside, RECORD_WORDS, RING_WORDS, SessionPage, SlotHeader, Writer,
};
use skinflint_base::sys;

use crate::process;

/// The writer's end of a thread's ring. Its code is in `ring::writer`, where two threads and a model
/// checker test it; change it there.
pub type Ring = Writer<Recorder>;

/// What the writer needs from the recorder.
pub struct Recorder;

/// How long a thread has waited for a sign of life of the collector.
pub struct Patience {
    session: &'static SessionPage,
    tick: u32,
    since: u64,
}

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
        let session = process::session()?;
        Some(Patience {
            session,
            tick: session.tick.load(Ordering::Relaxed), // ORDER: Relaxed; a heartbeat.
            since: sys::monotonic_ns(),
        })
    }

    fn wait(&self, slot: &SlotHeader, seen: u32, patience: &mut Patience) -> bool {
        // The longest waits without a heartbeat: if the collector is gone, and if it may only be stopped.
        const GONE_NS: u64 = 300_000_000;
        const PATIENCE_NS: u64 = 5_000_000_000;
        let session = patience.session;
        process::ring_the_bell();
        sys::futex_wait(&slot.head.drained, seen, 20_000_000);
        let tick = session.tick.load(Ordering::Relaxed); // ORDER: Relaxed; a heartbeat.
        let now = sys::monotonic_ns();
        if tick != patience.tick {
            patience.tick = tick;
            patience.since = now;
            return true;
        }
        let silent_ns = now - patience.since;
        // ORDER: Relaxed; a constant of the session, and a flag.
        let collector = session.collector_pid.load(Ordering::Relaxed);
        let gone = silent_ns > GONE_NS && !sys::process_exists(collector);
        if gone || silent_ns > PATIENCE_NS || process::OFF.load(Ordering::Relaxed) {
            process::give_up();
            return false;
        }
        true
    }
}
