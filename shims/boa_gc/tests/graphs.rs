//! Random programs against a plain model: nodes with edges, weak edges and ephemerons, in several tenants.
//!
//! ```text
//!   seed ─► allocate, link, unlink, keep, let go, read through every edge …   ─► what a walk over the model reaches
//!                                                                                is what is alive, to the object
//! ```
//!
//! The model knows nodes by number. A drop shows as the node's number in a list; nothing that the model reaches may
//! be in it, and after a collection of everything all that it does not reach must be.
//!
//! Not here: particular shapes (`objects`, `weak`).

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use boa_gc::skinflint::{self, Growth, Tenant, stats};
use boa_gc::{Ephemeron, Finalize, Gc, GcRefCell, Trace, WeakGc, force_collect};
use skinflint_base::random::Random;

type Dropped = Rc<RefCell<Vec<u32>>>;

#[derive(Trace, Finalize)]
struct Node {
    edges: GcRefCell<Vec<Gc<Node>>>,
    weak: GcRefCell<Vec<WeakGc<Node>>>,
    pairs: GcRefCell<Vec<Ephemeron<Node, Gc<Node>>>>,
    noted: Noted,
}

/// It does not derive the traits, so that it may have a `Drop` of its own.
struct Noted {
    number: u32,
    dropped: Dropped,
}

impl Drop for Noted {
    fn drop(&mut self) {
        self.dropped.borrow_mut().push(self.number);
    }
}

impl Finalize for Noted {}
// SAFETY: there is no `Gc` in it.
unsafe impl Trace for Noted {
    boa_gc::empty_trace!();
}

#[derive(Default, Clone)]
struct Model {
    edges: Vec<u32>,
    weak: Vec<u32>,
    pairs: Vec<(u32, u32)>,
}

struct Program {
    random: Random,
    tenants: Vec<Tenant>,
    kept: Vec<Gc<Node>>,
    model: BTreeMap<u32, Model>,
    dropped: Dropped,
    next: u32,
}

impl Program {
    /// Returns what the kept nodes lead to.
    fn reached(&self) -> BTreeSet<u32> {
        let mut queue: Vec<u32> = self.kept.iter().map(|gc| gc.noted.number).collect();
        let mut reached = BTreeSet::new();
        loop {
            while let Some(number) = queue.pop() {
                if reached.insert(number) {
                    queue.extend(&self.model[&number].edges);
                }
            }
            for number in &reached {
                for (key, value) in &self.model[number].pairs {
                    if reached.contains(key) && !reached.contains(value) {
                        queue.push(*value);
                    }
                }
            }
            if queue.is_empty() {
                return reached;
            }
        }
    }

    /// Returns a random node that the program can reach.
    fn anywhere(&mut self) -> Option<Gc<Node>> {
        let mut at = self.kept.get(self.random.index(self.kept.len()))?.clone();
        for _ in 0..self.random.index(4) {
            let edges = at.edges.borrow();
            let Some(next) = edges.get(self.random.index(edges.len())).cloned() else {
                break;
            };
            drop(edges);
            at = next;
        }
        Some(at)
    }

    fn step(&mut self) {
        match self.random.index(20) {
            0..6 => self.allocate(),
            6..10 => self.link(),
            10..12 => self.unlink(),
            12 => self.link_weakly(),
            13 => self.pair(),
            14 => {
                if let Some(gc) = self.anywhere() {
                    self.kept.push(gc);
                }
            }
            15..19 if self.kept.len() > 3 => {
                let at = self.random.index(self.kept.len());
                self.kept.swap_remove(at);
            }
            _ => self.read(),
        }
    }

    fn allocate(&mut self) {
        let tenant = self.random.index(self.tenants.len());
        let number = self.next;
        self.next += 1;
        let (edges, model) = match self.anywhere() {
            Some(gc) => (vec![gc.clone()], vec![gc.noted.number]),
            None => (Vec::new(), Vec::new()),
        };
        let noted = Noted {
            number,
            dropped: self.dropped.clone(),
        };
        let node = Node {
            edges: GcRefCell::new(edges),
            weak: GcRefCell::default(),
            pairs: GcRefCell::default(),
            noted,
        };
        let _in = self.tenants[tenant].enter();
        self.kept.push(Gc::new(node));
        let edges = model;
        self.model.insert(
            number,
            Model {
                edges,
                ..Model::default()
            },
        );
    }

    fn link(&mut self) {
        if let (Some(from), Some(to)) = (self.anywhere(), self.anywhere()) {
            from.edges.borrow_mut().push(to.clone());
            let model = self.model.get_mut(&from.noted.number).expect("known");
            model.edges.push(to.noted.number);
        }
    }

    fn unlink(&mut self) {
        let Some(from) = self.anywhere() else { return };
        let mut edges = from.edges.borrow_mut();
        if !edges.is_empty() {
            let at = self.random.index(edges.len());
            edges.swap_remove(at);
            let model = self.model.get_mut(&from.noted.number).expect("known");
            model.edges.swap_remove(at);
        }
    }

    fn link_weakly(&mut self) {
        if let (Some(from), Some(to)) = (self.anywhere(), self.anywhere()) {
            let weak = WeakGc::new(&to);
            from.weak.borrow_mut().push(weak);
            let model = self.model.get_mut(&from.noted.number).expect("known");
            model.weak.push(to.noted.number);
        }
    }

    fn pair(&mut self) {
        if let (Some(from), Some(key), Some(value)) =
            (self.anywhere(), self.anywhere(), self.anywhere())
        {
            let pair = Ephemeron::new(&key, value.clone());
            from.pairs.borrow_mut().push(pair);
            let model = self.model.get_mut(&from.noted.number).expect("known");
            model.pairs.push((key.noted.number, value.noted.number));
        }
    }

    /// Reads everything that an object has.
    fn read(&mut self) {
        let Some(gc) = self.anywhere() else { return };
        let model = &self.model[&gc.noted.number];
        let numbers: Vec<u32> = gc.edges.borrow().iter().map(|to| to.noted.number).collect();
        assert_eq!(numbers, model.edges);
        for (weak, number) in gc.weak.borrow().iter().zip(&model.weak) {
            assert!(weak.upgrade().is_none_or(|to| to.noted.number == *number));
        }
        for (pair, (key, value)) in gc.pairs.borrow().iter().zip(&model.pairs) {
            if let Some(held) = pair.value() {
                assert_eq!(held.noted.number, *value);
                assert_eq!(pair.key().expect("with the value").noted.number, *key);
            }
        }
    }

    /// Checks that nothing that is reached was dropped; and after a whole collection that everything else was.
    fn check(&mut self, whole: bool) {
        let reached = self.reached();
        let dropped: BTreeSet<u32> = self.dropped.borrow().iter().copied().collect();
        assert_eq!(dropped.len(), self.dropped.borrow().len(), "dropped twice");
        let lost: Vec<_> = reached.intersection(&dropped).collect();
        assert!(lost.is_empty(), "alive and dropped: {lost:?}");
        if whole {
            let all: BTreeSet<u32> = (0..self.next).collect();
            let kept: BTreeSet<u32> = all.difference(&dropped).copied().collect();
            assert_eq!(kept, reached, "garbage is left");
        }
    }
}

fn run(seed: u64, steps: usize, tenants: usize, whole_every: usize) {
    skinflint::verify(true);
    let mut program = Program {
        random: Random::new(seed),
        tenants: (0..tenants)
            .map(|n| Tenant::new(&format!("tenant {n}"), usize::MAX))
            .collect(),
        kept: Vec::new(),
        model: BTreeMap::new(),
        dropped: Dropped::default(),
        next: 0,
    };
    for step in 0..steps {
        program.step();
        if step % whole_every == whole_every - 1 {
            force_collect();
            program.check(true);
        } else if step % 100 == 99 {
            program.check(false);
        }
    }
    program.kept.clear();
    force_collect();
    program.check(true);
    assert_eq!(stats().objects, 0);
    for tenant in program.tenants {
        assert_eq!(tenant.end().objects_left, 0);
    }
}

fn seeds(many: u64, test: fn(u64)) {
    let many = if cfg!(miri) { 1 } else { many };
    for seed in 0..many {
        let thread = std::thread::spawn(move || test(seed));
        assert!(thread.join().is_ok(), "seed {seed}");
    }
}

const STEPS: usize = if cfg!(miri) { 300 } else { 3_000 };

#[test]
fn one_tenant() {
    seeds(6, |seed| run(seed, STEPS, 1, 500));
}

#[test]
fn three_tenants() {
    seeds(6, |seed| run(seed, STEPS, 3, 500));
}

#[test]
fn collected_at_every_third_allocation() {
    seeds(4, |seed| {
        skinflint::stress(3);
        run(seed, STEPS / 3, 2, 500);
    });
}

#[test]
fn marked_in_slices_all_the_time() {
    seeds(6, |seed| {
        // With 4, trial deletion goes down to the last object.
        skinflint::examine_at_most(if seed % 2 == 0 { 4 } else { 4096 });
        // With a threshold of 0, a cycle begins when the last one has ended.
        skinflint::set_growth(Growth {
            floor_bytes: 0,
            factor: 0.0,
            often_small: 0.0,
            often_large: 0.0,
            ..Growth::TENANT
        });
        run(seed, STEPS * 2, 2, STEPS);
        let finals = skinflint::collections();
        let finals = finals
            .iter()
            .filter(|event| event.step == skinflint::Step::Final);
        assert!(cfg!(miri) || finals.count() > 4, "cycles came to their end");
    });
}
