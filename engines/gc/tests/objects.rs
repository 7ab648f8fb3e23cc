//! Types that `object!` declares, and ephemerons: every field keeps its object alive, has its name, and ends.
//!
//! ```text
//!   tuple structs · variants without and with names · Ephemeron ─► collect (stress, slices) ─► what is left, by which edge
//! ```
//!
//! S1  Everything runs under stress with the second tracer, in one go and in slices of one edge: a field that is not
//!     traced is found.
//!
//! Not here: what does not compile (`typed`, its examples).

use skinflint_gc::typed::{Ephemeron, Gc, Handle, Locked, Runtime, Slot, Tenant};
use skinflint_gc::{Config, Incremental, Wanted, object};

object! {
    /// Without names, and every place an edge.
    #[derive(Clone, Copy)]
    pub struct Six<'gc>(
        pub Gc<'gc, u64>,
        Gc<'gc, u64>,
        pub(crate) Gc<'gc, u64>,
        Gc<'gc, u64>,
        Gc<'gc, u64>,
        /// The last.
        Gc<'gc, u64>,
    );
}

object! { struct One<'gc>(Slot<Gc<'gc, String>>) }

object! {
    enum Term<'gc> {
        Nil,
        /// A number.
        Leaf(Gc<'gc, u64>),
        Cons(u8, Gc<'gc, Term<'gc>>, Gc<'gc, Term<'gc>>,),
        Six(Gc<'gc, u64>, Gc<'gc, u64>, Gc<'gc, u64>, Gc<'gc, u64>, Gc<'gc, u64>, Gc<'gc, String>),
        Call { function: Gc<'gc, String>, with: Locked<Vec<Gc<'gc, Term<'gc>>>> },
        Empty {},
    }
}

object! { struct Weakly<'gc> { pairs: Locked<Vec<Ephemeron<'gc, u64, Term<'gc>>>> } }

fn stressed() -> [Config; 2] {
    let one_go = Config::stress(1);
    let sliced = Config {
        incremental: Some(Incremental::STRESS),
        ..one_go.clone()
    };
    [one_go, sliced]
}

fn objects(tenant: &Tenant) -> usize {
    tenant.collect().expect("at rest");
    tenant.heap().check();
    tenant.heap().holds().objects
}

#[test]
fn every_field_without_a_name_keeps_alive() {
    for config in stressed() {
        let tenant = Runtime::new(config).tenant("a", usize::MAX);
        let six: Handle<Six<'static>> = tenant.enter(|cx| {
            let number = |n: u64| cx.alloc(n).expect("memory");
            let six = Six(
                number(0),
                number(1),
                number(2),
                number(3),
                number(4),
                number(5),
            );
            cx.keep(cx.alloc(six).expect("memory"), "six")
        });
        assert_eq!(objects(&tenant), 7);
        let sum = tenant.enter(|cx| {
            let six = six.open(cx).expect("its own");
            *six.0 + *six.1 + *six.2 + *six.3 + *six.4 + *six.5
        });
        assert_eq!(sum, 15);
        let paths: Vec<String> = (0..6)
            .map(|nth| {
                let asked = tenant
                    .paths(&[Wanted::Nth("u64", nth)])
                    .expect("at rest")
                    .remove(0);
                asked.expect("alive").steps[1].edge.clone()
            })
            .collect();
        let mut names = paths.clone();
        names.sort();
        assert_eq!(names, ["0", "1", "2", "3", "4", "5"]);
        drop(six);
        let one: Handle<One<'static>> = tenant.enter(|cx| {
            let text = cx.alloc("text".to_owned()).expect("memory");
            cx.keep(cx.alloc(One(Slot::new(Some(text)))).expect("memory"), "one")
        });
        assert_eq!(objects(&tenant), 2);
        tenant.enter(|cx| one.open(cx).expect("its own").0.set(cx, None));
        assert_eq!(objects(&tenant), 1);
    }
}

#[test]
fn every_field_of_a_variant_keeps_alive_and_has_its_name() {
    for config in stressed() {
        let tenant = Runtime::new(config).tenant("a", usize::MAX);
        let all: Handle<Term<'static>> = tenant.enter(|cx| {
            let term = |term| cx.alloc(term).expect("memory");
            let number = |n: u64| cx.alloc(n).expect("memory");
            let text = |text: &str| cx.alloc(text.to_owned()).expect("memory");
            let leaf = term(Term::Leaf(number(7)));
            let cons = term(Term::Cons(1, leaf, term(Term::Nil)));
            let six = (number(1), number(2), number(3), number(4), number(5));
            let six = term(Term::Six(six.0, six.1, six.2, six.3, six.4, text("last")));
            let with = Locked::new(vec![cons, six, term(Term::Empty {})]);
            let function = text("function");
            cx.keep(term(Term::Call { function, with }), "a call")
        });
        // Six terms, six numbers, two texts.
        assert_eq!(objects(&tenant), 6 + 6 + 2);
        tenant.enter(|cx| {
            let Term::Call { function, with } = &*all.open(cx).expect("its own") else {
                panic!("the call");
            };
            assert_eq!(**function, "function");
            let with = with.borrow();
            assert!(matches!(&*with[0], Term::Cons(1, leaf, _) if matches!(&**leaf, Term::Leaf(n) if **n == 7)));
            assert!(matches!(&*with[1], Term::Six(_, b, .., last) if (**b, last.as_str()) == (2, "last")));
        });
        let kind = "alloc::string::String";
        let mut edges: Vec<Vec<String>> = (0..2)
            .map(|nth| {
                let path = tenant
                    .paths(&[Wanted::Nth(kind, nth)])
                    .expect("at rest")
                    .remove(0);
                let steps = path.expect("alive").steps;
                steps[1..].iter().map(|step| step.edge.clone()).collect()
            })
            .collect();
        edges.sort();
        assert_eq!(edges[0], ["function"]);
        assert_eq!((edges[1].len(), edges[1][1].as_str()), (2, "5"));
        drop(all);
        assert_eq!(objects(&tenant), 0);
    }
}

#[test]
fn an_ephemerons_value_lives_as_long_as_its_key() {
    for config in stressed() {
        let tenant = Runtime::new(config).tenant("a", usize::MAX);
        let (weakly, first): (Handle<Weakly<'static>>, Handle<u64>) = tenant.enter(|cx| {
            let weakly = cx
                .alloc(Weakly {
                    pairs: Locked::default(),
                })
                .expect("memory");
            let keys = [1, 2, 3].map(|key: u64| cx.alloc(key).expect("memory"));
            // Each value keeps the next key, the last one its own: a chain, told in the worst order.
            for nth in (0..3).rev() {
                let next = keys[(nth + 1).min(2)];
                let value = cx.alloc(Term::Leaf(next)).expect("memory");
                weakly
                    .pairs
                    .borrow_mut(cx)
                    .push(Ephemeron::new(keys[nth], value));
            }
            (cx.keep(weakly, "pairs"), cx.keep(keys[0], "the first key"))
        });
        let left = |tenant: &Tenant| {
            tenant.enter(|cx| {
                let weakly = weakly.open(cx).expect("its own");
                let pairs = weakly.pairs.borrow();
                let both = |pair: &&Ephemeron<'_, u64, Term<'_>>| match (pair.key(), pair.value()) {
                    (Some(key), Some(value)) => {
                        matches!(&*value, Term::Leaf(next) if **next >= *key)
                    }
                    (None, None) => false,
                    _ => panic!("half a pair"),
                };
                pairs.iter().filter(both).count()
            })
        };
        assert_eq!((objects(&tenant), left(&tenant)), (1 + 3 + 3, 3));
        drop(first);
        assert_eq!((objects(&tenant), left(&tenant)), (1, 0));
    }
}
