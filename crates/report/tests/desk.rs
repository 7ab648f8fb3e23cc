//! The socket: who is answered, and with what; stale ones, slow ones, nonsense.
//!
//! ```text
//!   Desk::open_in(folder) ◄── ask │ garbage │ silence
//! ```
//!
//! T1  Every wait has a bound, and a client that misbehaves does not keep the next one from its answer.
//!
//! Not here: the drop-in's socket and the command (crates/cli/tests/memory).

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use skinflint_report::desk::{self, Answer, Desk};
use skinflint_report::tree::{Builder, Presence};
use skinflint_report::{Action, Registry, Sink, file};

fn registry() -> &'static Registry {
    let registry: &'static Registry = Box::leak(Box::new(Registry::new()));
    let images = |out: &mut Sink<'_>| {
        out.heap("explicit/caches/images", 4096, "Images.");
    };
    registry.add("images", images).keep();
    registry
        .add("bad\none", |_: &mut Sink<'_>| panic!("no luck"))
        .keep();
    registry
        .on(Action::Gc, "tab 1", || "freed 5 cells".into())
        .keep();
    registry
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).expect("mode");
    folder
}

#[test]
fn a_report_over_the_socket() {
    let folder = folder();
    let desk = Desk::open_in(folder.path(), registry()).expect("a desk");
    let me = std::process::id();
    let Answer::Report { faults, json } = desk::ask(desk.path(), me, "measure").expect("it") else {
        panic!("no report");
    };
    assert_eq!(
        faults,
        ["reporter \"bad\\none\" left out: it panicked: no luck"]
    );
    let mut builder = Builder::new();
    file::read(&json[..], |entry, _| builder.add(entry, Presence::Both)).expect("a file");
    let processes = builder.finish();
    assert_eq!(processes.len(), 1);
    assert!(
        processes[0].name.ends_with(&format!("(pid {me})")),
        "{}",
        processes[0].name
    );
    assert_eq!(processes[0].amount("explicit/caches/images"), 4096);
    assert!(processes[0].amount("heap-allocated") > 4096);
    assert_eq!(
        processes[0].amount("resident"),
        processes[0].amount("resident-by-kind")
    );
    assert!(desk::sockets_of(me).contains(&desk.path().to_owned()));
    assert!(desk::listening().contains(&(me, desk.path().to_owned())));
    // S4.
    let other = desk::ask(desk.path(), me + 1, "measure").expect_err("another process");
    assert!(other.to_string().contains("in the place of"), "{other}");
    for (request, wanted) in [
        ("gc", "done: tab 1: freed 5 cells"),
        ("cc", "no: the program offers no cc"),
        ("minimize", "done: the allocator: "),
        ("jump", "no: a request is measure"),
    ] {
        let said = match desk::ask(desk.path(), me, request).expect("an answer") {
            Answer::Done(said) => format!("done: {said}"),
            Answer::No(said) => format!("no: {said}"),
            other => panic!("{other:?}"),
        };
        assert!(said.starts_with(wanted), "{said}");
    }
    let path = desk.path().to_owned();
    drop(desk);
    assert!(!path.exists());
}

#[test]
fn clients_that_misbehave() {
    let folder = folder();
    let desk = Desk::open_in(folder.path(), registry()).expect("a desk");
    let mut garbage = UnixStream::connect(desk.path()).expect("it");
    garbage.write_all(&[0xff; 4096]).expect("sent");
    let silent = UnixStream::connect(desk.path()).expect("it");
    // Asks, and does not read the answer.
    let mut deaf = UnixStream::connect(desk.path()).expect("it");
    deaf.write_all(b"measure\n").expect("sent");
    let begin = Instant::now();
    let answer = desk::ask(desk.path(), 0, "gc").expect("an answer");
    assert!(matches!(answer, Answer::Done(_)));
    assert!(begin.elapsed() < 3 * desk::PATIENCE + Duration::from_secs(20));
    drop((garbage, silent, deaf));
}

#[test]
fn folders_and_sockets_that_were_there() {
    let open = folder();
    std::fs::set_permissions(open.path(), std::fs::Permissions::from_mode(0o755)).expect("mode");
    let error = Desk::open_in(open.path(), registry())
        .err()
        .expect("open to others");
    assert!(error.to_string().contains("mode 0700"), "{error}");
    let real = folder();
    let link = open.path().join("link");
    std::os::unix::fs::symlink(real.path(), &link).expect("a link");
    assert!(Desk::open_in(&link, registry()).is_err());
    // Stale: bound once, listened on by nobody.
    let name = real.path().join(format!("{}.report", std::process::id()));
    drop(UnixListener::bind(&name).expect("a socket"));
    assert!(name.exists());
    let desk = Desk::open_in(real.path(), registry()).expect("in place of the stale one");
    // And one that answers is not replaced.
    assert!(Desk::open_in(real.path(), registry()).is_err());
    assert!(desk::ask(desk.path(), 0, "gc").is_ok());
    let nobody = desk::ask(&real.path().join("none"), 0, "gc").expect_err("nobody");
    assert_eq!(nobody.kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn an_answer_that_is_none() {
    let folder = folder();
    let path = folder.path().join("fake");
    let listener = UnixListener::bind(&path).expect("a socket");
    let fake = std::thread::spawn(move || {
        for reply in [&b""[..], b"report\nfault x", b"what\n"] {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut request = [0; 8];
            stream.read_exact(&mut request).expect("a request");
            stream.write_all(reply).expect("sent");
        }
    });
    for _ in 0..3 {
        let error = desk::ask(&path, 0, "measure").expect_err("no answer");
        assert!(error.to_string().contains("hung up"), "{error}");
    }
    fake.join().expect("it ends");
}
