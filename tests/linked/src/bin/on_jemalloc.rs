//! A program on jemalloc: what lives is `stats.allocated`, and the regions and large extents of all its classes. Without caches
//! of threads, since those are blocks of jemalloc's own that are counted there, too.

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

/// The classes of one kind, over all arenas: their number, and the figure of one of them.
fn sum(number: &CStr, figure: &CStr) -> u64 {
    const CLASS: usize = 4;
    let (mut count, mut size) = (0u32, size_of::<u32>());
    let (mut at, mut depth) = ([0usize; 6], 6);
    // SAFETY: a figure of 32 bits, into one; the place of a name of six parts, into six words.
    let failed = unsafe {
        let none = core::ptr::null_mut();
        let into = (&raw mut count).cast::<c_void>();
        tikv_jemalloc_sys::mallctl(number.as_ptr(), into, &mut size, none, 0)
            | tikv_jemalloc_sys::mallctlnametomib(figure.as_ptr(), at.as_mut_ptr(), &mut depth)
    };
    assert_eq!((failed, depth), (0, 6));
    let mut sum = 0;
    for class in 0..count as usize {
        at[CLASS] = class;
        let (mut value, mut size) = (0usize, size_of::<usize>());
        // SAFETY: a figure of a word's size, into a word; the place is of six words.
        let failed = unsafe {
            let into = (&raw mut value).cast::<c_void>();
            let none = core::ptr::null_mut();
            tikv_jemalloc_sys::mallctlbymib(at.as_ptr(), depth, into, &mut size, none, 0)
        };
        assert_eq!(failed, 0);
        sum += value as u64;
    }
    sum
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
    // 4096 stands for all arenas (MALLCTL_ARENAS_ALL).
    let blocks = sum(c"arenas.nbins", c"stats.arenas.4096.bins.0.curregs")
        + sum(
            c"arenas.nlextents",
            c"stats.arenas.4096.lextents.0.curlextents",
        );
    std::mem::forget(kept);
    linked::end(blocks, bytes)
}
