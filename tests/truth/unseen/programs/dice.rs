//! Numbers that look random and are the same in every run (splitmix64); marks, if there is a recorder.

use std::ffi::{c_char, c_int, c_void, CString};

extern "C" {
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn malloc_trim(keep_bytes: usize) -> c_int;
}

pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, faces: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 32) % faces
    }
}

#[allow(dead_code)]
pub fn mark(name: &str) {
    let text = CString::new(name).expect("a name without zeros");
    // SAFETY: null means every loaded object; what is found takes a text that ends in a zero and copies it.
    unsafe {
        let found = dlsym(std::ptr::null_mut(), b"skinflint_mark\0".as_ptr().cast());
        if !found.is_null() {
            std::mem::transmute::<*mut c_void, extern "C" fn(*const c_char)>(found)(text.as_ptr());
        }
    }
}

#[allow(dead_code)]
pub fn trim() {
    // SAFETY: may be called at any time.
    unsafe { malloc_trim(0) };
}
