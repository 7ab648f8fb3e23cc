//! The socket: which clients are answered, and with what; stale sockets, slow clients, nonsense.
//!
//! ```text
//!   Endpoint::open_in(folder) ◄── ask │ garbage │ silence
//! ```
//!
//! T1  Every wait has a bound, and a client that misbehaves does not keep the next one from its answer.
//!
//! `alone` is not a test by itself: it is the process that the others ask.
//!
//! Not here: the drop-in's socket and the command (faces/cli/tests/memory).

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use skinflint_reporters::endpoint::{self, Answer, Endpoint};
use skinflint_reporters::tree::{Builder, Presence};
use skinflint_reporters::{Action, Registry, Sink, file};
use skinflint_test_support::need;

fn registry() -> &'static Registry {
    let registry: &'static Registry =
        Box::leak(Box::new(Registry::with_deadline(Duration::from_secs(60))));
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
    let endpoint = Endpoint::open_in(folder.path(), registry()).expect("an endpoint");
    let me = std::process::id();
    let Answer::Report { faults, json } =
        endpoint::ask(endpoint.path(), me, "measure").expect("it")
    else {
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
    assert!(endpoint::sockets_of(me).contains(&endpoint.path().to_owned()));
    assert!(endpoint::listening().contains(&(me, endpoint.path().to_owned())));
    // endpoint.S4.
    let other = endpoint::ask(endpoint.path(), me + 1, "measure").expect_err("another process");
    assert!(other.to_string().contains("in the place of"), "{other}");
    for (request, wanted) in [
        ("gc", "done: tab 1: freed 5 cells"),
        ("cc", "no: the program offers no cc"),
        ("minimize", "done: the allocator: "),
        ("jump", "no: a request is measure"),
    ] {
        let said = match endpoint::ask(endpoint.path(), me, request).expect("an answer") {
            Answer::Done(said) => format!("done: {said}"),
            Answer::No(said) => format!("no: {said}"),
            other => panic!("{other:?}"),
        };
        assert!(said.starts_with(wanted), "{said}");
    }
    let path = endpoint.path().to_owned();
    drop(endpoint);
    assert!(!path.exists());
}

#[test]
fn clients_that_misbehave() {
    let folder = folder();
    let endpoint = Endpoint::open_in(folder.path(), registry()).expect("an endpoint");
    let mut garbage = UnixStream::connect(endpoint.path()).expect("it");
    garbage.write_all(&[0xff; 4096]).expect("sent");
    let silent = UnixStream::connect(endpoint.path()).expect("it");
    // This client asks, and does not read the answer.
    let mut deaf = UnixStream::connect(endpoint.path()).expect("it");
    deaf.write_all(b"measure\n").expect("sent");
    // The endpoint waits for it with a bound; without one, one of the three would exceed it.
    let answer = endpoint::ask(endpoint.path(), 0, "gc").expect("an answer");
    assert!(matches!(answer, Answer::Done(_)));
    drop((garbage, silent, deaf));
}

#[test]
fn folders_and_sockets_that_were_there() {
    let open = folder();
    std::fs::set_permissions(open.path(), std::fs::Permissions::from_mode(0o755)).expect("mode");
    let error = Endpoint::open_in(open.path(), registry())
        .err()
        .expect("open to others");
    assert!(error.to_string().contains("mode 0700"), "{error}");
    let real = folder();
    let link = open.path().join("link");
    std::os::unix::fs::symlink(real.path(), &link).expect("a link");
    assert!(Endpoint::open_in(&link, registry()).is_err());
    // A stale socket: bound once, without a listener.
    let name = real.path().join(format!("{}.report", std::process::id()));
    drop(UnixListener::bind(&name).expect("a socket"));
    assert!(name.exists());
    let endpoint = Endpoint::open_in(real.path(), registry()).expect("in place of the stale one");
    // A socket that answers is not replaced.
    assert!(Endpoint::open_in(real.path(), registry()).is_err());
    assert!(endpoint::ask(endpoint.path(), 0, "gc").is_ok());
    let nobody = endpoint::ask(&real.path().join("none"), 0, "gc").expect_err("nobody");
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
        let error = endpoint::ask(&path, 0, "measure").expect_err("no answer");
        assert!(error.to_string().contains("hung up"), "{error}");
    }
    fake.join().expect("it ends");
}

/// A process that ends closes its connections: while the request is written, before it is read, after.
#[test]
fn a_connection_that_is_closed_at_once_is_said_in_words() {
    const MANY: usize = 300;
    let folder = folder();
    let path = folder.path().join("closing");
    let listener = UnixListener::bind(&path).expect("a socket");
    let closing = std::thread::spawn(move || {
        for _ in 0..MANY {
            drop(listener.accept().expect("a client"));
        }
    });
    for _ in 0..MANY {
        let error = endpoint::ask(&path, 0, "measure").expect_err("no answer");
        assert!(error.to_string().contains("hung up"), "{error}");
    }
    closing.join().expect("it ends");
}

/// Starts a process with an endpoint in a folder: this test binary again, as `alone`. Returns it, the socket's path, and the
/// folder that it would take by itself.
fn other(mut command: Command, folder: &Path) -> (Child, PathBuf, PathBuf) {
    command
        .args(["--exact", "alone", "--nocapture", "--test-threads=1"])
        .env("SKINFLINT_ALONE", folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().expect("this test");
    let mut output = BufReader::new(child.stdout.take().expect("its output"));
    let mut said = || loop {
        let mut line = String::new();
        assert_ne!(output.read_line(&mut line).expect("text"), 0, "it ended");
        // The test harness writes its own words before the line.
        if let Some((_, path)) = line.split_once("ENDPOINT ") {
            return PathBuf::from(path.trim_end());
        }
    };
    let (path, usual) = (said(), said());
    child.stdout = Some(output.into_inner());
    (child, path, usual)
}

#[test]
fn alone() {
    let Some(folder) = std::env::var_os("SKINFLINT_ALONE") else {
        return;
    };
    let endpoint = Endpoint::open_in(Path::new(&folder), registry()).expect("an endpoint");
    println!("ENDPOINT {}", endpoint.path().display());
    println!("ENDPOINT {}", endpoint::folder().display());
    // Waits until the test is done with it, or gone.
    std::io::stdin()
        .read_to_end(&mut Vec::new())
        .expect("an end");
}

fn this() -> Command {
    Command::new(std::env::current_exe().expect("this test"))
}

#[test]
fn a_process_in_a_namespace_of_its_own_has_the_number_that_it_has_here() {
    if !need::root("unshare --pid") {
        return;
    }
    let folder = folder();
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--"]);
    command.arg(std::env::current_exe().expect("this test"));
    let (mut child, path, _) = other(command, folder.path());
    // It is the first process there.
    assert_eq!(path, folder.path().join("1.report"));
    let pid = endpoint::listening()
        .into_iter()
        .find_map(|(pid, socket)| (socket == path).then_some(pid))
        .expect("it can be asked");
    assert_ne!(pid, 1);
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it");
    assert!(status.contains(&format!("NSpid:\t{pid}\t1")), "{status}");
    assert_eq!(endpoint::sockets_of(pid), std::slice::from_ref(&path));
    assert!(!endpoint::sockets_of(1).contains(&path));
    assert!(endpoint::ask(&path, pid, "gc").is_ok());
    drop(child.stdin.take());
    child.wait().expect("it ends");
}

#[test]
fn one_that_is_stopped_is_named_and_not_waited_for() {
    let folder = folder();
    let (mut child, path, _) = other(this(), folder.path());
    let pid = child.id();
    // SAFETY: no memory is involved.
    assert_eq!(unsafe { libc::kill(pid as i32, libc::SIGSTOP) }, 0);
    // A process that was waited for to the end is said to be late, not stopped.
    let error = endpoint::ask(&path, pid, "measure").expect_err("it is stopped");
    let said = error.to_string();
    assert!(
        said.contains(&format!("process {pid} is stopped")),
        "{said}"
    );
    assert!(said.contains("kill -CONT"), "{said}");
    // SAFETY: as above.
    assert_eq!(unsafe { libc::kill(pid as i32, libc::SIGCONT) }, 0);
    assert!(endpoint::ask(&path, pid, "gc").is_ok());
    drop(child.stdin.take());
    child.wait().expect("it ends");
}

#[test]
fn a_runtime_folder_that_is_missing_is_none() {
    let folder = folder();
    // SAFETY: no memory is involved.
    let usual = PathBuf::from(format!("/tmp/skinflint-{}", unsafe { libc::geteuid() }));
    for (runtime, wanted) in [
        (folder.path().join("missing"), usual.clone()),
        (PathBuf::from("relative"), usual),
        (folder.path().to_owned(), folder.path().join("skinflint")),
    ] {
        let mut command = this();
        command.env("XDG_RUNTIME_DIR", runtime);
        let (mut child, _, found) = other(command, folder.path());
        assert_eq!(found, wanted);
        drop(child.stdin.take());
        child.wait().expect("it ends");
    }
    // The error names a folder that cannot be made.
    let missing = folder.path().join("none/skinflint");
    let error = Endpoint::open_in(&missing, registry())
        .err()
        .expect("no folder");
    let said = error.to_string();
    assert!(said.contains(&missing.display().to_string()), "{said}");
}

/// Answers one client with `answer`, and then waits until the client is gone.
fn answers(
    folder: &Path,
    name: &str,
    say: impl FnOnce(&mut UnixStream) + Send + 'static,
) -> PathBuf {
    let path = folder.join(name);
    let listener = UnixListener::bind(&path).expect("a socket");
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        say(&mut stream);
    });
    path
}

#[test]
fn an_answer_without_end() {
    let folder = folder();
    // A fast answer, longer than words ever are.
    let flood = answers(folder.path(), "flood", |stream| {
        while stream.write_all(&[b'x'; 1 << 16]).is_ok() {}
    });
    let error = endpoint::ask(&flood, 0, "gc").expect_err("a flood");
    assert!(error.to_string().contains("more than 1 MiB"), "{error}");
    // A few bytes, again and again: each read succeeds, and the answer never ends.
    let drip = answers(folder.path(), "drip", |stream| {
        while stream.write_all(b"x").is_ok() {
            std::thread::sleep(Duration::from_millis(10)); // CLOCK: how slowly it drips; nobody waits for it
        }
    });
    let error =
        endpoint::ask_within(&drip, 0, "gc", Duration::from_millis(300)).expect_err("a drip");
    assert!(error.to_string().contains("within 0.3 s"), "{error}");
}

#[test]
fn who_closes_waits_for_the_answer_that_is_under_way() {
    let folder = folder();
    let registry = Registry::with_deadline(Duration::from_secs(60));
    let registry: &'static Registry = Box::leak(Box::new(registry));
    let socket = folder.path().join(format!("{}.report", std::process::id()));
    let (began, begins) = std::sync::mpsc::channel();
    let ended: Arc<AtomicBool> = Arc::default();
    let (began, ends) = (Mutex::new(began), Arc::clone(&ended));
    let slow = move |out: &mut Sink<'_>| {
        began.lock().expect("it").send(()).expect("the test");
        // Closing removes the name, and then waits.
        let end = Instant::now() + Duration::from_secs(60);
        while socket.exists() && Instant::now() < end {
            std::thread::yield_now();
        }
        ends.store(true, Ordering::Release); // ORDER: Release: meets the test's Acquire
        out.heap("explicit/slow", 5, "Slow.");
    };
    registry.add("slow", slow).keep();
    let endpoint = Endpoint::open_in(folder.path(), registry).expect("an endpoint");
    let path = endpoint.path().to_owned();
    let asked = std::thread::spawn(move || endpoint::ask(&path, 0, "measure"));
    begins
        .recv_timeout(Duration::from_secs(60))
        .expect("it begins");
    let path = endpoint.path().to_owned();
    drop(endpoint);
    assert!(ended.load(Ordering::Acquire), "closed in the midst of it"); // ORDER: Acquire: as above
    assert!(registry.settle(Duration::ZERO));
    assert!(asked.join().expect("it ends").is_ok());
    assert!(!path.exists());
}
