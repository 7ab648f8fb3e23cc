//! What is pinned stays, even if it is to be discarded (`pin.N1`): the set looks before it asks, but a pin may come in
//! between.

use std::convert::Infallible;
use std::sync::Arc;

use crate::pin::Pins;

/// Pins a form that is there; decoding again would be a fault.
fn there(pins: &Pins<Arc<u32>>) -> Arc<u32> {
    let pinned = pins.pinned::<Infallible>(|| panic!("it is there"), || panic!("it is listed"));
    pinned.expect("nothing to fail")
}

#[test]
fn a_form_is_discarded_only_between_its_last_unpin_and_the_next_pin() {
    let pins = Pins::new();
    assert!(pins.discard().is_none(), "nothing is there");
    let mut listed = 0;
    let first = pins.pinned::<Infallible>(|| Ok((Arc::new(7), 100)), || listed += 1);
    assert_eq!(
        (first.ok().as_deref(), listed),
        (Some(&7), 1),
        "to be put into the list"
    );
    let second = there(&pins);
    assert!(pins.discard().is_none(), "pinned twice");
    assert_eq!(pins.idle_since_ms(), None);
    pins.unpin(5);
    assert!(pins.discard().is_none(), "pinned once");
    assert!(pins.is_decoded());
    pins.unpin(9);
    assert_eq!(pins.idle_since_ms(), Some(9));
    drop(there(&pins));
    assert!(pins.discard().is_none(), "a pin came in between");
    pins.unpin(11);
    let (value, bytes) = pins.discard().expect("not pinned");
    assert_eq!((*value, *second, bytes), (7, 7, 100));
    assert!(!pins.is_decoded() && pins.bytes() == 0 && pins.discard().is_none());
}
