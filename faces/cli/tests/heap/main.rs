//! `skinflint heap` on snapshots of our own heap and of node.
//!
//! ```text
//!   objects predicted by hand ─► gc writes, node writes ─► skinflint heap ─► sums, retained bytes, paths, differences
//! ```
//!
//! H1  node is installed (`make test-deps`): its files are real ones.
//!
//! Not here: dominators against a slow judge, damaged files (`evidence/heap-snapshot/tests`).

use std::fs::File;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use skinflint_gc::object;
use skinflint_gc::typed::{Gc, Handle, Runtime, Slot};
use skinflint_test_support::need;

fn heap(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_skinflint"));
    command.arg("heap").args(words).output().expect("skinflint")
}

fn json(words: &[&str]) -> Value {
    let output = heap(&[words, &["--json"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {said}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn text(words: &[&str]) -> String {
    let output = heap(words);
    assert_eq!(output.status.code(), Some(0), "{words:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Returns the rows of a list that have this name.
fn rows<'a>(json: &'a Value, list: &str, name: &str) -> Vec<&'a Value> {
    let rows = json[list].as_array().expect("a list").iter();
    rows.filter(|row| row["name"].as_str().is_some_and(|n| n.ends_with(name)))
        .collect()
}

object! { struct Link<'gc> { next: Slot<Gc<'gc, Link<'gc>>>, data: [u64; 6] } }

/// Creates a list of `length` links of 56 bytes in a tenant, and keeps the first.
fn list(runtime: &Runtime, length: usize) -> (skinflint_gc::typed::Tenant, Handle<Link<'static>>) {
    let tab = runtime.tenant("tab 1", usize::MAX);
    let kept = tab.enter(|cx| {
        let mut last = None;
        for number in 0..length as u64 {
            let (next, data) = (Slot::new(last), [number; 6]);
            last = Some(cx.alloc(Link { next, data }).expect("memory"));
        }
        let first = last.expect("a link");
        assert_eq!(first.data[5], length as u64 - 1);
        cx.keep(first, "list")
    });
    (tab, kept)
}

#[test]
fn a_list_of_our_own_is_retained_by_its_first_link() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("list.heapsnapshot");
    let name = file.to_str().expect("a name");
    let runtime = Runtime::default();
    let (tab, kept) = list(&runtime, 1000);
    runtime
        .snapshot(&mut File::create(&file).expect("a file"))
        .expect("written");

    let sums = json(&[name]);
    let links = rows(&sums, "classes", "Link<'_>");
    assert_eq!(
        (&links[0]["objects"], &links[0]["bytes"]),
        (&Value::from(1000), &Value::from(56_000))
    );
    assert_eq!(sums["total"]["bytes"], 56_000);
    assert!(
        text(&[name]).contains("56.0 kB") || text(&[name]).contains("54.7 KiB"),
        "{}",
        text(&[name])
    );

    let retained = json(&[name, "--retained", "--rows", "3"]);
    let most = &retained["objects"];
    // The rows are the tenant, the first link, the second.
    assert_eq!(most[0]["name"], "tenant \"tab 1\"");
    let bytes: Vec<u64> = (0..3)
        .map(|n| most[n]["retained"].as_u64().unwrap())
        .collect();
    assert_eq!(bytes, [56_000, 56_000, 55_944]);
    assert_eq!(most[1]["kept_by"]["name"], "tenant \"tab 1\"");
    assert_eq!(retained["unreachable"]["bytes"], 0);

    let class = links[0]["name"].as_str().unwrap();
    let last = json(&[name, "--path", &format!("{class}:0")]);
    let path = last["path"].as_array().unwrap();
    // The first link made is the last of the list: root, tenant, a thousand links.
    assert_eq!(path.len(), 1002);
    assert_eq!(
        (&path[2]["edge"], &path[3]["edge"]),
        (&Value::from(".list"), &Value::from(".next"))
    );
    let id = last["object"]["id"].as_u64().unwrap();
    assert_eq!(json(&[name, "--path", &format!("@{id}")]), last);
    assert!(text(&[name, "--path", class]).contains("… 902 more …"));

    let later = folder.path().join("later.heapsnapshot");
    let more = tab.enter(|cx| {
        let (next, data) = (Slot::new(None), [1; 6]);
        let link: Handle<Link<'static>> =
            cx.keep(cx.alloc(Link { next, data }).expect("memory"), "more");
        link
    });
    runtime
        .snapshot(&mut File::create(&later).expect("a file"))
        .expect("written");
    let later = later.to_str().expect("a name");
    let diff = json(&[name, "--diff", later]);
    let links = rows(&diff, "classes", "Link<'_>");
    assert_eq!(
        (&links[0]["new"]["objects"], &links[0]["gone"]["objects"]),
        (&Value::from(1), &Value::from(0))
    );
    assert!(text(&[name, "--diff", later]).contains("+56"));
    drop((kept, more));
}

/// Writes a snapshot with node after it has run `script`.
fn of_node(file: &Path, script: &str) {
    let write = format!(
        "{script}; require('v8').writeHeapSnapshot({:?})",
        file.display().to_string()
    );
    let node = Command::new("node").arg("-e").arg(write).output();
    let node = node.expect("node runs");
    assert!(
        node.status.success(),
        "{}",
        String::from_utf8_lossy(&node.stderr)
    );
}

#[test]
fn nodes_own_snapshots_are_read() {
    if !need::program("node") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (before, after) = (
        folder.path().join("a.heapsnapshot"),
        folder.path().join("b.heapsnapshot"),
    );
    let script = "class Foo { constructor(n) { this.big = new Array(1000).fill(n) } }; globalThis.kept = []; \
                  for (let i = 0; i < 500; i++) kept.push(new Foo(i * 0.5));";
    of_node(&before, script);
    of_node(
        &after,
        &format!("{script} for (let i = 0; i < 70; i++) kept.push(new Foo(i * 0.5));"),
    );
    let (before, after) = (before.to_str().unwrap(), after.to_str().unwrap());

    let sums = json(&[before]);
    let foo = rows(&sums, "classes", "Foo");
    assert_eq!((foo.len(), &foo[0]["objects"]), (1, &Value::from(500)));
    let all: u64 = sums["classes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["bytes"].as_u64().unwrap())
        .sum();
    assert_eq!(sums["total"]["bytes"], all);

    let path = json(&[before, "--path", "Foo:499"]);
    let edges: Vec<&str> = path["path"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["edge"].as_str().unwrap())
        .collect();
    // From the global object by name, then by number.
    assert!(edges.contains(&".kept"), "{edges:?}");
    assert!(
        edges.last().is_some_and(|edge| edge.starts_with('[')),
        "{edges:?}"
    );
    assert_eq!(path["object"]["type"], "object");
    assert!(!heap(&[before, "--path", "Foo:500"]).status.success());

    let retained = json(&[before, "--retained", "--rows", "0"]);
    let foo = rows(&retained, "objects", "Foo");
    let foo = foo
        .iter()
        .filter(|row| row["type"] == "object")
        .map(|row| row["retained"].as_u64().unwrap());
    // A thousand doubles or pointers each, of eight bytes.
    assert_eq!(
        foo.filter(|bytes| (8000..9000).contains(bytes)).count(),
        500
    );

    let diff = json(&[before, "--diff", after]);
    let foo = rows(&diff, "classes", "Foo");
    let grown = foo[0]["after"]["objects"].as_u64().unwrap()
        - foo[0]["before"]["objects"].as_u64().unwrap();
    assert_eq!(grown, 70);
}

#[test]
fn what_cannot_be_answered_is_said_with_the_next_step() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("list.heapsnapshot");
    let name = file.to_str().expect("a name");
    let runtime = Runtime::default();
    let (_tab, _kept) = list(&runtime, 10);
    runtime
        .snapshot(&mut File::create(&file).expect("a file"))
        .expect("written");
    let refused = |words: &[&str], status: i32| -> String {
        let output = heap(words);
        assert_eq!(output.status.code(), Some(status), "{words:?}");
        assert!(output.stdout.is_empty());
        String::from_utf8(output.stderr).expect("UTF-8")
    };
    assert!(refused(&[name, "--path", "Nobody"], 2).contains("prints classes"));
    // Objects have odd numbers.
    assert!(refused(&[name, "--path", "@100000000"], 2).contains("no object of this id"));
    assert!(refused(&[name, "--path", "@x"], 2).contains("an id is a number"));
    assert!(refused(&[name, "--path", "tenant \"tab 1\":1"], 2).contains("fewer"));
    assert!(refused(&["/no/such.heapsnapshot"], 1).contains("/no/such.heapsnapshot"));
    let whole = std::fs::read(&file).expect("bytes");
    std::fs::write(&file, &whole[..whole.len() / 2]).expect("cut");
    let said = refused(&[name], 1);
    assert!(
        said.contains(name) && said.contains("ends too early"),
        "{said}"
    );
}
