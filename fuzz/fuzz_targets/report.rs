//! From bytes to a whole report. The checksums of what the fuzzer makes are put right first, or it
//! would never get past them; what they catch themselves has tests of its own.
//!
//! Not here: what must hold (testing/damage/src/reading.rs).
#![no_main]

use libfuzzer_sys::fuzz_target;
use skinflint_damage::{breaking, reading};

fuzz_target!(|bytes: &[u8]| {
    let mut bytes = bytes.to_vec();
    breaking::repair(&mut bytes);
    reading::whole(&bytes);
});
