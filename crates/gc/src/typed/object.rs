//! `object!`: structs and enums that lie in a heap.
//!
//! ```text
//!   object! { pub struct Node<'gc> { next: Slot<Gc<'gc, Node<'gc>>>, name: String } }
//!        │
//!        └─► the struct · Trace: each field · Family for Node<'static> · a conflict with any impl of Drop
//! ```
//!
//! B1  Every field is told: the fields that are written are the ones that are traced.
//! B2  `Drop` for the type is a compile error (F3).
//!
//! Not here: generic types; they implement [`Trace`](super::Trace) by hand.

/// Declares a struct, or an enum of empty and one-field variants, whose values may lie in a heap.
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
/// tenant.enter(|cx| {
///     let list = cx.alloc(List { items: Locked::default(), owner: Slot::new(None) }).unwrap();
///     list.items.borrow_mut(cx).extend([Value::Nil, Value::Number(1.5), Value::List(list)]);
///     assert_eq!(list.items.borrow().len(), 3);
/// });
/// ```
#[macro_export]
macro_rules! object {
    ($(#[$meta:meta])* $vis:vis struct $name:ident<$gc:lifetime> {
        $($(#[$fmeta:meta])* $fvis:vis $field:ident: $type:ty),* $(,)?
    }) => {
        $(#[$meta])*
        $vis struct $name<$gc> { $($(#[$fmeta])* $fvis $field: $type),* }

        // SAFETY: B1, B2.
        unsafe impl<$gc> $crate::typed::Trace for $name<$gc> {
            const EDGES: bool = false $(|| <$type as $crate::typed::Trace>::EDGES)*;
            const FINALIZE: $crate::Finalize = $crate::Finalize::Nothing
                $(.and(<$type as $crate::typed::Trace>::FINALIZE))*;
            const PARTS: bool = false $(|| <$type as $crate::typed::Trace>::PARTS)*;
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

        $crate::object!(@rest $name);
    };
    ($(#[$meta:meta])* system $vis:vis struct $name:ident<$gc:lifetime> {
        $($(#[$fmeta:meta])* $fvis:vis $field:ident: $type:ty),* $(,)?
    }) => {
        $crate::object! {
            $(#[$meta])* $vis struct $name<$gc> { $($(#[$fmeta])* $fvis $field: $type),* }
        }

        // SAFETY: every field is so.
        unsafe impl<$gc> $crate::typed::System for $name<$gc> where $($type: $crate::typed::System),* {}
    };
    ($(#[$meta:meta])* $vis:vis enum $name:ident<$gc:lifetime> {
        $($(#[$vmeta:meta])* $variant:ident $(($type:ty))?),* $(,)?
    }) => {
        $(#[$meta])*
        $vis enum $name<$gc> { $($(#[$vmeta])* $variant $(($type))?),* }

        // SAFETY: B1, B2.
        unsafe impl<$gc> $crate::typed::Trace for $name<$gc> {
            const EDGES: bool = false $($(|| <$type as $crate::typed::Trace>::EDGES)?)*;
            const FINALIZE: $crate::Finalize = $crate::Finalize::Nothing
                $($(.and(<$type as $crate::typed::Trace>::FINALIZE))?)*;
            #[inline]
            #[allow(unused_variables, irrefutable_let_patterns)]
            fn trace(&self, tracer: &mut $crate::Tracer) {
                $($(if let $name::$variant(part) = self {
                    <$type as $crate::typed::Trace>::trace(part, tracer);
                })?)*
            }
            #[allow(unused_variables, irrefutable_let_patterns)]
            fn name_edges(&self, tracer: &mut $crate::Tracer) {
                $($(if let $name::$variant(part) = self {
                    <$type as $crate::typed::Trace>::name_edges(part, tracer);
                })?)*
            }
        }

        $crate::object!(@rest $name);
    };
    (@rest $name:ident) => {
        impl $crate::typed::Family for $name<'static> {
            type At<'gc> = $name<'gc>;
        }

        // Two impls for the same type, if it has a `Drop` (B2).
        const _: () = {
            trait HasNoDrop {}
            #[allow(drop_bounds)]
            impl<T: ::core::ops::Drop> HasNoDrop for T {}
            impl HasNoDrop for $name<'_> {}
        };
    };
}
