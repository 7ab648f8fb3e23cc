//! Which processes are missed, and which are lost.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use skinflint_trace::ProcessInfo;

use super::missed::{MUCH_BYTES, SHELL};
use super::*;
use crate::memory::Region;
use skinflint_procfs::MapLine;

/// A recorded process with this pid that has just said hello.
fn process(index: usize, pid: u32, exe: &str) -> Process {
    let first = Arc::new(Region::create().expect("memfd"));
    Process {
        index,
        pid,
        numbers: vec![pid],
        token: index as u64 + 1,
        start_ns: skinflint_base::sys::monotonic_ns(),
        info: ProcessInfo {
            pid,
            name: "origin".into(),
            exe: exe.into(),
            ..ProcessInfo::default()
        },
        pidfd: None,
        regions: Mutex::new(vec![Arc::clone(&first)]),
        first,
        own: Mutex::default(),
        stacks: Mutex::default(),
        memory: Mutex::default(),
        cpu_ns: 0.into(),
        recorder_bytes: 0.into(),
        ended: false.into(),
        attached: false,
        linked: Arc::default(),
        libraries: std::sync::Mutex::default(),
        outside: None,
        beside: false,
    }
}

fn living(process: &Process) -> [Living<'_>; 1] {
    [Living {
        token: process.token,
        process,
    }]
}

fn notice(kind: u32, pid: u32, time_ns: u64, path: &str) -> ReadNotice {
    ReadNotice {
        kind,
        pid,
        token: 1,
        time_ns,
        path: path.into(),
    }
}

/// A child that is ended when dropped.
struct Sleeping(Child);

impl Sleeping {
    /// Starts it, and waits until it has answered: while it is being loaded it is nothing yet.
    fn start() -> Sleeping {
        let mut command = Command::new("cat");
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().expect("cat");
        let (to, from) = (child.stdin.as_mut(), child.stdout.as_mut());
        to.expect("piped").write_all(b"!").expect("it reads");
        from.expect("piped")
            .read_exact(&mut [0])
            .expect("it writes");
        Sleeping(child)
    }
}

impl Drop for Sleeping {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn what_has_its_program_and_its_loader_alone_is_being_loaded() {
    let maps = |names: &[&str]| -> Vec<MapLine> {
        let line = |name: &&str| MapLine::parse(&format!("1000-2000 r--p 00000000 00:00 1 {name}"));
        names.iter().filter_map(line).collect()
    };
    let loader = "/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2";
    let begun = maps(&["/bin/x", loader, "[heap]", "[stack]", "[vdso]"]);
    assert!(is_being_loaded("/bin/x", &begun));
    let looking = maps(&["/bin/x", "/etc/ld.so.cache", loader, "[stack]"]);
    assert!(is_being_loaded("/bin/x", &looking));
    let loaded = maps(&["/bin/x", "/usr/lib/libc.so.6", loader, "[stack]"]);
    assert!(!is_being_loaded("/bin/x", &loaded));
    let without_a_loader = maps(&["/bin/x", "[stack]"]);
    assert!(!is_being_loaded("/bin/x", &without_a_loader));
    assert!(!is_being_loaded("", &[]), "it has ended");
}

fn missing(origin: usize, time_ns: u64, path: &str) -> Missing {
    Missing {
        origin,
        what: LostKind::Program,
        how: How::Announced,
        time_ns,
        path: path.into(),
        without_us: false,
        is_kept_away: false,
    }
}

/// Numbers that no process has: the kernel's limit is 2^22.
const GONE: u32 = 1 << 23;

#[test]
fn what_a_program_misses_is_missed_by_what_it_becomes() {
    let mut kin = Kin::new(0);
    kin.miss(GONE, missing(0, 100, "/bin/x"), &[]);
    kin.miss(GONE + 1, missing(3, 100, "/bin/x"), &[]);
    kin.moves(0, 5);
    let origin = |pid: u32| kin.missed.get(&pid).map(|missed| missed.origin);
    assert_eq!((origin(GONE), origin(GONE + 1)), (Some(5), Some(3)));
}

#[test]
fn a_process_that_speaks_after_the_notice_is_not_missed() {
    let mut kin = Kin::new(0);
    kin.miss(GONE, missing(0, 100, "/bin/x"), &[]);
    kin.heard_as(GONE, 50, "/bin/x", &[]);
    assert!(kin.missed.contains_key(&GONE), "an older program's hello");
    kin.heard_as(GONE, 150, "/bin/x", &[]);
    assert!(kin.missed.is_empty());
    // A late notice, of a program that has already said hello.
    kin.miss(GONE, missing(0, 140, "/bin/x"), &[]);
    assert!(kin.missed.is_empty());
    kin.miss(GONE, missing(0, 160, "/bin/x"), &[]);
    assert_eq!(kin.missed.len(), 1);
    assert!(kin.lost.is_empty());
}

/// The first process of a PID namespace says that it is number 1; our number 1 is another process, and older.
#[test]
fn a_number_of_a_namespace_is_not_taken_for_ours() {
    let own = process(0, std::process::id(), "/bin/origin");
    assert_eq!(search::as_we_see_it(1, &own, false), 1 | INNER);
    let child = Sleeping::start();
    let pid = child.0.id();
    assert_eq!(search::as_we_see_it(pid, &own, false), pid);
    assert_eq!(search::as_we_see_it(pid, &own, true), pid);
    assert_eq!(
        search::as_we_see_it(GONE, &own, false),
        GONE,
        "it has ended"
    );
    // It is recorded: its hello says both of its numbers, before or after the notice of its start is read.
    let mut inner = process(1, GONE, "/bin/hold");
    inner.numbers = vec![GONE, 1];
    for hello_first in [true, false] {
        let mut kin = Kin::new(0);
        let exec = notice(NOTICE_EXEC, 1, own.start_ns, "/bin/hold");
        if hello_first {
            kin.heard(&inner, &living(&own));
        }
        assert!(kin.take_in(&exec, &living(&own)));
        if !hello_first {
            assert_eq!(kin.missed.len(), 1);
            kin.heard(&inner, &living(&own));
        }
        assert!(
            kin.missed.is_empty() && kin.lost.is_empty(),
            "{hello_first}"
        );
    }
    // If it says none, it is lost, and its number is not known.
    let mut kin = Kin::new(0);
    kin.take_in(
        &notice(NOTICE_EXEC, 1, own.start_ns, "/bin/hold"),
        &living(&own),
    );
    let lost = kin.origin_ends(0, &living(&own));
    assert_eq!(lost.len(), 1);
    assert_eq!((lost[0].pid, &*lost[0].name), (0, "hold"));
}

/// Makes a file that looks like a static program. Returns its folder, which is removed when dropped, and its path.
fn static_file() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut head = std::fs::read(std::env::current_exe().expect("a path")).expect("it");
    head.truncate(4096);
    for index in 0..usize::from(head[56]) {
        let at = 64 + index * 56;
        if head[at] == 3 {
            head[at] = 4;
        }
    }
    let file = folder.path().join("sx");
    std::fs::write(&file, head).expect("written");
    let path = file.display().to_string();
    (folder, path)
}

/// Recorded, then a program that cannot be, then recorded again: one process all the time.
#[test]
fn a_program_between_two_recorded_ones_is_lost() {
    let shell = process(0, GONE, "/bin/sh");
    let mut kin = Kin::new(0);
    kin.take_in(
        &notice(NOTICE_EXEC, GONE, shell.start_ns, "/bin/sx"),
        &living(&shell),
    );
    let missed = kin.missed.get_mut(&GONE).expect("it");
    (missed.exe, missed.why) = ("/bin/sx".into(), LostWhy::Static);
    missed.most_bytes = Some(20 << 20);
    kin.heard_as(GONE, u64::MAX, "/bin/hold", &living(&shell));
    let lost = kin.take(0);
    assert_eq!(lost.len(), 1);
    assert_eq!(
        (lost[0].what, lost[0].why),
        (LostKind::Exec, LostWhy::Static)
    );
    assert_eq!(
        (&*lost[0].name, lost[0].max_rss_bytes),
        ("sx", Some(20 << 20))
    );
    // It was so short that it was not seen: its file tells, if it is static.
    let (_folder, path) = static_file();
    for (exe, count) in [("/bin/hold", 1), (path.as_str(), 0)] {
        let mut kin = Kin::new(0);
        kin.take_in(
            &notice(NOTICE_EXEC, GONE, shell.start_ns, &path),
            &living(&shell),
        );
        kin.heard_as(GONE, u64::MAX, exe, &living(&shell));
        assert_eq!(kin.take(0).len(), count, "{exe}");
    }
}

/// A busy collector reads the notices of both programs, and the hello of the second, at once.
#[test]
fn a_program_whose_notice_is_read_late_is_lost() {
    let shell = process(0, GONE, "/bin/sh");
    let (_folder, still) = static_file();
    let late = |exe: &str, flags: u32| {
        let mut kin = Kin::new(0);
        kin.heard_as(GONE, u64::MAX, exe, &living(&shell));
        let exec = notice(NOTICE_EXEC | flags, GONE, shell.start_ns, &still);
        kin.take_in(&exec, &living(&shell));
        assert!(kin.missed.is_empty());
        kin.take(0).iter().map(|lost| lost.why).collect::<Vec<_>>()
    };
    assert_eq!(late("/bin/hold", 0), [LostWhy::Static]);
    assert_eq!(late(&still, 0), [], "it is what said hello");
}

/// A copy says that it is about to say hello; if it never does, it did not survive that.
#[test]
fn a_copy_that_ends_at_its_hello_is_lost() {
    let own = process(0, std::process::id(), "/bin/origin");
    let meets = |pid| notice(NOTICE_MEETS, pid, own.start_ns + 1, "");
    let mut kin = Kin::new(0);
    kin.take_in(&meets(GONE), &living(&own));
    assert_eq!(kin.missed.len(), 1);
    // Its hello comes with the same time, whatever its number is in its own namespace.
    let mut copy = process(1, 77, "/bin/origin");
    copy.start_ns = own.start_ns + 1;
    kin.heard(&copy, &living(&own));
    assert!(kin.missed.is_empty() && kin.take(0).is_empty());
    // It lives, and is waited for.
    let child = Sleeping::start();
    let pid = child.0.id();
    kin.take_in(&meets(pid), &living(&own));
    assert!(kin.awaits(0) && !kin.awaits(1));
    drop(child);
    kin.look(&living(&own));
    kin.look(&living(&own));
    let lost = kin.take(0);
    // Other tests have children, too.
    let lost: Vec<_> = lost.iter().filter(|lost| lost.pid == pid).collect();
    assert_eq!(lost.len(), 1);
    assert_eq!(
        (lost[0].what, lost[0].why),
        (LostKind::Copy, LostWhy::Unreachable)
    );
}

/// A copy outlives its origin, makes no heap call, and becomes a program without the recorder: by a notice with the
/// token of a process whose trace is closed, or by no notice at all.
#[test]
fn a_program_that_a_lonely_copy_becomes_is_missed() {
    let own = process(0, std::process::id(), "/bin/origin");
    let child = Sleeping::start();
    let pid = child.0.id();
    for by_notice in [true, false] {
        let mut kin = Kin::new(0);
        let copy = Missing {
            what: LostKind::Copy,
            how: How::Quiet,
            ..missing(0, own.start_ns, "/bin/origin")
        };
        kin.miss(pid, copy, &living(&own));
        if by_notice {
            let exec = ReadNotice {
                token: 99,
                ..notice(NOTICE_EXEC, pid, own.start_ns + 1, "/bin/cat")
            };
            assert!(kin.take_in(&exec, &living(&own)));
        } else {
            // It is a cat, and none of the origin's program.
            kin.look(&living(&own));
        }
        let missed = kin
            .missed
            .get(&pid)
            .map(|missed| (missed.what, missed.origin));
        assert_eq!(missed, Some((LostKind::Program, 0)), "{by_notice}");
    }
}

/// A filter ends it: its status says so as long as its parent has not waited for it, or by its pidfd.
#[test]
fn a_process_that_a_filter_has_ended_is_named_with_it() {
    use std::os::unix::process::ExitStatusExt;
    let own = process(0, std::process::id(), "/bin/origin");
    let mut kin = Kin::new(0);
    let mut child = Sleeping::start();
    let pid = child.0.id();
    let copy = Missing {
        what: LostKind::Copy,
        how: How::Quiet,
        ..missing(0, own.start_ns, &link(pid, "exe"))
    };
    kin.miss(pid, copy, &living(&own));
    // SAFETY: no memory is involved.
    assert_eq!(unsafe { libc::kill(pid as i32, libc::SIGSYS) }, 0);
    for _ in 0..1000 {
        kin.look(&living(&own));
        if !kin.missed.contains_key(&pid) {
            break;
        }
        // CLOCK: a poll step; how often it was looked at is what ends the wait.
        std::thread::sleep(Duration::from_millis(15));
    }
    let status = child.0.wait().expect("it was ours");
    assert_eq!(status.signal(), Some(libc::SIGSYS));
    let lost = kin.take(0);
    // Other tests have children, too. It was short and small, and is lost all the same.
    let lost: Vec<_> = lost.iter().filter(|lost| lost.pid == pid).collect();
    assert_eq!(lost.len(), 1);
    assert_eq!(
        (lost[0].what, lost[0].why),
        (LostKind::Copy, LostWhy::Filter)
    );
}

/// A program that a filter keeps from us has the recorder loaded, and will never say hello.
#[test]
fn a_program_that_is_kept_away_is_lost() {
    let own = process(0, GONE, "/bin/origin");
    let mut kin = Kin::new(0);
    let exec = notice(
        NOTICE_SPAWN | NOTICE_FILTERED,
        GONE + 1,
        own.start_ns,
        "/bin/hold",
    );
    kin.take_in(&exec, &living(&own));
    let lost = kin.origin_ends(0, &living(&own));
    assert_eq!(lost.len(), 1);
    assert_eq!(
        (lost[0].what, lost[0].why),
        (LostKind::Program, LostWhy::Unreachable)
    );
}

/// What a copy that cannot be recorded holds is read for as long as it lives, not at its notice alone.
#[test]
fn a_copy_that_cannot_be_recorded_is_looked_at_until_it_ends() {
    let own = process(0, std::process::id(), "/bin/origin");
    let child = Sleeping::start();
    let mut kin = Kin::new(0);
    let lost = notice(NOTICE_LOST, child.0.id(), own.start_ns, "");
    kin.take_in(&lost, &living(&own));
    assert!(kin.lost.is_empty(), "it lives");
    kin.look(&living(&own));
    drop(child);
    kin.look(&living(&own));
    kin.look(&living(&own));
    let lost = kin.take(0);
    assert_eq!(lost.len(), 1);
    assert_eq!(
        (lost[0].what, lost[0].why),
        (LostKind::Copy, LostWhy::Unreachable)
    );
    assert_eq!(lost[0].name, "origin");
    assert!(lost[0].max_rss_bytes > Some(100 << 10), "{:?}", lost[0]);
}

#[test]
fn a_copy_without_a_heap_call_is_named_however_short_its_life() {
    let own = process(0, GONE, "/bin/origin");
    let quiet = |bytes: u64| {
        let mut kin = Kin::new(0);
        let copy = Missing {
            what: LostKind::Copy,
            how: How::Quiet,
            ..missing(0, own.start_ns, "/bin/origin")
        };
        kin.miss(GONE + 1, copy, &living(&own));
        assert!(kin.has_quiet_copies(0) && !kin.has_quiet_copies(1));
        assert_eq!(kin.quiet(), 1);
        let missed = kin.missed.get_mut(&(GONE + 1)).expect("it");
        missed.most_bytes = Some(bytes);
        kin
    };
    let ended = |mut kin: Kin| {
        kin.look(&living(&own));
        kin.look(&living(&own));
        assert_eq!(kin.quiet(), 0);
        let lost = kin.take(0);
        lost.iter()
            .map(|lost| (lost.why, lost.max_rss_bytes))
            .collect::<Vec<_>>()
    };
    for bytes in [0, 4096, MUCH_BYTES] {
        assert_eq!(ended(quiet(bytes)), [(LostWhy::Quiet, Some(bytes))]);
    }
    // A process that makes a heap call after all is recorded: it may have been found while it was saying hello.
    for hello_ns in [u64::MAX, own.start_ns] {
        let mut kin = quiet(MUCH_BYTES);
        kin.missed.get_mut(&(GONE + 1)).expect("it").time_ns = own.start_ns + 1;
        kin.heard_as(GONE + 1, hello_ns, "/bin/origin", &living(&own));
        assert_eq!((kin.quiet(), kin.take(0).len()), (0, 0));
    }
}

/// A server whose copies end without a heap call, for months: the trace names a bounded number of them.
#[test]
fn of_many_copies_without_a_heap_call_a_bounded_number_is_named() {
    let own = process(0, GONE, "/bin/origin");
    let mut kin = Kin::new(0);
    for _ in 0..MOST_QUIET_COPIES + 2 {
        let copy = Missing {
            what: LostKind::Copy,
            how: How::Quiet,
            ..missing(0, own.start_ns, "/bin/origin")
        };
        kin.miss(GONE + 1, copy, &living(&own));
        kin.judge(GONE + 1, &living(&own));
    }
    assert_eq!(kin.take(0).len(), MOST_QUIET_COPIES);
}

/// A daemon's child rests for a while before its first heap call; the pages that it inherited have become its own.
#[test]
fn a_copy_that_says_hello_late_is_not_lost() {
    let own = process(0, GONE, "/bin/origin");
    let mut kin = Kin::new(0);
    let copy = Missing {
        what: LostKind::Copy,
        how: How::Quiet,
        ..missing(0, own.start_ns, "/bin/origin")
    };
    kin.miss(GONE + 1, copy, &living(&own));
    let missed = kin.missed.get_mut(&(GONE + 1)).expect("it");
    missed.most_bytes = Some(MUCH_BYTES);
    let meets = notice(NOTICE_MEETS, GONE + 1, own.start_ns + 1, "");
    assert!(kin.take_in(&meets, &living(&own)));
    let mut child = process(1, GONE + 1, "/bin/origin");
    child.start_ns = own.start_ns + 1;
    kin.heard(&child, &living(&own));
    assert_eq!((kin.quiet(), kin.take(0).len()), (0, 0));
}

#[test]
fn what_a_copy_inherited_is_not_its_own_once_its_origin_has_ended() {
    let me = std::process::id();
    let most = |origin_pid: u32| {
        let own = process(0, origin_pid, "/bin/origin");
        let mut kin = Kin::new(0);
        let copy = Missing {
            what: LostKind::Copy,
            how: How::Quiet,
            ..missing(0, own.start_ns, &link(me, "exe"))
        };
        kin.miss(me, copy, &living(&own));
        let missed = kin.missed.get_mut(&me).expect("it");
        assert!(missed.look_at(me));
        missed.most_bytes
    };
    assert!(most(me) > Some(0), "this process has pages of its own");
    assert_eq!(most(GONE), None);
}

/// A look finds a child that no notice reported, and a child that two looks have found counts as lost.
#[test]
fn a_child_without_a_notice_is_found_by_its_pid() {
    let own = process(0, std::process::id(), "/bin/origin");
    let mut kin = Kin::new(0);
    // Before the first look.
    let child = Sleeping::start();
    let pid = child.0.id();
    for _ in 0..500 {
        kin.look(&living(&own));
        if kin
            .missed
            .get(&pid)
            .is_some_and(|missed| missed.dark_looks >= 2)
        {
            break;
        }
        // CLOCK: a poll step; how often it was looked at is what ends the wait.
        std::thread::sleep(Duration::from_millis(15));
    }
    drop(child);
    kin.look(&living(&own));
    kin.look(&living(&own));
    let lost = kin.take(0);
    let lost = lost
        .iter()
        .find(|lost| lost.pid == pid)
        .expect("it was found");
    assert_eq!((lost.what, &*lost.name), (LostKind::Program, "cat"));
    assert_eq!(lost.why, LostWhy::Environment);
}

/// `system` with a cleared environment: the C library starts a shell, and only the shell itself could say its number.
/// What the search finds of it may have ended before it was known for what it was: the shell is lost all the same.
#[test]
fn a_shell_without_the_recorder_is_lost_once() {
    let own = process(0, std::process::id(), "/bin/origin");
    let shell = notice(NOTICE_SPAWN | NOTICE_WITHOUT_US, 0, own.start_ns, "/bin/sh");
    for (dark_looks, numbers) in [(2, [0, GONE + 1]), (1, [0, 0])] {
        let mut kin = Kin::new(0);
        kin.take_in(&shell, &living(&own));
        kin.take_in(&shell, &living(&own));
        assert_eq!(kin.missed.len(), 2);
        // The search finds one of the two shells under its own number, by which what it holds can be read.
        let missing = Missing {
            origin: 0,
            what: LostKind::Program,
            how: How::Found,
            time_ns: own.start_ns,
            path: "/bin/sh".into(),
            without_us: true,
            is_kept_away: false,
        };
        kin.miss(GONE + 1, missing, &living(&own));
        kin.is_found(0, GONE + 1);
        kin.missed.values_mut().for_each(|missed| {
            missed.since -= SHELL;
            missed.dark_looks = dark_looks;
        });
        for _ in 0..4 {
            kin.look(&living(&own));
        }
        let mut lost: Vec<_> = kin
            .take(0)
            .iter()
            .map(|lost| (lost.pid, lost.why))
            .collect();
        lost.sort_by_key(|lost| lost.0);
        assert_eq!(lost, numbers.map(|pid| (pid, LostWhy::Environment)));
    }
}
