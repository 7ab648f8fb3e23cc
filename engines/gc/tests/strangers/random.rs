//! Random graphs of safe code in two runtimes at once, against a model.
//!
//! ```text
//!   seed ─► make, link, box, weak, pair, cross, hold, leak, begin, step, collect … ─┬─► tenants of two runtimes
//!                                                                                  └─► a map from id to edges
//! ```
//!
//! M1  Along every edge of the model from the test's handles there is an object with that id and its text.
//! M2  A weak pointer to what the model reaches is full; any that is full leads to an object with its text.
//! M3  Guards are taken with the right of any tenant of either runtime.
//! M4  Handles in objects (always to the second runtime's objects, in objects of the first: no cycle) die in finalizers.
//!     When all that the test holds is gone, nothing is left in either.
//!
//! Not here: programs by hand (`main`); graphs of the core (`../graph`).

use std::collections::{BTreeMap, BTreeSet};

use skinflint_base::random::Random;
use skinflint_gc::cc::{Anchor, Cc, Counted, Cycles, Field};
use skinflint_gc::typed::{
    CrossEdge, Cx, Ephemeron, Gc, Handle, Locked, Opaque, Runtime, Slot, Tenant, Weak,
};
use skinflint_gc::{Budget, Config, Growth, Incremental, Reason, counted, object};

type Kept = Handle<Node<'static>>;

object! {
    struct Node<'gc> {
        id: u64,
        text: String,
        next: Slot<Gc<'gc, Node<'gc>>>,
        list: Locked<Vec<Gc<'gc, Node<'gc>>>>,
        boxed: Box<Locked<Vec<Gc<'gc, Node<'gc>>>>>,
        weak: Gc<'gc, WeakPart<'gc>>,
        cross: Box<Locked<Vec<CrossEdge<'gc, Node<'static>>>>>,
        native: Box<Locked<Vec<Counted<'gc, Native>>>>,
        dies: Opaque<Option<Kept>>,
    }
}

object! {
    /// A node's weak edges: an object of its own, since one with weak parts is looked at again as a whole.
    struct WeakPart<'gc> {
        to: Box<Locked<Option<Weak<'gc, Node<'gc>>>>>,
        pair: Box<Locked<Option<Ephemeron<'gc, Node<'gc>, Node<'gc>>>>>,
    }
}

counted! {
    struct Native {
        id: u64,
        text: String,
        to: Field<Vec<Anchor<Node<'static>>>>,
        next: Field<Option<Cc<Native>>>,
    }
}

/// The edges of a node in the model. `None` for a list: its guard was leaked, and what is in it is told no more.
#[derive(Clone, Default)]
struct Edges {
    tenant: usize,
    next: Option<u64>,
    list: Option<Vec<u64>>,
    boxed: Option<Vec<u64>>,
    weak: Option<u64>,
    pair: Option<(u64, u64)>,
    cross: Option<Vec<u64>>,
    native: Option<Vec<u64>>,
}

#[derive(Clone, Default)]
struct NativeEdges {
    to: Vec<u64>,
    next: Option<u64>,
}

fn text(id: u64) -> String {
    format!("{id}: a text that is long enough to have bytes of its own")
}

/// Tenants 0 and 1 are of the first runtime, 2 and 3 of the second.
struct World {
    runtimes: [Runtime; 2],
    cycles: [Cycles; 2],
    tenants: Vec<Tenant>,
    kept: Vec<BTreeMap<u64, Kept>>,
    natives: [BTreeMap<u64, Cc<Native>>; 2],
    nodes: BTreeMap<u64, Edges>,
    native_nodes: BTreeMap<u64, NativeEdges>,
    dice: Random,
    next: u64,
}

impl Edges {
    fn of(tenant: usize) -> Edges {
        Edges {
            tenant,
            list: Some(Vec::new()),
            boxed: Some(Vec::new()),
            cross: Some(Vec::new()),
            native: Some(Vec::new()),
            ..Edges::default()
        }
    }
}

/// A new node, which nothing keeps.
fn fresh<'gc>(cx: Cx<'gc>, id: u64, dies: Option<Kept>) -> Gc<'gc, Node<'gc>> {
    let weak = WeakPart {
        to: Box::default(),
        pair: Box::default(),
    };
    let node = Node {
        id,
        text: text(id),
        next: Slot::new(None),
        list: Locked::default(),
        boxed: Box::default(),
        weak: cx.alloc(weak).expect("memory"),
        cross: Box::default(),
        native: Box::default(),
        dies: Opaque(dies),
    };
    cx.alloc(node).expect("memory")
}

impl Native {
    fn fresh(id: u64) -> Native {
        Native {
            id,
            text: text(id),
            to: Field::default(),
            next: Field::new(None),
        }
    }
}

fn of(tenant: usize) -> usize {
    tenant / 2
}

impl World {
    fn new(config: &Config, seed: u64) -> World {
        let runtimes = [(); 2].map(|()| Runtime::new(config.clone()));
        let cycles = [0, 1].map(|n| runtimes[n].cycles());
        let tenants = (0..4)
            .map(|n| runtimes[of(n)].tenant(&format!("tenant {n}"), usize::MAX))
            .collect();
        World {
            runtimes,
            cycles,
            tenants,
            kept: (0..4).map(|_| BTreeMap::new()).collect(),
            natives: [BTreeMap::new(), BTreeMap::new()],
            nodes: BTreeMap::new(),
            native_nodes: BTreeMap::new(),
            dice: Random::new(seed),
            next: 0,
        }
    }

    fn id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn some(&mut self, tenant: usize) -> Option<u64> {
        let nth = self.dice.index(self.kept[tenant].len().max(1));
        self.kept[tenant].keys().nth(nth).copied()
    }

    fn some_native(&mut self, runtime: usize) -> Option<u64> {
        let nth = self.dice.index(self.natives[runtime].len().max(1));
        self.natives[runtime].keys().nth(nth).copied()
    }

    fn make(&mut self, tenant: usize) {
        let id = self.id();
        let theirs = 2 + self.dice.index(2);
        let dies = match self.some(theirs).filter(|_| tenant < 2) {
            Some(to) if self.dice.index(4) == 0 => self.kept[theirs].get(&to).cloned(),
            _ => None,
        };
        let made = self.tenants[tenant].enter(|cx| cx.keep(fresh(cx, id, dies), "kept"));
        self.kept[tenant].insert(id, made);
        self.nodes.insert(id, Edges::of(tenant));
    }

    fn make_native(&mut self, runtime: usize) {
        let (id, next) = (self.id(), self.some_native(runtime));
        let made = self.cycles[runtime].cc(Native {
            id,
            text: text(id),
            to: Field::default(),
            next: Field::new(next.map(|next| self.natives[runtime][&next].clone())),
        });
        self.natives[runtime].insert(id, made);
        let edges = NativeEdges {
            to: Vec::new(),
            next,
        };
        self.native_nodes.insert(id, edges);
    }

    /// Writes one edge of an object, with the right of any tenant (M3), and perhaps marks a little within the closure.
    fn write(&mut self, tenant: usize) {
        let (Some(from), Some(to), Some(also)) =
            (self.some(tenant), self.some(tenant), self.some(tenant))
        else {
            return;
        };
        let (what, whose, steps) = (self.dice.index(19), self.dice.index(4), self.dice.index(3));
        let new = self.id();
        let mate = tenant ^ 1;
        let (beside, native) = (self.some(mate), self.some_native(of(tenant)));
        let kept = &self.kept;
        let runtime = &self.runtimes[of(tenant)];
        let mut theirs = (to != from).then(|| self.nodes[&to].clone());
        if (13..17).contains(&what) {
            self.nodes.insert(new, Edges::of(tenant));
        }
        let edges = self.nodes.get_mut(&from).expect("in the model");
        self.tenants[tenant].enter(|cx| {
            let open = |id: &u64| kept[tenant][id].open(cx).expect("its own");
            let (from, target, other) = (open(&from), open(&to), open(&also));
            for _ in 0..steps {
                runtime.mark_step(Budget {
                    edges: 7,
                    ns: u64::MAX,
                });
            }
            self.tenants[whose].enter(|right| match what {
                0 | 1 => {
                    from.next.set(cx, Some(target));
                    edges.next = Some(to);
                }
                2 => {
                    from.next.set(cx, None);
                    edges.next = None;
                }
                3 | 4 => push(&from.list, edges.list.as_mut(), right, target),
                5 | 6 => push(&from.boxed, edges.boxed.as_mut(), right, target),
                7 | 8 | 15 | 16 => {
                    let ends = [(to, target), (also, other)];
                    write_weak(what, (&from, edges), (cx, right), ends, new);
                }
                9 => {
                    if let (Some(beside), Some(ids)) = (beside, &mut edges.cross) {
                        let edge = cx.cross_edge(&kept[mate][&beside]).expect("its own");
                        from.cross.borrow_mut(right).push(edge);
                        ids.push(beside);
                    }
                }
                10 => {
                    if let (Some(native), Some(ids)) = (native, &mut edges.native) {
                        let cc = self.natives[of(tenant)][&native].clone();
                        let held = cx.hold(cc).expect("its own");
                        from.native.borrow_mut(right).push(held);
                        ids.push(native);
                    }
                }
                11 => {
                    if let Some(native) = native {
                        let cc = &self.natives[of(tenant)][&native];
                        let anchor = cx.anchor(&self.cycles[of(tenant)], target);
                        cc.to.borrow_mut().push(anchor.expect("its own"));
                        let edges = self.native_nodes.get_mut(&native).expect("in the model");
                        edges.to.push(to);
                    }
                }
                12 => {
                    // What only the guard that is leaked holds.
                    let held = cx.hold(self.cycles[of(tenant)].cc(Native::fresh(new)));
                    let held = held.expect("its own");
                    leak(&from, edges, right, (target, held), to % 7);
                }
                // What nothing else leads to, neither before nor after the write.
                13 => push(
                    &from.boxed,
                    edges.boxed.as_mut(),
                    right,
                    fresh(cx, new, None),
                ),
                14 => push(&from.list, edges.list.as_mut(), right, fresh(cx, new, None)),
                // From one box into another.
                _ => {
                    let moved = theirs
                        .as_mut()
                        .and_then(|theirs| theirs.boxed.as_mut()?.pop());
                    if moved.is_some() {
                        let node = target.boxed.borrow_mut(right).pop();
                        let node = node.expect("in the model");
                        assert_eq!(Some(node.id), moved);
                        push(&from.boxed, edges.boxed.as_mut(), right, node);
                    }
                }
            });
        });
        if let Some(theirs) = theirs {
            self.nodes.insert(to, theirs);
        }
    }

    fn drop_some(&mut self, tenant: usize) {
        if let Some(id) = self.some(tenant) {
            self.kept[tenant].remove(&id);
        }
    }

    fn collect(&mut self) {
        let (which, how) = (self.dice.index(4), self.dice.index(5));
        let (runtime, cycles) = (&self.runtimes[of(which)], &self.cycles[of(which)]);
        match how {
            0 => self.tenants[which].collect().expect("at rest"),
            1 => runtime.collect_all(Reason::Asked).expect("at rest"),
            2 => cycles
                .collect_with(runtime, Reason::Asked)
                .expect("at rest"),
            3 => drop(runtime.begin_all(Reason::Asked).expect("at rest")),
            _ => drop(cycles.collect()),
        }
        self.compare();
    }

    /// The ids that the test's handles and pointers lead to, nodes and natives.
    fn reached(&self) -> (BTreeSet<u64>, BTreeSet<u64>) {
        let (mut nodes, mut natives) = (BTreeSet::new(), BTreeSet::new());
        let mut open: Vec<u64> = self
            .kept
            .iter()
            .flat_map(|kept| kept.keys().copied())
            .collect();
        let all = self
            .natives
            .iter()
            .flat_map(|natives| natives.keys().copied());
        let mut open_natives: Vec<u64> = all.collect();
        loop {
            if let Some(id) = open.pop() {
                if nodes.insert(id) {
                    let edges = &self.nodes[&id];
                    let lists = edges.list.iter().chain(&edges.boxed);
                    let lists = lists.chain(&edges.cross).flatten();
                    open.extend(lists.chain(&edges.next));
                    open_natives.extend(edges.native.iter().flatten());
                }
            } else if let Some(id) = open_natives.pop() {
                if natives.insert(id) {
                    let edges = &self.native_nodes[&id];
                    open.extend(&edges.to);
                    open_natives.extend(&edges.next);
                }
            } else {
                let pair = |id: &u64| self.nodes[id].pair;
                let values = nodes.iter().filter_map(pair);
                let followed =
                    |(key, value): &(u64, u64)| nodes.contains(key) && !nodes.contains(value);
                open.extend(values.filter(followed).map(|(_, value)| value));
                if open.is_empty() {
                    return (nodes, natives);
                }
            }
        }
    }

    fn compare(&self) {
        let (nodes, _) = self.reached();
        let mut seen = BTreeSet::new();
        let mut seen_natives = BTreeSet::new();
        let mut crossing: Vec<(usize, Kept)> = Vec::new();
        for (tenant, kept) in self.kept.iter().enumerate() {
            crossing.extend(kept.values().map(|kept| (tenant, kept.clone())));
        }
        let mut natives: Vec<(usize, Cc<Native>)> = Vec::new();
        for (runtime, all) in self.natives.iter().enumerate() {
            natives.extend(all.values().map(|cc| (runtime, cc.clone())));
        }
        loop {
            if let Some((tenant, kept)) = crossing.pop() {
                self.tenants[tenant].enter(|cx| {
                    let node = kept.open(cx).expect("its own");
                    self.walk(
                        tenant,
                        cx,
                        node,
                        &nodes,
                        &mut seen,
                        &mut crossing,
                        &mut natives,
                    );
                });
            } else if let Some((runtime, native)) = natives.pop() {
                if !seen_natives.insert(native.id) {
                    continue;
                }
                assert_eq!(native.text, text(native.id));
                let edges = &self.native_nodes[&native.id];
                let next = native.next.borrow();
                assert_eq!(next.as_ref().map(|next| next.id), edges.next);
                natives.extend(next.clone().map(|next| (runtime, next)));
                let to = native.to.borrow();
                assert_eq!(to.len(), edges.to.len());
                for (anchor, id) in to.iter().zip(&edges.to) {
                    let tenant = self.nodes[id].tenant;
                    crossing.push(self.tenants[tenant].enter(|cx| {
                        let node = anchor.open(cx).expect("its own");
                        assert_eq!(node.id, *id);
                        (tenant, cx.keep(node, "compared"))
                    }));
                }
            } else {
                break;
            }
        }
        assert_eq!(seen, nodes, "M1");
    }

    /// Looks at all that a node leads to within its tenant.
    #[allow(clippy::too_many_arguments)] // What a walk needs, each once.
    fn walk<'gc>(
        &self,
        tenant: usize,
        cx: Cx<'gc>,
        node: Gc<'gc, Node<'gc>>,
        alive: &BTreeSet<u64>,
        seen: &mut BTreeSet<u64>,
        crossing: &mut Vec<(usize, Kept)>,
        natives: &mut Vec<(usize, Cc<Native>)>,
    ) {
        let mut open = vec![node];
        while let Some(node) = open.pop() {
            assert_eq!(node.text, text(node.id), "M1");
            if !seen.insert(node.id) {
                continue;
            }
            let edges = &self.nodes[&node.id];
            let next = node.next.get();
            assert_eq!(next.map(|next| next.id), edges.next);
            open.extend(next);
            for (list, ids) in [(&node.list, &edges.list), (&*node.boxed, &edges.boxed)] {
                if let Some(ids) = ids {
                    let list = list.borrow();
                    assert!(list.iter().map(|node| node.id).eq(ids.iter().copied()));
                    open.extend(list.iter());
                }
            }
            if let Some(weak) = &*node.weak.to.borrow() {
                let (target, id) = (weak.get(), edges.weak.expect("in the model"));
                assert!(target.is_some() || !alive.contains(&id), "M2");
                assert!(target.is_none_or(|node| node.text == text(id)), "M2");
            }
            if let Some(pair) = &*node.weak.pair.borrow() {
                let (key, value) = edges.pair.expect("in the model");
                assert!(pair.key().is_some() || !alive.contains(&key), "M2");
                assert!(pair.key().is_none_or(|node| node.text == text(key)), "M2");
                assert!(
                    pair.value().is_none_or(|node| node.text == text(value)),
                    "M2"
                );
                open.extend(pair.value().filter(|_| alive.contains(&key)));
            }
            let cross = edges.cross.as_ref().map(|ids| (node.cross.borrow(), ids));
            for (cross, ids) in cross.iter() {
                assert_eq!(cross.len(), ids.len());
            }
            let cross = cross.iter().flat_map(|(cross, ids)| cross.iter().zip(*ids));
            for (edge, id) in cross {
                let mate = tenant ^ 1;
                crossing.push(self.tenants[mate].enter(|cx| {
                    let node = edge.open(cx).expect("its own");
                    assert_eq!(node.id, *id);
                    (mate, cx.keep(node, "compared"))
                }));
            }
            if let Some(ids) = &edges.native {
                let held = node.native.borrow();
                assert!(held.iter().map(|cc| cc.id).eq(ids.iter().copied()));
                natives.extend(held.iter().map(|cc| (of(tenant), Cc::clone(cc))));
            }
            let _ = cx;
        }
    }

    fn run(&mut self, acts: usize) {
        for _ in 0..acts {
            let tenant = self.dice.index(4);
            match self.dice.index(100) {
                0..30 => self.make(tenant),
                30..35 => self.make_native(of(tenant)),
                35..75 => self.write(tenant),
                75..92 => self.drop_some(tenant),
                92..95 => {
                    if let Some(id) = self.some_native(of(tenant)) {
                        self.natives[of(tenant)].remove(&id);
                    }
                }
                95..97 => drop(self.tenants[tenant].mark_step(Budget {
                    edges: 20,
                    ns: u64::MAX,
                })),
                _ => self.collect(),
            }
        }
        self.compare();
        self.end();
    }

    /// M4.
    fn end(&mut self) {
        self.kept.iter_mut().for_each(BTreeMap::clear);
        self.natives.iter_mut().for_each(BTreeMap::clear);
        for runtime in 0..2 {
            // What a finalizer lets go of is found by the next.
            for _ in 0..3 {
                let (runtime, cycles) = (&self.runtimes[runtime], &self.cycles[runtime]);
                cycles
                    .collect_with(runtime, Reason::Asked)
                    .expect("at rest");
                runtime.shrink();
            }
            let left = self.runtimes[runtime].rows();
            let left: usize = left.iter().map(|row| row.holds.objects).sum();
            let boxes = self.cycles[runtime].counts().boxes;
            assert_eq!((left, boxes), (0, 0), "M4: runtime {runtime}");
        }
    }
}

fn push<'gc>(
    list: &Locked<Vec<Gc<'gc, Node<'gc>>>>,
    ids: Option<&mut Vec<u64>>,
    right: Cx<'_>,
    target: Gc<'gc, Node<'gc>>,
) {
    let Some(ids) = ids else { return };
    list.borrow_mut(right).push(target);
    ids.push(target.id);
    if ids.len() > 4 {
        let cut = list.borrow_mut(right).swap_remove(0).id;
        assert_eq!(ids.swap_remove(0), cut);
    }
}

/// Writes a weak pointer or a pair; of two of these acts what they lead to is kept by nothing.
fn write_weak<'gc>(
    what: usize,
    (from, edges): (&Node<'gc>, &mut Edges),
    (cx, right): (Cx<'gc>, Cx<'_>),
    [(to, target), (also, other)]: [(u64, Gc<'gc, Node<'gc>>); 2],
    new: u64,
) {
    match what {
        7 => {
            *from.weak.to.borrow_mut(right) = Some(Weak::to(target));
            edges.weak = Some(to);
        }
        8 => {
            *from.weak.pair.borrow_mut(right) = Some(Ephemeron::new(target, other));
            edges.pair = Some((to, also));
        }
        15 => {
            *from.weak.to.borrow_mut(right) = Some(Weak::to(fresh(cx, new, None)));
            edges.weak = Some(new);
        }
        _ => {
            let key = fresh(cx, new, None);
            *from.weak.pair.borrow_mut(right) = Some(Ephemeron::new(key, target));
            edges.pair = Some((new, to));
        }
    }
}

/// Writes through a guard that is leaked, or leaks one of what is not written, four times in seven.
fn leak<'gc>(
    from: &Node<'gc>,
    edges: &mut Edges,
    right: Cx<'_>,
    (target, native): (Gc<'gc, Node<'gc>>, Counted<'gc, Native>),
    chance: u64,
) {
    let (list, ids) = match chance {
        0 => (&from.list, &mut edges.list),
        1 => (&*from.boxed, &mut edges.boxed),
        2 if edges.native.take().is_some() => {
            let mut guard = from.native.borrow_mut(right);
            guard.push(native);
            return std::mem::forget(guard);
        }
        3 if edges.cross.take().is_some() => {
            return std::mem::forget(from.cross.borrow_mut(right));
        }
        _ => return,
    };
    if ids.take().is_some() {
        let mut guard = list.borrow_mut(right);
        guard.push(target);
        std::mem::forget(guard);
    }
}

struct Say(u64);

impl Drop for Say {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("with SKINFLINT_SEED={}", self.0);
        }
    }
}

/// How many times the seeds of every day, by `SKINFLINT_TIMES`: by hand, for millions of operations.
pub(super) fn times() -> u64 {
    std::env::var("SKINFLINT_TIMES").map_or(1, |times| times.parse().expect("a number"))
}

fn runs(count: u64, acts: usize, config: &Config) {
    let seeds = match std::env::var("SKINFLINT_SEED") {
        Ok(seed) => vec![seed.parse().expect("SKINFLINT_SEED is a number")],
        Err(_) if cfg!(miri) => vec![1],
        Err(_) => (1..=count * times()).collect(),
    };
    for seed in seeds {
        if times() > 1 {
            println!("seed {seed}, {acts} operations");
        }
        let _say = Say(seed);
        World::new(config, seed).run(if cfg!(miri) { acts / 20 } else { acts });
    }
}

fn slices() -> Option<Incremental> {
    Some(Incremental {
        slice_edges: 5,
        slice_bytes: 700,
        ..Incremental::STRESS
    })
}

#[test]
fn two_runtimes_collected_in_one_go() {
    let config = Config {
        verify: true,
        poison: true,
        background: false,
        ..Config::default()
    };
    runs(4, 3_000, &config);
}

#[test]
fn two_runtimes_swept_within_the_pause() {
    for (background, incremental) in [(false, None), (true, slices())] {
        let config = Config {
            sweep_in_pause: true,
            background,
            incremental,
            verify: true,
            poison: true,
            mark_stack: Some(3),
            ..Config::default()
        };
        runs(2, 3_000, &config);
    }
}

#[test]
fn two_runtimes_marked_in_slices_beside_the_sweeper() {
    let config = Config {
        growth: Growth {
            floor_bytes: 30_000,
            ..Growth::TIGHT
        },
        incremental: slices(),
        verify: true,
        poison: true,
        ..Config::default()
    };
    runs(4, 3_000, &config);
}

#[test]
fn two_runtimes_under_stress() {
    let config = Config {
        incremental: slices(),
        ..Config::stress(7)
    };
    runs(3, 1_500, &config);
}
