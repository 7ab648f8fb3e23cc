//! The checks that are off by default, each in a process of its own that switches them on.
//!
//! ```text
//!   this test ─► itself, as a child: SKINFLINT_HARDEN=… ─► a role: blocks, and perhaps a fault ─► how it ends, what it says
//! ```
//!
//! D1  A role that does nothing wrong ends well, and nothing is printed.
//! D2  A fault is reported in one line or in a story, with the place; then the process ends in the way that was chosen.
//! D3  A child is like a program that was started with these variables: the default action for faults, one thread,
//!     no block.
//!
//! Not here: C programs on the real library (`faces/cli/tests/harden`), trailers by themselves (`harden::trailer`).

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

use std::sync::Mutex;

use skinflint_alloc::{check, free, malloc, memalign, options, realloc, usable_size};

const ROLE: &str = "SKINFLINT_TEST_ROLE";
const PAGE: usize = 4_096;
const LARGE: usize = 400_000;

const DOUBLE: &str = "skinflint: free of a block that is free already: 0x";
const OVERRUN: &str = "skinflint: bytes around a block were overwritten: 0x";
const WRITTEN: &str = "skinflint: a block was written to after it was freed: 0x";
const WENT_ON: &str = "went on";
const OWN_END: i32 = 77;

/// How a child ended.
struct Done {
    status: ExitStatus,
    /// All lines from the first one of ours on.
    said: Vec<String>,
    /// Whether it came to the end of its role.
    went_on: bool,
}

/// Has a role played with these options, without their prefix.
fn played(role: &str, options: &[&str]) -> Done {
    let itself = std::env::current_exe().expect("this test");
    let mut command = Command::new(itself);
    command
        .args(["--exact", "role", "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .env("RUST_BACKTRACE", "0");
    for option in options {
        let (name, value) = option.split_once('=').expect("NAME=value");
        command.env(format!("SKINFLINT_{name}"), value);
    }
    let output = command.output().expect("runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    let lines = stderr.lines().map(str::to_owned);
    Done {
        status: output.status,
        said: lines
            .skip_while(|line| !line.starts_with("skinflint: "))
            .collect(),
        went_on: String::from_utf8_lossy(&output.stdout).contains(WENT_ON),
    }
}

/// Nothing was wrong (D1).
#[track_caller]
fn sound(role: &str, options: &[&str]) {
    let done = played(role, options);
    assert_eq!(done.said, [""; 0], "{role} with {options:?}");
    assert!(
        done.status.success() && done.went_on,
        "{role} with {options:?}"
    );
}

/// Ended by a signal, or went on, after this was said first (D2); with further texts anywhere.
#[track_caller]
fn told(role: &str, options: &[&str], signal: Option<i32>, first: &str, texts: &[&str]) -> Done {
    let done = played(role, options);
    let said = done.said.join("\n");
    assert!(said.starts_with(first), "{role} with {options:?}: {said}");
    for text in texts {
        assert!(
            said.contains(text),
            "{role} with {options:?}, {text}: {said}"
        );
    }
    assert_eq!(
        done.status.signal(),
        signal,
        "{role} with {options:?}: {said}"
    );
    assert_eq!(
        done.went_on,
        signal.is_none(),
        "{role} with {options:?}: {said}"
    );
    done
}

unsafe extern "C" {
    static environ: *const *const libc::c_char;
}

/// What a child does.
#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    // D3: Rust has a handler of its own for overflows of stacks.
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: zeroes are the default action, whose flags stand for nothing.
        unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            action.sa_flags = libc::SA_RESETHAND;
            libc::sigaction(signal, &action, core::ptr::null_mut());
        }
    }
    before_the_checks(&role);
    // SAFETY: the environment stays; no thread has used the allocator before.
    unsafe { options::begin(environ.cast()) };
    // A thread of few frames, so that its stacks are kept to their end.
    std::thread::spawn(move || play(&role))
        .join()
        .expect("played");
    println!("{WENT_ON}");
}

fn play(role: &str) {
    let (name, argument) = role.split_once(' ').unwrap_or((role, "0"));
    let argument: usize = argument.parse().expect("a number");
    // SAFETY: what is done wrong is what is tested; the process ends by it, or goes on as it was chosen.
    unsafe {
        match name {
            "sizes" => sizes(argument != 0),
            "none" => (),
            "rare" => rare(),
            "early" => early(),
            "own_handler" => {
                let mut action: libc::sigaction = core::mem::zeroed();
                libc::sigaction(libc::SIGSEGV, core::ptr::null(), &mut action);
                let flags = libc::SA_NODEFER | libc::SA_SIGINFO | libc::SA_ONSTACK;
                assert_eq!(
                    action.sa_flags & flags,
                    flags,
                    "theirs, and what ours needs"
                );
                let block = malloc(argument);
                let before = (block as usize & !(PAGE - 1)) - 1;
                (before as *mut u8).read_volatile();
            }
            "read_before_twice" => {
                for _ in 0..2 {
                    let block = malloc(argument);
                    let before = (block as usize & !(PAGE - 1)) - 1;
                    (before as *mut u8).read_volatile();
                }
            }
            "write_behind_one_of_many" => {
                (0..200).for_each(|_| free(malloc(argument)));
                let block = malloc(argument);
                let behind = (block as usize + argument).next_multiple_of(PAGE);
                (behind as *mut u8).write_volatile(1);
            }
            "samples" => samples(),
            "write_behind" => {
                let block = malloc(argument);
                block.add(argument).write_volatile(1);
                free(block);
            }
            "write_at_the_page_behind" => {
                let block = malloc(argument);
                let behind = (block as usize + argument).next_multiple_of(PAGE);
                (behind as *mut u8).write_volatile(1);
            }
            "read_before" => {
                let block = malloc(argument);
                let before = (block as usize & !(PAGE - 1)) - 1;
                (before as *mut u8).read_volatile();
            }
            "read_late" => {
                let block = malloc(argument);
                free(block);
                block.add(5).read_volatile();
            }
            "write_late" => {
                let block = malloc(argument);
                free(block);
                block.add(8).write_volatile(1);
                drop_all((0..100).map(|_| malloc(argument)).collect());
            }
            "write_late_behind" => {
                // Behind what is filled: the trailer of a block that waits.
                let block = malloc(40);
                free(block);
                block.add(47).write_volatile(1);
                drop_all((0..100).map(|_| malloc(40)).collect());
            }
            "resize_freed" => {
                let block = malloc(argument);
                // What was hardly touched is not kept: then there is no block at the address.
                block.write_bytes(1, argument);
                free(block);
                went_nowhere(realloc(block, argument - 5));
            }
            "resize_freed_elsewhere" => {
                let block = malloc(argument) as usize;
                std::thread::spawn(move || free(block as *mut u8))
                    .join()
                    .expect("freed");
                went_nowhere(realloc(block as *mut u8, argument - 5));
            }
            "resize_inside" => {
                let block = malloc(argument);
                went_nowhere(realloc(block.add(16), argument - 20));
                block.write_bytes(1, argument);
                free(block);
            }
            "free_twice" => {
                let block = malloc(argument);
                block.write_bytes(1, argument);
                free(block);
                free(block);
            }
            other => panic!("no role {other}"),
        }
    }
}

/// Blocks of before the checks, those that stay: address, bytes, and the byte that they are filled with.
static EARLY: Mutex<Vec<(usize, usize, u8)>> = Mutex::new(Vec::new());

/// A program's own handler, by which it ends in a way of its own.
extern "C" fn own_handler(_: i32) {
    // SAFETY: it ends the process.
    unsafe { libc::_exit(OWN_END) };
}

/// What was done before the options were read.
fn before_the_checks(role: &str) {
    if role.starts_with("own_handler") {
        // SAFETY: a handler of this signature.
        unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            action.sa_sigaction = own_handler as extern "C" fn(i32) as usize;
            action.sa_flags = libc::SA_NODEFER;
            libc::sigaction(libc::SIGSEGV, &action, core::ptr::null_mut());
        }
    }
    let count = match role {
        "early" => 2_000,
        "early 1" => 40_000,
        _ => return,
    };
    for i in 0..count {
        let (n, byte) = (1 + i * 7 % 90, i as u8 | 1);
        // SAFETY: written within its size; freed here, or later.
        unsafe {
            let block = malloc(n);
            block.write_bytes(byte, usable_size(block));
            if i % 2 == 0 {
                free(block);
            } else {
                EARLY
                    .lock()
                    .expect("one thread")
                    .push((block as usize, n, byte));
            }
        }
    }
}

/// Blocks of before the checks are taken as they come: their bytes stay, and what is freed is as any other.
unsafe fn early() {
    let early = core::mem::take(&mut *EARLY.lock().expect("one thread"));
    let mut live: Vec<_> = (0..500).map(|n| (n, 0)).collect();
    for (n, block) in &mut live {
        // SAFETY: written within its size.
        unsafe {
            *block = malloc(*n) as usize;
            (*block as *mut u8).write_bytes(9, *n);
        }
    }
    for (block, n, byte) in early {
        let block = block as *mut u8;
        // SAFETY: a live block.
        unsafe {
            assert!(usable_size(block) >= n);
            let all = 0..usable_size(block);
            assert!({ all }.all(|i| block.add(i).read() == byte), "{n} bytes");
            free(block);
        }
    }
    for (n, block) in live {
        let block = block as *mut u8;
        // SAFETY: a live block.
        unsafe {
            assert!((0..n).all(|i| block.add(i).read() == 9));
            free(block);
        }
    }
    check::check_invariants(3).expect("whole");
}

/// A realloc that was refused gives nothing, and says so.
fn went_nowhere(block: *mut u8) {
    let errno = std::io::Error::last_os_error().raw_os_error();
    assert_eq!((block, errno), (core::ptr::null_mut(), Some(libc::ENOMEM)));
}

unsafe fn drop_all(blocks: Vec<*mut u8>) {
    // SAFETY: live blocks.
    blocks.into_iter().for_each(|block| unsafe { free(block) });
}

/// Sizes that are what they were asked for, to the byte, those of large blocks only if they are guarded; contents stay.
unsafe fn sizes(guarded: bool) {
    let sizes = [
        1, 1, 1, 2, 8, 9, 15, 16, 17, 39, 40, 41, 255, 4_000, 32_750, 32_768, 32_769, 70_000,
    ];
    let make = |round: usize, n: usize| {
        // SAFETY: written within its size.
        unsafe {
            let block = match round % 3 {
                0 => malloc(n),
                1 => memalign(64, n),
                _ => realloc(malloc(n / 2 + 1), n),
            };
            let usable = usable_size(block);
            let exact = guarded || n + 8 <= 32_768;
            assert!(
                usable == n || usable > n && !exact,
                "round {round}: {n}, {usable}"
            );
            assert_eq!(block as usize % 16, 0);
            block.write_bytes(n as u8, n);
            (block, n)
        }
    };
    let mut blocks = Vec::new();
    for round in 0..9 {
        blocks.extend(sizes.map(|n| make(round, n)));
        // Every other goes at once, and leaves room for the next round.
        let (gone, stay): (Vec<_>, Vec<_>) = (0..).zip(blocks).partition(|(i, _)| i % 2 == 0);
        blocks = stay.into_iter().map(|(_, block)| block).collect();
        for (_, (block, n)) in gone {
            // SAFETY: a live block of this many bytes.
            unsafe {
                assert!((0..n).all(|i| block.add(i).read() == n as u8), "{n}");
                free(block);
            }
        }
    }
    check::check_invariants(3).expect("with blocks");
    for (block, n) in blocks {
        // SAFETY: as above.
        unsafe {
            assert!((0..n).all(|i| block.add(i).read() == n as u8), "{n}");
            free(block);
        }
    }
    check::check_invariants(3).expect("without");
}

/// So few of many blocks are samples that none of these is: they lie side by side.
unsafe fn rare() {
    // SAFETY: freed below.
    let blocks: Vec<_> = (0..60).map(|_| unsafe { malloc(48) }).collect();
    let pages: std::collections::BTreeSet<_> =
        blocks.iter().map(|&block| block as usize / PAGE).collect();
    assert!(pages.len() <= 2, "{pages:?}");
    // SAFETY: live blocks.
    unsafe { drop_all(blocks) };
}

/// Each block stands alone, by turns at the end and at the beginning of its pages, aligned as asked.
unsafe fn samples() {
    let mut blocks = Vec::new();
    for (at, (align, n)) in [
        (16, 1),
        (16, 1),
        (16, 100),
        (16, 100),
        (64, 100),
        (64, 100),
        (4_096, 5_000),
        (16, 32_768),
    ]
    .into_iter()
    .enumerate()
    {
        // SAFETY: written within its size.
        unsafe {
            let block = memalign(align, n);
            assert_eq!(block as usize % align, 0, "{n} bytes at {align}");
            assert_eq!(usable_size(block), n);
            block.write_bytes(7, n);
            let end = block as usize + n;
            let room = match at % 2 {
                0 => end.next_multiple_of(PAGE) - end,
                _ => block as usize % PAGE,
            };
            assert!(room < align, "{n} bytes at {align}: {room} bytes of room");
            blocks.push(block);
        }
    }
    let pages: std::collections::BTreeSet<_> =
        blocks.iter().map(|&block| block as usize / PAGE).collect();
    assert_eq!(pages.len(), blocks.len());
    // SAFETY: live blocks.
    unsafe { drop_all(blocks) };
}

#[test]
fn sizes_are_exact_and_nothing_is_said_of_what_is_right() {
    for (checks, guarded) in [
        ("canary", 0),
        ("quarantine", 0),
        ("canary,zero,guard", 1),
        ("4", 1),
    ] {
        let options = [&format!("HARDEN={checks}"), "SAMPLE_EVERY=3"];
        sound(&format!("sizes {guarded}"), &options);
    }
    // Where few bytes may wait, others leave as they come.
    sound("sizes 0", &["HARDEN=quarantine", "QUARANTINE_BYTES=1K"]);
    sound("sizes 1", &["HARDEN=4", "QUARANTINE_BYTES=200K"]);
    sound("none", &["HARDEN=4"]);
}

#[test]
fn blocks_from_before_the_checks_are_taken_as_they_come() {
    for checks in ["canary", "zero", "poison", "quarantine", "4"] {
        sound(
            "early",
            &[&format!("HARDEN={checks}"), "QUARANTINE_BYTES=1K"],
        );
    }
    // Of so many no note is taken: what needs one is off, and the rest holds.
    let first = "skinflint: too late for canary and quarantine: blocks are in use";
    let done = told(
        "early 1",
        &["HARDEN=canary,quarantine,zero"],
        None,
        first,
        &[],
    );
    assert_eq!(done.said.len(), 1, "{:?}", done.said);
}

#[test]
fn a_value_that_is_none_is_told_and_the_default_holds() {
    let first = "skinflint: SKINFLINT_HARDEN=canari: not ";
    let done = told(
        "write_behind 40",
        &["HARDEN=canari"],
        None,
        first,
        &["; taken as 0"],
    );
    assert_eq!(done.said.len(), 1, "{:?}", done.said);
    let huge = "skinflint: SKINFLINT_SAMPLE_EVERY=0: not ";
    told(
        "rare",
        &["HARDEN=1", "SAMPLE_EVERY=0"],
        None,
        huge,
        &["; taken as 5000"],
    );
}

#[test]
fn a_byte_behind_a_block_is_told_when_it_is_freed() {
    let abort = Some(libc::SIGABRT);
    told(
        "write_behind 33",
        &["HARDEN=canary"],
        abort,
        OVERRUN,
        &[", of 33 bytes, at byte 33 "],
    );
    told(
        "write_behind 40",
        &["HARDEN=canary"],
        abort,
        OVERRUN,
        &[", at byte 40 "],
    );
    // Not so many bytes that the guard behind it is met.
    let at = [", of 400001 bytes, at byte 400001 "];
    told(
        "write_behind 400001",
        &["HARDEN=guard"],
        abort,
        OVERRUN,
        &at,
    );
    told(
        "write_behind 400001",
        &["HARDEN=guard", "BAD_FREE=warn"],
        None,
        OVERRUN,
        &at,
    );
    // 100 bytes that lie at the right have twelve of room.
    let sampled = ["HARDEN=sample", "SAMPLE_EVERY=1"];
    told(
        "write_behind 100",
        &sampled,
        abort,
        OVERRUN,
        &["\n  allocated by thread ", "\n  freed by thread "],
    );
    sound("write_behind 33", &["HARDEN=zero"]);
}

#[test]
fn a_late_write_is_told_with_its_place() {
    let abort = Some(libc::SIGABRT);
    told(
        "write_late 40",
        &["HARDEN=poison"],
        abort,
        WRITTEN,
        &[", byte 8 of 48 "],
    );
    let small = ["HARDEN=quarantine", "QUARANTINE_BYTES=1K"];
    told(
        "write_late 40",
        &small,
        abort,
        WRITTEN,
        &[", byte 8 of 48 "],
    );
    told(
        "write_late_behind",
        &small,
        abort,
        WRITTEN,
        &[", behind byte 40 "],
    );
    sound("write_late 40", &["HARDEN=zero"]);
}

#[test]
fn a_second_free_is_told_though_the_block_waits() {
    let abort = Some(libc::SIGABRT);
    for n in [40, LARGE] {
        let role = format!("free_twice {n}");
        told(&role, &["HARDEN=quarantine"], abort, DOUBLE, &[]);
        told(&role, &["HARDEN=4", "BAD_FREE=warn"], None, DOUBLE, &[]);
    }
    let sampled = ["HARDEN=sample", "SAMPLE_EVERY=1"];
    told(
        "free_twice 40",
        &sampled,
        abort,
        DOUBLE,
        &["\n  freed by thread "],
    );
}

#[test]
fn both_sides_of_a_large_block_are_guarded() {
    let fault = Some(libc::SIGSEGV);
    let (behind, before) = (
        format!("write_at_the_page_behind {LARGE}"),
        format!("read_before {LARGE}"),
    );
    let first = "skinflint: access behind the end of a block: write to 0x";
    let place = ["\n  0 bytes behind the end of a block of 400000 bytes at 0x"];
    told(&behind, &["HARDEN=guard"], fault, first, &place);
    told(
        &behind,
        &["HARDEN=guard", "BAD_FREE=warn"],
        None,
        first,
        &place,
    );
    let first = "skinflint: access before the start of a block: read of 0x";
    told(
        &before,
        &["HARDEN=2"],
        fault,
        first,
        &[" bytes before a block of 400000 bytes at 0x"],
    );
    told(&before, &["HARDEN=2", "BAD_FREE=warn"], None, first, &[]);
    sound(&before, &["HARDEN=guard", "BAD_FREE=ignore"]);
    // Each time: of what was before ours no flag is left.
    let twice = format!("read_before_twice {LARGE}");
    let done = told(&twice, &["HARDEN=2", "BAD_FREE=warn"], None, first, &[]);
    let stories = done.said.iter().filter(|line| line.starts_with(first));
    assert_eq!(stories.count(), 2, "{:?}", done.said);
    // A large block in quarantine has no pages.
    let first = "skinflint: use after free: read of 0x";
    let late = format!("read_late {LARGE}");
    let place = ["\n  5 bytes into a block of 400000 bytes at 0x"];
    told(&late, &["HARDEN=guard,quarantine"], fault, first, &place);
    told(&late, &["HARDEN=quarantine"], fault, first, &[]);
    told(
        &late,
        &["HARDEN=quarantine", "BAD_FREE=warn"],
        None,
        first,
        &[],
    );
}

/// After the story the program's own handler is called, as it was installed.
#[test]
fn a_handler_of_before_is_called_after_the_story() {
    let done = played(&format!("own_handler {LARGE}"), &["HARDEN=guard"]);
    let first = "skinflint: access before the start of a block: read of 0x";
    let told = done
        .said
        .first()
        .is_some_and(|line| line.starts_with(first));
    assert!(told, "{:?}", done.said);
    assert_eq!(done.status.code(), Some(OWN_END), "{:?}", done.said);
}

#[test]
fn a_sampled_block_is_guarded_and_tells_whose_it_is() {
    let fault = Some(libc::SIGSEGV);
    let every = ["HARDEN=sample", "SAMPLE_EVERY=1"];
    let on = ["HARDEN=sample", "SAMPLE_EVERY=1", "BAD_FREE=warn"];
    sound("samples", &every);
    sound("rare", &["HARDEN=sample", "SAMPLE_EVERY=1000000000"]);
    let first = "skinflint: access behind the end of a block: write to 0x";
    let place = ["\n  0 bytes behind the end of a block of 96 bytes at 0x"];
    let done = told("write_at_the_page_behind 96", &every, fault, first, &place);
    let freed = |done: &Done| done.said.iter().any(|line| line.contains("freed by"));
    assert!(!freed(&done), "{:?}", done.said);
    // Nor of the one that had the place before.
    let done = told("write_behind_one_of_many 96", &every, fault, first, &place);
    assert!(!freed(&done), "{:?}", done.said);
    told("write_at_the_page_behind 96", &on, None, first, &place);
    let first = "skinflint: use after free: read of 0x";
    let place = [
        "\n  5 bytes into a block of 96 bytes at 0x",
        "\n  freed by thread ",
    ];
    told("read_late 96", &every, fault, first, &place);
    told("read_late 96", &on, None, first, &place);
}

/// Every frame of a stack is named by the module that it is in: this program, and the C library, which began the thread.
#[test]
fn frames_are_named_by_their_modules() {
    let every = ["HARDEN=sample", "SAMPLE_EVERY=1"];
    let first = "skinflint: use after free: ";
    let done = told("read_late 96", &every, Some(libc::SIGSEGV), first, &[]);
    for who in ["  allocated by thread ", "  freed by thread "] {
        let line = done.said.iter().find_map(|line| line.strip_prefix(who));
        let thread = line.expect("a line of its own");
        assert!(thread.parse::<u32>().is_ok_and(|id| id > 1), "{thread}");
    }
    let modules: Vec<_> = done
        .said
        .iter()
        .filter_map(|line| line.trim_start().strip_prefix('#'))
        .filter_map(|frame| frame.split_once(' '))
        .filter_map(|(_, place)| place.rsplit_once("+0x"))
        .collect();
    let itself = std::env::current_exe().expect("this test");
    let itself = itself.canonicalize().expect("it is there");
    let here = modules
        .iter()
        .filter(|(module, _)| *module == itself.to_string_lossy());
    let library = modules
        .iter()
        .filter(|(module, _)| module.contains("libc.so"));
    assert!(
        here.count() >= 4 && library.count() >= 2,
        "{:#?}",
        done.said
    );
    for (module, offset) in modules {
        let bytes = std::fs::metadata(module).expect("a file").len();
        let offset = u64::from_str_radix(offset, 16).expect("a number");
        assert!(offset < 2 * bytes, "{module}+{offset:#x} of {bytes}");
    }
}

/// At every level at which a second free is found so is a realloc of what is free, or of an address inside a block; and
/// nothing is moved or handed out, if the process goes on.
#[test]
fn a_realloc_of_what_is_no_live_block_is_found_at_every_level() {
    const FREE: &str = "skinflint: realloc of a block that is free already: 0x";
    const INSIDE: &str = "skinflint: realloc of an address inside a block: 0x";
    const NONE: &str = "skinflint: realloc of an address at which there is no block: 0x";
    let levels: [&[&str]; 6] = [
        &[],
        &["HARDEN=1", "SAMPLE_EVERY=1"],
        &["HARDEN=guard"],
        &["HARDEN=canary"],
        &["HARDEN=quarantine"],
        &["HARDEN=4"],
    ];
    for level in levels {
        let warned = [level, &["BAD_FREE=warn"]].concat();
        for role in ["resize_freed 100", "resize_freed_elsewhere 100"] {
            told(role, level, Some(libc::SIGABRT), FREE, &[]);
            told(role, &warned, None, FREE, &[]);
        }
        told("resize_inside 100", level, Some(libc::SIGABRT), INSIDE, &[]);
        told("resize_inside 100", &warned, None, INSIDE, &[]);
        let large = format!("resize_freed {LARGE}");
        // A large block that waits is one still.
        let waits = level
            .iter()
            .any(|it| it.ends_with("quarantine") || it.ends_with('4'));
        // And so is one that the heap keeps, as it does where nothing is hardened.
        if level.is_empty() {
            let role = format!("free_twice {LARGE}");
            told(&role, level, Some(libc::SIGABRT), DOUBLE, &[]);
        }
        let first = if waits || level.is_empty() {
            FREE
        } else {
            NONE
        };
        told(&large, level, Some(libc::SIGABRT), first, &[]);
        told(&large, &warned, None, first, &[]);
        told(
            &format!("resize_inside {LARGE}"),
            &warned,
            None,
            "skinflint: realloc of an address ",
            &[],
        );
    }
}
