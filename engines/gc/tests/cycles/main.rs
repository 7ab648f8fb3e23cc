//! Counted values: random graphs against a naive tracer, weak pointers, slices between which a program runs, panics,
//! deep graphs.
//!
//! ```text
//!   seed ─► make, link, cut, move, let go, step, collect ─┬─► boxes with edges and an id
//!                                                         └─► the model: a map from id to edges, and what is held
//! ```
//!
//! M1  What the model can reach is alive, with its id, along every edge; nothing of it was dropped.
//! M2  After a collection nothing else is alive, and each value was dropped once.
//! M3  The seed is printed: `SKINFLINT_SEED=N` repeats the run.
//!
//! Not here: cycles through garbage-collected heaps (`together`), what must not compile (documentation of `cc`).

mod together;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use skinflint_base::random::Random;
use skinflint_gc::cc::{Cc, Cycles, Field, Weak};
use skinflint_gc::typed::{Locked, Opaque, Runtime};
use skinflint_gc::{Budget, Config, counted};

/// Says when it is dropped.
struct Told {
    id: u64,
    to: Rc<RefCell<Vec<u64>>>,
}

impl Drop for Told {
    fn drop(&mut self) {
        self.to.borrow_mut().push(self.id);
    }
}

counted! {
    struct Node {
        one: Field<Option<Cc<Node>>>,
        many: Field<Vec<Cc<Node>>>,
        weak: Field<Option<Weak<Node>>>,
        told: Opaque<Told>,
    }
}

#[derive(Default, Clone)]
struct Known {
    one: Option<u64>,
    many: Vec<u64>,
}

struct Model {
    cycles: Cycles,
    known: BTreeMap<u64, Known>,
    held: BTreeMap<u64, Cc<Node>>,
    weak: BTreeMap<u64, Weak<Node>>,
    dropped: Rc<RefCell<Vec<u64>>>,
    seen: BTreeSet<u64>,
    dice: Random,
    made: u64,
}

fn node(cycles: &Cycles, id: u64, to: &Rc<RefCell<Vec<u64>>>) -> Cc<Node> {
    cycles.cc(Node {
        one: Field::new(None),
        many: Field::default(),
        weak: Field::new(None),
        told: Opaque(Told { id, to: to.clone() }),
    })
}

impl Model {
    fn new(seed: u64) -> Model {
        Model {
            cycles: Cycles::new(),
            known: BTreeMap::new(),
            held: BTreeMap::new(),
            weak: BTreeMap::new(),
            dropped: Rc::default(),
            seen: BTreeSet::new(),
            dice: Random::new(seed),
            made: 0,
        }
    }

    fn some(&mut self) -> Option<u64> {
        let nth = self.dice.index(self.held.len().max(1));
        self.held.keys().nth(nth).copied()
    }

    fn make(&mut self) {
        let id = self.made;
        self.made += 1;
        let made = node(&self.cycles, id, &self.dropped);
        self.weak.insert(id, made.downgrade());
        self.held.insert(id, made);
        self.known.insert(id, Known::default());
    }

    fn link(&mut self) {
        let (Some(from), Some(to)) = (self.some(), self.some()) else {
            return;
        };
        let (source, target) = (&self.held[&from], &self.held[&to]);
        let known = self.known.get_mut(&from).expect("known");
        match self.dice.index(4) {
            0 => {
                *source.one.borrow_mut() = Some(target.clone());
                known.one = Some(to);
            }
            1 => {
                *source.one.borrow_mut() = None;
                known.one = None;
            }
            2 => {
                *source.weak.borrow_mut() = Some(target.downgrade());
            }
            _ => {
                source.many.borrow_mut().push(target.clone());
                known.many.push(to);
            }
        }
    }

    /// Pointers move from one value to another, and no count changes.
    fn shift(&mut self) {
        let (Some(from), Some(to)) = (self.some(), self.some()) else {
            return;
        };
        if from == to {
            return;
        }
        let moved = core::mem::take(&mut *self.held[&from].many.borrow_mut());
        self.held[&to].many.borrow_mut().extend(moved);
        let ids = core::mem::take(&mut self.known.get_mut(&from).expect("known").many);
        self.known.get_mut(&to).expect("known").many.extend(ids);
    }

    /// What is held moves into a value, and no count changes; or the other way round.
    fn hand_over(&mut self) {
        let (Some(from), Some(to)) = (self.some(), self.some()) else {
            return;
        };
        if from == to {
            return;
        }
        if self.dice.index(2) == 0 {
            let moved = self.held.remove(&from).expect("held");
            self.held[&to].many.borrow_mut().push(moved);
            self.known.get_mut(&to).expect("known").many.push(from);
            return;
        }
        let last = self.held[&from].many.borrow_mut().pop();
        if let Some(moved) = last {
            let id = self.known.get_mut(&from).expect("known").many.pop();
            self.held.insert(id.expect("as many"), moved);
        }
    }

    fn reachable(&self) -> BTreeSet<u64> {
        let mut reached = BTreeSet::new();
        let mut open: Vec<u64> = self.held.keys().copied().collect();
        while let Some(id) = open.pop() {
            if reached.insert(id) {
                let known = &self.known[&id];
                open.extend(known.one.iter().chain(&known.many));
            }
        }
        reached
    }

    fn compare(&mut self) {
        let alive = self.reachable();
        for id in self.dropped.borrow_mut().drain(..) {
            assert!(self.seen.insert(id), "{id} was dropped twice");
        }
        assert!(alive.is_disjoint(&self.seen), "M1");
        let mut open: Vec<(u64, Cc<Node>)> = self
            .held
            .iter()
            .map(|(id, held)| (*id, held.clone()))
            .collect();
        let mut walked = BTreeSet::new();
        while let Some((id, at)) = open.pop() {
            assert_eq!(at.told.0.id, id);
            if !walked.insert(id) {
                continue;
            }
            let known = &self.known[&id];
            assert_eq!(at.one.borrow().is_some(), known.one.is_some());
            open.extend(known.one.zip(at.one.borrow().clone()));
            assert_eq!(at.many.borrow().len(), known.many.len());
            open.extend(
                known
                    .many
                    .iter()
                    .copied()
                    .zip(at.many.borrow().iter().cloned()),
            );
        }
        for (id, weak) in &self.weak {
            match weak.upgrade() {
                Some(at) => assert!(at.told.0.id == *id && !self.seen.contains(id)),
                // Dropped, or condemned.
                None => assert!(!alive.contains(id), "{id} is alive"),
            }
        }
    }

    fn collect(&mut self) {
        self.cycles.collect();
        self.compare();
        let alive = self.reachable();
        let all: BTreeSet<u64> = self.known.keys().copied().collect();
        let gone = all.difference(&alive).copied().collect::<Vec<_>>();
        assert!(gone.iter().all(|id| self.seen.contains(id)), "M2: {gone:?}");
        self.known.retain(|id, _| alive.contains(id));
        self.weak.retain(|id, _| alive.contains(id));
        // Weak pointers of the living may keep boxes whose values are gone.
        assert_eq!(self.cycles.counts().values, alive.len() as u64);
    }

    fn run(mut self, acts: usize, step_in: usize) {
        for act in 0..acts {
            match self.dice.index(100) {
                0..30 => self.make(),
                30..58 => self.link(),
                58..64 => self.shift(),
                64..72 => self.hand_over(),
                _ => {
                    if let Some(id) = self.some() {
                        self.held.remove(&id);
                    }
                }
            }
            if self.dice.index(step_in) == 0 {
                let edges = 1 + self.dice.index(6) as u64;
                self.cycles.step(Budget {
                    edges,
                    ns: u64::MAX,
                });
            }
            if act % 50 == 0 {
                self.compare();
            }
            if act % 611 == 610 {
                self.collect();
            }
        }
        self.held.clear();
        self.collect();
        self.weak.clear();
        let counts = self.cycles.counts();
        assert_eq!((counts.boxes, counts.candidates), (0, 0));
        assert!(counts.destroyed > 0 && counts.panics == 0);
    }
}

fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("SKINFLINT_SEED") {
        Ok(seed) => vec![seed.parse().expect("SKINFLINT_SEED is a number")],
        Err(_) => (1..=count).collect(),
    }
}

#[test]
fn random_graphs_with_a_slice_at_each_act() {
    let (count, acts) = if cfg!(miri) { (1, 80) } else { (20, 4000) };
    for seed in seeds(count) {
        eprintln!("seed {seed}");
        Model::new(seed).run(acts, 1);
    }
}

#[test]
fn random_graphs_with_few_slices() {
    let (count, acts) = if cfg!(miri) { (1, 80) } else { (20, 4000) };
    for seed in seeds(count) {
        eprintln!("seed {seed}");
        Model::new(seed).run(acts, 20);
    }
}

fn edges(edges: u64) -> Budget {
    Budget {
        edges,
        ns: u64::MAX,
    }
}

/// Two values that hold each other, and a witness of their drop.
fn pair(cycles: &Cycles) -> (Cc<Node>, Cc<Node>, Rc<RefCell<Vec<u64>>>) {
    let dropped = Rc::default();
    let (a, b) = (node(cycles, 1, &dropped), node(cycles, 2, &dropped));
    *a.one.borrow_mut() = Some(b.clone());
    *b.one.borrow_mut() = Some(a.clone());
    (a, b, dropped)
}

/// x is held from outside. Its values a and b are looked at one after the other, and between that a pointer to x moves
/// from the one to the other: counted twice, it would hide the outer one. After any number of slices.
fn moving_pointers<T: skinflint_gc::typed::Trace + 'static>(
    cycles: &Cycles,
    make: impl Fn() -> Cc<T>,
    link: impl Fn(&Cc<T>, Cc<T>),
    shift: impl Fn(&Cc<T>, usize),
) {
    for (slices, from) in (0..16).flat_map(|slices| [(slices, 0), (slices, 1)]) {
        let (x, a, b) = (make(), make(), make());
        link(&x, a.clone());
        link(&x, b.clone());
        link([&a, &b][from], x.clone());
        for node in [&a, &b, &x] {
            drop(node.clone());
        }
        drop((a, b));
        for _ in 0..slices {
            cycles.step(edges(1));
        }
        shift(&x, from);
        while !cycles.step(edges(1)) {}
        assert_eq!(cycles.counts().values, 3, "after {slices} slices");
        drop(x);
        cycles.collect();
        assert_eq!(cycles.counts().boxes, 0);
    }
}

#[test]
fn a_pointer_that_moves_between_two_slices_keeps_what_it_leads_to() {
    let cycles = Cycles::new();
    let dropped = Rc::default();
    moving_pointers(
        &cycles,
        || node(&cycles, 1, &dropped),
        |from, to| from.many.borrow_mut().push(to),
        |x, from| {
            let all = x.many.borrow();
            let moved = all[from].many.borrow_mut().pop().expect("x");
            all[1 - from].many.borrow_mut().push(moved);
        },
    );
}

#[test]
fn a_pointer_that_is_cloned_between_two_slices_keeps_what_it_leads_to() {
    for slices in 0..24 {
        let cycles = Cycles::new();
        let (a, b, dropped) = pair(&cycles);
        // Each is held by itself, too, so that its count is not 0 when the other is destroyed.
        a.many.borrow_mut().push(a.clone());
        b.many.borrow_mut().push(b.clone());
        let weak = [a.downgrade(), b.downgrade()];
        drop((a, b));
        for _ in 0..slices {
            cycles.step(edges(1));
        }
        let back = weak.each_ref().map(Weak::upgrade);
        while !cycles.step(edges(1)) {}
        if let [Some(a), Some(b)] = &back {
            assert_eq!((a.told.0.id, b.told.0.id), (1, 2), "after {slices} slices");
            assert!(dropped.borrow().is_empty());
        } else {
            // Both are condemned, or none.
            assert!(back.iter().all(Option::is_none));
            assert_eq!(dropped.borrow().len(), 2);
        }
    }
}

#[test]
fn a_field_that_is_being_written_hides_nothing() {
    let cycles = Cycles::new();
    let (a, b, dropped) = pair(&cycles);
    drop(b);
    let guard = a.one.borrow_mut();
    cycles.collect();
    assert!(dropped.borrow().is_empty());
    drop(guard);
    drop(a);
    assert_eq!(cycles.collect(), 2);
}

#[test]
fn a_locked_part_of_a_native_is_left_alone_and_has_the_barrier() {
    counted! { struct Mixed { all: Locked<Vec<Cc<Mixed>>> } }
    let runtime = Runtime::new(config());
    let cycles = runtime.cycles();
    let make = || {
        cycles.cc(Mixed {
            all: Locked::default(),
        })
    };
    let tenant = runtime.tenant("a", usize::MAX);
    let a = make();
    tenant.enter(|cx| {
        a.all.borrow_mut(cx).push(a.clone());
        let guard = a.all.borrow_mut(cx);
        drop(a.clone());
        while !cycles.step(edges(1)) {}
        assert_eq!(guard.len(), 1);
    });
    drop(a);
    assert_eq!(cycles.collect(), 1);
    moving_pointers(
        &cycles,
        make,
        |from, to| tenant.enter(|cx| from.all.borrow_mut(cx).push(to)),
        |x, from| {
            tenant.enter(|cx| {
                let all = x.all.borrow();
                let moved = all[from].all.borrow_mut(cx).pop().expect("x");
                all[1 - from].all.borrow_mut(cx).push(moved);
            });
        },
    );
}

#[test]
fn weak_pointers_find_nothing_that_is_condemned() {
    let cycles = Cycles::new();
    let (a, b, dropped) = pair(&cycles);
    let (weak_a, weak_b) = (a.downgrade(), b.downgrade());
    drop((a, b));
    // Before the verdict one comes back.
    assert!(!cycles.step(edges(2)));
    let back = weak_a.upgrade().expect("not condemned yet");
    while !cycles.step(edges(1)) {}
    assert!(dropped.borrow().is_empty(), "it came back");
    drop(back);
    // After it none does, at any slice.
    let mut refused = 0;
    while !cycles.step(edges(1)) {
        if dropped.borrow().len() == 1 {
            assert!(weak_a.upgrade().is_none() && weak_b.upgrade().is_none());
            refused += 1;
        }
    }
    assert!(refused > 0);
    cycles.collect();
    assert_eq!(dropped.borrow().len(), 2);
    let counts = cycles.counts();
    assert_eq!((counts.values, counts.boxes), (0, 2), "memory only");
    drop((weak_a, weak_b));
    assert_eq!(cycles.counts().boxes, 0);
}

#[test]
fn a_list_of_many_is_dropped_without_recursion_and_so_is_a_ring() {
    counted! { struct Link { next: Field<Option<Cc<Link>>> } }
    let count = if cfg!(miri) { 300 } else { 10_000_000 };
    let cycles = Cycles::new();
    let small = std::thread::Builder::new().stack_size(128 << 10);
    let run = move || {
        let cycles = Cycles::new();
        let list = |cycles: &Cycles, count: u64| {
            let first = cycles.cc(Link {
                next: Field::new(None),
            });
            let mut head = first.clone();
            for _ in 1..count {
                head = cycles.cc(Link {
                    next: Field::new(Some(head)),
                });
            }
            (first, head)
        };
        let (first, head) = list(&cycles, count);
        drop((first, head));
        assert_eq!(cycles.counts().boxes, 0);
        let count = count / 10;
        let (first, head) = list(&cycles, count);
        *first.next.borrow_mut() = Some(head);
        drop(first);
        assert_eq!(cycles.counts().boxes, count);
        assert_eq!(cycles.collect(), count);
        assert_eq!(cycles.counts().boxes, 0);
    };
    small
        .spawn(run)
        .expect("a thread")
        .join()
        .expect("no overflow");
    drop(cycles);
}

#[test]
fn a_destructor_that_panics_is_contained_and_reported() {
    struct Bad(u32);
    impl Drop for Bad {
        fn drop(&mut self) {
            panic!("bad {}", self.0);
        }
    }
    counted! { struct Holder { next: Field<Option<Cc<Holder>>>, bad: Opaque<Bad> } }
    let cycles = Cycles::new();
    let make = |number| {
        cycles.cc(Holder {
            next: Field::new(None),
            bad: Opaque(Bad(number)),
        })
    };
    drop(make(1));
    let (a, b) = (make(2), make(3));
    *a.next.borrow_mut() = Some(b.clone());
    *b.next.borrow_mut() = Some(a.clone());
    drop((a, b));
    assert_eq!(cycles.collect(), 2);
    let counts = cycles.counts();
    assert_eq!((counts.boxes, counts.panics), (0, 3));
    assert!(counts.faults[0].kind.ends_with("Holder"));
    let said: Vec<&str> = counts.faults.iter().map(|f| f.message.as_str()).collect();
    assert_eq!(said[0], "bad 1");
    assert!(said.contains(&"bad 2") && said.contains(&"bad 3"));
}

#[test]
fn a_destructor_may_use_the_collector() {
    struct Again {
        cycles: Rc<Cycles>,
        left: u32,
    }
    impl Drop for Again {
        fn drop(&mut self) {
            if self.left > 0 {
                let cycles = &self.cycles;
                ring(cycles, self.left - 1);
                cycles.step(edges(100));
                cycles.collect();
            }
        }
    }
    counted! { struct Ring { next: Field<Option<Cc<Ring>>>, again: Opaque<Again> } }
    fn ring(cycles: &Rc<Cycles>, left: u32) {
        let one = cycles.cc(Ring {
            next: Field::new(None),
            again: Opaque(Again {
                cycles: cycles.clone(),
                left,
            }),
        });
        *one.next.borrow_mut() = Some(one.clone());
    }
    let cycles = Rc::new(Cycles::new());
    ring(&cycles, 5);
    for _ in 0..6 {
        cycles.collect();
    }
    assert_eq!(cycles.counts().boxes, 0);
    assert_eq!(cycles.counts().destroyed, 6);
}

#[test]
fn a_slice_does_no_more_than_its_budget_and_collections_come_by_themselves() {
    let cycles = Cycles::new();
    let dropped = Rc::default();
    // Under Miri, too, more than the least at which a collection comes by itself (1,024).
    let count = if cfg!(miri) { 3_000 } else { 100_000 };
    for id in 0..count {
        let one = node(&cycles, id, &dropped);
        *one.one.borrow_mut() = Some(one.clone());
    }
    let counts = cycles.counts();
    assert!(
        counts.collections > 0 && counts.boxes < count / 2,
        "{counts:?}"
    );
    let mut slices = 0;
    while !cycles.step(edges(10)) {
        slices += 1;
    }
    let left = counts.boxes;
    // Each box is a node, an edge, looked at, and destroyed.
    assert!(slices <= left * 4 / 10 + 10, "{slices} slices for {left}");
    cycles.collect();
    assert_eq!(cycles.counts().boxes, 0);
}

#[test]
fn a_slice_goes_on_until_its_time_is_over_or_nothing_is_left() {
    let cycles = Cycles::new();
    let hour = Budget {
        edges: 1_000_000,
        ns: 3_600_000_000_000,
    };
    drop(pair(&cycles));
    assert!(cycles.step(hour), "an hour is enough for two boxes");
    let counts = cycles.counts();
    assert_eq!((counts.boxes, counts.destroyed, counts.slices), (0, 2, 1));
}

#[test]
fn what_was_asked_to_do_everything_is_no_slice_with_a_bound() {
    let cycles = Cycles::new();
    drop(pair(&cycles));
    assert_eq!(cycles.collect(), 2);
    let counts = cycles.counts();
    assert_eq!((counts.slices, counts.longest_ns), (1, 0));
}

#[test]
fn a_slice_of_one_unit_does_one_thing() {
    let cycles = Cycles::new();
    drop(pair(&cycles));
    while !cycles.step(edges(1)) {}
    // Two are traced, two looked at, two destroyed; an end of the tracing, a verdict, and a look that finds nothing.
    let counts = cycles.counts();
    assert_eq!((counts.slices, counts.nodes, counts.destroyed), (9, 2, 2));
}

#[test]
fn what_is_due_is_begun_by_each_sixty_fourth_box_and_no_other() {
    let cycles = Cycles::new();
    let dropped = Rc::default();
    for id in 0..1024 {
        let one = node(&cycles, id, &dropped);
        *one.one.borrow_mut() = Some(one.clone());
    }
    assert!(cycles.is_due());
    (0..63).for_each(|number| drop(cycles.cc(number)));
    assert_eq!(cycles.counts().slices, 0);
    drop(cycles.cc(63));
    assert_eq!(cycles.counts().slices, 1);
}

#[test]
fn cycles_that_nobody_holds_go_with_their_collector() {
    let cycles = Cycles::new();
    let (a, b, dropped) = pair(&cycles);
    assert!(!a.is(&b) && a.is(&a.clone()) && b.is(&a.one.borrow().clone().expect("linked")));
    drop((a, b));
    assert!(dropped.borrow().is_empty());
    drop(cycles);
    dropped.borrow_mut().sort_unstable();
    assert_eq!(*dropped.borrow(), [1, 2]);
}

#[test]
fn two_collectors_do_not_mix_their_boxes() {
    let (one, other) = (Cycles::new(), Cycles::new());
    let (a, b, dropped) = pair(&one);
    let outer = node(&other, 7, &dropped);
    outer.many.borrow_mut().extend([a.clone(), outer.clone()]);
    a.many.borrow_mut().push(outer.clone());
    drop((a, b));
    drop(outer.clone());
    one.step(edges(1));
    other.step(edges(1));
    one.collect();
    other.collect();
    // A cycle through both is held by each for the other: it leaks, and nothing dangles.
    assert!(dropped.borrow().is_empty());
    outer.many.borrow_mut().clear();
    one.collect();
    assert_eq!(*dropped.borrow(), [1, 2]);
    drop(outer);
    other.collect();
    assert_eq!(dropped.borrow().len(), 3);
}

fn config() -> Config {
    Config {
        background: false,
        verify: true,
        poison: true,
        ..Config::default()
    }
}
