//! `object!`: structs and enums whose values lie in a heap.
//!
//! ```text
//!   object! { pub struct Node<'gc> { next: Slot<Gc<'gc, Node<'gc>>>, name: String } }
//!        │
//!        └─► the struct · Trace: each field · Family for Node<'static> · a conflict with any impl of Drop
//! ```
//!
//! B1  Every field is told: the fields that are declared are the ones that are traced.
//! B2  `Drop` for the type is a compile error (typed.F3).
//!
//! B3  Input that the macro does not support is explained in words, not by "no rules expected the token".
//!
//! B4  Of a type with parameters the brand is that of its arguments as well: `List<'static, T>` is
//!     `List<'gc, T::At<'gc>>` within a closure, so that an argument may have edges.
//!
//! Not here: parameters with bounds of their own, lifetimes, constants; such types implement
//! [`Trace`](crate::typed::Trace) by hand.

/// Declares a struct or an enum whose values may lie in a heap: structs with named fields, or with up to six without
/// names; enums whose variants are empty, have up to six fields without names, or named fields.
///
/// The brand is written `'gc` (any name will do), and every field must be [`Trace`](crate::typed::Trace).
/// `object! { system struct … }` makes one that may lie in the shared heap, too.
///
/// ```
/// use skinflint_gc::{object, typed::{Gc, Locked, Runtime, Slot}};
///
/// object! {
///     /// A value of the language.
///     #[derive(Clone, Copy)]
///     pub enum Value<'gc> { Nil, Number(f64), List(Gc<'gc, List<'gc>>) }
/// }
/// object! {
///     /// A list of them.
///     pub struct List<'gc> { items: Locked<Vec<Value<'gc>>>, owner: Slot<Gc<'gc, List<'gc>>> }
/// }
///
/// let tenant = Runtime::default().tenant("a", usize::MAX);
/// object! { struct Pair<'gc>(pub Gc<'gc, List<'gc>>, pub u32); }
/// object! {
///     enum Term<'gc> { Nil, Cons(Gc<'gc, u64>, Gc<'gc, Term<'gc>>), Call { of: Gc<'gc, Term<'gc>>, with: Vec<Value<'gc>> } }
/// }
///
/// tenant.enter(|cx| {
///     let list = cx.alloc(List { items: Locked::default(), owner: Slot::new(None) }).unwrap();
///     list.items.borrow_mut(cx).extend([Value::Nil, Value::Number(1.5), Value::List(list)]);
///     assert_eq!(list.items.borrow().len(), 3);
///     let pair = cx.alloc(Pair(list, 3)).unwrap();
///     assert_eq!((pair.0.items.borrow().len(), pair.1), (3, 3));
///     let nil = cx.alloc(Term::Nil).unwrap();
///     let cons = Term::Cons(cx.alloc(1).unwrap(), nil);
///     let call = Term::Call { of: cx.alloc(cons).unwrap(), with: vec![Value::List(list)] };
///     cx.alloc(call).unwrap();
/// });
/// ```
///
/// Types may be parameters, with or without edges of their own; each is [`Trace`](crate::typed::Trace), and may say so:
///
/// ```
/// # use skinflint_gc::{object, typed::{Gc, Runtime, Slot}};
/// object! { struct List<'gc, T> { first: T, rest: Slot<Gc<'gc, List<'gc, T>>> } }
/// object! { enum Either<'gc, T: Trace, U: Trace> { One(T), Other(Gc<'gc, U>), Neither } }
///
/// let tenant = Runtime::default().tenant("a", usize::MAX);
/// tenant.enter(|cx| {
///     let one = cx.alloc(List { first: 1u64, rest: Slot::new(None) }).unwrap();
///     let either: Either<'_, u64, String> = Either::Other(cx.alloc(String::from("two")).unwrap());
///     let of = cx.alloc(List { first: either, rest: Slot::new(None) }).unwrap();
///     assert!(matches!(&of.first, Either::Other(text) if **text == "two"));
///     assert_eq!(one.first, 1);
/// });
/// ```
///
/// Other bounds, lifetimes and constants it does not know, and says so: such a type implements `Trace` by hand.
///
/// ```compile_fail
/// # use skinflint_gc::{object, typed::{Gc, Slot}};
/// object! { struct List<'gc, T: Ord> { first: T, rest: Slot<Gc<'gc, List<'gc, T>>> } }
/// ```
#[macro_export]
macro_rules! object {
    ($(#[$meta:meta])* $vis:vis struct $name:ident<$gc:lifetime $(, $p:ident $(: Trace)?)* $(,)?> {
        $($(#[$fmeta:meta])* $fvis:vis $field:ident: $type:ty),* $(,)?
    }) => {
        $(#[$meta])*
        $vis struct $name<$gc $(, $p: $crate::typed::Trace)*> { $($(#[$fmeta])* $fvis $field: $type),* }
        $crate::object!(@struct $name $gc [$($p),*] [$($field: $type),*]);
    };
    ($(#[$meta:meta])* $vis:vis struct $name:ident<$gc:lifetime $(, $p:ident $(: Trace)?)* $(,)?>(
        $(#[$m0:meta])* $v0:vis $t0:ty $(, $(#[$m1:meta])* $v1:vis $t1:ty $(, $(#[$m2:meta])* $v2:vis $t2:ty $(, $(#[$m3:meta])* $v3:vis $t3:ty $(, $(#[$m4:meta])* $v4:vis $t4:ty $(, $(#[$m5:meta])* $v5:vis $t5:ty )?)?)?)?)? $(,)?
    ) $(;)?) => {
        $(#[$meta])*
        $vis struct $name<$gc $(, $p: $crate::typed::Trace)*>($(#[$m0])* $v0 $t0 $(, $(#[$m1])* $v1 $t1 $(, $(#[$m2])* $v2 $t2 $(, $(#[$m3])* $v3 $t3 $(, $(#[$m4])* $v4 $t4 $(, $(#[$m5])* $v5 $t5 )?)?)?)?)?);
        $crate::object!(@struct $name $gc [$($p),*] [0: $t0 $(, 1: $t1 $(, 2: $t2 $(, 3: $t3 $(, 4: $t4 $(, 5: $t5 )?)?)?)?)?]);
    };
    ($(#[$meta:meta])* system $vis:vis struct $name:ident<$gc:lifetime $(, $p:ident $(: Trace)?)* $(,)?> {
        $($(#[$fmeta:meta])* $fvis:vis $field:ident: $type:ty),* $(,)?
    }) => {
        $crate::object! {
            $(#[$meta])* $vis struct $name<$gc $(, $p)*> { $($(#[$fmeta])* $fvis $field: $type),* }
        }

        // SAFETY: every field is so.
        unsafe impl<$gc $(, $p: $crate::typed::Trace)*> $crate::typed::System for $name<$gc $(, $p)*>
        where $($type: $crate::typed::System),* {}
    };
    ($(#[$meta:meta])* $vis:vis enum $name:ident<$gc:lifetime $(, $p:ident $(: Trace)?)* $(,)?> {
        $($(#[$vmeta:meta])* $variant:ident
            $(($t0:ty $(, $t1:ty $(, $t2:ty $(, $t3:ty $(, $t4:ty $(, $t5:ty )?)?)?)?)? $(,)?))?
            $({ $($(#[$fmeta:meta])* $field:ident: $type:ty),* $(,)? })?
        ),* $(,)?
    }) => {
        $(#[$meta])*
        $vis enum $name<$gc $(, $p: $crate::typed::Trace)*> {
            $($(#[$vmeta])* $variant
                $(($t0 $(, $t1 $(, $t2 $(, $t3 $(, $t4 $(, $t5 )?)?)?)?)?))?
                $({ $($(#[$fmeta])* $field: $type),* })?
            ),*
        }

        // SAFETY: B1, B2.
        unsafe impl<$gc $(, $p: $crate::typed::Trace)*> $crate::typed::Trace for $name<$gc $(, $p)*> {
            const EDGES: bool = false
                $($(|| <$t0 as $crate::typed::Trace>::EDGES $(|| <$t1 as $crate::typed::Trace>::EDGES $(|| <$t2 as $crate::typed::Trace>::EDGES $(|| <$t3 as $crate::typed::Trace>::EDGES $(|| <$t4 as $crate::typed::Trace>::EDGES $(|| <$t5 as $crate::typed::Trace>::EDGES )?)?)?)?)?)? $($(|| <$type as $crate::typed::Trace>::EDGES)*)?)*;
            const WEAK: bool = false
                $($(|| <$t0 as $crate::typed::Trace>::WEAK $(|| <$t1 as $crate::typed::Trace>::WEAK $(|| <$t2 as $crate::typed::Trace>::WEAK $(|| <$t3 as $crate::typed::Trace>::WEAK $(|| <$t4 as $crate::typed::Trace>::WEAK $(|| <$t5 as $crate::typed::Trace>::WEAK )?)?)?)?)?)? $($(|| <$type as $crate::typed::Trace>::WEAK)*)?)*;
            const FINALIZE: $crate::Finalize = $crate::Finalize::Nothing
                $($(.and(<$t0 as $crate::typed::Trace>::FINALIZE) $(.and(<$t1 as $crate::typed::Trace>::FINALIZE) $(.and(<$t2 as $crate::typed::Trace>::FINALIZE) $(.and(<$t3 as $crate::typed::Trace>::FINALIZE) $(.and(<$t4 as $crate::typed::Trace>::FINALIZE) $(.and(<$t5 as $crate::typed::Trace>::FINALIZE) )?)?)?)?)?)? $($(.and(<$type as $crate::typed::Trace>::FINALIZE))*)?)*;
            #[inline]
            #[allow(unused_variables, irrefutable_let_patterns)]
            fn trace(&self, tracer: &mut $crate::Tracer) {
                $(
                    $(if let $name::$variant(part, ..) = self { <$t0 as $crate::typed::Trace>::trace(part, tracer); } $(if let $name::$variant(_, part, ..) = self { <$t1 as $crate::typed::Trace>::trace(part, tracer); } $(if let $name::$variant(_, _, part, ..) = self { <$t2 as $crate::typed::Trace>::trace(part, tracer); } $(if let $name::$variant(_, _, _, part, ..) = self { <$t3 as $crate::typed::Trace>::trace(part, tracer); } $(if let $name::$variant(_, _, _, _, part, ..) = self { <$t4 as $crate::typed::Trace>::trace(part, tracer); } $(if let $name::$variant(_, _, _, _, _, part, ..) = self { <$t5 as $crate::typed::Trace>::trace(part, tracer); } )?)?)?)?)?)?
                    $($(if let $name::$variant { $field: part, .. } = self {
                        <$type as $crate::typed::Trace>::trace(part, tracer);
                    })*)?
                )*
            }
            #[allow(unused_variables, irrefutable_let_patterns)]
            fn name_edges(&self, tracer: &mut $crate::Tracer) {
                $(
                    $(if let $name::$variant(part, ..) = self { if false $(|| !stringify!($t1).is_empty())? { tracer.named("0", |tracer| <$t0 as $crate::typed::Trace>::name_edges(part, tracer)); } else { <$t0 as $crate::typed::Trace>::name_edges(part, tracer); } } $(if let $name::$variant(_, part, ..) = self { tracer.named("1", |tracer| <$t1 as $crate::typed::Trace>::name_edges(part, tracer)); } $(if let $name::$variant(_, _, part, ..) = self { tracer.named("2", |tracer| <$t2 as $crate::typed::Trace>::name_edges(part, tracer)); } $(if let $name::$variant(_, _, _, part, ..) = self { tracer.named("3", |tracer| <$t3 as $crate::typed::Trace>::name_edges(part, tracer)); } $(if let $name::$variant(_, _, _, _, part, ..) = self { tracer.named("4", |tracer| <$t4 as $crate::typed::Trace>::name_edges(part, tracer)); } $(if let $name::$variant(_, _, _, _, _, part, ..) = self { tracer.named("5", |tracer| <$t5 as $crate::typed::Trace>::name_edges(part, tracer)); } )?)?)?)?)?)?
                    $($(if let $name::$variant { $field: part, .. } = self {
                        tracer.named(stringify!($field), |tracer| {
                            <$type as $crate::typed::Trace>::name_edges(part, tracer);
                        });
                    })*)?
                )*
            }
        }

        $crate::object!(@rest $name [$($p),*]);
    };
    (@struct $name:ident $gc:lifetime [$($p:ident),*] [$($field:tt: $type:ty),*]) => {
        // SAFETY: B1, B2.
        unsafe impl<$gc $(, $p: $crate::typed::Trace)*> $crate::typed::Trace for $name<$gc $(, $p)*> {
            const EDGES: bool = false $(|| <$type as $crate::typed::Trace>::EDGES)*;
            const FINALIZE: $crate::Finalize = $crate::Finalize::Nothing
                $(.and(<$type as $crate::typed::Trace>::FINALIZE))*;
            const PARTS: bool = false $(|| <$type as $crate::typed::Trace>::PARTS)*;
            const WEAK: bool = false $(|| <$type as $crate::typed::Trace>::WEAK)*;
            #[inline]
            #[allow(unused_variables, irrefutable_let_patterns)]
            fn trace(&self, tracer: &mut $crate::Tracer) {
                $($crate::typed::Trace::trace(&self.$field, tracer);)*
            }
            #[allow(unused_variables, unused_mut, unused_assignments)]
            fn trace_part(&self, from: usize, tracer: &mut $crate::Tracer) -> Option<usize> {
                let mut fields = $crate::typed::FieldParts::from(from, &[$(stringify!($field)),*]);
                $(if let Some(inner) = fields.next() {
                    if let Some(next) = $crate::typed::Trace::trace_part(&self.$field, inner, tracer) {
                        return Some(fields.place(next));
                    }
                })*
                None
            }
            #[allow(unused_variables)]
            fn name_edges(&self, tracer: &mut $crate::Tracer) {
                $(tracer.named(stringify!($field), |tracer| {
                    $crate::typed::Trace::name_edges(&self.$field, tracer);
                });)*
            }
        }

        $crate::object!(@rest $name [$($p),*]);
    };
    (@rest $name:ident [$($p:ident),*]) => {
        impl<$($p: $crate::typed::Family + $crate::typed::Trace),*> $crate::typed::Family for $name<'static $(, $p)*> {
            type At<'gc> = $name<'gc $(, <$p as $crate::typed::Family>::At<'gc>)*>;
        }

        // Two impls for the same type, if it has a `Drop` (B2).
        const _: () = {
            trait HasNoDrop {}
            #[allow(drop_bounds)]
            impl<T: ::core::ops::Drop> HasNoDrop for T {}
            impl<$($p: $crate::typed::Trace),*> HasNoDrop for $name<'_ $(, $p)*> {}
        };
    };
    // B3.
    ($(#[$meta:meta])* $vis:vis struct $name:ident<$gc:lifetime, $($rest:tt)*) => {
        $crate::object!(@parameters $name);
    };
    ($(#[$meta:meta])* $vis:vis enum $name:ident<$gc:lifetime, $($rest:tt)*) => {
        $crate::object!(@parameters $name);
    };
    (@parameters $name:ident) => {
        compile_error!(concat!(
            "object! takes the brand and then types with no bound but `Trace`: `", stringify!($name),
            "<'gc, T, U: Trace>`; for any other parameter implement `Trace` by hand (its # Safety says how)"
        ));
    };
    ($(#[$meta:meta])* $vis:vis struct $name:ident $($rest:tt)*) => {
        $crate::object!(@shape $name);
    };
    ($(#[$meta:meta])* $vis:vis enum $name:ident $($rest:tt)*) => {
        $crate::object!(@shape $name);
    };
    (@shape $name:ident) => {
        compile_error!(concat!(
            "object! takes `struct ", stringify!($name), "<'gc> { field: Type, … }`, `struct ", stringify!($name),
            "<'gc>(Type, …);` with one to six fields, and `enum ", stringify!($name),
            "<'gc> { Empty, Some(Type, …), Named { field: Type, … } }`, with the brand and without a where clause; \
             a value without edges needs no object!: it lies in a heap as `Opaque(value)` or `OpaqueSend(value)`"
        ));
    };
    ($($other:tt)*) => {
        compile_error!(
            "object! declares one struct or enum with a brand, `struct Name<'gc> { … }`; \
             `system` may stand before a struct with named fields"
        );
    };
}
