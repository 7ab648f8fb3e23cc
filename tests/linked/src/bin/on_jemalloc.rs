//! A program on jemalloc: what lives is `stats.allocated`. Without caches of threads, since those are blocks of jemalloc's
//! own that are counted there, too.

use core::ffi::{CStr, c_void};

#[global_allocator]
static GLOBAL: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// A pointer to options, as jemalloc reads it.
#[repr(transparent)]
pub struct Options(*const core::ffi::c_char);
// SAFETY: it leads to a constant.
unsafe impl Sync for Options {}

#[unsafe(export_name = "_rjem_malloc_conf")]
pub static OPTIONS: Options = Options(c"tcache:false".as_ptr());

fn read(name: &CStr) -> u64 {
    let (mut value, mut size) = (0usize, size_of::<usize>());
    // SAFETY: a figure of a word's size, into a word.
    let failed = unsafe {
        let into = (&raw mut value).cast::<c_void>();
        let none = core::ptr::null_mut();
        tikv_jemalloc_sys::mallctl(name.as_ptr(), into, &mut size, none, 0)
    };
    assert_eq!(failed, 0);
    value as u64
}

fn main() {
    let kept = linked::work();
    // SAFETY: takes new figures.
    unsafe {
        let none = core::ptr::null_mut::<c_void>();
        let mut epoch = 1u64;
        let now = (&raw mut epoch).cast();
        assert_eq!(
            tikv_jemalloc_sys::mallctl(c"epoch".as_ptr(), none, none.cast(), now, 8),
            0
        );
    }
    let bytes = read(c"stats.allocated");
    std::mem::forget(kept);
    linked::end(None, bytes)
}
