//! Several tenants with random edges within and between them, against a plain model.
//!
//! ```text
//!   seed ─► make, link, cross, let go, collect one, collect all, begin to collect all in slices ─┬─► tenants
//!                                                                                                └─► the model: ids, edges, handles
//! ```
//!
//! M1  What the model can reach (edges between tenants included) is alive, with its id, after any collection.
//! M2  After a collection of all heaps together nothing else is alive.
//! M3  After a collection of a single tenant no object of the others has ended.
//! M4  The name of a live object, which lies in the heap that all tenants share, is alive.
//!
//! Not here: one heap's objects of all kinds and sizes (`graph`).

use std::collections::{BTreeMap, BTreeSet};

use skinflint_base::random::Random;
use skinflint_gc::typed::{CrossEdge, Cx, Gc, Handle, Locked, Runtime, Slot, Sys, Tenant};
use skinflint_gc::{Budget, Config, Growth, Incremental, Progress, Reason, object};

object! {
    struct Node<'gc> {
        id: u64,
        next: Slot<Gc<'gc, Node<'gc>>>,
        name: Slot<Sys<'gc, String>>,
        cross: Locked<Vec<CrossEdge<'gc, Node<'static>>>>,
    }
}

const TENANTS: usize = 4;

#[derive(Default, Clone)]
struct Known {
    tenant: usize,
    next: Option<u64>,
    cross: Vec<u64>,
}

struct Model {
    runtime: Runtime,
    tenants: Vec<Tenant>,
    nodes: BTreeMap<u64, Known>,
    handles: BTreeMap<u64, Handle<Node<'static>>>,
    dice: Random,
    made: u64,
}

impl Model {
    fn new(seed: u64, config: Config) -> Model {
        let runtime = Runtime::new(config);
        let tenants = (0..TENANTS)
            .map(|number| runtime.tenant(&format!("tenant {number}"), usize::MAX))
            .collect();
        Model {
            runtime,
            tenants,
            nodes: BTreeMap::new(),
            handles: BTreeMap::new(),
            dice: Random::new(seed),
            made: 0,
        }
    }

    fn some(&mut self) -> Option<u64> {
        let nth = self.dice.index(self.handles.len().max(1));
        self.handles.keys().nth(nth).copied()
    }

    fn make(&mut self) {
        let (id, tenant) = (self.made, self.dice.index(TENANTS));
        self.made += 1;
        let make = |cx: Cx<'_>| {
            let name = cx.alloc_shared(format!("node {id}")).expect("memory");
            let node = Node {
                id,
                next: Slot::new(None),
                name: Slot::new(Some(name)),
                cross: Locked::default(),
            };
            cx.keep(cx.alloc(node).expect("memory"), "model")
        };
        self.handles.insert(id, self.tenants[tenant].enter(make));
        let known = Known {
            tenant,
            ..Known::default()
        };
        self.nodes.insert(id, known);
    }

    /// An edge between two that have handles: within a tenant by pointer, between two by a cross edge.
    fn link(&mut self) {
        let (Some(from), Some(to)) = (self.some(), self.some()) else {
            return;
        };
        let (tenant, other) = (self.nodes[&from].tenant, self.nodes[&to].tenant);
        let (a, b) = (&self.handles[&from], &self.handles[&to]);
        let known = self.nodes.get_mut(&from).expect("known");
        self.tenants[tenant].enter(|cx| {
            let node = a.open(cx).expect("its tenant's");
            if tenant == other {
                node.next.set(cx, b.open(cx).ok());
                known.next = Some(to);
            } else if known.cross.len() < 3 {
                node.cross
                    .borrow_mut(cx)
                    .push(cx.cross_edge(b).expect("of this runtime"));
                known.cross.push(to);
            } else {
                node.cross.borrow_mut(cx).clear();
                known.cross.clear();
            }
        });
    }

    fn let_go(&mut self) {
        if let Some(id) = self.some() {
            self.handles.remove(&id);
        }
    }

    fn reachable(&self) -> BTreeSet<u64> {
        let mut reached = BTreeSet::new();
        let mut open: Vec<u64> = self.handles.keys().copied().collect();
        while let Some(id) = open.pop() {
            if reached.insert(id) {
                let known = &self.nodes[&id];
                open.extend(known.next.iter().chain(&known.cross));
            }
        }
        reached
    }

    fn objects(&self) -> Vec<usize> {
        let count = |tenant: &Tenant| {
            tenant.heap().check();
            tenant.heap().holds().objects
        };
        self.tenants.iter().map(count).collect()
    }

    /// M1: along all edges, with each node opened in its own tenant.
    fn walk(&self) {
        let all = self.tenants.iter().collect::<Vec<_>>();
        let mut seen = BTreeSet::new();
        for (&id, handle) in &self.handles {
            self.step(&all, id, handle, &mut seen);
        }
    }

    fn step(
        &self,
        all: &[&Tenant],
        id: u64,
        handle: &Handle<Node<'static>>,
        seen: &mut BTreeSet<u64>,
    ) {
        if !seen.insert(id) {
            return;
        }
        let known = &self.nodes[&id];
        let further = all[known.tenant].enter(|cx| {
            let node = handle.open(cx).expect("its tenant's");
            assert_eq!(node.id, id);
            let name = node.name.get().expect("it has one");
            assert_eq!(*name, format!("node {id}"), "M4");
            assert_eq!(node.cross.borrow().len(), known.cross.len());
            for (cross, to) in node.cross.borrow().iter().zip(&known.cross) {
                all[self.nodes[to].tenant].enter(|in_other| {
                    assert_eq!(cross.open(in_other).expect("the other's").id, *to);
                });
            }
            let next = node.next.get();
            assert_eq!(next.map(|next| next.id), known.next);
            next.map(|next| (next.id, cx.keep::<Node>(next, "walk")))
        });
        if let Some((id, handle)) = further {
            self.step(all, id, &handle, seen);
        }
    }

    fn collect_one(&mut self) {
        let before = self.objects();
        let which = self.dice.index(TENANTS);
        self.tenants[which].collect().expect("no tenant is busy");
        let after = self.objects();
        for (number, (before, after)) in before.iter().zip(&after).enumerate() {
            assert!(number == which || before == after, "M3: {number}");
        }
        self.walk();
    }

    fn collect_all(&mut self) {
        let reached = self.reachable();
        self.runtime
            .collect_all(Reason::Asked)
            .expect("no tenant is busy");
        let mut expected = vec![0; TENANTS];
        for id in &reached {
            expected[self.nodes[id].tenant] += 1;
        }
        assert_eq!(self.objects(), expected, "M2");
        self.nodes.retain(|id, _| reached.contains(id));
        self.walk();
    }

    /// All heaps together, in slices: a part of it, with what comes between.
    fn mark_all(&mut self) {
        self.runtime
            .begin_all(Reason::Asked)
            .expect("no tenant is busy");
        for _ in 0..self.dice.index(40) {
            let edges = 1 + self.dice.index(40) as u64;
            let budget = Budget {
                edges,
                ns: u64::MAX,
            };
            if self.runtime.mark_step(budget) == Progress::Off {
                return;
            }
            match self.dice.index(3) {
                0 => self.make(),
                1 => self.link(),
                _ => self.let_go(),
            }
        }
    }

    /// How often all heaps were collected together in slices.
    fn run(mut self, acts: usize) -> usize {
        let mut sliced = 0;
        for _ in 0..acts {
            let before = self.runtime.shared().collections();
            match self.dice.index(100) {
                0..35 => self.make(),
                35..65 => self.link(),
                65..93 => self.let_go(),
                93..96 => self.mark_all(),
                96..99 => self.collect_one(),
                _ => self.collect_all(),
            }
            if self.runtime.shared().collections() > before {
                let log = self.runtime.shared().log();
                sliced += usize::from(log.last().is_some_and(|last| last.slices > 1));
                self.walk();
            }
        }
        self.handles.clear();
        self.collect_all();
        assert_eq!(self.objects(), [0; TENANTS]);
        assert_eq!(self.runtime.shared().holds().objects, 0);
        sliced
    }
}

fn runs(seeds: u64, acts: usize, config: fn() -> Config) {
    let (seeds, acts) = if cfg!(miri) {
        (1, acts / 60)
    } else {
        (seeds, acts)
    };
    for seed in 1..=seeds {
        eprintln!("seed {seed}");
        let sliced = Model::new(seed, config()).run(acts);
        assert!(cfg!(miri) || sliced > acts / 400, "{sliced}");
    }
}

#[test]
fn edges_between_tenants_beside_the_sweeper() {
    runs(6, 3000, || Config {
        verify: true,
        poison: true,
        growth: Growth {
            floor_bytes: 8000,
            ..Growth::TIGHT
        },
        ..Config::default()
    });
}

#[test]
fn edges_between_tenants_under_stress() {
    runs(4, 2000, || Config::stress(5));
}

#[test]
fn edges_between_tenants_that_are_marked_in_slices() {
    runs(6, 3000, || Config {
        incremental: Some(Incremental {
            slice_edges: 3,
            slice_bytes: 100,
            ..Incremental::STRESS
        }),
        ..Config::stress(15)
    });
}
