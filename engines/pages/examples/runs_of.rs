//! Turns a recorded trace into the page-run requests that an allocator of spans would make.
//!
//! ```text
//!   skinflint record -o app.sft -- app
//!   cargo run --release -p skinflint-pages --example runs_of -- app.sft app.runs
//!
//!   block of at most 32 KiB ─► span of its class ─► take a span's pages when no span has room,
//!                                                   give them when it is empty and another has room
//!   larger block            ─► take, resize, give its own pages
//! ```
//!
//! Q1  The requests depend on the trace alone: never on where a run lies.
//! Q2  A span is as long as a thirty-second of what its class holds, 4 to 64 KiB, so classes with many blocks request
//!     seldom and classes with few request little.
//!
//! Not here: threads (all blocks come from one set of spans), and the replay (`benches/runs`).

use std::collections::HashMap;
use std::error::Error;

use skinflint_trace::{EventKind, Trace};

#[path = "../benches/runs/requests.rs"]
mod requests;
use requests::{Request, encode};

const PAGE: u64 = 4096;
const LARGEST_SMALL: u64 = 32 << 10;

/// The place of a block.
enum Place {
    Small { span: usize },
    Large { run: u32, pages: u32 },
}

#[derive(Default)]
struct Class {
    live_bytes: u64,
    /// Spans with room; the one used last is at the end.
    open: Vec<usize>,
}

struct Span {
    run: u32,
    size: u64,
    slots: u64,
    used: u64,
}

#[derive(Default)]
struct Spans {
    requests: Vec<Request>,
    runs: u32,
    classes: HashMap<u64, Class>,
    spans: Vec<Span>,
    blocks: HashMap<u64, Place>,
    /// Blocks whose realloc has begun.
    moving: HashMap<u64, Place>,
}

/// Returns the class of a size: multiples of 16 to 256, then 8 classes a doubling.
fn class_size(size: u64) -> u64 {
    let size = size.max(1);
    if size <= 256 {
        return size.next_multiple_of(16);
    }
    let step = 1 << ((size - 1).ilog2() - 3);
    size.next_multiple_of(step)
}

impl Spans {
    fn take(&mut self, pages: u32) -> u32 {
        self.requests.push(Request::Take { pages });
        self.runs += 1;
        self.runs - 1
    }

    fn place(&mut self, size: u64) -> Place {
        if size > LARGEST_SMALL {
            let pages = size.div_ceil(PAGE) as u32;
            return Place::Large {
                run: self.take(pages),
                pages,
            };
        }
        let size = class_size(size);
        let class = self.classes.entry(size).or_default();
        class.live_bytes += size;
        if let Some(&span) = class.open.last() {
            return self.fill(size, span);
        }
        let wanted = (class.live_bytes / 32).clamp(size, 64 << 10);
        let pages = wanted.div_ceil(PAGE).min(16);
        let run = self.take(pages as u32);
        self.spans.push(Span {
            run,
            size,
            slots: pages * PAGE / size,
            used: 0,
        });
        let span = self.spans.len() - 1;
        self.classes.entry(size).or_default().open.push(span);
        self.fill(size, span)
    }

    fn fill(&mut self, size: u64, span: usize) -> Place {
        let filled = &mut self.spans[span];
        filled.used += 1;
        if filled.used == filled.slots {
            let class = self.classes.entry(size).or_default();
            class.open.retain(|other| *other != span);
        }
        Place::Small { span }
    }

    fn release(&mut self, place: Place) {
        match place {
            Place::Large { run, .. } => self.requests.push(Request::Give { run }),
            Place::Small { span } => {
                let Span {
                    run, size, slots, ..
                } = self.spans[span];
                self.spans[span].used -= 1;
                let used = self.spans[span].used;
                let class = self.classes.entry(size).or_default();
                class.live_bytes -= size;
                if used + 1 == slots {
                    class.open.push(span);
                }
                if used == 0 && class.open.len() > 1 {
                    class.open.retain(|other| *other != span);
                    self.requests.push(Request::Give { run });
                }
            }
        }
    }

    fn move_to(&mut self, old: Option<Place>, addr: u64, size: u64) {
        let large = size > LARGEST_SMALL;
        let place = match old {
            Some(Place::Large { run, pages }) if large => {
                let wanted = size.div_ceil(PAGE) as u32;
                if wanted != pages {
                    self.requests.push(Request::Resize { run, pages: wanted });
                }
                Place::Large { run, pages: wanted }
            }
            old => {
                let place = self.place(size);
                if let Some(old) = old {
                    self.release(old);
                }
                place
            }
        };
        self.blocks.insert(addr, place);
    }

    fn event(&mut self, kind: &EventKind) {
        match *kind {
            EventKind::Alloc { addr, size, .. } => {
                let place = self.place(size);
                if let Some(lost) = self.blocks.insert(addr, place) {
                    self.release(lost);
                }
            }
            EventKind::Free { addr, .. } => {
                if let Some(place) = self.blocks.remove(&addr) {
                    self.release(place);
                }
            }
            EventKind::ReallocRelease { addr } => {
                // The acquisition names the new address only; it is this thread's next event.
                if let Some(place) = self.blocks.remove(&addr) {
                    self.moving.insert(0, place);
                }
            }
            EventKind::ReallocCancel { addr } => {
                if let Some(place) = self.moving.remove(&0) {
                    self.blocks.insert(addr, place);
                }
            }
            EventKind::ReallocAcquire { addr, size, .. } => {
                let old = self.moving.remove(&0);
                self.move_to(old, addr, size);
            }
            _ => {}
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, from, to] = arguments.as_slice() else {
        return Err("usage: runs_of TRACE.sft OUT.runs".into());
    };
    let trace = Trace::open(from)?;
    let mut spans = Spans::default();
    let mut threads = HashMap::new();
    trace.events().for_each(|event| {
        // A realloc in progress belongs to its thread.
        let moving = threads.remove(&event.thread).unwrap_or_default();
        spans.moving = moving;
        spans.event(&event.kind);
        threads.insert(event.thread, std::mem::take(&mut spans.moving));
    });
    let command = trace.process.argv.join(" ");
    let bytes = encode(&command, &spans.requests);
    std::fs::write(to, zstd::encode_all(bytes.as_slice(), 19)?)?;
    eprintln!(
        "{to}: {} requests, {} runs, of {} events",
        spans.requests.len(),
        spans.runs,
        trace.event_count()
    );
    Ok(())
}
