//! A program on the published crates: allocator, garbage-collected heap, cache, reporters.
//!
//! Not here: what they do (their own tests).

use std::sync::Arc;

use skinflint_cache::store::Cache;

#[global_allocator]
static HEAP: skinflint_alloc::Skinflint = skinflint_alloc::Skinflint;

fn main() {
    let documents: Arc<Cache<u32, Arc<String>>> =
        Cache::named("documents").limit_bytes(1 << 20).build();
    let document = documents.get_or_make(7, |id| Arc::new(format!("document {id}")));
    let registry = skinflint_reporters::global();
    let seen = document.len();
    registry
        .add(
            "documents",
            move |out: &mut skinflint_reporters::Sink<'_>| {
                out.heap("explicit/documents", seen, "Documents.");
            },
        )
        .keep();
    let _ = std::any::type_name::<skinflint_gc::Config>();
    println!("{document}");
}
