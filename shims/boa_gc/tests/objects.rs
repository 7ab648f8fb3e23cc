//! Allocation, handles, cells, finalizers: what boa_gc's own tests check, and our exact counts.
//!
//! ```text
//!   each test ─► a thread of its own ─► a heap of its own, empty at the end unless the test says otherwise
//! ```
//!
//! Sizes are those of the boxes, not of cells: `live_bytes` is exact for types of alignment 8.
//!
//! Not here: weak references (`weak`), tenants (`tenants`), random graphs (`graphs`).

use std::any::TypeId;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::rc::Rc;

use boa_gc::skinflint::stats;
use boa_gc::{Finalize, Gc, GcBox, GcErased, GcRef, GcRefCell, GcRefMut, Trace, force_collect};

/// Runs a test on a thread without other objects; at its end nothing may be left.
fn alone(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(|| {
        test();
        force_collect();
        let left = stats();
        assert_eq!((left.objects, left.live_bytes), (0, 0), "left behind");
    });
    thread.join().expect("the test's thread");
}

/// Counts finalizers and drops.
#[derive(Trace)]
struct Counted {
    #[unsafe_ignore_trace]
    finalized: Rc<Cell<u32>>,
    next: GcRefCell<Option<Gc<Counted>>>,
}

impl Finalize for Counted {
    fn finalize(&self) {
        self.finalized.set(self.finalized.get() + 1);
    }
}

fn counted(finalized: &Rc<Cell<u32>>) -> Gc<Counted> {
    Gc::new(Counted {
        finalized: finalized.clone(),
        next: GcRefCell::new(None),
    })
}

#[test]
fn a_value_stays_while_it_has_a_handle_and_its_bytes_are_counted() {
    alone(|| {
        let cell = Gc::new(GcRefCell::new(16_u16));
        let bytes = size_of::<GcBox<GcRefCell<u16>>>();
        assert_eq!(stats().live_bytes, bytes);
        force_collect();
        assert_eq!((stats().objects, stats().live_bytes), (1, bytes));
        *cell.borrow_mut() += 1;
        assert_eq!(*cell.borrow(), 17);
        drop(cell);
        assert_eq!(stats().objects, 1, "nothing ends within a drop (Z1)");
        force_collect();
        assert_eq!((stats().objects, stats().live_bytes), (0, 0));
    });
}

#[test]
fn a_million_links_end_without_recursion() {
    #[derive(Trace, Finalize)]
    struct Link {
        number: usize,
        next: Option<Gc<Link>>,
    }
    let many = if cfg!(miri) { 300 } else { 1_000_000 };
    alone(move || {
        let mut first = Gc::new(Link {
            number: 0,
            next: None,
        });
        for number in 1..many {
            let next = Some(first);
            first = Gc::new(Link { number, next });
        }
        assert_eq!(stats().live_bytes, many * size_of::<GcBox<Link>>());
        force_collect();
        assert_eq!(stats().objects, many as u64);
        let second = first.next.as_ref().map(|next| next.number);
        assert_eq!(second, Some(many - 2));
    });
}

#[test]
fn garbage_without_cycles_ends_in_allocations_and_no_collection() {
    alone(|| {
        for _ in 0..10_000 {
            let inner = Gc::new([1_u64; 4]);
            let _outer = Gc::new(Some(inner));
        }
        let now = stats();
        assert!(now.objects < 2 * 64 + 8, "{now:?}");
        assert!(now.by_count > 19_000 && now.by_examination == 0, "{now:?}");
    });
}

#[test]
fn a_cycle_ends_when_it_is_collected_and_its_finalizers_run_once() {
    alone(|| {
        let finalized = Rc::new(Cell::new(0));
        let (one, two) = (counted(&finalized), counted(&finalized));
        *one.next.borrow_mut() = Some(two.clone());
        *two.next.borrow_mut() = Some(one.clone());
        drop(one);
        force_collect();
        assert_eq!(
            (finalized.get(), stats().objects),
            (0, 2),
            "held by one handle"
        );
        drop(two);
        force_collect();
        assert_eq!((finalized.get(), stats().objects), (2, 0));
        assert_eq!(Rc::strong_count(&finalized), 1, "both were dropped");
    });
}

#[test]
fn a_finalizer_sees_the_cycle_whole() {
    #[derive(Trace)]
    struct Looks {
        name: String,
        #[unsafe_ignore_trace]
        seen: Rc<RefCell<Vec<String>>>,
        other: GcRefCell<Option<Gc<Looks>>>,
    }
    impl Finalize for Looks {
        fn finalize(&self) {
            let other = self.other.borrow();
            let name = other.as_ref().map_or("nobody", |other| other.name.as_str());
            self.seen
                .borrow_mut()
                .push(format!("{} sees {name}", self.name));
        }
    }
    alone(|| {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let make = |name: &str| {
            Gc::new(Looks {
                name: name.to_owned(),
                seen: seen.clone(),
                other: GcRefCell::new(None),
            })
        };
        let (a, b) = (make("a"), make("b"));
        *a.other.borrow_mut() = Some(b.clone());
        *b.other.borrow_mut() = Some(a.clone());
        drop((a, b));
        force_collect();
        let mut seen = seen.take();
        seen.sort();
        assert_eq!(seen, ["a sees b", "b sees a"]);
    });
}

#[test]
fn a_finalizer_that_gives_a_handle_away_keeps_the_whole_cycle() {
    thread_local!(static SAVED: RefCell<Option<Gc<Phoenix>>> = const { RefCell::new(None) });
    #[derive(Trace)]
    struct Phoenix {
        #[unsafe_ignore_trace]
        rises: Cell<bool>,
        text: String,
        next: GcRefCell<Option<Gc<Phoenix>>>,
    }
    impl Finalize for Phoenix {
        fn finalize(&self) {
            if self.rises.take() {
                SAVED.set(self.next.borrow().clone());
            }
        }
    }
    alone(|| {
        let make = |rises: bool, text: &str| {
            Gc::new(Phoenix {
                rises: Cell::new(rises),
                text: text.to_owned(),
                next: GcRefCell::new(None),
            })
        };
        let (one, two) = (make(true, "one"), make(false, "two"));
        *one.next.borrow_mut() = Some(two.clone());
        *two.next.borrow_mut() = Some(one.clone());
        drop((one, two));
        force_collect();
        assert_eq!(stats().objects, 2);
        let saved = SAVED.take().expect("saved");
        assert_eq!(saved.text, "two");
        assert_eq!(saved.next.borrow().as_ref().expect("whole").text, "one");
        drop(saved);
        force_collect();
        assert_eq!(stats().objects, 0);
    });
}

#[test]
fn a_panic_in_a_finalizer_is_contained() {
    #[derive(Trace)]
    struct Bad;
    impl Finalize for Bad {
        fn finalize(&self) {
            panic!("on purpose");
        }
    }
    alone(|| {
        let before = stats().panics;
        drop(Gc::new(Bad));
        force_collect();
        assert!(stats().panics > before);
        assert_eq!(*Gc::new(7), 7, "the heap goes on");
    });
}

#[test]
fn what_is_being_written_keeps_what_it_leads_to() {
    alone(|| {
        let finalized = Rc::new(Cell::new(0));
        let one = counted(&finalized);
        *one.next.borrow_mut() = Some(counted(&finalized));
        let writing = one.next.borrow_mut();
        force_collect();
        assert_eq!(finalized.get(), 0);
        assert!(writing.is_some());
    });
}

#[test]
fn a_borrowed_cell_takes_many_small_ones() {
    alone(|| {
        let all = Gc::new(GcRefCell::new(Vec::new()));
        for number in 0..259_u32 {
            let cell = Gc::new(GcRefCell::new([number; 10]));
            all.borrow_mut().push(cell);
        }
        force_collect();
        let sum: u32 = all.borrow().iter().map(|cell| cell.borrow()[9]).sum();
        assert_eq!(sum, 259 * 258 / 2);
    });
}

#[test]
fn borrows_exclude_each_other_and_parts_hold_the_whole() {
    let cell = GcRefCell::new((1, String::from("two")));
    let first = cell.borrow();
    let second = GcRef::clone(&first);
    assert!(cell.try_borrow_mut().is_err());
    let (number, text) = GcRef::map_split(first, |pair| (&pair.0, &pair.1));
    assert_eq!((*number, text.as_str()), (1, "two"));
    drop((number, second));
    assert!(cell.try_borrow_mut().is_err(), "one part is left");
    assert!(GcRef::try_map(text, |_| None::<&u8>).is_none());
    let mut text = GcRefMut::map(cell.borrow_mut(), |pair| &mut pair.1);
    text.push('!');
    assert!(cell.try_borrow().is_err());
    assert_eq!(format!("{cell:?}"), "GcRefCell { value: being written }");
    drop(text);
    assert!(GcRefMut::try_map(cell.borrow_mut(), |_| None::<&mut u8>).is_none());
    assert_eq!(cell.into_inner(), (1, "two!".to_owned()));
}

#[test]
fn an_erased_handle_knows_its_type() {
    alone(|| {
        let gc = Gc::new(vec![1, 2, 3]);
        let erased = GcErased::new(gc.clone());
        assert!(erased.is::<Vec<i32>>() && !erased.is::<Vec<u32>>());
        assert_eq!(erased.type_id(), TypeId::of::<Vec<i32>>());
        assert!(erased.clone().downcast::<i32>().is_none());
        assert!(GcErased::ptr_eq(&erased, &GcErased::new(gc.clone())));
        let back = erased.downcast::<Vec<i32>>().expect("its own type");
        assert!(Gc::ptr_eq(&gc, &back));
        assert_eq!(*back, [1, 2, 3]);
    });
}

#[test]
fn erased_links_are_followed() {
    #[derive(Trace, Finalize)]
    struct Link {
        number: i32,
        next: Option<GcErased>,
    }
    alone(|| {
        let mut first = GcErased::new(Gc::new(Link {
            number: 0,
            next: None,
        }));
        for number in 1..100 {
            let next = Some(first);
            first = GcErased::new(Gc::new(Link { number, next }));
        }
        force_collect();
        assert_eq!(stats().live_bytes, 100 * size_of::<GcBox<Link>>());
        let mut numbers = Vec::new();
        let mut at = Some(first);
        while let Some(link) = at.and_then(GcErased::downcast::<Link>) {
            numbers.push(link.number);
            at = link.next.clone();
        }
        assert!(numbers.into_iter().eq((0..100).rev()));
    });
}

#[test]
fn a_handle_to_the_first_field_is_one_to_the_whole() {
    #[repr(C)]
    #[derive(Debug, PartialEq, Trace, Finalize)]
    struct Base {
        text: String,
    }
    #[repr(C)]
    #[derive(Debug, PartialEq, Trace, Finalize)]
    struct Derived {
        base: Base,
        numbers: Vec<u8>,
    }
    alone(|| {
        let base = Base {
            text: "base".to_owned(),
        };
        let whole = Gc::new(Derived {
            base,
            numbers: vec![1],
        });
        // SAFETY: the base is the first field, and the layout is C's.
        let base = unsafe { Gc::cast_unchecked::<Base>(whole.clone()) };
        assert_eq!(base.text, "base");
        assert_eq!(Gc::type_id(&base), TypeId::of::<Derived>());
        assert!(Gc::ptr_eq(&base, &whole));
        drop(whole);
        force_collect();
        let whole = Gc::downcast::<Derived>(base).expect("what it was made as");
        assert_eq!(whole.numbers, [1]);
    });
}

#[test]
fn raw_pointers_keep_their_handle() {
    alone(|| {
        let raw = Gc::into_raw(Gc::new(String::from("kept")));
        force_collect();
        // SAFETY: it comes from `into_raw`, once.
        let gc = unsafe { Gc::from_raw(raw) };
        assert_eq!(*gc, "kept");
    });
}

#[test]
fn objects_of_every_size_and_alignment_are_where_they_should_be() {
    #[repr(align(64))]
    struct Wide([u8; 100]);
    impl Finalize for Wide {}
    // SAFETY: there is no `Gc` in it.
    unsafe impl Trace for Wide {
        boa_gc::empty_trace!();
    }
    macro_rules! sizes {
        ($($size:literal)*) => {($({
            let gc = Gc::new([($size % 251_usize) as u8; $size]);
            force_collect();
            assert!(gc.iter().all(|&byte| byte == ($size % 251_usize) as u8));
            gc
        },)*)};
    }
    alone(|| {
        let all = (
            sizes!(1 8 9 100 2024),
            sizes!(2031 2032 2033 2040 4072 4080 4081 70000 1100000),
            Gc::new(()),
            Gc::new(1_u128),
            Gc::new(Wide([3; 100])),
        );
        assert_eq!((&raw const *all.4).addr() % 64, 0);
        assert_eq!((&raw const *all.3).addr() % 16, 0);
        assert!(all.4.0.iter().all(|&byte| byte == 3));
        let before = stats().objects;
        drop(all);
        force_collect();
        assert_eq!((before, stats().objects), (17, 0));
    });
}

#[test]
fn types_of_the_library_tell_what_they_hold() {
    type Handle = Gc<u32>;
    #[derive(Trace, Finalize)]
    struct All {
        pair: (Handle, Handle),
        array: [Handle; 2],
        boxed: Box<Handle>,
        slice: Box<[Handle]>,
        vec: Vec<Handle>,
        deque: VecDeque<Handle>,
        option: Option<Handle>,
        result: Result<Handle, u8>,
        map: HashMap<u8, Handle>,
        tree: BTreeMap<u8, Handle>,
        once: OnceCell<Handle>,
        taken: Cell<Option<Handle>>,
        own: GcRefCell<Option<Gc<All>>>,
    }
    alone(|| {
        let h = |number| Gc::new(number);
        let all = Gc::new(All {
            pair: (h(1), h(2)),
            array: [h(3), h(4)],
            boxed: Box::new(h(5)),
            slice: Box::new([h(6)]),
            vec: vec![h(7)],
            deque: VecDeque::from([h(8)]),
            option: Some(h(9)),
            result: Ok(h(10)),
            map: HashMap::from([(0, h(11))]),
            tree: BTreeMap::from([(0, h(12))]),
            once: OnceCell::from(h(13)),
            taken: Cell::new(Some(h(14))),
            own: GcRefCell::new(None),
        });
        // In a cycle every edge has to be reported, or it is never found to be garbage.
        *all.own.borrow_mut() = Some(all.clone());
        force_collect();
        assert_eq!(stats().objects, 15);
        assert_eq!(*all.tree[&0], 12);
        drop(all);
        force_collect();
        assert_eq!(stats().objects, 0);
    });
}
