//! Planted cycles and leaks, and controls, in Rust: `planted-rs NAME`. What must be called unreached was acquired below
//! a function planted_…; what must not, below kept_….
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

const N: usize = 40;

struct Node {
    other: RefCell<Option<Rc<Node>>>,
    _data: [u8; 40],
}

fn node() -> Rc<Node> {
    Rc::new(Node { other: RefCell::new(None), _data: [1; 40] })
}

#[inline(never)]
fn planted_rc() {
    for _ in 0..N {
        let (a, b) = (node(), node());
        *a.other.borrow_mut() = Some(Rc::clone(&b));
        *b.other.borrow_mut() = Some(a);
    }
}

#[inline(never)]
fn planted_self() {
    for _ in 0..N {
        let a = node();
        *a.other.borrow_mut() = Some(Rc::clone(&a));
    }
}

#[inline(never)]
fn planted_forgotten() {
    for n in 0..N {
        std::mem::forget(vec![String::from_utf8(vec![b'f'; 60 + n]).expect("ascii"); 3]);
    }
}

type Shared = Mutex<Vec<Arc<Arcs>>>;
struct Arcs(Shared);

#[inline(never)]
fn planted_arc() {
    for _ in 0..N {
        let parent = Arc::new(Arcs(Mutex::default()));
        for _ in 0..3 {
            let child = Arc::new(Arcs(Mutex::new(vec![Arc::clone(&parent)])));
            parent.0.lock().expect("alone").push(child);
        }
    }
}

static KEPT: Mutex<Vec<Box<[u64; 9]>>> = Mutex::new(Vec::new());
static NAMES: Mutex<std::collections::BTreeMap<usize, String>> = Mutex::new(std::collections::BTreeMap::new());

#[inline(never)]
fn kept_static() {
    for n in 0..N {
        KEPT.lock().expect("alone").push(Box::new([n as u64; 9]));
        NAMES.lock().expect("alone").insert(n, "k".repeat(70));
    }
}

#[inline(never)]
fn kept_leaked() -> &'static [String] {
    Box::leak((0..N).map(|n| "l".repeat(50 + n)).collect())
}

static LEAKED: Mutex<&[String]> = Mutex::new(&[]);

#[inline(never)]
fn scrub() -> u64 {
    let room = std::hint::black_box([0u64; 4096]);
    room.iter().sum()
}

fn main() {
    let name = std::env::args().nth(1).unwrap_or_default();
    match name.as_str() {
        "cycle_rc" => planted_rc(),
        "cycle_self" => planted_self(),
        "cycle_arc" => planted_arc(),
        "leak_forgotten" => planted_forgotten(),
        "keep_static" => kept_static(),
        "keep_leaked" => *LEAKED.lock().expect("alone") = kept_leaked(),
        _ => {
            for name in ["cycle_rc", "cycle_self", "cycle_arc", "leak_forgotten", "keep_static", "keep_leaked"] {
                println!("{name}");
            }
        }
    }
    std::hint::black_box(scrub());
}
