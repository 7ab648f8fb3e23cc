//! The bench's parts: three pools answer the requests of real programs, and each answer is checked.
//!
//! ```text
//!   traces/NAME.runs ─► map, red-black, treap ─► no page twice · peaks that agree
//! ```
//!
//! U1  What the bench times is what is checked here: the same files, pools and replay.
//!
//! Not here: time.

use subms_treap::Treap;

#[path = "../benches/runs/map.rs"]
mod map;
#[path = "../benches/runs/replay.rs"]
mod replay;
#[path = "../benches/runs/requests.rs"]
mod requests;
#[path = "../benches/runs/trees.rs"]
mod trees;

use map::{MapPool, Runs};
use replay::{checked, replay};
use requests::{Request, Requests, decode, encode};
use trees::{RedBlack, TreePool};

/// Returns the most pages touched, and the most in use.
fn peaks<P: Runs>(program: &Requests) -> (f64, f64) {
    let mut pool = P::new();
    let seen = checked(&mut pool, program);
    assert_eq!(seen.fault, None, "{}", program.name);
    assert!(pool.metadata_bytes().is_none_or(|bytes| bytes > 0));
    (f64::from(pool.touched_max()), f64::from(seen.used_max))
}

#[test]
fn all_pools_answer_real_programs_and_need_about_the_same() {
    let programs = requests::all().expect("the files of traces/");
    assert!(programs.len() >= 3);
    for program in &programs {
        assert!(
            !program.command.is_empty() && program.runs > 1_000,
            "{}",
            program.name
        );
        let (map, used) = peaks::<MapPool>(program);
        assert!(map >= used, "{}", program.name);
        for (other, _) in [
            peaks::<TreePool<RedBlack>>(program),
            peaks::<TreePool<Treap<u64, u32>>>(program),
        ] {
            assert!(
                (map / other - 1.0).abs() < 0.02,
                "{}: {map} {other}",
                program.name
            );
        }
    }
}

#[test]
fn a_replay_leaves_everything_free() {
    for program in requests::all().expect("the files of traces/") {
        let (mut pool, mut runs) = (MapPool::new(), Vec::new());
        for _ in 0..2 {
            replay(&mut pool, &program, &mut runs);
            assert_eq!(pool.0.check(), Ok(()), "{}", program.name);
            assert_eq!(pool.0.used_pages, 0, "{}", program.name);
        }
    }
}

/// A pool that hands out the same page for each request.
struct Wrong;

impl Runs for Wrong {
    fn new() -> Wrong {
        Wrong
    }
    fn take(&mut self, _pages: u32) -> u32 {
        0
    }
    fn give(&mut self, _page: u32, _pages: u32) {}
    fn extend(&mut self, _end: u32, _more: u32) -> bool {
        true
    }
    fn touched_max(&self) -> u32 {
        0
    }
    fn heap_pages(&self) -> u32 {
        u32::MAX
    }
    fn metadata_bytes(&self) -> Option<usize> {
        None
    }
}

#[test]
fn a_page_that_is_handed_out_twice_is_seen() {
    let programs = requests::all().expect("the files of traces/");
    let fault = checked(&mut Wrong::new(), &programs[0]).fault;
    assert!(fault.is_some_and(|fault| fault.contains("in use")));
}

#[test]
fn requests_come_back_as_they_were_and_damage_is_said() {
    let requests = vec![
        Request::Take { pages: 1 },
        Request::Take { pages: 100_000 },
        Request::Resize { run: 0, pages: 300 },
        Request::Give { run: 1 },
        Request::Give { run: 0 },
    ];
    let bytes = encode("a b\nc", &requests);
    let expected = ("a b c".to_string(), requests);
    assert_eq!(decode(&bytes), Ok(expected));
    for cut in 0..bytes.len() {
        assert!(decode(&bytes[..cut]).is_err(), "cut at {cut}");
    }
    let error = decode(b"runs 1\nx\n1\n\x15").expect_err("a run that was not taken");
    assert_eq!(error, "request 0 names a run that was not taken");
    assert!(decode(b"runs 1\nx\n1\n\x03").is_err());
}
