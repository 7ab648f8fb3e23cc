//! Patterns of names: a part of one, or with a `*` its form.
//!
//! ```text
//!   load ─► app::load_user      load_* ─► load_user, not app::load_user
//! ```
//!
//! Not here: of what they are the names (figures.rs, phase.rs, suite.rs).

/// Reports whether a name matches: it contains the pattern, or, if that has a `*`, is of its form from begin to end.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let rest: Vec<&str> = parts.collect();
    let Some((last, between)) = rest.split_last() else {
        return name.contains(first);
    };
    let Some(mut left) = name.strip_prefix(first) else {
        return false;
    };
    for part in between {
        let Some(at) = left.find(part) else {
            return false;
        };
        left = &left[at + part.len()..];
    }
    left.ends_with(last)
}
