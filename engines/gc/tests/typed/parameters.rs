//! Types with parameters that `object!` declares: what their arguments keep alive, and what a handle to one keeps.

use skinflint_gc::typed::{Cx, Gc, Handle, Locked, Runtime, Slot, Trace};
use skinflint_gc::{Finalize, Reason, object};

use crate::{objects, quiet};

object! {
    struct List<'gc, T: Trace> { first: T, rest: Slot<Gc<'gc, List<'gc, T>>> }
}

object! {
    enum Either<'gc, T, U> { One(T), Both { left: T, right: Gc<'gc, U> }, Neither }
}

object! { struct Pair<'gc, T, U>(T, Gc<'gc, U>); }

type Names = List<'static, Gc<'static, String>>;

fn text<'gc>(cx: Cx<'gc>, what: &str) -> Gc<'gc, String> {
    cx.alloc(what.to_owned()).expect("memory")
}

#[test]
fn what_an_argument_leads_to_stays_and_goes_with_its_list() {
    let runtime = Runtime::new(quiet());
    let tenant = runtime.tenant("a", usize::MAX);
    let collect = || {
        runtime
            .collect_all(Reason::Asked)
            .expect("no tenant is entered")
    };
    let list: Handle<Names> = tenant.enter(|cx| {
        let mut rest = None;
        for n in 0..10 {
            let first = text(cx, &format!("number {n}"));
            let list = List {
                first,
                rest: Slot::new(rest),
            };
            rest = Some(cx.alloc(list).expect("memory"));
        }
        text(cx, "lost");
        cx.keep::<Names>(rest.expect("ten of them"), "the list")
    });
    collect();
    assert_eq!(objects(&tenant), 20);
    tenant.enter(|cx| {
        let mut at = Some(list.open(cx).expect("of this tenant"));
        let mut seen = Vec::new();
        while let Some(list) = at {
            seen.push(list.first.as_str().to_owned());
            at = list.rest.get();
        }
        assert_eq!(seen.len(), 10);
        assert_eq!((&*seen[0], &*seen[9]), ("number 9", "number 0"));
    });
    drop(list);
    collect();
    assert_eq!(objects(&tenant), 0);
}

#[test]
fn variants_and_fields_without_names_are_traced() {
    type Choice = Either<'static, Gc<'static, String>, String>;
    type Choices = Pair<'static, Locked<Vec<Choice>>, String>;
    let runtime = Runtime::new(quiet());
    let tenant = runtime.tenant("a", usize::MAX);
    let collect = || {
        runtime
            .collect_all(Reason::Asked)
            .expect("no tenant is entered")
    };
    let kept = tenant.enter(|cx| {
        let both = Either::Both {
            left: text(cx, "left"),
            right: text(cx, "right"),
        };
        let all = vec![both, Either::One(text(cx, "one")), Either::Neither];
        let pair = Pair(Locked::new(all), text(cx, "beside"));
        cx.keep::<Choices>(cx.alloc(pair).expect("memory"), "the pair")
    });
    collect();
    assert_eq!(objects(&tenant), 5, "four texts and the pair");
    tenant.enter(|cx| {
        let pair = kept.open(cx).expect("of this tenant");
        let all = pair.0.borrow();
        let Either::Both { left, right } = &all[0] else {
            panic!("the first")
        };
        let Either::One(one) = &all[1] else {
            panic!("the second")
        };
        let texts = [left, right, one, &pair.1].map(|text| text.as_str());
        assert_eq!(texts, ["left", "right", "one", "beside"]);
    });
    tenant.enter(|cx| {
        kept.open(cx)
            .expect("of this tenant")
            .0
            .borrow_mut(cx)
            .clear()
    });
    collect();
    assert_eq!(objects(&tenant), 2);
}

#[test]
fn what_a_type_says_of_itself_follows_from_its_arguments() {
    type Plain = List<'static, u64>;
    type Named = Pair<'static, String, u64>;
    assert_eq!(
        [<Plain as Trace>::EDGES, <Named as Trace>::EDGES],
        [true; 2]
    );
    assert_eq!(<Plain as Trace>::FINALIZE, Finalize::Nothing);
    assert_eq!(<Named as Trace>::FINALIZE, <String as Trace>::FINALIZE);
    assert_ne!(<Named as Trace>::FINALIZE, Finalize::Nothing);
}
