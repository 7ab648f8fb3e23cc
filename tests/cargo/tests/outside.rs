//! A test in a file of its own.

#[test]
fn uses_it() {
    assert_eq!(app::load(8_000_000)[7], 1);
}
