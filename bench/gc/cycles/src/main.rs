//! Rings of counted values that come and go beside a graph that stays, on one collector of cycles.
//!
//! ```text
//!   cycles skinflint | bacon-rajan | dumpster  ─► one line of JSON: processor time, peak and final resident memory
//! ```
//!
//! B1  All make the same: a doubly linked list of `LONG` values that stays, then `RINGS` rings of `RING` values with
//!     `BYTES` each, of which the last `WINDOW` are held, and an element of the long list is cloned and dropped with
//!     each. Values that are dropped are counted; a wrong count is an error.
//! B2  Each collects when it sees fit, where it does that by itself (ours, dumpster); otherwise after `EVERY` rings.
//! B3  One collector in a process. What was resident before is subtracted by the reader (`bench/gc/cycles.py`).
//!
//! Not here: alternation and medians (`bench/gc/cycles.py`).

use std::cell::Cell;
use std::collections::VecDeque;
use std::time::Duration;

const LONG: usize = 500_000;
const RINGS: usize = 500_000;
const RING: usize = 4;
const BYTES: usize = 40;
const WINDOW: usize = 10_000;
const EVERY: usize = 10_000;

thread_local! { static DROPPED: Cell<u64> = const { Cell::new(0) }; }

/// What a value holds beside its pointers.
struct Payload([u8; BYTES]);

impl Payload {
    fn new(number: usize) -> Payload {
        Payload([number as u8; BYTES])
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        assert!(self.0.iter().all(|byte| *byte == self.0[0]));
        DROPPED.set(DROPPED.get() + 1);
    }
}

/// Kilobytes of a line of `/proc/self/status`.
fn status(field: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("/proc/self/status");
    let line = text.lines().find(|line| line.starts_with(field));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.and_then(|number| number.parse().ok()).expect(field)
}

fn cpu() -> Duration {
    // SAFETY: plain numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: it is ours to be written.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    let part = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    part(usage.ru_utime) + part(usage.ru_stime)
}

/// What a collector can do.
trait Collector {
    type Node: Clone;
    fn node(&self, number: usize) -> Self::Node;
    fn link(&self, from: &Self::Node, to: &Self::Node);
    fn back(&self, from: &Self::Node, to: &Self::Node);
    /// After each so many rings, where it does not collect by itself.
    fn every(&self) {}
    fn all(&self);
    fn more(&self) -> String {
        String::new()
    }
}

fn run(name: &str, collector: &impl Collector) {
    let before_kb = status("VmRSS");
    let start = cpu();
    let long: Vec<_> = (0..LONG).map(|number| collector.node(number)).collect();
    for pair in long.windows(2) {
        collector.link(&pair[0], &pair[1]);
        collector.back(&pair[1], &pair[0]);
    }
    let built = cpu();
    let mut window = VecDeque::new();
    for number in 0..RINGS {
        let ring: Vec<_> = (0..RING).map(|at| collector.node(number + at)).collect();
        for at in 0..RING {
            collector.link(&ring[at], &ring[(at + 1) % RING]);
        }
        window.push_back(ring[0].clone());
        if window.len() > WINDOW {
            window.pop_front();
        }
        drop(long[number * 7919 % LONG].clone());
        if number % EVERY == EVERY - 1 {
            collector.every();
        }
    }
    let churned = cpu();
    window.clear();
    drop(long);
    collector.all();
    let ended = cpu();
    let dropped = DROPPED.get();
    assert_eq!(
        dropped,
        (LONG + RINGS * RING) as u64,
        "{name}: values dropped"
    );
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    println!(
        "{{\"collector\": \"{name}\", \"build_cpu_ms\": {:.2}, \"churn_cpu_ms\": {:.2}, \"end_cpu_ms\": {:.2}, \
         \"before_kb\": {before_kb}, \"peak_kb\": {}, \"freed_kb\": {}{}}}",
        ms(built - start),
        ms(churned - built),
        ms(ended - churned),
        status("VmHWM"),
        status("VmRSS"),
        collector.more(),
    );
}

mod ours {
    use super::{Collector, Payload};
    use skinflint_gc::cc::{Cc, Cycles, Field};
    use skinflint_gc::counted;
    use skinflint_gc::typed::Opaque;

    counted! {
        pub struct Node { next: Field<Option<Cc<Node>>>, back: Field<Option<Cc<Node>>>, payload: Opaque<Payload> }
    }

    impl Collector for Cycles {
        type Node = Cc<Node>;
        fn node(&self, number: usize) -> Cc<Node> {
            self.cc(Node {
                next: Field::new(None),
                back: Field::new(None),
                payload: Opaque(Payload::new(number)),
            })
        }
        fn link(&self, from: &Cc<Node>, to: &Cc<Node>) {
            *from.next.borrow_mut() = Some(to.clone());
        }
        fn back(&self, from: &Cc<Node>, to: &Cc<Node>) {
            *from.back.borrow_mut() = Some(to.clone());
        }
        fn all(&self) {
            self.collect();
        }
        fn more(&self) -> String {
            let counts = self.counts();
            format!(
                ", \"collections\": {}, \"nodes\": {}, \"slices\": {}, \"longest_slice_us\": {:.0}",
                counts.collections,
                counts.nodes,
                counts.slices,
                counts.longest_ns as f64 / 1e3
            )
        }
    }
}

mod bacon_rajan {
    use super::{Collector, Payload};
    use bacon_rajan_cc::{Cc, Trace, Tracer, collect_cycles};
    use std::cell::RefCell;

    pub struct Node {
        next: RefCell<Option<Cc<Node>>>,
        back: RefCell<Option<Cc<Node>>>,
        _payload: Payload,
    }

    impl Trace for Node {
        fn trace(&self, tracer: &mut Tracer) {
            self.next.trace(tracer);
            self.back.trace(tracer);
        }
    }

    pub struct Peer;

    impl Collector for Peer {
        type Node = Cc<Node>;
        fn node(&self, number: usize) -> Cc<Node> {
            Cc::new(Node {
                next: RefCell::new(None),
                back: RefCell::new(None),
                _payload: Payload::new(number),
            })
        }
        fn link(&self, from: &Cc<Node>, to: &Cc<Node>) {
            *from.next.borrow_mut() = Some(to.clone());
        }
        fn back(&self, from: &Cc<Node>, to: &Cc<Node>) {
            *from.back.borrow_mut() = Some(to.clone());
        }
        fn every(&self) {
            collect_cycles();
        }
        fn all(&self) {
            collect_cycles();
        }
    }
}

mod dumpsters {
    use super::{Collector, Payload};
    use dumpster::unsync::{Gc, collect};
    use dumpster::{Trace, Visitor};
    use std::cell::RefCell;

    pub struct Node {
        next: RefCell<Option<Gc<Node>>>,
        back: RefCell<Option<Gc<Node>>>,
        _payload: Payload,
    }

    // SAFETY: both pointers are told.
    unsafe impl Trace for Node {
        fn accept<V: Visitor>(&self, visitor: &mut V) -> Result<(), ()> {
            self.next.accept(visitor)?;
            self.back.accept(visitor)
        }
    }

    pub struct Peer;

    impl Collector for Peer {
        type Node = Gc<Node>;
        fn node(&self, number: usize) -> Gc<Node> {
            Gc::new(Node {
                next: RefCell::new(None),
                back: RefCell::new(None),
                _payload: Payload::new(number),
            })
        }
        fn link(&self, from: &Gc<Node>, to: &Gc<Node>) {
            *from.next.borrow_mut() = Some(to.clone());
        }
        fn back(&self, from: &Gc<Node>, to: &Gc<Node>) {
            *from.back.borrow_mut() = Some(to.clone());
        }
        fn all(&self) {
            collect();
        }
    }
}

fn main() {
    // The long list of a peer may be dropped by recursion.
    let work = || match std::env::args().nth(1).as_deref() {
        Some("skinflint") => run("skinflint", &skinflint_gc::cc::Cycles::new()),
        Some("bacon-rajan") => run("bacon-rajan", &bacon_rajan::Peer),
        Some("dumpster") => run("dumpster", &dumpsters::Peer),
        _ => {
            eprintln!("usage: cycles skinflint|bacon-rajan|dumpster");
            std::process::exit(2);
        }
    };
    let large = std::thread::Builder::new().stack_size(1 << 30);
    let thread = large.spawn(work).expect("a thread with a large stack");
    if thread.join().is_err() {
        std::process::exit(1);
    }
}
