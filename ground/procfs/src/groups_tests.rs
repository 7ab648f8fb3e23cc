//! Groups in folders as the kernel lays them out, of both versions; and this machine's own.

use super::*;

/// A group of the second version as Linux 6.1 writes it, without the lines that are not read.
const SECOND: &str = "anon 1048576\nfile 5242880\nkernel 786432\nkernel_stack 65536\npagetables 131072\nsec_pagetables 0\n\
    percpu 4096\nsock 8192\nvmalloc 0\nshmem 1048576\nzswap 0\nzswapped 0\nfile_mapped 524288\nfile_dirty 0\n\
    swapcached 4096\nanon_thp 0\ninactive_anon 0\nactive_anon 1048576\ninactive_file 3145728\nactive_file 1040384\n\
    unevictable 0\nslab_reclaimable 262144\nslab_unreclaimable 131072\nslab 393216\n";

/// The same of the first version: `total_` lines have the sub-groups in them.
const FIRST: &str = "cache 1\nrss 1\nshmem 0\nmapped_file 0\nswap 0\ninactive_file 0\nactive_file 0\n\
    hierarchical_memory_limit 1073741824\nhierarchical_memsw_limit 9223372036854771712\n\
    total_cache 5242880\ntotal_rss 1048576\ntotal_rss_huge 0\ntotal_shmem 1048576\ntotal_mapped_file 524288\n\
    total_swap 12288\ntotal_swapcached 4096\ntotal_inactive_file 3145728\ntotal_active_file 1040384\n";

fn write(folder: &Path, files: &[(&str, &str)]) {
    fs::create_dir_all(folder).expect("a folder");
    for (name, text) in files {
        fs::write(folder.join(name), text).expect("a file");
    }
}

fn folder() -> PathBuf {
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    // ORDER: only the count matters.
    let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let folder =
        std::env::temp_dir().join(format!("skinflint-groups-{}-{count}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    folder.canonicalize().expect("just made")
}

#[test]
fn the_second_version_by_hand() {
    let top = folder();
    let inner = top.join("a/b");
    write(
        &top.join("a"),
        &[
            ("memory.stat", SECOND),
            ("memory.max", "8388608\n"),
            ("memory.high", "max\n"),
        ],
    );
    write(
        &inner,
        &[
            ("memory.stat", SECOND),
            ("memory.current", "7340032\n"),
            ("memory.peak", "8388608\n"),
            ("memory.max", "max\n"),
            ("memory.high", "8000000\n"),
            ("memory.swap.current", "12288\n"),
            ("memory.swap.max", "max\n"),
            (
                "memory.events",
                "low 0\nhigh 3\nmax 4\noom 2\noom_kill 1\noom_group_kill 0\n",
            ),
            (
                "memory.pressure",
                "some avg10=0.29 avg60=12.50 avg300=100.00 total=169853080\nfull avg10=0.00 avg60=0.19 avg300=0.26 total=7\n",
            ),
        ],
    );
    let group = Group {
        version: Version::Second,
        folder: inner.clone(),
        top: top.clone(),
    };
    let figures = group.figures().expect("its files are there");
    assert_eq!(group.name(), "/a/b");
    assert_eq!(
        (figures.usage_bytes, figures.peak_bytes, figures.is_top),
        (7 << 20, Some(8 << 20), false)
    );
    assert_eq!(
        (figures.anonymous_bytes, figures.shared_bytes),
        (1 << 20, 1 << 20)
    );
    // groups.R3: 5 MiB less 1 MiB of shared memory and a page of the swap cache.
    assert_eq!(figures.file_bytes, (4 << 20) - 4096);
    assert_eq!(
        (figures.kernel_bytes, figures.socket_bytes),
        (Some(768 << 10), Some(8192))
    );
    let part = |name| {
        figures
            .kernel_parts
            .iter()
            .find(|part| part.name == name)
            .map(|part| part.bytes)
    };
    assert_eq!(
        (part("stacks"), part("slab-reclaimable")),
        (Some(64 << 10), Some(256 << 10))
    );
    assert_eq!(
        figures.explained_bytes(),
        (6 << 20) - 4096 + (768 << 10) + 8192
    );
    assert_eq!(figures.working_set_bytes(), 4 << 20);
    // The limit of the group above it; its own `high`.
    assert_eq!(
        (
            figures.limit_bytes,
            figures.high_bytes,
            figures.swap_limit_bytes
        ),
        (Some(8 << 20), Some(8_000_000), None)
    );
    assert_eq!(
        (figures.swap_bytes, figures.kills, figures.limit_met),
        (Some(12288), Some(1), Some(4))
    );
    let [some, full] = figures.stalls.expect("there is a file");
    assert_eq!(
        (some.percent_hundredths, some.total_us),
        ([29, 1250, 10_000], 169_853_080)
    );
    assert_eq!((full.percent_hundredths, full.total_us), ([0, 19, 26], 7));
    // groups.R4: without `memory.current` it is the top, whose usage is the sum.
    fs::remove_file(inner.join("memory.current")).expect("it is there");
    let figures = group.figures().expect("its files are there");
    assert!(figures.is_top);
    assert_eq!(figures.usage_bytes, figures.explained_bytes());
    fs::remove_dir_all(top).expect("ours");
}

#[test]
fn the_first_version_by_hand() {
    let top = folder();
    let (own, below) = (top.join("a"), top.join("a/b"));
    write(
        &own,
        &[
            ("memory.stat", FIRST),
            ("memory.usage_in_bytes", "7340032\n"),
            ("memory.kmem.usage_in_bytes", "786432\n"),
            ("memory.kmem.tcp.usage_in_bytes", "8192\n"),
            ("memory.max_usage_in_bytes", "8388608\n"),
            ("memory.failcnt", "9\n"),
            (
                "memory.oom_control",
                "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
            ),
        ],
    );
    write(
        &below,
        &[
            ("memory.stat", FIRST),
            ("memory.oom_control", "oom_kill 2\n"),
        ],
    );
    let group = Group {
        version: Version::First,
        folder: own.clone(),
        top: top.clone(),
    };
    let figures = group.figures().expect("its files are there");
    assert_eq!(
        (figures.anonymous_bytes, figures.file_bytes),
        (1 << 20, (4 << 20) - 4096)
    );
    assert_eq!(
        (figures.limit_bytes, figures.swap_limit_bytes),
        (Some(1 << 30), None)
    );
    // Sockets are beside the usage, the kernel's memory is in it.
    assert_eq!(figures.explained_bytes(), (6 << 20) - 4096 + (768 << 10));
    assert_eq!(
        (figures.swap_bytes, figures.limit_met),
        (Some(12288), Some(9))
    );
    assert_eq!(figures.kills, Some(3), "of both groups");
    assert_eq!((figures.stalls, figures.kernel_parts.len()), (None, 0));
    write(&own, &[("cgroup.sane_behavior", "0\n")]);
    let at_top = group.figures().expect("its files are there");
    assert_eq!(
        at_top.explained_bytes(),
        (6 << 20) - 4096,
        "the kernel charges none of its own memory to the top"
    );
    let names: Vec<String> = group.whole().iter().map(Group::name).collect();
    assert_eq!(names, ["/a", "/a/b"]);
    fs::remove_dir_all(top).expect("ours");
}

#[test]
fn a_process_is_found_in_what_is_mounted() {
    let both = "30 24 0:26 / /sys/fs/cgroup/memory rw shared:1 - cgroup cgroup rw,memory\n\
        31 24 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    let of = |cgroup: &str, mountinfo: &str| {
        of_texts(cgroup, mountinfo, |_| true)
            .map(|group| (group.version, group.folder.to_string_lossy().into_owned()))
    };
    let found = of("9:name=systemd:/\n4:cpu,memory:/a/b\n0::/c\n", both);
    assert_eq!(
        found,
        Some((Version::First, "/sys/fs/cgroup/memory/a/b".into()))
    );
    assert_eq!(
        of("0::/c\n", both),
        Some((Version::Second, "/sys/fs/cgroup/unified/c".into()))
    );
    let container = "31 24 0:27 /docker/7 /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
    assert_eq!(
        of("0::/docker/7/job\n", container),
        Some((Version::Second, "/sys/fs/cgroup/job".into()))
    );
    assert_eq!(
        of("0::/docker/7\n", container),
        Some((Version::Second, "/sys/fs/cgroup/".into()))
    );
    // Outside of what is mounted, above it, and a name that only begins alike.
    for cgroup in [
        "0::/other\n",
        "0::/docker/7/../x\n",
        "0::/docker/77\n",
        "nonsense",
    ] {
        assert_eq!(of(cgroup, container), None, "{cgroup}");
    }
}

#[test]
fn damaged_files_are_no_figures() {
    for text in [
        "",
        "some",
        "some avg10=1 avg60=2 avg300=3 total=4\n",
        "some avg10=0.999 avg60=0.00 avg300=0.00 total=1\nfull",
    ] {
        assert_eq!(stalls(text), None, "{text}");
    }
    let folder = folder();
    let group = Group {
        version: Version::Second,
        folder: folder.clone(),
        top: folder.clone(),
    };
    assert_eq!(group.figures(), None);
    assert!(Group::named(&folder).is_none());
    write(
        &folder,
        &[
            ("memory.stat", "anon x\nfile\nkernel 18446744073709551616\n"),
            ("memory.current", "max\n"),
        ],
    );
    let figures = Group::named(&folder)
        .expect("it has statistics")
        .figures()
        .expect("as they are");
    assert_eq!((figures.usage_bytes, figures.anonymous_bytes), (0, 0));
    fs::remove_dir_all(folder).expect("ours");
}

#[test]
fn the_group_of_this_process() {
    let group = Group::of_process(std::process::id());
    if !skinflint_test_support::need::that(
        group.is_some(),
        "a control group that counts memory",
        "mount -t cgroup2 none /sys/fs/cgroup",
    ) {
        return;
    }
    let group = group.expect("just asked");
    assert!(group.pids().contains(&std::process::id()), "{group:?}");
    let figures = group.figures().expect("it is there");
    assert!(
        figures.usage_bytes > 0 && figures.working_set_bytes() <= figures.usage_bytes,
        "{figures:?}"
    );
    assert_eq!(
        Group::named(Path::new(&group.name())).map(|again| again.name()),
        Some(group.name())
    );
}
