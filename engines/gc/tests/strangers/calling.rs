//! Finalizers and destructors that call everything, at random, in two runtimes with all sorts of settings.
//!
//! ```text
//!   act: make, write, let go, collect (one, all, with counted values), step, tick, shrink, look, make or end a tenant …
//!     ▲                                                       │
//!     └────────────── a finalizer, up to three deep ◄─────────┘
//! ```
//!
//! A1  Whatever is read has the text of its number.
//! A2  When all that the test holds is gone and finalizers do nothing any more, nothing is left.
//!
//! Not here: what is reached (`random`, which has a model).

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use skinflint_base::random::Random;
use skinflint_gc::cc::{Anchor, Cc, Counted, Cycles, Field};
use skinflint_gc::typed::{
    CrossEdge, Cx, Ephemeron, Gc, Handle, Locked, Opaque, OpaqueSend, Runtime, Slot, Sys, Tenant,
    Weak,
};
use skinflint_gc::{
    Budget, Config, Growth, Incremental, Pressure, Reason, Wanted, counted, object,
};

use super::text;

object! {
    struct Node<'gc> {
        id: u32,
        text: String,
        next: Slot<Gc<'gc, Node<'gc>>>,
        list: Locked<Vec<Gc<'gc, Node<'gc>>>>,
        weak: Box<Locked<Vec<Weak<'gc, Node<'gc>>>>>,
        pairs: Locked<Vec<Ephemeron<'gc, Node<'gc>, Node<'gc>>>>,
        cross: Locked<Vec<CrossEdge<'gc, Node<'static>>>>,
        native: Locked<Vec<Counted<'gc, Native>>>,
        name: Slot<Sys<'gc, String>>,
        last: Opaque<Option<Last>>,
        beside: OpaqueSend<Vec<String>>,
    }
}

counted! {
    struct Native {
        id: u32,
        text: String,
        to: Field<Vec<Anchor<Node<'static>>>>,
        next: Field<Vec<Cc<Native>>>,
        last: Opaque<Option<Last>>,
    }
}

/// Acts when it is dropped.
struct Last;

impl Drop for Last {
    fn drop(&mut self) {
        let world = WORLD.with_borrow(Option::clone);
        if let Some(world) = world.filter(|world| world.depth.get() < 3) {
            world.depth.set(world.depth.get() + 1);
            world.ends.set(world.ends.get() + 1);
            for _ in 0..1 + world.dice(3) {
                world.act();
            }
            world.depth.set(world.depth.get() - 1);
        }
    }
}

type Kept = Rc<Handle<Node<'static>>>;

struct World {
    runtimes: [Rc<Runtime>; 2],
    cycles: [Cycles; 2],
    tenants: RefCell<Vec<(usize, Rc<Tenant>)>>,
    kept: RefCell<Vec<Kept>>,
    natives: RefCell<Vec<(usize, Cc<Native>)>>,
    /// Nodes whose lists are locked for ever.
    leaked: RefCell<BTreeSet<u32>>,
    dice: RefCell<Random>,
    next: Cell<u32>,
    depth: Cell<u32>,
    ends: Cell<u32>,
}

thread_local!(static WORLD: RefCell<Option<Rc<World>>> = const { RefCell::new(None) });

/// Takes the value out if there is much in it; the caller drops that when no guard is left.
fn cut<T>(list: &mut Vec<T>) -> Vec<T> {
    match list.len() > 4 {
        true => std::mem::take(list),
        false => Vec::new(),
    }
}

impl World {
    fn new(configs: [&Config; 2], seed: u64) -> World {
        let runtimes = configs.map(|config| Rc::new(Runtime::new(config.clone())));
        let cycles = [0, 1].map(|n| runtimes[n].cycles());
        World {
            runtimes,
            cycles,
            tenants: RefCell::default(),
            kept: RefCell::default(),
            natives: RefCell::default(),
            leaked: RefCell::default(),
            dice: RefCell::new(Random::new(seed)),
            next: Cell::new(0),
            depth: Cell::new(0),
            ends: Cell::new(0),
        }
    }

    fn dice(&self, sides: usize) -> usize {
        self.dice.borrow_mut().index(sides)
    }

    fn id(&self) -> u32 {
        self.next.set(self.next.get() + 1);
        self.next.get()
    }

    fn last(&self) -> Opaque<Option<Last>> {
        Opaque((self.dice(8) == 0).then(|| Last))
    }

    fn tenant(&self) -> (usize, Rc<Tenant>) {
        let count = self.tenants.borrow().len();
        if count == 0 || (count < 6 && self.dice(30) == 0) {
            let of = self.dice(2);
            let new = Rc::new(self.runtimes[of].tenant("tenant", usize::MAX));
            self.tenants.borrow_mut().push((of, new));
        }
        let nth = self.dice(count.max(1));
        self.tenants.borrow()[nth].clone()
    }

    fn kept(&self) -> Option<Kept> {
        let nth = self.dice(self.kept.borrow().len().max(1));
        self.kept.borrow().get(nth).cloned()
    }

    fn is_leaked(&self, node: &Node) -> bool {
        self.leaked.borrow().contains(&node.id)
    }

    fn fresh<'gc>(&self, cx: Cx<'gc>) -> Option<Gc<'gc, Node<'gc>>> {
        let id = self.id();
        let node = Node {
            id,
            text: text(id),
            next: Slot::new(None),
            list: Locked::default(),
            weak: Box::default(),
            pairs: Locked::default(),
            cross: Locked::default(),
            native: Locked::default(),
            name: Slot::new(None),
            last: self.last(),
            beside: OpaqueSend(vec![text(id); self.dice(4)]),
        };
        // The tenant may be at its limit.
        let node = cx.alloc(node).ok()?;
        if self.dice(3) == 0 {
            node.name.set(cx, cx.alloc_shared(text(0)).ok());
        }
        Some(node)
    }

    /// A1.
    fn look(&self, node: Gc<'_, Node<'_>>, depth: u32) {
        assert_eq!(node.text, text(node.id), "A1");
        if let Some(name) = node.name.get() {
            assert_eq!(*name.get(), text(0), "A1");
        }
        let Some(depth) = depth.checked_sub(1) else {
            return;
        };
        if let Some(next) = node.next.get() {
            self.look(next, depth);
        }
        let (weak, pairs) = (node.weak.borrow(), node.pairs.borrow());
        let pairs = pairs.iter().filter_map(|pair| pair.key().and(pair.value()));
        for other in weak.iter().filter_map(Weak::get).chain(pairs) {
            self.look(other, depth);
        }
        if self.is_leaked(&node) {
            return;
        }
        for other in node.list.borrow().iter() {
            self.look(*other, depth);
        }
        for native in node.native.borrow().iter() {
            assert_eq!(native.text, text(native.id), "A1");
            for next in native.next.borrow().iter() {
                assert_eq!(next.text, text(next.id), "A1");
            }
        }
    }

    fn write(&self, (_, tenant): &(usize, Rc<Tenant>)) {
        let (kept, right) = (self.kept(), self.tenant().1);
        tenant.enter(|cx| {
            let Some(new) = self.fresh(cx) else { return };
            let old = kept.as_ref().and_then(|kept| kept.open(cx).ok());
            match (old, &kept) {
                (Some(old), _) => {
                    self.look(old, 2);
                    right.enter(|right| self.link(cx, right, old, new));
                }
                (None, Some(kept)) => {
                    if let Ok(edge) = cx.cross_edge(kept) {
                        new.cross.borrow_mut(cx).push(edge);
                    }
                }
                (None, None) => {}
            }
            if self.dice(3) == 0 {
                let kept = Rc::new(cx.keep(new, "kept"));
                self.kept.borrow_mut().push(kept);
            }
        });
    }

    /// Links a new node with one that is kept, with the right of any tenant.
    fn link<'gc>(
        &self,
        cx: Cx<'gc>,
        right: Cx<'_>,
        old: Gc<'gc, Node<'gc>>,
        new: Gc<'gc, Node<'gc>>,
    ) {
        match self.dice(7) {
            0 => {
                new.next.set(cx, old.next.get());
                old.next.set(cx, Some(new));
            }
            1 if !self.is_leaked(&old) => {
                let mut list = old.list.borrow_mut(right);
                cut(&mut list);
                list.push(new);
            }
            2 => {
                let mut weak = old.weak.borrow_mut(right);
                cut(&mut weak);
                weak.push(Weak::to(new));
            }
            3 => {
                let mut pairs = old.pairs.borrow_mut(right);
                cut(&mut pairs);
                pairs.push(Ephemeron::new(old.next.get().unwrap_or(old), new));
            }
            4 if self.dice(8) == 0 && !self.is_leaked(&old) => {
                self.leaked.borrow_mut().insert(old.id);
                std::mem::forget(old.list.borrow_mut(right));
                std::mem::forget(old.native.borrow_mut(right));
            }
            _ => old.next.set(cx, Some(new)),
        }
    }

    fn make_native(&self, (of, tenant): &(usize, Rc<Tenant>)) {
        let id = self.id();
        let all = self.natives.borrow();
        let others = all.iter().filter(|(own, _)| own == of);
        let next: Vec<_> = others.map(|(_, native)| native.clone()).take(2).collect();
        drop(all);
        let native = self.cycles[*of].cc(Native {
            id,
            text: text(id),
            to: Field::default(),
            next: Field::new(next.clone()),
            last: self.last(),
        });
        for next in next.iter().take(1) {
            let old = cut(&mut next.next.borrow_mut());
            next.next.borrow_mut().push(native.clone());
            drop(old);
        }
        drop(next);
        let kept = self.kept();
        let _ = tenant.enter(|cx| {
            let node = kept?.open(cx).ok()?;
            let anchor = cx.anchor(&self.cycles[*of], node).expect("its own");
            native.to.borrow_mut().push(anchor);
            if self.is_leaked(&node) {
                return None;
            }
            let held = cx.hold(native.clone()).expect("its own");
            let mut list = node.native.borrow_mut(cx);
            let mut old = cut(&mut list);
            list.push(held);
            drop(list);
            // Within the closure, whose brand they have.
            old.clear();
            Some(())
        });
        self.natives.borrow_mut().push((*of, native));
        let (nth, count) = (self.dice(12), self.natives.borrow().len());
        let old = (count > 12).then(|| self.natives.borrow_mut().swap_remove(nth));
        drop(old);
    }

    /// Ends a tenant, unless it is being used.
    fn end_tenant(&self) {
        let count = self.tenants.borrow().len();
        let (of, tenant) = self.tenants.borrow_mut().swap_remove(self.dice(count));
        let back = match Rc::try_unwrap(tenant) {
            Ok(tenant) => tenant.end().err().map(|(tenant, _)| Rc::new(tenant)),
            Err(used) => Some(used),
        };
        self.tenants
            .borrow_mut()
            .extend(back.map(|tenant| (of, tenant)));
    }

    fn act(&self) {
        let both = self.tenant();
        let (of, tenant) = (both.0, &both.1);
        let runtime = &self.runtimes[self.dice(2)];
        let cycles = &self.cycles[of];
        let budget = Budget {
            edges: 1 + self.dice(100) as u64,
            ns: u64::MAX,
        };
        // What is refused, is refused.
        match self.dice(40) {
            0..12 => self.write(&both),
            12..16 => {
                let count = self.kept.borrow().len();
                let old = (count > 3).then(|| self.kept.borrow_mut().swap_remove(self.dice(count)));
                drop(old);
            }
            16..20 => self.make_native(&both),
            20 | 21 => drop(tenant.collect()),
            22 => drop(runtime.collect_all(Reason::Asked)),
            23 => drop(runtime.begin_all(Reason::Asked)),
            24 | 25 => drop(runtime.mark_step(budget)),
            26 => drop(tenant.mark_step(budget)),
            27 => drop(runtime.tick(u64::from(self.next.get()) * 1_000_000_000)),
            28 if self.dice(2) == 0 => drop(runtime.pressure(Pressure::Critical)),
            28 => drop(runtime.pressure(Pressure::Moderate)),
            29 => runtime.shrink(),
            30 => drop((tenant.poll(), tenant.trim(), tenant.shrink())),
            31 => tenant.set_limit([1 << 20, usize::MAX][self.dice(2)]),
            32 => tenant.set_incremental([None, Some(Incremental::STRESS)][self.dice(2)]),
            33 => drop(runtime.snapshot(&mut std::io::sink())),
            34 => drop((tenant.census(), runtime.chunks())),
            35 => {
                let kind = std::any::type_name::<Node>();
                drop(runtime.paths(&[Wanted::Nth(kind, self.dice(9)), Wanted::Nearest(kind)]));
            }
            36 => {
                drop(both);
                self.end_tenant();
            }
            37 => drop(cycles.collect_with(&self.runtimes[of], Reason::Asked)),
            38 => drop(cycles.step(budget)),
            _ => drop(cycles.collect()),
        }
    }
}

/// Runs acts, and checks A2.
fn run(configs: [&Config; 2], seed: u64, acts: usize) {
    let world = Rc::new(World::new(configs, seed));
    WORLD.set(Some(world.clone()));
    for _ in 0..acts {
        world.act();
    }
    WORLD.set(None);
    assert!(world.ends.get() > 0 || cfg!(miri));
    drop(world.kept.take());
    drop(world.natives.take());
    for (runtime, cycles) in world.runtimes.iter().zip(&world.cycles) {
        for _ in 0..3 {
            cycles
                .collect_with(runtime, Reason::Asked)
                .expect("at rest");
            runtime.shrink();
        }
        let left: usize = runtime.rows().iter().map(|row| row.holds.objects).sum();
        assert_eq!((left, cycles.counts().boxes), (0, 0), "A2");
    }
}

/// Runs with two of the settings at a time.
fn runs(configs: &[Config], seeds: u64, acts: usize) {
    let (seeds, acts) = match cfg!(miri) {
        true => (1, acts / 40),
        false => (seeds * super::random::times(), acts),
    };
    for seed in 1..=seeds {
        for (nth, config) in configs.iter().enumerate() {
            let other = &configs[(nth + seed as usize) % configs.len()];
            println!("seed {seed}, settings {nth}");
            run([config, other], seed, acts);
        }
    }
}

fn settings(sweep_in_pause: bool) -> Vec<Config> {
    let base = Config {
        poison: true,
        verify: true,
        background: false,
        sweep_in_pause,
        ..Config::default()
    };
    let tight = Growth {
        floor_bytes: 20_000,
        ..Growth::TIGHT
    };
    let beside = |ahead| Config {
        background: true,
        ahead,
        growth: tight,
        ..base.clone()
    };
    let slices = |incremental| Config {
        incremental: Some(incremental),
        growth: tight,
        mark_stack: Some(0),
        ..base.clone()
    };
    vec![
        base.clone(),
        beside(0.0),
        beside(0.5),
        slices(Incremental::STRESS),
        slices(Incremental::DEFAULT),
        Config {
            sweep_in_pause,
            incremental: Some(Incremental::STRESS),
            ..Config::stress(7)
        },
        Config {
            sweep_in_pause,
            ..Config::stress(3)
        },
    ]
}

#[test]
fn finalizers_that_call_everything() {
    runs(&settings(false), 2, 3_000);
}

#[test]
fn finalizers_that_call_everything_within_the_pause() {
    runs(&settings(true), 2, 3_000);
}
