//! From bytes to trees and a difference: files of about:memory, packed or not.
//!
//! What must hold: nothing panics, an error names a byte, and a difference with itself is nothing. The stable toolchain
//! plays the same steps on seeded damage (ground/reporters/tests/files.rs).
//!
//! Not here: traces (report.rs).
#![no_main]

use libfuzzer_sys::fuzz_target;
use skinflint_reporters::diff::{Diff, Side};
use skinflint_reporters::file;
use skinflint_reporters::tree::Builder;

fuzz_target!(|bytes: &[u8]| {
    let mut builder = Builder::new();
    let read = file::read(bytes, |entry, presence| builder.add(entry, presence));
    drop(builder.finish());
    if let Err(error) = read {
        assert!(error.to_string().contains("at byte "));
        return;
    }
    let mut diff = Diff::new();
    for side in [Side::First, Side::Second] {
        let again = file::read(bytes, |entry, _| diff.add(side, entry));
        assert!(again.is_ok());
    }
    diff.each(|entry, _| panic!("{} differs from itself", entry.path));
});
