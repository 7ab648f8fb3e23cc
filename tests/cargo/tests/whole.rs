//! A test with a harness of its own: it prints nothing when it is asked for a list.

fn main() {
    assert_eq!(app::load(1000)[0], 1);
}
