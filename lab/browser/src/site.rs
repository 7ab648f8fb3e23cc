//! The server of the pages: one origin for each, compressed, cached, and nothing from outside.
//!
//! ```text
//!   GET http://NAME.localhost:PORT/path ─► files of the page's package, gzip, ETag, max-age
//!   GET http://one.localhost:PORT/NAME/path    the same below one origin (plans with one_origin)
//!   GET http://HOST.localhost:PORT/path ─► a recording (recording.rs), if HOST is recorded
//!   GET http://elsewhere/…, CONNECT elsewhere:443   (we are the browser's proxy) ─► 404, 502 at once, and listed
//!   POST /skinflint/score, /skinflint/next          benchmark's score, the driverless page
//! ```
//!
//! W1  Bound to 127.0.0.1; serves files below a page's root only (no `..`, no links out of it).
//! W2  Every answer comes at once: nothing waits for a network that a test must not depend on.
//! W3  Requests to the outside are counted by host, for at most [`HOSTS`] hosts.
//! W4  Compressed bodies are kept, up to [`KEPT_BYTES`]: a second load costs no second compression.
//!
//! Not here: the list of pages (corpus.rs).

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::io::{Cursor, Read, Write};
use std::path::{Component, Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use serde_json::Value;
use tiny_http::{Header, Method, Request, Response, Server};

use crate::recording::Recorded;

const WORKERS: usize = 8;
const HOSTS: usize = 500;
const KEPT_BYTES: usize = 256 << 20;

/// The files of one page.
#[derive(Clone, Debug)]
pub struct Mount {
    /// Folder served as `/`.
    pub folder: PathBuf,
    /// Text served as [`crate::corpus::OWN_PATH`].
    pub own: Option<Cow<'static, str>>,
}

#[derive(Default)]
struct State {
    mounts: HashMap<String, Mount>,
    recorded: Recorded,
    outside: BTreeMap<String, u64>,
    missing: BTreeMap<String, u64>,
    /// The time at which each host was last asked for something.
    last: HashMap<String, Instant>,
    kept: HashMap<PathBuf, Arc<Vec<u8>>>,
    kept_bytes: usize,
    scores: Vec<Value>,
    /// The driverless page's request, which waits for something to do.
    next: Option<Request>,
    answers: Option<Sender<Value>>,
}

/// The server.
pub struct Site {
    port: u16,
    server: Arc<Server>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    asked: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Site {
    /// Starts to serve on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// If no port is free.
    pub fn start() -> Result<Site> {
        let server = Server::http("127.0.0.1:0")
            .map_err(|error| anyhow!("127.0.0.1: no port for the pages: {error}"))?;
        let port = server
            .server_addr()
            .to_ip()
            .context("the server has no port")?
            .port();
        let (server, shared) = (Arc::new(server), Arc::new(Shared::default()));
        for _ in 0..WORKERS {
            let (server, shared) = (server.clone(), shared.clone());
            std::thread::Builder::new()
                .name("pages".into())
                .spawn(move || {
                    while let Ok(request) = server.recv() {
                        serve(&shared, request, port);
                    }
                })
                .context("no thread for the pages")?;
        }
        Ok(Site {
            port,
            server,
            shared,
        })
    }

    /// Returns the server's port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Serves a page as `NAME.localhost`.
    pub fn mount(&self, name: &str, mount: Mount) {
        self.shared.state().mounts.insert(name.into(), mount);
    }

    /// Serves a recording.
    pub fn replay(&self, recorded: Recorded) {
        self.shared.state().recorded = recorded;
    }

    /// Returns the address of a path on a page's own origin.
    pub fn address(&self, name: &str, path: &str) -> String {
        format!("http://{name}.localhost:{}/{path}", self.port)
    }

    /// Returns the outside hosts that were requested since the last call, with counts; and our own paths that were
    /// missing.
    pub fn strays(&self) -> (BTreeMap<String, u64>, BTreeMap<String, u64>) {
        let mut state = self.shared.state();
        (
            std::mem::take(&mut state.outside),
            std::mem::take(&mut state.missing),
        )
    }

    /// Returns the scores that have come in since the last call.
    pub fn scores(&self) -> Vec<Value> {
        std::mem::take(&mut self.shared.state().scores)
    }

    /// Returns for how long a host has not been asked for anything; `None` if it never was since `forget`.
    pub fn quiet(&self, host: &str) -> Option<Duration> {
        self.shared.state().last.get(host).map(Instant::elapsed)
    }

    /// Forgets when a host was last asked.
    pub fn forget(&self, host: &str) {
        self.shared.state().last.remove(host);
    }

    /// Gives the driverless page something to do; the channel gets its answer. Waits until the page asks.
    ///
    /// # Errors
    /// If it does not ask in time.
    pub fn tell(&self, what: &Value, limit: Duration) -> Result<Receiver<Value>> {
        let (answer, answered) = mpsc::channel();
        let state = self.shared.state();
        let (mut state, waited) = self
            .shared
            .asked
            .wait_timeout_while(state, limit, |state| state.next.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            anyhow::bail!(
                "the page that opens windows has not asked for {} s",
                limit.as_secs()
            );
        }
        let Some(request) = state.next.take() else {
            anyhow::bail!("the page that opens windows has gone");
        };
        state.answers = Some(answer);
        drop(state);
        let _ = request.respond(json_response(what));
        Ok(answered)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.shared.state().next = None;
        for _ in 0..WORKERS {
            self.server.unblock();
        }
    }
}

fn json_response(value: &Value) -> Response<Cursor<Vec<u8>>> {
    Response::from_data(value.to_string().into_bytes())
        .with_header(header("Content-Type", "application/json"))
        .with_header(header("Cache-Control", "no-store"))
}

fn header(name: &str, value: &str) -> Header {
    // A value that is no header (control characters from a recording) becomes an empty one.
    Header::from_bytes(name, value).unwrap_or_else(|()| Header {
        field: "X-Unsaid"
            .parse()
            .unwrap_or_else(|()| unreachable!("a token")),
        value: Default::default(),
    })
}

/// Returns the requested host and path; a proxy gets absolute addresses.
fn target(request: &Request) -> (String, String) {
    let url = request.url();
    if let Some((_, rest)) = url.split_once("://") {
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        return (
            host.to_ascii_lowercase(),
            if path.is_empty() {
                "/".into()
            } else {
                path.into()
            },
        );
    }
    let host = request
        .headers()
        .iter()
        .find(|header| header.field.equiv("Host"))
        .map_or(String::new(), |header| {
            header.value.as_str().to_ascii_lowercase()
        });
    (host, url.into())
}

fn serve(shared: &Shared, mut request: Request, port: u16) {
    let (host, path) = target(&request);
    let ours = host
        .strip_suffix(&format!(":{port}"))
        .and_then(|host| host.strip_suffix(".localhost"));
    let connect = matches!(request.method(), Method::Connect);
    let Some(name) = ours.filter(|_| !connect).map(str::to_owned) else {
        let whom = if connect {
            request.url().to_owned()
        } else {
            host
        };
        count(&mut shared.state().outside, whom);
        let _ = request.respond(Response::empty(if connect { 502 } else { 404 }));
        return;
    };
    shared.state().last.insert(name.clone(), Instant::now());
    if *request.method() == Method::Post && path.starts_with("/skinflint/") {
        let mut body = String::new();
        let read = request.as_reader().take(1 << 20).read_to_string(&mut body);
        let value = read
            .ok()
            .and_then(|_| serde_json::from_str(&body).ok())
            .unwrap_or(Value::Null);
        return own(shared, request, &path, value);
    }
    let answer = find(shared, &name, &path);
    let sent = match answer {
        Some(found) => send(shared, request, found),
        None => {
            count(
                &mut shared.state().missing,
                format!("{name}{}", path.split('?').next().unwrap_or("")),
            );
            request.respond(Response::empty(404))
        }
    };
    // A browser that has gone away in the middle is no error of ours.
    drop(sent);
    shared.state().last.insert(name, Instant::now());
}

fn count(into: &mut BTreeMap<String, u64>, key: String) {
    let full = into.len() >= HOSTS;
    let key = if full && !into.contains_key(&key) {
        "others".into()
    } else {
        key
    };
    *into.entry(key).or_default() += 1;
}

/// Handles the messages of our own pages.
fn own(shared: &Shared, request: Request, path: &str, value: Value) {
    let mut state = shared.state();
    if path == "/skinflint/score" {
        state.scores.push(value);
        drop(state);
        let _ = request.respond(Response::empty(204));
    } else if path == "/skinflint/next" {
        if let Some(answers) = state.answers.take() {
            let _ = answers.send(value);
        }
        state.next = Some(request);
        drop(state);
        shared.asked.notify_all();
    } else {
        drop(state);
        let _ = request.respond(Response::empty(404));
    }
}

enum Found {
    File(PathBuf),
    Text(Cow<'static, str>),
    Recording {
        status: u16,
        kind: String,
        body: Arc<Vec<u8>>,
        location: Option<String>,
    },
}

fn find(shared: &Shared, name: &str, path: &str) -> Option<Found> {
    let state = shared.state();
    if let Some(entry) = state.recorded.find(name, path) {
        return Some(Found::Recording {
            status: entry.status,
            kind: entry.kind.clone(),
            body: entry.body.clone(),
            location: entry.location.clone(),
        });
    }
    let plain = decode(path.split(['?', '#']).next()?.trim_start_matches('/'))?;
    let (name, rest) = match name {
        "one" => plain.split_once('/')?,
        name => (name, plain.as_str()),
    };
    if rest == "skinflint-opener.html" || (name == "opener" && rest.is_empty()) {
        return Some(Found::Text(include_str!("../pages/opener.html").into()));
    }
    let mount = state.mounts.get(name)?;
    if rest == crate::corpus::OWN_PATH {
        return mount.own.clone().map(Found::Text);
    }
    let file = inside(&mount.folder, rest)?;
    let file = if file.is_dir() {
        file.join("index.html")
    } else {
        file
    };
    file.is_file().then_some(Found::File(file))
}

/// Returns a path below a folder, or `None` (W1).
fn inside(folder: &Path, rest: &str) -> Option<PathBuf> {
    let relative = Path::new(rest);
    if !relative
        .components()
        .all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
    {
        return None;
    }
    let path = folder.join(relative).canonicalize().ok()?;
    path.starts_with(folder.canonicalize().ok()?)
        .then_some(path)
}

/// Decodes %XX.
fn decode(path: &str) -> Option<String> {
    let bytes = path.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] == b'%' {
            let hex = path.get(at + 1..at + 3)?;
            out.push(u8::from_str_radix(hex, 16).ok()?);
            at += 3;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8(out)
        .ok()
        .filter(|text| !text.contains('\0'))
}

/// Returns the content type by the end of the name.
fn kind_of(path: &Path) -> &'static str {
    match path.extension().and_then(|end| end.to_str()).unwrap_or("") {
        "html" | "htm" => "text/html; charset=utf-8",
        "js" | "mjs" | "cjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" | "map" | "ipynb" => "application/json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "woff" => "font/woff",
        "ttf" => "font/ttf",
        "wasm" => "application/wasm",
        "pdf" => "application/pdf",
        "txt" | "md" | "csv" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

fn compresses(kind: &str) -> bool {
    kind.starts_with("text/")
        || kind.contains("json")
        || kind.contains("svg")
        || kind.contains("wasm")
}

fn send(shared: &Shared, request: Request, found: Found) -> std::io::Result<()> {
    match found {
        Found::Text(text) => request.respond(
            Response::from_data(text.as_bytes())
                .with_header(header("Content-Type", "text/html; charset=utf-8"))
                .with_header(header("Cache-Control", "max-age=600")),
        ),
        Found::Recording {
            status,
            kind,
            body,
            location,
        } => {
            let mut response = Response::from_data(body.as_slice()).with_status_code(status);
            response.add_header(header("Content-Type", &kind));
            response.add_header(header("Cache-Control", "max-age=600"));
            response.add_header(header("Access-Control-Allow-Origin", "*"));
            if let Some(location) = location {
                response.add_header(header("Location", &location));
            }
            request.respond(response)
        }
        Found::File(path) => send_file(shared, request, &path),
    }
}

fn send_file(shared: &Shared, request: Request, path: &Path) -> std::io::Result<()> {
    let kind = kind_of(path);
    let said = |name: &'static str| {
        let found = request
            .headers()
            .iter()
            .find(|header| header.field.equiv(name));
        found.map_or("", |header| header.value.as_str()).to_owned()
    };
    let length = path.metadata().map(|meta| meta.len()).unwrap_or(0);
    // Packages do not change: the name and the length identify the file.
    let tag = format!("\"{length:x}\"");
    if said("If-None-Match") == tag {
        return request.respond(Response::empty(304).with_header(header("ETag", &tag)));
    }
    let zipped = compresses(kind) && said("Accept-Encoding").contains("gzip");
    let body = if zipped {
        zipped_file(shared, path)?
    } else {
        Arc::new(std::fs::read(path)?)
    };
    let mut response = Response::from_data(body.as_slice());
    response.add_header(header("Content-Type", kind));
    response.add_header(header("Cache-Control", "max-age=600"));
    response.add_header(header("ETag", &tag));
    if zipped {
        response.add_header(header("Content-Encoding", "gzip"));
        response.add_header(header("Vary", "Accept-Encoding"));
    }
    request.respond(response)
}

fn zipped_file(shared: &Shared, path: &Path) -> std::io::Result<Arc<Vec<u8>>> {
    if let Some(kept) = shared.state().kept.get(path) {
        return Ok(kept.clone());
    }
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&std::fs::read(path)?)?;
    let body = Arc::new(encoder.finish()?);
    let mut state = shared.state();
    if state.kept_bytes + body.len() <= KEPT_BYTES {
        state.kept_bytes += body.len();
        state.kept.insert(path.to_owned(), body.clone());
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    /// The bound of a wait that ends in a failure.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn ask(port: u16, text: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("served");
        stream.set_read_timeout(Some(PATIENCE)).expect("settable");
        stream.write_all(text.as_bytes()).expect("sent");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("answered");
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn get(port: u16, host: &str, path: &str, more: &str) -> String {
        ask(
            port,
            &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{more}\r\n"),
        )
    }

    #[test]
    fn files_of_a_page_and_nothing_else() {
        let folder = tempfile::tempdir().expect("room");
        std::fs::create_dir(folder.path().join("page")).expect("room");
        std::fs::write(folder.path().join("page/a b.html"), "hello page").expect("room");
        std::fs::write(folder.path().join("secret.txt"), "secret").expect("room");
        std::os::unix::fs::symlink("../secret.txt", folder.path().join("page/link.txt"))
            .expect("room");
        let site = Site::start().expect("a port");
        let mount = Mount {
            folder: folder.path().join("page"),
            own: Some("ours".into()),
        };
        site.mount("one1", mount);
        let (port, host) = (site.port(), format!("one1.localhost:{}", site.port()));
        let plain = get(port, &host, "/a%20b.html?x=1", "");
        assert!(
            plain.starts_with("HTTP/1.1 200") && plain.ends_with("hello page"),
            "{plain}"
        );
        let zipped = get(port, &host, "/a%20b.html", "Accept-Encoding: gzip\r\n");
        assert!(
            zipped.contains("gzip") && !zipped.contains("hello"),
            "{zipped}"
        );
        let again = get(port, &host, "/a%20b.html", "If-None-Match: \"a\"\r\n");
        assert!(again.starts_with("HTTP/1.1 304"), "{again}");
        assert!(get(port, &host, "/skinflint.html", "").ends_with("ours"));
        assert!(
            get(
                port,
                &format!("one.localhost:{port}"),
                "/one1/a%20b.html",
                ""
            )
            .ends_with("hello page")
        );
        for path in [
            "/../secret.txt",
            "/%2e%2e/secret.txt",
            "/link.txt",
            "/%00",
            "/%zz",
            "/none",
        ] {
            let answer = get(port, &host, path, "");
            assert!(answer.starts_with("HTTP/1.1 404"), "{path}: {answer}");
        }
        let (outside, missing) = site.strays();
        assert!(
            outside.is_empty() && missing.contains_key("one1/none"),
            "{missing:?}"
        );
    }

    #[test]
    fn the_outside_is_answered_by_us_and_listed() {
        let site = Site::start().expect("a port");
        let port = site.port();
        let answer = ask(
            port,
            "GET http://fonts.example/x.css HTTP/1.1\r\nHost: fonts.example\r\nConnection: close\r\n\r\n",
        );
        assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
        let answer = ask(
            port,
            "CONNECT fonts.example:443 HTTP/1.1\r\nHost: fonts.example:443\r\nConnection: close\r\n\r\n",
        );
        assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
        let (outside, _) = site.strays();
        let hosts: Vec<&str> = outside.keys().map(String::as_str).collect();
        assert_eq!(hosts, ["fonts.example", "fonts.example:443"]);
        assert!(site.strays().0.is_empty());
    }

    #[test]
    fn the_page_that_opens_windows_is_told_and_answers() {
        let site = Site::start().expect("a port");
        let (port, host) = (site.port(), format!("opener.localhost:{}", site.port()));
        assert!(site.tell(&Value::Null, Duration::from_millis(10)).is_err());
        let post = move |body: &str| {
            ask(
                port,
                &format!(
                    "POST /skinflint/next HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
                    body.len()
                ),
            )
        };
        let page = std::thread::spawn(move || {
            let first = post("{\"id\":0}");
            assert!(first.ends_with("{\"do\":\"open\",\"id\":7}"), "{first}");
            post("{\"id\":7}");
        });
        let what = serde_json::json!({"do": "open", "id": 7});
        let answer = site.tell(&what, PATIENCE).expect("it asks");
        let said = answer.recv_timeout(PATIENCE).expect("it answers");
        assert_eq!(said["id"], 7);
        drop(site.tell(&serde_json::json!({"do": "end"}), PATIENCE));
        page.join().expect("no panic");
    }
}
