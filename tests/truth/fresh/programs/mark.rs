//! Marks from Rust: the recorder's function, if there is a recorder.

use std::ffi::{c_char, c_void, CString};

extern "C" {
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

pub fn mark(name: &str) {
    let name = CString::new(name).unwrap();
    // SAFETY: null is RTLD_DEFAULT; a function of that name takes a text that ends in a zero and keeps nothing of it.
    unsafe {
        let function = dlsym(std::ptr::null_mut(), b"skinflint_mark\0".as_ptr().cast());
        if !function.is_null() {
            let function: extern "C" fn(*const c_char) = std::mem::transmute(function);
            function(name.as_ptr());
        }
    }
}

pub struct Seeded(pub u64);

impl Seeded {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 24) as usize % n
    }
}
