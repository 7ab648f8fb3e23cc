//! Sums before and after merging are equal, to the byte; and what is merged stays merged.
//!
//! ```text
//!   law ─► tables of two days ─► sums ─► hours ─► sums ─► days ─► sums ─► nothing
//! ```
//!
//! Not here: the same seen through questions (tests/judge/ of the program).

use std::collections::BTreeMap;

use skinflint_fleet_tables::clock::{DAY, HOUR};
use skinflint_fleet_tables::files::{Locked, Root, files_below, read_file};
use skinflint_fleet_tables::generate::generate;
use skinflint_fleet_tables::law::Law;
use skinflint_fleet_tables::merge::{Done, Keep, retain};
use skinflint_fleet_tables::rows::{Book, Finding, Process, Profile};
use skinflint_fleet_tables::schema::Row;

/// Sums of each stack, process, part or finding; with the most, and what the last row has.
type Sums = BTreeMap<(String, i64, i64, String), [i128; 13]>;

const KEEP: Keep = Keep {
    minutes: 2 * DAY,
    hours: 30 * DAY,
    days: 400 * DAY,
};
const START: i64 = 20_000 * DAY;

fn law() -> Law {
    Law {
        seed: 7,
        machines: 6,
        processes: 2,
        services: 2,
        stacks: 14,
        start: START,
        hours: 30,
        leak: true,
        pins: true,
    }
}

fn rows<R: Row>(root: &Root) -> Vec<R> {
    let files = files_below(&root.table(R::TABLE.name)).unwrap();
    files
        .iter()
        .flat_map(|file| read_file::<R>(file).unwrap())
        .collect()
}

fn sums(root: &Root) -> Sums {
    let mut sums = Sums::new();
    let mut last: BTreeMap<(String, i64, i64, String), i64> = BTreeMap::new();
    let mut add = |table: &str,
                   process: i64,
                   stack: i64,
                   text: &str,
                   t: i64,
                   adds: &[i64],
                   most: i64,
                   end: i64| {
        let key = (table.to_owned(), process, stack, text.to_owned());
        let of = sums.entry(key.clone()).or_default();
        for (sum, value) in of.iter_mut().zip(adds) {
            *sum += i128::from(*value);
        }
        of[11] = of[11].max(i128::from(most));
        let at = last.entry(key).or_insert(i64::MIN);
        if t >= *at {
            (*at, of[12]) = (t, i128::from(end));
        }
    };
    for row in rows::<Profile>(root) {
        let adds = [
            row.minutes,
            row.samples,
            row.alloc_bytes,
            row.alloc_blocks,
            row.born_bytes,
            row.died_bytes,
            row.change_var,
            row.live_byte_min,
            row.live_var_min,
            row.slop_byte_min,
            row.pinned_byte_min,
        ];
        add(
            "profiles",
            row.process,
            row.stack,
            &row.build,
            row.t,
            &adds,
            row.live_max_bytes,
            row.live_bytes,
        );
    }
    for row in rows::<Process>(root) {
        let adds = [row.minutes, row.resident_byte_min, row.lost];
        add(
            "processes",
            row.process,
            0,
            &row.program,
            row.t,
            &adds,
            row.resident_max_bytes,
            row.resident_bytes,
        );
    }
    for row in rows::<Book>(root) {
        add(
            "books",
            row.process,
            0,
            &row.part,
            row.t,
            &[row.minutes, row.byte_min],
            0,
            row.bytes,
        );
    }
    for row in rows::<Finding>(root) {
        let adds = [row.minutes, row.now_byte_min, row.saved_byte_min];
        add(
            "findings",
            row.process,
            row.stack,
            &row.kind,
            row.t,
            &adds,
            0,
            0,
        );
    }
    sums
}

fn made() -> (tempfile::TempDir, Locked) {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::create(folder.path()).unwrap().lock().unwrap();
    generate(&law(), &root, &mut |_, _, _| Ok(())).unwrap();
    (folder, root)
}

#[test]
fn hours_and_days_have_the_sums_of_their_minutes() {
    let (_folder, root) = made();
    let before = sums(&root);
    assert!(before.len() > 300 && before.values().any(|sums| sums[6] > 0));
    // A day and a half after the start of the second day: the first day's hours are due, the second's are not.
    let done = retain(&root, KEEP, START + 3 * DAY).unwrap();
    assert!(done.became < done.rows * 2 / 3, "{done:?}");
    assert_eq!(sums(&root), before, "hours");
    let files = files_below(&root.table("profiles")).unwrap();
    let named = |ending: &str| {
        files
            .iter()
            .filter(|file| file.to_string_lossy().ends_with(ending))
            .count()
    };
    assert_eq!(
        (named("-h.parquet"), named("-m-simulated0.parquet")),
        (48, 12),
        "a day of two services, six hours"
    );
    assert_eq!(
        retain(&root, KEEP, START + 3 * DAY).unwrap(),
        Done::default(),
        "what is done is done"
    );

    let done = retain(&root, KEEP, START + 40 * DAY).unwrap();
    assert!(done.became < done.rows / 5, "{done:?}");
    assert_eq!(sums(&root), before, "days");
    assert_eq!(files_below(&root.table("profiles")).unwrap().len(), 4);
    assert_eq!(
        retain(&root, KEEP, START + 40 * DAY).unwrap(),
        Done::default()
    );

    let done = retain(&root, KEEP, START + DAY + 400 * DAY).unwrap();
    assert_eq!(
        done.dropped, 8,
        "the first day of two services and four tables"
    );
    let done = retain(&root, KEEP, START + 2 * DAY + 400 * DAY).unwrap();
    assert_eq!(done.dropped, 8);
    assert!(sums(&root).is_empty());
}

#[test]
fn no_row_crosses_an_hour_and_rows_of_a_stack_do_not_overlap() {
    let (_folder, root) = made();
    let mut rows = rows::<Profile>(&root);
    rows.sort_by_key(|row| (row.process, row.stack, row.t));
    for row in &rows {
        assert_eq!(
            row.t.div_euclid(HOUR),
            (row.t + row.minutes * 60 - 1).div_euclid(HOUR),
            "{row:?}"
        );
    }
    for pair in rows
        .windows(2)
        .filter(|pair| (pair[0].process, pair[0].stack) == (pair[1].process, pair[1].stack))
    {
        assert_eq!(
            pair[0].t + pair[0].minutes * 60,
            pair[1].t,
            "rows tile a process's life"
        );
    }
}

#[test]
fn books_are_closed_in_every_row_of_a_process() {
    let (_folder, root) = made();
    let mut books: BTreeMap<(i64, i64), i64> = BTreeMap::new();
    for row in rows::<Book>(&root) {
        *books.entry((row.process, row.t)).or_default() += row.byte_min;
    }
    let processes = rows::<Process>(&root);
    assert!(processes.len() > 1000);
    for row in processes {
        assert_eq!(
            books.remove(&(row.process, row.t)),
            Some(row.resident_byte_min),
            "{row:?}"
        );
    }
    assert!(books.is_empty());
}

#[test]
fn what_was_merged_is_not_added_again_and_what_is_late_is() {
    let (_folder, root) = made();
    let before = sums(&root);
    retain(&root, KEEP, START + 3 * DAY).unwrap();
    generate(&law(), &root, &mut |_, _, _| Ok(())).unwrap();
    assert_eq!(sums(&root), before, "the same once more");
    let late = Profile {
        t: START,
        minutes: 1,
        process: 1,
        stack: 2,
        live_byte_min: 5,
        ..Profile::default()
    };
    root.add("web", "late", vec![late.clone()]).unwrap();
    retain(&root, KEEP, START + 3 * DAY).unwrap();
    root.add("web", "late", vec![late]).unwrap();
    let after = sums(&root);
    assert_eq!(after.len(), before.len() + 1);
    assert_eq!(after[&("profiles".to_owned(), 1, 2, String::new())][7], 5);
    retain(&root, KEEP, START + 40 * DAY).unwrap();
    assert_eq!(sums(&root), after);
    generate(&law(), &root, &mut |_, _, _| Ok(())).unwrap();
    assert_eq!(sums(&root), after, "the same once more, into days");
}
