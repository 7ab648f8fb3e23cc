//! A program on mimalloc: what lives is counted by mimalloc's walk over its blocks.

use core::ffi::c_void;

#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Visit =
    unsafe extern "C" fn(*const c_void, *const c_void, *mut c_void, usize, *mut c_void) -> bool;

unsafe extern "C" {
    fn mi_heap_main() -> *mut c_void;
    fn mi_heap_visit_blocks(heap: *mut c_void, all: bool, visit: Visit, sum: *mut c_void) -> bool;
}

unsafe extern "C" fn visit(
    _heap: *const c_void,
    _area: *const c_void,
    block: *mut c_void,
    bytes: usize,
    sum: *mut c_void,
) -> bool {
    if !block.is_null() {
        // SAFETY: what `main` passes.
        let sum = unsafe { &mut *sum.cast::<[u64; 2]>() };
        sum[0] += 1;
        sum[1] += bytes as u64;
    }
    true
}

fn main() {
    let kept = linked::work();
    let mut sum = [0u64; 2];
    // SAFETY: the visitor adds to `sum`, and neither acquires nor releases.
    let all = unsafe { mi_heap_visit_blocks(mi_heap_main(), true, visit, (&raw mut sum).cast()) };
    assert!(all);
    std::mem::forget(kept);
    linked::end(sum[0], sum[1])
}
