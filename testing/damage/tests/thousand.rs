//! Reads a thousand damaged traces, and what the fuzzer has found worth keeping: none causes a panic or a hang.
//!
//! Not here: real recordings (the command line's tests), the fuzzer itself (fuzz/).

use std::path::Path;
use std::time::Duration;

use skinflint_damage::reading::{Outcome, whole};
use skinflint_damage::{breaking, made};

/// No made-up trace takes a tenth of this, in a debug build beside other work.
const PATIENCE: Duration = Duration::from_secs(60);

fn in_time(bytes: &[u8], what: &str) -> Outcome {
    let (done, is_done) = std::sync::mpsc::channel();
    let bytes = bytes.to_vec();
    // A reading that does not end is left behind.
    std::thread::spawn(move || done.send(whole(&bytes)));
    let outcome = is_done.recv_timeout(PATIENCE);
    outcome.unwrap_or_else(|_| panic!("{what}: too long, or a panic"))
}

#[test]
fn a_whole_trace_is_whole() {
    for seed in 0..4 {
        let bytes = made::trace(seed, 1200);
        for bytes in [breaking::unpack(&bytes), bytes] {
            match whole(&bytes) {
                Outcome::Read { events, lost, said } => {
                    assert!((1200..1210).contains(&events), "{events} events");
                    assert_eq!((lost, said), (0, 0));
                }
                Outcome::Refused(message) => panic!("refused: {message}"),
            }
        }
    }
}

#[test]
fn a_thousand_damaged_traces() {
    let (one, other) = (made::trace(1, 1200), made::trace(2, 1500));
    let (mut read, mut refused, mut unharmed) = (0, 0, 0);
    for seed in 0..1000 {
        let (bytes, blows) = breaking::damaged(&one, &other, seed);
        match in_time(&bytes, &format!("seed {seed}: {blows}")) {
            Outcome::Refused(message) => {
                assert!(!message.is_empty());
                refused += 1;
            }
            Outcome::Read {
                lost: 0, said: 0, ..
            } => unharmed += 1,
            Outcome::Read { .. } => read += 1,
        }
    }
    // Damage that is never noticed would be as strange as damage that always prevents reading.
    println!("{read} read past the damage, {refused} refused, {unharmed} with nothing to say");
    assert!(read > 500 && refused > 0 && unharmed > 0);
}

/// Tests the fuzzer's corpus: each file reaches code that no other does.
#[test]
fn the_fuzzers_corpus() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/report");
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    assert!(files.len() >= 20, "only {} in the corpus", files.len());
    for file in files {
        let mut bytes = std::fs::read(&file).expect("a file of the corpus");
        let name = file.display().to_string();
        in_time(&bytes, &name);
        breaking::repair(&mut bytes);
        in_time(&bytes, &name);
    }
}
