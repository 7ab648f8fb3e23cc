//! The agent's HTTP, on loopback: profiles for scrapers, metrics, and an index of the processes.
//!
//! ```text
//!   GET /                                     the processes, in words          /targets   the same for service discovery
//!   GET /debug/pprof/heap?pid=4711            as Go's                          /metrics   OpenMetrics
//!       /debug/pprof/heap?unit=web.service&seconds=30                          /debug/pprof/allocs, /debug/pprof/books
//! ```
//!
//! S1  It listens on 127.0.0.1 only. Every user of the machine may read it, as with other exporters: names of files and amounts,
//!     neither contents nor addresses of processes (modules.M1). `Host` must be the address itself and a request has no `Origin`:
//!     no web page can read it.
//! S2  A request is answered on a thread of its own, of which there are at most [`BUSY`]; beyond that it is refused, so that a
//!     scraper with many hands does not slow all processes at once, and a client that does not read holds up no other.
//! S3  One answer is about one process. A choice that fits several is refused, and the answer names them.
//!
//! Not here: what a profile is (`watch`, `pprof`).

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use skinflint_reporters::live_page::{header_of, is_ours, respond};
use skinflint_reporters::openmetrics::Series;
use tiny_http::{Method, Request, Server};

use crate::metrics::{self, Family};
use crate::pprof;
use crate::values::Values;
use crate::watch::{Shared, Taken, Untaken, locked};

/// The most requests that are being answered.
const BUSY: usize = 8;
/// The longest that a profile of what happens may take.
const LONGEST_S: u64 = 300;

/// Where readers ask for names of addresses, by POST: there are none but in files.
const SYMBOL: &str = "/debug/pprof/symbol";

const TEXT: &str = "text/plain; charset=utf-8";
const METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A refusal: its status, and why.
type Refused = (u16, String);
/// A body and its type.
type Answer = Result<(Vec<u8>, &'static str), Refused>;

/// The server.
pub struct Page {
    server: Server,
    address: SocketAddr,
    series: Arc<Mutex<Series>>,
    busy: Arc<AtomicUsize>,
}

/// What a profile is wanted of.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Wanted {
    Heap,
    Allocs,
    Books,
}

impl Page {
    /// Begins to listen on a port; 0 is any port.
    ///
    /// # Errors
    /// If the port is taken.
    pub fn open(port: u16, series: usize) -> io::Result<Page> {
        let server = Server::http(("127.0.0.1", port)).map_err(io::Error::other)?;
        let address = server.server_addr().to_ip();
        Ok(Page {
            server,
            address: address.ok_or_else(|| io::Error::other("no address"))?,
            series: Arc::new(Mutex::new(Series::new(series))),
            busy: Arc::default(),
        })
    }

    /// Returns the address of the index.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Answers one request, on a thread of its own (S2); `more`: figures beside the agent's own.
    ///
    /// # Errors
    /// If no request can come any more. A client that hangs up is no error.
    pub fn serve_one(
        &self,
        shared: &Arc<Shared>,
        more: impl FnOnce() -> Vec<Family> + Send + 'static,
    ) -> io::Result<()> {
        let request = self.server.recv()?;
        locked(&shared.board).requests += 1;
        if let Some(refused) = self.refusal(&request) {
            answer(request, Err(refused));
            return Ok(());
        }
        // ORDER: a count that guards nothing.
        if self.busy.fetch_add(1, Ordering::Relaxed) >= BUSY {
            self.busy.fetch_sub(1, Ordering::Relaxed); // ORDER: as above
            let said = format!("{BUSY} requests are being answered already; try again");
            answer(request, Err((503, said)));
            return Ok(());
        }
        let (shared, busy) = (Arc::clone(shared), Arc::clone(&self.busy));
        let (series, address) = (Arc::clone(&self.series), self.address);
        let work = move || {
            let url = request.url().to_owned();
            let (path, query) = url.split_once('?').unwrap_or((&url, ""));
            let result = match path {
                "/" | "/debug/pprof/" => Ok((index(&shared).into_bytes(), TEXT)),
                "/targets" => Ok((targets(&shared, address).into_bytes(), "application/json")),
                "/metrics" => {
                    let more = more();
                    let text = metrics::render(&locked(&shared.board), more, &mut locked(&series));
                    Ok((text.into_bytes(), METRICS))
                }
                // `go tool pprof` asks for names that it does not find in files, and gives up where there is no such page.
                SYMBOL => Ok((b"num_symbols: 0\n".to_vec(), TEXT)),
                "/debug/pprof/heap" => profile(&shared, Wanted::Heap, query),
                "/debug/pprof/allocs" => profile(&shared, Wanted::Allocs, query),
                "/debug/pprof/books" => profile(&shared, Wanted::Books, query),
                _ => Err((
                    404,
                    "there is /, /targets, /metrics, /debug/pprof/heap, …/allocs and …/books"
                        .into(),
                )),
            };
            answer(request, result);
            busy.fetch_sub(1, Ordering::Relaxed); // ORDER: as above
        };
        if std::thread::Builder::new()
            .name("answer".into())
            .spawn(work)
            .is_err()
        {
            // The request went with the closure: its client sees the connection close.
            self.busy.fetch_sub(1, Ordering::Relaxed); // ORDER: as above
        }
        Ok(())
    }

    /// Returns the status and words of a refusal (S1).
    fn refusal(&self, request: &Request) -> Option<Refused> {
        let is_ours = |host: &str| is_ours(self.address, host);
        if !header_of(request, "Host").is_some_and(is_ours)
            || header_of(request, "Origin").is_some()
        {
            let said = "this is for programs on this machine, by its address";
            return Some((403, said.into()));
        }
        let said = "there is nothing to change here";
        let asks = *request.method() == Method::Post && request.url() == SYMBOL;
        (*request.method() != Method::Get && !asks).then(|| (405, said.into()))
    }
}

fn answer(request: Request, result: Answer) {
    match result {
        Ok((body, kind)) => respond(request, 200, kind, body),
        Err((status, said)) => respond(request, status, TEXT, (said + "\n").into_bytes()),
    }
}

/// Returns the profile that a query asks for.
fn profile(shared: &Shared, wanted: Wanted, query: &str) -> Answer {
    let pairs: Vec<(String, String)> = pairs(query).collect();
    let of = |name: &str| {
        pairs
            .iter()
            .find(|(found, _)| found == name)
            .map(|(_, value)| value.as_str())
    };
    if of("debug").is_some_and(|debug| debug != "0") {
        return Err((400, "debug: there is the binary form only, debug=0".into()));
    }
    let seconds = match of("seconds").map(str::parse::<u64>) {
        None => 0,
        Some(Ok(seconds)) if (1..=LONGEST_S).contains(&seconds) => seconds,
        Some(_) => return Err((400, format!("seconds: a number from 1 to {LONGEST_S}"))),
    };
    if seconds > 0 && wanted == Wanted::Books {
        return Err((400, "seconds: books are of a moment; leave it out".into()));
    }
    let pid = chosen(shared, &pairs)?;
    let take = || {
        shared.take(pid, None).map_err(|why| match why {
            Untaken::None(why) => (404, why),
            Untaken::Failed(why) => (503, why),
        })
    };
    let before = take()?;
    let (taken, since) = match seconds {
        0 => (before, None),
        seconds => {
            // CLOCK: the client asks for what happens in this time.
            std::thread::sleep(Duration::from_secs(seconds));
            (take()?, Some(before))
        }
    };
    let Taken {
        heap,
        mut stacks,
        books,
    } = taken;
    let mut values = match (wanted, books) {
        (Wanted::Books, Some(books)) => books.values(&heap, &mut stacks),
        (Wanted::Books, None) => {
            let why = format!("process {pid}: its allocator is of another version: no books");
            return Err((503, why));
        }
        _ => Values::of_go(&heap, since.as_ref().map(|since| &since.heap)),
    };
    if wanted == Wanted::Allocs {
        values.shown = "alloc_space";
    }
    values.duration_ns = seconds * 1_000_000_000;
    Ok((pprof::write(&stacks, &values), "application/octet-stream"))
}

/// Returns the process that a query chooses (S3).
fn chosen(shared: &Shared, pairs: &[(String, String)]) -> Result<u32, Refused> {
    let labels: Vec<_> = pairs
        .iter()
        .filter(|(name, _)| !["seconds", "debug", "gc"].contains(&name.as_str()))
        .collect();
    if let [(name, pid)] = labels[..]
        && name == "pid"
    {
        let pid = pid
            .parse()
            .map_err(|_| (400, format!("pid: {pid} is no number of a process")))?;
        return match shared.refusal(pid) {
            None => Ok(pid),
            Some(why) if why.starts_with("there is no") => Err((404, why)),
            Some(why) => Err((403, why)),
        };
    }
    let board = locked(&shared.board);
    let fits = |one: &&crate::watch::Watched| {
        labels
            .iter()
            .all(|(name, value)| one.labels.get(name) == Some(value))
    };
    let fitting: Vec<u32> = board
        .processes
        .values()
        .filter(fits)
        .map(|one| one.pid)
        .collect();
    match fitting[..] {
        [pid] => Ok(pid),
        [] => Err((
            404,
            "no process with a profile fits; / lists them with their labels".into(),
        )),
        _ => {
            let few: Vec<String> = fitting
                .iter()
                .take(20)
                .map(|pid| format!("pid={pid}"))
                .collect();
            let said = format!(
                "{} processes fit: choose one, as by ?{}",
                fitting.len(),
                few.join(" or ?")
            );
            Err((409, said))
        }
    }
}

/// Returns the pairs of a query, decoded.
fn pairs(query: &str) -> impl Iterator<Item = (String, String)> {
    let parts = query.split('&').filter(|part| !part.is_empty());
    parts.map(|part| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        (decoded(name), decoded(value))
    })
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let hex = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let byte = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (first, byte) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            (b'+', _) => (bytes.push(b' '), rest = after).1,
            _ => (bytes.push(*first), rest = after).1,
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the list of processes, for people.
fn index(shared: &Shared) -> String {
    let board = locked(&shared.board);
    let mut out = format!(
        "skinflint agent: {} processes with a profile, {} rounds\n\n\
         /debug/pprof/heap?pid=N   /debug/pprof/allocs?pid=N   /debug/pprof/books?pid=N   /metrics   /targets\n\
         seconds=N: what comes in that time; any label in the place of pid\n",
        board.processes.len(),
        board.rounds
    );
    for watched in board.processes.values() {
        out += &format!("\npid={}", watched.pid);
        if let Some((rss, _, _)) = watched.closed {
            out += &format!(", {rss} bytes resident");
        }
        if !watched.failure.is_empty() {
            out += &format!("; {}", watched.failure);
        }
        for (name, value) in watched.labels.iter().filter(|(name, _)| *name != "pid") {
            out += &format!("\n  {name}={value}");
        }
        out.push('\n');
    }
    out
}

/// Returns the processes as Prometheus' HTTP service discovery has them: a scraper passes `__param_pid` on.
fn targets(shared: &Shared, address: SocketAddr) -> String {
    let board = locked(&shared.board);
    let target = |watched: &crate::watch::Watched| {
        let mut labels = watched.labels.clone();
        labels.insert("__param_pid".into(), watched.pid.to_string());
        json!({"targets": [address.to_string()], "labels": labels})
    };
    let targets: Vec<_> = board.processes.values().map(target).collect();
    json!(targets).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_decoded() {
        let pairs: Vec<_> = pairs("pid=7&a%20b=x+%2F%&&c").collect();
        let wanted = [("pid", "7"), ("a b", "x /%"), ("c", "")];
        assert_eq!(pairs, wanted.map(|(a, b)| (a.to_owned(), b.to_owned())));
    }
}
