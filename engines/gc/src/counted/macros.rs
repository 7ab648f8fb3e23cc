//! `counted!`: structs and enums whose values lie in counted boxes.
//!
//! ```text
//!   counted! { pub struct Node { next: Field<Option<Cc<Node>>>, name: String } }
//!        └─► the struct · Trace: each field, once · a conflict with any impl of Drop
//! ```
//!
//! B1  Every field is told once: the fields that are declared are the ones that are traced.
//! B2  `Drop` for the type is a compile error: what its pointers lead to may have ended before it.
//!
//! Not here: generic types; they implement [`Trace`](crate::typed::Trace) by hand.

/// Declares a struct, or an enum of empty and one-field variants, whose values may lie in a
/// [`Cc`](crate::cc::Cc). Every field must be [`Trace`](crate::typed::Trace).
#[macro_export]
macro_rules! counted {
    ($(#[$meta:meta])* $vis:vis struct $name:ident {
        $($(#[$fmeta:meta])* $fvis:vis $field:ident: $type:ty),* $(,)?
    }) => {
        $(#[$meta])*
        $vis struct $name { $($(#[$fmeta])* $fvis $field: $type),* }

        // SAFETY: B1, B2.
        unsafe impl $crate::typed::Trace for $name {
            const EDGES: bool = false $(|| <$type as $crate::typed::Trace>::EDGES)*;
            const FINALIZE: $crate::Finalize = $crate::Finalize::Nothing
                $(.and(<$type as $crate::typed::Trace>::FINALIZE))*;
            #[inline]
            #[allow(unused_variables)]
            fn trace(&self, tracer: &mut $crate::Tracer) {
                $($crate::typed::Trace::trace(&self.$field, tracer);)*
            }
        }

        $crate::counted!(@rest $name);
    };
    ($(#[$meta:meta])* $vis:vis enum $name:ident {
        $($(#[$vmeta:meta])* $variant:ident $(($type:ty))?),* $(,)?
    }) => {
        $(#[$meta])*
        $vis enum $name { $($(#[$vmeta])* $variant $(($type))?),* }

        // SAFETY: B1, B2.
        unsafe impl $crate::typed::Trace for $name {
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
        }

        $crate::counted!(@rest $name);
    };
    (@rest $name:ident) => {
        // Two impls for the same type, if it has a `Drop` (B2).
        const _: () = {
            trait HasNoDrop {}
            #[allow(drop_bounds)]
            impl<T: ::core::ops::Drop> HasNoDrop for T {}
            impl HasNoDrop for $name {}
        };
    };
}
