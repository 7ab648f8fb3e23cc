//! The faults that are planted in the newer build are the first regressions; without them, nothing is.
//!
//! ```text
//!   seeds ─► fleet ─► regressions: the leak and the pinning stack, before all else     switched off ─► not there
//! ```
//!
//! Not here: whether figures are right (judge/mod.rs).

use std::collections::BTreeSet;

use skinflint_fleet::engines::open;
use skinflint_fleet::questions::Scope;
use skinflint_fleet::questions::regressions::{Figure, Regressions, ask};
use skinflint_fleet_tables::files::Root;
use skinflint_fleet_tables::generate::generate;
use skinflint_fleet_tables::law::{Law, Service};

fn law(seed: u64) -> Law {
    Law {
        seed,
        machines: 12,
        processes: 3,
        services: 2,
        stacks: 40,
        start: 20_000 * 86_400,
        hours: 4,
        leak: true,
        pins: true,
    }
}

fn regressions(law: &Law) -> (Regressions, Vec<Service>) {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::create(folder.path()).unwrap();
    generate(law, &root.clone().lock().unwrap(), &mut |_, _, _| Ok(())).unwrap();
    let engine = open(&root, None, 1 << 30).unwrap();
    let scope = Scope::new(&*engine, None, None).unwrap();
    (
        ask(&*engine, &scope, "41", "42", 20).unwrap(),
        law.services(),
    )
}

/// The leaking and the pinning stack of a law that has them.
fn planted(services: &[Service]) -> [(String, i64, Figure); 2] {
    let of = |which: fn(&Service) -> Option<usize>, figure| {
        let (service, at) = services
            .iter()
            .find_map(|it| which(it).map(|at| (it, at)))
            .unwrap();
        (service.name.clone(), service.stacks[at].stack, figure)
    };
    [
        of(|it| it.leak, Figure::Live),
        of(|it| it.pins, Figure::Pinned),
    ]
}

fn rows(found: &Regressions) -> Vec<(String, i64, Figure)> {
    found
        .rows
        .iter()
        .map(|row| (row.service.clone(), row.stack, row.figure))
        .collect()
}

#[test]
fn the_leak_and_the_pinning_stack_come_first_under_every_seed() {
    for seed in 1..=6 {
        let (found, services) = regressions(&law(seed));
        let first: BTreeSet<_> = rows(&found).into_iter().take(2).collect();
        assert_eq!(
            first,
            BTreeSet::from(planted(&services)),
            "seed {seed}: {:#?}",
            found.rows
        );
        for row in &found.rows[..2] {
            assert!(row.half > 0.0 && row.least > 0.0 && row.difference.change() > row.half);
        }
        let leak = found
            .rows
            .iter()
            .find(|row| row.figure == Figure::Live)
            .unwrap();
        let per_hour = 48.0 * 1024.0 * 1024.0;
        assert!(
            (leak.growth / per_hour - 1.0).abs() < 0.3,
            "seed {seed}: grows {} an hour",
            leak.growth
        );
    }
}

#[test]
fn what_is_not_planted_is_not_found() {
    for seed in 1..=6 {
        let whole = law(seed).services();
        let [leak, pins] = planted(&whole);
        let (found, _) = regressions(&Law {
            leak: false,
            ..law(seed)
        });
        let found = rows(&found);
        assert_eq!(found.first(), Some(&pins), "seed {seed}");
        assert!(!found.contains(&leak), "seed {seed}: {found:?}");
        let (found, _) = regressions(&Law {
            pins: false,
            ..law(seed)
        });
        assert!(!rows(&found).contains(&pins), "seed {seed}");
    }
}

#[test]
fn too_few_processes_are_not_compared_and_builds_that_are_not_there_are_named() {
    let (found, services) = regressions(&law(1));
    assert!(found.left_out.is_empty() && found.comparisons == services.len() * 80);
    let folder = tempfile::tempdir().unwrap();
    let root = Root::create(folder.path()).unwrap();
    let small = Law {
        machines: 1,
        processes: 1,
        ..law(1)
    };
    generate(&small, &root.clone().lock().unwrap(), &mut |_, _, _| Ok(())).unwrap();
    let engine = open(&root, None, 1 << 30).unwrap();
    let scope = Scope::new(&*engine, None, None).unwrap();
    let error = ask(&*engine, &scope, "41", "43", 20)
        .unwrap_err()
        .to_string();
    assert!(error.contains("both `41` and `43`"), "{error}");
}
