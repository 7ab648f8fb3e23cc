//! Random graphs against a plain model: a reachable object lives with its contents, an unreachable one ends once.
//!
//! ```text
//!   seed ─► make, link, cut, root, unroot, collect … ─┬─► the heap: objects with edges and a checksum
//!                                                     └─► the model: a map from id to edges, and a set of roots
//! ```
//!
//! M1  Each object holds its id, its edges and a checksum over the id to its last byte. They are compared with
//!     the model after every collection, along every edge.
//! M2  Finalizers count into a table by id: no object twice, and no reachable object; after a sweep is finished each
//!     unreachable object has ended, if its kind has a finalizer.
//! M3  The seed is in the message of each panic: `SKINFLINT_SEED=N` repeats the run.
//!
//! Not here: safe code (`typed`), several heaps (`tenants`).

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Mutex;

use skinflint_gc::{
    Budget, Config, Finalize, From, Growth, Heap, Incremental, Kind, Origin, Progress, Reason,
    RootId, Tracer, World, collect,
};

const EDGES: usize = 3;
const NONE: u64 = u64::MAX;

/// What every object begins with; bytes derived from the id follow, to the object's end.
#[repr(C)]
struct Node {
    id: u64,
    test: u64,
    bytes: u64,
    edges: [Option<NonNull<Node>>; EDGES],
}

/// How often each object of a test ended, and on how many threads that was.
static ENDED: Mutex<BTreeMap<(u64, u64), u32>> = Mutex::new(BTreeMap::new());

unsafe fn trace(object: NonNull<u8>, tracer: &mut Tracer) {
    // SAFETY: M1: kinds of this file are nodes.
    for edge in unsafe { object.cast::<Node>().as_ref() }
        .edges
        .iter()
        .flatten()
    {
        tracer.edge(edge.cast());
    }
}

unsafe fn trace_part(object: NonNull<u8>, from: usize, tracer: &mut Tracer) -> Option<usize> {
    // SAFETY: as above.
    let node = unsafe { object.cast::<Node>().as_ref() };
    if let Some(edge) = node.edges.get(from)? {
        tracer.edge(edge.cast());
    }
    Some(from + 1)
}

unsafe fn finalize(object: NonNull<u8>) {
    // SAFETY: as above.
    let node = unsafe { object.cast::<Node>().as_ref() };
    *ENDED
        .lock()
        .unwrap()
        .entry((node.test, node.id))
        .or_default() += 1;
}

const fn kind(bytes: usize, align: usize, finalize_on: Finalize, origin: Origin) -> Kind {
    Kind {
        name: || "node",
        bytes,
        align,
        trace: Some(trace),
        // The larger ones edge by edge, where marking is in slices.
        trace_part: if bytes > 56 { Some(trace_part) } else { None },
        finalize: match finalize_on {
            Finalize::Nothing => None,
            _ => Some(finalize),
        },
        finalize_on,
        origin,
    }
}

use Finalize::{Any, Mutator, Nothing};
use Origin::{System, User};
use skinflint_base::random::Random;

static KINDS: [Kind; 12] = [
    kind(48, 8, Nothing, User),
    kind(48, 8, Any, User),
    kind(56, 8, Mutator, User),
    kind(104, 8, Any, User),
    kind(104, 8, Mutator, System),
    kind(256, 64, Any, User),
    kind(1000, 8, Nothing, System),
    kind(2048, 16, Any, User),
    kind(2049, 8, Any, User),
    kind(9000, 4096, Mutator, User),
    kind(300_000, 8, Any, User),
    kind(1_200_000, 8, Any, System),
];

fn pattern(id: u64, at: usize) -> u8 {
    (id.wrapping_mul(0x9e37_79b9) >> (at % 24)) as u8 ^ at as u8
}

struct Model {
    heap: Rc<Heap>,
    dice: Random,
    test: u64,
    next: u64,
    edges: BTreeMap<u64, ([u64; EDGES], usize)>,
    /// Kept by entries of the root table.
    roots: BTreeMap<u64, RootId>,
    /// Objects of which kinds have a finalizer that must have run.
    finalized: BTreeMap<u64, bool>,
    gone: BTreeSet<u64>,
}

impl Model {
    fn new(config: Config, seed: u64) -> Model {
        static TESTS: Mutex<u64> = Mutex::new(0);
        let mut tests = TESTS.lock().unwrap();
        *tests += 1;
        Model {
            heap: World::new(config).heap("model", usize::MAX),
            dice: Random::new(seed),
            test: *tests,
            next: 0,
            edges: BTreeMap::new(),
            roots: BTreeMap::new(),
            finalized: BTreeMap::new(),
            gone: BTreeSet::new(),
        }
    }

    fn object(&self, root: u64) -> NonNull<Node> {
        self.heap.rooted(self.roots[&root]).expect("rooted").cast()
    }

    fn some_root(&mut self) -> Option<u64> {
        let nth = self.dice.index(self.roots.len().max(1));
        self.roots.keys().nth(nth).copied()
    }

    /// A new object, with edges to rooted ones, rooted.
    fn make(&mut self, kinds: usize) {
        let kind = &KINDS[self.dice.index(kinds)];
        let mut ids = [NONE; EDGES];
        let mut edges = [None; EDGES];
        for edge in 0..EDGES {
            if let Some(root) = self.some_root().filter(|_| self.dice.index(2) == 0) {
                ids[edge] = root;
                edges[edge] = Some(self.object(root));
            }
        }
        // SAFETY: everything that the model uses later is rooted; the edges are to rooted objects.
        let object = unsafe { self.heap.alloc_or_collect(kind, &mut ()) }.expect("memory");
        assert_eq!(object.as_ptr() as usize % kind.align, 0);
        let id = self.next;
        self.next += 1;
        // SAFETY: the cell has room for a node and `kind.bytes`.
        unsafe {
            object.cast::<Node>().write(Node {
                id,
                test: self.test,
                bytes: kind.bytes as u64,
                edges,
            });
            for at in (size_of::<Node>()..kind.bytes).step_by(step(kind.bytes)) {
                object.as_ptr().add(at).write(pattern(id, at));
            }
        }
        self.edges.insert(id, (ids, kind.bytes));
        self.finalized.insert(id, kind.finalize.is_some());
        // SAFETY: it was just made.
        let root = unsafe { self.heap.root(object, From::Host("model")) };
        self.roots.insert(id, root);
    }

    fn link(&mut self) {
        let (Some(from), Some(to)) = (self.some_root(), self.some_root()) else {
            return;
        };
        let edge = self.dice.index(EDGES);
        let cut = self.dice.index(4) == 0;
        let target = (!cut).then(|| self.object(to));
        // SAFETY: rooted objects are alive, and this thread's.
        unsafe { self.object(from).as_mut().edges[edge] = target };
        // One of the two barriers.
        if self.dice.index(2) == 0 {
            // SAFETY: as above.
            unsafe { self.heap.changed(self.object(from).cast()) };
        } else if let Some(target) = target {
            // SAFETY: as above.
            unsafe { self.heap.barrier(target.cast()) };
        }
        self.edges.get_mut(&from).expect("alive").0[edge] = if cut { NONE } else { to };
    }

    fn unroot(&mut self) {
        if let Some(root) = self.some_root() {
            let id = self.roots.remove(&root).expect("a root");
            // SAFETY: the model ends each root once.
            assert!(unsafe { self.heap.unroot(id) }.is_some());
        }
    }

    fn reachable(&self) -> BTreeSet<u64> {
        let mut reached = BTreeSet::new();
        let mut open: Vec<u64> = self.roots.keys().copied().collect();
        while let Some(id) = open.pop() {
            if reached.insert(id) {
                open.extend(self.edges[&id].0.iter().filter(|&&to| to != NONE));
            }
        }
        reached
    }

    /// After a collection: contents along every edge, and no reachable object has ended.
    fn compare(&mut self) {
        let alive = self.reachable();
        let mut seen: BTreeMap<u64, NonNull<Node>> = BTreeMap::new();
        let mut open: Vec<(u64, NonNull<Node>)> =
            self.roots.keys().map(|&id| (id, self.object(id))).collect();
        while let Some((id, object)) = open.pop() {
            if let Some(known) = seen.insert(id, object) {
                assert_eq!(known, object, "one id, two objects");
                continue;
            }
            // SAFETY: the model says that it is reachable, which is what is tested.
            let node = unsafe { object.as_ref() };
            let (ids, bytes) = self.edges[&id];
            assert_eq!((node.id, node.bytes as usize), (id, bytes));
            for at in (size_of::<Node>()..bytes).step_by(step(bytes)) {
                // SAFETY: as above.
                let byte = unsafe { object.cast::<u8>().as_ptr().add(at).read() };
                assert_eq!(byte, pattern(id, at), "object {id} at {at}");
            }
            for (to, edge) in ids.iter().zip(node.edges) {
                assert_eq!(*to == NONE, edge.is_none());
                open.extend(edge.map(|edge| (*to, edge)));
            }
        }
        assert!(seen.keys().eq(alive.iter()));
        self.gone
            .extend(self.edges.keys().filter(|id| !alive.contains(id)));
        self.edges.retain(|id, _| alive.contains(id));
        let ended = ENDED.lock().unwrap();
        for id in &alive {
            assert!(!ended.contains_key(&(self.test, *id)), "{id} ended alive");
        }
    }

    /// With nothing left to sweep.
    fn compare_ends(&self) {
        let holds = self.heap.holds();
        self.heap.check();
        assert_eq!(
            holds.objects,
            self.edges.len(),
            "what is not reachable is gone"
        );
        let ended = ENDED.lock().unwrap();
        for id in &self.gone {
            let times = ended.get(&(self.test, *id)).copied().unwrap_or(0);
            assert_eq!(times, u32::from(self.finalized[id]), "{id} ended so often");
        }
    }

    fn collect(&mut self) {
        // SAFETY: everything that the model uses later is rooted.
        unsafe { collect(&[&self.heap], Reason::Asked, &mut ()) }.expect("no tenant is busy");
        self.compare();
    }

    /// Begins to mark, marks a little, or ends it.
    fn mark(&mut self) {
        let budget = Budget {
            edges: 1 + self.dice.index(40) as u64,
            ns: u64::MAX,
        };
        let begin = self.dice.index(4) == 0;
        // SAFETY: objects are written when they are made, edges with barriers, and what is used later is rooted.
        unsafe {
            match self.heap.progress() {
                Progress::Off if begin => {
                    let begun = self.heap.begin_marking(Reason::Asked, &mut ());
                    assert!(begun.expect("no tenant is busy") == self.heap.is_marking());
                }
                Progress::Off => {}
                Progress::More => drop(self.heap.mark_step(budget)),
                Progress::Ready => {
                    assert_eq!(self.heap.finish_marking(&mut ()), Ok(true));
                    self.compare();
                }
            }
        }
    }

    fn run(&mut self, acts: usize, kinds: usize) {
        for act in 0..acts {
            match self.dice.index(100) {
                0..50 => self.make(kinds),
                50..70 => self.link(),
                70..97 => self.unroot(),
                97 => drop(self.heap.poll()),
                98 => self.mark(),
                _ => self.collect(),
            }
            if act % 997 == 0 {
                self.collect();
                self.compare_ends();
            }
        }
        self.collect();
        self.compare_ends();
        while !self.roots.is_empty() {
            self.unroot();
        }
        self.collect();
        self.compare_ends();
        self.heap.shrink();
        assert_eq!(self.heap.holds().held_bytes, 0);
    }
}

/// Large objects are looked at here and there.
fn step(bytes: usize) -> usize {
    if bytes > 2048 { 509 } else { 1 }
}

fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("SKINFLINT_SEED") {
        Ok(seed) => vec![seed.parse().expect("SKINFLINT_SEED is a number")],
        Err(_) => (1..=count).collect(),
    }
}

struct Say(Cell<u64>);

impl Drop for Say {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("with SKINFLINT_SEED={}", self.0.get());
        }
    }
}

fn runs(count: u64, acts: usize, kinds: usize, config: impl Fn() -> Config) {
    let say = Say(Cell::new(0));
    let (count, acts) = if cfg!(miri) {
        (1, acts / 100)
    } else {
        (count, acts)
    };
    for seed in seeds(count) {
        say.0.set(seed);
        Model::new(config(), seed).run(acts, kinds);
    }
}

/// Collects often, in small heaps.
fn eager() -> Growth {
    Growth {
        floor_bytes: 100_000,
        ..Growth::TIGHT
    }
}

#[test]
fn small_objects_beside_the_sweeper() {
    runs(3, 6_000, 8, || Config {
        growth: eager(),
        verify: true,
        poison: true,
        ..Config::default()
    });
}

#[test]
fn all_sizes_beside_the_sweeper() {
    runs(2, 2_500, 12, || Config {
        growth: Growth {
            floor_bytes: 3 << 20,
            ..Growth::TIGHT
        },
        verify: true,
        ..Config::default()
    });
}

#[test]
fn every_third_allocation_collects() {
    runs(2, 1_200, 8, || Config::stress(3));
}

#[test]
fn a_mark_stack_of_two_entries_is_enough() {
    runs(2, 4_000, 8, || Config {
        growth: eager(),
        verify: true,
        background: false,
        mark_stack: Some(2),
        ..Config::default()
    });
}

/// Some edges for every few objects.
fn slices(edges: u64) -> Option<Incremental> {
    Some(Incremental {
        slice_edges: edges,
        slice_bytes: 700,
        ..Incremental::STRESS
    })
}

#[test]
fn marked_in_slices_beside_the_sweeper() {
    runs(3, 6_000, 8, || Config {
        growth: eager(),
        incremental: slices(9),
        verify: true,
        poison: true,
        ..Config::default()
    });
}

#[test]
fn marked_in_slices_with_a_stack_of_two() {
    runs(2, 4_000, 8, || Config {
        growth: eager(),
        incremental: slices(5),
        verify: true,
        background: false,
        mark_stack: Some(2),
        ..Config::default()
    });
}

#[test]
fn marked_by_one_edge_at_each_allocation() {
    runs(2, 2_500, 12, || Config {
        incremental: Some(Incremental::STRESS),
        ..Config::stress(20)
    });
}

#[test]
fn without_the_sweeper_two_runs_are_the_same() {
    let run = || {
        let config = Config {
            growth: eager(),
            background: false,
            ..Config::default()
        };
        let mut model = Model::new(config, 77);
        model.run(if cfg!(miri) { 60 } else { 4_000 }, 8);
        let log = model.heap.log();
        let log: Vec<_> = log
            .iter()
            .map(|c| (c.reason, c.before_bytes, c.live_bytes, c.threshold_bytes))
            .collect();
        let counts = model.heap.sweep_counts();
        (
            log,
            counts.lazy_cells,
            counts.pause_cells,
            counts.background_cells,
        )
    };
    let (first, second) = (run(), run());
    assert_eq!(first, second);
    assert!(first.3 == 0 && !first.0.is_empty());
}
