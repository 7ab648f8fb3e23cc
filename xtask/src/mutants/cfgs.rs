//! The code that `#[cfg(…)]` leaves in a build that is no test build.
//!
//! K1  `test`, `loom`, `miri` and `doctest` are off, features are on as listed, the machine is this one.
//! K2  A condition that is not understood counts as on: a point too many is dropped by the compiler, or shows as
//!     never reached; one too few would be missing from the draw in silence.

use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, ExprLit, Lit, Meta, Token};

/// Reports whether an item with these attributes is part of the crate that ships.
pub fn shipped(attributes: &[Attribute], features: &[&str]) -> bool {
    attributes.iter().all(|attribute| {
        let tests = ["test", "bench", "naked"];
        if tests.iter().any(|name| attribute.path().is_ident(name)) || is_naked(attribute) {
            return false;
        }
        if !attribute.path().is_ident("cfg") {
            return true;
        }
        attribute
            .parse_args::<Meta>()
            .map_or(true, |condition| holds(&condition, features))
    })
}

fn is_naked(attribute: &Attribute) -> bool {
    attribute.path().is_ident("unsafe")
        && attribute
            .parse_args::<Meta>()
            .is_ok_and(|inner| inner.path().is_ident("naked"))
}

fn holds(condition: &Meta, features: &[&str]) -> bool {
    match condition {
        Meta::Path(path) => {
            let off = ["test", "loom", "miri", "doctest"];
            !off.iter().any(|name| path.is_ident(name))
        }
        Meta::NameValue(pair) => {
            let Expr::Lit(ExprLit {
                lit: Lit::Str(value),
                ..
            }) = &pair.value
            else {
                return true;
            };
            let value = value.value();
            if pair.path.is_ident("feature") {
                features.contains(&value.as_str())
            } else if pair.path.is_ident("target_arch") {
                value == std::env::consts::ARCH
            } else if pair.path.is_ident("target_os") {
                value == std::env::consts::OS
            } else {
                true
            }
        }
        Meta::List(list) => {
            let Ok(inner) = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)
            else {
                return true;
            };
            let mut inner = inner.iter().map(|meta| holds(meta, features));
            if list.path.is_ident("not") {
                !inner.next().unwrap_or(false)
            } else if list.path.is_ident("any") {
                inner.any(|holds| holds)
            } else {
                inner.all(|holds| holds)
            }
        }
    }
}
