//! From the addresses that a heap's hooks know to the ids that a trace holds.
//!
//! ```text
//!   alloc(addr, bytes, kind) ─► live[addr] = id ─► Writer::alloc
//!   death(addr)              ─► live.remove(addr) ─► Writer::death
//! ```
//!
//! D1  One live object per address. An allocation where an object still lives means that a death was missed: that
//!     death is written first, and counted (`replaced`). A death where nothing lives is counted and not written
//!     (`unknown_deaths`).
//! D2  The order of a trace is the order of the calls. So a heap calls `death` before the room can be used again
//!     and `alloc` after it has the room: with several threads, that keeps the objects of an address apart.
//! D3  Memory: 16 bytes and a share of the table for each live object.
//!
//! Not here: hooks without a context (`hooks`).

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

use crate::{Info, KindId, Origin, Totals, Writer};

/// Writes a trace of objects given by their addresses. Single-threaded.
pub struct Recorder<W: Write = BufWriter<File>> {
    writer: Writer<W>,
    live: FxHashMap<usize, u64>,
}

impl<W: Write> Recorder<W> {
    /// Creates a recorder in front of a writer to which nothing was written yet.
    pub fn new(writer: Writer<W>) -> Recorder<W> {
        Recorder {
            writer,
            live: FxHashMap::default(),
        }
    }

    /// Returns the number of the kind with this name.
    pub fn kind(&mut self, name: &str) -> KindId {
        self.writer.kind(name)
    }

    /// Records that an object was allocated. Cost: one insertion into a hash table, and some bytes.
    pub fn alloc(&mut self, addr: usize, bytes: usize, kind: KindId, origin: Origin) {
        if let Some(missed) = self.live.remove(&addr) {
            self.writer.totals.replaced += 1;
            self.writer.death(missed);
        }
        let id = self.writer.alloc(bytes as u64, kind, origin);
        self.live.insert(addr, id);
    }

    /// Records that the object at `addr` is dead.
    pub fn death(&mut self, addr: usize) {
        match self.live.remove(&addr) {
            Some(id) => self.writer.death(id),
            None => self.writer.totals.unknown_deaths += 1,
        }
    }

    /// Notes that an object was moved to another address. This is no event.
    pub fn moved(&mut self, from: usize, to: usize) {
        if let Some(id) = self.live.remove(&from) {
            self.live.insert(to, id);
        }
    }

    /// Records that a collection ended.
    pub fn collection(&mut self) {
        self.writer.collection();
    }

    /// Returns the number of live objects.
    pub fn live(&self) -> usize {
        self.live.len()
    }

    /// Ends the trace. Objects that still live get no death.
    ///
    /// # Errors
    /// As [`Writer::finish`].
    pub fn finish(self) -> io::Result<(W, Totals)> {
        self.writer.finish()
    }
}

/// A recorder that several threads share: a lock around each call. Clones are the same recorder.
#[derive(Clone)]
pub struct Shared(Arc<Mutex<Option<Recorder>>>);

impl Shared {
    /// Begins a trace in a file, which is emptied.
    ///
    /// # Errors
    /// If it cannot be created or written; the error names the path.
    pub fn create(path: &Path, info: &Info) -> io::Result<Shared> {
        let writer = Writer::create(path, info)?;
        Ok(Shared(Arc::new(Mutex::new(Some(Recorder::new(writer))))))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Recorder>> {
        // A panic between two calls leaves whole events.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T: Default>(&self, act: impl FnOnce(&mut Recorder) -> T) -> T {
        self.lock().as_mut().map(act).unwrap_or_default()
    }

    /// Returns the number of the kind with this name; 0 after [`Shared::finish`].
    pub fn kind(&self, name: &str) -> KindId {
        self.with(|recorder| recorder.kind(name))
    }

    /// Records that an object was allocated (D2). After [`Shared::finish`] it does nothing.
    pub fn alloc(&self, addr: usize, bytes: usize, kind: KindId, origin: Origin) {
        self.with(|recorder| recorder.alloc(addr, bytes, kind, origin));
    }

    /// Records that an object was allocated (D2), and looks up the kind by its name.
    pub fn alloc_named(&self, addr: usize, bytes: usize, kind: &str, origin: Origin) {
        self.with(|recorder| {
            let kind = recorder.kind(kind);
            recorder.alloc(addr, bytes, kind, origin);
        });
    }

    /// Records that the object at `addr` is dead (D2).
    pub fn death(&self, addr: usize) {
        self.with(|recorder| recorder.death(addr));
    }

    /// Notes that an object was moved to another address.
    pub fn moved(&self, from: usize, to: usize) {
        self.with(|recorder| recorder.moved(from, to));
    }

    /// Records that a collection ended.
    pub fn collection(&self) {
        self.with(Recorder::collection);
    }

    /// Ends the trace; all clones have no effect from now on. A second call returns empty totals.
    ///
    /// # Errors
    /// As [`Writer::finish`].
    pub fn finish(&self) -> io::Result<Totals> {
        let recorder = self.lock().take();
        recorder.map_or(Ok(Totals::default()), |recorder| {
            recorder.finish().map(|(_, totals)| totals)
        })
    }
}
