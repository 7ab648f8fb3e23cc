//! Damaged, cut and wrong scripts, and wrong arguments: a sentence, status 2, never a signal.

use std::process::Command;

use skinflint_replay::script::Op;

use crate::made::{Run, Script, play};

fn sample() -> Vec<u8> {
    Script::new(2)
        .epoch(&[
            (
                0,
                &[
                    Op::Start { thread: 1 },
                    Op::Malloc { slot: 0, size: 100 },
                    Op::Free { slot: 0 },
                ],
            ),
            (1, &[Op::Malloc { slot: 1, size: 70 }]),
        ])
        .epoch(&[(1, &[Op::Free { slot: 1 }])])
        .bytes()
}

fn is_refused(run: &Run) -> bool {
    run.status == Some(2) && run.said.contains("at byte") && run.end()["line"] == "error"
}

#[test]
fn a_script_cut_anywhere_is_refused() {
    let whole = sample();
    assert!(play(&whole, &[], &[]).is_clean());
    for len in (0..whole.len()).step_by(3).chain([whole.len() - 1]) {
        let run = play(&whole[..len], &[], &[]);
        assert!(
            is_refused(&run),
            "cut at {len}: {:?} {}",
            run.status,
            run.said
        );
    }
}

#[test]
fn a_script_damaged_anywhere_is_refused() {
    let whole = sample();
    for at in (0..whole.len()).step_by(5) {
        let mut bad = whole.clone();
        bad[at] ^= 0x10;
        let run = play(&bad, &[], &[]);
        assert!(
            is_refused(&run),
            "damaged at {at}: {:?} {}",
            run.status,
            run.said
        );
    }
}

#[test]
fn what_is_no_script_is_named() {
    let trace = [b"\x89SFT\r\n\x1a\n".as_slice(), &[0; 200]].concat();
    assert!(play(&trace, &[], &[]).said.contains("this is a trace"));
    assert!(play(&[b'x'; 300], &[], &[]).said.contains("not a script"));
    assert!(play(b"", &[], &[]).said.contains("ends within the header"));
}

#[test]
fn wrong_operations_are_named_with_their_byte() {
    let start = |thread| Script::new(1).epoch(&[(0, &[Op::Start { thread }])]);
    for (script, what) in [
        (start(1), "a thread is started that there is not"),
        (start(0), "a thread is started twice"),
        (
            Script::new(1).epoch(&[(0, &[Op::End, Op::Free { slot: 0 }])]),
            "a thread goes on after its end",
        ),
        (
            Script::new(1).epoch(&[(0, &[]), (0, &[])]),
            "a thread has two chunks in one epoch",
        ),
    ] {
        let run = script.played(&[]);
        assert!(
            is_refused(&run) && run.said.contains(what),
            "{what}: {:?} {}",
            run.status,
            run.said
        );
    }
}

#[test]
fn live_bytes_that_do_not_agree_are_refused() {
    // The last epoch counts on the block, the operations free it: it is the script of another order.
    let good = Script::new(1)
        .epoch(&[(0, &[Op::Malloc { slot: 0, size: 10 }, Op::Free { slot: 0 }])])
        .bytes();
    let other = Script::new(1)
        .epoch(&[(
            0,
            &[
                Op::Malloc { slot: 0, size: 10 },
                Op::Malloc { slot: 1, size: 5 },
            ],
        )])
        .bytes();
    let last = good.len() - 64;
    let mixed = [&good[..last], &other[other.len() - 64..]].concat();
    let run = play(&mixed, &[], &[]);
    assert_eq!(run.status, Some(2));
    assert!(
        run.said
            .contains("live bytes are other than the script says"),
        "{}",
        run.said
    );
}

#[test]
fn wrong_words_are_named() {
    for (words, what) in [
        (&[][..], "which script?"),
        (&["x.sfp"], "--report FILE is missing"),
        (&["x.sfp", "--report"], "a value is missing after --report"),
        (
            &["x.sfp", "--paced", "0", "--report", "-"],
            "--paced takes a number from 0.001",
        ),
        (
            &["x.sfp", "--idle", "1e3", "--report", "-"],
            "--idle takes seconds",
        ),
        (&["x.sfp", "--idel", "1"], "no such option: --idel"),
        (&["x.sfp", "y.sfp"], "not also y.sfp"),
        (
            &["x.sfp", "--null", "--check", "--report", "-"],
            "nothing to check with --null",
        ),
        (&["/nonexistent/x.sfp", "--report", "-"], "No such file"),
        (
            &["x.sfp", "--report", "/nonexistent/report"],
            "No such file",
        ),
    ] {
        let run = Command::new(env!("CARGO_BIN_EXE_skinflint-replay"))
            .args(words)
            .output()
            .expect("it starts");
        let said = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains(what), "{words:?}: {said}");
    }
}

#[test]
fn a_limited_address_space_has_a_smaller_table_or_a_sentence() {
    let player = env!("CARGO_BIN_EXE_skinflint-replay");
    let script = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(script.path(), sample()).expect("written");
    for (limit_kb, status) in [(2_000_000, 0), (100_000, 2)] {
        let line = format!(
            "ulimit -v {limit_kb}; exec {player} {} --report -",
            script.path().display()
        );
        let run = Command::new("sh")
            .args(["-c", &line])
            .output()
            .expect("a shell");
        let said = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.code(), Some(status), "{limit_kb}: {said}");
        assert_eq!(said.contains("no address space"), status == 2, "{said}");
    }
}
