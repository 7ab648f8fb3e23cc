//! Names from elsewhere: a debuginfod server, its cache, and maps of code that a program made itself.
//!
//! ```text
//!   predicted, stripped ─► python's http.server on loopback ─ buildid/ID/debuginfo ─► names (and by TLS, a certificate of its own)
//!   jit ─► "[jit] 0x…" ─► a perf map with that address ─► its name
//! ```

use std::net::{TcpListener, TcpStream};
use std::process::Command;

use skinflint_test_support::executable;

use crate::report::Report;
use crate::tool::{Bench, PATIENCE, Running, program, run};
use skinflint_test_support::wait::until;

fn succeed(bench: &Bench, program: &str, arguments: &[&str]) -> String {
    let mut command = bench.command(program);
    command.args(arguments);
    let done = run(command);
    assert_eq!(
        done.status.code(),
        Some(0),
        "apt-get install binutils openssl: {done:#?}"
    );
    done.stdout
}

fn functions(report: &Report) -> Vec<String> {
    let frames = report.list("frames").iter();
    let names = frames.filter_map(|frame| frame["function"].as_str());
    names.map(str::to_owned).collect()
}

fn report(bench: &Bench, options: &[&str]) -> Report {
    let mut command = bench.skinflint(["report", "--json", "main.sft"]);
    command.args(options);
    command.env("XDG_CACHE_HOME", bench.path("cache"));
    let done = run(command);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    Report::read(&done.stdout)
}

/// Starts a server of the folder, on a port that was free a moment ago.
fn serve(bench: &Bench, folder: &str) -> (Running, u16) {
    serve_by(|port| {
        let options = ["-m", "http.server", "--bind", "127.0.0.1", "--directory"];
        let mut command: Command = bench.command("/usr/bin/python3");
        command.args(options).args([folder, port]);
        command
    })
}

/// The same by TLS, with the certificate and key of `both.pem`.
fn serve_by_tls(bench: &Bench, folder: &str) -> (Running, u16) {
    const SERVER: &str = "import functools, http.server as h, ssl, sys\n\
        handler = functools.partial(h.SimpleHTTPRequestHandler, directory=sys.argv[1])\n\
        server = h.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[2])), handler)\n\
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)\n\
        tls.load_cert_chain('both.pem')\n\
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)\n\
        server.serve_forever()\n";
    serve_by(|port| {
        let mut command: Command = bench.command("/usr/bin/python3");
        command.args(["-c", SERVER, folder, port]);
        command
    })
}

fn serve_by(command: impl Fn(&str) -> Command) -> (Running, u16) {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = free.local_addr().expect("an address").port();
    drop(free);
    let server = Running::start(command(&port.to_string()));
    until("the server listens", || {
        TcpStream::connect(("127.0.0.1", port)).ok()
    });
    (server, port)
}

fn is_named(report: &Report) -> bool {
    functions(report).iter().any(|name| name == "grow_by_one")
}

/// Records a stripped program, whose debug file lies in `served` as a server has it.
fn record_stripped(bench: &Bench) {
    executable::copied(&program("predicted"), &bench.path("app"), 0o755);
    let notes = succeed(bench, "readelf", &["-n", "app"]);
    let id = notes
        .split("Build ID: ")
        .nth(1)
        .and_then(|rest| rest.lines().next());
    let id = id.expect("a build id").trim();
    let folder = format!("served/buildid/{id}");
    std::fs::create_dir_all(bench.path(&folder)).expect("a folder");
    succeed(
        bench,
        "objcopy",
        &["--only-keep-debug", "app", &format!("{folder}/debuginfo")],
    );
    succeed(bench, "strip", &["app"]);
    let done = bench.record(["./app"]);
    assert!(done.status.code().is_some(), "{done:#?}");
    assert!(!is_named(&report(bench, &[])), "stripped");
}

/// A server by TLS is asked if its certificate is one that the machine trusts, and named if it is not.
#[test]
fn a_server_by_tls_is_trusted_as_the_machine_says() {
    let bench = Bench::new();
    record_stripped(&bench);
    let options = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 \
                   -addext basicConstraints=critical,CA:FALSE -addext extendedKeyUsage=serverAuth -keyout key.pem -out cert.pem";
    let options: Vec<&str> = options.split_whitespace().collect();
    succeed(&bench, "openssl", &options);
    let read = |name| std::fs::read(bench.path(name)).expect("openssl wrote it");
    let both = [read("key.pem"), read("cert.pem")].concat();
    std::fs::write(bench.path("both.pem"), both).expect("written");
    let (_server, port) = serve_by_tls(&bench, "served");
    let url = format!("https://127.0.0.1:{port}/");
    let ask = |trusted: Option<&str>| {
        let mut command = bench.skinflint(["report", "--json", "main.sft", "--debuginfod", &url]);
        command.env("XDG_CACHE_HOME", bench.path("cache"));
        if let Some(file) = trusted {
            command.env("SSL_CERT_FILE", bench.path(file));
        }
        let done = run(command);
        assert_eq!(done.status.code(), Some(0), "{done:#?}");
        (is_named(&Report::read(&done.stdout)), done.stderr)
    };
    let (named, said) = ask(None);
    assert!(!named && said.contains("not reached"), "{said}");
    let (named, said) = ask(Some("cert.pem"));
    assert!(named, "{said}");
}

#[test]
fn a_server_is_asked_once_and_only_if_it_is_named() {
    let bench = Bench::new();
    record_stripped(&bench);
    let (server, port) = serve(&bench, "served");
    let url = format!("http://127.0.0.1:{port}/");
    assert!(is_named(&report(&bench, &["--debuginfod", &url])));
    drop(server);
    // The file comes from the cache; what the server did not have is not asked for again.
    assert!(is_named(&report(&bench, &["--debuginfod", &url])));
    let cache = bench.path("cache/skinflint/debuginfo");
    assert!(is_named(&report(
        &bench,
        &["--debuginfod", &cache.to_string_lossy()]
    )));
    assert!(is_named(&report(&bench, &["--debuginfod", "served"])));
    assert!(
        !is_named(&report(&bench, &[])),
        "not unless it is asked for"
    );
    for (wrong, why) in [
        ("nowhere", "neither a folder nor a URL"),
        ("env", "DEBUGINFOD_URLS is not set"),
    ] {
        let mut command = bench.skinflint(["report", "main.sft", "--debuginfod", wrong]);
        command.env_remove("DEBUGINFOD_URLS");
        run(command).says(2, &[why]);
    }
}

#[test]
fn code_that_a_program_made_has_the_name_of_its_map() {
    let bench = Bench::new();
    let done = bench.record([program("jit")]);
    assert!(done.status.code().is_some(), "{done:#?}");
    let before = functions(&report(&bench, &[]));
    let address = before.iter().find_map(|name| name.strip_prefix("[jit] 0x"));
    let address = address.unwrap_or_else(|| panic!("generated code: {before:?}"));
    let address = u64::from_str_radix(address, 16).expect("hex");
    let map = format!("{:x} 80 py::Shop.sell:/srv/shop.py\n", address - 0x20);
    std::fs::write(bench.path("perf.map"), &map).expect("written");
    let after = report(&bench, &["--perf-map", "perf.map"]);
    let frames = after.list("frames").iter();
    let mut sold = frames.filter(|frame| frame["function"] == "Shop.sell");
    let frame = sold
        .next()
        .unwrap_or_else(|| panic!("{:?}", functions(&after)));
    assert_eq!(
        (&frame["module"], &frame["file"]),
        (&"[python]".into(), &"/srv/shop.py".into())
    );
    let gone = bench.tool(["report", "main.sft", "--perf-map", "gone.map"]);
    gone.says(2, &["--perf-map gone.map: cannot be read"]);
    for option in ["--debug-dir", "--sysroot"] {
        let gone = bench.tool(["report", "main.sft", option, "gone"]);
        gone.says(2, &[option, "gone: no such folder"]);
    }
}

#[test]
fn a_map_that_was_written_meanwhile_is_kept_beside_the_trace() {
    let bench = Bench::new();
    let mut talk = Running::start(bench.recording(&[], [program("talk")]));
    let pid = talk.line();
    let map = format!("/tmp/perf-{pid}.map");
    std::fs::write(&map, "1000 10 made\n").expect("written");
    talk.say(b"q");
    let done = talk.finish(PATIENCE);
    std::fs::remove_file(&map).expect("ours");
    assert_eq!(done.status.code(), Some(5), "{done:#?}");
    let kept = std::fs::read_to_string(bench.path("main.perf.map"));
    assert_eq!(kept.expect("kept"), "1000 10 made\n");
}
