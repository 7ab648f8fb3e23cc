//! What rows say of blocks in use beside their bytes: what they keep resident, and for how long they have been in use.
//!
//! The rules are those of profile.rs.

use super::*;

/// Site 1 keeps every second of 160 bytes, so half of each of its pages is free; site 2 every sixteenth of 256 bytes, so each keeps a
/// page. What the free bytes of these pages are is plain, whatever lies on which; so is the variance of samples of it.
#[test]
fn what_stacks_keep_resident_is_right_within_the_error() {
    alone(
        "held::what_stacks_keep_resident_is_right_within_the_error",
        || {
            begin(53, RATE);
            let sites = sites();
            let mut blocks = Vec::new();
            for (site, size, count, one_of) in [(1, 160, 240_000, 2), (2, 256, 256_000, 16)] {
                let mut dropped = Vec::new();
                for i in 0..count {
                    let block = sites[site](size);
                    let to = if i % one_of == 0 {
                        &mut blocks
                    } else {
                        &mut dropped
                    };
                    to.push((block, size, site));
                }
                free(&mut dropped);
            }
            let now = read(What::InUse).by_site();
            for (site, size, kept, each) in [(1, 160, 120_000, 160.0), (2, 256, 16_000, 3840.0)] {
                let row = now[&site];
                let p = -(-(f64::from(size)) / RATE as f64).exp_m1();
                let truth = f64::from(kept) * each;
                let sd = (f64::from(kept) * each * each * (1.0 - p) / p).sqrt();
                let z = (row.pinned as f64 - truth) / sd;
                let ratio = row.pinned_variance.sqrt() / sd;
                println!(
                    "site {site}: {} of {truth}, z {z:.2}, error {ratio:.2}",
                    row.pinned
                );
                assert!(z.abs() < 3.0, "site {site}: {z}");
                assert!((0.8..1.25).contains(&ratio), "site {site}: {ratio}");
            }
            free(&mut blocks);
            let then = read(What::InUse);
            assert!(then.rows.iter().all(|(row, _)| row.pinned == 0));
        },
    );
}

/// Blocks of a mebibyte are known to the byte, and so are those that are in use for a minute and for an hour.
#[test]
fn what_is_in_use_for_long_is_told() {
    alone("held::what_is_in_use_for_long_is_told", || {
        begin(59, RATE);
        profile::set_seconds(100);
        let first = site::<5>(1 << 20);
        profile::set_seconds(160);
        let second = site::<5>(2 << 20);
        let third = site::<6>(4 << 20);
        profile::set_seconds(3_759);
        let fourth = site::<6>(8 << 20);
        let told = || {
            let now = read(What::InUse).by_site();
            [5, 6].map(|site| now[&site].aged.map(|bytes| bytes >> 20))
        };
        assert_eq!(told(), [[3, 1], [4, 0]]);
        profile::set_seconds(3_819);
        assert_eq!(told(), [[3, 3], [12, 4]]);
        assert!(!read(What::Peak).text.contains("for a minute"));
        for block in [first, second, third, fourth] {
            // SAFETY: live blocks, freed once each.
            unsafe { alloc::free(block) };
        }
    });
}
