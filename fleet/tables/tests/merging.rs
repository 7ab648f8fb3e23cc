//! Sums before and after merging are equal, to the byte, and those of days are those of minutes; what is merged stays so.
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
use skinflint_fleet_tables::rows::{Book, Finding, Process, Profile, ProfileDay};
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

/// Adds rows up by process, stack and build: two tables have these columns, and no type in common.
macro_rules! sums_of {
    ($rows:expr) => {{
        let mut sums: BTreeMap<(i64, i64, String), [i64; 12]> = BTreeMap::new();
        for row in $rows {
            let of = sums.entry((row.process, row.stack, row.build)).or_default();
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
            of.iter_mut().zip(adds).for_each(|(sum, add)| *sum += add);
            of[11] = of[11].max(row.live_max_bytes);
        }
        sums
    }};
}

/// Adds the rows of `profiles` up by day, process, stack and build, and compares them with the table that has these sums.
fn check_days(root: &Root, when: &str) {
    let sums = sums_of!(rows::<Profile>(root));
    let found = sums_of!(rows::<ProfileDay>(root));
    let differ = sums.iter().filter(|(key, of)| found.get(*key) != Some(of));
    let differ: Vec<_> = differ.take(3).collect();
    assert!(
        found == sums,
        "{when}: {} sums, not {}; {differ:?}",
        found.len(),
        sums.len()
    );
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
        done.dropped, 10,
        "the first day of two services and five tables"
    );
    let done = retain(&root, KEEP, START + 2 * DAY + 400 * DAY).unwrap();
    assert_eq!(done.dropped, 10);
    assert!(sums(&root).is_empty() && rows::<ProfileDay>(&root).is_empty());
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

#[test]
fn sums_of_days_are_those_of_the_rows_at_every_age() {
    let (_folder, root) = made();
    check_days(&root, "as they were written");
    let days = rows::<ProfileDay>(&root).len();
    let all = rows::<Profile>(&root).len();
    assert!(days * 20 < all, "{days} for {all}");
    let late = |t, process| Profile {
        t,
        minutes: 1,
        process,
        stack: 2,
        live_byte_min: 5,
        live_max_bytes: 5,
        ..Profile::default()
    };
    for (at, now) in [3, 40].into_iter().enumerate() {
        let service = &law().services()[0].name;
        let rows = vec![late(START, 1), late(START + 60, 1), late(START + DAY, 1)];
        root.add(service, &format!("late{at}"), rows).unwrap();
        check_days(&root, "late");
        retain(&root, KEEP, START + now * DAY).unwrap();
        check_days(&root, "merged");
        generate(&law(), &root, &mut |_, _, _| Ok(())).unwrap();
        check_days(&root, "the same once more");
    }
    let files = files_below(&root.table("profile_days")).unwrap();
    assert_eq!(files.len(), 4, "two services, two days: {files:?}");
}

#[test]
fn sums_that_are_missing_are_made_up_for() {
    let (folder, root) = made();
    let before = sums(&root);
    // A writer that was ended between the rows and their sums.
    let lost = files_below(&root.table("profile_days")).unwrap();
    std::fs::remove_file(&lost[0]).unwrap();
    retain(&root, KEEP, START + DAY).unwrap();
    check_days(&root, "a file of sums was lost");
    // One more, that leaves the sums of another writer: names are compared, not whether there are any.
    let service = &law().services()[0].name;
    let row = Profile {
        t: START,
        minutes: 1,
        process: 1,
        stack: 2,
        live_byte_min: 5,
        ..Profile::default()
    };
    root.add(service, "late", vec![row.clone()]).unwrap();
    let is_late = |file: &std::path::PathBuf| file.ends_with("m-late.parquet");
    let files = files_below(&root.table("profile_days")).unwrap();
    std::fs::remove_file(files.into_iter().find(is_late).unwrap()).unwrap();
    retain(&root, KEEP, START + DAY).unwrap();
    check_days(&root, "one of two was lost");
    // Tables of an older version, merged already.
    retain(&root, KEEP, START + 3 * DAY).unwrap();
    std::fs::remove_dir_all(root.table("profile_days")).unwrap();
    let error = format!("{:#}", Root::open(folder.path()).unwrap_err());
    assert!(error.contains("`skinflint-fleet retain`"), "{error}");
    let root = {
        drop(root);
        Root::create(folder.path()).unwrap().lock().unwrap()
    };
    retain(&root, KEEP, START + 3 * DAY).unwrap();
    check_days(&root, "all were lost");
    assert!(Root::open(folder.path()).is_ok());
    assert_eq!(sums(&root).len(), before.len() + 1);
}

#[test]
fn an_ended_hour_is_packed_to_one_file_with_its_rows_as_they_were() {
    let (_folder, root) = made();
    let service = &law().services()[0].name;
    let row = |t, process| Profile {
        t,
        minutes: 1,
        process,
        stack: 2,
        build: "41".into(),
        ..Profile::default()
    };
    let late = vec![
        row(START, 1),
        row(START + HOUR, 2),
        row(START + 29 * HOUR, 3),
    ];
    root.add(service, "late", late.clone()).unwrap();
    let in_order = || {
        let mut all = rows::<Profile>(&root);
        all.sort_by_key(|row| (row.process, row.stack, row.t));
        all
    };
    let (before, of_all) = (in_order(), sums(&root));
    assert!(before.len() > 10_000);
    // In the last hour: it has not ended.
    let now = START + 30 * HOUR - 1;
    let done = retain(&root, KEEP, now).unwrap();
    assert_eq!(done.merged, 0);
    assert!(in_order() == before, "packing changed a row");
    let named = |ending: &str| {
        let files = files_below(&root.table("profiles")).unwrap();
        files.iter().filter(|file| file.ends_with(ending)).count()
    };
    assert_eq!((named("00-m.parquet"), named("01-m.parquet")), (1, 1));
    assert_eq!((named("05-m.parquet"), named("05-m-late.parquet")), (0, 1));
    assert_eq!(retain(&root, KEEP, now).unwrap(), Done::default());
    // What is in a packed file is not added again, and what comes late is packed with it.
    root.add(service, "late", late).unwrap();
    generate(&law(), &root, &mut |_, _, _| Ok(())).unwrap();
    assert!(in_order() == before, "what is packed was added again");
    root.add(service, "later", vec![row(START, 4)]).unwrap();
    retain(&root, KEEP, now).unwrap();
    assert_eq!(
        (named("00-m.parquet"), in_order().len()),
        (1, before.len() + 1)
    );
    retain(&root, KEEP, START + 40 * DAY).unwrap();
    generate(&law(), &root, &mut |_, _, _| Ok(())).unwrap();
    assert_eq!(
        sums(&root).len(),
        of_all.len() + 1,
        "the later one alone: the late ones were there"
    );
    check_days(&root, "days");
}
