//! The host's reporters: one row for each thing that has memory.
//!
//! ```text
//!   explicit/caches/documents, …/text metrics, explicit/images/{compressed, decoded}, explicit/sqlite/used,
//!   explicit/gc/{tenants/NAME/{objects, free, heads, unused}, shared, metadata}
//! ```
//!
//! E1  Each block is in one row: the compressed images are held by documents, and are subtracted from theirs.
//! E2  If a measurement asks for blocks, each row is measured anew just before it is reported: so it has its blocks.
//!
//! Not here: the process and the allocator, which the registry measures by itself.

use std::sync::Arc;

use skinflint_reporters::sqlite::Sqlite;
use skinflint_reporters::{Registry, Sink, component};

use crate::host::{Document, Host};

/// Adds reporters of what any thread may look at.
pub fn register(registry: &Registry, host: &Host, sqlite: Sqlite) {
    let (documents, images) = (Arc::clone(&host.documents), Arc::clone(&host.images));
    registry
        .add("caches", move |out: &mut Sink<'_>| {
            let sum = |of: fn(&Arc<Document>) -> usize| {
                let mut sum = 0;
                documents.each(|_, document| sum += of(document));
                sum
            };
            let said = "Texts of documents that were viewed.";
            let row = "explicit/caches/documents/entries";
            if out.wants_blocks() {
                out.heap(row, sum(Document::entry_bytes), said);
            }
            let stats = documents.stats();
            if !out.wants_blocks() {
                // What is in view has sources, too, which are not in the cache's bytes; between commands nothing is
                // in view.
                let texts = stats.bytes.saturating_sub(images.stats().source_bytes);
                out.heap(row, texts, said);
            }
            out.heap(
                "explicit/caches/documents/tables",
                stats.own_bytes,
                "The cache's own tables.",
            );
            for (part, count) in [("hits", stats.hits), ("lookups", stats.hits + stats.misses)] {
                out.cumulative(&format!("cache/documents/{part}"), count, "Of documents.");
            }
            let (compressed, decoded) = ("explicit/images/compressed", "explicit/images/decoded");
            let said = "Images as they came, kept by documents.";
            let pixels = "Pixels; they go when nobody looks.";
            if out.wants_blocks() {
                out.heap(compressed, sum(|document| document.source_bytes()), said);
                out.heap(decoded, images.measure_decoded(), pixels);
            } else {
                let images = images.stats();
                out.heap(compressed, images.source_bytes, said);
                out.heap(decoded, images.decoded_bytes, pixels);
            }
        })
        .keep();
    registry
        .add_shared("text metrics", host.metrics.clone())
        .keep();
    registry.add("sqlite", sqlite).keep();
}

/// Reports what only the main thread may look at.
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
