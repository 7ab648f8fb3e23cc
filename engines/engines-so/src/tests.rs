//! Numbers, failures and structures, without C.
//!
//! ```text
//!   random adds and takes ─► Table, beside a plain map ─► the same objects, no number twice
//! ```
//!
//! Not here: whole programs (`tests/programs.rs`).

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, c_int};

use skinflint_base::random::Random;

use crate::fault::{Code, Failure, guarded, text};
use crate::input::{self, Sized_};
use crate::table::{Number, Sort, TAGS, Table};

fn words() -> String {
    // SAFETY: a C string of this thread's, which no failure replaces meanwhile.
    unsafe { CStr::from_ptr(text()) }
        .to_string_lossy()
        .into_owned()
}

#[test]
fn a_table_is_a_map_whose_numbers_are_given_once() {
    let mut random = Random::new(1);
    let mut table = Table::of_process(Sort::Hold, 3);
    let mut model: HashMap<usize, u64> = HashMap::new();
    let mut given: HashSet<usize> = HashSet::new();
    let (mut live, mut ended): (Vec<Number>, Vec<Number>) = Default::default();
    for value in 0..200_000u64 {
        if random.below(100) < 52 || live.is_empty() {
            let number = table.add(value).expect("there is room");
            assert!(given.insert(number.addr()), "a number given twice");
            model.insert(number.addr(), value);
            live.push(number);
        } else {
            let number = live.swap_remove(random.index(live.len()));
            let wanted = model.remove(&number.addr());
            assert_eq!(table.get(number).ok().copied(), wanted);
            assert_eq!(table.take(number).ok(), wanted);
            ended.push(number);
        }
        if let Some(&number) = ended.get(random.index(ended.len())) {
            let failure = table.take(number).expect_err("it ended");
            assert_eq!(failure.code, Code::Handle);
        }
    }
    assert_eq!(table.all().count(), model.len());
}

#[test]
fn a_row_whose_uses_are_over_is_not_used_again() {
    let mut table = Table::of_process(Sort::Pin, 0);
    // Without its use, a number is that of its row.
    let row = |number: Number| number.addr() >> 24;
    let mut number = table.add(()).expect("there is room");
    let first = row(number);
    let mut uses = 0;
    while row(number) == first {
        uses += 1;
        table.take(number).expect("it is there");
        number = table.add(()).expect("there is room");
    }
    assert_eq!(uses, (1 << 24) - 1);
}

#[test]
fn a_number_says_what_it_is_instead() {
    let mut holds = Table::of_process(Sort::Hold, 0);
    let mut caches = Table::of_process(Sort::Cache, 0);
    let number = holds.add(7).expect("there is room");
    let said = |failure: Failure| (failure.code, failure.what.into_owned());
    let (code, what) = said(caches.get(number).map(|(): &()| ()).expect_err("a hold"));
    assert_eq!(code, Code::Handle);
    assert_eq!(what, "a skinflint_hold where a skinflint_cache is wanted");
    let nowhere: Number = std::ptr::without_provenance_mut(0x7fff_1234_5678);
    let (code, what) = said(holds.get(nowhere).expect_err("an address"));
    assert_eq!(code, Code::Handle);
    assert!(what.contains("did not come from this library"), "{what}");
    let (code, _) = said(holds.get(std::ptr::null_mut()).expect_err("null"));
    assert_eq!(code, Code::Argument);
    caches.add(()).expect("there is room");
}

#[test]
fn numbers_of_other_threads_are_told() {
    let mut first = Table::of_thread(Sort::Arena, 0);
    let mut later = Table::of_thread(Sort::Arena, 1);
    let mut same_tag = Table::of_thread(Sort::Arena, TAGS);
    let number = first.add(()).expect("there is room");
    later.add(()).expect("there is room");
    same_tag.add(()).expect("there is room");
    let code = |table: &Table<()>| table.get(number).expect_err("another thread's").code;
    assert_eq!(code(&later), Code::Thread);
    // 4,095 threads later the tag is the same, and the uses are others.
    assert_eq!(code(&same_tag), Code::Handle);
}

#[test]
fn a_panic_is_a_code_with_words() {
    let result: c_int = guarded(|| panic!("a mistake on purpose, {}", 1));
    assert_eq!(result, Code::Fault as c_int);
    assert_eq!(words(), "a mistake in the library: a mistake on purpose, 1");
    let nothing: Number = guarded(|| panic!("another one"));
    assert!(nothing.is_null());
    assert_eq!(words(), "a mistake in the library: another one");
    let odd: c_int = guarded(|| std::panic::panic_any(7));
    assert_eq!(
        (odd, words().as_str()),
        (-6, "a mistake in the library: a panic")
    );
}

#[test]
fn a_failure_leaves_the_words_of_the_last_one_until_the_next() {
    let failing = |what: &'static str| -> c_int { guarded(|| Err(Failure::argument(what))) };
    assert_eq!(failing("with a \0 in it"), -1);
    assert_eq!(words(), "with a   in it");
    assert_eq!(guarded(|| Ok(1)), 1);
    assert_eq!(words(), "with a   in it");
}

#[derive(Clone, Copy, Default, PartialEq, Debug)]
#[repr(C)]
struct Three {
    size: usize,
    one: u64,
    two: u64,
}

// SAFETY: input.I2: numbers, the size first.
unsafe impl Sized_ for Three {}

#[test]
fn structures_of_other_versions_are_read_and_written_as_far_as_both_know() {
    #[repr(C)]
    struct Later(Three, u64);
    let full = |size| Three {
        size,
        one: 1,
        two: 2,
    };
    let read = |later: &Later| {
        // SAFETY: there are as many bytes as the sizes below.
        unsafe { input::options(&raw const later.0, "it") }
    };
    for (size, wanted) in [(8, (0, 0)), (16, (1, 0)), (24, (1, 2)), (32, (1, 2))] {
        let got = read(&Later(full(size), 0)).expect("what both know");
        assert_eq!((got.one, got.two), wanted, "{size}");
    }
    for (size, last) in [(0, 0), (7, 0), (4097, 0), (32, 9)] {
        let failure = read(&Later(full(size), last)).expect_err("no such structure");
        assert_eq!(failure.code, Code::Argument, "{size}");
    }
    for (size, wanted) in [(8, (0, 0)), (16, (1, 0)), (24, (1, 2)), (32, (1, 2))] {
        let mut to = Later(
            Three {
                size,
                one: 0,
                two: 0,
            },
            5,
        );
        // SAFETY: as above.
        let written = unsafe { input::figures(&raw mut to.0, full(99), "it") };
        assert!(written.is_ok());
        assert_eq!((to.0.size, (to.0.one, to.0.two), to.1), (size, wanted, 5));
    }
}
