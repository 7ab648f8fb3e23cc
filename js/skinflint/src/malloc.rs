//! `skinflint-js`: our heap on our allocator.

use std::process::ExitCode;

use skinflint_alloc::Skinflint;
use skinflint_js_host::Arena;
use skinflint_js_host::counted::Counted;

#[global_allocator]
static MALLOC: Counted<Skinflint> = Counted(Skinflint);

fn main() -> ExitCode {
    // SAFETY: the environment that libc has; there are no other threads yet.
    unsafe { skinflint_alloc::options::begin(skinflint_js_host::environment()) };
    skinflint_js_host::main(skinflint_js_host::Build {
        malloc: "skinflint",
        sees_pauses: true,
        allocator: Some(figures),
        arena: Some(arena),
    })
}

/// A heap of the allocator's for a tab.
struct TabArena(skinflint_alloc::PrivateHeap);

impl Arena for TabArena {
    fn within(&self, work: &mut dyn FnMut()) {
        self.0.within(work);
    }
}

fn arena() -> Option<Box<dyn Arena>> {
    Some(Box::new(TabArena(skinflint_alloc::PrivateHeap::new()?)))
}

/// The allocator's figures, those that are resident included.
fn figures() -> String {
    let mut snapshot = Box::new(skinflint_alloc::stats::Snapshot::new());
    let mut text = Vec::new();
    if skinflint_alloc::stats::snapshot(&mut snapshot, true) {
        skinflint_alloc::write_json(&snapshot, |part| text.extend_from_slice(part));
    }
    String::from_utf8_lossy(&text).into_owned()
}
