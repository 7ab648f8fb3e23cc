//! What is said to be missing, and what follows from it.

use skinflint_trace::Origin;

use super::*;

fn ended(events: u64) -> Ending {
    Ending {
        exit: Exit::Exited(0),
        events,
        ..Ending::default()
    }
}

/// What an undamaged trace of this many events tells about itself.
pub(crate) fn known<'a>(
    process: &'a ProcessInfo,
    ending: Option<&'a Ending>,
    events: u64,
) -> Known<'a> {
    Known {
        process,
        ending,
        damage: Vec::new(),
        lost: &[],
        missing: &[],
        events,
    }
}

fn counts(allocations: u64, frees: u64, unknown_frees: u64) -> Counts {
    Counts {
        events: allocations + frees + unknown_frees,
        allocations,
        frees,
        unknown_frees,
        ..Counts::default()
    }
}

fn lost(what: LostKind, why: LostWhy, name: &str) -> LostProcess {
    LostProcess {
        what,
        why,
        name: name.into(),
        time_ns: 1_500_000_000,
        max_rss_bytes: Some(3 << 20),
        ..LostProcess::default()
    }
}

#[test]
fn a_program_without_a_call_is_whole_and_one_that_cannot_be_read_is_not() {
    let (process, nothing) = (ProcessInfo::default(), Counts::default());
    let silent = ended(0);
    assert_eq!(missing(&known(&process, Some(&silent), 0), &nothing, 0), []);
    let cut = missing(&known(&process, None, 0), &nothing, 0);
    assert!(
        matches!(&cut[..], [Missing::Everything(_), Missing::End]),
        "{cut:?}"
    );
    // A bit flipped in its only block: it had events, and it is not said that it made no call.
    let busy = ended(3987);
    let unread = missing(&known(&process, Some(&busy), 0), &nothing, 0);
    assert_eq!(
        unread,
        [Missing::Unread {
            events: 3987,
            of: 3987
        }]
    );
    // Calls of mmap alone: its own allocator made them, and its blocks are missing.
    let mapped = ended(2);
    let maps = Counts {
        events: 2,
        maps: 2,
        ..Counts::default()
    };
    let all = missing(&known(&process, Some(&mapped), 2), &maps, 0);
    assert!(matches!(&all[..], [Missing::Everything(_)]), "{all:?}");
    // A fork alone is no allocator's.
    let forks = Counts { maps: 0, ..maps };
    let all = missing(&known(&process, Some(&mapped), 2), &forks, 0);
    assert_eq!(all, []);
    // Killed before anything came: whether it made calls is not known.
    let killed = Ending {
        exit: Exit::Signal(9),
        ..ended(0)
    };
    let all = missing(&known(&process, Some(&killed), 0), &nothing, 0);
    assert!(matches!(&all[..], [Missing::Everything(_)]), "{all:?}");
}

#[test]
fn what_a_filter_kept_from_the_recorder_is_missing() {
    let process = ProcessInfo::default();
    let counts = counts(10, 10, 0);
    let mut ending = ended(counts.events);
    for note in [
        "2 threads were not recorded: a filter of system calls would have ended the program",
        "recording stopped early: the program installed a filter of system calls that would have ended it",
    ] {
        ending.notes.push(note.into());
    }
    let all = missing(&known(&process, Some(&ending), counts.events), &counts, 0);
    assert_eq!(all, [Missing::FilteredThreads(2), Missing::Filtered]);
    for one in &all {
        assert!(one.hides_live_blocks());
        assert!(
            one.to_string()
                .contains("a filter of system calls (seccomp)")
        );
    }
}

#[test]
fn threads_without_a_ring_are_missing() {
    let process = ProcessInfo::default();
    let counts = counts(10, 10, 0);
    let mut ending = ended(counts.events);
    ending
        .notes
        .push("3 threads were not recorded: no room for their rings".into());
    let all = missing(&known(&process, Some(&ending), counts.events), &counts, 0);
    assert_eq!(all, [Missing::Threads(3)]);
    assert!(all[0].hides_live_blocks());
    assert!(
        all[0]
            .to_string()
            .starts_with("3 threads were not recorded")
    );
}

#[test]
fn releases_of_the_unknown_are_missing_acquisitions_in_a_process_recorded_from_birth() {
    let process = ProcessInfo::default();
    let judged = |note: Option<&str>, frees, unknown| {
        let counts = counts(frees, frees, unknown);
        let mut ending = ended(counts.events);
        ending.notes.extend(note.map(str::to_owned));
        missing(&known(&process, Some(&ending), counts.events), &counts, 0)
    };
    let some = |releases| [Missing::Acquisitions { releases }];
    assert_eq!(judged(None, 1000, 0), []);
    assert_eq!(judged(None, 1_000_000, 1), some(1));
    assert_eq!(judged(None, 1000, 100), some(100));
    assert!(
        some(3)[0]
            .to_string()
            .starts_with("Never seen acquired: 3 blocks that were released.")
    );
    assert_eq!(
        judged(Some("recorded from … (attached): …"), 1000, 1000),
        []
    );
    assert_eq!(
        judged(Some("…, because recording was stopped or …"), 1000, 1000),
        []
    );
}

#[test]
fn an_ancestor_that_is_not_there_explains_releases_of_the_unknown() {
    let process = ProcessInfo {
        origin: Some(Origin {
            how: OriginKind::Fork,
            uid: "1".into(),
            pid: 7,
            fork_ticket: 9,
        }),
        ..ProcessInfo::default()
    };
    let gone = [Missing::Ancestor {
        pid: 7,
        generations: 1,
    }];
    let (ending, counts) = (ended(900), counts(0, 0, 900));
    let known = Known {
        missing: &gone,
        ..known(&process, Some(&ending), 900)
    };
    assert_eq!(missing(&known, &counts, 0), gone);
    assert!(
        gone[0]
            .to_string()
            .contains("the trace of the grandparent (process 7)")
    );
}

#[test]
fn the_loader_itself_is_not_called_a_static_program() {
    let said = |name: &str, exe: &str| {
        let mut one = lost(LostKind::Exec, LostWhy::Static, name);
        one.exe = exe.into();
        Missing::Program(one).to_string()
    };
    let loader = "(it is the dynamic loader itself, which checks or lists a program)";
    let path = "/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2";
    assert!(said("ld-linux-x86-64", "").contains(loader));
    assert!(said("", path).contains(loader));
    assert!(said("ld", "/usr/bin/ld").contains("(it is statically linked)"));
}

#[test]
fn modules_that_call_another_malloc_than_the_preloaded_one_are_missing() {
    let process = ProcessInfo::default();
    let mut ending = ended(2);
    ending.notes = vec!["2 modules were not recorded: opened past the preloaded allocator".into()];
    let all = missing(&known(&process, Some(&ending), 2), &counts(1, 1, 0), 0);
    assert_eq!(all, [Missing::Plugins(2)]);
    assert!(all[0].hides_live_blocks());
    let said = all[0].to_string();
    assert!(said.starts_with("Not recorded: 2 modules, opened with RTLD_DEEPBIND"));
}

#[test]
fn copies_without_a_heap_call_are_named_with_their_own_memory() {
    let quiet = |bytes| LostProcess {
        max_rss_bytes: Some(bytes),
        ..lost(LostKind::Copy, LostWhy::Quiet, "a")
    };
    let all = [quiet(60 << 20), quiet(1 << 20), quiet((1 << 20) - 1)];
    assert_eq!(
        children(&all),
        [
            "Not recorded: 3 copies of this process that made no heap call (up to 60.0 MiB of their own): a."
        ]
    );
    assert_eq!(
        children(&all[..1]),
        [
            "Not recorded: 1 copy of this process that made no heap call (up to 60.0 MiB of its own): a."
        ]
    );
    assert_eq!(all.map(|one| is_little(&one)), [false, false, true]);
    let many = vec![quiet(4096); MOST_QUIET_COPIES];
    let said = "Not recorded: at least 1000 copies of this process that made no heap call (up to 4,096 bytes of their own): a.";
    assert_eq!(children(&many), [said]);
    assert_eq!(lost_children(&many), 0);
    let static_one = lost(LostKind::Program, LostWhy::Static, "b");
    assert!(!is_little(&static_one));
}

#[test]
fn what_the_process_became_is_missing_and_its_children_are_told() {
    let (process, ending, counts) = (ProcessInfo::default(), ended(2), counts(1, 1, 0));
    let all = [
        lost(LostKind::Copy, LostWhy::Unreachable, "a"),
        lost(LostKind::Exec, LostWhy::Static, "still"),
        lost(LostKind::Program, LostWhy::Static, "b"),
        lost(LostKind::Program, LostWhy::Static, "c"),
    ];
    let known = Known {
        lost: &all,
        ..known(&process, Some(&ending), 2)
    };
    assert_eq!(
        missing(&known, &counts, 0),
        [Missing::Program(all[1].clone())]
    );
    assert_eq!(
        missing(&known, &counts, 0)[0].to_string(),
        "At 1.500 s the process became still, which was not recorded (it is statically linked): nothing that it did \
         is known, and what was sampled of its memory from then on is left out."
    );
    assert_eq!(
        children(&all),
        [
            "Not recorded (it could not reach the collector): 1 copy by fork (a, up to 3.00 MiB resident); what they \
             did, and what they kept of the memory that they inherited, is in no row.",
            "Not recorded (it is statically linked): 2 children (b, c, up to 3.00 MiB resident); their memory is in \
             no row.",
        ]
    );
}

#[test]
fn what_hides_blocks_takes_promises_away() {
    let hides = |one: Missing| one.hides_live_blocks();
    assert!(hides(Missing::Lost { events: 1 }));
    assert!(hides(Missing::Unread { events: 1, of: 2 }));
    assert!(hides(Missing::Acquisitions { releases: 1 }));
    assert!(hides(Missing::Ancestor {
        pid: 1,
        generations: 0
    }));
    assert!(!hides(Missing::End));
    assert!(!hides(Missing::Releases(1)));
    assert!(!hides(Missing::Program(LostProcess::default())));
}

#[test]
fn of_lost_events_it_is_not_said_that_there_were_none() {
    let process = ProcessInfo::default();
    let mut ending = Ending {
        exit: Exit::Exited(0),
        ..Ending::default()
    };
    let said = |ending: &Ending| known(&process, Some(ending), 0).nothing_recorded();
    assert!(
        said(&ending).contains("made no heap call that could be seen"),
        "{}",
        said(&ending)
    );
    let mapped = known(&process, Some(&ending), 9).nothing_recorded();
    assert!(
        mapped.starts_with("No heap call was recorded, only mappings."),
        "{mapped}"
    );
    ending.lost_events = 1_995_000;
    assert!(
        said(&ending).contains("but 1,995,000 events went by"),
        "{}",
        said(&ending)
    );
    // A quiet time is none if something was lost in it.
    ending
        .notes
        .push("the program ran before (attached)".into());
    assert!(said(&ending).contains("went by"), "{}", said(&ending));
    assert!(!known(&process, Some(&ending), 0).was_quiet());
    ending.lost_events = 0;
    assert!(known(&process, Some(&ending), 0).was_quiet());
}

#[test]
fn of_a_process_that_could_not_begin_everything_is_missing() {
    let nothing = Counts::default();
    let mut ending = ended(0);
    ending
        .notes
        .push("recording never began: the process met the collector, and had no room".into());
    let fork = ProcessInfo {
        origin: Some(Origin {
            how: OriginKind::Fork,
            uid: "a".into(),
            pid: 1,
            fork_ticket: 1,
        }),
        ..ProcessInfo::default()
    };
    for process in [ProcessInfo::default(), fork] {
        let known = known(&process, Some(&ending), 0);
        let all = missing(&known, &nothing, 0);
        let [Missing::Everything(text)] = &all[..] else {
            panic!("{all:?}");
        };
        assert!(text.contains("could not begin"), "{text}");
        assert!(all[0].hides_live_blocks());
        // What it mapped by itself passed no recorder: that is no reason of its own.
        assert!(!known.is_from_birth() && !known.was_quiet());
    }
}

#[test]
fn what_an_end_that_is_not_known_leaves_open_is_said_in_whole_sentences() {
    let process = ProcessInfo {
        exe: "/bin/prog".into(),
        ..ProcessInfo::default()
    };
    let ending = Ending::default();
    let said = |events| known(&process, Some(&ending), events).nothing_recorded();
    assert!(
        said(0).starts_with("Nothing was recorded: the program may be statically linked"),
        "{}",
        said(0)
    );
    let without =
        "Nothing was recorded: there are events, but no allocation among them. The program may be";
    assert!(said(1).starts_with(without), "{}", said(1));
    assert!(said(0).ends_with(" Try: file /bin/prog"));
    assert!(
        known(&ProcessInfo::default(), Some(&ending), 0)
            .nothing_recorded()
            .ends_with("started the program that you meant.")
    );
}
