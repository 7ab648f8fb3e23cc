//! What the viewer says of its memory: a row for each thing that has some.
//!
//! ```text
//!   explicit/caches/documents, …/text metrics, explicit/images/{compressed, decoded}, explicit/sqlite,
//!   explicit/gc/{tenants/NAME/{objects, free, heads, unused}, shared, metadata}
//! ```
//!
//! E1  Each block is in one row: the compressed images are held by documents, and are taken off theirs.
//!
//! Not here: the process and the allocator, which the registry measures by itself.

use std::sync::Arc;

use skinflint_report::{Registry, Sink, component};

use crate::host::Host;
use crate::shelf;

/// Adds reporters of what any thread may look at.
pub fn register(registry: &Registry, host: &Host) {
    let (documents, images) = (Arc::clone(&host.documents), Arc::clone(&host.images));
    registry
        .add("caches", move |out: &mut Sink<'_>| {
            let stats = documents.stats();
            // What is in view has sources, too, and is not in the cache's bytes; nothing is, between commands.
            let texts = stats.bytes.saturating_sub(images.stats().source_bytes);
            let said = "Texts of documents that were viewed.";
            out.heap("explicit/caches/documents/entries", texts, said);
            out.heap(
                "explicit/caches/documents/tables",
                stats.own_bytes,
                "The cache's own tables.",
            );
            for (part, count) in [("hits", stats.hits), ("lookups", stats.hits + stats.misses)] {
                out.cumulative(&format!("cache/documents/{part}"), count, "Of documents.");
            }
            let images = images.stats();
            let said = "Images as they came, kept by documents.";
            out.heap("explicit/images/compressed", images.source_bytes, said);
            out.heap(
                "explicit/images/decoded",
                images.decoded_bytes,
                "Pixels; they go when nobody looks.",
            );
        })
        .keep();
    registry
        .add_shared("text metrics", host.metrics.clone())
        .keep();
    registry
        .add("sqlite", |out: &mut Sink<'_>| {
            out.heap(
                "explicit/sqlite",
                shelf::used_bytes() as usize,
                "All databases, by SQLite's count.",
            );
        })
        .keep();
}

/// What only the main thread may look at.
pub fn heaps(host: &Host, out: &mut Sink<'_>) {
    for row in host.runtime.rows() {
        let path = |part: &str| match row.name.as_str() {
            "shared" => format!("explicit/gc/shared/{part}"),
            name => format!("explicit/gc/tenants/{}/{part}", component(name)),
        };
        let holds = row.holds;
        out.nonheap(&path("objects"), holds.cell_bytes, "Cells with objects.");
        out.nonheap(
            &path("free-cells"),
            holds.free_bytes + holds.tail_bytes,
            "Cells and ends without.",
        );
        out.nonheap(&path("heads"), holds.head_bytes, "Heads of chunks.");
        out.nonheap(
            &path("unused"),
            holds.dirty_bytes,
            "Arenas that the next objects will have.",
        );
    }
    let counts = host.runtime.source().counts();
    out.nonheap(
        "explicit/gc/metadata",
        counts.metadata_bytes,
        "Records of where chunks are.",
    );
}
