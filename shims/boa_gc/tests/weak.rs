//! Weak references, ephemerons and weak maps.
//!
//! ```text
//!   key alive ─► value alive, if the ephemeron is      key gone ─► emptied by the collection that finds it
//! ```
//!
//! Not here: what else a collection does (`objects`).

use std::cell::Cell;
use std::rc::Rc;

use boa_gc::skinflint::{Tenant, stats};
use boa_gc::{
    Ephemeron, Finalize, Gc, GcRefCell, Trace, WeakGc, WeakMap, force_collect, has_weak_maps,
};

/// Runs a test as in `objects`.
fn alone(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(|| {
        test();
        force_collect();
        let left = stats();
        assert_eq!((left.objects, left.live_bytes), (0, 0), "left behind");
        assert!(!has_weak_maps());
    });
    thread.join().expect("the test's thread");
}

#[test]
fn a_weak_reference_leads_to_its_object_until_that_is_collected() {
    alone(|| {
        let value = Gc::new(3);
        let weak = WeakGc::new(&value);
        let other = value.clone();
        drop(value);
        force_collect();
        assert_eq!(weak.upgrade().as_deref(), Some(&3));
        assert_eq!(weak, weak.clone());
        drop(other);
        assert!(weak.is_upgradable(), "nothing ends within a drop");
        force_collect();
        assert!(weak.upgrade().is_none() && !weak.is_upgradable());
        assert_ne!(
            weak,
            weak.clone(),
            "one that leads nowhere is equal to none"
        );
    });
}

#[test]
fn an_object_without_handles_can_be_taken_up_again() {
    alone(|| {
        let value = Gc::new(String::from("twice"));
        let weak = WeakGc::new(&value);
        drop(value);
        for _ in 0..500 {
            let _ = Gc::new(1_u8);
        }
        let value = weak.upgrade().expect("left to the collector");
        force_collect();
        assert_eq!(*value, "twice");
    });
}

#[test]
fn an_ephemeron_has_its_value_as_long_as_its_key() {
    alone(|| {
        let key = Gc::new(3);
        let ephemeron = Ephemeron::new(&key, String::from("value"));
        force_collect();
        assert_eq!(*ephemeron.value().expect("a value"), "value");
        assert!(
            ephemeron
                .key()
                .is_some_and(|again| Gc::ptr_eq(&again, &key))
        );
        drop(key);
        force_collect();
        assert!(ephemeron.value().is_none() && ephemeron.key().is_none() && !ephemeron.has_value());
    });
}

#[test]
fn a_reference_to_a_value_keeps_the_key() {
    alone(|| {
        let key = Gc::new(3);
        let ephemeron = Ephemeron::new(&key, String::from("value"));
        let value = ephemeron.value().expect("a value");
        drop(key);
        force_collect();
        assert_eq!(*value, "value");
    });
}

#[test]
fn chains_of_weak_references_end_from_the_front() {
    alone(|| {
        let text = Gc::new(String::from("text"));
        let weak = Gc::new(WeakGc::new(&text));
        let on_weak = Ephemeron::new(&weak, 3);
        drop(text);
        force_collect();
        assert!(weak.upgrade().is_none());
        assert_eq!(*on_weak.value().expect("its key is alive"), 3);
        drop(weak);
        force_collect();
        assert!(on_weak.value().is_none());
    });
}

#[test]
fn a_value_that_leads_to_its_key_does_not_keep_it() {
    #[derive(Trace, Finalize)]
    struct Holder {
        slot: GcRefCell<Option<Ephemeron<Holder, Gc<Holder>>>>,
    }
    alone(|| {
        let key = Gc::new(Holder {
            slot: GcRefCell::new(None),
        });
        let ephemeron = Ephemeron::new(&key, key.clone());
        *key.slot.borrow_mut() = Some(ephemeron.clone());
        force_collect();
        assert!(ephemeron.has_value());
        drop(key);
        force_collect();
        assert!(
            !ephemeron.has_value(),
            "held from outside, it does not hold its key"
        );
    });
}

#[test]
fn ephemerons_in_a_ring_live_by_their_key_and_go_with_it() {
    type Slot = GcRefCell<Option<Ephemeron<u8, Link>>>;
    #[derive(Clone, Trace, Finalize)]
    struct Link {
        slot: Gc<Slot>,
    }
    alone(|| {
        let root: Gc<Slot> = Gc::new(GcRefCell::new(None));
        let key = Gc::new(0_u8);
        let link = || Link {
            slot: Gc::new(GcRefCell::new(None)),
        };
        let (one, two) = (link(), link());
        let (first, second) = (
            Ephemeron::new(&key, one.clone()),
            Ephemeron::new(&key, two.clone()),
        );
        *one.slot.borrow_mut() = Some(second.clone());
        *two.slot.borrow_mut() = Some(first.clone());
        *root.borrow_mut() = Some(first);
        drop((one, two, second));
        force_collect();
        assert_eq!(stats().objects, 6);
        *root.borrow_mut() = None;
        drop(key);
        force_collect();
        assert_eq!(stats().objects, 1);
    });
}

#[test]
fn chains_of_keys_and_values_are_followed_in_any_order() {
    #[derive(Trace, Finalize)]
    struct Node(u32);
    alone(|| {
        // The value of each is the key of the next; the ephemerons are reported last to first.
        let nodes: Vec<Gc<Node>> = (0..20).map(|number| Gc::new(Node(number))).collect();
        let chain: Vec<_> = nodes
            .windows(2)
            .rev()
            .map(|two| Ephemeron::new(&two[0], two[1].clone()))
            .collect();
        let chain = Gc::new(chain);
        let first = nodes[0].clone();
        drop(nodes);
        force_collect();
        assert!(chain.iter().all(Ephemeron::has_value));
        assert_eq!(chain[0].value().expect("the last").0, 19);
        drop(first);
        force_collect();
        assert!(!chain.iter().any(Ephemeron::has_value));
    });
}

/// Counts how often it is finalized.
#[derive(Clone, Trace)]
struct Counts {
    #[unsafe_ignore_trace]
    finalized: Rc<Cell<u8>>,
}

impl Finalize for Counts {
    fn finalize(&self) {
        self.finalized.set(self.finalized.get() + 1);
    }
}

#[test]
fn values_are_finalized_once() {
    alone(|| {
        let (direct, behind) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let key = Gc::new(50_u32);
        let finalized = direct.clone();
        let one = Ephemeron::new(&key, Counts { finalized });
        let finalized = behind.clone();
        let two = Ephemeron::new(&key, Gc::new(Counts { finalized }));
        force_collect();
        assert_eq!((direct.get(), behind.get()), (0, 0));
        drop(key);
        force_collect();
        assert!(!one.has_value() && !two.has_value());
        assert_eq!((direct.get(), behind.get()), (1, 1));
    });
}

#[test]
fn an_object_can_refer_to_itself_weakly_from_the_beginning() {
    #[derive(Trace, Finalize)]
    struct Own {
        weak: WeakGc<Own>,
        early: bool,
    }
    alone(|| {
        let own = Gc::new_cyclic(|weak| Own {
            weak: weak.clone(),
            early: weak.is_upgradable(),
        });
        assert!(!own.early);
        assert!(
            own.weak
                .upgrade()
                .is_some_and(|again| Gc::ptr_eq(&own, &again))
        );
        force_collect();
        assert!(own.weak.is_upgradable());
    });
}

#[test]
fn a_maker_that_panics_leaves_nothing() {
    alone(|| {
        let made = std::panic::catch_unwind(|| Gc::<u8>::new_cyclic(|_| panic!("on purpose")));
        assert!(made.is_err());
    });
}

#[test]
fn a_weak_map_forgets_keys_that_are_gone_and_goes_itself() {
    alone(|| {
        assert!(!has_weak_maps());
        let keys: Vec<Gc<u32>> = (0..200).map(Gc::new).collect();
        let mut map = WeakMap::new();
        for key in &keys {
            map.insert(key, **key);
            map.insert(key, **key + 1);
        }
        assert!(map.contains_key(&keys[7]));
        force_collect();
        assert!(keys.iter().all(|key| {
            map.get(key)
                .is_some_and(|e| *e.value().unwrap() == **key + 1)
        }));
        let few = keys[3].clone();
        drop(keys);
        force_collect();
        assert!(has_weak_maps());
        // Three objects for the map's table, the list's reference to it and its one entry.
        assert_eq!(stats().objects, 4);
        assert!(map.remove(&few) && !map.remove(&few) && !map.contains_key(&few));
        drop(map);
        assert!(has_weak_maps());
        force_collect();
        assert!(!has_weak_maps());
    });
}

#[test]
fn a_weak_map_whose_values_lead_to_their_keys_forgets_them() {
    alone(|| {
        let mut map = WeakMap::new();
        for number in 0..100 {
            let key = Gc::new(GcRefCell::new(number));
            map.insert(&key, Some(key.clone()));
        }
        force_collect();
        assert_eq!(
            stats().objects,
            2,
            "the table, and the list's reference to it"
        );
    });
}

#[test]
fn marking_in_slices_sees_weak_maps_as_a_whole_collection_does() {
    alone(|| {
        let mut map = WeakMap::new();
        let lasting = Gc::new(GcRefCell::new(usize::MAX));
        map.insert(&lasting, Some(Gc::new(GcRefCell::new(1_usize))));
        let many = if cfg!(miri) { 2_000 } else { 100_000 };
        for number in 0..many {
            let key = Gc::new(GcRefCell::new(number));
            map.insert(&key, Some(key.clone()));
            assert!(map.contains_key(&lasting) && map.contains_key(&key));
        }
        let now = stats();
        if !cfg!(miri) {
            assert!(now.objects < 100_000, "collected by slices: {now:?}");
        }
        assert_eq!(
            *map.get(&lasting)
                .unwrap()
                .value()
                .unwrap()
                .as_ref()
                .unwrap()
                .borrow(),
            1
        );
    });
}

#[test]
fn references_across_tenants_are_emptied_when_the_keys_tenant_is_collected() {
    alone(|| {
        let tab = Tenant::new("tab", usize::MAX);
        let key = {
            let _in = tab.enter();
            Gc::new(1)
        };
        let here = WeakGc::new(&key);
        let pair = Ephemeron::new(&key, Some(key.clone()));
        tab.collect();
        assert!(here.is_upgradable());
        drop(key);
        tab.collect();
        assert!(!here.is_upgradable() && !pair.has_value());
        assert_eq!(tab.end().objects_left, 0);
    });
}
