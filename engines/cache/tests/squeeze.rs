//! Real limits: a memory control group, a limit on address space, a kernel that maps nothing any more.
//!
//! ```text
//!   this test ─► itself, as a child: in a control group, or under a limit ─► a cache that grows beyond it
//!                   without the bus: it is killed, or ends       with the bus: it lives, and every value is right
//! ```
//!
//! P1  Both are shown: a limit that kills no process without the bus would prove nothing.
//! P2  A control group needs root and a hierarchy that may be written to. Where that is not so, the test is skipped, says
//!     what it needs, and is counted (test-support).
//! P3  Waits are bounded: a child has three minutes.
//!
//! Not here: what the bus does in detail (`bus`).

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use skinflint_cache::bus::{Bus, Groups, Options, Source, Version};
use skinflint_cache::{Cache, Level};
use skinflint_test_support::{artifact, need};

const ROLE: &str = "SKINFLINT_TEST_ROLE";
const BUS: &str = "SKINFLINT_TEST_BUS";
const STOP: &str = "SKINFLINT_TEST_STOP";
const MIB: usize = 1 << 20;
/// The bound of a wait that ends in a failure.
const PATIENCE: Duration = Duration::from_secs(60);

/// A memory control group of our own, removed at the end.
struct Group(PathBuf);

impl Group {
    /// `None`: it cannot be made here, and the test is counted as skipped (P2).
    #[track_caller]
    fn new(name: &str, limit: usize) -> Option<Group> {
        let made = Group::made(name, limit);
        let why = made.as_ref().err().map_or("", String::as_str);
        let how = "run as root where they can be written to (in a container: --privileged, or a delegated group)";
        let needs = format!("memory control groups ({why})");
        let _ = need::that(made.is_ok(), &needs, how);
        made.ok()
    }

    fn made(name: &str, limit: usize) -> Result<Group, String> {
        let groups = Groups::own();
        let (version, _) = groups.memory.clone().ok_or("there are none")?;
        let path = groups
            .root
            .join(format!("skinflint-test-{}-{name}", std::process::id()));
        std::fs::create_dir(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let group = Group(path);
        let file = match version {
            Version::V1 => "memory.limit_in_bytes",
            Version::V2 => "memory.max",
        };
        std::fs::write(group.0.join(file), limit.to_string())
            .map_err(|e| format!("{}: {e}", group.0.join(file).display()))?;
        // Without swap the limit is the limit.
        let _ = std::fs::write(group.0.join("memory.swap.max"), "0");
        let _ = std::fs::write(group.0.join("memory.swappiness"), "0");
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let end = Instant::now() + PATIENCE;
        while std::fs::remove_dir(&self.0).is_err() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20)); // CLOCK: poll step of a bounded wait
        }
    }
}

/// Runs a role in a child, and waits three minutes at most.
fn child(role: &str, bus: bool, group: Option<&Group>, preload: bool) -> Output {
    child_with(role, bus, group, preload, |command| command)
}

fn child_with(
    role: &str,
    bus: bool,
    group: Option<&Group>,
    preload: bool,
    change: impl FnOnce(&mut Command) -> &mut Command,
) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "role", "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .env(BUS, if bus { "1" } else { "0" })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(group) = group {
        command.env("SKINFLINT_TEST_GROUP", &group.0);
    }
    if preload {
        command.env("LD_PRELOAD", artifact::built("skinflint-malloc-so"));
    }
    let child: Child = change(&mut command).spawn().unwrap();
    let pid = child.id() as i32;
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let guard = std::thread::spawn(move || {
        if wait.recv_timeout(3 * PATIENCE).is_err() {
            // SAFETY: our own child, which has not been waited for yet.
            unsafe { libc::kill(pid, libc::SIGABRT) };
        }
    });
    let output = child.wait_with_output().unwrap();
    let _ = done.send(());
    guard.join().unwrap();
    output
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn lives(output: &Output) {
    assert!(
        output.status.success() && text(output).contains("lived"),
        "{:?}\n{}",
        output.status,
        text(output)
    );
}

#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    if let Ok(group) = std::env::var("SKINFLINT_TEST_GROUP") {
        std::fs::write(
            Path::new(&group).join("cgroup.procs"),
            std::process::id().to_string(),
        )
        .unwrap();
    }
    // Stalls are the whole machine's: those of other programs would come into it.
    let options = Options {
        stalls: false,
        // The test shows that memory comes back, not how soon: half a second, as shipped, is short where the bus's
        // thread gets no processor.
        patience: PATIENCE,
        ..Options::default()
    };
    let bus = (std::env::var(BUS).as_deref() == Ok("1")).then(|| Bus::start(options).unwrap());
    match role.as_str() {
        "paced" => grow(bus.as_ref(), 300, await_round),
        "fast" => {
            if let Some(bus) = &bus {
                assert!(bus.hook_preloaded());
            }
            grow(bus.as_ref(), 600, |_| ());
        }
        "address space" => {
            limit_address_space(400 * MIB);
            if let Some(bus) = &bus {
                assert!(bus.hook_preloaded());
            }
            grow(bus.as_ref(), 900, |_| ());
        }
        "no mmap" => no_mmap(bus.as_ref()),
        "nothing there" => nothing_there(),
        "thrash" => thrash(),
        other => panic!("{other}"),
    }
    if let Some(bus) = &bus {
        for event in bus.events().0 {
            println!("{event}");
        }
    }
    println!("lived");
}

/// Fills a cache that would hold all of it without a limit, and looks at each value again.
fn grow(bus: Option<&Bus>, mebibytes: usize, pause: impl Fn(&Bus)) {
    let cache: Arc<Cache<u64, Vec<u8>>> = Cache::named("documents").limit_bytes(1 << 30).build();
    if let Some(bus) = bus {
        bus.join(&cache);
    }
    for key in 0..mebibytes as u64 * 16 {
        let fill = key as u8 | 1;
        cache.insert(key, vec![fill; 64 << 10], Duration::from_millis(1));
        if let (15, Some(bus)) = (key % 16, bus) {
            pause(bus);
        }
        let old = key / 2;
        let right = cache.with(&old, |value| {
            value.iter().step_by(4_096).all(|b| *b == old as u8 | 1)
        });
        assert_ne!(right, Some(false), "key {old}");
    }
    cache.check().unwrap();
    println!("{}", cache.stats());
    if let Some(bus) = bus {
        assert!(cache.stats().released > 0);
        assert!(!bus.events().0.is_empty());
    }
}

/// Waits, where room is little, until the bus has had a round, like a program that is not too fast.
fn await_round(bus: &Bus) {
    let rounds = || {
        let (events, forgotten) = bus.events();
        events.len() as u64 + forgotten
    };
    let is_near = || {
        let room = Groups::own().room();
        room.is_some_and(|room| room.level() != Level::Calm)
    };
    let (before, end) = (rounds(), Instant::now() + PATIENCE);
    while is_near() && rounds() == before {
        assert!(Instant::now() < end, "the bus has not noticed");
        std::thread::sleep(Duration::from_millis(1)); // CLOCK: poll step of a bounded wait
    }
}

fn limit_address_space(bytes: usize) {
    let limit = libc::rlimit {
        rlim_cur: bytes as u64,
        rlim_max: bytes as u64,
    };
    // SAFETY: a limit of this process.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
}

/// Grows a cache in a thread for which the kernel, from some moment on, maps nothing more.
fn no_mmap(bus: Option<&Bus>) {
    let cache: Arc<Cache<u64, Vec<u8>>> = Cache::named("documents").limit_bytes(1 << 30).build();
    if let Some(bus) = bus {
        assert!(bus.hook_preloaded());
        bus.join(&cache);
    }
    for key in 0..1_600u64 {
        cache.insert(key, vec![1; 64 << 10], Duration::ZERO);
    }
    refuse(&[
        libc::SYS_mmap,
        libc::SYS_mremap,
        libc::SYS_brk,
        libc::SYS_mprotect,
    ]);
    // 64 MiB, which only the cache's memory can be.
    let mut blocks = Vec::with_capacity(1_024);
    for at in 0..1_024usize {
        blocks.push(vec![at as u8; 64 << 10]);
    }
    assert!(
        blocks
            .iter()
            .zip(0..)
            .all(|(block, at)| block.iter().all(|b| *b == at as u8))
    );
    if let Some(bus) = bus {
        let (events, _) = bus.events();
        assert!(
            events
                .iter()
                .any(|e| e.source == Source::Allocator && e.level == Level::Critical)
        );
    }
}

/// Makes these system calls fail with ENOMEM, for this thread and for ever.
fn refuse(calls: &[libc::c_long]) {
    let statement = |code: u32, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    };
    let mut program = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0)];
    for call in calls {
        program.push(libc::sock_filter {
            code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
            jt: 0,
            jf: 1,
            k: *call as u32,
        });
        let fail = libc::SECCOMP_RET_ERRNO | libc::ENOMEM as u32;
        program.push(statement(libc::BPF_RET | libc::BPF_K, fail));
    }
    program.push(statement(
        libc::BPF_RET | libc::BPF_K,
        libc::SECCOMP_RET_ALLOW,
    ));
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the program is valid and outlives the calls.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &filter),
            0
        );
    }
}

/// Neither control groups nor stall information: the bus works, and says what is missing.
fn nothing_there() {
    // SAFETY: names are closed by zeros; this child has a namespace of its own from here on.
    unsafe {
        assert_eq!(libc::unshare(libc::CLONE_NEWNS), 0, "needs root");
        let none = std::ptr::null();
        assert_eq!(
            libc::mount(
                none,
                c"/".as_ptr(),
                none,
                libc::MS_REC | libc::MS_PRIVATE,
                none.cast()
            ),
            0
        );
        for place in [c"/sys/fs/cgroup", c"/proc/pressure"] {
            assert_eq!(
                libc::mount(
                    c"none".as_ptr(),
                    place.as_ptr(),
                    c"tmpfs".as_ptr(),
                    0,
                    none.cast()
                ),
                0
            );
        }
    }
    // Threads made before have the old namespace: so the bus is started here.
    let bus = Bus::start(Options::default()).unwrap();
    let sources = bus.sources();
    assert!(
        sources.len() >= 2 && sources.iter().all(|s| s.watched.is_err()),
        "{sources:?}"
    );
    assert!(
        sources.iter().any(|s| s.file.contains("pressure")
            && s.watched.as_ref().unwrap_err().contains("No such file"))
    );
    let cache: Arc<Cache<u64, Vec<u8>>> = Cache::named("documents").build();
    bus.join(&cache);
    cache.insert(1, vec![1; 1 << 20], Duration::ZERO);
    let event = bus.press(Level::Critical, PATIENCE).unwrap();
    assert!(event.rows[0].dropped_bytes >= 1 << 20);
}

/// A file of 64 MiB, read again and again in a group of 24 MiB: threads stall for memory, until the thread that waits
/// for the report of the stall takes the file away.
fn thrash() {
    let mut file = tempfile::tempfile().unwrap();
    let mut block = vec![7u8; 64 << 10];
    for _ in 0..1_024 {
        std::io::Write::write_all(&mut file, &block).unwrap();
    }
    file.sync_all().unwrap();
    // Not evicted by us, but by the group: each reading finds nothing of the last one.
    let goes_on = PathBuf::from(std::env::var_os(STOP).unwrap());
    let end = Instant::now() + 2 * PATIENCE;
    while goes_on.exists() && Instant::now() < end {
        use std::os::unix::fs::FileExt;
        for at in 0..1_024u64 {
            file.read_at(&mut block, at << 16).unwrap();
        }
    }
}

#[test]
fn a_group_that_would_kill_it_does_not_where_the_bus_is() {
    let Some(group) = Group::new("group", 160 * MIB) else {
        return;
    };
    let killed = child("fast", false, Some(&group), true);
    assert_eq!(
        killed.status.signal(),
        Some(libc::SIGKILL),
        "without the bus: {}",
        text(&killed)
    );
    let output = child("fast", true, Some(&group), true);
    lives(&output);
    // By the allocator or by the group, whichever was first.
    assert!(text(&output).contains("pressure 1 at"), "{}", text(&output));
}

#[test]
fn thresholds_of_the_group_are_enough_for_who_is_not_too_fast() {
    let Some(group) = Group::new("paced", 160 * MIB) else {
        return;
    };
    let killed = child("paced", false, Some(&group), false);
    assert_eq!(
        killed.status.signal(),
        Some(libc::SIGKILL),
        "without the bus: {}",
        text(&killed)
    );
    // Beneath glibc, which reports nothing.
    let output = child("paced", true, Some(&group), false);
    lives(&output);
    assert!(text(&output).contains("by group"), "{}", text(&output));
}

#[test]
fn a_limit_on_address_space_is_lived_with() {
    let ended = child("address space", false, None, true);
    assert_eq!(
        ended.status.signal(),
        Some(libc::SIGABRT),
        "without the bus: {}",
        text(&ended)
    );
    let output = child("address space", true, None, true);
    lives(&output);
    assert!(text(&output).contains("by allocator"), "{}", text(&output));
}

#[test]
fn a_kernel_that_maps_nothing_more_is_lived_with() {
    let ended = child("no mmap", false, None, true);
    assert_eq!(
        ended.status.signal(),
        Some(libc::SIGABRT),
        "without the bus: {}",
        text(&ended)
    );
    lives(&child("no mmap", true, None, true));
}

#[test]
fn what_is_missing_is_said_and_the_rest_works() {
    if !need::root("unshare, mount") {
        return;
    }
    lives(&child("nothing there", false, None, false));
}

/// Stall information of the whole system, by a real stall in another group.
#[test]
fn a_real_stall_arrives() {
    let bus = Bus::start(Options::default()).unwrap();
    let psi = bus
        .sources()
        .into_iter()
        .find(|s| s.file == "/proc/pressure/memory")
        .unwrap();
    let why = psi
        .watched
        .as_ref()
        .err()
        .map_or_else(String::new, ToString::to_string);
    let what = format!("stall information (/proc/pressure/memory: {why})");
    if !need::that(
        psi.watched.is_ok(),
        &what,
        "run as root on a kernel with CONFIG_PSI, not booted with psi=0",
    ) {
        return;
    }
    let Some(group) = Group::new("thrash", 24 * MIB) else {
        return;
    };
    let goes_on = tempfile::NamedTempFile::new().unwrap();
    let worker = std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            child_with("thrash", false, Some(&group), false, |command| {
                command.env(STOP, goes_on.path())
            })
        });
        let end = Instant::now() + PATIENCE;
        let mut arrived = false;
        while !arrived && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(100)); // CLOCK: poll step of a bounded wait
            arrived = bus
                .events()
                .0
                .iter()
                .any(|e| matches!(e.source, Source::Psi | Source::GroupPsi));
        }
        std::fs::remove_file(goes_on.path()).unwrap();
        assert!(
            arrived,
            "no signal; pressure: {:?}",
            std::fs::read_to_string("/proc/pressure/memory")
        );
        worker.join().unwrap()
    });
    lives(&worker);
}
