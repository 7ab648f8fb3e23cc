//! The host: tenants, their documents, and what is kept of them.
//!
//! ```text
//!   view(tenant, document):  shelf ─► documents (cache) ─► tree (GC heap) ─► metrics (cache) ─► images (decoded)
//!   pressure:                images ◄ metrics ◄ trees, SQLite's pages ◄ documents          the dear ones last
//! ```
//!
//! V1  What a view shows is a function of the shelf alone: its checksum is the same whatever was dropped before.
//! V2  Heaps and connections belong to the main thread; pressure reaches them through a mailbox.
//!
//! Not here: commands (`main`), what is reported (`reporters`).

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use skinflint_cache::bus::{Ask, Level, Listener};
use skinflint_cache::measure::arc_bytes;
use skinflint_cache::pictures::Still;
use skinflint_cache::store::Clock;
use skinflint_cache::{Cache, Discardable, Discards, HeapBytes, Rebuild};
use skinflint_gc::Reason;
use skinflint_gc::cc::{Cc, Cycles, Field};
use skinflint_gc::counted;
use skinflint_gc::typed::{Handle, Runtime, Tenant};
use skinflint_reporters::Action;

use crate::dom::{self, Node};
use crate::shelf::Shelf;

/// The error of any function here.
pub type Failure = Box<dyn std::error::Error>;

/// A document as it came from the shelf.
pub struct Document {
    /// Its text.
    pub text: Box<str>,
    /// Its images.
    pub images: Vec<Discardable<Still>>,
}

impl HeapBytes for Document {
    fn heap_bytes(&self) -> usize {
        self.own_bytes() + self.source_bytes()
    }
}

impl Document {
    /// Returns the bytes that are in no other row: without its images' sources.
    fn own_bytes(&self) -> usize {
        self.text.heap_bytes() + self.images.heap_bytes()
    }

    /// Returns the bytes of its images' sources.
    pub fn source_bytes(&self) -> usize {
        self.images.iter().map(Discardable::source_bytes).sum()
    }

    /// Returns the bytes of an entry of the cache, without its images' sources.
    pub fn entry_bytes(document: &Arc<Document>) -> usize {
        arc_bytes(document) + document.own_bytes()
    }
}

/// A tenant and a document.
type Name = (u32, u32);

/// Widths of words, by document and line.
pub type Metrics = Cache<(Name, u32), Arc<[u16]>>;

counted! {
    /// A view of a document and its listener, which know each other.
    struct Hanger {
        other: Field<Option<Cc<Hanger>>>,
        /// The title that it would show.
        title: String,
    }
}

/// A tenant.
struct Guest {
    heap: Tenant,
    shelf: Shelf,
    trees: HashMap<u32, Handle<Node<'static>>>,
}

/// The host with its tenants and caches.
pub struct Host {
    /// The tenants' heaps.
    pub runtime: Runtime,
    guests: Vec<Guest>,
    /// Counted values: views and their listeners, which hold each other.
    cycles: Cycles,
    /// Documents that were viewed, by tenant and document.
    pub documents: Arc<Cache<Name, Arc<Document>>>,
    /// Widths of words, by document and line.
    pub metrics: Arc<Metrics>,
    /// The images of the documents.
    pub images: Arc<Discards>,
}

impl Host {
    /// Opens the shelves of this many tenants in a folder.
    pub fn open(folder: &Path, tenants: u32) -> Result<Host, Failure> {
        let runtime = Runtime::default();
        let mut guests = Vec::new();
        for number in 0..tenants {
            guests.push(Guest {
                heap: runtime.tenant(&format!("tenant {number}"), 256 << 20),
                shelf: Shelf::open(&folder.join(format!("tenant-{number}.db")))?,
                trees: HashMap::new(),
            });
        }
        Ok(Host {
            cycles: runtime.cycles(),
            runtime,
            guests,
            documents: Cache::named("documents")
                .limit_bytes(512 << 20)
                .idle(Duration::from_secs(30 * 60))
                .rebuild(Rebuild::Fetch)
                .build(),
            metrics: Cache::named("text metrics")
                .limit_bytes(64 << 20)
                .idle(Duration::from_secs(60))
                .rebuild(Rebuild::Decode)
                .build(),
            images: Discards::new("images", Duration::from_secs(10), Clock::real()),
        })
    }

    /// Fills empty shelves: texts by seed, images from files in turn.
    pub fn seed(&mut self, documents: u32, images: &[Vec<u8>]) -> Result<(), Failure> {
        for (number, guest) in self.guests.iter_mut().enumerate() {
            if guest.shelf.count()? > 0 {
                continue;
            }
            let of = |id: u32| {
                let at = number + id as usize;
                let some =
                    (0..4.min(images.len())).map(|i| images[(at * 3 + i) % images.len()].clone());
                (
                    id,
                    text_of(number as u64 * 1_000 + u64::from(id)),
                    some.collect(),
                )
            };
            guest.shelf.put((0..documents).map(of))?;
        }
        Ok(())
    }

    /// Returns the number of documents of each tenant.
    pub fn counts(&self) -> Result<Vec<u32>, Failure> {
        self.guests
            .iter()
            .map(|guest| Ok(guest.shelf.count()?))
            .collect()
    }

    /// Makes a view and its listener, which are dropped together and know each other: only a collection of cycles
    /// frees them.
    fn hang(&self, tenant: u32, id: u32) {
        let view = self.cycles.cc(Hanger {
            other: Field::new(None),
            title: format!("document {id} of tenant {tenant}"),
        });
        let listener = self.cycles.cc(Hanger {
            other: Field::new(Some(view.clone())),
            title: format!("listens to {}", view.title),
        });
        *view.other.borrow_mut() = Some(listener);
    }

    /// Does one of the three things that a user can ask for, and describes the result. None of them does another.
    pub fn act(&mut self, action: Action) -> String {
        match action {
            Action::Minimize => {
                let ask = Ask {
                    level: Level::Critical,
                    wanted_bytes: 0,
                    until: Instant::now() + Duration::from_secs(5),
                    waiting: Default::default(),
                };
                let images = self.images.release(ask);
                let caches = self.metrics.clear() + self.documents.clear();
                let rest = self.release(ask);
                format!(
                    "dropped {images} bytes of images, {caches} of caches, {rest} of heaps and databases"
                )
            }
            Action::Gc => {
                let before = self.gc_bytes();
                match self.runtime.collect_all(Reason::Pressure) {
                    Ok(()) => {
                        let freed = before.saturating_sub(self.gc_bytes());
                        format!("freed {freed} of {before} bytes of objects")
                    }
                    Err(_) => "a closure of a tenant is running; ask again".into(),
                }
            }
            Action::Cc => format!("destroyed {} values in cycles", self.cycles.collect()),
        }
    }

    fn gc_bytes(&self) -> usize {
        let rows = self.runtime.rows();
        rows.iter().map(|row| row.holds.cell_bytes).sum()
    }

    /// Shows a document: everything that it needs is in memory afterwards. Returns a checksum of what was shown.
    pub fn view(&mut self, tenant: u32, id: u32) -> Result<u64, Failure> {
        if (tenant as usize) < self.guests.len() {
            self.hang(tenant, id);
        }
        let guest = self
            .guests
            .get_mut(tenant as usize)
            .ok_or("no such tenant")?;
        let (shelf, images) = (&guest.shelf, &self.images);
        let document = self.documents.get_or_try_make((tenant, id), |_| {
            Ok::<_, rusqlite::Error>(Arc::new(Document {
                text: shelf.text(id)?,
                images: shelf.images(id, |file| images.add(file, Still::default()))?,
            }))
        })?;
        let mut sum = guest.tree(id, &document.text)?;
        for (line, text) in document.text.lines().enumerate() {
            let widths = self
                .metrics
                .get_or_make(((tenant, id), line as u32), |_| widths(text));
            sum = widths
                .iter()
                .fold(sum, |sum, width| sum.rotate_left(5) ^ u64::from(*width));
        }
        for image in &document.images {
            let shown = image.pin()?;
            sum = shown.pixels.chunks_exact(8).fold(sum, |sum, eight| {
                let word = eight
                    .iter()
                    .fold(0u64, |word, byte| word << 8 | u64::from(*byte));
                (sum ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15)
            });
        }
        Ok(sum)
    }

    /// Gives back what only this thread may: trees, dead objects, SQLite's pages. Returns the bytes, as the heaps and
    /// SQLite count them.
    pub fn release(&mut self, ask: Ask) -> usize {
        let held = |host: &Host| {
            let heaps = host
                .runtime
                .rows()
                .iter()
                .map(|row| row.holds.held_bytes + row.holds.dirty_bytes)
                .sum::<usize>();
            heaps + crate::shelf::used_bytes() as usize
        };
        let before = held(self);
        for guest in &mut self.guests {
            if ask.level >= Level::High {
                guest.trees = HashMap::new();
            }
            // A shelf that is in use keeps its pages.
            let _ = guest.shelf.shrink();
        }
        // This is refused only while a closure of a tenant runs, and none does here.
        let _ = self.runtime.collect_all(Reason::Pressure);
        self.runtime.shrink();
        before.saturating_sub(held(self))
    }
}

impl Guest {
    /// Returns the checksum of a document's tree, which is built if it is missing.
    fn tree(&mut self, id: u32, text: &str) -> Result<u64, Failure> {
        let kept = self.trees.get(&id);
        let (sum, new) = self.heap.enter(|cx| match kept {
            Some(handle) => Ok::<_, Failure>((dom::checksum(handle.open(cx)?, text), None)),
            None => {
                let root = dom::parse(cx, text)?;
                Ok((
                    dom::checksum(root, text),
                    Some(cx.keep(root, "a document's tree")),
                ))
            }
        })?;
        self.trees.extend(new.map(|handle| (id, handle)));
        Ok(sum)
    }
}

/// Returns the widths of a line's words, as a font might have them.
fn widths(line: &str) -> Arc<[u16]> {
    line.split(' ')
        .map(|word| word.bytes().map(|byte| 6 + u16::from(byte % 7)).sum())
        .collect()
}

/// Returns some 40 KB of words, by seed.
fn text_of(seed: u64) -> String {
    const WORDS: [&str; 12] = [
        "arena", "bitmap", "chunk", "decay", "evict", "free", "growth", "heap", "idle", "kernel",
        "leak", "mark",
    ];
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut text = String::with_capacity(45_000);
    while text.len() < 40_000 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        text.push_str(WORDS[(state >> 40) as usize % 12]);
        text.push(if (state >> 55).is_multiple_of(11) {
            '\n'
        } else {
            ' '
        });
    }
    text
}
