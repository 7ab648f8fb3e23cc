//! Groups laid out in a folder, with processes of this test in them.

use std::path::Path;

use super::*;
use crate::tree::{Process, trees};

const STAT: &str = "anon 1048576000\nfile 5242880\nkernel 786432\nkernel_stack 65536\npagetables 131072\npercpu 4096\n\
    sock 8192\nshmem 1048576\nfile_mapped 524288\nswapcached 0\ninactive_file 3145728\nactive_file 1040384\n\
    slab_reclaimable 262144\nslab_unreclaimable 131072\n";

fn write(folder: &Path, files: &[(&str, &str)]) {
    std::fs::create_dir_all(folder).expect("a folder");
    for (name, text) in files {
        std::fs::write(folder.join(name), text).expect("a file");
    }
}

/// Returns the report of a group of the second version: a group below it holds all but 4 MiB.
fn report() -> (Process, Vec<String>, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let top = folder.path().canonicalize().expect("just made");
    let own = std::process::id().to_string();
    let files = [
        ("memory.current", "1060000000\n"),
        ("memory.stat", STAT),
        ("memory.max", "2147483648\n"),
        ("memory.swap.current", "0\n"),
        ("memory.events", "max 4\noom_kill 1\n"),
        (
            "memory.pressure",
            "some avg10=0.29 avg60=0.50 avg300=0.61 total=9\nfull avg10=0.00 avg60=0.19 avg300=0.26 total=7\n",
        ),
        // The number of no process: the largest is smaller.
        ("cgroup.procs", "4194304\n"),
    ];
    write(&top, &files);
    let below = STAT
        .replace("file 5242880", "file 1048576")
        .replace("sock 8192", "sock 0");
    write(
        &top.join("job a"),
        &[
            ("memory.current", "1055805696\n"),
            ("memory.stat", &below),
            ("cgroup.procs", &own),
        ],
    );
    let group = Group::named(&top).expect("it has statistics");
    let (lines, notes) = gather(&group).expect("it is there");
    let mut all = trees(lines.iter());
    assert_eq!(all.len(), 1);
    (all.remove(0), notes, folder)
}

#[test]
fn rows_add_up_to_the_usage_to_the_byte() {
    let (group, notes, _folder) = report();
    assert_eq!(group.amount("memory"), 1_060_000_000);
    assert_eq!(group.amount("memory/anonymous"), 1_048_576_000);
    assert_eq!(group.amount("memory/file-cache"), 4 << 20);
    assert_eq!(group.amount("memory/kernel"), 786_432);
    assert_eq!(
        group.amount("memory/kernel/other"),
        786_432 - 65_536 - 131_072 - 4096 - 393_216
    );
    let explained = 1_048_576_000 + (5 << 20) + 786_432 + 8192;
    assert_eq!(
        group.amount("memory/not-explained"),
        1_060_000_000 - explained
    );
    // The groups, too; what is not explained there has a sign of its own.
    assert_eq!(group.amount("groups"), 1_060_000_000);
    assert_eq!(group.amount("groups/job a"), 1_055_805_696);
    assert_eq!(group.amount("groups/(itself)/file-cache"), 4 << 20);
    assert_eq!(group.amount("groups/(itself)/sockets"), 8192);
    let own = 1_060_000_000 - 1_055_805_696 - (4 << 20) - 8192;
    assert_eq!(group.amount("groups/(itself)/not-explained"), own);
    assert!(own < 0, "with its sign: {own}");
    assert_eq!(group.amount("working-set"), 1_060_000_000 - 3_145_728);
    assert_eq!(
        group.amount("working-set-of-limit"),
        (1_060_000_000 - 3_145_728) * 10_000 / (2 << 30)
    );
    assert_eq!(
        (group.amount("limit"), group.amount("out-of-memory-kills")),
        (2 << 30, 1)
    );
    assert_eq!(
        (
            group.amount("pressure-some-10s"),
            group.amount("pressure-full-us")
        ),
        (29, 7)
    );
    assert_eq!(group.amount("processes"), 1, "the other has ended");
    assert!(notes.is_empty(), "{notes:?}");
}

#[test]
fn anonymous_memory_is_by_process_and_the_rest_has_a_row() {
    let (group, _, _folder) = report();
    let title = process::title(std::process::id()).expect("it runs");
    let own = group.amount(&format!("memory/anonymous/{}", component(&title)));
    let now = rollup(std::process::id())
        .and_then(|rollup| rollup.pss_anon_bytes)
        .expect("it runs");
    assert!(own > 0 && own <= 2 * i128::from(now), "{own} {now}");
    assert_eq!(
        group.amount("memory/anonymous/not-explained"),
        1_048_576_000 - own
    );
}

#[test]
fn many_processes_are_few_rows_and_the_same_sum() {
    let mut out = Out {
        process: "g".into(),
        lines: Store::new(),
        notes: Vec::new(),
    };
    let members: Vec<Member> = (0..1000u64)
        .map(|at| Member {
            title: format!("p (pid {at})"),
            rollup: Rollup {
                pss_anon_bytes: Some(4096 * at),
                ..Rollup::default()
            },
        })
        .collect();
    out.divided("memory/anonymous", 1000, &members, "", |it| {
        it.pss_anon_bytes
    });
    let all = trees(out.lines.iter());
    let node = all[0].at("memory/anonymous").expect("it is there");
    assert_eq!((node.amount, node.kids.len()), (1000, MOST_PROCESSES + 3));
    let shown: i128 = (1000 - MOST_PROCESSES as i128..1000)
        .map(|at| 4096 * at)
        .sum();
    assert_eq!(
        all[0].amount("memory/anonymous/(others)"),
        4096 * 999 * 500 - shown
    );
    // They hold more than the 1,000 bytes that are charged: nothing is unexplained, and the sum is what is charged.
    assert_eq!(all[0].amount("memory/anonymous/not-explained"), 0);
    assert_eq!(
        all[0].amount("memory/anonymous/charged-elsewhere"),
        1000 - 4096 * 999 * 500
    );
}
