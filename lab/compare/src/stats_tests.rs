//! Outliers at the edge of what is far: five times the usual distance, and two hundredths of the middle.

use super::outliers;

#[test]
fn far_is_beyond_five_times_the_usual_distance() {
    // The middle is 100, the distances are 1, 1, 0, 1 and the last one's: 1 is usual.
    let last = |value: f64| outliers(&[99.0, 101.0, 100.0, 99.0, value]);
    assert!(last(104.0).is_empty(), "four times");
    assert!(last(104.99).is_empty());
    assert_eq!(last(105.01), [4]);
    let below = |value: f64| outliers(&[101.0, 99.0, 100.0, 101.0, value]);
    assert!(below(95.01).is_empty());
    assert_eq!(below(94.99), [4], "below, too");
}

#[test]
fn far_is_beyond_two_hundredths_of_the_middle_however_alike_the_others_are() {
    let last = |value: f64| outliers(&[100.0, 100.0, 100.0, 100.0, value]);
    assert!(last(101.9).is_empty());
    assert_eq!(last(102.1), [4]);
    assert!(
        outliers(&[100.0, 100.0, 100.0, 150.0]).is_empty(),
        "four have no rest to be far from"
    );
}
